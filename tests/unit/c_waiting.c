/* Waits of the library, with a reader that raises a signal between two sleeps. Prints the first line that is wrong. */
#define _GNU_SOURCE
#include "c/file.h"

#include <stdio.h>

#define CHECK(what)                                                                                                    \
    do                                                                                                                 \
        if (!(what)) {                                                                                                 \
            printf("line %d: %s\n", __LINE__, #what);                                                                  \
            return 1;                                                                                                  \
        }                                                                                                              \
    while (0)

enum { SLEEPS = 20 };

static mq_u32 word;
static int sleeps, raises_at, handled;
static bool bus_was_blocked, alarm_was_blocked;

static void count(int number) { handled += number == SIGALRM; }

static bool is_readable(void *reader) {
    (void)reader;
    return sleeps > SLEEPS;
}
static uint32_t prepare_wait(const void *reader, mq_u32 *announced) {
    (void)reader, (void)announced;
    return 0;
}
static int64_t max_sleep_ns(void *reader, int64_t slept_ns) {
    sigset_t mask;
    (void)reader, (void)slept_ns;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    if (++sleeps == raises_at) {
        raise(SIGALRM);
        alarm_was_blocked = sigismember(&mask, SIGALRM) == 1, bus_was_blocked = sigismember(&mask, SIGBUS) == 1;
    }
    return MQ_NS_PER_MS;
}

static int wait_with_signal(int at) {
    const mqc_waiter waiter = {
        .is_readable = is_readable, .prepare_wait = prepare_wait, .max_sleep_ns = max_sleep_ns, .word = &word};
    sleeps = handled = 0, raises_at = at;
    return mqc_wait_until_readable(&waiter, 1, -1);
}

static int check_signals(void) {
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigset_t mask, alarm;
    sigaction(SIGALRM, &action, NULL);
    CHECK(wait_with_signal(0) == 1 && sleeps > SLEEPS);
    CHECK(wait_with_signal(3) == -EINTR && handled == 1 && sleeps == 3);
    CHECK(alarm_was_blocked && !bus_was_blocked);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    CHECK(!sigismember(&mask, SIGALRM));
    sigemptyset(&alarm), sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL); /* a signal that the program blocks ends no wait */
    CHECK(wait_with_signal(3) == 1 && handled == 0);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    CHECK(sigismember(&mask, SIGALRM));
    return 0;
}

/* Long sleeps end at times that no timer of a program can be aimed at. */
static int check_lengths(void) {
    int64_t shortest = MQ_NS_PER_S, longest = 0;
    for (int64_t now = 0; now < 1000; now++) {
        int64_t sleep = mqc_vary_sleep_ns(MQ_NS_PER_S, now * MQ_NS_PER_S);
        shortest = sleep < shortest ? sleep : shortest, longest = sleep > longest ? sleep : longest;
    }
    CHECK(shortest >= 3 * (MQ_NS_PER_S / 4) && longest <= MQ_NS_PER_S && longest - shortest > MQ_NS_PER_S / 5);
    CHECK(mqc_vary_sleep_ns(MQ_NS_PER_MS, 123456789) == MQ_NS_PER_MS);
    return 0;
}

int main(void) { return check_signals() || check_lengths(); }
