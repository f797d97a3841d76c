/* Both files of a topic. See topicfile.h. Compile as C11. */
#define _GNU_SOURCE
#include "c/topicfile.h"

enum { MQC_PREFIX_TRIES = 100 };

void mqc_topic_files_unlock(mqc_topic_files *t) {
    if (t->lock >= 0)
        mqc_unlock_file(t->lock);
    t->lock = -1;
}

static void mqc_topic_unmap(mqc_topic_files *t) {
    mqc_topic_files_unlock(t);
    mqc_unmap_file(&t->side);
    mqc_unmap_file(&t->ring);
}

void mqc_topic_files_close(mqc_topic_files *t) {
    if (t)
        mqc_topic_unmap(t);
    free(t);
}

int mqc_topic_truncation_error(const mqc_topic_files *t) {
    mq_error error;
    if (mq_mapping_was_truncated(t->side.not_truncated) || mq_file_shrank(t->side.path, t->side.inode, t->side.size))
        mq_topic_fail_side_size(t->side.path, &error);
    else
        mq_topic_fail_ring_size(t->ring.path, t->ring.inode, t->data_bytes, &error);
    return mqc_report(&t->endpoint, &error);
}

int mqc_topic_start_error(const mqc_topic_files *t) {
    mq_error error;
    mq_topic_fail_start(&t->canary, t->ring.path, t->ring.inode, t->data_bytes, &error);
    return mqc_report(&t->endpoint, &error);
}

/* ---- the ring ---- */

/* The files of the topic, as asked by the program. */
typedef struct {
    char ring_path[MQC_PATH], side_path[MQC_PATH];
    mq_topic_request request;
} mqc_topic_asked;

static void mqc_topic_ask(const mqc_topic_files *t, mqc_topic_asked *asked) {
    mqc_format_path(&t->endpoint, "msgq_", t->endpoint.name, asked->ring_path);
    mqc_format_path(&t->endpoint, "msgqside_", t->endpoint.name, asked->side_path);
    asked->request = (mq_topic_request){.policy = &t->endpoint.policy,
                                        .ring_path = asked->ring_path,
                                        .side_path = asked->side_path,
                                        .data_bytes = t->asked ? t->asked : MQ_DEFAULT_DATA_BYTES,
                                        .is_size_asked = t->asked != 0};
}

static int mqc_ring_map(mqc_topic_files *t, int fd, const struct stat *found, const char *path) {
    mq_mapping mapping;
    mq_error error;
    if (mq_ring_map(&t->endpoint.policy, fd, found, true, path, &mapping, &error))
        return mqc_report(&t->endpoint, &error);
    mqc_adopt_mapping(&mapping, found, path, &t->ring);
    t->data_bytes = (uint32_t)(found->st_size - MQ_RING_HEADER);
    return 0;
}

/* Lock and map an existing ring. Returns 1 on success, and 0 if the ring does not exist. */
static int mqc_ring_take(mqc_topic_files *t, const mq_topic_request *request) {
    struct stat found;
    mq_error error;
    int ready = 0;
    while (!ready) {
        mqc_topic_files_unlock(t);
        int fd = mqc_open_file(&t->endpoint, request->ring_path, O_RDWR);
        if (fd < 0)
            return fd == -ENOENT ? 0 : fd;
        t->lock = fd;
        int status = mqc_lock_file(&t->endpoint, fd, request->ring_path);
        if (status)
            return status;
        ready = mq_topic_prepare_ring(request, fd, &found, &error);
    }
    if (ready < 0)
        return mqc_report(&t->endpoint, &error);
    int status = mqc_ring_map(t, t->lock, &found, request->ring_path);
    return status ? status : 1;
}

/* Create the ring. The ring is locked and mapped before it has a name. Returns 1 on success, and 0 if another process
 * created the ring first. */
static int mqc_ring_make(mqc_topic_files *t, const mq_topic_request *request) {
    struct stat made;
    mq_error error;
    int fd = mqc_create_file(&t->endpoint, request->ring_path, 0, 0, t->endpoint.mode, &made);
    if (fd < 0)
        return fd;
    t->lock = fd;
    int status = mqc_lock_file(&t->endpoint, fd, request->ring_path);
    if (!status && mq_topic_prepare_new_ring(request, fd, &made, &error))
        status = mqc_report(&t->endpoint, &error);
    if (!status)
        status = mqc_ring_map(t, fd, &made, request->ring_path);
    int named = status ? status : mqc_name_file(&t->endpoint, fd, request->ring_path);
    if (named == 0) {
        mqc_unmap_file(&t->ring);
        mqc_topic_files_unlock(t);
    }
    return named;
}

/* ---- the side segment ---- */

/* Create the side segment. Returns 1 if the new file is mapped, and 0 if a process without the lock created the file
 * first. `sizer`: process that chose the ring's size; NULL: unknown. */
static int mqc_side_make(mqc_topic_files *t, const mq_topic_request *request, bool tracked,
                         const mq_process_identity *sizer) {
    struct stat made;
    mq_error error;
    int fd = mq_topic_create_side(request, t->endpoint.mode, &made, &error);
    if (fd < 0)
        return mqc_report(&t->endpoint, &error);
    int status = mqc_map_file(&t->endpoint, fd, &made, true, request->side_path, &t->side);
    if (!status) {
        status = mq_topic_name_side(request, fd, mqc_topic_ring_header(t), t->ring.inode, t->data_bytes,
                                    mqc_topic_side_header(t), tracked, sizer, (uint64_t)msgq_time_ns(), &error);
        if (status < 0)
            mqc_report(&t->endpoint, &error);
        if (status != 1)
            mqc_unmap_file(&t->side);
    }
    close(fd);
    return status;
}

