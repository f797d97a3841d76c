/* One element: a seqcount latch (Linux seqcount_latch_t) with an owner field. Several processes write it. Any number of
 * processes read it, and never wait for a writer.
 * - version: number of writes (bits 63..24; mq_cell_next_write_count) | row of the writer + 1 (23..16; 0: no writer) |
 *   generation of that row (15..0).
 * - copies: 2 or 4. The value is in copy (number of writes mod copies).
 *
 * A writer fills the oldest copy, which is not read, and then increments the number of writes. A copy stays unchanged
 * until the writer after next, and a writer that dies or stops in the middle leaves the previous value.
 * - (n, no writer) -> (n, w): w acquires the element (mq_cell_try_acquire).
 * - (n, w) -> (n, v): v takes it from w, which is dead (mq_cell_steal_ownership).
 * - (n, w) -> (n + 1, no writer): w has written (mq_cell_commit_write).
 * - (n, w) -> (n, no writer): w is dead, and its row is reused (mq_record_reclaim_row in writer.h).
 *
 * An element with an exclusive writer (the owner of the file, or of a board's key) never names it. Its transition is a
 * store: (n, no writer) -> (n + 1, no writer). docs/internals/proofs.md has the proof, and
 * docs/internals/record-protocol.md has the result of a kill at each step.
 */
#ifndef MQ_RECORDS_CELL_H
#define MQ_RECORDS_CELL_H

#include "records/layout.h"

enum {
    MQ_CELL_COUNT_SHIFT = 24,      /* shift of the count in the version */
    MQ_CELL_ROW_SHIFT = 16,        /* shift of the row */
    MQ_CELL_AHEAD_NS = 1000000000, /* limit of the time by which a write's time may be before the previous write's */
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
/* Return the address of the copy with this count: its time, and then its value. */
static inline mq_u64 *mq_cell_value_copy_at(const mq_record_file_parts *parts, mq_u64 *version, uint64_t count) {
    uint8_t *first = (uint8_t *)(version + 1);
    return (mq_u64 *)(void *)(first + (count & (parts->config.copies - 1)) * parts->copy_stride);
}

/* ---- write ---- */

/* Acquire an element without a writer. Returns 0 on success. Otherwise returns the current writer, or 1 <<
 * MQ_CELL_COUNT_SHIFT if the version changed during the call. */
static inline uint64_t mq_cell_try_acquire(mq_u64 *version, uint64_t owner) {
    uint64_t now = mq_load_acquire_u64(version);
    if (mq_unlikely(mq_cell_version_owner(now)))
        return mq_cell_version_owner(now);
    return mq_likely(mq_compare_exchange_u64(version, now, now | owner)) ? 0 : 1ull << MQ_CELL_COUNT_SHIFT;
}

/* Take an element from its dead writer. `current` is the version whose writer was found dead. */
static inline bool mq_cell_steal_ownership(mq_u64 *version, uint64_t current, uint64_t owner) {
    return mq_compare_exchange_u64(version, current, (current & ~(uint64_t)((1u << MQ_CELL_COUNT_SHIFT) - 1)) | owner);
}

/* Return the copy to fill next, with its time stored. The caller owns the element and writes the value. */
static inline mq_u64 *mq_cell_begin_write(const mq_record_file_parts *parts, mq_u64 *version, uint64_t time) {
    uint64_t count = mq_cell_write_count(mq_load_relaxed_u64(version)); /* relaxed, both: ours */
    uint64_t before = mq_load_relaxed_u64(mq_cell_value_copy_at(parts, version, count));
    /* EDGE cell: release. The version already selected another copy for readers before this copy is filled. Partner:
     * mq_cell_read_fence. If weaker: a torn value passes. */
    mq_fence_release();
    mq_u64 *copy = mq_cell_value_copy_at(parts, version, count + 1);
    /* The clock was read before the element was acquired, so the previous time may be later: times never decrease. A
     * time much further ahead is invalid data. relaxed: released with the version, as the value is. */
    mq_store_relaxed_u64(copy, before - time < MQ_CELL_AHEAD_NS ? before : time);
    return copy + 1;
}

/* Publish the filled copy as the value. Returns false if another program wrote the version without permission. */
static inline bool mq_cell_commit_write(const mq_record_file_parts *parts, mq_u64 *version, uint64_t owner) {
    uint64_t count = mq_cell_write_count(mq_load_relaxed_u64(version)); /* relaxed: ours */
    /* EDGE value: release, by an exchange. The value is complete before the version. Partner: mq_cell_read_begin. If
     * weaker: a reader finds old bytes with a new version. */
    return mq_compare_exchange_u64(version, count << MQ_CELL_COUNT_SHIFT | owner,
                                   mq_cell_next_write_count(parts, count) << MQ_CELL_COUNT_SHIFT);
}

/* The same for an exclusive writer. Call mq_fence_seq_cst before a check of the eventcount. */
static inline void mq_cell_commit_exclusive_write(const mq_record_file_parts *parts, mq_u64 *version) {
    uint64_t count = mq_cell_write_count(mq_load_relaxed_u64(version)); /* relaxed: ours */
    /* EDGE value: release. Partner: mq_cell_read_begin. If weaker: as in mq_cell_commit_write. */
    mq_store_release_u64(version, mq_cell_next_write_count(parts, count) << MQ_CELL_COUNT_SHIFT);
}

/* ---- read ---- */

/* Load the version. Then read its copy. */
static inline uint64_t mq_cell_read_begin(const mq_u64 *version) {
    /* EDGE value: acquire. Partner: mq_cell_commit_write */
    return mq_load_acquire_u64(version);
}

/* Call this after reading values and before comparing their versions. */
static inline void mq_cell_read_fence(void) {
    /* EDGE cell: acquire. The value is read before the version is. Partner: mq_cell_begin_write. If weaker: a torn
     * value passes. */
    mq_fence_acquire();
}

/* True if the copy of `before` did not change during the read. Call mq_cell_read_fence first. After a wrap-around of
 * the count, the difference may look too large, and the value is read once more. */
static inline bool mq_cell_read_valid(const mq_record_file_parts *parts, const mq_u64 *version, uint64_t before) {
    uint64_t now = mq_load_relaxed_u64(version); /* relaxed: ordered by the fence */
    return ((mq_cell_write_count(now) - mq_cell_write_count(before)) & MQ_CELL_WRITE_COUNT_MAX) <=
           parts->config.copies - 2;
}

#endif
