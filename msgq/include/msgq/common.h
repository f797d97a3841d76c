/* msgq for C and C++: declarations that all types of endpoint share. See docs/guides/c.md for the contracts.
 *
 * A call returns 0 or a positive number after success, and a negative errno after an error, whose problem and solution
 * the text of msgq_error_text() describes. No call ends the process or prints, and the value of errno after a call is
 * undefined. One thread at a time may use a handle, while different handles are independent. In a forked child,
 * handles of topics continue to work (see topic.h), but calls for handles of other endpoints return -ECHILD. The child
 * may close all handles of its parent.
 *
 * A call with a NULL handle returns -EINVAL, except for the functions that close a handle. So does a call with another
 * NULL pointer, unless the function's comment allows NULL. Options may be NULL, and so may data and buffers of 0
 * bytes: to send an empty message, give NULL and the size 0.
 *
 * Timeouts are in seconds. A call never waits with timeout 0, and waits without a limit with a negative timeout. A
 * signal handler that runs during a sleep ends the call with -EINTR (docs/guides/c.md, "Signals", describes the gap
 * between two sleeps). Times are nanoseconds since the epoch by the host's clock. */
#ifndef MSGQ_COMMON_H
#define MSGQ_COMMON_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Values of msgq_options.create. */
enum { MSGQ_OPEN_OR_MAKE = 0, MSGQ_OPEN = 1, MSGQ_MAKE = 2 };

/* Options to open an endpoint. Zeroed options and a NULL pointer both select the defaults. */
typedef struct {
    const char *prefix; /* NULL: OPENPILOT_PREFIX; "": none */
    /* comma-separated names or ids of trusted users; NULL: the value of MSGQ_TRUST. The library accepts files of
     * trusted users, of root, and your own files */
    const char *trust;
    int mode;   /* permissions of new files; 0: the value of MSGQ_MODE, or 0600 */
    int create; /* MSGQ_OPEN_OR_MAKE; MSGQ_OPEN: -ENOENT if missing; MSGQ_MAKE: -EEXIST if existing */
} msgq_options;

/* Schema of the messages, with which recorders and tools decode them (msgq.Schema in Python). */
typedef struct {
    const char *name;     /* at most 191 bytes */
    const char *encoding; /* "json", "protobuf", "struct" (a NumPy dtype), ...; at most 47 bytes */
    const void *data;     /* bytes of the schema; NULL if `bytes` is 0 */
    size_t bytes;
} msgq_schema;

/* Information about a received message. A field that a type of endpoint does not have is 0. */
typedef struct {
    uint64_t size;        /* bytes of the message, also after -EMSGSIZE */
    int64_t publish_time; /* channels, queues and tracked topics: time of publication, nanoseconds */
    /* channels, queues and tracked topics: creation time of the first input that led to this message, nanoseconds */
    int64_t origin_time;
    uint64_t position;   /* channels: position in the order of all messages */
    uint64_t deliveries; /* queues: number of deliveries of this message, including this one */
    int priority;        /* queues: 0 to 32767 */
    int publisher_pid;   /* channels: process id of the publisher */
    char publisher[48];  /* channels: name of the publisher */
} msgq_message;

/* Return the text of an error code, which may be negative or positive, such as "Connection timed out". Never returns
 * NULL. */
const char *msgq_strerror(int error);

/* Return the description of this thread's last error. It is valid until the next failed call of this thread. */
const char *msgq_error_text(void);

/* Set the origin time of messages that this thread sends from now on, in nanoseconds by the host's clock
 * (msgq_time_ns), not by CLOCK_BOOTTIME. With 0, the thread has no origin time. */
void msgq_set_origin(int64_t origin_time);
int64_t msgq_origin(void);

/* Return the current time of the host's clock in nanoseconds. */
int64_t msgq_time_ns(void);

#ifdef __cplusplus
}
#endif

#endif
