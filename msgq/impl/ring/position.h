/* Positions in the ring: cycle and offset packed in 64 bits, and comparisons of positions.
 *
 * The cycle counts laps modulo 2^32. Compare positions by their difference, never with < alone.
 */
#ifndef MQ_RING_POSITION_H
#define MQ_RING_POSITION_H

#include "ring/layout.h"

#define MQ_RING_WRAP_MARK (-1)

static inline uint32_t mq_ring_cycle(uint64_t position) { return (uint32_t)(position >> 32); }
static inline uint32_t mq_ring_offset(uint64_t position) { return (uint32_t)position; }
static inline uint64_t mq_ring_position(uint32_t cycle, uint32_t offset) { return ((uint64_t)cycle << 32) | offset; }
static inline uint64_t mq_ring_next_lap(uint64_t position) { return mq_ring_position(mq_ring_cycle(position) + 1, 0); }

/* Return b - a as a signed distance: >= 0 if b is at or after a. */
static inline int64_t mq_ring_distance(uint64_t b, uint64_t a) { return (int64_t)(b - a); }

/* Return the ring bytes of a message of `size` bytes: size word, payload, and padding to 8. */
static inline uint64_t mq_ring_frame_bytes(uint64_t size) { return (size + 15) & ~(uint64_t)7; }

/* Return the largest offset at which a lap may end: stock wraps when data_bytes - offset - need - 8 <= 0. */
static inline uint32_t mq_ring_lap_end(uint32_t data_bytes) { return (data_bytes - 9) & ~7u; }

/* Return the frame bytes of the largest message. The ring must hold three messages of this size. A result below 16
 * means that the ring has room for no message. */
static inline uint64_t mq_ring_frame_bytes_max(uint32_t data_bytes) { return (data_bytes / 3) & ~7u; }

/* Return how many bytes ahead a publisher announces its writes. */
static inline uint32_t mq_ring_grant_chunk_bytes(uint32_t data_bytes) {
    uint32_t chunk = (data_bytes / 16) & ~7u;
    return chunk < 65536 ? chunk : 65536;
}

/* True if `position` can be the write pointer of a ring of this size. Shared memory may hold invalid data. */
static inline bool mq_ring_position_is_valid(uint64_t position, uint32_t data_bytes) {
    return mq_ring_offset(position) <= mq_ring_lap_end(data_bytes) && (mq_ring_offset(position) & 7) == 0;
}

/* True if no write up to `limit` touched the message at `position` of this lap or the previous lap. */
static inline bool mq_ring_message_is_intact(uint64_t limit, uint64_t position) {
    uint32_t laps = mq_ring_cycle(limit) - mq_ring_cycle(position);
    if (laps == 0)
        return mq_ring_offset(limit) >= mq_ring_offset(position);
    return laps == 1 && mq_ring_offset(limit) <= mq_ring_offset(position);
}

/* Do the same as mq_ring_message_is_intact, for a publisher that announces no limit. A publisher without a limit may be
 * writing the largest possible message. */
static inline bool mq_ring_message_is_intact_without_limit(uint64_t write_pointer, uint64_t position,
                                                           uint32_t data_bytes) {
    uint64_t reach = (uint64_t)mq_ring_offset(write_pointer) + data_bytes / 3 + 8;
    uint32_t laps = mq_ring_cycle(write_pointer) - mq_ring_cycle(position);
    if (laps == 1)
        return reach <= mq_ring_offset(position);
#if !defined(__x86_64__)
    /* On other CPUs, the new cycle of a stock publisher may become visible after bytes that this publisher wrote at
     * the start of the ring. */
    if (reach >= data_bytes && mq_ring_offset(position) < data_bytes / 3)
        return false;
#endif
    return laps == 0 && mq_ring_offset(write_pointer) >= mq_ring_offset(position);
}

/* Return the last position that a publisher without a limit may have written. `write_pointer` is the publisher's
 * position. */
static inline uint64_t mq_ring_max_written_position(uint64_t write_pointer, uint32_t data_bytes) {
    uint32_t margin = data_bytes / 3 + 8;
    uint64_t end = (uint64_t)mq_ring_offset(write_pointer) + margin;
    if (end >= data_bytes)
        return mq_ring_position(mq_ring_cycle(write_pointer) + 1, margin & ~7u);
    return mq_ring_position(mq_ring_cycle(write_pointer), (uint32_t)((end + 7) & ~(uint64_t)7));
}

#endif
