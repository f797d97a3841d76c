/* From rings into chunks of a recording, as MCAP has them: a message record is laid into the chunk's buffer straight
 * from the ring, and an entry beside it says where. All memory here belongs to one process; subscribers are passive.
 *
 * One thread at a time may use an mq_capture. Nothing here touches Python.
 */
#ifndef MQ_CAPTURE_H
#define MQ_CAPTURE_H

#include "subscriber.h"

enum {
    MQ_RECORD_HEADER = 31,        /* opcode u8, length u64, channel u16, sequence u32, log_time u64, publish_time u64 */
    MQ_RECORD_OPCODE = 5,         /* Message */
    MQ_CAPTURE_CHANNELS = 65536,  /* their ids have 16 bits */
    MQ_CAPTURE_TURN = 4096,       /* messages of one source before the next one's turn */
    MQ_CAPTURE_NAP_NS = 500000,   /* between two looks when little is going on: nobody wakes a passive subscriber */
};

typedef struct {
    uint64_t log_time, offset;    /* offset: of the record in the chunk's buffer */
    uint32_t channel, unused;
} mq_entry;

typedef struct {
    uint8_t *bytes;
    uint64_t room, used;
    uint64_t enough;              /* bytes from which on it is full */
    mq_entry *entries;
    uint32_t entries_room, entries_used;
} mq_capture_chunk;

/* A numbering of an endpoint's messages. Another publisher that cannot continue it begins a new one. */
typedef struct {
    uint32_t source, epoch;
    bool counted;                 /* by its publishers, so that a gap is a loss; else by us */
} mq_channel;

typedef struct {
    mq_subscriber *from;
    int64_t publish_offset;       /* of the publishing time, u64 ns, in a message; -1: it does not say */
    uint64_t era;                 /* of the subscriber's count, for `counted` */
    bool counted;
    bool begun;                   /* `channel` is the numbering that goes on */
    bool ended;                   /* its ring was cut: nothing comes any more */
    uint32_t epoch;
    uint16_t channel;
} mq_source;

typedef struct {
    mq_source *sources;
    uint32_t source_count, turn;
    mq_channel *channels;         /* MQ_CAPTURE_CHANNELS of them */
    uint32_t channel_count;       /* of them in use; ids begin with 1 */
    int64_t clock_offset_ns;      /* CLOCK_REALTIME - CLOCK_MONOTONIC */
    uint32_t stuck;               /* the source that ended a run */
} mq_capture;

typedef enum {
    MQ_CAPTURE_TIME,              /* the deadline is over */
    MQ_CAPTURE_FULL,              /* the chunk has no room for the next message */
    MQ_CAPTURE_CORRUPT,           /* a ring holds what no publisher writes; see `stuck` */
    MQ_CAPTURE_NO_CHANNEL,        /* 65535 numberings are too many */
} mq_capture_end;

/* Does the message that was just read belong to the numbering that is being recorded? */
static inline bool mq_source_continues(const mq_source *source) {
    const mq_subscriber *s = source->from;
    bool counted = s->announced && s->sequence_known;
    return source->begun && counted == source->counted && (!counted || s->era == source->era);
}

static inline bool mq_source_begin_epoch(mq_capture *c, mq_source *source) {
    const mq_subscriber *s = source->from;
    if (c->channel_count + 1 >= MQ_CAPTURE_CHANNELS)
        return false;
    source->counted = s->announced && s->sequence_known;
    source->era = s->era;
    source->begun = true;
    source->epoch += 1;
    source->channel = (uint16_t)++c->channel_count;
    c->channels[source->channel] = (mq_channel){(uint32_t)(source - c->sources), source->epoch, source->counted};
    return true;
}

static inline void mq_put(uint8_t *to, const void *value, size_t n) { memcpy(to, value, n); }

/* Write the header before the payload of `size` bytes at the chunk's end, and take both in. Little-endian, as MCAP is and
 * the machines that this library runs on. */
static inline void mq_capture_take_in(mq_capture_chunk *chunk, uint16_t channel, uint32_t sequence, uint64_t log_time,
                                      uint64_t publish_time, uint64_t size) {
    uint8_t *record = chunk->bytes + chunk->used;
    uint64_t length = MQ_RECORD_HEADER - 9 + size;
    record[0] = MQ_RECORD_OPCODE;
    mq_put(record + 1, &length, 8);
    mq_put(record + 9, &channel, 2);
    mq_put(record + 11, &sequence, 4);
    mq_put(record + 15, &log_time, 8);
    mq_put(record + 23, &publish_time, 8);
    chunk->entries[chunk->entries_used++] = (mq_entry){log_time, chunk->used, channel, 0};
    chunk->used += MQ_RECORD_HEADER + size;
}

