/* The two files of a topic: the request of a participant, checks, errors and sizes. topic_open.h opens the files by
 * these steps. Python and C use them. */
#ifndef MQ_RING_TOPIC_FILES_H
#define MQ_RING_TOPIC_FILES_H

#include "base/file.h"
#include "base/truncation.h"
#include "ring/registry.h"
#include "ring/resize.h"

enum { MQ_RING_DATA_BYTES_MIN = 128 }; /* a smaller ring has no room for three messages, even if they are empty */

/* The request of a participant for a topic. */
typedef struct {
    const mq_file_policy *policy;
    const char *ring_path, *side_path;
    uint32_t data_bytes; /* size of a new ring */
    bool is_size_asked;  /* the participant requests this size of an existing ring, too */
    mode_t mode;         /* permissions of new files */
    mq_create create;
    const mq_process_identity *self;
    uint64_t now_ns; /* time of the host's clock, for a new side segment */
} mq_topic_request;

/* ---- errors ---- */

/* Return what happened to a ring whose mapping is larger than its file was at some moment, for people. */
static inline const char *mq_ring_describe_change(const char *path, uint64_t inode, uint64_t data_bytes,
                                                  char text[static 48]) {
    int64_t bytes = mq_named_file_bytes(path, inode);
    snprintf(text, 48, "removed");
    if (bytes >= 0) {
        uint64_t current = bytes > MQ_RING_HEADER ? (uint64_t)bytes - MQ_RING_HEADER : 0;
        snprintf(text, 48, "set to %llu%s", (unsigned long long)current, current == data_bytes ? " again" : "");
    }
    return text;
}

/* Fill in the error of a truncated ring. */
static inline int mq_topic_fail_ring_size(const char *path, uint64_t inode, uint64_t data_bytes, mq_error *error) {
    char change[48];
    return mq_fail(error, MQ_ERROR_SIZE, ESTALE, path,
                   "was connected with segment_size %llu, which another process has since %s: a stock process sets "
                   "the file to its own size when it opens the topic. Give all processes the same segment_size; close "
                   "this socket and connect again",
                   (unsigned long long)data_bytes, mq_ring_describe_change(path, inode, data_bytes, change));
}

/* Fill in the error of a truncated side segment. */
static inline int mq_topic_fail_side_size(const char *path, mq_error *error) {
    return mq_fail(error, MQ_ERROR_SIZE, ESTALE, path,
                   "has a side segment of %d bytes that another program truncated. Close this socket, remove the topic "
                   "when it is not in use (msgq clean), and connect again",
                   MQ_SIDE_BYTES);
}

/* Fill in the error of a truncated ring or side segment. NULL: no side segment. */
static inline int mq_topic_fail_truncated(const mq_mapping *ring, const char *ring_path, const mq_mapping *side,
                                          const char *side_path, mq_error *error) {
    if (side && (mq_mapping_was_truncated(side->not_truncated) || mq_file_shrank(side_path, side->inode, side->size)))
        return mq_topic_fail_side_size(side_path, error);
    return mq_topic_fail_ring_size(ring_path, ring->inode, ring->size - MQ_RING_HEADER, error);
}

/* Fill in the error of a ring with another size. Name the process that chose the size, if it is known. */
static inline int mq_topic_fail_other_size(const mq_topic_request *request, uint64_t data_bytes,
                                           const mq_ring_side *side, mq_error *error) {
    uint64_t pid = side ? mq_load_relaxed_u64(&side->size_pid) : 0; /* relaxed: for people */
    bool is_default = pid && mq_ring_size_is_unasked(side);
    int status = mq_fail(error, MQ_ERROR_SIZE, EEXIST, request->ring_path, "exists with segment_size %llu",
                         (unsigned long long)data_bytes);
    if (pid)
        mq_error_append(error, " (%s process %llu, %.*s)", is_default ? "default of" : "requested by",
                        (unsigned long long)pid, MQ_NAME, side->size_by);
    mq_error_append(error,
                    ", but %u was requested; give 0 to use the existing size, or remove it when it is not in use (msgq "
                    "clean)",
                    request->data_bytes);
    if (is_default)
        mq_error_append(error, ". A default size changes only before the first message, and without a publisher or "
                               "stock process. It decreases only without subscribers");
    return status;
}

/* ---- the ring ---- */

/* Grow the ring's file to `data_bytes` of data, and allocate its last page. Never truncates the file. */
static inline int mq_ring_grow(const mq_file_policy *policy, int fd, uint64_t data_bytes, const char *path,
                               mq_error *error) {
    uint64_t bytes = MQ_RING_HEADER + data_bytes;
    if (!mq_makes_holes(policy) || mq_is_private_fd(fd))
        return mq_grow_file(policy, fd, 0, bytes, path, error);
    if (mq_file_system_free_bytes(fd) < bytes + MQ_SIDE_BYTES)
        return mq_fail_system(error, ENOSPC, path, "cannot allocate %llu bytes", (unsigned long long)bytes);
    return mq_grow_file(policy, fd, bytes - 8, bytes, path, error);
}

