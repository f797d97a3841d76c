/* Bytes of a topic's two files, without behaviour. docs/internals/layout.md describes the same bytes; tests/meta compares.
 *
 * Little-endian. Fields are grouped by writer, one cache line (or more) each. An assert that fails means that other
 * processes would misread the file: for the ring, undo the change (stock programs read it); for the side
 * segment, bump MQ_SIDE_VERSION.
 */
#ifndef MQ_RING_LAYOUT_H
#define MQ_RING_LAYOUT_H

#include "base/layout.h"

enum {
    MQ_READER_SLOTS = 15, /* reader slots of the ring: fixed by stock msgq */
    MQ_RING_HEADER = 384, /* bytes before the data area */
    MQ_SIDE_VERSION = 1,
    MQ_SIDE_BYTES = 65536,
    MQ_RING_PUBLISHERS = 16,   /* publisher entries: the current one, and losers that were not closed yet */
    MQ_RING_SUBSCRIBERS = 128, /* subscriber entries; subscribers beyond work as well, unseen by stats */
    MQ_SIDE_TRACKED = 1,       /* what `tracked` is of a topic whose messages begin with stamps */
};

#define MQ_SIDE_MAGIC 0x3145444953515347ull /* "GSQSIDE1" read as little-endian */
#define MQ_BRIDGE_NAME "msgq bridge"        /* in participant.name, for people */
#define MQ_DEFAULT_DATA_BYTES (1024u * 1024u)

/* ---- the ring: /dev/shm/msgq_<endpoint>, the layout of stock msgq ---- */

typedef struct {
    mq_u64 num_readers;                    /* slots handed out so far, 0..15; joiners, stock publishers */
    mq_u64 write_pointer;                  /* position of the next message; the publisher */
    mq_u64 write_uid;                      /* uid of the current publisher; a starting publisher. 0: none */
    mq_u64 read_pointers[MQ_READER_SLOTS]; /* the slot's owner */
    mq_u64 read_valids[MQ_READER_SLOTS];   /* 0 or 1; the slot's owner sets, the publisher clears */
    mq_u64 read_uids[MQ_READER_SLOTS];     /* the slot's owner; 0: free. Stock publishers zero all at their start */
} mq_ring_header;

_Static_assert(offsetof(mq_ring_header, write_pointer) == 8, "fixed by stock msgq");
_Static_assert(offsetof(mq_ring_header, write_uid) == 16, "fixed by stock msgq");
_Static_assert(offsetof(mq_ring_header, read_pointers) == 24, "fixed by stock msgq");
_Static_assert(offsetof(mq_ring_header, read_valids) == 144, "fixed by stock msgq");
_Static_assert(offsetof(mq_ring_header, read_uids) == 264, "fixed by stock msgq");
_Static_assert(sizeof(mq_ring_header) == MQ_RING_HEADER, "fixed by stock msgq");

/* ---- the side segment: /dev/shm/msgqside_<endpoint>, ours ---- */

typedef struct {
    mq_participant participant;
    mq_u64 begun;      /* sequence after the send in progress; != sent: in progress. The publisher */
    mq_u64 sent;       /* messages published on this ring, over all our publishers. The publisher */
    mq_u64 bytes;      /* payload bytes published, over all our publishers */
    mq_u64 bridge_uid; /* == participant.uid: a bridge's; ~participant.uid: not a bridge's */
    mq_u64 reserved[4];
} mq_ring_publisher_row;
_Static_assert(sizeof(mq_ring_publisher_row) == 128, "bump MQ_SIDE_VERSION");

typedef struct {
    mq_participant participant;
    mq_u64 cursor;        /* position of the next message it reads */
    mq_u64 received;      /* messages */
    mq_u64 lost;          /* messages */
    mq_u64 lost_unknown;  /* 1: lapped while a stock publisher wrote, so `lost` is a lower bound */
    mq_u64 resets;        /* times it was lapped */
    mq_u64 base_sequence; /* sequence at the cursor == base + received + lost */
    mq_u64 base_tag; /* `base` is of this: high half as in participant.uid, low half the era. Else it means nothing */
    mq_u64 reserved;
} mq_ring_subscriber_row;
_Static_assert(sizeof(mq_ring_subscriber_row) == 128, "bump MQ_SIDE_VERSION");

/* The ring's own flag of `eventcount`; the rest of the word is in base/eventcount.h. */
enum { MQ_EVENTCOUNT_SLOTS = 2 }; /* slots changed hands */

/* A place in the ring of which the count of messages is known. */
typedef struct {
    mq_u64 position; /* a message boundary at or before write_pointer */
    mq_u64 sequence; /* messages published before it in this era */
    mq_u64 era;      /* grows when the count restarts, because a stock publisher was here */
} mq_ring_checkpoint_words;
_Static_assert(sizeof(mq_ring_checkpoint_words) == 24, "bump MQ_SIDE_VERSION");

typedef struct {
    /* Constant once the file has a name. */
    mq_u64 magic;
    mq_u64 version;
    mq_u64 total_bytes;
    mq_u64 publisher_count;
    mq_u64 subscriber_count;
    mq_u64 ring_inode;      /* the ring that this belongs to: a ring that was removed and made anew gets a new one */
    mq_u64 ring_data_bytes; /* as large as it was ever found, under the lock */
    mq_u64 created_ns;      /* by the host's clock */

    /* Subscribers set flags; the publisher clears them and counts a wake. The futex word of all sleepers. The publisher
     * reads the line at every send, so it must stay quiet. */
    mq_u32 eventcount;
    mq_u32 eventcount_pad[15];

    /* The grant. Written by the current publisher, once a chunk; `turn` last. */
    mq_u64 write_limit;                       /* position that no byte being written goes beyond */
    mq_ring_checkpoint_words checkpoint_even; /* of even turns. One is valid while the other is being written */
    mq_u64 grant_seq;                         /* grows with each grant */
    mq_ring_checkpoint_words checkpoint_odd;  /* of odd turns */

    /* The schema descriptor. Written under the lock; schema_seq is odd while it changes. */
    mq_u64 schema_seq;
    mq_u64 schema_bytes; /* of schema_data; 0 with an empty name: none */
    mq_u64
        schema_shadow;  /* an odd schema_seq, its low half, << 32 | where in schema_data the new schema is whole then */
    mq_u64 ring_canary; /* what the ring's tail is (canary.h). Under the lock. 0: none yet */
    mq_u64 tracked;     /* MQ_SIDE_TRACKED, or 0. Set under the lock before the first message, then constant */
    mq_u64 uncounted;   /* 1: messages were published before this was made, and nobody counted them. Constant */
    mq_u64 schema_pad[2];

    mq_ring_publisher_row publishers[MQ_RING_PUBLISHERS];
    mq_ring_subscriber_row subscribers[MQ_RING_SUBSCRIBERS];
    char schema_name[MQ_SCHEMA_NAME];
    char schema_encoding[MQ_SCHEMA_ENCODING];
    char schema_data[]; /* up to the end of the file */
} mq_ring_side;

_Static_assert(offsetof(mq_ring_side, eventcount) == 64, "bump MQ_SIDE_VERSION");
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
