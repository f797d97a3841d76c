/* Memory of a mapped file, allocated shortly before its use. A write into a hole of a full file system raises SIGBUS,
 * but MADV_POPULATE_WRITE returns an error. If the writers of a file populate the memory, the file is created with
 * holes. Creation with holes is much faster. */
#ifndef MQ_POPULATE_H
#define MQ_POPULATE_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/atomics.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* An emulator may accept unknown advice, or report all pages as resident. Therefore this function checks a page before
 * and after the madvise call. */
static inline bool mq_probe_populate_support(void) {
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char before = 1, after = 0;
    void *page = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return false;
    bool can = mincore(page, page_bytes, &before) == 0 && madvise(page, page_bytes, MADV_POPULATE_WRITE) == 0 &&
               mincore(page, page_bytes, &after) == 0;
    munmap(page, page_bytes);
    return can && !(before & 1) && (after & 1);
}

/* True if the kernel supports MADV_POPULATE_WRITE. If false, a file must get all of its memory at its creation. */
static inline bool mq_can_populate(void) {
    enum { UNKNOWN, NO, YES };
    static mq_u64 answer;
    uint64_t can = mq_load_relaxed_u64(&answer); /* relaxed: an independent number, the same for all */
    if (can == UNKNOWN)
        mq_store_relaxed_u64(&answer, can = mq_probe_populate_support() ? YES : NO);
    return can == YES;
}

/* Return the number of bytes that have no memory yet. `start` is the beginning of a page. */
static inline uint64_t mq_count_unpopulated_bytes(const char *start, uint64_t bytes) {
    enum { PAGES = 1024 };
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE), missing = 0;
    unsigned char there[PAGES];
    for (uint64_t from = 0; from < bytes; from += PAGES * page_bytes) {
        uint64_t length = bytes - from < PAGES * page_bytes ? bytes - from : PAGES * page_bytes;
        uint64_t pages = (length + page_bytes - 1) / page_bytes;
        if (mincore((void *)(uintptr_t)(start + from), length, there) != 0)
            return bytes;
        for (uint64_t page = 0; page < pages; page++)
            missing += there[page] & 1 ? 0 : page_bytes;
    }
    return missing;
}

/* Return the free bytes of a file system. A file system without a limit has 0 blocks. */
static inline uint64_t mq_count_free_bytes(const struct statvfs *found) {
    return found->f_blocks == 0 ? UINT64_MAX : (uint64_t)found->f_bavail * found->f_frsize;
}

/* Return the free bytes of /dev/shm. */
static inline uint64_t mq_shm_free_bytes(void) {
    struct statvfs found;
    return statvfs("/dev/shm", &found) == 0 ? mq_count_free_bytes(&found) : UINT64_MAX;
}

/* Return the free bytes of the file system of an open file. This call searches no path, so it is faster than
 * mq_shm_free_bytes. */
static inline uint64_t mq_file_system_free_bytes(int fd) {
    struct statvfs found;
    return fstatvfs(fd, &found) == 0 ? mq_count_free_bytes(&found) : UINT64_MAX;
}

/* Grow the file to `bytes` bytes, and allocate every page from `start` on. A full file system is an error here, but
 * SIGBUS at a later write. Returns 0 or an errno. */
static inline int mq_allocate_file(int fd, uint64_t start, uint64_t bytes) {
    int error;
    do
        error = posix_fallocate(fd, (off_t)start, (off_t)(bytes - start));
    while (error == EINTR);
    return error;
}

/* Give a new file its size. Only the first `allocated` bytes get memory, because its writers populate the others before
 * they use them. A file that is larger than the free memory is an error. Returns 0 or an errno. */
static inline int mq_grow_new_file(int fd, uint64_t bytes, uint64_t allocated) {
    if (allocated < bytes && mq_file_system_free_bytes(fd) < bytes)
        return ENOSPC;
    if (allocated < bytes && ftruncate(fd, (off_t)bytes) != 0)
        return errno;
    return mq_allocate_file(fd, 0, allocated);
}

/* True if /dev/shm has enough memory for the unpopulated bytes plus `spare` bytes. If the kernel runs out of memory
 * during a request, the kernel keeps the part that is already allocated. Without this check, a request that is too
 * large would fill the file system for all programs. Small requests skip the check. */
static inline bool mq_has_shm_space(const char *start, uint64_t bytes, uint64_t spare) {
    enum { LITTLE = 65536 };
    if (bytes + spare <= LITTLE)
        return true;
    uint64_t room = mq_shm_free_bytes();
    return room >= bytes + spare || room >= mq_count_unpopulated_bytes(start, bytes) + spare;
}

/* Allocate and map the memory of `bytes` bytes from `start` on. Leaves `spare` bytes free for other programs. The
 * mapping must be writable. Returns false if /dev/shm has too little memory, or the file is truncated. Call this only
 * if mq_can_populate returns true. */
static inline bool mq_populate(void *start, uint64_t bytes, uint64_t spare) {
    uint64_t beyond = (uintptr_t)start & ((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    char *page = (char *)start - beyond;
    int failed;
    if (!mq_has_shm_space(page, bytes + beyond, spare))
        return false;
    do
        failed = madvise(page, bytes + beyond, MADV_POPULATE_WRITE);
    while (failed && (errno == EINTR || errno == EAGAIN));
    return !failed;
}

#endif
