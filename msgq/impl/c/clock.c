/* The host's clock, and unique origins. base/clock.pyx and origin.pxi use the same files. Compile as C11. If the host's
 * file is invalid, the clock uses the file of this user. If the file of this user is invalid, too, the clock uses an
 * offset of this process. */
#define _GNU_SOURCE
#include "c/file.h"
#include "base/origin.h"

enum { MQC_CLOCK_TRIES = 5 };
static const int64_t MQC_LATEST_NS = 1ll << 62; /* latest valid time of the clock */
static const int64_t MQC_NO_OFFSET = INT64_MIN;

static _Thread_local int64_t mqc_origin;

void msgq_set_origin(int64_t origin_time) { mqc_origin = origin_time < 0 ? 0 : origin_time; }
int64_t msgq_origin(void) { return mqc_origin; }
int64_t msgq_time_ns(void) { return mq_monotonic_ns() + mqc_clock_offset_ns(); }

/* Prepare an endpoint without a prefix for the files of the clock and the origins. The library accepts files of this
 * user, of root and of trusted users. */
static int mqc_init_process_endpoint(mqc_endpoint *endpoint, const char *kind_name, bool alone) {
    msgq_options options = {.prefix = "", .trust = alone ? "" : NULL, .mode = 0600};
    return mqc_endpoint_init(endpoint, kind_name, kind_name, MQC_NAME_MAX, &options, 0);
}

/* ---- the clock ---- */

/* Return CLOCK_REALTIME minus CLOCK_MONOTONIC, from the fastest of several readings. */
static int64_t mqc_wall_offset(void) {
    int64_t narrowest = -1, offset = 0;
    for (int i = 0; i < MQC_CLOCK_TRIES; i++) {
        int64_t before = mq_monotonic_ns(), wall = mq_read_clock_ns(CLOCK_REALTIME), after = mq_monotonic_ns();
        if (narrowest < 0 || after - before < narrowest) {
            narrowest = after - before;
            offset = wall - (before + narrowest / 2);
        }
    }
    return offset;
}

/* Store the difference in nanoseconds between CLOCK_MONOTONIC of this time namespace and CLOCK_MONOTONIC of the first
 * time namespace. Returns false if the offset is unknown. */
static bool mqc_namespace_offset_ns(int64_t *ahead) {
    char ours[64] = "", childrens[64] = "", text[512];
    long long seconds = 0, nanoseconds = 0;
    *ahead = 0;
    if (readlink("/proc/self/ns/time", ours, sizeof ours - 1) < 0)
        return errno == ENOENT; /* the kernel has no time namespaces */
    if (!strcmp(ours, "time:[4026531834]"))
        return true;
    const char *line = NULL;
    if (readlink("/proc/self/ns/time_for_children", childrens, sizeof childrens - 1) > 0 &&
        mq_read_proc_file("/proc/self/timens_offsets", text, sizeof text) > 0)
        line = strstr(text, "monotonic");
    if (!line || strcmp(ours, childrens) != 0 || sscanf(line, "monotonic %lld %lld", &seconds, &nanoseconds) != 2)
        return false;
    *ahead = seconds * MQ_NS_PER_S + nanoseconds;
    return true;
}

/* Return the clock offset stored in the file at `path`, or MQC_NO_OFFSET. *status is the error of an invalid file, and
 * 0 if the file does not exist. */
static int64_t mqc_read_clock_file(const mqc_endpoint *endpoint, const char *path, int64_t ahead, int *status) {
    uint64_t words[9] = {0};
    struct stat found;
    int fd = mqc_open_file(endpoint, path, O_RDONLY);
    *status = fd < 0 && fd != -ENOENT ? fd : 0;
    if (fd < 0)
        return MQC_NO_OFFSET;
    *status = mqc_check_file(endpoint, fd, path, &found);
    if (!*status && found.st_mode & (S_IWGRP | S_IWOTH))
        *status = -EACCES;
    ssize_t n = pread(fd, words, sizeof words, 0);
    close(fd);
    int64_t offset = (int64_t)words[2];
    if (!*status && (n != sizeof(mq_clock) || words[0] != MQ_CLOCK_MAGIC || words[1] != MQ_CLOCK_VERSION ||
                     (uint64_t)mq_monotonic_ns() - (uint64_t)ahead + (uint64_t)offset >= (uint64_t)MQC_LATEST_NS))
        *status = -EPROTO;
    return *status ? MQC_NO_OFFSET : offset;
}

