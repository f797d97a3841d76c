/* What Python lacks: atomic access to shared words, fences and futexes. Nothing here comes from msgq's headers.

   docs/internals/layout.md: a word is 64 bits, aligned, and read and written whole. The docs name the order of each access;
   here each load acquires, each store releases, and each exchange is sequentially consistent. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t load64(uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
uint32_t load32(uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
void store64(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

int exchange64(uint64_t *word, uint64_t expected, uint64_t value) {
    return __atomic_compare_exchange_n(word, &expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

int exchange32(uint32_t *word, uint32_t expected, uint32_t value) {
    return __atomic_compare_exchange_n(word, &expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

void fence_acquire(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
void fence_release(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
void fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

/* The futexes are shared between processes, so FUTEX_PRIVATE_FLAG is not set. */
int futex_wait(uint32_t *word, uint32_t value, int64_t ns) {
    struct timespec timeout = {ns / 1000000000, ns % 1000000000};
    return syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, 0, 0) ? errno : 0;
}

int futex_wake(uint32_t *word, int sleepers) { return syscall(SYS_futex, word, FUTEX_WAKE, sleepers, 0, 0, 0); }

/* A barrier in all running threads of all processes, also in those that never registered. */
int membarrier_global(void) { return syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) ? errno : 0; }
