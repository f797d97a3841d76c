/* A channel: rows of viewers and publishers that get another owner, and the slots that the dead hold. */
#include "channel_fixture.h"

enum { VIEWER = 3 };

static mq_error error;
static const mq_file_lock lock = {.fd = -1};

static void viewer_is(mq_liveness life) {
    lives[MQ_CHANNEL_VIEWER_BYTE + VIEWER] = life;
    mq_participant_write(&header.viewers[VIEWER].participant, &me, 30, true);
}

/* Both slots of `a` are pinned. The message in slot 0 has left the order. */
static void hold_both_slots(mq_liveness life) {
    begin(2, CAPACITY);
    viewer_is(life);
    send_many(&a, 1, 1);
    send_many(&b, 100, CAPACITY - 1);
    send_many(&a, 2, 1);
    mq_pool_pin_set(&a.slots, 0, VIEWER);
    mq_pool_pin_set(&a.slots, 1, VIEWER);
}

/* ---- viewers ---- */

TEST(released_slot_is_taken_before_a_message_is_withdrawn) {
    hold_both_slots(MQ_ALIVE);
    CHECK(mq_channel_take_free_slot(&a) == MQ_CHANNEL_NO_SLOT && a.limbo_count == 1);
    mq_pool_pin_clear(&a.slots, 0, VIEWER);
    mq_pool_pin_clear(&a.slots, 1, VIEWER);
    CHECK(mq_channel_take_free_slot(&a) == 0 && a.evicted == 0);
}

static void next_viewer_pins_a_message(unsigned time) {
    if (time == 1)
        mq_pool_pin_set(&a.slots, 1, VIEWER);
}

TEST(pins_of_the_dead_are_cleared_where_the_next_viewer_cannot_pin) {
    hold_both_slots(MQ_DEAD);
    mq_pool_pin_clear(&a.slots, 1, VIEWER);
    meet("mq_channel_clear_dead_pins: cleared *", next_viewer_pins_a_message);
    CHECK(mq_channel_take_free_slot(&a) == 0);
    CHECK(mq_pool_pin_holders(&a.slots, 1) == 1ull << VIEWER);
}

TEST(next_viewer_in_the_row_of_the_dead_is_alive) {
    hold_both_slots(MQ_DEAD);
    CHECK(mq_channel_take_free_slot(&a) == 0);
    mq_channel_return_slot(&a, 0);
    viewer_is(MQ_ALIVE);
    send_many(&a, 3, 1);
    mq_pool_pin_set(&a.slots, 0, VIEWER);
    mq_pool_pin_set(&a.slots, 1, VIEWER);
    send_many(&b, 200, CAPACITY);
    CHECK(mq_channel_take_free_slot(&a) == MQ_CHANNEL_NO_SLOT);
    CHECK(mq_pool_pin_holders(&a.slots, 0) == 1ull << VIEWER);
}

TEST(viewer_clears_the_pins_of_the_dead_before_it_locks_the_row) {
    mq_channel_subscriber_rows rows = {.header = &header};
    hold_both_slots(MQ_DEAD);
    for (unsigned viewer = 0; viewer < VIEWER; viewer++) {
        lives[MQ_CHANNEL_VIEWER_BYTE + viewer] = MQ_ALIVE;
        mq_participant_write(&header.viewers[viewer].participant, &me, 20 + viewer, true);
    }
    forget_steps();
    CHECK(mq_channel_register_viewer(&files, &lock, &me, 40, &rows, &error) == 0 && rows.viewer == VIEWER);
    CHECK(!mq_pool_pin_holders(&a.slots, 0) && !mq_pool_pin_holders(&a.slots, 1));
    CHECK(
        in_order("mq_pool_pin_clear: cleared *", "mq_pool_pin_clear: cleared *", "mq_channel_register_viewer: held *"));
}

/* ---- publishers ---- */

