/* The publisher of a queue's events. See queueevents.h. To be compiled as C11. */
#define _GNU_SOURCE
#include "c/queueevents.h"

/* As in impl/workqueue/options.py and events.pyx. */
enum {
    MQC_EVENTS_CAPACITY = 4096, /* of the channel */
    MQC_EVENTS_SLOTS = MQC_EVENTS_CAPACITY + 2,
    MQC_EVENTS_LEAST_SLOTS = 4,
    MQC_EVENTS_PAYLOAD_BYTES = 1 << 23, /* of a pool for events with payload, unless four slots need more */
    MQC_EVENTS_NOTED = 4096,            /* a sweep may bring back as many; in a larger queue those beyond are lost */
    MQC_AGAIN_TIMES = 10, /* as long as trying took, until it is tried again: somebody may have its lock, stopped */
};
static const uint64_t MQC_EVENTS_MAX_BYTES = 1ull << 42; /* no limit: what is asked for is what a pool has */
static const int64_t MQC_AGAIN_NS = MQ_NS_PER_S;
static const char MQC_EVENTS_SUFFIX[] = ":events";
/* SCHEMA of msgq/common/queue_events.py */
static const char MQC_EVENTS_FIELDS[] =
    "[[\"event\", \"|u1\"], [\"handle\", \"|u1\"], [\"priority\", \"<u2\"], [\"deliveries\", \"<u4\"], "
    "[\"number\", \"<u8\"], [\"publish_time\", \"<i8\"], [\"sent_time\", \"<i8\"], [\"taken_time\", \"<i8\"], "
    "[\"size\", \"<u4\"], [\"pid\", \"<u4\"]]";

int mqc_outlet_check(const mqc_endpoint *place) {
    size_t most = MQC_CHANNEL_NAME_MAX - strlen(MQC_EVENTS_SUFFIX), size = strlen(place->name);
    if (size <= most)
        return 0;
    return mqc_endpoint_error(place, EINVAL,
                              "a queue with events has a name of at most %zu bytes, and this one has %zu", most, size);
}

int mqc_outlet_begin(mqc_outlet *outlet, const mqc_endpoint *place, const mqc_segment *segment,
                     const mq_queue_parts *parts) {
    uint64_t room = parts->max_messages < MQC_EVENTS_NOTED ? parts->max_messages : MQC_EVENTS_NOTED;
    *outlet = (mqc_outlet){.place = place, .segment = segment, .parts = parts};
    outlet->log.room = room + 1;
    outlet->log.noted = calloc(outlet->log.room, sizeof *outlet->log.noted);
    return outlet->log.noted ? 0 : mqc_endpoint_error(place, ENOMEM, "no memory for its events");
}

void mqc_outlet_join(mqc_outlet *outlet, mq_queue_handle *h, uint64_t pid) {
    h->log = outlet->parts ? &outlet->log : NULL;
    outlet->log.row = h->row, outlet->log.number = (uint8_t)h->number;
    outlet->log.pid = (uint32_t)pid, outlet->log.clock_offset = h->clock_offset;
}

void mqc_outlet_end(mqc_outlet *outlet) {
    mqc_suppress_error_text(true);
    msgq_channel_publisher_close(outlet->publisher);
    mqc_suppress_error_text(false);
    free(outlet->log.noted);
    *outlet = (mqc_outlet){0};
}

/* ---- opening ---- */

