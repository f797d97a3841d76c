/* Both files of a topic. See topicfile.h. Compile as C11. */
#define _GNU_SOURCE
#include "c/topicfile.h"

void mqc_topic_files_close(mqc_topic_files *t) {
    if (t)
        mq_topic_close(&t->files);
    free(t);
}

int mqc_topic_truncation_error(const mqc_topic_files *t) {
    mq_error error;
    mq_topic_fail_truncated(t->files.ring, t->ring_path, t->files.side, t->side_path, &error);
    return mqc_report(&t->endpoint, &error);
}

int mqc_topic_start_error(const mqc_topic_files *t) {
    mq_error error;
    mq_topic_fail_start(&t->files.canary, t->files.ring, t->ring_path, t->files.side, t->side_path, &error);
    return mqc_report(&t->endpoint, &error);
}

/* ---- open ---- */

static mq_topic_request mqc_topic_request(const mqc_topic_files *t, const mq_process_identity *self) {
    return (mq_topic_request){.policy = &t->endpoint.policy,
                              .ring_path = t->ring_path,
                              .side_path = t->side_path,
                              .data_bytes = t->asked ? t->asked : MQ_DEFAULT_DATA_BYTES,
                              .is_size_asked = t->asked != 0,
                              .mode = t->endpoint.mode,
                              .self = self,
                              .now_ns = (uint64_t)msgq_time_ns()};
}

static int mqc_topic_open_named(mqc_topic_files *t) {
    mq_process_identity self;
    mq_error error;
    int64_t deadline = mq_monotonic_ns() + MQC_LOCK_WAIT_NS;
    mqc_format_path(&t->endpoint, "msgq_", t->endpoint.name, t->ring_path);
    mqc_format_path(&t->endpoint, "msgqside_", t->endpoint.name, t->side_path);
    int status = mqc_read_own_identity(&self);
    if (status)
        return status;
    mq_topic_request request = mqc_topic_request(t, &self);
    while ((status = mq_topic_open(&request, &t->files, &error)) == MQ_FILE_LOCKED)
        if ((status = mqc_wait_for_file_lock(&t->endpoint, deadline)))
            return status;
    if (status)
        return mqc_report(&t->endpoint, &error);
    t->liveness_file = mq_liveness_file_of(t->side_path, t->files.side->device, t->files.side->inode);
    return 0;
}

static int mqc_topic_new(mqc_topic_files **topic) {
    *topic = calloc(1, sizeof **topic);
    if (!*topic)
        return mqc_set_error(ENOMEM, "no memory for a topic");
    (*topic)->files.lock = -1;
    return 0;
}

/* After an error, close the topic. Returns `status`. */
static int mqc_topic_give(mqc_topic_files **topic, int status) {
    if (status) {
        mqc_topic_files_close(*topic);
        *topic = NULL;
    }
    return status;
}

int mqc_topic_files_open(mqc_topic_files **topic, const char *name, const msgq_topic_options *options) {
    int status = mqc_topic_new(topic);
    if (status)
        return status;
    mqc_topic_files *t = *topic;
    t->asked = options->segment_size;
    status = mqc_endpoint_init(&t->endpoint, "topic", name, MQC_NAME_MAX, &options->open, 0);
    if (!status && (options->open.create || (t->asked && t->asked < MQ_RING_DATA_BYTES_MIN)))
        status = mqc_endpoint_error(&t->endpoint, EINVAL,
                                    "give create 0 for a topic, and a segment_size of 0, or at least %d",
                                    MQ_RING_DATA_BYTES_MIN);
    return mqc_topic_give(topic, status ? status : mqc_topic_open_named(t));
}

int mqc_topic_files_remap(mqc_topic_files *t) {
    mq_topic_files grown = {.side = t->files.side, .lock = -1};
    mq_topic_request request = mqc_topic_request(t, NULL);
    mq_error error;
    if (!mq_file_grew(t->ring_path, t->files.ring->inode, mq_topic_data_bytes(&t->files)))
        return 0;
    int fd = mqc_open_file(&t->endpoint, t->ring_path, O_RDWR);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    int status = mq_topic_remap_ring(&request, fd, t->files.ring, true, &grown, &error);
    close(fd);
    if (status < 0)
        return mqc_report(&t->endpoint, &error);
    if (status) {
        mq_mapping_release(t->files.ring);
        t->files = grown;
    }
    return status;
}

int mqc_topic_files_reopen_in_child(mqc_topic_files **topic, const mqc_topic_files *former) {
    int status = mqc_topic_new(topic);
    if (status)
        return status;
    (*topic)->endpoint = former->endpoint;
    (*topic)->asked = former->asked;
    return mqc_topic_give(topic, mqc_topic_open_named(*topic));
}
