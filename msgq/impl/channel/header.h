/* Coming to a channel and leaving it: all under the lock of the channel file, but for leaving.
 *
 * A publisher's row is
 *
 *   free      no pool
 *   living    its owner holds the row's lock, and publishes from the pool
 *   dead      its owner left or died; its messages may still be in the order, and are read from the pool
 *
 * A joiner removes the pools of dead rows to which no entry refers, and of the oldest when there are too many: these are
 * retracted from the order first. Only then it takes the row away from the pool, so nobody follows an entry into another
 * pool. A kill at any step leaves a dead row, or a free one.
 */
#ifndef MQ_CHANNEL_HEADER_H
#define MQ_CHANNEL_HEADER_H

#include "channel/layout.h"
#include "base/row_table.h"

/* A new file of zeros, which has no name so far. */
static inline void mq_channel_header_init(mq_channel_header *header, uint64_t kind, uint64_t created_ns, uint64_t pid,
                                          const char *creator) {
    mq_store_relaxed_u64(&header->version,
                         (uint64_t)MQ_CHANNEL_MAJOR << 32 | MQ_CHANNEL_MINOR); /* relaxed, all: no name so far */
    mq_store_relaxed_u64(&header->header_bytes, offsetof(mq_channel_header, publishers));
    mq_store_relaxed_u64(&header->total_bytes, sizeof(mq_channel_header));
    mq_store_relaxed_u64(&header->created_ns, created_ns);
    mq_store_relaxed_u64(&header->creator_pid, pid);
    mq_store_relaxed_u64(&header->kind, kind);
    mq_copy_to_shared(header->creator, creator, strnlen(creator, MQ_CHANNEL_CREATOR_BYTES - 1));
    mq_store_release_u64(&header->magic, MQ_CHANNEL_MAGIC);
}

static inline mq_file_check_result mq_channel_header_check(const mq_channel_header *header, uint64_t bytes) {
    if (bytes < sizeof(mq_channel_header) || mq_load_acquire_u64(&header->magic) != MQ_CHANNEL_MAGIC)
        return MQ_FILE_NOT_OURS;
    if (mq_load_relaxed_u64(&header->version) >> 32 !=
        MQ_CHANNEL_MAJOR) /* relaxed, all: constant since before the name */
        return MQ_FILE_OTHER_VERSION;
    bool known = mq_load_relaxed_u64(&header->header_bytes) == offsetof(mq_channel_header, publishers);
    return known && mq_load_relaxed_u64(&header->total_bytes) <= bytes ? MQ_FILE_VALID : MQ_FILE_NOT_OURS;
}

/* Store the configuration; the caller has found that it contradicts nothing. With a capacity the order begins, also one
 * whose beginner was killed. False: no channel has such a capacity, so it was foreign bytes that said it. */
static inline bool mq_channel_store_config(mq_channel_header *header, mq_channel_config config) {
    mq_index_ring order = {.tail = &header->tail, .entries = header->entries, .capacity = config.capacity};
    if (config.capacity && !mq_channel_capacity_is_valid(config.capacity))
        return false;
    mq_store_release_u64(&header->config, mq_channel_config_pack(config));
    if (config.capacity && !mq_index_ring_load_tail(&order))
        mq_index_ring_init(&order);
    return true;
}

/* ---- publishers ---- */

/* Messages of a row that are in the order. *newest: the position after the newest of them. */
static inline uint64_t mq_channel_count_row_entries(const mq_index_ring *order, unsigned row, uint64_t *newest) {
    uint64_t count = 0, tail = mq_index_ring_load_tail(order);
    *newest = 0;
    for (uint64_t i = 0; i < order->capacity; i++) {
        uint64_t entry = mq_load_acquire_u64(&order->entries[i]);
        if (mq_index_entry_pool_row(entry) != row)
            continue;
        uint64_t after = tail + (uint64_t)mq_index_entry_positions_ahead(entry, tail) + 1;
        *newest = after > *newest ? after : *newest;
        count++;
    }
    return count;
}

/* Take all messages of a dead row out of the order. Nobody puts in more of them. */
static inline void mq_channel_retract_row_entries(const mq_index_ring *order, unsigned row) {
    for (uint64_t i = 0; i < order->capacity; i++) {
        uint64_t entry = mq_load_acquire_u64(&order->entries[i]);
        if (mq_index_entry_pool_row(entry) == row) /* fails if it is overwritten just now: it has gone, too */
            mq_compare_exchange_u64(&order->entries[i], entry,
                                    (entry >> MQ_INDEX_RING_SHIFT << MQ_INDEX_RING_SHIFT) |
                                        mq_index_entry_pack(0, MQ_INDEX_RING_RETRACTED, 0));
    }
}

static inline mq_liveness mq_channel_publisher_liveness(const mq_channel_header *header, mq_liveness_probe *probe,
                                                        int row) {
    return mq_participant_liveness(probe, &header->publishers[row].participant, MQ_CHANNEL_PUBLISHER_BYTE + row);
}

/* Does anybody live who publishes? */
static inline bool mq_channel_has_publisher(const mq_channel_header *header, const mq_liveness_file *liveness_file) {
    mq_liveness_probe probe = mq_liveness_probe_begin(liveness_file);
    bool alive = false;
    for (int row = 0; row < MQ_CHANNEL_PUBLISHERS && !alive; row++)
        alive = mq_channel_publisher_liveness(header, &probe, row) != MQ_DEAD;
    mq_liveness_probe_end(&probe);
    return alive;
}