/* Needs no lock. */
static inline int mq_ring_check_size(const struct stat *found, const char *path, mq_error *error) {
    int64_t data_bytes = (int64_t)found->st_size - MQ_RING_HEADER;
    if (data_bytes >= MQ_RING_DATA_BYTES_MIN && data_bytes <= UINT32_MAX)
        return 0;
    return mq_fail(error, MQ_ERROR_CORRUPT, EPROTO, path,
                   "has %lld bytes, and is not a ring (truncated, or of another program); remove it when it is not in "
                   "use",
                   (long long)found->st_size);
}

/* Populate the first and the last page of the mapped ring, which all processes write. Other processes may truncate the
 * file. */
static inline int mq_ring_populate_ends(int fd, const struct stat *found, uint8_t *address, const char *path,
                                        mq_error *error) {
    struct stat now;
    uint64_t bytes = (uint64_t)found->st_size;
    if (mq_populate(address, MQ_RING_HEADER, 0) && mq_populate(address + bytes - 8, 8, 0))
        return 0;
    if (fstat(fd, &now) == 0 && now.st_size < found->st_size)
        return mq_topic_fail_ring_size(path, found->st_ino, bytes - MQ_RING_HEADER, error);
    return mq_fail_system(error, ENOSPC, path, "cannot allocate memory for the ends of the ring");
}

/* Map a ring of valid size with its memory. `found` is the status of the file. */
static inline int mq_ring_map(const mq_file_policy *policy, int fd, const struct stat *found, bool writable,
                              const char *path, mq_mapping **ring, mq_error *error) {
    uint64_t bytes = (uint64_t)found->st_size;
    bool is_backed = !writable || mq_is_private_fd(fd) || (uint64_t)found->st_blocks * 512 >= bytes;
    bool makes_holes = mq_makes_holes(policy);
    int failed = is_backed || makes_holes ? 0 : mq_grow_file(policy, fd, 0, bytes, path, error);
    if (!failed)
        failed = mq_map_file(policy, fd, found, writable ? bytes : 0, path, ring, error);
    if (failed || is_backed || !makes_holes || mq_load_acquire_u32(&(*ring)->is_populated))
        return failed;
    failed = mq_ring_populate_ends(fd, found, (*ring)->address, path, error);
    mq_store_release_u32(&(*ring)->is_populated, !failed);
    if (failed) {
        mq_mapping_release(*ring);
        *ring = NULL;
    }
    return failed;
}

/* ---- the side segment ---- */

/* Check the opened file of a side segment, and its size. Needs no lock. */
static inline int mq_topic_check_side_file(const mq_topic_request *request, int fd, struct stat *found,
                                           mq_error *error) {
    int failed = mq_check_file(request->policy, fd, found, request->side_path, error);
    if (!failed && found->st_size != MQ_SIDE_BYTES)
        failed = mq_fail(error, MQ_ERROR_CORRUPT, EPROTO, request->side_path, "has %lld bytes, not %d; remove it",
                         (long long)found->st_size, MQ_SIDE_BYTES);
    return failed;
}

/* Map the side segment if it exists and has its size, without a check of its header. Needs no lock. */
static inline int mq_topic_map_side(const mq_topic_request *request, bool writable, mq_mapping **side,
                                    mq_error *error) {
    struct stat found;
    *side = NULL;
    int fd = mq_open_file(request->policy, request->side_path, writable ? O_RDWR : O_RDONLY, error);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    int failed = mq_topic_check_side_file(request, fd, &found, error);
    if (!failed)
        failed =
            mq_map_file(request->policy, fd, &found, writable ? MQ_SIDE_BYTES : 0, request->side_path, side, error);
    mq_close_file(fd);
    return failed;
}

/* Check the mapped side segment. Returns 1 if it is valid, 0 if it is stale, or an error. Needs no lock. */
static inline int mq_topic_check_side(const mq_topic_request *request, const mq_ring_header *ring, uint64_t inode,
                                      uint32_t data_bytes, const mq_ring_side *side, mq_error *error) {
    mq_file_check_result check = mq_ring_side_check(side, inode, data_bytes);
    if (check == MQ_FILE_VALID)
        return !mq_ring_canary_is_missing(ring, side, data_bytes);
    if (check == MQ_FILE_STALE)
        return 0;
    if (check == MQ_FILE_OTHER_VERSION)
        return mq_fail(error, MQ_ERROR_LAYOUT_VERSION, EPROTO, request->side_path,
                       "has layout version %llu, but this library has %d; use one version of msgq, or remove the file "
                       "when it is not in use (msgq clean)",
                       (unsigned long long)mq_ring_side_version(side), MQ_SIDE_VERSION);
    return mq_fail(error, MQ_ERROR_CORRUPT, EPROTO, request->side_path, "is not a side segment of msgq; remove it");
}

