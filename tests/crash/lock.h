/* The lock of a component's file, with a point after its acquisition and after its release. Include this after points.h. */
#ifndef LOCK_H
#define LOCK_H

static int lock_file(int fd, int operation, const char *function) {
    int failed = flock(fd, operation);
    if (!failed)
        point(function, operation & LOCK_UN ? "gave back" : "holds", "lock");
    return failed;
}
#define flock(fd, operation) lock_file(fd, operation, __func__)

#include "base/file_lock.h"

static void wait_for_lock(mq_file_lock *lock, const mq_liveness_file *liveness_file) {
    if (!mq_file_lock_open(lock, liveness_file))
        fail("lock");
    while (mq_file_lock_try(lock) != 0)
        usleep(50);
}

#endif
