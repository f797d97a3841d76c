/* A channel's publisher: how the publisher chooses the next slot to write.
 *
 * The states of slots are in the publisher's own memory. A publisher that dies leaves only its file, and needs no
 * repair. States of a slot:
 *   `free`: the slot was never used, or its message was discarded.
 *   `lent`: a send or a loan is writing the slot.
 *   `published`: the slot's message has a position, and was in the channel's order at the last check. Published slots
 *   are sorted, with the oldest message first.
 *   `in limbo`: the slot's message has left the order, and a viewer pinned the slot at the last check.
 *
 * A published message leaves the channel's order when a publisher overwrites its entry, or when its owner retracts the
 * message. The slot of the message then becomes free. If the slot is pinned, the slot enters limbo instead. Once a
 * message has left the order, viewers can no longer pin its slot. A slot in limbo therefore becomes free when its
 * viewers release the slot or die.
 */
#ifndef MQ_CHANNEL_PUBLISHER_H
#define MQ_CHANNEL_PUBLISHER_H

#include "channel/layout.h"
#include "base/populate.h"
#include "base/row_table.h"

typedef enum {
    MQ_CHANNEL_OK = 0,
    MQ_CHANNEL_EMPTY,    /* no message is available yet */
    MQ_CHANNEL_NOTIFY,   /* the message is published; a subscriber may sleep */
    MQ_CHANNEL_UNMAPPED, /* the pool of the message is not mapped yet */
    MQ_CHANNEL_CORRUPT,  /* invalid data */
} mq_channel_status;

enum { MQ_CHANNEL_NO_SLOT = -1 };

/* limits of the bytes that a publisher allocates at once. The number of bytes doubles each time */
enum { MQ_POOL_POPULATE_MIN_BYTES = 1 << 16, MQ_POOL_POPULATE_MAX_BYTES = 1 << 20 };

typedef struct {
    uint64_t position;
    uint32_t slot;
} mq_channel_published_slot;

typedef struct {
    mq_index_ring order;
    mq_pool_map slots;
    mq_channel_header *header;
    mq_channel_publisher_row *row;
    unsigned number; /* index of the publisher's row */
    bool stamps;
    int64_t clock_offset;               /* host's clock minus CLOCK_MONOTONIC, in nanoseconds */
    const int64_t *virtual_ns;          /* time of a bus; NULL: CLOCK_MONOTONIC */
    uint32_t populated_slots;           /* slots below this number have memory. The others are holes of the file */
    bool lacks_memory;                  /* the last attempt to populate a slot failed */
    uint32_t *free_slots, *limbo_slots; /* stacks */
    uint32_t free_count, limbo_count;
    mq_channel_published_slot *published_slots; /* a FIFO with room for all slots */
    uint32_t first, published_count;
    const mq_liveness_file *liveness_file; /* the channel file, where viewers hold their locks */
    uint64_t next_probe_at; /* value of `sent` at which the publisher next probes the liveness of viewers */
    uint64_t sent, bytes, refused, evicted; /* counters of the row, which other processes read */
    /* for room.h: first position that a subscriber had not received at the last load of the rows, and the uids of dead
     * subscribers (for each row; 0: none) */
    uint64_t unread_from;
    uint64_t dead_subscribers[MQ_CHANNEL_SUBSCRIBERS];
} mq_channel_publisher;

/* Initialize a publisher with all slots free. If `has_holes`, the slots get memory before their first use. Returns false
 * if memory is missing. */
static inline bool mq_channel_publisher_init(mq_channel_publisher *p, bool has_holes) {
    uint32_t count = p->slots.slots;
    p->published_slots = calloc(count, sizeof *p->published_slots + 2 * sizeof *p->free_slots);
    if (!p->published_slots)
        return false;
    p->free_slots = (uint32_t *)(void *)(p->published_slots + count);
    p->limbo_slots = p->free_slots + count;
    p->populated_slots = has_holes ? 0 : count;
    for (p->free_count = 0; p->free_count < count; p->free_count++)
        p->free_slots[p->free_count] = count - 1 - p->free_count;
    return true;
}
static inline void mq_channel_publisher_free(mq_channel_publisher *p) {
    free(p->published_slots);
    p->published_slots = NULL;
}

/* ---- take a slot ---- */

/* Remove the oldest published message, after the message has left the channel's order. Returns the message's slot,
 * or MQ_CHANNEL_NO_SLOT if the slot is pinned. */
