/* From sources of any kind into chunks of a recording: a message record is laid into the chunk's buffer straight from
 * shared memory. All memory here belongs to one process.
 *
 * One thread at a time may use an mq_capture. Nothing here touches Python.
 */
#ifndef MQ_CAPTURE_H
#define MQ_CAPTURE_H

#include <poll.h>
#include <stdlib.h>

#include "mcap_io/chunk_buffer.h"
#include "recorder/file_watcher.h"
#include "sources/source.h"

enum {
    MQ_CAPTURE_CHANNELS = 65536, /* their ids have 16 bits */
    MQ_CAPTURE_BATCH_MAX = 4096, /* messages of one source before the next one's turn */
    MQ_CAPTURE_PAYLOAD_MAX = 1 << 30 |
        4096, /* bytes of a message for which room is made; nobody has memory for any size */
    MQ_CAPTURE_SLEEP_NS =
        500000, /* between two looks when little is going on: nobody wakes a passive subscriber; and, when
                                   much is, between two looks at what may interrupt */
};

/* An unknown number of losses: a stock publisher lapped the recorder. */
#define MQ_CAPTURE_LOST_UNKNOWN UINT64_MAX

/* What messages have in common: an MCAP channel. A numbering of an endpoint's messages has one, or one for each part of
 * the endpoint. Another publisher that cannot continue a numbering begins a new one. */
typedef struct {
    uint32_t source, epoch, part;
    bool counted;         /* publishers number its messages, so a gap is a loss; else the recorder does */
    bool tracked;         /* its messages carry stamps, which are not in the payloads here */
    uint64_t first;       /* number of its first message */
    uint64_t lost_before; /* messages lost before it that are no gap; or MQ_CAPTURE_LOST_UNKNOWN */
} mq_capture_channel;

/* A source that is recorded. */
typedef struct {
    mq_source from;
    int64_t publish_offset; /* of the publishing time, u64 ns, in a message; -1: it does not say */
    uint64_t era;           /* of the numbering, for `counted` */
    bool counted;
    bool has_numbering;       /* it has a numbering */
    bool numbering_is_empty;  /* the numbering has no message yet */
    bool ended;               /* nothing comes any more: its file was cut, or it was let go */
    bool separate;            /* each part has a numbering of its own */
    uint32_t epoch;           /* of the newest numbering */
    uint32_t part;            /* of the last message ... */
    uint16_t channel;         /* ... and its channel; 0: there is none */
    uint64_t skipped_count;   /* messages that were taken and are in no chunk: too large, or without a channel */
    uint64_t stored_losses;   /* losses before the newest message in a chunk, as a gap or in a channel */
    bool states_unknown_loss; /* a channel states that the number of losses is unknown */
    bool lacks_channel_id;    /* some of them since no channel was left */
    uint32_t parts;           /* for which there is room in: */
    uint16_t *channels;       /* of each part; 0: it has none */
} mq_tap;

typedef struct {
    mq_tap *taps;
    uint32_t tap_count, turn;
    mq_capture_channel *channels; /* MQ_CAPTURE_CHANNELS of them */
    uint32_t channel_count;       /* of them in use; ids begin with 1 */
    int64_t clock_offset_ns;      /* of the host's clock: to be added to CLOCK_MONOTONIC */
    int interrupt;                /* a descriptor that ends a run when it becomes readable */
    mq_file_watcher *watcher;     /* which end a run as well; NULL: nobody wants to know */
    uint32_t stuck;               /* the tap that ended a run */
    uint64_t needed;              /* bytes of the largest message for which a chunk had no room */
} mq_capture;

typedef enum {
    MQ_CAPTURE_TIME,        /* the deadline is over */
    MQ_CAPTURE_FULL,        /* the chunk has no room for the next message */
    MQ_CAPTURE_UNMAPPED,    /* a channel has a message in a pool that is not mapped; see `stuck` */
    MQ_CAPTURE_CORRUPT,     /* a source holds what no publisher writes; see `stuck` */
    MQ_CAPTURE_INTERRUPTED, /* somebody interrupts, or a file has come */
    MQ_CAPTURE_NEW_SCHEMA,  /* what comes next of a source has another schema; see `stuck` */
} mq_capture_end;

/* Give what is taken next channels of its own. */
static inline void mq_tap_forget_channels(mq_tap *tap) {
    tap->channel = 0;
    if (tap->parts)
        memset(tap->channels, 0, tap->parts * sizeof *tap->channels);
}

/* Make room for the channel of a part. */
static inline bool mq_tap_reserve_part(mq_tap *tap, uint32_t part) {
    if (part < tap->parts)
        return true;
    if (part >= MQ_CAPTURE_CHANNELS)
        return false;
    uint32_t parts = part < 32 ? 64 : 2 * part;
    uint16_t *channels = realloc(tap->channels, parts * sizeof *channels);
    if (!channels)
        return false;
    memset(channels + tap->parts, 0, (parts - tap->parts) * sizeof *channels);
    tap->channels = channels;
    tap->parts = parts;
    return true;
}

