/* Sending: a place is held, filled, made READY, and counted. No lock, and no list of free places: "full" is a whole round
 * without a FREE word, so no place can be lost.
 *
 *   hold      FREE -> HELD; then the block's `entered` + 1
 *   fill      payload and head
 *   commit    HELD -> READY; then `ready` + 1: it is sent now; then whoever sleeps is woken
 *
 *   killed before READY     a HELD place of a dead owner: free at the next look
 *   killed before `ready`   the message is there; its order is that of its READY word
 *   killed before the wake  the message is there; the next send wakes one more, and sleepers look once a second
 */
#ifndef MQ_WORKQUEUE_SENDER_H
#define MQ_WORKQUEUE_SENDER_H

#include "workqueue/turn.h"

enum { MQ_QUEUE_NO_SLOT = -1 };

/* Take a free place to fill. MQ_QUEUE_NO_SLOT: a scan found none, or this call must yield. `ticket`: the caller's, or
 * MQ_NO_TICKET if it has not waited. */
static inline int64_t mq_queue_hold(mq_queue_handle *h, uint64_t ticket) {
    uint64_t max = h->parts.max_messages, held = mq_word_held(h->number, h->generation);
    if (mq_queue_must_yield(h, MQ_SENDING, ticket))
        return MQ_QUEUE_NO_SLOT;
    for (uint64_t step = 0, place = h->next; step < max; step++, place++) {
        place = place < max ? place : 0;
        mq_u64 *word = &h->parts.words[place];
        if (mq_load_relaxed_u64(word) != 0) /* relaxed: the exchange checks it */
            continue;
        /* EDGE free: acquire. Partner: mq_queue_free. If weaker: the payload is written while it is still copied. */
        if (!mq_compare_exchange_u64(word, 0, held))
            continue;
        /* EDGE entered: release. After HELD, before READY. Partner: mq_queue_scan_block. If later: a receiver that
         * remembers the block does not find this message, though it was sent. */
        mq_fetch_add_u64(&h->parts.entered[place / MQ_QUEUE_BLOCK], 1);
        h->next = place + 1;
        return (int64_t)place;
    }
    return MQ_QUEUE_NO_SLOT;
}

static inline uint8_t *mq_queue_payload(const mq_queue_handle *h, uint64_t place) {
    return h->parts.payloads + place * h->parts.stride;
}

/* Give a held place back: nothing is sent. */
static inline void mq_queue_drop(mq_queue_handle *h, uint64_t place) {
    if (mq_compare_exchange_u64(&h->parts.words[place], mq_word_held(h->number, h->generation), 0))
        mq_queue_wake_sender(h->parts.queue);
}

/* ---- telling those who want to know when a message comes to an empty queue ----
 *
 * One notification too many does no harm, one too few stalls whoever waits for it. So a sender looks for the wish before READY
 * and after it, and doubts whatever is not certain. */

/* The READY message that will be taken last; 0: there is none. */
static inline uint64_t mq_queue_last_ready(const mq_queue_parts *parts, uint64_t *place) {
    uint64_t last = 0;
    for (uint64_t i = 0; i < parts->max_messages; i++) {
        uint64_t word = mq_load_acquire_u64(&parts->words[i]);
        if (mq_word_is_ready(word) && (!last || word < last))
            last = word, *place = i;
    }
    return last;
}

/* Make a word READY and count it; wakes nobody. Somebody may want to know whether the queue was empty: it was not if one
 * message was there before and is there afterwards. Two looks that each find some message prove nothing, for the first one's
 * may have gone before ours came, and the second one's may have come later. */
