/* Record sources of any type into chunks. Message records are copied directly from shared memory into the chunk's
 * buffer. One process owns all memory.
 *
 * One thread at a time may use an mq_capture. No function here calls Python.
 */
#ifndef MQ_CAPTURE_H
#define MQ_CAPTURE_H

#include <poll.h>
#include <stdlib.h>

#include "mcap_io/chunk_buffer.h"
#include "recorder/file_watcher.h"
#include "sources/source.h"

enum {
    MQ_CAPTURE_CHANNEL_IDS = 65536, /* channel ids have 16 bits */
    MQ_CAPTURE_BATCH_MAX = 4096,    /* messages of one source before the recorder reads the next source */
    /* Pending messages that share one log time: reading the clock takes as long as copying a small message. */
    MQ_CAPTURE_GROUP_MAX = 16,
    MQ_CAPTURE_GROUP_BYTES = 4096, /* a group with this many bytes is complete */
    /* maximum bytes of a recorded message. The recorder allocates no memory for larger messages */
    MQ_CAPTURE_PAYLOAD_MAX = 1 << 30 | 4096,
    /* maximum changes of a topic's publisher that end runs. Without a maximum, processes that replace each other all
     * the time slow the recorder down, and use up the channel ids */
    MQ_CAPTURE_PUBLISHER_CHANGES_MAX = 200,
    /* With little traffic: pause between two polls, because no process wakes a passive subscriber. With much
     * traffic: interval of checks for interrupts */
    MQ_CAPTURE_SLEEP_NS = 500000,
};

/* An unknown number of losses: a stock publisher lapped the recorder. */
#define MQ_CAPTURE_LOST_UNKNOWN UINT64_MAX

/* An MCAP channel, with the properties that its messages share. Each numbering of an endpoint's messages has one
 * channel, or one channel for each part of the endpoint. A publisher that cannot continue a numbering begins a new
 * numbering. */
typedef struct {
    uint32_t source, epoch, part;
    /* true: publishers number the channel's messages, so a gap is a loss. false: the recorder numbers the messages */
    bool has_publisher_sequence;
    bool tracked;            /* the channel's messages have stamps; the payloads here do not contain the stamps */
    uint64_t first_sequence; /* number of the channel's first message */
    uint64_t lost_before;    /* messages lost before the first one without a gap; or MQ_CAPTURE_LOST_UNKNOWN */
} mq_capture_channel;

/* A recorded source. */
typedef struct {
    mq_source source;
    int64_t publish_offset; /* offset of the publish time (u64, ns) in a message. -1: messages have no publish time */
    uint64_t numbering_era; /* era of the numbering, if has_publisher_sequence */
    bool has_publisher_sequence;
    bool has_numbering;      /* the source has a numbering */
    bool numbering_is_empty; /* the numbering has no message yet */
    bool is_ended;           /* the source has no more messages: its file was truncated, or the source was removed */
    bool has_numbering_per_part;     /* each part has its own numbering */
    uint32_t epoch;                  /* epoch of the newest numbering */
    uint32_t last_part;              /* part of the last message */
    uint16_t last_channel;           /* channel of the last message; 0: none */
    uint32_t publisher_changes_left; /* changes of the publisher that may still end a run */
    uint64_t skipped_count;          /* messages taken and not recorded: too large, or without a channel */
    uint64_t stored_losses;          /* losses before the newest recorded message, stored as a gap or in a channel */
    bool states_unknown_loss;        /* a channel states that the number of losses is unknown */
    bool lacks_channel_id;           /* some messages were skipped because no channel id was left */
    uint32_t part_capacity;          /* number of elements of part_channels */
    uint16_t *part_channels;         /* channel of each part; 0: none */
} mq_capture_source;

