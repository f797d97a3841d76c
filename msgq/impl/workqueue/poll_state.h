/* State of a handle for the watcher thread (base/poll_ops.h), and for all other watches of the handle in this process.
 *
 * All watches share one bit. The first watcher sets the bit, and the last watcher clears it. The watcher's mutex guards
 * this state.
 */
#ifndef MQ_WORKQUEUE_POLL_STATE_H
#define MQ_WORKQUEUE_POLL_STATE_H

#include "base/poll_ops.h"
#include "workqueue/recovery.h"

typedef struct {
    mq_queue_handle h;        /* a copy of the handle, with its own time of the last recovery */
    int watcher_count;        /* number of watchers that need the bit */
    uint64_t ticket;          /* ticket drawn by the first watch after the handle last took a message. 0: none */
    bool fd_is_watching;      /* the handle's file descriptor is one of the watchers */
    int64_t next_recovery_ns; /* when the next lease ends, or the next message is due, by CLOCK_MONOTONIC */
} mq_queue_poll_state;

/* Recover, or search for due messages, if either is necessary. Returns false if neither is. A thread that polls may be
 * the only thread of the handle that waits, so its polls run the recovery. */
static inline bool mq_queue_recover_due(mq_queue_handle *h, int64_t *next_recovery_ns) {
    int64_t now = mq_read_time_ns(h->virtual_ns);
    if (mq_queue_recovery_is_due(h, now))
        *next_recovery_ns = now + mq_queue_recover_from_dead_owners(h, now);
    else if (mq_queue_delays_changed(h) || now >= *next_recovery_ns)
        *next_recovery_ns = now + mq_queue_reclaim_slots(h, now);
    else
        return false;
    return true;
}

/* Return the nanoseconds until the next poll. */
static inline int64_t mq_queue_limit_poll_sleep_ns(const mq_queue_handle *h, int64_t next_recovery_ns) {
    int64_t left_ns = next_recovery_ns - mq_read_time_ns(h->virtual_ns);
    return left_ns > MQ_QUEUE_RECOVER_BUSY_NS ? left_ns : MQ_QUEUE_RECOVER_BUSY_NS;
}

static inline uint32_t mq_queue_poll_prepare_sleep(mq_queue_poll_state *state) {
    if (!state->ticket)
        state->ticket = mq_queue_wait_begin(&state->h, MQ_QUEUE_WATCHER, false).ticket;
    return mq_queue_prepare_sleep(&state->h, MQ_QUEUE_WATCHER, state->ticket);
}
static inline uint32_t mq_queue_poll_add_watcher(mq_queue_poll_state *state) {
    state->watcher_count++;
    return mq_queue_poll_prepare_sleep(state);
}
static inline void mq_queue_poll_remove_watcher(mq_queue_poll_state *state) {
    if (--state->watcher_count == 0)
        mq_queue_finish_sleep(&state->h, MQ_QUEUE_WATCHER);
}

static inline int mq_queue_poll_has_more(const void *reader) {
    mq_queue_poll_state *state = (mq_queue_poll_state *)(uintptr_t)reader;
    return mq_queue_has_ready_message(&state->h.parts) ||
           (mq_queue_recover_due(&state->h, &state->next_recovery_ns) && mq_queue_has_ready_message(&state->h.parts));
}

static inline int64_t mq_queue_poll_max_sleep_ns(const void *reader) {
    const mq_queue_poll_state *state = (const mq_queue_poll_state *)reader;
    return mq_queue_limit_poll_sleep_ns(&state->h, state->next_recovery_ns);
}

static inline uint32_t mq_queue_poll_prepare_wait(const void *reader, mq_u32 *word) {
    mq_queue_poll_state *state = (mq_queue_poll_state *)(uintptr_t)reader;
    (void)word;
    if (state->fd_is_watching)
        return mq_queue_poll_prepare_sleep(state); /* announce the sleep again: the message of the last wake is gone */
    state->fd_is_watching = true;
    return mq_queue_poll_add_watcher(state);
}

static inline void mq_queue_poll_end_wait(const void *reader) {
    mq_queue_poll_state *state = (mq_queue_poll_state *)(uintptr_t)reader;
    if (state->fd_is_watching) {
        state->fd_is_watching = false;
        mq_queue_poll_remove_watcher(state);
    }
}

/* ---- notifications of messages that arrive in an empty queue ---- */

typedef struct {
    mq_queue_handle h;        /* a copy of the handle, with its own time of the last recovery */
    mq_u32 seen_notify_seq;   /* value of `notify_seq` at the last notification */
    int64_t next_recovery_ns; /* as in mq_queue_poll_state */
} mq_queue_notification;

static inline bool mq_queue_notification_is_due(const mq_queue_notification *notification) {
    return mq_load_acquire_u32(&notification->h.parts.queue->notify_seq) !=
           mq_load_acquire_u32(&notification->seen_notify_seq);
}

/* A delayed message, and a message that returns from a dead owner, may arrive in an empty queue. */
static inline int mq_queue_notification_has_more(const void *reader) {
    mq_queue_notification *notification = (mq_queue_notification *)(uintptr_t)reader;
    /* parts without slots are outdated (mq_queue_has_ready_message) */
    bool outdated = !notification->h.parts.max_messages && mq_queue_has_ready_message(&notification->h.parts);
    return outdated || mq_queue_notification_is_due(notification) ||
           (mq_queue_recover_due(&notification->h, &notification->next_recovery_ns) &&
            mq_queue_notification_is_due(notification));
}

static inline int64_t mq_queue_notification_max_sleep_ns(const void *reader) {
    const mq_queue_notification *notification = (const mq_queue_notification *)reader;
    return mq_queue_limit_poll_sleep_ns(&notification->h, notification->next_recovery_ns);
}

static inline uint32_t mq_queue_notification_prepare_wait(const void *reader, mq_u32 *word) {
    (void)reader;
    return mq_load_acquire_u32(word); /* no announcement is needed: the row's bit is always set */
}

/* Consume the notification. Returns true if a notification was sent since the last call. */
static inline bool mq_queue_notification_consume(mq_queue_notification *notification) {
    uint32_t notify_seq = mq_load_acquire_u32(&notification->h.parts.queue->notify_seq);
    bool due = notify_seq != mq_load_acquire_u32(&notification->seen_notify_seq);
    mq_store_release_u32(&notification->seen_notify_seq, notify_seq);
    return due;
}

#endif
