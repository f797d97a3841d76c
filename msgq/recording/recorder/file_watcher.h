/* Files that get a name in some directories, by inotify. Each is opened at once, for its name may be gone in a moment, and
 * what is in it with that.
 *
 * One thread at a time may use an mq_file_watcher. Nothing here touches Python or allocates.
 */
#ifndef MQ_FILE_WATCHER_H
#define MQ_FILE_WATCHER_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <sys/inotify.h>
#include <unistd.h>

enum {
    MQ_FILE_ARRIVALS_MAX = 256,         /* that are kept until they are taken; the kernel keeps the others meanwhile */
    MQ_FILE_ARRIVALS_PER_READ = 128,    /* of them, for what one read may bring: 4 KiB of events of 32 bytes */
    MQ_FILE_ARRIVALS_OPEN_MAX = 64,     /* of them, at most; the names of the others are kept */
    MQ_FILE_ARRIVALS_PAUSE_NS = 200000, /* after which nothing follows at once */
    MQ_FILE_ARRIVALS_PAUSES = 8,
    MQ_WATCHED_DIRECTORIES = 8,
    MQ_NAME_START_MAX = 16,
    MQ_FILE_ARRIVALS_MASK = IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR,
};

/* Where files are looked for: a directory, and what their names start with there. */
typedef struct {
    int watch;             /* inotify's, of the directory; -1: it is not there */
    const char *directory; /* not held open: then its end would not be told */
    char start[MQ_NAME_START_MAX];
} mq_watched_directory;

typedef struct {
    unsigned place;
    int fd;    /* for reading; -1: it could not be opened: */
    int error; /* why. ENOENT: it has gone; 0: too many are open */
    char name[NAME_MAX + 1];
} mq_file_arrival;

typedef struct {
    int fd; /* of inotify */
    unsigned places, count, open;
    bool overflowed; /* some were not told, and nobody knows their names */
    bool changed;    /* a directory came or went */
    mq_watched_directory place[MQ_WATCHED_DIRECTORIES];
    mq_file_arrival arrived[MQ_FILE_ARRIVALS_MAX]; /* the first `count` */
} mq_file_watcher;

static inline void mq_file_watcher_open_file(mq_file_watcher *a, unsigned place, const char *name) {
    if (a->count == MQ_FILE_ARRIVALS_MAX) {
        a->overflowed = true;
        return;
    }
    mq_file_arrival *arrival = &a->arrived[a->count++];
    *arrival = (mq_file_arrival){.place = place, .fd = -1};
    strncpy(arrival->name, name, NAME_MAX);
    if (a->open == MQ_FILE_ARRIVALS_OPEN_MAX)
        return;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", a->place[place].directory, name);
    arrival->fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    arrival->error = arrival->fd < 0 ? errno : 0;
    a->open += arrival->fd >= 0;
}

static inline void mq_file_watcher_add_event_in(mq_file_watcher *a, unsigned place, const struct inotify_event *event) {
    const char *start = a->place[place].start;
    if (event->mask & IN_IGNORED) { /* it is there no more */
        a->place[place].watch = -1;
        a->changed = true;
    } else if (event->len && !(event->mask & IN_ISDIR) && !strncmp(event->name, start, strlen(start)))
        mq_file_watcher_open_file(a, place, event->name);
}

static inline void mq_file_watcher_add_event(mq_file_watcher *a, const struct inotify_event *event) {
    if (event->mask & IN_Q_OVERFLOW)
        a->overflowed = true;
    else if (event->mask & IN_MOVE_SELF)
        inotify_rm_watch(a->fd, event->wd); /* IN_IGNORED follows */
    else if (event->mask & IN_ISDIR)
        a->changed = true;
    for (unsigned i = 0; i < a->places; i++)
        if (a->place[i].watch == event->wd)
            mq_file_watcher_add_event_in(a, i, event);
}

/* Is there something to take? */
static inline bool mq_file_watcher_has_pending(const mq_file_watcher *a) {
    return a->count || a->overflowed || a->changed;
}

/* Open what has come, as far as there is room. True: there is something to take. */
static inline bool mq_file_watcher_poll(mq_file_watcher *a) {
    _Alignas(struct inotify_event) char events[4096];
    ssize_t size;
    while (a->count <= MQ_FILE_ARRIVALS_MAX - MQ_FILE_ARRIVALS_PER_READ &&
           (size = read(a->fd, events, sizeof events)) > 0)
        for (ssize_t at = 0; at < size;) {
            const struct inotify_event *event = (const void *)(events + at);
            at += (ssize_t)(sizeof *event + event->len);
            mq_file_watcher_add_event(a, event);
        }
    return mq_file_watcher_has_pending(a);
}

/* The same, and what follows at once: of files that are made together, each may be gone in a moment. */
static inline bool mq_file_watcher_poll_burst(mq_file_watcher *a) {
    struct pollfd on = {.fd = a->fd, .events = POLLIN};
    const struct timespec pause = {.tv_nsec = MQ_FILE_ARRIVALS_PAUSE_NS};
    for (int i = 0; i < MQ_FILE_ARRIVALS_PAUSES && mq_file_watcher_poll(a) && ppoll(&on, 1, &pause, NULL) > 0; i++)
        continue;
    return mq_file_watcher_poll(a);
}

/* What has come was taken: whoever took it closes the files. */
static inline void mq_file_watcher_clear(mq_file_watcher *a) {
    a->count = a->open = 0;
    a->overflowed = a->changed = false;
}

#endif
