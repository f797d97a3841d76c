/* Converts messages of CDR and ROS 1 into columns, field by field.
 *
 * A plan is a list of steps in the order of a message's bytes. Python builds the plan from the message's definition,
 * and guarantees the properties described at `mq_cdr_step`. Messages may have any content, so each read is first
 * checked against the end of the message.
 *
 * The conversion runs twice. The first run has no memory for columns. This run determines which messages are valid, and
 * how much memory the valid messages need. The second run stores the valid messages. Both runs take the same steps.
 */
#ifndef MSGQ_DECODING_CDR_COLUMNS_H
#define MSGQ_DECODING_CDR_COLUMNS_H

#include <stdint.h>
#include <string.h>

#define MQ_CDR_REPEAT_DEPTH_MAX 16   /* maximum nesting of repetitions */
#define MQ_CDR_ENCAPSULATION_BYTES 4 /* bytes of the encapsulation before a CDR message */
#define MQ_CDR_PADDING_BYTES_MAX 3   /* maximum padding bytes after a message */

/* Types of steps. In the message, element counts and lengths of texts are u32, aligned to 4 bytes. */
enum {
    MQ_CDR_STEP_NUMBERS, /* append `element_count` elements to `value_column` */
    /* read a count, and append that number of elements. Append the end offset of the elements to `offset_column` */
    MQ_CDR_STEP_SEQUENCE,
    /* read a length, and append that number of bytes of UTF-8. Append the end offset of the text to `offset_column` */
    MQ_CDR_STEP_TEXT,
    /* repeat the steps up to `partner_step`. Append the end offset of the elements to `offset_column` */
    MQ_CDR_STEP_REPEAT_BEGIN,
    MQ_CDR_STEP_REPEAT_END, /* continue at `partner_step` until all elements are read */
};

typedef struct {
    int64_t step_kind;
    int64_t element_bytes; /* 1, 2, 4 or 8. For a repetition: minimum bytes of an element, at least 1 */
    int64_t element_count; /* number of elements, above 0. -1: the message contains the number */
    int64_t value_column;  /* -1: skip the bytes of the elements */
    int64_t offset_column; /* -1: no offsets, because each list has `element_count` elements */
    int64_t partner_step;  /* index of the matching REPEAT_END or REPEAT_BEGIN */
} mq_cdr_step;

/* A column: the bytes of its elements, or list offsets (i32) into another column. */
typedef struct {
    uint8_t *bytes; /* NULL: the run only counts the bytes */
    int64_t capacity_bytes;
    int64_t used_bytes;
    int64_t last_offset; /* used by a column of offsets */
} mq_column_buffer;

typedef struct {
    const mq_cdr_step *steps;
    int64_t step_count;
    int64_t column_count;
    /* 0: the format is ROS 1. Otherwise CDR: messages have an encapsulation, padding, and a NUL after texts */
    int is_cdr;
} mq_cdr_plan;

typedef struct {
    const uint8_t *bytes; /* start of the payload; alignments are relative to this address */
    int64_t position;
    int64_t size_bytes;
    int64_t max_alignment;
    int is_byteswapped; /* the numbers of the message are big-endian */
    int is_cdr;
} mq_cdr_payload;

/* Begin a message. Return 1 if the message's format is supported. */
static inline int mq_cdr_payload_read_header(const mq_cdr_plan *plan, const uint8_t *bytes, int64_t size,
                                             mq_cdr_payload *p) {
    *p = (mq_cdr_payload){bytes, 0, size, 1, 0, plan->is_cdr};
    if (!plan->is_cdr)
        return 1;
    /* support only CDR_BE and CDR_LE: other formats have other layouts */
    if (size < MQ_CDR_ENCAPSULATION_BYTES || bytes[0] != 0 || bytes[1] > 1)
        return 0;
    p->bytes += MQ_CDR_ENCAPSULATION_BYTES;
    p->size_bytes -= MQ_CDR_ENCAPSULATION_BYTES;
    p->max_alignment = 8;
    p->is_byteswapped = bytes[1] == 0;
    return 1;
}