typedef struct {
    mq_capture_source *sources;
    uint32_t source_count, next_source;
    mq_capture_channel *channels; /* array of MQ_CAPTURE_CHANNEL_IDS channels */
    uint32_t channel_count;       /* number of channels in use; ids begin with 1 */
    int64_t clock_offset_ns;      /* host's clock minus CLOCK_MONOTONIC, in nanoseconds */
    int interrupt_fd;             /* a file descriptor that ends a run when the descriptor becomes readable */
    mq_file_watcher *watcher;     /* new files also end a run. NULL: no watcher */
    uint32_t stopped_source;      /* index of the source that ended a run */
    uint64_t needed_bytes;        /* bytes of the largest message for which a chunk had no room */
} mq_capture;

typedef enum {
    MQ_CAPTURE_DEADLINE,       /* the deadline passed */
    MQ_CAPTURE_CHUNK_FULL,     /* the chunk has no room for the next message */
    MQ_CAPTURE_UNMAPPED_POOL,  /* a channel has a message in an unmapped pool; see `stopped_source` */
    MQ_CAPTURE_CORRUPT_SOURCE, /* a source has invalid data; see `stopped_source` */
    MQ_CAPTURE_INTERRUPTED,    /* an interrupt or a new file ended the run */
    MQ_CAPTURE_NEW_SCHEMA,     /* the next message of a source has another schema; see `stopped_source` */
    MQ_CAPTURE_NEW_PUBLISHER,  /* a topic has another publisher; see `stopped_source` */
    MQ_CAPTURE_GROUP_COMPLETE, /* a group of messages was taken, and the source may have more. Never ends a run */
} mq_capture_stop_reason;

/* Forget the channels of a source, so that its next messages begin new channels. */
static inline void mq_capture_source_forget_channels(mq_capture_source *captured) {
    captured->last_channel = 0;
    if (captured->part_capacity)
        memset(captured->part_channels, 0, captured->part_capacity * sizeof *captured->part_channels);
}

/* Make room for the channel of a part. */
static inline bool mq_capture_source_reserve_part(mq_capture_source *captured, uint32_t part) {
    if (part < captured->part_capacity)
        return true;
    if (part >= MQ_CAPTURE_CHANNEL_IDS)
        return false;
    uint32_t parts = part < 32 ? 64 : 2 * part;
    uint16_t *channels = realloc(captured->part_channels, parts * sizeof *channels);
    if (!channels)
        return false;
    memset(channels + captured->part_capacity, 0, (parts - captured->part_capacity) * sizeof *channels);
    captured->part_channels = channels;
    captured->part_capacity = parts;
    return true;
}

static inline void mq_capture_source_begin_epoch(mq_capture_source *captured, const mq_source_message *taken) {
    captured->has_publisher_sequence = taken->counted;
    captured->numbering_era = taken->era;
    captured->has_numbering = captured->numbering_is_empty = true;
    captured->epoch += !captured->has_numbering_per_part;
    mq_capture_source_forget_channels(captured);
}

/* Return the number of messages of a source that are in no chunk. */
static inline uint64_t mq_capture_source_count_lost(const mq_capture_source *captured) {
    return mq_source_count_lost(&captured->source) + captured->skipped_count;
}

/* Return the number of messages lost since the newest message in a chunk. */
static inline uint64_t mq_capture_source_count_unstored(mq_capture_source *captured) {
    if (mq_source_lost_is_known(&captured->source) || captured->states_unknown_loss)
        return mq_capture_source_count_lost(captured) - captured->stored_losses;
    captured->states_unknown_loss = true;
    return MQ_CAPTURE_LOST_UNKNOWN;
}

/* Add a channel, which begins with the message `taken`. Losses before the first message of a numbering leave no gap.
 * Therefore the channel of the first message states these losses. */
