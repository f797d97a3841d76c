/* A channel's subscriber: its cursor, the next message, and its losses.
 *
 * The cursor passes each position once. The message at the position is received, lost or excluded. A message is lost if
 * it is overwritten or retracted before the subscriber reads it. Messages of excluded_pools are excluded. The cursor is
 * in the subscriber's private memory, and never decreases.
 */
#ifndef MQ_CHANNEL_SUBSCRIBER_H
#define MQ_CHANNEL_SUBSCRIBER_H

#include "base/truncation.h"
#include "channel/publisher.h"

typedef struct {
    mq_index_ring order; /* capacity 0: the capacity was not set at the last load */
    const mq_channel_header *header;
    mq_channel_subscriber_row *row; /* NULL: the subscriber has no row */
    const mq_u64 *not_truncated;    /* a word that is 1 until the header is truncated (mapguard.h). NULL: no guard */
    const uint64_t *excluded_pools; /* uids of pools whose messages are skipped, one for each row. NULL: none */
    mq_pool_map pools[MQ_CHANNEL_PUBLISHERS];
    uint64_t history; /* number of old messages to receive, used until the order is initialized */
    /* messages evicted before this position do not count as lost, because the subscriber joined later */
    uint64_t joined_at;
    mq_u64 cursor; /* The watcher reads the cursor, too. relaxed: only the subscriber's thread changes the cursor */
    uint64_t received, lost, resets;
    /* for mq_channel_compute_lap_margin: the last margin, and `received` at the last lap */
    uint64_t margin, received_at_lap;
    uint64_t resets_at_nap; /* value of `resets` at the last call of mq_channel_compute_lapped_nap_ns */
    int64_t behind_until;   /* end of the naps by CLOCK_MONOTONIC (mq_channel_compute_lapped_nap_ns) */
    bool conflate, newest;  /* conflate: receive only the newest message. newest: continue at the tail after a lap */
} mq_channel_subscriber;

enum {
    MQ_CHANNEL_NAP_NS = 20000,
    MQ_CHANNEL_BEHIND_NS = 100000000,
    /* smallest capacity with naps. With less capacity, few messages gather during a nap */
    MQ_CHANNEL_NAP_CAPACITY_MIN = 16,
};

typedef struct {
    uint64_t entry, position;
    unsigned row, number; /* row of the publisher, number of the slot */
    uint64_t pool_uid;
    mq_pool_slot *slot;
    uint64_t length, publish_time, origin_time;
} mq_channel_message;

static inline uint64_t mq_channel_load_cursor(const mq_channel_subscriber *s) {
    return mq_load_relaxed_u64(&s->cursor); /* relaxed: our own */
}

/* Load the order of a header, and check its values. Returns false if the order is not initialized. */
static inline bool mq_channel_load_index_ring(const mq_channel_header *header, mq_index_ring *order) {
    mq_channel_header *at = (mq_channel_header *)(uintptr_t)header; /* subscribers do not write to the header */
    *order = (mq_index_ring){.tail = &at->tail, .entries = at->entries};
    uint64_t capacity = mq_channel_config_unpack(mq_load_acquire_u64(&header->config)).capacity;
    if (!mq_channel_capacity_is_valid(capacity) || !mq_index_ring_load_tail(order))
        return false;
    order->capacity = capacity;
    return true;
}

/* Store the counters for observers. */
static inline void mq_channel_store_stats(const mq_channel_subscriber *s) {
    if (!s->row)
        return;
    mq_store_relaxed_u64(&s->row->cursor, mq_channel_load_cursor(s)); /* relaxed, all: counters */
    mq_store_relaxed_u64(&s->row->received, s->received);
    mq_store_relaxed_u64(&s->row->lost, s->lost);
    mq_store_relaxed_u64(&s->row->resets, s->resets);
}

/* Store the join position and the counters in a new row. */
static inline void mq_channel_store_join_position(const mq_channel_subscriber *s) {
    if (s->row)
        mq_store_relaxed_u64(&s->row->joined, s->joined_at); /* relaxed: for observers */
    mq_channel_store_stats(s);
}

static inline void mq_channel_set_cursor(mq_channel_subscriber *s, uint64_t cursor) {
    mq_store_relaxed_u64(&s->cursor, cursor); /* relaxed: the watcher's mutex orders it with the end of a receive */
}

/* Skip the positions before `cursor`. The skipped positions count as lost, except messages evicted before the
 * subscriber joined. */
