/* A topic's subscriber. Compile as C11. */
#define _GNU_SOURCE
#include "c/poll.h"
#include "c/topicfile.h"
#include "ring/next_message.h"
#include "ring/seek.h"
#include "ring/signal_thread.h"

/* poll interval without the helper thread. Without the helper thread, only polls find messages of stock publishers */
static const int64_t MQC_STOCK_POLL_NS = 50 * MQ_NS_PER_MS;
/* poll interval without a reader slot. A stock publisher signals only subscribers with a reader slot */
static const int64_t MQC_SLOTLESS_NS = MQ_NS_PER_MS;
static const int64_t MQC_LOOK_AGAIN_NS = MQ_NS_PER_S;

struct msgq_subscriber {
    mqc_topic_files *topic;
    mq_ring_subscriber s;
    bool conflate, watched, watch_failed;
    int generation;
};

static void mqc_subscriber_map(mq_ring_subscriber *s, const mqc_topic_files *t) {
    s->ring = mq_topic_ring(&t->files);
    s->side = mq_topic_side(&t->files);
    s->liveness_file = &t->liveness_file;
    s->data = t->files.ring->address + MQ_RING_HEADER;
    s->canary = t->files.canary;
    s->path = t->ring_path;
    s->inode = t->files.ring->inode;
    s->data_bytes = mq_topic_data_bytes(&t->files);
}

static int mqc_subscriber_join(msgq_subscriber *subscriber) {
    mqc_topic_files *t = subscriber->topic;
    mq_ring_subscriber *s = &subscriber->s;
    mq_process_identity self;
    int status = mqc_read_own_identity(&self);
    if (status)
        return status;
    mqc_subscriber_map(s, t);
    if (mq_ring_subscriber_join(s, &self, mq_random_u32()) == MQ_RING_OK)
        return 0;
    mq_ring_subscriber_leave(s);
    return mqc_topic_start_error(t);
}

int msgq_subscriber_open(msgq_subscriber **subscriber, const char *topic, const msgq_topic_options *options) {
    static const msgq_topic_options defaults;
    const msgq_topic_options *asked = options ? options : &defaults;
    int status = mqc_check_pointers(subscriber, NULL, 0);
    if (status)
        return status;
    msgq_subscriber *made = *subscriber = NULL;
    if (!(made = calloc(1, sizeof *made)))
        return mqc_set_error(ENOMEM, "no memory for a subscriber");
    made->generation = mqc_fork_generation();
    made->conflate = asked->conflate;
    status = mqc_topic_files_open(&made->topic, topic, asked);
    if (!status) {
        status = mqc_subscriber_join(made);
        mq_topic_unlock(&made->topic->files);
    }
    if (status) {
        mqc_topic_files_close(made->topic);
        free(made);
        return status;
    }
    *subscriber = made;
    return 0;
}

/* In a forked child, take a row and a reader slot, and continue at the same cursor. */
static int mqc_subscriber_rejoin(msgq_subscriber *subscriber) {
    mqc_topic_files *inherited = subscriber->topic, *topic;
    mq_ring_subscriber *s = &subscriber->s;
    mq_process_identity self;
    int status = mqc_read_own_identity(&self);
    if (!status)
        status = mqc_topic_files_reopen_in_child(&topic, inherited);
    if (status)
        return status;
    mq_ring_subscriber_detach_row(s);
    /* If the topic was removed or truncated, new publishers do not see this subscriber. The subscriber still reads the
     * mapped ring. */
    bool same = topic->files.ring->inode == inherited->files.ring->inode && mq_canary_is_intact(&s->canary);
    if (same)
        mqc_subscriber_map(s, topic);
    mq_ring_subscriber_rejoin(s, &self, mq_random_u32());
    mq_topic_unlock(&topic->files);
    subscriber->topic = same ? topic : inherited;
    subscriber->watched = subscriber->watch_failed = false;
    subscriber->generation = mqc_fork_generation();
    mqc_topic_files_close(same ? inherited : topic);
    return 0;
}

/* ---- wait for messages ---- */

static bool mqc_subscriber_is_readable(void *reader) {
    return mq_ring_subscriber_is_readable(&((msgq_subscriber *)reader)->s);
}

