/* Layout of a topic's two files. docs/internals/layout.md describes the same bytes, and tests/meta compares the two.
 *
 * Little-endian. Fields are grouped by writer, in one or more cache lines each. If an assert fails, other processes
 * would misread the file. If an assert of the ring fails, undo your change, because stock programs read the ring. If an
 * assert of the side segment fails, increment MQ_SIDE_VERSION.
 */
#ifndef MQ_RING_LAYOUT_H
#define MQ_RING_LAYOUT_H

#include "base/layout.h"

enum {
    MQ_READER_SLOTS = 15, /* number of reader slots in the ring, fixed by stock msgq */
    MQ_RING_HEADER = 384, /* bytes before the data area */
    MQ_SIDE_VERSION = 1,
    MQ_SIDE_BYTES = 65536,
    MQ_RING_PUBLISHERS = 16, /* rows for the current publisher and for previous publishers that are not closed yet */
    /* number of subscriber rows. Subscribers without a row work, but do not appear in stats */
    MQ_RING_SUBSCRIBERS = 128,
    MQ_SIDE_TRACKED = 1, /* value of `tracked` if the topic's messages begin with stamps */
};

#define MQ_SIDE_MAGIC 0x3145444953515347ull /* "GSQSIDE1" read as little-endian */
#define MQ_BRIDGE_NAME "msgq bridge"        /* written to participant.name, so that users recognize a bridge */
#define MQ_DEFAULT_DATA_BYTES (1024u * 1024u)

/* ---- the ring: /dev/shm/msgq_<endpoint>, the layout of stock msgq ---- */

typedef struct {
    /* number of slots handed out, 0 to 15. Joining subscribers and stock publishers write this number */
    mq_u64 num_readers;
    mq_u64 write_pointer; /* position of the next message. The publisher writes this position */
    mq_u64 write_uid; /* uid of the current publisher, 0: none. Publishers write this uid when they start and close */
    mq_u64 read_pointers[MQ_READER_SLOTS]; /* position of each slot's owner. The slot's owner writes this position */
    mq_u64 read_valids[MQ_READER_SLOTS]; /* 0 or 1. The slot's owner sets the flag, and the publisher clears the flag */
    /* uid of the slot's owner, 0: free. The owner writes this uid. A starting stock publisher clears all uids */
    mq_u64 read_uids[MQ_READER_SLOTS];
} mq_ring_header;

_Static_assert(offsetof(mq_ring_header, write_pointer) == 8, "fixed by stock msgq");
_Static_assert(offsetof(mq_ring_header, write_uid) == 16, "fixed by stock msgq");
_Static_assert(offsetof(mq_ring_header, read_pointers) == 24, "fixed by stock msgq");
_Static_assert(offsetof(mq_ring_header, read_valids) == 144, "fixed by stock msgq");
_Static_assert(offsetof(mq_ring_header, read_uids) == 264, "fixed by stock msgq");
_Static_assert(sizeof(mq_ring_header) == MQ_RING_HEADER, "fixed by stock msgq");

/* ---- the side segment: /dev/shm/msgqside_<endpoint>, msgq's own ---- */

typedef struct {
    mq_participant participant;
    /* value of `sent` after the current send; equal to `sent` between sends. The publisher writes this number */
    mq_u64 begun;
    mq_u64 sent;       /* messages published on this ring by all msgq publishers. The publisher writes this number */
    mq_u64 bytes;      /* payload bytes published by all msgq publishers */
    mq_u64 bridge_uid; /* participant.uid: a bridge publishes. ~participant.uid: another program publishes */
    mq_u64 reserved[4];
} mq_ring_publisher_row;
_Static_assert(sizeof(mq_ring_publisher_row) == 128, "bump MQ_SIDE_VERSION");

typedef struct {
    mq_participant participant;
    mq_u64 cursor;        /* position of the next message to read */
    mq_u64 received;      /* number of messages */
    mq_u64 lost;          /* number of messages */
    mq_u64 lost_unknown;  /* 1: the subscriber was lapped by a stock publisher, so `lost` is a lower bound */
    mq_u64 resets;        /* number of times that the subscriber was lapped */
    mq_u64 base_sequence; /* sequence at the cursor == base_sequence + received + lost */
    /* base_sequence is valid if base_tag and participant.uid have the same high half, and the low half of base_tag is
     * the era */
    mq_u64 base_tag;
    mq_u64 reserved;
} mq_ring_subscriber_row;
_Static_assert(sizeof(mq_ring_subscriber_row) == 128, "bump MQ_SIDE_VERSION");

