/* The watcher thread makes file descriptors readable for event loops when messages arrive. Each process has one watcher
 * thread. The first call of Waitable.fileno() starts the thread. The thread polls readers of all types by their
 * mq_poll_ops.
 *
 * One thread cannot wait for a futex and for descriptors together. The watcher thread therefore sleeps on the
 * `eventcount` words of all watched readers. When a reader has a message, the thread writes to the reader's eventfd.
 *
 * A watch is quiet while its eventfd is empty. When a watch becomes quiet, the reader has found no message, has
 * announced itself in `eventcount`, and has checked once more. A watch is ready while its eventfd is readable. No
 * process wakes the watcher for a ready reader, so a busy publisher has no extra cost.
 *
 * A quiet watch becomes ready when the publisher sees the announcement, counts a wake and wakes the watcher. The second
 * check of the reader may also find a message. If the reader has already read the message, the watcher announces the
 * sleep again. A ready watch becomes quiet when a receive leaves no message for the reader.
 *
 * The reader and the watcher hold the mutex while they check for messages and change the eventfd. If a message is read
 * during the check, the descriptor therefore does not stay readable. The thread does not call Python and never takes
 * the GIL.
 */
#ifndef MQ_WATCHER_H
#define MQ_WATCHER_H

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "base/poll_ops.h"
#include "base/thread.h"

enum {
    /* poll interval in nanoseconds for readers on whose futex the watcher does not sleep. These readers are passive
     * readers, readers after the first 127, and all readers on an old kernel */
    MQ_WATCH_POLL_NS = 1000000,
    /* if the poll interval of a reader is longer, the polls are only for events that no futex reports */
    MQ_WATCH_IDLE_NS = 100 * MQ_WATCH_POLL_NS,
    /* longest sleep of the thread while a reader with a constant interval is ready. Nothing wakes the thread when this
     * reader becomes quiet */
    MQ_WATCH_READY_NS = 1000 * MQ_WATCH_POLL_NS,
};

typedef struct {
    mq_poll_ops ops;
    int fd;
    bool ready;
    bool polled; /* the watcher does not sleep on the reader's futex */
    /* poll interval in nanoseconds while the watch is quiet. Equals the longest sleep of the reader itself, but is at
     * least MQ_WATCH_POLL_NS */
    int64_t poll_ns;
} mq_watch;

static struct {
    pthread_mutex_t mutex;
    bool running;
    mq_u32 changed; /* number of changes of the list. The watcher thread sleeps on this word, too */
    mq_watch *list;
    size_t count, capacity;
} mq_watcher = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static inline void mq_watch_signal_fd(mq_watch *watch) {
    uint64_t one = 1;
    if (!watch->ready && write(watch->fd, &one, sizeof one) == sizeof one)
        watch->ready = true;
}

static inline void mq_watch_set_readable(mq_watch *watch) {
    mq_watch_signal_fd(watch);
    if (watch->ready && watch->ops.end_wait)
        watch->ops.end_wait(watch->ops.reader);
}

static inline bool mq_watch_is_readable(const mq_watch *watch) {
    return watch->ops.is_readable(watch->ops.reader) != 0;
}

/* Make the descriptor readable if the reader has a message. If the reader has no message, announce the sleep. Returns
 * the value that the futex word must have at the beginning of the sleep. When the reader became quiet, the reader
 * announced its sleep. A publisher may have cleared this announcement for a message that the reader has already read. A
 * sleeper that wakes and finds no message therefore announces its sleep again. */
static inline uint32_t mq_watch_poll_or_arm(mq_watch *watch) {
    /* Load the word before the check. If a publisher publishes later and WAITERS is set, the publisher counts a wake,
     * which changes the word. */
    uint32_t expected = mq_load_acquire_u32(watch->ops.eventcount);
    if (mq_watch_is_readable(watch))
        mq_watch_set_readable(watch);
    if (watch->ready || !watch->ops.prepare_wait)
        return expected;
    expected = watch->ops.prepare_wait(watch->ops.reader, watch->ops.eventcount);
    if (mq_watch_is_readable(watch))
        mq_watch_set_readable(watch);
    return expected;
}

