/* The bytes that segments of several pieces have in common. No behaviour here. */
#ifndef MQ_BASE_LAYOUT_H
#define MQ_BASE_LAYOUT_H

#include "base/atomics.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "msgq shares little-endian words with other programs; big-endian machines are not supported"
#endif

enum {
    MQ_NAME = 16,            /* bytes of a process name, as the kernel's comm */
    MQ_SCHEMA_NAME = 192,    /* bytes of a schema's name */
    MQ_SCHEMA_ENCODING = 48, /* bytes of its encoding */
};

/* The result of a check of a mapped file, of any kind. */
typedef enum {
    MQ_FILE_VALID,
    MQ_FILE_NOT_OURS,      /* not a file of msgq, or its bytes are invalid */
    MQ_FILE_OTHER_VERSION, /* of another version of the layout */
    MQ_FILE_STALE,         /* it belongs to a file that was replaced */
} mq_file_check_result;

/* Who a participant is. Written by its owner while it holds the topic's lock, then constant. Whether it lives is told
 * by a lock on the byte of the side segment that has the row's number (liveness_lock.h). */
typedef struct {
    mq_u64 uid; /* 0: the entry is free. Written last, cleared first */
    mq_u64 pid;
    mq_u64 thread_id;     /* kernel thread id of the creator */
    mq_u64 start_time;    /* of the process, clock ticks since boot (proc_pid_stat(5), field 22) */
    mq_u64 pid_namespace; /* inode of /proc/self/ns/pid: elsewhere the pid means nothing */
    char name[MQ_NAME];   /* process name, NUL-padded; for people */
    mq_u64 locked_uid;    /* == uid: the owner holds the row's lock. Else its file system has no such locks */
} mq_participant;
_Static_assert(sizeof(mq_participant) == 64, "bump MQ_SIDE_VERSION");

/* How a row begins in pieces whose words name their owner; a row of the ring begins with an mq_participant alone. */
typedef struct {
    mq_participant participant;
    mq_u64 generation; /* times that the row was taken. Words have its low 16 bits beside the row's number */
} mq_versioned_row;
_Static_assert(sizeof(mq_versioned_row) == 72, "bump the version of every piece that has such rows");

/* A schema descriptor; the schema's data follows in the segment. Written under the piece's lock; `turn` is odd while it
 * changes. The ring has the fields elsewhere. */
typedef struct {
    mq_u64 seq;
    mq_u64 bytes;  /* of the data; 0 with an empty name: none */
    mq_u64 shadow; /* an odd turn, its low half, << 32 | where in data the new schema is whole then */
    mq_u64 pad[5];
    char name[MQ_SCHEMA_NAME];
    char encoding[MQ_SCHEMA_ENCODING];
} mq_schema;
_Static_assert(sizeof(mq_schema) == 304, "bump the version of every piece that has a schema");

/* A schema in the unused end of data, for as long as its place is being written. */
typedef struct {
    mq_u64 bytes;
    char name[MQ_SCHEMA_NAME];
    char encoding[MQ_SCHEMA_ENCODING];
    char data[];
} mq_schema_shadow;
_Static_assert(sizeof(mq_schema_shadow) == 248, "bump MQ_SIDE_VERSION");

/* What each message of a tracked topic begins with, before its payload, and each value of a tracked dtype. Nanoseconds
 * of the host's clock. */
typedef struct {
    int64_t publish_time;
    int64_t origin_time; /* of what it comes from */
} mq_stamps;
_Static_assert(sizeof(mq_stamps) == 16, "bump MQ_SIDE_VERSION");

/* ---- the host's clock: /dev/shm/msgqclock, ours (docs/internals/clock.md). Constant once the file has a name ---- */

enum {
    MQ_CLOCK_VERSION = 1,
};

#define MQ_CLOCK_MAGIC 0x314b434c43515347ull /* "GSQCLCK1" read as little-endian */

typedef struct {
    mq_u64 magic;
    mq_u64 version;
    mq_u64 offset_ns; /* signed: ns since the epoch less CLOCK_MONOTONIC of the first time namespace */
    mq_u64 reserved[5];
} mq_clock;
_Static_assert(sizeof(mq_clock) == 64, "bump MQ_CLOCK_VERSION");

/* ---- a user's origins: /dev/shm/msgqorigin_<uid>, ours (docs/guides/tracking.md) ---- */

enum {
    MQ_ORIGIN_VERSION = 1,
};

#define MQ_ORIGIN_MAGIC 0x314e47524f515347ull /* "GSQORGN1" read as little-endian */

typedef struct {
    mq_u64 magic;
    mq_u64 version;
    mq_u64 last; /* the newest origin that was made, ns of the host's clock. Any process of the user, by exchange */
    mq_u64 reserved[5];
} mq_origin;
_Static_assert(sizeof(mq_origin) == 64, "bump MQ_ORIGIN_VERSION");

#endif
