/* From rings into chunks of a recording: a message record is laid into the chunk's buffer straight from the ring. All
 * memory here belongs to one process; subscribers are passive.
 *
 * One thread at a time may use an mq_capture. Nothing here touches Python.
 */
#ifndef MQ_CAPTURE_H
#define MQ_CAPTURE_H

#include "format/chunk.h"
#include "ring/subscriber.h"

enum {
    MQ_CAPTURE_CHANNELS = 65536, /* their ids have 16 bits */
    MQ_CAPTURE_TURN = 4096,      /* messages of one source before the next one's turn */
    MQ_CAPTURE_NAP_NS = 500000,  /* between two looks when little is going on: nobody wakes a passive subscriber */
};

/* A numbering of an endpoint's messages. Another publisher that cannot continue it begins a new one. */
typedef struct {
    uint32_t source, epoch;
    bool counted; /* by its publishers, so that a gap is a loss; else by us */
    bool tracked; /* its messages carry stamps, which are not in the payloads here */
} mq_channel;

typedef struct {
    mq_subscriber *from;
    int64_t publish_offset; /* of the publishing time, u64 ns, in a message; -1: it does not say */
    uint64_t era;           /* of the subscriber's count, for `counted` */
    bool counted;
    bool begun; /* `channel` is the numbering that goes on */
    bool ended; /* its ring was cut: nothing comes any more */
    uint32_t epoch;
    uint16_t channel;
} mq_source;

typedef struct {
    mq_source *sources;
    uint32_t source_count, turn;
    mq_channel *channels;    /* MQ_CAPTURE_CHANNELS of them */
    uint32_t channel_count;  /* of them in use; ids begin with 1 */
    int64_t clock_offset_ns; /* of the host's clock: to be added to CLOCK_MONOTONIC */
    uint32_t stuck;          /* the source that ended a run */
} mq_capture;

typedef enum {
    MQ_CAPTURE_TIME,       /* the deadline is over */
    MQ_CAPTURE_FULL,       /* the chunk has no room for the next message */
    MQ_CAPTURE_CORRUPT,    /* a ring holds what no publisher writes; see `stuck` */
    MQ_CAPTURE_NO_CHANNEL, /* 65535 numberings are too many */
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
    c->channels[source->channel] =
        (mq_channel){(uint32_t)(source - c->sources), source->epoch, source->counted, s->stamps != 0};
    return true;
}

/* Take in the message that a source has just read, whose payload is there. Its publish time is that of its stamps, if it
 * has any, or is in its payload, or is not known. */
static inline void mq_capture_record(mq_log_chunk *chunk, const mq_source *source, uint64_t size,
                                     const mq_stamps *stamps, uint64_t log_time) {
    const mq_subscriber *s = source->from;
    const uint8_t *payload = mq_log_chunk_payload(chunk);
    uint64_t publish_time = log_time;
    uint32_t sequence = (uint32_t)((source->counted ? mq_subscriber_sequence(s) : s->received + s->lost) - 1);
    if (s->stamps)
        publish_time = (uint64_t)stamps->publish_time;
    else if (source->publish_offset >= 0 && (uint64_t)source->publish_offset + 8 <= size)
        mq_put((uint8_t *)&publish_time, payload + source->publish_offset, 8);
    mq_log_chunk_take_in(chunk, source->channel, sequence, log_time, publish_time, s->stamps ? stamps->origin_time : 0,
                         size);
}

/* Take what is pending of one source, a turn's worth at most. */
static inline mq_capture_end mq_capture_source(mq_capture *c, mq_source *source, mq_log_chunk *chunk) {
    mq_message message;
    mq_stamps stamps;
    if (mq_unlikely(source->ended))
        return MQ_CAPTURE_TIME;
    for (int taken = 0; taken < MQ_CAPTURE_TURN; taken++) {
        mq_status status = mq_subscriber_peek(source->from, &message);
        if (status == MQ_EMPTY)
            break;
        if (status != MQ_OK)
            return MQ_CAPTURE_CORRUPT;
        if (mq_unlikely(message.size >
                        source->from->data_bytes / 3)) { /* nobody may send it, and no chunk has the room */
            if (mq_subscriber_doubt(source->from) != MQ_EMPTY)
                return MQ_CAPTURE_CORRUPT;
            continue;
        }
        if (chunk->used >= chunk->enough || !mq_log_chunk_fits(chunk, message.size))
            return MQ_CAPTURE_FULL;
        if (source->from->stamps)
            mq_stamps_get(&stamps, message.payload);
        mq_copy_out(mq_log_chunk_payload(chunk), message.payload, message.size);
        if (!mq_subscriber_accept(source->from, &message)) {
            if (mq_subscriber_reset(source->from) != MQ_OK)
                return MQ_CAPTURE_CORRUPT;
            continue;
        }
        if (mq_unlikely(!mq_source_continues(source)) && !mq_source_begin_epoch(c, source))
            return MQ_CAPTURE_NO_CHANNEL;
        mq_capture_record(chunk, source, message.size, &stamps, (uint64_t)(mq_now_ns() + c->clock_offset_ns));
    }
    return MQ_CAPTURE_TIME;
}

/* Is so much pending that a nap could cost messages? */
static inline bool mq_capture_must_hurry(const mq_capture *c) {
    for (uint32_t i = 0; i < c->source_count; i++) {
        mq_subscriber *s = c->sources[i].from;
        uint64_t now =
            mq_load_acquire_u64(&s->ring->write_pointer); /* EDGE commit: acquire. Partner: mq_publisher_commit */
        bool same_lap = mq_cycle(now) == mq_cycle(s->cursor);
        if (c->sources[i].ended)
            continue;
        if (!same_lap || mq_offset(now) - mq_offset(s->cursor) > s->data_bytes / 64)
            return true;
    }
    return false;
}

/* Record until the chunk is full, or CLOCK_MONOTONIC reaches `until_ns`. */
static inline mq_capture_end mq_capture_run(mq_capture *c, mq_log_chunk *chunk, int64_t until_ns) {
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
