/* One handle that writes: it takes a row, and takes elements by that row's name.
 *
 *   join    under the file's lock: a free row, or a dead owner's. What names that row is given back first; then the row is
 *           taken, with another generation
 *   write   take, fill, turn (cell.h); then tell those who wait
 *   leave   at any time: what it owns for longer than a call (a board's keys, the whole file), the row, its lock
 *
 * An element whose writer died is taken from it by the next one who writes there. A word names row and generation: without
 * that a writer who has asked whether a row's owner is dead could take the element from the row's next owner.
 */
#ifndef MQ_RECORDS_WRITER_H
#define MQ_RECORDS_WRITER_H

#include <sched.h>

#include "base/eventcount.h"
#include "base/row_table.h"
#include "records/cell.h"

enum {
    MQ_RECORD_SPINS = 64,  /* looks at a held element before anybody is asked whether its holder lives */
    MQ_RECORD_YIELDS = 64, /* and after that, before the first nap */
    MQ_RECORD_NAP_NS = 50000,
};

typedef struct {
    mq_record_file_parts parts;
    mq_record_row *row; /* NULL: it has none, and cannot write */
    uint64_t owner;     /* the row's name in words */
    const mq_liveness_file *liveness_file;
} mq_record_writer;

static inline mq_row_table mq_record_row_table(mq_record_header *header) {
    return (mq_row_table){
        .rows = header->rows, .stride = sizeof(mq_record_row), .count = MQ_RECORD_ROWS, .byte = MQ_RECORD_ROW_BYTE};
}

/* Whether it lives who is named, by somebody who is not that. Of names that nobody has: no. */
static inline mq_liveness mq_record_owner_liveness(mq_record_header *header, mq_liveness_probe *probe,
                                                   uint64_t holder) {
    unsigned row = mq_cell_owner_row(holder);
    if (row >= MQ_RECORD_ROWS)
        return MQ_DEAD;
    return mq_row_liveness(probe, &header->rows[row].at, mq_cell_owner_generation(holder),
                           MQ_RECORD_ROW_BYTE + (int)row);
}

/* ---- taking an element ---- */

/* Take it from its holder if that is dead. False: it is alive, or the element has changed. */
static inline bool mq_record_steal_element(mq_record_writer *w, mq_u64 *version) {
    /* Anew, and with acquire: who is named here has taken its row before. */
    uint64_t held = mq_load_acquire_u64(version), holder = mq_cell_version_owner(held);
    if (!holder)
        return mq_cell_try_acquire(version, w->owner) == 0;
    if (holder == w->owner)
        return false; /* another thread of ours: our own lock looks free to us */
    mq_liveness_probe probe = mq_liveness_probe_begin(w->liveness_file);
    bool is_dead = mq_record_owner_liveness(w->parts.header, &probe, holder) == MQ_DEAD;
    mq_liveness_probe_end(&probe);
    return is_dead && mq_cell_steal_ownership(version, held, w->owner);
}

/* Take an element, whoever has it; false: its holder lives, and has not finished by the deadline (CLOCK_MONOTONIC). */
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

/* ---- telling ---- */

/* So many elements were written. With `alone`, by stores. */
static inline void mq_record_notify_written(mq_record_writer *w, uint64_t elements, bool exclusive) {
    mq_u64 *written = &w->row->written;
    mq_u32 *eventcount = &w->parts.header->eventcount;
    mq_store_relaxed_u64(written, mq_load_relaxed_u64(written) + elements); /* relaxed: for those who look on */
    if (exclusive)
        mq_fence_seq_cst(); /* as mq_eventcount_has_waiters_mp wants it behind a store */
    if (mq_unlikely(mq_eventcount_has_waiters_mp(eventcount)))
        mq_eventcount_notify_mp(eventcount);
}

/* ---- coming and going, under the file's lock ---- */

/* Nobody has the elements and keys any more that name a dead owner's row, whatever the generation. */
static inline void mq_record_reclaim_row(const mq_record_file_parts *parts, unsigned row) {
    bool is_board = parts->config.flags & MQ_RECORD_BOARD;
    for (uint64_t i = 0; i < parts->config.length; i++) {
        mq_u64 *version = mq_cell_version_word(parts, i);
        uint64_t held = mq_load_acquire_u64(version);
        if (mq_cell_version_owner(held) &&
            mq_cell_owner_row(mq_cell_version_owner(held)) == row) /* or a living writer has just taken it away */
            mq_compare_exchange_u64(version, held, mq_cell_write_count(held) << MQ_CELL_COUNT_SHIFT);
        mq_u64 *owner = is_board ? &parts->key_table[i].owner : NULL;
        if (is_board && mq_load_relaxed_u64(owner) &&
            mq_cell_owner_row(mq_load_relaxed_u64(owner)) == row) /* relaxed: locked */
            mq_store_release_u64(owner, 0);
    }
    uint64_t owner = mq_load_relaxed_u64(&parts->header->owner); /* relaxed: under the lock */
    if (owner && mq_cell_owner_row(owner) == row)
        mq_store_release_u64(&parts->header->owner, 0);
}

/* Take a row that was found. */
static inline void mq_record_register_writer(mq_record_writer *w, unsigned row, const mq_process_identity *self,
                                             uint64_t uid, bool held) {
    mq_record_row *mine = &w->parts.header->rows[row];
    if (mq_load_relaxed_u64(
            &mine->at.participant.uid)) /* relaxed: under the lock. Who left in order has given back all */
        mq_record_reclaim_row(&w->parts, row);
    w->owner = mq_cell_pack_owner(row, mq_row_table_occupy(&mine->at, self, uid, held));
    w->row = mine;
}

/* Own a word that names an owner. False: its owner lives, or that cannot be told; `us` counts as one that does. */
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

/* Own it no more. The last values that were written are there before. */
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
