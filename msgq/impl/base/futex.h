/* System calls to sleep and wake. No state. */
#ifndef MQ_FUTEX_H
#define MQ_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomics.h"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449 /* the system call has this number on every architecture */
#endif

enum { MQ_NS_PER_MS = 1000000, MQ_NS_PER_S = 1000000000 };
enum { MQ_FUTEX_WAITV_MAX = 128 }; /* the kernel's maximum number of words for futex_waitv */
enum { MQ_FUTEX_32 = 2 };          /* size flag of futex_waitv: 32 bits, shared between processes */

/* struct futex_waitv of Linux 5.16. Older headers do not declare the struct. */
typedef struct {
    uint64_t expected;
    uint64_t address;
    uint32_t flags;
    uint32_t reserved;
} mq_futex_waitv_entry;

/* Return the word as a pointer of the type that the system calls expect. */
static inline uint32_t *mq_futex_word(mq_u32 *shared) { return (uint32_t *)shared; }

static inline struct timespec mq_timespec_from_ns(int64_t ns) {
    struct timespec t = {ns / MQ_NS_PER_S, ns % MQ_NS_PER_S};
    return t;
}

static inline int64_t mq_read_clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * MQ_NS_PER_S + t.tv_nsec;
}

static inline int64_t mq_monotonic_ns(void) { return mq_read_clock_ns(CLOCK_MONOTONIC); }

/* Return the virtual time of a bus (bus.pxi), or for NULL that of CLOCK_MONOTONIC. */
static inline int64_t mq_read_time_ns(const int64_t *virtual_ns) {
    return virtual_ns ? *virtual_ns : mq_monotonic_ns();
}

/* Pause for tens of nanoseconds, in a loop that waits for another core. */
static inline void mq_cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* Sleep while *word == expected, until a wake, a signal, or `deadline_ns` (CLOCK_MONOTONIC; negative: forever). Returns
 * 0, or -1 with errno EAGAIN (the word differs), EINTR or ETIMEDOUT. */
static inline long mq_futex_wait(uint32_t *word, uint32_t expected, int64_t deadline_ns) {
    struct timespec deadline = mq_timespec_from_ns(deadline_ns);
    return syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, deadline_ns < 0 ? NULL : &deadline, NULL,
                   FUTEX_BITSET_MATCH_ANY);
}

/* Sleep as mq_futex_wait does, but for up to MQ_FUTEX_WAITV_MAX words. Fails with ENOSYS before Linux 5.16. */
static inline long mq_futex_waitv(const mq_futex_waitv_entry *words, unsigned count, int64_t deadline_ns) {
    struct timespec deadline = mq_timespec_from_ns(deadline_ns);
    return syscall(SYS_futex_waitv, words, count, 0, deadline_ns < 0 ? NULL : &deadline, CLOCK_MONOTONIC);
}

/* Wake at most `count` sleepers. */
static inline void mq_futex_wake(uint32_t *word, int count) {
    syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}
static inline void mq_futex_wake_all(uint32_t *word) { mq_futex_wake(word, INT_MAX); }

/* Execute a full fence in every registered process. Returns false if the kernel has no such membarrier command. */
static inline bool mq_membarrier(void) { return syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0; }
static inline bool mq_membarrier_register(void) {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

#endif
