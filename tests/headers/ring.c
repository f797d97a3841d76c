/* Topics: positions and publishers of a ring. */
#include "ring_fixture.h"

/* ---- positions ---- */

TEST(positions_are_intact_up_to_the_limit_one_lap_later) {
    CHECK(mq_ring_message_is_intact(mq_ring_position(1, 64), mq_ring_position(1, 64)) &&
          mq_ring_message_is_intact(mq_ring_position(1, 64), mq_ring_position(1, 0)));
    CHECK(!mq_ring_message_is_intact(mq_ring_position(1, 64), mq_ring_position(1, 72)));
    CHECK(mq_ring_message_is_intact(mq_ring_position(2, 64), mq_ring_position(1, 64)) &&
          !mq_ring_message_is_intact(mq_ring_position(2, 72), mq_ring_position(1, 64)));
    CHECK(!mq_ring_message_is_intact(mq_ring_position(3, 0), mq_ring_position(1, 64)));
    CHECK(mq_ring_message_is_intact(mq_ring_position(0, 8), mq_ring_position(UINT32_MAX, 64))); /* cycles wrap */
}

TEST(positions_of_a_silent_publisher_keep_a_margin_of_the_largest_message) {
    uint32_t margin = DATA / 3 + 8, at = 600;
    CHECK(mq_ring_message_is_intact_without_limit(mq_ring_position(2, at - margin), mq_ring_position(1, at), DATA));
    CHECK(
        !mq_ring_message_is_intact_without_limit(mq_ring_position(2, at - margin + 1), mq_ring_position(1, at), DATA));
    CHECK(mq_ring_message_is_intact_without_limit(mq_ring_position(1, at), mq_ring_position(1, at), DATA));
    CHECK(!mq_ring_message_is_intact_without_limit(mq_ring_position(1, at), mq_ring_position(1, at + 8), DATA));
    CHECK(mq_ring_max_written_position(mq_ring_position(1, 8), DATA) == mq_ring_position(1, (8 + margin + 7) & ~7u));
    CHECK(mq_ring_max_written_position(mq_ring_position(1, DATA - 8), DATA) == mq_ring_position(2, margin & ~7u));
}

TEST(sizes_of_messages_and_laps_are_those_of_stock) {
    CHECK(mq_ring_frame_bytes(0) == 8 && mq_ring_frame_bytes(1) == 16 && mq_ring_frame_bytes(8) == 16 &&
          mq_ring_frame_bytes(9) == 24);
    CHECK(mq_ring_lap_end(1024) == 1008 && mq_ring_lap_end(1025) == 1016);
    CHECK(mq_ring_position_is_valid(mq_ring_position(9, 1008), 1024) &&
          !mq_ring_position_is_valid(mq_ring_position(9, 1016), 1024));
    CHECK(!mq_ring_position_is_valid(4, 1024));
}

TEST(largest_message_fits_three_times) {
    begin();
    uint64_t largest = mq_ring_frame_bytes_max(DATA) - 8;
    CHECK(mq_ring_publisher_send(&one, message, largest) <= MQ_RING_NOTIFY);
    CHECK(mq_ring_publisher_send(&one, message, largest + 1) == MQ_RING_TOO_LARGE);
    CHECK(mq_ring_publisher_send(&one, message, UINT64_MAX) == MQ_RING_TOO_LARGE);
}

/* ---- sending ---- */

TEST(send_stores_begun_then_the_message_then_its_position) {
    begin();
    send_many(&one, 1, 1);
    CHECK(in_order("mq_ring_publisher_begin_message: stored *begun", "mq_ring_publisher_begin_message: fenced seq_cst",
                   "mq_ring_publisher_owns_ring: loaded *write_uid",
                   "mq_ring_publisher_announce_limit: stored *grant_seq",
                   "mq_ring_publisher_announce_limit: fenced release", "*: copied to payload",
                   "mq_ring_publisher_owns_ring: loaded *write_uid", "mq_ring_publisher_publish: stored *write_pointer",
                   "mq_ring_publisher_publish: stored *sent", "mq_eventcount_load_flags: fenced seq_cst",
                   "mq_eventcount_load_flags: loaded word"));
}

