/* Walk from message to message, starting at the grant's checkpoint. Use a result only after a check that the
 * position is still intact (subscriber.h). */
#ifndef MQ_RING_WALK_H
#define MQ_RING_WALK_H

#include "ring/position.h"

typedef struct {
    uint64_t position, sequence, era, grant_seq;
} mq_ring_checkpoint;

/* Copy the grant's checkpoint consistently. Returns false if the checkpoint changed during every attempt, or if `side`
 * is NULL. */
static inline bool mq_ring_checkpoint_read(const mq_ring_side *side, mq_ring_checkpoint *m) {
    for (int tries = 0; side && tries < 1000; tries++) {
        /* EDGE checkpoint: acquire. Partner: mq_ring_publisher_announce_limit */
        m->grant_seq = mq_load_acquire_u64(&side->grant_seq);
        const mq_ring_checkpoint_words *words = m->grant_seq & 1 ? &side->checkpoint_odd : &side->checkpoint_even;
        /* relaxed: the second load of grant_seq detects values of a newer grant. */
        m->position = mq_load_relaxed_u64(&words->position);
        m->sequence = mq_load_relaxed_u64(&words->sequence);
        m->era = mq_load_relaxed_u64(&words->era);
        /* EDGE grant: acquire. The next grant writes the other copy and leaves this copy unchanged, even if its
         * publisher dies. A process that sees bytes of the grant after the next also sees the next grant. Partner:
         * mq_ring_publisher_announce_limit */
        mq_fence_acquire();
        if (mq_load_relaxed_u64(&side->grant_seq) == m->grant_seq)
            return true;
    }
    return false;
}

static inline uint64_t mq_ring_message_size(const uint8_t *data, uint64_t position) {
    /* relaxed: ordered by the acquire of write_pointer, and validated before any use. */
    return mq_load_relaxed_u64((const mq_u64 *)(data + mq_ring_offset(position)));
}

/* Return the position after the message or wrap mark at `position`. Returns `position` itself if the size is
 * invalid. */
static inline uint64_t mq_ring_next_message_position(const uint8_t *data, uint32_t data_bytes, uint64_t position,
                                                     bool *is_message) {
    uint64_t size = mq_ring_message_size(data, position), offset = mq_ring_offset(position);
    *is_message = size <= data_bytes && offset + mq_ring_frame_bytes(size) <= mq_ring_lap_end(data_bytes);
    if (*is_message)
        return position + mq_ring_frame_bytes(size);
    return size == (uint64_t)MQ_RING_WRAP_MARK && offset != 0 ? mq_ring_next_lap(position) : position;
}

/* Count the messages from `from` to `to`, and store the position of the last message in *last. `need` is the frame
 * bytes of each message; 0 permits any size. Returns -1 if the message sizes do not lead to `to`. Returns -1 also if
 * the positions are more than a lap apart, because the walk might not end. */
static inline int64_t mq_ring_count_messages_of_size(const uint8_t *data, uint32_t data_bytes, uint64_t from,
                                                     uint64_t to, uint64_t need, uint64_t *last) {
    int64_t count = 0;
    if (mq_ring_distance(to, from) > 0 && !mq_ring_message_is_intact(to, from))
        return -1;
    while (mq_ring_distance(to, from) > 0) {
        bool is_message;
        uint64_t next = mq_ring_next_message_position(data, data_bytes, from, &is_message);
        if (next == from || (need && is_message && next != from + need))
            return -1;
        if (is_message) {
            *last = from;
            count++;
        }
        from = next;
    }
    return from == to ? count : -1;
}

/* Do the same as mq_ring_count_messages_of_size, for messages of any size. */
static inline int64_t mq_ring_count_messages(const uint8_t *data, uint32_t data_bytes, uint64_t from, uint64_t to,
                                             uint64_t *last) {
    return mq_ring_count_messages_of_size(data, data_bytes, from, to, 0, last);
}

/* Return the position of the oldest message that a write up to `limit` leaves intact. Each message needs `need` bytes,
 * and each lap begins with a message. The result is at least `spare` bytes after the limit's offset. */
static inline uint64_t mq_ring_oldest_record_position(uint64_t limit, uint32_t data_bytes, uint64_t need,
                                                      uint64_t spare) {
    uint64_t offset = (mq_ring_offset(limit) + spare + need - 1) / need * need;
    bool fits = mq_ring_cycle(limit) > 0 && offset + need <= mq_ring_lap_end(data_bytes);
    return fits ? mq_ring_position(mq_ring_cycle(limit) - 1, (uint32_t)offset)
                : mq_ring_position(mq_ring_cycle(limit), 0);
}

#endif
