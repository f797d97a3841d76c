/* Batches: send many messages of one size from an array, receive many messages of one size into an array, and receive
 * message after message with one load of write_pointer. The step numbers are the numbers in publisher.h and
 * subscriber.h. */
#ifndef MQ_RING_BATCH_H
#define MQ_RING_BATCH_H

#include "ring/next_message.h"

/* ---- publishing ---- */

/* Do steps 1 and 4 for messages of `size` bytes, after mq_ring_publisher_begin_message for the first message. Do not
 * call this on tracked topics. Stores the number of staged messages in *count. `begun` counts the whole batch at once.
 * A new publisher only checks `begun == sent`, which is false until the commit. Before each message, the loop checks
 * that the publisher still owns the ring. */
static inline __attribute__((always_inline)) mq_ring_status mq_ring_publisher_stage_sized(mq_ring_publisher *p,
                                                                                          const uint8_t *rows,
                                                                                          size_t size,
                                                                                          uint64_t *count) {
    const mq_u64 *owner = &p->ring->write_uid;
    const uint64_t uid = p->uid, need = mq_ring_frame_bytes(size),
                   room = (p->granted_offset - mq_ring_offset(p->head)) / need;
    const uint64_t many = *count < room ? *count : room;
    uint8_t *message = p->data + mq_ring_offset(p->head);
    mq_store_relaxed_u64(&p->row->begun, p->sequence + p->pending + many); /* relaxed: it differed from `sent` before */
    for (uint64_t i = 0; i < many; i++, message += need, rows += size) {
        if (mq_unlikely(mq_load_relaxed_u64(owner) != uid)) /* relaxed: as in mq_ring_publisher_owns_ring */
            return mq_ring_publisher_discard_staged(p, MQ_RING_TAKEN_OVER);
        mq_store_relaxed_u64((mq_u64 *)message, size); /* relaxed: published by commit */
        mq_copy_to_shared(message + 8, rows, size);
    }
    p->head += many * need;
    p->pending += many;
    p->pending_bytes += many * size;
    *count = many;
    return MQ_RING_OK;
}

/* Call mq_ring_publisher_stage_sized with a constant size, so that the compiler inlines the copy. */
static inline mq_ring_status mq_ring_publisher_stage_batch(mq_ring_publisher *p, const uint8_t *rows, size_t size,
                                                           uint64_t *count) {
    switch (size) {
    case 8: return mq_ring_publisher_stage_sized(p, rows, 8, count);
    case 16: return mq_ring_publisher_stage_sized(p, rows, 16, count);
    case 24: return mq_ring_publisher_stage_sized(p, rows, 24, count);
    case 32: return mq_ring_publisher_stage_sized(p, rows, 32, count);
    case 40: return mq_ring_publisher_stage_sized(p, rows, 40, count);
    case 48: return mq_ring_publisher_stage_sized(p, rows, 48, count);
    case 64: return mq_ring_publisher_stage_sized(p, rows, 64, count);
    default: return mq_ring_publisher_stage_sized(p, rows, size, count);
    }
}

/* ---- receiving ---- */

/* Return the ring bytes between the cursor and the published position, including the unused end of a lap. */
static inline uint64_t mq_ring_subscriber_pending_bytes(const mq_ring_subscriber *s) {
    uint32_t from = mq_ring_offset(s->cursor), to = mq_ring_offset(s->published);
    return mq_ring_cycle(s->cursor) == mq_ring_cycle(s->published) ? to - from
                                                                   : mq_ring_lap_end(s->data_bytes) - from + to;
}

/* Copy up to `max` messages of exactly `size` bytes to `out`. Moves *position to the end of the copied messages, and
 * returns the number of messages. */