static inline void mq_channel_skip_lost(mq_channel_subscriber *s, uint64_t cursor) {
    uint64_t from = mq_channel_load_cursor(s);
    if (from < s->joined_at)
        from = cursor < s->joined_at ? cursor : s->joined_at;
    s->lost += cursor - from;
    mq_channel_set_cursor(s, cursor);
    mq_channel_store_stats(s);
}

/* Return the distance from the oldest message to the position where a lapped subscriber continues. The distance is 0
 * at the first lap, and if the subscriber received a sixteenth of the capacity since the previous lap. Otherwise the
 * distance is a sixteenth of the capacity, and doubles at each further lap up to half of the capacity. Without this
 * distance, a subscriber that copies more slowly than publishers overwrite would be lapped forever. */
static inline uint64_t mq_channel_compute_lap_margin(mq_channel_subscriber *s) {
    uint64_t least = s->order.capacity / 16 ? s->order.capacity / 16 : 1, most = s->order.capacity / 2;
    bool again = s->resets > 1 && s->received - s->received_at_lap < least;
    uint64_t margin = s->margin ? 2 * s->margin : least;
    s->margin = !again ? 0 : margin < most ? margin : most;
    s->received_at_lap = s->received;
    return s->margin;
}

/* Return how many nanoseconds a subscriber without a message naps before it announces a sleep. 0: no nap. A wake
 * costs publisher and subscriber more time than many messages. Without naps, the next message would wake a
 * subscriber that was just lapped. While the subscriber receives this message and sleeps again, publishers overwrite
 * later messages. During a nap, messages gather, and publishers make no wakes. */
static inline int64_t mq_channel_compute_lapped_nap_ns(mq_channel_subscriber *s, int64_t now_ns) {
    if (s->resets != s->resets_at_nap)
        s->resets_at_nap = s->resets, s->behind_until = now_ns + MQ_CHANNEL_BEHIND_NS;
    return now_ns < s->behind_until && s->order.capacity >= MQ_CHANNEL_NAP_CAPACITY_MIN ? MQ_CHANNEL_NAP_NS : 0;
}

/* Set the cursor to the position requested at the join. Returns false if the order is not initialized. */
static inline bool mq_channel_subscriber_join(mq_channel_subscriber *s, bool at_tail) {
    if (!mq_channel_load_index_ring(s->header, &s->order))
        return false;
    uint64_t tail = mq_index_ring_load_tail(&s->order), first = s->order.capacity;
    uint64_t back = s->history < first ? s->history : first;
    s->joined_at = at_tail ? tail : first;
    mq_channel_set_cursor(s, !at_tail || tail - first < back ? first : tail - back);
    mq_channel_store_join_position(s);
    return true;
}

/* True if the entry has a message that is not excluded. */
static inline bool mq_channel_is_wanted(const mq_channel_subscriber *s, uint64_t entry) {
    unsigned row = mq_index_entry_pool_row(entry);
    bool is_excluded = row < MQ_CHANNEL_PUBLISHERS && s->excluded_pools && s->excluded_pools[row] &&
                       s->excluded_pools[row] == mq_load_acquire_u64(&s->header->publishers[row].pool_uid);
    return row < MQ_CHANNEL_PUBLISHERS && !is_excluded;
}

/* Move the cursor to the newest message that is not excluded. Skipped messages count as lost. */
static inline void mq_channel_conflate_to_newest(mq_channel_subscriber *s) {
    uint64_t cursor = mq_channel_load_cursor(s),
             tail = mq_index_ring_max_position(mq_index_ring_load_tail(&s->order), cursor), entry;
    /* A publisher may have stored its entry, but not the new tail yet. Bound: the capacity. Without this bound, the
     * loop could follow corrupt entries forever. */
    for (uint64_t i = 0; i < s->order.capacity && mq_index_ring_load_entry(&s->order, tail, &entry) >= 0; i++)
        tail += (uint64_t)mq_index_entry_positions_ahead(entry, tail) + 1;
    /* Bound: the capacity. */
    for (uint64_t at = tail; at > cursor + 1 && at + s->order.capacity > tail; at--) {
        if (mq_index_ring_load_entry(&s->order, at - 1, &entry) != 0)
            break;
        if (mq_channel_is_wanted(s, entry)) {
            mq_channel_skip_lost(s, at - 1);
            return;
        }
    }
}

/* If the pool of an entry's message is mapped, store the message in *m. The result MQ_CHANNEL_CORRUPT is reliable only
 * if the entry is unchanged after the call. */