TEST(send_announces_its_limit_before_the_message) {
    begin();
    send_many(&one, 1, 1);
    CHECK(in_order("mq_ring_publisher_announce_limit: stored *write_limit",
                   "mq_ring_publisher_announce_limit: fenced release", "*: half copied to payload"));
    CHECK(mq_ring_distance(mq_load_relaxed_u64(&side->write_limit), one.position) >= 0);
}

static void sent_is_published(void) {
    uint64_t sent = mq_load_acquire_u64(&one.row->sent);
    CHECK(mq_load_acquire_u64(&ring->write_pointer) >= sent * NEED);
}

TEST(message_is_counted_as_sent_after_its_position_is_stored) {
    begin();
    for (uint64_t number = 1; number <= 3; number++) {
        hold_at_each_step(sent_is_published);
        send_many(&one, number, 1);
        CHECK(mq_load_acquire_u64(&one.row->sent) == number);
    }
}

static uint64_t sequence_before, sequence_after;
static void checkpoint_is_whole(void) {
    mq_ring_checkpoint m;
    CHECK(mq_ring_checkpoint_read(side, &m));
    CHECK(m.sequence == sequence_before || m.sequence == sequence_after);
    CHECK(mq_ring_offset(m.position) == m.sequence * NEED);
}

TEST(checkpoint_is_the_old_or_the_new_one_at_each_step) {
    begin();
    for (uint64_t number = 1; number <= 9; number += 3) {
        mq_ring_checkpoint m;
        forget_steps();
        send_many(&one, number, 3);
        CHECK(mq_ring_checkpoint_read(side, &m));
        sequence_before = m.sequence, sequence_after = one.sequence;
        hold_at_each_step(checkpoint_is_whole);
        mq_ring_publisher_announce_limit(&one, one.position + 64);
        CHECK(mq_ring_checkpoint_read(side, &m) && m.sequence == number + 2);
    }
}

static void announce_twice(unsigned time) {
    if (time == 1)
        for (uint64_t number = 3; number <= 4; number++) {
            send_many(&one, number, 1);
            mq_ring_publisher_announce_limit(&one, one.position + 64);
        }
}

TEST(checkpoint_that_changes_twice_is_read_again) {
    mq_ring_checkpoint m;
    begin();
    send_many(&one, 1, 2);
    mq_ring_publisher_announce_limit(&one, one.position + 64);
    meet("mq_ring_checkpoint_read: loaded &words->position", announce_twice);
    CHECK(mq_ring_checkpoint_read(side, &m));
    CHECK(met == 2 && m.sequence == 4 && m.position == 4 * NEED);
}

static void limit_does_not_go_back(void) { CHECK(mq_load_relaxed_u64(&side->write_limit) >= mq_ring_position(0, 512)); }

TEST(announced_limit_does_not_go_back) {
    begin();
    mq_ring_publisher_announce_limit(&one, mq_ring_position(0, 512));
    hold_at_each_step(limit_does_not_go_back);
    mq_ring_publisher_announce_limit(&one, mq_ring_position(0, 256));
}

static void another_starts(unsigned time) {
    if (time == 1)
        claim(&two);
}

TEST(send_that_another_publisher_overtakes_publishes_nothing) {
    static const char *const patterns[] = {"mq_ring_publisher_begin_message: stored *begun", "*: copied to payload"};
    for (unsigned i = 0; i < 2; i++) {
        begin();
        send_many(&one, 1, 1);
        uint64_t position = one.position;
        meet(patterns[i], another_starts);
        CHECK(send_one(&one, 2) == MQ_RING_TAKEN_OVER);
        CHECK(mq_load_acquire_u64(&ring->write_pointer) == position);
        CHECK(!mq_ring_publisher_is_sending(one.row)); /* so the next publisher does not wait for it */
        forget_steps();
        CHECK(mq_ring_publisher_start(&two, &me) == MQ_RING_OK && send_one(&one, 3) == MQ_RING_TAKEN_OVER);
        send_many(&two, 4, 1);
        CHECK(receive(false) == 1 && receive(false) == 4 && s.lost == 0);
    }
}

