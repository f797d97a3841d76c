/* Both files of a topic. See topicfile.h. Compile as C11. */
#define _GNU_SOURCE
#include "c/topicfile.h"
#include "ring/resize.h"

enum { MQC_DATA_MIN = 128, MQC_PREFIX_TRIES = 100 };

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
    if (mq_mapping_was_truncated(t->side.not_truncated) || mq_file_shrank(t->side.path, t->side.inode, t->side.size))
        return mqc_endpoint_error(
            &t->endpoint, ESTALE,
            "has a side segment that another program truncated: %s. Close this; remove the topic when "
            "it is not in use (msgq clean), and open it again",
            t->side.path);
    return mqc_endpoint_error(&t->endpoint, ESTALE,
                              "was opened with segment_size %u, which another process has since changed: a stock "
                              "process sets the file to its own size. Give all the same; close this and open it again",
                              t->data_bytes);
}

/* ---- the ring ---- */

static int mqc_ring_map(mqc_topic_files *t, int fd, const struct stat *found, const char *path) {
    bool backed = (int64_t)found->st_blocks * 512 >= found->st_size;
    struct stat now;
    int status = 0;
    if (!backed && !mq_makes_holes(&t->endpoint.policy)) {
        status = mqc_allocate_file(&t->endpoint, fd, 0, (uint64_t)found->st_size, path);
        backed = true;
    }
    if (!status)
        status = mqc_map_file(&t->endpoint, fd, found, true, path, &t->ring);
    t->data_bytes = (uint32_t)(found->st_size - MQ_RING_HEADER);
    if (!status && !backed &&
        !(mq_populate(t->ring.address, MQ_RING_HEADER, 0) && mq_populate(t->ring.address + found->st_size - 8, 8, 0)))
        status = fstat(fd, &now) == 0 && now.st_size < found->st_size
                     ? mqc_topic_truncation_error(t)
                     : mqc_endpoint_error(&t->endpoint, ENOSPC, "/dev/shm has no memory for the ends of %s", path);
    return status;
}

/* Grow the ring's file to its size, and allocate its last page. */
static int mqc_ring_grow(mqc_topic_files *t, int fd, uint32_t asked, const char *path) {
    uint64_t bytes = MQ_RING_HEADER + (uint64_t)(asked ? asked : MQ_DEFAULT_DATA_BYTES);
    if (!mq_makes_holes(&t->endpoint.policy))
        return mqc_allocate_file(&t->endpoint, fd, 0, bytes, path);
    if (mq_file_system_free_bytes(fd) < bytes + MQ_SIDE_BYTES)
        return mqc_endpoint_error(&t->endpoint, ENOSPC, "cannot allocate %llu bytes for %s: /dev/shm is full",
                                  (unsigned long long)bytes, path);
    return mqc_allocate_file(&t->endpoint, fd, bytes - 8, bytes, path);
}

static int mqc_ring_check_size(const mqc_topic_files *t, const struct stat *found) {
    int64_t data_bytes = (int64_t)found->st_size - MQ_RING_HEADER;
    if (data_bytes >= MQC_DATA_MIN && data_bytes <= UINT32_MAX)
        return 0;
    return mqc_endpoint_error(
        &t->endpoint, EPROTO,
        "has %lld bytes, and is not a ring (truncated, or of another program); remove it when it is not in use",
        (long long)found->st_size);
}

static int mqc_side_map(mqc_topic_files *t, const char *path);

/* Return the error for a ring of another size. Name the process that chose the size, if it is known. */
static int mqc_ring_mismatch_error(const mqc_topic_files *t, const mq_ring_side *side) {
    char by[96] = "";
    uint64_t pid = side ? mq_load_relaxed_u64(&side->size_pid) : 0;
    bool unasked = pid && mq_ring_size_is_unasked(side);
    if (pid)
        snprintf(by, sizeof by, " (%s process %llu, %.*s)", unasked ? "default of" : "requested by",
                 (unsigned long long)pid, MQ_NAME, side->size_by);
    return mqc_endpoint_error(&t->endpoint, EEXIST,
                              "exists with segment_size %u%s, but %u was requested; give 0 to use it%s", t->data_bytes,
                              by, t->asked,
                              unasked ? ". A default size changes only before the first message, and without a "
                                        "publisher or stock process. It decreases only without subscribers"
                                      : "");
}

/* Give the requested size to a mapped empty ring, unless a process has requested its size. Returns 1 if the file has
 * grown, 0 if the ring was removed, or a negative error. See _resize_ring in topic.pxi. */
static int mqc_ring_resize(mqc_topic_files *t, int fd, const char *path) {
    char side_path[MQC_PATH];
    bool grows = t->data_bytes < t->asked;
    mqc_format_path(&t->endpoint, "msgqside_", t->endpoint.name, side_path);
    int mapped = mqc_side_map(t, side_path);
    if (mapped < 0)
        return mapped;
    mq_ring_side *side = mapped ? mqc_topic_side_header(t) : NULL;
    bool fits = side && mq_ring_side_check(side, t->ring.inode, t->data_bytes) == MQ_FILE_VALID;
    bool free = fits && mq_ring_may_be_resized(mqc_topic_ring_header(t), side, &t->side.liveness_file) &&
                (grows || !mq_ring_has_subscribers(side, &t->side.liveness_file));
    int status = free ? 0 : mqc_ring_mismatch_error(t, fits ? side : NULL);
    if (!status)
        status = grows ? mqc_ring_grow(t, fd, t->asked, path) : mqc_remove_file(&t->endpoint, path);
    mqc_unmap_file(&t->side);
    mqc_unmap_file(&t->ring);
    return status < 0 ? status : grows;
}

