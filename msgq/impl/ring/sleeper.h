/* A subscriber that sleeps: who can wake it, when it looks again, and what the watcher thread knows of it. See
 * docs/internals/topic-protocol.md.
 *
 * Nothing here touches Python or sleeps itself.
 */
#ifndef MQ_RING_SLEEPER_H
#define MQ_RING_SLEEPER_H

#include "base/poll_ops.h"
#include "ring/subscriber.h"

/* Has the publisher or our slot changed since the last survey? Asked before sleeping, when nothing was read. */
static inline void mq_ring_subscriber_recheck_publisher(mq_ring_subscriber *s) {
    /* Whoever changes it later wakes us (ours), or is noticed by the watcher (stock). */
    bool same = mq_load_acquire_u64(&s->ring->write_uid) == s->publisher_uid;
    /* also: beyond num_readers */
    bool slot_was_taken = s->slot >= 0 && !mq_reader_slot_is_mine(s->ring, s->slot, s->slot_uid);
    if (!same || slot_was_taken || !mq_ring_subscriber_sentinel_unchanged(s))
        mq_ring_subscriber_reclassify_publisher(s);
}

/* Let stock publishers signal `thread` on our behalf. */
static inline void mq_ring_subscriber_route_signals(mq_ring_subscriber *s, uint32_t thread) {
    s->signal_thread = thread;
    mq_reader_slot_release(s->ring, s->side, s->slot, s->slot_uid);
    s->slot = -1;
    mq_ring_subscriber_classify_publisher(s);
}

/* The word to sleep on. Without a side segment nobody can wake us, and it is one that never changes. */
static inline mq_u32 *mq_ring_subscriber_eventcount(mq_ring_subscriber *s) {
    return s->side ? &s->side->eventcount : &s->private_eventcount;
}
static inline uint32_t *mq_ring_subscriber_futex_word(mq_ring_subscriber *s) {
    return mq_futex_word(mq_ring_subscriber_eventcount(s));
}

/* Returns what the futex word shall be when the sleep begins. To be followed by another look at write_pointer. Then
 * either the publisher sees the flag and wakes us, or it has counted a wake since. */
static inline uint32_t mq_ring_subscriber_prepare_wait(mq_ring_subscriber *s) {
    if (s->passive)
        return mq_load_acquire_u32(mq_ring_subscriber_eventcount(s));
    return mq_eventcount_prepare_wait(&s->side->eventcount);
}

/* Anything behind the cursor (perhaps a wrap mark), or an error? EDGE commit: acquire. Partner:
 * mq_ring_publisher_publish */
static inline bool mq_ring_subscriber_is_readable(const mq_ring_subscriber *s) {
    return s->cursor != s->published || mq_load_acquire_u64(&s->ring->write_pointer) != s->cursor ||
           !mq_ring_subscriber_mapping_valid(s);
}

/* What the watcher thread may know of a subscriber (base/poll_ops.h). */
typedef struct {
    const mq_ring_header *ring;
    const mq_u64 *cursor; /* as the subscriber shows it */
    mq_canary canary;
} mq_ring_poll_state;

static inline mq_ring_poll_state mq_ring_subscriber_poll_state(const mq_ring_subscriber *s) {
    return (mq_ring_poll_state){.ring = s->ring, .cursor = &s->row->cursor, .canary = s->canary};
}

static inline int mq_ring_poll_is_readable(const void *reader) {
    const mq_ring_poll_state *poll_state = reader;
    /* relaxed: a cursor of the past only costs a look; the watcher's mutex orders it with the end of a receive. */
    return mq_load_acquire_u64(&poll_state->ring->write_pointer) != mq_load_relaxed_u64(poll_state->cursor) ||
           !mq_canary_is_intact(&poll_state->canary); /* then there is an error to be had */
}

static inline mq_poll_ops mq_ring_subscriber_poll_ops(mq_ring_subscriber *s, const mq_ring_poll_state *poll_state) {
    return (mq_poll_ops){.is_readable = mq_ring_poll_is_readable,
                         .reader = poll_state,
                         .eventcount = mq_ring_subscriber_eventcount(s),
                         .prepare_wait = s->passive ? NULL : mq_poll_prepare_wait};
}

#endif
