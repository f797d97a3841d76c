/* A writing handle. The handle takes a row, and acquires elements in the name of that row.
 *   `Join` (under the file's lock): reserve a free row or the row of a dead owner. Release all elements and keys that
 *   name the row. Occupy the row with a new generation.
 *   `Write`: acquire the element, fill the copy, and commit (cell.h). Then wake waiting readers.
 *   `Leave` (at any time): release the board's keys or the whole file, if the handle owns them. Then release the row
 *   and the row's lock.
 *
 * If the writer of an element is dead, the next writer takes the element. An owner word names a row and the row's
 * generation. Without the generation, a writer that found the owner dead could take the element from the row's next
 * owner.
 */
#ifndef MQ_RECORDS_WRITER_H
#define MQ_RECORDS_WRITER_H

#include <sched.h>

#include "base/eventcount.h"
#include "base/row_table.h"
#include "records/cell.h"

enum {
    MQ_RECORD_SPINS = 64,  /* number of attempts to acquire a locked element before the writer's liveness is probed */
    MQ_RECORD_YIELDS = 64, /* number of further attempts before the first nap */
    MQ_RECORD_NAP_NS = 50000,
};

typedef struct {
    mq_record_file_parts parts;
    mq_record_row *row; /* NULL: the handle has no row and cannot write */
    uint64_t owner;     /* owner word of this handle: row and generation */
    const mq_liveness_file *liveness_file;
} mq_record_writer;

static inline mq_row_table mq_record_row_table(mq_record_header *header) {
    return (mq_row_table){
        .rows = header->rows, .stride = sizeof(mq_record_row), .count = MQ_RECORD_ROWS, .byte = MQ_RECORD_ROW_BYTE};
}

/* Return the liveness of the owner `holder`. `holder` must not be this handle's own owner word. An owner with an
 * invalid row is MQ_DEAD. */
static inline mq_liveness mq_record_owner_liveness(mq_record_header *header, mq_liveness_probe *probe,
                                                   uint64_t holder) {
    unsigned row = mq_cell_owner_row(holder);
    if (row >= MQ_RECORD_ROWS)
        return MQ_DEAD;
    return mq_row_liveness(probe, &header->rows[row].at, mq_cell_owner_generation(holder),
                           MQ_RECORD_ROW_BYTE + (int)row);
}

/* ---- acquire an element ---- */

/* Take an element from its dead writer. Returns false if the writer is alive, or the element changed. */
static inline bool mq_record_steal_element(mq_record_writer *w, mq_u64 *version) {
    /* Load the version again with acquire. The row then has the identity of the writer that the version names, or of a
     * later owner. */
    uint64_t held = mq_load_acquire_u64(version), holder = mq_cell_version_owner(held);
    if (!holder)
        return mq_cell_try_acquire(version, w->owner) == 0;
    if (holder == w->owner)
        return false; /* another thread of this handle is the writer; the handle's own lock would appear to be free */
    mq_liveness_probe probe = mq_liveness_probe_begin(w->liveness_file);
    bool is_dead = mq_record_owner_liveness(w->parts.header, &probe, holder) == MQ_DEAD;
    mq_liveness_probe_end(&probe);
    return is_dead && mq_cell_steal_ownership(version, held, w->owner);
}

/* Acquire an element. If another writer holds the element, wait for that writer. Returns false if that writer is
 * still alive at the deadline (CLOCK_MONOTONIC). */
static inline bool mq_record_acquire_element(mq_record_writer *w, mq_u64 *version, int64_t deadline_ns) {
    struct timespec nap = mq_timespec_from_ns(MQ_RECORD_NAP_NS);
    for (unsigned tries = 0;; tries++) {
        if (mq_cell_try_acquire(version, w->owner) == 0)
            return true;
        if (tries < MQ_RECORD_SPINS)
            continue;
        if (mq_record_steal_element(w, version))
            return true;
        if (mq_monotonic_ns() >= deadline_ns)
            return false;
        if (tries < MQ_RECORD_SPINS + MQ_RECORD_YIELDS)
            sched_yield();
        else
            nanosleep(&nap, NULL);
    }
}

/* ---- wake ---- */

/* Add `elements` to the row's count of written elements. Threads that share the handle exclude each other. */
static inline void mq_record_count_written(mq_record_writer *w, uint64_t elements) {
    mq_u64 *written = &w->row->written;
    mq_store_relaxed_u64(written, mq_load_relaxed_u64(written) + elements); /* relaxed: for observers */
}

