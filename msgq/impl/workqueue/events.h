/* What a handle does to messages of a queue that was made with events, noted until it is published (events.pyx, and
 * c/queueevents.c).
 *
 * An event is noted behind the exchange that won, and only by whoever won it. A sweep may run without Python's lock, and
 * brings back as many messages as there are: so a buffer has room for a bounded number, and counts what it has no room for.
 *
 *   killed between exchange and event   the counts of the queue are right, the event is missing
 */
#ifndef MQ_WORKQUEUE_EVENTS_H
#define MQ_WORKQUEUE_EVENTS_H

#include "base/futex.h"
#include "workqueue/slot_state.h"

typedef enum {
    MQ_QUEUE_EVENT_SENT = 1,
    MQ_QUEUE_EVENT_TAKEN,
    MQ_QUEUE_EVENT_ACKNOWLEDGED,
    MQ_QUEUE_EVENT_RETURNED,
    MQ_QUEUE_EVENT_REFUSED,
    MQ_QUEUE_EVENT_RECEIVED, /* taken and acknowledged in one */
} mq_queue_event_type;

/* What is published, as msgq/common/queue_events.py has it. Times are the host's clock, ns. */
typedef struct {
    uint8_t event;
    uint8_t handle; /* the row of the handle that did it */
    uint16_t priority;
    uint32_t deliveries;
    uint64_t number; /* of the message */
    int64_t publish_time;
    int64_t sent_time;
    int64_t taken_time; /* 0: it was not taken, or nobody knows when */
    uint32_t size;
    uint32_t pid;
} mq_queue_event;
_Static_assert(sizeof(mq_queue_event) == 48, "as msgq/common/queue_events.py has it");

typedef struct {
    mq_queue_event event;
    uint64_t origin_time;
} mq_queue_event_record;

/* Used by one thread at a time: under Python's lock, or the watcher's. */
typedef struct {
    mq_queue_row *own_row; /* of the handle */
    uint8_t number;        /* of the row */
    uint32_t pid;
    int64_t clock_offset; /* of the host's clock to CLOCK_MONOTONIC */
    uint64_t first, end;  /* of those that are not published so far; both 0 when all are */
    uint64_t capacity;
    mq_queue_event_record *records;
} mq_queue_event_buffer;

static inline int64_t mq_queue_read_event_clock_ns(const mq_queue_event_buffer *buffer) {
    return mq_monotonic_ns() + buffer->clock_offset;
}

/* Events that nobody gets, for all who look on. */
static inline void mq_queue_count_lost_events(const mq_queue_event_buffer *buffer, uint64_t n) {
    mq_fetch_add_u64(&buffer->own_row->events_lost, n); /* the watcher's thread does this, too */
}

/* Of messages with the same order, which concurrent sends may get, each has another slot. Never 0, which is no message.
 * */
static inline uint64_t mq_queue_compute_message_number(uint64_t key, uint64_t slot) {
    uint64_t number = (mq_slot_state_get_order(key) << 16 | (slot & 0xFFFF)) + 1;
    return number ? number : 1; /* the last slot of the last order */
}

static inline void mq_queue_event_buffer_append(mq_queue_event_buffer *buffer, const mq_queue_event_record *record) {
    if (buffer->end == buffer->capacity)
        mq_queue_count_lost_events(buffer, 1);
    else
        buffer->records[buffer->end++] = *record;
}

/* Move the events of one buffer to the end of another one. */
static inline void mq_queue_event_buffer_move_all(mq_queue_event_buffer *from, mq_queue_event_buffer *to) {
    for (; from->first < from->end; from->first++)
        mq_queue_event_buffer_append(to, &from->records[from->first]);
    from->first = from->end = 0;
}

/* What is known of a message with this key, which this handle sends, or has taken. */
static inline mq_queue_event_record mq_queue_make_event(const mq_queue_event_buffer *buffer,
                                                        mq_queue_event_type event_type, uint64_t key, uint64_t slot,
                                                        uint64_t length) {
    uint64_t size = length < UINT32_MAX ? length : UINT32_MAX;
    return (mq_queue_event_record){
        .event = {.event = (uint8_t)event_type,
                  .handle = buffer->number,
                  .priority = (uint16_t)mq_slot_state_get_priority(key),
                  .number = event_type == MQ_QUEUE_EVENT_REFUSED ? 0 : mq_queue_compute_message_number(key, slot),
                  .size = (uint32_t)size,
                  .pid = buffer->pid}};
}

/* A message that was sent, at this time. */
static inline mq_queue_event_record mq_queue_make_sent_event(const mq_queue_event_buffer *buffer, uint64_t key,
                                                             uint64_t slot, uint64_t length, int64_t sent_time,
                                                             uint64_t origin_time) {
    mq_queue_event_record record = mq_queue_make_event(buffer, MQ_QUEUE_EVENT_SENT, key, slot, length);
    record.event.publish_time = record.event.sent_time = sent_time;
    record.origin_time = origin_time;
    return record;
}

/* A message for which there was no room, so it has no position in the order. */
static inline mq_queue_event_record mq_queue_make_refused_event(const mq_queue_event_buffer *buffer, uint64_t priority,
                                                                uint64_t length, uint64_t origin_time) {
    mq_queue_event_record record =
        mq_queue_make_event(buffer, MQ_QUEUE_EVENT_REFUSED, mq_slot_state_encode_ready(priority, 0), 0, length);
    record.event.publish_time = mq_queue_read_event_clock_ns(buffer);
    record.origin_time = origin_time;
    return record;
}

/* ---- when a message was taken: in its header, so that whoever brings it back knows ---- */

/* By its taker, behind the exchange. */
static inline void mq_queue_store_taken_time(mq_queue_slot_header *header, uint64_t taken, int64_t now) {
    mq_store_relaxed_u64(&header->taken_time, (uint64_t)now); /* relaxed: released with the next word */
    /* EDGE taken-time: release. The time is stored, then whose it is. Partner: mq_queue_make_returned_event. If weaker:
     * a message that comes back is said to have been taken when an earlier taker had it. */
    mq_store_release_u64(&header->taken_by, taken);
}

/* Of a message that is brought back, for the case that its exchange wins: to be called before it. So the time is before
 * that of the next taking, too. */
static inline mq_queue_event_record mq_queue_make_returned_event(const mq_queue_event_buffer *buffer,
                                                                 const mq_queue_slot_header *header, uint64_t key,
                                                                 uint64_t slot, uint64_t taken) {
    /* relaxed, all: of the message that the word names, or the exchange fails and they are thrown away */
    mq_queue_event_record record =
        mq_queue_make_event(buffer, MQ_QUEUE_EVENT_RETURNED, key, slot, mq_load_relaxed_u64(&header->length));
    record.event.deliveries = (uint32_t)mq_load_relaxed_u64(&header->deliveries);
    record.event.sent_time = (int64_t)mq_load_relaxed_u64(&header->sent_time);
    record.origin_time = mq_load_relaxed_u64(&header->origin_time);
    /* EDGE taken-time: acquire. Partner: mq_queue_store_taken_time. If weaker: as there. */
    if (mq_load_acquire_u64(&header->taken_by) == taken)
        record.event.taken_time = (int64_t)mq_load_relaxed_u64(&header->taken_time);
    record.event.publish_time = mq_queue_read_event_clock_ns(buffer);
    return record;
}

#endif