static inline mq_channel_status mq_channel_resolve_message_slot(const mq_channel_subscriber *s, mq_channel_message *m) {
    const mq_pool_map *pool = &s->pools[m->row];
    if (m->pool_uid != pool->uid)
        return MQ_CHANNEL_UNMAPPED;
    if (m->number >= pool->slots)
        return MQ_CHANNEL_CORRUPT;
    m->slot = mq_pool_slot_at(pool, m->number);
    mq_pool_slot_prefetch(m->slot);
    m->length = mq_load_relaxed_u64(&m->slot->length); /* relaxed, all: after the acquire of the entry, and validated */
    m->publish_time = mq_load_relaxed_u64(&m->slot->publish_time);
    m->origin_time = mq_load_relaxed_u64(&m->slot->origin_time);
    return m->length <= pool->slot_bytes ? MQ_CHANNEL_OK : MQ_CHANNEL_CORRUPT;
}

/* Find the message at the cursor, and skip excluded messages. If `passes_losses`, also skip lost messages. Otherwise the
 * result is MQ_CHANNEL_EMPTY at a lost message. */
static inline __attribute__((always_inline)) mq_channel_status mq_channel_find_message(mq_channel_subscriber *s,
                                                                                       mq_channel_message *m,
                                                                                       bool passes_losses) {
    uint64_t first = mq_channel_load_cursor(s), rounds = 0;
    /* Bound: below. At first all entries may be retracted messages. Publishers may add the same number of retracted
     * messages during the loop. */
    do {
        m->position = mq_channel_load_cursor(s);
        int64_t ahead = mq_index_ring_load_entry(&s->order, m->position, &m->entry);
        if (ahead < 0)
            return MQ_CHANNEL_EMPTY;
        if (ahead > 0 && !passes_losses)
            return MQ_CHANNEL_EMPTY;
        if (ahead > 0) { /* lapped */
            s->resets++;
            uint64_t oldest =
                mq_index_ring_oldest_position(&s->order, m->position, ahead, mq_channel_compute_lap_margin(s));
            mq_channel_skip_lost(s, s->newest ? mq_index_ring_max_position(mq_index_ring_load_tail(&s->order), oldest)
                                              : oldest);
            continue;
        }
        m->row = mq_index_entry_pool_row(m->entry);
        m->number = mq_index_entry_pool_slot(m->entry);
        if (m->row == MQ_INDEX_RING_RETRACTED && !passes_losses)
            return MQ_CHANNEL_EMPTY;
        if (m->row == MQ_INDEX_RING_RETRACTED) {
            mq_channel_skip_lost(s, m->position + 1);
            continue;
        }
        /* EDGE pool: acquire. A row has its next pool only after all entries of the previous pool are gone. Partner:
         * mq_channel_publisher_register */
        m->pool_uid = mq_load_acquire_u64(&s->header->publishers[m->row].pool_uid);
        bool is_excluded = s->excluded_pools && m->pool_uid && s->excluded_pools[m->row] == m->pool_uid;
        mq_channel_status status =
            is_excluded || !m->pool_uid ? MQ_CHANNEL_EMPTY : mq_channel_resolve_message_slot(s, m);
        if (status == MQ_CHANNEL_OK)
            return status;
        if (!mq_index_ring_entry_is_unchanged(&s->order, m->position, m->entry))
            continue; /* the entry changed, so the loaded values belong to another message */
        if (!is_excluded)
            return status == MQ_CHANNEL_UNMAPPED ? status : MQ_CHANNEL_CORRUPT;
        mq_channel_set_cursor(s, m->position + 1);
        mq_channel_store_stats(s);
    } while (++rounds < MQ_INDEX_RING_STUCK + 2 * s->order.capacity);
    /* If the cursor moved, publishers are as fast as this loop. The next call of mq_channel_next_message then
     * continues. If the cursor did not move, or moved further than two entries can differ, the entries are corrupt. */
    uint64_t passed = mq_channel_load_cursor(s) - first;
    return passed && passed < MQ_INDEX_RING_DISTANCE_MAX ? MQ_CHANNEL_EMPTY : MQ_CHANNEL_CORRUPT;
}

/* Find the message at the cursor, and skip lost and excluded messages. After using the message, validate the message
 * with mq_channel_accept_entry. If the result is MQ_CHANNEL_UNMAPPED, map the pool of the message's row, or call
 * mq_channel_skip_message. */
