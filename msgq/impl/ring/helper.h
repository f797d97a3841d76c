/* The helper thread: one a process, started by the first subscriber that must be heard by stock publishers.
 *
 * A stock publisher wakes subscribers by SIGUSR2 to a thread. Ours must not be killed by it, nor replace the
 * application's handler, so this thread blocks every signal, takes its SIGUSR2 from a signalfd, and wakes the
 * process's sleepers. A stock publisher that starts while they sleep has wiped the slots and knows nobody to signal;
 * but it opened the ring's file, so inotify tells, and for five seconds the thread looks whether write_uid changed, or
 * whether it made the file smaller. One that opened the file before it was watched, and starts after the sleeper looked,
 * is found when that looks again by itself.
 *
 * It sleeps without a time limit otherwise. It knows nothing of Python and never takes the GIL.
 */
#ifndef MQ_HELPER_H
#define MQ_HELPER_H

#include <poll.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>

#include "base/futex.h"
#include "base/liveness.h"
#include "base/thread.h"
#include "ring/canary.h"

enum { MQ_LOOKS = 7 }; /* with pauses of 1, 4, 16, ... 4096 ms: each is a wake-up of a process that may be idle */
enum { MQ_KEEP_OFF_MS = 10 };

typedef struct {
    mq_ring_header *ring;
    mq_side *side;
    mq_canary whole;
    int watch;
    uint64_t seen_uid;
    bool changed;
} mq_watched;

static struct {
    pthread_mutex_t mutex;
    bool running;
    mq_u64 thread_id; /* 0: it has not come so far yet */
    int inotify, signals;
    mq_watched *watched;
    size_t count, room;
} mq_helper = {.mutex = PTHREAD_MUTEX_INITIALIZER, .inotify = -1, .signals = -1};

/* Our SIGUSR2 comes by tkill to this thread, and is read first. One sent to the process is the application's, which
 * blocks it everywhere: put it back, and *keep_off for a while, so that whoever waits for it gets it. */
static inline bool mq_helper_take_signals(bool *keep_off) {
    struct signalfd_siginfo from;
    bool ours = false;
    *keep_off = false;
    while (!*keep_off && read(mq_helper.signals, &from, sizeof from) == sizeof from) {
        if (from.ssi_code == SI_TKILL)
            ours = true;
        else {
            siginfo_t info = {.si_signo = SIGUSR2,
                              .si_code = SI_QUEUE}; /* kill's own code is for the kernel to write */
            info.si_pid = (pid_t)from.ssi_pid;
            info.si_uid = from.ssi_uid;
            info.si_value.sival_ptr = (void *)(uintptr_t)from.ssi_ptr;
            syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR2, &info);
            *keep_off = true;
        }
    }
    return ours;
}

static inline bool mq_helper_take_events(void) {
    char events[4096] __attribute__((aligned(8)));
    bool any = false;
    while (read(mq_helper.inotify, events, sizeof events) > 0)
        any = true;
    return any;
}

static inline void mq_helper_wake(bool all, bool restart) {
    pthread_mutex_lock(&mq_helper.mutex);
    for (size_t i = 0; i < mq_helper.count; i++) {
        mq_watched *w = &mq_helper.watched[i];
        uint64_t uid = mq_load_acquire_u64(&w->ring->write_uid);
        w->changed = (w->changed && !restart) || uid != w->seen_uid || !mq_canary_intact(&w->whole);
        w->seen_uid = uid;
        /* More than once: a starting stock publisher wipes the slots after it wrote write_uid. */
        if (all || w->changed) {
            mq_fetch_add_u32(&w->side->attention, MQ_ATTENTION_WAKE); /* the flags are for the publisher */
            mq_futex_wake_all(mq_futex_word(&w->side->attention));
        }
    }
    pthread_mutex_unlock(&mq_helper.mutex);
}

static void *mq_helper_run(void *unused) {
    struct pollfd on[2] = {{.fd = mq_helper.inotify, .events = POLLIN}, {.fd = mq_helper.signals, .events = POLLIN}};
    int looks = 0;
    bool keep_off = false;
    mq_store_relaxed_u64(&mq_helper.thread_id, (uint64_t)syscall(SYS_gettid)); /* relaxed: a number by itself */
    for (;;) {
        int pause_ms = looks ? 1 << 2 * (MQ_LOOKS - looks) : -1;
        on[1].fd = keep_off ? -1 : mq_helper.signals; /* poll passes over negative ones */
        int ready = poll(on, 2, keep_off && (pause_ms < 0 || pause_ms > MQ_KEEP_OFF_MS) ? MQ_KEEP_OFF_MS : pause_ms);
        if ((ready < 0 && errno != EINTR) || (on[0].revents | on[1].revents) & (POLLNVAL | POLLERR))
            break; /* somebody closed our descriptors */
        looks -= looks > 0;
        bool signalled = mq_helper_take_signals(&keep_off);
        bool opened = mq_helper_take_events();
        if (opened)
            looks = MQ_LOOKS;
        mq_helper_wake(signalled, opened);
    }
    pthread_mutex_lock(&mq_helper.mutex);
    mq_helper.running = false;                     /* and whatever the descriptors' numbers stand for now is not ours */
    mq_store_relaxed_u64(&mq_helper.thread_id, 0); /* relaxed: as above */
    pthread_mutex_unlock(&mq_helper.mutex);
    return unused;
}

