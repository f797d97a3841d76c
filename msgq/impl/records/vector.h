/* Operations on many elements: read and write in one call, compare with the last seen counts, take a snapshot.
 *
 * A reader repeats an element only if a write of this element was completed during the copy. After several attempts the
 * call returns, so that the caller can check its timeout.
 */
#ifndef MQ_RECORDS_VECTOR_H
#define MQ_RECORDS_VECTOR_H

#include "base/poll_ops.h"
#include "base/truncation.h"
#include "records/writer.h"

enum {
    MQ_VECTOR_TRIES = 100,
    MQ_VECTOR_STEP = 4,       /* number of elements read with one fence */
    MQ_VECTOR_PREFETCH = 128, /* number of elements that a scan prefetches */
};

/* The selected elements. If `indices` is set, its `count` entries select the elements. If `indices` is NULL, `count`
 * elements are selected, starting at `first`. */
typedef struct {
    const int64_t *indices; /* NULL: the elements start at `first` */
    uint64_t first, count;
} mq_element_selection;

static inline uint64_t mq_element_selection_index_at(const mq_element_selection *selection, uint64_t i) {
    return selection->indices ? (uint64_t)selection->indices[i] : selection->first + i;
}

/* True if all indices are smaller than the vector's length. */
static inline bool mq_vector_indices_are_valid(const mq_record_file_parts *parts, const int64_t *indices,
                                               uint64_t count) {
    bool all = true;
    for (uint64_t i = 0; i < count; i++)
        /* as unsigned numbers, negative indices are larger than any length */
        all &= (uint64_t)indices[i] < parts->config.length;
    return all;
}

/* ---- read ---- */

/* Information about elements in addition to their values. Each pointer may be NULL. */
typedef struct {
    uint64_t *write_counts;  /* number of writes of each element */
    int64_t *write_times_ns; /* time of the last write of each element */
} mq_vector_read_info;

/* Copy one element. Returns false if a writer replaced the element during every attempt. */
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

/* Copy MQ_VECTOR_STEP elements with one fence. Returns false if an element was written during the copy. */
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

/* Read the selected elements. Returns the number of elements read. The number is smaller than the selection if
 * writers replaced an element during every attempt. Stores the values in `to`, in the order of the selection. Stores
 * each element's number of writes in `counts`, unless `counts` is NULL. */
