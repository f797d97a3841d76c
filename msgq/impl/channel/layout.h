/* Layout of a channel's header. docs/internals/channel-protocol.md describes the same bytes, and tests/meta compares
 * the two. */
#ifndef MQ_CHANNEL_LAYOUT_H
#define MQ_CHANNEL_LAYOUT_H

#include "base/layout.h"
#include "channel/index_ring.h"
#include "channel/pool.h"

enum {
    MQ_CHANNEL_MAJOR = 1, /* major version of the layout. This code cannot read other major versions */
    MQ_CHANNEL_MINOR = 0, /* minor version. Readers may ignore the additions of later minor versions */
    MQ_CHANNEL_CREATOR_BYTES = 64,
    MQ_CHANNEL_PUBLISHERS = 63,
    MQ_CHANNEL_VIEWERS = 64,        /* maximum number of subscribers with views; row i has bit i in pins */
    MQ_CHANNEL_SUBSCRIBERS = 64,    /* maximum number of subscriber rows; further subscribers work without a row */
    MQ_CHANNEL_CAPACITY_MAX = 8192, /* a slot number below capacity + 2 must fit into 14 bits */
    /* Bytes of the channel file that owners lock (liveness_lock.h). */
    MQ_CHANNEL_PUBLISHER_BYTE = 0,
    MQ_CHANNEL_VIEWER_BYTE = 64,
    MQ_CHANNEL_SUBSCRIBER_BYTE = 128,
    MQ_CHANNEL_OPEN_BYTE = 192, /* shared lock of all processes that opened the channel and have no row */
};

#define MQ_CHANNEL_MAGIC 0x314e414843515347ull /* "GSQCHAN1" read as little-endian */

/* A publisher and its pool. Processes write the row under the lock of the channel file, except the counters. */
typedef struct {
    /* uid 0: the publisher left, or the row is unused. The messages of a publisher that left may still be in the
     * channel's order */
    mq_participant participant;
    mq_u64 pool_uid; /* uid of the row's pool, written last and compared by subscribers. 0: no pool */
    mq_u64 slots;
    mq_u64 slot_bytes;
    mq_u64 pool_bytes; /* size of the pool file in bytes */
    mq_u64 pool_inode;
    mq_u64 superseded; /* 1: the owner publishes from another row, but this row remains for open loans */
    mq_u64 reserved[2];
    char node[MQ_NODE_NAME_BYTES];
    mq_u64 pad[2];
    /* The next fields are the publisher's own cache line: */
    mq_u64 sent;
    mq_u64 bytes;   /* payload bytes */
    mq_u64 refused; /* number of messages refused because no slot was available */
    mq_u64 evicted; /* number of messages evicted early because the publisher needed their slots */
    mq_u64 room[4];
} mq_channel_publisher_row;
_Static_assert(sizeof(mq_channel_publisher_row) == 256, "bump MQ_CHANNEL_MAJOR");

/* A subscriber that takes views. A viewer's bit in pins is the index of its row. */
typedef struct {
    mq_participant participant;
} mq_channel_viewer_row;

/* A subscriber's row, which observers read. */
typedef struct {
    mq_participant participant;
    char node[MQ_NODE_NAME_BYTES];
    mq_u64 viewer; /* row in `viewers` + 1. 0: the subscriber takes no views */
    mq_u64 joined; /* messages evicted before this position do not count as lost */
    /* The next fields are the subscriber's own cache line: */
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
    mq_u64 version;      /* major version << 32 | minor version */
    mq_u64 header_bytes; /* offset of `publishers` in bytes */
    mq_u64 total_bytes;
    mq_u64 created_ns; /* creation time in nanoseconds of the host's clock */
    mq_u64 creator_pid;
    mq_u64 kind; /* mq_channel_kind, shown to users */
    mq_u64 reserved;
    char creator[MQ_CHANNEL_CREATOR_BYTES]; /* name of the node or process, padded with NUL bytes */
    mq_u64 config;                          /* see mq_channel_config. Each field is written once, under the lock */
    mq_u64 pad0[15];
    mq_u64 tail; /* see index_ring.h. 0: the capacity is not set */
    mq_u64 pad1[7];
    mq_u32 eventcount; /* eventcount with several notifying processes (eventcount.h) */
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

/* Configuration of the channel, shared by all processes. A field that is not set is 0. */
typedef struct {
    uint64_t capacity;    /* number of entries in the channel's order */
    uint64_t publishers;  /* maximum number of publishers, 1 to 63 */
    uint64_t subscribers; /* maximum number of subscribers, 1 to 64, or MQ_CHANNEL_ANY_SUBSCRIBERS */
    uint64_t stamps;      /* 1: messages have no publish time. 2: messages have a publish time */
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
