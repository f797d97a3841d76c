/* Events: changes that a handle made to messages. The handle buffers events, and publishes the events later
 * (events.pxi, and c/queueevents.c).
 *
 * After a successful exchange, the process that made the exchange buffers the event. A recovery may run without the
 * GIL, and may return all messages of the queue. The buffer therefore has a fixed capacity and counts events that do
 * not fit. If a process is killed between the exchange and the event, the queue's counts are correct and the event is
 * missing. */
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
    MQ_QUEUE_EVENT_RECEIVED, /* the message was taken and acknowledged in one call */
} mq_queue_event_type;

/* The published bytes of an event, as in msgq/common/queue_events.py. Times are nanoseconds by the host's clock. */
typedef struct {
    uint8_t event;
    uint8_t handle; /* row of the handle that made the change */
    uint16_t priority;
    uint32_t deliveries;
    uint64_t number; /* number of the message */
    int64_t publish_time;
    int64_t sent_time;
    int64_t taken_time; /* 0: the message is not taken, or the time is unknown */
    uint32_t size;
    uint32_t pid;
} mq_queue_event;
_Static_assert(sizeof(mq_queue_event) == 48, "as msgq/common/queue_events.py has it");

typedef struct {
    mq_queue_event event;
    uint64_t origin_time;
} mq_queue_event_record;

/* Only one thread at a time uses the buffer, under the GIL or under the watcher's mutex. */
typedef struct {
    mq_queue_row *own_row; /* the handle's row */
    uint8_t number;        /* index of the handle's row */
    uint32_t pid;
    int64_t clock_offset;      /* host's clock minus CLOCK_MONOTONIC, in nanoseconds */
    const int64_t *virtual_ns; /* as in mq_queue_handle */
    uint64_t first, end; /* range of the unpublished events. `first` and `end` are 0 if all events are published */
    uint64_t capacity;
    mq_queue_event_record *records;
} mq_queue_event_buffer;

/* ---- the channel of events, and the handle's publisher ---- */

enum {
    MQ_QUEUE_EVENTS_CAPACITY = 4096, /* capacity of the channel, entries */
    /* maximum bytes of a pool, unless four slots need more bytes */
    MQ_QUEUE_EVENTS_POOL_BYTES = 1 << 23,
    MQ_QUEUE_EVENTS_SLOTS_MIN = 4,
    MQ_QUEUE_EVENTS_SLOTS_MAX = MQ_QUEUE_EVENTS_CAPACITY + 2,
    /* capacity of the buffer of events. If one recovery returns more messages, further events are lost */
    MQ_QUEUE_EVENTS_BUFFERED_MAX = 4096,
    /* An opening is slow if a stopped process holds the lock. The pause after a failure is this multiple of the
     * opening's duration */
    MQ_QUEUE_EVENTS_RETRY_FACTOR = 10,
};
#define MQ_QUEUE_EVENTS_MAX_BYTES (1ull << 42) /* no limit of a pool, so that it gets its number of slots */

/* Return the number of slots of a pool for events of `slot_bytes` bytes. */
static inline uint64_t mq_queue_count_event_slots(uint64_t slot_bytes) {
    uint64_t slots = MQ_QUEUE_EVENTS_POOL_BYTES / slot_bytes;
    slots = slots < MQ_QUEUE_EVENTS_SLOTS_MAX ? slots : MQ_QUEUE_EVENTS_SLOTS_MAX;
    return slots > MQ_QUEUE_EVENTS_SLOTS_MIN ? slots : MQ_QUEUE_EVENTS_SLOTS_MIN;
}

/* Return the capacity of a handle's buffer. */
static inline uint64_t mq_queue_count_buffered_events(uint64_t max_messages) {
    return (max_messages < MQ_QUEUE_EVENTS_BUFFERED_MAX ? max_messages : MQ_QUEUE_EVENTS_BUFFERED_MAX) + 1;
}

