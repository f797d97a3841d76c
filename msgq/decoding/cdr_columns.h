/* Takes messages of CDR and ROS 1 apart, field by field, into columns.
 *
 * A plan is a list of steps, in the order of a message's bytes; Python makes it of the message's definition, and promises
 * what stands at `mq_cdr_step`. Messages may be anybody's bytes: all that is read is checked against the message's end first.
 *
 * It is done twice: first without memory for columns, which tells which messages are whole, and how much memory is
 * needed; then with it, for those that are. Both walk alike.
 */
#ifndef MSGQ_DECODING_UNPACK_H
#define MSGQ_DECODING_UNPACK_H

#include <stdint.h>
#include <string.h>

#define MQ_CDR_DEPTH_MAX 16    /* repetitions within each other */
#define MQ_CDR_ENCAPSULATION 4 /* bytes before a message in CDR */
#define MQ_CDR_PADDING_MAX 3   /* and behind it */

/* What a step does. Numbers of elements and lengths of texts are u32 in the message, aligned to 4. */
enum {
    MQ_STEP_FIXED,    /* `count` elements of `size` bytes, to the bytes of slot `values` */
    MQ_STEP_SEQUENCE, /* a number, and so many elements of `size` bytes; their end to slot `ends` */
    MQ_STEP_TEXT,     /* a length, and so many bytes of UTF-8; their end to slot `ends` */
    MQ_STEP_REPEAT, /* the steps until `other`, `count` times, or if that is -1 a number of times; the end to `ends` */
    MQ_STEP_AGAIN,  /* where a repetition ends, which begins at `other` */
};

typedef struct {
    int64_t kind;
    int64_t size;   /* of an element: 1, 2, 4 or 8; of a repetition the least that one has, at least 1 */
    int64_t count;  /* above 0, or -1 */
    int64_t values; /* slot; -1: these bytes are passed over */
    int64_t ends;   /* slot; -1: nobody needs the ends, as each has `count` elements */
    int64_t other;  /* step: REPEAT and AGAIN have each other's */
} mq_cdr_step;

/* A column: elements as their bytes, or ends (i32) of elements of another column. */
typedef struct {
    uint8_t *bytes; /* NULL: they are only counted */
    int64_t room;   /* bytes */
    int64_t used;   /* of these */
    int64_t total;  /* of a column of ends: the last one */
} mq_column_buffer;

typedef struct {
    const mq_cdr_step *steps;
    int64_t count;
    int64_t slots;
    int is_cdr; /* an encapsulation, padding, and a NUL behind texts; else, in ROS 1, none of these */
} mq_cdr_plan;

typedef struct {
    const uint8_t *bytes; /* alignment counts from here */
    int64_t at;
    int64_t size;
    int64_t align; /* at most */
    int swap;      /* whether its numbers are big-endian */
    int is_cdr;
} mq_cdr_payload;

/* Begin with a message's bytes; return whether they are of the form that is taken apart here. */
static inline int mq_cdr_payload_begin(const mq_cdr_plan *plan, const uint8_t *bytes, int64_t size, mq_cdr_payload *p) {
    *p = (mq_cdr_payload){bytes, 0, size, 1, 0, plan->is_cdr};
    if (!plan->is_cdr)
        return 1;
    if (size < MQ_CDR_ENCAPSULATION || bytes[0] != 0 ||
        bytes[1] > 1) /* CDR_BE, CDR_LE: others lay things out otherwise */
        return 0;
    p->bytes += MQ_CDR_ENCAPSULATION;
    p->size -= MQ_CDR_ENCAPSULATION;
    p->align = 8;
    p->swap = bytes[1] == 0;
    return 1;
}

static inline void mq_cdr_align(mq_cdr_payload *p, int64_t size) {
    p->at += -p->at & ((size < p->align ? size : p->align) - 1);
}

/* Whether so many elements are still there; neither a sum nor a product can overflow. */
static inline int mq_cdr_has_bytes(const mq_cdr_payload *p, int64_t count, int64_t size) {
    return p->at <= p->size && count <= (p->size - p->at) / size;
}

static inline int mq_cdr_read_number(mq_cdr_payload *p, int64_t *number) {
    uint32_t found;
    mq_cdr_align(p, 4);
    if (!mq_cdr_has_bytes(p, 1, 4))
        return 0;
    memcpy(&found, p->bytes + p->at, 4);
    *number = p->swap ? __builtin_bswap32(found) : found;
    p->at += 4;
    return 1;
}

static inline void mq_cdr_copy_swapped(uint8_t *to, const uint8_t *from, int64_t bytes, int64_t size) {
    for (int64_t first = 0; first < bytes; first += size)
        for (int64_t i = 0; i < size; i++)
            to[first + i] = from[first + size - 1 - i];
}

/* Take elements, if they are there; NULL: nobody wants them. */
static inline int mq_cdr_read_values(mq_cdr_payload *p, mq_column_buffer *slot, int64_t count, int64_t size) {
    if (!mq_cdr_has_bytes(p, count, size))
        return 0;
    const int64_t bytes = count * size;
    const uint8_t *from = p->bytes + p->at;
    p->at += bytes;
    if (!slot)
        return 1;
    if (slot->bytes) {
        uint8_t *to = slot->bytes + slot->used;
        if (bytes > slot->room - slot->used) /* these are not the bytes that were counted */
            return 0;
        if (p->swap && size > 1)
            mq_cdr_copy_swapped(to, from, bytes, size);
        else if (bytes == 8)
            memcpy(to, from, 8);
        else if (bytes == 4)
            memcpy(to, from, 4);
        else
            memcpy(to, from, (size_t)bytes);
    }
    slot->used += bytes;
    return 1;
}

