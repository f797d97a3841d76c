/* What those who only look on ask for beside messages: the oldest that is there, and whether more can come.
 *
 * Where a message begins can be known of the current lap alone: it begins with one, and each leads to the next. What
 * is left of the lap before it is whole, but the way to it was overwritten from its beginning on, and payloads may
 * look like messages. So a ring is joined at its first byte, or at the beginning of the lap that is being written.
 */
#ifndef MQ_RING_SEEK_H
#define MQ_RING_SEEK_H

#include "ring/subscriber.h"

/* Count what was published before the cursor as lost; unknown where a stock publisher, or no side segment, was there.
 * */
static inline void mq_ring_subscriber_count_lost_before(mq_ring_subscriber *s) {
    int64_t former = -1;
    bool all = s->sequence_known && s->era == 0 && !mq_load_relaxed_u64(&s->side->uncounted); /* relaxed: constant */
    if (s->cursor == 0)
        former = 0;
    else if (all) {
        former = (int64_t)mq_ring_subscriber_sequence(s);
        s->sequence_base -= (uint64_t)former; /* mq_ring_subscriber_skip_to adds it */
    }
    mq_ring_subscriber_skip_to(s, s->cursor, former);
}

/* Go to the oldest message whose place can be known, for one that has just joined a ring that is new to it: it receives
 * or has lost each message that was ever published there. */
static inline mq_ring_status mq_ring_subscriber_seek_oldest(mq_ring_subscriber *s) {
    mq_ring_status status = MQ_RING_EMPTY;
    for (int tries = 0; tries < 100 && status == MQ_RING_EMPTY;
         tries++) { /* MQ_RING_EMPTY: overtaken, so another lap has begun */
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

/* Does nobody publish here, and nobody will without opening the ring's file? For one that has lost its name. */
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