static inline __attribute__((always_inline)) uint64_t mq_vector_read_sized(const mq_record_file_parts *parts,
                                                                           const mq_element_selection *selection,
                                                                           uint8_t *to, size_t item_bytes,
                                                                           uint64_t *counts) {
    /* local copies show the compiler that writes to `to` do not change these values */
    const mq_record_file_parts layout = *parts;
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

/* Call mq_vector_read_sized with a constant size, so that the compiler inlines the copy. */
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

/* Read elements as mq_vector_read_elements does, and return additional information. If `to` is NULL, the call reads
 * no values. */
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

/* ---- changes ---- */

/* Return the first element, starting at `from`, whose count differs from `seen`. Returns the length if no count
 * differs. */
static inline uint64_t mq_vector_next_changed(const mq_record_file_parts *parts, const uint64_t *seen, uint64_t from) {
    const uint64_t stride = parts->stride, length = parts->config.length;
    const uint8_t *at = (const uint8_t *)mq_cell_version_word(parts, from);
    uint64_t i = from;
    for (; i < length; i++, at += stride) {
        /* prefetch hint: the CPU does not predict strides above one cache line */
        __builtin_prefetch(at + MQ_VECTOR_PREFETCH * stride);
        if (mq_cell_write_count(mq_load_acquire_u64((const mq_u64 *)(const void *)at)) != seen[i])
            break;
    }
    return i;
}

/* Store the indices of changed elements in `indices`. Start at element `from`, and store at most `indices_max` indices.
 * Returns the number of stored indices. */
static inline uint64_t mq_vector_collect_changed(const mq_record_file_parts *parts, const uint64_t *seen, uint64_t from,
                                                 int64_t *indices, uint64_t indices_max) {
    uint64_t count = 0;
    for (uint64_t i = mq_vector_next_changed(parts, seen, from); i < parts->config.length && count < indices_max;
         i = mq_vector_next_changed(parts, seen, i + 1))
        indices[count++] = (int64_t)i;
    return count;
}

/* Do one step of a snapshot. A snapshot holds the values of all elements at one instant. The step reads again each
 * element that changed since its last read. Returns false if an element had changed. The caller then repeats the
 * step. If an element's count is unchanged, the element had the same value from its read until the comparison. If
 * all counts are unchanged, the snapshot holds the values at the instant between the last read and the first
 * comparison. Each step compares all elements, including elements that the step did not read. */
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

/* ---- write ---- */

static inline void mq_vector_fill_copy(mq_u64 *value, const uint8_t *from, size_t item_bytes, const mq_stamps *stamps) {
    mq_copy_to_shared(value, stamps, sizeof *stamps);
    mq_copy_to_shared((uint8_t *)value + sizeof *stamps, from + sizeof *stamps, item_bytes - sizeof *stamps);
}

typedef enum {
    MQ_VECTOR_WRITTEN,
    MQ_VECTOR_LOCKED,  /* a living writer held the element until the deadline */
    MQ_VECTOR_CORRUPT, /* another program wrote the element without permission */
} mq_vector_status;

/* Acquire an element, and fill its next copy. If another writer holds the element, wait until `deadline_ns`
 * (CLOCK_MONOTONIC). If `deadline_ns` is 0, do not wait. */
static inline __attribute__((always_inline)) mq_vector_status mq_vector_fill_one(mq_record_writer *w, mq_u64 *version,
                                                                                 const uint8_t *from, size_t item_bytes,
                                                                                 int64_t time, const mq_stamps *stamps,
                                                                                 int64_t deadline_ns) {
    bool exclusive = w->parts.config.flags & MQ_RECORD_EXCLUSIVE;
    if (!exclusive && mq_unlikely(mq_cell_try_acquire(version, w->owner)) &&
        (!deadline_ns || !mq_record_acquire_element(w, version, deadline_ns)))
        return MQ_VECTOR_LOCKED;
    mq_u64 *value = mq_cell_begin_write(&w->parts, version, (uint64_t)time);
    if (stamps)
        mq_vector_fill_copy(value, from, w->parts.config.item_bytes, stamps);
    else
        mq_copy_to_shared(value, from, item_bytes);
    return MQ_VECTOR_WRITTEN;
}

/* Publish the filled copy of an element, and release the element. */
static inline __attribute__((always_inline)) mq_vector_status mq_vector_commit_one(mq_record_writer *w,
                                                                                   mq_u64 *version) {
    if (w->parts.config.flags & MQ_RECORD_EXCLUSIVE)
        mq_cell_commit_exclusive_write(&w->parts, version);
    else if (mq_unlikely(!mq_cell_commit_write(&w->parts, version, w->owner)))
        return MQ_VECTOR_CORRUPT;
    return MQ_VECTOR_WRITTEN;
}

/* Write values in order until one write fails. `done` counts the written values. */
static inline __attribute__((always_inline)) mq_vector_status
mq_vector_write_sized(mq_record_writer *w, const mq_element_selection *selection, const uint8_t *from,
                      size_t item_bytes, int64_t time, const mq_stamps *stamps, int64_t deadline_ns, uint64_t *done) {
    mq_vector_status status = MQ_VECTOR_WRITTEN;
    uint64_t i = *done;
    for (; i < selection->count; i++) {
        mq_u64 *version = mq_cell_version_word(&w->parts, mq_element_selection_index_at(selection, i));
        status = mq_vector_fill_one(w, version, from + i * item_bytes, item_bytes, time, stamps, deadline_ns);
        if (mq_likely(status == MQ_VECTOR_WRITTEN))
            status = mq_vector_commit_one(w, version);
        if (status != MQ_VECTOR_WRITTEN)
            break;
    }
    *done = i;
    return status;
}

/* Write values as mq_vector_write_sized does, then wake waiting readers. The caller adds the values to the row's count.
 * Constant sizes let the compiler inline the copy. */
static inline mq_vector_status mq_vector_write_uncounted(mq_record_writer *w, const mq_element_selection *selection,
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
        mq_record_wake_readers(w, w->parts.config.flags & MQ_RECORD_EXCLUSIVE);
    return status;
}

/* Write values, wake waiting readers, and count the values, while no other thread uses the handle. */
static inline mq_vector_status mq_vector_write_elements(mq_record_writer *w, const mq_element_selection *selection,
                                                        const uint8_t *from, int64_t time, const mq_stamps *stamps,
                                                        int64_t deadline_ns, uint64_t *done) {
    uint64_t before = *done;
    mq_vector_status status = mq_vector_write_uncounted(w, selection, from, time, stamps, deadline_ns, done);
    mq_record_count_written(w, *done - before);
    return status;
}

/* ---- a reader, as polled by the watcher thread (base/poll_ops.h) ---- */

typedef struct {
    const mq_record_file_parts *parts;
    const uint64_t *seen_write_counts; /* write counts that the reader saw last; written under the watcher's mutex */
    /* 0: the file was truncated, and the reader's next call raises an error. NULL: no guard */
    const mq_u64 *not_truncated;
} mq_vector_poll_state;

static inline int mq_vector_is_readable(const void *reader) {
    const mq_vector_poll_state *state = reader;
    if (mq_mapping_was_truncated(state->not_truncated))
        return 1;
    return mq_vector_next_changed(state->parts, state->seen_write_counts, 0) < state->parts->config.length;
}

#endif
