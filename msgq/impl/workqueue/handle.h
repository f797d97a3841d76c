/* One handle of a queue, and who of its peers sleeps.
 *
 * A wake goes to one sleeper, so one word for all will not do: whoever woke would have to say that the others still sleep.
 * Each row has an eventcount word of its own for each kind of sleep (eventcount.h, several writers), on which it sleeps, and
 * a bit in the header, so that nobody has to look at all rows.
 *
 *   who sleeps  its eventcount announced, its bit; a look at all words, in vain; sleep while its eventcount is that; its bit off
 *   who sends   READY, ready + 1; the bits of receivers; the eventcount of one of them
 *   who frees   FREE; the bits of senders; the eventcount of one of them
 *
 * Either the sleeper's look finds what was published, or the bit is seen. Who wakes takes the announcement away, and not
 * before it has woken: so one that is stopped while it wakes leaves the announcement to the next. That one wakes this row,
 * too, but counts only rows that nobody else is waking: two messages are not left to one sleeper. A bit is its owner's
 * alone; others clear it when the owner is dead (recovery.h).
 *
 * Each call that waits has a ticket, a row shows the ticket of its longest waiter, and a wake goes to the row with the
 * smallest one (handoff.h).
 *
 * Threads of one handle share its word: all of them wake, and all but one lie down again. Watchers do not take what they were
 * woken for: all of them are woken beside one receiver. A sleeper that leaves without what it waited for passes the wake
 * on.
 */
#ifndef MQ_WORKQUEUE_HANDLE_H
#define MQ_WORKQUEUE_HANDLE_H

#include "base/eventcount.h"
#include "base/row_table.h"
#include "workqueue/events.h"

/* What a receiver knows of a block (receiver.h). */
typedef struct {
    uint64_t fill_count; /* of the block, when it was scanned */
    uint64_t best;       /* its best READY word then; 0: it had none */
    uint32_t slot;       /* of that */
    bool is_valid;
} mq_queue_block_cache;

/* The call that this handle yields to, and for how long (handoff.h). */
typedef struct {
    uint64_t ticket;  /* 0: it yields to none */
    int64_t until_ns; /* CLOCK_MONOTONIC */
} mq_queue_handoff_yield;

/* One thread at a time; Python's lock sees to that. */
typedef struct {
    mq_queue_file_parts parts;
    mq_queue_row *own_row;
    unsigned row_number; /* of the row */
    uint16_t generation;
    uint64_t take_count;                /* the last one's number */
    uint64_t next_search_slot;          /* slot at which the search for a free one begins */
    mq_queue_block_cache *block_caches; /* as many as the queue has */
    bool saw_owned_slots;               /* the last scan found filling or taken slots */
    int64_t last_recovery_ns;           /* when the dead were looked for last; CLOCK_MONOTONIC */
    int64_t clock_offset;               /* of the host's clock to CLOCK_MONOTONIC */
    mq_queue_handoff_yield yields[MQ_QUEUE_ROLES];
    const mq_liveness_file *liveness_file;
    mq_queue_event_buffer *event_buffer; /* NULL: the queue has no events */
} mq_queue_handle;

typedef enum { MQ_QUEUE_OK, MQ_QUEUE_EMPTY, MQ_QUEUE_CORRUPT } mq_queue_status;

static inline mq_row_table mq_queue_make_row_table(mq_queue *queue) {
    return (mq_row_table){
        .rows = queue->rows, .stride = sizeof(mq_queue_row), .count = MQ_QUEUE_ROWS, .byte = MQ_QUEUE_ROW_BYTE};
}

/* Counts in an owner's own line, which nobody else writes. */
static inline void mq_queue_add_to_counter(mq_u64 *counter, uint64_t n) {
    mq_store_relaxed_u64(counter, mq_load_relaxed_u64(counter) + n); /* relaxed: for those who look on */
}

/* ---- bits ---- */

static inline uint64_t mq_queue_make_row_mask(unsigned row) { return (uint64_t)1 << (row % 64); }

static inline void mq_queue_set_row_bit(mq_queue_row_bits *bits, unsigned row) {
    /* EDGE sleeper-bit: sequentially consistent. The bit is stored, then what is waited for is loaded. Partner:
     * mq_queue_any_row_bit_is_set. If weaker: a receiver sleeps beside a message, a sender beside room. */
    mq_fetch_or_u64(&bits->word[row / 64], mq_queue_make_row_mask(row));
    mq_fence_seq_cst();
}
static inline void mq_queue_clear_row_bit(mq_queue_row_bits *bits, unsigned row) {
    mq_fetch_and_u64(&bits->word[row / 64], ~mq_queue_make_row_mask(row));
    mq_fence_seq_cst(); /* who saw the bit has left it to us: our last look, which follows, finds what that one sent */
}
static inline bool mq_queue_row_bit_is_set(const mq_queue_row_bits *bits, unsigned row) {
    return mq_load_relaxed_u64(&bits->word[row / 64]) &
           mq_queue_make_row_mask(row); /* relaxed: for those who look on */
}

