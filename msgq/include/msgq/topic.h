/* Topics for C and C++: one publisher, any number of subscribers, the newest messages win. See docs/guides/c.md. */
#ifndef MSGQ_TOPIC_H
#define MSGQ_TOPIC_H

#include "msgq/common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct msgq_publisher msgq_publisher;
typedef struct msgq_subscriber msgq_subscriber;

/* Whether messages of a topic begin with stamps. */
enum { MSGQ_AS_IT_IS = 0, MSGQ_TRACKED = 1, MSGQ_UNTRACKED = 2 };

typedef struct {
    msgq_options open;         /* create is 0: topics are opened or made */
    uint32_t segment_size;     /* of the ring, bytes; 0: as it is, or 1 MiB. Another than what exists: -EEXIST */
    int conflate;              /* subscribers: only the newest message */
    int tracked;               /* publishers: settled before the first message; -EINVAL if it is otherwise */
    const msgq_schema *schema; /* publishers: what the messages mean, set anew; NULL: leave it */
} msgq_topic_options;

/* After a fork, a subscriber continues in the child at the same message, with its own row, from its first receive on.
 * A publisher takes over there at its first send, and the parent's next send returns -EADDRINUSE. Both return what open
 * may return as well, and then stay the parent's until the next call. */

/* Become the topic's publisher. The one before is told by -EADDRINUSE at its next send, and messages lie on. */
int msgq_publisher_open(msgq_publisher **publisher, const char *topic, const msgq_topic_options *options);

/* Publish a copy of the message; never waits. -EMSGSIZE: three of this size do not fit; -EADDRINUSE: another publisher
 * took over; -ESTALE: the ring was made smaller by a stock process; -ENOSPC: /dev/shm is full, and the ring has not had
 * all of its memory yet. Then nothing was sent. */
int msgq_publisher_send(msgq_publisher *publisher, const void *data, size_t size);

/* How many living subscribers are there, and how many of them have read all? Each may be NULL. */
int msgq_publisher_readers(msgq_publisher *publisher, int *attached, int *updated);

/* Leave; NULL is nothing. The messages stay for subscribers that are behind. */
void msgq_publisher_close(msgq_publisher *publisher);

/* Subscribe from now on. The topic is made if it is not there. */
int msgq_subscriber_open(msgq_subscriber **subscriber, const char *topic, const msgq_topic_options *options);

/* Copy the next message to `buffer`; returns its size. -EAGAIN (time-out 0) and -ETIMEDOUT: there is none; -EMSGSIZE:
 * it is larger than `room`, about->size says by how much, and it stays; -EPROTO: foreign bytes, the next call goes
 * on; -ESTALE: the ring was resized, close it and open it again. `about` may be NULL. */
int64_t msgq_subscriber_receive(msgq_subscriber *subscriber, void *buffer, size_t room, double timeout,
                                msgq_message *about);

/* Messages received and lost so far. Returns 1 if `lost` is a lower bound: a stock publisher wrote meanwhile. */
int msgq_subscriber_counts(const msgq_subscriber *subscriber, uint64_t *received, uint64_t *lost);

void msgq_subscriber_close(msgq_subscriber *subscriber);

#ifdef __cplusplus
}
#endif

#endif
