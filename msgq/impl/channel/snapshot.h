/* A channel as observers see it, for statistics. Each word is loaded separately, so counters may be from slightly
 * different times. Loaded values are not trusted: no loaded value bounds a loop or an index. */
#ifndef MQ_CHANNEL_SNAPSHOT_H
#define MQ_CHANNEL_SNAPSHOT_H

#include "channel/header.h"
#include "channel/subscriber.h"

/* ---- publishers ---- */

/* The slots of one pool whose messages are in the channel's order. */
typedef struct {
    uint64_t messages;
    uint64_t slots[MQ_POOL_SLOTS_MAX / 64];
} mq_channel_published_slot_set;

static inline void mq_channel_snapshot_slots(const mq_index_ring *order, unsigned row,
                                             mq_channel_published_slot_set *out) {
    memset(out, 0, sizeof *out);
    for (uint64_t i = 0; i < order->capacity; i++) {
        uint64_t entry = mq_load_acquire_u64(&order->entries[i]);
        if (mq_index_entry_pool_row(entry) != row)
            continue;
        unsigned slot = mq_index_entry_pool_slot(entry);
        out->slots[slot / 64] |= 1ull << slot % 64;
        out->messages++;
    }
}

/* The views that one viewer holds. */
typedef struct {
    uint64_t views;
    /* views of slots whose messages have left the order, so that publishers cannot reuse these slots */
    uint64_t outdated;
    uint64_t publish_time; /* oldest publish time of the outdated views; 0: unknown */
} mq_channel_view_counts;

/* Add the pins of a pool to the views of each viewer. */
static inline void mq_channel_snapshot_views(const mq_pool_map *pool, const mq_channel_published_slot_set *ordered,
                                             mq_channel_view_counts views_by_viewer[MQ_CHANNEL_VIEWERS]) {
    for (uint32_t slot = 0; slot < pool->slots; slot++) {
        uint64_t holders = mq_pool_pin_holders(pool, slot);
        if (!holders)
            continue;
        bool outdated = !(ordered->slots[slot / 64] >> slot % 64 & 1);
        /* relaxed: the message of a pinned slot does not change */
        uint64_t time = outdated ? mq_load_relaxed_u64(&mq_pool_slot_at(pool, slot)->publish_time) : 0;
        for (unsigned viewer = 0; viewer < MQ_CHANNEL_VIEWERS; viewer++) {
            mq_channel_view_counts *views = &views_by_viewer[viewer];
            if (!(holders >> viewer & 1))
                continue;
            views->views++;
            views->outdated += outdated;
            if (time && (!views->publish_time || time < views->publish_time))
                views->publish_time = time;
        }
    }
}

/* ---- subscribers ---- */

typedef struct {
    uint64_t cursor, joined, received, lost, resets, views_held, viewer;
    uint64_t lag; /* number of messages that the subscriber can still receive */
} mq_channel_subscriber_snapshot;

/* Copy the counters of a subscriber. Repeats if the subscriber moved its cursor during the copy. */
static inline void mq_channel_snapshot_subscriber(const mq_channel_subscriber_row *row,
                                                  mq_channel_subscriber_snapshot *out) {
    for (int tries = 0; tries < 8; tries++) {
        *out = (mq_channel_subscriber_snapshot){.cursor = mq_load_acquire_u64(&row->cursor)};
        out->joined = mq_load_relaxed_u64(&row->joined); /* relaxed, all: see the top of the file */
        out->received = mq_load_relaxed_u64(&row->received);
        out->lost = mq_load_relaxed_u64(&row->lost);
        out->resets = mq_load_relaxed_u64(&row->resets);
        out->views_held = mq_load_relaxed_u64(&row->views_held);
        out->viewer = mq_load_relaxed_u64(&row->viewer);
        mq_fence_acquire();
        if (mq_load_relaxed_u64(&row->cursor) == out->cursor) /* relaxed: after the fence */
            return;
    }
}

/* Return the position after the newest message. The tail may be before this position. */
static inline uint64_t mq_channel_snapshot_end_position(const mq_index_ring *order) {
    uint64_t end = mq_index_ring_load_tail(order), entry;
    for (int i = 0; i < MQ_CHANNEL_PUBLISHERS && mq_index_ring_load_entry(order, end, &entry) >= 0; i++)
        end++;
    return end;
}

/* Add the messages that the subscriber has not read: losses that the subscriber will detect, and messages left to
 * receive. A subscriber that conflates, continues at the tail, or is lapped repeatedly loses more messages. */
static inline void mq_channel_snapshot_count_unread(const mq_index_ring *order, mq_channel_subscriber_snapshot *copy) {
    uint64_t end = mq_channel_snapshot_end_position(order), entry;
    /* cursor 0: no receive since the order was initialized */
    uint64_t at = copy->cursor ? copy->cursor : order->capacity;
    if (at < end && end > order->capacity && mq_index_ring_load_entry(order, at, &entry) > 0) {
        /* position where the subscriber continues (mq_index_ring_oldest_position) */
        uint64_t oldest = end - order->capacity;
        uint64_t from = at < copy->joined ? copy->joined : at;
        copy->lost += from < oldest ? oldest - from : 0;
        at = oldest;
    }
    for (uint64_t i = 0; i < order->capacity && at < end; i++, at++) {
        int64_t ahead = mq_index_ring_load_entry(order, at, &entry);
        if (ahead == 0 && mq_index_entry_pool_row(entry) != MQ_INDEX_RING_RETRACTED)
            copy->lag++;
        else if (at >= copy->joined)
            copy->lost++;
    }
}

#endif
