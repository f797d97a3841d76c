/* Detection of a truncated ring. When a stock process opens a topic, the process sets the file size without a check.
 * See docs/internals/layout.md, "Another size".
 *
 * The canary is the last word of the data area. All messages and wrap marks end before the canary. msgq writes a random
 * number into the canary once. No other program writes to the canary. If a process truncates the file, the kernel
 * discards the word. A later load of the canary then returns 0, even if the file grew back. If the load raises SIGBUS
 * instead, mapguard.h maps a page of zeros at the address. One load of the canary after a copy therefore shows whether
 * the copied bytes belonged to the ring.
 *
 * If the ring has no valid canary, `word` points to the mapping's word in mapguard.h. The mapping's word changes only
 * after SIGBUS. relaxed, all here: callers issue a fence before the load, or only observe.
 */
#ifndef MQ_RING_CANARY_H
#define MQ_RING_CANARY_H

#include "base/truncation.h"
#include "ring/layout.h"

typedef struct {
    const mq_u64 *word;
    uint64_t value; /* value of the word while the ring is complete */
} mq_canary;

static inline bool mq_canary_is_intact(const mq_canary *canary) {
    return mq_likely(mq_load_relaxed_u64(canary->word) == canary->value);
}

/* True if the canary is not 0, so the ring was not truncated. A process with a larger ring may have overwritten the
 * canary. */
static inline bool mq_canary_is_nonzero(const mq_canary *canary) { return mq_load_relaxed_u64(canary->word) != 0; }

/* Return a canary for a word that is 1 until the ring is truncated. */
static inline mq_canary mq_canary_of_word(const mq_u64 *word) {
    mq_canary canary = {.word = word, .value = 1};
    return canary;
}

/* Return a canary for memory that no process can truncate. */
static inline mq_canary mq_canary_always_intact(void) {
    static const mq_u64 always = {1};
    return mq_canary_of_word(&always);
}

/* Return the canary's address in the ring. Returns NULL if a ring of this size has no canary. */
static inline mq_u64 *mq_ring_canary_word(const mq_ring_header *ring, uint64_t data_bytes) {
    return data_bytes % 8 ? NULL : (mq_u64 *)((uintptr_t)ring + MQ_RING_HEADER + data_bytes - 8);
}

/* True if a ring of this size can have a canary, and has none yet. */
static inline bool mq_ring_canary_is_unset(const mq_ring_header *ring, uint64_t data_bytes) {
    const mq_u64 *tail = mq_ring_canary_word(ring, data_bytes);
    return tail && mq_load_relaxed_u64(tail) == 0; /* relaxed: mq_ring_canary_write decides */
}

/* Write `random` as the canary, unless the ring has a canary. `random` is not 0. */
static inline void mq_ring_canary_write(mq_ring_header *ring, uint64_t data_bytes, uint64_t random) {
    mq_u64 *tail = mq_ring_canary_word(ring, data_bytes);
    if (tail)
        mq_compare_exchange_u64(tail, 0, random);
}

/* Return the ring's canary if the ring has a canary, else a canary for `word`. */
static inline mq_canary mq_canary_of_ring(const mq_ring_header *ring, uint64_t data_bytes, const mq_u64 *word) {
    const mq_u64 *tail = mq_ring_canary_word(ring, data_bytes);
    mq_canary canary = {.word = tail, .value = tail ? mq_load_relaxed_u64(tail) : 0};
    return canary.value ? canary : mq_canary_of_word(word);
}

/* True if the file with this name is the mapped file and is larger now. */
static inline bool mq_file_grew(const char *path, uint64_t inode, uint64_t data_bytes) {
    return mq_named_file_bytes(path, inode) > (int64_t)(MQ_RING_HEADER + data_bytes);
}

#endif
