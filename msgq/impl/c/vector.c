/* Vectors for C programs. Compile as C11. */
#define _GNU_SOURCE
#include "c/recordfile.h"

struct msgq_vector {
    mqc_record_file r;
};

/* True if the texts are equal except for spaces. */
static bool mqc_same_text(const char *one, const char *other, size_t bytes) {
    const char *end = other + bytes;
    for (;; one++, other++) {
        one += strspn(one, " \t\n");
        while (other < end && strchr(" \t\n", *other))
            other++;
        if (!*one || other == end)
            return !*one && other == end;
        if (*one != *other)
            return false;
    }
}

/* True if the file's header has this dtype. */
static bool mqc_vector_has_dtype(mqc_record_file *r, const char *json) {
    mq_record_header *record = r->w.parts.header;
    mq_schema_parts at = mq_schema_parts_from_block(&record->schema, record->schema_data, MQ_RECORD_SCHEMA_BYTES);
    char name[MQ_SCHEMA_NAME], encoding[MQ_SCHEMA_ENCODING], data[MQ_RECORD_SCHEMA_BYTES];
    uint64_t bytes = 0;
    return mq_schema_read(&at, name, encoding, data, &bytes) && bytes >= MQC_DATA_MARKS &&
           mqc_same_text(json, data + MQC_DATA_MARKS, bytes - MQC_DATA_MARKS);
}

static int mqc_vector_check_requested_options(mqc_record_file *r, const msgq_vector_options *options,
                                              const char *json) {
    const mq_record_config *shape = &r->w.parts.config;
    bool exclusive = shape->flags & MQ_RECORD_EXCLUSIVE;
    if ((options->item_bytes && options->item_bytes != shape->item_bytes) || options->length > shape->length ||
        (options->copies && (uint64_t)options->copies != shape->copies) || (options->exclusive && !exclusive) ||
        (*json && !mqc_vector_has_dtype(r, json)))
        return mqc_endpoint_error(&r->endpoint, EEXIST,
                                  "has %llu items of %llu bytes in %llu copies%s, but other ones, or another "
                                  "dtype, were requested; omit values to use the existing ones",
                                  (unsigned long long)shape->length, (unsigned long long)shape->item_bytes,
                                  (unsigned long long)shape->copies, exclusive ? ", exclusive" : "");
    r->length = options->length ? options->length : shape->length;
    return 0;
}

int msgq_vector_open(msgq_vector **vector, const char *name, const msgq_vector_options *options) {
    static const msgq_vector_options defaults;
    const msgq_vector_options *asked = options ? options : &defaults;
    const char *dtype = asked->dtype ? asked->dtype : "";
    bool plain = *dtype && *dtype != '[' && *dtype != '"';
    int status = mqc_check_pointers(vector, NULL, 0);
    if (status)
        return status;
    msgq_vector *v = *vector = NULL;
    char *json = malloc(strlen(dtype) + 3);
    if (!json || !(v = calloc(1, sizeof *v))) {
        free(json);
        return mqc_set_error(ENOMEM, "no memory for a vector");
    }
    sprintf(json, plain ? "\"%s\"" : "%s", dtype);
    v->r.schema = (msgq_schema){.name = "Record", .encoding = "struct", .data = json, .bytes = strlen(json)};
    v->r.wanted = (mq_record_config){.length = asked->length,
                                     .item_bytes = asked->item_bytes,
                                     .copies = asked->copies ? (uint64_t)asked->copies : MQC_RECORD_COPIES,
                                     .flags = asked->exclusive ? MQ_RECORD_EXCLUSIVE : 0};
    bool makes = *dtype && asked->item_bytes && asked->length && asked->open.create != MSGQ_OPEN;
    status = mqc_record_file_open(&v->r, name, &asked->open, makes);
    if (!status)
        status = mqc_vector_check_requested_options(&v->r, asked, json);
    free(json);
    if (status) {
        mqc_record_file_close(&v->r);
        return status;
    }
    *vector = v;
    return 0;
}

uint64_t msgq_vector_length(const msgq_vector *vector) {
    return mqc_check_pointers(vector, NULL, 0) ? 0 : vector->r.length;
}
uint64_t msgq_vector_item_bytes(const msgq_vector *vector) {
    return mqc_check_pointers(vector, NULL, 0) ? 0 : vector->r.w.parts.config.item_bytes;
}

static int mqc_vector_range(const mqc_record_file *r, uint64_t first, uint64_t count) {
    if (first <= r->length && count <= r->length - first)
        return 0;
    return mqc_endpoint_error(&r->endpoint, EINVAL, "has %llu items, but %llu from index %llu on were requested",
                              (unsigned long long)r->length, (unsigned long long)count, (unsigned long long)first);
}

