/* Test for a truncated file. The guard of the mapping records the truncation in a word (mapguard.h). */
#ifndef MQ_TRUNCATION_H
#define MQ_TRUNCATION_H

#include "base/atomics.h"

/* True if this process accessed a truncated part of a mapped file. After such an access, the mapping reads as zeros.
 * Call this function after you read the bytes. NULL: the mapping has no guard. */
static inline bool mq_mapping_was_truncated(const mq_u64 *not_truncated) {
    /* relaxed: the word changes once, by an earlier fault or by a fault of the calling thread */
    return mq_unlikely(not_truncated && mq_load_relaxed_u64(not_truncated) != 1);
}

#endif
