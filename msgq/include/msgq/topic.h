/* Topics for C and C++: one publisher, any number of subscribers, and new messages that overwrite the oldest ones. See
 * docs/guides/c.md. */
#ifndef MSGQ_TOPIC_H
#define MSGQ_TOPIC_H

#include "msgq/common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct msgq_publisher msgq_publisher;
typedef struct msgq_subscriber msgq_subscriber;

/* Values of msgq_topic_options.tracked. Messages of a tracked topic begin with timestamps. */
enum { MSGQ_TRACKING_UNCHANGED = 0, MSGQ_TRACKED = 1, MSGQ_UNTRACKED = 2 };

typedef struct {
    msgq_options open; /* `create` must be 0: the calls open or create the topic */
    /* bytes of the ring; 0: the existing size, or 1 MiB for a new ring. The open call returns -EEXIST if the ring has
     * another size */
    uint32_t segment_size;
    int conflate; /* subscribers: 1 to receive only the newest message */
    /* publishers: 1 to track the topic. The setting is fixed once the topic has a message. If the topic has the other
     * setting, the open call returns -EINVAL */
    int tracked;
    /* publishers: schema of the messages, which replaces an existing schema; NULL: keep the existing schema */
    const msgq_schema *schema;
} msgq_topic_options;

/* Handles of topics continue after a fork. In the child, a subscriber continues at the same message and takes its own
 * row at its first receive. A publisher takes over the topic at its first send in the child, so that the parent's next
 * send returns -EADDRINUSE. The first receive or send in the child may also return any error of the open call. The
 * handle then still belongs to the parent, and the next call tries again. */

/* Become the publisher of the topic. The previous publisher's next send returns -EADDRINUSE, while messages already in
 * the ring stay readable. */
int msgq_publisher_open(msgq_publisher **publisher, const char *topic, const msgq_topic_options *options);

/* Publish a copy of the message. The call never waits. After each of these errors, no message was sent:
 * - -EMSGSIZE: three messages of this size do not fit into the ring.
 * - -EADDRINUSE: another publisher took over.
 * - -ESTALE: a stock process truncated the ring.
 * - -ENOSPC: /dev/shm is full, and the ring does not have all of its memory yet. */
int msgq_publisher_send(msgq_publisher *publisher, const void *data, size_t size);

/* Store the number of living subscribers in `attached`, and the number of those that have read all messages in
 * `updated`. Of more than 128 subscribers, the others count as one that has not read all. `attached` and `updated` may
 * be NULL. */
int msgq_publisher_readers(msgq_publisher *publisher, int *attached, int *updated);

/* Close the publisher, whose messages subscribers can still read. `publisher` may be NULL. */
void msgq_publisher_close(msgq_publisher *publisher);

/* Open a subscriber, which receives messages that are published from now on. The call creates the topic if needed. */
int msgq_subscriber_open(msgq_subscriber **subscriber, const char *topic, const msgq_topic_options *options);

/* Copy the next message to `buffer`, and return its size in bytes. `info` may be NULL. After an error, the content of
 * `buffer` is undefined, because a publisher may have lapped the subscriber before or during a copy. Errors:
 * - -EAGAIN: the topic has no new message, and the timeout is 0.
 * - -ETIMEDOUT: no message arrived before the timeout.
 * - -EMSGSIZE: the message is larger than `buffer_bytes`. It stays unread, and info->size is its size.
 * - -EPROTO: the file has invalid data, after which the next call continues.
 * - -ESTALE: the ring was resized. Close the subscriber and open it again. */
int64_t msgq_subscriber_receive(msgq_subscriber *subscriber, void *buffer, size_t buffer_bytes, double timeout,
                                msgq_message *info);

/* Store the number of messages received and lost. `received` and `lost` may be NULL. Returns 1 if `lost` is only a
 * lower bound, else 0. It is a lower bound if a stock publisher, which does not count messages, published some of the
 * lost ones. */
int msgq_subscriber_counts(const msgq_subscriber *subscriber, uint64_t *received, uint64_t *lost);

void msgq_subscriber_close(msgq_subscriber *subscriber);

/* Remove a topic. Processes with open handles continue to use it, and a later open call creates another one.
 * `create` and `mode` of the options are ignored. Errors:
 * - -ENOENT: it does not exist.
 * - -EACCES or -EPERM: this user may not remove the files. */
int msgq_topic_remove(const char *topic, const msgq_options *options);

#ifdef __cplusplus
}
#endif

#endif
