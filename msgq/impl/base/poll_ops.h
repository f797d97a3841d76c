/* How the watcher thread looks after a reader: without Python, and without what the reader's own thread changes. */
#ifndef MQ_POLL_OPS_H
#define MQ_POLL_OPS_H

#include "base/eventcount.h"

typedef struct {
    int (*is_readable)(const void *reader); /* not 0: there is something to read, or an error to be had */
    const void *reader;                     /* while it is watched, it changes under the watcher's mutex only */
    mq_u32 *eventcount;                     /* the word to sleep on */
    /* Say that we sleep, and return what the word shall be. NULL: writes nothing, so nobody wakes it; it is looked at by
     * the clock. Calls that follow each other do no harm. */
    uint32_t (*prepare_wait)(const void *reader, mq_u32 *eventcount);
    void (*end_wait)(const void *reader); /* the opposite, when it has something; NULL: nobody needs it */
    bool no_backoff;                      /* by the clock, look as often as ever, however long nothing happened */
} mq_poll_ops;

/* For readers whose announcement is the flag in `eventcount`. */
static inline uint32_t mq_poll_prepare_wait(const void *reader, mq_u32 *eventcount) {
    (void)reader;
    return mq_eventcount_prepare_wait(eventcount);
}
static inline uint32_t mq_poll_prepare_wait_mp(const void *reader, mq_u32 *eventcount) {
    (void)reader;
    return mq_eventcount_prepare_wait_mp(eventcount);
}

#endif