static inline __attribute__((always_inline)) int64_t mq_ring_subscriber_copy_sized(const mq_ring_subscriber *s,
                                                                                   uint8_t *out, size_t size,
                                                                                   int64_t max, uint64_t *position) {
    /* local copies show the compiler that writes to `out` do not change these values */
    const uint8_t *data = s->data;
    const uint64_t published = s->published, stamps = s->stamps, need = mq_ring_frame_bytes(size + stamps);
    const uint64_t lap_end = mq_ring_lap_end(s->data_bytes);
    uint64_t at = *position;
    int64_t count = 0;
    while (count < max && mq_ring_distance(published, at) > 0) {
        uint64_t found = mq_ring_message_size(data, at), offset = mq_ring_offset(at);
        if (found == size + stamps && offset + need <= lap_end) {
            mq_copy_from_shared(out + (uint64_t)count++ * size, data + offset + 8 + stamps, size);
            at += need;
        } else if (found == (uint64_t)MQ_RING_WRAP_MARK && offset != 0)
            at = mq_ring_next_lap(at);
        else
            break;
    }
    *position = at;
    return count;
}

/* Call mq_ring_subscriber_copy_sized with a constant size, so that the compiler inlines the copy. */
static inline int64_t mq_ring_subscriber_copy_batch(const mq_ring_subscriber *s, uint8_t *out, size_t size, int64_t max,
                                                    uint64_t *position) {
    switch (size) {
    case 8: return mq_ring_subscriber_copy_sized(s, out, 8, max, position);
    case 16: return mq_ring_subscriber_copy_sized(s, out, 16, max, position);
    case 24: return mq_ring_subscriber_copy_sized(s, out, 24, max, position);
    case 32: return mq_ring_subscriber_copy_sized(s, out, 32, max, position);
    case 40: return mq_ring_subscriber_copy_sized(s, out, 40, max, position);
    case 48: return mq_ring_subscriber_copy_sized(s, out, 48, max, position);
    case 64: return mq_ring_subscriber_copy_sized(s, out, 64, max, position);
    default: return mq_ring_subscriber_copy_sized(s, out, size, max, position);
    }
}

/* Receive a batch of messages, with one validation for all of them. Returns 0 if there is no message, or if the next
 * message has another size. Returns -1 if the copies are torn (see mq_ring_subscriber_accept_copy). */
static inline int64_t mq_ring_subscriber_receive_batch(mq_ring_subscriber *s, uint8_t *out, uint64_t size,
                                                       int64_t max) {
    uint64_t position = s->cursor;
    int64_t count = mq_ring_subscriber_copy_batch(s, out, size, max, &position);
    if (!mq_ring_subscriber_validate_cursor(s))
        return -1;
    s->cursor = position;
    s->received += (uint64_t)count;
    mq_ring_subscriber_store_stats(s);
    if (!s->announces_limit && s->slot >= 0)
        mq_reader_slot_write_cursor(s->ring, s->slot, s->cursor);
    return count;
}

/* Do the same as mq_ring_subscriber_peek_message, without a load of write_pointer. Returns false if the last load
 * covers no more messages, or if mq_ring_subscriber_peek_message must examine the bytes at the cursor. */
static inline bool mq_ring_subscriber_peek_known_message(const mq_ring_subscriber *s, mq_ring_message *message) {
    return mq_ring_subscriber_locate_message(s, mq_ring_message_size(s->data, s->cursor), message);
}

/* Do the same, past wrap marks. Returns false also if the cursor is lapped, or if its bytes are invalid: the next
 * mq_ring_subscriber_peek_message counts the loss. */
static inline bool mq_ring_subscriber_peek_following_message(mq_ring_subscriber *s, mq_ring_message *message) {
    while (s->cursor != s->published) {
        uint64_t size = mq_ring_message_size(s->data, s->cursor);
        if (mq_likely(mq_ring_subscriber_locate_message(s, size, message)))
            return true;
        if (!mq_ring_subscriber_validate_cursor(s) || !mq_ring_subscriber_pass_wrap_mark(s, size))
            return false;
    }
    return false;
}

/* Do the same as mq_ring_subscriber_accept_copy in the usual case: the publisher announces its limit, and the copy is
 * intact. Returns false in all other cases, without a change. Then peek and copy the message again. */
static inline bool mq_ring_subscriber_accept_known_copy(mq_ring_subscriber *s, const mq_ring_message *message) {
    if (mq_unlikely(!s->announces_limit || !mq_ring_subscriber_is_valid(s, s->cursor)))
        return false;
    mq_ring_subscriber_advance_past(s, message);
    return true;
}

#endif
