/* Callbacks by which the watcher thread polls a reader. The callbacks run without Python. The callbacks use only state
 * that the reader's own thread does not change while the watcher watches the reader. */
#ifndef MQ_POLL_OPS_H
#define MQ_POLL_OPS_H

#include "base/eventcount.h"

typedef struct {
    int (*is_readable)(const void *reader); /* nonzero if a receive would return a message or an error */
    const void *reader; /* while the reader is watched, a change of this pointer needs the watcher's mutex */
    mq_u32 *eventcount; /* the word to sleep on */
    /* Announce a sleep. Returns the value that the word must have at the beginning of the sleep. May be called
     * repeatedly. NULL: the reader writes nothing to shared memory, and no process wakes the reader. The watcher then
     * polls the reader at intervals. */
    uint32_t (*prepare_wait)(const void *reader, mq_u32 *eventcount);
    void (*end_wait)(const void *reader); /* undoes prepare_wait when the reader is readable; NULL: nothing to undo */
    bool no_backoff; /* the watcher polls the reader at a constant interval, even after a long time without a message */
    int64_t (*max_sleep_ns)(const void *reader); /* longest time until the next poll; NULL: the constant interval */
} mq_poll_ops;

/* The next functions are for readers that announce a sleep by the flag in `eventcount`. */
static inline uint32_t mq_poll_prepare_wait(const void *reader, mq_u32 *eventcount) {
    (void)reader;
    return mq_eventcount_prepare_wait(eventcount);
}
static inline uint32_t mq_poll_prepare_wait_mp(const void *reader, mq_u32 *eventcount) {
    (void)reader;
    return mq_eventcount_prepare_wait_mp(eventcount);
}

#endif