static int mqc_create_word_file(const mqc_endpoint *endpoint, const char *path, const uint64_t *words, mode_t mode) {
    struct stat made;
    int fd = mqc_create_file(endpoint, path, 0, 0, mode, &made);
    if (fd < 0)
        return fd;
    int status = pwrite(fd, words, 64, 0) == 64 ? mqc_name_file(endpoint, fd, path) : -ENOSPC;
    close(fd);
    return status;
}

/* Return the clock offset stored in the file at `path`, and create the file if needed. A new file gets the offset of
 * the file at `other` if that file is valid. */
static int64_t mqc_agree_on_clock_offset(const mqc_endpoint *endpoint, const char *path, const char *other,
                                         int64_t ahead) {
    for (int tries = 0; tries < MQC_CLOCK_TRIES; tries++) {
        int status, ignored;
        int64_t offset = mqc_read_clock_file(endpoint, path, ahead, &status);
        if (status || offset != MQC_NO_OFFSET)
            return offset;
        offset = mqc_read_clock_file(endpoint, other, ahead, &ignored);
        if (offset == MQC_NO_OFFSET)
            offset = mqc_wall_offset() + ahead;
        uint64_t words[8] = {MQ_CLOCK_MAGIC, MQ_CLOCK_VERSION, (uint64_t)offset};
        status = mqc_create_word_file(endpoint, path, words, 0444);
        if (status == 1)
            return offset;
        if (status < 0)
            return MQC_NO_OFFSET;
    }
    return MQC_NO_OFFSET;
}

static int64_t mqc_offset;

static void mqc_find_offset(void) {
    mqc_endpoint endpoint;
    char own[MQC_PATH];
    int64_t ahead, found = MQC_NO_OFFSET;
    const char *shared = "/dev/shm/msgqclock";
    snprintf(own, sizeof own, "/dev/shm/msgqclock_%u", (unsigned)geteuid());
    if (mqc_namespace_offset_ns(&ahead) && mqc_init_process_endpoint(&endpoint, "clock", false) == 0) {
        found = mqc_agree_on_clock_offset(&endpoint, shared, own, ahead);
        if (found == MQC_NO_OFFSET)
            found = mqc_agree_on_clock_offset(&endpoint, own, shared, ahead);
    }
    mqc_offset = found == MQC_NO_OFFSET ? mqc_wall_offset() : found - ahead;
}

int64_t mqc_clock_offset_ns(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, mqc_find_offset);
    return mqc_offset;
}

/* ---- origins ---- */

static mq_origin mqc_own_origins; /* last origin, if the file of origins is not available */
static mq_u64 *mqc_last;

static mq_u64 *mqc_origin_map(const mqc_endpoint *endpoint, const char *path) {
    static mqc_mapped_file segment; /* mapped until the process ends */
    struct stat found;
    int fd = mqc_open_file(endpoint, path, O_RDWR);
    if (fd < 0)
        return NULL;
    int status = mqc_check_file(endpoint, fd, path, &found);
    if (!status && found.st_size == sizeof(mq_origin))
        status = mqc_map_file(endpoint, fd, &found, true, path, &segment);
    else
        status = -EPROTO;
    close(fd);
    mq_origin *origin = status ? NULL : (mq_origin *)(void *)segment.address;
    bool ours = origin && mq_load_acquire_u64(&origin->magic) == MQ_ORIGIN_MAGIC &&
                mq_load_acquire_u64(&origin->version) == MQ_ORIGIN_VERSION;
    return ours ? mq_origin_last_word(origin) : NULL;
}

static void mqc_find_origins(void) {
    mqc_endpoint endpoint;
    char path[MQC_PATH];
    const uint64_t words[8] = {MQ_ORIGIN_MAGIC, MQ_ORIGIN_VERSION};
    snprintf(path, sizeof path, "/dev/shm/msgqorigin_%u", (unsigned)geteuid());
    bool tries = mqc_init_process_endpoint(&endpoint, "origins", true) == 0;
    for (int i = 0; tries && !mqc_last && i < MQC_CLOCK_TRIES; i++)
        if (!(mqc_last = mqc_origin_map(&endpoint, path)) && mqc_create_word_file(&endpoint, path, words, 0600) < 0)
            break;
    if (!mqc_last)
        mqc_last = mq_origin_last_word(&mqc_own_origins);
}

mq_u64 *mqc_last_origin_word(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, mqc_find_origins);
    return mqc_last;
}
