/* A vector or board as others see it, for statistics. Each word is read on its own: a figure may be newer than its
 * neighbour, which harms nobody who only looks. Nothing that is read is believed: it bounds no loop and no index.
 */
#ifndef MQ_RECORDS_SNAPSHOT_H
#define MQ_RECORDS_SNAPSHOT_H

#include "records/board.h"

enum { MQ_RECORD_READ_TRIES = 8 }; /* at an element that is written again and again */

/* What one owner of a row has. */
typedef struct {
    uint64_t locked, keys;
} mq_record_row_summary;

/* What the elements say. */
typedef struct {
    uint64_t elements_written;         /* at least once */
    uint64_t locked, orphaned;         /* by writers; those of them whose writer owns no row */
    uint64_t last_time_ns, last_index; /* of the last write, and its element; 0: none */
    mq_record_row_summary rows[MQ_RECORD_ROWS];
} mq_record_summary;

/* The row of who is named, if it is that one's; MQ_RECORD_ROWS: it is a former owner's, or nobody's. */
static inline unsigned mq_record_find_owner_row(const mq_record_header *header, uint64_t who) {
    unsigned row = mq_cell_owner_row(who);
    if (row >= MQ_RECORD_ROWS)
        return MQ_RECORD_ROWS;
    bool is_current = (uint16_t)mq_load_acquire_u64(&header->rows[row].at.generation) == mq_cell_owner_generation(who);
    return is_current ? row : MQ_RECORD_ROWS;
}

/* When an element was written; 0: never, or it changed all the time. */
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

/* Look at all elements, and at the owners of a board's keys. */
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
