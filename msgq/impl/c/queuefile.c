/* Open and close work queues: the file and the row of a handle, by the steps of workqueue/join.h. Compile as C11. */
#define _GNU_SOURCE
#include "c/queuefile.h"

enum { MQC_QUEUE_SPIN_US = 10 };
_Static_assert((int)MSGQ_EVENTS == MQ_QUEUE_EVENTS_HEADS && (int)MSGQ_EVENTS_PAYLOAD == MQ_QUEUE_EVENTS_PAYLOAD,
               "the file stores the option's value");

/* ---- file ---- */

static int mqc_queue_check(void *handle) {
    msgq_queue *q = handle;
    mq_error error;
    int failed = mq_queue_check_file((mq_queue *)(void *)q->segment.address, q->segment.size, q->segment.path,
                                     &q->h.parts, &error);
    return failed ? mqc_report(&q->endpoint, &error) : 0;
}

static void mqc_queue_init_header(void *handle) {
    msgq_queue *q = handle;
    mq_process_identity self;
    mqc_read_own_identity(&self); /* cannot fail, because a previous call succeeded */
    mq_queue_init_file((mq_queue *)(void *)q->segment.address, &q->request, (uint64_t)msgq_time_ns(), &self);
}

/* ---- sizes ---- */

/* Map the whole file after its sizes were chosen. After an error, the handle keeps its previous mapping. */
static int mqc_queue_map_slots(msgq_queue *q) {
    struct stat found;
    mq_error error;
    mqc_mapped_file former = q->segment;
    int status = mqc_check_file(&q->endpoint, former.fd, former.path, &found);
    if (!status && (status = mqc_map_file(&q->endpoint, former.fd, &found, true, former.path, &q->segment)))
        q->segment = former;
    if (status)
        return status;
    q->segment.fd = q->segment.liveness_file.fd = former.fd;
    if (mq_queue_check_sized_file((mq_queue *)(void *)q->segment.address, q->segment.size, q->segment.path, &q->h.parts,
                                  &error))
        status = mqc_report(&q->endpoint, &error);
    mqc_mapped_file unused = status ? q->segment : former;
    if (status)
        q->segment = former;
    unused.fd = -1;
    mqc_unmap_file(&unused);
    return status;
}

/* Choose the sizes of the queue, unless another process has chosen them. Then map the slots. */
static int mqc_queue_choose_sizes(msgq_queue *q) {
    mq_process_identity self;
    mq_file_lock lock;
    mq_error error;
    int status = mqc_read_own_identity(&self);
    if (!status)
        status = mqc_lock_mapped_file(&q->endpoint, &q->segment, true, &lock);
    if (status)
        return status;
    if (mq_queue_choose_sizes(q->h.parts.queue, &q->endpoint.policy, &lock, &q->request, &self, &error))
        status = mqc_report(&q->endpoint, &error);
    mqc_unlock_mapped_file(&lock);
    return status ? status : mqc_queue_map_slots(q);
}

int mqc_queue_obtain_slots(msgq_queue *q, bool chooses) {
    if (!chooses && !mq_queue_has_sizes(q->h.parts.queue))
        return 0;
    int status = chooses ? mqc_queue_choose_sizes(q) : mqc_queue_map_slots(q);
    if (status)
        return status;
    q->h.own_row = &q->h.parts.queue->rows[q->h.row_number]; /* before the next error: the previous mapping is gone */
    mq_queue_block_cache *caches = calloc(q->h.parts.block_count, sizeof *caches);
    if (!caches) {
        q->h.parts.max_messages = q->h.parts.block_count = 0; /* the next call tries again */
        return mqc_endpoint_error(&q->endpoint, ENOMEM, "no memory for a handle");
    }
    free(q->h.block_caches);
    mq_queue_use_slots(&q->h, &q->h.parts, caches);
    mqc_queue_recover(q, mq_monotonic_ns());
    return 0;
}

/* Reject a mode that gives only the read or only the write permission. A consumer needs both permissions, because
 * taking a message writes to the file. */
