/* Work queues for C and C++: each message goes to one consumer, and messages with the highest priority go first. See
 * docs/guides/c.md. */
#ifndef MSGQ_QUEUE_H
#define MSGQ_QUEUE_H

#include "msgq/common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct msgq_queue msgq_queue;

/* Events that all handles of a queue publish on the channel "NAME:events" (docs/guides/queues.md, "Events"). The
 * process that creates the queue selects one of these values. */
enum {
    MSGQ_EVENTS_UNCHANGED = 0, /* the existing value; a new queue publishes no events */
    MSGQ_EVENTS = 1,           /* one event for each change of a message */
    MSGQ_EVENTS_PAYLOAD = 2,   /* one event for each change of a message; the event of a send includes the payload */
};

typedef struct {
    msgq_options open;
    /* maximum number of messages, 1 to 65536; 0: the existing value, or 128. The open call returns -EEXIST if the queue
     * has another value. A queue that was opened without sizes and events takes the sizes of the first handle that
     * requests one of them, or the defaults at the first send */
    uint32_t max_messages;
    /* maximum bytes of a message, 1 to 2^30; 0: the existing value, or 8192. The open call returns -EEXIST if the queue
     * has another value */
    uint32_t max_message_size;
    const msgq_schema *schema; /* schema of the messages, used if the queue has no schema yet */
    /* MSGQ_EVENTS_UNCHANGED, MSGQ_EVENTS or MSGQ_EVENTS_PAYLOAD. The open call returns -EEXIST if the queue has another
     * value */
    int events;
} msgq_queue_options;

/* A job: a message that was taken, but not yet acknowledged or returned. Only the library uses the fields. */
typedef struct {
    uint64_t slot, key, word, length, deliveries, sent_time, origin_time;
    int64_t taken_time;
} msgq_job;

/* Open a queue. Returns -ENFILE if the queue already has 128 open handles. In a queue with events, the handle opens an
 * event publisher at its first call that publishes an event. When an event cannot be published, a counter is
 * incremented (msgq.stats), but the call succeeds. */
int msgq_queue_open(msgq_queue **queue, const char *name, const msgq_queue_options *options);

/* Send a copy of the message with a priority from 0 to 32767. The call waits while the queue is full. After each of
 * these errors, no message was sent:
 * - -EAGAIN: the queue is full, and the timeout is 0.
 * - -ETIMEDOUT: the queue was full until the timeout.
 * - -EMSGSIZE: the message is larger than max_message_size. */
int msgq_queue_send(msgq_queue *queue, const void *data, size_t size, int priority, double timeout);

/* Send a message with a delay in seconds, 0 to 2147483. No consumer can take the message before the delay has passed,
 * but it already occupies a slot. Otherwise as msgq_queue_send. */
int msgq_queue_send_delayed(msgq_queue *queue, const void *data, size_t size, int priority, double timeout,
                            double delay);

/* Receive the next message, remove it from the queue, and return its size in bytes. `info` may be NULL. Errors:
 * - -EAGAIN: the queue has no message, and the timeout is 0.
 * - -ETIMEDOUT: no message arrived before the timeout.
 * - -EMSGSIZE: the message is larger than `buffer_bytes`. It stays in the queue. */
int64_t msgq_queue_receive(msgq_queue *queue, void *buffer, size_t buffer_bytes, double timeout, msgq_message *info);

/* Receive the next message as a job. Unless you acknowledge the job, the message returns to the queue when `lease`
 * seconds have passed (0: no limit), when the handle is closed, or when the process dies. For errors, see
 * msgq_queue_receive. */
int64_t msgq_queue_take(msgq_queue *queue, void *buffer, size_t buffer_bytes, double timeout, double lease,
                        msgq_job *job, msgq_message *info);

/* Acknowledge a job: the message leaves the queue. Returns -ESTALE if the message already returned to the queue, where
 * another consumer may have taken it. Returns -EINVAL if `job` is finished, or was never taken. */
int msgq_queue_acknowledge(msgq_queue *queue, msgq_job *job);

/* Return the message of a job to its previous position in the queue. */
int msgq_queue_return(msgq_queue *queue, msgq_job *job);

/* Return the message of a job to its previous position in the queue after a delay in seconds, 0 to 2147483. */
int msgq_queue_return_delayed(msgq_queue *queue, msgq_job *job, double delay);

/* Store the maximum number of messages, and the maximum bytes of a message, because other programs may have created
 * the queue with sizes that you do not know. `max_messages` and `max_message_size` may be NULL. For a queue without
 * sizes, the call stores the sizes that the handle's first send would choose. */
int msgq_queue_sizes(msgq_queue *queue, uint32_t *max_messages, uint32_t *max_message_size);

/* Return the number of messages that wait in the queue. */
int64_t msgq_queue_waiting(msgq_queue *queue);

/* Close the handle, and return its open jobs to the queue, which remains. `queue` may be NULL. */
void msgq_queue_close(msgq_queue *queue);

/* Remove a queue with its events. Processes with open handles continue to use it, and a later open call creates another one.
 * `create` and `mode` of the options are ignored. Errors:
 * - -ENOENT: it does not exist.
 * - -EACCES or -EPERM: this user may not remove the files. */
int msgq_queue_remove(const char *queue, const msgq_options *options);

#ifdef __cplusplus
}
#endif

#endif
