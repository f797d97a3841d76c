/* The next message of a subscriber: the message at the cursor, or the last message if the subscriber conflates.
 *
 * The current lap has known message boundaries: the lap begins with a message, and each message leads to the next.
 * The positions of both checkpoints are boundaries, too. The rest of the previous lap is intact, but its message
 * boundaries are unknown: payloads may look like messages.
 */
#ifndef MQ_RING_NEXT_MESSAGE_H
#define MQ_RING_NEXT_MESSAGE_H

#include "ring/subscriber.h"

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

/* Return the number of messages between the cursor and the checkpoint. Returns -1 if the number is unknown, or if the
 * checkpoint is not between the cursor and the last loaded write_pointer. */
static inline int64_t mq_ring_subscriber_count_to_checkpoint(const mq_ring_subscriber *s, mq_ring_checkpoint *m) {
    bool known = s->announces_limit && s->sequence_known && mq_ring_checkpoint_read(s->side, m) && m->era == s->era &&
                 mq_ring_distance(m->position, s->cursor) > 0 && mq_ring_distance(s->published, m->position) >= 0 &&
                 mq_ring_position_is_valid(m->position, s->data_bytes);
    return known ? (int64_t)(m->sequence - mq_ring_subscriber_sequence(s)) : -1;
}

/* Conflate: skip all messages except the newest. */
static inline mq_ring_status mq_ring_subscriber_skip_to_newest(mq_ring_subscriber *s, mq_ring_message *message) {
    for (int tries = 0; tries < 64; tries++) {
        mq_ring_checkpoint m;
        uint64_t last = 0, from = s->cursor, passed = 0;
        mq_ring_status status = mq_ring_subscriber_refresh_published(s);
        if (status != MQ_RING_OK)
            return status;
        /* Start at the checkpoint, which is nearer than the cursor. */
        int64_t count = 0, before = mq_ring_subscriber_count_to_checkpoint(s, &m);
        if (before >= 0) {
            from = m.position, passed = (uint64_t)before;
            count = mq_ring_count_messages(s->data, s->data_bytes, from, s->published, &last);
        }
        bool checkpoint_is_last = before > 0 && count == 0;
        if (count == 0) {
            from = s->cursor, passed = 0;
            count = mq_ring_count_messages(s->data, s->data_bytes, from, s->published, &last);
        }
        bool found = count > 0 && mq_ring_subscriber_is_valid(s, from) && mq_ring_subscriber_is_intact(s, last);
        if (!found && !mq_ring_subscriber_sentinel_unchanged(s)) {
            /* Repeat the checks: they fail after a change of the publisher, too, and not only after a lap. */
            mq_ring_subscriber_reclassify_publisher(s);
            continue;
        }
        /* after the checks: a lap between this check and theirs would look like corruption */
        bool lapped = !found && !mq_ring_subscriber_is_valid(s, s->cursor);
        /* A new publisher stores its checkpoint after the last message, and the lapped cursor leads to no message. */
        if (lapped && checkpoint_is_last && mq_ring_subscriber_find_last(s, s->published, &last))
            found = true, passed = (uint64_t)before, count = 0;
        if (found) {
            if (mq_ring_distance(last, s->cursor) > 0)
                /* unsigned, because another program may have written numbers whose sum overflows */
                mq_ring_subscriber_skip_to(s, last, (int64_t)(passed + (uint64_t)count - 1));
            return mq_ring_subscriber_peek_message(s, message);
        }
        if (lapped) {
            if (mq_ring_subscriber_revalidate_cursor(s) == MQ_RING_CORRUPT)
                return MQ_RING_CORRUPT;
        } else if (count == 0)
            mq_ring_subscriber_skip_to(s, s->published, 0); /* the unread bytes are only a wrap mark */
        else
            return MQ_RING_CORRUPT;
    }
    return MQ_RING_EMPTY; /* the publisher laps too fast, as in mq_ring_subscriber_peek_message */
}

/* Find the next message, or only the newest. Copy the message, then call mq_ring_subscriber_accept_copy. */
static inline mq_ring_status mq_ring_subscriber_next_message(mq_ring_subscriber *s, bool conflate,
                                                             mq_ring_message *message) {
    return mq_unlikely(conflate) ? mq_ring_subscriber_skip_to_newest(s, message)
                                 : mq_ring_subscriber_peek_message(s, message);
}

/* Do the same as mq_ring_subscriber_next_message, and check before the copy that the message is intact. A lapped
 * subscriber counts its losses and continues, as after a torn copy. After MQ_RING_OK, a receive returns the message,
 * unless the publisher laps the subscriber between both calls. */
static inline mq_ring_status mq_ring_subscriber_next_intact_message(mq_ring_subscriber *s, bool conflate,
                                                                    mq_ring_message *message) {
    for (int tries = 0; tries < 64; tries++) {
        mq_ring_status status = mq_ring_subscriber_next_message(s, conflate, message);
        if (status != MQ_RING_OK || mq_likely(mq_ring_subscriber_validate_cursor(s)))
            return status;
        if (!conflate && mq_ring_subscriber_recover_from_lap(s) != MQ_RING_OK)
            return MQ_RING_CORRUPT;
    }
    return MQ_RING_EMPTY; /* the publisher laps too fast, as in mq_ring_subscriber_peek_message */
}

#endif
