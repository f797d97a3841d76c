/* Tracked topics: each message begins with stamps, from the first one on. See docs/internals/topic-protocol.md.
 *
 * Sizes of messages are those of the payload everywhere but in the ring itself: who reads or writes there adds
 * `stamps`, the bytes before each payload, which is 0 on any other topic.
 */
#ifndef MQ_RING_STAMPS_H
#define MQ_RING_STAMPS_H

#include "ring/layout.h"

/* What a publisher wants. */
typedef enum { MQ_TRACK_UNCHANGED, MQ_TRACK_YES, MQ_TRACK_NO } mq_track;

/* Who has seen a message has seen this word as it stays: the first write_pointer came after it (EDGE commit), and of
 * publishers that came and went before the first message each held the lock. */
static inline bool mq_ring_side_is_tracked(const mq_ring_side *side) {
    return mq_load_relaxed_u64(&side->tracked) == MQ_SIDE_TRACKED; /* relaxed: as above */
}

/* The bytes before each payload. To be asked behind a load of write_pointer; NULL: there is no side segment. */
static inline uint32_t mq_ring_side_stamp_bytes(const mq_ring_side *side) {
    return side && mq_ring_side_is_tracked(side) ? sizeof(mq_stamps) : 0;
}

/* Can a publisher have what it wants? Under the lock; but a stock publisher, which takes none, may send meanwhile. */
static inline bool mq_ring_side_can_track(const mq_ring_header *ring, const mq_ring_side *side, mq_track wanted) {
    if (mq_ring_side_is_tracked(side))
        return wanted != MQ_TRACK_NO;
    return wanted != MQ_TRACK_YES || mq_load_acquire_u64(&ring->write_pointer) == 0; /* nothing was ever sent */
}

/* Settle it. Returns the bytes before each payload. */
static inline uint32_t mq_ring_side_decide_tracking(mq_ring_side *side, mq_track wanted) {
    if (wanted == MQ_TRACK_YES)
        mq_store_relaxed_u64(&side->tracked, MQ_SIDE_TRACKED); /* relaxed: our first write_pointer publishes it */
    return mq_ring_side_stamp_bytes(side);
}

/* The stamps before a payload in the ring. */
static inline void mq_stamps_write(uint8_t *payload, const mq_stamps *stamps) {
    mq_copy_to_shared(payload - sizeof *stamps, stamps, sizeof *stamps);
}
static inline void mq_stamps_read(mq_stamps *stamps, const uint8_t *payload) {
    mq_copy_from_shared(stamps, payload - sizeof *stamps, sizeof *stamps);
}

#endif
