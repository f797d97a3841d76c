/* Access to shared memory. The name of each function states its memory order.
 *
 * Shared structures consist of the types below, so plain C (and Cython) cannot access their fields by accident. Both
 * sides of a release/acquire pair have a comment "EDGE name". docs/internals/common-protocol.md explains the names.
 */
#ifndef MQ_ATOMICS_H
#define MQ_ATOMICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    _Atomic uint64_t value;
} mq_u64;
typedef struct {
    _Atomic uint32_t value;
} mq_u32;

_Static_assert(sizeof(mq_u64) == 8 && sizeof(mq_u32) == 4, "shared words have no hidden state");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
               "a lock of one process means nothing to another");

static inline uint64_t mq_load_relaxed_u64(const mq_u64 *word) {
    return atomic_load_explicit(&word->value, memory_order_relaxed);
}
static inline uint64_t mq_load_acquire_u64(const mq_u64 *word) {
    return atomic_load_explicit(&word->value, memory_order_acquire);
}
static inline void mq_store_relaxed_u64(mq_u64 *word, uint64_t value) {
    atomic_store_explicit(&word->value, value, memory_order_relaxed);
}
static inline void mq_store_release_u64(mq_u64 *word, uint64_t value) {
    atomic_store_explicit(&word->value, value, memory_order_release);
}
/* Compare and exchange, sequentially consistent. If `word` holds `expected`, stores `desired` and returns true. */
static inline int mq_compare_exchange_u64(mq_u64 *word, uint64_t expected, uint64_t desired) {
    return atomic_compare_exchange_strong(&word->value, &expected, desired);
}

/* As mq_load_seq_cst_u32. */
static inline uint64_t mq_load_seq_cst_u64(const mq_u64 *word) { return atomic_load(&word->value); }
/* The next functions are sequentially consistent. Each function returns the previous value of the word. */
static inline uint64_t mq_fetch_or_u64(mq_u64 *word, uint64_t bits) { return atomic_fetch_or(&word->value, bits); }
static inline uint64_t mq_fetch_and_u64(mq_u64 *word, uint64_t bits) { return atomic_fetch_and(&word->value, bits); }
static inline uint64_t mq_fetch_add_u64(mq_u64 *word, uint64_t n) { return atomic_fetch_add(&word->value, n); }

static inline uint32_t mq_load_relaxed_u32(const mq_u32 *word) {
    return atomic_load_explicit(&word->value, memory_order_relaxed);
}
static inline uint32_t mq_load_acquire_u32(const mq_u32 *word) {
    return atomic_load_explicit(&word->value, memory_order_acquire);
}
/* This load is ordered after all sequentially consistent exchanges of this thread. The load contains no fence. On x86
 * an earlier relaxed or release store of this thread may therefore become visible after the load. */
static inline uint32_t mq_load_seq_cst_u32(const mq_u32 *word) { return atomic_load(&word->value); }
static inline void mq_store_release_u32(mq_u32 *word, uint32_t value) {
    atomic_store_explicit(&word->value, value, memory_order_release);
}
/* All read-modify-write functions are sequentially consistent. Each function returns the previous value of the word. */
static inline uint32_t mq_fetch_or_u32(mq_u32 *word, uint32_t bits) { return atomic_fetch_or(&word->value, bits); }
static inline uint32_t mq_fetch_add_u32(mq_u32 *word, uint32_t n) { return atomic_fetch_add(&word->value, n); }
static inline uint32_t mq_fetch_and_u32(mq_u32 *word, uint32_t bits) { return atomic_fetch_and(&word->value, bits); }
static inline int mq_compare_exchange_u32(mq_u32 *word, uint32_t expected, uint32_t desired) {
    return atomic_compare_exchange_strong(&word->value, &expected, desired);
}

static inline void mq_fence_acquire(void) { atomic_thread_fence(memory_order_acquire); }
static inline void mq_fence_release(void) { atomic_thread_fence(memory_order_release); }
static inline void mq_fence_seq_cst(void) { atomic_thread_fence(memory_order_seq_cst); }
/* Prevents reordering by the compiler, not by the CPU. Use this fence for an edge if the partner function calls
 * membarrier. */
static inline void mq_fence_compiler(void) { atomic_signal_fence(memory_order_seq_cst); }

/* Copy payload bytes. Another process may overwrite the bytes during the copy, so the reader validates the copy
 * afterwards and discards a torn copy. C leaves such a race undefined. Builds with the thread sanitizer therefore copy
 * each byte with a relaxed atomic access. */
#if defined(__SANITIZE_THREAD__)
static inline void mq_copy_to_shared(void *shared, const void *from, size_t n) {
    for (size_t i = 0; i < n; i++)
        __atomic_store_n((unsigned char *)shared + i, ((const unsigned char *)from)[i], __ATOMIC_RELAXED);
}
static inline void mq_copy_from_shared(void *to, const void *shared, size_t n) {
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)to)[i] = __atomic_load_n((const unsigned char *)shared + i, __ATOMIC_RELAXED);
}
#else
static inline void mq_copy_to_shared(void *shared, const void *from, size_t n) { memcpy(shared, from, n); }
static inline void mq_copy_from_shared(void *to, const void *shared, size_t n) { memcpy(to, shared, n); }
#endif

#define mq_likely(x) __builtin_expect(!!(x), 1)
#define mq_unlikely(x) __builtin_expect(!!(x), 0)

#endif