static inline void mq_tap_begin_epoch(mq_tap *tap, const mq_source_message *taken) {
    tap->counted = taken->counted;
    tap->era = taken->era;
    tap->has_numbering = tap->numbering_is_empty = true;
    tap->epoch += !tap->separate;
    mq_tap_forget_channels(tap);
}

/* Number of messages of a source that are in no chunk. */
static inline uint64_t mq_tap_count_lost(const mq_tap *tap) { return mq_source_lost(&tap->from) + tap->skipped_count; }

/* Number of lost messages since the newest message in a chunk. */
static inline uint64_t mq_tap_count_unstored(mq_tap *tap) {
    if (mq_source_lost_is_known(&tap->from) || tap->states_unknown_loss)
        return mq_tap_count_lost(tap) - tap->stored_losses;
    tap->states_unknown_loss = true;
    return MQ_CAPTURE_LOST_UNKNOWN;
}

/* Describe the channel whose first message this is. Losses before the first message of a numbering leave no gap, so the
 * channel of that message states them. */
static inline void mq_capture_add_channel(mq_capture *c, mq_tap *tap, const mq_source_message *taken) {
    uint64_t hidden = tap->numbering_is_empty && taken->counted ? mq_tap_count_unstored(tap) : 0;
    c->channels[++c->channel_count] = (mq_capture_channel){.source = (uint32_t)(tap - c->taps),
                                                           .epoch = tap->epoch,
                                                           .part = taken->origin_id,
                                                           .counted = taken->counted,
                                                           .tracked = taken->stamped,
                                                           .first = taken->sequence,
                                                           .lost_before = hidden};
    tap->channels[taken->origin_id] = (uint16_t)c->channel_count;
    tap->numbering_is_empty = false;
}

/* The channel of a message. False: no number is left. */
static inline bool mq_capture_find_channel(mq_capture *c, mq_tap *tap, const mq_source_message *taken) {
    if (!tap->has_numbering || taken->counted != tap->counted || taken->era != tap->era)
        mq_tap_begin_epoch(tap, taken);
    if (!mq_tap_reserve_part(tap, taken->origin_id))
        return false;
    if (!tap->channels[taken->origin_id]) {
        if (c->channel_count + 1 >= MQ_CAPTURE_CHANNELS)
            return false;
        tap->epoch += tap->separate;
        mq_capture_add_channel(c, tap, taken);
    }
    tap->part = taken->origin_id;
    tap->channel = tap->channels[taken->origin_id];
    return true;
}

/* Does a message belong to the channel of the one before it? */
static inline bool mq_tap_keeps_channel(const mq_tap *tap, const mq_source_message *taken) {
    return tap->has_numbering && tap->channel && taken->origin_id == tap->part && taken->counted == tap->counted &&
           taken->era == tap->era;
}

/* Take in the message whose payload is there. Its publish time is what its source says, or is in its payload, or is not
 * known. */
static inline void mq_capture_commit_message(mq_log_chunk *chunk, const mq_tap *tap, const mq_source_message *taken,
                                             uint64_t log_time) {
    uint64_t publish_time = log_time;
    if (taken->publish_time)
        publish_time = (uint64_t)taken->publish_time;
    else if (tap->publish_offset >= 0 && (uint64_t)tap->publish_offset + 8 <= taken->size)
        mq_log_copy_bytes((uint8_t *)&publish_time, mq_log_chunk_payload(chunk) + tap->publish_offset, 8);
    mq_log_chunk_commit_message(chunk, tap->channel, (uint32_t)taken->sequence, log_time, publish_time,
                                taken->origin_time, taken->size);
}

static inline mq_capture_end mq_capture_handle_status(mq_capture *c, mq_source_status status, uint64_t size) {
    switch (status) {
    case MQ_SOURCE_EMPTY: return MQ_CAPTURE_TIME;
    case MQ_SOURCE_UNMAPPED: return MQ_CAPTURE_UNMAPPED;
    case MQ_SOURCE_FULL: c->needed = size > c->needed ? size : c->needed; return MQ_CAPTURE_FULL;
    default: return MQ_CAPTURE_CORRUPT;
    }
}

/* A message for which no chunk is made. Another one may be in its place by now: it is passed over for it. */
static inline void mq_capture_skip_large(mq_tap *tap, const mq_source *source) {
    const mq_source_buffer none = {.all_or_nothing = false};
    mq_source_message taken;
    tap->skipped_count += mq_source_take(source, &none, &taken) == MQ_SOURCE_OK;
}

/* There are no more channels: those that have one go on, and this one's messages are counted. */
static inline void mq_capture_skip_unnumbered(mq_tap *tap) {
    tap->skipped_count++;
    tap->lacks_channel_id = true;
}