/* Lock and map an existing ring. Returns 1 on success, and 0 if the ring does not exist. */
static int mqc_ring_take(mqc_topic_files *t, const char *path, uint32_t asked) {
    struct stat found;
    for (;;) {
        int fd = mqc_open_file(&t->endpoint, path, O_RDWR);
        if (fd < 0)
            return fd == -ENOENT ? 0 : fd;
        t->lock = fd;
        int status = mqc_lock_file(&t->endpoint, fd, path);
        if (!status)
            status = mqc_check_file(&t->endpoint, fd, path, &found);
        if (!status && !found.st_nlink) { /* another process removed the ring between the open and the lock */
            mqc_topic_files_unlock(t);
            continue;
        }
        /* a stock process creates an empty file and sets the file's size later, so set the size now */
        if (!status && found.st_size == 0) {
            status = mqc_ring_grow(t, fd, asked, path);
            if (!status)
                status = mqc_check_file(&t->endpoint, fd, path, &found);
        }
        if (!status)
            status = mqc_ring_check_size(t, &found);
        if (!status)
            status = mqc_ring_map(t, fd, &found, path);
        if (!status && asked && asked != t->data_bytes) {
            int resized = mqc_ring_resize(t, fd, path);
            if (resized < 0)
                return resized;
            mqc_topic_files_unlock(t); /* open the ring again, with its new size or as a new file */
            continue;
        }
        return status ? status : 1;
    }
}

/* Create the ring. The ring is locked and mapped before it has a name. Returns 1 on success, and 0 if another process
 * created the ring first. */
static int mqc_ring_make(mqc_topic_files *t, const char *path, uint32_t asked) {
    struct stat found;
    int fd = mqc_create_file(&t->endpoint, path, 0, 0, t->endpoint.mode, &found);
    if (fd < 0)
        return fd;
    t->lock = fd;
    int status = mqc_lock_file(&t->endpoint, fd, path);
    if (!status)
        status = mqc_ring_grow(t, fd, asked, path);
    if (!status)
        status = mqc_check_file(&t->endpoint, fd, path, &found);
    if (!status)
        status = mqc_ring_map(t, fd, &found, path);
    int named = status ? status : mqc_name_file(&t->endpoint, fd, path);
    if (named == 0) {
        mqc_unmap_file(&t->ring);
        mqc_topic_files_unlock(t);
    }
    return named;
}

/* ---- the side segment ---- */

/* Create the side segment. Returns 1 if the new file is mapped, and 0 if a process without the lock created the file
 * first. `sizer`: process that chose the ring's size; NULL: unknown. */
static int mqc_side_make(mqc_topic_files *t, const char *path, bool tracked, const mq_process_identity *sizer) {
    struct stat found;
    uint64_t allocated = mq_makes_holes(&t->endpoint.policy) ? mq_ring_side_allocated_bytes() : 0;
    int fd = mqc_create_file(&t->endpoint, path, MQ_SIDE_BYTES, allocated, t->endpoint.mode, &found);
    if (fd < 0)
        return fd;
    int status = mqc_map_file(&t->endpoint, fd, &found, true, path, &t->side);
    if (!status) {
        mq_ring_side_init(mqc_topic_side_header(t), mqc_topic_ring_header(t), t->ring.inode, t->data_bytes,
                          (uint64_t)msgq_time_ns(), tracked);
        if (sizer)
            mq_ring_side_record_size(mqc_topic_side_header(t), sizer, t->asked != 0);
        status = mqc_name_file(&t->endpoint, fd, path);
        if (status != 1)
            mqc_unmap_file(&t->side);
    }
    close(fd);
    return status;
}

/* Map the side segment without a check of its header. Returns 1 if the file is mapped, and 0 if it does not exist. */
static int mqc_side_map(mqc_topic_files *t, const char *path) {
    struct stat found;
    int fd = mqc_open_file(&t->endpoint, path, O_RDWR);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    int status = mqc_check_file(&t->endpoint, fd, path, &found);
    if (!status && found.st_size != MQ_SIDE_BYTES)
        status = mqc_endpoint_error(&t->endpoint, EPROTO, "%s has %lld bytes, not %d; remove it", path,
                                    (long long)found.st_size, MQ_SIDE_BYTES);
    if (!status)
        status = mqc_map_file(&t->endpoint, fd, &found, true, path, &t->side);
    close(fd);
    return status ? status : 1;
}

/* Open the side segment. Returns 1 if the file is mapped. Returns 0 if the file does not exist, or was stale and is now
 * removed. If messages of the stale file's topic were tracked, the call sets *tracked. */
