/* The gate of an endpoint. A gate has two counted events, and one process owns the gate (docs/guides/fake-events.md).
 *
 * An event is a futex word: bit 0 is a flag, and the other bits are a count. An event may have a FIFO for processes
 * that wait with select.
 */
#ifndef MQ_GATE_H
#define MQ_GATE_H

#include <sched.h>

#include "gate/layout.h"
#include "base/futex.h"
#include "base/liveness_lock.h"

enum {
    MQ_GATE_ROW = 0, /* byte of the gate's file that the owner locks */
    /* maximum number of attempts while other processes change the event. Also the maximum number of reads from the
     * FIFO. With 64 bytes per read, these reads cover twice the size of a FIFO */
    MQ_FAKE_EVENT_TRIES = 2000,
};

/* relaxed: no other process sees it before the file gets its name, which the kernel orders. */
static inline void mq_event_gate_init(mq_event_gate *g, const mq_process_identity *owner, bool held) {
    mq_store_relaxed_u64(&g->version, MQ_GATE_VERSION);
    mq_store_relaxed_u64(&g->total_bytes, MQ_GATE_BYTES);
    mq_store_relaxed_u64(&g->pid, owner->pid);
    mq_store_relaxed_u64(&g->start_time, owner->start_time);
    mq_store_relaxed_u64(&g->pid_namespace, owner->pid_namespace);
    mq_store_relaxed_u64(&g->held, held);
    mq_store_release_u64(&g->magic, MQ_GATE_MAGIC);
}

/* relaxed, here and in the two below: constant since before the file got its name. */
static inline uint64_t mq_event_gate_layout_version(const mq_event_gate *g) { return mq_load_relaxed_u64(&g->version); }

static inline mq_file_check_result mq_event_gate_check_header(const mq_event_gate *g) {
    if (mq_load_acquire_u64(&g->magic) != MQ_GATE_MAGIC)
        return MQ_FILE_NOT_OURS;
    if (mq_event_gate_layout_version(g) != MQ_GATE_VERSION)
        return MQ_FILE_OTHER_VERSION;
    /* relaxed: constant. */
    return mq_load_relaxed_u64(&g->total_bytes) == MQ_GATE_BYTES ? MQ_FILE_VALID : MQ_FILE_NOT_OURS;
}

/* relaxed: constant. */
static inline uint64_t mq_event_gate_owner_pid(const mq_event_gate *g) { return mq_load_relaxed_u64(&g->pid); }

/* relaxed: constant. `liveness_file`: the gate's file. */
static inline mq_liveness mq_event_gate_owner_liveness(const mq_event_gate *g, const mq_liveness_file *liveness_file) {
    uint64_t pid_namespace = mq_load_relaxed_u64(&g->pid_namespace);
    if (!mq_load_relaxed_u64(&g->held))
        return mq_process_liveness(mq_event_gate_owner_pid(g), mq_load_relaxed_u64(&g->start_time), pid_namespace);
    mq_liveness_probe probe = mq_liveness_probe_begin(liveness_file);
    mq_liveness life = mq_owner_liveness(&probe, MQ_GATE_ROW, mq_event_gate_owner_pid(g), pid_namespace);
    mq_liveness_probe_end(&probe);
    return life;
}

static inline bool mq_event_gate_is_enabled(const mq_event_gate *g) { return mq_load_acquire_u32(&g->enabled) != 0; }

static inline mq_fake_event *mq_fake_event_select(mq_event_gate *g, int ready) {
    return ready ? &g->recv_ready : &g->recv_called;
}

/* ---- count ---- */

/* EDGE event: acquire. Stores before the set are visible. Partner: mq_fake_event_set */
static inline bool mq_fake_event_is_set(const mq_fake_event *e) {
    return mq_load_acquire_u32(&e->count) >= MQ_FAKE_EVENT_ONE;
}

