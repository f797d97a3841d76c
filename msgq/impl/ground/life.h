/* The one test of life: a participant holds a lock on one byte of its piece's file, its row, and a mapping holds the lock.
 *
 * An open-file-description lock (fcntl(2), F_OFD_SETLK) lasts as long as the open file that took it. Nothing but one
 * mapped page refers to that open file, and forks do not inherit the page. So the kernel takes the lock back when the
 * process dies, calls exec, or lets go; not when it closes descriptors, stops, or forks; and it tells processes of other
 * PID and time namespaces the same.
 *
 *   taker (under the topic's lock)     open, map, keep from children, lock, close; only then it writes its identity
 *   leaver                             clears its identity, then unmaps
 *   asker                              opens the file anew and asks who would stand in the way of a lock
 *
 * A kill between any two of these steps leaves an identity without a lock, which is dead, or nothing. Answers are never
 * kept: the next one may differ. Death shows when the kernel has taken the memory down (some 80 ms for 1 GiB).
 */
#ifndef MQ_LIFE_H
#define MQ_LIFE_H

#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>

#include "ground/liveness.h"

#ifndef F_OFD_GETLK /* without _GNU_SOURCE */
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

/* The file that has the rows. */
typedef struct {
    const char *path;       /* NULL: it has no name */
    int fd;                 /* where it is open, perhaps: for when it has no name, or has it no more */
    uint64_t device, inode; /* what the path must lead to: the file may be gone, and another have its name */
} mq_roll;

enum { MQ_HOLD_BYTES = 4096 };

static inline bool mq_roll_is(const mq_roll *roll, int fd) {
    struct stat found;
    return fstat(fd, &found) == 0 && found.st_ino == roll->inode && found.st_dev == roll->device;
}

/* Open the file anew. Returns a descriptor, or -1 with errno; ESTALE: there is none, or another file has the name. */
static inline int mq_roll_open(const mq_roll *roll, int access) {
    char unnamed[40];
    int fd = -1;
    errno = ESTALE;
    if (roll && roll->path)
        fd = open(roll->path, access | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd >= 0 && !mq_roll_is(roll, fd)) {
        close(fd);
        fd = -1, errno = ESTALE;
    }
    if (fd < 0 && roll && mq_roll_is(roll, roll->fd)) { /* it may be another file's by now, which nobody opens */
        snprintf(unnamed, sizeof unnamed, "/proc/self/fd/%d", roll->fd);
        fd = open(unnamed, access | O_CLOEXEC | O_NONBLOCK);
    }
    return fd;
}

/* ---- holding ---- */

/* A child that is forked between open and close would keep the lock. Forks wait meanwhile. One a module. */
static pthread_mutex_t mq_hold_mutex = PTHREAD_MUTEX_INITIALIZER;

static void mq_hold_before_fork(void) { pthread_mutex_lock(&mq_hold_mutex); }
static void mq_hold_after_fork(void) { pthread_mutex_unlock(&mq_hold_mutex); }

static void mq_hold_register(void) { pthread_atfork(mq_hold_before_fork, mq_hold_after_fork, mq_hold_after_fork); }

static inline void mq_hold_begin(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, mq_hold_register);
    pthread_mutex_lock(&mq_hold_mutex);
}
static inline void *mq_hold_end(int fd, void *hold) {
    int error = errno;
    if (fd >= 0)
        close(fd);
    pthread_mutex_unlock(&mq_hold_mutex);
    errno = error;
    return hold;
}

/* Map a page of the open file, apart from children. NULL with errno. */
static inline void *mq_hold_map(int fd) {
    void *hold = mmap(NULL, MQ_HOLD_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (hold == MAP_FAILED) {
        errno = errno == EAGAIN ? ENOMEM : errno; /* EAGAIN says that somebody else holds the lock */
        return NULL;
    }
    if (madvise(hold, MQ_HOLD_BYTES, MADV_DONTFORK) == 0)
        return hold;
    int error = errno;
    munmap(hold, MQ_HOLD_BYTES);
    errno = error;
    return NULL;
}

/* Lock a row, or (shared) a byte that many may have at once, for which a file that is open for reading will do. NULL with
 * errno; EAGAIN: somebody lives who holds it. */
static inline void *mq_row_hold(const mq_roll *roll, uint64_t row, bool shared) {
    struct flock lock = {.l_type = shared ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)row, .l_len = 1};
    mq_hold_begin();
    int fd = mq_roll_open(roll, shared ? O_RDONLY : O_RDWR);
    void *hold = fd >= 0 ? mq_hold_map(fd) : NULL;
    if (hold && fcntl(fd, F_OFD_SETLK, &lock) != 0) {
        int error = errno;
        munmap(hold, MQ_HOLD_BYTES);
        hold = NULL;
        errno = error;
    }
    return mq_hold_end(fd, hold);
}

/* Lock a whole file by flock(2), made if need be: the lock is the open file's as well, so a mapping holds it. NULL with
 * errno; EWOULDBLOCK: somebody lives who holds it; ESTALE: its holder has just removed it, try again. */
static inline void *mq_file_hold(const char *path, mq_roll *which) {
    struct stat opened, named;
    void *hold = NULL;
    mq_hold_begin();
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &opened) == 0) {
        bool same = stat(path, &named) == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
        errno = ESTALE;
        hold = same ? mq_hold_map(fd) : NULL;
        *which = (mq_roll){.path = path, .device = opened.st_dev, .inode = opened.st_ino};
    }
    return mq_hold_end(fd, hold);
}

/* Never in a forked child, which has no such page. */
static inline void mq_row_let_go(void *hold) {
    if (hold)
        munmap(hold, MQ_HOLD_BYTES);
}

/* ---- asking ---- */

/* Questions about one file. It is opened when the first one needs it. */
typedef struct {
    const mq_roll *roll;
    int fd;
} mq_inquiry;

enum { MQ_NOT_OPEN = -2 };

static inline mq_inquiry mq_inquire(const mq_roll *roll) {
    mq_inquiry inquiry = {.roll = roll, .fd = MQ_NOT_OPEN};
    return inquiry;
}
static inline void mq_inquiry_end(mq_inquiry *inquiry) {
    if (inquiry->fd >= 0)
        close(inquiry->fd);
    inquiry->fd = MQ_NOT_OPEN;
}

/* Does anybody hold the row? MQ_UNKNOWN: it cannot be asked. */
static inline mq_life mq_row_held(mq_inquiry *inquiry, uint64_t row) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)row, .l_len = 1};
    if (inquiry->fd == MQ_NOT_OPEN)
        inquiry->fd = mq_roll_open(inquiry->roll, O_RDONLY);
    if (inquiry->fd < 0 || fcntl(inquiry->fd, F_OFD_GETLK, &lock) != 0)
        return MQ_UNKNOWN;
    return lock.l_type == F_UNLCK ? MQ_DEAD : MQ_ALIVE;
}

/* Does the owner of a row live, a process that had `pid` in `pid_namespace`? The pid gives a second opinion: a child that
 * was made by a raw system call while its parent took the lock holds it, too. The time of the process's start is no
 * part of it, for that differs between time namespaces. */
static inline mq_life mq_owner_life(mq_inquiry *inquiry, uint64_t row, uint64_t pid, uint64_t pid_namespace) {
    mq_life held = mq_row_held(inquiry, row);
    return held != MQ_DEAD && mq_process_gone(pid, pid_namespace) ? MQ_DEAD : held;
}

#endif
