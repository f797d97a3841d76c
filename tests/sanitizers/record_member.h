/* Handles of a vector or board under stress, and what all processes of it know. Part of record.c. */
#ifndef RECORD_MEMBER_H
#define RECORD_MEMBER_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
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
#define mq_store_release_u64(...) (jostle(), mq_store_release_u64(__VA_ARGS__), jostle())
#define mq_fence_release() (mq_fence_release(), jostle())
#define mq_fence_acquire() (jostle(), mq_fence_acquire())

#include "base/file_lock.h"
#include "records/join.h"

enum { ELEMENTS = 12, CHAIN = 6, SLEEPERS = 2, WORDS_MAX = 512 };
enum { STUCK_MS = 3000, NAP_MS = 5000 };

const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "halt_on_error=1"; }

/* What is tried. */
typedef struct {
    uint64_t words, copies, flags;
    bool calm; /* each write is waited for by its writer, until all sleepers have seen it */
} plan;

/* What all processes know. */
typedef struct {
    _Atomic bool stop, over; /* the writers end; and then the rest */
    _Atomic uint64_t written, read, snapshots, woken, died, killed, left, refused, awaited, uids;
    _Atomic uint64_t times[ELEMENTS];          /* that each was written */
    _Atomic uint64_t seen[SLEEPERS][ELEMENTS]; /* how often it was written when a sleeper saw it */
} books;
static books *all;
static plan now;
static mq_record_file_parts parts;
static mq_liveness_file liveness_file;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the file, for sanitizers; flock is for the rest */
static bool plain;                                       /* nobody is in another process */
static unsigned seed;

static void wrong(const char *what, uint64_t a, uint64_t b) {
    fprintf(stderr, "record: %s: %llx, %llx (seed %u; %llu words, %llu copies, flags %llu, calm %d)\n", what,
            (unsigned long long)a, (unsigned long long)b, seed, (unsigned long long)now.words,
            (unsigned long long)now.copies, (unsigned long long)now.flags, now.calm);
    all->stop = true;
    _exit(1);
}

/* ---- handles ---- */

typedef struct {
    mq_record_writer w;
    void *liveness_token;
    uint64_t uid;
    mq_file_lock file_lock;
} member;

static void lock_file(member *m) {
    if (!mq_file_lock_open(&m->file_lock, &liveness_file))
        wrong("no file", (uint64_t)errno, 0);
    pthread_mutex_lock(&lock);
    while (mq_file_lock_try(&m->file_lock))
        usleep(50);
}
static void unlock_file(member *m) {
    mq_file_lock_close(&m->file_lock);
    pthread_mutex_unlock(&lock);
}

static void go(member *m, bool dies) {
    if (dies) { /* as the kernel does it, with all that it has */
        deaths++;
        mq_liveness_unlock(m->liveness_token);
        all->died++;
    } else {
        mq_record_unregister_writer(&m->w, m->uid, &m->liveness_token);
        all->left++;
    }
}

/* Returns false if another one owns all elements. */
static bool come(member *m) {
    mq_process_identity self;
    mq_error error;
    memset(m, 0, sizeof *m);
    m->w.parts = parts;
    m->w.liveness_file = &liveness_file;
    if (mq_read_process_identity(&self))
        wrong("who are we", 0, 0);
    lock_file(m);
    int failed = mq_record_join(&m->w, &m->file_lock, &self, m->uid = ++all->uids, &m->liveness_token, &error);
    if (failed ? error.kind != MQ_ERROR_OTHER_WRITER : !m->liveness_token)
        wrong("no row", (uint64_t)-failed, 0);
    unlock_file(m);
    return !failed;
}

/* The same, until it has come; false: all is over. */
static bool arrive(member *m) {
    while (!all->stop) {
        if (come(m))
            return true;
        all->refused++;
        usleep(below(2000));
    }
    return false;
}

/* ---- values: each word follows from the first ---- */

/* Who wrote it, and which one it is: as often as the element was written then, if that is known. */
static uint64_t stamp(uint64_t writer, bool known, uint64_t number) {
    return writer << 56 | (uint64_t)known << 55 | number;
}
static uint64_t word_of(uint64_t first, uint64_t i) { return i ? first * (2 * i + 1) + i : first; }

static void fill(uint64_t *value, uint64_t first, uint64_t words) {
    for (uint64_t i = 0; i < words; i++)
        value[i] = word_of(first, i);
}

/* A value that was written so many times, and is whole. */
static void verify(const uint64_t *value, uint64_t words, uint64_t times) {
    uint64_t first = value[0];
    for (uint64_t i = 0; i < words; i++)
        if (value[i] != (times ? word_of(first, i) : 0))
            wrong("a value is another one's in part", first, value[i]);
    if (times && first >> 55 & 1 && (first & ((1ull << 55) - 1)) != times)
        wrong("a value is not the one of its version", first, times);
    all->read++;
}

#endif