/* Let msgq publishers and stock publishers wake this subscriber. Returns the longest sleep in nanoseconds. */
static int64_t mqc_subscriber_max_sleep_ns(void *reader, int64_t slept_ns) {
    msgq_subscriber *subscriber = reader;
    mq_ring_subscriber *s = &subscriber->s;
    if (!subscriber->watched && !subscriber->watch_failed) {
        subscriber->watched =
            mq_signal_thread_watch_ring(s, s->ring, s->side, s->canary, subscriber->topic->ring_path, s->publisher_uid);
        subscriber->watch_failed = !subscriber->watched;
    }
    mq_ring_subscriber_recheck_publisher(s);
    uint32_t helper = !s->announces_limit && subscriber->watched ? mq_signal_thread_id() : 0;
    if (helper && s->signal_thread != helper)
        mq_ring_subscriber_route_signals(s, helper);
    if (!s->announces_limit && s->slot < 0)
        return MQC_SLOTLESS_NS;
    int64_t longer = 2 * slept_ns > MQC_LOOK_AGAIN_NS ? 2 * slept_ns : MQC_LOOK_AGAIN_NS;
    return subscriber->watched ? longer : MQC_STOCK_POLL_NS;
}

static mqc_waiter mqc_subscriber_waiter(msgq_subscriber *subscriber) {
    return (mqc_waiter){.is_readable = mqc_subscriber_is_readable,
                        .prepare_wait = mq_poll_prepare_wait,
                        .max_sleep_ns = mqc_subscriber_max_sleep_ns,
                        .word = mq_ring_subscriber_eventcount(&subscriber->s),
                        .reader = subscriber,
                        .spin_ns = subscriber->topic->endpoint.spin_ns};
}

/* Map the ring again if it has grown, and continue at the cursor. Returns 1 after a new mapping, and 0 without one. */
static int mqc_subscriber_remap(msgq_subscriber *subscriber) {
    mq_ring_subscriber *s = &subscriber->s;
    bool present = mq_canary_is_nonzero(&s->canary);
    uint32_t former_bytes = s->data_bytes;
    mq_signal_thread_unwatch_ring(s); /* the helper thread uses the former mapping */
    subscriber->watched = false;
    int remapped = mqc_topic_files_remap(subscriber->topic);
    if (remapped == 1) {
        mqc_subscriber_map(s, subscriber->topic);
        mq_ring_subscriber_continue_in_grown_ring(s, former_bytes, present);
    } else if (remapped == 0 && mq_canary_is_intact(&s->canary)) {
        mq_ring_subscriber_classify_publisher(s); /* the file may have grown and shrunk */
    }
    return remapped;
}

/* Handle invalid bytes at the cursor. Returns 0 if the ring has grown: try again. Otherwise returns an error. */
static int mqc_subscriber_corrupt(msgq_subscriber *subscriber) {
    mq_ring_subscriber *s = &subscriber->s;
    uint64_t cursor = s->cursor;
    int remapped = mqc_subscriber_remap(subscriber);
    if (remapped)
        return remapped == 1 ? 0 : remapped;
    if (!mq_ring_subscriber_mapping_valid(s))
        return mqc_topic_truncation_error(subscriber->topic);
    mq_ring_subscriber_recover_from_lap(s); /* recover, so that the next call can read later valid messages */
    return mqc_endpoint_error(&subscriber->topic->endpoint, EPROTO,
                              "no message at offset %u, lap %u: another program wrote into the ring",
                              mq_ring_offset(cursor), mq_ring_cycle(cursor));
}

int mqc_subscriber_poll(msgq_subscriber *subscriber, mqc_waiter *waiter) {
    mq_ring_message message;
    int status = mqc_is_forked(subscriber->generation) ? mqc_subscriber_rejoin(subscriber) : 0;
    while (!status) {
        mq_ring_status found = mq_ring_subscriber_next_intact_message(&subscriber->s, subscriber->conflate, &message);
        if (found == MQ_RING_EMPTY)
            *waiter = mqc_subscriber_waiter(subscriber);
        if (found != MQ_RING_CORRUPT)
            return found == MQ_RING_OK;
        status = mqc_subscriber_corrupt(subscriber);
    }
    return status;
}

/* ---- receive ---- */