/* The same for the message that a source has just read. */
static inline void mq_capture_record(mq_capture_chunk *chunk, const mq_source *source, uint64_t size,
                                     uint64_t log_time) {
    const mq_subscriber *s = source->from;
    const uint8_t *payload = chunk->bytes + chunk->used + MQ_RECORD_HEADER;
    uint64_t publish_time = log_time;
    uint32_t sequence = (uint32_t)((source->counted ? mq_subscriber_sequence(s) : s->received + s->lost) - 1);
    if (source->publish_offset >= 0 && (uint64_t)source->publish_offset + 8 <= size)
        mq_put((uint8_t *)&publish_time, payload + source->publish_offset, 8);
    mq_capture_take_in(chunk, source->channel, sequence, log_time, publish_time, size);
}

/* Take what is pending of one source, a turn's worth at most. */
static inline mq_capture_end mq_capture_source(mq_capture *c, mq_source *source, mq_capture_chunk *chunk) {
    mq_message message;
    if (mq_unlikely(source->ended))
        return MQ_CAPTURE_TIME;
    for (int taken = 0; taken < MQ_CAPTURE_TURN; taken++) {
        mq_status status = mq_subscriber_peek(source->from, &message);
        if (status == MQ_EMPTY)
            break;
        if (status != MQ_OK)
            return MQ_CAPTURE_CORRUPT;
        if (mq_unlikely(message.size > source->from->data_bytes / 3)) { /* nobody may send it, and no chunk has the room */
            if (mq_subscriber_doubt(source->from) != MQ_EMPTY)
                return MQ_CAPTURE_CORRUPT;
            continue;
        }
        if (chunk->used >= chunk->enough || chunk->entries_used == chunk->entries_room ||
            message.size > chunk->room || chunk->used + MQ_RECORD_HEADER + message.size > chunk->room)
            return MQ_CAPTURE_FULL;
        mq_copy_out(chunk->bytes + chunk->used + MQ_RECORD_HEADER, message.payload, message.size);
        if (!mq_subscriber_accept(source->from, &message)) {
            if (mq_subscriber_reset(source->from) != MQ_OK)
                return MQ_CAPTURE_CORRUPT;
            continue;
        }
        if (mq_unlikely(!mq_source_continues(source)) && !mq_source_begin_epoch(c, source))
            return MQ_CAPTURE_NO_CHANNEL;
        mq_capture_record(chunk, source, message.size, (uint64_t)(mq_now_ns() + c->clock_offset_ns));
    }
    return MQ_CAPTURE_TIME;
}

/* Is so much pending that a nap could cost messages? */
static inline bool mq_capture_must_hurry(const mq_capture *c) {
    for (uint32_t i = 0; i < c->source_count; i++) {
        mq_subscriber *s = c->sources[i].from;
        uint64_t now = mq_load_acquire_u64(&s->ring->write_pointer); /* EDGE commit: acquire. Partner: mq_publisher_commit */
        bool same_lap = mq_cycle(now) == mq_cycle(s->cursor);
        if (c->sources[i].ended)
            continue;
        if (!same_lap || mq_offset(now) - mq_offset(s->cursor) > s->data_bytes / 64)
            return true;
    }
    return false;
}

/* Append a message that comes from elsewhere. False: it does not fit. */
static inline bool mq_capture_append(mq_capture_chunk *chunk, uint16_t channel, uint32_t sequence, uint64_t log_time,
                                     uint64_t publish_time, const void *data, uint64_t size) {
    if (chunk->entries_used == chunk->entries_room || size > chunk->room ||
        chunk->used + MQ_RECORD_HEADER + size > chunk->room)
        return false;
    mq_put(chunk->bytes + chunk->used + MQ_RECORD_HEADER, data, size);
    mq_capture_take_in(chunk, channel, sequence, log_time, publish_time, size);
    return true;
}

/* Record until the chunk is full, or CLOCK_MONOTONIC reaches `until_ns`. */
static inline mq_capture_end mq_capture_run(mq_capture *c, mq_capture_chunk *chunk, int64_t until_ns) {
    for (;;) {
        for (uint32_t i = 0; i < c->source_count; i++) {
            uint32_t index = (c->turn + i) % c->source_count;
            mq_capture_end end = mq_capture_source(c, &c->sources[index], chunk);
            if (end != MQ_CAPTURE_TIME) {
                c->stuck = index;
                c->turn = (index + 1) % c->source_count; /* the others first, next time */
                return end;
            }
        }
        int64_t now = mq_now_ns();
        if (now >= until_ns)
            return MQ_CAPTURE_TIME;
        if (mq_capture_must_hurry(c))
            continue;
        struct timespec nap = mq_timespec(until_ns - now < MQ_CAPTURE_NAP_NS ? until_ns - now : MQ_CAPTURE_NAP_NS);
        nanosleep(&nap, NULL);
    }
}

#endif
