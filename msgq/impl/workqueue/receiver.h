/* Receiving: the best READY word of all is exchanged for TAKEN; then the message is ours.
 *
 * A scan of all words is linear in the size of the queue, so a receiver remembers, apart from shared memory, what it found
 * in each block, and looks again only where something may have come. It needs no help but the senders' count `entered`:
 *
 * A message becomes READY from HELD, or from TAKEN when it comes back. A block is remembered only if all its words were FREE
 * or READY when it was scanned. So what becomes READY in it later either was there already, and went away and came back
 * to the same key; or was FREE and then HELD, and `entered` grew before it became READY. Nobody lowers a shared summary, so
 * nobody can hide a message that is sent meanwhile. A remembered best that is gone shows when its exchange fails.
 *
 * The second look at `ready` is for messages that came behind the scan's back: it had passed a place when message 1 came
 * there, and found message 2, that was sent later, in a place that it had still before it.
 *
 *   killed while TAKEN   the message comes back to its place in the order at the next look (recovery.h)
 */
#ifndef MQ_WORKQUEUE_RECEIVER_H
#define MQ_WORKQUEUE_RECEIVER_H

#include "workqueue/sender.h"

typedef struct {
    uint64_t key; /* 0: nothing */
    uint64_t place;
} mq_queue_found;

/* A message that was taken. */
typedef struct {
    uint64_t place;
    uint64_t key;
    uint64_t word; /* TAKEN, as long as it is ours */
    uint64_t length;
    uint64_t deliveries; /* this one included */
    uint64_t sent_time;
    uint64_t origin_time;
    int64_t taken_time; /* with events only */
} mq_queue_taken;

static inline void mq_queue_cache_invalidate(mq_queue_handle *h, uint64_t block) { h->blocks[block].known = false; }

static inline void mq_queue_cache_invalidate_all(mq_queue_handle *h) {
    for (uint64_t block = 0; block < h->parts.blocks; block++)
        mq_queue_cache_invalidate(h, block);
}

/* Look through a block, if something may have come to it. */
static inline void mq_queue_scan_block(mq_queue_handle *h, uint64_t block) {
    mq_queue_block_cache *memory = &h->blocks[block];
    /* EDGE entered: acquire, before the words. Partner: mq_queue_hold. If later: a message that is entered in between is
     * taken for one that was seen. */
    uint64_t entered = mq_load_acquire_u64(&h->parts.entered[block]);
    if (memory->known && memory->entered == entered)
        return;
    uint64_t first = block * MQ_QUEUE_BLOCK, end = first + MQ_QUEUE_BLOCK, best = 0, place = first;
    bool owned = false;
    end = end < h->parts.max_messages ? end : h->parts.max_messages;
    for (uint64_t i = first; i < end; i++) {
        uint64_t word = mq_load_relaxed_u64(&h->parts.words[i]); /* relaxed: the exchange checks it */
        owned |= word && !mq_word_is_ready(word);
        place = word > best ? i : place;
        best = word > best ? word : best;
    }
    *memory = (mq_queue_block_cache){
        .entered = entered, .best = mq_word_is_ready(best) ? best : 0, .place = (uint32_t)place, .known = !owned};
    h->met |= owned;
}

static inline mq_queue_found mq_queue_best(mq_queue_handle *h) {
    mq_queue_found found = {0, 0};
    for (uint64_t block = 0; block < h->parts.blocks; block++) {
        mq_queue_scan_block(h, block);
        if (h->blocks[block].best > found.key)
            found = (mq_queue_found){.key = h->blocks[block].best, .place = h->blocks[block].place};
    }
    return found;
}

/* How often a call scans. Others may take all messages of the largest queue before our eyes; beyond that somebody writes who
 * is none of us, for ever perhaps. */
enum { MQ_QUEUE_PATIENCE = 100000 };

/* The message to take: no better one had been sent when the last scan began. key 0: there is none. */
static inline mq_queue_found mq_queue_find(mq_queue_handle *h, uint64_t *patience) {
    mq_queue_found last = {0, 0};
    h->met = false;
    while (*patience) {
        --*patience;
        /* EDGE sent: acquire. Partner: mq_queue_commit. If weaker: messages overtake each other. */
        uint64_t ready = mq_load_acquire_u64(&h->parts.queue->ready);
        mq_queue_found found = mq_queue_best(h);
        mq_fence_acquire(); /* EDGE sent: acquire. The scan is over before the second look. Partner: mq_queue_commit */
        /* EDGE alone: sequentially consistent. The queue was left empty, then `ready` is loaded, and who finds nothing may
         * wait to be notified. Partner: mq_queue_commit_watched. If weaker: as there. */
        if (!found.key)
            mq_fence_seq_cst();
        if (mq_load_relaxed_u64(&h->parts.queue->ready) == ready) /* relaxed: behind a fence */
            return found;
        /* The same one twice: with this it ends under any traffic. */
        if (found.key && found.key == last.key && found.place == last.place)
            return found;
        last = found;
    }
    return last;
}

