/* Pools, the order, publishers and subscribers of a channel. */
#include "channel_fixture.h"

/* ---- pins ---- */

TEST(pin_clear_wakes_an_owner_that_sleeps) {
    begin(4, 4);
    mq_pool_pin_set(&a.slots, 1, 3);
    mq_eventcount_prepare_wait_mp(&a.slots.pool_header->slot_released);
    mq_pool_pin_clear(&a.slots, 1, 3);
    CHECK(wakes(&a.slots.pool_header->slot_released) == 1);
    mq_pool_pin_set(&a.slots, 1, 3);
    mq_pool_pin_clear(&a.slots, 1, 3);
    CHECK(wakes(&a.slots.pool_header->slot_released) == 1); /* no owner sleeps now */
}

TEST(pin_clear_leaves_the_pins_of_other_viewers) {
    begin(4, 4);
    mq_pool_pin_set(&a.slots, 1, 3);
    mq_pool_pin_set(&a.slots, 1, 63);
    mq_pool_pin_clear(&a.slots, 1, 3);
    CHECK(mq_pool_pin_holders(&a.slots, 1) == 1ull << 63);
}

static void overwrite(unsigned time) {
    if (time == 1)
        send_many(&b, 100, CAPACITY);
}

TEST(hold_of_a_message_that_has_gone_takes_its_pin_back) {
    begin(4, CAPACITY + 2);
    send_many(&a, 1, 1);
    CHECK(mq_channel_next_message(&s, &m) == MQ_CHANNEL_OK);
    mq_eventcount_prepare_wait_mp(&a.slots.pool_header->slot_released);
    meet("mq_pool_pin_set: set *", overwrite);
    CHECK(!mq_channel_pin_message(&s, &m, 3));
    CHECK(mq_pool_pin_holders(&a.slots, m.number) == 0);
    CHECK(wakes(&a.slots.pool_header->slot_released) == 1);
    CHECK(s.received == 0);
}

TEST(hold_pins_before_it_looks_at_the_entry) {
    begin(4, 4);
    send_many(&a, 1, 1);
    CHECK(mq_channel_next_message(&s, &m) == MQ_CHANNEL_OK);
    CHECK(mq_channel_pin_message(&s, &m, 3));
    CHECK(in_order("mq_pool_pin_set: set *", "mq_index_ring_entry_is_unchanged: loaded *",
                   "mq_channel_set_cursor: stored *"));
    CHECK(mq_pool_pin_holders(&a.slots, m.number) == 1ull << 3);
    CHECK(s.received == 1);
}

/* A living and a dead viewer hold a message of `a`, which then leaves the order. */
static void hold_by_two(uint32_t slots_of_a) {
    begin(slots_of_a, CAPACITY + 2);
    lives[MQ_CHANNEL_VIEWER_BYTE + 5] = MQ_ALIVE;
    mq_participant_write(&header.viewers[3].participant, &me, 30, true);
    mq_participant_write(&header.viewers[5].participant, &me, 50, true);
    send_many(&a, 1, 1);
    CHECK(mq_channel_next_message(&s, &m) == MQ_CHANNEL_OK);
    mq_pool_pin_set(&a.slots, m.number, 3);
    mq_pool_pin_set(&a.slots, m.number, 5);
    send_many(&b, 100, CAPACITY);
}

TEST(clear_dead_takes_the_pins_of_dead_viewers_alone) {
    hold_by_two(2);
    CHECK(mq_channel_take_free_slot(&a) != MQ_CHANNEL_NO_SLOT); /* the second slot */
    CHECK(mq_channel_take_free_slot(&a) == MQ_CHANNEL_NO_SLOT);
    CHECK(mq_pool_pin_holders(&a.slots, m.number) == 1ull << 5);
}

TEST(take_of_a_slot_that_a_living_viewer_holds_fails_until_it_lets_go) {
    hold_by_two(1);
    CHECK(mq_channel_take_free_slot(&a) == MQ_CHANNEL_NO_SLOT);
    CHECK(a.limbo_count == 1);
    mq_pool_pin_clear(&a.slots, m.number, 5);
    CHECK(mq_channel_take_free_slot(&a) == (int)m.number);
}

