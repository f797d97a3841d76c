/* The schema descriptor in a segment: written under the piece's lock, read by anybody.
 *
 * `seq` is odd while the descriptor's place is written, and stays odd when its writer is killed. So that the schema is
 * not hidden then, a writer first puts the new one, whole, into the unused end of `data` (the shadow), and says for which
 * odd seq it is good. Readers take the shadow in that seq; the next writer begins by completing it.
 *
 *   killed before the seq is odd      the former schema, as if nothing had been
 *   killed while it is odd             the new one, from the shadow
 *
 * A descriptor of more than half the room has no shadow: a kill while it is written leaves none.
 */
#ifndef MQ_SCHEMA_H
#define MQ_SCHEMA_H

#include "base/layout.h"

/* Where a segment has its descriptor. */
typedef struct {
    mq_u64 *seq, *bytes, *shadow;
    char *name, *encoding, *data;
    uint64_t room; /* of data, bytes */
} mq_schema_parts;

/* The parts of a descriptor in one piece, with `room` bytes of `data` after it. */
static inline mq_schema_parts mq_schema_parts_from_block(mq_schema *schema, char *data, uint64_t room) {
    return (mq_schema_parts){.seq = &schema->seq,
                             .bytes = &schema->bytes,
                             .shadow = &schema->shadow,
                             .name = schema->name,
                             .encoding = schema->encoding,
                             .data = data,
                             .room = room};
}

static const char mq_schema_blank[MQ_SCHEMA_NAME + MQ_SCHEMA_ENCODING];

static inline void mq_schema_write_in_place(const mq_schema_parts *parts, const char *name, const char *encoding,
                                            const char *data, uint64_t bytes) {
    mq_copy_to_shared(parts->name, mq_schema_blank, sizeof mq_schema_blank);
    mq_copy_to_shared(parts->name, name, strnlen(name, MQ_SCHEMA_NAME));
    mq_copy_to_shared(parts->encoding, encoding, strnlen(encoding, MQ_SCHEMA_ENCODING));
    mq_copy_to_shared(parts->data, data, bytes);
    mq_store_relaxed_u64(parts->bytes, bytes); /* relaxed: released with seq */
}

/* The shadow that is good in this odd seq; NULL: there is none, or it lies elsewhere than in `data`. */
static inline mq_schema_shadow *mq_schema_find_shadow(const mq_schema_parts *parts, uint64_t seq, uint64_t *bytes) {
    uint64_t word = mq_load_acquire_u64(parts->shadow); /* EDGE schema: acquire. Partner: mq_schema_write_shadow */
    uint64_t offset = (uint32_t)word, room = parts->room - sizeof(mq_schema_shadow);
    if (word >> 32 != (uint32_t)seq || offset & 7 || offset > room || parts->room < sizeof(mq_schema_shadow))
        return NULL;
    mq_schema_shadow *shadow = (mq_schema_shadow *)(void *)(parts->data + offset);
    *bytes = mq_load_relaxed_u64(&shadow->bytes); /* relaxed: ordered by the acquire above */
    return *bytes <= offset && *bytes <= room - offset ? shadow : NULL;
}

/* Put the schema into the shadow, if that overlaps neither the present descriptor nor the new one's place. */
static inline void mq_schema_write_shadow(const mq_schema_parts *parts, uint64_t seq, const char *name,
                                          const char *encoding, const char *data, uint64_t bytes) {
    uint64_t needed = sizeof(mq_schema_shadow) + ((bytes + 7) & ~(uint64_t)7);
    uint64_t present = mq_load_relaxed_u64(parts->bytes); /* relaxed: only lock holders write it */
    uint64_t offset = (parts->room & ~(uint64_t)7) - needed;
    if (needed > parts->room || offset < bytes || offset < present)
        return;
    /* EDGE schema: release. A reader that copies bytes of this shadow as if they were the last one's finds another seq
     * afterwards. Partner: mq_schema_read */
    mq_fence_release();
    mq_schema_shadow *shadow = (mq_schema_shadow *)(void *)(parts->data + offset);
    mq_copy_to_shared(shadow->name, mq_schema_blank, sizeof mq_schema_blank);
    mq_copy_to_shared(shadow->name, name, strlen(name));
    mq_copy_to_shared(shadow->encoding, encoding, strlen(encoding));
    mq_copy_to_shared(shadow->data, data, bytes);
    mq_store_relaxed_u64(&shadow->bytes, bytes);
    /* EDGE schema: release. Who finds the shadow's place finds its bytes. Partner: mq_schema_find_shadow */
    mq_store_release_u64(parts->shadow, (uint64_t)(uint32_t)seq << 32 | offset);
}