/* Take what is pending of a source, which is of this kind: a turn's worth at most. */
static inline __attribute__((always_inline)) mq_capture_end mq_capture_read_kind(mq_capture *c, mq_tap *tap,
                                                                                 mq_log_chunk *chunk,
                                                                                 mq_source_kind kind) {
    mq_source source = tap->from;
    mq_source_message taken = {.size = 0};
    source.kind = kind;
    for (int i = 0; i < MQ_CAPTURE_BATCH_MAX; i++) {
        if (chunk->used >= chunk->enough || !mq_log_chunk_fits(chunk, 0))
            return MQ_CAPTURE_FULL;
        mq_source_buffer room = {.data = mq_log_chunk_payload(chunk),
                                 .bytes = chunk->room - chunk->used - MQ_LOG_MESSAGE_HEADER,
                                 .all_or_nothing = true};
        mq_source_status status = mq_source_take(&source, &room, &taken);
        if (mq_unlikely(status == MQ_SOURCE_FULL && taken.size > MQ_CAPTURE_PAYLOAD_MAX)) {
            mq_capture_skip_large(tap, &source);
            continue;
        }
        if (status != MQ_SOURCE_OK)
            return mq_capture_handle_status(c, status, taken.size);
        if (mq_unlikely(!mq_tap_keeps_channel(tap, &taken)) && !mq_capture_find_channel(c, tap, &taken)) {
            mq_capture_skip_unnumbered(tap);
            continue;
        }
        mq_capture_commit_message(chunk, tap, &taken, (uint64_t)(mq_monotonic_ns() + c->clock_offset_ns));
        tap->stored_losses = mq_source_lost(&source) + tap->skipped_count;
    }
    return MQ_CAPTURE_TIME;
}

/* The same of any kind. Each has a loop of its own, in which nothing asks for the kind. Before the first message of all
 * its schema is known: that is looked for when there is a message, and no sooner. */
static inline mq_capture_end mq_capture_read_source(mq_capture *c, mq_tap *tap, mq_log_chunk *chunk) {
    if (!tap->channel && !mq_source_has_pending(&tap->from))
        return MQ_CAPTURE_TIME;
    if (mq_unlikely(!mq_source_schema_is_seen(&tap->from)))
        return MQ_CAPTURE_NEW_SCHEMA;
    switch (tap->from.kind) {
    case MQ_SOURCE_RING: return mq_capture_read_kind(c, tap, chunk, MQ_SOURCE_RING);
    case MQ_SOURCE_CHANNEL: return mq_capture_read_kind(c, tap, chunk, MQ_SOURCE_CHANNEL);
    case MQ_SOURCE_POLLED: return mq_capture_read_kind(c, tap, chunk, MQ_SOURCE_POLLED);
    default: return mq_capture_read_kind(c, tap, chunk, MQ_SOURCE_RECORDS);
    }
}

/* Is so much pending that a nap could cost messages? */
static inline bool mq_capture_near_overrun(const mq_capture *c) {
    for (uint32_t i = 0; i < c->tap_count; i++)
        if (!c->taps[i].ended && mq_source_near_overrun(&c->taps[i].from))
            return true;
    return false;
}

/* Wait so long at most. True: something rouses us. */
static inline bool mq_capture_sleep(const mq_capture *c, int64_t max_sleep_ns) {
    struct pollfd on[2] = {{.fd = c->interrupt, .events = POLLIN},
                           {.fd = c->watcher ? c->watcher->fd : -1, .events = POLLIN}};
    struct timespec nap = mq_timespec_from_ns(max_sleep_ns);
    if (ppoll(on, 2, &nap, NULL) <= 0)
        return false;
    return (on[1].revents && mq_file_watcher_poll_burst(c->watcher)) || on[0].revents;
}

/* Give each source a turn. */
static inline mq_capture_end mq_capture_read_sources(mq_capture *c, mq_log_chunk *chunk) {
    for (uint32_t i = 0; i < c->tap_count; i++) {
        uint32_t index = (c->turn + i) % c->tap_count;
        mq_tap *tap = &c->taps[index];
        mq_capture_end end = tap->ended ? MQ_CAPTURE_TIME : mq_capture_read_source(c, tap, chunk);
        if (end != MQ_CAPTURE_TIME) {
            c->stuck = index;
            c->turn = (index + 1) % c->tap_count; /* the others first, next time */
            return end;
        }
    }
    return MQ_CAPTURE_TIME;
}

/* Record until the chunk is full, somebody interrupts, or CLOCK_MONOTONIC reaches `until_ns`. */
static inline mq_capture_end mq_capture_run(mq_capture *c, mq_log_chunk *chunk, int64_t until_ns) {
    int64_t looked_ns = 0;
    /* What was gathered before, nothing tells again: by the nap of a run that ended for another reason. */
    bool roused = c->watcher && mq_file_watcher_has_pending(c->watcher);
    for (;;) {
        mq_capture_end end = mq_capture_read_sources(c, chunk); /* once more when roused: for what was there before */
        int64_t now = mq_monotonic_ns(), left = until_ns - now;
        if (end != MQ_CAPTURE_TIME || left <= 0)
            return end;
        if (roused)
            return MQ_CAPTURE_INTERRUPTED;
        bool hurry = mq_capture_near_overrun(c);
        if (hurry && now - looked_ns < MQ_CAPTURE_SLEEP_NS)
            continue;
        looked_ns = now;
        roused = mq_capture_sleep(c, hurry ? 0 : left < MQ_CAPTURE_SLEEP_NS ? left : MQ_CAPTURE_SLEEP_NS);
    }
}

#endif