/* Return the time of the next attempt to open the channel, after an attempt that failed. */
static inline int64_t mq_queue_next_event_attempt_ns(int64_t started_ns, int64_t failed_ns) {
    int64_t pause = MQ_QUEUE_EVENTS_RETRY_FACTOR * (failed_ns - started_ns);
    return failed_ns + (pause > MQ_NS_PER_S ? pause : MQ_NS_PER_S);
}

/* ---- events ---- */

static inline int64_t mq_queue_read_event_clock_ns(const mq_queue_event_buffer *buffer) {
    return mq_read_time_ns(buffer->virtual_ns) + buffer->clock_offset;
}

/* Count events that will not be published. Observers read the count. */
static inline void mq_queue_count_lost_events(const mq_queue_event_buffer *buffer, uint64_t n) {
    /* atomic, because the watcher thread calls this function, too */
    mq_fetch_add_u64(&buffer->own_row->events_lost, n);
}

/* Return the number of a message. Concurrent sends may get the same order, but in different slots. The number is
 * never 0, because 0 means "no message". */
static inline uint64_t mq_queue_compute_message_number(uint64_t key, uint64_t slot) {
    uint64_t number = (mq_slot_state_get_order(key) << 16 | (slot & 0xFFFF)) + 1;
    return number ? number : 1; /* only the last slot of the last order gives 0 */
}

static inline void mq_queue_event_buffer_append(mq_queue_event_buffer *buffer, const mq_queue_event_record *record) {
    if (buffer->end == buffer->capacity)
        mq_queue_count_lost_events(buffer, 1);
    else
        buffer->records[buffer->end++] = *record;
}

/* Move the events of one buffer to the end of another buffer. */
static inline void mq_queue_event_buffer_move_all(mq_queue_event_buffer *from, mq_queue_event_buffer *to) {
    for (; from->first < from->end; from->first++)
        mq_queue_event_buffer_append(to, &from->records[from->first]);
    from->first = from->end = 0;
}

/* Return an event of a message with this key. This handle sends the message or has taken the message. */
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

/* Return the event of a message sent at `sent_time`. */
static inline mq_queue_event_record mq_queue_make_sent_event(const mq_queue_event_buffer *buffer, uint64_t key,
                                                             uint64_t slot, uint64_t length, int64_t sent_time,
                                                             uint64_t origin_time) {
    mq_queue_event_record record = mq_queue_make_event(buffer, MQ_QUEUE_EVENT_SENT, key, slot, length);
    record.event.publish_time = record.event.sent_time = sent_time;
    record.origin_time = origin_time;
    return record;
}

/* Return the event of a message that found the queue full. A message that found the queue full has no order. */
static inline mq_queue_event_record mq_queue_make_refused_event(const mq_queue_event_buffer *buffer, uint64_t priority,
                                                                uint64_t length, uint64_t origin_time) {
    mq_queue_event_record record =
        mq_queue_make_event(buffer, MQ_QUEUE_EVENT_REFUSED, mq_slot_state_encode_ready(priority, 0), 0, length);
    record.event.publish_time = mq_queue_read_event_clock_ns(buffer);
    record.origin_time = origin_time;
    return record;
}

/* ---- taken time, stored in the header for the process that returns the message ---- */

/* Store the taken time in the slot's header. The taker calls this after its exchange. */
static inline void mq_queue_store_taken_time(mq_queue_slot_header *header, uint64_t taken, int64_t now) {
    mq_store_relaxed_u64(&header->taken_time, (uint64_t)now); /* relaxed: released with the next word */
    /* EDGE taken-time: release. The time is stored, then its TAKEN word. Partner: mq_queue_make_returned_event. If
     * weaker: the event of a returned message has the taken time of an earlier taker. */
    mq_store_release_u64(&header->taken_by, taken);
}

/* Return the event of a message that is about to be returned to the queue. Call this before the exchange. The
 * event's time is then before the time of the next take. Discard the event if the exchange fails. */
static inline mq_queue_event_record mq_queue_make_returned_event(const mq_queue_event_buffer *buffer,
                                                                 const mq_queue_slot_header *header, uint64_t key,
                                                                 uint64_t slot, uint64_t taken) {
    /* relaxed, all: they belong to the message that the word names; otherwise the exchange fails and they are
     * discarded */
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
