/* Many elements: written and read in one call, compared with what was seen of them, all of one instant.
 *
 * A reader repeats an element only if a write of it was completed during its copy. It is told after some tries, so that
 * its caller can look at the clock.
 */
#ifndef MQ_RECORDS_VECTOR_H
#define MQ_RECORDS_VECTOR_H

#include "base/poll_ops.h"
#include "base/truncation.h"
#include "records/writer.h"

enum {
    MQ_VECTOR_TRIES = 100,
    MQ_VECTOR_STEP = 4,       /* elements that are read with one fence */
    MQ_VECTOR_PREFETCH = 128, /* elements that a scan has the cache fetch before it comes to them */
};

/* Which elements: so many of a indices, or from the first one on. */
typedef struct {
    const int64_t *indices; /* NULL: count up from `first` */
    uint64_t first, count;
} mq_element_selection;

static inline uint64_t mq_element_selection_index_at(const mq_element_selection *selection, uint64_t i) {
    return selection->indices ? (uint64_t)selection->indices[i] : selection->first + i;
}

/* Are there all elements of a indices? */
static inline bool mq_vector_indices_are_valid(const mq_record_file_parts *parts, const int64_t *indices,
                                               uint64_t count) {
    bool all = true;
    for (uint64_t i = 0; i < count; i++)
        all &= (uint64_t)indices[i] < parts->config.length; /* negative ones are larger than any length */
    return all;
}

/* ---- reading ---- */

/* What is known of elements beside their values. Each may be NULL. */
typedef struct {
    uint64_t *write_counts;  /* writes of each */
    int64_t *write_times_ns; /* of the last write of each */
} mq_vector_read_info;

/* Copy out one element. False: it was written again and again. */
static inline __attribute__((always_inline)) bool mq_vector_read_one(const mq_record_file_parts *parts, uint64_t index,
                                                                     uint8_t *to, size_t item_bytes, uint64_t *counts,
                                                                     int64_t *time_ns) {
    mq_u64 *version = mq_cell_version_word(parts, index);
    for (int tries = 0; tries < MQ_VECTOR_TRIES; tries++) {
        uint64_t before = mq_cell_read_begin(version);
        mq_u64 *copy = mq_cell_value_copy_at(parts, version, mq_cell_write_count(before));
        int64_t time = time_ns ? (int64_t)mq_load_relaxed_u64(copy) : 0; /* relaxed: validated with the value */
        if (item_bytes)
            mq_copy_from_shared(to, copy + 1, item_bytes);
        mq_cell_read_fence();
        if (mq_unlikely(!mq_cell_read_valid(parts, version, before)))
            continue;
        if (counts)
            *counts = mq_cell_write_count(before);
        if (time_ns)
            *time_ns = time;
        return true;
    }
    return false;
}

/* Copy out some elements with one fence for all. False: one was written meanwhile, or is about to be. */
static inline __attribute__((always_inline)) bool mq_vector_read_step(const mq_record_file_parts *parts,
                                                                      const mq_element_selection *selection,
                                                                      uint64_t first, uint8_t *to, size_t item_bytes,
                                                                      uint64_t *counts) {
    mq_u64 *version[MQ_VECTOR_STEP];
    uint64_t before[MQ_VECTOR_STEP], changed = 0;
#pragma GCC unroll 4
    for (int k = 0; k < MQ_VECTOR_STEP; k++) {
        version[k] = mq_cell_version_word(parts, mq_element_selection_index_at(selection, first + (unsigned)k));
        before[k] = mq_cell_read_begin(version[k]);
    }
#pragma GCC unroll 4
    for (int k = 0; k < MQ_VECTOR_STEP; k++)
        mq_copy_from_shared(to + (unsigned)k * item_bytes,
                            mq_cell_value_copy_at(parts, version[k], mq_cell_write_count(before[k])) + 1, item_bytes);
    mq_cell_read_fence();
#pragma GCC unroll 4
    for (int k = 0; k < MQ_VECTOR_STEP; k++)
        changed |= mq_load_relaxed_u64(version[k]) ^ before[k]; /* relaxed: ordered by the fence */
    for (int k = 0; counts && k < MQ_VECTOR_STEP; k++)
        counts[first + (unsigned)k] = mq_cell_write_count(before[k]);
    return !mq_cell_write_count(changed);
}

/* Returns how many were read: fewer than selected if one was written again and again. `to` has their values in turn,
 * `counts`, if it is there, the number of writes of each. */