/* Open the channel, instead of the publisher that there may be. */
static int mqc_outlet_open(mqc_outlet *outlet, bool roomy) {
    msgq_schema schema = {"QueueEvent", "queue-event", MQC_EVENTS_FIELDS, sizeof MQC_EVENTS_FIELDS - 1};
    uint64_t size = sizeof(mq_queue_event) + (roomy ? outlet->parts->max_message_size : 0);
    uint64_t slots = MQC_EVENTS_PAYLOAD_BYTES / size;
    slots = slots < MQC_EVENTS_SLOTS ? slots : MQC_EVENTS_SLOTS;
    slots = slots > MQC_EVENTS_LEAST_SLOTS ? slots : MQC_EVENTS_LEAST_SLOTS;
    msgq_channel_options options = {
        .slots = (uint32_t)slots, .slot_bytes = size, .max_bytes = MQC_EVENTS_MAX_BYTES, .schema = &schema};
    char name[MQC_NAME + sizeof MQC_EVENTS_SUFFIX];
    msgq_channel_publisher *publisher = NULL;
    mqc_channel_file file;
    snprintf(name, sizeof name, "%s%s", outlet->place->name, MQC_EVENTS_SUFFIX);
    int status =
        mqc_channel_file_init_beside(&file, name, outlet->place, outlet->segment->mode & 0666, MQC_EVENTS_CAPACITY);
    if (!status && !mqc_has_name(outlet->segment)) /* the channel of that name is another queue's, or nobody's */
        status = -ENOENT;
    if (!status)
        status = mqc_publisher_open(&publisher, &file, &options);
    if (!status && !mqc_has_name(outlet->segment))
        status = -ENOENT;
    if (status) {
        msgq_channel_publisher_close(publisher);
        return status;
    }
    msgq_channel_publisher_close(outlet->publisher);
    outlet->publisher = publisher, outlet->roomy = roomy;
    return 0;
}

/* Whether there is need to open it, and it is time to try. */
static bool mqc_outlet_is_due(const mqc_outlet *outlet, bool roomy) {
    if (mq_likely(outlet->publisher && (outlet->roomy || !roomy)))
        return false;
    return mq_now_ns() >= outlet->again_ns;
}

void mqc_outlet_prepare(mqc_outlet *outlet, bool sends) {
    bool roomy = sends && outlet->parts->events == MQ_EVENTS_PAYLOAD;
    if (mq_likely(!mqc_outlet_is_due(outlet, roomy)))
        return;
    int64_t started = mq_now_ns();
    mqc_suppress_error_text(true);
    if (mqc_outlet_open(outlet, roomy) != 0) {
        int64_t now = mq_now_ns(), pause = MQC_AGAIN_TIMES * (now - started);
        outlet->again_ns = now + (pause > MQC_AGAIN_NS ? pause : MQC_AGAIN_NS);
    }
    mqc_suppress_error_text(false);
}

void mqc_outlet_prepare_to_take(mqc_outlet *outlet) {
    if (mq_unlikely(mqc_outlet_is_due(outlet, false)) && mq_queue_has_ready(outlet->parts))
        mqc_outlet_prepare(outlet, false);
}

/* ---- publishing ---- */

/* Publish an event, with the payload that it may have. */
static void mqc_outlet_tell(mqc_outlet *outlet, const mq_queue_noted *noted, const void *payload, size_t size) {
    int status = -ENOENT;
    mqc_suppress_error_text(true);
    if (outlet->publisher)
        status = mqc_publisher_send(outlet->publisher, &noted->event, sizeof noted->event, payload, size,
                                    (int64_t)noted->origin_time);
    mqc_suppress_error_text(false);
    if (status)
        mq_queue_events_lost(&outlet->log, 1);
}

void mqc_outlet_tell_noted(mqc_outlet *outlet) {
    mq_queue_log *log = &outlet->log;
    if (mq_likely(!log->end))
        return;
    mqc_outlet_prepare(outlet, false);
    for (; log->first < log->end; log->first++)
        mqc_outlet_tell(outlet, &log->noted[log->first], NULL, 0);
    log->first = log->end = 0;
}

void mqc_outlet_tell_sent(mqc_outlet *outlet, uint64_t key, uint64_t place, const void *data, size_t size,
                          int64_t sent_time, int64_t origin_time) {
    mq_queue_noted noted = mq_queue_event_sent(&outlet->log, key, place, size, sent_time, (uint64_t)origin_time);
    mqc_outlet_tell(outlet, &noted, data, outlet->parts->events == MQ_EVENTS_PAYLOAD ? size : 0);
}

void mqc_outlet_tell_refused(mqc_outlet *outlet, uint64_t priority, size_t size, int64_t origin_time) {
    mq_queue_noted noted = mq_queue_event_refused(&outlet->log, priority, size, (uint64_t)origin_time);
    mqc_outlet_tell(outlet, &noted, NULL, 0);
}

void mqc_outlet_tell_taken(mqc_outlet *outlet, const mq_queue_handle *h, mq_queue_event_kind kind,
                           const mq_queue_taken *taken) {
    mq_queue_note_taken(h, kind, taken);
    mqc_outlet_tell_noted(outlet);
}
