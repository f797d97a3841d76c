/* Handles of a work queue under stress, and what all processes of it know. Part of queue.c. */
#ifndef QUEUE_MEMBER_H
#define QUEUE_MEMBER_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/liveness_lock.h"

/* What a dead thread did is over before anybody learns of its death. The kernel sees to that, unseen by sanitizers. */
static _Atomic uint64_t deaths;
#define mq_owner_liveness(...)                                                                                         \
    ({                                                                                                                 \
        mq_liveness life_ = mq_owner_liveness(__VA_ARGS__);                                                            \
        (void)atomic_load(&deaths);                                                                                    \
        life_;                                                                                                         \
    })

/* Others run between any two steps now and then: most windows are a few instructions wide. */
static _Thread_local uint64_t chance;
static uint32_t below(uint32_t n) {
    chance = chance * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(chance >> 33) % n;
}
static void jostle(void) {
    if (below(256) == 0)
        sched_yield();
}
#define mq_compare_exchange_u64(...) (jostle(), mq_compare_exchange_u64(__VA_ARGS__))
#define mq_fetch_add_u64(...) (jostle(), mq_fetch_add_u64(__VA_ARGS__))
#define mq_store_release_u64(...) (jostle(), mq_store_release_u64(__VA_ARGS__), jostle())

#include "base/file_lock.h"
#include "workqueue/join.h"
#include "workqueue/poll_state.h"

enum { SLOTS = 70, WORDS = 32, SENDERS = 4, NUMBERS = 1 << 22, PRIORITIES = 2 };
enum { STUCK_MS = 6000, NAP_MS = 5000 };

const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "halt_on_error=1"; }

/* What all processes know. */
typedef struct {
    _Atomic bool stop;
    _Atomic uint64_t sent, acked, nacked, died, killed, left, waited, expired, skipped, swept, watched, told;
    _Atomic uint64_t uids;
    struct {
        _Atomic uint64_t begun;        /* numbers up to this one were sent, or given up */
        _Atomic uint8_t done[NUMBERS]; /* how often each was acknowledged */
    } sender[SENDERS];
} books;
static books *all;
static mq_queue_file_parts parts;
static mq_liveness_file liveness_file;
static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* of the queue's file, for sanitizers; flock is for the rest */
static bool plain;             /* nobody is in another process */
static unsigned seed;

static void wrong(const char *what, uint64_t a, uint64_t b) {
    fprintf(stderr, "queue: %s: %llx, %llx (seed %u)\n", what, (unsigned long long)a, (unsigned long long)b, seed);
    all->stop = true;
    _exit(1);
}

/* ---- handles ---- */

typedef struct {
    mq_queue_handle h;
    void *liveness_token;
    uint64_t uid, last[SENDERS][PRIORITIES];
    pthread_mutex_t lock; /* Python's, for threads that share the handle */
    int asleep[MQ_QUEUE_ROLES];
    const mq_queue_waiting_call *calls[2]; /* those that wait, of its threads */
} member;
static member shared;

/* The call of this thread that waits. */
static _Thread_local mq_queue_waiting_call call;
static _Thread_local bool waits;

static void come(member *m) {
    mq_process_identity self;
    mq_file_lock file_lock;
    mq_error error;
    memset(m, 0, sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
    m->h.parts = parts;
    m->h.liveness_file = &liveness_file;
    m->h.block_caches = calloc(parts.block_count, sizeof *m->h.block_caches);
    if (!m->h.block_caches || mq_read_process_identity(&self))
        wrong("no memory", 0, 0);
    if (!mq_file_lock_open(&file_lock, &liveness_file))
        wrong("no file", (uint64_t)errno, 0);
    pthread_mutex_lock(&lock);
    while (mq_file_lock_try(&file_lock))
        usleep(50);
    if (mq_queue_join(&m->h, &file_lock, &self, m->uid = ++all->uids, &m->liveness_token, &error) || !m->liveness_token)
        wrong("no row", m->h.row_number, 0);
    mq_file_lock_close(&file_lock);
    pthread_mutex_unlock(&lock);
    m->h.next_search_slot = below(SLOTS);
    mq_queue_recover(&m->h, mq_monotonic_ns());
}

static void go(member *m, bool dies) {
    if (dies) { /* as the kernel does it, with all that it has */
        deaths++;
        mq_liveness_unlock(m->liveness_token);
        all->died++;
    } else {
        mq_queue_leave(&m->h, m->uid, &m->liveness_token);
        all->left++;
    }
    free(m->h.block_caches);
    pthread_mutex_destroy(&m->lock);
}

/* As Handle._look: the dead, by the clock. */
static void look(member *m) {
    int64_t now = mq_monotonic_ns();
    if (mq_queue_recovery_is_due(&m->h, now))
        mq_queue_recover(&m->h, now);
}

/* Who sleeps is woken when others see its bit; but the killed take wakes with them. */
static void doze(const member *m, mq_queue_role role, mq_u32 *word, uint32_t seen) {
    int64_t max_sleep_ns = plain ? (int64_t)NAP_MS * MQ_NS_PER_MS : MQ_QUEUE_RECOVER_NS;
    bool patient = m == &shared || below(8), receives = role == MQ_QUEUE_RECEIVER;
    if (below(16) == 0)
        sched_yield();
    long woken = mq_futex_wait(mq_futex_word(word), seen, mq_monotonic_ns() + (patient ? max_sleep_ns : 100000));
    if (!plain || !patient || !woken || errno != ETIMEDOUT)
        return;
    for (int look = 0; receives ? mq_queue_has_ready_message(&parts) : mq_queue_has_free_slot(&parts); look++) {
        if (mq_load_acquire_u32(word) != seen || all->stop)
            return; /* it was just being woken */
        if (look == 1000)
            wrong("nobody woke a sleeper", (uint64_t)role, seen);
        usleep(1000);
    }
}

static uint64_t ticket(void) { return waits ? call.ticket : MQ_NO_TICKET; }

static uint64_t oldest(const member *m) {
    uint64_t least = call.ticket;
    for (int i = 0; i < 2; i++)
        if (m->calls[i] && m->calls[i]->ticket < least)
            least = m->calls[i]->ticket;
    return least;
}

/* The lock is held, here and in the next two. */
static void begin_wait(member *m, mq_queue_role role) {
    if (waits)
        return;
    call = mq_queue_wait_begin(&m->h, role, true);
    waits = true;
    m->calls[m->calls[0] != NULL] = &call;
}

/* It has what it waited for, or gives up. */
static void end_wait(member *m) {
    if (!waits)
        return;
    waits = false;
    m->calls[m->calls[0] != &call] = NULL;
    mq_queue_wait_end(&m->h, &call);
}

/* As Handle._sleep. The lock is let go meanwhile. */
static void rest(member *m, mq_queue_role role) {
    mq_u32 *word = mq_queue_get_eventcount(&m->h, role);
    begin_wait(m, role);
    m->asleep[role]++;
    uint32_t seen = mq_queue_wait_prepare_sleep(&m->h, &call, oldest(m));
    bool there = mq_queue_wait_is_over(&m->h, &call);
    pthread_mutex_unlock(&m->lock);
    if (!there && !all->stop)
        doze(m, role, word, seen);
    all->waited++;
    pthread_mutex_lock(&m->lock);
    if (--m->asleep[role] == 0)
        mq_queue_finish_sleep(&m->h, role);
}

#endif
