/* A pool: the slots of one publisher, in the publisher's own file. Subscribers read slots. Viewers pin the slots that
 * they view.
 *   `header`: the owner writes the header before the file gets its name. After that, each viewer sets its bit in pins.
 *   `slots`: only the owner writes slots. Other processes map the slots read-only.
 *
 * Slots never change their owner. Only the owner overwrites a slot. Before the owner overwrites a slot, the slot's
 * message must have left the channel's order (index_ring.h), and the slot must have no pin. A viewer sets its pin
 * first. Then the viewer checks that the message is still in the channel's order.
 */
#ifndef MQ_POOL_H
#define MQ_POOL_H

#include "base/eventcount.h"

enum {
    MQ_POOL_VERSION = 1,
    MQ_POOL_SLOTS_MAX = 16384, /* a slot number has 14 bits in an entry */
    MQ_POOL_CACHE_LINE_BYTES = 64,
    MQ_NODE_NAME_BYTES = 48, /* maximum length of a node's name, in bytes */
};

#define MQ_POOL_MAGIC 0x314c4f4f50515347ull /* "GSQPOOL1" read as little-endian */
#define MQ_POOL_BYTES_MAX (1ull << 40)

typedef struct {
    /* bit i is set while viewer i uses the slot. A viewer sets and clears its own bit. The owner of the pool clears
     * the bit of a dead viewer */
    mq_u64 holders;
    mq_u64 pad[7];
} mq_pool_pin;

typedef struct {
    mq_u64 magic;
    mq_u64 version;
    mq_u64 total_bytes;
    mq_u64 slots;
    mq_u64 slot_bytes; /* number of payload bytes */
    /* byte offset of the first slot, a multiple of the page size. Processes other than the owner map the file
     * read-only from this offset */
    mq_u64 data_offset;
    mq_u64 channel_inode; /* inode of the channel file, which identifies the channel of the pool */
    mq_u64 uid;
    mq_u64 pid; /* process id of the owner, shown to users */
    char node[MQ_NODE_NAME_BYTES];
    mq_u64 reserved;
    /* the owner sleeps on this word until a viewer releases a slot (eventcount.h, several writers) */
    mq_u32 slot_released;
    mq_u32 pad[15];
    mq_pool_pin pins[];
} mq_pool_header;
_Static_assert(sizeof(mq_pool_header) == 192 && sizeof(mq_pool_pin) == MQ_POOL_CACHE_LINE_BYTES,
               "bump MQ_POOL_VERSION");

/* Header of a slot, before the payload. The owner writes the slot header before it publishes the message's position. */
typedef struct {
    mq_u64 length;
    mq_u64 publish_time; /* nanoseconds by the host's clock; 0: the channel has no publish times */
    mq_u64 origin_time;  /* set by the publishing program; 0: not set */
    mq_u64 reserved[5];
} mq_pool_slot;
_Static_assert(sizeof(mq_pool_slot) == MQ_POOL_CACHE_LINE_BYTES, "bump MQ_POOL_VERSION");

/* A mapped pool, with a copy of its checked configuration. The copy stays valid if another program changes the
 * values in the file. */
typedef struct {
    mq_pool_header *pool_header;
    uint8_t *slots_base;
    uint64_t uid, slot_bytes, stride;
    uint32_t slots;
} mq_pool_map;

static inline uint64_t mq_pool_slot_stride_bytes(uint64_t slot_bytes) {
    return sizeof(mq_pool_slot) +
           ((slot_bytes + MQ_POOL_CACHE_LINE_BYTES - 1) & ~(uint64_t)(MQ_POOL_CACHE_LINE_BYTES - 1));
}
static inline uint64_t mq_pool_header_bytes(uint64_t slots, uint64_t page) {
    return (sizeof(mq_pool_header) + slots * sizeof(mq_pool_pin) + page - 1) & ~(page - 1);
}