static inline __attribute__((always_inline)) uint64_t mq_vector_read_sized(const mq_record_file_parts *parts,
                                                                           const mq_element_selection *selection,
                                                                           uint8_t *to, size_t item_bytes,
                                                                           uint64_t *counts) {
    const mq_record_file_parts layout =
        *parts; /* which nothing that is written to `to` can change, as the compiler knows */
    const mq_element_selection selected = *selection;
    uint64_t i = 0;
    while (i < selected.count) {
        if (i + MQ_VECTOR_STEP <= selected.count &&
            mq_likely(mq_vector_read_step(&layout, &selected, i, to + i * item_bytes, item_bytes, counts)))
            i += MQ_VECTOR_STEP;
        else if (mq_vector_read_one(&layout, mq_element_selection_index_at(&selected, i), to + i * item_bytes,
                                    item_bytes, counts ? &counts[i] : NULL, NULL))
            i++;
        else
            break;
    }
    return i;
}

/* Sizes that the compiler knows are copied without a call. */
static inline __attribute__((always_inline)) uint64_t mq_vector_read_counted(const mq_record_file_parts *parts,
                                                                             const mq_element_selection *selection,
                                                                             uint8_t *to, uint64_t *counts) {
    switch (parts->config.item_bytes) {
    case 8: return mq_vector_read_sized(parts, selection, to, 8, counts);
    case 16: return mq_vector_read_sized(parts, selection, to, 16, counts);
    case 24: return mq_vector_read_sized(parts, selection, to, 24, counts);
    case 32: return mq_vector_read_sized(parts, selection, to, 32, counts);
    case 40: return mq_vector_read_sized(parts, selection, to, 40, counts);
    case 48: return mq_vector_read_sized(parts, selection, to, 48, counts);
    case 64: return mq_vector_read_sized(parts, selection, to, 64, counts);
    default: return mq_vector_read_sized(parts, selection, to, parts->config.item_bytes, counts);
    }
}

static inline uint64_t mq_vector_read_elements(const mq_record_file_parts *parts, const mq_element_selection *selection,
                                               uint8_t *to) {
    return mq_vector_read_counted(parts, selection, to, NULL);
}

/* The same with what else is known. `to` may be NULL: without the values. */
static inline uint64_t mq_vector_read_elements_with_info(const mq_record_file_parts *parts,
                                                         const mq_element_selection *selection, uint8_t *to,
                                                         const mq_vector_read_info *info) {
    if (to && !info->write_times_ns)
        return mq_vector_read_counted(parts, selection, to, info->write_counts);
    size_t item_bytes = to ? parts->config.item_bytes : 0;
    for (uint64_t i = 0; i < selection->count; i++)
        if (!mq_vector_read_one(parts, mq_element_selection_index_at(selection, i), to + i * item_bytes, item_bytes,
                                info->write_counts ? &info->write_counts[i] : NULL,
                                info->write_times_ns ? &info->write_times_ns[i] : NULL))
            return i;
    return selection->count;
}

/* ---- what has changed ---- */

/* The first element from there on that was not written so often as it was seen to be; the length: none. */
static inline uint64_t mq_vector_next_changed(const mq_record_file_parts *parts, const uint64_t *seen, uint64_t from) {
    const uint64_t stride = parts->stride, length = parts->config.length;
    const uint8_t *at = (const uint8_t *)mq_cell_version_word(parts, from);
    uint64_t i = from;
    for (; i < length; i++, at += stride) {
        __builtin_prefetch(at + MQ_VECTOR_PREFETCH * stride); /* a hint: strides of more than a line are not foreseen */
        if (mq_cell_write_count(mq_load_acquire_u64((const mq_u64 *)(const void *)at)) != seen[i])
            break;
    }
    return i;
}

/* How many elements from `from` on were written since they were seen; those are put into `found`, `room` at most. */
static inline uint64_t mq_vector_collect_changed(const mq_record_file_parts *parts, const uint64_t *seen, uint64_t from,
                                                 int64_t *indices, uint64_t room) {
    uint64_t count = 0;
    for (uint64_t i = mq_vector_next_changed(parts, seen, from); i < parts->config.length && count < room;
         i = mq_vector_next_changed(parts, seen, i + 1))
        indices[count++] = (int64_t)i;
    return count;
}

/* Make all elements of one instant that were read one after the other: they are as they were then, or read again. False:
 * not yet, as some are written all the time.
 *
 * Each element is the same before an instant, when it was read, and after it, when it is compared; between the last
 * reading and the first comparison lies that instant. All are compared again each time, not only those that were read. */
static inline bool mq_vector_snapshot_step(const mq_record_file_parts *parts, uint8_t *to, uint64_t *counts) {
    bool same = true;
    for (uint64_t i = mq_vector_next_changed(parts, counts, 0); i < parts->config.length;
         i = mq_vector_next_changed(parts, counts, i + 1)) {
        mq_element_selection one = {.first = i, .count = 1};
        mq_vector_read_info info = {.write_counts = &counts[i]};
        mq_vector_read_elements_with_info(parts, &one, to + i * parts->config.item_bytes, &info);
        same = false;
    }
    return same;
}

