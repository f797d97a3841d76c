/* Scans for messages and for free slots.
 *
 * A scan of all words is linear in the size of the queue. Each receiver therefore caches the result of each block in
 * private memory. The receiver scans a block again only if a message may have arrived in the block. Senders do not
 * update caches, but only increment `fill_counts`. A message becomes READY from FILLING, or from TAKEN when the message
 * returns. A receiver caches a block only if all words of the block were FREE or READY at the scan. If a word of the
 * block becomes READY later, there are two cases:
 *   `Returned`: the message was READY at the scan, was taken, and returned with the same key.
 *   `New`: the slot was FREE at the scan, and then FILLING. `fill_counts` increased before the word became READY.
 *
 * A waiting call asks again and again whether a message waits. A handle therefore keeps the `ready_count` at which its
 * last scan found no message. While the count stays the same, no message has been sent or returned since that scan.
 *
 * Caches are private. A process therefore cannot hide a message that another process sends at the same time. If the
 * cached best message is gone, the exchange of its word fails.
 */
#ifndef MQ_WORKQUEUE_SCAN_H
#define MQ_WORKQUEUE_SCAN_H

#include "workqueue/handle.h"

/* ---- scans of all words, without a cache, for any thread ---- */

/* True if a message waits. Parts without slots are outdated as soon as a message was sent: the caller then maps the
 * slots, and scans again. */
static inline bool mq_queue_has_ready_message(const mq_queue_file_parts *parts) {
    /* acquire: the scan finds each message that ready_count counts */
    if (mq_load_acquire_u64(&parts->queue->ready_count) && mq_unlikely(!parts->max_messages))
        return mq_queue_has_sizes(parts->queue);
    for (uint64_t i = 0; i < parts->max_messages; i++)
        if (mq_slot_state_is_ready(mq_load_acquire_u64(&parts->slot_states[i])))
            return true;
    return false;
}

/* True if a slot is free. */
static inline bool mq_queue_has_free_slot(const mq_queue_file_parts *parts) {
    for (uint64_t i = 0; i < parts->max_messages; i++)
        if (mq_load_acquire_u64(&parts->slot_states[i]) == 0)
            return true;
    return false;
}

static inline bool mq_queue_has_message_or_slot(const mq_queue_file_parts *parts, mq_queue_role role) {
    return role == MQ_QUEUE_SENDER ? mq_queue_has_free_slot(parts) : mq_queue_has_ready_message(parts);
}

/* Return the number of waiting messages, or for senders the number of free slots. */
static inline int mq_queue_count_available(const mq_queue_file_parts *parts, mq_queue_role role) {
    int count = 0;
    for (uint64_t i = 0; i < parts->max_messages; i++) {
        uint64_t word = mq_load_acquire_u64(&parts->slot_states[i]);
        count += role == MQ_QUEUE_SENDER ? word == 0 : mq_slot_state_is_ready(word);
    }
    return count;
}

/* ---- scans with the caches of a handle, for the thread that uses the handle ---- */

enum { MQ_QUEUE_LINE_SLOTS = 8 }; /* words in a cache line */

typedef struct {
    uint64_t key; /* 0: none */
    uint64_t slot;
} mq_queue_candidate_message;

static inline void mq_queue_invalidate_block_cache(mq_queue_handle *h, uint64_t block) {
    h->block_caches[block].is_valid = false, h->block_caches[block].taken_alone = 0;
}

static inline void mq_queue_invalidate_all_caches(mq_queue_handle *h) {
    h->found_empty = false;
    for (uint64_t block = 0; block < h->parts.block_count; block++)
        mq_queue_invalidate_block_cache(h, block);
}

/* True if all slots of a line are FREE. In most queues, this is true for most lines. */
static inline bool mq_queue_line_is_free(const mq_u64 *line) {
    uint64_t any = 0;
#pragma GCC unroll 8
    for (unsigned i = 0; i < MQ_QUEUE_LINE_SLOTS; i++)
        any |= mq_load_relaxed_u64(&line[i]); /* relaxed: as in mq_queue_scan_block */
    return !any;
}

/* Words of a scan. */
typedef struct {
    uint64_t largest, slot; /* largest word, and its slot */
    uint64_t others;        /* bits of all other words; 0: they are FREE */
    bool any_owned;         /* a word was neither FREE nor READY */
} mq_queue_scanned_words;

static inline void mq_queue_add_word(mq_queue_scanned_words *words, uint64_t slot, uint64_t word) {
    bool is_larger = word > words->largest;
    words->any_owned |= (int64_t)word > 0; /* READY words have the sign bit */
    words->others |= is_larger ? words->largest : word;
    words->slot = is_larger ? slot : words->slot;
    words->largest = is_larger ? word : words->largest;
}

