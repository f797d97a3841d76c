/* A source of messages from any type of endpoint, for observers such as the recorder. A source has no row, no slot and
 * no pin, and never writes to shared memory.
 *
 * One thread at a time may use a source. The functions do not call Python, allocate memory, or wait. Do not move a
 * source in memory while an mq_source points to the source.
 */
#ifndef MQ_SOURCES_SOURCE_H
#define MQ_SOURCES_SOURCE_H

#include "base/schema.h"
#include "ring/sleeper.h"
#include "sources/channel.h"
#include "sources/polled.h"
#include "sources/records.h"

typedef enum { MQ_SOURCE_RING, MQ_SOURCE_CHANNEL, MQ_SOURCE_RECORDS, MQ_SOURCE_POLLED } mq_source_kind;

typedef struct {
    mq_source_kind kind;
    union {
        mq_ring_subscriber *ring_subscriber; /* passive */
        mq_channel_source *channel_source;
        mq_record_source *record_source;
        mq_polled_source *polled_source;
    };
    uint64_t schema_seq_seen; /* value of the schema's sequence when the schema was last read */
    uint64_t write_uid_seen;  /* topics: value of write_uid when the publisher was last examined */
} mq_source;

/* Return the schema's sequence. The sequence increases when the schema changes. A publisher writes its schema before
 * its messages. Therefore, after a message was found, the result is at least the sequence of the message's schema. */
static inline uint64_t mq_source_load_schema_seq(const mq_source *source) {
    if (source->kind == MQ_SOURCE_POLLED)
        return 0;
    const mq_u64 *turn = source->kind == MQ_SOURCE_RECORDS   ? &source->record_source->parts.header->schema.seq
                         : source->kind == MQ_SOURCE_CHANNEL ? &source->channel_source->subscriber.header->schema.seq
                         : source->ring_subscriber->side     ? &source->ring_subscriber->side->schema_seq
                                                             : NULL;
    return turn ? mq_load_acquire_u64(turn) : 0; /* EDGE schema: acquire. Partner: mq_schema_write */
}

/* True if the message at `position` was sent before the newest change of the topic's schema. `seq` is a loaded
 * schema_seq. If the schema changed again since then, the result is false. */
static inline bool mq_ring_source_is_before_change(const mq_ring_subscriber *s, uint64_t seq, uint64_t position) {
    uint64_t changes = mq_schema_count_changes(seq);
    if (!changes)
        return false;
    /* relaxed, both: ordered by the fence */
    uint64_t begin = mq_load_relaxed_u64(&s->side->schema_begins[changes % 2]);
    /* EDGE schema: acquire. A position of a later change comes with a later schema_seq. Partner:
     * mq_ring_publisher_begin_schema */
    mq_fence_acquire();
    return mq_ring_distance(begin, position) > 0 &&
           mq_schema_count_changes(mq_load_relaxed_u64(&s->side->schema_seq)) == changes;
}

/* True if the message at `position` has the schema that was read last. The message must be found already. */
static inline bool mq_ring_source_has_seen_schema(const mq_source *source, uint64_t position) {
    uint64_t seq = mq_source_load_schema_seq(source);
    if (mq_likely(seq == source->schema_seq_seen))
        return true;
    return mq_schema_count_changes(seq) == mq_schema_count_changes(source->schema_seq_seen) + 1 &&
           mq_ring_source_is_before_change(source->ring_subscriber, seq, position);
}

/* Note that the schema with this schema_seq was read for the message at `position`. Returns false if the message has
 * an older schema, which cannot be read any more. The schema then counts as seen until the change. */
static inline bool mq_ring_source_note_schema(mq_source *source, uint64_t seq, uint64_t position) {
    bool is_older = mq_ring_source_is_before_change(source->ring_subscriber, seq, position);
    source->schema_seq_seen = is_older ? 2 * (mq_schema_count_changes(seq) - 1) : seq;
    return !is_older;
}

/* True if the next message has the schema that was read last. */
static inline bool mq_source_schema_is_seen(const mq_source *source) {
    if (source->kind == MQ_SOURCE_RING)
        return mq_ring_source_has_seen_schema(source, source->ring_subscriber->cursor);
    return mq_source_load_schema_seq(source) == source->schema_seq_seen;
}

