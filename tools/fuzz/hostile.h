/* A hostile machine for the C core: memory with faulting pages around it, words that change between two loads, and a
 * kernel that answers at random (kernel.h). A seed determines the whole run. Each protocol has its own words (topic.h).
 *
 * Include this file before the headers of the core, except atomics.h. The macros at the end put a hook before every
 * shared load, and the macros of kernel.h replace the system calls.
 */
#ifndef FUZZ_HOSTILE_H
#define FUZZ_HOSTILE_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomics.h"

#ifndef __SANITIZE_ADDRESS__ /* without the sanitizer, as in an emulator, only the faulting pages detect errors */
#define ASAN_POISON_MEMORY_REGION(start, bytes) ((void)(start), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(start, bytes) ((void)(start), (void)(bytes))
#endif

/* Maximum steps of one call: shared loads and exchanges. A call with more steps counts as hanging. Each program defines its
 * number from the bounds of its loops (docs/internals/common-protocol.md, "Bounds of loops"). */
#ifndef FUZZ_STEPS_MAX
#error "define FUZZ_STEPS_MAX before this file is included"
#endif

/* ---- random numbers ---- */

static uint64_t fuzz_state;

static uint64_t fuzz_random(void) { /* splitmix64 */
    uint64_t z = fuzz_state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}
static uint64_t fuzz_below(uint64_t n) { return fuzz_random() % n; }
static bool fuzz_one_in(uint64_t n) { return fuzz_below(n) == 0; }

/* ---- report at the death of the process ---- */

static uint64_t fuzz_seed, fuzz_case, fuzz_steps, fuzz_most;
static const char *fuzz_op = "start";

static void fuzz_say(void) {
    fprintf(stderr, "fuzz: in %s, after %llu steps; replay with: driver %llu %llu 1\n", fuzz_op,
            (unsigned long long)fuzz_steps, (unsigned long long)fuzz_seed, (unsigned long long)fuzz_case);
}

/* The sanitizer of undefined behaviour has no death callback. It aborts, and fuzz_segfault handles the signal. */
const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) { return "abort_on_error=1:print_stacktrace=1"; }

static void fuzz_segfault(int number) { /* fprintf may fail in a handler, but the process dies in any case */
    fuzz_say();
    signal(number, SIG_DFL);
    raise(number);
}

static void fuzz_on_death(void) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_set_death_callback(fuzz_say);
    signal(SIGABRT, fuzz_segfault);
#else
    signal(SIGSEGV, fuzz_segfault);
    signal(SIGBUS, fuzz_segfault);
#endif
}

static void fuzz_fail(const char *what) {
    fprintf(stderr, "fuzz: %s\n", what);
    fuzz_say();
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_print_stack_trace();
#endif
    _exit(2);
}

static inline void check(bool fact, const char *what) {
    if (!fact)
        fuzz_fail(what);
}

/* ---- memory ---- */

/* A file with two mappings: one for participants that may write, one for all others. A faulting page follows each. */
typedef struct {
    uint8_t *writable, *readable; /* start of the used bytes, which end at the faulting page */
    uint8_t *bases[2];
    size_t room, bytes;
} fuzz_memory;

