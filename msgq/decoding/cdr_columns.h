/* Takes messages of CDR and ROS 1 apart, field by field, into columns.
 *
 * A plan is a list of steps, in the order of a message's bytes; Python makes it of the message's definition, and promises
 * what stands at `mq_cdr_step`. Messages may be anybody's bytes: all that is read is checked against the message's end first.
 *
 * It is done twice: first without memory for columns, which tells which messages are whole, and how much memory is
 * needed; then with it, for those that are. Both walk alike.
 */
#ifndef MSGQ_DECODING_CDR_COLUMNS_H
#define MSGQ_DECODING_CDR_COLUMNS_H

#include <stdint.h>
#include <string.h>

#define MQ_CDR_REPEAT_DEPTH_MAX 16   /* repetitions within each other */
#define MQ_CDR_ENCAPSULATION_BYTES 4 /* bytes before a message in CDR */
#define MQ_CDR_PADDING_BYTES_MAX 3   /* and behind it */

/* What a step does. Element counts and lengths of texts are u32 in the message, aligned to 4. */
enum {
    MQ_CDR_STEP_NUMBERS,      /* append `element_count` elements to `value_column` */
    MQ_CDR_STEP_SEQUENCE,     /* read a count, and append that many elements, and their end to `offset_column` */
    MQ_CDR_STEP_TEXT,         /* read a length, and append that many bytes of UTF-8, and their end to `offset_column` */
    MQ_CDR_STEP_REPEAT_BEGIN, /* repeat the steps up to `partner_step`; append the end to `offset_column` */
    MQ_CDR_STEP_REPEAT_END,   /* continue at `partner_step` until all elements are read */
};

typedef struct {
    int64_t step_kind;
    int64_t element_bytes; /* 1, 2, 4 or 8; of a repetition the fewest bytes of an element, at least 1 */
    int64_t element_count; /* above 0; -1: the message says it */
    int64_t value_column;  /* -1: these bytes are skipped */
    int64_t offset_column; /* -1: no offsets are needed, as each list has `element_count` elements */
    int64_t partner_step;  /* REPEAT_BEGIN and REPEAT_END have each other's index */
} mq_cdr_step;

/* A column: elements as their bytes, or list offsets (i32) into another column. */
typedef struct {
    uint8_t *bytes; /* NULL: the bytes are only counted */
    int64_t capacity_bytes;
    int64_t used_bytes;
    int64_t last_offset; /* of a column of offsets */
} mq_column_buffer;

typedef struct {
    const mq_cdr_step *steps;
    int64_t step_count;
    int64_t column_count;
    int is_cdr; /* an encapsulation, padding, and a NUL behind texts; ROS 1 has none of these */
} mq_cdr_plan;

typedef struct {
    const uint8_t *bytes; /* alignment counts from here */
    int64_t position;
    int64_t size_bytes;
    int64_t max_alignment;
    int is_byteswapped; /* its numbers are big-endian */
    int is_cdr;
} mq_cdr_payload;

/* Begin with a message's bytes; return whether they are of the form that is taken apart here. */
static inline int mq_cdr_payload_read_header(const mq_cdr_plan *plan, const uint8_t *bytes, int64_t size,
                                             mq_cdr_payload *p) {
    *p = (mq_cdr_payload){bytes, 0, size, 1, 0, plan->is_cdr};
    if (!plan->is_cdr)
        return 1;
    if (size < MQ_CDR_ENCAPSULATION_BYTES || bytes[0] != 0 ||
        bytes[1] > 1) /* CDR_BE, CDR_LE: others lay things out otherwise */
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

/* Whether so many elements are still there; neither a sum nor a product can overflow. */
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

/* Take elements, if they are there; NULL: nobody wants them. */
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
        if (bytes > column->capacity_bytes - column->used_bytes) /* these are not the bytes that were counted */
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

/* Note that so many elements of another column belong together. */
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

/* Return the bytes of the character of UTF-8 that begins here, 0 if none does: table 3-7 of Unicode. */
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
    const int64_t nul = p->is_cdr && length > 0; /* some writers leave it out where the text is empty */
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

/* Take a message apart; return whether it is one of this plan. */
static inline int mq_cdr_unpack_message(const mq_cdr_plan *plan, mq_cdr_payload *p, mq_column_buffer *columns) {
    int64_t left[MQ_CDR_REPEAT_DEPTH_MAX]; /* of each repetition that goes on */
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

/* Take messages apart, which lie between offsets[row] and offsets[row + 1]: first with columns that have no memory, then
 * with columns that have it, and `failed` as the first time left it.
 *
 * saved_columns : room for as many columns.
 * failed[row] : whether it is none of this plan; it has no part in the columns. */
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