/* Return the nanoseconds until the next poll of a reader without a message. */
static inline int64_t mq_watch_get_poll_ns(const mq_watch *watch) {
    int64_t poll_ns = watch->ops.max_sleep_ns ? watch->ops.max_sleep_ns(watch->ops.reader) : watch->poll_ns;
    return poll_ns < watch->poll_ns ? poll_ns : watch->poll_ns;
}

/* Poll all readers. Stores the words on which the thread must sleep, and the longest sleep. Returns the number of
 * words. */
static inline unsigned mq_watcher_poll_all(mq_futex_waitv_entry *words, bool no_waitv, int64_t *max_sleep_ns,
                                           bool *no_backoff) {
    unsigned count = 1;
    pthread_mutex_lock(&mq_watcher.mutex);
    words[0].address = (uint64_t)(uintptr_t)mq_futex_word(&mq_watcher.changed);
    words[0].expected = mq_load_acquire_u32(&mq_watcher.changed);
    *max_sleep_ns = -1, *no_backoff = false;
    for (size_t i = 0; i < mq_watcher.count; i++) {
        mq_watch *watch = &mq_watcher.list[i];
        uint32_t expected = mq_watch_poll_or_arm(watch);
        watch->polled = no_waitv || count == MQ_FUTEX_WAITV_MAX;
        int64_t poll_ns = watch->ready    ? MQ_WATCH_READY_NS
                          : watch->polled ? MQ_WATCH_POLL_NS
                                          : mq_watch_get_poll_ns(watch);
        if ((!watch->ready || watch->ops.no_backoff) && (*max_sleep_ns < 0 || poll_ns < *max_sleep_ns))
            *max_sleep_ns = poll_ns;
        *no_backoff |= watch->ops.no_backoff;
        if (count < MQ_FUTEX_WAITV_MAX) {
            words[count].address = (uint64_t)(uintptr_t)mq_futex_word(watch->ops.eventcount);
            words[count++].expected = expected;
        }
    }
    pthread_mutex_unlock(&mq_watcher.mutex);
    return count;
}

static void *mq_watcher_thread_main(void *unused) {
    static mq_futex_waitv_entry words[MQ_FUTEX_WAITV_MAX];
    int64_t max_sleep_ns, backoff = 1;
    bool no_waitv = false, no_backoff;
    for (int i = 0; i < MQ_FUTEX_WAITV_MAX; i++)
        words[i].flags = MQ_FUTEX_32;
    for (;;) {
        unsigned count = mq_watcher_poll_all(words, no_waitv, &max_sleep_ns, &no_backoff);
        int64_t until = max_sleep_ns < 0 ? -1 : mq_monotonic_ns() + max_sleep_ns * backoff;
        errno = 0;
        if (no_waitv)
            mq_futex_wait(mq_futex_word(&mq_watcher.changed), (uint32_t)words[0].expected, until);
        else if (mq_futex_waitv(words, count, until) < 0) /* EFAULT: a word was just unmapped */
            no_waitv = errno == ENOSYS || errno == EPERM;
        /* Some polls are only for events that no futex reports. If a sleep before a poll of this sort ends without a
         * wake, triple the poll interval. */
        backoff = errno == ETIMEDOUT && max_sleep_ns > MQ_WATCH_IDLE_NS && !no_backoff ? 3 * backoff : 1;
    }
    return unused;
}

/* Reset the state in a forked child. The child has no watcher thread, and shares the eventfds of its parent. */
static void mq_watcher_reset_in_child(void) {
    pthread_mutex_init(&mq_watcher.mutex, NULL);
    for (size_t i = 0; i < mq_watcher.count; i++)
        close(mq_watcher.list[i].fd);
    mq_watcher.running = false;
    mq_watcher.count = 0;
}

/* Start the thread. Call this with the mutex held. */
static inline bool mq_watcher_start_thread(void) {
    static bool forget_registered;
    mq_watcher.running = mq_start_thread(mq_watcher_thread_main, NULL);
    if (mq_watcher.running && !forget_registered)
        forget_registered = pthread_atfork(NULL, NULL, mq_watcher_reset_in_child) == 0;
    return mq_watcher.running;
}

/* Wake the thread after a change of the list. Call this with the mutex held. */
static inline void mq_watcher_kick(void) {
    mq_fetch_add_u32(&mq_watcher.changed, 1);
    mq_futex_wake_all(mq_futex_word(&mq_watcher.changed));
}

