/* Boards for C programs. Compile as C11. */
#define _GNU_SOURCE
#include "c/recordfile.h"

enum { MQC_KEYS = 256, MQC_KEYS_MAX = 65536, MQC_VALUE_BYTES = 1008 };

struct msgq_board {
    mqc_record_file r;
};

int msgq_board_open(msgq_board **board, const char *name, const msgq_board_options *options) {
    static const msgq_board_options defaults;
    const msgq_board_options *asked = options ? options : &defaults;
    int status = mqc_check_pointers(board, NULL, 0);
    if (status)
        return status;
    msgq_board *b = *board = NULL;
    if (!(b = calloc(1, sizeof *b)))
        return mqc_set_error(ENOMEM, "no memory for a board");
    b->r.wanted =
        (mq_record_config){.length = asked->keys ? asked->keys : MQC_KEYS,
                           .item_bytes = sizeof(mq_u64) + (asked->value_bytes ? asked->value_bytes : MQC_VALUE_BYTES),
                           .copies = MQC_RECORD_COPIES,
                           .flags = MQ_RECORD_BOARD};
    if (asked->schema)
        b->r.schema = *asked->schema;
    if (b->r.schema.name && !b->r.schema.encoding)
        b->r.schema.encoding = "";
    bool makes = asked->open.create != MSGQ_OPEN && b->r.wanted.length <= MQC_KEYS_MAX;
    status = mqc_record_file_open(&b->r, name, &asked->open, makes);
    if (!status && ((asked->keys && asked->keys != b->r.length) ||
                    (asked->value_bytes && asked->value_bytes != mq_board_value_bytes(&b->r.w.parts))))
        status =
            mqc_endpoint_error(&b->r.endpoint, EEXIST,
                               "has %llu keys of %llu bytes, but %u of %u were requested; give 0 to use "
                               "the existing values",
                               (unsigned long long)b->r.length, (unsigned long long)mq_board_value_bytes(&b->r.w.parts),
                               asked->keys, asked->value_bytes);
    if (status) {
        mqc_record_file_close(&b->r);
        return status;
    }
    *board = b;
    return 0;
}

static int mqc_board_check_key(const msgq_board *board, const char *key) {
    int status = mqc_check_pointers(board, NULL, 0);
    if (status)
        return status;
    const mqc_record_file *r = &board->r;
    size_t bytes = key ? strlen(key) : 0;
    if (bytes > 0 && bytes < MQ_RECORD_KEY_BYTES)
        return 0;
    return mqc_endpoint_error(&r->endpoint, EINVAL, "key must have 1 to %d bytes, but has %zu", MQ_RECORD_KEY_BYTES - 1,
                              bytes);
}

int64_t msgq_board_declare(msgq_board *board, const char *key) {
    mq_file_lock lock;
    mq_error error;
    int status = mqc_board_check_key(board, key);
    if (status)
        return status;
    mqc_record_file *r = &board->r;
    status = mqc_record_file_ensure_row(r);
    if (!status)
        status = mqc_lock_mapped_file(&r->endpoint, &r->segment, true, &lock);
    if (status)
        return status;
    int64_t index = mq_board_declare_key(&r->w, key, strlen(key), &error);
    mqc_unlock_mapped_file(&lock);
    if (index < 0)
        return mqc_report(&r->endpoint, &error);
    status = mqc_record_file_check_truncation(r);
    return status ? status : index;
}

static int mqc_board_check_index(const msgq_board *board, int64_t index) {
    int status = mqc_check_pointers(board, NULL, 0);
    if (mq_unlikely(status))
        return status;
    const mqc_record_file *r = &board->r;
    status = mqc_check_process(&r->endpoint, r->generation);
    if (!status && (uint64_t)index >= r->length)
        status = mqc_endpoint_error(&r->endpoint, EINVAL, "has no key of index %lld", (long long)index);
    return status;
}

