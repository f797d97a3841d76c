/* Samples of a channel by a passive subscriber. The channel may be the events channel of a queue. */
#ifndef MQ_METER_CHANNEL_H
#define MQ_METER_CHANNEL_H

#include "channel/subscriber.h"
#include "meter/counting.h"
#include "workqueue/events.h"

/* maximum number of messages in one sample, equal to the maximum capacity of a channel */
enum { MQ_METER_BATCH_MESSAGES = 8192 };

/* Count an intact message. `part` points to the requested bytes, or is NULL if the message is too short. Returns true
 * if the message counts for the period. */
typedef bool (*mq_meter_count_callback)(mq_meter *m, const mq_channel_message *message, const uint8_t *part,
                                        int64_t wall_ns);

/* Count the waiting messages. For each message, `count` gets a copy of `bytes` bytes from offset `at` on. */
static inline int64_t mq_meter_scan_channel(mq_meter *m, mq_channel_subscriber *s, uint64_t at, uint64_t bytes,
                                            mq_meter_count_callback count) {
    uint8_t part[sizeof(mq_queue_event)];
    mq_channel_message message;
    mq_channel_status status = MQ_CHANNEL_EMPTY;
    int64_t now = 0, wall_ns = 0;
    uint64_t found = 0, tail = 0;
    for (int i = 0; i < MQ_METER_BATCH_MESSAGES && (status = mq_channel_next_message(s, &message)) == MQ_CHANNEL_OK;
         i++) {
        bool long_enough = bytes && message.length >= bytes && message.length - bytes >= at;
        if (long_enough)
            mq_copy_from_shared(part, mq_pool_slot_payload(message.slot) + at, bytes);
        /* read the clock after the tail: all messages before this tail were published before `now` */
        if (message.position >= tail) {
            tail = mq_index_ring_max_position(mq_index_ring_load_tail(&s->order), message.position + 1);
            now = mq_monotonic_ns(), wall_ns = mq_meter_read_wall_clock_ns(m);
        }
        if (mq_channel_accept_entry(s, &message))
            found += count(m, &message, long_enough ? part : NULL, wall_ns);
    }
    mq_meter_count_messages(m, now, found);
    return status == MQ_CHANNEL_OK || status == MQ_CHANNEL_EMPTY ? (int64_t)found : -1;
}

static inline bool mq_meter_count_channel_message(mq_meter *m, const mq_channel_message *message, const uint8_t *part,
                                                  int64_t wall_ns) {
    uint64_t stamp = message->publish_time;
    mq_histogram_add_value(&m->sizes, message->length, 1);
    if (part)
        memcpy(&stamp, part, sizeof stamp);
    if (part || (m->stamp_offset < 0 && stamp))
        mq_meter_add_delay(m, wall_ns, stamp);
    else
        m->without_timestamp += m->stamp_offset >= 0;
    return true;
}

static inline int64_t mq_meter_sample_channel(mq_meter *m, void *reader) {
    bool has_timestamps = m->stamp_offset >= 0;
    return mq_meter_scan_channel(m, reader, has_timestamps ? (uint64_t)m->stamp_offset : 0,
                                 has_timestamps ? sizeof(uint64_t) : 0, mq_meter_count_channel_message);
}

/* Count an event of a queue. Each `sent` event counts as a message. The delay of a message ends with its first
 * delivery. */
static inline bool mq_meter_count_queue_event(mq_meter *m, const mq_channel_message *message, const uint8_t *part,
                                              int64_t wall_ns) {
    mq_queue_event event;
    (void)message;
    (void)wall_ns;
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

static inline int64_t mq_meter_sample_queue_events(mq_meter *m, void *reader) {
    return mq_meter_scan_channel(m, reader, 0, sizeof(mq_queue_event), mq_meter_count_queue_event);
}

#endif