/* Read all selected items. Read again while writers replace an item, at most for 1 s. */
static int mqc_vector_read(mqc_record_file *r, mq_element_selection which, uint8_t *items,
                           mq_vector_read_info reading) {
    int64_t deadline = 0;
    for (;;) {
        uint64_t done = mq_vector_read_elements_with_info(&r->w.parts, &which, items, &reading);
        if (done == which.count)
            return mqc_record_file_check_truncation(r);
        deadline = deadline ? deadline : mqc_record_read_deadline_ns();
        if (mq_monotonic_ns() > deadline)
            return mqc_endpoint_error(&r->endpoint, ETIMEDOUT,
                                      "item was overwritten during each read for 1 s; create the vector with copies=4");
        if (which.indices)
            which.indices += done;
        which.first += done, which.count -= done;
        items = items ? items + done * r->w.parts.config.item_bytes : NULL;
        reading.write_counts = reading.write_counts ? reading.write_counts + done : NULL;
        reading.write_times_ns = reading.write_times_ns ? reading.write_times_ns + done : NULL;
        sched_yield();
    }
}

int msgq_vector_read(msgq_vector *vector, uint64_t first, uint64_t count, void *items, uint64_t *counts,
                     int64_t *times) {
    int status = mqc_check_pointers(vector, NULL, 0);
    if (status)
        return status;
    mqc_record_file *r = &vector->r;
    status = mqc_check_process(&r->endpoint, r->generation);
    if (!status)
        status = mqc_vector_range(r, first, count);
    if (status)
        return status;
    return mqc_vector_read(r, (mq_element_selection){.first = first, .count = count}, items,
                           (mq_vector_read_info){.write_counts = counts, .write_times_ns = times});
}

/* Write the remaining items. If another writer holds an item, wait for that writer. */
static int mqc_vector_write_patiently(mqc_record_file *r, const mq_element_selection *which, const void *items,
                                      int64_t time, double timeout, uint64_t *done) {
    mq_vector_status status = MQ_VECTOR_LOCKED;
    int64_t deadline = timeout == 0 ? 0 : mqc_deadline_ns(timeout);
    deadline = deadline < 0 ? INT64_MAX : deadline;
    if (deadline)
        status = mq_vector_write_elements(&r->w, which, items, time, NULL, deadline, done);
    if (status == MQ_VECTOR_WRITTEN)
        return mqc_record_file_check_truncation(r);
    int cut = mqc_record_file_check_truncation(r);
    if (cut || status == MQ_VECTOR_CORRUPT)
        return cut ? cut
                   : mqc_endpoint_error(
                         &r->endpoint, EPROTO,
                         "has element versions that change during a write: another program writes the file");
    return mqc_endpoint_error(&r->endpoint, timeout == 0 ? EAGAIN : ETIMEDOUT, "another writer has item %llu",
                              (unsigned long long)mq_element_selection_index_at(which, *done));
}

int msgq_vector_write(msgq_vector *vector, uint64_t first, uint64_t count, const void *items, double timeout) {
    int status = mqc_check_pointers(vector, items, count);
    if (mq_unlikely(status))
        return status;
    mqc_record_file *r = &vector->r;
    mq_element_selection which = {.first = first, .count = count};
    uint64_t done = 0;
    status = mqc_record_file_ensure_row(r);
    if (!status)
        status = mqc_vector_range(r, first, count);
    if (status)
        return status;
    int64_t time = mq_monotonic_ns() + r->clock_offset;
    if (mq_likely(mq_vector_write_elements(&r->w, &which, items, time, NULL, 0, &done) == MQ_VECTOR_WRITTEN))
        return mqc_record_file_check_truncation(r);
    return mqc_vector_write_patiently(r, &which, items, time, timeout, &done);
}

/* Return the file's parts, with the number of items that this handle uses. */
static mq_record_file_parts mqc_vector_view(const mqc_record_file *r) {
    mq_record_file_parts view = r->w.parts;
    view.config.length = r->length;
    return view;
}

static bool mqc_vector_is_readable(void *reader) {
    mqc_record_file *r = reader;
    mq_record_file_parts view = mqc_vector_view(r);
    return mqc_record_file_check_truncation(r) || mq_vector_next_changed(&view, r->seen, 0) < r->length;
}

int mqc_vector_poll(msgq_vector *vector, mqc_waiter *waiter) {
    return mqc_record_file_poll(&vector->r, mqc_vector_is_readable, &vector->r, waiter);
}

int msgq_vector_wait(msgq_vector *vector, double timeout) {
    msgq_poll_item item = {.vector = vector};
    int status = mqc_check_pointers(vector, NULL, 0);
    return status ? status : mqc_record_file_wait(&vector->r, &item, timeout);
}

int64_t msgq_vector_changes(msgq_vector *vector, uint64_t *indices, void *items, size_t max_changes) {
    int status = mqc_check_pointers(vector, indices, max_changes);
    if (status)
        return status;
    mqc_record_file *r = &vector->r;
    mq_record_file_parts view = mqc_vector_view(r);
    uint64_t found = 0, index = 0;
    status = mqc_check_process(&r->endpoint, r->generation);
    while (!status && found < max_changes && (index = mq_vector_next_changed(&view, r->seen, index)) < r->length) {
        uint64_t times = 0;
        uint8_t *to = items ? (uint8_t *)items + found * view.config.item_bytes : NULL;
        status = mqc_vector_read(r, (mq_element_selection){.first = index, .count = 1}, to,
                                 (mq_vector_read_info){.write_counts = &times});
        if (status)
            break;
        r->seen[index] = times;
        indices[found++] = index++;
    }
    return status ? status : (int64_t)found;
}

void msgq_vector_close(msgq_vector *vector) {
    if (vector)
        mqc_record_file_close(&vector->r);
}
