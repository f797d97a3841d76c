/* The schema descriptor in a segment: written under the piece's lock, read by anybody.
 *
 * `turn` is odd while the descriptor's place is written, and stays odd when its writer is killed. So that the schema is
 * not hidden then, a writer first puts the new one, whole, into the unused end of `data` (the spare), and says for which
 * odd turn it is good. Readers take the spare in that turn; the next writer begins by completing it.
 *
 *   killed before the turn is odd      the former schema, as if nothing had been
 *   killed while it is odd             the new one, from the spare
 *
 * A descriptor of more than half the room has no spare: a kill while it is written leaves none.
 */
#ifndef MQ_SCHEMA_H
#define MQ_SCHEMA_H

#include "base/layout.h"

/* Where a segment has its descriptor. */
typedef struct {
    mq_u64 *turn, *bytes, *spare;
    char *name, *encoding, *data;
    uint64_t room; /* of data, bytes */
} mq_schema_parts;

/* The parts of a descriptor in one piece, with `room` bytes of `data` after it. */
static inline mq_schema_parts mq_schema_parts_of(mq_schema *schema, char *data, uint64_t room) {
    return (mq_schema_parts){.turn = &schema->turn,
                             .bytes = &schema->bytes,
                             .spare = &schema->spare,
                             .name = schema->name,
                             .encoding = schema->encoding,
                             .data = data,
                             .room = room};
}

static const char mq_schema_blank[MQ_SCHEMA_NAME + MQ_SCHEMA_ENCODING];

static inline void mq_schema_write_in_place(const mq_schema_parts *at, const char *name, const char *encoding,
                                            const char *data, uint64_t bytes) {
    mq_copy_in(at->name, mq_schema_blank, sizeof mq_schema_blank);
    mq_copy_in(at->name, name, strnlen(name, MQ_SCHEMA_NAME));
    mq_copy_in(at->encoding, encoding, strnlen(encoding, MQ_SCHEMA_ENCODING));
    mq_copy_in(at->data, data, bytes);
    mq_store_relaxed_u64(at->bytes, bytes); /* relaxed: released with turn */
}

/* The spare that is good in this odd turn; NULL: there is none, or it lies elsewhere than in `data`. */
static inline mq_schema_spare *mq_schema_find_spare(const mq_schema_parts *at, uint64_t turn, uint64_t *bytes) {
    uint64_t word = mq_load_acquire_u64(at->spare); /* EDGE schema: acquire. Partner: mq_schema_save */
    uint64_t offset = (uint32_t)word, room = at->room - sizeof(mq_schema_spare);
    if (word >> 32 != (uint32_t)turn || offset & 7 || offset > room || at->room < sizeof(mq_schema_spare))
        return NULL;
    mq_schema_spare *spare = (mq_schema_spare *)(void *)(at->data + offset);
    *bytes = mq_load_relaxed_u64(&spare->bytes); /* relaxed: ordered by the acquire above */
    return *bytes <= offset && *bytes <= room - offset ? spare : NULL;
}

/* Put the schema into the spare, if that overlaps neither the present descriptor nor the new one's place. */
static inline void mq_schema_save(const mq_schema_parts *at, uint64_t turn, const char *name, const char *encoding,
                                  const char *data, uint64_t bytes) {
    uint64_t needed = sizeof(mq_schema_spare) + ((bytes + 7) & ~(uint64_t)7);
    uint64_t present = mq_load_relaxed_u64(at->bytes); /* relaxed: only lock holders write it */
    uint64_t offset = (at->room & ~(uint64_t)7) - needed;
    if (needed > at->room || offset < bytes || offset < present)
        return;
    /* EDGE schema: release. A reader that copies bytes of this spare as if they were the last one's finds another turn
     * afterwards. Partner: mq_schema_read */
    mq_fence_release();
    mq_schema_spare *spare = (mq_schema_spare *)(void *)(at->data + offset);
    mq_copy_in(spare->name, mq_schema_blank, sizeof mq_schema_blank);
    mq_copy_in(spare->name, name, strlen(name));
    mq_copy_in(spare->encoding, encoding, strlen(encoding));
    mq_copy_in(spare->data, data, bytes);
    mq_store_relaxed_u64(&spare->bytes, bytes);
    /* EDGE schema: release. Who finds the spare's place finds its bytes. Partner: mq_schema_find_spare */
    mq_store_release_u64(at->spare, (uint64_t)(uint32_t)turn << 32 | offset);
}

static inline bool mq_schema_is(const mq_schema_parts *at, const char *name, const char *encoding, const char *data,
                                uint64_t bytes) {
    return mq_load_relaxed_u64(at->bytes) == bytes && /* relaxed: under the lock */
           !strncmp(at->name, name, MQ_SCHEMA_NAME) && !strncmp(at->encoding, encoding, MQ_SCHEMA_ENCODING) &&
           !memcmp(at->data, data, bytes);
}

/* Describe the messages; under the lock. The sizes were checked against the layout. */
static inline void mq_schema_write(const mq_schema_parts *at, const char *name, const char *encoding, const char *data,
                                   uint64_t bytes) {
    uint64_t left, turn = mq_load_relaxed_u64(at->turn); /* relaxed: only lock holders write it */
    mq_schema_spare *spare = turn & 1 ? mq_schema_find_spare(at, turn, &left) : NULL;
    if (spare) { /* its writer was killed */
        mq_schema_write_in_place(at, spare->name, spare->encoding, spare->data, left);
        mq_store_release_u64(at->turn, ++turn); /* EDGE schema: release. Partner: mq_schema_read */
    }
    if (!(turn & 1) && mq_schema_is(at, name, encoding, data, bytes))
        return; /* as most publishers find it */
    if (!(turn & 1))
        mq_schema_save(at, ++turn, name, encoding, data, bytes);
    mq_store_relaxed_u64(at->turn, turn);
    mq_fence_release(); /* EDGE schema: release. Partner: mq_schema_read */
    mq_schema_write_in_place(at, name, encoding, data, bytes);
    mq_store_release_u64(at->turn, turn + 1); /* EDGE schema: release. Partner: mq_schema_read */
}

/* A consistent copy of the descriptor, for a segment as large as its layout says. False: it changes all the time,
 * or its writer died and left no spare. `data` has room for all that the segment has. */
static inline bool mq_schema_read(const mq_schema_parts *at, char *name, char *encoding, char *data, uint64_t *bytes) {
    for (int tries = 0; tries < 100; tries++) {
        uint64_t turn = mq_load_acquire_u64(at->turn); /* EDGE schema: acquire. Partner: mq_schema_write */
        const char *from = at->name, *coded = at->encoding, *described = at->data;
        *bytes = mq_load_relaxed_u64(at->bytes); /* relaxed: validated by the second look at turn */
        if (turn & 1) {
            const mq_schema_spare *spare = mq_schema_find_spare(at, turn, bytes);
            if (!spare)
                continue;
            from = spare->name, coded = spare->encoding, described = spare->data;
        }
        if (*bytes > at->room)
            continue;
        mq_copy_out(name, from, MQ_SCHEMA_NAME);
        mq_copy_out(encoding, coded, MQ_SCHEMA_ENCODING);
        mq_copy_out(data, described, *bytes);
        mq_fence_acquire(); /* EDGE schema: acquire. Partner: mq_schema_write */
        if (mq_load_relaxed_u64(at->turn) == turn)
            return true;
    }
    return false;
}

#endif