/* The pool of a dead row was removed, and no entry refers to it: the row is free. */
static inline void mq_channel_release_row(mq_channel_publisher_row *row) {
    mq_participant_clear(&row->participant);
    mq_store_release_u64(&row->pool_uid, 0);
}

/* A free row, locked by *liveness_token; MQ_NO_ROW: there is none. */
static inline int mq_channel_find_free_row(mq_channel_header *header, const mq_liveness_file *liveness_file,
                                           void **liveness_token) {
    for (int row = 0; row < MQ_CHANNEL_PUBLISHERS; row++) {
        if (mq_load_relaxed_u64(&header->publishers[row].pool_uid)) /* relaxed: under the lock */
            continue;
        *liveness_token = mq_liveness_lock(liveness_file, MQ_CHANNEL_PUBLISHER_BYTE + (uint64_t)row, false);
        if (*liveness_token ||
            errno != EAGAIN) /* EAGAIN: its owner is just leaving, or a child of it that nobody knows of */
            return row;
    }
    return MQ_NO_ROW;
}

/* Fill in a free row: from now on a pool with this uid may be met in it, and removed when we are dead. */
static inline void mq_channel_publisher_register(mq_channel_publisher_row *row, const mq_process_identity *self,
                                                 bool held, const mq_pool_map *slots, uint64_t pool_bytes,
                                                 uint64_t pool_inode, const char *node) {
    char name[MQ_NODE_NAME_BYTES] = "";
    memcpy(name, node, strnlen(node, MQ_NODE_NAME_BYTES - 1));
    mq_store_relaxed_u64(&row->slots, slots->slots); /* relaxed, all: released with pool_uid */
    mq_store_relaxed_u64(&row->slot_bytes, slots->slot_bytes);
    mq_store_relaxed_u64(&row->pool_bytes, pool_bytes);
    mq_store_relaxed_u64(&row->pool_inode, pool_inode);
    mq_store_relaxed_u64(&row->superseded, 0);
    mq_store_relaxed_u64(&row->sent, 0);
    mq_store_relaxed_u64(&row->bytes, 0);
    mq_store_relaxed_u64(&row->refused, 0);
    mq_store_relaxed_u64(&row->evicted, 0);
    mq_copy_to_shared(row->node, name, sizeof name);
    mq_participant_write(&row->participant, self, slots->uid, held);
    /* EDGE pool: release. The former pool's entries are gone, then the row has another. Partner:
     * mq_channel_next_message */
    mq_store_release_u64(&row->pool_uid, slots->uid);
}

/* ---- subscribers ---- */

static inline mq_row_table mq_channel_subscriber_row_table(mq_channel_header *header, int count) {
    return (mq_row_table){.rows = header->subscribers,
                          .stride = sizeof(mq_channel_subscriber_row),
                          .count = count,
                          .byte = MQ_CHANNEL_SUBSCRIBER_BYTE};
}

/* The next row of a viewer, from `row` on, that is free or a dead owner's; not locked. MQ_NO_ROW: there is none.
 *
 * Before it is locked the bit of a dead owner is to be cleared in all pools of the living (mq_channel_clear_dead_viewer_pins): a row that
 * is locked already looks alive, and a publisher that lacks slots would leave that bit alone for as long as the taker is
 * stopped. That the bit may be cleared twice does no harm. */
static inline int mq_channel_find_free_viewer(const mq_channel_header *header, const mq_liveness_file *liveness_file,
                                              int row) {
    mq_liveness_probe probe = mq_liveness_probe_begin(liveness_file);
    while (row < MQ_CHANNEL_VIEWERS &&
           mq_participant_liveness(&probe, &header->viewers[row].participant, MQ_CHANNEL_VIEWER_BYTE + row) != MQ_DEAD)
        row++;
    mq_liveness_probe_end(&probe);
    return row < MQ_CHANNEL_VIEWERS ? row : MQ_NO_ROW;
}

/* Did a viewer die in this row, so that its bit may be left in pools? */
static inline bool mq_channel_viewer_row_is_stale(const mq_channel_header *header, int viewer) {
    return mq_load_relaxed_u64(&header->viewers[viewer].participant.uid) != 0; /* relaxed: under the lock */
}

/* Take the bit of a dead viewer from all slots of a pool. */
static inline void mq_channel_clear_dead_viewer_pins(const mq_pool_map *slots, int viewer) {
    for (uint32_t slot = 0; slot < slots->slots; slot++)
        if (mq_pool_pin_holders(slots, slot) >> viewer & 1)
            mq_pool_pin_clear(slots, slot, (unsigned)viewer);
}

static inline void mq_channel_subscriber_register(mq_channel_subscriber_row *row, const mq_process_identity *self,
                                                  uint64_t uid, bool held, const char *node) {
    char name[MQ_NODE_NAME_BYTES] = "";
    memcpy(name, node, strnlen(node, MQ_NODE_NAME_BYTES - 1));
    mq_participant_clear(&row->participant);
    mq_copy_to_shared(row->node, name, sizeof name);
    mq_store_relaxed_u64(&row->viewer, 0); /* relaxed, all: released with uid */
    mq_store_relaxed_u64(&row->joined, 0);
    mq_store_relaxed_u64(&row->cursor, 0);
    mq_store_relaxed_u64(&row->received, 0);
    mq_store_relaxed_u64(&row->lost, 0);
    mq_store_relaxed_u64(&row->resets, 0);
    mq_store_relaxed_u64(&row->views_held, 0);
    mq_participant_write(&row->participant, self, uid, held);
}

#endif
