/* The owner behind each uid (a msgq or stock process), and the 15 reader slots of the ring. Subscribers need a slot
 * only to communicate with stock programs.
 *
 * The low half of a uid is the id of the thread to signal, or 0. The owner chooses the high half. In a uid of msgq, the
 * lowest byte of the high half is the owner's row in the side segment + 1. msgq therefore finds the owner of a slot
 * without a search.
 */
#ifndef MQ_RING_READER_SLOTS_H
#define MQ_RING_READER_SLOTS_H

#include "base/row_table.h"
#include "ring/position.h"

enum { MQ_READER_SLOT_TRIES = 1000 }; /* attempts to claim a new slot while other subscribers claim or release slots */

static inline uint64_t mq_ring_make_uid(uint32_t random, unsigned row, uint32_t thread_id) {
    return (uint64_t)((random << 8) | (row + 1)) << 32 | thread_id;
}
static inline uint32_t mq_ring_uid_thread_id(uint64_t uid) { return (uint32_t)uid; }

/* Return the side segment's row of the subscriber with this uid. Returns NULL for a stock subscriber. */
static inline const mq_ring_subscriber_row *mq_reader_slot_find_subscriber(const mq_ring_side *side, uint64_t uid) {
    unsigned row = (unsigned)(uid >> 32 & 0xff) - 1;
    if (!side || row >= MQ_RING_SUBSCRIBERS ||
        mq_load_acquire_u64(&side->subscribers[row].participant.uid) != (uid & ~0xffffffffull))
        return NULL;
    return &side->subscribers[row];
}

/* Return the row of the msgq publisher with this uid. Returns NULL for a stock publisher and for uid 0. */
static inline const mq_ring_publisher_row *mq_ring_find_publisher(const mq_ring_side *side, uint64_t uid) {
    for (int i = 0; side && uid && i < MQ_RING_PUBLISHERS; i++)
        if (mq_load_acquire_u64(&side->publishers[i].participant.uid) == uid)
            return &side->publishers[i];
    return NULL;
}

/* ---- rows: numbered from 0, publishers first, then subscribers. The owner of row n locks byte n of the side
 * segment ---- */

enum {
    MQ_RING_ROWS = MQ_RING_PUBLISHERS + MQ_RING_SUBSCRIBERS,
    MQ_RING_ROW_UNREGISTERED = MQ_RING_ROWS, /* locked (shared) by all subscribers that have no row */
};

static inline mq_participant *mq_ring_row_participant(mq_ring_side *side, int row) {
    return row < MQ_RING_PUBLISHERS ? &side->publishers[row].participant
                                    : &side->subscribers[row - MQ_RING_PUBLISHERS].participant;
}
static inline int mq_ring_subscriber_row_index(const mq_ring_side *side, const mq_ring_subscriber_row *row) {
    return MQ_RING_PUBLISHERS + (int)(row - side->subscribers);
}

static inline mq_row_table mq_ring_publisher_row_table(mq_ring_side *side) {
    return (mq_row_table){side->publishers, sizeof *side->publishers, MQ_RING_PUBLISHERS, 0};
}
static inline mq_row_table mq_ring_subscriber_row_table(mq_ring_side *side) {
    return (mq_row_table){side->subscribers, sizeof *side->subscribers, MQ_RING_SUBSCRIBERS, MQ_RING_PUBLISHERS};
}

/* Return the liveness of a row's owner. The liveness of a free row is MQ_DEAD. */
static inline mq_liveness mq_ring_row_liveness(mq_liveness_probe *probe, const mq_ring_side *side, int row) {
    return mq_participant_liveness(probe, mq_ring_row_participant((mq_ring_side *)side, row), row);
}

static inline mq_liveness mq_reader_slot_liveness(mq_liveness_probe *probe, const mq_ring_side *side, uint64_t uid) {
    const mq_ring_subscriber_row *row = mq_reader_slot_find_subscriber(side, uid);
    return row ? mq_ring_row_liveness(probe, side, mq_ring_subscriber_row_index(side, row))
               : mq_thread_liveness(mq_ring_uid_thread_id(uid));
}

/* ---- slots ---- */

/* Ask the publisher to scan the slots. */
static inline void mq_reader_slots_announce_change(mq_ring_side *side) {
    if (side)
        mq_fetch_or_u32(&side->eventcount, MQ_EVENTCOUNT_SLOTS);
}