/* Note that so many elements of another column belong together. */
static inline int mq_column_buffer_add_end(mq_column_buffer *slot, int64_t count) {
    if (!slot)
        return 1;
    slot->total += count;
    if (slot->total > INT32_MAX)
        return 0;
    if (slot->bytes) {
        const int32_t end = (int32_t)slot->total;
        if (slot->room - slot->used < 4)
            return 0;
        memcpy(slot->bytes + slot->used, &end, 4);
    }
    slot->used += 4;
    return 1;
}

/* Return the bytes of the character of UTF-8 that begins here, 0 if none does: table 3-7 of Unicode. */
static inline int64_t mq_utf8_character(const uint8_t *at, int64_t size) {
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

static inline int mq_is_utf8(const uint8_t *bytes, int64_t size) {
    int64_t at = 0;
    while (at < size) {
        uint64_t eight = UINT64_MAX;
        if (size - at >= 8)
            memcpy(&eight, bytes + at, 8);
        const int64_t length = (eight & 0x8080808080808080u) == 0 ? 8 : mq_utf8_character(bytes + at, size - at);
        if (length == 0)
            return 0;
        at += length;
    }
    return 1;
}

static inline int mq_cdr_read_text(mq_cdr_payload *p, mq_column_buffer *values, mq_column_buffer *ends) {
    int64_t length;
    if (!mq_cdr_read_number(p, &length) || !mq_cdr_has_bytes(p, length, 1))
        return 0;
    const int64_t nul = p->is_cdr && length > 0; /* some writers leave it out where the text is empty */
    const uint8_t *text = p->bytes + p->at;
    length -= nul;
    if (!mq_is_utf8(text, length) || !mq_cdr_read_values(p, values, length, 1))
        return 0;
    p->at += nul;
    return mq_column_buffer_add_end(ends, length);
}

static inline int mq_cdr_read_sequence(mq_cdr_payload *p, mq_column_buffer *values, mq_column_buffer *ends,
                                       int64_t size) {
    int64_t count;
    if (!mq_cdr_read_number(p, &count))
        return 0;
    if (count > 0)
        mq_cdr_align(p, size);
    return mq_cdr_read_values(p, values, count, size) && mq_column_buffer_add_end(ends, count);
}

static inline mq_column_buffer *mq_column_buffer_at(mq_column_buffer *slots, int64_t number) {
    return number < 0 ? NULL : &slots[number];
}

/* Take a message apart; return whether it is one of this plan. */
static inline int mq_cdr_unpack_message(const mq_cdr_plan *plan, mq_cdr_payload *p, mq_column_buffer *slots) {
    int64_t left[MQ_CDR_DEPTH_MAX]; /* of each repetition that goes on */
    int depth = 0, good = 1;
    for (int64_t i = 0; i < plan->count && good; i++) {
        const mq_cdr_step *s = &plan->steps[i];
        mq_column_buffer *values = mq_column_buffer_at(slots, s->values), *ends = mq_column_buffer_at(slots, s->ends);
        int64_t count = s->count;
        switch (s->kind) {
        case MQ_STEP_FIXED:
            mq_cdr_align(p, s->size);
            good = mq_cdr_read_values(p, values, count, s->size);
            break;
        case MQ_STEP_SEQUENCE: good = mq_cdr_read_sequence(p, values, ends, s->size); break;
        case MQ_STEP_TEXT: good = mq_cdr_read_text(p, values, ends); break;
        case MQ_STEP_REPEAT:
            good = (count > 0 || mq_cdr_read_number(p, &count)) && mq_cdr_has_bytes(p, count, s->size) &&
                   mq_column_buffer_add_end(ends, count);
            if (count > 0)
                left[depth++] = count;
            else
                i = s->other;
            break;
        default: /* AGAIN */
            if (--left[depth - 1] > 0)
                i = s->other;
            else
                depth--;
        }
    }
    return good && p->size - p->at <= (p->is_cdr ? MQ_CDR_PADDING_MAX : 0);
}

/* Take messages apart, which lie between borders[row] and borders[row + 1]: first with slots that have no memory, then
 * with slots that have it, and `failed` as the first time left it.
 *
 * kept : room for as many slots.
 * failed[row] : whether it is none of this plan; it has no part in the columns. */
static inline void mq_cdr_unpack_messages(const mq_cdr_plan *plan, const uint8_t *data, const int32_t *borders,
                                          int64_t rows, mq_column_buffer *slots, mq_column_buffer *kept,
                                          uint8_t *failed) {
    for (int64_t row = 0; row < rows; row++) {
        mq_cdr_payload payload;
        if (failed[row])
            continue;
        memcpy(kept, slots, (size_t)plan->slots * sizeof *slots);
        if (!mq_cdr_payload_begin(plan, data + borders[row], borders[row + 1] - borders[row], &payload) ||
            !mq_cdr_unpack_message(plan, &payload, slots)) {
            memcpy(slots, kept, (size_t)plan->slots * sizeof *slots);
            failed[row] = 1;
        }
    }
}

#endif
