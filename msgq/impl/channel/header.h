/* Join and leave a channel. All functions except leaving run under the lock of the channel file. States of a
 * publisher's row: `free`: the row has no pool. `living`: the owner holds the row's lock and publishes from the pool.
 * `dead`: the owner left or died. The messages of a dead row may still be in the channel's order. Subscribers read
 * these messages from the pool.
 *
 * A joining publisher removes the pools of dead rows without entries. If too many pools are left, the publisher also
 * removes the oldest pools. To remove a pool, the publisher first retracts the pool's messages from the order, and then
 * clears the pool in the row. A subscriber therefore never follows an entry into another pool. After a kill at any
 * step, the row is dead or free.
 */
#ifndef MQ_CHANNEL_HEADER_H
#define MQ_CHANNEL_HEADER_H

#include "channel/layout.h"
#include "base/row_table.h"

/* Initialize the header in a new file of zeros that has no name yet. */
static inline void mq_channel_header_init(mq_channel_header *header, uint64_t kind, uint64_t created_ns, uint64_t pid,
                                          const char *creator) {
    mq_store_relaxed_u64(&header->version,
                         /* relaxed, all: the file has no name yet */
                         (uint64_t)MQ_CHANNEL_MAJOR << 32 | MQ_CHANNEL_MINOR);
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
    /* relaxed, all: constant since before the name */
    if (mq_load_relaxed_u64(&header->version) >> 32 != MQ_CHANNEL_MAJOR)
        return MQ_FILE_OTHER_VERSION;
    bool known = mq_load_relaxed_u64(&header->header_bytes) == offsetof(mq_channel_header, publishers);
    return known && mq_load_relaxed_u64(&header->total_bytes) <= bytes ? MQ_FILE_VALID : MQ_FILE_NOT_OURS;
}

/* Store the channel's configuration. The caller has checked that `config` matches the stored configuration. If the
 * capacity is set and the order is not initialized, initialize the order. The previous process may have been killed
 * before the initialization of the order. Returns false if the capacity is invalid, because another program wrote the
 * header. */
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

/* Count the messages of a row in the channel's order. Stores the position after the newest message of the row in
 * *newest. */
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

/* Retract all messages of a dead row from the channel's order. The publisher of a dead row adds no more messages. */
static inline void mq_channel_retract_row_entries(const mq_index_ring *order, unsigned row) {
    for (uint64_t i = 0; i < order->capacity; i++) {
        uint64_t entry = mq_load_acquire_u64(&order->entries[i]);
        /* the exchange fails if a publisher just overwrote the entry, which evicts the message as well */
        if (mq_index_entry_pool_row(entry) == row)
            mq_compare_exchange_u64(&order->entries[i], entry,
                                    (entry >> MQ_INDEX_RING_SHIFT << MQ_INDEX_RING_SHIFT) |
                                        mq_index_entry_pack(0, MQ_INDEX_RING_RETRACTED, 0));
    }
}

static inline mq_liveness mq_channel_publisher_liveness(const mq_channel_header *header, mq_liveness_probe *probe,
                                                        int row) {
    return mq_participant_liveness(probe, &header->publishers[row].participant, MQ_CHANNEL_PUBLISHER_BYTE + row);
}

/* True if a living publisher exists. */
static inline bool mq_channel_has_publisher(const mq_channel_header *header, const mq_liveness_file *liveness_file) {
    mq_liveness_probe probe = mq_liveness_probe_begin(liveness_file);
    bool alive = false;
    for (int row = 0; row < MQ_CHANNEL_PUBLISHERS && !alive; row++)
        alive = mq_channel_publisher_liveness(header, &probe, row) != MQ_DEAD;
    mq_liveness_probe_end(&probe);
    return alive;
}

/* Free a dead row. Call this after the row's pool was removed and no entry refers to the pool. */
static inline void mq_channel_release_row(mq_channel_publisher_row *row) {
    mq_participant_clear(&row->participant);
    mq_store_release_u64(&row->pool_uid, 0);
}

/* Return a free row, or MQ_NO_ROW. Stores the lock of the row in *liveness_token. */
static inline int mq_channel_find_free_row(mq_channel_header *header, const mq_liveness_file *liveness_file,
                                           void **liveness_token) {
    for (int row = 0; row < MQ_CHANNEL_PUBLISHERS; row++) {
        if (mq_load_relaxed_u64(&header->publishers[row].pool_uid)) /* relaxed: under the lock */
            continue;
        *liveness_token = mq_liveness_lock(liveness_file, MQ_CHANNEL_PUBLISHER_BYTE + (uint64_t)row, false);
        /* EAGAIN: the row's owner is leaving, or an unknown child of the owner holds the lock */
        if (*liveness_token || errno != EAGAIN)
            return row;
    }
    return MQ_NO_ROW;
}

/* Fill in a free row. After this call, a pool with this uid may exist. Other processes remove this pool after the
 * publisher died. */
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
    /* EDGE pool: release. The previous pool's entries are gone, then the row has another pool. Partner:
     * mq_channel_find_message */
    mq_store_release_u64(&row->pool_uid, slots->uid);
}

/* ---- subscribers ---- */

static inline mq_row_table mq_channel_subscriber_row_table(mq_channel_header *header, int count) {
    return (mq_row_table){.rows = header->subscribers,
                          .stride = sizeof(mq_channel_subscriber_row),
                          .count = count,
                          .byte = MQ_CHANNEL_SUBSCRIBER_BYTE};
}

/* Return the first viewer row, starting at `row`, that is free or belongs to a dead owner. Returns MQ_NO_ROW if
 * there is no such row. The row is not locked. Before the caller locks the row, the caller must clear the dead
 * owner's bit in all pools of living publishers (mq_channel_clear_dead_viewer_pins). A locked row looks like the row
 * of a living owner. If the caller stopped after the lock, a publisher that needs slots could not clear the dead
 * owner's bit. Clearing the bit twice is harmless. */
static inline int mq_channel_find_free_viewer(const mq_channel_header *header, const mq_liveness_file *liveness_file,
                                              int row) {
    mq_liveness_probe probe = mq_liveness_probe_begin(liveness_file);
    while (row < MQ_CHANNEL_VIEWERS &&
           mq_participant_liveness(&probe, &header->viewers[row].participant, MQ_CHANNEL_VIEWER_BYTE + row) != MQ_DEAD)
        row++;
    mq_liveness_probe_end(&probe);
    return row < MQ_CHANNEL_VIEWERS ? row : MQ_NO_ROW;
}

/* True if a viewer died in this row. Pools may then still have the viewer's bit. */
static inline bool mq_channel_viewer_row_is_stale(const mq_channel_header *header, int viewer) {
    return mq_load_relaxed_u64(&header->viewers[viewer].participant.uid) != 0; /* relaxed: under the lock */
}

/* Clear the bit of a dead viewer in all slots of a pool. */
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