/* True if the event has a FIFO. Call this after the event became set or clear. If true, update the FIFO. */
static inline bool mq_fake_event_has_fifo(const mq_fake_event *e) {
    /* EDGE fifo: sequentially consistent. The count is stored, then fifo_inode is loaded. Partner:
     * mq_fake_event_attach_fifo. If weaker: the FIFO of an event that is set stays empty. */
    mq_fence_seq_cst();
    return mq_load_acquire_u64(&e->fifo_inode) != 0;
}

/* Increment the count. Returns true if the FIFO must be updated. */
static inline bool mq_fake_event_set(mq_fake_event *e) {
    /* EDGE event: sequentially consistent, so release. Partner: mq_fake_event_is_set, mq_fake_event_clear. If weaker: a
     * process that waited for the event misses the message that was sent before it. */
    uint32_t before = mq_fetch_add_u32(&e->count, MQ_FAKE_EVENT_ONE);
    /* prevents the count from wrapping around to 0, which means "not set" */
    if (mq_unlikely(before >= MQ_FAKE_EVENT_MAX))
        mq_fetch_add_u32(&e->count, 0u - MQ_FAKE_EVENT_ONE);
    if (before & MQ_FAKE_EVENT_SLEEPERS) {
        /* A sleeper may set the flag between the next two calls. The wake then finds this sleeper, or the sleeper finds
         * that the word changed and checks again. */
        mq_fetch_and_u32(&e->count, ~(uint32_t)MQ_FAKE_EVENT_SLEEPERS);
        mq_futex_wake_all(mq_futex_word(&e->count));
    }
    return before < MQ_FAKE_EVENT_ONE && mq_fake_event_has_fifo(e);
}

typedef enum { MQ_FAKE_EVENT_WAS_CLEAR, MQ_FAKE_EVENT_CLEARED, MQ_FAKE_EVENT_CLEARED_FIFO } mq_fake_event_change;

/* Decrement the count. If the result is MQ_FAKE_EVENT_CLEARED_FIFO, the FIFO must be updated. */
static inline mq_fake_event_change mq_fake_event_clear(mq_fake_event *e) {
    /* Bound: MQ_FAKE_EVENT_TRIES. At the bound, other processes change the event all the time. The call then returns as
     * if the call ran before these changes. */
    for (int tries = 0; tries < MQ_FAKE_EVENT_TRIES; tries++) {
        /* EDGE event: acquire. Partner: mq_fake_event_set */
        uint32_t before = mq_load_acquire_u32(&e->count);
        if (before < MQ_FAKE_EVENT_ONE)
            return MQ_FAKE_EVENT_WAS_CLEAR;
        if (mq_compare_exchange_u32(&e->count, before, before - MQ_FAKE_EVENT_ONE))
            return before < 2 * MQ_FAKE_EVENT_ONE && mq_fake_event_has_fifo(e) ? MQ_FAKE_EVENT_CLEARED_FIFO
                                                                               : MQ_FAKE_EVENT_CLEARED;
    }
    return MQ_FAKE_EVENT_WAS_CLEAR;
}

/* ---- FIFO ---- */

/* Make the FIFO readable if the event is set, and empty if the event is clear. Call this after the event became set or
 * clear. After an update of the FIFO, the process checks the event again. If the event has changed, the process updates
 * the FIFO again.
 *
 * The FIFO is correct after its last update, because the check after this update found the event unchanged. If a
 * process had changed the event after the check, the process would also have updated the FIFO again.
 *
 * If a process is killed between its change and its update, the FIFO is out of date until the next change. Additional
 * bytes in the FIFO are harmless, because a reader reads all bytes together. */
