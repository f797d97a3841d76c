/* To receive, exchange the best READY word of the queue for a TAKEN word. The message then belongs to the receiver. The
 * caches of scan.h help to find the word.
 *
 * The second load of `ready_count` detects messages that arrived in slots already scanned. Example: message 1 arrives
 * in a slot that the scan has passed. Message 2, which was sent later, arrives in a slot that the scan has not passed
 * yet. Without the second load, the receiver would take message 2 first.
 *
 * If a process is killed while it owns a TAKEN slot, the next recovery returns the message to its position in the order
 * (recovery.h).
 */
#ifndef MQ_WORKQUEUE_RECEIVER_H
#define MQ_WORKQUEUE_RECEIVER_H

#include "workqueue/sender.h"

/* A taken message. */
typedef struct {
    uint64_t slot;
    uint64_t key;
    uint64_t word; /* TAKEN word, while the message belongs to this handle */
    uint64_t length;
    uint64_t deliveries; /* number of deliveries, including this delivery */
    uint64_t sent_time;
    uint64_t origin_time;
    int64_t taken_time; /* set only on queues with events */
} mq_queue_taken_message;

/* Maximum number of scans in one call. Other handles may take all messages of the largest queue during a call. More
 * scans mean that another program writes the words, perhaps forever. */
enum { MQ_QUEUE_SCANS_MAX = 100000 };

/* Return the message to take. When the last scan began, no better message had been sent. Key 0: there is no message. */
static inline mq_queue_candidate_message mq_queue_find_best_message(mq_queue_handle *h, uint64_t *scans_left) {
    mq_queue_candidate_message last = {0, 0};
    h->saw_owned_slots = false;
    while (*scans_left) {
        --*scans_left;
        /* EDGE sent: acquire. Partner: mq_queue_commit_message. If weaker: messages overtake each other. */
        uint64_t ready = mq_load_acquire_u64(&h->parts.queue->ready_count);
        mq_queue_candidate_message best = mq_queue_scan_all_blocks(h);
        /* EDGE sent: acquire. The scan has ended before the second load. Partner: mq_queue_commit_message */
        mq_fence_acquire();
        /* EDGE empty-notify: sequentially consistent. The queue was left empty, then `ready_count` is loaded. A caller
         * that finds no message may wait for a notification. Partner: mq_queue_commit_and_notify. If weaker: as
         * there. */
        if (!best.key)
            mq_fence_seq_cst();
        if (mq_load_relaxed_u64(&h->parts.queue->ready_count) == ready) { /* relaxed: after a fence */
            mq_queue_keep_scan_result(h, ready, !best.key);
            return best;
        }
        /* If two scans in a row find the same message, return this message. The loop therefore ends under any
         * traffic. */
        if (best.key && best.key == last.key && best.slot == last.slot)
            return best;
        last = best;
    }
    return last;
}

/* Read the header of a message that this handle has taken. Returns false if the message's length is invalid. */
static inline bool mq_queue_read_slot_header(mq_queue_handle *h, mq_queue_taken_message *delivery) {
    mq_queue_slot_header *header = &h->parts.slot_headers[delivery->slot];
    delivery->length = mq_load_relaxed_u64(&header->length); /* relaxed, all: acquired with the word */
    delivery->deliveries = mq_load_relaxed_u64(&header->deliveries) + 1;
    delivery->sent_time = mq_load_relaxed_u64(&header->sent_time);
    delivery->origin_time = mq_load_relaxed_u64(&header->origin_time);
    mq_store_relaxed_u64(&header->deliveries, delivery->deliveries);
    mq_queue_add_to_counter(&h->own_row->counts.received, 1);
    if (mq_unlikely(h->event_buffer != NULL)) {
        delivery->taken_time = mq_queue_read_event_clock_ns(h->event_buffer);
        mq_queue_store_taken_time(header, delivery->word, delivery->taken_time);
    }
    return delivery->length <= h->parts.max_message_size;
}

