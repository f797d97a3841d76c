/* Topics: a subscriber that begins at the oldest or at the last message. */
#include "ring_fixture.h"

static void publish_a_chunk(unsigned time) {
    if (time == 1)
        send_many(&one, 101, 10);
}

/* Start a stock publisher. It stores its uid, and then clears the slots. */
static void start_stock(void) {
    mq_store_release_u64(&ring->write_uid, 12345);
    mq_store_release_u64(&ring->num_readers, 0);
    for (int i = 0; i < MQ_READER_SLOTS; i++)
        mq_store_release_u64(&ring->read_uids[i], 0);
}

/* ---- from the oldest message on ---- */

TEST(subscriber_from_the_oldest_message_on_counts_earlier_ones) {
    begin();
    send_many(&one, 1, 100);
    CHECK(mq_ring_cycle(one.position) > 0);
    CHECK(mq_ring_subscriber_seek_oldest(&s) == MQ_RING_OK);
    uint64_t first = receive(false);
    CHECK(first > 1 && s.lost == first - 1 && !s.lost_unknown);
    for (uint64_t number = first + 1; number <= 100; number++)
        CHECK(receive(false) == number);
}

/* Join again, and return the number of the message that the subscriber receives first; 0: none. */
static uint64_t receive_last(void) {
    join();
    CHECK(mq_ring_subscriber_seek_last(&s) == MQ_RING_OK);
    CHECK(s.lost == 0 && !s.lost_unknown && s.received == 0);
    return receive(false);
}

TEST(subscriber_from_the_last_message_on_receives_it) {
    begin();
    CHECK(receive_last() == 0);
    for (uint64_t number = 1; number <= 100; number++) { /* two laps, and fewer than the subscriber rows */
        send_many(&one, number, 1);
        CHECK(receive_last() == number);
        CHECK(receive(false) == 0);
        CHECK(mq_ring_subscriber_sequence(&s) == number);
    }
}

TEST(subscriber_from_the_last_message_on_receives_it_before_the_first_of_a_lap) {
    begin();
    uint8_t *payload;
    uint32_t laps = 0;
    for (uint64_t number = 1; number <= 100; number++) {
        send_many(&one, number, 1);
        CHECK(mq_ring_publisher_begin_message(&one, SIZE, &payload) == MQ_RING_OK); /* may begin a lap */
        laps += mq_ring_offset(mq_load_acquire_u64(&ring->write_pointer)) == 0;
        CHECK(receive_last() == number);
        CHECK(receive(false) == 0);
        mq_ring_publisher_discard_staged(&one, MQ_RING_OK);
    }
    CHECK(laps == 2);
}

TEST(subscriber_from_the_last_message_on_is_never_torn_by_a_faster_publisher) {
    begin();
    send_many(&one, 1, 10);
    meet("mq_ring_message_size: loaded *", publish_a_chunk);
    uint64_t number = receive_last();
    CHECK(number == 0 || number >= 10);
}

static void begin_the_next_lap(unsigned time) {
    if (time == 1)
        mq_store_release_u64(&ring->write_pointer, mq_ring_position(1, 10 * NEED));
}

TEST(subscriber_from_the_last_message_on_searches_again_if_a_stock_publisher_laps_the_search) {
    begin();
    send_many(&one, 1, 10);
    mq_store_release_u64(&ring->write_uid, 12345);
    meet("mq_ring_message_size: loaded *", begin_the_next_lap);
    CHECK(receive_last() == 10 && mq_ring_cycle(s.cursor) == 1 && s.resets == 0 && !s.lost_unknown);
}

TEST(subscriber_from_the_last_message_on_ignores_invalid_positions) {
    begin();
    send_many(&one, 1, 10);
    mq_store_release_u64(&side->checkpoint_even.position, mq_ring_position(0, 13));
    mq_store_release_u64(&side->checkpoint_odd.position, UINT64_MAX);
    join();
    CHECK(mq_ring_subscriber_seek_last(&s) == MQ_RING_OK && receive(false) == 10);
}

/* Move a stock publisher to the next lap, and overwrite the first message of the lap. */
static void overwrite_first_message(unsigned time) {
    if (time == 1)
        mq_store_release_u64(&ring->write_pointer, mq_ring_position(1, NEED));
}

