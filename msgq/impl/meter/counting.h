/* Counters of a meter for any type of endpoint: rate, size and delay. The counters have a constant size and need no
 * Python.
 *
 * A sample reads all waiting messages at one moment. The time since the previous sample with messages is divided evenly
 * among the messages of a sample. Therefore the mean period is correct for any sampling interval.
 */
#ifndef MQ_METER_COUNTING_H
#define MQ_METER_COUNTING_H

#include "base/atomics.h"
#include "base/futex.h"
#include "base/layout.h"

enum {
    /* 64 buckets in each octave. A value differs by at most 0.8 % from the middle of its bucket */
    MQ_HISTOGRAM_SUB_BUCKET_BITS = 6,
    MQ_HISTOGRAM_BUCKETS = (65 - MQ_HISTOGRAM_SUB_BUCKET_BITS) << MQ_HISTOGRAM_SUB_BUCKET_BITS,
};

/* A histogram whose bucket width grows with the value. A zeroed histogram is empty. */
typedef struct {
    uint64_t count, min, max;
    double sum;
    uint64_t counts[MQ_HISTOGRAM_BUCKETS];
} mq_histogram;

static inline unsigned mq_histogram_find_bucket(uint64_t value) {
    if (value < (2u << MQ_HISTOGRAM_SUB_BUCKET_BITS))
        return (unsigned)value;
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - MQ_HISTOGRAM_SUB_BUCKET_BITS;
    return (shift << MQ_HISTOGRAM_SUB_BUCKET_BITS) + (unsigned)(value >> shift);
}

/* Return the middle of a bucket. For a bucket of width one, the middle is the value itself. */
static inline double mq_histogram_bucket_middle(unsigned bucket) {
    unsigned shift = bucket < (2u << MQ_HISTOGRAM_SUB_BUCKET_BITS) ? 0 : (bucket >> MQ_HISTOGRAM_SUB_BUCKET_BITS) - 1;
    double low = (double)(bucket - (shift << MQ_HISTOGRAM_SUB_BUCKET_BITS)) * (double)(1ull << shift);
    return shift ? low + 0.5 * (double)((1ull << shift) - 1) : low;
}

static inline void mq_histogram_add_value(mq_histogram *h, uint64_t value, uint64_t times) {
    if (times == 0)
        return;
    if (h->count == 0 || value < h->min)
        h->min = value;
    if (value > h->max)
        h->max = value;
    h->count += times;
    h->sum += (double)(int64_t)value * (double)times;
    h->counts[mq_histogram_find_bucket(value)] += times;
}

/* Return the percentile for `share` (0 to 1). Returns 0 if the histogram is empty. */
static inline double mq_histogram_compute_percentile(const mq_histogram *h, double share) {
    uint64_t passed = 0, wanted = (uint64_t)(share * (double)h->count);
    if (wanted >= h->count) /* return the exact maximum, because the middle of a bucket may be larger */
        return (double)h->max;
    for (unsigned bucket = 0; bucket < MQ_HISTOGRAM_BUCKETS; bucket++) {
        passed += h->counts[bucket];
        if (passed > wanted) {
            double middle = mq_histogram_bucket_middle(bucket);
            return middle<(double)h->min ? (double)h->min : middle>(double) h->max ? (double)h->max : middle;
        }
    }
    return 0;
}

typedef struct {
    mq_histogram periods_ns, sizes, delays_ns;
    uint64_t messages;          /* messages counted */
    uint64_t without_timestamp; /* messages too short for a timestamp */
    uint64_t negative_delays;   /* messages with a timestamp in the future. The delay of such a message counts as 0 */
    /* times of the samples that found the first and the last message, nanoseconds of CLOCK_MONOTONIC; 0: no message
     * yet */
    int64_t first_ns, last_ns;
    /* byte offset of the publish time (u64, nanoseconds) in the payload. If the offset is negative, the meter uses the
     * message's stamp */
    int64_t stamp_offset;
    int64_t stamp_clock;       /* clock of the publish time, as a clock id of clock_gettime */
    int64_t clock_offset_ns;   /* nanoseconds to add to the time of stamp_clock */
    const int64_t *virtual_ns; /* time of the endpoint's bus, in place of all clocks; NULL: no bus */
} mq_meter;

/* Return the current time by the clock that publishers use for publish times. */
static inline int64_t mq_meter_read_wall_clock_ns(const mq_meter *m) {
    return m->virtual_ns ? *m->virtual_ns : mq_read_clock_ns((clockid_t)m->stamp_clock) + m->clock_offset_ns;
}

static inline void mq_meter_add_delay(mq_meter *m, int64_t now_ns, uint64_t stamp_ns) {
    int64_t delay = (int64_t)((uint64_t)now_ns - stamp_ns);
    if (mq_unlikely(delay < 0)) {
        m->negative_delays++;
        delay = 0;
    }
    mq_histogram_add_value(&m->delays_ns, (uint64_t)delay, 1);
}

/* Count the messages that a sample found at `now_ns`. */
static inline void mq_meter_count_messages(mq_meter *m, int64_t now_ns, uint64_t found) {
    if (found == 0)
        return;
    m->messages += found;
    if (m->last_ns != 0)
        mq_histogram_add_value(&m->periods_ns, (uint64_t)(now_ns - m->last_ns) / found, found);
    else
        m->first_ns = now_ns;
    m->last_ns = now_ns;
}

#endif