static int mqc_queue_mode(mqc_endpoint *endpoint, int asked) {
    for (int shift = 0; shift <= 3; shift += 3) {
        mode_t both = (mode_t)6 << shift, has = endpoint->mode & both;
        if (has && has != both && asked)
            return mqc_endpoint_error(endpoint, EINVAL,
                                      "mode %#o gives only one of read and write, but queues need "
                                      "both; give 6 or 0 for each",
                                      asked);
        if (has != both) /* MSGQ_MODE also applies to topics. For a topic, the read permission alone is useful */
            endpoint->mode &= ~both;
    }
    return 0;
}

static int mqc_queue_check_requested_options(const msgq_queue *q, const msgq_queue_options *options) {
    const mq_queue_file_parts *parts = &q->h.parts;
    static const char *const events[] = {"no events", "events", "events with payload"};
    if (options->events && options->events != (int)parts->events)
        return mqc_endpoint_error(&q->endpoint, EEXIST,
                                  "has %s, but %s were requested; give 0 to use the existing value",
                                  events[parts->events], events[options->events]);
    if ((!options->max_messages || options->max_messages == parts->max_messages) &&
        (!options->max_message_size || options->max_message_size == parts->max_message_size))
        return 0;
    return mqc_endpoint_error(&q->endpoint, EEXIST,
                              "has max_messages %llu and max_message_size %llu, but %u and %u were requested; "
                              "process %llu (%.*s) chose the existing values. Give 0 to use them",
                              (unsigned long long)parts->max_messages, (unsigned long long)parts->max_message_size,
                              options->max_messages, options->max_message_size,
                              (unsigned long long)mq_load_relaxed_u64(&parts->queue->creator_pid),
                              MQ_QUEUE_CREATOR_BYTES, parts->queue->creator);
}

/* ---- join and leave ---- */

void mqc_queue_recover(msgq_queue *q, int64_t now) {
    q->lease_ends_ns = mq_queue_recover(&q->h, now);
    mqc_event_publisher_flush(&q->event_publisher);
}

static int mqc_queue_join(msgq_queue *q, const msgq_schema *schema) {
    mq_process_identity self;
    mq_file_lock lock;
    mq_error error;
    mq_queue *queue = q->h.parts.queue;
    mq_schema_parts at = mq_schema_parts_from_block(&queue->schema, queue->schema_data, MQ_QUEUE_SCHEMA_DATA_BYTES);
    int status = mqc_read_own_identity(&self);
    if (!status)
        status = mqc_lock_mapped_file(&q->endpoint, &q->segment, true, &lock);
    if (status)
        return status;
    if (schema && !mq_schema_is_set(&at))
        status = mqc_write_schema(&q->endpoint, &at, schema, true);
    if (!status && mq_queue_join(&q->h, &lock, &self, q->uid = mq_new_uid(), &q->liveness_token, &error))
        status = mqc_report(&q->endpoint, &error);
    mqc_unlock_mapped_file(&lock);
    if (!status) {
        mqc_event_publisher_attach_handle(&q->event_publisher, &q->h, self.pid);
        mqc_queue_recover(q, mq_monotonic_ns());
    }
    return status;
}

static void mqc_queue_leave(msgq_queue *q) {
    mq_queue_leave(&q->h, q->uid, &q->liveness_token);
    mqc_event_publisher_flush(&q->event_publisher); /* publishes the events of jobs that returned to the queue */
}

static void mqc_queue_unmap(msgq_queue *q) {
    mqc_event_publisher_close(&q->event_publisher);
    free(q->h.block_caches);
    q->h.block_caches = NULL;
    mqc_unmap_file(&q->segment);
}

