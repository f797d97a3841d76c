/* The event publisher of a queue. See queueevents.h. Compile as C11. */
#define _GNU_SOURCE
#include "c/queueevents.h"

/* SCHEMA of msgq/common/queue_events.py */
static const char MQC_EVENTS_FIELDS[] =
    "[[\"event\", \"|u1\"], [\"handle\", \"|u1\"], [\"priority\", \"<u2\"], [\"deliveries\", \"<u4\"], "
    "[\"number\", \"<u8\"], [\"publish_time\", \"<i8\"], [\"sent_time\", \"<i8\"], [\"taken_time\", \"<i8\"], "
    "[\"size\", \"<u4\"], [\"pid\", \"<u4\"]]";

int mqc_event_publisher_check_name(const mqc_endpoint *endpoint) {
    size_t most = MQC_CHANNEL_NAME_MAX - strlen(MQC_EVENTS_SUFFIX), size = strlen(endpoint->name);
    if (size <= most)
        return 0;
    return mqc_endpoint_error(endpoint, EINVAL,
                              "a queue with events has a name of at most %zu bytes, and this one has %zu", most, size);
}

int mqc_event_publisher_init(mqc_event_publisher *events, const mqc_endpoint *endpoint, const mqc_mapped_file *segment,
                             const mq_queue_file_parts *parts) {
    *events = (mqc_event_publisher){.endpoint = endpoint, .segment = segment, .parts = parts};
    events->buffer.capacity = mq_queue_count_buffered_events(parts->max_messages);
    events->buffer.records = calloc(events->buffer.capacity, sizeof *events->buffer.records);
    return events->buffer.records ? 0 : mqc_endpoint_error(endpoint, ENOMEM, "no memory for its events");
}

void mqc_event_publisher_attach_handle(mqc_event_publisher *events, mq_queue_handle *h, uint64_t pid) {
    h->event_buffer = events->parts ? &events->buffer : NULL;
    events->buffer.own_row = h->own_row, events->buffer.number = (uint8_t)h->row_number;
    events->buffer.pid = (uint32_t)pid, events->buffer.clock_offset = h->clock_offset;
}

void mqc_event_publisher_close(mqc_event_publisher *events) {
    mqc_suppress_error_text(true);
    msgq_channel_publisher_close(events->publisher);
    mqc_suppress_error_text(false);
    free(events->buffer.records);
    *events = (mqc_event_publisher){0};
}

/* ---- open ---- */

/* Open the channel. The new publisher replaces an existing publisher of this handle. */
static int mqc_event_publisher_open_channel(mqc_event_publisher *events, bool has_payload_slots) {
    msgq_schema schema = {"QueueEvent", "queue-event", MQC_EVENTS_FIELDS, sizeof MQC_EVENTS_FIELDS - 1};
    uint64_t size = sizeof(mq_queue_event) + (has_payload_slots ? events->parts->max_message_size : 0);
    msgq_channel_options options = {.slots = (uint32_t)mq_queue_count_event_slots(size),
                                    .slot_bytes = size,
                                    .max_bytes = MQ_QUEUE_EVENTS_MAX_BYTES,
                                    .schema = &schema};
    char name[MQC_NAME + sizeof MQC_EVENTS_SUFFIX];
    msgq_channel_publisher *publisher = NULL;
    mqc_channel_file file;
    snprintf(name, sizeof name, "%s%s", events->endpoint->name, MQC_EVENTS_SUFFIX);
    int status = mqc_channel_file_init_beside(&file, name, events->endpoint, events->segment->mode & 0666,
                                              MQ_QUEUE_EVENTS_CAPACITY);
    /* if the queue was removed, the channel with this name may belong to another queue */
    if (!status && !mqc_is_linked(events->segment))
        status = -ENOENT;
    if (!status)
        status = mqc_publisher_open(&publisher, &file, &options);
    if (!status && !mqc_is_linked(events->segment))
        status = -ENOENT;
    if (status) {
        msgq_channel_publisher_close(publisher);
        return status;
    }
    msgq_channel_publisher_close(events->publisher);
    events->publisher = publisher, events->has_payload_slots = has_payload_slots;
    return 0;
}

/* True if the channel must be opened and the next attempt is due. */
static bool mqc_event_publisher_must_open(const mqc_event_publisher *events, bool has_payload_slots) {
    if (mq_likely(events->publisher && (events->has_payload_slots || !has_payload_slots)))
        return false;
    return mq_monotonic_ns() >= events->retry_ns;
}

void mqc_event_publisher_open(mqc_event_publisher *events, bool sends) {
    bool has_payload_slots = sends && events->parts->events == MQ_QUEUE_EVENTS_PAYLOAD;
    if (mq_likely(!mqc_event_publisher_must_open(events, has_payload_slots)))
        return;
    int64_t started = mq_monotonic_ns();
    mqc_suppress_error_text(true);
    if (mqc_event_publisher_open_channel(events, has_payload_slots) != 0)
        events->retry_ns = mq_queue_next_event_attempt_ns(started, mq_monotonic_ns());
    mqc_suppress_error_text(false);
}

void mqc_event_publisher_open_to_take(mqc_event_publisher *events) {
    if (mq_unlikely(mqc_event_publisher_must_open(events, false)) && mq_queue_has_ready_message(events->parts))
        mqc_event_publisher_open(events, false);
}

/* ---- publish ---- */

/* Publish an event with its optional payload. */
static void mqc_event_publisher_publish(mqc_event_publisher *events, const mq_queue_event_record *record,
                                        const void *payload, size_t size) {
    int status = -ENOENT;
    mqc_suppress_error_text(true);
    if (events->publisher)
        status = mqc_publisher_send(events->publisher, &record->event, sizeof record->event, payload, size,
                                    (int64_t)record->origin_time);
    mqc_suppress_error_text(false);
    if (status)
        mq_queue_count_lost_events(&events->buffer, 1);
}

void mqc_event_publisher_flush(mqc_event_publisher *events) {
    mq_queue_event_buffer *buffer = &events->buffer;
    if (mq_likely(!buffer->end))
        return;
    mqc_event_publisher_open(events, false);
    for (; buffer->first < buffer->end; buffer->first++)
        mqc_event_publisher_publish(events, &buffer->records[buffer->first], NULL, 0);
    buffer->first = buffer->end = 0;
}

void mqc_event_publisher_publish_sent(mqc_event_publisher *events, uint64_t key, uint64_t slot, const void *data,
                                      size_t size, int64_t sent_time, int64_t origin_time) {
    mq_queue_event_record record =
        mq_queue_make_sent_event(&events->buffer, key, slot, size, sent_time, (uint64_t)origin_time);
    mqc_event_publisher_publish(events, &record, data, events->parts->events == MQ_QUEUE_EVENTS_PAYLOAD ? size : 0);
}

void mqc_event_publisher_publish_refused(mqc_event_publisher *events, uint64_t priority, size_t size,
                                         int64_t origin_time) {
    mq_queue_event_record record = mq_queue_make_refused_event(&events->buffer, priority, size, (uint64_t)origin_time);
    mqc_event_publisher_publish(events, &record, NULL, 0);
}

void mqc_event_publisher_publish_delivery(mqc_event_publisher *events, const mq_queue_handle *h,
                                          mq_queue_event_type event_type, const mq_queue_taken_message *delivery) {
    mq_queue_buffer_delivery_event(h, event_type, delivery);
    mqc_event_publisher_flush(events);
}