static inline mq_watch *mq_watcher_find_fd(int fd) {
    for (size_t i = 0; i < mq_watcher.count; i++)
        if (mq_watcher.list[i].fd == fd)
            return &mq_watcher.list[i];
    return NULL;
}

/* Watch a reader. Returns a descriptor, or -1 with errno. The thread makes the descriptor readable. Call
 * mq_watcher_set_unreadable next. */
static inline int mq_watcher_add(const mq_poll_ops *ops) {
    mq_watch watch = {.ops = *ops, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .poll_ns = MQ_WATCH_POLL_NS};
    if (watch.fd < 0)
        return -1;
    pthread_mutex_lock(&mq_watcher.mutex);
    bool has_space = mq_watcher.count < mq_watcher.capacity;
    if (!has_space) {
        size_t capacity = mq_watcher.capacity ? 2 * mq_watcher.capacity : 16;
        mq_watch *grown = realloc(mq_watcher.list, capacity * sizeof *grown);
        if ((has_space = grown != NULL)) {
            mq_watcher.list = grown;
            mq_watcher.capacity = capacity;
        }
        /* cppcheck-suppress memleak; the list stays allocated until the process ends */
    }
    if (has_space && (mq_watcher.running || mq_watcher_start_thread())) {
        mq_watcher.list[mq_watcher.count++] = watch;
        mq_watcher_kick();
    } else {
        close(watch.fd);
        watch.fd = -1;
        errno = EAGAIN;
    }
    pthread_mutex_unlock(&mq_watcher.mutex);
    return watch.fd;
}

/* Make the descriptor unreadable. Call this after a receive found no more messages. After this call, announce a sleep
 * and check again. If a message arrived, call mq_watcher_set_readable. `max_sleep_ns`: longest interval between
 * polls. */
static inline void mq_watcher_set_unreadable(int fd, int64_t max_sleep_ns) {
    uint64_t events;
    int64_t poll_ns = max_sleep_ns < MQ_WATCH_POLL_NS ? MQ_WATCH_POLL_NS : max_sleep_ns;
    pthread_mutex_lock(&mq_watcher.mutex);
    mq_watch *watch = mq_watcher_find_fd(fd);
    bool emptied = watch && watch->ready && read(fd, &events, sizeof events) != 0;
    if (emptied)
        watch->ready = false;
    /* The thread does not poll ready readers by the clock. Therefore the current sleep of the thread may be longer than
     * this reader's poll interval, or unlimited. */
    bool by_clock = watch && (watch->polled || poll_ns <= MQ_WATCH_IDLE_NS ||
                              (watch->ops.no_backoff && poll_ns < MQ_WATCH_READY_NS));
    if (watch && (poll_ns < watch->poll_ns || (emptied && by_clock)))
        mq_watcher_kick();
    if (watch)
        watch->poll_ns = poll_ns;
    pthread_mutex_unlock(&mq_watcher.mutex);
}

/* Make the descriptor readable. */
static inline void mq_watcher_set_readable(int fd) {
    pthread_mutex_lock(&mq_watcher.mutex);
    mq_watch *watch = mq_watcher_find_fd(fd);
    if (watch)
        mq_watch_set_readable(watch);
    pthread_mutex_unlock(&mq_watcher.mutex);
}

/* Between mq_watcher_lock and mq_watcher_unlock, the watcher calls no mq_poll_ops. Between these calls, a reader may
 * change its state before it unmaps memory. */
static inline void mq_watcher_lock(void) { pthread_mutex_lock(&mq_watcher.mutex); }
static inline void mq_watcher_unlock(void) { pthread_mutex_unlock(&mq_watcher.mutex); }

/* End a watch. Call this before you unmap memory that the reader's mq_poll_ops use. The call first makes the descriptor
 * readable. Other threads may poll the descriptor or a copy of the descriptor (dup). These threads thus detect that the
 * reader was closed. */
static inline void mq_watcher_remove(int fd) {
    pthread_mutex_lock(&mq_watcher.mutex);
    mq_watch *watch = mq_watcher_find_fd(fd);
    if (watch) {
        mq_watch_signal_fd(watch);
        *watch = mq_watcher.list[--mq_watcher.count];
        close(fd);
        mq_watcher_kick();
    }
    pthread_mutex_unlock(&mq_watcher.mutex);
}

#endif