/* ---- another size ---- */

/* True if the mapped ring may take the requested size. */
static inline bool mq_topic_may_resize(const mq_topic_request *request, const mq_mapping *ring,
                                       const mq_mapping *side) {
    const mq_ring_side *rows = (const mq_ring_side *)(void *)side->address;
    mq_liveness_file file = mq_liveness_file_of(request->side_path, side->device, side->inode);
    uint64_t data_bytes = ring->size - MQ_RING_HEADER;
    return mq_ring_may_be_resized((const mq_ring_header *)(void *)ring->address, rows, &file) &&
           (request->data_bytes > data_bytes || !mq_ring_has_subscribers(rows, &file));
}

/* Give the requested size to an empty ring, unless a process has requested its size. A larger size: the file grows,
 * and subscribers map it again. A smaller size: an unused ring is removed, because a truncated file would kill
 * processes without the SIGBUS handler. Returns 1 if the ring grew, 0 if it was removed, or an error. */
static inline int mq_topic_resize_ring(const mq_topic_request *request, int fd, const struct stat *found,
                                       mq_error *error) {
    mq_mapping *ring, *side = NULL;
    uint64_t data_bytes = (uint64_t)found->st_size - MQ_RING_HEADER;
    bool grows = request->data_bytes > data_bytes;
    int status = mq_map_file(request->policy, fd, found, 0, request->ring_path, &ring, error);
    if (!status)
        status = mq_topic_map_side(request, false, &side, error);
    if (status >= 0) {
        const mq_ring_side *rows = side ? (const mq_ring_side *)(void *)side->address : NULL;
        status = rows ? mq_topic_check_side(request, (const mq_ring_header *)(void *)ring->address, found->st_ino,
                                            (uint32_t)data_bytes, rows, error)
                      : 0;
        if (status == 0 || (status == 1 && !mq_topic_may_resize(request, ring, side)))
            status = mq_topic_fail_other_size(request, data_bytes, status ? rows : NULL, error);
        else if (status == 1)
            status = grows ? mq_ring_grow(request->policy, fd, request->data_bytes, request->ring_path, error)
                           : mq_remove_file(request->policy, request->ring_path, error);
    }
    mq_mapping_release(side);
    mq_mapping_release(ring);
    return status < 0 ? status : grows;
}

/* Check an opened and locked ring, and give it its size. A stock process creates an empty file and sizes it later, so
 * an empty file gets its size here. Returns 1 and the file's status, 0 if the ring was removed, or an error. */
static inline int mq_topic_prepare_ring(const mq_topic_request *request, int fd, struct stat *found, mq_error *error) {
    const char *path = request->ring_path;
    int status = mq_check_file(request->policy, fd, found, path, error);
    if (status || !found->st_nlink)
        return status;
    if (found->st_size == 0) {
        status = mq_ring_grow(request->policy, fd, request->data_bytes, path, error);
        if (status || (status = mq_check_file(request->policy, fd, found, path, error)))
            return status;
    }
    if ((status = mq_ring_check_size(found, path, error)))
        return status;
    if (!request->is_size_asked || (uint64_t)found->st_size == MQ_RING_HEADER + (uint64_t)request->data_bytes)
        return 1;
    status = mq_topic_resize_ring(request, fd, found, error);
    if (status == 1 && (status = mq_check_file(request->policy, fd, found, path, error)) == 0)
        return 1;
    return status;
}

/* ---- rows ---- */

/* Take a row and the ring for a publisher. *former is the uid of the previous publisher: wait for the end of its send,
 * then call mq_ring_publisher_start, or mq_ring_publisher_release_ring to give the ring back. */
static inline int mq_topic_claim_ring(mq_ring_publisher *p, const mq_process_identity *self, uint32_t random,
                                      uint64_t *former, mq_error *error) {
    if (!mq_ring_publisher_claim(p, self, random, former))
        return mq_fail(error, MQ_ERROR_PUBLISHERS, EADDRINUSE, "",
                       "has %d open publishers in living processes; close those that were replaced",
                       MQ_RING_PUBLISHERS);
    return 0;
}

/* Fill in the error of a publisher or subscriber that cannot start. NULL: no side segment. */
static inline int mq_topic_fail_start(const mq_canary *canary, const mq_mapping *ring, const char *ring_path,
                                      const mq_mapping *side, const char *side_path, mq_error *error) {
    /* without the SIGBUS handler, the canary never changes */
    if (!mq_canary_is_intact(canary) || mq_file_shrank(ring_path, ring->inode, ring->size) ||
        (side && mq_file_shrank(side_path, side->inode, side->size)))
        return mq_topic_fail_truncated(ring, ring_path, side, side_path, error);
    return mq_fail(error, MQ_ERROR_CORRUPT, EPROTO, ring_path,
                   "has an invalid write pointer: another program wrote into the file. Remove it when it is not in use "
                   "(msgq clean)");
}

#endif
