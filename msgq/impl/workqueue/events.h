/* What a handle does to messages of a queue that was made with events, noted until it is published (events.pyx, and
 * c/queueevents.c).
 *
 * An event is noted behind the exchange that won, and only by whoever won it. A sweep may run without Python's lock, and
 * brings back as many messages as there are: so a log has room for a bounded number, and counts what it has no room for.
 *
 *   killed between exchange and event   the counts of the queue are right, the event is missing
 */
#ifndef MQ_WORKQUEUE_EVENTS_H
#define MQ_WORKQUEUE_EVENTS_H

#include "base/futex.h"
#include "workqueue/words.h"

typedef enum {
    MQ_EVENT_SENT = 1,
    MQ_EVENT_TAKEN,
    MQ_EVENT_ACKNOWLEDGED,
    MQ_EVENT_RETURNED,
    MQ_EVENT_REFUSED,
    MQ_EVENT_RECEIVED, /* taken and acknowledged in one */
} mq_queue_event_kind;

/* What is published, as msgq/common/queue_events.py has it. Times are the host's clock, ns. */
typedef struct {
    uint8_t event;
    uint8_t row; /* whose handle did it */
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
} mq_queue_noted;

/* Used by one thread at a time: under Python's lock, or the watcher's. */
typedef struct {
    mq_queue_row *row; /* of the handle */
    uint8_t number;    /* of the row */
    uint32_t pid;
    int64_t clock_offset; /* of the host's clock to CLOCK_MONOTONIC */
    uint64_t first, end;  /* of those that are not published so far; both 0 when all are */
    uint64_t room;
    mq_queue_noted *noted;
} mq_queue_log;

static inline int64_t mq_queue_event_time(const mq_queue_log *log) { return mq_now_ns() + log->clock_offset; }

/* Events that nobody gets, for all who look on. */
static inline void mq_queue_events_lost(const mq_queue_log *log, uint64_t n) {
    mq_fetch_add_u64(&log->row->events_lost, n); /* the watcher's thread does this, too */
}

/* Of messages with the same order, which concurrent sends may get, each has another place. Never 0, which is no message. */
static inline uint64_t mq_queue_event_number(uint64_t key, uint64_t place) {
    uint64_t number = (mq_word_order(key) << 16 | (place & 0xFFFF)) + 1;
    return number ? number : 1; /* the last place of the last order */
}

static inline void mq_queue_note(mq_queue_log *log, const mq_queue_noted *noted) {
    if (log->end == log->room)
        mq_queue_events_lost(log, 1);
    else
        log->noted[log->end++] = *noted;
}

/* Move what was noted there to the end of another log. */
static inline void mq_queue_log_move(mq_queue_log *from, mq_queue_log *to) {
    for (; from->first < from->end; from->first++)
        mq_queue_note(to, &from->noted[from->first]);
    from->first = from->end = 0;
}

/* What is known of a message with this key, which this handle sends, or has taken. */
static inline mq_queue_noted mq_queue_event_of(const mq_queue_log *log, mq_queue_event_kind kind, uint64_t key,
                                               uint64_t place, uint64_t length) {
    uint64_t size = length < UINT32_MAX ? length : UINT32_MAX;
    return (mq_queue_noted){.event = {.event = (uint8_t)kind,
                                      .row = log->number,
                                      .priority = (uint16_t)mq_word_priority(key),
                                      .number = kind == MQ_EVENT_REFUSED ? 0 : mq_queue_event_number(key, place),
                                      .size = (uint32_t)size,
                                      .pid = log->pid}};
}

/* A message that was sent, at this time. */
static inline mq_queue_noted mq_queue_event_sent(const mq_queue_log *log, uint64_t key, uint64_t place, uint64_t length,
                                                 int64_t sent_time, uint64_t origin_time) {
    mq_queue_noted noted = mq_queue_event_of(log, MQ_EVENT_SENT, key, place, length);
    noted.event.publish_time = noted.event.sent_time = sent_time;
    noted.origin_time = origin_time;
    return noted;
}

/* A message for which there was no room, so it has no place in the order. */
static inline mq_queue_noted mq_queue_event_refused(const mq_queue_log *log, uint64_t priority, uint64_t length,
                                                    uint64_t origin_time) {
    mq_queue_noted noted = mq_queue_event_of(log, MQ_EVENT_REFUSED, mq_word_ready(priority, 0), 0, length);
    noted.event.publish_time = mq_queue_event_time(log);
    noted.origin_time = origin_time;
    return noted;
}

/* ---- when a message was taken: in its head, so that whoever brings it back knows ---- */

/* By its taker, behind the exchange. */
static inline void mq_queue_taken_at(mq_queue_head *head, uint64_t taken, int64_t now) {
    mq_store_relaxed_u64(&head->taken_time, (uint64_t)now); /* relaxed: released with the next word */
    /* EDGE taking: release. The time is stored, then whose it is. Partner: mq_queue_event_back. If weaker: a message that
     * comes back is said to have been taken when an earlier taker had it. */
    mq_store_release_u64(&head->taken_by, taken);
}

/* Of a message that is brought back, for the case that its exchange wins: to be called before it. So the time is before
 * that of the next taking, too. */
static inline mq_queue_noted mq_queue_event_back(const mq_queue_log *log, const mq_queue_head *head, uint64_t key,
                                                 uint64_t place, uint64_t taken) {
    /* relaxed, all: of the message that the word names, or the exchange fails and they are thrown away */
    mq_queue_noted noted = mq_queue_event_of(log, MQ_EVENT_RETURNED, key, place, mq_load_relaxed_u64(&head->length));
    noted.event.deliveries = (uint32_t)mq_load_relaxed_u64(&head->deliveries);
    noted.event.sent_time = (int64_t)mq_load_relaxed_u64(&head->sent_time);
    noted.origin_time = mq_load_relaxed_u64(&head->origin_time);
    /* EDGE taking: acquire. Partner: mq_queue_taken_at. If weaker: as there. */
    if (mq_load_acquire_u64(&head->taken_by) == taken)
        noted.event.taken_time = (int64_t)mq_load_relaxed_u64(&head->taken_time);
    noted.event.publish_time = mq_queue_event_time(log);
    return noted;
}

#endif
