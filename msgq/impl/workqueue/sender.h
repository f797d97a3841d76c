/* Sending: claim a slot, fill the slot, make the slot READY, and count the message. Sending takes no lock and has no
 * list of free slots. The queue is full if a scan of all slots finds no FREE word. A slot therefore cannot be lost.
 *   `Claim`: change FREE to FILLING. Then increment the block's `fill_counts`.
 *   `Fill`: write the payload and the header.
 *   `Commit`: change FILLING to READY. Then increment `ready_count`, which sends the message. Then wake a sleeper.
 * A message with a delay becomes DELAYED in place of READY. Any process makes the message READY at its due time.
 *
 * A sender may be killed at any step:
 *   `Before READY`: the slot is FILLING with a dead owner. The next recovery frees the slot.
 *   `Before the increment of ready_count`: the message is in the queue, with the order of its READY word.
 *   `Before the wake`: the message is in the queue. The next send wakes one more row, and sleepers scan once a second.
 */
#ifndef MQ_WORKQUEUE_SENDER_H
#define MQ_WORKQUEUE_SENDER_H

#include "workqueue/handoff.h"

enum { MQ_QUEUE_NO_SLOT = -1 };

/* Claim a free slot to fill. Returns MQ_QUEUE_NO_SLOT if a scan finds no free slot, or if this call must yield.
 * `ticket` is the caller's ticket, or MQ_NO_TICKET if the call has not waited. */
static inline int64_t mq_queue_claim_free_slot(mq_queue_handle *h, uint64_t ticket) {
    uint64_t max = h->parts.max_messages, filling = mq_slot_state_encode_filling(h->row_number, h->generation);
    if (mq_queue_must_yield_to_handoff(h, MQ_QUEUE_SENDER, ticket))
        return MQ_QUEUE_NO_SLOT;
    for (uint64_t step = 0, slot = h->next_search_slot; step < max; step++, slot++) {
        slot = slot < max ? slot : 0;
        mq_u64 *word = &h->parts.slot_states[slot];
        if (mq_load_relaxed_u64(word) != 0) /* relaxed: the exchange checks it */
            continue;
        /* EDGE word-owner: release. The row's generation is stored, then the word that names it. Partner:
         * mq_queue_reclaim_slots. If weaker: a living owner looks dead.
         * EDGE free: acquire. Partner: mq_queue_free_taken_slot. If weaker: the payload is overwritten during the
         * consumer's copy. */
        if (!mq_compare_exchange_u64(word, 0, filling))
            continue;
        /* EDGE fill-count: release. After FILLING, before READY. Partner: mq_queue_scan_block. If later: a receiver
         * with a cached block misses this message, although it was sent. */
        mq_fetch_add_u64(&h->parts.fill_counts[slot / MQ_QUEUE_BLOCK_SLOTS], 1);
        h->next_search_slot = slot + 1;
        return (int64_t)slot;
    }
    return MQ_QUEUE_NO_SLOT;
}

static inline uint8_t *mq_queue_get_slot_payload(const mq_queue_handle *h, uint64_t slot) {
    return h->parts.payloads + slot * h->parts.stride;
}

/* Release a claimed slot without sending. */
static inline void mq_queue_release_unsent_slot(mq_queue_handle *h, uint64_t slot) {
    if (mq_compare_exchange_u64(&h->parts.slot_states[slot], mq_slot_state_encode_filling(h->row_number, h->generation),
                                0))
        mq_queue_wake_sender(h->parts.queue);
}

/* ---- notifications for the arrival of a message in an empty queue ---- A spurious notification is harmless. A
 * missing notification stalls a program. A sender therefore checks for requests before READY and after READY. When
 * in doubt, the sender notifies. */

/* Return the word of the READY message that will be taken last. Returns 0 if no message waits. */
static inline uint64_t mq_queue_find_last_ready(const mq_queue_file_parts *parts, uint64_t *slot) {
    uint64_t last = 0;
    for (uint64_t i = 0; i < parts->max_messages; i++) {
        uint64_t word = mq_load_acquire_u64(&parts->slot_states[i]);
        if (mq_slot_state_is_ready(word) && (!last || word < last))
            last = word, *slot = i;
    }
    return last;
}

/* Make a word READY and count the message, but do not wake receivers. If a process requested notifications, the
 * sender must prove that the queue was not empty, or notify. One message that is in the queue before and after the
 * commit is a proof. Two scans that find different messages prove nothing: the first message may have left before
 * the commit, and the second message may have arrived later. */
