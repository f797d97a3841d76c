/* The files of the host's clock and of a user's origins (docs/internals/clock.md): find, check and create them. Python
 * and C use these steps. A process that cannot use a file continues with a clock or origins of its own. */
#ifndef MQ_CLOCK_FILE_H
#define MQ_CLOCK_FILE_H

#include <stdlib.h>
#include <time.h>

#include "base/file.h"
#include "base/futex.h"
#include "base/origin.h"
#include "base/process_info.h"

enum {
    MQ_CLOCK_TRIES = 5,        /* readings of two clocks; also attempts to open or create a file */
    MQ_CLOCK_FILE_MODE = 0444, /* all users may read the file, and no one may change it */
    MQ_ORIGIN_FILE_MODE = 0600,
};
#define MQ_CLOCK_TIME_MAX_NS ((uint64_t)1 << 62) /* later times are invalid */

/* ---- readings ---- */

/* Return how far a clock is ahead of CLOCK_MONOTONIC, from the fastest of several readings, because the kernel may
 * preempt the thread between two of them. */
static inline int64_t mq_offset_from_monotonic_ns(int clock) {
    int64_t narrowest = -1, offset = 0;
    for (int i = 0; i < MQ_CLOCK_TRIES; i++) {
        int64_t before = mq_monotonic_ns(), reading = mq_read_clock_ns(clock), after = mq_monotonic_ns();
        if (narrowest >= 0 && after - before >= narrowest)
            continue;
        narrowest = after - before;
        offset = reading - (before + narrowest / 2);
    }
    return offset;
}

/* Store how far CLOCK_MONOTONIC of this time namespace is ahead of the first namespace's. */
static inline int mq_namespace_offset_ns(int64_t *ahead, mq_error *error) {
    static const char offsets[] = "/proc/self/timens_offsets";
    char ours[64] = "", childrens[64] = "", text[512];
    long long seconds, nanoseconds;
    *ahead = 0;
    if (readlink("/proc/self/ns/time", ours, sizeof ours - 1) < 0)
        return errno == ENOENT ? 0 /* the kernel has no time namespaces */
                               : mq_fail_system(error, errno, offsets, "no offset of this time namespace");
    if (!strcmp(ours, "time:[4026531834]"))
        return 0; /* the first time namespace */
    bool has_text = readlink("/proc/self/ns/time_for_children", childrens, sizeof childrens - 1) > 0 &&
                    mq_read_proc_file(offsets, text, sizeof text) > 0; /* the offset of future children */
    const char *line = has_text ? strstr(text, "monotonic") : NULL;
    if (!line || sscanf(line, "monotonic %lld %lld", &seconds, &nanoseconds) != 2)
        return mq_fail(error, MQ_ERROR_FILE, ENODATA, offsets, "no offset of this time namespace");
    if (strcmp(ours, childrens) != 0)
        return mq_fail(error, MQ_ERROR_FILE, ENODATA, "/proc/self/ns/time",
                       "clock offset of this namespace is unknown");
    *ahead = seconds * MQ_NS_PER_S + nanoseconds;
    return 0;
}

/* ---- the clock ---- */

/* Check the words of a clock's file, and store its offset. */
static inline int mq_check_clock(const uint64_t *words, ssize_t bytes, int64_t ahead, const char *path, int64_t *offset,
                                 mq_error *error) {
    *offset = (int64_t)words[2];
    if (bytes != sizeof(mq_clock))
        return mq_fail(error, MQ_ERROR_FILE, EPROTO, path, "has %lld bytes or more, not %zu; remove it",
                       (long long)bytes, sizeof(mq_clock));
    if (words[0] != MQ_CLOCK_MAGIC || words[1] != MQ_CLOCK_VERSION)
        return mq_fail(error, MQ_ERROR_FILE, EPROTO, path, "is not a clock of version %d; remove it", MQ_CLOCK_VERSION);
    if ((uint64_t)mq_monotonic_ns() - (uint64_t)ahead + words[2] >= MQ_CLOCK_TIME_MAX_NS)
        return mq_fail(error, MQ_ERROR_FILE, EPROTO, path, "has the invalid offset %lld ns; remove it",
                       (long long)*offset);
    return 0;
}

