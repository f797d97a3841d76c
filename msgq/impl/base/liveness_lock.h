/* Locks that show whether a participant lives. Each row has one byte in the component's file. A participant locks the
 * byte of its row, and a mapped page keeps the lock.
 *
 * An open-file-description lock (fcntl(2), F_OFD_SETLK) lasts as long as the open file that took it. Only one mapped
 * page refers to that open file, and forks do not inherit the page. The kernel therefore releases the lock when the
 * process dies, calls exec, or unmaps the page. The lock stays when the process closes descriptors, stops, or forks.
 * Processes in other PID and time namespaces see the same lock. A component's own mapping must come from another open
 * file, because handles share that mapping and forks inherit it, so it would keep the lock.
 *
 * To join, under the component's lock, a participant opens the file, maps a page, excludes the page from forks, locks
 * its byte and closes the file. After the lock, the participant writes its identity. To leave, a participant clears its
 * identity, and then unmaps the page. To probe a participant, a process opens the file again and asks the kernel for a
 * conflicting lock.
 *
 * The open file that locks the component by flock(2) can also lock the byte (file_lock.h). The page then keeps that
 * open file, so the process must release the component's lock explicitly. Until it has locked a byte, this open file
 * also probes participants. Afterwards it cannot, because its own lock does not conflict with it.
 *
 * If a process is killed between two of these steps, at most an identity without a lock remains. A participant without
 * a lock is dead. Results of probes are never cached, because the next probe may give another result. A death becomes
 * visible when the kernel has freed the process's memory (about 80 ms for 1 GiB).
 */
#ifndef MQ_LIVENESS_LOCK_H
#define MQ_LIVENESS_LOCK_H

#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>

#include "base/private_file.h"
#include "base/process_info.h"

#ifndef F_OFD_GETLK /* missing without _GNU_SOURCE */
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

/* The file with the rows. */
typedef struct {
    const char *path; /* NULL: the file has no name */
    int fd; /* a descriptor that may refer to the file. This descriptor is used if the path does not lead to the file */
    uint64_t device, inode;              /* identity of the file. The path may lead to another file now */
    struct mq_file_lock *component_lock; /* NULL: open the file again for each lock of a row */
} mq_liveness_file;

/* The lock of a component, by flock(2). The open file can have one lock of a row, because the page of the row's lock
 * keeps the open file until the row is unlocked. */
typedef struct mq_file_lock {
    mq_liveness_file file; /* the file, for joins under this lock */
    int fd;                /* -1: not locked, or the process is a forked child, which has not inherited the lock */
    bool has_row_lock;
    struct mq_file_lock *previous, *next; /* all locks of the process */
} mq_file_lock;

enum { MQ_LIVENESS_PAGE_BYTES = 4096 };

/* Cython code must call this function, because a Cython struct constructor leaves undeclared members undefined. */
static inline mq_liveness_file mq_liveness_file_of(const char *path, dev_t device, ino_t inode) {
    mq_liveness_file liveness_file = {.path = path, .fd = -1, .device = device, .inode = inode};
    return liveness_file;
}

static inline mq_liveness_file mq_liveness_file_make(const char *path, int fd, const struct stat *found) {
    mq_liveness_file liveness_file = mq_liveness_file_of(path, found->st_dev, found->st_ino);
    liveness_file.fd = fd;
    return liveness_file;
}

/* Return the private file of a bus, or NULL. */
static inline mq_private_file *mq_liveness_private_file(const mq_liveness_file *liveness_file) {
    return liveness_file ? mq_private_file_of((dev_t)liveness_file->device, liveness_file->inode) : NULL;
}

/* True if a process could open the private file again, as a file of the kernel. */
static inline bool mq_liveness_can_reopen(const mq_liveness_file *liveness_file, const mq_private_file *private_file) {
    errno = ESTALE;
    return private_file->is_named || liveness_file->fd >= 0;
}

static inline bool mq_liveness_file_matches(const mq_liveness_file *liveness_file, int fd) {
    struct stat found;
    return fstat(fd, &found) == 0 && found.st_ino == liveness_file->inode && found.st_dev == liveness_file->device;
}