static inline void mq_queue_commit_and_notify(mq_queue_handle *h, uint64_t slot, uint64_t key) {
    uint64_t witness_slot = 0, witness = mq_queue_find_last_ready(&h->parts, &witness_slot);
    /* The same slot may get an equal key again. Therefore compare the fill count, too. */
    const mq_u64 *fill_count = &h->parts.fill_counts[witness_slot / MQ_QUEUE_BLOCK_SLOTS];
    uint64_t before = mq_load_acquire_u64(fill_count);
    bool witness_stayed = witness && mq_load_acquire_u64(&h->parts.slot_states[witness_slot]) == witness;
    mq_store_release_u64(&h->parts.slot_states[slot], key);
    mq_fetch_add_u64(&h->parts.queue->ready_count, 1);
    /* EDGE empty-notify: sequentially consistent. The message is stored, then the other is loaded. Partner:
     * mq_queue_find_best_message. If weaker: no notification is sent for this message, although others emptied the
     * queue. */
    mq_fence_seq_cst();
    witness_stayed = witness_stayed && mq_load_acquire_u64(&h->parts.slot_states[witness_slot]) == witness &&
                     mq_load_acquire_u64(fill_count) == before;
    if (!witness_stayed && !mq_queue_any_row_bit_is_set(&h->parts.queue->sleeping_rows[MQ_QUEUE_RECEIVER]))
        mq_queue_notify_not_empty(h->parts.queue);
}

/* ---- commit ---- */

/* Write the header of a message in a claimed slot, and count the message as sent. Returns the key of the message. */
static inline uint64_t mq_queue_write_slot_header(mq_queue_handle *h, uint64_t slot, uint64_t length, uint64_t priority,
                                                  uint64_t sent_time, uint64_t origin_time) {
    mq_queue_slot_header *header = &h->parts.slot_headers[slot];
    /* relaxed: the value includes all earlier sends of this thread, and all sends that ended before this one began.
     * Other sends are concurrent, and either order is correct. */
    uint64_t key = mq_slot_state_encode_ready(priority, mq_load_relaxed_u64(&h->parts.queue->ready_count));
    mq_store_relaxed_u64(&header->key, key); /* relaxed, all: released with the word */
    mq_store_relaxed_u64(&header->length, length);
    mq_store_relaxed_u64(&header->deliveries, 0);
    mq_store_relaxed_u64(&header->sent_time, sent_time);
    mq_store_relaxed_u64(&header->origin_time, origin_time);
    mq_store_relaxed_u64(&header->lease, 0);
    mq_queue_add_to_counter(&h->own_row->counts.sent, 1);
    return key;
}

/* Send the complete message in a claimed slot. Call mq_queue_wake_receivers next. Returns the key of the message. */
static inline uint64_t mq_queue_commit_message(mq_queue_handle *h, uint64_t slot, uint64_t length, uint64_t priority,
                                               uint64_t sent_time, uint64_t origin_time) {
    uint64_t key = mq_queue_write_slot_header(h, slot, length, priority, sent_time, origin_time);
    mq_store_relaxed_u64(&h->own_row->notify_debt[0], 1); /* relaxed: released with the word */
    if (mq_unlikely(mq_queue_any_row_bit_is_set(&h->parts.queue->notify_requested))) {
        mq_queue_commit_and_notify(h, slot, key);
        mq_store_release_u64(&h->own_row->notify_debt[0], 0);
        return key;
    }
    /* EDGE message: release. Partner: mq_queue_take_message. If weaker: a receiver reads the previous content of the
     * slot. */
    mq_store_release_u64(&h->parts.slot_states[slot], key);
    /* EDGE sent: release. After READY. Partner: mq_queue_find_best_message. If earlier: a receiver that scans again
     * because of this count misses the message, and takes a worse one. */
    mq_fetch_add_u64(&h->parts.queue->ready_count, 1);
    /* a process may have requested a notification after the check above */
    if (mq_unlikely(mq_queue_any_row_bit_is_set(&h->parts.queue->notify_requested)))
        mq_queue_notify_not_empty(h->parts.queue);
    mq_store_release_u64(&h->own_row->notify_debt[0], 0);
    return key;
}

/* Return a new take number of this handle. */
static inline uint32_t mq_queue_advance_take_number(mq_queue_handle *h) {
    /* relaxed: for this row's next owner, under the lock */
    mq_store_relaxed_u64(&h->own_row->take_count, ++h->take_count);
    return (uint32_t)h->take_count;
}

