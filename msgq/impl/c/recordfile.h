/* Functions shared by vectors and boards: their file, their row, waiting. See impl/records/recordfile.pxi and
 * handle.pxi. */
#ifndef MQC_RECORDFILE_H
#define MQC_RECORDFILE_H

#include "c/file.h"
#include "msgq/records.h"
#include "records/board.h"

enum { MQC_RECORD_COPIES = 2 };

/* A vector or a board: an open file of records. */
typedef struct {
    mqc_endpoint endpoint;
    mqc_mapped_file segment;
    mq_record_writer w;
    mq_record_config wanted;
    msgq_schema schema; /* schema of a new file; name NULL: none */
    uint64_t uid, length;
    void *liveness_token;
    uint64_t *seen;
    int64_t clock_offset;
    uint64_t index, count; /* board: key and count of the current wait */
    int generation;
} mqc_record_file;

/* Open the file that `wanted` describes. `makes`: create it if needed. */
MQC_HIDDEN int mqc_record_file_open(mqc_record_file *r, const char *name, const msgq_options *options, bool makes);
/* Close the file, and free `r`. */
MQC_HIDDEN void mqc_record_file_close(mqc_record_file *r);
/* Take a row under the lock. Each write needs a row. */
MQC_HIDDEN int mqc_record_file_ensure_row(mqc_record_file *r);
/* Return the error for an element or key that another handle, `who`, owns. */
MQC_HIDDEN int mqc_record_file_locked_error(mqc_record_file *r, uint64_t who, const char *what);
MQC_HIDDEN int mqc_record_file_wait_until_readable(mqc_record_file *r, bool (*is_readable)(void *), double timeout);

/* Return the deadline of a read while writers replace the value. */
static inline int64_t mqc_record_read_deadline_ns(void) { return mq_monotonic_ns() + MQ_NS_PER_S; }

static inline int mqc_record_file_check_truncation(const mqc_record_file *r) {
    return mqc_check_truncation(&r->endpoint, &r->segment);
}

#endif
