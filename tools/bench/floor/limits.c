/* The limits of the machine: times of system calls, wake-ups, cache lines and copies.
 *
 * usage: limits ROUNDS CPU OTHER_CPU [line]
 * prints: one JSON object with times in nanoseconds and bandwidths in GB/s. Each figure is the median of the rounds.
 * With `line`, the program measures only the time of a cache line between the cores, and takes a few milliseconds.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "ring.h"

#define MAX_ROUNDS 1000

typedef struct {
    _Alignas(64) _Atomic uint32_t word;
    _Alignas(64) _Atomic uint64_t stamp; /* time in ns at which the woken thread ran */
    _Alignas(64) _Atomic uint32_t asleep;
    int cpu, rounds;
} meeting;

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static int by_value(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

/* ---- one thread alone ---- */

static double call_cost(int rounds, long (*call)(void)) {
    static double took[MAX_ROUNDS];
    for (int i = 0; i < rounds; i++) {
        uint64_t start = floor_now_ns();
        for (int n = 0; n < 1000; n++)
            call();
        took[i] = (double)(floor_now_ns() - start) / 1000;
    }
    return median(took, rounds);
}

static uint32_t nobody_waits_here;

static long system_call(void) { return syscall(SYS_getppid); }
static long clock_call(void) { return (long)floor_now_ns(); }
static long wake_nobody(void) { return syscall(SYS_futex, &nobody_waits_here, FUTEX_WAKE, 1, NULL, NULL, 0); }

/* Copy `size` bytes again and again. The target moves through `span` bytes. If `span` is larger than the caches, the
 * result is the bandwidth of the memory. */
static double copy_bandwidth(int rounds, size_t size, size_t span) {
    static double speed[MAX_ROUNDS];
    char *source = malloc(size), *target = malloc(span);
    memset(source, 1, size);
    memset(target, 1, span);
    size_t copies = (4u << 20) / size + 1, at = 0;
    for (int i = 0; i < rounds; i++) {
        uint64_t start = floor_now_ns();
        for (size_t n = 0; n < copies; n++) {
            memcpy(target + at, source, size);
            __asm__ volatile("" : : "r"(target) : "memory");
            at = at + 2 * size <= span ? at + size : 0;
        }
        speed[i] = (double)(copies * size) / (double)(floor_now_ns() - start);
    }
    free(source);
    free(target);
    return median(speed, rounds);
}

/* ---- two threads ---- */

static void *bounce(void *argument) {
    meeting *m = argument;
    pin(m->cpu);
    for (uint32_t turn = 1; turn < (uint32_t)m->rounds * 2000; turn += 2) {
        while (atomic_load_explicit(&m->word, memory_order_acquire) != turn)
            ;
        atomic_store_explicit(&m->word, turn + 1, memory_order_release);
    }
    return NULL;
}

/* Return the time in ns from the store of a word on one core to its load on the other core. */
static double cache_line(int rounds, int other) {
    static double took[MAX_ROUNDS];
    meeting m = {.cpu = other, .rounds = rounds};
    pthread_t thread;
    pthread_create(&thread, NULL, bounce, &m);
    uint32_t turn = 0;
    for (int i = 0; i < rounds; i++) {
        uint64_t start = floor_now_ns();
        for (int n = 0; n < 1000; n++, turn += 2) {
            atomic_store_explicit(&m.word, turn + 1, memory_order_release);
            while (atomic_load_explicit(&m.word, memory_order_acquire) != turn + 2)
                ;
        }
        took[i] = (double)(floor_now_ns() - start) / 2000;
    }
    pthread_join(thread, NULL);
    return median(took, rounds);
}

static void *sleep_and_stamp(void *argument) {
    meeting *m = argument;
    pin(m->cpu);
    for (uint32_t turn = 0; turn < (uint32_t)m->rounds; turn++) {
        atomic_store(&m->asleep, turn + 1);
        while (atomic_load(&m->word) == turn)
            syscall(SYS_futex, &m->word, FUTEX_WAIT, turn, NULL, NULL, 0);
        atomic_store(&m->stamp, floor_now_ns());
    }
    return NULL;
}

/* Wake a thread of the other core that has slept for 2 ms. Store the time in ns of the call, and the time in ns until
 * the thread runs. */
static void wake_up(int rounds, int other, double *call, double *to_run) {
    static double calls[MAX_ROUNDS], runs[MAX_ROUNDS];
    meeting m = {.cpu = other, .rounds = rounds};
    pthread_t thread;
    pthread_create(&thread, NULL, sleep_and_stamp, &m);
    for (int i = 0; i < rounds; i++) {
        while (atomic_load(&m.asleep) != (uint32_t)i + 1)
            sched_yield();
        nanosleep(&(struct timespec){0, 2000000}, NULL);
        atomic_store(&m.stamp, 0);
        uint64_t start = floor_now_ns(), stamp;
        atomic_store(&m.word, (uint32_t)i + 1);
        syscall(SYS_futex, &m.word, FUTEX_WAKE, 1, NULL, NULL, 0);
        calls[i] = (double)(floor_now_ns() - start);
        while (!(stamp = atomic_load(&m.stamp)))
            floor_relax();
        runs[i] = (double)(stamp - start);
    }
    pthread_join(thread, NULL);
    *call = median(calls, rounds);
    *to_run = median(runs, rounds);
}

int main(int count, char **words) {
    if (count != 4 && (count != 5 || strcmp(words[4], "line")))
        return 2;
    int rounds = atoi(words[1]), cpu = atoi(words[2]), other = atoi(words[3]);
    if (rounds < 1 || rounds > MAX_ROUNDS)
        return 2;
    pin(cpu);
    if (count == 5) {
        printf("{\"cache_line_ns\": %.1f}\n", cache_line(rounds, other));
        return 0;
    }
    double call, to_run;
    wake_up(rounds, other, &call, &to_run);
    printf("{\"syscall_ns\": %.1f, ", call_cost(rounds, system_call));
    printf("\"clock_ns\": %.1f, ", call_cost(rounds, clock_call));
    printf("\"cache_line_ns\": %.1f, ", cache_line(rounds, other));
    printf("\"copy_64KiB_GBps\": %.2f, ", copy_bandwidth(rounds, 64u << 10, 512u << 10));
    printf("\"copy_1MiB_GBps\": %.2f, ", copy_bandwidth(rounds, 1u << 20, 8u << 20));
    printf("\"copy_memory_GBps\": %.2f, ", copy_bandwidth(rounds, 1u << 20, 256u << 20));
    printf("\"futex_wake_nobody_ns\": %.1f, ", call_cost(rounds, wake_nobody));
    printf("\"futex_wake_call_ns\": %.1f, \"futex_wake_to_run_ns\": %.1f}\n", call, to_run);
    return 0;
}