/* Open the side segment. Returns 1 if the file is mapped. Returns 0 if the file does not exist, or was stale and is now
 * removed. If messages of the stale file's topic were tracked, the call sets *tracked. */
static int mqc_side_open(mqc_topic_files *t, const mq_topic_request *request, bool *tracked) {
    struct stat found;
    mq_error error;
    int fd = mqc_open_file(&t->endpoint, request->side_path, O_RDWR);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    int status = 0;
    if (mq_topic_check_side_file(request, fd, &found, &error))
        status = mqc_report(&t->endpoint, &error);
    if (!status)
        status = mqc_map_file(&t->endpoint, fd, &found, true, request->side_path, &t->side);
    close(fd);
    if (status)
        return status;
    status = mq_topic_take_side(request, mqc_topic_ring_header(t), t->ring.inode, t->data_bytes,
                                mqc_topic_side_header(t), tracked, &error);
    if (status != 1)
        mqc_unmap_file(&t->side);
    return status < 0 ? mqc_report(&t->endpoint, &error) : status;
}

/* Open or create the side segment of the locked ring. `made`: this call created the ring. */
static int mqc_side_have(mqc_topic_files *t, const mq_topic_request *request, bool made) {
    mq_process_identity self;
    bool tracked = false;
    int status = mqc_read_own_identity(&self);
    while (status == 0) {
        status = mqc_side_open(t, request, &tracked);
        mq_topic_write_canary(mqc_topic_ring_header(t), t->data_bytes, mqc_random_u32());
        if (status == 0)
            status = mqc_side_make(t, request, tracked, made ? &self : NULL);
    }
    if (status < 0)
        return status;
    mq_topic_record_ring(request, mqc_topic_ring_header(t), t->data_bytes, mqc_topic_side_header(t), &self);
    t->canary = mq_canary_of_ring(mqc_topic_ring_header(t), t->data_bytes, t->ring.not_truncated);
    /* If the side segment is truncated, the mapping of the ring reads as zeros, too. Therefore a check of the ring is
     * enough. */
    bool paired = mqc_pair_guards(&t->side, &t->ring);
    return paired && !mq_mapping_was_truncated(t->ring.not_truncated) ? 0 : mqc_topic_truncation_error(t);
}

/* ---- open ---- */

static int mqc_topic_open_once(mqc_topic_files *t) {
    mqc_topic_asked asked;
    int taken = 0, made = 0;
    int status = mqc_make_directory(&t->endpoint, "msgq_", t->endpoint.mode);
    if (!status)
        status = mqc_make_directory(&t->endpoint, "msgqside_", t->endpoint.mode);
    if (status)
        return status;
    mqc_topic_ask(t, &asked);
    while (taken == 0 && made == 0) {
        taken = mqc_ring_take(t, &asked.request);
        if (taken == 0)
            made = mqc_ring_make(t, &asked.request);
    }
    if (taken < 0 || made < 0)
        return taken < 0 ? taken : made;
    status = mqc_side_have(t, &asked.request, made);
    if (status && made && !mq_mapping_was_truncated(t->ring.not_truncated)) /* else a stock process has joined */
        mq_topic_remove_unused_ring(&asked.request, t->ring.address);
    return status;
}

/* Open both files of the topic. If another process removes the directories of the prefix, try again. */
static int mqc_topic_open_named(mqc_topic_files *t) {
    int status = -ENOENT;
    for (int tries = *t->endpoint.prefix ? MQC_PREFIX_TRIES : 1; status == -ENOENT && tries > 0; tries--) {
        status = mqc_topic_open_once(t);
        if (status)
            mqc_topic_unmap(t);
    }
    return status;
}

static int mqc_topic_new(mqc_topic_files **topic) {
    *topic = calloc(1, sizeof **topic);
    if (!*topic)
        return mqc_set_error(ENOMEM, "no memory for a topic");
    (*topic)->lock = -1;
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
    struct stat found;
    mqc_mapped_file former = t->ring;
    if (!mq_file_grew(former.path, former.inode, t->data_bytes))
        return 0;
    int fd = mqc_open_file(&t->endpoint, former.path, O_RDWR);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    mq_error error;
    int status = mqc_check_file(&t->endpoint, fd, former.path, &found);
    bool grew = !status && found.st_ino == former.inode && (uint64_t)found.st_size > former.size;
    if (grew && mq_ring_check_size(&found, former.path, &error))
        status = mqc_report(&t->endpoint, &error);
    else if (grew)
        status = mqc_ring_map(t, fd, &found, former.path);
    close(fd);
    if (status || !grew) {
        t->ring = former;
        t->data_bytes = (uint32_t)(former.size - MQ_RING_HEADER);
        return status;
    }
    mq_topic_write_canary(mqc_topic_ring_header(t), t->data_bytes, mqc_random_u32());
    t->canary = mq_canary_of_ring(mqc_topic_ring_header(t), t->data_bytes, t->ring.not_truncated);
    bool paired = mqc_pair_guards(&t->side, &t->ring);
    mqc_unmap_file(&former);
    return paired && !mq_mapping_was_truncated(t->ring.not_truncated) ? 1 : mqc_topic_truncation_error(t);
}

int mqc_topic_files_reopen_in_child(mqc_topic_files **topic, const mqc_topic_files *former) {
    int status = mqc_topic_new(topic);
    if (status)
        return status;
    (*topic)->endpoint = former->endpoint;
    (*topic)->asked = former->asked;
    return mqc_topic_give(topic, mqc_topic_open_named(*topic));
}
