/* A handle of a queue, and how handles sleep and wake.
 *
 * A wake goes to one sleeper. If all sleepers shared one word, the woken sleeper would have to announce the other
 * sleepers again. Therefore each row has its own eventcount for each role (eventcount.h, several writers). The header
 * has a bit for each row, so that wakers need not scan all rows.
 *   `To sleep`: announce the sleep in the eventcount, and set the bit. A receiver then loads ready_count, and scans if
 *   the count has changed since a scan found no message. A sender scans all words. If there is no message or free slot,
 *   sleep while the eventcount is unchanged. Then clear the bit.
 *   `To send`: store READY, increment ready_count, load the receivers' bits, and wake one eventcount.
 *   `To free a slot`: store FREE, load the senders' bits, and wake one eventcount.
 *
 * Either the sleeper loads the new ready_count or the FREE word, or the waker sees the sleeper's bit. A waker clears the
 * announcement after the wake. If a waker stops during the wake, the announcement remains. The next waker then wakes
 * this row, too. But a waker counts only rows that no other process is waking. Two messages are therefore never left to
 * one sleeper. Only the owner of a row changes the row's bit. After the owner's death, other processes clear the bit
 * (recovery.h).
 *
 * Each waiting call has a ticket. A row shows the ticket of its longest waiter. A wake goes to the row with the
 * smallest ticket (handoff.h).
 *
 * Threads of one handle share the row's eventcount. A wake therefore wakes all these threads, and all but one sleep
 * again. Watchers do not take messages. A sender therefore wakes all watchers in addition to one receiver. A sleeper
 * that leaves without a message forwards the wake.
 */
#ifndef MQ_WORKQUEUE_HANDLE_H
#define MQ_WORKQUEUE_HANDLE_H

#include "base/eventcount.h"
#include "base/row_table.h"
#include "workqueue/events.h"

/* A receiver's cache of one block (scan.h). */
typedef struct {
    uint64_t fill_count; /* fill count of the block at the scan */
    uint64_t best;       /* best READY word at the scan; 0: none */
    uint32_t slot;       /* slot of `best` */
    bool is_valid;
    bool has_others;      /* other slots of the block were not FREE at the scan */
    uint64_t taken_alone; /* TAKEN word by which this handle replaced the block's only message; 0: none */
} mq_queue_block_cache;

/* The call that this handle yields to, and the time limit (handoff.h). */
typedef struct {
    uint64_t ticket;  /* 0: the handle yields to no call */
    int64_t until_ns; /* CLOCK_MONOTONIC */
} mq_queue_handoff_yield;

/* Only one thread at a time uses a handle, under the GIL. */
typedef struct {
    mq_queue_file_parts parts;
    mq_queue_row *own_row;
    unsigned row_number; /* index of the handle's row */
    uint16_t generation;
    uint64_t take_count;                /* number of the last take */
    uint64_t next_search_slot;          /* slot at which the next search for a free slot begins */
    mq_queue_block_cache *block_caches; /* caches of all blocks of the queue */
    bool found_empty;                   /* the last scan found no message */
    uint64_t empty_ready_count;         /* ready_count before that scan */
    bool saw_owned_slots;               /* the last scan found slots that are neither FREE nor READY */
    uint64_t seen_delay_count;          /* delay_count before the last search for due messages */
    int64_t last_recovery_ns;           /* time of the last recovery, by CLOCK_MONOTONIC */
    int64_t clock_offset;               /* host's clock minus CLOCK_MONOTONIC, in nanoseconds */
    mq_queue_handoff_yield yields[MQ_QUEUE_ROLES];
    const mq_liveness_file *liveness_file;
    mq_queue_event_buffer *event_buffer; /* NULL: the queue has no events */
    const int64_t *virtual_ns;           /* time of the handle's bus, in place of CLOCK_MONOTONIC. NULL: no bus */
} mq_queue_handle;

typedef enum { MQ_QUEUE_OK, MQ_QUEUE_EMPTY, MQ_QUEUE_CORRUPT } mq_queue_status;

static inline mq_row_table mq_queue_make_row_table(mq_queue *queue) {
    return (mq_row_table){
        .rows = queue->rows, .stride = sizeof(mq_queue_row), .count = MQ_QUEUE_ROWS, .byte = MQ_QUEUE_ROW_BYTE};
}

/* Add `n` to a counter in the owner's own cache line. No other process writes this line. */
static inline void mq_queue_add_to_counter(mq_u64 *counter, uint64_t n) {
    mq_store_relaxed_u64(counter, mq_load_relaxed_u64(counter) + n); /* relaxed: for observers */
}

/* ---- bits ---- */

static inline uint64_t mq_queue_make_row_mask(unsigned row) { return (uint64_t)1 << (row % 64); }

