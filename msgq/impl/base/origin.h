/* Unique origins, allocated from one word that all processes of a user share. */
#ifndef MQ_ORIGIN_H
#define MQ_ORIGIN_H

#include "base/layout.h"

enum {
    /* if the last origin is ahead of the clock by more than this time, a process with another clock wrote the last
     * origin */
    MQ_ORIGIN_AHEAD_NS = 1000000000,
    /* maximum number of failed exchanges. An exchange fails if another process allocated an origin */
    MQ_ORIGIN_TRIES = 1000,
};

static inline mq_u64 *mq_origin_last_word(mq_origin *origin) { return &origin->last; }

/* Allocate `count` consecutive origins, one nanosecond apart, for messages created now. Returns the first new origin.
 * The first new origin is `now_ns`, or the last origin plus 1 ns if that time is later. */
static inline int64_t mq_origin_allocate(mq_u64 *last, int64_t now_ns, uint64_t count) {
    int64_t origin = now_ns;
    /* Bound: MQ_ORIGIN_TRIES. If all attempts fail, another process may get the same origin. */
    for (int tries = 0; tries < MQ_ORIGIN_TRIES; tries++) {
        uint64_t seen = mq_load_relaxed_u64(last), now = (uint64_t)now_ns; /* relaxed: the exchange validates it */
        uint64_t next = seen - now < MQ_ORIGIN_AHEAD_NS ? seen + 1 : now;
        origin = (int64_t)next;
        if (mq_compare_exchange_u64(last, seen, next + count - 1))
            break;
    }
    return origin;
}

#endif
