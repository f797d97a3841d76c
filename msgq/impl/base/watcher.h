/* The watcher thread: turns messages into readable file descriptors, for event loops. One a process, started by the
 * first Waitable.fileno(). It knows readers of any kind by their lookouts.
 *
 * A futex cannot be waited for together with descriptors, so this thread sleeps on the `attention` words of all watched
 * readers, and writes to a reader's eventfd when there is something to read. States of a watch:
 *
 *   quiet   the eventfd is empty; the reader found nothing, announced itself in `attention`, and looked once more
 *   ready   the eventfd is readable; nobody wakes us for it, so a busy publisher pays nothing
 *
 * quiet -> ready: the publisher finds the announcement, counts a wake and wakes us; or the reader's second look. Woken
 *                 for what was read meanwhile, we announce again.
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
    MQ_WATCH_LOOK_NS = 1000000, /* where no futex tells: passive readers, old kernels, over 127 of them */
    MQ_WATCH_RARE_NS = 100 * MQ_WATCH_LOOK_NS, /* who looks more rarely looks only for what no futex tells of */
};

typedef struct {
    mq_poll_ops lookout;
    int fd;
    bool ready;
    bool unheard;    /* no futex of its own is slept on */
    int64_t look_ns; /* while quiet, look by the clock so often: what the reader itself would sleep at most */
} mq_watch;

static struct {
    pthread_mutex_t mutex;
    bool running;
    mq_u32 changed; /* counts changes of the list; the thread sleeps on it, too */
    mq_watch *list;
    size_t count, room;
} mq_watcher = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static inline void mq_watch_make_readable(mq_watch *watch) {
    uint64_t one = 1;
    if (!watch->ready && write(watch->fd, &one, sizeof one) == sizeof one)
        watch->ready = true;
}

static inline void mq_watch_mark(mq_watch *watch) {
    mq_watch_make_readable(watch);
    if (watch->ready && watch->lookout.awake)
        watch->lookout.awake(watch->lookout.reader);
}

static inline bool mq_watch_has_more(const mq_watch *watch) {
    return watch->lookout.has_more(watch->lookout.reader) != 0;
}

/* Mark it if it has something; else see to it that we are woken. Returns what its futex word is if nothing happens.
 * The reader announced itself when it became quiet, but a publisher may have taken that for a message that was read
 * before: a sleeper that is woken for nothing announces itself again. */
static inline uint32_t mq_watch_look(mq_watch *watch) {
    /* Before the look: a publisher that comes after it counts a wake, if one was asked for. */
    uint32_t expected = mq_load_acquire_u32(watch->lookout.attention);
    if (mq_watch_has_more(watch))
        mq_watch_mark(watch);
    if (watch->ready || !watch->lookout.announce)
        return expected;
    expected = watch->lookout.announce(watch->lookout.reader, watch->lookout.attention);
    if (mq_watch_has_more(watch))
        mq_watch_mark(watch);
    return expected;
}

/* Mark those who have something, and say what to sleep on, and how long at most. Returns how many words. */
static inline unsigned mq_watcher_scan(mq_futex_many *words, bool blind, int64_t *nap_ns, bool *steady) {
    unsigned count = 1;
    pthread_mutex_lock(&mq_watcher.mutex);
    words[0].address = (uint64_t)(uintptr_t)mq_futex_word(&mq_watcher.changed);
    words[0].expected = mq_load_acquire_u32(&mq_watcher.changed);
    *nap_ns = -1, *steady = false;
    for (size_t i = 0; i < mq_watcher.count; i++) {
        mq_watch *watch = &mq_watcher.list[i];
        uint32_t expected = mq_watch_look(watch);
        watch->unheard = blind || count == MQ_FUTEX_MANY;
        int64_t look_ns = watch->unheard ? MQ_WATCH_LOOK_NS : watch->look_ns;
        if (!watch->ready && (*nap_ns < 0 || look_ns < *nap_ns))
            *nap_ns = look_ns;
        *steady |= !watch->ready && watch->lookout.steady;
        if (count < MQ_FUTEX_MANY) {
            words[count].address = (uint64_t)(uintptr_t)mq_futex_word(watch->lookout.attention);
            words[count++].expected = expected;
        }
    }
    pthread_mutex_unlock(&mq_watcher.mutex);
    return count;
}