TEST(discard_leaves_the_row_of_another_publisher) {
    uint8_t *payload;
    begin();
    CHECK(mq_ring_publisher_begin_message(&one, SIZE, &payload) == MQ_RING_OK);
    mq_ring_publisher_discard_staged(&one, MQ_RING_OK);
    CHECK(!mq_ring_publisher_is_sending(one.row));
    CHECK(mq_ring_publisher_begin_message(&one, SIZE, &payload) == MQ_RING_OK);
    mq_store_release_u64(&one.row->participant.uid, 77); /* its liveness was unknown, and another one took the row */
    mq_store_release_u64(&one.row->begun, 9);
    mq_ring_publisher_discard_staged(&one, MQ_RING_TAKEN_OVER);
    CHECK(mq_load_acquire_u64(&one.row->begun) == 9);
}

TEST(newcomer_waits_for_a_send_in_progress_unless_its_owner_is_dead) {
    uint8_t *payload;
    begin();
    CHECK(mq_ring_publisher_begin_message(&one, SIZE, &payload) == MQ_RING_OK);
    claim(&two);
    CHECK(mq_ring_find_sending_publisher(&two, false) == one.row);
    lives[0] = MQ_UNKNOWN;
    CHECK(mq_ring_find_sending_publisher(&two, false) == one.row && !mq_ring_find_sending_publisher(&two, true));
    lives[0] = MQ_DEAD;
    CHECK(!mq_ring_find_sending_publisher(&two, false));
}

TEST(claim_names_the_owner_before_the_others_are_ordered) {
    begin();
    forget_steps();
    claim(&two);
    CHECK(in_order("mq_ring_publisher_claim_ring: exchanged *write_uid",
                   "mq_ring_publisher_claim_ring: ordered membarrier"));
    CHECK(mq_ring_find_publisher(side, mq_load_acquire_u64(&ring->write_uid)) == two.row);
}

TEST(claim_without_other_publishers_needs_no_membarrier) {
    begin();
    mq_ring_publisher_close(&one);
    forget_steps();
    claim(&two);
    CHECK(!in_order("mq_ring_publisher_claim_ring: ordered membarrier"));
    CHECK(!two.unordered && !mq_ring_find_sending_publisher(&two, false));
}

TEST(next_publisher_continues_the_count_of_messages) {
    begin();
    send_many(&one, 1, 5);
    mq_store_release_u64(&one.row->sent, 4); /* killed before it was counted */
    lives[0] = MQ_DEAD;
    start(&two);
    CHECK(two.sequence == 5 && two.era == 0);
    CHECK(mq_load_acquire_u64(&one.row->participant.uid) == 0); /* its row is free */
    send_many(&two, 6, 1);
    for (uint64_t number = 1; number <= 6; number++)
        CHECK(receive(false) == number);
    CHECK(s.lost == 0);
}

TEST(publisher_after_a_closed_one_continues_the_count_of_messages) {
    begin();
    send_many(&one, 1, 5);
    mq_ring_publisher_close(&one);
    start(&two);
    CHECK(two.sequence == 5 && two.era == 0);
    CHECK(mq_load_relaxed_u64(&side->write_limit) < mq_ring_max_written_position(5 * NEED, DATA));
}

enum { STOCK_UID = 12345 };

TEST(publisher_after_a_stock_one_begins_another_count) {
    begin();
    send_many(&one, 1, 5);
    mq_store_release_u64(&ring->write_uid, STOCK_UID);
    start(&two);
    CHECK(two.era == 1 && mq_load_relaxed_u64(&side->write_limit) >= mq_ring_max_written_position(5 * NEED, DATA));
    CHECK(mq_load_acquire_u64(&ring->write_uid) == two.uid && !two.after_stock);
    CHECK(mq_ring_find_publisher(side, two.uid) == two.row);
    send_many(&two, 6, 1);
}

