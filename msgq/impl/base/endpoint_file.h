/* The file of an endpoint that has one file: open it, or create it. Python and C use these steps.
 *
 *   1. mq_endpoint_file_open opens and maps the file, or creates one without a name.
 *   2. The caller fills in the header of a new file, and checks the header.
 *   3. mq_endpoint_file_name gives a new file its name. After MQ_FILE_CHANGED, repeat from step 1. After -ENOENT, repeat
 *      at most MQ_OPEN_TRIES times: other processes removed the directory, or /proc is missing.
 *
 * A process that is killed before step 3 leaves nothing. */
#ifndef MQ_ENDPOINT_FILE_H
#define MQ_ENDPOINT_FILE_H

#include "base/file.h"

enum { MQ_OPEN_TRIES = 5 }; /* attempts while other processes remove the file or the directory of its prefix */

/* The request of a handle for its file. */
typedef struct {
    const mq_file_policy *policy;
    const char *path, *kind_name;    /* type of the endpoint in errors, such as "queue" */
    uint64_t least_bytes, new_bytes; /* minimum size of an existing file; size of a new file, 0: create none */
    mode_t mode;                     /* permissions of a new file */
    mq_create create;
    bool writable;
} mq_endpoint_file_request;

typedef struct {
    mq_mapping *mapping;
    int fd;
    mode_t mode;
    bool is_new; /* the file has no name yet */
} mq_endpoint_file;

/* Release the mapping and the descriptor. */
static inline void mq_endpoint_file_close(mq_endpoint_file *file) {
    mq_mapping_release(file->mapping);
    mq_close_file(file->fd);
    file->mapping = NULL, file->fd = -1;
}

/* Check and map the open file. */
static inline int mq_endpoint_file_map(const mq_endpoint_file_request *request, mq_endpoint_file *file,
                                       mq_error *error) {
    struct stat found;
    int failed = mq_check_file(request->policy, file->fd, &found, request->path, error);
    uint64_t size = failed ? 0 : (uint64_t)found.st_size;
    if (!failed && size < request->least_bytes)
        failed = mq_fail(error, MQ_ERROR_CORRUPT, EPROTO, request->path, "has %llu bytes, too few for a %s; remove it",
                         (unsigned long long)size, request->kind_name);
    if (!failed)
        failed = mq_map_file(request->policy, file->fd, &found, request->writable ? size : 0, request->path,
                             &file->mapping, error);
    file->mode = failed ? 0 : found.st_mode & 0777;
    return failed;
}

/* Create and map a file without a name. */
static inline int mq_endpoint_file_create(const mq_endpoint_file_request *request, mq_endpoint_file *file,
                                          mq_error *error) {
    struct stat made;
    file->is_new = true, file->mode = request->mode;
    file->fd = mq_create_file(request->policy, request->path, request->new_bytes, request->new_bytes, request->mode,
                              &made, error);
    if (file->fd < 0)
        return file->fd;
    return mq_map_file(request->policy, file->fd, &made, request->new_bytes, request->path, &file->mapping, error);
}

/* Open and map the file, or create one. Returns 0, MQ_FILE_MISSING, or an error. */
static inline int mq_endpoint_file_open(const mq_endpoint_file_request *request, mq_endpoint_file *file,
                                        mq_error *error) {
    *file = (mq_endpoint_file){.fd = -1};
    int status = -ENOENT;
    if (request->create != MQ_ONLY_CREATE)
        status = file->fd = mq_open_file(request->policy, request->path, request->writable ? O_RDWR : O_RDONLY, error);
    if (status >= 0)
        status = mq_endpoint_file_map(request, file, error);
    else if (status == -ENOENT && (request->create == MQ_ONLY_OPEN || !request->new_bytes))
        status = MQ_FILE_MISSING;
    else if (status == -ENOENT)
        status = mq_endpoint_file_create(request, file, error);
    if (status)
        mq_endpoint_file_close(file);
    return status;
}

/* Give a new file its name, after its header is complete. Returns 0, or a result after which the caller closes the
 * file: MQ_FILE_EXISTS, MQ_FILE_CHANGED, or an error. */
static inline int mq_endpoint_file_name(const mq_endpoint_file_request *request, mq_endpoint_file *file,
                                        mq_error *error) {
    int named = file->is_new ? mq_name_file(request->policy, file->fd, request->path, error) : 1;
    if (named == 0)
        return request->create == MQ_ONLY_CREATE ? MQ_FILE_EXISTS : MQ_FILE_CHANGED;
    return named == 1 ? 0 : named;
}

#endif
