/* The file of a publisher's pool: its size, and the steps by which a publisher creates the file, and other processes
 * open it. Python and C use these steps.
 *
 *   `Create`: create the file without a name, map it, write its header. join.h gives it a name.
 *   `Open`: open the file, check its owner and size, map it, check its header. A process with views maps the pins
 *   writable. */
#ifndef MQ_CHANNEL_POOL_FILE_H
#define MQ_CHANNEL_POOL_FILE_H

#include "base/file.h"
#include "channel/header.h"

enum {
    MQ_POOL_SLOT_BYTES_DEFAULT = 4096,
    MQ_POOL_DEFAULT_BYTES = 1 << 26, /* default maximum of a pool's slots; a pool with four slots may have more bytes */
    MQ_POOL_SLOTS_MIN = 4,           /* slots of a pool whose number was not requested */
    MQ_POOL_SPARE_SLOTS = 2, /* slots beyond the capacity: one that is being written, and one that was just evicted */
};

/* The files of an open channel. */
typedef struct {
    const mq_file_policy *policy;
    const char *pool_prefix; /* path of a pool without its uid */
    mq_channel_header *header;
    const mq_liveness_file *liveness_file; /* the channel's file */
    mode_t mode;                           /* permissions of the channel's file */
} mq_channel_files;

/* The mapped file of a pool. */
typedef struct {
    mq_mapping *mapping;
    struct stat found;
    mq_pool_map slots;
} mq_pool_file;

static inline void mq_pool_path(const mq_channel_files *files, uint64_t uid, char path[static MQ_ERROR_PATH_BYTES]) {
    snprintf(path, MQ_ERROR_PATH_BYTES, "%s%016llx", files->pool_prefix, (unsigned long long)uid);
}

/* ---- sizes ---- */

/* Return the number of slots of a new pool: as requested, or one for each entry and some spare ones, within the
 * limits. 0 slots: no number was requested. */
static inline int64_t mq_pool_choose_slot_count(uint64_t capacity, uint64_t slots, uint64_t slot_bytes,
                                                uint64_t max_bytes, mq_error *error) {
    uint64_t stride = mq_pool_slot_stride_bytes(slot_bytes), wanted = slots;
    if (!slots) {
        wanted = capacity + MQ_POOL_SPARE_SLOTS;
        wanted = wanted < MQ_POOL_DEFAULT_BYTES / stride ? wanted : MQ_POOL_DEFAULT_BYTES / stride;
        wanted = wanted > MQ_POOL_SLOTS_MIN ? wanted : MQ_POOL_SLOTS_MIN;
        if (wanted * stride > max_bytes)
            wanted = max_bytes / stride ? max_bytes / stride : 1;
    }
    if (wanted > MQ_POOL_SLOTS_MAX)
        return mq_fail(error, MQ_ERROR_TOO_LARGE, EMSGSIZE, "", "a pool has at most %d slots, but %llu were requested",
                       MQ_POOL_SLOTS_MAX, (unsigned long long)wanted);
    if (wanted * stride > max_bytes)
        return mq_fail(error, MQ_ERROR_TOO_LARGE, EMSGSIZE, "",
                       "%llu slots of %llu bytes need %llu; the pool is limited to %llu bytes (max_bytes)",
                       (unsigned long long)wanted, (unsigned long long)slot_bytes,
                       (unsigned long long)(wanted * stride), (unsigned long long)max_bytes);
    return (int64_t)wanted;
}

/* Return the payload bytes of larger slots, for a message of `size` bytes that does not fit into slots of `slot_bytes`
 * bytes. A growing pool prefers four slots to larger slots. */
static inline int64_t mq_pool_grow_slot_bytes(uint64_t slots, uint64_t slot_bytes, uint64_t size, uint64_t max_bytes,
                                              mq_error *error) {
    uint64_t wanted = size > 2 * slot_bytes ? size : 2 * slot_bytes, least = slots ? slots : 1;
    if (size > max_bytes) /* prevents an overflow in the computation below */
        return mq_fail(error, MQ_ERROR_TOO_LARGE, EMSGSIZE, "",
                       "a message of %llu bytes does not fit: the pool is limited to %llu bytes (max_bytes)",
                       (unsigned long long)size, (unsigned long long)max_bytes);
    if ((slots ? slots : MQ_POOL_SLOTS_MIN) * mq_pool_slot_stride_bytes(wanted) > max_bytes)
        wanted = size;
    if (least * mq_pool_slot_stride_bytes(wanted) <= max_bytes)
        return (int64_t)wanted;
    return mq_fail(error, MQ_ERROR_TOO_LARGE, EMSGSIZE, "",
                   "a message of %llu bytes does not fit: %llu such slots need %llu bytes, and the pool is limited to "
                   "%llu bytes (max_bytes)",
                   (unsigned long long)size, (unsigned long long)least,
                   (unsigned long long)(least * mq_pool_slot_stride_bytes(size)), (unsigned long long)max_bytes);
}

