/* One order of messages, of several writers: a ring of entries, each of which says where its message lies.
 *
 *   entry   position mod 2^44 (bits 63..20) | row of the owner (19..14) | slot of the owner's pool (13..0)
 *   tail    the next position, or the one before it: a publisher may have stopped between its entry and its tail
 *
 * A publisher writes its message first, and gives it a position with one exchange of an entry. So there is no message
 * that is half there, and nobody waits for anybody: an exchange fails because another one succeeded. An entry is changed
 * at most twice for a position: it gets its message, and its owner (or a joiner, for a dead owner) retracts that.
 */
#ifndef MQ_INDEX_RING_H
#define MQ_INDEX_RING_H

#include "base/atomics.h"

enum {
    MQ_INDEX_RING_SLOT_BITS = 14,
    MQ_INDEX_RING_ROW_BITS = 6,
    MQ_INDEX_RING_SHIFT = 20,     /* of the position */
    MQ_INDEX_RING_RETRACTED = 63, /* instead of a row: there is no message any more */
    MQ_INDEX_RING_STUCK = 1000,   /* rounds in which nothing has changed, and nothing makes sense: foreign bytes */
    MQ_INDEX_RING_TRIES = 10000, /* exchanges that fail for one message, each because another publisher has succeeded */
};
#define MQ_INDEX_RING_NO_POSITION UINT64_MAX
#define MQ_INDEX_RING_DISTANCE_MAX (1ull << (63 - MQ_INDEX_RING_SHIFT)) /* positions that an entry can be ahead */

typedef struct {
    mq_u64 *tail;
    mq_u64 *entries;
    uint64_t capacity; /* entries, a power of two; 0: not settled */
} mq_index_ring;

static inline uint64_t mq_index_entry_pack(uint64_t position, unsigned row, unsigned slot) {
    return position << MQ_INDEX_RING_SHIFT | (uint64_t)row << MQ_INDEX_RING_SLOT_BITS | slot;
}
static inline unsigned mq_index_entry_pool_row(uint64_t entry) {
    return (unsigned)(entry >> MQ_INDEX_RING_SLOT_BITS) & ((1u << MQ_INDEX_RING_ROW_BITS) - 1);
}
static inline unsigned mq_index_entry_pool_slot(uint64_t entry) {
    return (unsigned)entry & ((1u << MQ_INDEX_RING_SLOT_BITS) - 1);
}
/* How far an entry's position is ahead of `position`. */
static inline int64_t mq_index_entry_positions_ahead(uint64_t entry, uint64_t position) {
    return (int64_t)((entry >> MQ_INDEX_RING_SHIFT << MQ_INDEX_RING_SHIFT) - (position << MQ_INDEX_RING_SHIFT)) >>
           MQ_INDEX_RING_SHIFT;
}

/* The later of two positions. One that is further ahead than positions of entries can tell comes of foreign bytes. */
static inline uint64_t mq_index_ring_max_position(uint64_t position, uint64_t known) {
    return position - known < MQ_INDEX_RING_DISTANCE_MAX ? position : known;
}

static inline mq_u64 *mq_index_ring_entry_at(const mq_index_ring *order, uint64_t position) {
    return &order->entries[position & (order->capacity - 1)];
}

/* The order of a segment that nobody else has so far, or whose lock is held before the first message. */
static inline void mq_index_ring_init(const mq_index_ring *order) {
    for (uint64_t i = 0; i < order->capacity; i++)
        mq_store_relaxed_u64(&order->entries[i],
                             mq_index_entry_pack(i, MQ_INDEX_RING_RETRACTED, 0)); /* relaxed: released with tail */
    /* EDGE order-init: release. Partner: mq_index_ring_load_tail */
    mq_store_release_u64(order->tail, order->capacity);
}

/* The next position, or the one before it. 0: the order has not begun. */
static inline uint64_t mq_index_ring_load_tail(const mq_index_ring *order) {
    /* EDGE order-init: acquire. Who finds a tail finds entries. Partner: mq_index_ring_init */
    return mq_load_acquire_u64(order->tail);
}