TEST(take_with_all_messages_held_by_the_dead_retracts_one) {
    begin(2, 4);
    mq_participant_write(&header.viewers[3].participant, &me, 30, true);
    send_many(&a, 1, 2);
    mq_pool_pin_set(&a.slots, 0, 3);
    mq_pool_pin_set(&a.slots, 1, 3);
    lives[MQ_CHANNEL_VIEWER_BYTE + 3] = MQ_ALIVE;
    CHECK(mq_channel_take_free_slot(&a) == MQ_CHANNEL_NO_SLOT && a.limbo_count == 0);
    lives[MQ_CHANNEL_VIEWER_BYTE + 3] = MQ_DEAD;
    CHECK(mq_channel_take_free_slot(&a) == 0 && a.evicted == 1);
    CHECK(mq_pool_pin_holders(&a.slots, 1) == 1ull << 3 && a.published_count == 1);
}

TEST(clear_pins_takes_the_pins_of_one_viewer_alone) {
    begin(4, 4);
    for (uint32_t slot = 0; slot < 4; slot++) {
        mq_pool_pin_set(&a.slots, slot, 3);
        mq_pool_pin_set(&a.slots, slot, 4);
    }
    mq_channel_clear_dead_viewer_pins(&a.slots, 3);
    for (uint32_t slot = 0; slot < 4; slot++)
        CHECK(mq_pool_pin_holders(&a.slots, slot) == 1ull << 4);
}

/* ---- files ---- */

TEST(header_of_another_size_or_version_is_rejected) {
    memset((void *)&header, 0, sizeof header);
    mq_channel_header_init(&header, MQ_CHANNEL_PUBSUB, 1, 1, "test");
    CHECK(mq_channel_header_check(&header, sizeof header) == MQ_FILE_VALID &&
          mq_channel_header_check(&header, sizeof header - 1) == MQ_FILE_NOT_OURS);
    mq_store_relaxed_u64(&header.total_bytes, sizeof header + 1);
    CHECK(mq_channel_header_check(&header, sizeof header) == MQ_FILE_NOT_OURS);
    mq_store_relaxed_u64(&header.version, (uint64_t)(MQ_CHANNEL_MAJOR + 1) << 32);
    CHECK(mq_channel_header_check(&header, sizeof header) == MQ_FILE_OTHER_VERSION);
}

static void move_slots(unsigned time) {
    (void)time;
    mq_store_relaxed_u64(&a.slots.pool_header->slots, 4);
    mq_store_relaxed_u64(&a.slots.pool_header->data_offset, 3 * 4096);
}

TEST(pool_whose_header_changes_during_the_opening_of_a_viewer_is_rejected) {
    mq_pool_file pool;
    mq_error error;
    begin(100, 4);
    meet("mq_pool_header_check: loaded &pool->magic", move_slots);
    CHECK(mq_pool_open(&files, 10, true, &pool, &error) == -EPROTO);
    CHECK(met == 1 && strstr(error.text, "changed during opening")); /* else pins are on read-only pages */
}

TEST(configure_accepts_capacities_that_are_powers_of_two_alone) {
    static const uint64_t wrong[] = {1, 3, 24, 2 * MQ_CHANNEL_CAPACITY_MAX};
    memset((void *)&header, 0, sizeof header);
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(!mq_channel_store_config(&header, (mq_channel_config){.capacity = wrong[i]}));
    CHECK(mq_load_acquire_u64(&header.tail) == 0);
    mq_channel_config config = {
        .capacity = MQ_CHANNEL_CAPACITY_MAX, .publishers = 63, .subscribers = 255, .stamps = MQ_CHANNEL_STAMPED};
    CHECK(mq_channel_store_config(&header, config) && mq_load_acquire_u64(&header.tail) == MQ_CHANNEL_CAPACITY_MAX);
    mq_channel_config found = mq_channel_config_unpack(mq_load_acquire_u64(&header.config));
    CHECK(!memcmp(&found, &config, sizeof found));
}