int msgq_board_write(msgq_board *board, int64_t index, const void *data, size_t size) {
    int status = mqc_check_pointers(board, data, size);
    if (!status)
        status = mqc_board_check_index(board, index);
    if (status)
        return status;
    mqc_record_file *r = &board->r;
    if (!r->w.row || mq_load_acquire_u64(&r->w.parts.key_table[index].owner) != r->w.owner)
        return mqc_endpoint_error(&r->endpoint, EPERM, "this handle has not declared the key of index %lld",
                                  (long long)index);
    if (size > mq_board_value_bytes(&r->w.parts))
        return mqc_endpoint_error(&r->endpoint, EMSGSIZE, "a value of %zu bytes does not fit: at most %llu", size,
                                  (unsigned long long)mq_board_value_bytes(&r->w.parts));
    mq_board_write_value(&r->w, (uint64_t)index, data ? data : mqc_no_bytes, size, mq_monotonic_ns() + r->clock_offset);
    return mqc_record_file_check_truncation(r);
}

int64_t msgq_board_find(msgq_board *board, const char *key) {
    int status = mqc_board_check_key(board, key);
    if (status)
        return status;
    mqc_record_file *r = &board->r;
    status = mqc_check_process(&r->endpoint, r->generation);
    if (status)
        return status;
    uint64_t index = mq_board_find_key(&r->w.parts, key, strlen(key), 0);
    return index == MQ_BOARD_NO_KEY ? mqc_endpoint_error(&r->endpoint, ENOENT, "key %s not declared", key)
                                    : (int64_t)index;
}

/* Return the size of a valid value, or a negative error. */
static int64_t mqc_board_value(const mqc_record_file *r, const mq_board_value_copy *value, size_t buffer_bytes,
                               msgq_value *info) {
    int status = mqc_record_file_check_truncation(r);
    if (!status && !value->count)
        status = mqc_endpoint_error(&r->endpoint, ENOENT, "the key was never written");
    else if (!status && value->is_corrupt)
        status = mqc_endpoint_error(&r->endpoint, EPROTO,
                                    "has a value of invalid length: another program wrote into the file; remove it");
    if (status)
        return status;
    if (info)
        *info = (msgq_value){.size = value->length, .count = value->count, .time = value->time_ns};
    if (value->length > buffer_bytes)
        return mqc_endpoint_error(&r->endpoint, EMSGSIZE, "value has %llu bytes, but the buffer has %zu",
                                  (unsigned long long)value->length, buffer_bytes);
    return (int64_t)value->length;
}

int64_t msgq_board_read(msgq_board *board, int64_t index, void *buffer, size_t buffer_bytes, msgq_value *info) {
    mq_board_value_copy value;
    int64_t deadline = 0;
    int status = mqc_check_pointers(board, buffer, buffer_bytes);
    if (!status)
        status = mqc_board_check_index(board, index);
    if (status)
        return status;
    mqc_record_file *r = &board->r;
    buffer = buffer ? buffer : mqc_no_bytes;
    for (;;) {
        const uint8_t *at = mq_board_value_read_begin(&r->w.parts, (uint64_t)index, &value);
        if (value.length <= buffer_bytes)
            mq_copy_from_shared(buffer, at, value.length);
        if (!value.count || mq_board_value_read_valid(&r->w.parts, (uint64_t)index, &value))
            return mqc_board_value(r, &value, buffer_bytes, info);
        deadline = deadline ? deadline : mqc_record_read_deadline_ns();
        if (mq_monotonic_ns() > deadline)
            return mqc_endpoint_error(&r->endpoint, ETIMEDOUT, "value was overwritten during each read for 1 s");
        sched_yield();
    }
}

static bool mqc_board_is_readable(void *reader) {
    const msgq_poll_item *item = reader;
    const mqc_record_file *r = &item->board->r;
    uint64_t version = mq_load_acquire_u64(mq_cell_version_word(&r->w.parts, (uint64_t)item->index));
    return mqc_record_file_check_truncation(r) || mq_cell_write_count(version) != item->count;
}

int mqc_board_poll(msgq_poll_item *item, mqc_waiter *waiter) {
    int status = mqc_board_check_index(item->board, item->index);
    return status ? status : mqc_record_file_poll(&item->board->r, mqc_board_is_readable, item, waiter);
}

int msgq_board_wait(msgq_board *board, int64_t index, uint64_t count, double timeout) {
    msgq_poll_item item = {.board = board, .index = index, .count = count};
    int status = mqc_check_pointers(board, NULL, 0);
    return status ? status : mqc_record_file_wait(&board->r, &item, timeout);
}

void msgq_board_close(msgq_board *board) {
    if (board)
        mqc_record_file_close(&board->r);
}
