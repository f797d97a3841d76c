/* Files of pools in memory of the program, in place of those of base/file.h: for the steps by which a publisher or viewer
 * joins a channel (channel/join.h). A file's descriptor is its pool's uid plus a number that no real descriptor reaches.
 *
 * Include this before channel/join.h. Before that, define MEMORY_FILES_MAX, the maximum uid, and `new_file_memory`, which
 * returns memory of zeros for the file of a pool. */
#ifndef MEMORY_FILES_H
#define MEMORY_FILES_H

#include "base/file.h"
#include "base/row_table.h"

enum { MEMORY_FILE_FIRST = 1 << 28 }; /* above the descriptors of the kernel, below those of private files */

#define MEMORY_FILE_PREFIX "/dev/shm/msgqpool_memory:"

static struct {
    uint8_t *memory;
    uint64_t bytes;
    bool named;
    mq_mapping mapping;
} memory_files[MEMORY_FILES_MAX + 1]; /* by uid */

static const mq_file_policy memory_file_policy = {.preallocate = true};

static inline uint64_t memory_file_uid(const char *path) {
    return strtoull(path + sizeof MEMORY_FILE_PREFIX - 1, NULL, 16);
}

static inline int memory_file_create(const char *path, uint64_t bytes, struct stat *made) {
    uint64_t uid = memory_file_uid(path);
    memory_files[uid].memory = new_file_memory(uid, bytes);
    memory_files[uid].bytes = bytes;
    memory_files[uid].named = false;
    *made = (struct stat){.st_size = (off_t)bytes};
    return MEMORY_FILE_FIRST + (int)uid;
}

static inline int memory_file_set_name(const char *path, bool named) {
    uint64_t uid = memory_file_uid(path);
    bool had = uid <= MEMORY_FILES_MAX && memory_files[uid].named;
    if (uid <= MEMORY_FILES_MAX)
        memory_files[uid].named = named;
    return had != named;
}

static inline int memory_file_open(const char *path) {
    uint64_t uid = memory_file_uid(path);
    return uid <= MEMORY_FILES_MAX && memory_files[uid].named ? MEMORY_FILE_FIRST + (int)uid : -ENOENT;
}

static inline int memory_file_check(int fd, struct stat *found) {
    *found = (struct stat){.st_size = (off_t)memory_files[fd - MEMORY_FILE_FIRST].bytes};
    return 0;
}

static inline int memory_file_map(int fd, mq_mapping **mapping) {
    *mapping = &memory_files[fd - MEMORY_FILE_FIRST].mapping;
    (*mapping)->address = memory_files[fd - MEMORY_FILE_FIRST].memory;
    (*mapping)->size = memory_files[fd - MEMORY_FILE_FIRST].bytes;
    return 0;
}

static inline ssize_t memory_file_read(int fd, void *buffer, size_t bytes, off_t offset) {
    memcpy(buffer, memory_files[fd - MEMORY_FILE_FIRST].memory + offset, bytes);
    return (ssize_t)bytes;
}

#undef mq_create_file
#undef mq_name_file
#undef mq_remove_file
#undef close
#undef pread
#define mq_create_file(policy, path, bytes, allocated, mode, made, error)                                              \
    ((void)(policy), (void)(allocated), (void)(mode), (void)(error), memory_file_create(path, bytes, made))
#define mq_name_file(policy, fd, path, error)                                                                          \
    ((void)(policy), (void)(fd), (void)(error), memory_file_set_name(path, true))
#define mq_remove_file(policy, path, error) ((void)(policy), (void)(error), memory_file_set_name(path, false))
#define mq_open_file(policy, path, flags, error) ((void)(policy), (void)(flags), (void)(error), memory_file_open(path))
#define mq_check_file(policy, fd, found, path, error)                                                                  \
    ((void)(policy), (void)(path), (void)(error), memory_file_check(fd, found))
#define mq_map_file(policy, fd, found, writable_bytes, path, mapping, error)                                           \
    ((void)(policy), (void)(writable_bytes), (void)(path), (void)(error), memory_file_map(fd, mapping))
#define mq_mapping_release(mapping) ((void)(mapping))
#define close(fd) ((void)(fd))
#define pread memory_file_read

#endif