static inline void mq_cdr_align_position(mq_cdr_payload *p, int64_t size) {
    p->position += -p->position & ((size < p->max_alignment ? size : p->max_alignment) - 1);
}

/* Return 1 if the message has `count` more elements of `size` bytes. No sum and no product can overflow. */
static inline int mq_cdr_has_elements(const mq_cdr_payload *p, int64_t count, int64_t size) {
    return p->position <= p->size_bytes && count <= (p->size_bytes - p->position) / size;
}

static inline int mq_cdr_read_u32(mq_cdr_payload *p, int64_t *number) {
    uint32_t found;
    mq_cdr_align_position(p, 4);
    if (!mq_cdr_has_elements(p, 1, 4))
        return 0;
    memcpy(&found, p->bytes + p->position, 4);
    *number = p->is_byteswapped ? __builtin_bswap32(found) : found;
    p->position += 4;
    return 1;
}

static inline void mq_cdr_copy_byteswapped(uint8_t *to, const uint8_t *from, int64_t bytes, int64_t size) {
    for (int64_t first = 0; first < bytes; first += size)
        for (int64_t i = 0; i < size; i++)
            to[first + i] = from[first + size - 1 - i];
}

/* Read elements, and append the elements to `column`. If `column` is NULL, skip the elements. Return 0 if the
 * message has too few bytes. */
static inline int mq_cdr_append_values(mq_cdr_payload *p, mq_column_buffer *column, int64_t count, int64_t size) {
    if (!mq_cdr_has_elements(p, count, size))
        return 0;
    const int64_t bytes = count * size;
    const uint8_t *from = p->bytes + p->position;
    p->position += bytes;
    if (!column)
        return 1;
    if (column->bytes) {
        uint8_t *to = column->bytes + column->used_bytes;
        if (bytes > column->capacity_bytes - column->used_bytes) /* the bytes differ from the bytes of the first run */
            return 0;
        if (p->is_byteswapped && size > 1)
            mq_cdr_copy_byteswapped(to, from, bytes, size);
        else if (bytes == 8)
            memcpy(to, from, 8);
        else if (bytes == 4)
            memcpy(to, from, 4);
        else
            memcpy(to, from, (size_t)bytes);
    }
    column->used_bytes += bytes;
    return 1;
}

/* Append the end offset of a list of `count` elements. */
static inline int mq_column_buffer_append_offset(mq_column_buffer *column, int64_t count) {
    if (!column)
        return 1;
    column->last_offset += count;
    if (column->last_offset > INT32_MAX)
        return 0;
    if (column->bytes) {
        const int32_t end = (int32_t)column->last_offset;
        if (column->capacity_bytes - column->used_bytes < 4)
            return 0;
        memcpy(column->bytes + column->used_bytes, &end, 4);
    }
    column->used_bytes += 4;
    return 1;
}

/* Return the number of bytes of the UTF-8 character at `at`. Return 0 if the character is invalid (table 3-7 of
 * Unicode). */