static inline void mq_queue_set_row_bit(mq_queue_row_bits *bits, unsigned row) {
    /* EDGE sleeper-bit: sequentially consistent. The bit is stored, then the awaited words are loaded. Partner:
     * mq_queue_any_row_bit_is_set. If weaker: a receiver sleeps although a message waits, or a sender although a slot
     * is free. */
    mq_fetch_or_u64(&bits->word[row / 64], mq_queue_make_row_mask(row));
    mq_fence_seq_cst();
}
static inline void mq_queue_clear_row_bit(mq_queue_row_bits *bits, unsigned row) {
    mq_fetch_and_u64(&bits->word[row / 64], ~mq_queue_make_row_mask(row));
    /* a process that saw the bit relied on this handle. The handle's next scan finds the message of that process */
    mq_fence_seq_cst();
}
static inline bool mq_queue_row_bit_is_set(const mq_queue_row_bits *bits, unsigned row) {
    return mq_load_relaxed_u64(&bits->word[row / 64]) & mq_queue_make_row_mask(row); /* relaxed: for observers */
}

/* True if any bit is set. Call this after a sequentially consistent exchange that publishes a word. */
static inline bool mq_queue_any_row_bit_is_set(const mq_queue_row_bits *bits) {
    uint64_t any = 0;
    /* EDGE sleeper-bit: sequentially consistent. The published word is stored, then the bits are loaded. Partner:
     * mq_queue_set_row_bit. If weaker: a receiver sleeps although a message waits, or a sender although a slot is
     * free. */
    for (unsigned i = 0; i < MQ_QUEUE_ROWS / 64; i++)
        any |= mq_load_seq_cst_u64(&bits->word[i]);
    return any;
}

/* ---- sleep and wake ---- */

static inline mq_u32 *mq_queue_get_eventcount(const mq_queue_handle *h, mq_queue_role role) {
    return &h->own_row->eventcounts[role];
}

/* Announce a sleep. `ticket` is the ticket of the row's longest waiter. Returns the value that the futex word must
 * have when the sleep begins. After this call, the caller must search for a message or a free slot (scan.h). */
static inline uint32_t mq_queue_prepare_sleep(const mq_queue_handle *h, mq_queue_role role, uint64_t ticket) {
    /* EDGE ticket: release. The ticket is stored, then the announcement. Partner: mq_queue_find_longest_sleeper. If
     * weaker: a waker reads the ticket of an earlier wait, and wakes this row before rows that have waited longer. */
    mq_store_release_u64(&h->own_row->oldest_ticket[role], ticket);
    uint32_t expected = mq_eventcount_prepare_wait_mp(mq_queue_get_eventcount(h, role));
    mq_queue_set_row_bit(&h->parts.queue->sleeping_rows[role], h->row_number);
    return expected;
}
/* End the sleep of this row in this role. Call this when none of the row's threads sleeps. */
static inline void mq_queue_finish_sleep(const mq_queue_handle *h, mq_queue_role role) {
    mq_queue_clear_row_bit(&h->parts.queue->sleeping_rows[role], h->row_number);
}

/* Return the sleeping row with the smallest ticket, or MQ_NO_ROW. Rows in `visited` are excluded. */
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

/* Wake at most `rows` sleeping rows, longest waiter first. A row that another process has already woken does not
 * count. */
static inline void mq_queue_wake_rows(mq_queue *queue, mq_queue_role role, int rows) {
    uint64_t visited[MQ_QUEUE_ROWS / 64] = {0};
    int row;
    while (rows > 0 && (row = mq_queue_find_longest_sleeper(queue, role, visited)) != MQ_NO_ROW) {
        visited[row / 64] |= mq_queue_make_row_mask((unsigned)row);
        if (mq_eventcount_notify_mp(&queue->rows[row].eventcounts[role]))
            /* if two wakers wake one row, the row counts for one waker only. The other waker's message needs another
             * row */
            rows--;
    }
}

/* Wake all watchers, and receivers for `messages` messages. */
static inline void mq_queue_wake_receivers(mq_queue *queue, int messages) {
    if (mq_unlikely(mq_queue_any_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_WATCHER])))
        mq_queue_wake_rows(queue, MQ_QUEUE_WATCHER, MQ_QUEUE_ROWS);
    if (mq_queue_any_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_RECEIVER]))
        mq_queue_wake_rows(queue, MQ_QUEUE_RECEIVER, messages);
}

/* Wake one sender for a free slot. */
static inline void mq_queue_wake_sender(mq_queue *queue) {
    if (mq_queue_any_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_SENDER]))
        mq_queue_wake_rows(queue, MQ_QUEUE_SENDER, 1);
}

/* Register `n` pending notifications before a change. mq_queue_clear_notify_debt clears them after the notification. */
static inline void mq_queue_add_notify_debt(mq_queue_row *row, uint64_t n) {
    mq_fetch_add_u64(&row->notify_debt[1], n);
}
static inline void mq_queue_clear_notify_debt(mq_queue_row *row, uint64_t n) {
    mq_fetch_add_u64(&row->notify_debt[1], -n);
}

/* Send the notification that a message arrived in an empty queue without a waiting receiver. */
static inline void mq_queue_notify_not_empty(mq_queue *queue) {
    mq_fetch_add_u32(&queue->notify_seq, 1);
    mq_futex_wake_all(mq_futex_word(&queue->notify_seq));
}

#endif
