/* What has arrived at a subscriber in a simulation. The messages themselves are in the ring as soon as they are sent, so
 * limits, laps and counts are the ring's. The subscriber only reads a copy of the ring's header (`shown`), whose
 * write_pointer is the end of the last message that has arrived. One thread at a time uses a bus. */
#ifndef MQ_RING_VIEW_H
#define MQ_RING_VIEW_H

#include "ring/next_message.h"

/* Show the ring up to `position`. */
static inline void mq_ring_view_show(mq_ring_header *shown, const mq_ring_header *ring, uint64_t position) {
    mq_store_release_u64(&shown->write_uid, mq_load_acquire_u64(&ring->write_uid));
    mq_store_release_u64(&shown->write_pointer, position);
}

static inline uint64_t mq_ring_view_end(const mq_ring_header *shown) {
    return mq_load_acquire_u64(&shown->write_pointer);
}

/* True if the publisher has not begun to overwrite the message at `position`. */
static inline bool mq_ring_view_is_intact(const mq_ring_side *side, uint64_t position) {
    /* relaxed: the nodes of a simulation run one at a time */
    return mq_ring_message_is_intact(mq_load_relaxed_u64(&side->write_limit), position);
}

/* Deliver the message at `position`, which the subscriber has received, once more. */
static inline void mq_ring_view_repeat(mq_ring_subscriber *s, uint64_t position) {
    s->cursor = position;
    s->sequence_base -= 1; /* the message is received twice, but was published once */
    mq_ring_subscriber_store_base_sequence(s);
    mq_ring_subscriber_store_stats(s);
}

#endif
