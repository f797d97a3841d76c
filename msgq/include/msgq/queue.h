/* Work queues for C and C++: each message goes to one consumer, the highest priority first. See docs/guides/c.md. */
#ifndef MSGQ_QUEUE_H
#define MSGQ_QUEUE_H

#include "msgq/common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct msgq_queue msgq_queue;

/* Events that all handles of a queue publish on the channel "NAME:events" (docs/guides/queues.md, "Events"). The
 * process that creates the queue selects the value. */
enum {
    MSGQ_EVENTS_AS_IS = 0,   /* the existing value; a new queue publishes none */
    MSGQ_EVENTS = 1,         /* one event for each change of a message */
    MSGQ_EVENTS_PAYLOAD = 2, /* the same, and the event of a send has the payload */
};

typedef struct {
    msgq_options open;
    /* 1 to 65536 messages; 0: the existing value, or 128. -EEXIST if the queue has another value */
    uint32_t max_messages;
    /* 1 to 2^30 bytes; 0: the existing value, or 8192. -EEXIST if the queue has another value */
    uint32_t max_message_size;
    const msgq_schema *schema; /* schema of the messages, used if the queue has none yet */
    int events; /* MSGQ_EVENTS_AS_IS, MSGQ_EVENTS, MSGQ_EVENTS_PAYLOAD. -EEXIST if the queue has another value */
} msgq_queue_options;

/* A message between msgq_queue_take and its acknowledgement or return. Only the library uses the fields. */
typedef struct {
    uint64_t slot, key, word, length, deliveries, sent_time, origin_time;
    int64_t taken_time;
} msgq_job;

/* Open a queue. Returns -ENFILE if 128 handles are open. If the queue has events, the handle opens an event publisher
 * at its first call that publishes an event. An event that cannot be published is counted (msgq.stats) and fails no
 * call. */
int msgq_queue_open(msgq_queue **queue, const char *name, const msgq_queue_options *options);

/* Send a copy of the message with a priority from 0 to 32767. Waits while the queue is full. Errors, after which
 * nothing was sent: -EAGAIN (queue full and timeout 0), -ETIMEDOUT (queue full until the timeout), -EMSGSIZE (larger
 * than max_message_size). */
int msgq_queue_send(msgq_queue *queue, const void *data, size_t size, int priority, double timeout);

/* Receive the next message and remove it from the queue. Returns its size in bytes. `about` may be NULL. Errors:
 * -EAGAIN (no message and timeout 0), -ETIMEDOUT (no message before the timeout), -EMSGSIZE (larger than `room`; the
 * message stays in the queue). */
int64_t msgq_queue_receive(msgq_queue *queue, void *buffer, size_t room, double timeout, msgq_message *about);

/* Receive the next message as a job, which returns to the queue unless you acknowledge it. The job returns when `lease`
 * seconds have passed (0: no limit), when the handle is closed, or when the process dies. Errors: see
 * msgq_queue_receive. */
int64_t msgq_queue_take(msgq_queue *queue, void *buffer, size_t room, double timeout, double lease, msgq_job *job,
                        msgq_message *about);

/* Acknowledge a job: the message leaves the queue. Returns -ESTALE if the job had returned to the queue, and perhaps
 * has another consumer. Returns -EINVAL if `job` is finished, or is not a job. */
int msgq_queue_acknowledge(msgq_queue *queue, msgq_job *job);

/* Return a job to its former position in the queue. */
int msgq_queue_return(msgq_queue *queue, msgq_job *job);

/* Return the number of waiting messages. */
int64_t msgq_queue_waiting(msgq_queue *queue);

/* Close the handle, and return its open jobs to the queue. The queue remains. NULL is allowed. */
void msgq_queue_close(msgq_queue *queue);

#ifdef __cplusplus
}
#endif

#endif
