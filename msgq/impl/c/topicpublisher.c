/* A topic's publisher. Compile as C11. */
#define _GNU_SOURCE
#include "c/topicfile.h"
#include "base/origin.h"

enum {
    MQC_STOCK_SEND_US = 2000,
    MQC_CHECK_US = 50,
};
static const int64_t MQC_SEND_IN_PROGRESS_NS = MQ_NS_PER_S;

struct msgq_publisher {
    mqc_topic_files *topic;
    mq_ring_publisher p;
    int64_t clock_offset;
    int tracked, generation;
};

static int mqc_tracking_mismatch_error(const mqc_topic_files *t) {
    return mqc_endpoint_error(&t->endpoint, EINVAL,
                              "is %stracked, which cannot change after the first message; use that setting",
                              mq_ring_side_is_tracked(mq_topic_side(&t->files)) ? "" : "not ");
}

/* Wait for the end of the previous publisher's send. The previous publisher sees the new write_uid and starts no other
 * send. */
static int mqc_wait_for_previous_send(msgq_publisher *publisher, uint64_t former) {
    mq_ring_publisher *p = &publisher->p;
    const mq_ring_publisher_row *busy;
    int64_t deadline = mq_monotonic_ns() + MQC_SEND_IN_PROGRESS_NS;
    bool late = false; /* computed once in each round, so that both uses of the value in a round agree */
    bool stock_publisher_lives = p->after_stock && mq_thread_liveness(mq_ring_uid_thread_id(former)) != MQ_DEAD;
    /* A stock publisher announces no sends. Without membarrier, the announcement of a send may become visible late.
     * Wait long enough for one send, which takes microseconds. */
    if (stock_publisher_lives || p->unordered)
        usleep(MQC_STOCK_SEND_US);
    while ((busy = mq_ring_find_sending_publisher(p, late))) {
        if (late)
            return mqc_endpoint_error(&publisher->topic->endpoint, EADDRINUSE, "process %llu has been sending for 1 s",
                                      (unsigned long long)mq_ring_publisher_pid(busy));
        usleep(MQC_CHECK_US);
        late = mq_monotonic_ns() > deadline;
    }
    return 0;
}

static void mqc_publisher_fill(msgq_publisher *publisher) {
    const int tracked = publisher->tracked;
    mqc_topic_files *t = publisher->topic;
    publisher->p = (mq_ring_publisher){
        .ring = mq_topic_ring(&t->files),
        .side = mq_topic_side(&t->files),
        .liveness_file = &t->liveness_file,
        .data = t->files.ring->address + MQ_RING_HEADER,
        .canary = t->files.canary,
        .data_bytes = mq_topic_data_bytes(&t->files),
        .needs_fence = !mqc_orders_stores(),
        .track = tracked == MSGQ_TRACKED ? MQ_TRACK_YES
                 : tracked               ? MQ_TRACK_NO
                                         : MQ_TRACK_UNCHANGED,
    };
}

/* Become the publisher of the topic, under the lock. */
static int mqc_publisher_start(msgq_publisher *publisher) {
    mqc_topic_files *t = publisher->topic;
    mq_ring_publisher *p = &publisher->p;
    mq_process_identity self;
    int status = mqc_read_own_identity(&self);
    if (status)
        return status;
    mqc_publisher_fill(publisher);
    publisher->clock_offset = mqc_clock_offset_ns();
    if (!mq_ring_side_can_track(p->ring, p->side, p->track))
        return mqc_tracking_mismatch_error(t);
    uint64_t former = 0;
    mq_error error;
    if (mq_topic_claim_ring(p, &self, mq_random_u32(), &former, &error))
        return mqc_report(&t->endpoint, &error);
    status = mqc_wait_for_previous_send(publisher, former);
    mq_ring_status started = status ? MQ_RING_OK : mq_ring_publisher_start(p, &self);
    if (started == MQ_RING_UNTRACKED)
        status = mqc_tracking_mismatch_error(t);
    else if (started != MQ_RING_OK)
        status = mqc_topic_start_error(t);
    if (status)
        mq_ring_publisher_release_ring(p, former);
    return status;
}

static int mqc_publisher_populate_schema(mqc_topic_files *t) {
    if (!mq_ring_side_populate_schema(mq_topic_side(&t->files)))
        return mqc_endpoint_error(&t->endpoint, ENOSPC, "/dev/shm has no memory for the schema in %s", t->side_path);
    return 0;
}

/* Become the publisher of the topic, and write `schema` unless it is NULL. The caller has locked the topic. This call
 * unlocks the topic. */
static int mqc_publisher_enter(msgq_publisher *publisher, const msgq_schema *schema) {
    mqc_topic_files *t = publisher->topic;
    /* before the start: if the memory is full, the previous publisher goes on */
    int status = schema ? mqc_publisher_populate_schema(t) : 0;
    if (!status)
        status = mqc_publisher_start(publisher);
    if (!status && schema) {
        mq_schema_parts at = mq_ring_side_schema(mq_topic_side(&t->files));
        mq_ring_publisher_begin_schema(&publisher->p);
        if ((status = mqc_write_schema(&t->endpoint, &at, schema, false)))
            mq_ring_publisher_close(&publisher->p);
    }
    mq_topic_unlock(&t->files);
    return status;
}

int msgq_publisher_open(msgq_publisher **publisher, const char *topic, const msgq_topic_options *options) {
    static const msgq_topic_options defaults;
    const msgq_topic_options *asked = options ? options : &defaults;
    int status = mqc_check_pointers(publisher, NULL, 0);
    if (status)
        return status;
    msgq_publisher *made = *publisher = NULL;
    if (!(made = calloc(1, sizeof *made)))
        return mqc_set_error(ENOMEM, "no memory for a publisher");
    made->tracked = asked->tracked;
    made->generation = mqc_fork_generation();
    status = mqc_topic_files_open(&made->topic, topic, asked);
    if (!status)
        status = mqc_publisher_enter(made, asked->schema);
    if (status) {
        mqc_topic_files_close(made->topic);
        free(made);
        return status;
    }
    *publisher = made;
    return 0;
}

