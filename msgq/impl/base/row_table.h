/* The rows of those who take part in a piece: finding a free one, taking it, leaving it, and who of them lives.
 *
 *   find    under the piece's lock: a free row, or a dead owner's; its byte of the file is locked (liveness_lock.h)
 *   take    under the same lock: uid 0, then the generation, then the rest, uid last
 *   leave   at any time: uid 0, then the lock
 *
 * A kill after `find` leaves the row as it was, without a lock. A kill in the middle of `take` leaves a free row, perhaps
 * of a new generation, which does no harm. Between `find` and `take` a piece puts right what the dead owner left: others
 * who ask meanwhile are told that it lives, or that it is dead, and both are safe.
 */
#ifndef MQ_ROW_TABLE_H
#define MQ_ROW_TABLE_H

#include "base/liveness_lock.h"

enum { MQ_NO_ROW = -1 };

/* Some rows of one kind. Each begins with an mq_participant. */
typedef struct {
    void *rows;
    size_t stride; /* bytes from one to the next */
    int count;
    int byte; /* of the file, that the owner of the first one locks; the next one locks the next */
} mq_row_table;

static inline mq_participant *mq_row_table_participant(const mq_row_table *row_table, int row) {
    return (mq_participant *)(void *)((uint8_t *)row_table->rows + (size_t)row * row_table->stride);
}

/* Does the owner of a row live, who locks this byte of the file? A free one is dead. */
static inline mq_liveness mq_participant_liveness(mq_liveness_probe *probe, const mq_participant *participant,
                                                  int byte) {
    uint64_t uid = mq_load_acquire_u64(&participant->uid);
    if (uid == 0)
        return MQ_DEAD;
    /* relaxed, all: constant since before uid was set. */
    uint64_t pid = mq_load_relaxed_u64(&participant->pid),
             pid_namespace = mq_load_relaxed_u64(&participant->pid_namespace);
    if (mq_load_relaxed_u64(&participant->locked_uid) == uid)
        return mq_owner_liveness(probe, (uint64_t)byte, pid, pid_namespace);
    return mq_process_liveness(pid, mq_load_relaxed_u64(&participant->start_time), pid_namespace);
}

/* Find a row, under the lock: a free one, or a dead owner's. Returns its number, with its lock in *liveness_token
 * (NULL: locks are not to be had here), or MQ_NO_ROW. */
static inline int mq_row_table_reserve(const mq_row_table *row_table, const mq_liveness_file *liveness_file,
                                       void **liveness_token) {
    mq_liveness_probe probe = mq_liveness_probe_begin(liveness_file);
    int found = MQ_NO_ROW;
    for (int pass = 0; pass < 2 && found < 0; pass++) /* free ones first: asking for the dead costs system calls */
        for (int row = 0; row < row_table->count && found < 0; row++) {
            mq_participant *participant =
                mq_row_table_participant(row_table, row); /* relaxed: under the lock nobody else fills it */
            int byte = row_table->byte + row;
            if (mq_load_relaxed_u64(&participant->uid) &&
                !(pass && mq_participant_liveness(&probe, participant, byte) == MQ_DEAD))
                continue;
            *liveness_token = mq_liveness_lock(liveness_file, (uint64_t)byte, false);
            if (*liveness_token ||
                errno != EAGAIN) /* EAGAIN: its owner is just leaving, or a child of it that nobody knows of */
                found = row;
        }
    mq_liveness_probe_end(&probe);
    return found;
}

/* Fill the identity of a row that was found. uid comes last: it makes the rest valid. */
static inline void mq_participant_write(mq_participant *participant, const mq_process_identity *self, uint64_t uid,
                                        bool held) {
    mq_store_release_u64(&participant->uid, 0);
    mq_fence_release();
    mq_store_relaxed_u64(&participant->pid, self->pid); /* relaxed, as all below: the release of uid publishes them */
    mq_store_relaxed_u64(&participant->thread_id, self->thread_id);
    mq_store_relaxed_u64(&participant->start_time, self->start_time);
    mq_store_relaxed_u64(&participant->pid_namespace, self->pid_namespace);
    mq_copy_to_shared(participant->name, self->name, sizeof participant->name);
    mq_store_relaxed_u64(&participant->locked_uid, held ? uid : 0);
    mq_store_release_u64(&participant->uid, uid);
}

/* An owner leaves at any time, without the lock: one store. */
static inline void mq_participant_clear(mq_participant *participant) { mq_store_release_u64(&participant->uid, 0); }

/* An owner leaves its own row, and then unlocks it. Without locks, a process of another PID namespace may have taken
 * the row. */
static inline void mq_participant_leave(mq_participant *participant, uint64_t uid, void **liveness_token) {
    mq_compare_exchange_u64(&participant->uid, uid, 0);
    mq_liveness_unlock(*liveness_token);
    *liveness_token = NULL;
}

/* ---- rows with a generation, for pieces whose words name their owner ---- */

/* Take a row that was found. Returns its generation: a word that names row and generation names this owner alone, until
 * the row has been taken 65,536 times. The caller puts right what names the owner before it, and only then calls this.
 * */
static inline uint16_t mq_row_table_occupy(mq_versioned_row *row, const mq_process_identity *self, uint64_t uid,
                                           bool held) {
    uint64_t generation = mq_load_relaxed_u64(&row->generation) + 1; /* relaxed: only lock holders write it */
    mq_participant_clear(&row->participant);
    /* Before this owner's first word, which is released: who has loaded that (acquire) finds this generation, or a
     * later. */
    mq_store_release_u64(&row->generation, generation);
    mq_participant_write(&row->participant, self, uid, held);
    return (uint16_t)generation;
}

/* Does the owner live whom a word names? The word was loaded with acquire, so another generation is a later one: the
 * row has changed hands. An owner who took the row a moment ago may be taken for the one who was named: then the next
 * look tells. */
static inline mq_liveness mq_row_liveness(mq_liveness_probe *probe, const mq_versioned_row *row, uint16_t generation,
                                          int byte) {
    if ((uint16_t)mq_load_acquire_u64(&row->generation) != generation)
        return MQ_DEAD;
    return mq_participant_liveness(probe, &row->participant, byte);
}

#endif
