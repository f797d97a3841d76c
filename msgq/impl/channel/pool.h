/* A pool: the slots of one owner, in a file of its own. Others read them, and pin those that they look at.
 *
 *   head     written by the owner before the file has its name; then pins by those who take views, one bit each
 *   slots    written by the owner alone; others have them mapped read-only
 *
 * A slot belongs to its owner for ever. The owner alone decides when it is written again: when its message has left the
 * order (index_ring.h) and no pin is left. A holder pins first, and looks afterwards whether the message still is in the order.
 */
#ifndef MQ_POOL_H
#define MQ_POOL_H

#include "base/eventcount.h"

enum {
    MQ_POOL_VERSION = 1,
    MQ_POOL_SLOTS_MAX = 16384, /* 14 bits of an entry */
    MQ_POOL_CACHE_LINE_BYTES = 64,
    MQ_NODE_NAME_BYTES = 48, /* bytes of a node's name */
};

#define MQ_POOL_MAGIC 0x314c4f4f50515347ull /* "GSQPOOL1" read as little-endian */
#define MQ_POOL_BYTES_MAX (1ull << 40)

typedef struct {
    mq_u64 holders; /* bit i: viewer i looks at the slot. Set and cleared by the viewer; of a dead one, by the owner */
    mq_u64 pad[7];
} mq_pool_pin;

typedef struct {
    mq_u64 magic;
    mq_u64 version;
    mq_u64 total_bytes;
    mq_u64 slots;
    mq_u64 slot_bytes;    /* of payload */
    mq_u64 data_offset;   /* of the first slot; whole pages, which others map read-only from there on */
    mq_u64 channel_inode; /* of the file that the order is in: another one's pool is never taken for its */
    mq_u64 uid;
    mq_u64 pid; /* of the owner, and its name: for people */
    char node[MQ_NODE_NAME_BYTES];
    mq_u64 reserved;
    mq_u32 slot_released; /* the owner sleeps here until somebody lets a slot go (eventcount.h, several wake) */
    mq_u32 pad[15];
    mq_pool_pin pins[];
} mq_pool_header;
_Static_assert(sizeof(mq_pool_header) == 192 && sizeof(mq_pool_pin) == MQ_POOL_CACHE_LINE_BYTES,
               "bump MQ_POOL_VERSION");

/* Before each payload. Written by the owner, released with the message's position. */
typedef struct {
    mq_u64 length;
    mq_u64 publish_time; /* host's clock, ns; 0: no stamps */
    mq_u64 origin_time;  /* as the publisher was told; 0: not */
    mq_u64 reserved[5];
} mq_pool_slot;
_Static_assert(sizeof(mq_pool_slot) == MQ_POOL_CACHE_LINE_BYTES, "bump MQ_POOL_VERSION");

/* A mapped pool, with a copy of its checked configuration: the file's own may change under hostile hands. */
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

/* Fill in the head of a new pool; the file has so many bytes, zeros. */
static inline void mq_pool_header_init(mq_pool_header *pool, uint64_t bytes, uint64_t slots, uint64_t slot_bytes,
                                       uint64_t page, uint64_t channel_inode, uint64_t uid, uint64_t pid,
                                       const char *node) {
    mq_store_relaxed_u64(&pool->version, MQ_POOL_VERSION); /* relaxed, all: the file has no name so far */
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

/* Check a mapped file of `bytes`, and keep its configuration. NULL when it is the pool `uid` of that piece; else what
 * is wrong. */
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

/* A hint, which orders nothing, for who is about to read: header and payload are in another core's cache, and come at
 * once instead of one after the other. */
static inline void mq_pool_slot_prefetch(mq_pool_slot *slot) { __builtin_prefetch(mq_pool_slot_payload(slot)); }

/* ---- those who look ---- */

/* Then the entry is to be looked at again (mq_index_ring_entry_is_unchanged): only if it stands, the slot is ours to
 * look at. */
static inline void mq_pool_pin_set(const mq_pool_map *slots, uint32_t slot, unsigned viewer) {
    mq_fetch_or_u64(&slots->pool_header->pins[slot].holders, 1ull << viewer);
}

/* Let go, and wake the owner if it waits for that. */
static inline void mq_pool_pin_clear(const mq_pool_map *slots, uint32_t slot, unsigned viewer) {
    /* EDGE unpin: release. What was read, was read before. Partner: mq_pool_pin_holders. If weaker: a late load finds
     * the next message. */
    mq_fetch_and_u64(&slots->pool_header->pins[slot].holders, ~(1ull << viewer));
    if (mq_eventcount_has_waiters_mp(&slots->pool_header->slot_released))
        mq_eventcount_notify_mp(&slots->pool_header->slot_released);
}

/* ---- the owner ---- */

/* The viewers that hold a slot, whose message has been seen gone. */
static inline uint64_t mq_pool_pin_holders(const mq_pool_map *slots, uint32_t slot) {
    /* EDGE unpin: sequentially consistent, and so acquire. Partner: mq_pool_pin_clear */
    return mq_load_seq_cst_u64(&slots->pool_header->pins[slot].holders);
}

#endif
