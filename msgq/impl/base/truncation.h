/* Test for a truncated file. The guard of the mapping records the truncation in a word (mapguard.h). */
#ifndef MQ_TRUNCATION_H
#define MQ_TRUNCATION_H

#include <sys/stat.h>

#include "base/atomics.h"
#include "base/private_file.h"

/* True if this process accessed a truncated part of a mapped file. After such an access, the mapping reads as zeros.
 * Call this function after you read the bytes. NULL: the mapping has no guard. */
static inline bool mq_mapping_was_truncated(const mq_u64 *not_truncated) {
    /* relaxed: the word changes once, by an earlier fault or by a fault of the calling thread */
    return mq_unlikely(not_truncated && mq_load_relaxed_u64(not_truncated) != 1);
}

/* Return the size of the mapped file if the path still leads to it, or -1. */
static inline int64_t mq_named_file_bytes(const char *path, uint64_t inode) {
    struct stat found;
    if (mq_is_private_path(path)) {
        const mq_private_file *file = mq_private_file_of(MQ_PRIVATE_DEVICE, inode);
        return file->is_named ? (int64_t)file->bytes : -1;
    }
    return stat(path, &found) == 0 && (uint64_t)found.st_ino == inode ? (int64_t)found.st_size : -1;
}

/* True if the file with this name is the mapped file and is smaller now. Call this after the kernel failed to provide
 * memory. A failure to provide memory raises no SIGBUS, so no guard records it. */
static inline bool mq_file_shrank(const char *path, uint64_t inode, uint64_t bytes) {
    int64_t current = mq_named_file_bytes(path, inode);
    return current >= 0 && (uint64_t)current < bytes;
}

#endif