static inline void mq_capture_add_channel(mq_capture *capture, mq_capture_source *captured,
                                          const mq_source_message *taken) {
    uint64_t hidden = captured->numbering_is_empty && taken->counted ? mq_capture_source_count_unstored(captured) : 0;
    capture->channels[++capture->channel_count] =
        (mq_capture_channel){.source = (uint32_t)(captured - capture->sources),
                             .epoch = captured->epoch,
                             .part = taken->origin_id,
                             .has_publisher_sequence = taken->counted,
                             .tracked = taken->stamped,
                             .first_sequence = taken->sequence,
                             .lost_before = hidden};
    captured->part_channels[taken->origin_id] = (uint16_t)capture->channel_count;
    captured->numbering_is_empty = false;
}

/* Find the channel of a message. Returns false if no channel id or no memory is left. */
static inline bool mq_capture_find_channel(mq_capture *capture, mq_capture_source *captured,
                                           const mq_source_message *taken) {
    if (!captured->has_numbering || taken->counted != captured->has_publisher_sequence ||
        taken->era != captured->numbering_era)
        mq_capture_source_begin_epoch(captured, taken);
    if (!mq_capture_source_reserve_part(captured, taken->origin_id))
        return false;
    if (!captured->part_channels[taken->origin_id]) {
        if (capture->channel_count + 1 >= MQ_CAPTURE_CHANNEL_IDS)
            return false;
        captured->epoch += captured->has_numbering_per_part;
        mq_capture_add_channel(capture, captured, taken);
    }
    captured->last_part = taken->origin_id;
    captured->last_channel = captured->part_channels[taken->origin_id];
    return true;
}

/* True if a message belongs to the channel of the previous message. */
static inline bool mq_capture_source_keeps_channel(const mq_capture_source *captured, const mq_source_message *taken) {
    return captured->has_numbering && captured->last_channel && taken->origin_id == captured->last_part &&
           taken->counted == captured->has_publisher_sequence && taken->era == captured->numbering_era;
}

/* Append the message after its payload was copied. The publish time comes from the source or from the payload; 0:
 * unknown. The caller sets the log time. */
static inline void mq_capture_commit_message(mq_log_chunk *chunk, const mq_capture_source *captured,
                                             const mq_source_message *taken) {
    uint64_t publish_time = 0;
    if (taken->publish_time)
        publish_time = (uint64_t)taken->publish_time;
    else if (captured->publish_offset >= 0 && (uint64_t)captured->publish_offset + 8 <= taken->size)
        mq_log_write_bytes((uint8_t *)&publish_time, mq_log_chunk_next_payload(chunk) + captured->publish_offset, 8);
    mq_log_chunk_commit_message(chunk, captured->last_channel, (uint32_t)taken->sequence, 0, publish_time,
                                taken->origin_time, taken->size);
}

static inline mq_capture_stop_reason mq_capture_convert_status(mq_capture *capture, mq_source_status status,
                                                               uint64_t size) {
    switch (status) {
    case MQ_SOURCE_EMPTY: return MQ_CAPTURE_DEADLINE;
    case MQ_SOURCE_UNMAPPED: return MQ_CAPTURE_UNMAPPED_POOL;
    case MQ_SOURCE_NEW_SCHEMA: return MQ_CAPTURE_NEW_SCHEMA;
    case MQ_SOURCE_FULL:
        capture->needed_bytes = size > capture->needed_bytes ? size : capture->needed_bytes;
        return MQ_CAPTURE_CHUNK_FULL;
    default: return MQ_CAPTURE_CORRUPT_SOURCE;
    }
}

/* Skip a message that is too large for any chunk. If another message has replaced the large message, the other
 * message is skipped. */
static inline void mq_capture_skip_large_message(mq_capture_source *captured, const mq_source *source) {
    const mq_source_buffer none = {.all_or_nothing = false};
    mq_source_message taken;
    captured->skipped_count += mq_source_take_message(source, &none, &taken) == MQ_SOURCE_OK;
}

/* Skip a message because no channel id is left. Messages of existing channels are still recorded. */
static inline void mq_capture_skip_without_channel(mq_capture_source *captured) {
    captured->skipped_count++;
    captured->lacks_channel_id = true;
}

