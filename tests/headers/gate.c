/* The gate of an endpoint: its events, and waits for them. */
#include "steps.h"

#include <unistd.h>

#include "gate/gate.h"

static mq_event_gate gate;
static mq_fake_event *event;
static mq_liveness_file liveness_file;

static void begin(void) {
    memset((void *)&gate, 0, sizeof gate);
    mq_event_gate_init(&gate, &me, true);
    event = mq_fake_event_select(&gate, 1);
    forget_steps();
}

TEST(gate_is_good_with_its_own_version_and_size_alone) {
    begin();
    CHECK(mq_event_gate_check_header(&gate) == MQ_FILE_VALID && event == &gate.recv_ready);
    mq_store_relaxed_u64(&gate.total_bytes, MQ_GATE_BYTES - 1);
    CHECK(mq_event_gate_check_header(&gate) == MQ_FILE_NOT_OURS);
    mq_store_relaxed_u64(&gate.version, MQ_GATE_VERSION + 1);
    CHECK(mq_event_gate_check_header(&gate) == MQ_FILE_OTHER_VERSION);
    mq_store_relaxed_u64(&gate.magic, 0);
    CHECK(mq_event_gate_check_header(&gate) == MQ_FILE_NOT_OURS);
}

TEST(gate_owner_lives_as_long_as_its_lock_is_held) {
    begin();
    lives[MQ_GATE_ROW] = MQ_ALIVE;
    CHECK(mq_event_gate_owner_liveness(&gate, &liveness_file) == MQ_ALIVE);
    lives[MQ_GATE_ROW] = MQ_DEAD;
    CHECK(mq_event_gate_owner_liveness(&gate, &liveness_file) == MQ_DEAD);
}

TEST(event_counts_its_sets) {
    begin();
    CHECK(!mq_fake_event_is_set(event) && mq_fake_event_clear(event) == MQ_FAKE_EVENT_WAS_CLEAR);
    CHECK(!mq_fake_event_set(event) && !mq_fake_event_set(event) && mq_fake_event_is_set(event));
    CHECK(mq_fake_event_clear(event) == MQ_FAKE_EVENT_CLEARED && mq_fake_event_is_set(event));
    CHECK(mq_fake_event_clear(event) == MQ_FAKE_EVENT_CLEARED && !mq_fake_event_is_set(event));
}

TEST(event_with_the_largest_count_stays_set) {
    begin();
    mq_store_release_u32(&event->count, UINT32_MAX - 1);
    CHECK(!mq_fake_event_set(event) && mq_fake_event_is_set(event));
    mq_store_release_u32(&event->count, MQ_FAKE_EVENT_MAX - MQ_FAKE_EVENT_ONE);
    CHECK(!mq_fake_event_set(event) && !mq_fake_event_set(event) && !mq_fake_event_set(event));
    CHECK(mq_load_acquire_u32(&event->count) == MQ_FAKE_EVENT_MAX);
}

TEST(set_wakes_sleepers_once) {
    begin();
    uint32_t expected = mq_fake_event_prepare_wait(event);
    CHECK(expected == mq_load_acquire_u32(&event->count) && !mq_fake_event_is_set(event));
    mq_fake_event_set(event);
    CHECK(wakes(&event->count) == 1 && mq_load_acquire_u32(&event->count) != expected);
    mq_fake_event_set(event);
    CHECK(wakes(&event->count) == 1);
}

TEST(set_and_clear_report_changes_to_a_watched_fifo) {
    begin();
    mq_store_release_u64(&event->fifo_inode, 7);
    CHECK(mq_fake_event_set(event));
    CHECK(in_order("mq_fake_event_set: counted &e->count", "mq_fake_event_has_fifo: fenced seq_cst",
                   "mq_fake_event_has_fifo: loaded &e->fifo_inode"));
    CHECK(!mq_fake_event_set(event)); /* it was set already */
    CHECK(mq_fake_event_clear(event) == MQ_FAKE_EVENT_CLEARED &&
          mq_fake_event_clear(event) == MQ_FAKE_EVENT_CLEARED_FIFO);
}