/* Store the offset of the file. Returns 1, 0 if the file does not exist, or an error. */
static inline int mq_read_clock_file(const mq_file_policy *policy, const char *path, int64_t ahead, int64_t *offset,
                                     mq_error *error) {
    uint64_t words[sizeof(mq_clock) / sizeof(uint64_t) + 1] = {0};
    struct stat found;
    int fd = mq_open_file(policy, path, O_RDONLY, error);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    int failed = mq_check_file(policy, fd, &found, path, error);
    if (!failed && found.st_mode & (S_IWGRP | S_IWOTH))
        failed = mq_fail(error, MQ_ERROR_FILE, EACCES, path,
                         "is not a trusted clock, because others can write it; remove it");
    if (!failed)
        failed = mq_check_clock(words, pread(fd, words, sizeof words, 0), ahead, path, offset, error);
    close(fd);
    return failed ? failed : 1;
}

/* Create a file of eight words. Returns 1, or 0 if another process was faster. */
static inline int mq_create_word_file(const mq_file_policy *policy, const char *path, const uint64_t words[8],
                                      mode_t mode, mq_error *error) {
    struct stat made;
    int fd = mq_create_file(policy, path, 0, 0, mode, &made, error);
    if (fd < 0)
        return fd;
    ssize_t written = pwrite(fd, words, 64, 0);
    int named = written == 64 ? mq_name_file(policy, fd, path, error)
                              : mq_fail_system(error, written < 0 ? errno : ENOSPC, path, "cannot be written");
    close(fd);
    return named;
}

/* Store the offset of the file at `path`, which is created if needed. A new file gets the offset of the file `other`
 * if that file is valid. */
static inline int mq_agree_on_clock_offset(const mq_file_policy *policy, const char *path, const char *other,
                                           int64_t ahead, int64_t *offset, mq_error *error) {
    mq_error ignored;
    for (int tries = 0; tries < MQ_CLOCK_TRIES; tries++) {
        int found = mq_read_clock_file(policy, path, ahead, offset, error);
        if (found)
            return found < 0 ? found : 0;
        if (mq_read_clock_file(policy, other, ahead, offset, &ignored) != 1)
            *offset = mq_offset_from_monotonic_ns(CLOCK_REALTIME) + ahead;
        uint64_t words[8] = {MQ_CLOCK_MAGIC, MQ_CLOCK_VERSION, (uint64_t)*offset};
        int named = mq_create_word_file(policy, path, words, MQ_CLOCK_FILE_MODE, error);
        if (named)
            return named < 0 ? named : 0;
    }
    return mq_fail(error, MQ_ERROR_FILE, EAGAIN, path, "other processes keep creating and removing it");
}

/* ---- origins ---- */

/* Map the file of origins. Returns 1, 0 if the file does not exist, or an error. */
static inline int mq_map_origin_file(const mq_file_policy *policy, const char *path, mq_mapping **mapping,
                                     mq_error *error) {
    struct stat found;
    int fd = mq_open_file(policy, path, O_RDWR, error);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    int failed = mq_check_file(policy, fd, &found, path, error);
    if (!failed && found.st_size != sizeof(mq_origin))
        failed = mq_fail(error, MQ_ERROR_FILE, EPROTO, path, "has %lld bytes, not %zu; remove it",
                         (long long)found.st_size, sizeof(mq_origin));
    if (!failed)
        failed = mq_map_file(policy, fd, &found, sizeof(mq_origin), path, mapping, error);
    close(fd);
    if (failed)
        return failed;
    const mq_origin *origin = (const mq_origin *)(void *)(*mapping)->address;
    if (mq_load_acquire_u64(&origin->magic) == MQ_ORIGIN_MAGIC &&
        mq_load_acquire_u64(&origin->version) == MQ_ORIGIN_VERSION)
        return 1;
    mq_mapping_release(*mapping);
    return mq_fail(error, MQ_ERROR_FILE, EPROTO, path, "has no origins of version %d; remove it", MQ_ORIGIN_VERSION);
}

/* Map the file of origins, which is created if needed. */
static inline int mq_open_origins(const mq_file_policy *policy, const char *path, mq_mapping **mapping,
                                  mq_error *error) {
    static const uint64_t words[8] = {MQ_ORIGIN_MAGIC, MQ_ORIGIN_VERSION};
    for (int tries = 0; tries < MQ_CLOCK_TRIES; tries++) {
        int found = mq_map_origin_file(policy, path, mapping, error);
        if (found)
            return found < 0 ? found : 0;
        int named = mq_create_word_file(policy, path, words, MQ_ORIGIN_FILE_MODE, error);
        if (named < 0)
            return named;
    }
    return mq_fail(error, MQ_ERROR_FILE, EAGAIN, path, "other processes keep creating and removing it");
}

#endif
