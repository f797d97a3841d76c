/* Functions for programs with a reader process and a writer process: shared memory, cores, and the report. */
#ifndef BENCH_FLOOR_PAIR_H
#define BENCH_FLOOR_PAIR_H
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "ring.h"

typedef struct {
    _Alignas(64) _Atomic uint64_t received; /* number of messages; the reader stores it after each batch */
} progress;

enum { LIMIT_S = 30 };

/* Run this process on one core. The process ends with its parent, and after LIMIT_S seconds at the latest. */
static void settle(int cpu) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(LIMIT_S);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void *share(size_t length) {
    void *bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return bytes;
}

static void pause_for(double seconds) {
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

/* Return the time in ns in which a process was ready to run, but another process had its core. */
static uint64_t waited_ns(pid_t process) {
    char path[64];
    unsigned long long ran, waited = 0;
    snprintf(path, sizeof path, "/proc/%d/schedstat", (int)process);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%llu %llu", &ran, &waited) != 2)
            waited = 0;
        fclose(file);
    }
    return waited;
}

/* Let both processes run for `seconds`, and kill them. Print the number of messages per second. */
static inline void report(progress *state, pid_t reader, pid_t writer, double seconds) {
    pause_for(seconds / 4); /* warm-up */
    uint64_t waited = waited_ns(reader) + waited_ns(writer);
    uint64_t before = atomic_load(&state->received), start = floor_now_ns();
    pause_for(seconds);
    double messages = (double)(atomic_load(&state->received) - before), took = (double)(floor_now_ns() - start);
    waited = waited_ns(reader) + waited_ns(writer) - waited;
    kill(reader, SIGKILL);
    kill(writer, SIGKILL);
    while (wait(NULL) > 0)
        ;
    printf("{\"value\": %.1f, \"waited\": %.4f}\n", messages / took * 1e9, (double)waited / took);
}

#endif