TEST(retract_all_of_a_dead_row_leaves_the_messages_of_others) {
    uint64_t newest;
    begin(8, 8);
    send_many(&a, 1, 2);
    send_many(&b, 10, 2);
    CHECK(mq_channel_count_row_entries(&a.order, 0, &newest) == 2 && newest == CAPACITY + 2);
    mq_channel_retract_row_entries(&a.order, 0);
    CHECK(mq_channel_count_row_entries(&a.order, 0, &newest) == 0 && newest == 0);
    CHECK(receive(10) && receive(11));
    CHECK(s.lost == 2 && s.received == 2);
}

static mq_pool_map pool;

static void row_has_the_pool_of_its_owner(void) {
    uint64_t uid = mq_load_acquire_u64(&header.publishers[2].pool_uid);
    CHECK(uid == 0 || mq_load_acquire_u64(&header.publishers[2].participant.uid) == uid);
}

TEST(publisher_register_stores_the_pool_after_the_identity) {
    char node[MQ_NODE_NAME_BYTES] = "test";
    begin(4, 4);
    pool = a.slots;
    pool.uid = 30;
    hold_at_each_step(row_has_the_pool_of_its_owner);
    mq_channel_publisher_register(&header.publishers[2], &me, true, &pool, 4096, 0, node);
    CHECK(mq_load_acquire_u64(&header.publishers[2].pool_uid) == 30);
}

static void row_is_free_or_not_named(void) {
    CHECK(mq_load_acquire_u64(&header.publishers[0].pool_uid) ||
          !mq_load_acquire_u64(&header.publishers[0].participant.uid));
}

TEST(release_row_clears_the_identity_before_the_pool) {
    begin(4, 4);
    hold_at_each_step(row_is_free_or_not_named);
    mq_channel_release_row(&header.publishers[0]);
    CHECK(mq_load_acquire_u64(&header.publishers[0].pool_uid) == 0);
}

TEST(find_free_row_skips_a_row_whose_lock_is_held) {
    void *liveness_token = NULL;
    begin(4, 4);
    lives[MQ_CHANNEL_PUBLISHER_BYTE + 2] = MQ_ALIVE; /* its owner is leaving */
    CHECK(mq_channel_find_free_row(&header, &liveness_file, &liveness_token) == 3);
    CHECK(liveness_token == &holds[MQ_CHANNEL_PUBLISHER_BYTE + 3]);
}

static void die(const mq_channel_publisher *p) { lives[MQ_CHANNEL_PUBLISHER_BYTE + p->number] = MQ_DEAD; }

TEST(row_of_the_dead_is_released_after_its_messages_are_retracted) {
    uint64_t newest;
    begin(4, 4);
    send_many(&a, 1, 2);
    die(&a);
    CHECK(mq_channel_remove_dead_pools(&files, mq_channel_find_living_publishers(&files, &lock), 0, &error) == 0);
    CHECK(mq_channel_count_row_entries(&b.order, a.number, &newest) == 0);
    CHECK(in_order("mq_channel_retract_row_entries: exchanged *", "mq_channel_retract_row_entries: exchanged *",
                   "mq_channel_release_row: stored &row->pool_uid"));
}

TEST(join_asks_once_whether_each_publisher_lives) {
    begin(4, 4);
    die(&b);
    lives_asked = 0;
    open_publisher(&b, 4, 30);
    CHECK(lives_asked == 2 && b.number == 1);
}

static void publish_and_die(unsigned time) {
    if (time == CAPACITY) { /* all entries were counted */
        send_many(&a, 1, 1);
        die(&a);
    }
}

TEST(entries_of_a_row_are_counted_after_the_death_of_its_owner) {
    begin(4, 4);
    meet("mq_channel_count_row_entries: loaded *", publish_and_die);
    CHECK(mq_channel_sweep(&files, &lock, &error) == 0);
    CHECK(mq_load_acquire_u64(&a.row->pool_uid)); /* its message can still be received */
}