/* Give the message in a slot its position. Returns that; MQ_INDEX_RING_NO_POSITION: the words make no sense. */
static inline uint64_t mq_index_ring_publish_entry(const mq_index_ring *order, unsigned row, unsigned slot) {
    uint64_t last_position = MQ_INDEX_RING_NO_POSITION, last = 0;
    /* Bound: MQ_INDEX_RING_TRIES rounds, MQ_INDEX_RING_STUCK if nothing changes. */
    for (int stuck = 0, tries = 0; stuck < MQ_INDEX_RING_STUCK && tries < MQ_INDEX_RING_TRIES; tries++) {
        uint64_t position = mq_index_ring_load_tail(order);
        mq_u64 *at = mq_index_ring_entry_at(order, position);
        uint64_t entry = mq_load_acquire_u64(at); /* an older one only makes the exchange fail */
        int64_t ahead = mq_index_entry_positions_ahead(entry, position);
        /* EDGE order: release, by an exchange. The message is there before its position. Partner:
         * mq_index_ring_load_entry. If weaker: a subscriber follows a new position into old bytes. */
        if (ahead == -(int64_t)order->capacity &&
            mq_compare_exchange_u64(at, entry, mq_index_entry_pack(position, row, slot))) {
            mq_compare_exchange_u64(order->tail, position, position + 1); /* or we were helped */
            return position;
        }
        if (ahead == 0) /* its publisher has not come to its tail: for that we need not wait */
            mq_compare_exchange_u64(order->tail, position, position + 1);
        stuck = position == last_position && entry == last ? stuck + 1 : 0;
        last_position = position;
        last = entry;
    }
    return MQ_INDEX_RING_NO_POSITION;
}

/* The entry at a cursor. Returns how far it is ahead: negative: nothing is there yet; 0: it is there, perhaps
 * retracted; else it was overwritten, and the entry is a later one. */
static inline int64_t mq_index_ring_load_entry(const mq_index_ring *order, uint64_t cursor, uint64_t *entry) {
    /* EDGE order: acquire. Partner: mq_index_ring_publish_entry */
    *entry = mq_load_acquire_u64(mq_index_ring_entry_at(order, cursor));
    return mq_index_entry_positions_ahead(*entry, cursor);
}

/* Is the entry still there? Behind a copy, which it validates, or a pin. */
static inline bool mq_index_ring_entry_is_unchanged(const mq_index_ring *order, uint64_t cursor, uint64_t entry) {
    /* EDGE pin: sequentially consistent. The pin is stored, then the entry is loaded. Partner:
     * mq_index_ring_entry_is_evicted. If weaker: the owner writes into what a subscriber looks at. */
    return mq_load_seq_cst_u64(mq_index_ring_entry_at(order, cursor)) == entry;
}

/* Has the message left the order? For its owner, which looks for pins next. */
static inline bool mq_index_ring_entry_is_evicted(const mq_index_ring *order, uint64_t position, unsigned row,
                                                  unsigned slot) {
    /* EDGE pin: sequentially consistent. The entry is seen gone, then pins are loaded. Partner:
     * mq_index_ring_entry_is_unchanged */
    return mq_load_seq_cst_u64(mq_index_ring_entry_at(order, position)) != mq_index_entry_pack(position, row, slot);
}

/* Take the message out of the order, for its owner, or for a dead owner under the lock. False: it has left it before.
 * */
static inline bool mq_index_ring_retract_entry(const mq_index_ring *order, uint64_t position, unsigned row,
                                               unsigned slot) {
    return mq_compare_exchange_u64(mq_index_ring_entry_at(order, position), mq_index_entry_pack(position, row, slot),
                                   mq_index_entry_pack(position, MQ_INDEX_RING_RETRACTED, 0));
}

/* Position where a lapped subscriber continues, after it found an entry that is `ahead` of its cursor: `margin` after
 * the oldest message, and always after the cursor. */
static inline uint64_t mq_index_ring_oldest_position(const mq_index_ring *order, uint64_t cursor, int64_t ahead,
                                                     uint64_t margin) {
    uint64_t newest = mq_index_ring_max_position(mq_index_ring_load_tail(order), cursor + (uint64_t)ahead + 1);
    return mq_index_ring_max_position(newest - order->capacity + margin,
                                      cursor + 1); /* cursor + 1 only for corrupt entries */
}

#endif
