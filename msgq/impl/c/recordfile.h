/* Functions that vectors and boards share: the file, the row, waiting. The steps are in records/join.h. */
#ifndef MQC_RECORDFILE_H
#define MQC_RECORDFILE_H

#include "c/poll.h"
#include "records/join.h"

enum { MQC_RECORD_COPIES = 2 };

/* A vector or a board: an open file of records. */
typedef struct {
    mqc_endpoint endpoint;
    mqc_mapped_file segment;
    mq_record_writer w;
    mq_record_config wanted;
    msgq_schema schema; /* schema of a new file. If the name is NULL, the file gets no schema */
    uint64_t uid, length;
    void *liveness_token;
    uint64_t *seen;
    int64_t clock_offset;
    int generation;
} mqc_record_file;

/* Open the file that `wanted` describes. If `makes`, create the file if needed. */
MQC_HIDDEN int mqc_record_file_open(mqc_record_file *r, const char *name, const msgq_options *options, bool makes);
/* Close the file, and free `r`. */
MQC_HIDDEN void mqc_record_file_close(mqc_record_file *r);
/* Take a row under the lock, if the handle has no row yet. A handle needs a row before it writes. */
MQC_HIDDEN int mqc_record_file_ensure_row(mqc_record_file *r);
/* Check a handle for msgq_poll. `reader` is the argument of `is_readable`. */
MQC_HIDDEN int mqc_record_file_poll(const mqc_record_file *r, bool (*is_readable)(void *), void *reader,
                                    mqc_waiter *waiter);
/* Wait for an item of this file. Returns 0 after a change, or a negative error. */
MQC_HIDDEN int mqc_record_file_wait(const mqc_record_file *r, msgq_poll_item *item, double timeout);

/* Return the deadline for reads of a value that writers replace repeatedly: 1 s from now. */
static inline int64_t mqc_record_read_deadline_ns(void) { return mq_monotonic_ns() + MQ_NS_PER_S; }

static inline int mqc_record_file_check_truncation(const mqc_record_file *r) {
    return mqc_check_truncation(&r->endpoint, &r->segment);
}

#endif
