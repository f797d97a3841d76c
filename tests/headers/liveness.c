/* Locks on bytes of a real file, and their owners. */
#include "steps.h"

#undef mq_liveness_lock
#undef mq_liveness_unlock
#undef mq_owner_liveness

#include <sys/wait.h>

#include "base/file_lock.h"

static mq_liveness_file liveness_file;
static mq_process_identity self;

static void begin(void) {
    struct stat found;
    int fd = memfd_create("life", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, MQ_LIVENESS_PAGE_BYTES) == 0 && fstat(fd, &found) == 0);
    liveness_file = mq_liveness_file_make(NULL, fd, &found);
    CHECK(mq_read_process_identity(&self) == 0 && self.pid == (uint64_t)getpid());
}

static mq_liveness life_of(uint64_t row) {
    mq_liveness_probe probe = mq_liveness_probe_begin(&liveness_file);
    mq_liveness life = mq_liveness_is_locked(&probe, row);
    mq_liveness_probe_end(&probe);
    CHECK(probe.fd == MQ_PROBE_NOT_OPEN);
    return life;
}

TEST(row_is_held_until_it_is_let_go) {
    begin();
    CHECK(life_of(5) == MQ_DEAD);
    void *liveness_token = mq_liveness_lock(&liveness_file, 5, false);
    CHECK(liveness_token && life_of(5) == MQ_ALIVE && life_of(4) == MQ_DEAD && life_of(6) == MQ_DEAD);
    errno = 0;
    CHECK(!mq_liveness_lock(&liveness_file, 5, false) && errno == EAGAIN);
    mq_liveness_unlock(liveness_token);
    CHECK(life_of(5) == MQ_DEAD);
}

TEST(row_that_is_shared_is_held_until_the_last_one_lets_go) {
    begin();
    void *one = mq_liveness_lock(&liveness_file, 5, true), *two = mq_liveness_lock(&liveness_file, 5, true);
    CHECK(one && two && !mq_liveness_lock(&liveness_file, 5, false));
    mq_liveness_unlock(one);
    CHECK(life_of(5) == MQ_ALIVE);
    mq_liveness_unlock(two);
    CHECK(life_of(5) == MQ_DEAD);
}

TEST(row_of_another_file_is_unknown) {
    begin();
    liveness_file.inode++;
    errno = 0;
    CHECK(life_of(5) == MQ_UNKNOWN);
    CHECK(!mq_liveness_lock(&liveness_file, 5, false) && errno == ESTALE);
}

TEST(owner_whose_process_is_gone_is_dead_though_its_row_is_held) {
    begin();
    void *liveness_token = mq_liveness_lock(&liveness_file, 5, false);
    mq_liveness_probe probe = mq_liveness_probe_begin(&liveness_file);
    CHECK(mq_owner_liveness(&probe, 5, self.pid, self.pid_namespace) == MQ_ALIVE);
    CHECK(mq_owner_liveness(&probe, 5, INT32_MAX, self.pid_namespace) == MQ_DEAD);
    CHECK(mq_owner_liveness(&probe, 5, INT32_MAX, self.pid_namespace + 1) ==
          MQ_ALIVE); /* the process cannot be looked up in this namespace */
    mq_liveness_unlock(liveness_token);
    CHECK(mq_owner_liveness(&probe, 5, self.pid, self.pid_namespace) == MQ_DEAD);
    mq_liveness_probe_end(&probe);
}

TEST(process_is_known_by_its_start_and_namespace) {
    begin();
    CHECK(mq_process_liveness(self.pid, self.start_time, self.pid_namespace) == MQ_ALIVE);
    CHECK(mq_process_liveness(self.pid, self.start_time + 1, self.pid_namespace) == MQ_DEAD);
    CHECK(mq_process_liveness(self.pid, self.start_time, self.pid_namespace + 1) == MQ_UNKNOWN);
    CHECK(mq_process_liveness(0, self.start_time, self.pid_namespace) == MQ_DEAD);
    CHECK(mq_process_liveness((1ull << 32) + self.pid, self.start_time, self.pid_namespace) == MQ_DEAD);
    CHECK(mq_thread_liveness((uint32_t)self.thread_id) == MQ_ALIVE && mq_thread_liveness(0) == MQ_DEAD);
}

TEST(signal_is_taken_by_a_thread_that_blocks_it) {
    sigset_t mask;
    begin();
    CHECK(mq_thread_survives_signal((uint32_t)self.thread_id, SIGUSR2) == 0);
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    CHECK(sigprocmask(SIG_BLOCK, &mask, NULL) == 0);
    CHECK(mq_thread_survives_signal((uint32_t)self.thread_id, SIGUSR2) == self.pid);
    CHECK(mq_thread_survives_signal((uint32_t)self.thread_id, SIGUSR1) == 0);
}

/* ---- locks of a file, which can also lock a row ---- */

static bool file_is_locked(void) {
    mq_file_lock other;
    CHECK(mq_file_lock_open(&other, &liveness_file));
    bool locked = mq_file_lock_try(&other) != 0;
    CHECK(!locked || errno == EAGAIN);
    mq_file_lock_close(&other);
    return locked;
}

