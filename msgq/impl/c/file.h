/* Functions that the units of the C library share: names, files, the join lock, waiting, errors. The rules are those of
 * base/segment.pxi, endpointfile.pxi, naming.py and sharing.py: a file is complete before it has a name, all data of a
 * file is checked before use, and a process that joins or leaves holds the file's flock. All functions return a
 * negative errno and set a text for msgq_error_text, unless their comments say otherwise. */
#ifndef MQC_FILE_H
#define MQC_FILE_H

#include "base/futex.h"
#include "base/row_table.h"
#include "base/schema.h"
#include "base/truncation.h"
#include "msgq/common.h"

enum {
    MQC_NAME = 256,
    MQC_PATH = 640, /* directory, a prefix's directory, file */
    MQC_TRUSTED = 32,
    MQC_NAME_MAX = 246, /* bytes of an endpoint's name: naming.py, NAME_BYTES_MAX */
    MQC_OPEN_TRIES = 5, /* attempts while other processes remove the file, or the directory of its prefix */
    MQC_DATA_MARKS = 144,
};

/* The endpoint to open, and the users whose files are accepted. */
typedef struct {
    const char *kind_name; /* type of the endpoint: "topic" */
    char name[MQC_NAME], prefix[MQC_NAME];
    mode_t mode; /* permissions of new files */
    int create;
    uid_t trusted[MQC_TRUSTED];
    int trusted_count;
    int64_t spin_ns;
} mqc_endpoint;

/* A mapped file. Do not move it, because `liveness_file` points into it. */
typedef struct {
    uint8_t *address;
    uint64_t size, inode;
    mode_t mode;
    int fd; /* -1: closed */
    mq_liveness_file liveness_file;
    void *guard;
    const mq_u64 *not_truncated; /* 1 until the file is truncated */
    char path[MQC_PATH];
} mqc_mapped_file;

#define MQC_HIDDEN __attribute__((visibility("hidden")))

/* ---- errors, this process ---- */

MQC_HIDDEN int mqc_set_error(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
MQC_HIDDEN int mqc_endpoint_error(const mqc_endpoint *endpoint, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Keep the text of the last error, or not. Used for secondary work of a call. */
MQC_HIDDEN void mqc_suppress_error_text(bool keep);
/* Returns 0, or -ECHILD if a parent process opened the handle. */
MQC_HIDDEN int mqc_check_process(const mqc_endpoint *endpoint, int generation);
MQC_HIDDEN int mqc_fork_generation(void);
/* True in a forked child if `generation` is the parent's. */
MQC_HIDDEN bool mqc_is_forked(int generation);
MQC_HIDDEN int mqc_read_own_identity(mq_process_identity *self);
MQC_HIDDEN uint32_t mqc_random_u32(void);
MQC_HIDDEN uint64_t mqc_new_uid(void);
MQC_HIDDEN bool mqc_orders_stores(void);

/* ---- the host's clock and origins ---- */

MQC_HIDDEN int64_t mqc_clock_offset_ns(void);
MQC_HIDDEN mq_u64 *mqc_last_origin_word(void);

/* ---- names ---- */

MQC_HIDDEN int mqc_endpoint_init(mqc_endpoint *endpoint, const char *kind_name, const char *name, size_t most,
                                 const msgq_options *options, int64_t spin_us);
MQC_HIDDEN void mqc_format_path(const mqc_endpoint *endpoint, const char *start, const char *file, char *path);
MQC_HIDDEN int mqc_make_directory(const mqc_endpoint *endpoint, const char *start, mode_t mode);

/* ---- files ---- */

/* Returns -ENOENT, without a text, if the file does not exist. */
MQC_HIDDEN int mqc_open_file(const mqc_endpoint *endpoint, const char *path, int flags);
MQC_HIDDEN int mqc_create_file(const mqc_endpoint *endpoint, const char *path, uint64_t bytes, mode_t mode);
/* Returns 1 if the file now has the name, and 0 if another process was faster. */
MQC_HIDDEN int mqc_name_file(const mqc_endpoint *endpoint, int fd, const char *path);
/* Returns 1 if the file was removed, and 0 if it did not exist. */
MQC_HIDDEN int mqc_remove_file(const mqc_endpoint *endpoint, const char *path);
MQC_HIDDEN int mqc_check_file(const mqc_endpoint *endpoint, int fd, const char *path, struct stat *found);
MQC_HIDDEN int mqc_allocate_file(const mqc_endpoint *endpoint, int fd, uint64_t start, uint64_t bytes,
                                 const char *path);
MQC_HIDDEN int mqc_map_file(const mqc_endpoint *endpoint, int fd, const struct stat *found, bool writable,
                            const char *path, mqc_mapped_file *segment);
/* Let a fault in the first segment replace both by zeros. False: the first is already truncated. Unmap the partner
 * last. */
MQC_HIDDEN bool mqc_pair_guards(mqc_mapped_file *segment, mqc_mapped_file *partner);
MQC_HIDDEN void mqc_unmap_file(mqc_mapped_file *segment);
MQC_HIDDEN int mqc_check_truncation(const mqc_endpoint *endpoint, const mqc_mapped_file *segment);
MQC_HIDDEN int mqc_lock_file(const mqc_endpoint *endpoint, int fd, const char *path);
MQC_HIDDEN void mqc_unlock_file(int fd);

/* ---- components with one file ---- */

/* Operations of one type of file. */
typedef struct {
    const char *start; /* beginning of the file's name */
    uint64_t least, bytes;
    int (*check)(void *handle); /* checks a mapped file */
    void (*fill)(void *handle); /* initializes a new file */
    void *handle;
} mqc_file_ops;

/* Open or create the file, as endpoint->create says. The file stays open. */
MQC_HIDDEN int mqc_open_or_create(const mqc_endpoint *endpoint, const mqc_file_ops *kind, mqc_mapped_file *segment);
/* Lock out joining processes. Returns the descriptor for mqc_unlock_file. */
MQC_HIDDEN int mqc_lock_mapped_file(const mqc_endpoint *endpoint, const mqc_mapped_file *segment);
MQC_HIDDEN bool mqc_is_linked(const mqc_mapped_file *segment);

/* Write the schema, under the lock or in a file without a name. `marked`: write the schema's marks, as base/schema.pxi
 * does for all endpoints except topics. The marks are zeros, which stand for defaults. */
MQC_HIDDEN int mqc_write_schema(const mqc_endpoint *endpoint, const mq_schema_parts *at, const msgq_schema *schema,
                                bool marked);
/* True if a schema was written. */
MQC_HIDDEN bool mqc_has_schema(const mq_schema_parts *at);

/* ---- wait ---- */

typedef struct {
    bool (*is_readable)(void *reader);
    uint32_t (*prepare_wait)(void *reader);
    void (*end_wait)(void *reader); /* NULL: not needed */
    int64_t (*max_sleep_ns)(void *reader, int64_t slept_ns);
    mq_u32 *word;
    void *reader;
    int64_t spin_ns;
} mqc_waiter;

/* Return the deadline (CLOCK_MONOTONIC, nanoseconds) of a timeout in seconds; negative: none. */
MQC_HIDDEN int64_t mqc_deadline_ns(double timeout);
/* Returns 1 if the reader may be readable, 0 at the deadline, or -EINTR. */
MQC_HIDDEN int mqc_wait_until_readable(const mqc_waiter *waiter, int64_t deadline_ns);

#endif
