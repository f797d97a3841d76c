/* msgq for C and C++: what all kinds have in common. docs/guides/c.md has the contracts.
 *
 * A call returns 0 or more, or a negative errno; then msgq_error_text() says what is wrong and what to do. No call ends
 * the process, prints, or changes errno on purpose. A handle serves one thread at a time; different handles do not
 * disturb each other. In a forked child a topic's handles continue (topic.h), and other handles of the parent return
 * -ECHILD; all may be closed there.
 *
 * Time-outs are seconds: 0 never waits, a negative one waits for ever. A handler of a signal that ran ends a wait with
 * -EINTR. Times are nanoseconds since the epoch by the host's clock.
 */
#ifndef MSGQ_COMMON_H
#define MSGQ_COMMON_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether an endpoint is made. */
enum { MSGQ_OPEN_OR_MAKE = 0, MSGQ_OPEN = 1, MSGQ_MAKE = 2 };

/* How an endpoint is opened. Zeros, or NULL in the place of the options, are the defaults. */
typedef struct {
    const char *prefix; /* NULL: OPENPILOT_PREFIX; "": none */
    const char *trust;  /* users whose files are used beside one's own and root's; NULL: MSGQ_TRUST */
    int mode;           /* permissions of new files; 0: MSGQ_MODE, or 0600 */
    int create;         /* MSGQ_OPEN_OR_MAKE, MSGQ_OPEN (else -ENOENT), MSGQ_MAKE (else -EEXIST) */
} msgq_options;

/* What messages mean, for tools that decode them, recorders and other programs (msgq.Schema). */
typedef struct {
    const char *name;     /* at most 191 bytes */
    const char *encoding; /* "json", "protobuf", "struct" (a NumPy dtype), ...; at most 47 bytes */
    const void *data;     /* the schema itself; NULL with 0 bytes */
    size_t bytes;
} msgq_schema;

/* What came with a message. A field that a kind does not have is 0. */
typedef struct {
    uint64_t size;        /* bytes of the message, also when it does not fit: -EMSGSIZE */
    int64_t publish_time; /* channels, queues, tracked topics */
    int64_t origin_time;  /* of what it comes from; the same */
    uint64_t position;    /* channels: in the order of all messages */
    uint64_t deliveries;  /* queues: how often it was taken, this time included */
    int priority;         /* queues */
    int publisher_pid;    /* channels */
    char publisher[48];   /* channels: the name of its node */
} msgq_message;

/* The name of an error, negative or not: "timed out". Never NULL. */
const char *msgq_strerror(int error);

/* What the last call of this thread that failed has to say. Valid until this thread's next call that fails. */
const char *msgq_error_text(void);

/* What the messages come from that this thread sends from now on, nanoseconds by the host's clock; 0: nothing. */
void msgq_set_origin(int64_t origin_time);
int64_t msgq_origin(void);

/* Now, by the host's clock. */
int64_t msgq_time_ns(void);

#ifdef __cplusplus
}
#endif

#endif
