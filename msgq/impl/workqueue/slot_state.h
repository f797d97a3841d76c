/* States of a slot, encoded in the slot's word:
 *   `FREE` (0): the slot has no owner.
 *   `FILLING` (bits 63..61 are 001): a sender fills the slot. The word has the sender's row and generation.
 *   `READY` (bit 63 is 1): a message waits. The word has the message's priority and inverted order, so the largest word
 *   is the next message to take.
 *   `TAKEN` (bits 63..61 are 010): a consumer owns the slot. The word has the consumer's row and generation, and the
 *   number of the consumer's take.
 *   `DELAYED` (bits 63..61 are 011): a message waits for its due time. The slot has no owner. The word has the row,
 *   generation and take number of the handle that delayed the message. `lease` has the due time.
 *
 * Each transition is one store or exchange. In the life of a message, a slot is FREE, FILLING, READY, TAKEN and FREE
 * again. Two transitions go back:
 *   `FILLING to FREE`: the sender died or released the slot.
 *   `TAKEN to READY`: the consumer died or returned the message, or the message's lease ended.
 *
 * A sender changes FILLING to DELAYED, and a consumer changes TAKEN to DELAYED, if the message has a delay. At the due
 * time, any process changes DELAYED to READY.
 *
 * All other words are corrupt. A slot with a corrupt word is never taken and never freed. A word names the generation
 * in addition to the row, because a row may get another owner.
 */
#ifndef MQ_WORKQUEUE_SLOT_STATE_H
#define MQ_WORKQUEUE_SLOT_STATE_H

#include "workqueue/layout.h"

typedef enum {
    MQ_SLOT_FREE,
    MQ_SLOT_FILLING,
    MQ_SLOT_TAKEN,
    MQ_SLOT_DELAYED,
    MQ_SLOT_READY,
    MQ_SLOT_CORRUPT
} mq_slot_state;

#define MQ_SLOT_READY_BIT ((uint64_t)1 << 63)
#define MQ_SLOT_ORDER_MASK (((uint64_t)1 << 48) - 1)

/* Return the READY word of a message. If two messages have the same priority, the message with the smaller order has
 * the larger word. After 2^48 messages (326 days at ten million a second) the order restarts. Messages sent before and
 * after the restart are then taken in the wrong order. */
static inline uint64_t mq_slot_state_encode_ready(uint64_t priority, uint64_t order) {
    return MQ_SLOT_READY_BIT | priority << 48 | (MQ_SLOT_ORDER_MASK - (order & MQ_SLOT_ORDER_MASK));
}
static inline uint64_t mq_slot_state_encode_filling(unsigned row, uint16_t generation) {
    return (uint64_t)1 << 61 | (uint64_t)row << 48 | (uint64_t)generation << 32;
}
static inline uint64_t mq_slot_state_encode_taken(unsigned row, uint16_t generation, uint32_t take) {
    return (uint64_t)2 << 61 | (uint64_t)row << 48 | (uint64_t)generation << 32 | take;
}
/* Return the DELAYED word with the row, generation and take number of a TAKEN word. */
static inline uint64_t mq_slot_state_encode_delayed(uint64_t taken) { return taken | (uint64_t)1 << 61; }

static inline bool mq_slot_state_is_ready(uint64_t word) { return word & MQ_SLOT_READY_BIT; }
static inline unsigned mq_slot_state_get_priority(uint64_t word) {
    return (unsigned)(word >> 48 & MQ_QUEUE_PRIORITY_MAX);
}
static inline uint64_t mq_slot_state_get_order(uint64_t key) { return MQ_SLOT_ORDER_MASK - (key & MQ_SLOT_ORDER_MASK); }
/* The next functions are for FILLING, TAKEN and DELAYED words: */
static inline unsigned mq_slot_state_get_owner_row(uint64_t word) { return (unsigned)(word >> 48 & 0xFF); }
static inline uint16_t mq_slot_state_get_generation(uint64_t word) { return (uint16_t)(word >> 32); }
static inline uint32_t mq_slot_state_get_take_number(uint64_t word) { return (uint32_t)word; }

static inline mq_slot_state mq_slot_state_decode(uint64_t word) {
    if (word == 0)
        return MQ_SLOT_FREE;
    if (mq_slot_state_is_ready(word))
        return MQ_SLOT_READY;
    bool owned = mq_slot_state_get_owner_row(word) < MQ_QUEUE_ROWS && !(word >> 56 & 0x1F);
    if (owned && word >> 61 == 1 && !mq_slot_state_get_take_number(word))
        return MQ_SLOT_FILLING;
    if (owned && word >> 61 == 3)
        return MQ_SLOT_DELAYED;
    return owned && word >> 61 == 2 ? MQ_SLOT_TAKEN : MQ_SLOT_CORRUPT;
}

/* ---- leases: the time until which a taken message belongs to its taker, or a delayed message waits ---- */

enum { MQ_JOB_LEASE_TICK_NS = 10000000 };

static inline uint32_t mq_job_lease_convert_to_ticks(uint64_t host_time_ns) {
    return (uint32_t)(host_time_ns / MQ_JOB_LEASE_TICK_NS);
}
/* Return the first tick after a time: the end of a lease or delay until then. */
static inline uint32_t mq_job_lease_end_tick(int64_t host_time_ns) {
    return mq_job_lease_convert_to_ticks((uint64_t)host_time_ns) + 1;
}

/* Return the lease of a TAKEN or DELAYED word. The lease names the row and the take, so that the lease of an earlier
 * taker does not apply. */
static inline uint64_t mq_job_lease_encode(uint64_t word, uint32_t deadline_tick) {
    uint64_t lease = (uint64_t)deadline_tick << 32 | (uint64_t)mq_slot_state_get_owner_row(word) << 24 |
                     (mq_slot_state_get_take_number(word) & 0xFFFFFF);
    return lease ? lease : 1ull << 32; /* 0 means "no lease": use the next tick */
}
static inline bool mq_job_lease_belongs_to(uint64_t lease, uint64_t word) {
    return lease && (uint32_t)lease == (uint32_t)mq_job_lease_encode(word, 0);
}
/* Return the ticks until the lease ends. If the result is 0 or negative, the lease has ended. The result is correct
 * for leases of up to 248 days. */
static inline int32_t mq_job_lease_count_ticks_left(uint64_t lease, uint32_t now_tick) {
    return (int32_t)((uint32_t)(lease >> 32) - now_tick);
}

#endif