TEST(pool_that_does_not_fit_into_its_file_is_rejected) {
    mq_pool_map found;
    uint64_t bytes = mq_pool_header_bytes(4, 4096) + 4 * mq_pool_slot_stride_bytes(SIZE);
    begin(4, 4);
    mq_pool_header *at = a.slots.pool_header;
    CHECK(!mq_pool_header_check(at, bytes, 1, 10, &found) && mq_pool_header_check(at, bytes - 1, 1, 10, &found));
    CHECK(mq_pool_header_check(at, bytes, 2, 10, &found) && mq_pool_header_check(at, bytes, 1, 11, &found));
    mq_store_relaxed_u64(&at->slots, 0);
    CHECK(mq_pool_header_check(at, bytes, 1, 10, &found));
    mq_store_relaxed_u64(&at->slots, 5);
    CHECK(mq_pool_header_check(at, bytes, 1, 10, &found));
    mq_store_relaxed_u64(&at->slots, 4);
    mq_store_relaxed_u64(&at->slot_bytes, SIZE + 1);
    CHECK(mq_pool_header_check(at, bytes, 1, 10, &found));
    mq_store_relaxed_u64(&at->slot_bytes, UINT64_MAX - 63);
    CHECK(mq_pool_header_check(at, bytes, 1, 10, &found));
    mq_store_relaxed_u64(&at->slot_bytes, SIZE);
    mq_store_relaxed_u64(&at->data_offset, 0); /* over the pins */
    CHECK(mq_pool_header_check(at, bytes, 1, 10, &found));
    mq_store_relaxed_u64(&at->data_offset, bytes + 4096 - bytes % 4096); /* beyond the file */
    CHECK(mq_pool_header_check(at, bytes, 1, 10, &found));
    mq_store_relaxed_u64(&at->data_offset, 4096 + 64); /* not at a page */
    CHECK(mq_pool_header_check(at, bytes + 64, 1, 10, &found));
    begin(61, 4); /* the pins end at the first slot */
    CHECK(mq_load_relaxed_u64(&a.slots.pool_header->data_offset) == 4096);
}

TEST(name_of_a_node_ends_with_a_nul) {
    char node[] = "a name of sixty characters, of which forty-seven are stored.";
    mq_pool_map found;
    begin(4, 4);
    mq_pool_header *at = a.slots.pool_header;
    uint64_t bytes = mq_load_relaxed_u64(&at->total_bytes);
    mq_pool_header_init(at, bytes, 4, SIZE, 4096, 1, 10, 1, node);
    CHECK(!mq_pool_header_check(at, bytes, 1, 10, &found));
    mq_channel_publisher_register(a.row, &me, true, &a.slots, bytes, 0, node);
    CHECK(!memcmp(at->node, node, MQ_NODE_NAME_BYTES - 1) && !at->node[MQ_NODE_NAME_BYTES - 1]);
    CHECK(!memcmp(a.row->node, node, MQ_NODE_NAME_BYTES - 1) && !a.row->node[MQ_NODE_NAME_BYTES - 1]);
}

/* ---- the order ---- */

TEST(publish_helps_a_publisher_that_stopped_before_its_tail) {
    begin(4, 4);
    send_many(&a, 1, 1);
    mq_store_release_u64(&header.tail, CAPACITY); /* as before its last step */
    send_many(&b, 2, 1);
    CHECK(mq_load_acquire_u64(&header.tail) == CAPACITY + 2);
    CHECK(receive(1) && receive(2) && s.lost == 0);
}

static void publish_before(unsigned time) {
    if (time == 1)
        send_many(&b, 2, 1);
}

TEST(publish_that_another_one_overtakes_gets_the_next_position) {
    uint64_t position;
    begin(4, 4);
    int slot = mq_channel_take_free_slot(&a);
    meet("mq_index_ring_publish_entry: loaded at", publish_before);
    CHECK(mq_channel_publish(&a, (uint32_t)slot, 8, 1, &position) == MQ_CHANNEL_OK);
    CHECK(position == CAPACITY + 1);
}

static uint64_t largest_tail;

static void tail_grows(void) {
    uint64_t tail = mq_load_acquire_u64(&header.tail);
    CHECK(tail >= largest_tail);
    largest_tail = tail;
}

static void others_help_first(unsigned time) {
    if (time == 1) {
        send_many(&b, 10, 2);
        tail_grows();
    }
}

TEST(helper_that_others_overtake_leaves_the_tail) {
    begin(4, 4);
    send_many(&a, 1, 1);
    mq_store_release_u64(&header.tail, CAPACITY); /* as before its last step */
    largest_tail = 0;
    meet("mq_index_ring_publish_entry: loaded at", others_help_first);
    must_hold = tail_grows;
    send_many(&a, 2, 1);
    CHECK(mq_load_acquire_u64(&header.tail) == CAPACITY + 4);
}