static inline void fuzz_map(fuzz_memory *m, size_t room) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int fd = memfd_create("msgq-fuzz", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)room) != 0)
        fuzz_fail("no memory file");
    for (int i = 0; i < 2; i++) {
        int protection = i ? PROT_READ : PROT_READ | PROT_WRITE;
        m->bases[i] = mmap(NULL, room + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (m->bases[i] == MAP_FAILED ||
            mmap(m->bases[i], room, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
            fuzz_fail("cannot map");
    }
    close(fd);
    m->room = room;
}

/* Use the last `bytes` bytes. Poison the rest of the last word, and all bytes before the used bytes. */
static inline void fuzz_use(fuzz_memory *m, size_t bytes) {
    size_t start = m->room - ((bytes + 7) & ~(size_t)7);
    for (int i = 0; i < 2; i++) {
        ASAN_UNPOISON_MEMORY_REGION(m->bases[i], m->room);
        if (i == 0)
            memset(m->bases[0] + start, 0, m->room - start);
        ASAN_POISON_MEMORY_REGION(m->bases[i], start);
        ASAN_POISON_MEMORY_REGION(m->bases[i] + start + bytes, m->room - start - bytes);
    }
    m->writable = m->bases[0] + start;
    m->readable = m->bases[1] + start;
    m->bytes = bytes;
}

/* ---- the stranger ---- */

static uint64_t fuzz_rate;          /* average number of loads between two hostile stores; 0: no hostile stores */
static void (*fuzz_scribble)(void); /* stores one hostile word somewhere */

/* Return a number near the limits of 32 and 64 bits. `small`: maximum distance from a limit. */
static inline uint64_t fuzz_edge(uint64_t small) {
    switch (fuzz_below(4)) {
    case 0: return fuzz_random();
    case 1: return fuzz_below(small);
    case 2: return 0 - fuzz_below(small);
    default: return (1ull << (31 + fuzz_below(33))) + fuzz_below(5) - 2;
    }
}

/* The hook before every shared load of the core. */
static inline void fuzz_before_load(void) {
    if (++fuzz_steps > FUZZ_STEPS_MAX)
        fuzz_fail("this call does not end");
    if (fuzz_steps > fuzz_most)
        fuzz_most = fuzz_steps;
    if (fuzz_rate && fuzz_one_in(fuzz_rate))
        fuzz_scribble();
}

#define mq_load_relaxed_u64(word) (fuzz_before_load(), mq_load_relaxed_u64(word))
#define mq_load_acquire_u64(word) (fuzz_before_load(), mq_load_acquire_u64(word))
#define mq_load_relaxed_u32(word) (fuzz_before_load(), mq_load_relaxed_u32(word))
#define mq_load_acquire_u32(word) (fuzz_before_load(), mq_load_acquire_u32(word))
#define mq_compare_exchange_u32(word, expected, desired)                                                               \
    (fuzz_before_load(), mq_compare_exchange_u32(word, expected, desired))
#define mq_compare_exchange_u64(word, expected, desired)                                                               \
    (fuzz_before_load(), mq_compare_exchange_u64(word, expected, desired))

#include "kernel.h"

/* ---- the program ---- */

/* Make `count` calls with a random rate of `rates`. Some hostile stores also come between two calls. */
static inline void fuzz_calls(int count, void (*call)(void), const uint64_t rates[4]) {
    fuzz_rate = rates[fuzz_below(4)];
    for (int i = 0; i < count; i++) {
        fuzz_steps = 0;
        if (fuzz_one_in(4))
            fuzz_scribble();
        call();
    }
    fuzz_rate = 0;
}

/* Run cases FIRST to FIRST + COUNT - 1 until the time is over. `calls`: number of calls of a case, for the report. */
static int fuzz_main(int argc, char **argv, void (*run_case)(void), uint64_t calls) {
    struct timespec t;
    if (argc < 4)
        fuzz_fail("usage: PROGRAM SEED FIRST COUNT [SECONDS]");
    fuzz_seed = strtoull(argv[1], NULL, 10);
    uint64_t first = strtoull(argv[2], NULL, 10), count = strtoull(argv[3], NULL, 10), done = 0;
    double begun = 0, now = 0, seconds = argc > 4 ? atof(argv[4]) : 1e9;
    fuzz_on_death();
    for (; done < count && now - begun < seconds; done++) {
        fuzz_case = first + done;
        fuzz_state = fuzz_seed * 0x2545f4914f6cdd1dull + fuzz_case;
        fuzz_rate = fuzz_steps = 0;
        run_case();
        clock_gettime(CLOCK_MONOTONIC, &t);
        now = (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
        begun = done ? begun : now;
    }
    printf("%llu cases, %llu calls of up to %llu steps\n", (unsigned long long)done, (unsigned long long)(done * calls),
           (unsigned long long)fuzz_most);
    return 0;
}

#endif
