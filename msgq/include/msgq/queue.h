/* Work queues for C and C++: each message goes to one consumer, the highest priority first. See docs/guides/c.md. */
#ifndef MSGQ_QUEUE_H
#define MSGQ_QUEUE_H

#include "msgq/common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct msgq_queue msgq_queue;

/* What all handles of a queue publish of its messages, on the channel "NAME:events" (docs/guides/queues.md, "Events"). Whoever
 * makes the queue decides. */
enum {
    MSGQ_EVENTS_AS_IS = 0,   /* as it is, or nothing */
    MSGQ_EVENTS = 1,         /* an event of each thing that happens to one */
    MSGQ_EVENTS_PAYLOAD = 2, /* the same, with the payload in that of sending */
};

typedef struct {
    msgq_options open;
    uint32_t max_messages;     /* 1 to 65536; 0: as it is, or 128. Another than what exists: -EEXIST */
    uint32_t max_message_size; /* 1 to 2^30 bytes; 0: as it is, or 8192. The same */
    const msgq_schema *schema; /* what the messages mean, if nobody has said it */
    int events; /* MSGQ_EVENTS_AS_IS, MSGQ_EVENTS, MSGQ_EVENTS_PAYLOAD; another than what exists: -EEXIST */
} msgq_queue_options;

/* A message that was taken, until it is acknowledged or returned. Its fields are the library's. */
typedef struct {
    uint64_t slot, key, word, length, deliveries, sent_time, origin_time;
    int64_t taken_time;
} msgq_job;

/* -ENFILE: 128 handles are open. Of a queue with events the handle publishes what it does, by a publisher of its own
 * that the first such call opens; an event that cannot be published is counted (msgq.stats), and no call fails for it. */
int msgq_queue_open(msgq_queue **queue, const char *name, const msgq_queue_options *options);

/* Send a copy, of priority 0 to 32767, waiting for room. -EAGAIN (time-out 0), -ETIMEDOUT: there was none, and
 * nothing was sent; -EMSGSIZE: larger than max_message_size. */
int msgq_queue_send(msgq_queue *queue, const void *data, size_t size, int priority, double timeout);

/* Receive the next message: it is this call's, for good. Returns its size. -EAGAIN (time-out 0), -ETIMEDOUT: there is
 * none; -EMSGSIZE: it is larger than `room`, and stays in the queue. `about` may be NULL. */
int64_t msgq_queue_receive(msgq_queue *queue, void *buffer, size_t room, double timeout, msgq_message *about);

/* The same, but it comes back to the queue unless it is acknowledged: when `lease` seconds are over (0: no such
 * limit), when the handle is closed, when the process dies. */
int64_t msgq_queue_take(msgq_queue *queue, void *buffer, size_t room, double timeout, double lease, msgq_job *job,
                        msgq_message *about);

/* A job is done. -ESTALE: it had come back meanwhile, and somebody else may have it; -EINVAL: it is over, or none. */
int msgq_queue_acknowledge(msgq_queue *queue, msgq_job *job);

/* Give a job back to its place in the order. */
int msgq_queue_return(msgq_queue *queue, msgq_job *job);

/* How many messages wait. */
int64_t msgq_queue_waiting(msgq_queue *queue);

/* Jobs that are open go back. NULL is nothing. The queue stays. */
void msgq_queue_close(msgq_queue *queue);

#ifdef __cplusplus
}
#endif

#endif
