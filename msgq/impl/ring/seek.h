/* Seek the oldest or the last message after joining, and detect that no publisher is left.
 *
 * The current lap has known message boundaries: the lap begins with a message, and each message leads to the next.
 * The positions of both checkpoints are boundaries, too. The rest of the previous lap is intact, but its message
 * boundaries are unknown: payloads may look like messages.
 */
#ifndef MQ_RING_SEEK_H
#define MQ_RING_SEEK_H

#include "ring/subscriber.h"

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

/* Walk from `from`, a message boundary, to `now`. Store the position of the last message. Returns false if no message
 * is between both positions, or if the bytes were overwritten during the walk. */
static inline bool mq_ring_subscriber_find_last_after(const mq_ring_subscriber *s, uint64_t from, uint64_t now,
                                                      uint64_t *last) {
    if (!mq_ring_position_is_valid(from, s->data_bytes) ||
        mq_ring_count_messages(s->data, s->data_bytes, from, now, last) <= 0)
        return false;
    /* EDGE grant, in both calls: the sizes on the way, and the size of the last message, are of this lap. Partner:
     * mq_ring_publisher_announce_limit */
    return mq_ring_subscriber_is_valid(s, from) && mq_ring_subscriber_is_intact(s, *last);
}

/* Find the position of the last message before `now`. Start at the checkpoint, at the previous checkpoint, or at the
 * beginning of the lap. If the publisher begins a lap without a message yet, only the previous checkpoint is before
 * the last message. */
static inline bool mq_ring_subscriber_find_last(const mq_ring_subscriber *s, uint64_t now, uint64_t *last) {
    for (int i = 0; s->announces_limit && s->side && i < 2; i++) {
        /* EDGE checkpoint: acquire. Partner: mq_ring_publisher_announce_limit */
        uint64_t odd = (mq_load_acquire_u64(&s->side->grant_seq) + (uint64_t)i) & 1;
        const mq_ring_checkpoint_words *words = odd ? &s->side->checkpoint_odd : &s->side->checkpoint_even;
        /* relaxed: a single word, and each value that it ever has is a boundary. A value after `now` is rejected. */
        if (mq_ring_subscriber_find_last_after(s, mq_load_relaxed_u64(&words->position), now, last))
            return true;
    }
    return mq_ring_subscriber_find_last_after(s, mq_ring_position(mq_ring_cycle(now), 0), now, last);
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
