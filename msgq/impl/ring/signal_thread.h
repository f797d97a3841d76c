/* The helper thread: one in each process, started by the first subscriber that needs signals of stock publishers.
 *
 * To wake a subscriber, a stock publisher sends SIGUSR2 to a thread. SIGUSR2 must not kill the process, and the
 * application may have its own handler for SIGUSR2. Therefore the helper thread blocks all signals, reads SIGUSR2 from
 * a signalfd, and wakes the sleepers of the process.
 *
 * A stock publisher that starts during a sleep clears the slots, and then knows no thread to signal. But the stock
 * publisher opened the ring's file, and inotify reports the open. For five seconds after the open, the helper thread
 * checks whether write_uid changed or the file was truncated. A stock publisher may open the file before the watch
 * begins, and start after the sleeper's check. In this case, the sleeper's next poll finds the stock publisher.
 *
 * Otherwise the helper thread sleeps without a time limit. The helper thread never calls Python, and never takes the
 * GIL. */
#ifndef MQ_RING_SIGNAL_THREAD_H
#define MQ_RING_SIGNAL_THREAD_H

#include <poll.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>

#include "base/futex.h"
#include "base/process_info.h"
#include "base/thread.h"
#include "ring/canary.h"

enum {
    MQ_STOCK_START_POLLS = 7
}; /* polls after 1, 4, 16, ... 4096 ms. Each poll wakes a process that may be idle, so polls are few */
enum { MQ_SIGNAL_HOLD_OFF_MS = 10 };

typedef struct {
    const void *subscriber; /* identifies the watch, because subscribers of a process may share a mapping */
    mq_ring_header *ring;
    mq_ring_side *side;
    mq_canary canary;
    int watch;
    uint64_t seen_uid;
    bool changed;
} mq_watched_ring;

static struct {
    pthread_mutex_t mutex;
    bool running;
    mq_u64 thread_id; /* 0: not started yet */
    int inotify, signals;
    mq_watched_ring *watched;
    size_t count, capacity;
} mq_signal_thread = {.mutex = PTHREAD_MUTEX_INITIALIZER, .inotify = -1, .signals = -1};

/* Read the pending signals. SIGUSR2 by tkill is for this thread. SIGUSR2 sent to the whole process belongs to the
 * application, which blocks SIGUSR2 in every thread. Send a signal of the application again, and set *hold_off, so
 * that a waiting thread of the application receives the signal. */
static inline bool mq_signal_thread_drain_signals(bool *hold_off) {
    struct signalfd_siginfo from;
    bool ours = false;
    *hold_off = false;
    while (!*hold_off && read(mq_signal_thread.signals, &from, sizeof from) == sizeof from) {
        if (from.ssi_code == SI_TKILL)
            ours = true;
        else {
            /* only the kernel may send the code of kill(), SI_USER */
            siginfo_t info = {.si_signo = SIGUSR2, .si_code = SI_QUEUE};
            info.si_pid = (pid_t)from.ssi_pid;
            info.si_uid = from.ssi_uid;
            info.si_value.sival_ptr = (void *)(uintptr_t)from.ssi_ptr;
            syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR2, &info);
            *hold_off = true;
        }
    }
    return ours;
}

static inline bool mq_signal_thread_drain_inotify(void) {
    char events[4096] __attribute__((aligned(8)));
    bool any = false;
    while (read(mq_signal_thread.inotify, events, sizeof events) > 0)
        any = true;
    return any;
}

static inline void mq_signal_thread_wake_subscribers(bool all, bool restart) {
    pthread_mutex_lock(&mq_signal_thread.mutex);
    for (size_t i = 0; i < mq_signal_thread.count; i++) {
        mq_watched_ring *w = &mq_signal_thread.watched[i];
        uint64_t uid = mq_load_acquire_u64(&w->ring->write_uid);
        w->changed = (w->changed && !restart) || uid != w->seen_uid || !mq_canary_is_intact(&w->canary);
        w->seen_uid = uid;
        /* Wake again at later polls: a starting stock publisher clears the slots after it wrote write_uid. */
        if (all || w->changed) {
            mq_fetch_add_u32(&w->side->eventcount, MQ_EVENTCOUNT_WAKE); /* the publisher clears the flags */
            mq_futex_wake_all(mq_futex_word(&w->side->eventcount));
        }
    }
    pthread_mutex_unlock(&mq_signal_thread.mutex);
}

static void *mq_signal_thread_main(void *unused) {
    struct pollfd on[2] = {{.fd = mq_signal_thread.inotify, .events = POLLIN},
                           {.fd = mq_signal_thread.signals, .events = POLLIN}};
    int polls_left = 0;
    bool hold_off = false;
    /* relaxed: an independent number */
    mq_store_relaxed_u64(&mq_signal_thread.thread_id, (uint64_t)syscall(SYS_gettid));
    for (;;) {
        int pause_ms = polls_left ? 1 << 2 * (MQ_STOCK_START_POLLS - polls_left) : -1;
        on[1].fd = hold_off ? -1 : mq_signal_thread.signals; /* poll ignores negative descriptors */
        int ready = poll(
            on, 2, hold_off && (pause_ms < 0 || pause_ms > MQ_SIGNAL_HOLD_OFF_MS) ? MQ_SIGNAL_HOLD_OFF_MS : pause_ms);
        if ((ready < 0 && errno != EINTR) || (on[0].revents | on[1].revents) & (POLLNVAL | POLLERR))
            break; /* the application closed the descriptors of this thread */
        polls_left -= polls_left > 0;
        bool signalled = mq_signal_thread_drain_signals(&hold_off);
        bool opened = mq_signal_thread_drain_inotify();
        if (opened)
            polls_left = MQ_STOCK_START_POLLS;
        mq_signal_thread_wake_subscribers(signalled, opened);
    }
    pthread_mutex_lock(&mq_signal_thread.mutex);
    mq_signal_thread.running = false; /* the numbers of the descriptors may belong to other files now */
    mq_store_relaxed_u64(&mq_signal_thread.thread_id, 0); /* relaxed: as above */
    pthread_mutex_unlock(&mq_signal_thread.mutex);
    return unused;
}