static inline int mq_channel_reclaim_oldest_slot(mq_channel_publisher *p) {
    uint32_t slot = p->published_slots[p->first].slot;
    p->first = p->first + 1 == p->slots.slots ? 0 : p->first + 1;
    p->published_count--;
    if (!mq_pool_pin_holders(&p->slots, slot))
        return (int)slot;
    p->limbo_slots[p->limbo_count++] = slot;
    return MQ_CHANNEL_NO_SLOT;
}

/* Return a slot in limbo without a pin, or MQ_CHANNEL_NO_SLOT if all slots in limbo are pinned. */
static inline int mq_channel_take_released_slot(mq_channel_publisher *p) {
    for (uint32_t i = 0; i < p->limbo_count; i++) {
        uint32_t slot = p->limbo_slots[i];
        if (mq_pool_pin_holders(&p->slots, slot))
            continue;
        p->limbo_slots[i] = p->limbo_slots[--p->limbo_count];
        return (int)slot;
    }
    return MQ_CHANNEL_NO_SLOT;
}

/* Return the number of used slots: slots in limbo and published slots. Slots in limbo have the smaller indices. */
static inline uint32_t mq_channel_count_used_slots(const mq_channel_publisher *p) {
    return p->limbo_count + p->published_count;
}
static inline const mq_channel_published_slot *mq_channel_get_published_slot(const mq_channel_publisher *p,
                                                                             uint32_t i) {
    uint32_t at = p->first + i;
    return &p->published_slots[at < p->slots.slots ? at : at - p->slots.slots];
}
static inline uint32_t mq_channel_get_used_slot(const mq_channel_publisher *p, uint32_t i) {
    return i < p->limbo_count ? p->limbo_slots[i] : mq_channel_get_published_slot(p, i - p->limbo_count)->slot;
}

/* Return a bit mask of the dead viewers that pin one of the first `count` used slots. */
static inline uint64_t mq_channel_find_dead_viewers(const mq_channel_publisher *p, uint32_t count) {
    mq_liveness_probe probe = mq_liveness_probe_begin(p->liveness_file);
    uint64_t holders = 0, dead = 0;
    for (uint32_t i = 0; i < count; i++)
        holders |= mq_pool_pin_holders(&p->slots, mq_channel_get_used_slot(p, i));
    for (int viewer = 0; viewer < MQ_CHANNEL_VIEWERS; viewer++)
        if (holders >> viewer & 1 && mq_participant_liveness(&probe, &p->header->viewers[viewer].participant,
                                                             MQ_CHANNEL_VIEWER_BYTE + viewer) == MQ_DEAD)
            dead |= 1ull << viewer;
    mq_liveness_probe_end(&probe);
    return dead;
}

/* Clear the pins of dead viewers on slots in limbo. Returns true if a dead viewer was found. The publisher probes
 * liveness after the slots entered limbo. The bit of a dead viewer can therefore be cleared. The next viewer in the
 * same row cannot have set this bit, because a slot in limbo cannot be pinned. */
static inline bool mq_channel_clear_dead_pins(mq_channel_publisher *p) {
    uint64_t dead = mq_channel_find_dead_viewers(p, p->limbo_count);
    for (uint32_t i = 0; dead && i < p->limbo_count; i++)
        if (mq_pool_pin_holders(&p->slots, p->limbo_slots[i]) & dead)
            mq_fetch_and_u64(&p->slots.pool_header->pins[p->limbo_slots[i]].holders, ~dead);
    return dead != 0;
}

/* True if some published slot has no pin of a living viewer. `dead` is the bit mask of dead viewers. A viewer may
 * pin the slot after this check. */
static inline bool mq_channel_has_unpinned_slot(const mq_channel_publisher *p, uint64_t dead) {
    for (uint32_t i = p->limbo_count; i < mq_channel_count_used_slots(p); i++)
        if (!(mq_pool_pin_holders(&p->slots, mq_channel_get_used_slot(p, i)) & ~dead))
            return true;
    return false;
}

/* True if retracting messages would free a slot. If the result is false, retract no message, so that slow
 * subscribers can still receive the messages. */
static inline bool mq_channel_can_evict_message(mq_channel_publisher *p) {
    if (mq_channel_has_unpinned_slot(p, 0))
        return true;
    uint64_t dead = p->published_count ? mq_channel_find_dead_viewers(p, mq_channel_count_used_slots(p)) : 0;
    if (!dead || !mq_channel_has_unpinned_slot(p, dead))
        return false;
    p->next_probe_at = p->sent; /* the publisher clears pins of dead viewers once their slots are in limbo */
    return true;
}

