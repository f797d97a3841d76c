/* Open or create both files of a topic, under the flock of the ring's file. Python and C use these steps.
 *
 *   1. Open the ring and lock it, or create it: locked, with its size, and then named. A ring that was removed before
 *      the lock is opened again.
 *   2. Map the ring.
 *   3. Open and check the side segment; remove a stale one.
 *   4. Write the ring's canary. Afterwards a missing canary shows that the ring was truncated, so step 3 comes first.
 *   5. Without a side segment: create it, complete before it has a name. If a process without the lock was faster,
 *      repeat from step 3.
 *   6. Store the ring's size and canary in the side segment.
 *
 * The participant then takes its row, and unlocks. A process that is killed between two steps leaves a complete ring
 * without a side segment, or one with the size that `size_unasked` describes. The next process that opens the topic
 * completes them. No step waits for the lock: the result is then MQ_FILE_LOCKED, nothing is held, and the caller waits
 * in the way of its language. */
#ifndef MQ_RING_TOPIC_OPEN_H
#define MQ_RING_TOPIC_OPEN_H

#include <sys/file.h>

#include "ring/topic_files.h"

enum { MQ_TOPIC_TRIES = 100 }; /* attempts while other processes remove the directories of the prefix */

/* The mapped files of a topic. */
typedef struct {
    mq_mapping *ring, *side; /* side: NULL if the topic was opened passive, and has none */
    mq_canary canary;        /* detects a truncation of one of both files */
    int lock;                /* descriptor of the ring's file with its flock; -1: not locked */
} mq_topic_files;

static inline mq_ring_header *mq_topic_ring(const mq_topic_files *topic) {
    return (mq_ring_header *)(void *)topic->ring->address;
}

static inline mq_ring_side *mq_topic_side(const mq_topic_files *topic) {
    return (mq_ring_side *)(void *)topic->side->address;
}

static inline uint32_t mq_topic_data_bytes(const mq_topic_files *topic) {
    return (uint32_t)(topic->ring->size - MQ_RING_HEADER);
}

static inline void mq_topic_unlock(mq_topic_files *topic) {
    mq_unlock_file(topic->lock);
    topic->lock = -1;
}

/* Unlock and release both files. */
static inline void mq_topic_close(mq_topic_files *topic) {
    mq_topic_unlock(topic);
    mq_mapping_release(topic->side);
    mq_mapping_release(topic->ring);
    topic->side = topic->ring = NULL;
}

/* Write the ring's canary, unless it has one. Nobody can truncate a private ring, so it has none. */
static inline void mq_topic_write_canary(const mq_topic_files *topic) {
    if (!topic->ring->private_file && mq_ring_canary_is_unset(mq_topic_ring(topic), mq_topic_data_bytes(topic)))
        mq_ring_canary_write(mq_topic_ring(topic), mq_topic_data_bytes(topic), mq_random_u32() | 1);
}

/* Select the words that detect a truncation. The ring has its canary by now, or never gets one. If the side segment is
 * truncated, the ring reads as zeros, too, so it is enough to check the ring. */
static inline int mq_topic_load_canary(mq_topic_files *topic, const char *ring_path, const char *side_path,
                                       mq_error *error) {
    bool is_whole = !topic->side || mq_mapping_pair(topic->side, topic->ring);
    topic->canary = mq_canary_always_intact();
    if (!topic->ring->not_truncated) /* a load of the canary could raise SIGBUS */
        return 0;
    topic->canary = mq_canary_of_ring(mq_topic_ring(topic), mq_topic_data_bytes(topic), topic->ring->not_truncated);
    /* a file that was truncated after its size was read: the canary was written into zeros of this process */
    if (is_whole && !mq_mapping_was_truncated(topic->ring->not_truncated))
        return 0;
    return mq_topic_fail_truncated(topic->ring, ring_path, topic->side, side_path, error);
}

/* ---- the ring ---- */

/* Lock the ring. `fd` is its descriptor, or the error of its opening. Returns 0, MQ_FILE_MISSING, MQ_FILE_LOCKED, or an
 * error. */
static inline int mq_topic_lock_file(const mq_topic_request *request, mq_topic_files *topic, int fd, mq_error *error) {
    if (fd < 0)
        return fd == -ENOENT ? MQ_FILE_MISSING : fd;
    topic->lock = fd;
    if (mq_lock_file(fd) == 0)
        return 0;
    return errno == EWOULDBLOCK || errno == EINTR ? MQ_FILE_LOCKED
                                                  : mq_fail_system(error, errno, request->ring_path, "cannot lock");
}