TEST(publish_stores_the_message_before_its_entry) {
    begin(4, 4);
    forget_steps();
    send_many(&a, 1, 1);
    CHECK(in_order("mq_channel_begin_slot_write: fenced release", "*: copied to *",
                   "mq_channel_enqueue_slot: stored &at->length", "mq_index_ring_publish_entry: exchanged at",
                   "mq_index_ring_publish_entry: exchanged order->tail"));
}

/* ---- subscribers ---- */

static void replace(unsigned time) {
    if (time != 1)
        return;
    send_many(&b, 100, CAPACITY);
    mq_store_release_u64(&header.publishers[0].pool_uid, 99); /* the row has another owner, and another pool */
}

TEST(next_asks_for_no_pool_of_a_message_that_has_gone) {
    begin(4, CAPACITY + 2);
    send_many(&a, 1, 1);
    meet("mq_index_ring_load_entry: loaded *", replace);
    CHECK(mq_channel_next_message(&s, &m) == MQ_CHANNEL_OK);
    CHECK(m.row == 1);
    CHECK(s.lost > 0);
}

static void outdate(unsigned time) {
    if (time == 1)
        send_many(&b, 100, CAPACITY);
}

TEST(next_reports_no_corruption_of_a_message_that_has_gone) {
    begin(4, CAPACITY + 2);
    send_many(&a, 1, 1);
    mq_store_relaxed_u64(&mq_pool_slot_at(&a.slots, 0)->length, SIZE + 1);
    meet("mq_index_ring_load_entry: loaded *", outdate);
    CHECK(mq_channel_next_message(&s, &m) == MQ_CHANNEL_OK);
    CHECK(m.row == 1);
}

TEST(next_reports_a_length_beyond_the_slot) {
    begin(4, 4);
    send_many(&a, 1, 1);
    mq_store_relaxed_u64(&mq_pool_slot_at(&a.slots, 0)->length, SIZE + 1);
    CHECK(mq_channel_next_message(&s, &m) == MQ_CHANNEL_CORRUPT);
    mq_store_relaxed_u64(&mq_pool_slot_at(&a.slots, 0)->length, SIZE);
    CHECK(mq_channel_next_message(&s, &m) == MQ_CHANNEL_OK);
}

TEST(next_reports_a_slot_beyond_the_pool) {
    begin(4, 4);
    send_many(&a, 1, 1);
    mq_store_release_u64(mq_index_ring_entry_at(&a.order, CAPACITY), mq_index_entry_pack(CAPACITY, 0, 4));
    CHECK(mq_channel_next_message(&s, &m) == MQ_CHANNEL_CORRUPT);
}

TEST(accept_of_a_message_that_was_overwritten_fails) {
    begin(4, CAPACITY + 2);
    send_many(&a, 1, 1);
    CHECK(mq_channel_next_message(&s, &m) == MQ_CHANNEL_OK);
    send_many(&b, 100, CAPACITY);
    CHECK(!mq_channel_accept_entry(&s, &m));
    CHECK(s.received == 0 && mq_channel_load_cursor(&s) == CAPACITY);
}

TEST(accept_looks_at_the_entry_after_a_fence) {
    begin(4, 4);
    send_many(&a, 1, 1);
    CHECK(mq_channel_next_message(&s, &m) == MQ_CHANNEL_OK);
    forget_steps();
    CHECK(mq_channel_accept_entry(&s, &m));
    CHECK(in_order("mq_channel_accept_entry: fenced acquire", "mq_channel_accept_entry: loaded mq_index_ring_entry_at*",
                   "mq_channel_set_cursor: stored *"));
}

TEST(take_batch_ends_before_a_loss) {
    uint64_t rows[4] = {0};
    begin(CAPACITY + 2, 4);
    send_many(&a, 1, 2);
    CHECK(receive(1));
    send_many(&a, 3, CAPACITY);
    CHECK(mq_channel_receive_batch(&s, (uint8_t *)rows, 8, 4, &m, NULL) == 0);
    CHECK(s.received == 1 && s.lost == 0 && s.resets == 0);  /* the next call counts the loss */
    CHECK(mq_channel_next_message(&s, &m) == MQ_CHANNEL_OK); /* the message after the loss is still there */
    CHECK(mq_channel_accept_entry(&s, &m));
    CHECK(mq_channel_receive_batch(&s, (uint8_t *)rows, 8, 4, &m, NULL) == 4);
    CHECK(rows[0] == m.origin_time - 3 && rows[3] == m.origin_time);
}