TEST(subscriber_from_the_last_message_on_searches_again_if_the_begin_of_the_search_is_overwritten) {
    begin();
    send_many(&one, 1, 40);
    start_stock();
    meet("mq_ring_message_size: loaded *", overwrite_first_message);
    CHECK(receive_last() == 1 && mq_ring_cycle(s.cursor) == 1 && s.resets == 0);
}

/* Write a lap after the begin of the search was validated, and before its last message is validated. */
static void overwrite_the_lap(unsigned time) {
    if (time == 2)
        mq_store_release_u64(&ring->write_pointer, mq_ring_position(1, 40 * NEED));
}

TEST(subscriber_from_the_last_message_on_searches_again_if_the_message_is_overwritten) {
    begin();
    send_many(&one, 1, 40);
    start_stock();
    meet("mq_ring_subscriber_is_intact: fenced acquire", overwrite_the_lap);
    CHECK(receive_last() == 40 && mq_ring_cycle(s.cursor) == 1 && s.resets == 0);
}

TEST(subscriber_from_the_last_message_on_shows_its_position_to_observers) {
    begin();
    send_many(&one, 1, 10);
    CHECK(mq_ring_subscriber_seek_last(&s) == MQ_RING_OK && s.cursor == 9 * NEED);
    CHECK(mq_load_acquire_u64(&s.row->cursor) == s.cursor);
    CHECK(mq_load_relaxed_u64(&s.row->base_sequence) == 9);
}

TEST(subscriber_stays_at_the_newest_position_if_the_last_message_cannot_be_found) {
    begin();
    send_many(&one, 1, 10);
    start_stock();
    mq_store_release_u64((mq_u64 *)(void *)one.data, UINT64_MAX / 2); /* not the size of a message */
    CHECK(mq_ring_subscriber_seek_last(&s) == MQ_RING_OK && s.cursor == 10 * NEED);
    CHECK(mq_load_acquire_u64(&s.row->cursor) == s.cursor);
    CHECK(s.lost == 0 && !s.lost_unknown);
}

static void track_the_topic(void) {
    mq_ring_publisher_close(&one);
    CHECK(mq_ring_side_decide_tracking(side, MQ_TRACK_YES) == sizeof(mq_stamps));
    start(&two);
    mq_stamps stamps = {.publish_time = 5, .origin_time = 4};
    CHECK(mq_ring_publisher_send_tracked(&two, message, SIZE, &stamps) <= MQ_RING_NOTIFY);
}

TEST(first_message_has_stamps_if_the_topic_is_tracked_after_the_join) {
    mq_ring_status (*const seeks[])(mq_ring_subscriber *) = {mq_ring_subscriber_seek_last,
                                                             mq_ring_subscriber_seek_oldest};
    for (int i = 0; i < 2; i++) {
        mq_ring_message found;
        begin();
        track_the_topic();
        CHECK(s.stamps == 0 && seeks[i](&s) == MQ_RING_OK);
        CHECK(mq_ring_subscriber_peek_message(&s, &found) == MQ_RING_OK && found.size == SIZE);
    }
}

TEST(stock_publisher_that_starts_after_the_join_is_detected_before_the_search) {
    begin();
    send_many(&one, 1, 10);
    start_stock();
    CHECK(mq_ring_subscriber_seek_last(&s) == MQ_RING_OK && receive(false) == 10);
    begin();
    send_many(&one, 1, 10);
    start_stock();
    CHECK(mq_ring_subscriber_seek_oldest(&s) == MQ_RING_OK && receive(false) == 1);
}

TEST(invalid_ring_is_corrupt_and_is_not_searched) {
    mq_ring_status (*const seeks[])(mq_ring_subscriber *) = {mq_ring_subscriber_seek_last,
                                                             mq_ring_subscriber_seek_oldest};
    static const mq_u64 cleared;
    for (int i = 0; i < 2; i++) {
        begin();
        send_many(&one, 1, 10);
        s.canary = (mq_canary){.word = &cleared, .value = 1};
        forget_steps();
        CHECK(seeks[i](&s) == MQ_RING_CORRUPT && !in_order("mq_ring_message_size: loaded *"));
        begin();
        send_many(&one, 1, 10);
        mq_store_release_u64(&ring->write_pointer, mq_ring_position(0, DATA));
        forget_steps();
        CHECK(seeks[i](&s) == MQ_RING_CORRUPT && !in_order("mq_ring_message_size: loaded *"));
    }
}
