/* Channels for C and C++: many publishers, one order of messages, crash recovery. See docs/guides/c.md. */
#ifndef MSGQ_CHANNEL_H
#define MSGQ_CHANNEL_H

#include "msgq/common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct msgq_channel_publisher msgq_channel_publisher;
typedef struct msgq_channel_subscriber msgq_channel_subscriber;

typedef struct {
    msgq_options open;
    const char *node;  /* whose they are, for people; NULL: the process's name */
    uint32_t capacity; /* messages that stay for those who are slower, a power of two, 2 to 8192; 0: as it is, or 64 */
    int unstamped;     /* publishers, of a new channel: messages do not have the time when they were published */
    uint32_t slots;    /* publishers: so many; 0: as many as are fit */
    uint64_t slot_bytes;       /* publishers: of payload, at first; 0: 4096. A larger message makes a larger pool */
    uint64_t max_bytes;        /* publishers: of the pool; 0: 1 GiB */
    uint32_t history;          /* subscribers: begin so many messages before the present */
    int conflate;              /* subscribers: only the newest message */
    const msgq_schema *schema; /* what the messages mean, if nobody has said it */
} msgq_channel_options;

/* Publish from now on. -EEXIST: the channel has another capacity or no stamps; -ENFILE: it has as many publishers as
 * it may. */
int msgq_channel_publisher_open(msgq_channel_publisher **publisher, const char *channel,
                                const msgq_channel_options *options);

/* Publish a copy; returns its position in the order of all messages. It waits only for a slot, which all others hold by
 * views: -ENOBUFS (time-out 0), -ETIMEDOUT. -EMSGSIZE: it does not fit into max_bytes. Then nothing was sent. */
int64_t msgq_channel_send(msgq_channel_publisher *publisher, const void *data, size_t size, double timeout);

/* Leave; what was sent stays to be read. NULL is nothing. */
void msgq_channel_publisher_close(msgq_channel_publisher *publisher);

/* Subscribe. The channel is made if it is not there; the first publisher completes its configuration. */
int msgq_channel_subscriber_open(msgq_channel_subscriber **subscriber, const char *channel,
                                 const msgq_channel_options *options);

/* Copy the next message to `buffer`; returns its size. -EAGAIN (time-out 0), -ETIMEDOUT: there is none; -EMSGSIZE: it
 * is larger than `room`, about->size says by how much, and it stays; -EPROTO: foreign bytes, the next call goes on. */
int64_t msgq_channel_receive(msgq_channel_subscriber *subscriber, void *buffer, size_t room, double timeout,
                             msgq_message *about);

/* Messages received and lost so far. Each may be NULL. */
void msgq_channel_counts(const msgq_channel_subscriber *subscriber, uint64_t *received, uint64_t *lost);

void msgq_channel_subscriber_close(msgq_channel_subscriber *subscriber);

#ifdef __cplusplus
}
#endif

#endif
