/* The bytes of a topic's two files, and of an endpoint's gate. No behaviour here; docs/layout.md is the same in prose, tests/meta pins both.
 *
 * Little-endian. Fields are grouped by writer, one cache line (or more) each. An assert that fails means that other
 * processes would misread the file: for the ring, undo the change (stock programs read it); for the other two, bump
 * MQ_SIDE_VERSION or MQ_GATE_VERSION.
 */
#ifndef MQ_LAYOUT_H
#define MQ_LAYOUT_H

#include "atomics.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "msgq shares little-endian words with other programs; big-endian machines are not supported"
#endif

enum {
    MQ_SLOTS = 15,              /* reader slots of the ring: fixed by stock msgq */
    MQ_RING_HEADER = 384,       /* bytes before the data area */
    MQ_SIDE_VERSION = 1,
    MQ_SIDE_BYTES = 65536,
    MQ_PUBLISHERS = 16,         /* publisher entries: the current one, and losers that were not closed yet */
    MQ_READERS = 128,           /* subscriber entries; subscribers beyond work as well, unseen by stats */
    MQ_NAME = 16,               /* bytes of a process name, as the kernel's comm */
    MQ_SCHEMA_NAME = 192,
    MQ_SCHEMA_ENCODING = 48,
};

#define MQ_SIDE_MAGIC 0x3145444953515347ull /* "GSQSIDE1" read as little-endian */
#define MQ_DEFAULT_DATA_BYTES (1024u * 1024u)

/* ---- the ring: /dev/shm/msgq_<endpoint>, the layout of stock msgq ---- */

typedef struct {
    mq_u64 num_readers;              /* slots handed out so far, 0..15; joiners, stock publishers */
    mq_u64 write_pointer;            /* position of the next message; the publisher */
    mq_u64 write_uid;                /* uid of the current publisher; a starting publisher. 0: none */
    mq_u64 read_pointers[MQ_SLOTS];  /* the slot's owner */
    mq_u64 read_valids[MQ_SLOTS];    /* 0 or 1; the slot's owner sets, the publisher clears */
    mq_u64 read_uids[MQ_SLOTS];      /* the slot's owner; 0: free. Stock publishers zero all at their start */
} mq_ring_header;

_Static_assert(offsetof(mq_ring_header, write_pointer) == 8, "fixed by stock msgq");
_Static_assert(offsetof(mq_ring_header, write_uid) == 16, "fixed by stock msgq");
_Static_assert(offsetof(mq_ring_header, read_pointers) == 24, "fixed by stock msgq");
_Static_assert(offsetof(mq_ring_header, read_valids) == 144, "fixed by stock msgq");
_Static_assert(offsetof(mq_ring_header, read_uids) == 264, "fixed by stock msgq");
_Static_assert(sizeof(mq_ring_header) == MQ_RING_HEADER, "fixed by stock msgq");

/* ---- the side segment: /dev/shm/msgqside_<endpoint>, ours ---- */

/* Who a participant is. Written by its owner while it holds the topic's lock, then constant. Whether it lives is told by
 * a lock on the byte of the side segment that has the row's number (life.h). */
typedef struct {
    mq_u64 uid;             /* 0: the entry is free. Written last, cleared first */
    mq_u64 pid;
    mq_u64 thread_id;       /* kernel thread id of the creator */
    mq_u64 start_time;      /* of the process, clock ticks since boot (proc_pid_stat(5), field 22) */
    mq_u64 pid_namespace;   /* inode of /proc/self/ns/pid: elsewhere the pid means nothing */
    char name[MQ_NAME];     /* process name, NUL-padded; for people, and how msgq/bridge.py knows its like */
    mq_u64 held_uid;        /* == uid: the owner holds the row's lock. Else it uses the release before, which has none */
} mq_identity;
_Static_assert(sizeof(mq_identity) == 64, "bump MQ_SIDE_VERSION");

typedef struct {
    mq_identity who;
    mq_u64 begun;           /* sequence after the send in progress; != sent: in progress. The publisher */
    mq_u64 sent;            /* messages published on this ring, over all our publishers. The publisher */
    mq_u64 bytes;           /* payload bytes published, over all our publishers */
    mq_u64 reserved[5];
} mq_publisher_entry;
_Static_assert(sizeof(mq_publisher_entry) == 128, "bump MQ_SIDE_VERSION");

typedef struct {
    mq_identity who;
    mq_u64 cursor;          /* position of the next message it reads */
    mq_u64 received;        /* messages */
    mq_u64 lost;            /* messages */
    mq_u64 lost_unknown;    /* 1: lapped while a stock publisher wrote, so `lost` is a lower bound */
    mq_u64 resets;          /* times it was lapped */
    mq_u64 base;            /* sequence at the cursor == base + received + lost */
    mq_u64 counted;         /* `base` is of this: high half as in who.uid, low half the era. Else it means nothing */
    mq_u64 reserved;
} mq_reader_entry;
_Static_assert(sizeof(mq_reader_entry) == 128, "bump MQ_SIDE_VERSION");

/* `attention`: two flags, and above them a count of wakes. */
enum {
    MQ_ATTENTION_WAITERS = 1,   /* somebody may sleep */
    MQ_ATTENTION_SLOTS = 2,     /* slots changed hands */
    MQ_ATTENTION_FLAGS = 3,
    MQ_ATTENTION_WAKE = 4,      /* one wake */
};