/* Flag of the ring in `eventcount`. base/eventcount.h describes the other bits. */
enum { MQ_EVENTCOUNT_SLOTS = 2 }; /* set when the owner of a slot changed */

/* A position and the number of messages before the position. */
typedef struct {
    mq_u64 position; /* a message boundary at or before write_pointer */
    mq_u64 sequence; /* messages published before `position` in this era */
    mq_u64 era;      /* incremented when the count restarts because a stock publisher wrote */
} mq_ring_checkpoint_words;
_Static_assert(sizeof(mq_ring_checkpoint_words) == 24, "bump MQ_SIDE_VERSION");

typedef struct {
    /* These fields, except ring_data_bytes, are constant once the file has a name. */
    mq_u64 magic;
    mq_u64 version;
    mq_u64 total_bytes;
    mq_u64 publisher_count;
    mq_u64 subscriber_count;
    mq_u64 ring_inode;      /* inode of the ring that belongs to this file. A new ring has another inode */
    mq_u64 ring_data_bytes; /* size of the ring's data area at the last open under the lock */
    mq_u64 created_ns;      /* creation time in nanoseconds of the host's clock */

    /* The futex word of all sleepers. Subscribers set flags. To wake sleepers, the publisher clears the flags and
     * increments the wake count. The publisher reads this cache line at every send. Other processes must therefore
     * write the line rarely. */
    mq_u32 eventcount;
    /* The size of the ring. Processes write these four fields under the topic's lock, and rarely. */
    mq_u32 size_unasked;   /* 1: the creator used the default size, and no process has requested a size since */
    mq_u64 enlarged_from;  /* smallest ring_data_bytes from which the ring grew before its first message. 0: none */
    mq_u64 size_pid;       /* process that chose the size. 0: unknown, or a stock process */
    char size_by[MQ_NAME]; /* name of this process, padded with NUL bytes */
    mq_u32 eventcount_pad[6];

    /* The grant: the limit of the current publisher's writes. The publisher writes the grant once a chunk, with
     * grant_seq last. */
    mq_u64 write_limit; /* no byte that the publisher is writing is after this position */
    /* checkpoint of grants with an even grant_seq. While the publisher writes one checkpoint, the other checkpoint
     * is valid */
    mq_ring_checkpoint_words checkpoint_even;
    mq_u64 grant_seq;                        /* incremented with each grant */
    mq_ring_checkpoint_words checkpoint_odd; /* checkpoint of grants with an odd grant_seq */

    /* The schema descriptor. Processes write the descriptor under the topic's lock. schema_seq is odd during a
     * change. */
    mq_u64 schema_seq;
    mq_u64 schema_bytes; /* number of bytes in schema_data. 0 with an empty name: no schema */
    /* high 32 bits: low 32 bits of an odd schema_seq. Low 32 bits: offset in schema_data of the complete new schema */
    mq_u64 schema_shadow;
    /* value of the ring's canary (canary.h). A process writes the value under the lock. 0: no canary yet */
    mq_u64 ring_canary;
    mq_u64 tracked;   /* MQ_SIDE_TRACKED, or 0. A publisher sets this word under the lock before the first message */
    mq_u64 uncounted; /* 1: messages without a count were published before this file was created. Constant */
    /* Positions at which schemas begin. Change number n, (schema_seq + 1) / 2, has the element n % 2. The messages from
     * the position on have the schema of the change. A publisher writes the position under the lock, before the
     * change. */
    mq_u64 schema_begins[2];

    mq_ring_publisher_row publishers[MQ_RING_PUBLISHERS];
    mq_ring_subscriber_row subscribers[MQ_RING_SUBSCRIBERS];
    char schema_name[MQ_SCHEMA_NAME];
    char schema_encoding[MQ_SCHEMA_ENCODING];
    char schema_data[]; /* the data extends to the end of the file */
} mq_ring_side;

_Static_assert(offsetof(mq_ring_side, eventcount) == 64, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_ring_side, size_by) == 88, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_ring_side, write_limit) == 128, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_ring_side, grant_seq) == 160, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_ring_side, schema_seq) == 192, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_ring_side, tracked) == 224, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_ring_side, uncounted) == 232, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_ring_side, publishers) == 256, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_ring_side, subscribers) == 2304, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_ring_side, schema_name) == 18688, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_ring_side, schema_data) == 18928, "bump MQ_SIDE_VERSION");

#define MQ_SCHEMA_DATA_MAX (MQ_SIDE_BYTES - offsetof(mq_ring_side, schema_data))

#endif
