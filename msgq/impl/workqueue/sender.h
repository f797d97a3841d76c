/* Sending: a slot is held, filled, made READY, and counted. No lock, and no list of free slots: "full" is a whole round
 * without a FREE word, so no slot can be lost.
 *
 *   hold      FREE -> FILLING; then the block's `fill_counts` + 1
 *   fill      payload and header
 *   commit    FILLING -> READY; then `ready_count` + 1: it is sent now; then whoever sleeps is woken
 *
 *   killed before READY     a FILLING slot of a dead owner: free at the next look
 *   killed before `ready_count`   the message is there; its order is that of its READY word
 *   killed before the wake  the message is there; the next send wakes one more, and sleepers look once a second
 */
#ifndef MQ_WORKQUEUE_SENDER_H
#define MQ_WORKQUEUE_SENDER_H

#include "workqueue/handoff.h"

enum { MQ_QUEUE_NO_SLOT = -1 };

/* Take a free slot to fill. MQ_QUEUE_NO_SLOT: a scan found none, or this call must yield. `ticket`: the caller's, or
 * MQ_NO_TICKET if it has not waited. */
static inline int64_t mq_queue_claim_free_slot(mq_queue_handle *h, uint64_t ticket) {
    uint64_t max = h->parts.max_messages, filling = mq_slot_state_encode_filling(h->row_number, h->generation);
    if (mq_queue_must_yield_to_handoff(h, MQ_QUEUE_SENDER, ticket))
        return MQ_QUEUE_NO_SLOT;
    for (uint64_t step = 0, slot = h->next_search_slot; step < max; step++, slot++) {
        slot = slot < max ? slot : 0;
        mq_u64 *word = &h->parts.slot_states[slot];
        if (mq_load_relaxed_u64(word) != 0) /* relaxed: the exchange checks it */
            continue;
        /* EDGE free: acquire. Partner: mq_queue_free_taken_slot. If weaker: the payload is written while it is still
         * copied. */
        if (!mq_compare_exchange_u64(word, 0, filling))
            continue;
        /* EDGE fill-count: release. After FILLING, before READY. Partner: mq_queue_scan_block. If later: a receiver
         * that remembers the block does not find this message, though it was sent. */
        mq_fetch_add_u64(&h->parts.fill_counts[slot / MQ_QUEUE_BLOCK_SLOTS], 1);
        h->next_search_slot = slot + 1;
        return (int64_t)slot;
    }
    return MQ_QUEUE_NO_SLOT;
}

static inline uint8_t *mq_queue_get_slot_payload(const mq_queue_handle *h, uint64_t slot) {
    return h->parts.payloads + slot * h->parts.stride;
}

/* Give a held slot back: nothing is sent. */
static inline void mq_queue_release_unsent_slot(mq_queue_handle *h, uint64_t slot) {
    if (mq_compare_exchange_u64(&h->parts.slot_states[slot], mq_slot_state_encode_filling(h->row_number, h->generation),
                                0))
        mq_queue_wake_sender(h->parts.queue);
}

/* ---- telling those who want to know when a message comes to an empty queue ----
 *
 * One notification too many does no harm, one too few stalls whoever waits for it. So a sender looks for the wish before READY
 * and after it, and doubts whatever is not certain. */

/* The READY message that will be taken last; 0: there is none. */
static inline uint64_t mq_queue_find_last_ready(const mq_queue_file_parts *parts, uint64_t *slot) {
    uint64_t last = 0;
    for (uint64_t i = 0; i < parts->max_messages; i++) {
        uint64_t word = mq_load_acquire_u64(&parts->slot_states[i]);
        if (mq_slot_state_is_ready(word) && (!last || word < last))
            last = word, *slot = i;
    }
    return last;
}

/* Make a word READY and count it; wakes nobody. Somebody may want to know whether the queue was empty: it was not if
 * one message was there before and is there afterwards. Two looks that each find some message prove nothing, for the
 * first one's may have gone before ours came, and the second one's may have come later. */