/* True if a publisher that waits for a slot can take one. Changes nothing, unlike mq_channel_take_free_slot. */
static inline bool mq_channel_can_take_slot(const mq_channel_publisher *p) {
    uint32_t count = mq_channel_count_used_slots(p);
    if (p->free_count)
        return true;
    uint64_t dead = mq_channel_find_dead_viewers(p, count);
    for (uint32_t i = 0; i < count; i++)
        if (!(mq_pool_pin_holders(&p->slots, mq_channel_get_used_slot(p, i)) & ~dead))
            return true;
    return false;
}

/* Allocate the memory of all slots below `end`. Returns false if /dev/shm is full or the file is truncated. */
static inline bool mq_channel_populate_slots(mq_channel_publisher *p, uint64_t end) {
    uint64_t from = p->populated_slots * p->slots.stride;
    p->lacks_memory = !mq_populate(p->slots.slots_base + from, end * p->slots.stride - from, 0);
    if (!p->lacks_memory)
        p->populated_slots = (uint32_t)end;
    return !p->lacks_memory;
}

/* Allocate the memory of `slot`, and of some further slots if /dev/shm has enough memory. Free slots are used in
 * ascending order, so each slot is populated before its first use. */
static inline bool mq_channel_populate_slot(mq_channel_publisher *p, uint32_t slot) {
    uint64_t bytes = p->populated_slots * p->slots.stride;
    bytes = bytes < MQ_POOL_POPULATE_MIN_BYTES ? MQ_POOL_POPULATE_MIN_BYTES : bytes;
    bytes = bytes > MQ_POOL_POPULATE_MAX_BYTES ? MQ_POOL_POPULATE_MAX_BYTES : bytes;
    uint64_t end = p->populated_slots + bytes / p->slots.stride;
    end = end < p->slots.slots ? end : p->slots.slots;
    return (end > slot && mq_channel_populate_slots(p, end)) || mq_channel_populate_slots(p, (uint64_t)slot + 1);
}

/* Take the newest slot of the stack of free slots. If the slot has no memory, the slot stays in the stack. */
static inline int mq_channel_pop_free_slot(mq_channel_publisher *p) {
    uint32_t slot = p->free_slots[p->free_count - 1];
    if (mq_unlikely(slot >= p->populated_slots) && !mq_channel_populate_slot(p, slot))
        return MQ_CHANNEL_NO_SLOT;
    p->free_count--;
    return (int)slot;
}

/* Return a slot to write, or MQ_CHANNEL_NO_SLOT if all slots are pinned or lent, or if memory is missing. Retracts
 * messages only if no other slot is available and the retraction frees a slot. */
static inline int mq_channel_take_free_slot(mq_channel_publisher *p) {
    int slot = MQ_CHANNEL_NO_SLOT;
    if (p->free_count)
        return mq_channel_pop_free_slot(p);
    /* Bound: two rounds for each slot. One round retracts the slot's message, the other round clears pins of dead
     * viewers. If more rounds are needed, entries or pins are corrupt. Each round of the inner loop removes a
     * published message. */
    for (uint64_t rounds = 2 * (uint64_t)p->slots.slots + 2; rounds && slot == MQ_CHANNEL_NO_SLOT; rounds--) {
        while (slot == MQ_CHANNEL_NO_SLOT && p->published_count &&
               mq_index_ring_entry_is_evicted(&p->order, p->published_slots[p->first].position, p->number,
                                              p->published_slots[p->first].slot))
            slot = mq_channel_reclaim_oldest_slot(p);
        if (slot == MQ_CHANNEL_NO_SLOT)
            slot = mq_channel_take_released_slot(p);
        if (slot != MQ_CHANNEL_NO_SLOT)
            break;
        /* Without this probe, pins of dead viewers would shorten the channel's order permanently. */
        if (p->limbo_count && p->sent >= p->next_probe_at) {
            if (mq_channel_clear_dead_pins(p))
                continue;
            /* if all viewers are alive, probe once a lap, because a probe costs system calls */
            p->next_probe_at = p->sent + p->order.capacity;
        }
        if (!mq_channel_can_evict_message(p))
            break;
        mq_channel_published_slot *oldest = &p->published_slots[p->first];
        if (mq_index_ring_retract_entry(&p->order, oldest->position, p->number, oldest->slot))
            mq_store_relaxed_u64(&p->row->evicted, ++p->evicted); /* relaxed: a counter */
    }
    return slot;
}

