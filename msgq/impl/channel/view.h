/* What has arrived at a subscriber in a simulation. The messages are in the index ring as soon as they are published, so
 * limits, laps and counts are the ring's. The subscriber only reads a copy of the entries, in which the positions from
 * `end` on have no message yet. One thread at a time uses a bus. */
#ifndef MQ_CHANNEL_VIEW_H
#define MQ_CHANNEL_VIEW_H

#include "channel/subscriber.h"

typedef struct {
    mq_index_ring ring; /* the channel's; capacity 0: nothing is shown yet */
    mq_u64 tail, *entries;
    uint64_t end; /* position after the last message that has arrived */
} mq_channel_view;

/* Let the subscriber read the copy. Returns false if memory is missing. */
static inline bool mq_channel_view_begin(mq_channel_view *v, mq_channel_subscriber *s) {
    v->entries = calloc(s->order.capacity, sizeof *v->entries);
    if (!v->entries)
        return false;
    v->ring = s->order;
    s->order.tail = &v->tail, s->order.entries = v->entries;
    return true;
}
static inline void mq_channel_view_free(mq_channel_view *v) {
    free(v->entries);
    v->entries = NULL;
}

/* Return the entry to show instead of the entry of a message at `position` that has not arrived. The messages before it
 * that have arrived are overwritten, so the result is after them, and before `end`. */
static inline uint64_t mq_channel_view_hide_entry(const mq_channel_view *v, uint64_t position) {
    uint64_t last = v->end - 1 - ((v->end - 1 - position) & (v->ring.capacity - 1)); /* in the same element, arrived */
    return mq_index_entry_pack(last + 1, MQ_INDEX_RING_RETRACTED, 0);
}

/* Copy the ring. */
static inline void mq_channel_view_show(mq_channel_view *v) {
    for (uint64_t i = 0; i < v->ring.capacity; i++) {
        uint64_t entry = mq_load_acquire_u64(&v->ring.entries[i]);
        int64_t ahead = mq_index_entry_positions_ahead(entry, v->end);
        if (ahead >= 0)
            entry = mq_channel_view_hide_entry(v, v->end + (uint64_t)ahead);
        mq_store_relaxed_u64(&v->entries[i], entry); /* relaxed: one thread */
    }
}

/* Choose the tail to show. A lapped subscriber continues at the oldest message of the ring, whether that has arrived or
 * not: it gets the ring's tail. A subscriber that conflates gets the end of the messages that have arrived, if it can
 * continue at one of these. */
static inline void mq_channel_view_choose_tail(mq_channel_view *v, const mq_channel_subscriber *s) {
    uint64_t tail = mq_index_ring_load_tail(&v->ring), entry;
    for (uint64_t at = v->end; s->conflate && at > mq_channel_load_cursor(s) + 1; at--) {
        if (mq_index_ring_load_entry(&s->order, at - 1, &entry) != 0)
            break;
        if (mq_channel_is_wanted(s, entry)) {
            tail = v->end;
            break;
        }
    }
    mq_store_release_u64(&v->tail, tail);
}

/* True if the message at `position` is still in the channel's order. */
static inline bool mq_channel_view_is_intact(const mq_channel_view *v, uint64_t position) {
    uint64_t entry;
    return mq_index_ring_load_entry(&v->ring, position, &entry) == 0 &&
           mq_index_entry_pool_row(entry) != MQ_INDEX_RING_RETRACTED;
}

/* Show a message that never arrives as one that was retracted: the subscriber loses it in its turn. */
static inline void mq_channel_view_retract(mq_channel_view *v, uint64_t position) {
    if (position < v->end && mq_channel_view_is_intact(v, position))
        mq_store_relaxed_u64(&v->entries[position & (v->ring.capacity - 1)],
                             mq_index_entry_pack(position, MQ_INDEX_RING_RETRACTED, 0)); /* relaxed: one thread */
}

/* Overwrite the messages before `position` that the subscriber has not read. */
static inline void mq_channel_view_lap(mq_channel_subscriber *s, uint64_t position) {
    if (mq_channel_load_cursor(s) >= position)
        return;
    s->resets++;
    mq_channel_skip_lost(s, position);
}

#endif