/* A place in the ring of which the count of messages is known. */
typedef struct {
    mq_u64 position;        /* a message boundary at or before write_pointer */
    mq_u64 sequence;        /* messages published before it in this era */
    mq_u64 era;             /* grows when the count restarts, because a stock publisher was here */
} mq_milestone_words;
_Static_assert(sizeof(mq_milestone_words) == 24, "bump MQ_SIDE_VERSION");

typedef struct {
    /* Constant once the file has a name. */
    mq_u64 magic;
    mq_u64 version;
    mq_u64 total_bytes;
    mq_u64 publisher_count;
    mq_u64 reader_count;
    mq_u64 ring_inode;      /* the ring that this belongs to: a ring that was removed and made anew gets a new one */
    mq_u64 ring_data_bytes; /* as large as it was ever found, under the lock */
    mq_u64 created_ns;      /* CLOCK_REALTIME */

    /* Subscribers set flags; the publisher clears them and counts a wake. The futex word of all sleepers. The publisher
     * reads the line at every send, so it must stay quiet. */
    mq_u32 attention;
    mq_u32 attention_pad[15];

    /* The grant. Written by the current publisher, once a chunk; `turn` last. */
    mq_u64 limit;               /* position that no byte being written goes beyond */
    mq_milestone_words milestone_even; /* of even turns. One is valid while the other is being written */
    mq_u64 turn;                /* grows with each grant */
    mq_milestone_words milestone_odd;  /* of odd turns */

    /* The schema descriptor. Written under the lock; schema_turn is odd while it changes. */
    mq_u64 schema_turn;
    mq_u64 schema_bytes;        /* of schema_data; 0 with an empty name: none */
    mq_u64 schema_spare;        /* an odd schema_turn, its low half, << 32 | where in schema_data the new schema is whole then */
    mq_u64 ring_tail;           /* what the ring's tail is (whole.h). Under the lock. 0: the release before, which has none */
    mq_u64 schema_pad[4];

    mq_publisher_entry publishers[MQ_PUBLISHERS];
    mq_reader_entry readers[MQ_READERS];
    char schema_name[MQ_SCHEMA_NAME];
    char schema_encoding[MQ_SCHEMA_ENCODING];
    char schema_data[];         /* up to the end of the file */
} mq_side;

_Static_assert(offsetof(mq_side, attention) == 64, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_side, limit) == 128, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_side, turn) == 160, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_side, schema_turn) == 192, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_side, publishers) == 256, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_side, readers) == 2304, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_side, schema_name) == 18688, "bump MQ_SIDE_VERSION");
_Static_assert(offsetof(mq_side, schema_data) == 18928, "bump MQ_SIDE_VERSION");

/* A schema in the unused end of schema_data, for as long as its place is being written. */
typedef struct {
    mq_u64 bytes;
    char name[MQ_SCHEMA_NAME];
    char encoding[MQ_SCHEMA_ENCODING];
    char data[];
} mq_schema_spare;
_Static_assert(sizeof(mq_schema_spare) == 248, "bump MQ_SIDE_VERSION");

#define MQ_SCHEMA_DATA_MAX (MQ_SIDE_BYTES - offsetof(mq_side, schema_data))

/* ---- the gate: /dev/shm/msgqgate_<prefix>:<identifier>:<endpoint>, ours (docs/fake-events.md) ---- */

enum {
    MQ_GATE_VERSION = 1,
    MQ_GATE_BYTES = 192,
    MQ_EVENT_SLEEPERS = 1,      /* a flag of `count`: somebody may sleep */
    MQ_EVENT_ONE = 2,           /* one set, in the count above the flag */
};

#define MQ_GATE_MAGIC 0x3145544147515347ull /* "GSQGATE1" read as little-endian */

/* Written by whoever sets, clears or waits. */
typedef struct {
    mq_u32 count;           /* sets that were not cleared, and the flag; the futex word */
    mq_u32 count_pad;
    mq_u64 fifo_inode;      /* the FIFO beside the gate that is readable while the count is above 0; 0: nobody asked */
    mq_u64 reserved[6];
} mq_event;
_Static_assert(sizeof(mq_event) == 64, "bump MQ_GATE_VERSION");

typedef struct {
    /* Constant once the file has a name. */
    mq_u64 magic;
    mq_u64 version;
    mq_u64 total_bytes;
    mq_u64 pid;             /* the owner's, the process that made it */
    mq_u64 start_time;      /* of the owner, clock ticks since boot */
    mq_u64 pid_namespace;   /* in which the pid means something */

    mq_u32 enabled;         /* whether receiving stops at the gate; any handle */
    mq_u32 closed;          /* 1: the owner closed it, or another handle replaced it; never 0 again */
    mq_u64 held;            /* 1: the owner holds a lock on byte 0. 0: it uses the release before, which has none */
    mq_event recv_called;
    mq_event recv_ready;
} mq_gate;
_Static_assert(offsetof(mq_gate, recv_called) == 64, "bump MQ_GATE_VERSION");
_Static_assert(sizeof(mq_gate) == MQ_GATE_BYTES, "bump MQ_GATE_VERSION");

#endif
