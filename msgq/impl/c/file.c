/* Files in shared memory: open, create, check, map, lock. See file.h. Compile as C11. */
#define _GNU_SOURCE
#include "c/file.h"
#include "base/file_lock.h"
#include "base/mapguard.h"

/* most processes hold the lock for microseconds. A starting publisher holds the lock for up to 1 s */
static const int64_t MQC_LOCK_WAIT_NS = 5ll * MQ_NS_PER_S;

static int mqc_set_system_error(const mqc_endpoint *endpoint, int number, const char *what, const char *path) {
    mq_error error;
    mq_fail_system(&error, number, path, "%s", what);
    return mqc_report(endpoint, &error);
}

/* ---- files ---- */

/* Return the result of a step, and report its error. */
static int mqc_check_step(const mqc_endpoint *endpoint, int result, const mq_error *error) {
    return result >= 0 ? result : mqc_report(endpoint, error);
}

int mqc_make_directory(const mqc_endpoint *endpoint, const char *start, mode_t mode) {
    char path[MQC_PATH];
    mq_error error;
    if (!*endpoint->prefix)
        return 0;
    snprintf(path, sizeof path, "%s/%s%s", MQ_SHARED_MEMORY, start, endpoint->prefix);
    return mqc_check_step(endpoint, mq_make_directory(&endpoint->policy, path, mode, &error), &error);
}

int mqc_open_file(const mqc_endpoint *endpoint, const char *path, int flags) {
    mq_error error;
    int fd = mq_open_file(&endpoint->policy, path, flags, &error);
    return fd == -ENOENT ? fd : mqc_check_step(endpoint, fd, &error);
}

int mqc_create_file(const mqc_endpoint *endpoint, const char *path, uint64_t bytes, uint64_t allocated, mode_t mode,
                    struct stat *made) {
    mq_error error;
    int fd = mq_create_file(&endpoint->policy, path, bytes, allocated ? allocated : bytes, mode, made, &error);
    return mqc_check_step(endpoint, fd, &error);
}

int mqc_name_file(const mqc_endpoint *endpoint, int fd, const char *path) {
    mq_error error;
    return mqc_check_step(endpoint, mq_name_file(&endpoint->policy, fd, path, &error), &error);
}

int mqc_check_file(const mqc_endpoint *endpoint, int fd, const char *path, struct stat *found) {
    mq_error error;
    return mqc_check_step(endpoint, mq_check_file(&endpoint->policy, fd, found, path, &error), &error);
}

/* ---- mappings ---- */

static void *mqc_add_guard(void *address, size_t bytes, int protection) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    bool installed = mq_sigbus_guard_install_handler();
    pthread_mutex_unlock(&mutex);
    return installed ? mq_sigbus_guard_add_mapping(address, bytes, protection) : NULL;
}
static void mqc_remove_guard(void *guard) { mq_sigbus_guard_remove(guard); }

const mq_guard_functions mqc_guard_functions = {.add = mqc_add_guard, .remove = mqc_remove_guard};

void mqc_adopt_mapping(const mq_mapping *mapping, const struct stat *found, const char *path,
                       mqc_mapped_file *segment) {
    const mq_sigbus_guard *guard = mapping->guard;
    *segment = (mqc_mapped_file){.address = mapping->address,
                                 .size = mapping->size,
                                 .guard = mapping->guard,
                                 .not_truncated = guard ? &guard->not_truncated : NULL,
                                 .inode = found->st_ino,
                                 .mode = found->st_mode & 0777,
                                 .fd = -1};
    snprintf(segment->path, sizeof segment->path, "%s", path);
    segment->liveness_file = mq_liveness_file_make(segment->path, -1, found);
}

int mqc_map_file(const mqc_endpoint *endpoint, int fd, const struct stat *found, bool writable, const char *path,
                 mqc_mapped_file *segment) {
    mq_mapping mapping;
    mq_error error;
    uint64_t writable_bytes = writable ? (uint64_t)found->st_size : 0;
    if (mq_map_file(&endpoint->policy, fd, found, writable_bytes, path, &mapping, &error)) {
        segment->address = NULL, segment->guard = NULL, segment->fd = -1;
        return mqc_report(endpoint, &error);
    }
    mqc_adopt_mapping(&mapping, found, path, segment);
    return 0;
}

bool mqc_pair_guards(mqc_mapped_file *segment, mqc_mapped_file *partner) {
    return !segment->guard || mq_sigbus_guard_set_partner(segment->guard, partner->guard);
}

void mqc_unmap_file(mqc_mapped_file *segment) {
    if (segment->guard)
        mq_sigbus_guard_remove(segment->guard);
    if (segment->address) {
        munmap(segment->address, segment->size);
        if (segment->fd >= 0)
            close(segment->fd);
    }
    segment->address = NULL, segment->guard = NULL, segment->fd = -1;
}

int mqc_check_truncation(const mqc_endpoint *endpoint, const mqc_mapped_file *segment) {
    if (!mq_mapping_was_truncated(segment->not_truncated))
        return 0;
    return mqc_endpoint_error(endpoint, ESTALE, "had %llu bytes, but another program truncated it; open it again",
                              (unsigned long long)segment->size);
}

/* ---- the join lock ---- */

int mqc_lock_file(const mqc_endpoint *endpoint, int fd, const char *path) {
    int64_t deadline = mq_monotonic_ns() + MQC_LOCK_WAIT_NS;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EAGAIN && errno != EINTR)
            return mqc_set_system_error(endpoint, errno, "cannot lock", path);
        if (mq_monotonic_ns() > deadline)
            return mqc_endpoint_error(
                endpoint, EAGAIN,
                "locked by another process for over 5 s; look for a process that was stopped during opening");
        usleep(200);
    }
    return 0;
}

