/* The schema descriptor in a segment. Writers hold the component's lock. Readers need no lock.
 *
 * `seq` is odd while a writer changes the descriptor, and stays odd if the writer is killed. To keep a schema readable,
 * the writer first writes the complete new schema into the shadow, which is the unused end of `data`. The writer also
 * stores the odd value of `seq` for which the shadow is valid. While `seq` has this odd value, readers use the shadow.
 * If a writer is killed, the next writer first completes the schema of the shadow.
 *
 * If a writer is killed before `seq` is odd, the previous schema is valid. If a writer is killed while `seq` is odd,
 * the new schema in the shadow is valid.
 *
 * A schema larger than half of the room has no shadow. If the writer of such a large schema is killed during the write,
 * no schema is readable.
 */
#ifndef MQ_SCHEMA_H
#define MQ_SCHEMA_H

#include "base/layout.h"

/* Return the number of changes that began at or before this seq. */
static inline uint64_t mq_schema_count_changes(uint64_t seq) { return (seq + 1) / 2; }

/* Addresses of a segment's descriptor. */
typedef struct {
    mq_u64 *seq, *bytes, *shadow;
    char *name, *encoding, *data;
    uint64_t room; /* bytes of data */
} mq_schema_parts;

/* Return the parts of a descriptor in one block. `room` bytes of `data` follow the block. */
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

/* Return the shadow that is valid for this odd seq. NULL: the segment has no such shadow, or its offset is outside
 * `data`. */
static inline mq_schema_shadow *mq_schema_find_shadow(const mq_schema_parts *parts, uint64_t seq, uint64_t *bytes) {
    uint64_t word = mq_load_acquire_u64(parts->shadow); /* EDGE schema: acquire. Partner: mq_schema_write_shadow */
    uint64_t offset = (uint32_t)word, room = parts->room - sizeof(mq_schema_shadow);
    if (word >> 32 != (uint32_t)seq || offset & 7 || offset > room || parts->room < sizeof(mq_schema_shadow))
        return NULL;
    mq_schema_shadow *shadow = (mq_schema_shadow *)(void *)(parts->data + offset);
    *bytes = mq_load_relaxed_u64(&shadow->bytes); /* relaxed: ordered by the acquire above */
    return *bytes <= offset && *bytes <= room - offset ? shadow : NULL;
}

/* Write the schema into the shadow, unless the shadow would overlap the existing schema's data or the new schema's
 * data. */
static inline void mq_schema_write_shadow(const mq_schema_parts *parts, uint64_t seq, const char *name,
                                          const char *encoding, const char *data, uint64_t bytes) {
    uint64_t needed = sizeof(mq_schema_shadow) + ((bytes + 7) & ~(uint64_t)7);
    uint64_t present = mq_load_relaxed_u64(parts->bytes); /* relaxed: only lock holders write it */
    uint64_t offset = (parts->room & ~(uint64_t)7) - needed;
    if (needed > parts->room || offset < bytes || offset < present)
        return;
    /* EDGE schema: release. A reader that copies bytes of this shadow as if they belonged to the previous one finds
     * another seq afterwards. Partner: mq_schema_read */
    mq_fence_release();
    mq_schema_shadow *shadow = (mq_schema_shadow *)(void *)(parts->data + offset);
    mq_copy_to_shared(shadow->name, mq_schema_blank, sizeof mq_schema_blank);
    mq_copy_to_shared(shadow->name, name, strlen(name));
    mq_copy_to_shared(shadow->encoding, encoding, strlen(encoding));
    mq_copy_to_shared(shadow->data, data, bytes);
    mq_store_relaxed_u64(&shadow->bytes, bytes);
    /* EDGE schema: release. A process that loads the shadow's offset also sees its bytes. Partner:
     * mq_schema_find_shadow */
    mq_store_release_u64(parts->shadow, (uint64_t)(uint32_t)seq << 32 | offset);
}

static inline bool mq_schema_equals(const mq_schema_parts *parts, const char *name, const char *encoding,
                                    const char *data, uint64_t bytes) {
    return mq_load_relaxed_u64(parts->bytes) == bytes && /* relaxed: under the lock */
           !strncmp(parts->name, name, MQ_SCHEMA_NAME) && !strncmp(parts->encoding, encoding, MQ_SCHEMA_ENCODING) &&
           !memcmp(parts->data, data, bytes);
}

/* Write the schema under the lock. The caller checked the sizes against the layout. */
static inline void mq_schema_write(const mq_schema_parts *parts, const char *name, const char *encoding,
                                   const char *data, uint64_t bytes) {
    uint64_t left, seq = mq_load_relaxed_u64(parts->seq); /* relaxed: only lock holders write it */
    mq_schema_shadow *shadow = seq & 1 ? mq_schema_find_shadow(parts, seq, &left) : NULL;
    if (shadow) { /* the previous writer was killed */
        mq_schema_write_in_place(parts, shadow->name, shadow->encoding, shadow->data, left);
        mq_store_release_u64(parts->seq, ++seq); /* EDGE schema: release. Partner: mq_schema_read */
    }
    if (!(seq & 1) && mq_schema_equals(parts, name, encoding, data, bytes))
        return; /* the schema is unchanged, which is the usual case */
    if (!(seq & 1))
        mq_schema_write_shadow(parts, ++seq, name, encoding, data, bytes);
    mq_store_relaxed_u64(parts->seq, seq);
    mq_fence_release(); /* EDGE schema: release. Partner: mq_schema_read */
    mq_schema_write_in_place(parts, name, encoding, data, bytes);
    mq_store_release_u64(parts->seq, seq + 1); /* EDGE schema: release. Partner: mq_schema_read */
}

/* True if the segment has a schema, under the lock. If its writer was killed and left no shadow, it has none. */
static inline bool mq_schema_is_set(const mq_schema_parts *parts) {
    uint64_t bytes, seq = mq_load_relaxed_u64(parts->seq); /* relaxed: only lock holders write it */
    return seq & 1 ? mq_schema_find_shadow(parts, seq, &bytes) != NULL : parts->name[0] != '\0';
}

/* Write the schema under the lock, unless the segment has one. */
static inline void mq_schema_write_if_missing(const mq_schema_parts *parts, const char *name, const char *encoding,
                                              const char *data, uint64_t bytes) {
    if (!mq_schema_is_set(parts))
        mq_schema_write(parts, name, encoding, data, bytes);
}

/* Copy the descriptor consistently. The caller checked the size of the segment against the layout. `data` must have
 * room for parts->room bytes. Returns false if the descriptor changed during every attempt, or if its writer died
 * without a shadow. */
static inline bool mq_schema_read(const mq_schema_parts *parts, char *name, char *encoding, char *data,
                                  uint64_t *bytes) {
    for (int tries = 0; tries < 100; tries++) {
        uint64_t seq = mq_load_acquire_u64(parts->seq); /* EDGE schema: acquire. Partner: mq_schema_write */
        const char *from = parts->name, *coded = parts->encoding, *described = parts->data;
        *bytes = mq_load_relaxed_u64(parts->bytes); /* relaxed: validated by the second load of seq */
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
