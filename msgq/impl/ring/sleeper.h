/* How a subscriber sleeps: the wakers, the polls, and the state that the watcher thread reads. See
 * docs/internals/topic-protocol.md.
 *
 * No function here calls Python or sleeps.
 */
#ifndef MQ_RING_SLEEPER_H
#define MQ_RING_SLEEPER_H

#include "base/poll_ops.h"
#include "ring/subscriber.h"

/* Classify the publisher again if the publisher or the subscriber's slot changed since the last check. Call this
 * after a read that found no message, before the sleep. */
static inline void mq_ring_subscriber_recheck_publisher(mq_ring_subscriber *s) {
    /* A msgq publisher that changes write_uid later wakes the subscriber. The helper thread (signal_thread.h)
     * detects a stock publisher that starts later. */
    bool same = mq_load_acquire_u64(&s->ring->write_uid) == s->publisher_uid;
    /* the result is also true if the slot is beyond num_readers */
    bool slot_was_taken = s->slot >= 0 && !mq_reader_slot_is_mine(s->ring, s->slot, s->slot_uid);
    if (!same || slot_was_taken || !mq_ring_subscriber_sentinel_unchanged(s))
        mq_ring_subscriber_reclassify_publisher(s);
}

/* Let stock publishers signal `thread` for this subscriber. */
static inline void mq_ring_subscriber_route_signals(mq_ring_subscriber *s, uint32_t thread) {
    s->signal_thread = thread;
    mq_reader_slot_release(s->ring, s->side, s->slot, s->slot_uid);
    s->slot = -1;
    mq_ring_subscriber_classify_publisher(s);
}

/* Return the word on which the subscriber sleeps. Without a side segment, no process can wake the subscriber, and
 * the word is constant. */
static inline mq_u32 *mq_ring_subscriber_eventcount(mq_ring_subscriber *s) {
    return s->side ? &s->side->eventcount : &s->private_eventcount;
}
static inline uint32_t *mq_ring_subscriber_futex_word(mq_ring_subscriber *s) {
    return mq_futex_word(mq_ring_subscriber_eventcount(s));
}

/* Return the value that the futex word must have at the beginning of the sleep. Load write_pointer again after this
 * call. Then the publisher either sees the flag and wakes the subscriber, or has already counted a wake. */
static inline uint32_t mq_ring_subscriber_prepare_wait(mq_ring_subscriber *s) {
    if (s->passive)
        return mq_load_acquire_u32(mq_ring_subscriber_eventcount(s));
    return mq_eventcount_prepare_wait(&s->side->eventcount);
}

/* True if a message, a wrap mark or an error is after the cursor. EDGE commit: acquire. Partner:
 * mq_ring_publisher_publish */
static inline bool mq_ring_subscriber_is_readable(const mq_ring_subscriber *s) {
    return s->cursor != s->published || mq_load_acquire_u64(&s->ring->write_pointer) != s->cursor ||
           !mq_ring_subscriber_mapping_valid(s);
}

/* True if a receive would find no message, and would change nothing. */
static inline bool mq_ring_subscriber_is_drained(const mq_ring_subscriber *s) {
    return s->side && !mq_ring_subscriber_is_readable(s) && mq_ring_subscriber_sentinel_unchanged(s);
}

/* State of a subscriber that the watcher thread reads (base/poll_ops.h). */
typedef struct {
    const mq_ring_header *ring;
    const mq_u64 *cursor; /* cursor as other processes see it */
    mq_canary canary;
} mq_ring_poll_state;

static inline mq_ring_poll_state mq_ring_subscriber_poll_state(const mq_ring_subscriber *s) {
    return (mq_ring_poll_state){.ring = s->ring, .cursor = &s->row->cursor, .canary = s->canary};
}

static inline int mq_ring_poll_is_readable(const void *reader) {
    const mq_ring_poll_state *poll_state = reader;
    /* relaxed: an old cursor only costs a poll. The watcher's mutex orders the cursor with the end of a receive. */
    return mq_load_acquire_u64(&poll_state->ring->write_pointer) != mq_load_relaxed_u64(poll_state->cursor) ||
           !mq_canary_is_intact(&poll_state->canary); /* a truncated ring: the next receive raises an error */
}

static inline mq_poll_ops mq_ring_subscriber_poll_ops(mq_ring_subscriber *s, const mq_ring_poll_state *poll_state) {
    return (mq_poll_ops){.is_readable = mq_ring_poll_is_readable,
                         .reader = poll_state,
                         .eventcount = mq_ring_subscriber_eventcount(s),
                         .prepare_wait = s->passive ? NULL : mq_poll_prepare_wait};
}

#endif
