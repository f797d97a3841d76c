/* Functions that all files of the C library share: names, files, the join lock, waiting, errors. Python has the same
 * functions in base/segment.pxi, endpointfile.pxi and msgq/common/naming.py. Both call the steps of base/file.h and
 * endpoint_file.h. All data of a file is checked before its use. A process that joins or leaves holds the file's flock.
 *
 * Each function returns a negative errno after an error, and sets a text for msgq_error_text. If a function differs
 * from this rule, the comment of the function describes the difference. */
#ifndef MQC_FILE_H
#define MQC_FILE_H

#include <signal.h>

#include "base/endpoint_file.h"
#include "base/poll_ops.h"
#include "base/row_table.h"
#include "base/schema.h"
#include "base/truncation.h"
#include "msgq/common.h"

enum {
    MQC_NAME = 256,
    MQC_PATH = MQ_ERROR_PATH_BYTES, /* bytes of a path: /dev/shm, the directory of the prefix, and the file name */
    MQC_NAME_MAX = 246,             /* maximum bytes of an endpoint's name, as NAME_BYTES_MAX of naming.py */
    MQC_DATA_MARKS = 144,
};

/* Most processes hold the lock for microseconds. A starting publisher holds it for up to 1 s. */
static const int64_t MQC_LOCK_WAIT_NS = 5ll * MQ_NS_PER_S;

/* The endpoint to open, and the users whose files are accepted. */
typedef struct {
    const char *kind_name; /* type of the endpoint, such as "topic" */
    char name[MQC_NAME], prefix[MQC_NAME];
    mode_t mode; /* permissions of new files */
    int create;
    mq_file_policy policy;
    int64_t spin_ns;
} mqc_endpoint;

/* A mapped file. Do not move this struct in memory, because `liveness_file` points into the struct. */
typedef struct {
    uint8_t *address;
    uint64_t size, inode;
    mode_t mode;
    int fd; /* -1: closed */
    mq_liveness_file liveness_file;
    mq_mapping *mapping;
    const mq_u64 *not_truncated; /* see mq_mapping_was_truncated */
    char path[MQC_PATH];
} mqc_mapped_file;

#define MQC_HIDDEN __attribute__((visibility("hidden")))

/* ---- errors, identity of this process ---- */