/* Lock and map an existing ring. */
static inline int mq_topic_lock_ring(const mq_topic_request *request, mq_topic_files *topic, mq_error *error) {
    struct stat found;
    int status, ready = 0;
    while (!ready) {
        mq_topic_unlock(topic);
        int fd = mq_open_file(request->policy, request->ring_path, O_RDWR, error);
        if ((status = mq_topic_lock_file(request, topic, fd, error)))
            return status;
        ready = mq_topic_prepare_ring(request, topic->lock, &found, error);
    }
    if (ready < 0)
        return ready;
    return mq_ring_map(request->policy, topic->lock, &found, true, request->ring_path, &topic->ring, error);
}

/* Create the ring, locked and mapped before it has a name. Returns MQ_FILE_EXISTS if another process was faster. */
static inline int mq_topic_create_ring(const mq_topic_request *request, mq_topic_files *topic, mq_error *error) {
    struct stat made;
    const char *path = request->ring_path;
    int fd = mq_create_file(request->policy, path, 0, 0, request->mode, &made, error);
    int status = fd < 0 ? fd : mq_topic_lock_file(request, topic, fd, error);
    if (!status)
        status = mq_ring_grow(request->policy, fd, request->data_bytes, path, error);
    made.st_size = MQ_RING_HEADER + (off_t)request->data_bytes;
    if (!status)
        status = mq_ring_map(request->policy, fd, &made, true, path, &topic->ring, error);
    if (status)
        return status;
    int named = mq_name_file(request->policy, fd, path, error);
    if (named == 0)
        mq_topic_close(topic);
    return named < 0 ? named : named ? 0 : MQ_FILE_EXISTS;
}

/* Lock the ring, as requested. *made: this call created it. */
static inline int mq_topic_obtain_ring(const mq_topic_request *request, mq_topic_files *topic, bool *made,
                                       mq_error *error) {
    int status;
    do {
        status = request->create == MQ_ONLY_CREATE ? MQ_FILE_MISSING : mq_topic_lock_ring(request, topic, error);
        if (status == MQ_FILE_MISSING && request->create != MQ_ONLY_OPEN) {
            status = mq_topic_create_ring(request, topic, error);
            *made = status == 0;
        }
    } while (status == MQ_FILE_EXISTS && request->create == MQ_OPEN_OR_CREATE);
    return status;
}

/* Remove a ring that this process created and cannot use, unless its header shows that a stock process has joined. */
static inline void mq_topic_remove_unused_ring(const mq_topic_request *request, const mq_mapping *ring) {
    static const uint8_t zeros[MQ_RING_HEADER];
    mq_error ignored;
    if (!mq_mapping_was_truncated(ring->not_truncated) && memcmp(ring->address, zeros, sizeof zeros) == 0)
        mq_remove_file(request->policy, request->ring_path, &ignored);
}

/* ---- the side segment ---- */

/* Map the ring's side segment if there is one, and remove a stale one. *tracked is set if a stale one says that the
 * ring's messages are tracked. */
static inline int mq_topic_open_side(const mq_topic_request *request, mq_topic_files *topic, bool *tracked,
                                     mq_error *error) {
    mq_mapping *side;
    int status = mq_topic_map_side(request, true, &side, error);
    if (status || !side)
        return status;
    const mq_ring_side *rows = (const mq_ring_side *)(void *)side->address;
    uint32_t data_bytes = mq_topic_data_bytes(topic);
    status = mq_topic_check_side(request, mq_topic_ring(topic), topic->ring->inode, data_bytes, rows, error);
    if (status == 1) {
        topic->side = side;
        return 0;
    }
    if (status == 0) {
        *tracked |= mq_ring_side_was_tracked(rows, topic->ring->inode);
        mq_ring_move_to_next_lap(mq_topic_ring(topic), rows, topic->ring->inode, data_bytes);
        status = mq_remove_file(request->policy, request->side_path, error);
    }
    mq_mapping_release(side);
    return status < 0 ? status : 0;
}

/* Create the side segment, complete before it has a name. `made`: this process created the ring, too. If a process
 * without the lock was faster, topic->side stays NULL. */
