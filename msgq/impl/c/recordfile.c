/* The file of a vector or board. See recordfile.h. Compile as C11. */
#define _GNU_SOURCE
#include "c/recordfile.h"

/* first poll interval without a wake. The later intervals are 3 s, 9 s, ... */
static const int64_t MQC_AGAIN_NS = MQ_NS_PER_S;

/* ---- file ---- */

static int mqc_record_file_check_header(void *handle) {
    mqc_record_file *r = handle;
    mq_error error;
    if (mq_record_check_file((mq_record_header *)(void *)r->segment.address, r->segment.size, r->segment.path,
                             &r->w.parts, &error))
        return mqc_report(&r->endpoint, &error);
    if ((r->w.parts.config.flags ^ r->wanted.flags) & MQ_RECORD_BOARD)
        return mqc_endpoint_error(&r->endpoint, EEXIST, "is a %s",
                                  r->w.parts.config.flags & MQ_RECORD_BOARD ? "board" : "vector");
    return 0;
}

static void mqc_record_file_init_header(void *handle) {
    mqc_record_file *r = handle;
    mq_process_identity self;
    mq_record_header *record = (mq_record_header *)(void *)r->segment.address;
    mq_schema_parts at = mq_schema_parts_from_block(&record->schema, record->schema_data, MQ_RECORD_SCHEMA_BYTES);
    char creator[MQ_RECORD_CREATOR_BYTES] = "";
    mqc_read_own_identity(&self); /* cannot fail, because a previous call succeeded */
    memcpy(creator, self.name, sizeof self.name);
    if (r->schema.name)
        mqc_write_schema(&r->endpoint, &at, &r->schema, true);
    mq_record_header_init(record, &r->wanted, (uint64_t)msgq_time_ns(), self.pid, creator);
}

/* Check that the schema of a new file fits. Call this before the file is created, because the callbacks of the creation
 * cannot return errors. */
static int mqc_record_file_check_schema(const mqc_record_file *r) {
    if (!r->schema.name ||
        ((r->schema.data || !r->schema.bytes) && strlen(r->schema.name) < MQ_SCHEMA_NAME &&
         strlen(r->schema.encoding) < MQ_SCHEMA_ENCODING && r->schema.bytes <= MQ_RECORD_SCHEMA_BYTES - MQC_DATA_MARKS))
        return 0;
    return mqc_endpoint_error(&r->endpoint, EINVAL, "dtype or schema has %zu bytes; give at most %zu, and not NULL",
                              r->schema.bytes, (size_t)MQ_RECORD_SCHEMA_BYTES - MQC_DATA_MARKS);
}

void mqc_record_file_close(mqc_record_file *r) {
    if (r->generation == mqc_fork_generation() && r->w.row)
        mq_record_unregister_writer(&r->w, r->uid, &r->liveness_token);
    free(r->seen);
    mqc_unmap_file(&r->segment);
    free(r);
}

/* Open the file that `wanted` describes. If `makes`, create the file if needed. */
int mqc_record_file_open(mqc_record_file *r, const char *name, const msgq_options *options, bool makes) {
    mq_process_identity self;
    r->generation = mqc_fork_generation();
    int status = mqc_endpoint_init(&r->endpoint, r->wanted.flags & MQ_RECORD_BOARD ? "board" : "vector", name,
                                   MQC_NAME_MAX, options, 0);
    if (!status)
        status = mqc_read_own_identity(&self);
    if (!status)
        status = mqc_record_file_check_schema(r);
    uint64_t bytes = makes ? mq_record_compute_file_bytes(&r->wanted) : 0;
    if (!status && makes && !bytes)
        status = mqc_endpoint_error(&r->endpoint, EINVAL, "no file has %llu elements of %llu bytes in %llu copies",
                                    (unsigned long long)r->wanted.length, (unsigned long long)r->wanted.item_bytes,
                                    (unsigned long long)r->wanted.copies);
    mqc_file_ops kind = {.start = "msgqrec_",
                         .least = sizeof(mq_record_header),
                         .bytes = bytes,
                         .check = mqc_record_file_check_header,
                         .fill = mqc_record_file_init_header,
                         .handle = r};
    if (!status)
        status = mqc_open_or_create(&r->endpoint, &kind, &r->segment);
    if (status)
        return status;
    r->w.liveness_file = &r->segment.liveness_file;
    r->clock_offset = mqc_clock_offset_ns();
    r->length = r->w.parts.config.length;
    r->seen = calloc(r->length, sizeof *r->seen);
    return r->seen ? 0 : mqc_endpoint_error(&r->endpoint, ENOMEM, "no memory for a handle");
}

/* ---- rows ---- */

/* Take a row under the lock. A handle needs a row before it writes. */
static int mqc_record_file_register_writer(mqc_record_file *r) {
    mq_process_identity self;
    mq_file_lock lock;
    mq_error error;
    int status = mqc_read_own_identity(&self);
    if (!status)
        status = mqc_lock_mapped_file(&r->endpoint, &r->segment, true, &lock);
    if (status)
        return status;
    if (mq_record_join(&r->w, &lock, &self, r->uid = mq_new_uid(), &r->liveness_token, &error))
        status = mqc_report(&r->endpoint, &error);
    mqc_unlock_mapped_file(&lock);
    return status;
}

int mqc_record_file_ensure_row(mqc_record_file *r) {
    int status = mqc_check_process(&r->endpoint, r->generation);
    return status || r->w.row ? status : mqc_record_file_register_writer(r);
}

/* ---- wait ---- */

static int64_t mqc_record_file_max_sleep_ns(void *reader, int64_t slept_ns) {
    (void)reader;
    return 2 * slept_ns > MQC_AGAIN_NS ? 2 * slept_ns : MQC_AGAIN_NS;
}

int mqc_record_file_poll(const mqc_record_file *r, bool (*is_readable)(void *), void *reader, mqc_waiter *waiter) {
    int status = mqc_check_process(&r->endpoint, r->generation);
    if (status)
        return status;
    bool is_ready = is_readable(reader);
    *waiter = (mqc_waiter){.is_readable = is_readable,
                           .prepare_wait = mq_poll_prepare_wait_mp,
                           .max_sleep_ns = mqc_record_file_max_sleep_ns,
                           .word = &r->w.parts.header->eventcount,
                           .reader = reader,
                           .spin_ns = r->endpoint.spin_ns};
    status = is_ready ? mqc_record_file_check_truncation(r) : 0;
    return status ? status : is_ready;
}

int mqc_record_file_wait(const mqc_record_file *r, msgq_poll_item *item, double timeout) {
    int ready = msgq_poll(item, 1, timeout);
    if (ready == -EAGAIN || ready == -ETIMEDOUT)
        return mqc_endpoint_error(&r->endpoint, -ready, "no change");
    return ready < 0 ? ready : 0;
}