/* Notify sleeping handles that a message became DELAYED. A woken receiver searches for the next due time before it
 * sleeps again. */
static inline void mq_queue_announce_delay(mq_queue_handle *h) {
    /* EDGE sleeper-bit: sequentially consistent. The count is stored, then the bits are loaded. Partner:
     * mq_queue_set_row_bit. If weaker: a receiver sleeps past the due time. */
    mq_fetch_add_u64(&h->parts.queue->delay_count, 1);
    mq_queue_wake_receivers(h->parts.queue, 1);
    /* The word stays the same, because no notification is due. A process that requested notifications and is just going
     * to sleep may therefore miss this wake. It searches for due messages within MQ_QUEUE_RECOVER_NS. */
    if (mq_queue_any_row_bit_is_set(&h->parts.queue->notify_requested))
        mq_futex_wake_all(mq_futex_word(&h->parts.queue->notify_seq));
}

/* Send the complete message in a claimed slot with a delay. The slot becomes READY at `due_tick`. */
static inline uint64_t mq_queue_commit_delayed_message(mq_queue_handle *h, uint64_t slot, uint64_t length,
                                                       uint64_t priority, uint64_t sent_time, uint64_t origin_time,
                                                       uint32_t due_tick) {
    uint64_t key = mq_queue_write_slot_header(h, slot, length, priority, sent_time, origin_time);
    uint64_t taken = mq_slot_state_encode_taken(h->row_number, h->generation, mq_queue_advance_take_number(h));
    /* relaxed: released with the word */
    mq_store_relaxed_u64(&h->parts.slot_headers[slot].lease, mq_job_lease_encode(taken, due_tick));
    /* EDGE lease-end: release. Partner: mq_queue_reclaim_slots. If weaker: the message waits for another due time. */
    mq_store_release_u64(&h->parts.slot_states[slot], mq_slot_state_encode_delayed(taken));
    mq_fetch_add_u64(&h->parts.queue->ready_count, 1); /* the next message of this thread gets a larger order */
    mq_queue_announce_delay(h);
    return key;
}

/* Make a TAKEN message of any owner READY, at its position in the order, or a DELAYED message. Returns false if another
 * process changed the word. */
static inline bool mq_queue_requeue_message(mq_queue_handle *h, uint64_t slot, uint64_t word) {
    bool is_taken = mq_slot_state_decode(word) == MQ_SLOT_TAKEN, has_event = is_taken && h->event_buffer != NULL;
    mq_queue_event_record record;
    /* relaxed: the word was loaded with acquire */
    uint64_t key = mq_load_relaxed_u64(&h->parts.slot_headers[slot].key);
    if (!mq_slot_state_is_ready(key)) /* the key is corrupt: the message loses its order, but stays in the queue */
        key = mq_slot_state_encode_ready(0, mq_load_relaxed_u64(&h->parts.queue->ready_count));
    if (mq_unlikely(has_event))
        record = mq_queue_make_returned_event(h->event_buffer, &h->parts.slot_headers[slot], key, slot, word);
    mq_queue_add_notify_debt(h->own_row, 1);
    if (!mq_compare_exchange_u64(&h->parts.slot_states[slot], word, key)) {
        mq_queue_clear_notify_debt(h->own_row, 1);
        return false;
    }
    mq_fetch_add_u64(&h->parts.queue->ready_count, 1);
    /* atomic, because the watcher thread calls this function, too */
    mq_fetch_add_u64(&h->own_row->counts.returned, is_taken);
    if (mq_unlikely(has_event))
        mq_queue_event_buffer_append(h->event_buffer, &record);
    mq_queue_wake_receivers(h->parts.queue, 1);
    if (mq_queue_any_row_bit_is_set(&h->parts.queue->notify_requested)) /* the queue may have been empty */
        mq_queue_notify_not_empty(h->parts.queue);
    mq_queue_clear_notify_debt(h->own_row, 1);
    return true;
}

/* Make a DELAYED message READY for a caller that has no row. Returns false if the word has changed. */
static inline bool mq_queue_end_delay(const mq_queue_file_parts *parts, uint64_t slot, uint64_t word) {
    mq_queue_row no_row;
    memset(&no_row, 0, sizeof no_row); /* a DELAYED message has no owner, so only the debt of this call is counted */
    mq_queue_handle h = {.parts = *parts, .own_row = &no_row};
    return mq_queue_requeue_message(&h, slot, word);
}

#endif