TEST(following_message_is_not_after_a_retracted_one) {
    begin(2, 8);
    send_many(&b, 1, 2);
    send_many(&a, 10, 3); /* retracts its first message */
    CHECK(receive(1));
    CHECK(mq_channel_following_message(&s, &m) == MQ_CHANNEL_OK && m.origin_time == 2);
    CHECK(mq_channel_accept_entry(&s, &m));
    CHECK(mq_channel_following_message(&s, &m) == MQ_CHANNEL_EMPTY && s.lost == 0);
    CHECK(receive(11) && s.lost == 1);
    CHECK(mq_channel_following_message(&s, &m) == MQ_CHANNEL_OK && m.origin_time == 12);
}

TEST(newest_message_has_no_following_one) {
    begin(8, 8);
    s.conflate = true;
    send_many(&a, 1, 2);
    CHECK(receive(2));
    send_many(&a, 3, 2);
    CHECK(mq_channel_following_message(&s, &m) == MQ_CHANNEL_EMPTY);
    CHECK(receive(4));
}

TEST(take_batch_ends_before_another_publisher_and_another_size) {
    uint64_t rows[4], position;
    begin(8, 8);
    send_many(&a, 1, 2);
    send_many(&b, 10, 1);
    CHECK(receive(1));
    CHECK(mq_channel_receive_batch(&s, (uint8_t *)rows, 8, 4, &m, NULL) == 1 && rows[0] == 2);
    CHECK(receive(10));
    CHECK(mq_channel_publish(&b, (uint32_t)mq_channel_take_free_slot(&b), 16, 11, &position) == MQ_CHANNEL_OK);
    CHECK(mq_channel_receive_batch(&s, (uint8_t *)rows, 8, 4, &m, NULL) == 0);
}

TEST(take_batch_ends_before_another_pool_of_the_row_and_in_a_truncated_pool) {
    mq_u64 intact;
    uint64_t rows[4];
    begin(8, 8);
    mq_store_relaxed_u64(&intact, 1);
    send_many(&a, 1, 3);
    CHECK(receive(1));
    m.pool_uid = 99; /* the previous message was in another pool */
    CHECK(mq_channel_receive_batch(&s, (uint8_t *)rows, 8, 4, &m, &intact) == 0);
    m.pool_uid = a.slots.uid;
    mq_store_relaxed_u64(&intact, 0);
    CHECK(mq_channel_receive_batch(&s, (uint8_t *)rows, 8, 4, &m, &intact) == 0 && s.received == 1);
    mq_store_relaxed_u64(&intact, 1);
    CHECK(mq_channel_receive_batch(&s, (uint8_t *)rows, 8, 4, &m, &intact) == 2 && rows[0] == 2);
}

TEST(lapped_subscriber_counts_each_message_that_it_passes) {
    begin(CAPACITY + 2, 4);
    uint64_t from = mq_channel_load_cursor(&s);
    send_many(&a, 1, CAPACITY + 3);
    CHECK(mq_channel_next_message(&s, &m) == MQ_CHANNEL_OK);
    CHECK(s.resets == 1 && s.lost >= 3);
    CHECK(mq_channel_load_cursor(&s) - from == s.lost && m.origin_time == 1 + s.lost);
}

/* Let the subscriber be lapped, and return the distance from the oldest message to its next one. */
static uint64_t lap(void) {
    send_many(&b, 1, 2 * CAPACITY);
    uint64_t oldest = mq_load_acquire_u64(&header.tail) - CAPACITY;
    CHECK(mq_channel_next_message(&s, &m) == MQ_CHANNEL_OK);
    return m.position - oldest;
}

TEST(lapped_subscriber_continues_at_the_oldest_message_unless_it_is_lapped_again_at_once) {
    begin(4, CAPACITY + 2);
    CHECK(lap() == 0);
    CHECK(lap() == 1 && lap() == 2 && lap() == 4 && lap() == CAPACITY / 2 && lap() == CAPACITY / 2);
    CHECK(mq_channel_accept_entry(&s, &m)); /* a sixteenth of the capacity */
    CHECK(lap() == 0);
    CHECK(s.resets == 7);
}