static int mqc_side_open(mqc_topic_files *t, const char *path, bool *tracked) {
    int status = mqc_side_map(t, path);
    if (status != 1)
        return status;
    status = 0;
    mq_file_check_result check = mq_ring_side_check(mqc_topic_side_header(t), t->ring.inode, t->data_bytes);
    if (check == MQ_FILE_VALID &&
        !mq_ring_canary_is_missing(mqc_topic_ring_header(t), mqc_topic_side_header(t), t->data_bytes))
        return 1;
    if (check == MQ_FILE_VALID || check == MQ_FILE_STALE) {
        *tracked |= mq_ring_side_was_tracked(mqc_topic_side_header(t), t->ring.inode);
        mq_ring_move_to_next_lap(mqc_topic_ring_header(t), mqc_topic_side_header(t), t->ring.inode, t->data_bytes);
        status = mqc_remove_file(&t->endpoint, path);
        status = status < 0 ? status : 0;
    } else if (check == MQ_FILE_OTHER_VERSION)
        status = mqc_endpoint_error(&t->endpoint, EPROTO,
                                    "has another layout version than this library; use one version of msgq");
    else
        status = mqc_endpoint_error(&t->endpoint, EPROTO, "%s is not a side segment of msgq; remove it", path);
    mqc_unmap_file(&t->side);
    return status;
}

/* Open or create the side segment of the locked ring. `made`: this call created the ring. */
static int mqc_side_have(mqc_topic_files *t, bool made) {
    char path[MQC_PATH];
    mq_process_identity self;
    bool tracked = false;
    int status = mqc_read_own_identity(&self);
    mqc_format_path(&t->endpoint, "msgqside_", t->endpoint.name, path);
    while (status == 0) {
        status = mqc_side_open(t, path, &tracked);
        /* The canary is written after the side segment is open, because the open uses a missing canary to detect a
         * truncated ring. */
        mq_ring_canary_write(mqc_topic_ring_header(t), t->data_bytes, mqc_random_u32() | 1);
        if (status == 0)
            status = mqc_side_make(t, path, tracked, made ? &self : NULL);
    }
    if (status < 0)
        return status;
    mq_ring_side_record_ring(mqc_topic_side_header(t), mqc_topic_ring_header(t), t->data_bytes);
    if (t->asked && mq_ring_size_is_unasked(mqc_topic_side_header(t)))
        mq_ring_side_record_size(mqc_topic_side_header(t), &self, true);
    t->canary = mq_canary_of_ring(mqc_topic_ring_header(t), t->data_bytes, t->ring.not_truncated);
    /* If the side segment is truncated, the mapping of the ring reads as zeros, too. Therefore a check of the ring is
     * enough. */
    bool paired = mqc_pair_guards(&t->side, &t->ring);
    return paired && !mq_mapping_was_truncated(t->ring.not_truncated) ? 0 : mqc_topic_truncation_error(t);
}

/* Remove a ring that this call created but cannot use. Keep the ring if its header shows that a stock process has
 * joined. */
static void mqc_ring_abandon(mqc_topic_files *t) {
    static const char zeros[MQ_RING_HEADER];
    if (!mq_mapping_was_truncated(t->ring.not_truncated) && memcmp(t->ring.address, zeros, sizeof zeros) == 0)
        mqc_remove_file(&t->endpoint, t->ring.path);
}

/* ---- open ---- */

static int mqc_topic_open_once(mqc_topic_files *t) {
    char path[MQC_PATH];
    int taken = 0, made = 0;
    int status = mqc_make_directory(&t->endpoint, "msgq_", t->endpoint.mode);
    if (!status)
        status = mqc_make_directory(&t->endpoint, "msgqside_", t->endpoint.mode);
    if (status)
        return status;
    mqc_format_path(&t->endpoint, "msgq_", t->endpoint.name, path);
    while (taken == 0 && made == 0) {
        taken = mqc_ring_take(t, path, t->asked);
        if (taken == 0)
            made = mqc_ring_make(t, path, t->asked);
    }
    if (taken < 0 || made < 0)
        return taken < 0 ? taken : made;
    status = mqc_side_have(t, made);
    if (status && made)
        mqc_ring_abandon(t);
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
    if (!status && (options->open.create || (t->asked && t->asked < MQC_DATA_MIN)))
        status = mqc_endpoint_error(&t->endpoint, EINVAL,
                                    "give create 0 for a topic, and a segment_size of 0, or at least %d", MQC_DATA_MIN);
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
    int status = mqc_check_file(&t->endpoint, fd, former.path, &found);
    bool grew = !status && found.st_ino == former.inode && (uint64_t)found.st_size > former.size;
    if (grew && !(status = mqc_ring_check_size(t, &found)))
        status = mqc_ring_map(t, fd, &found, former.path);
    close(fd);
    if (status || !grew) {
        t->ring = former;
        t->data_bytes = (uint32_t)(former.size - MQ_RING_HEADER);
        return status;
    }
    mq_ring_canary_write(mqc_topic_ring_header(t), t->data_bytes, mqc_random_u32() | 1);
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