/* To be asked after something was published by a sequentially consistent exchange. */
static inline bool mq_queue_any_row_bit_is_set(const mq_queue_row_bits *bits) {
    uint64_t any = 0;
    /* EDGE sleeper-bit: sequentially consistent. What was published is stored, then the bits are loaded. Partner:
     * mq_queue_set_row_bit. If weaker: a receiver sleeps beside a message, a sender beside room. */
    for (unsigned i = 0; i < MQ_QUEUE_ROWS / 64; i++)
        any |= mq_load_seq_cst_u64(&bits->word[i]);
    return any;
}

/* ---- sleeping and waking ---- */

static inline mq_u32 *mq_queue_get_eventcount(const mq_queue_handle *h, mq_queue_role role) {
    return &h->own_row->eventcounts[role];
}

/* `ticket`: that of the row's longest waiter. Returns the value of the futex word to sleep on. A scan must follow. */
static inline uint32_t mq_queue_prepare_sleep(const mq_queue_handle *h, mq_queue_role role, uint64_t ticket) {
    /* EDGE ticket: release. The ticket is stored, then the announcement. Partner: mq_queue_find_longest_sleeper. If
     * weaker: a waker reads the ticket of an earlier wait, and wakes this row before rows that have waited longer. */
    mq_store_release_u64(&h->own_row->oldest_ticket[role], ticket);
    uint32_t expected = mq_eventcount_prepare_wait_mp(mq_queue_get_eventcount(h, role));
    mq_queue_set_row_bit(&h->parts.queue->sleeping_rows[role], h->row_number);
    return expected;
}
/* None of this row's sleepers of that role is asleep any more. */
static inline void mq_queue_finish_sleep(const mq_queue_handle *h, mq_queue_role role) {
    mq_queue_clear_row_bit(&h->parts.queue->sleeping_rows[role], h->row_number);
}

/* The announced row with the smallest ticket, except rows in `visited`; MQ_NO_ROW: none. */
static inline int mq_queue_find_longest_sleeper(const mq_queue *queue, mq_queue_role role, const uint64_t *visited) {
    int longest = MQ_NO_ROW;
    uint64_t smallest = 0;
    for (unsigned i = 0; i < MQ_QUEUE_ROWS / 64; i++) {
        uint64_t bits = mq_load_seq_cst_u64(&queue->sleeping_rows[role].word[i]) & ~visited[i];
        for (; bits; bits &= bits - 1) {
            unsigned row_number = i * 64 + (unsigned)__builtin_ctzll(bits);
            const mq_queue_row *row = &queue->rows[row_number];
            if (!mq_eventcount_has_waiters_mp(&row->eventcounts[role]))
                continue;
            /* EDGE ticket: acquire. The announcement is loaded, then the ticket. Partner: mq_queue_prepare_sleep. If
             * weaker: as there. */
            uint64_t ticket = mq_load_acquire_u64(&row->oldest_ticket[role]);
            if (longest == MQ_NO_ROW || ticket < smallest)
                longest = (int)row_number, smallest = ticket;
        }
    }
    return longest;
}

/* Wake the sleepers of at most `rows` rows that no other process has woken yet, longest waiter first. */
static inline void mq_queue_wake_rows(mq_queue *queue, mq_queue_role role, int rows) {
    uint64_t visited[MQ_QUEUE_ROWS / 64] = {0};
    int row;
    while (rows > 0 && (row = mq_queue_find_longest_sleeper(queue, role, visited)) != MQ_NO_ROW) {
        visited[row / 64] |= mq_queue_make_row_mask((unsigned)row);
        if (mq_eventcount_notify_mp(&queue->rows[row].eventcounts[role]))
            rows--; /* if two wakers wake one row, it counts for one of them: the other message needs another row */
    }
}

/* So many messages came. */
static inline void mq_queue_wake_receivers(mq_queue *queue, int messages) {
    if (mq_unlikely(mq_queue_any_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_WATCHER])))
        mq_queue_wake_rows(queue, MQ_QUEUE_WATCHER, MQ_QUEUE_ROWS);
    if (mq_queue_any_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_RECEIVER]))
        mq_queue_wake_rows(queue, MQ_QUEUE_RECEIVER, messages);
}

/* A slot became free. */
static inline void mq_queue_wake_sender(mq_queue *queue) {
    if (mq_queue_any_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_SENDER]))
        mq_queue_wake_rows(queue, MQ_QUEUE_SENDER, 1);
}

/* What was changed may have to be told: say so before the change, and that it was told after it. */
static inline void mq_queue_add_notify_debt(mq_queue_row *row, uint64_t n) {
    mq_fetch_add_u64(&row->notify_debt[1], n);
}
static inline void mq_queue_clear_notify_debt(mq_queue_row *row, uint64_t n) {
    mq_fetch_add_u64(&row->notify_debt[1], -n);
}

/* A message came to an empty queue, and nobody waits for it. */
static inline void mq_queue_notify_not_empty(mq_queue *queue) {
    mq_fetch_add_u32(&queue->notify_seq, 1);
    mq_futex_wake_all(mq_futex_word(&queue->notify_seq));
}

#endif
