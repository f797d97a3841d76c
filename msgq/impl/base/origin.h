/* Origins that nobody else has, by one word that all processes of a user share. */
#ifndef MQ_ORIGIN_H
#define MQ_ORIGIN_H

#include "base/layout.h"

enum {
    MQ_ORIGIN_AHEAD_NS = 1000000000, /* a last origin that is further ahead was made by a clock that is not ours */
    MQ_ORIGIN_TRIES = 1000,          /* exchanges that fail, each because another process has drawn an origin */
};

static inline mq_u64 *mq_origin_last_word(mq_origin *origin) { return &origin->last; }

/* Origins for `count` things that come about now: the first one, behind which the others follow by a nanosecond each.
 * It is that time, or the nanosecond behind the last origin, if that is as late. */
static inline int64_t mq_origin_allocate(mq_u64 *last, int64_t now_ns, uint64_t count) {
    int64_t origin = now_ns;
    /* Bound: MQ_ORIGIN_TRIES. Then the last value is used, and another process may have the same. */
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