/* Open the file again. Returns a descriptor, or -1 with errno. ESTALE: neither the path nor `fd` leads to this file. */
static inline int mq_liveness_file_reopen(const mq_liveness_file *liveness_file, int access) {
    char unnamed[40];
    int fd = -1;
    errno = ESTALE;
    if (liveness_file && liveness_file->path)
        fd = open(liveness_file->path, access | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd >= 0 && !mq_liveness_file_matches(liveness_file, fd)) {
        close(fd);
        fd = -1, errno = ESTALE;
    }
    if (fd < 0 && liveness_file && liveness_file->fd >= 0 &&
        mq_liveness_file_matches(liveness_file,
                                 /* the identity check detects that `fd` refers to another file now */
                                 liveness_file->fd)) {
        snprintf(unnamed, sizeof unnamed, "/proc/self/fd/%d", liveness_file->fd);
        fd = open(unnamed, access | O_CLOEXEC | O_NONBLOCK);
    }
    return fd;
}

/* ---- lock ---- */

/* A child that is forked between open and close would keep the lock. Therefore forks wait for the close. Each module
 * has its own mutex. */
static pthread_mutex_t mq_fork_guard_mutex = PTHREAD_MUTEX_INITIALIZER;

static void mq_fork_guard_before_fork(void) { pthread_mutex_lock(&mq_fork_guard_mutex); }
static void mq_fork_guard_after_fork(void) { pthread_mutex_unlock(&mq_fork_guard_mutex); }

static void mq_fork_guard_register(void) {
    pthread_atfork(mq_fork_guard_before_fork, mq_fork_guard_after_fork, mq_fork_guard_after_fork);
}

static inline void mq_fork_guard_enter(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, mq_fork_guard_register);
    pthread_mutex_lock(&mq_fork_guard_mutex);
}
static inline void *mq_fork_guard_leave(int fd, void *liveness_token) {
    int error = errno;
    if (fd >= 0)
        close(fd);
    pthread_mutex_unlock(&mq_fork_guard_mutex);
    errno = error;
    return liveness_token;
}

/* Lock the component for a moment in which no process may be forked, if nobody else has the lock. Returns a descriptor
 * for mq_liveness_end_moment, also if the lock is not free: then it is negative. */
static inline int mq_liveness_begin_moment(const mq_liveness_file *liveness_file) {
    const mq_private_file *private_file = mq_liveness_private_file(liveness_file);
    mq_fork_guard_enter();
    if (private_file)
        return private_file->fd; /* no other node of the bus runs now */
    int fd = mq_liveness_file_reopen(liveness_file, O_RDWR);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}
static inline void mq_liveness_end_moment(int fd) { mq_fork_guard_leave(mq_is_private_fd(fd) ? -1 : fd, NULL); }

/* Map a page of the open file. Forked children do not inherit the page. Returns NULL with errno on failure. */
static inline void *mq_liveness_map_page(int fd) {
    void *liveness_token = mmap(NULL, MQ_LIVENESS_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (liveness_token == MAP_FAILED) {
        errno = errno == EAGAIN ? ENOMEM : errno; /* EAGAIN is reserved for a lock held by another process */
        return NULL;
    }
    if (madvise(liveness_token, MQ_LIVENESS_PAGE_BYTES, MADV_DONTFORK) == 0)
        return liveness_token;
    int error = errno;
    munmap(liveness_token, MQ_LIVENESS_PAGE_BYTES);
    errno = error;
    return NULL;
}

static inline void *mq_liveness_lock_open_file(int fd, uint64_t row, bool shared) {
    struct flock lock = {.l_type = shared ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)row, .l_len = 1};
    void *liveness_token = fd >= 0 ? mq_liveness_map_page(fd) : NULL;
    if (liveness_token && fcntl(fd, F_OFD_SETLK, &lock) != 0) {
        int error = errno;
        munmap(liveness_token, MQ_LIVENESS_PAGE_BYTES);
        liveness_token = NULL;
        errno = error;
    }
    return liveness_token;
}

/* Lock a row. If `shared`, several processes may lock the byte at once, and read permission for the file is enough.
 * Returns NULL with errno on failure. EAGAIN: a living process holds the lock. */
static inline void *mq_liveness_lock(const mq_liveness_file *liveness_file, uint64_t row, bool shared) {
    mq_file_lock *component_lock = liveness_file ? liveness_file->component_lock : NULL;
    mq_private_file *private_file = mq_liveness_private_file(liveness_file);
    if (private_file)
        return mq_liveness_can_reopen(liveness_file, private_file) ? mq_private_lock_row(private_file, row, shared)
                                                                   : NULL;
    mq_fork_guard_enter();
    if (component_lock && component_lock->fd >= 0 && !component_lock->has_row_lock) {
        void *liveness_token = mq_liveness_lock_open_file(component_lock->fd, row, shared);
        component_lock->has_row_lock = liveness_token != NULL;
        return mq_fork_guard_leave(-1, liveness_token);
    }
    int fd = mq_liveness_file_reopen(liveness_file, shared ? O_RDONLY : O_RDWR);
    return mq_fork_guard_leave(fd, mq_liveness_lock_open_file(fd, row, shared));
}