static inline void mq_fake_event_sync_fifo(const mq_fake_event *e, int fifo) {
    char bytes[64];
    bool set;
    int tries = 0, reads = 0;
    /* Bound: MQ_FAKE_EVENT_TRIES updates, and the same number of reads. At the bound, other processes change the event
     * or fill the FIFO all the time. The FIFO then has the state that was correct after one of these changes. */
    do {
        set = mq_fake_event_is_set(e);
        if (set && write(fifo, "", 1) < 0 && errno != EAGAIN) /* EAGAIN: the FIFO is full, and therefore readable */
            return;
        while (!set && reads++ < MQ_FAKE_EVENT_TRIES && read(fifo, bytes, sizeof bytes) > 0)
            ;
    } while (mq_fake_event_is_set(e) != set && ++tries < MQ_FAKE_EVENT_TRIES);
}

/* Attach the FIFO with this inode. Each process that later changes the event updates the FIFO. */
static inline void mq_fake_event_attach_fifo(mq_fake_event *e, uint64_t inode, int fifo) {
    /* EDGE fifo: sequentially consistent. fifo_inode is stored, then the count is loaded. Partner:
     * mq_fake_event_has_fifo */
    mq_store_release_u64(&e->fifo_inode, inode);
    mq_fence_seq_cst();
    mq_fake_event_sync_fifo(e, fifo);
}

static inline uint64_t mq_fake_event_fifo_inode(const mq_fake_event *e) { return mq_load_acquire_u64(&e->fifo_inode); }

/* ---- wait ---- */

static inline uint32_t *mq_fake_event_futex_word(mq_fake_event *e) { return mq_futex_word(&e->count); }

/* Spin until one of the events is set. Returns false if no event was set before `until_ns` (CLOCK_MONOTONIC). */
static inline bool mq_fake_event_spin_until_set(const mq_futex_waitv_entry *words, unsigned count, int64_t until_ns) {
    do {
        for (int i = 0; i < 64; i++) {
            for (unsigned j = 0; j < count; j++)
                if (mq_load_acquire_u32((const mq_u32 *)(uintptr_t)words[j].address) >= MQ_FAKE_EVENT_ONE)
                    return true;
            mq_cpu_relax();
        }
        sched_yield(); /* the process that sets the event may need this CPU core */
    } while (mq_monotonic_ns() < until_ns);
    return false;
}

/* Return the value that the word must have at the beginning of the sleep. Check `closed` and `enabled` after this
 * call. */
static inline uint32_t mq_fake_event_prepare_wait(mq_fake_event *e) {
    /* EDGE gate-closed: sequentially consistent, so acquire. Partner: mq_event_gate_wake_waiters */
    return mq_fetch_or_u32(&e->count, MQ_FAKE_EVENT_SLEEPERS) | MQ_FAKE_EVENT_SLEEPERS;
}

static inline bool mq_event_gate_is_closed(const mq_event_gate *g) { return mq_load_acquire_u32(&g->closed) != 0; }

/* Wake all sleepers, so that each sleeper checks `closed` and `enabled`. Call this after a store to one of these
 * words. */
static inline void mq_event_gate_wake_waiters(mq_event_gate *g) {
    for (int i = 0; i < 2; i++) {
        mq_fake_event *e = mq_fake_event_select(g, i);
        /* EDGE gate-closed: sequentially consistent, so release. The word is stored, then the flag is cleared; a
         * sleeper sets the flag, then loads the word. Partner: mq_fake_event_prepare_wait. If weaker: it sleeps until
         * its next poll. */
        mq_fetch_and_u32(&e->count, ~(uint32_t)MQ_FAKE_EVENT_SLEEPERS);
        mq_futex_wake_all(mq_fake_event_futex_word(e));
    }
}

/* Enable or disable the gate. A disabled gate stops no process. Processes that already wait at the gate continue. */
static inline void mq_event_gate_set_enabled(mq_event_gate *g, bool enabled) {
    mq_store_release_u32(&g->enabled, enabled);
    if (!enabled)
        mq_event_gate_wake_waiters(g);
}

/* Close the gate, and wake all sleepers. A closed gate stops no process. */
static inline void mq_event_gate_close(mq_event_gate *g) {
    mq_store_release_u32(&g->closed, 1);
    mq_event_gate_wake_waiters(g);
}

#endif