void mqc_unlock_file(int fd) {
    flock(fd, LOCK_UN); /* close alone does not release the lock, because the mapping keeps the open file alive */
    close(fd);
}

/* ---- components with one file ---- */

/* Open and map an existing file. Returns 1 if the file is mapped, and 0 if the file does not exist. */
static int mqc_open_existing(const mqc_endpoint *endpoint, const mqc_file_ops *kind, const char *path,
                             mqc_mapped_file *segment) {
    struct stat found;
    int fd = mqc_open_file(endpoint, path, O_RDWR);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    int status = mqc_check_file(endpoint, fd, path, &found);
    if (!status && (uint64_t)found.st_size < kind->least)
        status = mqc_endpoint_error(endpoint, EPROTO, "has %lld bytes, too few for a %s; remove it",
                                    (long long)found.st_size, endpoint->kind_name);
    if (!status)
        status = mqc_map_file(endpoint, fd, &found, true, path, segment);
    if (status) {
        close(fd);
        return status;
    }
    segment->fd = segment->liveness_file.fd = fd;
    status = kind->check(kind->handle);
    if (status)
        mqc_unmap_file(segment);
    return status ? status : 1;
}

/* Create a file. Returns 1 if the file was created, and 0 if another process created the file first. */
static int mqc_create_new(const mqc_endpoint *endpoint, const mqc_file_ops *kind, const char *path,
                          mqc_mapped_file *segment) {
    struct stat found;
    int status = mqc_make_directory(endpoint, kind->start, endpoint->mode);
    int fd = status ? status : mqc_create_file(endpoint, path, kind->bytes, 0, endpoint->mode, &found);
    if (fd < 0)
        return fd;
    status = mqc_map_file(endpoint, fd, &found, true, path, segment);
    if (status) {
        close(fd);
        return status;
    }
    segment->fd = segment->liveness_file.fd = fd;
    kind->fill(kind->handle);
    status = kind->check(kind->handle);
    int named = status ? status : mqc_name_file(endpoint, fd, path);
    if (named != 1)
        mqc_unmap_file(segment);
    return named;
}

int mqc_open_or_create(const mqc_endpoint *endpoint, const mqc_file_ops *kind, mqc_mapped_file *segment) {
    char path[MQC_PATH];
    mqc_format_path(endpoint, kind->start, endpoint->name, path);
    for (int tries = MQC_OPEN_TRIES;; tries--) {
        int status = endpoint->create == MSGQ_MAKE ? 0 : mqc_open_existing(endpoint, kind, path, segment);
        if (status == 0 && (endpoint->create == MSGQ_OPEN || !kind->bytes))
            return mqc_endpoint_error(endpoint, ENOENT, "%s not found%s", endpoint->kind_name,
                                      endpoint->create == MSGQ_OPEN ? "" : "; give its sizes to create it");
        if (status == 0)
            status = mqc_create_new(endpoint, kind, path, segment);
        if (status == 0 && endpoint->create == MSGQ_MAKE)
            return mqc_endpoint_error(endpoint, EEXIST, "it exists; to open it, omit MSGQ_MAKE");
        if (status == 1)
            return 0;
        /* if status is 0 or -ENOENT, another process created or removed the file */
        if (status != 0 && (status != -ENOENT || tries == 0))
            return status;
    }
}

int mqc_lock_mapped_file(const mqc_endpoint *endpoint, const mqc_mapped_file *segment, bool patient,
                         mq_file_lock *lock) {
    int status = 0;
    if (!mq_file_lock_open(lock, &segment->liveness_file))
        return mqc_set_system_error(endpoint, errno, "cannot reopen", segment->path);
    if (patient)
        status = mqc_lock_file(endpoint, lock->fd, segment->path);
    else if (mq_file_lock_try(lock) != 0)
        status = -EWOULDBLOCK;
    if (status)
        mq_file_lock_close(lock);
    return status;
}

void mqc_unlock_mapped_file(mq_file_lock *lock) { mq_file_lock_close(lock); }

bool mqc_is_linked(const mqc_mapped_file *segment) {
    struct stat named;
    return lstat(segment->path, &named) == 0 && named.st_ino == segment->liveness_file.inode &&
           named.st_dev == segment->liveness_file.device;
}

int mqc_write_schema(const mqc_endpoint *endpoint, const mq_schema_parts *at, const msgq_schema *schema, bool marked) {
    size_t before = marked ? MQC_DATA_MARKS : 0, bytes = before + schema->bytes;
    const char *encoding = schema->encoding ? schema->encoding : "";
    if (!schema->name || !*schema->name || strlen(schema->name) >= MQ_SCHEMA_NAME ||
        strlen(encoding) >= MQ_SCHEMA_ENCODING || schema->bytes > at->room || bytes > at->room ||
        (schema->bytes && !schema->data))
        return mqc_endpoint_error(endpoint, EINVAL,
                                  "a schema has a name of 1 to %d bytes, an encoding of at most %d, and here %llu "
                                  "bytes of data at most",
                                  MQ_SCHEMA_NAME - 1, MQ_SCHEMA_ENCODING - 1, (unsigned long long)(at->room - before));
    char *whole = calloc(1, bytes + 1);
    if (!whole)
        return mqc_endpoint_error(endpoint, ENOMEM, "no memory for the schema");
    if (schema->bytes)
        memcpy(whole + before, schema->data, schema->bytes);
    mq_schema_write(at, schema->name, encoding, whole, bytes);
    free(whole);
    return 0;
}