/* Lock a whole file by flock(2), and create the file if needed. The open file owns this lock, too, so a mapping of the
 * file keeps the lock. Returns NULL with errno on failure. EWOULDBLOCK: a living process holds the lock. ESTALE: the
 * lock's holder just removed the file, so try again. */
static inline void *mq_liveness_lock_file(const char *path, mq_liveness_file *which) {
    struct stat opened, named;
    void *liveness_token = NULL;
    mq_fork_guard_enter();
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &opened) == 0) {
        bool same = stat(path, &named) == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
        errno = ESTALE;
        liveness_token = same ? mq_liveness_map_page(fd) : NULL;
        *which = mq_liveness_file_make(path, -1, &opened);
    }
    return mq_fork_guard_leave(fd, liveness_token);
}

/* Unlock a row or file. Never call this in a forked child, because the child has not inherited the page. */
static inline void mq_liveness_unlock(void *liveness_token) {
    mq_private_row *private_row = mq_private_row_of(liveness_token);
    if (private_row)
        mq_private_unlock_row(private_row);
    else if (liveness_token)
        munmap(liveness_token, MQ_LIVENESS_PAGE_BYTES);
}

/* ---- probe ---- */

/* A series of liveness tests on one file. The first test opens the file, unless the lock of the component has it open. */
typedef struct {
    const mq_liveness_file *liveness_file;
    int fd;
} mq_liveness_probe;

enum { MQ_PROBE_NOT_OPEN = -2 };

static inline mq_liveness_probe mq_liveness_probe_begin(const mq_liveness_file *liveness_file) {
    mq_liveness_probe probe = {.liveness_file = liveness_file, .fd = MQ_PROBE_NOT_OPEN};
    return probe;
}
static inline void mq_liveness_probe_end(mq_liveness_probe *probe) {
    if (probe->fd >= 0)
        close(probe->fd);
    probe->fd = MQ_PROBE_NOT_OPEN;
}

/* Return the open file that asks the kernel, or -1. In a child that was forked under the lock, the lock has none. */
static inline int mq_liveness_probe_descriptor(mq_liveness_probe *probe) {
    const mq_file_lock *component_lock = probe->liveness_file ? probe->liveness_file->component_lock : NULL;
    if (component_lock && component_lock->fd >= 0 && !component_lock->has_row_lock)
        return component_lock->fd;
    if (probe->fd == MQ_PROBE_NOT_OPEN)
        probe->fd = mq_liveness_file_reopen(probe->liveness_file, O_RDONLY);
    return probe->fd;
}

/* Return MQ_ALIVE if a process holds the row's lock, MQ_DEAD if no process holds the lock, and MQ_UNKNOWN if the test
 * fails. */
static inline mq_liveness mq_liveness_is_locked(mq_liveness_probe *probe, uint64_t row) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)row, .l_len = 1};
    const mq_private_file *private_file = mq_liveness_private_file(probe->liveness_file);
    if (private_file && !mq_liveness_can_reopen(probe->liveness_file, private_file))
        return MQ_UNKNOWN;
    if (private_file)
        return mq_private_is_locked(private_file, row) ? MQ_ALIVE : MQ_DEAD;
    int fd = mq_liveness_probe_descriptor(probe);
    if (fd < 0 || fcntl(fd, F_OFD_GETLK, &lock) != 0)
        return MQ_UNKNOWN;
    return lock.l_type == F_UNLCK ? MQ_DEAD : MQ_ALIVE;
}

/* Return the liveness of a row's owner, a process that had `pid` in `pid_namespace`. The function tests the lock and
 * the pid. The lock alone is not enough: if the owner created a child by a raw system call while the owner took the
 * lock, the child holds the lock, too. The start time is not compared, because time namespaces show different start
 * times. */
static inline mq_liveness mq_owner_liveness(mq_liveness_probe *probe, uint64_t row, uint64_t pid,
                                            uint64_t pid_namespace) {
    mq_liveness held = mq_liveness_is_locked(probe, row);
    return held != MQ_DEAD && mq_process_is_gone(pid, pid_namespace) ? MQ_DEAD : held;
}

#endif
