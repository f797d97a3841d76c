/* The source for a vector or board: each detected change is a message. The source scans the elements repeatedly. Each
 * call scans a part of the elements. If an element is written twice between two scans, the source returns one message
 * for both writes. The message includes the number of writes, so a reader can detect the overwritten value.
 *
 * The first scan reports every element that was ever written, because a reader of a recording needs the initial state.
 */
#ifndef MQ_SOURCES_RECORDS_H
#define MQ_SOURCES_RECORDS_H

#include "records/board.h"
#include "sources/message.h"

enum {
    /* number of elements that one call scans. The scan takes about 0.2 ms if no element is in the CPU cache */
    MQ_RECORD_SCAN_ELEMENTS = 16384,
    MQ_RECORD_SCAN_INTERVAL_NS = 500000, /* nanoseconds from the end of a scan to the beginning of the next scan */
    /* for a meter: after a scan, the source pauses for this multiple of the scan's duration */
    MQ_RECORD_REST_FACTOR = 4,
    MQ_RECORD_CHANGE_HEADER_BYTES = 20, /* bytes before the value in a vector's message: index u4, count u8, time i8 */
};

typedef struct {
    mq_record_file_parts parts;
    const mq_u64 *not_truncated; /* the word is 1 until another program truncates the file; NULL: no guard */
    uint64_t *seen_write_counts; /* number of writes of each element at its last message */
    uint64_t end;                /* number of elements; for a board, the number of keys with a name */
    uint64_t next_index;         /* element at which the scan continues */
    uint64_t elements_left;      /* number of elements that this call may still scan */
    const int64_t *virtual_ns;   /* the time of a bus, on which a pause saves nothing; NULL: CLOCK_MONOTONIC */
    int64_t scan_started_ns;     /* beginning of the last scan, nanoseconds of that clock */
    int64_t next_scan_ns;        /* earliest beginning of the next scan, nanoseconds of that clock */
    uint64_t changes;            /* number of reported changes of a vector */
    uint64_t
        overwritten; /* for a meter: number of writes that a later write replaced before the source read their value */
    bool for_meter;  /* see mq_record_source_follow_writes */
} mq_record_source;

static inline bool mq_record_source_is_board(const mq_record_source *r) {
    return r->parts.config.flags & MQ_RECORD_BOARD;
}

/* Begin a scan. Returns false during the pause after the last scan. */
static inline bool mq_record_source_begin_scan(mq_record_source *r) {
    if (r->next_index)
        return true;
    int64_t now = mq_read_time_ns(r->virtual_ns);
    if (now < r->next_scan_ns && !r->virtual_ns)
        return false;
    r->scan_started_ns = now;
    if (!mq_record_source_is_board(r))
        r->end = r->parts.config.length;
    /* EDGE key: acquire. Partner: mq_board_add_key */
    while (r->end < r->parts.config.length && mq_load_acquire_u64(&r->parts.key_table[r->end].named))
        r->end++;
    return true;
}

/* True if a scan that began after `since_ns` has ended. */
static inline bool mq_record_source_has_scanned_since(const mq_record_source *r, int64_t since_ns) {
    /* next_scan_ns is later than scan_started_ns once the scan has ended */
    return r->scan_started_ns > since_ns && r->next_scan_ns > r->scan_started_ns;
}

/* End a call, or a scan if all elements were scanned. A meter scans all elements in one call and pauses briefly, so that
 * it measures short delays. A recorder reads other sources between the parts of a scan. */
static inline void mq_record_source_end_call(mq_record_source *r) {
    r->elements_left = r->for_meter ? UINT64_MAX : MQ_RECORD_SCAN_ELEMENTS;
    if (r->next_index < r->end)
        return;
    int64_t now = mq_read_time_ns(r->virtual_ns);
    r->next_index = 0;
    r->next_scan_ns =
        now + (r->for_meter ? MQ_RECORD_REST_FACTOR * (now - r->scan_started_ns) : MQ_RECORD_SCAN_INTERVAL_NS);
}

/* Move to the next changed element. Returns false if this call has scanned its part of the elements, or the scan has
 * ended. */
static inline bool mq_record_source_find_changed(mq_record_source *r) {
    mq_record_file_parts window = r->parts;
    if (!mq_record_source_begin_scan(r))
        return false;
    window.config.length = r->end - r->next_index < r->elements_left ? r->end : r->next_index + r->elements_left;
    uint64_t found = mq_vector_next_changed(&window, r->seen_write_counts, r->next_index);
    r->elements_left -= found - r->next_index;
    r->next_index = found;
    if (found < window.config.length)
        return true;
    mq_record_source_end_call(r);
    return false;
}

