/* One element: a seqcount latch (Linux seqcount_latch_t) with an owner field. Several processes write the element. Any
 * number of processes read the element, and never wait for a writer. `version`: number of writes (bits 63..24;
 * mq_cell_next_write_count) | row of the writer + 1 (23..16; 0: none) | generation of that row (15..0). `copies`: the
 * number of copies, 2 or 4. The value is in copy (number of writes mod copies).
 *
 * A writer fills the oldest copy, which readers do not use, and then increments the number of writes. The copy with the
 * current value stays unchanged until the write after the next write begins. If a writer dies or stops before the
 * increment, the element keeps the previous value. Transitions of (number of writes, writer):
 *   `(n, none) -> (n, w)`: writer w acquires the element (mq_cell_try_acquire).
 *   `(n, w) -> (n, v)`: writer v takes the element from the dead writer w (mq_cell_steal_ownership).
 *   `(n, w) -> (n + 1, none)`: writer w has written (mq_cell_commit_write).
 *   `(n, w) -> (n, none)`: writer w is dead, and its row is reused (mq_record_reclaim_row in writer.h).
 *
 * If an element has an exclusive writer (the owner of the file, or of a board's key), `version` never names the writer.
 * An exclusive write is one store: (n, none) -> (n + 1, none). docs/internals/proofs.md has the proof.
 * docs/internals/record-protocol.md has the result of a kill at each step. */
#ifndef MQ_RECORDS_CELL_H
#define MQ_RECORDS_CELL_H

#include "records/layout.h"

enum {
    MQ_CELL_COUNT_SHIFT = 24,      /* number of bits below the count in the version */
    MQ_CELL_ROW_SHIFT = 16,        /* number of bits below the row in the version */
    MQ_CELL_AHEAD_NS = 1000000000, /* maximum time by which the previous write may seem later than a new write */
};
#define MQ_CELL_WRITE_COUNT_MAX ((1ull << (64 - MQ_CELL_COUNT_SHIFT)) - 1)

static inline uint64_t mq_cell_write_count(uint64_t version) { return version >> MQ_CELL_COUNT_SHIFT; }

/* Return the number of writes after one more write. MQ_CELL_WRITE_COUNT_MAX is followed by the number of copies
 * instead of 0. The value 0 means "never written", and both numbers select the same copy. */
static inline uint64_t mq_cell_next_write_count(const mq_record_file_parts *parts, uint64_t count) {
    return mq_likely(count != MQ_CELL_WRITE_COUNT_MAX) ? count + 1 : parts->config.copies;
}

/* Return the number of writes from the count `before` to the count `now`. */
static inline uint64_t mq_cell_count_writes_between(const mq_record_file_parts *parts, uint64_t before, uint64_t now) {
    return now < before ? now - before + MQ_CELL_WRITE_COUNT_MAX + 1 - parts->config.copies : now - before;
}

/* Return the owner in a version, or in an owner word. 0: no owner. */
static inline uint64_t mq_cell_version_owner(uint64_t version) { return version & ((1u << MQ_CELL_COUNT_SHIFT) - 1); }
static inline uint64_t mq_cell_pack_owner(unsigned row, uint16_t generation) {
    return (uint64_t)(row + 1) << MQ_CELL_ROW_SHIFT | generation;
}
/* Return the row of an owner that is not 0. If the result is MQ_RECORD_ROWS or more, the row does not exist. */
static inline unsigned mq_cell_owner_row(uint64_t owner) { return (unsigned)(owner >> MQ_CELL_ROW_SHIFT) - 1; }
static inline uint16_t mq_cell_owner_generation(uint64_t owner) { return (uint16_t)owner; }

static inline mq_u64 *mq_cell_version_word(const mq_record_file_parts *parts, uint64_t index) {
    return (mq_u64 *)(void *)(parts->elements_base + index * parts->stride);
}
/* Return the address of the copy with this count. The copy is the time of the write, followed by the value. */
static inline mq_u64 *mq_cell_value_copy_at(const mq_record_file_parts *parts, mq_u64 *version, uint64_t count) {
    uint8_t *first = (uint8_t *)(version + 1);
    return (mq_u64 *)(void *)(first + (count & (parts->config.copies - 1)) * parts->copy_stride);
}

/* ---- write ---- */

/* Acquire an element without a writer. Returns 0 on success. Returns the current writer if the element has a writer.
 * Returns 1 << MQ_CELL_COUNT_SHIFT if the version changed during the call. */
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

/* Store the time in the copy to fill next, and return the address of the copy's value. The caller owns the element,
 * and writes the value after this call. */
static inline mq_u64 *mq_cell_begin_write(const mq_record_file_parts *parts, mq_u64 *version, uint64_t time) {
    uint64_t count = mq_cell_write_count(mq_load_relaxed_u64(version)); /* relaxed, both: ours */
    uint64_t before = mq_load_relaxed_u64(mq_cell_value_copy_at(parts, version, count));
    /* EDGE cell: release. The version already selected another copy for readers before this copy is filled. Partner:
     * mq_cell_read_fence. If weaker: a torn value passes. */
    mq_fence_release();
    mq_u64 *copy = mq_cell_value_copy_at(parts, version, count + 1);
    /* The clock was read before the element was acquired, so the previous time may be later. Times of an element
     * never decrease. A previous time much later than the new time is invalid data. relaxed: released with the
     * version, as the value is. */
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

/* Commit a write of an exclusive writer. Before checking the eventcount, call mq_fence_seq_cst. */
static inline void mq_cell_commit_exclusive_write(const mq_record_file_parts *parts, mq_u64 *version) {
    uint64_t count = mq_cell_write_count(mq_load_relaxed_u64(version)); /* relaxed: ours */
    /* EDGE value: release. Partner: mq_cell_read_begin. If weaker: as in mq_cell_commit_write. */
    mq_store_release_u64(version, mq_cell_next_write_count(parts, count) << MQ_CELL_COUNT_SHIFT);
}

/* ---- read ---- */

/* Load the version. Then read the copy that the version selects. */
static inline uint64_t mq_cell_read_begin(const mq_u64 *version) {
    /* EDGE value: acquire. Partner: mq_cell_commit_write */
    return mq_load_acquire_u64(version);
}

/* Call this after reading values, and before comparing the versions of these values. */
static inline void mq_cell_read_fence(void) {
    /* EDGE cell: acquire. The value is read before the version is. Partner: mq_cell_begin_write. If weaker: a torn
     * value passes. */
    mq_fence_acquire();
}

/* True if the copy that `before` selects did not change during the read. Call mq_cell_read_fence first. After a
 * wrap-around of the count, the difference may look too large. The value is then read once more. */
static inline bool mq_cell_read_valid(const mq_record_file_parts *parts, const mq_u64 *version, uint64_t before) {
    uint64_t now = mq_load_relaxed_u64(version); /* relaxed: ordered by the fence */
    return ((mq_cell_write_count(now) - mq_cell_write_count(before)) & MQ_CELL_WRITE_COUNT_MAX) <=
           parts->config.copies - 2;
}

#endif