static void another_clears(unsigned time) {
    if (time == 1)
        CHECK(mq_fake_event_clear(event) == MQ_FAKE_EVENT_CLEARED);
}

TEST(clear_that_another_one_overtakes_does_not_go_below_zero) {
    begin();
    mq_fake_event_set(event);
    meet("mq_fake_event_clear: loaded &e->count", another_clears);
    CHECK(mq_fake_event_clear(event) == MQ_FAKE_EVENT_WAS_CLEAR);
    CHECK(mq_load_acquire_u32(&event->count) == 0);
}

static int fifo; /* both ends of a pipe */
static void open_fifo(void) {
    int ends[2];
    char path[40];
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    CHECK((fifo = open(path, O_RDWR | O_NONBLOCK)) >= 0);
}

static bool is_readable(void) {
    char byte;
    return read(fifo, &byte, 1) == 1;
}

static void another_sets(unsigned time) {
    if (time == 1)
        mq_fake_event_set(event);
}

TEST(fifo_is_readable_while_the_event_is_set) {
    begin();
    open_fifo();
    mq_fake_event_set(event);
    mq_fake_event_sync_fifo(event, fifo);
    CHECK(is_readable());
    mq_fake_event_sync_fifo(event, fifo);
    mq_fake_event_sync_fifo(event, fifo); /* two bytes */
    mq_fake_event_clear(event);
    mq_fake_event_sync_fifo(event, fifo);
    CHECK(!is_readable());
}

TEST(fifo_of_an_event_that_changes_during_the_action_is_settled_again) {
    begin();
    open_fifo();
    meet("mq_fake_event_is_set: loaded &e->count", another_sets);
    mq_fake_event_sync_fifo(event, fifo);
    CHECK(is_readable());
}

TEST(watcher_of_an_event_that_is_set_finds_it_readable) {
    begin();
    open_fifo();
    mq_fake_event_set(event);
    forget_steps();
    mq_fake_event_attach_fifo(event, 7, fifo);
    CHECK(is_readable() && mq_fake_event_fifo_inode(event) == 7);
    CHECK(in_order("mq_fake_event_attach_fifo: stored &e->fifo_inode", "mq_fake_event_attach_fifo: fenced seq_cst",
                   "mq_fake_event_is_set: loaded &e->count"));
}

TEST(close_and_disable_end_the_waits_for_both_events) {
    for (int i = 0; i < 2; i++) {
        begin();
        mq_event_gate_set_enabled(&gate, true);
        mq_fake_event_prepare_wait(&gate.recv_called);
        mq_fake_event_prepare_wait(&gate.recv_ready);
        CHECK(mq_event_gate_is_enabled(&gate) && !wake_count);
        forget_steps();
        if (i)
            mq_event_gate_close(&gate);
        else
            mq_event_gate_set_enabled(&gate, false);
        CHECK(wakes(&gate.recv_called.count) == 1 && wakes(&gate.recv_ready.count) == 1);
        CHECK(mq_event_gate_is_closed(&gate) == (i == 1) && mq_event_gate_is_enabled(&gate) == (i == 1));
        CHECK(mq_load_acquire_u32(&event->count) == 0); /* so a wait that is about to sleep does not */
        CHECK(in_order("mq_event_gate_*: stored *", "mq_event_gate_wake_waiters: cleared *",
                       "mq_event_gate_wake_waiters: woke *"));
    }
}

TEST(spin_ends_with_the_last_event_of_a_list) {
    mq_futex_waitv_entry words[2] = {{.address = (uint64_t)(uintptr_t)&gate.recv_called.count},
                                     {.address = (uint64_t)(uintptr_t)&gate.recv_ready.count}};
    begin();
    CHECK(!mq_fake_event_spin_until_set(words, 2, 0));
    mq_fake_event_set(event);
    CHECK(mq_fake_event_spin_until_set(words, 2, 0));
}