/* Take the best message. `ticket` is the caller's ticket, or MQ_NO_TICKET if the call has not waited. Returns
 * MQ_QUEUE_CORRUPT with delivery->word 0 if the words change all the time and no message can be taken. Returns
 * MQ_QUEUE_CORRUPT with another word if the message is invalid. The caller then frees the message's slot. */
static inline mq_queue_status mq_queue_take_message(mq_queue_handle *h, uint64_t ticket,
                                                    mq_queue_taken_message *delivery) {
    uint64_t scans_left = MQ_QUEUE_SCANS_MAX;
    if (mq_queue_must_yield_to_handoff(h, MQ_QUEUE_RECEIVER, ticket))
        return MQ_QUEUE_EMPTY;
    while (scans_left) {
        mq_queue_candidate_message best = mq_queue_find_best_message(h, &scans_left);
        if (!best.key)
            return MQ_QUEUE_EMPTY;
        uint64_t word = mq_slot_state_encode_taken(h->row_number, h->generation, mq_queue_advance_take_number(h));
        /* EDGE message: acquire. Partner: mq_queue_commit_message. If weaker: the payload is the slot's previous
         * content. */
        if (mq_compare_exchange_u64(&h->parts.slot_states[best.slot], best.key, word)) {
            mq_queue_note_take(h, best.slot / MQ_QUEUE_BLOCK_SLOTS, word);
            *delivery = (mq_queue_taken_message){.slot = best.slot, .key = best.key, .word = word};
            return mq_queue_read_slot_header(h, delivery) ? MQ_QUEUE_OK : MQ_QUEUE_CORRUPT;
        }
        mq_queue_invalidate_block_cache(h, best.slot / MQ_QUEUE_BLOCK_SLOTS);
    }
    delivery->word = 0;
    return MQ_QUEUE_CORRUPT;
}

/* Take the message in a slot, out of order, to remove it. `word`: the slot's READY or DELAYED word. Returns false if the
 * word has changed, or if the message is invalid. Another sender may have written an equal READY word, so the caller
 * compares the payload again. */
static inline bool mq_queue_take_slot(mq_queue_handle *h, uint64_t slot, uint64_t word,
                                      mq_queue_taken_message *delivery) {
    uint64_t taken = mq_slot_state_encode_taken(h->row_number, h->generation, mq_queue_advance_take_number(h));
    mq_queue_invalidate_block_cache(h, slot / MQ_QUEUE_BLOCK_SLOTS);
    /* EDGE message: acquire. Partner: mq_queue_commit_message. If weaker: the payload is the slot's previous content. */
    if (!mq_compare_exchange_u64(&h->parts.slot_states[slot], word, taken))
        return false;
    /* relaxed: acquired with the word */
    uint64_t key = mq_load_relaxed_u64(&h->parts.slot_headers[slot].key);
    *delivery = (mq_queue_taken_message){.slot = slot, .key = key, .word = taken};
    if (mq_queue_read_slot_header(h, delivery))
        return true;
    mq_queue_requeue_message(h, slot, taken); /* the next receiver of the message gets the error */
    return false;
}

/* Buffer an event of a message that this handle took. Call this only on queues with events. */
static inline void mq_queue_buffer_delivery_event(const mq_queue_handle *h, mq_queue_event_type event_type,
                                                  const mq_queue_taken_message *delivery) {
    mq_queue_event_record record =
        mq_queue_make_event(h->event_buffer, event_type, delivery->key, delivery->slot, delivery->length);
    record.event.deliveries = (uint32_t)delivery->deliveries;
    record.event.sent_time = (int64_t)delivery->sent_time;
    record.event.taken_time = delivery->taken_time;
    record.event.publish_time =
        event_type == MQ_QUEUE_EVENT_TAKEN ? delivery->taken_time : mq_queue_read_event_clock_ns(h->event_buffer);
    record.origin_time = delivery->origin_time;
    mq_queue_event_buffer_append(h->event_buffer, &record);
}

