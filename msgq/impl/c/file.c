/* Files in shared memory: open, create, check, map, lock. See file.h. Compile as C11. */
#define _GNU_SOURCE
#include "c/file.h"
#include "base/file_lock.h"
#include "base/mapguard.h"

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

int mqc_open_file(const mqc_endpoint *endpoint, const char *path, int flags) {
    mq_error error;
    int fd = mq_open_file(&endpoint->policy, path, flags, &error);
    return fd == -ENOENT ? fd : mqc_check_step(endpoint, fd, &error);
}

int mqc_check_file(const mqc_endpoint *endpoint, int fd, const char *path, struct stat *found) {
    mq_error error;
    return mqc_check_step(endpoint, mq_check_file(&endpoint->policy, fd, found, path, &error), &error);
}

/* ---- mappings ---- */

static void *mqc_add_guard(void *address, size_t bytes, int protection, const mq_u64 **not_truncated) {
    mq_sigbus_guard *guard =
        mq_sigbus_guard_install_handler() ? mq_sigbus_guard_add_mapping(address, bytes, protection) : NULL;
    if (guard)
        *not_truncated = &guard->not_truncated;
    return guard;
}
static void mqc_remove_guard(void *guard) { mq_sigbus_guard_remove(guard); }
static bool mqc_pair_guards(void *guard, void *partner) { return mq_sigbus_guard_set_partner(guard, partner); }

const mq_guard_functions mqc_guard_functions = {
    .add = mqc_add_guard, .remove = mqc_remove_guard, .pair = mqc_pair_guards};
mq_mapping_table mqc_mappings;

void mqc_adopt_mapping(mq_mapping *mapping, const char *path, mqc_mapped_file *segment) {
    *segment = (mqc_mapped_file){.address = mapping->address,
                                 .size = mapping->size,
                                 .mapping = mapping,
                                 .not_truncated = mapping->not_truncated,
                                 .inode = mapping->inode,
                                 .fd = -1};
    snprintf(segment->path, sizeof segment->path, "%s", path);
    segment->liveness_file = mq_liveness_file_of(segment->path, mapping->device, mapping->inode);
}

int mqc_map_file(const mqc_endpoint *endpoint, int fd, const struct stat *found, bool writable, const char *path,
                 mqc_mapped_file *segment) {
    mq_mapping *mapping;
    mq_error error;
    uint64_t writable_bytes = writable ? (uint64_t)found->st_size : 0;
    if (mq_map_file(&endpoint->policy, fd, found, writable_bytes, path, &mapping, &error)) {
        segment->mapping = NULL, segment->address = NULL, segment->fd = -1;
        return mqc_report(endpoint, &error);
    }
    mqc_adopt_mapping(mapping, path, segment);
    segment->mode = found->st_mode & 0777;
    return 0;
}

void mqc_unmap_file(mqc_mapped_file *segment) {
    if (segment->mapping && segment->fd >= 0)
        close(segment->fd);
    mq_mapping_release(segment->mapping);
    segment->mapping = NULL, segment->address = NULL, segment->fd = -1;
}

int mqc_check_truncation(const mqc_endpoint *endpoint, const mqc_mapped_file *segment) {
    if (!mq_mapping_was_truncated(segment->not_truncated))
        return 0;
    return mqc_endpoint_error(endpoint, ESTALE, "had %llu bytes, but another program truncated it; open it again",
                              (unsigned long long)segment->size);
}

/* ---- the join lock ---- */

int mqc_wait_for_file_lock(const mqc_endpoint *endpoint, int64_t deadline) {
    if (mq_monotonic_ns() > deadline)
        return mqc_endpoint_error(
            endpoint, EAGAIN,
            "locked by another process for over 5 s; look for a process that was stopped during opening");
    usleep(200);
    return 0;
}

static int mqc_lock_file(const mqc_endpoint *endpoint, const mq_file_lock *lock, const char *path) {
    int64_t deadline = mq_monotonic_ns() + MQC_LOCK_WAIT_NS;
    int status = 0;
    while (!status && mq_file_lock_try(lock) != 0)
        status = errno == EAGAIN || errno == EINTR ? mqc_wait_for_file_lock(endpoint, deadline)
                                                   : mqc_set_system_error(endpoint, errno, "cannot lock", path);
    return status;
}

/* ---- components with one file ---- */

/* Open or create the file once. Returns 0, a result such as MQ_FILE_MISSING, or an error. */
static int mqc_open_file_once(const mqc_endpoint *endpoint, const mq_endpoint_file_request *request,
                              const mqc_file_ops *kind, mqc_mapped_file *segment) {
    mq_endpoint_file file;
    mq_error error;
    int status = mq_endpoint_file_open(request, &file, &error);
    if (status)
        return status < 0 ? mqc_report(endpoint, &error) : status;
    mqc_adopt_mapping(file.mapping, request->path, segment);
    segment->fd = segment->liveness_file.fd = file.fd, segment->mode = file.mode;
    if (file.is_new)
        kind->fill(kind->handle);
    status = kind->check(kind->handle);
    if (!status && (status = mq_endpoint_file_name(request, &file, &error)) < 0)
        mqc_report(endpoint, &error);
    if (status)
        mqc_unmap_file(segment);
    return status;
}

int mqc_open_or_create(const mqc_endpoint *endpoint, const mqc_file_ops *kind, mqc_mapped_file *segment) {
    char path[MQC_PATH];
    static const mq_create creates[] = {
        [MSGQ_OPEN_OR_MAKE] = MQ_OPEN_OR_CREATE, [MSGQ_OPEN] = MQ_ONLY_OPEN, [MSGQ_MAKE] = MQ_ONLY_CREATE};
    mq_endpoint_file_request request = {.policy = &endpoint->policy,
                                        .path = path,
                                        .kind_name = endpoint->kind_name,
                                        .least_bytes = kind->least,
                                        .new_bytes = kind->bytes,
                                        .mode = endpoint->mode,
                                        .create = creates[endpoint->create],
                                        .writable = true};
    mqc_format_path(endpoint, kind->start, endpoint->name, path);
    int status = MQ_FILE_CHANGED;
    for (int tries = MQ_OPEN_TRIES; status == MQ_FILE_CHANGED || (status == -ENOENT && tries > 0); tries--)
        status = mqc_open_file_once(endpoint, &request, kind, segment);
    if (status == MQ_FILE_EXISTS)
        return mqc_endpoint_error(endpoint, EEXIST, "it exists; to open it, omit MSGQ_MAKE");
    if (status == MQ_FILE_MISSING)
        return mqc_endpoint_error(endpoint, ENOENT, "%s not found%s", endpoint->kind_name,
                                  endpoint->create == MSGQ_OPEN ? "" : "; give its sizes to create it");
    return status;
}

int mqc_lock_mapped_file(const mqc_endpoint *endpoint, const mqc_mapped_file *segment, bool patient,
                         mq_file_lock *lock) {
    int status = 0;
    if (!mq_file_lock_open(lock, &segment->liveness_file))
        return mqc_set_system_error(endpoint, errno, "cannot reopen", segment->path);
    if (patient)
        status = mqc_lock_file(endpoint, lock, segment->path);
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
