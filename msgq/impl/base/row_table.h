/* Rows of the participants in a component's file. The functions reserve, occupy and leave a row, and test the liveness
 * of its owner.
 *
 * To reserve a row, under the component's lock, a process finds a free row or a dead owner's row, and locks its byte
 * (liveness_lock.h).
 * To occupy the row, under the same lock, the process stores uid 0, then the generation, then the other fields, and
 * last the new uid.
 * To leave the row, at any time, the owner stores uid 0, and then releases the byte's lock.
 *
 * If the process is killed after the reserve, the row stays unchanged and unlocked. If the process is killed during the
 * occupy, the row is free. The row may then have a new generation, which is harmless. Between reserve and occupy, the
 * component repairs the state that the dead owner left. During the repair, a probe may safely report the dead owner as
 * alive or as dead.
 */
#ifndef MQ_ROW_TABLE_H
#define MQ_ROW_TABLE_H

#include "base/liveness_lock.h"

enum { MQ_NO_ROW = -1 };

/* Rows of one type. Each row begins with an mq_participant. */
typedef struct {
    void *rows;
    size_t stride; /* bytes from one row to the next */
    int count;
    int byte; /* byte of the file that the first row's owner locks; the next row has the next byte */
} mq_row_table;

static inline mq_participant *mq_row_table_participant(const mq_row_table *row_table, int row) {
    return (mq_participant *)(void *)((uint8_t *)row_table->rows + (size_t)row * row_table->stride);
}

/* Return the liveness of a row's owner. `byte` is the byte of the file that the owner locks. A free row is MQ_DEAD. */
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

/* Reserve a row under the lock: a free row, or a dead owner's row. Returns the index of the row, or MQ_NO_ROW.
 * *liveness_token is the lock of the row (NULL: the file system has no such locks). */
static inline int mq_row_table_reserve(const mq_row_table *row_table, const mq_liveness_file *liveness_file,
                                       void **liveness_token) {
    mq_liveness_probe probe = mq_liveness_probe_begin(liveness_file);
    int found = MQ_NO_ROW;
    for (int pass = 0; pass < 2 && found < 0; pass++) /* free rows first: a liveness test costs system calls */
        for (int row = 0; row < row_table->count && found < 0; row++) {
            /* relaxed: under the lock no other process writes it */
            mq_participant *participant = mq_row_table_participant(row_table, row);
            int byte = row_table->byte + row;
            if (mq_load_relaxed_u64(&participant->uid) &&
                !(pass && mq_participant_liveness(&probe, participant, byte) == MQ_DEAD))
                continue;
            *liveness_token = mq_liveness_lock(liveness_file, (uint64_t)byte, false);
            /* EAGAIN: the row's owner is leaving, or an unknown child of the owner holds the lock */
            if (*liveness_token || errno != EAGAIN)
                found = row;
        }
    mq_liveness_probe_end(&probe);
    return found;
}

/* Write the identity into a reserved row. The last store writes uid, which makes the row valid. */
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

/* Free a row with one store. An owner may free its row at any time without the lock. */
static inline void mq_participant_clear(mq_participant *participant) { mq_store_release_u64(&participant->uid, 0); }

/* Leave a row of this process, and then unlock the row. On a file system without locks, a process of another PID
 * namespace may already have taken the row. Therefore the row is cleared only if it still has this uid. */
static inline void mq_participant_leave(mq_participant *participant, uint64_t uid, void **liveness_token) {
    mq_compare_exchange_u64(&participant->uid, uid, 0);
    mq_liveness_unlock(*liveness_token);
    *liveness_token = NULL;
}

/* ---- rows with a generation, for components whose words contain the row and generation of their owner ---- */

/* Occupy a reserved row. Returns the row's new generation. A word with row and generation identifies this owner until
 * the row has had 65,536 more owners. Before this call, the caller repairs words that name the previous owner. */
static inline uint16_t mq_row_table_occupy(mq_versioned_row *row, const mq_process_identity *self, uint64_t uid,
                                           bool held) {
    uint64_t generation = mq_load_relaxed_u64(&row->generation) + 1; /* relaxed: only lock holders write it */
    mq_participant_clear(&row->participant);
    /* The generation is stored first. The owner stores its words later, with release. A process that loads a word of
     * the owner with acquire finds this generation or a later generation. */
    mq_store_release_u64(&row->generation, generation);
    mq_participant_write(&row->participant, self, uid, held);
    return (uint16_t)generation;
}

/* Return the liveness of the owner that a word names. The caller loaded the word with acquire. If the row's generation
 * differs from the word's generation, the row's generation is later, and the row has another owner. If the row gets a
 * new owner during this test, the test may report the new owner's liveness. The next liveness test finds the later
 * generation. */
static inline mq_liveness mq_row_liveness(mq_liveness_probe *probe, const mq_versioned_row *row, uint16_t generation,
                                          int byte) {
    if ((uint16_t)mq_load_acquire_u64(&row->generation) != generation)
        return MQ_DEAD;
    return mq_participant_liveness(probe, &row->participant, byte);
}

#endif
