/* Samples of endpoints. A sample takes the waiting messages of a source, and copies at most the publish time of each. */
#ifndef MQ_METER_SAMPLE_H
#define MQ_METER_SAMPLE_H

#include "meter/queue.h"
#include "sources/source.h"
#include "workqueue/events.h"

enum {
    /* maximum number of messages in one sample, larger than any backlog of short messages in a ring of 1 MiB */
    MQ_METER_SAMPLE_MESSAGES = 65536,
};

/* An endpoint in a meter's loop. */
typedef struct {
    mq_meter *meter;
    mq_source *source;            /* NULL: no source. Another thread must not use the source */
    mq_meter_queue_reader *queue; /* counters of a queue; NULL: none */
    bool counts_events;           /* messages of the source are events of a queue */
    mq_source_status status;      /* result of the last sample, for Python */
} mq_metered_endpoint;

/* Add the delay of a message. `*now_ns` is the last read of the clock in this sample, or 0. All messages that have an
 * earlier publish time count with it, because a read of the clock takes longer than a short message. */
static inline void mq_meter_add_delay_of_message(mq_meter *m, int64_t *now_ns, uint64_t stamp) {
    if (*now_ns == 0 || (int64_t)((uint64_t)*now_ns - stamp) < 0)
        *now_ns = mq_meter_read_wall_clock_ns(m);
    mq_meter_add_delay(m, *now_ns, stamp);
}

/* Count a message. `part` points to the publish time in the payload, or is NULL if the payload contains no time. */
static inline bool mq_meter_count_message(mq_meter *m, uint64_t size, int64_t publish_time, const uint8_t *part,
                                          int64_t *now_ns) {
    uint64_t stamp = (uint64_t)publish_time;
    mq_histogram_add_value(&m->sizes, size, 1);
    if (part)
        memcpy(&stamp, part, sizeof stamp);
    if (part || (m->stamp_offset < 0 && stamp))
        mq_meter_add_delay_of_message(m, now_ns, stamp);
    else
        m->without_timestamp += m->stamp_offset >= 0;
    return true;
}

/* Count an event of a queue; NULL: the message is too short. Each `sent` event counts as a message. The delay of a
 * message ends with its first delivery. */
static inline bool mq_meter_count_queue_event(mq_meter *m, const uint8_t *part) {
    mq_queue_event event;
    if (!part)
        return false;
    memcpy(&event, part, sizeof event);
    bool taken = event.event == MQ_QUEUE_EVENT_TAKEN || event.event == MQ_QUEUE_EVENT_RECEIVED;
    if (taken && event.deliveries == 1)
        mq_meter_add_delay(m, event.publish_time, (uint64_t)event.sent_time);
    if (event.event != MQ_QUEUE_EVENT_SENT)
        return false;
    mq_histogram_add_value(&m->sizes, event.size, 1);
    return true;
}

/* Count all waiting messages of a source of type `kind`, whatever their schema. `bytes` is the number of bytes to copy
 * from each payload. */
static inline __attribute__((always_inline)) int64_t mq_meter_sample_source(mq_metered_endpoint *e, mq_source_kind kind,
                                                                            uint64_t bytes) {
    uint8_t part[sizeof(mq_queue_event)];
    mq_meter *m = e->meter;
    mq_source source = *e->source;
    mq_source_message message;
    const bool is_event = bytes == sizeof part;
    /* no payload contains a negative offset, because the conversion makes it large */
    const mq_source_buffer room = {.data = part, .bytes = bytes, .skip = is_event ? 0 : (uint64_t)m->stamp_offset};
    mq_source_status status = MQ_SOURCE_OK;
    uint64_t found = 0;
    int64_t now_ns = 0;
    source.kind = kind;
    for (int taken = 0; taken < MQ_METER_SAMPLE_MESSAGES; taken++) {
        status = mq_source_take_message(&source, &room, &message);
        if (mq_unlikely(status == MQ_SOURCE_NEW_SCHEMA)) {
            mq_ring_source_note_schema(&source, mq_source_load_schema_seq(&source), source.ring_subscriber->cursor);
            continue;
        }
        if (status != MQ_SOURCE_OK)
            break;
        if (kind == MQ_SOURCE_RECORDS) /* the scan for this change may have taken long */
            now_ns = 0;
        const uint8_t *copied = mq_source_buffer_has_part(&room, message.size) ? part : NULL;
        found += is_event ? mq_meter_count_queue_event(m, copied)
                          : mq_meter_count_message(m, message.size - mq_source_header_bytes(&source),
                                                   message.publish_time, copied, &now_ns);
    }
    e->source->schema_seq_seen = source.schema_seq_seen;
    e->status = status;
    mq_meter_count_messages(m, mq_monotonic_ns(), found);
    return status == MQ_SOURCE_OK || status == MQ_SOURCE_EMPTY || status == MQ_SOURCE_NEW_SCHEMA ? (int64_t)found : -1;
}

/* Count all waiting messages. Returns the number of messages, or -1 if Python must handle `status`. Each type of source
 * has its own loop, which does not test the type. */
static inline int64_t mq_meter_sample(mq_metered_endpoint *e) {
    if (e->queue)
        return mq_meter_sample_queue(e->meter, e->queue);
    if (!e->source)
        return 0;
    if (e->counts_events)
        return mq_meter_sample_source(e, MQ_SOURCE_CHANNEL, sizeof(mq_queue_event));
    switch (e->source->kind) {
    case MQ_SOURCE_RING: return mq_meter_sample_source(e, MQ_SOURCE_RING, sizeof(uint64_t));
    case MQ_SOURCE_CHANNEL: return mq_meter_sample_source(e, MQ_SOURCE_CHANNEL, sizeof(uint64_t));
    case MQ_SOURCE_POLLED: return mq_meter_sample_source(e, MQ_SOURCE_POLLED, sizeof(uint64_t));
    default: return mq_meter_sample_source(e, MQ_SOURCE_RECORDS, sizeof(uint64_t));
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
