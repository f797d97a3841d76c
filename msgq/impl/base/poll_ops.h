/* Callbacks by which the watcher thread polls a reader. They run without Python, and use only state that the reader's
 * own thread does not change during a watch. */
#ifndef MQ_POLL_OPS_H
#define MQ_POLL_OPS_H

#include "base/eventcount.h"

typedef struct {
    int (*is_readable)(const void *reader); /* nonzero if a receive would return a message or an error */
    const void *reader;                     /* changes only under the watcher's mutex while watched */
    mq_u32 *eventcount;                     /* the word to sleep on */
    /* Announce a sleep, and return the value that the word must have. May be called repeatedly. NULL: the reader writes
     * nothing and no process wakes it, so the watcher polls it by the clock. */
    uint32_t (*prepare_wait)(const void *reader, mq_u32 *eventcount);
    void (*end_wait)(const void *reader); /* undo prepare_wait when the reader is readable; NULL: not needed */
    bool no_backoff;                      /* poll at a constant interval, even after a long time without a message */
} mq_poll_ops;

/* For readers that announce a sleep by the flag in `eventcount`. */
static inline uint32_t mq_poll_prepare_wait(const void *reader, mq_u32 *eventcount) {
    (void)reader;
    return mq_eventcount_prepare_wait(eventcount);
}
static inline uint32_t mq_poll_prepare_wait_mp(const void *reader, mq_u32 *eventcount) {
    (void)reader;
    return mq_eventcount_prepare_wait_mp(eventcount);
}

#endif