/* Read the head of a message that is ours. False: its length makes no sense. */
static inline bool mq_queue_open(mq_queue_handle *h, mq_queue_taken *taken) {
    mq_queue_head *head = &h->parts.heads[taken->place];
    taken->length = mq_load_relaxed_u64(&head->length); /* relaxed, all: acquired with the word */
    taken->deliveries = mq_load_relaxed_u64(&head->deliveries) + 1;
    taken->sent_time = mq_load_relaxed_u64(&head->sent_time);
    taken->origin_time = mq_load_relaxed_u64(&head->origin_time);
    mq_store_relaxed_u64(&head->deliveries, taken->deliveries);
    mq_queue_count(&h->row->counts.received, 1);
    if (mq_unlikely(h->log != NULL)) {
        taken->taken_time = mq_queue_event_time(h->log);
        mq_queue_taken_at(head, taken->word, taken->taken_time);
    }
    return taken->length <= h->parts.max_message_size;
}

/* Take the best message. `ticket`: as in mq_queue_hold. MQ_QUEUE_CORRUPT: if taken->word is 0, words change all the time
 * and nothing can be taken; else this message is invalid, and the caller frees it. */
static inline mq_queue_status mq_queue_take(mq_queue_handle *h, uint64_t ticket, mq_queue_taken *taken) {
    uint64_t patience = MQ_QUEUE_PATIENCE;
    if (mq_queue_must_yield(h, MQ_RECEIVING, ticket))
        return MQ_QUEUE_EMPTY;
    while (patience) {
        mq_queue_found found = mq_queue_find(h, &patience);
        if (!found.key)
            return MQ_QUEUE_EMPTY;
        uint64_t word = mq_word_taken(h->number, h->generation, (uint32_t)++h->take);
        mq_store_relaxed_u64(&h->row->take, h->take); /* relaxed: for this row's next owner, under the lock */
        mq_queue_cache_invalidate(h, found.place / MQ_QUEUE_BLOCK);
        /* EDGE message: acquire. Partner: mq_queue_commit. If weaker: the payload is what the place had before. */
        if (mq_compare_exchange_u64(&h->parts.words[found.place], found.key, word)) {
            *taken = (mq_queue_taken){.place = found.place, .key = found.key, .word = word};
            return mq_queue_open(h, taken) ? MQ_QUEUE_OK : MQ_QUEUE_CORRUPT;
        }
    }
    taken->word = 0;
    return MQ_QUEUE_CORRUPT;
}

/* What this handle did to a message that it has taken, or had. For queues with events. */
static inline void mq_queue_note_taken(const mq_queue_handle *h, mq_queue_event_kind kind,
                                       const mq_queue_taken *taken) {
    mq_queue_noted noted = mq_queue_event_of(h->log, kind, taken->key, taken->place, taken->length);
    noted.event.deliveries = (uint32_t)taken->deliveries;
    noted.event.sent_time = (int64_t)taken->sent_time;
    noted.event.taken_time = taken->taken_time;
    noted.event.publish_time = kind == MQ_EVENT_TAKEN ? taken->taken_time : mq_queue_event_time(h->log);
    noted.origin_time = taken->origin_time;
    mq_queue_note(h->log, &noted);
}

/* A message that was taken, and copied, comes back at this tick unless it is acknowledged. Not before the copy: a slow one
 * would find the next message under its hands. */
static inline void mq_queue_lease(mq_queue_handle *h, const mq_queue_taken *taken, uint32_t deadline_tick) {
    /* EDGE deadline: release. Partner: mq_queue_reclaim. If weaker: the next sender writes while this one copies. */
    mq_store_release_u64(&h->parts.heads[taken->place].lease, mq_lease_of(taken->word, deadline_tick));
}

/* The message was copied or done: its place is free. False: it is no longer ours, for it came back meanwhile. */
static inline bool mq_queue_free(mq_queue_handle *h, const mq_queue_taken *taken) {
    /* EDGE free: release. Partner: mq_queue_hold. If weaker: the copy shows the next message. */
    if (!mq_compare_exchange_u64(&h->parts.words[taken->place], taken->word, 0))
        return false;
    mq_queue_wake_sender(h->parts.queue);
    mq_queue_count(&h->row->counts.acknowledged, 1);
    return true;
}

#endif
