/* One handle of a queue, and who of its peers sleeps.
 *
 * A wake goes to one sleeper, so one flag for all will not do: whoever woke would have to clear it for the others. Each
 * row has a bit of its own for each kind of sleep. Only its owner sets it, and clears it when it is awake; others clear
 * it when the owner is dead (repair.h). So a bit may stand for nobody, which costs a futile wake, and never the other way.
 *
 *   receiver   its bit; r = ready; a look at all words, in vain; sleep while ready's low half is r
 *   sender     its bit; f = freed; a look at all words, in vain; sleep while freed is f
 *   who sends  READY, ready + 1, then the receivers' bits
 *   who frees  FREE, then the senders' bits; freed + 1
 *
 * Watchers do not take what they were woken for, so they must not use up the wake of one who would: while one of them
 * sleeps, all are woken. A sleeper that leaves without what it waited for passes the wake on.
 */
#ifndef MQ_WORKQUEUE_HANDLE_H
#define MQ_WORKQUEUE_HANDLE_H

#include "ground/futex.h"
#include "ground/roster.h"
#include "workqueue/words.h"

/* What a receiver knows of a block (receiver.h). */
typedef struct {
    uint64_t entered; /* of the block, when it was scanned */
    uint64_t best;    /* its best READY word then; 0: it had none */
    uint32_t place;   /* of that */
    bool known;
} mq_queue_memory;

/* One thread at a time; Python's lock sees to that. */
typedef struct {
    mq_queue_parts parts;
    mq_queue_row *row;
    unsigned number; /* of the row */
    uint16_t generation;
    uint64_t take;            /* the last one's number */
    uint64_t next;            /* place at which the search for a free one begins */
    mq_queue_memory *blocks;  /* as many as the queue has */
    bool met;                 /* the last scan met places that somebody holds or has taken */
    int64_t looked_ns;        /* when the dead were looked for last; CLOCK_MONOTONIC */
    int64_t clock_offset;     /* of the host's clock to CLOCK_MONOTONIC */
    const mq_roll *roll;
    mq_roster roster;
} mq_queue_handle;

typedef enum { MQ_QUEUE_OK, MQ_QUEUE_EMPTY, MQ_QUEUE_FULL, MQ_QUEUE_CORRUPT } mq_queue_status;

static inline mq_roster mq_queue_roster(mq_queue *queue) {
    return (mq_roster){
        .rows = queue->rows, .stride = sizeof(mq_queue_row), .count = MQ_QUEUE_ROWS, .byte = MQ_QUEUE_ROW_BYTE};
}

/* Counts in an owner's own line, which nobody else writes. */
static inline void mq_queue_count(mq_u64 *counter, uint64_t n) {
    mq_store_relaxed_u64(counter, mq_load_relaxed_u64(counter) + n); /* relaxed: for those who look on */
}

/* ---- bits ---- */

static inline uint64_t mq_queue_bit(unsigned row) { return (uint64_t)1 << (row % 64); }

static inline void mq_queue_bit_on(mq_queue_bits *bits, unsigned row) {
    /* EDGE asleep: sequentially consistent. The bit is stored, then what is waited for is loaded. Partner:
     * mq_queue_bits_any. If weaker: a receiver sleeps beside a message, a sender beside room. */
    mq_fetch_or_u64(&bits->word[row / 64], mq_queue_bit(row));
    mq_fence_seq_cst();
}
static inline void mq_queue_bit_off(mq_queue_bits *bits, unsigned row) {
    mq_fetch_and_u64(&bits->word[row / 64], ~mq_queue_bit(row));
    mq_fence_seq_cst(); /* who saw the bit has left it to us: our last look, which follows, finds what that one sent */
}
static inline bool mq_queue_bit_is_on(const mq_queue_bits *bits, unsigned row) {
    return mq_load_relaxed_u64(&bits->word[row / 64]) & mq_queue_bit(row); /* relaxed: for those who look on */
}

/* To be asked after something was published by a sequentially consistent exchange. */
static inline bool mq_queue_bits_any(const mq_queue_bits *bits) {
    uint64_t any = 0;
    /* EDGE asleep: sequentially consistent. What was published is stored, then the bits are loaded. Partner:
     * mq_queue_bit_on. If weaker: a receiver sleeps beside a message, a sender beside room. */
    for (unsigned i = 0; i < MQ_QUEUE_ROWS / 64; i++)
        any |= mq_load_seq_cst_u64(&bits->word[i]);
    return any;
}

/* ---- wakes ---- */

/* The futex word of receivers and watchers. */
static inline mq_u32 *mq_queue_ready_word(mq_queue *queue) { return (mq_u32 *)(void *)&queue->ready; }

/* So many messages came. */
static inline void mq_queue_wake_receivers(mq_queue *queue, int messages) {
    if (mq_unlikely(mq_queue_bits_any(&queue->receivers_watching)))
        mq_futex_wake_all(mq_futex_word(mq_queue_ready_word(queue)));
    else if (mq_queue_bits_any(&queue->receivers_waiting))
        mq_futex_wake(mq_futex_word(mq_queue_ready_word(queue)), messages);
}

/* A place became free. */
static inline void mq_queue_wake_sender(mq_queue *queue) {
    if (mq_likely(!mq_queue_bits_any(&queue->senders_waiting)))
        return;
    mq_fetch_add_u32(&queue->freed, 1);
    mq_futex_wake(mq_futex_word(&queue->freed), 1);
}

/* What was changed may have to be told: say so before the change, and that it was told after it. */
static inline void mq_queue_owe(mq_queue_row *row, uint64_t n) { mq_fetch_add_u64(&row->owes[1], n); }
static inline void mq_queue_owe_no_more(mq_queue_row *row, uint64_t n) { mq_fetch_add_u64(&row->owes[1], -n); }

/* A message came to an empty queue, and nobody waits for it. */
static inline void mq_queue_arrived(mq_queue *queue) {
    mq_fetch_add_u32(&queue->arrived, 1);
    mq_futex_wake_all(mq_futex_word(&queue->arrived));
}

#endif
