/* A vector or board as observers see it, for statistics. Each word is loaded separately, so counters may be from
 * slightly different times. Loaded values are not trusted: no loaded value bounds a loop or an index. */
#ifndef MQ_RECORDS_SNAPSHOT_H
#define MQ_RECORDS_SNAPSHOT_H

#include "records/board.h"

enum { MQ_RECORD_READ_TRIES = 8 }; /* attempts to read an element that writers replace repeatedly */

/* Number of elements and keys that a row's owner holds. */
typedef struct {
    uint64_t locked, keys;
} mq_record_row_summary;

/* Summary of all elements. */
typedef struct {
    uint64_t elements_written;         /* elements written at least once */
    uint64_t locked, orphaned;         /* locked: elements with a writer. orphaned: elements whose writer owns no row */
    uint64_t last_time_ns, last_index; /* time and index of the last written element. Time 0: no element was written */
    mq_record_row_summary rows[MQ_RECORD_ROWS];
} mq_record_summary;

/* Return the row of an owner. Returns MQ_RECORD_ROWS if the row has another owner or does not exist. */
static inline unsigned mq_record_find_owner_row(const mq_record_header *header, uint64_t who) {
    unsigned row = mq_cell_owner_row(who);
    if (row >= MQ_RECORD_ROWS)
        return MQ_RECORD_ROWS;
    bool is_current = (uint16_t)mq_load_acquire_u64(&header->rows[row].at.generation) == mq_cell_owner_generation(who);
    return is_current ? row : MQ_RECORD_ROWS;
}

/* Return the time of an element's last write. Returns 0 if the element was never written, or changed during every
 * attempt. */
static inline uint64_t mq_record_last_write_ns(const mq_record_file_parts *parts, uint64_t index) {
    mq_u64 *version = mq_cell_version_word(parts, index);
    for (int tries = 0; tries < MQ_RECORD_READ_TRIES; tries++) {
        uint64_t before = mq_cell_read_begin(version);
        if (!mq_cell_write_count(before))
            return 0;
        /* relaxed: validated below */
        uint64_t time = mq_load_relaxed_u64(mq_cell_value_copy_at(parts, version, mq_cell_write_count(before)));
        mq_cell_read_fence();
        if (mq_cell_read_valid(parts, version, before))
            return time;
    }
    return 0;
}

/* Summarize all elements, and the owners of a board's keys. */
static inline void mq_record_summarize_file(const mq_record_file_parts *parts, mq_record_summary *out) {
    memset(out, 0, sizeof *out);
    for (uint64_t i = 0; i < parts->config.length; i++) {
        uint64_t version = mq_cell_read_begin(mq_cell_version_word(parts, i)), who = mq_cell_version_owner(version);
        if (who) {
            unsigned row = mq_record_find_owner_row(parts->header, who);
            out->locked++;
            if (row == MQ_RECORD_ROWS)
                out->orphaned++;
            else
                out->rows[row].locked++;
        }
        out->elements_written += mq_cell_write_count(version) != 0;
        uint64_t time = mq_record_last_write_ns(parts, i);
        if (time > out->last_time_ns)
            out->last_time_ns = time, out->last_index = i;
    }
    for (uint64_t i = 0; parts->config.flags & MQ_RECORD_BOARD && i < parts->config.length; i++) {
        uint64_t who = mq_load_acquire_u64(&parts->key_table[i].owner);
        unsigned row = who ? mq_record_find_owner_row(parts->header, who) : MQ_RECORD_ROWS;
        if (row < MQ_RECORD_ROWS)
            out->rows[row].keys++;
    }
}

#endif