MQC_HIDDEN int mqc_set_error(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
MQC_HIDDEN int mqc_endpoint_error(const mqc_endpoint *endpoint, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Report the error of a shared step (base/error.h). Returns its negative number. */
MQC_HIDDEN int mqc_report(const mqc_endpoint *endpoint, const mq_error *error);
/* If `keep` is true, later errors do not change the text of the last error. Functions that publish events set `keep`,
 * so that the caller sees the error of its own call. */
MQC_HIDDEN void mqc_suppress_error_text(bool keep);
/* Stands for a NULL pointer to 0 bytes, because memcpy accepts no NULL pointer. */
MQC_HIDDEN extern char mqc_no_bytes[1];
MQC_HIDDEN int mqc_null_error(const void *handle);
/* Returns 0, or -EINVAL if the handle is NULL, or if `data` is NULL and has `size` bytes. A call without data gives the
 * size 0. */
static inline int mqc_check_pointers(const void *handle, const void *data, size_t size) {
    return mq_likely(handle && (data || !size)) ? 0 : mqc_null_error(handle);
}
/* Returns 0, or -ECHILD if a parent process opened the handle. */
MQC_HIDDEN int mqc_check_process(const mqc_endpoint *endpoint, int generation);
MQC_HIDDEN int mqc_fork_generation(void);
/* True if this process is a forked child and `generation` is the fork generation of its parent. */
MQC_HIDDEN bool mqc_is_forked(int generation);
MQC_HIDDEN int mqc_read_own_identity(mq_process_identity *self);
MQC_HIDDEN bool mqc_orders_stores(void);

/* ---- the host's clock and origins ---- */

MQC_HIDDEN int64_t mqc_clock_offset_ns(void);
MQC_HIDDEN mq_u64 *mqc_last_origin_word(void);

/* ---- names ---- */

MQC_HIDDEN int mqc_endpoint_init(mqc_endpoint *endpoint, const char *kind_name, const char *name, size_t most,
                                 const msgq_options *options, int64_t spin_us);
MQC_HIDDEN void mqc_format_path(const mqc_endpoint *endpoint, const char *start, const char *file, char *path);

/* ---- files ---- */

MQC_HIDDEN extern const mq_guard_functions mqc_guard_functions;
MQC_HIDDEN extern mq_mapping_table mqc_mappings; /* shared by the handles of this process */

/* Open a file. If the file does not exist, the function returns -ENOENT and sets no error text. */
MQC_HIDDEN int mqc_open_file(const mqc_endpoint *endpoint, const char *path, int flags);
MQC_HIDDEN int mqc_check_file(const mqc_endpoint *endpoint, int fd, const char *path, struct stat *found);
/* Become the owner of a use of the mapping. */
MQC_HIDDEN void mqc_adopt_mapping(mq_mapping *mapping, const char *path, mqc_mapped_file *segment);
MQC_HIDDEN int mqc_map_file(const mqc_endpoint *endpoint, int fd, const struct stat *found, bool writable,
                            const char *path, mqc_mapped_file *segment);
MQC_HIDDEN void mqc_unmap_file(mqc_mapped_file *segment);
MQC_HIDDEN int mqc_check_truncation(const mqc_endpoint *endpoint, const mqc_mapped_file *segment);
/* Sleep before the next attempt to lock a file. Returns -EAGAIN after the deadline. */
MQC_HIDDEN int mqc_wait_for_file_lock(const mqc_endpoint *endpoint, int64_t deadline);

/* ---- components with one file ---- */

/* Operations of one type of file. */
typedef struct {
    const char *start; /* beginning of the file's name */
    uint64_t least, bytes;
    int (*check)(void *handle); /* checks a mapped file */
    void (*fill)(void *handle); /* initializes a new file */
    void *handle;
} mqc_file_ops;

/* Open or create the file according to endpoint->create. The file stays open. */
MQC_HIDDEN int mqc_open_or_create(const mqc_endpoint *endpoint, const mqc_file_ops *kind, mqc_mapped_file *segment);
/* Take the join lock, so that no other process or handle joins. If another one holds the lock, the call waits if
 * `patient`, and otherwise returns -EWOULDBLOCK. To lock a row with the same open file, use lock->file. */
MQC_HIDDEN int mqc_lock_mapped_file(const mqc_endpoint *endpoint, const mqc_mapped_file *segment, bool patient,
                                    mq_file_lock *lock);
MQC_HIDDEN void mqc_unlock_mapped_file(mq_file_lock *lock);
MQC_HIDDEN bool mqc_is_linked(const mqc_mapped_file *segment);

/* Write the schema. The caller holds the lock, or the file has no name yet. If `marked`, write version, identity and
 * layout of the schema before its data (base/schema.pxi). All endpoints except topics have these fields. The fields are
 * zeros, which stand for defaults. */
MQC_HIDDEN int mqc_write_schema(const mqc_endpoint *endpoint, const mq_schema_parts *at, const msgq_schema *schema,
                                bool marked);

/* ---- wait ---- */

/* One reader of a wait. */
typedef struct {
    bool (*is_readable)(void *reader);
    /* Announce a sleep. Returns the value that the word must have at the beginning of the sleep */
    uint32_t (*prepare_wait)(const void *reader, mq_u32 *word);
    void (*end_wait)(void *reader); /* ends the announcement of a sleep; NULL: the reader has no announcement to end */
    int64_t (*max_sleep_ns)(void *reader, int64_t slept_ns);
    mq_u32 *word;
    void *reader;
    int64_t spin_ns;
} mqc_waiter;

/* Signals of this thread that wait for the next sleep of a call. */
typedef struct {
    sigset_t mask; /* signal mask of the program */
    bool held;
} mqc_held_signals;

/* Hold signals between two sleeps of a call, because no sleep could report them. */
MQC_HIDDEN void mqc_hold_signals(mqc_held_signals *signals);
/* Deliver the held signals. Returns true if a handler ran. Without held signals, returns false at once. */
MQC_HIDDEN bool mqc_release_signals(mqc_held_signals *signals);
/* Shorten a sleep by up to a quarter, by a number that varies from sleep to sleep. A signal that arrives exactly at the
 * end of a sleep is lost, because the kernel then reports the end. Timers of programs have round numbers of seconds. */
MQC_HIDDEN int64_t mqc_vary_sleep_ns(int64_t sleep_ns, int64_t now_ns);

/* Convert a timeout in seconds to a deadline (CLOCK_MONOTONIC, nanoseconds). A negative result means no deadline. */
MQC_HIDDEN int64_t mqc_deadline_ns(double timeout);
/* Wait for one reader or several. Returns 1 if a reader may be readable, 0 at the deadline, or -EINTR after a signal
 * handler. */
MQC_HIDDEN int mqc_wait_until_readable(const mqc_waiter *waiters, size_t count, int64_t deadline_ns);

#endif