/* Find the message at the cursor. Returns 0 with the message, or a negative error. */
static int mqc_subscriber_find(msgq_subscriber *subscriber, mq_ring_message *message, double timeout) {
    int64_t deadline = 0;
    for (;;) {
        mq_ring_status status = mq_ring_subscriber_next_message(&subscriber->s, subscriber->conflate, message);
        if (status == MQ_RING_OK)
            return 0;
        int error = status == MQ_RING_EMPTY ? 0 : mqc_subscriber_corrupt(subscriber);
        if (error)
            return error;
        if (status != MQ_RING_EMPTY)
            continue;
        if (timeout == 0)
            return mqc_endpoint_error(&subscriber->topic->endpoint, EAGAIN, "no message available");
        deadline = deadline ? deadline : mqc_deadline_ns(timeout);
        mqc_waiter waiter = mqc_subscriber_waiter(subscriber);
        int ready = mqc_wait_until_readable(&waiter, 1, deadline);
        if (ready < 0)
            return ready;
        if (!ready)
            return mqc_endpoint_error(&subscriber->topic->endpoint, ETIMEDOUT, "no message within %g s", timeout);
    }
}

/* Validate a message that does not fit into the buffer. Returns 0 if the message was overwritten or the ring has grown.
 * Then try again. */
static int mqc_subscriber_too_large(msgq_subscriber *subscriber, const mq_ring_message *message, size_t buffer_bytes) {
    mq_ring_status status = mq_ring_subscriber_revalidate_cursor(&subscriber->s);
    if (status == MQ_RING_EMPTY)
        return 0;
    if (status != MQ_RING_OK)
        return mqc_subscriber_corrupt(subscriber);
    return mqc_endpoint_error(&subscriber->topic->endpoint, EMSGSIZE,
                              "message has %llu bytes, but the buffer has %zu; the message stays",
                              (unsigned long long)message->size, buffer_bytes);
}

int64_t msgq_subscriber_receive(msgq_subscriber *subscriber, void *buffer, size_t buffer_bytes, double timeout,
                                msgq_message *info) {
    int status = mqc_check_pointers(subscriber, buffer, buffer_bytes);
    if (mq_unlikely(status))
        return status;
    mq_ring_subscriber *s = &subscriber->s;
    mq_ring_message message = {0}; /* gcc -O1 does not see that mqc_subscriber_find fills it */
    buffer = buffer ? buffer : mqc_no_bytes;
    if (mq_unlikely(mqc_is_forked(subscriber->generation)))
        status = mqc_subscriber_rejoin(subscriber);
    while (!status && !(status = mqc_subscriber_find(subscriber, &message, timeout))) {
        mq_stamps stamps = {0, 0};
        if (mq_unlikely(message.size > buffer_bytes)) {
            if (info)
                *info = (msgq_message){.size = message.size};
            status = mqc_subscriber_too_large(subscriber, &message, buffer_bytes);
            continue;
        }
        mq_copy_from_shared(buffer, message.payload, message.size);
        if (s->stamps)
            mq_stamps_read(&stamps, message.payload);
        if (mq_likely(mq_ring_subscriber_accept_copy(s, &message))) {
            if (info)
                *info = (msgq_message){
                    .size = message.size, .publish_time = stamps.publish_time, .origin_time = stamps.origin_time};
            return (int64_t)message.size;
        }
        /* the publisher overwrote the message during the copy */
        if (!subscriber->conflate && mq_ring_subscriber_recover_from_lap(s) != MQ_RING_OK)
            status = mqc_subscriber_corrupt(subscriber);
    }
    return status;
}

int msgq_subscriber_counts(const msgq_subscriber *subscriber, uint64_t *received, uint64_t *lost) {
    int status = mqc_check_pointers(subscriber, NULL, 0);
    if (status)
        return status;
    if (received)
        *received = subscriber->s.received;
    if (lost)
        *lost = subscriber->s.lost;
    return subscriber->s.lost_unknown;
}

void msgq_subscriber_close(msgq_subscriber *subscriber) {
    if (!subscriber)
        return;
    if (!mqc_is_forked(subscriber->generation)) {
        mq_signal_thread_unwatch_ring(&subscriber->s);
        mq_ring_subscriber_leave(&subscriber->s);
    }
    mqc_topic_files_close(subscriber->topic);
    free(subscriber);
}
