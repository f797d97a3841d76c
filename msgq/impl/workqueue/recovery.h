/* What the dead left, and leases that are over: any process that takes part puts it right, at any time, by one exchange a
 * word, so any number of them may do it at once under traffic.
 *
 * A word names its owner by row and generation. The owner is dead if the row has another generation by now, or if its
 * process is dead (row_table.h). The word is loaded before the generation, both anew: with the scan's relaxed copy a row that has
 * changed hands makes a living owner look dead.
 *
 * Rows change hands under the lock of the queue's file. Bits of dead sleepers are cleared under it, too: else a newcomer
 * could set its bit between the question and the clearing.
 */
#ifndef MQ_WORKQUEUE_REPAIR_H
#define MQ_WORKQUEUE_REPAIR_H

#include "workqueue/receiver.h"

enum {
    MQ_QUEUE_RECOVER_NS = 1000000000,    /* who sleeps, or takes without a pause, looks for the dead so often */
    MQ_QUEUE_RECOVER_BUSY_NS = 10000000, /* and at most so often when there are places of others */
};

/* What one sweep knows of a row: whether its owner of this generation is dead. Rows change hands meanwhile. */
typedef struct {
    bool asked;
    bool died;
    uint16_t generation;
} mq_queue_liveness_cache;

static inline bool mq_queue_owner_died(mq_queue_handle *h, mq_liveness_probe *inquiry,
                                       mq_queue_liveness_cache *verdicts, uint64_t word) {
    unsigned row = mq_word_row(word);
    uint16_t generation = mq_word_generation(word);
    mq_queue_liveness_cache *verdict = &verdicts[row];
    const mq_queue_row *owner = &h->parts.queue->rows[row];
    if ((uint16_t)mq_load_acquire_u64(&owner->at.generation) != generation)
        return true;
    if (row == h->number && generation == h->generation)
        return false; /* ourselves: our own lock looks free to us */
    if (!verdict->asked || verdict->generation != generation) {
        mq_liveness life = mq_row_liveness(inquiry, &owner->at, generation, MQ_QUEUE_ROW_BYTE + (int)row);
        *verdict = (mq_queue_liveness_cache){.asked = true, .died = life == MQ_DEAD, .generation = generation};
    }
    return verdict->died;
}

/* Put all places right whose owners are dead, or whose leases are over. Returns in how many ns the next lease ends,
 * MQ_QUEUE_RECOVER_NS at most. */
static inline int64_t mq_queue_reclaim(mq_queue_handle *h, int64_t now_ns) {
    mq_queue_liveness_cache verdicts[MQ_QUEUE_ROWS] = {0};
    mq_liveness_probe inquiry = mq_liveness_probe_begin(h->roll);
    uint32_t tick = mq_lease_tick((uint64_t)(now_ns + h->clock_offset));
    int64_t next = MQ_QUEUE_RECOVER_NS;
    h->looked_ns = now_ns;
    for (uint64_t place = 0; place < h->parts.max_messages; place++) {
        uint64_t word = mq_load_acquire_u64(&h->parts.words[place]);
        mq_word_kind kind = mq_word_kind_of(word);
        if (kind != MQ_WORD_HELD && kind != MQ_WORD_TAKEN)
            continue;
        /* EDGE deadline: acquire. Partner: mq_queue_lease. If weaker: the next sender writes while its taker copies. */
        uint64_t lease = mq_load_acquire_u64(&h->parts.heads[place].lease);
        bool leased = kind == MQ_WORD_TAKEN && mq_lease_belongs(lease, word);
        int64_t left = leased ? (int64_t)mq_lease_left(lease, tick) * MQ_LEASE_TICK_NS : next;
        if (left <= 0 || mq_queue_owner_died(h, &inquiry, verdicts, word)) {
            if (kind == MQ_WORD_TAKEN)
                mq_queue_return(h, place, word);
            else if (mq_compare_exchange_u64(&h->parts.words[place], word, 0))
                mq_queue_wake_sender(h->parts.queue);
        } else if (left < next)
            next = left;
    }
    mq_liveness_probe_end(&inquiry);
    return next;
}

/* Is it time to look again, after a scan that met places of others or not? */
static inline bool mq_queue_reclaim_due(const mq_queue_handle *h, int64_t now_ns) {
    return now_ns - h->looked_ns >= (h->met ? MQ_QUEUE_RECOVER_BUSY_NS : MQ_QUEUE_RECOVER_NS);
}

/* ---- under the lock ---- */

static inline void mq_queue_clear_bits(mq_queue *queue, unsigned row) {
    for (unsigned kind = 0; kind < MQ_SLEEPS; kind++)
        mq_queue_bit_off(&queue->asleep[kind], row);
    mq_queue_bit_off(&queue->notified, row);
}

/* The ticket in `turn`, if it is the one that this row shows; else 0. */
static inline uint64_t mq_queue_row_turn(const mq_queue *queue, unsigned row, unsigned kind) {
    uint64_t turn = mq_load_acquire_u64(&queue->turn[kind]);
    return turn == mq_load_relaxed_u64(&queue->rows[row].since[kind]) ? turn : 0; /* relaxed: of the dead */
}

static inline bool mq_queue_row_idle(const mq_queue *queue, unsigned row) {
    const mq_queue_row *one = &queue->rows[row]; /* relaxed, all: of the dead, who change nothing any more */
    bool idle = !mq_queue_bit_is_on(&queue->notified, row) && !mq_load_relaxed_u64(&one->owes[0]) &&
                !mq_load_relaxed_u64(&one->owes[1]);
    for (unsigned kind = 0; kind < MQ_SLEEPS; kind++)
        idle = idle && !mq_queue_bit_is_on(&queue->asleep[kind], row) && !mq_queue_row_turn(queue, row, kind);
    return idle;
}

