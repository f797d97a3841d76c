/* The watcher's list, and one turn of its thread; no thread runs. */
#include "steps.h"

#include <poll.h>

#include "base/watcher.h"

typedef struct {
    mq_u32 eventcount;
    bool more, comes_late; /* after the announcement */
    unsigned announced, end_wait;
} reader;

static reader one, two;
static int fds[2];
static mq_futex_waitv_entry words[MQ_FUTEX_WAITV_MAX];
static int64_t max_sleep_ns;
static bool no_backoff;

static int has_message(const void *at) { return ((const reader *)at)->more; }
static uint32_t prepare_wait(const void *at, mq_u32 *eventcount) {
    reader *r = (reader *)(uintptr_t)at;
    r->announced++;
    r->more |= r->comes_late;
    return mq_eventcount_prepare_wait_mp(eventcount);
}
static void end_wait(const void *at) { ((reader *)(uintptr_t)at)->end_wait++; }

static int add(reader *r) {
    mq_poll_ops ops = {.is_readable = has_message,
                       .reader = r,
                       .eventcount = &r->eventcount,
                       .prepare_wait = prepare_wait,
                       .end_wait = end_wait};
    int fd = mq_watcher_add(&ops);
    CHECK(fd >= 0);
    return fd;
}

static void begin(void) {
    memset((void *)&one, 0, sizeof one), memset((void *)&two, 0, sizeof two);
    mq_watcher.running = true;
    mq_watcher.count = 0;
    fds[0] = add(&one);
    fds[1] = add(&two);
    mq_watcher_set_unreadable(fds[0], 5 * MQ_WATCH_IDLE_NS);
    mq_watcher_set_unreadable(fds[1], 7 * MQ_WATCH_IDLE_NS);
    forget_steps();
}

static bool is_readable(int fd) { return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 1; }
static unsigned scan(void) { return mq_watcher_poll_all(words, false, &max_sleep_ns, &no_backoff); }

TEST(turn_announces_quiet_readers_and_sleeps_on_their_words) {
    begin();
    CHECK(scan() == 3 && one.announced == 1 && two.announced == 1);
    CHECK(max_sleep_ns == 5 * MQ_WATCH_IDLE_NS && !no_backoff);
    CHECK(words[0].address == (uint64_t)(uintptr_t)&mq_watcher.changed);
    CHECK(words[2].address == (uint64_t)(uintptr_t)&two.eventcount);
    CHECK(words[1].expected == mq_load_acquire_u32(&one.eventcount) && words[1].expected & MQ_EVENTCOUNT_WAITERS);
    CHECK(!is_readable(fds[0]) && !is_readable(fds[1]));
}

TEST(turn_marks_readers_that_have_something) {
    begin();
    two.more = true;
    scan();
    CHECK(!is_readable(fds[0]) && is_readable(fds[1]) && two.announced == 0 && two.end_wait == 1);
    CHECK(max_sleep_ns == 5 * MQ_WATCH_IDLE_NS);
    one.more = true;
    scan();
    CHECK(max_sleep_ns == -1); /* no reader is quiet */
}

TEST(turn_marks_a_reader_whose_message_comes_with_the_announcement) {
    begin();
    one.comes_late = true;
    scan();
    CHECK(one.announced == 1 && is_readable(fds[0]));
}

TEST(quiet_empties_the_descriptor_of_its_reader_alone) {
    begin();
    one.more = two.more = true;
    scan();
    mq_watcher_set_unreadable(fds[0], MQ_WATCH_IDLE_NS);
    CHECK(!is_readable(fds[0]) && is_readable(fds[1]));
    one.more = false;
    scan();
    CHECK(one.announced == 1);
    mq_watcher_set_readable(fds[0]);
    CHECK(is_readable(fds[0]));
}

TEST(quiet_of_a_polled_reader_wakes_the_thread) {
    begin();
    mq_watcher_set_unreadable(fds[0], 5 * MQ_WATCH_IDLE_NS);
    CHECK(wakes(&mq_watcher.changed) == 0);
    mq_watcher_set_unreadable(fds[0], MQ_WATCH_POLL_NS); /* sooner than before */
    CHECK(wakes(&mq_watcher.changed) == 1);
    one.more = true;
    scan();
    mq_watcher_set_unreadable(fds[0], MQ_WATCH_POLL_NS); /* the thread does not poll a reader that is ready */
    CHECK(wakes(&mq_watcher.changed) == 2);
}

static int64_t max_sleep_of_reader_ns(const void *at) {
    (void)at;
    return 7;
}

TEST(reader_limits_the_sleep) {
    begin();
    mq_watcher_find_fd(fds[0])->ops.max_sleep_ns = max_sleep_of_reader_ns;
    scan();
    CHECK(max_sleep_ns == 7);
}

TEST(ready_reader_with_a_constant_interval_limits_the_sleep) {
    begin();
    mq_watch *watch = mq_watcher_find_fd(fds[0]);
    watch->ops.no_backoff = true;
    one.more = two.more = true;
    scan();
    CHECK(max_sleep_ns == MQ_WATCH_READY_NS && no_backoff); /* the thread polls when the reader is quiet again */
    mq_watcher_set_unreadable(fds[0], MQ_WATCH_READY_NS);
    CHECK(wakes(&mq_watcher.changed) == 0);
    mq_watcher_set_unreadable(fds[0], MQ_WATCH_READY_NS - 1);
    CHECK(wakes(&mq_watcher.changed) == 1);
    scan();
    mq_watcher_set_unreadable(fds[0], MQ_WATCH_READY_NS - 1); /* the thread may sleep longer than this reader allows */
    CHECK(wakes(&mq_watcher.changed) == 2);
}

TEST(added_and_removed_readers_wake_the_thread) {
    uint32_t before = mq_load_acquire_u32(&mq_watcher.changed);
    begin();
    mq_watcher_remove(fds[0]);
    CHECK(wakes(&mq_watcher.changed) == 1 && mq_load_acquire_u32(&mq_watcher.changed) > before);
    CHECK(mq_watcher.count == 1 && mq_watcher_find_fd(fds[1]) && !mq_watcher_find_fd(fds[0]));
    two.more = true;
    CHECK(scan() == 2 && is_readable(fds[1]));
}

TEST(removed_reader_leaves_copies_of_its_descriptor_readable) {
    begin();
    int copy = dup(fds[0]);
    mq_watcher_remove(fds[0]);
    CHECK(is_readable(copy));
}

TEST(readers_beyond_the_limit_of_the_futex_are_polled) {
    static reader many[MQ_FUTEX_WAITV_MAX];
    begin();
    for (int i = 0; i < MQ_FUTEX_WAITV_MAX - 2; i++)
        mq_watcher_set_unreadable(add(&many[i]), 5 * MQ_WATCH_IDLE_NS);
    CHECK(scan() == MQ_FUTEX_WAITV_MAX && max_sleep_ns == MQ_WATCH_POLL_NS);
    CHECK(mq_watcher.list[MQ_FUTEX_WAITV_MAX - 1].polled && !mq_watcher.list[MQ_FUTEX_WAITV_MAX - 2].polled);
}