/* Initialize the header of a new pool. The pool's file has `bytes` bytes, all zero. */
static inline void mq_pool_header_init(mq_pool_header *pool, uint64_t bytes, uint64_t slots, uint64_t slot_bytes,
                                       uint64_t page, uint64_t channel_inode, uint64_t uid, uint64_t pid,
                                       const char *node) {
    mq_store_relaxed_u64(&pool->version, MQ_POOL_VERSION); /* relaxed, all: the file has no name yet */
    mq_store_relaxed_u64(&pool->total_bytes, bytes);
    mq_store_relaxed_u64(&pool->slots, slots);
    mq_store_relaxed_u64(&pool->slot_bytes, slot_bytes);
    mq_store_relaxed_u64(&pool->data_offset, mq_pool_header_bytes(slots, page));
    mq_store_relaxed_u64(&pool->channel_inode, channel_inode);
    mq_store_relaxed_u64(&pool->uid, uid);
    mq_store_relaxed_u64(&pool->pid, pid);
    mq_copy_to_shared(pool->node, node, strnlen(node, MQ_NODE_NAME_BYTES - 1));
    mq_store_release_u64(&pool->magic, MQ_POOL_MAGIC);
}

/* Check a mapped file of `bytes` bytes, and copy its configuration. Returns NULL if the file is the pool `uid` of this
 * channel, else an error text. */
static inline const char *mq_pool_header_check(mq_pool_header *pool, uint64_t bytes, uint64_t channel_inode,
                                               uint64_t uid, mq_pool_map *slots) {
    if (bytes < sizeof(mq_pool_header) || mq_load_acquire_u64(&pool->magic) != MQ_POOL_MAGIC)
        return "is no pool";
    if (mq_load_relaxed_u64(&pool->version) != MQ_POOL_VERSION) /* relaxed, all: constant since before the name */
        return "is a pool of another version";
    if (mq_load_relaxed_u64(&pool->uid) != uid || mq_load_relaxed_u64(&pool->channel_inode) != channel_inode)
        return "is the pool of another channel or publisher";
    uint64_t count = mq_load_relaxed_u64(&pool->slots), slot_bytes = mq_load_relaxed_u64(&pool->slot_bytes);
    uint64_t offset = mq_load_relaxed_u64(&pool->data_offset), stride = mq_pool_slot_stride_bytes(slot_bytes);
    if (count == 0 || count > MQ_POOL_SLOTS_MAX || slot_bytes > MQ_POOL_BYTES_MAX || offset > bytes || offset % 4096 ||
        offset < sizeof(mq_pool_header) + count * sizeof(mq_pool_pin) || (bytes - offset) / stride < count)
        return "has a configuration that makes no sense";
    *slots = (mq_pool_map){.pool_header = pool,
                           .slots_base = (uint8_t *)pool + offset,
                           .uid = uid,
                           .slot_bytes = slot_bytes,
                           .stride = stride,
                           .slots = (uint32_t)count};
    return NULL;
}

static inline mq_pool_slot *mq_pool_slot_at(const mq_pool_map *slots, uint32_t slot) {
    return (mq_pool_slot *)(void *)(slots->slots_base + slot * slots->stride);
}
static inline uint8_t *mq_pool_slot_payload(mq_pool_slot *slot) { return (uint8_t *)(slot + 1); }

/* Prefetch the slot's payload, so that header and payload arrive from another core's cache at the same time. The
 * prefetch is a hint, and does not order memory accesses. */
static inline void mq_pool_slot_prefetch(mq_pool_slot *slot) { __builtin_prefetch(mq_pool_slot_payload(slot)); }

/* ---- viewers ---- */

/* Pin a slot. Then call mq_index_ring_entry_is_unchanged. The pin is valid only if the message's entry is unchanged. */
static inline void mq_pool_pin_set(const mq_pool_map *slots, uint32_t slot, unsigned viewer) {
    mq_fetch_or_u64(&slots->pool_header->pins[slot].holders, 1ull << viewer);
}

/* Clear the viewer's pin of a slot, and wake the owner if the owner waits for a slot. */
static inline void mq_pool_pin_clear(const mq_pool_map *slots, uint32_t slot, unsigned viewer) {
    /* EDGE unpin: release. All reads of the payload happened before. Partner: mq_pool_pin_holders. If weaker: a late
     * load reads the next message. */
    mq_fetch_and_u64(&slots->pool_header->pins[slot].holders, ~(1ull << viewer));
    if (mq_eventcount_has_waiters_mp(&slots->pool_header->slot_released))
        mq_eventcount_notify_mp(&slots->pool_header->slot_released);
}

/* ---- owner ---- */

/* Return the viewers that pin a slot. The owner calls this after the message has left the channel's order. */
static inline uint64_t mq_pool_pin_holders(const mq_pool_map *slots, uint32_t slot) {
    /* EDGE unpin: sequentially consistent, and so acquire. Partner: mq_pool_pin_clear */
    return mq_load_seq_cst_u64(&slots->pool_header->pins[slot].holders);
}

#endif