/* ---- create ---- */

/* Create a complete pool without a name, and map it. Returns its descriptor. */
static inline int mq_pool_create(const mq_channel_files *files, uint64_t uid, uint64_t slots, uint64_t slot_bytes,
                                 uint64_t pid, const char *node, mq_pool_file *pool, mq_error *error) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), inode = files->liveness_file->inode;
    uint64_t header_bytes = mq_pool_header_bytes(slots, page);
    uint64_t bytes = header_bytes + slots * mq_pool_slot_stride_bytes(slot_bytes);
    /* other processes write only the header */
    uint64_t allocated = mq_makes_holes(files->policy) ? header_bytes : bytes;
    mode_t mode = (files->mode & 0666) | 0600; /* chmod may have changed the mode of the channel's file */
    char path[MQ_ERROR_PATH_BYTES];
    mq_pool_path(files, uid, path);
    int fd = mq_create_file(files->policy, path, bytes, allocated, mode, &pool->found, error);
    if (fd < 0)
        return fd;
    int failed = mq_map_file(files->policy, fd, &pool->found, bytes, path, &pool->mapping, error);
    if (failed) {
        mq_close_file(fd);
        return failed;
    }
    mq_pool_header *header = (mq_pool_header *)(void *)pool->mapping->address;
    mq_pool_header_init(header, bytes, slots, slot_bytes, page, inode, uid, pid, node);
    /* the header is valid, because no other process has the file */
    mq_pool_header_check(header, bytes, inode, uid, &pool->slots);
    return fd;
}

/* ---- open ---- */

/* Check the open file of a pool, and store its status in pool->found. */
static inline int mq_pool_check_file(const mq_channel_files *files, int fd, const char *path, mq_pool_file *pool,
                                     mq_error *error) {
    int failed = mq_check_file(files->policy, fd, &pool->found, path, error);
    if (!failed && (uint64_t)pool->found.st_size < sizeof(mq_pool_header))
        failed = mq_fail(error, MQ_ERROR_CORRUPT, EPROTO, path, "has %lld bytes, too few for a pool; remove it",
                         (long long)pool->found.st_size);
    return failed;
}

/* Check the mapped pool `uid`, and store its configuration in pool->slots. */
static inline int mq_pool_check_mapping(const mq_channel_files *files, uint64_t uid, const char *path,
                                        mq_pool_file *pool, mq_error *error) {
    const char *wrong = mq_pool_header_check((mq_pool_header *)(void *)pool->mapping->address, pool->mapping->size,
                                             files->liveness_file->inode, uid, &pool->slots);
    if (!wrong)
        return 0;
    mq_fail(error, MQ_ERROR_CORRUPT, EPROTO, path, "%s", wrong);
    return -EPROTO; /* a compiler that does not see the end of mq_fail expects slots without a value */
}

/* Map the checked file of the pool `uid`, and check its header. If `views`, the pins are writable. */
static inline int mq_pool_map_file(const mq_channel_files *files, int fd, uint64_t uid, bool views, const char *path,
                                   mq_pool_file *pool, mq_error *error) {
    uint64_t writable = 0;
    if (views && !mq_is_private_fd(fd) &&
        pread(fd, &writable, sizeof writable, offsetof(mq_pool_header, data_offset)) != sizeof writable)
        return mq_fail_system(error, EIO, path, "cannot read the header");
    int failed = mq_map_file(files->policy, fd, &pool->found, writable, path, &pool->mapping, error);
    if (failed)
        return failed;
    failed = mq_pool_check_mapping(files, uid, path, pool, error);
    /* in other files, pins may be outside the writable pages */
    if (!failed && views && !mq_is_private_fd(fd) && pool->slots.slots_base != pool->mapping->address + writable)
        failed = mq_fail(error, MQ_ERROR_CORRUPT, EPROTO, path, "changed during opening; another program writes it");
    if (failed)
        mq_mapping_release(pool->mapping);
    return failed;
}

/* Open, check and map the pool `uid`. Returns 0, -ENOENT without an error if the file does not exist, or an error. */
static inline int mq_pool_open(const mq_channel_files *files, uint64_t uid, bool views, mq_pool_file *pool,
                               mq_error *error) {
    char path[MQ_ERROR_PATH_BYTES];
    mq_pool_path(files, uid, path);
    int fd = mq_open_file(files->policy, path, views ? O_RDWR : O_RDONLY, error);
    if (fd < 0)
        return fd;
    int failed = mq_pool_check_file(files, fd, path, pool, error);
    if (!failed)
        failed = mq_pool_map_file(files, fd, uid, views, path, pool, error);
    mq_close_file(fd);
    return failed;
}

#endif