static inline __attribute__((always_inline)) mq_source_status
mq_ring_source_take_message(const mq_source *source, const mq_source_buffer *buffer, mq_source_message *message) {
    mq_ring_subscriber *s = source->ring_subscriber;
    mq_ring_message m;
    mq_stamps stamps = {0, 0};
    for (int tries = 0; tries < MQ_SOURCE_COPY_TRIES; tries++) {
        mq_ring_status status = mq_ring_subscriber_peek_message(s, &m);
        if (status != MQ_RING_OK)
            return status == MQ_RING_EMPTY ? MQ_SOURCE_EMPTY : MQ_SOURCE_CORRUPT;
        if (mq_unlikely(!mq_ring_source_has_seen_schema(source, s->cursor)))
            return MQ_SOURCE_NEW_SCHEMA;
        if (mq_unlikely(3 * m.size > s->data_bytes)) { /* no publisher can send a message of this size */
            if (mq_ring_subscriber_revalidate_cursor(s) != MQ_RING_EMPTY)
                return MQ_SOURCE_CORRUPT;
            continue;
        }
        if (mq_unlikely(buffer->all_or_nothing && m.size > buffer->bytes)) {
            message->size = m.size;
            return MQ_SOURCE_FULL;
        }
        if (s->stamps)
            mq_stamps_read(&stamps, m.payload);
        bool has_part = mq_source_buffer_copy_payload(buffer, m.payload, m.size);
        if (mq_unlikely(!mq_ring_subscriber_accept_copy(s, &m))) {
            if (mq_ring_subscriber_recover_from_lap(s) != MQ_RING_OK)
                return MQ_SOURCE_CORRUPT;
            continue;
        }
        bool counted = s->announces_limit && s->sequence_known;
        *message =
            (mq_source_message){.size = m.size,
                                .sequence = (counted ? mq_ring_subscriber_sequence(s) : s->received + s->lost) - 1,
                                .era = counted ? s->era : 0,
                                .counted = counted,
                                .stamped = s->stamps != 0,
                                .has_part = has_part,
                                .publish_time = stamps.publish_time,
                                .origin_time = stamps.origin_time};
        return MQ_SOURCE_OK;
    }
    /* the publisher overwrites messages faster than this source copies, so the caller calls again */
    return MQ_SOURCE_EMPTY;
}

/* Return the number of lost messages. Sources of vectors and boards lose no messages. */
static inline __attribute__((always_inline)) uint64_t mq_source_count_lost(const mq_source *source) {
    if (mq_likely(source->kind == MQ_SOURCE_RING))
        return source->ring_subscriber->lost;
    return source->kind == MQ_SOURCE_CHANNEL ? source->channel_source->subscriber.lost : 0;
}

/* Return the number of messages that a meter counts as lost. For vectors and boards, these are the overwritten writes. */
static inline uint64_t mq_source_count_unseen(const mq_source *source) {
    return source->kind == MQ_SOURCE_RECORDS ? source->record_source->overwritten : mq_source_count_lost(source);
}

/* Return the number of bytes before the value in each message. Vectors add a header, which writers do not write. */
static inline uint64_t mq_source_header_bytes(const mq_source *source) {
    return source->kind == MQ_SOURCE_RECORDS && !mq_record_source_is_board(source->record_source)
               ? MQ_RECORD_CHANGE_HEADER_BYTES
               : 0;
}

/* False if the number of lost messages is unknown. A stock publisher counts no messages, so the number is unknown if a
 * stock publisher overwrote unread messages. */
static inline bool mq_source_lost_is_known(const mq_source *source) {
    return source->kind != MQ_SOURCE_RING || !source->ring_subscriber->lost_unknown;
}

/* Take the next message into a buffer. */
static inline __attribute__((always_inline)) mq_source_status mq_source_take_message(const mq_source *source,
                                                                                     const mq_source_buffer *buffer,
                                                                                     mq_source_message *message) {
    if (mq_likely(source->kind == MQ_SOURCE_RING))
        return mq_ring_source_take_message(source, buffer, message);
    if (source->kind == MQ_SOURCE_CHANNEL)
        return mq_channel_source_take_message(source->channel_source, buffer, message);
    if (source->kind == MQ_SOURCE_POLLED)
        return mq_polled_source_take_message(source->polled_source, buffer, message);
    return mq_record_source_take_change(source->record_source, buffer, message);
}

/* True if the publisher of a topic has not changed since it was last examined. */
static inline bool mq_source_publisher_is_seen(const mq_source *source) {
    return source->kind != MQ_SOURCE_RING ||
           /* relaxed: the messages around a change may be of either publisher */
           mq_load_relaxed_u64(&source->ring_subscriber->ring->write_uid) == source->write_uid_seen;
}

/* True if a message waits. For vectors and boards, the result is always true, because only a scan finds changes. */
static inline bool mq_source_has_pending(const mq_source *source) {
    if (source->kind == MQ_SOURCE_RECORDS)
        return true;
    if (source->kind == MQ_SOURCE_POLLED)
        return mq_polled_source_has_pending(source->polled_source);
    if (source->kind == MQ_SOURCE_CHANNEL)
        return mq_channel_source_has_pending(source->channel_source);
    return mq_ring_subscriber_is_readable(source->ring_subscriber);
}

/* True if publishers could overwrite some waiting messages during a nap. For vectors and boards, the result is always
 * false, because the number of writes shows each overwritten value. */
static inline bool mq_source_is_near_overrun(const mq_source *source) {
    if (source->kind == MQ_SOURCE_RECORDS || source->kind == MQ_SOURCE_POLLED)
        return false;
    if (source->kind == MQ_SOURCE_CHANNEL)
        return mq_channel_source_is_near_overrun(source->channel_source);
    const mq_ring_subscriber *s = source->ring_subscriber;
    uint64_t now =
        mq_load_acquire_u64(&s->ring->write_pointer); /* EDGE commit: acquire. Partner: mq_ring_publisher_publish */
    return mq_ring_cycle(now) != mq_ring_cycle(s->cursor) ||
           mq_ring_offset(now) - mq_ring_offset(s->cursor) > s->data_bytes / 64;
}

#endif
