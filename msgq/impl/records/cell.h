/* One element: a seqcount latch (Linux seqcount_latch_t) with an owner field. Several processes write it. Any number of
 * processes read it, and never wait for a writer.
 *
 *   version   number of writes (bits 63..24; mq_cell_next_write_count) | row of the writer, + 1 (23..16; 0: no writer) | generation of
 *             that row (15..0)
 *   copies    2 or 4. The value is in copy (number of writes mod copies)
 *
 * A writer fills the oldest copy, which is not read, and then increments the number of writes. A copy stays unchanged until
 * the writer after next, and a writer that dies or stops in the middle leaves the previous value.
 *
 *   (n, no writer) -> (n, w)              w acquires the element              mq_cell_try_acquire
 *   (n, w)         -> (n, v)              v takes it from w, which is dead    mq_cell_steal_ownership
 *   (n, w)         -> (n + 1, no writer)  w has written                       mq_cell_commit_write
 *   (n, w)         -> (n, no writer)      w is dead, and its row is reused    mq_record_reclaim_row (writer.h)
 *
 * An element with an exclusive writer (the owner of the file, or of a board's key) never names it:
 * (n, no writer) -> (n + 1, no writer) by a store.
 *
 * docs/internals/proofs.md has the proof, and docs/internals/record-protocol.md the result of a kill at each step.
 */
#ifndef MQ_RECORDS_CELL_H
#define MQ_RECORDS_CELL_H

#include "records/layout.h"

enum {
    MQ_CELL_COUNT_SHIFT = 24,      /* of the count in the version */
    MQ_CELL_ROW_SHIFT = 16,        /* of the row */
    MQ_CELL_AHEAD_NS = 1000000000, /* the time of a write is at most so much before another's */
};
#define MQ_CELL_WRITE_COUNT_MAX ((1ull << (64 - MQ_CELL_COUNT_SHIFT)) - 1)

static inline uint64_t mq_cell_write_count(uint64_t version) { return version >> MQ_CELL_COUNT_SHIFT; }

/* The count after one more write. MQ_CELL_WRITE_COUNT_MAX is followed by the number of copies, because 0 means "never
 * written" and both select the same copy. */
static inline uint64_t mq_cell_next_write_count(const mq_record_file_parts *parts, uint64_t count) {
    return mq_likely(count != MQ_CELL_WRITE_COUNT_MAX) ? count + 1 : parts->config.copies;
}

/* Number of writes from the count `before` to the count `now`. */
static inline uint64_t mq_cell_count_writes_between(const mq_record_file_parts *parts, uint64_t before, uint64_t now) {
    return now < before ? now - before + MQ_CELL_WRITE_COUNT_MAX + 1 - parts->config.copies : now - before;
}

/* The owner in a version, and in other words that name an owner; 0: none. */
static inline uint64_t mq_cell_version_owner(uint64_t version) { return version & ((1u << MQ_CELL_COUNT_SHIFT) - 1); }
static inline uint64_t mq_cell_pack_owner(unsigned row, uint16_t generation) {
    return (uint64_t)(row + 1) << MQ_CELL_ROW_SHIFT | generation;
}
/* The row of an owner that is not 0; MQ_RECORD_ROWS or more: there is no such row. */
static inline unsigned mq_cell_owner_row(uint64_t owner) { return (unsigned)(owner >> MQ_CELL_ROW_SHIFT) - 1; }
static inline uint16_t mq_cell_owner_generation(uint64_t owner) { return (uint16_t)owner; }

static inline mq_u64 *mq_cell_version_word(const mq_record_file_parts *parts, uint64_t index) {
    return (mq_u64 *)(void *)(parts->elements_base + index * parts->stride);
}
/* Where the copy is that was written so many times, or will be: its time, and then its value. */
static inline mq_u64 *mq_cell_value_copy_at(const mq_record_file_parts *parts, mq_u64 *version, uint64_t count) {
    uint8_t *first = (uint8_t *)(version + 1);
    return (mq_u64 *)(void *)(first + (count & (parts->config.copies - 1)) * parts->copy_stride);
}

/* ---- writing ---- */

/* Take an element that nobody writes. 0: it is ours. Else who has it; 1 << MQ_CELL_COUNT_SHIFT: nobody, but it changed.
 * */
