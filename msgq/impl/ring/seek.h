/* Seek the oldest or the last message after joining, and detect that no publisher is left. */
#ifndef MQ_RING_SEEK_H
#define MQ_RING_SEEK_H

#include "ring/next_message.h"
#include "ring/resize.h"

/* Count messages published before the cursor as lost. The number is unknown if a stock publisher wrote, or if
 * messages were sent before the side segment existed. */
static inline void mq_ring_subscriber_count_lost_before(mq_ring_subscriber *s) {
    int64_t former = -1;
    bool all = s->sequence_known && s->era == 0 && !mq_load_relaxed_u64(&s->side->uncounted); /* relaxed: constant */
    if (s->cursor == 0)
        former = 0;
    else if (all) {
        former = (int64_t)mq_ring_subscriber_sequence(s);
        s->sequence_base -= (uint64_t)former; /* mq_ring_subscriber_skip_to adds this number */
    }
    mq_ring_subscriber_skip_to(s, s->cursor, former);
}

/* Seek the oldest message with a known position, right after the subscriber joined. The subscriber then receives
 * each message ever published on the ring, or counts the message as lost. */
static inline mq_ring_status mq_ring_subscriber_seek_oldest(mq_ring_subscriber *s) {
    mq_ring_status status = MQ_RING_EMPTY;
    for (int tries = 0; tries < 100 && status == MQ_RING_EMPTY;
         tries++) { /* MQ_RING_EMPTY: the publisher lapped the subscriber, so a new lap has begun */
        if (!mq_ring_subscriber_mapping_valid(s))
            return MQ_RING_CORRUPT;
        mq_ring_subscriber_classify_publisher(s);
        /* EDGE commit: acquire. Partner: mq_ring_publisher_publish */
        uint64_t now = mq_load_acquire_u64(&s->ring->write_pointer);
        if (!mq_ring_position_is_valid(now, s->data_bytes))
            return MQ_RING_CORRUPT;
        s->published = now;
        s->cursor = mq_ring_position(mq_ring_cycle(now), 0);
        s->stamps = mq_ring_side_stamp_bytes(s->side);
        s->sequence_known = false;
        status = mq_ring_subscriber_resolve_sequence(s);
    }
    if (status != MQ_RING_OK && (status = mq_ring_subscriber_seek_latest(s)) != MQ_RING_OK)
        return status;
    mq_ring_subscriber_count_lost_before(s);
    return MQ_RING_OK;
}

/* Seek the last message, right after the subscriber joined, so that the subscriber receives the message. If the topic
 * has no message, or the last message cannot be found, stay at the newest position. Messages before the join do
 * not count as lost. */
static inline mq_ring_status mq_ring_subscriber_seek_last(mq_ring_subscriber *s) {
    for (int tries = 0; tries < 100; tries++) { /* the publisher may lap the walk, or begin a lap */
        uint64_t last = 0;
        if (!mq_ring_subscriber_mapping_valid(s))
            return MQ_RING_CORRUPT;
        mq_ring_subscriber_classify_publisher(s);
        /* EDGE commit: acquire. Partner: mq_ring_publisher_publish */
        uint64_t now = mq_load_acquire_u64(&s->ring->write_pointer);
        if (!mq_ring_position_is_valid(now, s->data_bytes))
            return MQ_RING_CORRUPT;
        if (now == 0)
            break; /* no message was ever published */
        if (!mq_ring_subscriber_find_last(s, now, &last))
            continue;
        s->cursor = last, s->published = now;
        s->stamps = mq_ring_side_stamp_bytes(s->side);
        s->sequence_known = false;
        if (mq_ring_subscriber_resolve_sequence(s) == MQ_RING_EMPTY)
            continue;
        mq_ring_subscriber_skip_to(s, last, 0);
        return MQ_RING_OK;
    }
    mq_ring_status status = mq_ring_subscriber_seek_latest(s);
    if (status == MQ_RING_OK)
        mq_ring_subscriber_skip_to(s, s->cursor, 0);
    return status;
}

/* Continue at the cursor in a new mapping of the ring, which has grown. `present`: the canary of the former mapping was
 * not zero. The publisher is classified at once, because no pointer may refer to the former mapping. */
static inline void mq_ring_subscriber_continue_in_grown_ring(mq_ring_subscriber *s, uint32_t former_bytes,
                                                             bool present) {
    s->mapping_too_small = false;
    mq_ring_subscriber_classify_publisher(s);
    /* Messages may have overwritten the former canary, also by zeros. */
    if (present || mq_ring_grew_while_empty(s->ring, s->side, former_bytes, s->data_bytes))
        mq_ring_subscriber_reclassify_publisher(s);
    else /* the message at the cursor may be truncated */
        mq_ring_subscriber_recover_from_lap(s);
    mq_ring_subscriber_refresh_published(s);
}

/* True if this (unlinked) ring has no living publisher. */
static inline bool mq_ring_subscriber_has_no_publisher(const mq_ring_subscriber *s) {
    uint64_t uid = mq_load_acquire_u64(&s->ring->write_uid);
    const mq_ring_publisher_row *row = mq_ring_find_publisher(s->side, uid);
    if (!row)
        return uid == 0 || mq_thread_liveness(mq_ring_uid_thread_id(uid)) == MQ_DEAD;
    mq_liveness_probe probe = mq_liveness_probe_begin(s->liveness_file);
    bool dead = mq_ring_row_liveness(&probe, s->side, (int)(row - s->side->publishers)) == MQ_DEAD;
    mq_liveness_probe_end(&probe);
    return dead;
}

#endif
