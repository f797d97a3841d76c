/* Layout of a channel's header. docs/internals/channel-protocol.md describes the same bytes, and tests/meta compares
 * the two. */
#ifndef MQ_CHANNEL_LAYOUT_H
#define MQ_CHANNEL_LAYOUT_H

#include "base/layout.h"
#include "channel/index_ring.h"
#include "channel/pool.h"

enum {
    MQ_CHANNEL_MAJOR = 1, /* major version of the layout: other versions are unreadable */
    MQ_CHANNEL_MINOR = 0, /* minor version: readers may ignore later additions */
    MQ_CHANNEL_CREATOR_BYTES = 64,
    MQ_CHANNEL_PUBLISHERS = 63,
    MQ_CHANNEL_VIEWERS = 64,        /* subscribers that take views; the row is the bit in pins */
    MQ_CHANNEL_SUBSCRIBERS = 64,    /* subscribers with a row; further subscribers work without one */
    MQ_CHANNEL_CAPACITY_MAX = 8192, /* so that the slots of a pool with capacity + 2 slots need 14 bits */
    /* Bytes of the channel file that owners lock (liveness_lock.h). */
    MQ_CHANNEL_PUBLISHER_BYTE = 0,
    MQ_CHANNEL_VIEWER_BYTE = 64,
    MQ_CHANNEL_SUBSCRIBER_BYTE = 128,
    MQ_CHANNEL_OPEN_BYTE = 192, /* locked (shared) by all processes that opened the channel and have no row */
};

#define MQ_CHANNEL_MAGIC 0x314e414843515347ull /* "GSQCHAN1" read as little-endian */

/* A publisher and its pool. Written under the lock, except the counters. */
typedef struct {
    /* uid 0: the publisher left, or the row is unused. Messages may still be in the order */
    mq_participant participant;
    mq_u64 pool_uid; /* written last, and compared by subscribers. 0: the row has no pool */
    mq_u64 slots;
    mq_u64 slot_bytes;
    mq_u64 pool_bytes; /* bytes of the file */
    mq_u64 pool_inode;
    mq_u64 superseded; /* 1: the owner publishes from another row, and this row remains for open loans */
    mq_u64 reserved[2];
    char node[MQ_NODE_NAME_BYTES];
    mq_u64 pad[2];
    /* The publisher's own cache line: */
    mq_u64 sent;
    mq_u64 bytes;   /* payload bytes */
    mq_u64 refused; /* messages that got no slot */
    mq_u64 evicted; /* messages evicted early because their slots were needed */
    mq_u64 room[4];
} mq_channel_publisher_row;
_Static_assert(sizeof(mq_channel_publisher_row) == 256, "bump MQ_CHANNEL_MAJOR");

/* A subscriber that takes views. The index of its row is its bit in pins. */
typedef struct {
    mq_participant participant;
} mq_channel_viewer_row;

/* A subscriber, for observers. */
typedef struct {
    mq_participant participant;
    char node[MQ_NODE_NAME_BYTES];
    mq_u64 viewer; /* row in `viewers` + 1; 0: takes no views */
    mq_u64 joined; /* messages evicted before this position are not lost to the subscriber */
    /* The subscriber's own cache line: */
    mq_u64 cursor;
    mq_u64 received;
    mq_u64 lost;
    mq_u64 resets;
    mq_u64 views_held; /* number of views */
    mq_u64 room[3];
} mq_channel_subscriber_row;
_Static_assert(sizeof(mq_channel_subscriber_row) == 192, "bump MQ_CHANNEL_MAJOR");

typedef struct {
    mq_u64 magic;        /* written last */
    mq_u64 version;      /* major << 32 | minor */
    mq_u64 header_bytes; /* offset of publishers */
    mq_u64 total_bytes;
    mq_u64 created_ns; /* nanoseconds by the host's clock */
    mq_u64 creator_pid;
    mq_u64 kind; /* mq_channel_kind, for people */
    mq_u64 reserved;
    char creator[MQ_CHANNEL_CREATOR_BYTES]; /* name of the node or process, padded with NUL bytes */
    mq_u64 config;                          /* see mq_channel_config. Written under the lock, each field once */
    mq_u64 pad0[15];
    mq_u64 tail; /* see index_ring.h. 0: the capacity is not set */
    mq_u64 pad1[7];
    mq_u32 eventcount; /* eventcount.h, several writers */
    mq_u32 pad2[15];
    mq_u64 room[464];
    mq_channel_publisher_row publishers[MQ_CHANNEL_PUBLISHERS];
    mq_u64 pad3[32];
    mq_channel_viewer_row viewers[MQ_CHANNEL_VIEWERS];
    mq_channel_subscriber_row subscribers[MQ_CHANNEL_SUBSCRIBERS];
    mq_u64 entries[MQ_CHANNEL_CAPACITY_MAX];
    mq_schema schema;
    char schema_data[49152 - sizeof(mq_schema)];
} mq_channel_header;
_Static_assert(offsetof(mq_channel_header, publishers) == 4096, "bump MQ_CHANNEL_MAJOR");
_Static_assert(offsetof(mq_channel_header, viewers) == 20480, "bump MQ_CHANNEL_MAJOR");
_Static_assert(offsetof(mq_channel_header, entries) == 36864, "bump MQ_CHANNEL_MAJOR");
_Static_assert(offsetof(mq_channel_header, schema) == 102400, "bump MQ_CHANNEL_MAJOR");
_Static_assert(sizeof(mq_channel_header) == 151552, "bump MQ_CHANNEL_MAJOR");

#define MQ_CHANNEL_SCHEMA_BYTES (sizeof(((mq_channel_header *)0)->schema_data))

typedef enum { MQ_CHANNEL_PUBSUB = 0, MQ_CHANNEL_BROADCAST = 1, MQ_CHANNEL_MAILBOX = 2 } mq_channel_kind;

/* Configuration of the channel, shared by all processes. Fields that are not set are 0. */
typedef struct {
    uint64_t capacity;    /* number of entries of the order */
    uint64_t publishers;  /* maximum number, 1..63 */
    uint64_t subscribers; /* maximum number, 1..64, or MQ_CHANNEL_ANY_SUBSCRIBERS */
    uint64_t stamps;      /* 1: messages have no publish time, 2: messages have one */
} mq_channel_config;

enum { MQ_CHANNEL_ANY_SUBSCRIBERS = 255, MQ_CHANNEL_UNSTAMPED = 1, MQ_CHANNEL_STAMPED = 2 };

static inline bool mq_channel_capacity_is_valid(uint64_t capacity) {
    return capacity >= 2 && capacity <= MQ_CHANNEL_CAPACITY_MAX && !(capacity & (capacity - 1));
}

static inline uint64_t mq_channel_config_pack(mq_channel_config g) {
    return g.capacity | g.publishers << 16 | g.subscribers << 24 | g.stamps << 32;
}
static inline mq_channel_config mq_channel_config_unpack(uint64_t word) {
    return (mq_channel_config){.capacity = word & 0xFFFF,
                               .publishers = word >> 16 & 0xFF,
                               .subscribers = word >> 24 & 0xFF,
                               .stamps = word >> 32 & 0xFF};
}

#endif