static void *mq_watcher_run(void *unused) {
    static mq_futex_many words[MQ_FUTEX_MANY];
    int64_t nap_ns, patience = 1;
    bool blind = false, steady;
    for (int i = 0; i < MQ_FUTEX_MANY; i++)
        words[i].flags = MQ_FUTEX_32;
    for (;;) {
        unsigned count = mq_watcher_scan(words, blind, &nap_ns, &steady);
        int64_t until = nap_ns < 0 ? -1 : mq_now_ns() + nap_ns * patience;
        errno = 0;
        if (blind)
            mq_futex_wait(mq_futex_word(&mq_watcher.changed), (uint32_t)words[0].expected, until);
        else if (mq_futex_wait_many(words, count, until) < 0) /* EFAULT: a word was unmapped just now */
            blind = errno == ENOSYS || errno == EPERM;
        /* Who looks only for what no futex tells of looks thrice as late each time. */
        patience = errno == ETIMEDOUT && nap_ns > MQ_WATCH_RARE_NS && !steady ? 3 * patience : 1;
    }
    return unused;
}

/* The child has no such thread, and shares its parent's eventfds. */
static void mq_watcher_forget(void) {
    pthread_mutex_init(&mq_watcher.mutex, NULL);
    for (size_t i = 0; i < mq_watcher.count; i++)
        close(mq_watcher.list[i].fd);
    mq_watcher.running = false;
    mq_watcher.count = 0;
}

/* Called with the mutex held. */
static inline bool mq_watcher_launch(void) {
    static bool forget_registered;
    mq_watcher.running = mq_start_thread(mq_watcher_run, NULL);
    if (mq_watcher.running && !forget_registered)
        forget_registered = pthread_atfork(NULL, NULL, mq_watcher_forget) == 0;
    return mq_watcher.running;
}

/* The list changed: let the thread read it. Called with the mutex held. */
static inline void mq_watcher_kick(void) {
    mq_fetch_add_u32(&mq_watcher.changed, 1);
    mq_futex_wake_all(mq_futex_word(&mq_watcher.changed));
}

static inline mq_watch *mq_watcher_find(int fd) {
    for (size_t i = 0; i < mq_watcher.count; i++)
        if (mq_watcher.list[i].fd == fd)
            return &mq_watcher.list[i];
    return NULL;
}

/* Returns a descriptor that the thread makes readable, or -1 with errno. To be followed by mq_watcher_quiet. */
static inline int mq_watcher_add(const mq_poll_ops *lookout) {
    mq_watch watch = {.lookout = *lookout, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .look_ns = MQ_WATCH_LOOK_NS};
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
    if (room && (mq_watcher.running || mq_watcher_launch())) {
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
 * mq_watcher_mark if that finds something. `nap_ns`: a sleeper should look by itself so often. */
static inline void mq_watcher_quiet(int fd, int64_t nap_ns) {
    uint64_t events;
    int64_t look_ns = nap_ns < MQ_WATCH_LOOK_NS ? MQ_WATCH_LOOK_NS : nap_ns;
    pthread_mutex_lock(&mq_watcher.mutex);
    mq_watch *watch = mq_watcher_find(fd);
    bool emptied = watch && watch->ready && read(fd, &events, sizeof events) != 0;
    if (emptied)
        watch->ready = false;
    /* The thread may sleep for longer just now, or for ever, as it did not look at one that was ready by the clock. */
    bool by_clock = watch && (watch->unheard || look_ns <= MQ_WATCH_RARE_NS);
    if (watch && (look_ns < watch->look_ns || (emptied && by_clock)))
        mq_watcher_kick();
    if (watch)
        watch->look_ns = look_ns;
    pthread_mutex_unlock(&mq_watcher.mutex);
}

/* There is something after all. */
static inline void mq_watcher_mark(int fd) {
    pthread_mutex_lock(&mq_watcher.mutex);
    mq_watch *watch = mq_watcher_find(fd);
    if (watch)
        mq_watch_mark(watch);
    pthread_mutex_unlock(&mq_watcher.mutex);
}

/* Between these two nobody looks by a lookout, so that its reader may change: before what it leads to is unmapped. */
static inline void mq_watcher_lock(void) { pthread_mutex_lock(&mq_watcher.mutex); }
static inline void mq_watcher_unlock(void) { pthread_mutex_unlock(&mq_watcher.mutex); }

/* Call this before the memory of the reader's lookout is unmapped. Copies of the descriptor (dup), and a poll in another
 * thread, keep the descriptor open: it stays readable, so that they find that the reader was closed. */
static inline void mq_watcher_remove(int fd) {
    pthread_mutex_lock(&mq_watcher.mutex);
    mq_watch *watch = mq_watcher_find(fd);
    if (watch) {
        mq_watch_make_readable(watch);
        *watch = mq_watcher.list[--mq_watcher.count];
        close(fd);
        mq_watcher_kick();
    }
    pthread_mutex_unlock(&mq_watcher.mutex);
}

#endif