TEST(row_keeps_the_open_file_but_not_the_lock_of_the_file) {
    mq_file_lock lock;
    begin();
    CHECK(mq_file_lock_open(&lock, &liveness_file) && mq_file_lock_try(&lock) == 0 && file_is_locked());
    void *liveness_token = mq_liveness_lock(&lock.file, 5, false);
    CHECK(liveness_token && lock.has_row_lock && life_of(5) == MQ_ALIVE && file_is_locked());
    mq_file_lock_close(&lock);
    CHECK(lock.fd == -1 && life_of(5) == MQ_ALIVE && !file_is_locked());
    mq_liveness_unlock(liveness_token);
    CHECK(life_of(5) == MQ_DEAD);
}

TEST(each_row_under_one_lock_of_the_file_is_unlocked_alone) {
    mq_file_lock lock;
    begin();
    CHECK(mq_file_lock_open(&lock, &liveness_file) && mq_file_lock_try(&lock) == 0);
    void *one = mq_liveness_lock(&lock.file, 5, false), *two = mq_liveness_lock(&lock.file, 6, false);
    CHECK(one && two && !mq_liveness_lock(&lock.file, 5, false) && errno == EAGAIN);
    mq_file_lock_close(&lock);
    mq_liveness_unlock(one);
    CHECK(life_of(5) == MQ_DEAD && life_of(6) == MQ_ALIVE);
    mq_liveness_unlock(two);
    CHECK(life_of(6) == MQ_DEAD);
}

TEST(row_in_use_leaves_the_lock_of_the_file_for_the_next_row) {
    mq_file_lock lock;
    begin();
    void *former = mq_liveness_lock(&liveness_file, 5, false);
    CHECK(former && mq_file_lock_open(&lock, &liveness_file) && mq_file_lock_try(&lock) == 0);
    CHECK(!mq_liveness_lock(&lock.file, 5, false) && errno == EAGAIN && !lock.has_row_lock);
    void *liveness_token = mq_liveness_lock(&lock.file, 6, false);
    CHECK(liveness_token && lock.has_row_lock);
    mq_file_lock_close(&lock);
    mq_liveness_unlock(liveness_token);
    mq_liveness_unlock(former);
    CHECK(life_of(5) == MQ_DEAD && life_of(6) == MQ_DEAD);
}

TEST(lock_of_the_file_tests_rows_until_it_has_one) {
    mq_file_lock lock;
    begin();
    void *other = mq_liveness_lock(&liveness_file, 5, false);
    CHECK(other && mq_file_lock_open(&lock, &liveness_file) && mq_file_lock_try(&lock) == 0);
    mq_liveness_probe probe = mq_liveness_probe_begin(&lock.file);
    CHECK(mq_liveness_is_locked(&probe, 5) == MQ_ALIVE && mq_liveness_is_locked(&probe, 6) == MQ_DEAD);
    CHECK(probe.fd == MQ_PROBE_NOT_OPEN);
    void *liveness_token = mq_liveness_lock(&lock.file, 6, false);
    CHECK(liveness_token && mq_liveness_is_locked(&probe, 6) == MQ_ALIVE && probe.fd >= 0);
    mq_liveness_probe_end(&probe);
    CHECK(fcntl(lock.fd, F_GETFD) >= 0); /* the end of the tests leaves the lock its open file */
    mq_file_lock_close(&lock);
    mq_liveness_unlock(liveness_token);
    mq_liveness_unlock(other);
}

TEST(removed_file_has_no_lock) {
    mq_file_lock lock;
    begin();
    liveness_file.path = "/dev/shm/msgq_none/none";
    liveness_file.fd = -1;
    errno = 0;
    CHECK(!mq_file_lock_open(&lock, &liveness_file) && errno == ENOENT && lock.fd == -1);
    mq_file_lock_close(&lock);
}

TEST(forked_child_keeps_neither_the_lock_of_the_file_nor_the_row) {
    mq_file_lock lock;
    int ready[2], end[2];
    char byte;
    begin();
    CHECK(pipe(ready) == 0 && pipe(end) == 0);
    CHECK(mq_file_lock_open(&lock, &liveness_file) && mq_file_lock_try(&lock) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(end[1]);
        bool detached = lock.fd == -1 && mq_file_lock_try(&lock) != 0 && errno == EBADF;
        mq_file_lock_close(&lock); /* must not unlock the parent's file */
        _exit(write(ready[1], detached ? "y" : "n", 1) == 1 && read(end[0], &byte, 1) == 0 ? 0 : 1);
    }
    CHECK(child > 0 && read(ready[0], &byte, 1) == 1 && byte == 'y' && file_is_locked());
    void *liveness_token = mq_liveness_lock(&lock.file, 5, false);
    mq_file_lock_close(&lock);
    CHECK(liveness_token && life_of(5) == MQ_ALIVE && !file_is_locked());
    mq_liveness_unlock(liveness_token);
    CHECK(life_of(5) == MQ_DEAD); /* although the child lives */
    close(end[1]);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