static inline bool mq_schema_equals(const mq_schema_parts *parts, const char *name, const char *encoding,
                                    const char *data, uint64_t bytes) {
    return mq_load_relaxed_u64(parts->bytes) == bytes && /* relaxed: under the lock */
           !strncmp(parts->name, name, MQ_SCHEMA_NAME) && !strncmp(parts->encoding, encoding, MQ_SCHEMA_ENCODING) &&
           !memcmp(parts->data, data, bytes);
}

/* Describe the messages; under the lock. The sizes were checked against the layout. */
static inline void mq_schema_write(const mq_schema_parts *parts, const char *name, const char *encoding,
                                   const char *data, uint64_t bytes) {
    uint64_t left, seq = mq_load_relaxed_u64(parts->seq); /* relaxed: only lock holders write it */
    mq_schema_shadow *shadow = seq & 1 ? mq_schema_find_shadow(parts, seq, &left) : NULL;
    if (shadow) { /* its writer was killed */
        mq_schema_write_in_place(parts, shadow->name, shadow->encoding, shadow->data, left);
        mq_store_release_u64(parts->seq, ++seq); /* EDGE schema: release. Partner: mq_schema_read */
    }
    if (!(seq & 1) && mq_schema_equals(parts, name, encoding, data, bytes))
        return; /* as most publishers find it */
    if (!(seq & 1))
        mq_schema_write_shadow(parts, ++seq, name, encoding, data, bytes);
    mq_store_relaxed_u64(parts->seq, seq);
    mq_fence_release(); /* EDGE schema: release. Partner: mq_schema_read */
    mq_schema_write_in_place(parts, name, encoding, data, bytes);
    mq_store_release_u64(parts->seq, seq + 1); /* EDGE schema: release. Partner: mq_schema_read */
}

/* A consistent copy of the descriptor, for a segment as large as its layout says. False: it changes all the time,
 * or its writer died and left no shadow. `data` has room for all that the segment has. */
static inline bool mq_schema_read(const mq_schema_parts *parts, char *name, char *encoding, char *data,
                                  uint64_t *bytes) {
    for (int tries = 0; tries < 100; tries++) {
        uint64_t seq = mq_load_acquire_u64(parts->seq); /* EDGE schema: acquire. Partner: mq_schema_write */
        const char *from = parts->name, *coded = parts->encoding, *described = parts->data;
        *bytes = mq_load_relaxed_u64(parts->bytes); /* relaxed: validated by the second look at seq */
        if (seq & 1) {
            const mq_schema_shadow *shadow = mq_schema_find_shadow(parts, seq, bytes);
            if (!shadow)
                continue;
            from = shadow->name, coded = shadow->encoding, described = shadow->data;
        }
        if (*bytes > parts->room)
            continue;
        mq_copy_from_shared(name, from, MQ_SCHEMA_NAME);
        mq_copy_from_shared(encoding, coded, MQ_SCHEMA_ENCODING);
        mq_copy_from_shared(data, described, *bytes);
        mq_fence_acquire(); /* EDGE schema: acquire. Partner: mq_schema_write */
        if (mq_load_relaxed_u64(parts->seq) == seq)
            return true;
    }
    return false;
}

#endif