static inline int64_t mq_utf8_character_bytes(const uint8_t *at, int64_t size) {
    const uint8_t first = at[0];
    const int64_t more = first < 0xC2 ? 0 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : first < 0xF5 ? 3 : 0;
    if (first < 0x80)
        return 1;
    if (more == 0 || more >= size)
        return 0;
    const uint8_t least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const uint8_t most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (at[1] < least || at[1] > most)
        return 0;
    for (int64_t i = 2; i <= more; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    return more + 1;
}

static inline int mq_utf8_is_valid(const uint8_t *bytes, int64_t size) {
    int64_t at = 0;
    while (at < size) {
        uint64_t eight = UINT64_MAX;
        if (size - at >= 8)
            memcpy(&eight, bytes + at, 8);
        const int64_t length = (eight & 0x8080808080808080u) == 0 ? 8 : mq_utf8_character_bytes(bytes + at, size - at);
        if (length == 0)
            return 0;
        at += length;
    }
    return 1;
}

static inline int mq_cdr_append_text(mq_cdr_payload *p, mq_column_buffer *values, mq_column_buffer *ends) {
    int64_t length;
    if (!mq_cdr_read_u32(p, &length) || !mq_cdr_has_elements(p, length, 1))
        return 0;
    const int64_t nul = p->is_cdr && length > 0; /* some writers omit the NUL for an empty text */
    const uint8_t *text = p->bytes + p->position;
    length -= nul;
    if (!mq_utf8_is_valid(text, length) || !mq_cdr_append_values(p, values, length, 1))
        return 0;
    p->position += nul;
    return mq_column_buffer_append_offset(ends, length);
}

static inline int mq_cdr_append_sequence(mq_cdr_payload *p, mq_column_buffer *values, mq_column_buffer *ends,
                                         int64_t size) {
    int64_t count;
    if (!mq_cdr_read_u32(p, &count))
        return 0;
    if (count > 0)
        mq_cdr_align_position(p, size);
    return mq_cdr_append_values(p, values, count, size) && mq_column_buffer_append_offset(ends, count);
}

static inline mq_column_buffer *mq_column_buffer_get(mq_column_buffer *columns, int64_t number) {
    return number < 0 ? NULL : &columns[number];
}

/* Convert a message. Return 1 if the message matches the plan. */
static inline int mq_cdr_unpack_message(const mq_cdr_plan *plan, mq_cdr_payload *p, mq_column_buffer *columns) {
    int64_t left[MQ_CDR_REPEAT_DEPTH_MAX]; /* number of remaining elements of each open repetition */
    int depth = 0, good = 1;
    for (int64_t i = 0; i < plan->step_count && good; i++) {
        const mq_cdr_step *s = &plan->steps[i];
        mq_column_buffer *values = mq_column_buffer_get(columns, s->value_column),
                         *ends = mq_column_buffer_get(columns, s->offset_column);
        int64_t count = s->element_count;
        switch (s->step_kind) {
        case MQ_CDR_STEP_NUMBERS:
            mq_cdr_align_position(p, s->element_bytes);
            good = mq_cdr_append_values(p, values, count, s->element_bytes);
            break;
        case MQ_CDR_STEP_SEQUENCE: good = mq_cdr_append_sequence(p, values, ends, s->element_bytes); break;
        case MQ_CDR_STEP_TEXT: good = mq_cdr_append_text(p, values, ends); break;
        case MQ_CDR_STEP_REPEAT_BEGIN:
            good = (count > 0 || mq_cdr_read_u32(p, &count)) && mq_cdr_has_elements(p, count, s->element_bytes) &&
                   mq_column_buffer_append_offset(ends, count);
            if (count > 0)
                left[depth++] = count;
            else
                i = s->partner_step;
            break;
        default: /* REPEAT_END */
            if (--left[depth - 1] > 0)
                i = s->partner_step;
            else
                depth--;
        }
    }
    return good && p->size_bytes - p->position <= (p->is_cdr ? MQ_CDR_PADDING_BYTES_MAX : 0);
}

/* Convert messages. Message `row` is stored between offsets[row] and offsets[row + 1]. For the first run, the columns
 * have no memory. For the second run, the columns have memory, and `failed` is the result of the first run.
 *
 * `saved_columns` has room for the same number of columns. `failed[row]` is 1 if the message does not match the plan.
 * The columns contain no part of an invalid message.
 */
static inline void mq_cdr_unpack_messages(const mq_cdr_plan *plan, const uint8_t *data, const int32_t *offsets,
                                          int64_t rows, mq_column_buffer *columns, mq_column_buffer *saved_columns,
                                          uint8_t *failed) {
    for (int64_t row = 0; row < rows; row++) {
        mq_cdr_payload payload;
        if (failed[row])
            continue;
        memcpy(saved_columns, columns, (size_t)plan->column_count * sizeof *columns);
        if (!mq_cdr_payload_read_header(plan, data + offsets[row], offsets[row + 1] - offsets[row], &payload) ||
            !mq_cdr_unpack_message(plan, &payload, columns)) {
            memcpy(columns, saved_columns, (size_t)plan->column_count * sizeof *columns);
            failed[row] = 1;
        }
    }
}

#endif
