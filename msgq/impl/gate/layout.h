/* Layout of an endpoint's gate. docs/internals/layout.md describes the same bytes, and tests/meta compares the two.
 *
 * If an assert fails, other processes would misread the file: increment MQ_GATE_VERSION.
 */
#ifndef MQ_GATE_LAYOUT_H
#define MQ_GATE_LAYOUT_H

#include "base/layout.h"

/* ---- the gate: /dev/shm/msgqgate_<prefix>:<identifier>:<endpoint> (docs/guides/fake-events.md) ---- */

enum {
    MQ_GATE_VERSION = 1,
    MQ_GATE_BYTES = 192,
    MQ_FAKE_EVENT_SLEEPERS = 1, /* flag of `count`: a process may sleep */
    MQ_FAKE_EVENT_ONE = 2, /* value to add to the event's word for one set. The bits above the flag hold the count */
};
#define MQ_FAKE_EVENT_MAX 0x80000000u /* maximum of the event's word. At the maximum, further sets are not counted */

#define MQ_GATE_MAGIC 0x3145544147515347ull /* "GSQGATE1" read as little-endian */

/* An event. Each process that sets the event, clears the event or waits for the event writes the first word. */
typedef struct {
    mq_u32 count; /* futex word: number of sets minus number of clears, above the flag */
    mq_u32 count_pad;
    /* inode of the event's FIFO; 0: no FIFO was requested. The FIFO is readable while the count is above 0 */
    mq_u64 fifo_inode;
    mq_u64 reserved[6];
} mq_fake_event;
_Static_assert(sizeof(mq_fake_event) == 64, "bump MQ_GATE_VERSION");

typedef struct {
    /* The words before `enabled` are constant once the file has a name. */
    mq_u64 magic;
    mq_u64 version;
    mq_u64 total_bytes;
    mq_u64 pid;           /* process id of the owner. The owner created the gate */
    mq_u64 start_time;    /* start time of the owner, clock ticks since boot */
    mq_u64 pid_namespace; /* inode of the owner's PID namespace */

    mq_u32 enabled; /* 1: receive calls wait at the gate. Any handle may write this word */
    mq_u32 closed;  /* 1: the owner closed the gate, or another handle replaced the gate. A closed gate stays closed */
    mq_u64 held;    /* 1: the owner holds a lock on byte 0; 0: the file system has no such locks */
    mq_fake_event recv_called;
    mq_fake_event recv_ready;
} mq_event_gate;
_Static_assert(offsetof(mq_event_gate, recv_called) == 64, "bump MQ_GATE_VERSION");
_Static_assert(sizeof(mq_event_gate) == MQ_GATE_BYTES, "bump MQ_GATE_VERSION");

#endif