/* Nobody sleeps in this row any more, and what its owner would have told is told. */
static inline void mq_queue_recover_row(const mq_queue_parts *parts, unsigned row) {
    mq_queue *queue = parts->queue;
    mq_u64 *owes = queue->rows[row].owes;
    bool owed = mq_load_relaxed_u64(&owes[0]) || mq_load_relaxed_u64(&owes[1]) ||
                mq_queue_bit_is_on(&queue->asleep[MQ_RECEIVING], row);
    if (owed)
        mq_store_relaxed_u64(&owes[0], 1); /* in case that we die, too, before it is told */
    mq_queue_clear_bits(queue, row);
    for (unsigned kind = 0; kind < MQ_SLEEPS; kind++)
        if (mq_queue_row_turn(queue, row, kind))
            mq_queue_turn_end(parts, &queue->rows[row], (mq_queue_sleep)kind,
                              mq_load_relaxed_u64(&queue->rows[row].since[kind]));
    mq_fence_seq_cst();
    if (owed)
        mq_queue_notify_if_not_empty(parts);
    mq_store_release_u64(&owes[0], 0);
    mq_store_release_u64(&owes[1], 0);
}

static inline void mq_queue_recover_dead_rows(mq_queue_handle *h) {
    const mq_queue *queue = h->parts.queue;
    mq_liveness_probe inquiry = mq_liveness_probe_begin(h->roll);
    for (unsigned row = 0; row < MQ_QUEUE_ROWS; row++) {
        const mq_identity *who = &queue->rows[row].at.who;
        if (row != h->number && !mq_queue_row_idle(queue, row) &&
            mq_identity_liveness(&inquiry, who, MQ_QUEUE_ROW_BYTE + (int)row) == MQ_DEAD)
            mq_queue_recover_row(&h->parts, row);
    }
    mq_liveness_probe_end(&inquiry);
}

/* Look for all that the dead left. Returns as mq_queue_reclaim. */
static inline int64_t mq_queue_recover(mq_queue_handle *h, int64_t now_ns) {
    int64_t next = mq_queue_reclaim(h, now_ns);
    for (unsigned kind = 0; kind < MQ_SLEEPS;
         kind++) /* calls with a time-out of 0 yield once, and may not come again */
        mq_queue_must_yield(h, (mq_queue_sleep)kind, MQ_NO_TICKET);
    mq_fork_guard_enter(); /* a child that is forked now would keep the lock */
    int fd = mq_liveness_file_reopen(h->roll, O_RDWR);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        mq_queue_recover_dead_rows(h);
    mq_fork_guard_leave(fd, NULL);
    return next;
}

/* Take a row that was found, under the lock. What its former owners had comes back after that, by their generations. */
static inline void mq_queue_join(mq_queue_handle *h, int row, const mq_self *self, uint64_t uid, bool held) {
    mq_queue_row *mine = &h->parts.queue->rows[row];
    mq_queue_recover_row(&h->parts, (unsigned)row);
    mq_copy_in(&mine->before, &mine->counts, sizeof mine->before);
    h->row = mine, h->number = (unsigned)row;
    h->take = mq_load_relaxed_u64(&mine->take); /* relaxed: under the lock */
    h->generation = mq_row_table_occupy(&mine->at, self, uid, held);
}

/* ---- leaving ---- */

/* Bring back what this handle has taken or holds. Nobody works with it any more. */
static inline void mq_queue_return_own(mq_queue_handle *h) {
    for (uint64_t place = 0; place < h->parts.max_messages; place++) {
        uint64_t word = mq_load_acquire_u64(&h->parts.words[place]);
        mq_word_kind kind = mq_word_kind_of(word);
        if ((kind != MQ_WORD_HELD && kind != MQ_WORD_TAKEN) || mq_word_row(word) != h->number ||
            mq_word_generation(word) != h->generation)
            continue;
        if (kind == MQ_WORD_TAKEN)
            mq_queue_return(h, place, word);
        else
            mq_queue_drop(h, place);
    }
}

/* A sleeper leaves without what it waited for: if that is there, the wake that it got is somebody else's. */
static inline void mq_queue_forward_wake(mq_queue_handle *h) {
    mq_fence_seq_cst();
    if (mq_queue_has_ready(&h->parts))
        mq_queue_wake_receivers(h->parts.queue, 1);
}
static inline void mq_queue_forward_message_wake(mq_queue_handle *h) {
    mq_queue_forward_wake(h);
    mq_queue_notify_if_not_empty(&h->parts);
}
static inline void mq_queue_forward_room_wake(mq_queue_handle *h) {
    mq_fence_seq_cst();
    if (mq_queue_has_free(&h->parts))
        mq_queue_wake_sender(h->parts.queue);
}

static inline void mq_queue_leave(mq_queue_handle *h, uint64_t uid, void **hold) {
    mq_queue_return_own(h);
    mq_queue_forward_wake(h); /* it may have been used up by one who is not coming back for it */
    mq_queue_forward_room_wake(h);
    mq_queue_recover_row(&h->parts, h->number); /* tells of messages only if it owes that: they may be old */
    mq_identity_leave(&h->row->at.who, uid, hold);
}

#endif
