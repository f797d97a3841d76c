/* The watcher thread: turns messages into readable file descriptors, for event loops. One a process, started by the
 * first Waitable.fileno(). It knows readers of any kind by their lookouts.
 *
 * A futex cannot be waited for together with descriptors, so this thread sleeps on the `eventcount` words of all watched
 * readers, and writes to a reader's eventfd when there is something to read. States of a watch:
 *
 *   quiet   the eventfd is empty; the reader found nothing, announced itself in `eventcount`, and looked once more
 *   ready   the eventfd is readable; nobody wakes us for it, so a busy publisher pays nothing
 *
 * quiet -> ready: the publisher finds the announcement, counts a wake and wakes us; or the reader's second look. Woken
 *                 for what was read meanwhile, we prepare_wait again.
 * ready -> quiet: the reader, when a receive left nothing.
 *
 * Both take the mutex for the look and the change of the eventfd together: so a message that was taken meanwhile never
 * leaves the descriptor readable. The thread knows nothing of Python and never takes the GIL.
 */
#ifndef MQ_WATCHER_H
#define MQ_WATCHER_H

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "base/poll_ops.h"
#include "base/thread.h"

enum {
    MQ_WATCH_POLL_NS = 1000000, /* where no futex tells: passive readers, old kernels, over 127 of them */
    MQ_WATCH_IDLE_NS = 100 * MQ_WATCH_POLL_NS, /* who looks more rarely looks only for what no futex tells of */
};

typedef struct {
    mq_poll_ops ops;
    int fd;
    bool ready;
    bool polled;     /* no futex of its own is slept on */
    int64_t poll_ns; /* while quiet, look by the clock so often: what the reader itself would sleep at most */
} mq_watch;

static struct {
    pthread_mutex_t mutex;
    bool running;
    mq_u32 changed; /* counts changes of the list; the thread sleeps on it, too */
    mq_watch *list;
    size_t count, room;
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

/* Mark it if it has something; else see to it that we are woken. Returns what its futex word is if nothing happens.
 * The reader announced itself when it became quiet, but a publisher may have taken that for a message that was read
 * before: a sleeper that is woken for nothing announces itself again. */
static inline uint32_t mq_watch_poll_or_arm(mq_watch *watch) {
    /* Before the look: a publisher that comes after it counts a wake, if one was asked for. */
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

/* Mark those who have something, and say what to sleep on, and how long at most. Returns how many words. */
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
        int64_t poll_ns = watch->polled ? MQ_WATCH_POLL_NS : watch->poll_ns;
        if (!watch->ready && (*max_sleep_ns < 0 || poll_ns < *max_sleep_ns))
            *max_sleep_ns = poll_ns;
        *no_backoff |= !watch->ready && watch->ops.no_backoff;
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
        else if (mq_futex_waitv(words, count, until) < 0) /* EFAULT: a word was unmapped just now */
            no_waitv = errno == ENOSYS || errno == EPERM;
        /* Who looks only for what no futex tells of looks thrice as late each time. */
        backoff = errno == ETIMEDOUT && max_sleep_ns > MQ_WATCH_IDLE_NS && !no_backoff ? 3 * backoff : 1;
    }
    return unused;
}

/* The child has no such thread, and shares its parent's eventfds. */
static void mq_watcher_reset_in_child(void) {
    pthread_mutex_init(&mq_watcher.mutex, NULL);
    for (size_t i = 0; i < mq_watcher.count; i++)
        close(mq_watcher.list[i].fd);
    mq_watcher.running = false;
    mq_watcher.count = 0;
}

/* Called with the mutex held. */
static inline bool mq_watcher_start_thread(void) {
    static bool forget_registered;
    mq_watcher.running = mq_start_thread(mq_watcher_thread_main, NULL);
    if (mq_watcher.running && !forget_registered)
        forget_registered = pthread_atfork(NULL, NULL, mq_watcher_reset_in_child) == 0;
    return mq_watcher.running;
}

/* The list changed: let the thread read it. Called with the mutex held. */
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

/* Returns a descriptor that the thread makes readable, or -1 with errno. To be followed by mq_watcher_set_unreadable.
 * */
static inline int mq_watcher_add(const mq_poll_ops *ops) {
    mq_watch watch = {.ops = *ops, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .poll_ns = MQ_WATCH_POLL_NS};
    if (watch.fd < 0)
        return -1;
    pthread_mutex_lock(&mq_watcher.mutex);
    bool room = mq_watcher.count < mq_watcher.room;
    if (!room) {
        size_t wanted = mq_watcher.room ? 2 * mq_watcher.room : 16;
        mq_watch *grown = realloc(mq_watcher.list, wanted * sizeof *grown);
        if ((room = grown != NULL)) {
            mq_watcher.list = grown;
            mq_watcher.room = wanted;
        }
        /* cppcheck-suppress memleak; the list is the process's, and grown is that list now */
    }
    if (room && (mq_watcher.running || mq_watcher_start_thread())) {
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

/* The receive found nothing more: make the descriptor unreadable. To be followed by an announcement, another look, and
 * mq_watcher_set_readable if that finds something. `max_sleep_ns`: a sleeper should look by itself so often. */
static inline void mq_watcher_set_unreadable(int fd, int64_t max_sleep_ns) {
    uint64_t events;
    int64_t poll_ns = max_sleep_ns < MQ_WATCH_POLL_NS ? MQ_WATCH_POLL_NS : max_sleep_ns;
    pthread_mutex_lock(&mq_watcher.mutex);
    mq_watch *watch = mq_watcher_find_fd(fd);
    bool emptied = watch && watch->ready && read(fd, &events, sizeof events) != 0;
    if (emptied)
        watch->ready = false;
    /* The thread may sleep for longer just now, or for ever, as it did not look at one that was ready by the clock. */
    bool by_clock = watch && (watch->polled || poll_ns <= MQ_WATCH_IDLE_NS);
    if (watch && (poll_ns < watch->poll_ns || (emptied && by_clock)))
        mq_watcher_kick();
    if (watch)
        watch->poll_ns = poll_ns;
    pthread_mutex_unlock(&mq_watcher.mutex);
}

/* There is something after all. */
static inline void mq_watcher_set_readable(int fd) {
    pthread_mutex_lock(&mq_watcher.mutex);
    mq_watch *watch = mq_watcher_find_fd(fd);
    if (watch)
        mq_watch_set_readable(watch);
    pthread_mutex_unlock(&mq_watcher.mutex);
}

/* Between these two nobody looks by a ops, so that its reader may change: before what it leads to is unmapped. */
static inline void mq_watcher_lock(void) { pthread_mutex_lock(&mq_watcher.mutex); }
static inline void mq_watcher_unlock(void) { pthread_mutex_unlock(&mq_watcher.mutex); }

/* Call this before the memory of the reader's ops is unmapped. Copies of the descriptor (dup), and a poll in another
 * thread, keep the descriptor open: it stays readable, so that they find that the reader was closed. */
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