static int mqc_queue_attach_file(msgq_queue *q, const msgq_queue_options *options) {
    mqc_file_ops kind = {.start = "msgqjobs_",
                         .least = sizeof(mq_queue),
                         .bytes = mq_queue_compute_new_file_bytes(&q->request),
                         .check = mqc_queue_check,
                         .fill = mqc_queue_init_header,
                         .handle = q};
    int status = mqc_open_or_create(&q->endpoint, &kind, &q->segment);
    if (status)
        return status;
    if (!q->h.parts.max_messages && q->request.names_sizes)
        status = mqc_queue_choose_sizes(q);
    if (!status)
        status = mqc_queue_check_requested_options(q, options);
    q->h.liveness_file = &q->segment.liveness_file;
    q->h.clock_offset = mqc_clock_offset_ns();
    q->h.block_caches = calloc(q->h.parts.block_count, sizeof *q->h.block_caches);
    if (!status && !q->h.block_caches)
        status = mqc_endpoint_error(&q->endpoint, ENOMEM, "no memory for a handle");
    if (!status && q->h.parts.events)
        status = mqc_event_publisher_init(&q->event_publisher, &q->endpoint, &q->segment, &q->h.parts);
    if (!status)
        status = mqc_queue_join(q, options->schema);
    if (status)
        mqc_queue_unmap(q);
    return status;
}

static int mqc_queue_init_handle(msgq_queue *q, const char *name, const msgq_queue_options *options) {
    mq_process_identity self;
    if (name && *name == '/') /* POSIX names of queues begin with a slash */
        name++;
    q->generation = mqc_fork_generation();
    q->request =
        mq_queue_make_request(options->max_messages, options->max_message_size, (mq_queue_events_mode)options->events);
    int status = mqc_endpoint_init(&q->endpoint, "queue", name, MQC_NAME_MAX, &options->open, MQC_QUEUE_SPIN_US);
    if (!status)
        status = mqc_read_own_identity(&self);
    if (!status)
        status = mqc_queue_mode(&q->endpoint, options->open.mode);
    if (!status && !mq_queue_sizes_are_valid(q->request.max_messages, q->request.max_message_size))
        status =
            mqc_endpoint_error(&q->endpoint, EINVAL, "give max_messages of 1 to %d, and max_message_size of 1 to %d",
                               MQ_QUEUE_MESSAGES_MAX, MQ_QUEUE_MESSAGE_SIZE_MAX);
    if (!status && (options->events < MSGQ_EVENTS_UNCHANGED || options->events > MSGQ_EVENTS_PAYLOAD))
        status = mqc_endpoint_error(&q->endpoint, EINVAL,
                                    "events is %d; give MSGQ_EVENTS_UNCHANGED, MSGQ_EVENTS or MSGQ_EVENTS_PAYLOAD",
                                    options->events);
    return status || !options->events ? status : mqc_event_publisher_check_name(&q->endpoint);
}

int msgq_queue_open(msgq_queue **queue, const char *name, const msgq_queue_options *options) {
    static const msgq_queue_options defaults;
    const msgq_queue_options *asked = options ? options : &defaults;
    int status = mqc_check_pointers(queue, NULL, 0);
    if (status)
        return status;
    msgq_queue *q = *queue = NULL;
    if (!(q = calloc(1, sizeof *q)))
        return mqc_set_error(ENOMEM, "no memory for a queue");
    status = mqc_queue_init_handle(q, name, asked);
    while (!status && !(status = mqc_queue_attach_file(q, asked)) && !mqc_is_linked(&q->segment)) {
        mqc_queue_leave(q); /* another process removed the file before this handle had its row */
        mqc_queue_unmap(q);
    }
    if (status) {
        free(q);
        return status;
    }
    *queue = q;
    return 0;
}

int msgq_queue_sizes(msgq_queue *queue, uint32_t *max_messages, uint32_t *max_message_size) {
    int status = mqc_check_pointers(queue, NULL, 0);
    if (!status && !queue->h.parts.max_messages && queue->generation == mqc_fork_generation())
        status = mqc_queue_obtain_slots(queue, false);
    if (status)
        return status;
    bool has_sizes = queue->h.parts.max_messages; /* otherwise, return the sizes that a send would choose */
    if (max_messages)
        *max_messages = (uint32_t)(has_sizes ? queue->h.parts.max_messages : queue->request.max_messages);
    if (max_message_size)
        *max_message_size = (uint32_t)(has_sizes ? queue->h.parts.max_message_size : queue->request.max_message_size);
    return 0;
}

void msgq_queue_close(msgq_queue *queue) {
    if (!queue)
        return;
    if (queue->generation == mqc_fork_generation())
        mqc_queue_leave(queue);
    mqc_queue_unmap(queue);
    free(queue);
}