/* Wake waiting readers after a write. `exclusive`: the handle wrote with stores instead of exchanges. */
static inline void mq_record_wake_readers(mq_record_writer *w, bool exclusive) {
    mq_u32 *eventcount = &w->parts.header->eventcount;
    if (exclusive)
        mq_fence_seq_cst(); /* mq_eventcount_has_waiters_mp requires this fence after a store */
    if (mq_unlikely(mq_eventcount_has_waiters_mp(eventcount)))
        mq_eventcount_notify_mp(eventcount);
}

static inline void mq_record_notify_written(mq_record_writer *w, uint64_t elements, bool exclusive) {
    mq_record_count_written(w, elements);
    mq_record_wake_readers(w, exclusive);
}

/* ---- join and leave, under the file's lock ---- */

/* Release all elements and keys whose owner word names this row of a dead owner. The generation in the owner word
 * does not matter. */
static inline void mq_record_reclaim_row(const mq_record_file_parts *parts, unsigned row) {
    bool is_board = parts->config.flags & MQ_RECORD_BOARD;
    for (uint64_t i = 0; i < parts->config.length; i++) {
        mq_u64 *version = mq_cell_version_word(parts, i);
        uint64_t held = mq_load_acquire_u64(version);
        /* The exchange fails if a living writer has just taken the element. */
        if (mq_cell_version_owner(held) && mq_cell_owner_row(mq_cell_version_owner(held)) == row)
            mq_compare_exchange_u64(version, held, mq_cell_write_count(held) << MQ_CELL_COUNT_SHIFT);
        mq_u64 *owner = is_board ? &parts->key_table[i].owner : NULL;
        /* relaxed: locked */
        if (is_board && mq_load_relaxed_u64(owner) && mq_cell_owner_row(mq_load_relaxed_u64(owner)) == row)
            mq_store_release_u64(owner, 0);
    }
    uint64_t owner = mq_load_relaxed_u64(&parts->header->owner); /* relaxed: under the lock */
    if (owner && mq_cell_owner_row(owner) == row)
        mq_store_release_u64(&parts->header->owner, 0);
}

/* Occupy a row that the caller has reserved. */
static inline void mq_record_register_writer(mq_record_writer *w, unsigned row, const mq_process_identity *self,
                                             uint64_t uid, bool held) {
    mq_record_row *mine = &w->parts.header->rows[row];
    /* relaxed: under the lock. An owner that left has released everything */
    if (mq_load_relaxed_u64(&mine->at.participant.uid))
        mq_record_reclaim_row(&w->parts, row);
    w->owner = mq_cell_pack_owner(row, mq_row_table_occupy(&mine->at, self, uid, held));
    w->row = mine;
}

/* Make this handle the owner in *owner. Returns false if the current owner is alive, has unknown liveness, or is
 * this handle. */
static inline bool mq_record_acquire_owner_word(mq_record_writer *w, mq_u64 *owner) {
    uint64_t holder = mq_load_acquire_u64(owner);
    if (holder == w->owner)
        return false;
    if (holder) {
        mq_liveness_probe probe = mq_liveness_probe_begin(w->liveness_file);
        mq_liveness life = mq_record_owner_liveness(w->parts.header, &probe, holder);
        mq_liveness_probe_end(&probe);
        if (life != MQ_DEAD)
            return false;
    }
    mq_store_release_u64(owner, w->owner);
    return true;
}

/* Clear the owner word if this handle is the owner. The last written values become visible before the release. */
static inline void mq_record_release_owner_word(mq_record_writer *w, mq_u64 *owner) {
    mq_compare_exchange_u64(owner, w->owner, 0);
}

static inline void mq_record_unregister_writer(mq_record_writer *w, uint64_t uid, void **liveness_token) {
    bool is_board = w->parts.config.flags & MQ_RECORD_BOARD;
    for (uint64_t i = 0; is_board && i < w->parts.config.length; i++)
        mq_record_release_owner_word(w, &w->parts.key_table[i].owner);
    mq_record_release_owner_word(w, &w->parts.header->owner);
    mq_participant_leave(&w->row->at.participant, uid, liveness_token);
    w->row = NULL;
}

#endif
