/* A channel's subscriber. Compile as C11. */
#define _GNU_SOURCE
#include "c/channelfile.h"
#include "c/poll.h"

static const int64_t MQC_AGAIN_NS = MQ_NS_PER_S;
enum {
    MQC_POOLS_MAX = 256, /* maximum number of pools that one call tries to map */
    MQC_TORN_MAX = 1000,
};

struct msgq_channel_subscriber {
    mqc_channel_file file;
    mq_channel_subscriber c;
    mqc_mapped_file *pools[MQ_CHANNEL_PUBLISHERS];
    mq_channel_subscriber_rows rows;
    int64_t nap; /* nanoseconds to sleep before the subscriber announces itself for a wake; 0: announce at once */
};

/* Open the channel, and take a row if a row is free. */
static int mqc_subscriber_start(msgq_channel_subscriber *s, const msgq_channel_options *asked) {
    mqc_channel_file *file = &s->file;
    mq_process_identity self;
    mq_file_lock lock;
    mq_error error;
    int status = mqc_channel_file_open(file, asked, false, &lock);
    if (status)
        return status;
    mq_channel_files files = mqc_channel_files(file);
    status = mqc_read_own_identity(&self);
    if (!status && mq_channel_register_subscriber(&files, &lock, &self, mq_new_uid(), file->node, &s->rows, &error))
        status = mqc_report(&file->endpoint, &error);
    mqc_unlock_mapped_file(&lock);
    if (status)
        mqc_channel_file_close(file);
    s->c.row = s->rows.row;
    return status;
}

int msgq_channel_subscriber_open(msgq_channel_subscriber **subscriber, const char *channel,
                                 const msgq_channel_options *options) {
    static const msgq_channel_options defaults;
    const msgq_channel_options *asked = options ? options : &defaults;
    int status = mqc_check_pointers(subscriber, NULL, 0);
    if (status)
        return status;
    msgq_channel_subscriber *s = *subscriber = NULL;
    if (!(s = calloc(1, sizeof *s)))
        return mqc_set_error(ENOMEM, "no memory for a subscriber");
    status = mqc_channel_file_init(&s->file, channel, asked);
    if (!status)
        status = mqc_subscriber_start(s, asked);
    if (status) {
        free(s);
        return status;
    }
    s->c.header = s->file.header, s->c.not_truncated = s->file.segment.not_truncated;
    s->c.conflate = asked->conflate, s->c.history = asked->history;
    mq_channel_store_join_position(&s->c);
    mq_channel_subscriber_join(&s->c, true);
    *subscriber = s;
    return 0;
}

static void mqc_pool_unmap(msgq_channel_subscriber *s, unsigned row) {
    if (s->pools[row])
        mqc_unmap_file(s->pools[row]);
    free(s->pools[row]);
    s->pools[row] = NULL;
    s->c.pools[row] = (mq_pool_map){0};
}

void msgq_channel_subscriber_close(msgq_channel_subscriber *subscriber) {
    if (!subscriber)
        return;
    if (subscriber->file.generation == mqc_fork_generation())
        mq_channel_leave_rows(&subscriber->rows);
    for (unsigned row = 0; row < MQ_CHANNEL_PUBLISHERS; row++)
        mqc_pool_unmap(subscriber, row);
    mqc_channel_file_close(&subscriber->file);
    free(subscriber);
}

/* ---- find messages ---- */

/* Map a publisher's pool for reading. Returns -ENOENT if the file does not exist. */
static int mqc_pool_open(const mqc_channel_file *file, uint64_t uid, mqc_mapped_file *segment, mq_pool_map *slots) {
    mq_channel_files files = mqc_channel_files(file);
    mq_pool_file pool;
    mq_error error;
    char path[MQC_PATH];
    int status = mq_pool_open(&files, uid, false, &pool, &error);
    if (status)
        return status == -ENOENT ? status : mqc_report(&file->endpoint, &error);
    mq_pool_path(&files, uid, path);
    mqc_adopt_mapping(pool.mapping, path, segment);
    *slots = pool.slots;
    return 0;
}

