/* Locks on bytes of a real file, and their owners. */
#include "steps.h"

#undef mq_liveness_lock
#undef mq_liveness_unlock
#undef mq_owner_liveness

static mq_liveness_file liveness_file;
static mq_process_identity self;

static void begin(void) {
    struct stat found;
    int fd = memfd_create("life", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, MQ_LIVENESS_PAGE_BYTES) == 0 && fstat(fd, &found) == 0);
    liveness_file = (mq_liveness_file){.fd = fd, .device = found.st_dev, .inode = found.st_ino};
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
