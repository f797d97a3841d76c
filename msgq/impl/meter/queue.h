/* Samples of a queue without events. A sample counts the sent messages, and measures the ages of the messages that
 * wait. */
#ifndef MQ_METER_QUEUE_H
#define MQ_METER_QUEUE_H

#include "meter/counting.h"
#include "workqueue/peek.h"

typedef struct {
    const mq_queue_file_parts *parts;
    uint64_t ready_count, sent; /* counts at the last sample */
} mq_meter_queue_reader;

static inline int64_t mq_meter_sample_queue(mq_meter *m, mq_meter_queue_reader *q) {
    /* ready_count is the number of messages that ever became READY. Adding the counters of all handles is slower. Their
     * sum changes only if ready_count changes. */
    uint64_t ready = mq_load_acquire_u64(&q->parts->queue->ready_count);
    if (ready == q->ready_count)
        return 0;
    uint64_t sent = mq_queue_sum_sent_counts(q->parts->queue), found = sent > q->sent ? sent - q->sent : 0;
    int64_t now = mq_read_time_ns(m->virtual_ns);
    q->ready_count = ready, q->sent = sent;
    mq_meter_count_messages(m, now, found);
    return (int64_t)found;
}

/* Begin with the current counts of the queue. */
static inline void mq_meter_start_queue(mq_meter_queue_reader *q) {
    q->ready_count = mq_load_acquire_u64(&q->parts->queue->ready_count);
    q->sent = mq_queue_sum_sent_counts(q->parts->queue);
}

/* Add the waiting times of the messages that wait now. */
static inline void mq_meter_add_waiting_ages(mq_meter *m, const mq_meter_queue_reader *q) {
    mq_queue_pending_message pending;
    for (uint64_t slot = 0; slot < q->parts->max_messages; slot++)
        if (mq_peek_read_slot(q->parts, slot, &pending))
            mq_meter_add_delay(m, mq_meter_read_wall_clock_ns(m), pending.sent_time);
}

#endif