TEST(lapped_subscriber_naps_for_a_while) {
    begin(4, CAPACITY + 2);
    CHECK(mq_channel_compute_lapped_nap_ns(&s, 1) == 0);
    lap();
    CHECK(mq_channel_compute_lapped_nap_ns(&s, 1) == MQ_CHANNEL_NAP_NS);
    CHECK(mq_channel_compute_lapped_nap_ns(&s, MQ_CHANNEL_BEHIND_NS) == MQ_CHANNEL_NAP_NS);
    CHECK(mq_channel_compute_lapped_nap_ns(&s, MQ_CHANNEL_BEHIND_NS + 1) == 0);
}

TEST(own_messages_are_passed_and_not_lost) {
    uint64_t own[MQ_CHANNEL_PUBLISHERS] = {10};
    begin(4, 4);
    s.excluded_pools = own;
    send_many(&a, 1, 2);
    send_many(&b, 10, 1);
    CHECK(receive(10));
    CHECK(s.lost == 0 && s.received == 1);
}

TEST(messages_before_the_join_are_not_lost) {
    begin(CAPACITY + 2, 4);
    send_many(&a, 1, 4);
    s = (mq_channel_subscriber){.header = &header, .history = 2};
    s.pools[0] = a.slots;
    CHECK(mq_channel_subscriber_join(&s, true));
    CHECK(mq_channel_load_cursor(&s) == CAPACITY + 2);
    send_many(&a, 5, CAPACITY);
    CHECK(mq_channel_next_message(&s, &m) == MQ_CHANNEL_OK);
    CHECK(s.lost == m.position - (CAPACITY + 4));
}

TEST(retracted_messages_before_the_join_are_not_lost) {
    begin(8, 8);
    send_many(&a, 1, 4);
    mq_channel_retract_row_entries(&a.order, 0);
    s = (mq_channel_subscriber){.header = &header, .history = 4};
    s.pools[1] = b.slots;
    CHECK(mq_channel_subscriber_join(&s, true));
    send_many(&b, 10, 1);
    CHECK(receive(10) && s.lost == 0);
}

TEST(conflating_subscriber_takes_the_newest_and_counts_the_rest) {
    begin(8, 8);
    s.conflate = true;
    send_many(&a, 1, 3);
    CHECK(receive(3));
    CHECK(s.lost == 2);
    CHECK(mq_channel_next_message(&s, &m) == MQ_CHANNEL_EMPTY);
}

TEST(publisher_withdraws_its_oldest_message_when_it_lacks_a_slot) {
    begin(2, 4);
    send_many(&a, 1, 3);
    CHECK(a.evicted == 1);
    CHECK(receive(2) && receive(3));
    CHECK(s.lost == 1);
}

TEST(publisher_evicts_nothing_when_all_its_messages_are_held) {
    begin(2, 4);
    send_many(&a, 1, 2);
    lives[MQ_CHANNEL_VIEWER_BYTE + 5] = MQ_ALIVE;
    mq_participant_write(&header.viewers[5].participant, &me, 50, true);
    mq_pool_pin_set(&a.slots, 0, 5);
    mq_pool_pin_set(&a.slots, 1, 5);
    CHECK(mq_channel_take_free_slot(&a) == MQ_CHANNEL_NO_SLOT);
    CHECK(a.evicted == 0);
}

TEST(publish_asks_for_a_wake_when_a_subscriber_sleeps) {
    uint64_t position;
    begin(4, 4);
    mq_eventcount_prepare_wait_mp(&header.eventcount);
    CHECK(mq_channel_publish(&a, (uint32_t)mq_channel_take_free_slot(&a), 8, 1, &position) == MQ_CHANNEL_NOTIFY);
}

TEST(publish_batch_gives_each_row_its_own_slot_and_position) {
    uint64_t rows[] = {7, 8, 9}, first = 0;
    begin(8, 4);
    CHECK(mq_channel_publish_batch(&a, (uint8_t *)rows, 8, 3, 0, &first) == 3 && first == CAPACITY);
    for (uint64_t i = 0; i < 3; i++) {
        CHECK(mq_channel_next_message(&s, &m) == MQ_CHANNEL_OK && m.length == 8);
        CHECK(!memcmp(mq_pool_slot_payload(m.slot), &rows[i], 8) && mq_channel_accept_entry(&s, &m));
    }
}