static inline void mq_channel_return_slot(mq_channel_publisher *p, uint32_t slot) {
    p->free_slots[p->free_count++] = slot;
}

/* ---- write and publish ---- */

/* Begin to write a slot. Returns the address of the slot's payload. */
static inline uint8_t *mq_channel_begin_slot_write(const mq_channel_publisher *p, uint32_t slot) {
    /* EDGE slot: release. The previous message was seen evicted, then its bytes change. Partner:
     * mq_channel_accept_entry. If weaker: a torn copy passes. */
    mq_fence_release();
    return mq_pool_slot_payload(mq_pool_slot_at(&p->slots, slot));
}

/* Give the message in the slot a position, and do not wake subscribers. After the call, the slot no longer belongs
 * to the caller. If the order is corrupt, the call returns MQ_INDEX_RING_NO_POSITION, and the slot still belongs to
 * the caller. `now` is the host's time. Channels without publish times do not store `now`. */
static inline uint64_t mq_channel_enqueue_slot(mq_channel_publisher *p, uint32_t slot, uint64_t length, uint64_t now,
                                               uint64_t origin_time) {
    mq_pool_slot *at = mq_pool_slot_at(&p->slots, slot);
    mq_store_relaxed_u64(&at->length, length); /* relaxed, all: the exchange of the entry releases them */
    mq_store_relaxed_u64(&at->publish_time, p->stamps ? now : 0);
    mq_store_relaxed_u64(&at->origin_time, origin_time);
    uint64_t position = mq_index_ring_publish_entry(&p->order, p->number, slot);
    if (mq_unlikely(position == MQ_INDEX_RING_NO_POSITION))
        return position;
    uint32_t last = p->first + p->published_count++;
    p->published_slots[last < p->slots.slots ? last : last - p->slots.slots] =
        (mq_channel_published_slot){position, slot};
    mq_store_relaxed_u64(&p->row->sent, ++p->sent); /* relaxed: counters */
    mq_store_relaxed_u64(&p->row->bytes, p->bytes += length);
    return position;
}

/* Return the publish time for a message published now. */
static inline uint64_t mq_channel_make_publish_time(const mq_channel_publisher *p) {
    return p->stamps ? (uint64_t)(mq_read_time_ns(p->virtual_ns) + p->clock_offset) : 0;
}

/* Publish the message in the slot. If the result is MQ_CHANNEL_CORRUPT, the slot still belongs to the caller. */
static inline mq_channel_status mq_channel_publish(mq_channel_publisher *p, uint32_t slot, uint64_t length,
                                                   uint64_t origin_time, uint64_t *position) {
    *position = mq_channel_enqueue_slot(p, slot, length, mq_channel_make_publish_time(p), origin_time);
    if (mq_unlikely(*position == MQ_INDEX_RING_NO_POSITION))
        return MQ_CHANNEL_CORRUPT;
    return mq_eventcount_has_waiters_mp(&p->header->eventcount) ? MQ_CHANNEL_NOTIFY : MQ_CHANNEL_OK;
}

/* Publish up to `count` messages of `size` bytes each, with one publish time. Stores the position of the first message
 * in *first. Returns the number of published messages. The number is smaller than `count` if no slot is free or the
 * order is corrupt. After the call, the caller checks for sleepers. */
static inline uint64_t mq_channel_publish_batch(mq_channel_publisher *p, const uint8_t *rows, uint64_t size,
                                                uint64_t count, uint64_t origin_time, uint64_t *first) {
    uint64_t now = mq_channel_make_publish_time(p), done = 0;
    for (; done < count; done++) {
        int slot = mq_channel_take_free_slot(p);
        if (slot == MQ_CHANNEL_NO_SLOT)
            break;
        mq_copy_to_shared(mq_channel_begin_slot_write(p, (uint32_t)slot), rows + done * size, size);
        uint64_t position = mq_channel_enqueue_slot(p, (uint32_t)slot, size, now, origin_time);
        if (mq_unlikely(position == MQ_INDEX_RING_NO_POSITION)) {
            mq_channel_return_slot(p, (uint32_t)slot);
            break;
        }
        if (!done)
            *first = position;
    }
    return done;
}

static inline void mq_channel_count_refused_message(mq_channel_publisher *p) {
    mq_store_relaxed_u64(&p->row->refused, ++p->refused); /* relaxed: a counter */
}

#endif
