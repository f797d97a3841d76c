/* Lock a component's file by flock(2), so that one process at a time joins. The open file can also lock the joining
 * participant's row (liveness_lock.h).
 *
 * A child that inherited the open file would keep the participant's lock after the participant's death. Therefore a
 * forked child closes the descriptors of its parent's locks before fork returns. Until the child first runs, a
 * participant that has left seems alive. Only endpointfile.pxi and the file.c of the C library include this file, and
 * each of the two has a list of its locks. A thread changes the list inside the fork guard, so a child never sees a
 * half-changed list. */
#ifndef MQ_FILE_LOCK_H
#define MQ_FILE_LOCK_H

#include "base/liveness_lock.h"

static mq_file_lock mq_file_lock_list = {.previous = &mq_file_lock_list, .next = &mq_file_lock_list};

static void mq_file_lock_close_in_child(void) {
    for (mq_file_lock *lock = mq_file_lock_list.next; lock != &mq_file_lock_list; lock = lock->next) {
        close(lock->fd);
        lock->fd = -1;
    }
    mq_file_lock_list.previous = mq_file_lock_list.next = &mq_file_lock_list;
}

static void mq_file_lock_register(void) { pthread_atfork(NULL, NULL, mq_file_lock_close_in_child); }

/* Open the file. Returns false with errno on failure. After success, call mq_file_lock_try until it returns 0, and at
 * the end mq_file_lock_close. */
static inline bool mq_file_lock_open(mq_file_lock *lock, const mq_liveness_file *file) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, mq_file_lock_register);
    *lock = (mq_file_lock){.file = *file, .fd = -1};
    const mq_private_file *private_file = mq_liveness_private_file(file);
    if (private_file) {
        lock->fd = private_file->fd;
        return true;
    }
    mq_fork_guard_enter();
    lock->fd = mq_liveness_file_reopen(file, O_RDWR);
    if (lock->fd >= 0) {
        lock->file.component_lock = lock;
        lock->previous = &mq_file_lock_list, lock->next = mq_file_lock_list.next;
        lock->next->previous = lock->previous->next = lock;
    }
    return mq_fork_guard_leave(-1, lock->fd >= 0 ? lock : NULL) != NULL;
}

/* Returns 0, or -1 with errno. EAGAIN: another process or thread has the lock. EBADF: a signal handler forked this
 * process, so open the file again. */
static inline int mq_file_lock_try(const mq_file_lock *lock) {
    return mq_is_private_fd(lock->fd) ? 0 : flock(lock->fd, LOCK_EX | LOCK_NB);
}

/* Unlock the file, and close the descriptor. A child that was forked under the lock has neither. */
static inline void mq_file_lock_close(mq_file_lock *lock) {
    if (lock->fd < 0 || mq_is_private_fd(lock->fd)) {
        lock->fd = -1;
        return;
    }
    flock(lock->fd, LOCK_UN); /* the page of a row's lock keeps the open file, so close alone is not enough */
    mq_fork_guard_enter();
    lock->next->previous = lock->previous, lock->previous->next = lock->next;
    mq_fork_guard_leave(lock->fd, NULL);
    lock->fd = -1;
}

#endif
