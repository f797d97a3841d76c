/* Tracked topics: every message begins with stamps. See docs/internals/topic-protocol.md.
 *
 * Message sizes are payload sizes everywhere except in the ring itself. In the ring, `stamps` bytes precede each
 * payload. `stamps` is 0 on topics without tracking.
 */
#ifndef MQ_RING_STAMPS_H
#define MQ_RING_STAMPS_H

#include "ring/layout.h"

/* A publisher's request for tracking. */
typedef enum { MQ_TRACK_UNCHANGED, MQ_TRACK_YES, MQ_TRACK_NO } mq_track;

/* True if the topic is tracked. A process that has seen a message sees the final value: the first write_pointer was
 * stored after this word (EDGE commit). Before the first message, each publisher held the lock to write the word. */
static inline bool mq_ring_side_is_tracked(const mq_ring_side *side) {
    return mq_load_relaxed_u64(&side->tracked) == MQ_SIDE_TRACKED; /* relaxed: as above */
}

/* Return the bytes before each payload. Call this after a load of write_pointer. Returns 0 if `side` is NULL. */
static inline uint32_t mq_ring_side_stamp_bytes(const mq_ring_side *side) {
    return side && mq_ring_side_is_tracked(side) ? sizeof(mq_stamps) : 0;
}

/* True if the topic can have the requested setting. Call this under the lock. A stock publisher takes no lock and may
 * send during the call. */
static inline bool mq_ring_side_can_track(const mq_ring_header *ring, const mq_ring_side *side, mq_track wanted) {
    if (mq_ring_side_is_tracked(side))
        return wanted != MQ_TRACK_NO;
    return wanted != MQ_TRACK_YES || mq_load_acquire_u64(&ring->write_pointer) == 0; /* no message was sent yet */
}

/* Decide the topic's tracking setting. Returns the bytes before each payload. */
static inline uint32_t mq_ring_side_decide_tracking(mq_ring_side *side, mq_track wanted) {
    if (wanted == MQ_TRACK_YES)
        mq_store_relaxed_u64(&side->tracked, MQ_SIDE_TRACKED); /* relaxed: our first write_pointer publishes it */
    return mq_ring_side_stamp_bytes(side);
}

/* Write the stamps before a payload in the ring. */
static inline void mq_stamps_write(uint8_t *payload, const mq_stamps *stamps) {
    mq_copy_to_shared(payload - sizeof *stamps, stamps, sizeof *stamps);
}
static inline void mq_stamps_read(mq_stamps *stamps, const uint8_t *payload) {
    mq_copy_from_shared(stamps, payload - sizeof *stamps, sizeof *stamps);
}

#endif
