/* A queue as others see it, for statistics. Each word is read on its own: a figure may be newer than its neighbour, which
 * harms nobody who only looks. Nothing that is read is believed: it bounds no loop and no index. */
#ifndef MQ_WORKQUEUE_SNAPSHOT_H
#define MQ_WORKQUEUE_SNAPSHOT_H

#include "workqueue/handle.h"

enum { MQ_QUEUE_PRIORITIES = MQ_QUEUE_PRIORITY_MAX + 1 };

/* What one owner of a row has. */
typedef struct {
    uint64_t held;
    uint64_t taken;
} mq_queue_owned;

/* What is in the places of a queue. */
typedef struct {
    uint64_t free, held, ready, taken, nonsense; /* places, by what their words say */
    uint64_t astray;                             /* of those that are held or taken: by a former owner of the row */
    uint64_t redelivered;                        /* messages that somebody had before */
    uint64_t most_deliveries;                    /* of a message that is there */
    uint64_t leases;                             /* of taken messages */
    uint64_t overdue;                            /* of these, that are over */
    uint64_t oldest;                             /* sent time of the message that waits longest; 0: none waits */
    mq_queue_owned owned[MQ_QUEUE_ROWS];
} mq_queue_census;

/* Count a place that a row has. */
static inline void mq_snapshot_owned(const mq_queue *queue, uint64_t word, bool taken, mq_queue_census *out) {
    unsigned row = mq_word_row(word); /* below MQ_QUEUE_ROWS, else the word were nonsense */
    bool former = (uint16_t)mq_load_acquire_u64(&queue->rows[row].at.generation) != mq_word_generation(word);
    out->astray += former;
    out->owned[row].held += !former && !taken;
    out->owned[row].taken += !former && taken;
}

/* Count a message, if it was there as long as its head was read. */
static inline void mq_snapshot_message(const mq_queue_parts *parts, uint64_t place, uint64_t word, uint32_t now_tick,
                                       mq_queue_census *out) {
    const mq_queue_head *head = &parts->heads[place];
    bool taken = !mq_word_is_ready(word);
    uint64_t deliveries = mq_load_relaxed_u64(&head->deliveries); /* relaxed, all: looked at again below */
    uint64_t sent = mq_load_relaxed_u64(&head->sent_time), lease = mq_load_relaxed_u64(&head->lease);
    mq_fence_acquire();
    if (mq_load_relaxed_u64(&parts->words[place]) != word) /* relaxed: behind the fence */
        return;
    out->redelivered += deliveries > taken;
    out->most_deliveries = deliveries > out->most_deliveries ? deliveries : out->most_deliveries;
    if (!taken && sent && (!out->oldest || sent < out->oldest))
        out->oldest = sent;
    if (taken && mq_lease_belongs(lease, word)) {
        out->leases++;
        out->overdue += mq_lease_left(lease, now_tick) <= 0;
    }
}

/* Count all places. by_priority has MQ_QUEUE_PRIORITIES zeros, for the messages that wait. */
static inline void mq_snapshot_places(const mq_queue_parts *parts, uint64_t now_ns, mq_queue_census *out,
                                      uint32_t *by_priority) {
    memset(out, 0, sizeof *out);
    for (uint64_t place = 0; place < parts->max_messages; place++) {
        uint64_t word = mq_load_acquire_u64(&parts->words[place]);
        mq_word_kind kind = mq_word_kind_of(word);
        out->free += kind == MQ_WORD_FREE;
        out->held += kind == MQ_WORD_HELD;
        out->taken += kind == MQ_WORD_TAKEN;
        out->ready += kind == MQ_WORD_READY;
        out->nonsense += kind == MQ_WORD_NONSENSE;
        if (kind == MQ_WORD_READY)
            by_priority[mq_word_priority(word)]++;
        if (kind == MQ_WORD_HELD || kind == MQ_WORD_TAKEN)
            mq_snapshot_owned(parts->queue, word, kind == MQ_WORD_TAKEN, out);
        if (kind == MQ_WORD_READY || kind == MQ_WORD_TAKEN)
            mq_snapshot_message(parts, place, word, mq_lease_tick(now_ns), out);
    }
}

/* What the present owner of a row did: the counts go on over owners. Of foreign bytes nothing below 0. */
static inline uint64_t mq_snapshot_since(const mq_u64 *count, const mq_u64 *before) {
    /* relaxed: see the top of the file */
    uint64_t now = mq_load_relaxed_u64(count), then = mq_load_relaxed_u64(before);
    return now > then ? now - then : 0;
}

#endif