/* Take a group of pending messages. The caller sets their log time. */
static inline __attribute__((always_inline)) mq_capture_stop_reason mq_capture_take_group(mq_capture *capture,
                                                                                          mq_capture_source *captured,
                                                                                          mq_log_chunk *chunk,
                                                                                          const mq_source *source) {
    const uint64_t first_byte = chunk->used_bytes;
    mq_source_message taken = {.size = 0};
    for (int i = 0; i < MQ_CAPTURE_GROUP_MAX && chunk->used_bytes - first_byte < MQ_CAPTURE_GROUP_BYTES; i++) {
        if (chunk->used_bytes >= chunk->target_bytes || !mq_log_chunk_has_room(chunk, 0))
            return MQ_CAPTURE_CHUNK_FULL;
        mq_source_buffer room = {.data = mq_log_chunk_next_payload(chunk),
                                 .bytes = chunk->capacity_bytes - chunk->used_bytes - MQ_LOG_MESSAGE_HEADER_BYTES,
                                 .all_or_nothing = true};
        mq_source_status status = mq_source_take_message(source, &room, &taken);
        if (mq_unlikely(status == MQ_SOURCE_FULL && taken.size > MQ_CAPTURE_PAYLOAD_MAX)) {
            mq_capture_skip_large_message(captured, source);
            continue;
        }
        if (status != MQ_SOURCE_OK)
            return mq_capture_convert_status(capture, status, taken.size);
        if (mq_unlikely(!mq_capture_source_keeps_channel(captured, &taken)) &&
            !mq_capture_find_channel(capture, captured, &taken)) {
            mq_capture_skip_without_channel(captured);
            continue;
        }
        mq_capture_commit_message(chunk, captured, &taken);
        captured->stored_losses = mq_source_count_lost(source) + captured->skipped_count;
    }
    return MQ_CAPTURE_GROUP_COMPLETE;
}

/* Take the pending messages of a source of type `kind`, until about MQ_CAPTURE_BATCH_MAX messages. The clock is read after
 * a group was taken, so no log time is before the time at which a message was published. */
static inline __attribute__((always_inline)) mq_capture_stop_reason mq_capture_read_source_kind(
    mq_capture *capture, mq_capture_source *captured, mq_log_chunk *chunk, mq_source_kind kind) {
    const uint32_t batch_first = chunk->entry_count;
    mq_source source = captured->source;
    source.kind = kind;
    /* Also limit the number of groups: a source whose messages are all skipped adds no entries. */
    for (int i = 0; i < MQ_CAPTURE_BATCH_MAX && chunk->entry_count - batch_first < MQ_CAPTURE_BATCH_MAX; i++) {
        const uint32_t first = chunk->entry_count;
        mq_capture_stop_reason end = mq_capture_take_group(capture, captured, chunk, &source);
        if (chunk->entry_count > first)
            mq_log_chunk_set_log_time(chunk, first, (uint64_t)(mq_monotonic_ns() + capture->clock_offset_ns));
        if (end != MQ_CAPTURE_GROUP_COMPLETE)
            return end;
    }
    return MQ_CAPTURE_DEADLINE;
}

static inline bool mq_capture_has_new_publisher(const mq_capture_source *captured) {
    return captured->publisher_changes_left && mq_unlikely(!mq_source_publisher_is_seen(&captured->source));
}

/* Take the pending messages of a source of any type. Each type has its own loop, which does not test the type. The
 * caller reads the schema before the first message, but only after a message exists. As in meters, the attribute inlines
 * the steps of subscribers into the loops. */