static inline int mq_topic_create_side(const mq_topic_request *request, mq_topic_files *topic, bool made, bool tracked,
                                       mq_error *error) {
    const mq_file_policy *policy = request->policy;
    uint64_t allocated = mq_makes_holes(policy) ? mq_ring_side_allocated_bytes() : MQ_SIDE_BYTES;
    struct stat found;
    mq_mapping *side = NULL;
    int fd = mq_create_file(policy, request->side_path, MQ_SIDE_BYTES, allocated, request->mode, &found, error);
    if (fd < 0)
        return fd;
    int status = mq_map_file(policy, fd, &found, MQ_SIDE_BYTES, request->side_path, &side, error);
    if (!status) {
        mq_ring_side *rows = (mq_ring_side *)(void *)side->address;
        mq_ring_side_init(rows, mq_topic_ring(topic), topic->ring->inode, mq_topic_data_bytes(topic), request->now_ns,
                          tracked);
        if (made)
            mq_ring_side_record_size(rows, request->self, request->is_size_asked);
        status = mq_name_file(policy, fd, request->side_path, error);
    }
    mq_close_file(fd);
    if (status == 1)
        topic->side = side;
    else
        mq_mapping_release(side);
    return status < 0 ? status : 0;
}

/* Open or create the side segment of the locked ring. */
static inline int mq_topic_obtain_side(const mq_topic_request *request, mq_topic_files *topic, bool made,
                                       mq_error *error) {
    bool tracked = false;
    int status = 0;
    while (!status && !topic->side) {
        status = mq_topic_open_side(request, topic, &tracked, error);
        mq_topic_write_canary(topic);
        if (!status && !topic->side)
            status = mq_topic_create_side(request, topic, made, tracked, error);
    }
    if (status)
        return status;
    mq_ring_side_record_ring(mq_topic_side(topic), mq_topic_ring(topic), mq_topic_data_bytes(topic));
    if (request->is_size_asked && mq_ring_size_is_unasked(mq_topic_side(topic)))
        mq_ring_side_record_size(mq_topic_side(topic), request->self, true);
    return mq_topic_load_canary(topic, request->ring_path, request->side_path, error);
}

/* ---- both ---- */

static inline int mq_topic_open_once(const mq_topic_request *request, mq_topic_files *topic, mq_error *error) {
    bool made = false;
    *topic = (mq_topic_files){.lock = -1};
    int status = mq_topic_obtain_ring(request, topic, &made, error);
    if (!status)
        status = mq_topic_obtain_side(request, topic, made, error);
    if (status && made)
        mq_topic_remove_unused_ring(request, topic->ring);
    if (status)
        mq_topic_close(topic);
    return status;
}

/* Open or create both files, and lock the topic. Returns 0, a result such as MQ_FILE_LOCKED, or an error. */
static inline int mq_topic_open(const mq_topic_request *request, mq_topic_files *topic, mq_error *error) {
    int status = -ENOENT, most = mq_has_directory(request->ring_path) ? MQ_TOPIC_TRIES : 1;
    for (int tries = 0; status == -ENOENT && tries < most; tries++) {
        status = mq_topic_open_once(request, topic, error);
        if (request->create == MQ_ONLY_OPEN)
            break;
    }
    return status;
}

/* Map a ring again whose open file is larger than its mapping. `former` stays as it is. Returns 1 with the new mapping
 * in topic->ring, 0 if the file has not grown, or an error. */
static inline int mq_topic_remap_ring(const mq_topic_request *request, int fd, const mq_mapping *former, bool writable,
                                      mq_topic_files *topic, mq_error *error) {
    struct stat found;
    int failed = mq_check_file(request->policy, fd, &found, request->ring_path, error);
    if (failed)
        return failed;
    if (found.st_ino != former->inode || (uint64_t)found.st_size <= former->size)
        return 0;
    failed = mq_ring_check_size(&found, request->ring_path, error);
    if (!failed)
        failed = mq_ring_map(request->policy, fd, &found, writable, request->ring_path, &topic->ring, error);
    if (failed)
        return failed;
    if (writable)
        mq_topic_write_canary(topic);
    failed = mq_topic_load_canary(topic, request->ring_path, request->side_path, error);
    if (failed)
        mq_mapping_release(topic->ring);
    return failed ? failed : 1;
}

#endif
