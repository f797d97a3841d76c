/* Channels for C and C++: many publishers, the same order of messages for all subscribers, crash recovery. See
 * docs/guides/c.md. */
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
    const char *node; /* name of the participant, shown to users; NULL: the name of the process */
    /* number of messages kept for slow subscribers, a power of two from 2 to 8192; 0: the existing value, or 64 */
    uint32_t capacity;
    int unstamped;  /* publishers of a new channel: 1 if messages have no publish time */
    uint32_t slots; /* publishers: slots in the pool; 0: the default, capacity + 2 within 64 MiB */
    /* publishers: payload bytes of each slot in the first pool; 0: 4096. A larger message creates a pool with larger
     * slots */
    uint64_t slot_bytes;
    uint64_t max_bytes;        /* publishers: maximum size of the pool in bytes; 0: 1 GiB */
    uint32_t history;          /* subscribers: number of existing messages to receive first */
    int conflate;              /* subscribers: 1 to receive only the newest message */
    const msgq_schema *schema; /* schema of the messages, used if the channel has no schema yet */
} msgq_channel_options;

/* Open a publisher. Errors:
 * - -EEXIST: the channel has another capacity, or `unstamped` is 1 and the channel's messages have a publish time.
 * - -ENFILE: the channel has its maximum number of publishers. */
int msgq_channel_publisher_open(msgq_channel_publisher **publisher, const char *channel,
                                const msgq_channel_options *options);

/* Publish a copy of the message. Returns the position of the message in the order of all messages of the channel. The
 * call waits only while views of other processes hold all slots. After each of these errors, no message was sent:
 * - -ENOBUFS: views hold all slots, and the timeout is 0.
 * - -ETIMEDOUT: views held all slots until the timeout.
 * - -EMSGSIZE: the message does not fit into max_bytes.
 * - -ENOSPC: /dev/shm is full, and the slot does not have its memory yet. */
int64_t msgq_channel_send(msgq_channel_publisher *publisher, const void *data, size_t size, double timeout);

/* Wait until `messages` further messages overwrite no message that a subscriber has not received yet. `messages` is 1 to
 * the smaller of the capacity and the publisher's slots. With several publishers, give the number of messages that all
 * publishers send together until each of them waits again. The subscribers that count are those of `wait_for_room` in
 * docs/guides/channels.md. Errors:
 * - -EAGAIN: the channel has no room, and the timeout is 0.
 * - -ETIMEDOUT: the channel had no room until the timeout.
 * - -EINVAL: `messages` is 0 or too large. */
int msgq_channel_wait_for_room(msgq_channel_publisher *publisher, uint64_t messages, double timeout);

/* Close the publisher, whose messages stay readable. `publisher` may be NULL. */
void msgq_channel_publisher_close(msgq_channel_publisher *publisher);

/* Open a subscriber. The call creates the channel if needed, but the first publisher completes its configuration. */
int msgq_channel_subscriber_open(msgq_channel_subscriber **subscriber, const char *channel,
                                 const msgq_channel_options *options);

/* Copy the next message to `buffer`, and return its size in bytes. `info` may be NULL. After an error, the content of
 * `buffer` is undefined, because a publisher may have overwritten a message during its copy. Errors:
 * - -EAGAIN: the channel has no new message, and the timeout is 0.
 * - -ETIMEDOUT: no message arrived before the timeout.
 * - -EMSGSIZE: the message is larger than `buffer_bytes`. It stays unread, and info->size is its size.
 * - -EPROTO: the file has invalid data, after which the next call continues. */
int64_t msgq_channel_receive(msgq_channel_subscriber *subscriber, void *buffer, size_t buffer_bytes, double timeout,
                             msgq_message *info);

/* Store the number of messages received and lost. `received` and `lost` may be NULL. */
int msgq_channel_counts(const msgq_channel_subscriber *subscriber, uint64_t *received, uint64_t *lost);

void msgq_channel_subscriber_close(msgq_channel_subscriber *subscriber);

/* Remove a channel with its pools. Processes with open handles continue to use it, and a later open call creates another one.
 * `create` and `mode` of the options are ignored. Errors:
 * - -ENOENT: it does not exist.
 * - -EACCES or -EPERM: this user may not remove the files. */
int msgq_channel_remove(const char *channel, const msgq_options *options);

#ifdef __cplusplus
}
#endif

#endif
