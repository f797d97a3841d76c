/* Structures that the segments of several components share. No behaviour. */
#ifndef MQ_BASE_LAYOUT_H
#define MQ_BASE_LAYOUT_H

#include "base/atomics.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "msgq shares little-endian words with other programs; big-endian machines are not supported"
#endif

enum {
    MQ_NAME = 16,            /* bytes of a process name, as in the kernel's comm */
    MQ_SCHEMA_NAME = 192,    /* bytes of a schema's name */
    MQ_SCHEMA_ENCODING = 48, /* bytes of a schema's encoding */
};

/* Result of the check of a mapped file. */
typedef enum {
    MQ_FILE_VALID,
    MQ_FILE_NOT_OURS,      /* not a msgq file, or its data is invalid */
    MQ_FILE_OTHER_VERSION, /* the file has another version of the layout */
    MQ_FILE_STALE,         /* the file belongs to a ring that was removed or replaced */
} mq_file_check_result;

/* Identity of a participant. The owner writes its identity under the topic's lock. Afterwards the identity is constant.
 * A living owner holds a lock on one byte of the side segment: byte N for row N (liveness_lock.h). */
typedef struct {
    mq_u64 uid; /* 0: the row is free. The owner writes uid last, and clears uid first */
    mq_u64 pid;
    mq_u64 thread_id;     /* kernel thread id of the creator */
    mq_u64 start_time;    /* start time of the process, clock ticks since boot (proc_pid_stat(5), field 22) */
    mq_u64 pid_namespace; /* inode of /proc/self/ns/pid: the pid is valid only in this namespace */
    char name[MQ_NAME];   /* process name shown to users, padded with NUL bytes */
    mq_u64 locked_uid;    /* equal to uid: the owner holds the row's lock. Otherwise, the file system has no locks */
} mq_participant;
_Static_assert(sizeof(mq_participant) == 64, "bump MQ_SIDE_VERSION");

/* Beginning of a row in components whose words contain the row and generation of their owner. A row of the ring begins
 * with an mq_participant only. */
typedef struct {
    mq_participant participant;
    /* number of owners that the row has had. A word that names an owner holds the row's number and the low 16 bits of
     * this generation */
    mq_u64 generation;
} mq_versioned_row;
_Static_assert(sizeof(mq_versioned_row) == 72, "bump the version of every piece that has such rows");

/* A schema descriptor. The schema's data follows in the segment. A writer holds the component's lock. `seq` is odd
 * during a change. The ring stores the same fields at other offsets. */
typedef struct {
    mq_u64 seq;
    mq_u64 bytes; /* size of data in bytes. If the size is 0 and the name is empty, there is no schema */
    /* offset in `data` of the shadow, which is the complete new schema. The upper 32 bits of this word are the low half
     * of the odd seq for which the shadow is valid */
    mq_u64 shadow;
    mq_u64 pad[5];
    char name[MQ_SCHEMA_NAME];
    char encoding[MQ_SCHEMA_ENCODING];
} mq_schema;
_Static_assert(sizeof(mq_schema) == 304, "bump the version of every piece that has a schema");

/* Shadow copy: a schema in the unused end of data, used while the descriptor is being written. */
typedef struct {
    mq_u64 bytes;
    char name[MQ_SCHEMA_NAME];
    char encoding[MQ_SCHEMA_ENCODING];
    char data[];
} mq_schema_shadow;
_Static_assert(sizeof(mq_schema_shadow) == 248, "bump MQ_SIDE_VERSION");

/* Stamps at the beginning of each message of a tracked topic, and of each value of a tracked dtype. Both stamps are
 * nanoseconds by the host's clock. */
typedef struct {
    int64_t publish_time;
    int64_t origin_time; /* creation time of the first input that led to this message */
} mq_stamps;
_Static_assert(sizeof(mq_stamps) == 16, "bump MQ_SIDE_VERSION");

/* ---- the host's clock: /dev/shm/msgqclock (docs/internals/clock.md) ---- */

/* The words of the clock's file are constant once the file has a name. */

enum {
    MQ_CLOCK_VERSION = 1,
};

#define MQ_CLOCK_MAGIC 0x314b434c43515347ull /* "GSQCLCK1" read as little-endian */

typedef struct {
    mq_u64 magic;
    mq_u64 version;
    /* time since the epoch minus CLOCK_MONOTONIC of the first time namespace, in signed nanoseconds */
    mq_u64 offset_ns;
    mq_u64 reserved[5];
} mq_clock;
_Static_assert(sizeof(mq_clock) == 64, "bump MQ_CLOCK_VERSION");

/* ---- a user's origins: /dev/shm/msgqorigin_<uid> (docs/guides/tracking.md) ---- */

enum {
    MQ_ORIGIN_VERSION = 1,
};

#define MQ_ORIGIN_MAGIC 0x314e47524f515347ull /* "GSQORGN1" read as little-endian */

typedef struct {
    mq_u64 magic;
    mq_u64 version;
    /* newest allocated origin, nanoseconds by the host's clock. Any process of the user may exchange this word */
    mq_u64 last;
    mq_u64 reserved[5];
} mq_origin;
_Static_assert(sizeof(mq_origin) == 64, "bump MQ_ORIGIN_VERSION");

#endif