/* Map the pool of the message. If the pool is missing and the index ring still has the message, the message is lost. */
static int mqc_pool_map(msgq_channel_subscriber *s, const mq_channel_message *message) {
    mq_pool_map slots;
    mqc_mapped_file *segment = calloc(1, sizeof *segment);
    if (!segment)
        return mqc_endpoint_error(&s->file.endpoint, ENOMEM, "no memory for a pool");
    int status = mqc_pool_open(&s->file, message->pool_uid, segment, &slots);
    if (!status) {
        mqc_pool_unmap(s, message->row);
        s->pools[message->row] = segment;
        s->c.pools[message->row] = slots;
        return 0;
    }
    free(segment);
    /* after these errors the message is not skipped, so the next call finds the message again */
    bool passes = status == -EMFILE || status == -ENFILE || status == -ENOMEM;
    if (!passes)
        mq_channel_skip_message(&s->c, message);
    return status == -ENOENT ? 0 : status;
}

/* Find the message at the cursor. Returns 1 with the message, 0 if the channel has no new message, or a negative
 * error. */
static int mqc_channel_next_message(msgq_channel_subscriber *s, mq_channel_message *message) {
    /* bound the loop, because each message may be in another pool */
    for (int pools = 0; pools < MQC_POOLS_MAX; pools++) {
        mq_channel_status found = mq_channel_next_message(&s->c, message);
        if (found == MQ_CHANNEL_OK)
            return 1;
        int status = mqc_check_truncation(&s->file.endpoint, &s->file.segment);
        if (found == MQ_CHANNEL_EMPTY || status)
            return status;
        if (found == MQ_CHANNEL_UNMAPPED) {
            if ((status = mqc_pool_map(s, message)))
                return status;
            continue;
        }
        mq_channel_skip_message(&s->c, message); /* the next call continues after the skipped message */
        return mqc_endpoint_error(&s->file.endpoint, EPROTO,
                                  "no message at position %llu: another program wrote into the file",
                                  (unsigned long long)message->position);
    }
    return 0; /* publishers replace messages as fast as this loop reads, so continue in the next call */
}

/* ---- wait ---- */

static bool mqc_channel_is_readable(void *reader) {
    msgq_channel_subscriber *s = reader;
    mq_channel_poll_state poll_state = {
        .header = s->c.header, .cursor = &s->c.cursor, .not_truncated = s->c.not_truncated};
    return mq_channel_subscriber_is_readable(&poll_state);
}
static uint32_t mqc_channel_prepare_wait(const void *reader, mq_u32 *eventcount) {
    const msgq_channel_subscriber *s = reader;
    return s->nap ? mq_load_acquire_u32(eventcount) : mq_eventcount_prepare_wait_mp(eventcount);
}
static void mqc_channel_end_wait(void *reader) { ((msgq_channel_subscriber *)reader)->nap = 0; }
static int64_t mqc_channel_max_sleep_ns(void *reader, int64_t slept_ns) {
    const msgq_channel_subscriber *s = reader;
    if (s->nap)
        return s->nap;
    return 2 * slept_ns > MQC_AGAIN_NS ? 2 * slept_ns : MQC_AGAIN_NS;
}

static mqc_waiter mqc_channel_begin_wait(msgq_channel_subscriber *s) {
    s->nap = mq_channel_compute_lapped_nap_ns(&s->c, mq_monotonic_ns());
    return (mqc_waiter){.is_readable = mqc_channel_is_readable,
                        .prepare_wait = mqc_channel_prepare_wait,
                        .end_wait = mqc_channel_end_wait,
                        .max_sleep_ns = mqc_channel_max_sleep_ns,
                        .word = &s->file.header->eventcount,
                        .reader = s,
                        .spin_ns = s->file.endpoint.spin_ns};
}