/* Skip an element that was reported, or that cannot be read now. */
static inline void mq_record_source_skip_element(mq_record_source *r) {
    r->next_index++;
    r->elements_left -= r->elements_left > 0;
}

/* Note the number of writes of an element that was read. */
static inline void mq_record_source_note_write_count(mq_record_source *r, uint64_t index, uint64_t count) {
    if (r->for_meter)
        r->overwritten += mq_cell_count_writes_between(&r->parts, r->seen_write_counts[index], count) - 1;
    r->seen_write_counts[index] = count;
}

/* Prepare the source for a meter: the first messages are the next writes, and scans follow each other closely. */
static inline void mq_record_source_follow_writes(mq_record_source *r) {
    r->for_meter = true;
    r->elements_left = UINT64_MAX;
    for (uint64_t i = 0; i < r->parts.config.length; i++)
        r->seen_write_counts[i] = mq_cell_write_count(mq_cell_read_begin(mq_cell_version_word(&r->parts, i)));
}

static inline mq_source_status mq_vector_source_take_element(mq_record_source *r, const mq_source_buffer *buffer,
                                                             mq_source_message *message) {
    uint64_t item = r->parts.config.item_bytes, count;
    uint32_t index = (uint32_t)r->next_index;
    message->size = MQ_RECORD_CHANGE_HEADER_BYTES + item;
    if (buffer->all_or_nothing && message->size > buffer->bytes)
        return MQ_SOURCE_FULL;
    int64_t time_ns;
    uint8_t nothing; /* the call copies 0 bytes of the value to this address */
    uint8_t *value = buffer->all_or_nothing ? buffer->data + MQ_RECORD_CHANGE_HEADER_BYTES : &nothing;
    if (!mq_vector_read_one(&r->parts, index, value, buffer->all_or_nothing ? item : 0, &count, &time_ns))
        return MQ_SOURCE_EMPTY;
    if (buffer->all_or_nothing) {
        memcpy(buffer->data, &index, 4);
        memcpy(buffer->data + 4, &count, 8);
        memcpy(buffer->data + 12, &time_ns, 8);
    }
    mq_record_source_note_write_count(r, index, count);
    *message = (mq_source_message){
        .size = MQ_RECORD_CHANGE_HEADER_BYTES + item, .sequence = r->changes++, .publish_time = time_ns};
    return MQ_SOURCE_OK;
}

static inline mq_source_status mq_board_source_take_value(mq_record_source *r, const mq_source_buffer *buffer,
                                                          mq_source_message *message) {
    mq_board_value_copy value;
    for (int tries = 0; tries < MQ_SOURCE_COPY_TRIES; tries++) {
        const uint8_t *at = mq_board_value_read_begin(&r->parts, r->next_index, &value);
        bool fits = !buffer->all_or_nothing || value.length <= buffer->bytes;
        if (buffer->all_or_nothing && fits)
            mq_copy_from_shared(buffer->data, at, value.length);
        if (!mq_board_value_read_valid(&r->parts, r->next_index, &value))
            continue;
        message->size = value.length;
        if (!fits)
            return MQ_SOURCE_FULL;
        mq_record_source_note_write_count(r, r->next_index, value.count);
        if (value.is_corrupt)
            return MQ_SOURCE_CORRUPT;
        *message = (mq_source_message){.size = value.length,
                                       .sequence = value.count,
                                       .origin_id = (uint32_t)r->next_index,
                                       .publish_time = value.time_ns};
        return MQ_SOURCE_OK;
    }
    return MQ_SOURCE_EMPTY;
}

/* Take the next change. A payload is copied completely or not at all. */
static inline mq_source_status mq_record_source_take_change(mq_record_source *r, const mq_source_buffer *buffer,
                                                            mq_source_message *message) {
    while (mq_record_source_find_changed(r)) {
        mq_source_status status = mq_record_source_is_board(r) ? mq_board_source_take_value(r, buffer, message)
                                                               : mq_vector_source_take_element(r, buffer, message);
        if (status == MQ_SOURCE_FULL)
            return status;
        /* if writers replaced an element during every attempt, the next scan reads the element */
        mq_record_source_skip_element(r);
        if (mq_mapping_was_truncated(r->not_truncated))
            return MQ_SOURCE_CORRUPT;
        if (status != MQ_SOURCE_EMPTY)
            return status;
    }
    return mq_mapping_was_truncated(r->not_truncated) ? MQ_SOURCE_CORRUPT : MQ_SOURCE_EMPTY;
}

#endif