static inline void mq_queue_commit_and_notify(mq_queue_handle *h, uint64_t slot, uint64_t key) {
    uint64_t witness_slot = 0, witness = mq_queue_find_last_ready(&h->parts, &witness_slot);
    const mq_u64 *fill_count =
        &h->parts.fill_counts[witness_slot / MQ_QUEUE_BLOCK_SLOTS]; /* the same slot may get an equal key again */
    uint64_t before = mq_load_acquire_u64(fill_count);
    bool witness_stayed = witness && mq_load_acquire_u64(&h->parts.slot_states[witness_slot]) == witness;
    mq_store_release_u64(&h->parts.slot_states[slot], key);
    mq_fetch_add_u64(&h->parts.queue->ready_count, 1);
    /* EDGE empty-notify: sequentially consistent. The message is stored, then the other is loaded. Partner:
     * mq_queue_find_best_message. If weaker: nobody is told that the queue, which others left empty, has this message.
     * */
    mq_fence_seq_cst();
    witness_stayed = witness_stayed && mq_load_acquire_u64(&h->parts.slot_states[witness_slot]) == witness &&
                     mq_load_acquire_u64(fill_count) == before;
    if (!witness_stayed && !mq_queue_any_row_bit_is_set(&h->parts.queue->sleeping_rows[MQ_QUEUE_RECEIVER]))
        mq_queue_notify_not_empty(h->parts.queue);
}

/* ---- sending what was filled ---- */

/* The message in a held slot is whole: send it. To be followed by mq_queue_wake_receivers. Returns its key. */
static inline uint64_t mq_queue_commit_message(mq_queue_handle *h, uint64_t slot, uint64_t length, uint64_t priority,
                                               uint64_t sent_time, uint64_t origin_time) {
    mq_queue_slot_header *header = &h->parts.slot_headers[slot];
    /* relaxed: what this thread sent before, and what was sent before this began, is in it; others are concurrent, and
     * any order is right. */
    uint64_t key = mq_slot_state_encode_ready(priority, mq_load_relaxed_u64(&h->parts.queue->ready_count));
    mq_store_relaxed_u64(&header->key, key); /* relaxed, all: released with the word */
    mq_store_relaxed_u64(&header->length, length);
    mq_store_relaxed_u64(&header->deliveries, 0);
    mq_store_relaxed_u64(&header->sent_time, sent_time);
    mq_store_relaxed_u64(&header->origin_time, origin_time);
    mq_store_relaxed_u64(&header->lease, 0);
    mq_queue_add_to_counter(&h->own_row->counts.sent, 1);
    mq_store_relaxed_u64(&h->own_row->notify_debt[0], 1); /* relaxed: released with the word */
    if (mq_unlikely(mq_queue_any_row_bit_is_set(&h->parts.queue->notify_requested))) {
        mq_queue_commit_and_notify(h, slot, key);
        mq_store_release_u64(&h->own_row->notify_debt[0], 0);
        return key;
    }
    /* EDGE message: release. Partner: mq_queue_take_message. If weaker: a receiver reads what the slot had before. */
    mq_store_release_u64(&h->parts.slot_states[slot], key);
    /* EDGE sent: release. After READY. Partner: mq_queue_find_best_message. If earlier: a receiver that looks again
     * because of this count does not find the message, and takes a worse one. */
    mq_fetch_add_u64(&h->parts.queue->ready_count, 1);
    if (mq_unlikely(mq_queue_any_row_bit_is_set(&h->parts.queue->notify_requested))) /* since just now */
        mq_queue_notify_not_empty(h->parts.queue);
    mq_store_release_u64(&h->own_row->notify_debt[0], 0);
    return key;
}

/* Bring a message back to its slot in the order, whoever had it. False: somebody else changed the word. */
static inline bool mq_queue_requeue_message(mq_queue_handle *h, uint64_t slot, uint64_t taken) {
    mq_queue_event_record record;
    uint64_t key =
        mq_load_relaxed_u64(&h->parts.slot_headers[slot].key); /* relaxed: the word was loaded with acquire */
    if (!mq_slot_state_is_ready(key))                          /* foreign bytes: its order is lost, not the message */
        key = mq_slot_state_encode_ready(0, mq_load_relaxed_u64(&h->parts.queue->ready_count));
    if (mq_unlikely(h->event_buffer != NULL))
        record = mq_queue_make_returned_event(h->event_buffer, &h->parts.slot_headers[slot], key, slot, taken);
    mq_queue_add_notify_debt(h->own_row, 1);
    if (!mq_compare_exchange_u64(&h->parts.slot_states[slot], taken, key)) {
        mq_queue_clear_notify_debt(h->own_row, 1);
        return false;
    }
    mq_fetch_add_u64(&h->parts.queue->ready_count, 1);
    mq_fetch_add_u64(&h->own_row->counts.returned, 1); /* the watcher's thread does this, too */
    if (mq_unlikely(h->event_buffer != NULL))
        mq_queue_event_buffer_append(h->event_buffer, &record);
    mq_queue_wake_receivers(h->parts.queue, 1);
    if (mq_queue_any_row_bit_is_set(&h->parts.queue->notify_requested)) /* it may have been empty meanwhile */
        mq_queue_notify_not_empty(h->parts.queue);
    mq_queue_clear_notify_debt(h->own_row, 1);
    return true;
}

#endif