/* ---- writing ---- */

static inline void mq_vector_fill_copy(mq_u64 *value, const uint8_t *from, size_t item_bytes, const mq_stamps *stamps) {
    mq_copy_to_shared(value, stamps, sizeof *stamps);
    mq_copy_to_shared((uint8_t *)value + sizeof *stamps, from + sizeof *stamps, item_bytes - sizeof *stamps);
}

typedef enum {
    MQ_VECTOR_WRITTEN,
    MQ_VECTOR_LOCKED,  /* by another writer, who lives, until the deadline */
    MQ_VECTOR_CORRUPT, /* others write there, who may not */
} mq_vector_status;

/* Write one element, and tell nobody. `deadline_ns` (CLOCK_MONOTONIC) is looked at if another writer has it; 0: at
 * once. */
static inline __attribute__((always_inline)) mq_vector_status mq_vector_write_one(mq_record_writer *w, uint64_t index,
                                                                                  const uint8_t *from,
                                                                                  size_t item_bytes, int64_t time,
                                                                                  const mq_stamps *stamps,
                                                                                  int64_t deadline_ns) {
    mq_u64 *version = mq_cell_version_word(&w->parts, index);
    bool exclusive = w->parts.config.flags & MQ_RECORD_EXCLUSIVE;
    if (!exclusive && mq_unlikely(mq_cell_try_acquire(version, w->owner)) &&
        (!deadline_ns || !mq_record_acquire_element(w, version, deadline_ns)))
        return MQ_VECTOR_LOCKED;
    mq_u64 *value = mq_cell_begin_write(&w->parts, version, (uint64_t)time);
    if (stamps)
        mq_vector_fill_copy(value, from, w->parts.config.item_bytes, stamps);
    else
        mq_copy_to_shared(value, from, item_bytes);
    if (exclusive)
        mq_cell_commit_exclusive_write(&w->parts, version);
    else if (mq_unlikely(!mq_cell_commit_write(&w->parts, version, w->owner)))
        return MQ_VECTOR_CORRUPT;
    return MQ_VECTOR_WRITTEN;
}

/* Write values in turn, as far as possible: `done` counts them. */
static inline __attribute__((always_inline)) mq_vector_status
mq_vector_write_sized(mq_record_writer *w, const mq_element_selection *selection, const uint8_t *from,
                      size_t item_bytes, int64_t time, const mq_stamps *stamps, int64_t deadline_ns, uint64_t *done) {
    mq_vector_status status = MQ_VECTOR_WRITTEN;
    uint64_t i = *done;
    for (; i < selection->count; i++) {
        status = mq_vector_write_one(w, mq_element_selection_index_at(selection, i), from + i * item_bytes, item_bytes,
                                     time, stamps, deadline_ns);
        if (status != MQ_VECTOR_WRITTEN)
            break;
    }
    *done = i;
    return status;
}

/* The same, and tell those who wait. Sizes that the compiler knows are copied without a call. */
static inline mq_vector_status mq_vector_write_elements(mq_record_writer *w, const mq_element_selection *selection,
                                                        const uint8_t *from, int64_t time, const mq_stamps *stamps,
                                                        int64_t deadline_ns, uint64_t *done) {
    size_t item_bytes = w->parts.config.item_bytes;
    mq_vector_status status;
    uint64_t before = *done;
    switch (item_bytes) {
    case 8: status = mq_vector_write_sized(w, selection, from, 8, time, stamps, deadline_ns, done); break;
    case 16: status = mq_vector_write_sized(w, selection, from, 16, time, stamps, deadline_ns, done); break;
    case 32: status = mq_vector_write_sized(w, selection, from, 32, time, stamps, deadline_ns, done); break;
    case 64: status = mq_vector_write_sized(w, selection, from, 64, time, stamps, deadline_ns, done); break;
    default: status = mq_vector_write_sized(w, selection, from, item_bytes, time, stamps, deadline_ns, done);
    }
    if (*done != before)
        mq_record_notify_written(w, *done - before, w->parts.config.flags & MQ_RECORD_EXCLUSIVE);
    return status;
}

/* ---- a reader, as the watcher thread knows it (base/poll_ops.h) ---- */

typedef struct {
    const mq_record_file_parts *parts;
    const uint64_t *seen_write_counts; /* what its owner saw last; changes under the watcher's mutex */
    const mq_u64 *not_truncated;       /* 0: others cut the file, which is an error to be had. NULL: nobody tells */
} mq_vector_poll_state;

static inline int mq_vector_is_readable(const void *reader) {
    const mq_vector_poll_state *state = reader;
    if (mq_mapping_was_truncated(state->not_truncated))
        return 1;
    return mq_vector_next_changed(state->parts, state->seen_write_counts, 0) < state->parts->config.length;
}

#endif
