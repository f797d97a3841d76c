/* The channel's order of messages from several publishers: a ring of entries, each with the location of one message.
 * `entry`: position mod 2^44 (bits 63..20) | row of the owner (19..14) | slot in the owner's pool (13..0). `tail`: the
 * next position. If a publisher stopped between its entry and the tail, `tail` is still the last position.
 *
 * A publisher first writes its message into a slot. Then one exchange of an entry gives the message its position.
 * Therefore no message is visible half-written, and no process waits for another process. An exchange fails only
 * because another exchange succeeded. For each position an entry changes at most twice. First the entry gets a message.
 * Later the owner, or a joining process for a dead owner, may retract this message.
 */
#ifndef MQ_INDEX_RING_H
#define MQ_INDEX_RING_H

#include "base/atomics.h"

enum {
    MQ_INDEX_RING_SLOT_BITS = 14,
    MQ_INDEX_RING_ROW_BITS = 6,
    MQ_INDEX_RING_SHIFT = 20,     /* number of bits below the position */
    MQ_INDEX_RING_RETRACTED = 63, /* row value of a retracted message */
    /* number of rounds in which invalid entries must stay unchanged before these entries count as corrupt */
    MQ_INDEX_RING_STUCK = 1000,
    /* maximum number of failed exchanges for one message; each exchange fails because another publisher succeeded */
    MQ_INDEX_RING_TRIES = 10000,
};
#define MQ_INDEX_RING_NO_POSITION UINT64_MAX
/* largest distance between an entry and a position */
#define MQ_INDEX_RING_DISTANCE_MAX (1ull << (63 - MQ_INDEX_RING_SHIFT))