static inline uint64_t mq_cell_try_acquire(mq_u64 *version, uint64_t owner) {
    uint64_t now = mq_load_acquire_u64(version);
    if (mq_unlikely(mq_cell_version_owner(now)))
        return mq_cell_version_owner(now);
    return mq_likely(mq_compare_exchange_u64(version, now, now | owner)) ? 0 : 1ull << MQ_CELL_COUNT_SHIFT;
}

/* Take it from its holder, who is dead. The version is that for which was asked whether it is. */
static inline bool mq_cell_steal_ownership(mq_u64 *version, uint64_t current, uint64_t owner) {
    return mq_compare_exchange_u64(version, current, (current & ~(uint64_t)((1u << MQ_CELL_COUNT_SHIFT) - 1)) | owner);
}

/* The copy to fill next: its time is written here, its value by the caller. The element is ours. */
static inline mq_u64 *mq_cell_begin_write(const mq_record_file_parts *parts, mq_u64 *version, uint64_t time) {
    uint64_t count = mq_cell_write_count(mq_load_relaxed_u64(version)); /* relaxed, both: ours */
    uint64_t before = mq_load_relaxed_u64(mq_cell_value_copy_at(parts, version, count));
    /* EDGE cell: release. That this copy is not the one to be read has been said before it is filled. Partner:
     * mq_cell_read_fence. If weaker: a torn value passes. */
    mq_fence_release();
    mq_u64 *copy = mq_cell_value_copy_at(parts, version, count + 1);
    /* The clock was read before the element was taken: its times do not go back for that. Further ahead are only
     * foreign bytes. Relaxed: released with the version, as the value is. */
    mq_store_relaxed_u64(copy, before - time < MQ_CELL_AHEAD_NS ? before : time);
    return copy + 1;
}

/* The copy is filled: it is the value from now on. False: others have written there, who may not. */
static inline bool mq_cell_commit_write(const mq_record_file_parts *parts, mq_u64 *version, uint64_t owner) {
    uint64_t count = mq_cell_write_count(mq_load_relaxed_u64(version)); /* relaxed: ours */
    /* EDGE value: release, by an exchange. The value is there before the version. Partner: mq_cell_read_begin. If
     * weaker: a reader finds old bytes under a new version. */
    return mq_compare_exchange_u64(version, count << MQ_CELL_COUNT_SHIFT | owner,
                                   mq_cell_next_write_count(parts, count) << MQ_CELL_COUNT_SHIFT);
}

/* The same for who alone may write. Before eventcount is asked for, mq_fence_seq_cst. */
static inline void mq_cell_commit_exclusive_write(const mq_record_file_parts *parts, mq_u64 *version) {
    uint64_t count = mq_cell_write_count(mq_load_relaxed_u64(version)); /* relaxed: ours */
    /* EDGE value: release. Partner: mq_cell_read_begin. If weaker: as in mq_cell_commit_write. */
    mq_store_release_u64(version, mq_cell_next_write_count(parts, count) << MQ_CELL_COUNT_SHIFT);
}

/* ---- reading ---- */

/* The version, whose copy may now be read. */
static inline uint64_t mq_cell_read_begin(const mq_u64 *version) {
    /* EDGE value: acquire. Partner: mq_cell_commit_write */
    return mq_load_acquire_u64(version);
}

/* Values were read: now their versions may be compared. */
static inline void mq_cell_read_fence(void) {
    /* EDGE cell: acquire. The value is read before the version is. Partner: mq_cell_begin_write. If weaker: a torn
     * value passes. */
    mq_fence_acquire();
}

/* Was the copy of `before` left alone while it was read? Behind mq_cell_read_fence. Times that began again meanwhile
 * look further apart than they are: then it is read once more. */
static inline bool mq_cell_read_valid(const mq_record_file_parts *parts, const mq_u64 *version, uint64_t before) {
    uint64_t now = mq_load_relaxed_u64(version); /* relaxed: ordered by the fence */
    return ((mq_cell_write_count(now) - mq_cell_write_count(before)) & MQ_CELL_WRITE_COUNT_MAX) <=
           parts->config.copies - 2;
}

#endif
