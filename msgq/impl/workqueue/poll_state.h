/* A handle as the watcher thread knows it (base/poll_ops.h), and all else in this process that watches by it.
 *
 * They share one bit, which goes on with the first and off with the last. All of it is guarded by the watcher's mutex.
 */
#ifndef MQ_WORKQUEUE_OUTLOOK_H
#define MQ_WORKQUEUE_OUTLOOK_H

#include "base/poll_ops.h"
#include "workqueue/recovery.h"

typedef struct {
    mq_queue_handle h; /* of its own: the time of its last look */
    int watching;      /* so many want the bit */
    uint64_t ticket;   /* drawn by the first watch after the handle last took a message; 0: none */
    bool fd_watches;   /* the descriptor is one of them */
} mq_queue_poll_state;

static inline uint32_t mq_queue_outlook_lie_down(mq_queue_poll_state *outlook) {
    if (!outlook->ticket)
        outlook->ticket = mq_queue_wait_begin(&outlook->h, MQ_WATCHING, false).ticket;
    return mq_queue_prepare_sleep(&outlook->h, MQ_WATCHING, outlook->ticket);
}
static inline uint32_t mq_queue_watch(mq_queue_poll_state *outlook) {
    outlook->watching++;
    return mq_queue_outlook_lie_down(outlook);
}
static inline void mq_queue_unwatch(mq_queue_poll_state *outlook) {
    if (--outlook->watching == 0)
        mq_queue_finish_sleep(&outlook->h, MQ_WATCHING);
}

/* Nobody else sleeps as long as the thread does: it looks for the dead, too. */
static inline int mq_queue_poll_has_more(const void *reader) {
    mq_queue_handle *h = &((mq_queue_poll_state *)(uintptr_t)reader)->h;
    if (mq_queue_has_ready(&h->parts))
        return 1;
    int64_t now = mq_now_ns();
    if (!mq_queue_reclaim_due(h, now))
        return 0;
    mq_queue_recover(h, now);
    return mq_queue_has_ready(&h->parts);
}

static inline uint32_t mq_queue_poll_prepare_wait(const void *reader, mq_u32 *word) {
    mq_queue_poll_state *outlook = (mq_queue_poll_state *)(uintptr_t)reader;
    (void)word;
    if (outlook->fd_watches)
        return mq_queue_outlook_lie_down(outlook); /* again: the message of its wake is gone */
    outlook->fd_watches = true;
    return mq_queue_watch(outlook);
}

static inline void mq_queue_poll_end_wait(const void *reader) {
    mq_queue_poll_state *outlook = (mq_queue_poll_state *)(uintptr_t)reader;
    if (outlook->fd_watches) {
        outlook->fd_watches = false;
        mq_queue_unwatch(outlook);
    }
}

/* ---- notifications: who waits for messages that come to an empty queue ---- */

typedef struct {
    mq_queue_handle h; /* of its own, too */
    mq_u32 seen;       /* what `arrived` was when it was told last */
} mq_queue_notice;

static inline bool mq_queue_notice_due(const mq_queue_notice *notice) {
    return mq_load_acquire_u32(&notice->h.parts.queue->arrived) != mq_load_acquire_u32(&notice->seen);
}

/* What comes back from the dead comes to an empty queue, perhaps. */
static inline int mq_queue_notice_has_more(const void *reader) {
    mq_queue_notice *notice = (mq_queue_notice *)(uintptr_t)reader;
    int64_t now = mq_now_ns();
    if (!mq_queue_notice_due(notice) && now - notice->h.looked_ns >= MQ_QUEUE_RECOVER_NS)
        mq_queue_recover(&notice->h, now);
    return mq_queue_notice_due(notice);
}

static inline uint32_t mq_queue_notice_announce(const void *reader, mq_u32 *word) {
    (void)reader;
    return mq_load_acquire_u32(word); /* the row's bit stands all the time */
}

/* Was anything told since the last time? */
static inline bool mq_queue_notice_take(mq_queue_notice *notice) {
    uint32_t arrived = mq_load_acquire_u32(&notice->h.parts.queue->arrived);
    bool due = arrived != mq_load_acquire_u32(&notice->seen);
    mq_store_release_u32(&notice->seen, arrived);
    return due;
}

#endif
