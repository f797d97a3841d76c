/* Whose is this uid: of one of ours, or of a stock program? And the ring's 15 reader slots, needed only to be heard by,
 * and to speak to, stock programs.
 *
 * A uid's low half is the thread to signal (0: nobody), its high half is the owner's choice: ours keep the number of
 * their side entry + 1 in its lowest byte, so that a slot's owner is found without a search.
 */
#ifndef MQ_SLOTS_H
#define MQ_SLOTS_H

#include "liveness.h"
#include "position.h"

static inline uint64_t mq_uid(uint32_t random, unsigned entry, uint32_t thread_id) {
    return (uint64_t)((random << 8) | (entry + 1)) << 32 | thread_id;
}
static inline uint32_t mq_uid_thread(uint64_t uid) { return (uint32_t)uid; }

/* The side entry of the subscriber that wrote this uid into a slot; NULL: a stock one. */
static inline const mq_reader_entry *mq_slot_entry(const mq_side *side, uint64_t uid) {
    unsigned entry = (unsigned)(uid >> 32 & 0xff) - 1;
    if (!side || entry >= MQ_READERS || mq_load_acquire_u64(&side->readers[entry].who.uid) != (uid & ~0xffffffffull))
        return NULL;
    return &side->readers[entry];
}

/* The entry of our publisher with this uid; NULL: a stock one, or (0) nobody. */
static inline const mq_publisher_entry *mq_find_publisher(const mq_side *side, uint64_t uid) {
    for (int i = 0; side && uid && i < MQ_PUBLISHERS; i++)
        if (mq_load_acquire_u64(&side->publishers[i].who.uid) == uid)
            return &side->publishers[i];
    return NULL;
}

static inline mq_life mq_slot_life(const mq_side *side, uint64_t uid) {
    const mq_reader_entry *entry = mq_slot_entry(side, uid);
    return entry ? mq_identity_life(&entry->who) : mq_thread_life(mq_uid_thread(uid));
}

/* Tell the publisher to look at the slots again. */
static inline void mq_slots_changed(mq_side *side) {
    if (side)
        mq_fetch_or_u32(&side->attention, MQ_ATTENTION_SLOTS);
}

/* Keep what a stock publisher sees of us true. */
static inline void mq_slot_update(mq_ring_header *ring, int slot, uint64_t cursor) {
    mq_store_release_u64(&ring->read_pointers[slot], cursor);
    mq_store_release_u64(&ring->read_valids[slot], 1);
}

static inline int mq_slot_try(mq_ring_header *ring, int slot, uint64_t old_uid, uint64_t uid, uint64_t cursor) {
    if (!mq_compare_exchange_u64(&ring->read_uids[slot], old_uid, uid))
        return -1;
    mq_slot_update(ring, slot, cursor);
    return slot;
}

/* Take a slot: a free one, a new one, or a dead owner's. -1: all are held by the living; never evict them.
 *
 * A stock joiner that has counted itself in num_readers but not written its uid yet looks like a free slot; it then
 * overwrites ours, we see that our uid is gone, and join again. */
static inline int mq_slot_join(mq_ring_header *ring, mq_side *side, uint64_t uid, uint64_t cursor) {
    uint64_t count = mq_load_acquire_u64(&ring->num_readers);
    for (int i = 0; i < MQ_SLOTS && i < (int)count; i++)
        if (mq_load_acquire_u64(&ring->read_uids[i]) == 0 && mq_slot_try(ring, i, 0, uid, cursor) >= 0)
            return i;
    for (; count < MQ_SLOTS; count = mq_load_acquire_u64(&ring->num_readers))
        if (mq_compare_exchange_u64(&ring->num_readers, count, count + 1) &&
            mq_slot_try(ring, (int)count, 0, uid, cursor) >= 0)
            return (int)count;
    for (int i = 0; i < MQ_SLOTS; i++) {
        uint64_t owner = mq_load_acquire_u64(&ring->read_uids[i]);
        if (mq_slot_life(side, owner) == MQ_DEAD && mq_slot_try(ring, i, owner, uid, cursor) >= 0)
            return i;
    }
    return -1;
}

static inline bool mq_slot_held(const mq_ring_header *ring, int slot, uint64_t uid) {
    return slot >= 0 && (uint64_t)slot < mq_load_acquire_u64(&ring->num_readers) &&
           mq_load_acquire_u64(&ring->read_uids[slot]) == uid;
}

static inline void mq_slot_leave(mq_ring_header *ring, mq_side *side, int slot, uint64_t uid) {
    if (slot < 0 || !mq_compare_exchange_u64(&ring->read_uids[slot], uid, 0))
        return;
    mq_store_release_u64(&ring->read_valids[slot], 0);
    /* The last slot goes back to stock joiners, which know only the counter; unless somebody has just taken it. */
    if (mq_compare_exchange_u64(&ring->num_readers, (uint64_t)slot + 1, (uint64_t)slot) &&
        mq_load_acquire_u64(&ring->read_uids[slot]) != 0)
        mq_compare_exchange_u64(&ring->num_readers, (uint64_t)slot, (uint64_t)slot + 1);
    mq_slots_changed(side);
}

#endif
