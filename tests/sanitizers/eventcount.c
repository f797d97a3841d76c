/* Attention among several publishers, as threads. Usage: eventcount SECONDS SEED. Prints what was done; ends with 1 and a
 * text when something was wrong.
 *
 * What: each publisher counts a word up, wakes whoever sleeps, and mostly waits until all sleepers have seen it. One of
 * them stops in the middle of its wakes, until the others have published some more.
 * Why: in the order of one publisher, those who publish meanwhile would not know of the sleepers.
 * Failure would mean: somebody sleeps on although a publisher has returned from its call.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/futex.h"

static void stop_here(void);
#define mq_futex_wake_all(word) (stop_here(), mq_futex_wake_all(word))
#include "base/eventcount.h"
#undef mq_futex_wake_all

#ifndef WATCHDOG_S
#define WATCHDOG_S 20 /* nobody needs a second, however busy the machine */
#endif

enum { PUBLISHERS = 3, SLEEPERS = 3, AHEAD = 5 };

static mq_u32 eventcount, published[PUBLISHERS], seen[SLEEPERS][PUBLISHERS];
static _Atomic uint32_t told[PUBLISHERS]; /* messages whose publisher has returned */
static _Atomic bool stop, over;
static _Atomic uint64_t slept, stopped;
static _Thread_local bool lags; /* the publisher that stops */
static unsigned seed;

static void wait_for(bool (*what)(uint32_t), uint32_t number, const char *text) {
    int64_t deadline = mq_monotonic_ns() + WATCHDOG_S * 1000000000ll;
    while (!what(number)) {
        sched_yield();
        if (mq_monotonic_ns() > deadline) {
            fprintf(stderr, "eventcount: %s (seed %u)\n", text, seed);
            _exit(1);
        }
    }
}

static bool others_went_on(uint32_t number) { return stop || told[1] >= number; }

/* Between the steps of a wake: the kernel takes the CPU away for long. */
static void stop_here(void) {
    if (!lags || stop)
        return;
    stopped++;
    wait_for(others_went_on, told[1] + AHEAD, "the others do not go on");
}

/* `number` is a message, its publisher in the lowest digit. */
static bool all_saw(uint32_t number) {
    for (int i = 0; i < SLEEPERS; i++)
        if (mq_load_acquire_u32(&seen[i][number % PUBLISHERS]) < number / PUBLISHERS)
            return false;
    return true;
}

static void *publish(void *argument) {
    uint32_t me = (uint32_t)(uintptr_t)argument;
    unsigned random = seed + me;
    lags = me == 0;
    while (!stop) {
        uint32_t number = mq_fetch_add_u32(&published[me], 1) + 1;
        if (mq_eventcount_has_waiters_mp(&eventcount))
            mq_eventcount_notify_mp(&eventcount);
        if (rand_r(&random) % 4)
            wait_for(all_saw, number * PUBLISHERS + me, "somebody sleeps through a message");
        told[me] = number;
    }
    return NULL;
}

static bool look(int me) {
    bool news = false;
    for (int i = 0; i < PUBLISHERS; i++) {
        uint32_t now = mq_load_acquire_u32(&published[i]);
        news |= now != mq_load_relaxed_u32(&seen[me][i]);
        mq_store_release_u32(&seen[me][i], now);
    }
    return news;
}

static void *follow(void *argument) {
    int me = (int)(uintptr_t)argument;
    while (!over) {
        if (look(me))
            continue;
        uint32_t expected = mq_eventcount_prepare_wait_mp(&eventcount);
        if (!look(me) && !over && mq_futex_wait(mq_futex_word(&eventcount), expected, -1) == 0)
            slept++;
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t publishers[PUBLISHERS], sleepers[SLEEPERS];
    seed = (unsigned)atoi(argv[argc > 2 ? 2 : 0]);
    for (uintptr_t i = 0; i < SLEEPERS; i++)
        pthread_create(&sleepers[i], NULL, follow, (void *)i);
    for (uintptr_t i = 0; i < PUBLISHERS; i++)
        pthread_create(&publishers[i], NULL, publish, (void *)i);
    usleep((useconds_t)(atof(argv[1]) * 1e6));
    stop = true;
    for (int i = 0; i < PUBLISHERS; i++)
        pthread_join(publishers[i], NULL);
    for (uint32_t i = 0; i < PUBLISHERS; i++)
        wait_for(all_saw, mq_load_acquire_u32(&published[i]) * PUBLISHERS + i,
                 "somebody sleeps through the last message");
    over = true;
    mq_fetch_add_u32(&published[0], 1);
    if (mq_eventcount_has_waiters_mp(&eventcount))
        mq_eventcount_notify_mp(&eventcount);
    for (int i = 0; i < SLEEPERS; i++)
        pthread_join(sleepers[i], NULL);
    mq_eventcount_notify_mp(&eventcount); /* of a sleeper that announced itself and did not sleep */
    if (mq_eventcount_has_waiters_mp(&eventcount)) {
        fprintf(stderr, "eventcount: the flag outlives the sleepers (seed %u)\n", seed);
        return 1;
    }
    printf("published %u slept %llu stopped %llu\n", mq_load_acquire_u32(&published[1]), (unsigned long long)slept,
           (unsigned long long)stopped);
    return 0;
}