/* Scan a block, if a message may have arrived in the block. */
static inline void mq_queue_scan_block(mq_queue_handle *h, uint64_t block) {
    mq_queue_block_cache *cache = &h->block_caches[block];
    /* EDGE fill-count: acquire, before the words. Partner: mq_queue_claim_free_slot. If later: a message that arrives
     * in between counts as seen. */
    uint64_t fill_count = mq_load_acquire_u64(&h->parts.fill_counts[block]);
    if (cache->is_valid && cache->fill_count == fill_count)
        return;
    uint64_t slot = block * MQ_QUEUE_BLOCK_SLOTS, end = slot + MQ_QUEUE_BLOCK_SLOTS;
    mq_queue_scanned_words words = {.slot = slot};
    end = end < h->parts.max_messages ? end : h->parts.max_messages;
    for (; slot + MQ_QUEUE_LINE_SLOTS <= end; slot += MQ_QUEUE_LINE_SLOTS)
        if (!mq_queue_line_is_free(&h->parts.slot_states[slot]))
#pragma GCC unroll 8
            for (unsigned i = 0; i < MQ_QUEUE_LINE_SLOTS; i++)
                /* relaxed, both: the exchange checks the word */
                mq_queue_add_word(&words, slot + i, mq_load_relaxed_u64(&h->parts.slot_states[slot + i]));
    for (; slot < end; slot++)
        mq_queue_add_word(&words, slot, mq_load_relaxed_u64(&h->parts.slot_states[slot]));
    *cache = (mq_queue_block_cache){.fill_count = fill_count,
                                    .best = mq_slot_state_is_ready(words.largest) ? words.largest : 0,
                                    .slot = (uint32_t)words.slot,
                                    .is_valid = !words.any_owned,
                                    .has_others = words.others != 0};
    h->saw_owned_slots |= words.any_owned;
}

/* This handle has replaced the best word of the block by the TAKEN word. */
static inline void mq_queue_note_take(mq_queue_handle *h, uint64_t block, uint64_t taken) {
    mq_queue_block_cache *cache = &h->block_caches[block];
    cache->taken_alone = cache->has_others ? 0 : taken;
    cache->is_valid = false;
}

/* This handle has freed the slot of the TAKEN word. If the block had no other message, all its slots are FREE now. */
static inline void mq_queue_note_free(mq_queue_handle *h, uint64_t block, uint64_t taken) {
    mq_queue_block_cache *cache = &h->block_caches[block];
    if (cache->taken_alone == taken)
        cache->best = cache->taken_alone = 0, cache->is_valid = true;
}

static inline mq_queue_candidate_message mq_queue_scan_all_blocks(mq_queue_handle *h) {
    mq_queue_candidate_message best = {0, 0};
    for (uint64_t block = 0; block < h->parts.block_count; block++) {
        mq_queue_scan_block(h, block);
        if (h->block_caches[block].best > best.key)
            best =
                (mq_queue_candidate_message){.key = h->block_caches[block].best, .slot = h->block_caches[block].slot};
    }
    return best;
}

/* Keep the result of a scan that began after `ready_count` was loaded with acquire. */
static inline void mq_queue_keep_scan_result(mq_queue_handle *h, uint64_t ready_count, bool found_empty) {
    h->found_empty = found_empty, h->empty_ready_count = ready_count;
}

/* True if a message waits, as mq_queue_has_ready_message. A message whose sender was killed before it counted the
 * message is found only after mq_queue_invalidate_all_caches, and therefore at the next recovery. */
static inline bool mq_queue_search_message(mq_queue_handle *h) {
    if (mq_unlikely(!h->parts.max_messages))
        return mq_queue_has_ready_message(&h->parts);
    /* EDGE sleeper-bit: sequentially consistent. The bit is stored, then `ready_count` is loaded, and the scan finds each
     * message that it counts. Partner: mq_queue_any_row_bit_is_set. If weaker: a receiver sleeps although a message
     * waits. */
    uint64_t ready_count = mq_load_seq_cst_u64(&h->parts.queue->ready_count);
    if (h->found_empty && h->empty_ready_count == ready_count)
        return false;
    mq_queue_candidate_message best = mq_queue_scan_all_blocks(h);
    bool found = best.key && (mq_load_acquire_u64(&h->parts.slot_states[best.slot]) == best.key ||
                              mq_queue_has_ready_message(&h->parts)); /* another handle took the cached message */
    mq_queue_keep_scan_result(h, ready_count, !found);
    return found;
}

#endif
