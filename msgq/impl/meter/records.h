/* Samples of a vector or board: each write is a message. If a write is overwritten before a sample, the write counts as
 * lost. */
#ifndef MQ_METER_RECORDS_H
#define MQ_METER_RECORDS_H

#include "meter/counting.h"
#include "records/board.h"

enum {
    /* after a scan of all elements, the meter pauses for this multiple of the scan's duration */
    MQ_METER_REST_FACTOR = 4,
    /* maximum number of attempts to read an element that writers replace repeatedly. After the last attempt, the next
     * sample tries again */
    MQ_METER_READ_TRIES = 1000,
};

typedef struct {
    const mq_record_file_parts *parts;
    uint64_t *seen_write_counts; /* number of writes of each element at its last sample */
    uint64_t lost;
    bool is_board;
    int64_t next_sample_ns; /* earliest time of the next sample, nanoseconds of CLOCK_MONOTONIC */
} mq_meter_record_reader;

/* Read the size of an element, its number of writes, and the time of its last write. Returns false if the element
 * changed during every attempt. */
static inline bool mq_meter_read_element(const mq_meter_record_reader *r, uint64_t index, mq_board_value_copy *value) {
    if (!r->is_board) {
        uint8_t nothing; /* the call copies 0 bytes of the value to this address */
        value->length = r->parts->config.item_bytes;
        return mq_vector_read_one(r->parts, index, &nothing, 0, &value->count, &value->time_ns);
    }
    for (int tries = 0; tries < MQ_METER_READ_TRIES; tries++) {
        mq_board_value_read_begin(r->parts, index, value);
        if (mq_board_value_read_valid(r->parts, index, value))
            return true;
    }
    return false;
}

static inline int64_t mq_meter_sample_records(mq_meter *m, void *reader) {
    mq_meter_record_reader *r = reader;
    int64_t began = mq_monotonic_ns(), now = 0, wall_ns = 0;
    uint64_t found = 0, length = r->parts->config.length;
    mq_board_value_copy value;
    if (began < r->next_sample_ns)
        return 0;
    for (uint64_t i = mq_vector_next_changed(r->parts, r->seen_write_counts, 0); i < length;
         i = mq_vector_next_changed(r->parts, r->seen_write_counts, i + 1)) {
        if (!mq_meter_read_element(r, i, &value))
            continue;
        /* read the clock after the element, so that the write happened before `now` */
        now = mq_monotonic_ns(), wall_ns = mq_meter_read_wall_clock_ns(m);
        r->lost += mq_cell_count_writes_between(r->parts, r->seen_write_counts[i], value.count) - 1;
        r->seen_write_counts[i] = value.count;
        mq_histogram_add_value(&m->sizes, value.length, 1);
        mq_meter_add_delay(m, wall_ns, (uint64_t)value.time_ns);
        found++;
    }
    mq_meter_count_messages(m, now, found);
    r->next_sample_ns = began + (MQ_METER_REST_FACTOR + 1) * (mq_monotonic_ns() - began);
    return (int64_t)found;
}

/* Begin with the current number of writes of each element. */
static inline void mq_meter_start_records(const mq_meter_record_reader *r) {
    for (uint64_t i = 0; i < r->parts->config.length; i++)
        r->seen_write_counts[i] = mq_cell_write_count(mq_cell_read_begin(mq_cell_version_word(r->parts, i)));
}

#endif