/* Return a taken message to the queue because the program did not get it. The delivery does not count. */
static inline void mq_queue_put_back_message(mq_queue_handle *h, const mq_queue_taken_message *delivery) {
    if (mq_unlikely(h->event_buffer != NULL))
        mq_queue_buffer_delivery_event(h, MQ_QUEUE_EVENT_TAKEN, delivery);
    /* relaxed: released with the word */
    mq_store_relaxed_u64(&h->parts.slot_headers[delivery->slot].deliveries, delivery->deliveries - 1);
    mq_queue_requeue_message(h, delivery->slot, delivery->word);
}

/* Set the tick at which an unacknowledged message returns to the queue. Call this after the message was copied.
 * During a slow copy, an expired lease would let a sender overwrite the payload. */
static inline void mq_queue_set_job_lease(mq_queue_handle *h, const mq_queue_taken_message *delivery,
                                          uint32_t deadline_tick) {
    /* EDGE lease-end: release. Partner: mq_queue_reclaim_slots. If weaker: the next sender writes while this one
     * copies. */
    mq_store_release_u64(&h->parts.slot_headers[delivery->slot].lease,
                         mq_job_lease_encode(delivery->word, deadline_tick));
}

/* Give a job a lease until a time of the handle's clock. Returns the time at which a recovery finds the end. */
static inline int64_t mq_queue_start_job_lease(mq_queue_handle *h, const mq_queue_taken_message *delivery,
                                               int64_t until_ns) {
    mq_queue_set_job_lease(h, delivery, mq_job_lease_end_tick(until_ns + h->clock_offset));
    return until_ns + 2 * MQ_JOB_LEASE_TICK_NS;
}

/* Return a taken message to the queue with a delay. The message becomes READY at `due_tick`. Returns false if the
 * message had already returned to the queue.
 *
 * Only the owner of a slot may write the slot's header. The lease of the job may end at any time, and another handle
 * may then own the slot. Therefore this function first renews the TAKEN word with another take number. The old lease
 * does not belong to the renewed word. */
static inline bool mq_queue_delay_taken_message(mq_queue_handle *h, const mq_queue_taken_message *delivery,
                                                uint32_t due_tick) {
    mq_u64 *word = &h->parts.slot_states[delivery->slot];
    mq_queue_slot_header *header = &h->parts.slot_headers[delivery->slot];
    uint64_t renewed = mq_slot_state_encode_taken(h->row_number, h->generation, mq_queue_advance_take_number(h));
    mq_queue_event_record record;
    if (mq_unlikely(h->event_buffer != NULL))
        record = mq_queue_make_returned_event(h->event_buffer, header, delivery->key, delivery->slot, delivery->word);
    if (!mq_compare_exchange_u64(word, delivery->word, renewed))
        return false;
    mq_fetch_add_u64(&h->own_row->counts.returned, 1); /* atomic: see mq_queue_requeue_message */
    if (mq_unlikely(h->event_buffer != NULL))
        mq_queue_event_buffer_append(h->event_buffer, &record);
    /* EDGE lease-end: release. Partner: mq_queue_reclaim_slots. If weaker: the message waits for another due time. */
    mq_store_release_u64(&header->lease, mq_job_lease_encode(renewed, due_tick));
    /* if the exchange fails, the message was due already, and another process made it READY */
    if (mq_compare_exchange_u64(word, renewed, mq_slot_state_encode_delayed(renewed)))
        mq_queue_announce_delay(h);
    return true;
}

/* Free the slot of a message that was copied or acknowledged. Returns false if the message had already returned to
 * the queue. */
static inline bool mq_queue_free_taken_slot(mq_queue_handle *h, const mq_queue_taken_message *delivery) {
    /* EDGE free: release. Partner: mq_queue_claim_free_slot. If weaker: the copy shows the next message. */
    if (!mq_compare_exchange_u64(&h->parts.slot_states[delivery->slot], delivery->word, 0))
        return false;
    mq_queue_note_free(h, delivery->slot / MQ_QUEUE_BLOCK_SLOTS, delivery->word);
    mq_queue_wake_sender(h->parts.queue);
    mq_queue_add_to_counter(&h->own_row->counts.acknowledged, 1);
    return true;
}

#endif