int mqc_channel_poll(msgq_channel_subscriber *s, mqc_waiter *waiter) {
    mq_channel_message message;
    int found = mqc_check_process(&s->file.endpoint, s->file.generation);
    found = found ? found : mqc_channel_next_message(s, &message);
    if (!found)
        *waiter = mqc_channel_begin_wait(s);
    return found;
}

/* Find the next message, and wait for a message if needed. Returns 1 with a message, or a negative error. */
static int mqc_channel_find(msgq_channel_subscriber *s, mq_channel_message *message, double timeout) {
    int found = mqc_channel_next_message(s, message);
    int64_t deadline = found || timeout == 0 ? 0 : mqc_deadline_ns(timeout);
    while (!found && timeout != 0) {
        mqc_waiter waiter = mqc_channel_begin_wait(s);
        int ready = mqc_wait_until_readable(&waiter, 1, deadline);
        found = ready < 0 ? ready : mqc_channel_next_message(s, message);
        if (!found && (!ready || (deadline >= 0 && mq_monotonic_ns() >= deadline)))
            break; /* the deadline has passed without a message, because a retracted message does not count */
    }
    return found ? found
                 : mqc_endpoint_error(&s->file.endpoint, timeout == 0 ? EAGAIN : ETIMEDOUT, "no message available");
}

static void mqc_channel_describe_message(const msgq_channel_subscriber *s, const mq_channel_message *message,
                                         msgq_message *info) {
    const mq_pool_header *pool = s->c.pools[message->row].pool_header;
    *info = (msgq_message){.size = message->length,
                           .publish_time = (int64_t)message->publish_time,
                           .origin_time = (int64_t)message->origin_time,
                           .position = message->position,
                           .publisher_pid = (int)mq_load_relaxed_u64(&pool->pid)}; /* relaxed: constant; for people */
    mq_copy_from_shared(info->publisher, pool->node, sizeof info->publisher - 1);
}

int64_t msgq_channel_receive(msgq_channel_subscriber *subscriber, void *buffer, size_t buffer_bytes, double timeout,
                             msgq_message *info) {
    int status = mqc_check_pointers(subscriber, buffer, buffer_bytes);
    if (mq_unlikely(status))
        return status;
    mqc_channel_file *file = &subscriber->file;
    mq_channel_message message;
    buffer = buffer ? buffer : mqc_no_bytes;
    status = mqc_check_process(&file->endpoint, file->generation);
    /* Bound: MQC_TORN_MAX overwritten copies. A call with a negative timeout has no bound. */
    for (int torn = 0; !status && (status = mqc_channel_find(subscriber, &message, timeout)) > 0; torn++) {
        if (torn == MQC_TORN_MAX && timeout >= 0)
            return mqc_endpoint_error(
                &file->endpoint, timeout == 0 ? EAGAIN : ETIMEDOUT,
                "each message was overwritten while it was copied; give the channel a larger capacity");
        if (info)
            mqc_channel_describe_message(subscriber, &message, info);
        if (message.length > buffer_bytes)
            return mqc_endpoint_error(&file->endpoint, EMSGSIZE,
                                      "message has %llu bytes, but the buffer has %zu; the message stays",
                                      (unsigned long long)message.length, buffer_bytes);
        mq_copy_from_shared(buffer, mq_pool_slot_payload(message.slot), message.length);
        status = mqc_check_truncation(&file->endpoint, subscriber->pools[message.row]);
        if (status)
            mq_channel_skip_message(&subscriber->c, &message);
        else if (mq_channel_accept_entry(&subscriber->c, &message))
            return (int64_t)message.length;
    }
    return status;
}

int msgq_channel_counts(const msgq_channel_subscriber *subscriber, uint64_t *received, uint64_t *lost) {
    int status = mqc_check_pointers(subscriber, NULL, 0);
    if (status)
        return status;
    if (received)
        *received = subscriber->c.received;
    if (lost)
        *lost = subscriber->c.lost;
    return 0;
}