/* In a forked child, take over the topic from the parent. The effect is the same as closing and opening the handle. The
 * files already have the schema. If the take-over fails, the handle still counts as inherited. */
static int mqc_publisher_succeed(msgq_publisher *publisher) {
    mqc_topic_files *inherited = publisher->topic, *topic;
    int status = mqc_topic_files_reopen_in_child(&topic, inherited);
    if (status)
        return status;
    mq_ring_publisher_detach_row(&publisher->p);
    mq_ring_publisher former = publisher->p;
    publisher->topic = topic;
    if ((status = mqc_publisher_enter(publisher, NULL))) {
        publisher->topic = inherited;
        publisher->p = former;
        mqc_topic_files_close(topic);
        return status;
    }
    publisher->generation = mqc_fork_generation();
    mqc_topic_files_close(inherited);
    return 0;
}

/* Return the stamps of a message published now on a tracked topic. */
static mq_stamps mqc_make_stamps(const msgq_publisher *publisher) {
    mq_stamps stamps = {.publish_time = mq_monotonic_ns() + publisher->clock_offset, .origin_time = msgq_origin()};
    if (!stamps.origin_time) /* the thread has no origin, so the message is its own origin */
        stamps.publish_time = stamps.origin_time = mq_origin_allocate(mqc_last_origin_word(), stamps.publish_time, 1);
    return stamps;
}

/* Reject an empty message if a stock subscriber is attached. An empty message would abort the stock subscriber. */
static int mqc_check_empty(msgq_publisher *publisher) {
    mq_ring_publisher_scan_stock_readers(&publisher->p);
    if (!publisher->p.stock_count)
        return 0;
    return mqc_endpoint_error(&publisher->topic->endpoint, EMSGSIZE,
                              "empty message would abort the attached stock subscriber; send at least one byte");
}

/* True if the ring or the side segment is truncated. The function also checks the sizes of the files, because the
 * canary never changes without the SIGBUS handler. */
static bool mqc_is_topic_truncated(const mqc_topic_files *t) {
    return !mq_canary_is_intact(&t->files.canary) ||
           mq_file_shrank(t->ring_path, t->files.ring->inode, t->files.ring->size) ||
           mq_file_shrank(t->side_path, t->files.side->inode, t->files.side->size);
}

static int mqc_send_error(msgq_publisher *publisher, mq_ring_status status, size_t size) {
    mqc_topic_files *t = publisher->topic;
    if (status == MQ_RING_TOO_LARGE)
        return mqc_endpoint_error(
            &t->endpoint, EMSGSIZE, "a message of %zu bytes does not fit: at most %llu with segment_size %u", size,
            (unsigned long long)(mq_ring_frame_bytes_max(mq_topic_data_bytes(&t->files)) - 8 - publisher->p.stamps),
            mq_topic_data_bytes(&t->files));
    if (mqc_is_topic_truncated(t))
        return mqc_topic_truncation_error(t);
    if (status == MQ_RING_NO_MEMORY)
        return mqc_endpoint_error(&t->endpoint, ENOSPC,
                                  "nothing was sent: /dev/shm has no memory for a message of %zu bytes", size);
    uint64_t pid = mq_ring_current_publisher_pid(publisher->p.ring, publisher->p.side);
    return mqc_endpoint_error(&t->endpoint, EADDRINUSE,
                              "another publisher took over: process %llu (0: a stock or ended "
                              "process); nothing was sent. To take the topic back, open it again",
                              (unsigned long long)pid);
}

int msgq_publisher_send(msgq_publisher *publisher, const void *data, size_t size) {
    int error = mqc_check_pointers(publisher, data, size);
    if (mq_unlikely(error))
        return error;
    mq_ring_publisher *p = &publisher->p;
    data = data ? data : mqc_no_bytes;
    if (mq_unlikely(mqc_is_forked(publisher->generation)))
        error = mqc_publisher_succeed(publisher);
    if (!error && mq_unlikely(!size) && !p->stamps)
        error = mqc_check_empty(publisher);
    if (mq_unlikely(error))
        return error;
    mq_ring_status status;
    if (p->stamps) {
        mq_stamps stamps = mqc_make_stamps(publisher);
        status = mq_ring_publisher_send_tracked(p, data, size, &stamps);
    } else
        status = mq_ring_publisher_send(p, data, size);
    if (mq_likely(status == MQ_RING_OK))
        return 0;
    if (status != MQ_RING_NOTIFY)
        return mqc_send_error(publisher, status, size);
    mq_ring_publisher_notify_subscribers(p);
    return 0;
}

int msgq_publisher_readers(msgq_publisher *publisher, int *attached, int *updated) {
    int present = 0, current = 0, status = mqc_check_pointers(publisher, NULL, 0);
    if (status)
        return status;
    if (!mq_canary_is_intact(&publisher->topic->files.canary))
        return mqc_topic_truncation_error(publisher->topic);
    mq_ring_count_subscribers(&publisher->p, &present, &current);
    if (attached)
        *attached = present;
    if (updated)
        *updated = current;
    return 0;
}

void msgq_publisher_close(msgq_publisher *publisher) {
    if (!publisher)
        return;
    if (mqc_is_forked(publisher->generation))
        mq_ring_publisher_detach_row(&publisher->p);
    else
        mq_ring_publisher_close(&publisher->p);
    mqc_topic_files_close(publisher->topic);
    free(publisher);
}
