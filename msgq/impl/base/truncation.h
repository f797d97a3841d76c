/* Test for a truncated file. The guard of the mapping records the truncation in a word (mapguard.h). */
#ifndef MQ_TRUNCATION_H
#define MQ_TRUNCATION_H

#include <sys/stat.h>

#include "base/atomics.h"

/* True if this process accessed a truncated part of a mapped file. After such an access, the mapping reads as zeros.
 * Call this function after you read the bytes. NULL: the mapping has no guard. */
static inline bool mq_mapping_was_truncated(const mq_u64 *not_truncated) {
    /* relaxed: the word changes once, by an earlier fault or by a fault of the calling thread */
    return mq_unlikely(not_truncated && mq_load_relaxed_u64(not_truncated) != 1);
}

/* True if the file with this name is the mapped file and is smaller now. Call this after the kernel failed to provide
 * memory. A failure to provide memory raises no SIGBUS, so no guard records it. */
static inline bool mq_file_shrank(const char *path, uint64_t inode, uint64_t bytes) {
    struct stat found;
    return stat(path, &found) == 0 && (uint64_t)found.st_ino == inode && (uint64_t)found.st_size < bytes;
}

#endif
