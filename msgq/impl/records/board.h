/* Boards: named values. A key is the name of an element. The value of a key is a length, followed by the bytes of the
 * value.
 *
 * Processes add keys under the file's lock. A key keeps its name and element forever. Only the owner of a key writes
 * the key's value, with stores instead of exchanges. The owner changes under the lock, after the previous owner
 * released the key or died.
 */
#ifndef MQ_RECORDS_BOARD_H
#define MQ_RECORDS_BOARD_H

#include "records/vector.h"

#define MQ_BOARD_NO_KEY UINT64_MAX

/* Return the element of a key, or MQ_BOARD_NO_KEY if no element has this name. `bytes` is the length of the key
 * without the final NUL byte. The search begins at element `from`. */
static inline uint64_t mq_board_find_key(const mq_record_file_parts *parts, const char *key, size_t bytes,
                                         uint64_t from) {
    for (uint64_t i = from; i < parts->config.length; i++) {
        const mq_record_key *at = &parts->key_table[i];
        /* EDGE key: acquire. Partner: mq_board_add_key */
        if (!mq_load_acquire_u64(&at->named))
            return MQ_BOARD_NO_KEY; /* keys are added in element order, so no later element has a name */
        if (!memcmp(at->name, key, bytes) && !at->name[bytes])
            return i;
    }
    return MQ_BOARD_NO_KEY;
}

/* Return the number of keys. */
static inline uint64_t mq_board_key_count(const mq_record_file_parts *parts) {
    uint64_t i = 0;
    while (i < parts->config.length && mq_load_acquire_u64(&parts->key_table[i].named))
        i++;
    return i;
}

/* Name the next element. The caller holds the lock. Returns MQ_BOARD_NO_KEY if all elements have names. */
static inline uint64_t mq_board_add_key(const mq_record_file_parts *parts, const char *key, size_t bytes) {
    uint64_t i = mq_board_key_count(parts);
    if (i == parts->config.length)
        return MQ_BOARD_NO_KEY;
    /* write the whole name: a process that was killed here may have left part of another name */
    char name[MQ_RECORD_KEY_BYTES] = {0};
    memcpy(name, key, bytes);
    mq_copy_to_shared(parts->key_table[i].name, name, sizeof name);
    /* EDGE key: release. A process that finds `named` set finds the name. Partner: mq_board_find_key */
    mq_store_release_u64(&parts->key_table[i].named, 1);
    return i;
}

/* Return the maximum number of bytes of a value. */
static inline uint64_t mq_board_value_bytes(const mq_record_file_parts *parts) {
    return parts->config.item_bytes - sizeof(mq_u64);
}

/* Fill the next copy of a key's value as its owner. The caller has checked the length. */
static inline void mq_board_fill_value(mq_record_writer *w, mq_u64 *version, const void *from, uint64_t length,
                                       int64_t time) {
    mq_u64 *value = mq_cell_begin_write(&w->parts, version, (uint64_t)time);
    mq_store_relaxed_u64(value, length); /* relaxed: released with the version */
    mq_copy_to_shared(value + 1, from, length);
}

/* Publish the filled copy, and wake waiting readers. */
static inline void mq_board_commit_value(mq_record_writer *w, mq_u64 *version) {
    mq_cell_commit_exclusive_write(&w->parts, version);
    mq_record_notify_written(w, 1, true);
}

/* Write the value of a key as its owner. */
static inline void mq_board_write_value(mq_record_writer *w, uint64_t index, const void *from, uint64_t length,
                                        int64_t time) {
    mq_u64 *version = mq_cell_version_word(&w->parts, index);
    mq_board_fill_value(w, version, from, length, time);
    mq_board_commit_value(w, version);
}

/* The state of one read of a value. */
typedef struct {
    uint64_t version, count, length;
    int64_t time_ns; /* time of the value's write */
    bool is_corrupt; /* the length is too large: either the read is torn, or the data is invalid */
} mq_board_value_copy;

/* Begin to read a value. The length in *value is bounded, but may be wrong until mq_board_value_read_valid returns
 * true. */
static inline const uint8_t *mq_board_value_read_begin(const mq_record_file_parts *parts, uint64_t index,
                                                       mq_board_value_copy *value) {
    mq_u64 *version = mq_cell_version_word(parts, index);
    value->version = mq_cell_read_begin(version);
    value->count = mq_cell_write_count(value->version);
    const mq_u64 *copy = mq_cell_value_copy_at(parts, version, value->count);
    value->time_ns = (int64_t)mq_load_relaxed_u64(copy); /* relaxed, both: validated with the value */
    uint64_t length = mq_load_relaxed_u64(copy + 1);
    value->is_corrupt = length > mq_board_value_bytes(parts);
    value->length = value->is_corrupt ? 0 : length;
    return (const uint8_t *)(copy + 2);
}
static inline bool mq_board_value_read_valid(const mq_record_file_parts *parts, uint64_t index,
                                             const mq_board_value_copy *value) {
    mq_cell_read_fence();
    return mq_cell_read_valid(parts, mq_cell_version_word(parts, index), value->version);
}

/* ---- one key, as polled by the watcher thread (base/poll_ops.h) ---- */

typedef struct {
    const mq_record_file_parts *parts;
    char key[MQ_RECORD_KEY_BYTES];
    size_t bytes;
    uint64_t index;            /* MQ_BOARD_NO_KEY: the key has no element yet */
    uint64_t seen_write_count; /* number of writes at the last read; written under the watcher's mutex */
    const mq_u64 *not_truncated;
} mq_board_poll_state;

static inline int mq_board_key_is_readable(const void *reader) {
    const mq_board_poll_state *state = reader;
    if (mq_mapping_was_truncated(state->not_truncated))
        return 1;
    uint64_t index = state->index;
    if (index == MQ_BOARD_NO_KEY)
        index = mq_board_find_key(state->parts, state->key, state->bytes, 0);
    if (index == MQ_BOARD_NO_KEY)
        return 0;
    return mq_cell_write_count(mq_load_acquire_u64(mq_cell_version_word(state->parts, index))) !=
           state->seen_write_count;
}

#endif