/* Reset the state in a forked child. The child has no helper thread, and must not read its parent's descriptors. */
static void mq_signal_thread_forget_parent(void) {
    pthread_mutex_init(&mq_signal_thread.mutex, NULL);
    if (mq_signal_thread.running) {
        close(mq_signal_thread.inotify);
        close(mq_signal_thread.signals);
    }
    mq_signal_thread.running = false;
    mq_store_relaxed_u64(&mq_signal_thread.thread_id, 0); /* relaxed: the process has one thread */
    mq_signal_thread.count = 0;
}

/* Start the thread. Call this with the mutex held. Returns 0. After a failure, returns -1 with everything closed. */
static inline int mq_signal_thread_start(void) {
    static bool forget_registered;
    sigset_t usr2;
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    mq_signal_thread.inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    mq_signal_thread.signals = signalfd(-1, &usr2, SFD_CLOEXEC | SFD_NONBLOCK);
    bool opened = mq_signal_thread.inotify >= 0 && mq_signal_thread.signals >= 0;
    if (!opened || !mq_start_thread(mq_signal_thread_main, NULL)) {
        if (mq_signal_thread.inotify >= 0)
            close(mq_signal_thread.inotify);
        if (mq_signal_thread.signals >= 0)
            close(mq_signal_thread.signals);
        return -1;
    }
    if (!forget_registered)
        forget_registered = pthread_atfork(NULL, NULL, mq_signal_thread_forget_parent) == 0;
    mq_signal_thread.running = true;
    return 0;
}

/* Return the helper's thread id, which stock publishers signal. Returns 0 if the helper thread ended. Call this only
 * when the id is needed. Starting a thread takes as long as sending several messages. */
static inline uint32_t mq_signal_thread_id(void) {
    for (;;) {
        pthread_mutex_lock(&mq_signal_thread.mutex);
        bool running = mq_signal_thread.running;
        uint32_t thread_id = (uint32_t)mq_load_relaxed_u64(&mq_signal_thread.thread_id); /* relaxed: as above */
        pthread_mutex_unlock(&mq_signal_thread.mutex);
        if (thread_id || !running)
            return thread_id;
        usleep(50);
    }
}

/* Watch a subscriber's ring for stock publishers that start after `seen_uid`. Returns false if the watch is
 * impossible. */
static inline bool mq_signal_thread_watch_ring(const void *subscriber, mq_ring_header *ring, mq_ring_side *side,
                                               mq_canary canary, const char *path, uint64_t seen_uid) {
    bool watched = false;
    pthread_mutex_lock(&mq_signal_thread.mutex);
    if (mq_signal_thread.count == mq_signal_thread.capacity) {
        size_t capacity = mq_signal_thread.capacity ? 2 * mq_signal_thread.capacity : 16;
        mq_watched_ring *grown = realloc(mq_signal_thread.watched, capacity * sizeof *grown);
        if (!grown)
            goto done;
        mq_signal_thread.watched = grown;
        mq_signal_thread.capacity = capacity;
    }
    if (!mq_signal_thread.running && mq_signal_thread_start() != 0)
        goto done;
    int watch = inotify_add_watch(mq_signal_thread.inotify, path, IN_OPEN);
    if (watch < 0)
        goto done;
    mq_watched_ring added = {
        .subscriber = subscriber, .ring = ring, .side = side, .canary = canary, .watch = watch, .seen_uid = seen_uid};
    mq_signal_thread.watched[mq_signal_thread.count++] = added;
    watched = true;
done:
    pthread_mutex_unlock(&mq_signal_thread.mutex);
    return watched;
}

/* End the watch of a subscriber. Call this before the ring is unmapped. */
static inline void mq_signal_thread_unwatch_ring(const void *subscriber) {
    int watch = -1;
    bool shared = false;
    pthread_mutex_lock(&mq_signal_thread.mutex);
    for (size_t i = 0; i < mq_signal_thread.count; i++)
        if (mq_signal_thread.watched[i].subscriber == subscriber) {
            watch = mq_signal_thread.watched[i].watch;
            mq_signal_thread.watched[i--] = mq_signal_thread.watched[--mq_signal_thread.count];
        }
    for (size_t i = 0; i < mq_signal_thread.count;
         i++) /* inotify returns the same number each time the same file is added */
        shared |= mq_signal_thread.watched[i].watch == watch;
    if (watch >= 0 && !shared)
        inotify_rm_watch(mq_signal_thread.inotify, watch);
    pthread_mutex_unlock(&mq_signal_thread.mutex);
}

#endif
