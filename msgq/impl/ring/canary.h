/* Is a ring's file still as large as it was when it was mapped? A stock process sets the size of the file whenever it
 * opens a topic, without looking; docs/internals/topic-protocol.md "Another size" has what follows from that.
 *
 * The last word of the data area, the tail, is beyond all messages and marks. Ours write a random number there, once;
 * nobody else touches it. The kernel takes it away when it makes the file smaller: reading it is 0 then, also when the
 * file has grown back since, or SIGBUS, after which mapguard.h makes it 0. So one load of a line that is quiet says
 * whether bytes that were copied before it were those of the ring. Where there is no tail to trust, the word is that
 * of the mapping (mapguard.h), which knows of SIGBUS only. relaxed, all here: callers have a fence before it, or only
 * look.
 */
#ifndef MQ_RING_CANARY_H
#define MQ_RING_CANARY_H

#include <sys/stat.h>

#include "ring/layout.h"

typedef struct {
    const mq_u64 *word;
    uint64_t value; /* what the word is as long as the ring is whole */
} mq_canary;

static inline bool mq_canary_is_intact(const mq_canary *canary) {
    return mq_likely(mq_load_relaxed_u64(canary->word) == canary->value);
}

/* Was nothing cut off, though somebody with a larger ring may have written over the tail? */
static inline bool mq_canary_is_nonzero(const mq_canary *canary) { return mq_load_relaxed_u64(canary->word) != 0; }

/* By a word that is 1 as long as all is well. */
static inline mq_canary mq_canary_of_word(const mq_u64 *word) {
    mq_canary canary = {.word = word, .value = 1};
    return canary;
}

/* For memory that nobody can make smaller. */
static inline mq_canary mq_canary_always_intact(void) {
    static const mq_u64 always = {1};
    return mq_canary_of_word(&always);
}

/* NULL: a ring of this size has none. */
static inline mq_u64 *mq_ring_canary_word(const mq_ring_header *ring, uint64_t data_bytes) {
    return data_bytes % 8 ? NULL : (mq_u64 *)((uintptr_t)ring + MQ_RING_HEADER + data_bytes - 8);
}

/* Give the ring a tail, if it has none. `random` is not 0. */
static inline void mq_ring_canary_write(mq_ring_header *ring, uint64_t data_bytes, uint64_t random) {
    mq_u64 *tail = mq_ring_canary_word(ring, data_bytes);
    if (tail)
        mq_compare_exchange_u64(tail, 0, random);
}

/* By the ring's tail, else by `word`. */
static inline mq_canary mq_canary_of_ring(const mq_ring_header *ring, uint64_t data_bytes, const mq_u64 *word) {
    const mq_u64 *tail = mq_ring_canary_word(ring, data_bytes);
    mq_canary canary = {.word = tail, .value = tail ? mq_load_relaxed_u64(tail) : 0};
    return canary.value ? canary : mq_canary_of_word(word);
}

/* Is the file of this name the one that was mapped, and smaller now? Asked where the kernel gives no memory: that is no
 * SIGBUS, so nobody else tells of a ring without a tail. */
static inline bool mq_file_shrank(const char *path, uint64_t inode, uint64_t bytes) {
    struct stat found;
    return stat(path, &found) == 0 && (uint64_t)found.st_ino == inode && (uint64_t)found.st_size < bytes;
}

/* Is the file of this name the one that was mapped, and larger now? */
static inline bool mq_file_grew(const char *path, uint64_t inode, uint64_t data_bytes) {
    struct stat found;
    return stat(path, &found) == 0 && (uint64_t)found.st_ino == inode &&
           (uint64_t)found.st_size > MQ_RING_HEADER + data_bytes;
}

#endif
