/* Samples of endpoints. A sample takes the waiting messages of a source, and copies at most the publish time of each. */
#ifndef MQ_METER_SAMPLE_H
#define MQ_METER_SAMPLE_H

#include "meter/queue.h"
#include "sources/source.h"
#include "workqueue/events.h"

enum {
    /* maximum number of messages in one sample. A ring of 1 MiB holds at most as many messages */
    MQ_METER_SAMPLE_MESSAGES = 65536,
};

/* The bytes that a meter copies from each payload. */
typedef enum {
    MQ_METER_SIZES,  /* no bytes. The publish time is next to the payload, if the endpoint has publish times */
    MQ_METER_TIMES,  /* the publish time at stamp_offset */
    MQ_METER_EVENTS, /* an event of a queue */
} mq_meter_content;

typedef union {
    uint64_t time;
    mq_queue_event event;
} mq_meter_part;

/* An endpoint in a meter's loop. */
typedef struct {
    mq_meter *meter;
    mq_source *source;            /* NULL: no source. Another thread must not use the source */
    mq_meter_queue_reader *queue; /* counters of a queue; NULL: none */
    bool counts_events;           /* the source is a channel with the events of a queue */
    mq_source_status status;      /* result of the last sample, for Python */
} mq_metered_endpoint;

/* Add the delay of a message. `*now_ns` is the last read of the clock in this sample, or INT64_MIN. It also dates all
 * messages with an earlier publish time, because a read of the clock takes longer than a short message. */
static inline void mq_meter_add_delay_of_message(mq_meter *m, int64_t *now_ns, uint64_t stamp) {
    if (*now_ns < (int64_t)stamp)
        *now_ns = mq_meter_read_wall_clock_ns(m);
    mq_meter_add_delay(m, *now_ns, stamp);
}

/* Count an event of a queue. Each `sent` event counts as a message. The delay of a message ends with its first delivery.
 * Returns true if the event is a message. */
static inline bool mq_meter_count_queue_event(mq_meter *m, const mq_queue_event *event) {
    bool taken = event->event == MQ_QUEUE_EVENT_TAKEN || event->event == MQ_QUEUE_EVENT_RECEIVED;
    if (taken && event->deliveries == 1)
        mq_meter_add_delay(m, event->publish_time, (uint64_t)event->sent_time);
    if (event->event != MQ_QUEUE_EVENT_SENT)
        return false;
    mq_histogram_add_value(&m->sizes, event->size, 1);
    return true;
}

/* Return the buffer for the bytes that a meter copies from each payload. */
static inline __attribute__((always_inline)) mq_source_buffer mq_meter_request_content(const mq_meter *m,
                                                                                       mq_meter_content content,
                                                                                       mq_meter_part *part) {
    mq_source_buffer room = {.data = (uint8_t *)part};
    if (content == MQ_METER_EVENTS)
        room.bytes = sizeof part->event;
    if (content == MQ_METER_TIMES)
        room.bytes = sizeof part->time, room.skip = (uint64_t)m->stamp_offset;
    return room;
}

/* Count a message and its content. Returns false if it does not count for the period. */
static inline __attribute__((always_inline)) bool mq_meter_count_message(mq_meter *m, const mq_source_message *message,
                                                                         uint64_t size, mq_meter_content content,
                                                                         const mq_meter_part *part, int64_t *now_ns) {
    if (content == MQ_METER_EVENTS)
        return message->has_part && mq_meter_count_queue_event(m, &part->event);
    mq_histogram_add_value(&m->sizes, size, 1);
    if (content == MQ_METER_TIMES ? message->has_part : message->publish_time != 0)
        mq_meter_add_delay_of_message(m, now_ns, message->has_part ? part->time : (uint64_t)message->publish_time);
    else
        m->without_timestamp += content == MQ_METER_TIMES;
    return true;
}

/* Count all waiting messages of a source of type `kind`, whatever their schema. */
static inline __attribute__((always_inline)) int64_t mq_meter_sample_source(mq_metered_endpoint *e, mq_source_kind kind,
                                                                            mq_meter_content content) {
    mq_meter_part part;
    const mq_source_buffer room = mq_meter_request_content(e->meter, content, &part);
    mq_source source = *e->source;
    mq_source_message message;
    mq_source_status status = MQ_SOURCE_OK;
    uint64_t found = 0;
    int64_t now_ns = INT64_MIN;
    source.kind = kind;
    for (int taken = 0; taken < MQ_METER_SAMPLE_MESSAGES; taken++) {
        status = mq_source_take_message(&source, &room, &message);
        if (mq_unlikely(status == MQ_SOURCE_NEW_SCHEMA)) {
            mq_ring_source_note_schema(e->source, mq_source_load_schema_seq(e->source), source.ring_subscriber->cursor);
            source.schema_seq_seen = e->source->schema_seq_seen;
            continue;
        }
        if (status != MQ_SOURCE_OK)
            break;
        if (kind == MQ_SOURCE_RECORDS) /* the scan for this change may have taken long */
            now_ns = INT64_MIN;
        found += mq_meter_count_message(e->meter, &message, message.size - mq_source_header_bytes(&source), content,
                                        &part, &now_ns);
    }
    e->status = status;
    if (found)
        mq_meter_count_messages(e->meter, mq_read_time_ns(e->meter->virtual_ns), found);
    return status == MQ_SOURCE_OK || status == MQ_SOURCE_EMPTY || status == MQ_SOURCE_NEW_SCHEMA ? (int64_t)found : -1;
}

/* The branches give each kind and content its own loop, which does not test them. */
static inline __attribute__((always_inline)) int64_t mq_meter_sample_kind(mq_metered_endpoint *e, mq_source_kind kind) {
    return e->meter->stamp_offset < 0 ? mq_meter_sample_source(e, kind, MQ_METER_SIZES)
                                      : mq_meter_sample_source(e, kind, MQ_METER_TIMES);
}

/* Count all waiting messages. Returns the number of messages, or -1 if Python must handle `status`. The attribute
 * inlines the steps of subscribers into the loops, because a call takes a fifth of the time of a message. */
static inline __attribute__((flatten)) int64_t mq_meter_sample(mq_metered_endpoint *e) {
    if (e->queue)
        return mq_meter_sample_queue(e->meter, e->queue);
    if (!e->source)
        return 0;
    if (e->counts_events)
        return mq_meter_sample_source(e, MQ_SOURCE_CHANNEL, MQ_METER_EVENTS);
    switch (e->source->kind) {
    case MQ_SOURCE_RING: return mq_meter_sample_kind(e, MQ_SOURCE_RING);
    case MQ_SOURCE_CHANNEL: return mq_meter_sample_kind(e, MQ_SOURCE_CHANNEL);
    case MQ_SOURCE_POLLED: return mq_meter_sample_kind(e, MQ_SOURCE_POLLED);
    default: return mq_meter_sample_kind(e, MQ_SOURCE_RECORDS);
    }
}

/* Store the word that changes when a message arrives, and its present value. Returns false if only samples detect
 * messages. */
static inline bool mq_meter_prepare_wait(const mq_metered_endpoint *e, mq_futex_waitv_entry *word) {
    if (!e->source || e->source->kind != MQ_SOURCE_RING)
        return false;
    mq_ring_subscriber *s = e->source->ring_subscriber;
    *word = (mq_futex_waitv_entry){.address = (uint64_t)(uintptr_t)mq_ring_subscriber_futex_word(s),
                                   .expected = mq_ring_subscriber_prepare_wait(s),
                                   .flags = MQ_FUTEX_32};
    return true;
}

#endif
