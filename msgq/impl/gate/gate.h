/* The gate of an endpoint: two counted events, and the process that owns them (docs/guides/fake-events.md).
 *
 * An event is a count with a flag below it, in one futex word. It may have a FIFO, for those who wait with select.
 */
#ifndef MQ_GATE_H
#define MQ_GATE_H

#include <sched.h>

#include "gate/layout.h"
#include "base/futex.h"
#include "base/liveness_lock.h"

enum {
    MQ_GATE_ROW = 0, /* the byte that the owner locks */
    MQ_FAKE_EVENT_TRIES =
        2000, /* changes that other processes undo at once; also reads of 64 bytes, twice the size of a FIFO */
};

/* relaxed: nobody else sees it before the file gets its name, which the kernel orders. */
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

/* ---- counting ---- */

/* EDGE event: acquire. What was done before the set is seen. Partner: mq_fake_event_set */
static inline bool mq_fake_event_is_set(const mq_fake_event *e) {
    return mq_load_acquire_u32(&e->count) >= MQ_FAKE_EVENT_ONE;
}

/* Does an event that just became set, or just ceased to be, have a FIFO that must be told? */
static inline bool mq_fake_event_has_fifo(const mq_fake_event *e) {
    /* EDGE fifo: sequentially consistent. The count is stored, then fifo_inode is loaded. Partner:
     * mq_fake_event_attach_fifo. If weaker: the FIFO of an event that is set stays empty. */
    mq_fence_seq_cst();
    return mq_load_acquire_u64(&e->fifo_inode) != 0;
}

/* One more. True: the FIFO must be told. */
static inline bool mq_fake_event_set(mq_fake_event *e) {
    /* EDGE event: sequentially consistent, so release. Partner: mq_fake_event_is_set, mq_fake_event_clear. If weaker:
     * who waited for the event misses the message that was sent before it. */
    uint32_t before = mq_fetch_add_u32(&e->count, MQ_FAKE_EVENT_ONE);
    if (mq_unlikely(before >= MQ_FAKE_EVENT_MAX)) /* else the count would wrap around to 0, which means "not set" */
        mq_fetch_add_u32(&e->count, 0u - MQ_FAKE_EVENT_ONE);
    if (before & MQ_FAKE_EVENT_SLEEPERS) {
        /* A sleeper that sets the flag between the two is woken, or finds the word changed and looks again. */
        mq_fetch_and_u32(&e->count, ~(uint32_t)MQ_FAKE_EVENT_SLEEPERS);
        mq_futex_wake_all(mq_futex_word(&e->count));
    }
    return before < MQ_FAKE_EVENT_ONE && mq_fake_event_has_fifo(e);
}

typedef enum { MQ_FAKE_EVENT_WAS_CLEAR, MQ_FAKE_EVENT_CLEARED, MQ_FAKE_EVENT_CLEARED_FIFO } mq_fake_event_change;