static inline mq_channel_status mq_channel_next_message(mq_channel_subscriber *s, mq_channel_message *m) {
    if (!s->order.capacity && !mq_channel_subscriber_join(s, false))
        return MQ_CHANNEL_EMPTY;
    if (s->conflate)
        mq_channel_conflate_to_newest(s);
    return mq_channel_find_message(s, m, true);
}

/* Find the message that follows the received ones without a loss between them. The result is MQ_CHANNEL_EMPTY before a
 * loss, which the next call of mq_channel_next_message counts, and if the subscriber conflates. */
static inline mq_channel_status mq_channel_following_message(mq_channel_subscriber *s, mq_channel_message *m) {
    return s->conflate ? MQ_CHANNEL_EMPTY : mq_channel_find_message(s, m, false);
}

/* Skip the message that mq_channel_next_message found, if the message is still in the channel's order. A skipped
 * message counts as lost. */
static inline void mq_channel_skip_message(mq_channel_subscriber *s, const mq_channel_message *m) {
    if (mq_channel_load_cursor(s) == m->position && mq_index_ring_entry_is_unchanged(&s->order, m->position, m->entry))
        mq_channel_skip_lost(s, m->position + 1);
}

static inline void mq_channel_advance_cursor(mq_channel_subscriber *s, const mq_channel_message *m) {
    mq_channel_set_cursor(s, m->position + 1);
    s->received++;
    mq_channel_store_stats(s);
}

/* Validate the copy of a message. If the copy is intact, the message counts as received. */
static inline bool mq_channel_accept_entry(mq_channel_subscriber *s, const mq_channel_message *m) {
    /* EDGE slot: acquire. The bytes were read, then the entry is. Partner: mq_channel_begin_slot_write */
    mq_fence_acquire();
    /* relaxed: ordered by the fence */
    if (mq_load_relaxed_u64(mq_index_ring_entry_at(&s->order, m->position)) != m->entry)
        return false;
    mq_channel_advance_cursor(s, m);
    return true;
}

/* Receive up to `count` messages of `size` bytes each into `out`. The messages follow `last` and have the same
 * publisher. Returns the number of received messages. Stores the newest received message in *last. The batch ends
 * before any special case, such as a loss. */
static inline uint64_t mq_channel_receive_batch(mq_channel_subscriber *s, uint8_t *out, uint64_t size, uint64_t count,
                                                mq_channel_message *last, const mq_u64 *not_truncated) {
    mq_channel_message m;
    uint64_t done = 0;
    /* Bound: `count`. */
    while (done < count && mq_channel_following_message(s, &m) == MQ_CHANNEL_OK && m.row == last->row &&
           m.pool_uid == last->pool_uid && m.length == size) {
        mq_copy_from_shared(out + done * size, mq_pool_slot_payload(m.slot), size);
        if (mq_mapping_was_truncated(not_truncated))
            break;
        if (!mq_channel_accept_entry(s, &m))
            break;
        *last = m;
        done++;
    }
    return done;
}

/* Pin the message's slot, and count the message as received. The header of the pool must be writable. Returns false
 * if the message had already left the channel's order. */
static inline bool mq_channel_pin_message(mq_channel_subscriber *s, const mq_channel_message *m, unsigned viewer) {
    const mq_pool_map *pool = &s->pools[m->row];
    mq_pool_pin_set(pool, m->number, viewer);
    if (!mq_index_ring_entry_is_unchanged(&s->order, m->position, m->entry)) {
        mq_pool_pin_clear(pool, m->number, viewer);
        return false;
    }
    mq_channel_advance_cursor(s, m);
    return true;
}

/* ---- poll ---- */

typedef struct {
    const mq_channel_header *header;
    const mq_u64 *cursor;
    const mq_u64 *not_truncated;
} mq_channel_poll_state;

/* True if an entry exists at the cursor, or if a receive would return an error. The entry may be retracted or
 * excluded. */
static inline int mq_channel_subscriber_is_readable(const void *state) {
    const mq_channel_poll_state *o = state;
    mq_index_ring order;
    uint64_t entry, cursor = mq_load_relaxed_u64(o->cursor); /* relaxed: an old cursor only costs a poll */
    if (mq_mapping_was_truncated(o->not_truncated))
        return true;
    return mq_channel_load_index_ring(o->header, &order) &&
           mq_index_ring_load_entry(&order, cursor ? cursor : order.capacity, &entry) >= 0;
}

#endif
