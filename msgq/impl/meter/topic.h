/* Samples of a topic by a passive subscriber. */
#ifndef MQ_METER_TOPIC_H
#define MQ_METER_TOPIC_H

#include "meter/counting.h"
#include "ring/sleeper.h"

/* Count the message at the cursor. Returns false if no message is left before `published`, or on an error. */
static inline bool mq_meter_count_topic_message(mq_meter *m, mq_ring_subscriber *s, int64_t wall_ns,
                                                mq_ring_status *status) {
    mq_ring_message message;
    uint64_t stamp = 0;
    mq_stamps stamps;
    *status = mq_ring_subscriber_peek_message(s, &message);
    if (*status != MQ_RING_OK)
        return false;
    bool has_stamps = m->stamp_offset < 0 && s->stamps;
    bool has_timestamp = mq_meter_payload_has_timestamp(m, message.size);
    if (has_timestamp)
        mq_copy_from_shared(&stamp, message.payload + m->stamp_offset, sizeof stamp);
    if (has_stamps)
        mq_stamps_read(&stamps, message.payload);
    /* if the publisher overwrote the message during the read, continue at the newest position */
    if (!mq_ring_subscriber_accept_copy(s, &message)) {
        *status = mq_ring_subscriber_recover_from_lap(s);
        return false;
    }
    mq_histogram_add_value(&m->sizes, message.size, 1);
    if (has_timestamp || has_stamps)
        mq_meter_add_delay(m, wall_ns, has_timestamp ? stamp : (uint64_t)stamps.publish_time);
    else
        m->without_timestamp += m->stamp_offset >= 0;
    return true;
}

static inline int64_t mq_meter_sample_topic(mq_meter *m, void *reader) {
    mq_ring_subscriber *s = reader;
    mq_ring_status status = mq_ring_subscriber_refresh_published(s);
    int64_t found = 0;
    if (status != MQ_RING_OK)
        return status == MQ_RING_EMPTY ? 0 : -1;
    /* The clock is read after the refresh, so all visible messages were published before `now`. */
    int64_t now = mq_monotonic_ns();
    bool has_timestamps = m->stamp_offset >= 0 || s->stamps;
    int64_t wall_ns = has_timestamps ? mq_meter_read_wall_clock_ns(m) : 0;
    /* The loop is bounded by `published`, so the loop ends after at most one lap. */
    while (s->cursor != s->published && mq_meter_count_topic_message(m, s, wall_ns, &status))
        found++;
    mq_meter_count_messages(m, now, (uint64_t)found);
    if (status == MQ_RING_CORRUPT) {
        mq_ring_subscriber_recover_from_lap(s); /* recover, so that the next sample can read later valid messages */
        return -1;
    }
    return found;
}

static inline const uint32_t *mq_meter_get_topic_futex_word(void *reader) {
    return mq_ring_subscriber_futex_word(reader);
}
static inline uint32_t mq_meter_prepare_topic_wait(void *reader) { return mq_ring_subscriber_prepare_wait(reader); }

#endif
