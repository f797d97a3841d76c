/* Shared by the tests of work queues. */
#ifndef QUEUE_FIXTURE_H
#define QUEUE_FIXTURE_H

#include "steps.h"

#include "workqueue/join.h"
#include "workqueue/poll_state.h"
#include "workqueue/peek.h"

enum { SLOTS = 4, SIZE = 64, HANDLES = 3 };

static mq_queue *queue;
static mq_liveness_file liveness_file;
static mq_queue_handle handles[HANDLES];
static mq_queue_block_cache memories[HANDLES][1];
static void *locks[HANDLES];
static mq_queue_handle *const a = &handles[0], *const b = &handles[1], *const c = &handles[2];
static mq_queue_taken_message t;

/* Take this row. Its former owner has left; the rows before it have owners. */
static inline void join(int row) {
    mq_queue_handle *h = &handles[row];
    mq_file_lock lock = {.file = liveness_file};
    mq_error error;
    mq_participant_clear(&queue->rows[row].at.participant);
    lives[MQ_QUEUE_ROW_BYTE + row] = MQ_DEAD;
    h->block_caches = memories[row];
    h->liveness_file = &liveness_file;
    memset(memories[row], 0, sizeof memories[row]);
    CHECK(mq_queue_join(h, &lock, &me, 100 + (uint64_t)row, &locks[row], &error) == 0);
    CHECK(h->row_number == (unsigned)row && locks[row] == &holds[MQ_QUEUE_ROW_BYTE + row]);
    lives[MQ_QUEUE_ROW_BYTE + row] = MQ_ALIVE;
}

/* A queue with the handles a, b and c, in the rows 0 to 2. */
static inline void begin(uint64_t slots) {
    uint64_t bytes = mq_queue_compute_file_bytes(slots, SIZE);
    forget_steps();
    memset(handles, 0, sizeof handles);
    queue = zeros(bytes);
    mq_queue_write_file_header(queue, slots, SIZE, 1, &me, MQ_QUEUE_EVENTS_NONE);
    for (int row = 0; row < HANDLES; row++) {
        CHECK(mq_queue_check_header(queue, bytes, &handles[row].parts) == MQ_FILE_VALID);
        join(row);
    }
    forget_steps();
}

static inline void die(mq_queue_handle *h) { lives[MQ_QUEUE_ROW_BYTE + h->row_number] = MQ_DEAD; }

static inline uint64_t word_of(uint64_t slot) { return mq_load_acquire_u64(&a->parts.slot_states[slot]); }
static inline uint64_t ready(void) { return mq_load_acquire_u64(&queue->ready_count); }
static inline uint32_t arrived(void) { return mq_load_acquire_u32(&queue->notify_seq); }
static inline bool is_free(uint64_t slot) { return word_of(slot) == 0; }

/* Fill a held slot, and send it. */
static inline void commit(mq_queue_handle *h, int64_t slot, uint64_t priority) {
    CHECK(slot != MQ_QUEUE_NO_SLOT);
    mq_queue_commit_message(h, (uint64_t)slot, 8, priority, 1, 0);
    mq_queue_wake_receivers(queue, 1);
}
static inline uint64_t send_one(mq_queue_handle *h, uint64_t priority) {
    int64_t slot = mq_queue_claim_free_slot(h, MQ_NO_TICKET);
    commit(h, slot, priority);
    return (uint64_t)slot;
}

static inline void send_delayed(mq_queue_handle *h, uint32_t due_tick) {
    int64_t slot = mq_queue_claim_free_slot(h, MQ_NO_TICKET);
    mq_queue_commit_delayed_message(h, (uint64_t)slot, 1, 3, 1, 0, due_tick);
}

static inline bool take(mq_queue_handle *h) { return mq_queue_take_message(h, MQ_NO_TICKET, &t) == MQ_QUEUE_OK; }
static inline bool receive(mq_queue_handle *h) { return take(h) && mq_queue_free_taken_slot(h, &t); }

static inline int64_t sweep_at(mq_queue_handle *h, uint32_t tick) {
    return mq_queue_reclaim_slots(h, (int64_t)tick * MQ_JOB_LEASE_TICK_NS);
}

static inline const mq_u32 *doze(mq_queue_handle *h, mq_queue_role role) {
    mq_queue_prepare_sleep(h, role, 1);
    return mq_queue_get_eventcount(h, role);
}

#endif