static inline void mq_queue_commit_watched(mq_queue_handle *h, uint64_t place, uint64_t key) {
    uint64_t at = 0, witness = mq_queue_last_ready(&h->parts, &at);
    const mq_u64 *entered = &h->parts.entered[at / MQ_QUEUE_BLOCK]; /* the same place may get an equal key again */
    uint64_t before = mq_load_acquire_u64(entered);
    bool there = witness && mq_load_acquire_u64(&h->parts.words[at]) == witness;
    mq_store_release_u64(&h->parts.words[place], key);
    mq_fetch_add_u64(&h->parts.queue->ready, 1);
    /* EDGE alone: sequentially consistent. The message is stored, then the other is loaded. Partner: mq_queue_find. If
     * weaker: nobody is told that the queue, which others left empty, has this message. */
    mq_fence_seq_cst();
    there = there && mq_load_acquire_u64(&h->parts.words[at]) == witness && mq_load_acquire_u64(entered) == before;
    if (!there && !mq_queue_bits_any(&h->parts.queue->asleep[MQ_RECEIVING]))
        mq_queue_notify_not_empty(h->parts.queue);
}

/* ---- sending what was filled ---- */

/* The message in a held place is whole: send it. To be followed by mq_queue_wake_receivers. Returns its key. */
static inline uint64_t mq_queue_commit(mq_queue_handle *h, uint64_t place, uint64_t length, uint64_t priority,
                                       uint64_t sent_time, uint64_t origin_time) {
    mq_queue_head *head = &h->parts.heads[place];
    /* relaxed: what this thread sent before, and what was sent before this began, is in it; others are concurrent, and any
     * order is right. */
    uint64_t key = mq_word_ready(priority, mq_load_relaxed_u64(&h->parts.queue->ready));
    mq_store_relaxed_u64(&head->key, key); /* relaxed, all: released with the word */
    mq_store_relaxed_u64(&head->length, length);
    mq_store_relaxed_u64(&head->deliveries, 0);
    mq_store_relaxed_u64(&head->sent_time, sent_time);
    mq_store_relaxed_u64(&head->origin_time, origin_time);
    mq_store_relaxed_u64(&head->lease, 0);
    mq_queue_count(&h->row->counts.sent, 1);
    mq_store_relaxed_u64(&h->row->owes[0], 1); /* relaxed: released with the word */
    if (mq_unlikely(mq_queue_bits_any(&h->parts.queue->notified))) {
        mq_queue_commit_watched(h, place, key);
        mq_store_release_u64(&h->row->owes[0], 0);
        return key;
    }
    /* EDGE message: release. Partner: mq_queue_take. If weaker: a receiver reads what the place had before. */
    mq_store_release_u64(&h->parts.words[place], key);
    /* EDGE sent: release. After READY. Partner: mq_queue_find. If earlier: a receiver that looks again because of this
     * count does not find the message, and takes a worse one. */
    mq_fetch_add_u64(&h->parts.queue->ready, 1);
    if (mq_unlikely(mq_queue_bits_any(&h->parts.queue->notified))) /* since just now */
        mq_queue_notify_not_empty(h->parts.queue);
    mq_store_release_u64(&h->row->owes[0], 0);
    return key;
}

/* Bring a message back to its place in the order, whoever had it. False: somebody else changed the word. */
static inline bool mq_queue_return(mq_queue_handle *h, uint64_t place, uint64_t taken) {
    mq_queue_noted noted;
    uint64_t key = mq_load_relaxed_u64(&h->parts.heads[place].key); /* relaxed: the word was loaded with acquire */
    if (!mq_word_is_ready(key)) /* foreign bytes: its order is lost, not the message */
        key = mq_word_ready(0, mq_load_relaxed_u64(&h->parts.queue->ready));
    if (mq_unlikely(h->log != NULL))
        noted = mq_queue_event_back(h->log, &h->parts.heads[place], key, place, taken);
    mq_queue_debt_add(h->row, 1);
    if (!mq_compare_exchange_u64(&h->parts.words[place], taken, key)) {
        mq_queue_debt_clear(h->row, 1);
        return false;
    }
    mq_fetch_add_u64(&h->parts.queue->ready, 1);
    mq_fetch_add_u64(&h->row->counts.returned, 1); /* the watcher's thread does this, too */
    if (mq_unlikely(h->log != NULL))
        mq_queue_note(h->log, &noted);
    mq_queue_wake_receivers(h->parts.queue, 1);
    if (mq_queue_bits_any(&h->parts.queue->notified)) /* it may have been empty meanwhile */
        mq_queue_notify_not_empty(h->parts.queue);
    mq_queue_debt_clear(h->row, 1);
    return true;
}

#endif
