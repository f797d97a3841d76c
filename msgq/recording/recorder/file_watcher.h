/* Detect new files in directories, by inotify. The watcher opens each file at once, because its name and content may
 * disappear soon.
 *
 * One thread at a time may use an mq_file_watcher. No function here calls Python or allocates memory.
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
    /* maximum number of new files stored for the caller; the kernel stores further events */
    MQ_FILE_ARRIVALS_MAX = 256,
    MQ_FILE_ARRIVALS_PER_READ = 128, /* maximum new files from one read: 4 KiB of events of 32 bytes */
    MQ_FILE_ARRIVALS_OPEN_MAX = 64, /* maximum number of open files; for further new files, only the names are stored */
    MQ_FILE_ARRIVALS_PAUSE_NS = 200000, /* pause after which a burst of new files has ended */
    MQ_FILE_ARRIVALS_PAUSES = 8,
    MQ_WATCHED_DIRECTORIES_MAX = 8,
    MQ_FILE_NAME_PREFIX_MAX = 16,
    MQ_FILE_ARRIVALS_MASK = IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR,
};

/* A directory to watch, and the prefix of file names to report. */
typedef struct {
    int watch_descriptor; /* inotify's watch of the directory. -1: the directory does not exist */
    const char *path;     /* the directory is not held open, because inotify would then not report its removal */
    char name_prefix[MQ_FILE_NAME_PREFIX_MAX];
} mq_watched_directory;

typedef struct {
    unsigned directory_index;
    int fd;    /* descriptor for reading; -1: the file was not opened */
    int error; /* reason why the file was not opened. ENOENT: the file was removed. 0: too many files are open */
    char name[NAME_MAX + 1];
} mq_file_arrival;

typedef struct {
    int inotify_fd;
    unsigned directory_count, arrival_count, open_count;
    bool overflowed; /* some new files were not reported, and their names are unknown */
    bool changed;    /* a directory appeared or was removed */
    mq_watched_directory directories[MQ_WATCHED_DIRECTORIES_MAX];
    mq_file_arrival arrivals[MQ_FILE_ARRIVALS_MAX]; /* the first `arrival_count` elements are valid */
} mq_file_watcher;

static inline void mq_file_watcher_open_file(mq_file_watcher *watcher, unsigned directory_index, const char *name) {
    if (watcher->arrival_count == MQ_FILE_ARRIVALS_MAX) {
        watcher->overflowed = true;
        return;
    }
    mq_file_arrival *arrival = &watcher->arrivals[watcher->arrival_count++];
    *arrival = (mq_file_arrival){.directory_index = directory_index, .fd = -1};
    strncpy(arrival->name, name, NAME_MAX);
    if (watcher->open_count == MQ_FILE_ARRIVALS_OPEN_MAX)
        return;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", watcher->directories[directory_index].path, name);
    arrival->fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    arrival->error = arrival->fd < 0 ? errno : 0;
    watcher->open_count += arrival->fd >= 0;
}

static inline void mq_file_watcher_add_directory_event(mq_file_watcher *watcher, unsigned directory_index,
                                                       const struct inotify_event *event) {
    const char *start = watcher->directories[directory_index].name_prefix;
    if (event->mask & IN_IGNORED) { /* the directory was removed */
        watcher->directories[directory_index].watch_descriptor = -1;
        watcher->changed = true;
    } else if (event->len && !(event->mask & IN_ISDIR) && !strncmp(event->name, start, strlen(start)))
        mq_file_watcher_open_file(watcher, directory_index, event->name);
}

static inline void mq_file_watcher_add_event(mq_file_watcher *watcher, const struct inotify_event *event) {
    if (event->mask & IN_Q_OVERFLOW)
        watcher->overflowed = true;
    else if (event->mask & IN_MOVE_SELF)
        inotify_rm_watch(watcher->inotify_fd, event->wd); /* the kernel then sends IN_IGNORED */
    else if (event->mask & IN_ISDIR)
        watcher->changed = true;
    for (unsigned i = 0; i < watcher->directory_count; i++)
        if (watcher->directories[i].watch_descriptor == event->wd)
            mq_file_watcher_add_directory_event(watcher, i, event);
}

/* True if the caller can take new files or changes. */
static inline bool mq_file_watcher_has_arrivals(const mq_file_watcher *watcher) {
    return watcher->arrival_count || watcher->overflowed || watcher->changed;
}

/* Open new files while the watcher has room for them. Returns true if the caller can take new files or changes. */
static inline bool mq_file_watcher_poll_arrivals(mq_file_watcher *watcher) {
    _Alignas(struct inotify_event) char events[4096];
    ssize_t size;
    while (watcher->arrival_count <= MQ_FILE_ARRIVALS_MAX - MQ_FILE_ARRIVALS_PER_READ &&
           (size = read(watcher->inotify_fd, events, sizeof events)) > 0)
        for (ssize_t at = 0; at < size;) {
            const struct inotify_event *event = (const void *)(events + at);
            at += (ssize_t)(sizeof *event + event->len);
            mq_file_watcher_add_event(watcher, event);
        }
    return mq_file_watcher_has_arrivals(watcher);
}

/* Do the same as mq_file_watcher_poll_arrivals, but also open files that appear within a short pause. If several files
 * are created together, each file may disappear soon. */
static inline bool mq_file_watcher_poll_arrival_burst(mq_file_watcher *watcher) {
    struct pollfd on = {.fd = watcher->inotify_fd, .events = POLLIN};
    const struct timespec pause = {.tv_nsec = MQ_FILE_ARRIVALS_PAUSE_NS};
    for (int i = 0;
         i < MQ_FILE_ARRIVALS_PAUSES && mq_file_watcher_poll_arrivals(watcher) && ppoll(&on, 1, &pause, NULL) > 0; i++)
        continue;
    return mq_file_watcher_poll_arrivals(watcher);
}

/* Clear the list of new files after the caller took the files. The caller closes the files. `changed` stays until the
 * caller has updated the watches. */
static inline void mq_file_watcher_clear_arrivals(mq_file_watcher *watcher) {
    watcher->arrival_count = watcher->open_count = 0;
    watcher->overflowed = false;
}

#endif