/* The child has no such thread, and must not read from its parent's descriptors. */
static void mq_helper_forget(void) {
    pthread_mutex_init(&mq_helper.mutex, NULL);
    if (mq_helper.running) {
        close(mq_helper.inotify);
        close(mq_helper.signals);
    }
    mq_helper.running = false;
    mq_store_relaxed_u64(&mq_helper.thread_id, 0); /* relaxed: there is no other thread */
    mq_helper.count = 0;
}

/* Called with the mutex held. 0, or -1 with nothing left behind. */
static inline int mq_helper_launch(void) {
    static bool forget_registered;
    sigset_t usr2;
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    mq_helper.inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    mq_helper.signals = signalfd(-1, &usr2, SFD_CLOEXEC | SFD_NONBLOCK);
    bool opened = mq_helper.inotify >= 0 && mq_helper.signals >= 0;
    if (!opened || !mq_start_thread(mq_helper_run, NULL)) {
        if (mq_helper.inotify >= 0)
            close(mq_helper.inotify);
        if (mq_helper.signals >= 0)
            close(mq_helper.signals);
        return -1;
    }
    if (!forget_registered)
        forget_registered = pthread_atfork(NULL, NULL, mq_helper_forget) == 0;
    mq_helper.running = true;
    return 0;
}

/* The helper's thread id, which stock publishers may signal; 0: it is gone. Not waited for before somebody needs it: to
 * start a thread takes as long as several messages. */
static inline uint32_t mq_helper_thread(void) {
    for (;;) {
        pthread_mutex_lock(&mq_helper.mutex);
        bool running = mq_helper.running;
        uint32_t thread_id = (uint32_t)mq_load_relaxed_u64(&mq_helper.thread_id); /* relaxed: as above */
        pthread_mutex_unlock(&mq_helper.mutex);
        if (thread_id || !running)
            return thread_id;
        usleep(50);
    }
}

/* Be told of stock publishers of this ring that come after `seen_uid`; false: not possible. */
static inline bool mq_helper_watch(mq_ring_header *ring, mq_side *side, mq_canary whole, const char *path,
                                   uint64_t seen_uid) {
    bool watched = false;
    pthread_mutex_lock(&mq_helper.mutex);
    if (mq_helper.count == mq_helper.room) {
        size_t room = mq_helper.room ? 2 * mq_helper.room : 16;
        mq_watched *grown = realloc(mq_helper.watched, room * sizeof *grown);
        if (!grown)
            goto done;
        mq_helper.watched = grown;
        mq_helper.room = room;
    }
    if (!mq_helper.running && mq_helper_launch() != 0)
        goto done;
    int watch = inotify_add_watch(mq_helper.inotify, path, IN_OPEN);
    if (watch < 0)
        goto done;
    mq_watched added = {.ring = ring, .side = side, .whole = whole, .watch = watch, .seen_uid = seen_uid};
    mq_helper.watched[mq_helper.count++] = added;
    watched = true;
done:
    pthread_mutex_unlock(&mq_helper.mutex);
    return watched;
}

/* To be called before the ring is unmapped. */
static inline void mq_helper_unwatch(mq_ring_header *ring) {
    int watch = -1;
    bool shared = false;
    pthread_mutex_lock(&mq_helper.mutex);
    for (size_t i = 0; i < mq_helper.count; i++)
        if (mq_helper.watched[i].ring == ring) {
            watch = mq_helper.watched[i].watch;
            mq_helper.watched[i--] = mq_helper.watched[--mq_helper.count];
        }
    for (size_t i = 0; i < mq_helper.count; i++) /* inotify gives one number to a file, however often it is added */
        shared |= mq_helper.watched[i].watch == watch;
    if (watch >= 0 && !shared)
        inotify_rm_watch(mq_helper.inotify, watch);
    pthread_mutex_unlock(&mq_helper.mutex);
}

#endif
