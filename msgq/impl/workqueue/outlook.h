/* A handle as the watcher thread knows it (ground/lookout.h), and all else in this process that watches by it.
 *
 * They share one bit, which goes on with the first and off with the last. All of it is guarded by the watcher's mutex.
 */
#ifndef MQ_WORKQUEUE_OUTLOOK_H
#define MQ_WORKQUEUE_OUTLOOK_H

#include "ground/lookout.h"
#include "workqueue/repair.h"

typedef struct {
    mq_queue_handle h;  /* of its own: the time of its last look */
    int watching;       /* so many want the bit */
    bool fd_watches;    /* the descriptor is one of them */
} mq_queue_outlook;

static inline void mq_queue_watch(mq_queue_outlook *outlook) {
    outlook->watching++;
    mq_queue_bit_on(&outlook->h.parts.queue->receivers_watching, outlook->h.number);
}
static inline void mq_queue_unwatch(mq_queue_outlook *outlook) {
    if (--outlook->watching == 0)
        mq_queue_bit_off(&outlook->h.parts.queue->receivers_watching, outlook->h.number);
}

/* Nobody else sleeps as long as the thread does: it looks for the dead, too. */
static inline int mq_queue_outlook_has_more(const void *reader) {
    mq_queue_handle *h = &((mq_queue_outlook *)(uintptr_t)reader)->h;
    if (mq_queue_has_ready(&h->parts))
        return 1;
    int64_t now = mq_now_ns();
    if (!mq_queue_sweep_due(h, now))
        return 0;
    mq_queue_sweep(h, now);
    return mq_queue_has_ready(&h->parts);
}

static inline uint32_t mq_queue_outlook_announce(const void *reader, mq_u32 *word) {
    mq_queue_outlook *outlook = (mq_queue_outlook *)(uintptr_t)reader;
    if (!outlook->fd_watches) {
        outlook->fd_watches = true;
        mq_queue_watch(outlook);
    }
    return mq_load_acquire_u32(word);
}

static inline void mq_queue_outlook_awake(const void *reader) {
    mq_queue_outlook *outlook = (mq_queue_outlook *)(uintptr_t)reader;
    if (outlook->fd_watches) {
        outlook->fd_watches = false;
        mq_queue_unwatch(outlook);
    }
}

#endif