/* One less. MQ_FAKE_EVENT_CLEARED_FIFO: the FIFO must be told. */
static inline mq_fake_event_change mq_fake_event_clear(mq_fake_event *e) {
    /* Bound: MQ_FAKE_EVENT_TRIES. Then other processes change the event all the time, and this clear counts as the
     * first. */
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

/* ---- the FIFO ---- */

/* Make the FIFO readable if the event is set, and empty if it is not. Called after each change between the two.
 *
 * Whoever acts on the FIFO looks at the event once more, and acts again if that is not what it was. So take the last
 * action of all: the look after it found the event as the action made the FIFO. Had the event changed since, whoever
 * changed it would act after that, and this was not the last. A process that is killed between its change and its action
 * leaves the FIFO as it was until the next change. A byte too many does no harm, as all are taken out together. */
static inline void mq_fake_event_sync_fifo(const mq_fake_event *e, int fifo) {
    char bytes[64];
    bool set;
    int tries = 0, reads = 0;
    /* Bound: MQ_FAKE_EVENT_TRIES, and as many reads. Then the event changes, or the FIFO is filled, all the time, and
     * the FIFO is in the state after one of the changes. */
    do {
        set = mq_fake_event_is_set(e);
        if (set && write(fifo, "", 1) < 0 && errno != EAGAIN) /* EAGAIN: full, so it is readable */
            return;
        while (!set && reads++ < MQ_FAKE_EVENT_TRIES && read(fifo, bytes, sizeof bytes) > 0)
            ;
    } while (mq_fake_event_is_set(e) != set && ++tries < MQ_FAKE_EVENT_TRIES);
}

/* From now on every change is told to the FIFO of this inode. */
static inline void mq_fake_event_attach_fifo(mq_fake_event *e, uint64_t inode, int fifo) {
    /* EDGE fifo: sequentially consistent. fifo_inode is stored, then the count is loaded. Partner:
     * mq_fake_event_has_fifo */
    mq_store_release_u64(&e->fifo_inode, inode);
    mq_fence_seq_cst();
    mq_fake_event_sync_fifo(e, fifo);
}

static inline uint64_t mq_fake_event_fifo_inode(const mq_fake_event *e) { return mq_load_acquire_u64(&e->fifo_inode); }

/* ---- waiting ---- */

static inline uint32_t *mq_fake_event_futex_word(mq_fake_event *e) { return mq_futex_word(&e->count); }

static inline void mq_cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* Look again and again for one of the events to be set; false: none was until then (CLOCK_MONOTONIC). */
static inline bool mq_fake_event_spin_until_set(const mq_futex_waitv_entry *words, unsigned count, int64_t until_ns) {
    do {
        for (int i = 0; i < 64; i++) {
            for (unsigned j = 0; j < count; j++)
                if (mq_load_acquire_u32((const mq_u32 *)(uintptr_t)words[j].address) >= MQ_FAKE_EVENT_ONE)
                    return true;
            mq_cpu_relax();
        }
        sched_yield(); /* the other side may need this very core */
    } while (mq_monotonic_ns() < until_ns);
    return false;
}

/* Returns what the word shall be when the sleep begins. To be followed by a look at `closed` and `enabled`. */
static inline uint32_t mq_fake_event_prepare_wait(mq_fake_event *e) {
    /* EDGE gate-closed: sequentially consistent, so acquire. Partner: mq_event_gate_wake_waiters */
    return mq_fetch_or_u32(&e->count, MQ_FAKE_EVENT_SLEEPERS) | MQ_FAKE_EVENT_SLEEPERS;
}

static inline bool mq_event_gate_is_closed(const mq_event_gate *g) { return mq_load_acquire_u32(&g->closed) != 0; }

/* `closed` or `enabled` was just stored: have those who sleep look at it. */
static inline void mq_event_gate_wake_waiters(mq_event_gate *g) {
    for (int i = 0; i < 2; i++) {
        mq_fake_event *e = mq_fake_event_select(g, i);
        /* EDGE gate-closed: sequentially consistent, so release. The word is stored, then the flag is taken away; a
         * sleeper sets the flag, then looks at the word. Partner: mq_fake_event_prepare_wait. If weaker: it sleeps
         * until it looks by itself. */
        mq_fetch_and_u32(&e->count, ~(uint32_t)MQ_FAKE_EVENT_SLEEPERS);
        mq_futex_wake_all(mq_fake_event_futex_word(e));
    }
}

/* Not enabled: nobody is held up any more, neither who waits here already. */
static inline void mq_event_gate_set_enabled(mq_event_gate *g, bool enabled) {
    mq_store_release_u32(&g->enabled, enabled);
    if (!enabled)
        mq_event_gate_wake_waiters(g);
}

/* Nobody passes here any more: send those who sleep away. */
static inline void mq_event_gate_close(mq_event_gate *g) {
    mq_store_release_u32(&g->closed, 1);
    mq_event_gate_wake_waiters(g);
}

#endif