static inline __attribute__((flatten)) mq_capture_stop_reason mq_capture_read_source(mq_capture *capture,
                                                                                     mq_capture_source *captured,
                                                                                     mq_log_chunk *chunk) {
    if (!captured->last_channel && !mq_source_has_pending(&captured->source))
        return MQ_CAPTURE_DEADLINE;
    if (mq_unlikely(!mq_source_schema_is_seen(&captured->source)))
        return MQ_CAPTURE_NEW_SCHEMA;
    if (mq_capture_has_new_publisher(captured))
        return MQ_CAPTURE_NEW_PUBLISHER;
    switch (captured->source.kind) {
    case MQ_SOURCE_RING: return mq_capture_read_source_kind(capture, captured, chunk, MQ_SOURCE_RING);
    case MQ_SOURCE_CHANNEL: return mq_capture_read_source_kind(capture, captured, chunk, MQ_SOURCE_CHANNEL);
    case MQ_SOURCE_POLLED: return mq_capture_read_source_kind(capture, captured, chunk, MQ_SOURCE_POLLED);
    default: return mq_capture_read_source_kind(capture, captured, chunk, MQ_SOURCE_RECORDS);
    }
}

/* True if a pause could make the recorder lose messages. */
static inline bool mq_capture_is_near_overrun(const mq_capture *capture) {
    for (uint32_t i = 0; i < capture->source_count; i++)
        if (!capture->sources[i].is_ended && mq_source_is_near_overrun(&capture->sources[i].source))
            return true;
    return false;
}

/* Wait up to `max_sleep_ns`. Returns true after an interrupt or a new file. */
static inline bool mq_capture_wait_for_interrupt(const mq_capture *capture, int64_t max_sleep_ns) {
    struct pollfd on[2] = {{.fd = capture->interrupt_fd, .events = POLLIN},
                           {.fd = capture->watcher ? capture->watcher->inotify_fd : -1, .events = POLLIN}};
    struct timespec nap = mq_timespec_from_ns(max_sleep_ns);
    if (ppoll(on, 2, &nap, NULL) <= 0)
        return false;
    return (on[1].revents && mq_file_watcher_poll_arrival_burst(capture->watcher)) || on[0].revents;
}

/* Read the pending messages of each source. */
static inline mq_capture_stop_reason mq_capture_read_sources(mq_capture *capture, mq_log_chunk *chunk) {
    for (uint32_t i = 0; i < capture->source_count; i++) {
        uint32_t index = (capture->next_source + i) % capture->source_count;
        mq_capture_source *captured = &capture->sources[index];
        mq_capture_stop_reason end =
            captured->is_ended ? MQ_CAPTURE_DEADLINE : mq_capture_read_source(capture, captured, chunk);
        if (end != MQ_CAPTURE_DEADLINE) {
            capture->stopped_source = index;
            capture->next_source = (index + 1) % capture->source_count; /* the next run begins with the next source */
            return end;
        }
    }
    return MQ_CAPTURE_DEADLINE;
}

/* Record until the chunk is full, an interrupt occurs, or `until_ns` (CLOCK_MONOTONIC) has passed. */
static inline mq_capture_stop_reason mq_capture_run(mq_capture *capture, mq_log_chunk *chunk, int64_t until_ns) {
    int64_t looked_ns = 0;
    /* A previous run may have found new files in its pause, and may have ended for another reason. inotify does not
     * report these files again. */
    bool roused = capture->watcher && mq_file_watcher_has_arrivals(capture->watcher);
    for (;;) {
        /* after an interrupt, read once more the messages that arrived before the interrupt */
        mq_capture_stop_reason end = mq_capture_read_sources(capture, chunk);
        int64_t now = mq_monotonic_ns(), left = until_ns - now;
        if (end != MQ_CAPTURE_DEADLINE || left <= 0)
            return end;
        if (roused)
            return MQ_CAPTURE_INTERRUPTED;
        bool hurry = mq_capture_is_near_overrun(capture);
        if (hurry && now - looked_ns < MQ_CAPTURE_SLEEP_NS)
            continue;
        looked_ns = now;
        roused = mq_capture_wait_for_interrupt(capture, hurry                        ? 0
                                                        : left < MQ_CAPTURE_SLEEP_NS ? left
                                                                                     : MQ_CAPTURE_SLEEP_NS);
    }
}

#endif