/* Until the start, subscribers validate positions as those of a stock publisher. */
TEST(claim_after_a_stock_publisher_names_no_row) {
    begin();
    mq_ring_publisher_close(&one);
    mq_store_release_u64(&ring->write_uid, STOCK_UID);
    forget_steps();
    claim(&two);
    CHECK(in_order("mq_ring_publisher_claim_ring: ordered membarrier")); /* stock publishers have no row */
    uint64_t claimed = mq_load_acquire_u64(&ring->write_uid);
    CHECK(claimed != STOCK_UID && claimed != two.uid && !mq_ring_find_publisher(side, claimed));
    CHECK(mq_load_acquire_u64(&two.row->participant.uid) == 0);
    mq_ring_publisher_release_ring(&two, STOCK_UID);
    CHECK(mq_load_acquire_u64(&ring->write_uid) == STOCK_UID);
}

TEST(start_wakes_all_sleepers) {
    begin();
    start(&two);
    CHECK(wakes(&side->eventcount) == 1); /* although no flag announces a sleeper */
}

TEST(close_clears_the_owner_and_wakes_sleepers) {
    begin();
    mq_ring_subscriber_prepare_wait(&s);
    mq_ring_publisher_close(&one);
    CHECK(mq_load_acquire_u64(&ring->write_uid) == 0 && wakes(&side->eventcount) == 1);
    CHECK(mq_load_acquire_u64(&side->publishers[0].participant.uid) == 0);
}

TEST(close_leaves_the_next_publisher) {
    begin();
    start(&two);
    mq_ring_publisher_close(&one);
    CHECK(mq_load_acquire_u64(&ring->write_uid) == two.uid);
}

TEST(send_wakes_a_subscriber_that_announced_itself) {
    begin();
    mq_ring_subscriber_prepare_wait(&s);
    send_many(&one, 1, 1);
    CHECK(wakes(&side->eventcount) == 1);
    send_many(&one, 2, 1);
    CHECK(wakes(&side->eventcount) == 1);
}

TEST(rows_are_staged_and_taken_in_their_order) {
    uint64_t rows[] = {1, 1, 2, 2, 3, 3}, taken[6], count = 3;
    uint8_t *payload;
    begin();
    CHECK(mq_ring_publisher_begin_message(&one, SIZE, &payload) == MQ_RING_OK);
    one.granted_offset = mq_ring_offset(one.head) + 2 * NEED;
    CHECK(mq_ring_publisher_stage_batch(&one, (uint8_t *)rows, SIZE, &count) == MQ_RING_OK && count == 2);
    CHECK(mq_load_relaxed_u64(&one.row->begun) == 2);
    CHECK(mq_ring_publisher_commit_staged(&one) <= MQ_RING_NOTIFY && one.sequence == 2 && one.bytes == 2 * SIZE);
    CHECK(mq_ring_subscriber_refresh_published(&s) == MQ_RING_OK);
    CHECK(mq_ring_subscriber_receive_batch(&s, (uint8_t *)taken, SIZE, 3) == 2 && !memcmp(taken, rows, 2 * SIZE));
    CHECK(s.received == 2);
}

static void owner_changes(unsigned time) {
    if (time == 1)
        mq_store_release_u64(&ring->write_uid, 99);
}

TEST(rows_that_another_publisher_overtakes_are_dropped) {
    uint64_t rows[] = {1, 1, 2, 2}, count = 2;
    uint8_t *payload;
    begin();
    CHECK(mq_ring_publisher_begin_message(&one, SIZE, &payload) == MQ_RING_OK);
    meet("mq_ring_publisher_stage_sized: copied to *", owner_changes);
    CHECK(mq_ring_publisher_stage_batch(&one, (uint8_t *)rows, SIZE, &count) == MQ_RING_TAKEN_OVER);
    CHECK(one.pending == 0 && !mq_ring_publisher_is_sending(one.row));
}
