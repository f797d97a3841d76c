/* The one test of a truncated file: its guard tells by a word (mapguard.h). */
#ifndef MQ_TRUNCATION_H
#define MQ_TRUNCATION_H

#include "base/atomics.h"

/* Did this process run into a part of a mapped file that was cut off? Then the mapping reads as zeros. Ask after bytes
 * were read. NULL: the mapping has no guard. */
static inline bool mq_mapping_was_truncated(const mq_u64 *not_truncated) {
    /* relaxed: it changes once, by a fault of the thread that asks, or before */
    return mq_unlikely(not_truncated && mq_load_relaxed_u64(not_truncated) != 1);
}

#endif