/* Show the cursor to stock publishers. */
static inline void mq_reader_slot_write_cursor(mq_ring_header *ring, int slot, uint64_t cursor) {
    mq_store_release_u64(&ring->read_pointers[slot], cursor);
    mq_store_release_u64(&ring->read_valids[slot], 1);
}

static inline int mq_reader_slot_try_claim(mq_ring_header *ring, int slot, uint64_t old_uid, uint64_t uid,
                                           uint64_t cursor) {
    if (!mq_compare_exchange_u64(&ring->read_uids[slot], old_uid, uid))
        return -1;
    mq_reader_slot_write_cursor(ring, slot, cursor);
    return slot;
}

static inline int mq_reader_slot_claim_dead(mq_ring_header *ring, mq_ring_side *side,
                                            const mq_liveness_file *liveness_file, uint64_t uid, uint64_t cursor) {
    mq_liveness_probe probe = mq_liveness_probe_begin(liveness_file);
    int slot = -1;
    for (int i = 0; i < MQ_READER_SLOTS && slot < 0; i++) {
        uint64_t owner = mq_load_acquire_u64(&ring->read_uids[i]);
        if (mq_reader_slot_liveness(&probe, side, owner) == MQ_DEAD)
            slot = mq_reader_slot_try_claim(ring, i, owner, uid, cursor);
    }
    mq_liveness_probe_end(&probe);
    return slot;
}

/* Claim a slot: a free slot, a new slot, or a dead owner's slot. Returns -1 if living owners hold all slots: msgq
 * never evicts an owner. A joining stock subscriber increments num_readers before it writes its uid. Before the
 * stock subscriber writes its uid, its slot looks free. If a msgq subscriber claims this free-looking slot, the
 * stock subscriber overwrites the uid of the msgq subscriber. The msgq subscriber then detects that its uid is gone,
 * and claims another slot. */
static inline int mq_reader_slot_claim(mq_ring_header *ring, mq_ring_side *side, const mq_liveness_file *liveness_file,
                                       uint64_t uid, uint64_t cursor) {
    uint64_t count = mq_load_acquire_u64(&ring->num_readers);
    for (int i = 0; i < MQ_READER_SLOTS && i < (int)count; i++)
        if (mq_load_acquire_u64(&ring->read_uids[i]) == 0 && mq_reader_slot_try_claim(ring, i, 0, uid, cursor) >= 0)
            return i;
    /* Bound: MQ_READER_SLOT_TRIES. The bound is reached only if other readers join and leave constantly. If the
     * bound is reached, claim the slot of a dead reader, or none. */
    for (int tries = 0; count < MQ_READER_SLOTS && tries < MQ_READER_SLOT_TRIES;
         tries++, count = mq_load_acquire_u64(&ring->num_readers))
        if (mq_compare_exchange_u64(&ring->num_readers, count, count + 1) &&
            mq_reader_slot_try_claim(ring, (int)count, 0, uid, cursor) >= 0)
            return (int)count;
    return mq_reader_slot_claim_dead(ring, side, liveness_file, uid, cursor);
}

static inline bool mq_reader_slot_is_mine(const mq_ring_header *ring, int slot, uint64_t uid) {
    return slot >= 0 && (uint64_t)slot < mq_load_acquire_u64(&ring->num_readers) &&
           mq_load_acquire_u64(&ring->read_uids[slot]) == uid;
}

static inline void mq_reader_slot_release(mq_ring_header *ring, mq_ring_side *side, int slot, uint64_t uid) {
    if (slot < 0 || !mq_compare_exchange_u64(&ring->read_uids[slot], uid, 0))
        return;
    mq_store_release_u64(&ring->read_valids[slot], 0);
    /* Stock subscribers use only num_readers. Therefore decrement num_readers if this slot is the last one. Restore
     * num_readers if another subscriber just claimed the slot. */
    if (mq_compare_exchange_u64(&ring->num_readers, (uint64_t)slot + 1, (uint64_t)slot) &&
        mq_load_acquire_u64(&ring->read_uids[slot]) != 0)
        mq_compare_exchange_u64(&ring->num_readers, (uint64_t)slot, (uint64_t)slot + 1);
    mq_reader_slots_announce_change(side);
}

#endif