typedef struct {
    mq_u64 *tail;
    mq_u64 *entries;
    uint64_t capacity; /* number of entries, a power of two. 0: the capacity is not set */
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
/* Return the entry's position minus `position`. */
static inline int64_t mq_index_entry_positions_ahead(uint64_t entry, uint64_t position) {
    return (int64_t)((entry >> MQ_INDEX_RING_SHIFT << MQ_INDEX_RING_SHIFT) - (position << MQ_INDEX_RING_SHIFT)) >>
           MQ_INDEX_RING_SHIFT;
}

/* Return the later of two positions. A position further away than MQ_INDEX_RING_DISTANCE_MAX is invalid and ignored. */
static inline uint64_t mq_index_ring_max_position(uint64_t position, uint64_t known) {
    return position - known < MQ_INDEX_RING_DISTANCE_MAX ? position : known;
}

static inline mq_u64 *mq_index_ring_entry_at(const mq_index_ring *order, uint64_t position) {
    return &order->entries[position & (order->capacity - 1)];
}

/* Initialize the order before the first message. The segment is new, or the caller holds the segment's lock. */
static inline void mq_index_ring_init(const mq_index_ring *order) {
    for (uint64_t i = 0; i < order->capacity; i++)
        mq_store_relaxed_u64(&order->entries[i],
                             mq_index_entry_pack(i, MQ_INDEX_RING_RETRACTED, 0)); /* relaxed: released with tail */
    /* EDGE order-init: release. Partner: mq_index_ring_load_tail */
    mq_store_release_u64(order->tail, order->capacity);
}

/* Return the tail: the next position, or the last position if its publisher has not advanced the tail yet. Returns 0 if
 * the order is not initialized. */
static inline uint64_t mq_index_ring_load_tail(const mq_index_ring *order) {
    /* EDGE order-init: acquire. A process that finds a tail finds valid entries. Partner: mq_index_ring_init */
    return mq_load_acquire_u64(order->tail);
}

/* Publish the message in a slot. Returns the message's position, or MQ_INDEX_RING_NO_POSITION if the entries are
 * invalid. */
static inline uint64_t mq_index_ring_publish_entry(const mq_index_ring *order, unsigned row, unsigned slot) {
    uint64_t last_position = MQ_INDEX_RING_NO_POSITION, last = 0;
    /* Bound: MQ_INDEX_RING_TRIES rounds, or MQ_INDEX_RING_STUCK rounds without a change. */
    for (int stuck = 0, tries = 0; stuck < MQ_INDEX_RING_STUCK && tries < MQ_INDEX_RING_TRIES; tries++) {
        uint64_t position = mq_index_ring_load_tail(order);
        mq_u64 *at = mq_index_ring_entry_at(order, position);
        uint64_t entry = mq_load_acquire_u64(at); /* if this value is outdated, the exchange fails */
        int64_t ahead = mq_index_entry_positions_ahead(entry, position);
        /* EDGE order: release, by an exchange. The message is complete before its position is visible. Partner:
         * mq_index_ring_load_entry. If weaker: a subscriber follows a new position into old bytes. */
        if (ahead == -(int64_t)order->capacity &&
            mq_compare_exchange_u64(at, entry, mq_index_entry_pack(position, row, slot))) {
            /* this exchange fails if another publisher has already advanced the tail */
            mq_compare_exchange_u64(order->tail, position, position + 1);
            return position;
        }
        if (ahead == 0) /* the entry's publisher has not advanced the tail yet, so this publisher advances the tail */
            mq_compare_exchange_u64(order->tail, position, position + 1);
        stuck = position == last_position && entry == last ? stuck + 1 : 0;
        last_position = position;
        last = entry;
    }
    return MQ_INDEX_RING_NO_POSITION;
}

/* Load the entry at a cursor. Returns the entry's position minus the cursor:
 *   `negative`: the cursor has no message yet.
 *   `0`: the cursor has a message, perhaps a retracted message.
 *   `positive`: a later message has overwritten the message at the cursor. */
static inline int64_t mq_index_ring_load_entry(const mq_index_ring *order, uint64_t cursor, uint64_t *entry) {
    /* EDGE order: acquire. Partner: mq_index_ring_publish_entry */
    *entry = mq_load_acquire_u64(mq_index_ring_entry_at(order, cursor));
    return mq_index_entry_positions_ahead(*entry, cursor);
}

/* True if the entry is unchanged. Call this after a copy (to validate the copy) or after setting a pin. */
static inline bool mq_index_ring_entry_is_unchanged(const mq_index_ring *order, uint64_t cursor, uint64_t entry) {
    /* EDGE pin: sequentially consistent. The pin is stored, then the entry is loaded. Partner:
     * mq_index_ring_entry_is_evicted. If weaker: the owner overwrites a slot that a subscriber uses. */
    return mq_load_seq_cst_u64(mq_index_ring_entry_at(order, cursor)) == entry;
}

/* True if the message has left the channel's order. If the result is true, the message's owner checks the pins next. */
static inline bool mq_index_ring_entry_is_evicted(const mq_index_ring *order, uint64_t position, unsigned row,
                                                  unsigned slot) {
    /* EDGE pin: sequentially consistent. The entry is seen changed, then pins are loaded. Partner:
     * mq_index_ring_entry_is_unchanged */
    return mq_load_seq_cst_u64(mq_index_ring_entry_at(order, position)) != mq_index_entry_pack(position, row, slot);
}

/* Retract the message from the channel's order. Only the owner of the message calls this. For a dead owner, a
 * process that holds the lock calls this. Returns false if the message had already left the channel's order. */
static inline bool mq_index_ring_retract_entry(const mq_index_ring *order, uint64_t position, unsigned row,
                                               unsigned slot) {
    return mq_compare_exchange_u64(mq_index_ring_entry_at(order, position), mq_index_entry_pack(position, row, slot),
                                   mq_index_entry_pack(position, MQ_INDEX_RING_RETRACTED, 0));
}

/* Return the position where a lapped subscriber continues. The result is `margin` positions after the oldest
 * message, and always after the cursor. `ahead` is the result of mq_index_ring_load_entry at the cursor. */
static inline uint64_t mq_index_ring_oldest_position(const mq_index_ring *order, uint64_t cursor, int64_t ahead,
                                                     uint64_t margin) {
    uint64_t newest = mq_index_ring_max_position(mq_index_ring_load_tail(order), cursor + (uint64_t)ahead + 1);
    return mq_index_ring_max_position(newest - order->capacity + margin,
                                      cursor + 1); /* only corrupt entries give the result cursor + 1 */
}

#endif
