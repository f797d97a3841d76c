/* Topics: subscribers, slots, sizes, and observers. */
#include "ring_fixture.h"

/* ---- receiving ---- */

TEST(messages_are_received_across_the_end_of_a_lap) {
    begin();
    for (uint64_t number = 1; number <= 200; number++) {
        send_many(&one, number, 1);
        CHECK(receive(false) == number);
    }
    CHECK(s.lost == 0 && s.resets == 0 && mq_ring_cycle(s.cursor) > 3);
    CHECK(receive(false) == 0);
}

TEST(ring_that_is_one_lap_ahead_is_not_empty) {
    begin();
    mq_store_release_u64(&ring->write_pointer, mq_ring_next_lap(s.cursor) | mq_ring_offset(s.cursor));
    CHECK(mq_ring_subscriber_refresh_published(&s) == MQ_RING_OK);
}

TEST(lapped_subscriber_counts_lost_messages) {
    begin();
    send_many(&one, 1, 3);
    CHECK(receive(false) == 1);
    send_many(&one, 4, 96);
    uint64_t number = receive(false);
    if (!number) { /* it continues at the newest position */
        send_many(&one, 100, 1);
        number = receive(false);
    }
    CHECK(number > 1 && s.resets == 1 && !s.lost_unknown);
    CHECK(s.received == 2 && s.lost == number - 2);
}

TEST(oldest_record_is_the_first_one_after_the_limit) {
    CHECK(mq_ring_oldest_record_position(mq_ring_position(1, 2 * NEED), DATA, NEED, 0) ==
          mq_ring_position(0, 2 * NEED));
    CHECK(mq_ring_oldest_record_position(mq_ring_position(1, 2 * NEED + 8), DATA, NEED, 0) ==
          mq_ring_position(0, 3 * NEED));
    CHECK(mq_ring_oldest_record_position(mq_ring_position(1, 2 * NEED), DATA, NEED, NEED) ==
          mq_ring_position(0, 3 * NEED));
    CHECK(mq_ring_oldest_record_position(mq_ring_position(1, 1008), DATA, NEED, 0) == mq_ring_position(1, 0));
    CHECK(mq_ring_oldest_record_position(mq_ring_position(0, 2 * NEED), DATA, NEED, 0) == mq_ring_position(0, 0));
    begin();
    send_many(&one, 1, 3);
    uint64_t last;
    CHECK(mq_ring_count_messages_of_size(one.data, DATA, 0, one.position, NEED, &last) == 3);
    CHECK(mq_ring_count_messages_of_size(one.data, DATA, 0, one.position, NEED + 8, &last) == -1);
}

TEST(lapped_consumer_of_records_continues_at_the_oldest_one) {
    begin();
    s.record_bytes = SIZE;
    CHECK(receive(false) == 0);
    send_many(&one, 1, 100);
    uint64_t first = receive(false);
    CHECK(first > 1 && first < 75 && s.lost == first - 1 && !s.lost_unknown && s.resets == 1);
    for (uint64_t number = first + 1; number <= 100; number++)
        CHECK(receive(false) == number);
    CHECK(s.lost + s.received == 100);
}

static void publish_a_chunk(unsigned time) {
    if (time == 1)
        send_many(&one, 101, 10);
}

TEST(lapped_consumer_of_records_keeps_what_is_left_when_the_checkpoint_moves_on) {
    begin();
    s.record_bytes = SIZE;
    CHECK(receive(false) == 0);
    send_many(&one, 1, 100);
    meet("mq_ring_subscriber_seek_oldest_record: loaded *write_pointer*", publish_a_chunk);
    uint64_t first = receive(false);
    CHECK(first > 1 && first < 100 && s.lost == first - 1 && s.resets == 1);
    for (uint64_t number = first + 1; number <= 110; number++)
        CHECK(receive(false) == number);
}

static void publish_eight(unsigned time) { send_many(&one, 93 + 8 * time, 8); }

TEST(lapped_consumer_of_records_that_is_overtaken_begins_far_enough_ahead) {
    begin();
    s.record_bytes = SIZE;
    CHECK(receive(false) == 0);
    send_many(&one, 1, 100);
    meet("mq_ring_subscriber_seek_oldest_record: loaded *limit*", publish_eight);
    uint64_t first = receive(false);
    CHECK(met == 3); /* it began at the limit, one chunk behind it, and eight chunks behind it */
    CHECK(first > 80 && first < 100 && s.lost == first - 1 && s.resets == 1);
    for (uint64_t number = first + 1; number <= 124; number++)
        CHECK(receive(false) == number);
}

static void publish_a_lap(unsigned time) {
    if (time == 1)
        send_many(&one, 100, 60);
}

TEST(copy_that_was_overwritten_is_not_accepted) {
    mq_ring_message found;
    begin();
    send_many(&one, 1, 1);
    CHECK(mq_ring_subscriber_peek_message(&s, &found) == MQ_RING_OK);
    meet("mq_ring_subscriber_is_intact: fenced acquire", publish_a_lap);
    CHECK(!mq_ring_subscriber_accept_copy(&s, &found));
    CHECK(s.received == 0);
}

TEST(batch_that_was_overwritten_is_not_accepted) {
    uint64_t words[6];
    begin();
    send_many(&one, 1, 3);
    CHECK(mq_ring_subscriber_refresh_published(&s) == MQ_RING_OK);
    meet("mq_ring_subscriber_is_intact: fenced acquire", publish_a_lap);
    uint64_t cursor = s.cursor;
    CHECK(mq_ring_subscriber_receive_batch(&s, (uint8_t *)words, SIZE, 3) == -1);
    CHECK(s.received == 0 && s.cursor == cursor);
}

TEST(known_messages_are_received_up_to_the_last_load_of_write_pointer) {
    mq_ring_message found;
    begin();
    CHECK(!mq_ring_subscriber_peek_known_message(&s, &found));
    send_many(&one, 1, 3);
    CHECK(!mq_ring_subscriber_peek_known_message(&s, &found)); /* write_pointer was not loaded again */
    CHECK(receive(false) == 1);
    send_many(&one, 4, 1);
    for (uint64_t number = 2; number <= 3; number++) {
        CHECK(mq_ring_subscriber_peek_known_message(&s, &found));
        CHECK(found.size == SIZE && *(const uint64_t *)found.payload == number);
        CHECK(mq_ring_subscriber_accept_known_copy(&s, &found));
        CHECK(s.received == number && mq_load_relaxed_u64(&s.row->received) == number &&
              mq_load_relaxed_u64(&s.row->cursor) == s.cursor);
    }
    CHECK(!mq_ring_subscriber_peek_known_message(&s, &found));
    CHECK(receive(false) == 4 && s.lost == 0);
}

TEST(known_message_that_was_overwritten_is_not_accepted) {
    mq_ring_message found;
    begin();
    send_many(&one, 1, 2);
    CHECK(receive(false) == 1);
    CHECK(mq_ring_subscriber_peek_known_message(&s, &found));
    meet("mq_ring_subscriber_is_intact: fenced acquire", publish_a_lap);
    uint64_t cursor = s.cursor;
    CHECK(!mq_ring_subscriber_accept_known_copy(&s, &found));
    CHECK(s.received == 1 && s.cursor == cursor);
}

TEST(known_message_of_a_stock_publisher_is_not_accepted) {
    mq_ring_message found;
    begin();
    send_many(&one, 1, 2);
    CHECK(receive(false) == 1);
    CHECK(mq_ring_subscriber_peek_known_message(&s, &found));
    s.announces_limit = false; /* as after the start of a stock publisher, whose readers store cursors in slots */
    CHECK(!mq_ring_subscriber_accept_known_copy(&s, &found));
    CHECK(s.received == 1);
}

TEST(copy_is_validated_after_a_fence_by_the_limit) {
    mq_ring_message found;
    begin();
    send_many(&one, 1, 1);
    CHECK(mq_ring_subscriber_peek_message(&s, &found) == MQ_RING_OK);
    forget_steps();
    CHECK(mq_ring_subscriber_accept_copy(&s, &found));
    CHECK(in_order("mq_ring_subscriber_is_valid: fenced acquire", "mq_ring_subscriber_sentinel_unchanged: loaded *",
                   "mq_ring_subscriber_is_intact: fenced acquire",
                   "mq_ring_subscriber_is_intact: loaded *write_limit"));
    /* The copied message is near an announces_limit limit, and no new message is there. */
    mq_store_relaxed_u64(&side->write_limit, mq_ring_position(1, 512));
    CHECK(!mq_ring_subscriber_is_intact(&s, mq_ring_position(0, 504)) &&
          mq_ring_subscriber_is_intact(&s, mq_ring_position(0, 512)));
}

TEST(conflating_subscriber_takes_the_newest_and_counts_the_rest) {
    begin();
    send_many(&one, 1, 9);
    CHECK(receive(true) == 9 && s.lost == 8 && s.received == 1);
    CHECK(receive(true) == 0);
    send_many(&one, 10, 1);
    CHECK(receive(true) == 10 && s.lost == 8);
}

TEST(lapped_conflating_subscriber_takes_the_newest_and_counts_the_rest) {
    begin();
    send_many(&one, 1, 100);
    CHECK(receive(true) == 100 && s.lost == 99 && s.resets == 0);
}

TEST(lapped_conflating_subscriber_takes_the_last_message_of_the_previous_publisher) {
    begin();
    send_many(&one, 1, 100);
    start(&two); /* its checkpoint is after the last message */
    CHECK(receive(true) == 100 && s.lost == 99 && s.received == 1 && s.resets == 0);
    CHECK(receive(true) == 0);
    send_many(&two, 101, 1);
    CHECK(receive(true) == 101 && s.lost == 99);
}

/* ---- polls ---- */

TEST(lapped_subscriber_has_no_message_until_the_next_one) {
    mq_ring_message found;
    begin();
    send_many(&one, 1, 100);
    CHECK(mq_ring_subscriber_next_intact_message(&s, false, &found) == MQ_RING_EMPTY);
    CHECK(s.lost == 100 && s.resets == 1 && s.cursor == one.position && s.published == s.cursor);
    send_many(&one, 101, 1);
    CHECK(mq_ring_subscriber_next_intact_message(&s, false, &found) == MQ_RING_OK);
    CHECK(receive(false) == 101 && s.lost == 100);
}

TEST(message_that_is_overwritten_during_a_poll_is_not_ready) {
    mq_ring_message found;
    begin();
    send_many(&one, 1, 1);
    meet("mq_ring_subscriber_is_intact: fenced acquire", publish_a_lap);
    CHECK(mq_ring_subscriber_next_intact_message(&s, false, &found) == MQ_RING_EMPTY);
    CHECK(s.lost == 61 && s.received == 0 && s.cursor == one.position);
}

TEST(poll_of_a_conflating_subscriber_leaves_the_newest_message) {
    mq_ring_message found;
    begin();
    send_many(&one, 1, 100);
    CHECK(mq_ring_subscriber_next_intact_message(&s, true, &found) == MQ_RING_OK);
    send_many(&one, 101, 1);
    CHECK(receive(true) == 101 && s.lost == 100 && s.resets == 0);
}

/* ---- following messages ---- */

/* Receive the message before the last one of a lap. The subscriber then knows the last one, and the next lap's first. */
static void receive_up_to_the_end_of_a_lap(void) {
    begin();
    for (uint64_t number = 1; number <= 40; number++) {
        send_many(&one, number, 1);
        CHECK(receive(false) == number);
    }
    send_many(&one, 41, 3);
    CHECK(receive(false) == 41 && mq_ring_cycle(s.cursor) == 0 && mq_ring_cycle(s.published) == 1);
}

TEST(following_messages_are_received_across_the_end_of_a_lap) {
    mq_ring_message found;
    receive_up_to_the_end_of_a_lap();
    for (uint64_t number = 42; number <= 43; number++) {
        CHECK(mq_ring_subscriber_peek_following_message(&s, &found));
        CHECK(found.size == SIZE && *(const uint64_t *)found.payload == number);
        CHECK(mq_ring_subscriber_accept_copy(&s, &found));
    }
    CHECK(!mq_ring_subscriber_peek_following_message(&s, &found));
}

TEST(following_messages_end_before_a_loss) {
    mq_ring_message found;
    receive_up_to_the_end_of_a_lap();
    send_many(&one, 44, 60);
    mq_store_relaxed_u64((mq_u64 *)(void *)(one.data + mq_ring_offset(s.cursor)), (uint64_t)MQ_RING_WRAP_MARK);
    uint64_t cursor = s.cursor;
    CHECK(!mq_ring_subscriber_peek_following_message(&s, &found));
    CHECK(s.cursor == cursor && s.lost == 0 && s.resets == 0);
    CHECK(receive(false) == 0 && s.lost == 62 && s.resets == 1);
}

/* ---- invalid rings ---- */

TEST(write_pointer_that_is_impossible_is_corrupt) {
    begin();
    mq_store_release_u64(&ring->write_pointer, 4);
    CHECK(mq_ring_subscriber_refresh_published(&s) == MQ_RING_CORRUPT);
    mq_store_release_u64(&ring->write_pointer, mq_ring_position(0, 1016));
    CHECK(mq_ring_subscriber_refresh_published(&s) == MQ_RING_CORRUPT);
}

TEST(size_beyond_what_is_published_is_corrupt) {
    mq_ring_message found;
    begin();
    send_many(&one, 1, 1);
    mq_store_relaxed_u64((mq_u64 *)(void *)one.data, SIZE + 8);
    CHECK(mq_ring_subscriber_peek_message(&s, &found) == MQ_RING_CORRUPT);
}

TEST(walk_counts_messages_and_rejects_sizes_that_lead_elsewhere) {
    uint64_t last = 0;
    begin();
    send_many(&one, 1, 3);
    CHECK(mq_ring_count_messages(one.data, DATA, 0, one.position, &last) == 3 && last == 2 * NEED);
    CHECK(mq_ring_count_messages(one.data, DATA, 0, one.position - 8, &last) == -1);
    mq_store_relaxed_u64((mq_u64 *)(void *)(one.data + NEED), DATA);
    CHECK(mq_ring_count_messages(one.data, DATA, 0, one.position, &last) == -1);
    mq_store_relaxed_u64((mq_u64 *)(void *)(one.data + 984), 24); /* it ends after the end of the lap */
    mq_store_relaxed_u64((mq_u64 *)(void *)(one.data + 1016), (uint64_t)MQ_RING_WRAP_MARK);
    CHECK(mq_ring_count_messages(one.data, DATA, 984, mq_ring_position(1, 0), &last) == -1);
    mq_store_relaxed_u64((mq_u64 *)(void *)(one.data + 984), 16);
    mq_store_relaxed_u64((mq_u64 *)(void *)(one.data + 1008), (uint64_t)MQ_RING_WRAP_MARK);
    CHECK(mq_ring_count_messages(one.data, DATA, 984, mq_ring_position(1, 0), &last) == 1);
}

/* ---- observers ---- */

TEST(observer_counts_losses_before_the_subscriber_detects_them) {
    mq_ring_subscriber_snapshot found;
    begin();
    mq_ring_subscriber observer = mq_ring_make_observer(ring, side, &liveness_file, DATA, mq_canary_always_intact());
    int entry = (int)(s.row - side->subscribers);
    send_many(&one, 1, 3);
    CHECK(receive(false) == 1);
    mq_ring_observer_read_subscriber(&observer, entry, &found);
    CHECK(found.received == 1 && found.lost == 0 && !found.lost_unknown);
    send_many(&one, 4, 97);
    mq_ring_observer_read_subscriber(&observer, entry, &found);
    CHECK(found.received == 1 && found.lost == 99 && !found.lost_unknown && s.lost == 0);
    lives[mq_ring_subscriber_row_index(side, s.row)] = MQ_DEAD; /* it detects nothing more */
    mq_ring_observer_read_subscriber(&observer, entry, &found);
    CHECK(found.lost == 0);
}

TEST(losses_are_unknown_with_the_base_of_another_era) {
    mq_ring_subscriber_snapshot found;
    begin();
    mq_ring_subscriber observer = mq_ring_make_observer(ring, side, &liveness_file, DATA, mq_canary_always_intact());
    send_many(&one, 1, 100);
    mq_store_release_u64(&s.row->base_tag, 1); /* of another era */
    mq_ring_observer_read_subscriber(&observer, (int)(s.row - side->subscribers), &found);
    CHECK(found.lost_unknown == 1 && found.lost == 0);
}

TEST(limit_clears_flags_of_stock_subscribers_in_its_way) {
    begin();
    static const struct {
        uint64_t cursor;
        uint64_t valid; /* after the call */
    } readers[] = {{0, 0}, {504, 0}, {512, 0}, {520, 1}};
    for (int i = 0; i < 4; i++) {
        mq_store_release_u64(&ring->read_pointers[1 + i], readers[i].cursor);
        mq_store_release_u64(&ring->read_valids[1 + i], 1);
    }
    mq_store_release_u64(&ring->read_pointers[MQ_READER_SLOTS - 1], 0);
    mq_store_release_u64(&ring->read_valids[MQ_READER_SLOTS - 1], 1);
    mq_ring_publisher_clear_read_valids(&one, mq_ring_position(1, 512));
    for (int i = 0; i < 4; i++)
        CHECK(mq_load_relaxed_u64(&ring->read_valids[1 + i]) == readers[i].valid);
    CHECK(mq_load_relaxed_u64(&ring->read_valids[MQ_READER_SLOTS - 1]) == 0);
}

TEST(grant_clears_flags_before_it_is_announced) {
    begin();
    mq_store_release_u64(&ring->read_valids[3], 1);
    mq_store_release_u64(&ring->read_pointers[3], mq_ring_position(UINT32_MAX, 8));
    forget_steps();
    send_many(&one, 1, 1);
    CHECK(in_order("mq_ring_publisher_clear_read_valids: stored *read_valids*",
                   "mq_ring_publisher_announce_limit: fenced release", "*: half copied to payload"));
}

TEST(readers_count_is_that_of_living_subscribers) {
    int attached, updated;
    begin();
    send_many(&one, 1, 1);
    mq_ring_count_subscribers(&one, &attached, &updated);
    CHECK(attached == 1 && updated == 0);
    CHECK(receive(false) == 1);
    mq_ring_count_subscribers(&one, &attached, &updated);
    CHECK(attached == 1 && updated == 1);
    lives[mq_ring_subscriber_row_index(side, s.row)] = MQ_DEAD;
    mq_ring_count_subscribers(&one, &attached, &updated);
    CHECK(attached == 0 && updated == 0);
}

TEST(leave_frees_row_and_slot) {
    begin();
    mq_ring_subscriber_row *entry = s.row;
    mq_ring_subscriber_leave(&s);
    CHECK(mq_load_acquire_u64(&entry->participant.uid) == 0 && mq_load_acquire_u64(&ring->read_uids[0]) == 0);
    CHECK(mq_load_acquire_u64(&ring->num_readers) == 0);
}

/* ---- sizes ---- */

TEST(side_of_another_ring_is_stale) {
    begin();
    CHECK(mq_ring_side_check(side, 1, DATA) == MQ_FILE_VALID && mq_ring_side_check(side, 1, DATA + 8) == MQ_FILE_VALID);
    CHECK(mq_ring_side_check(side, 2, DATA) == MQ_FILE_STALE && mq_ring_side_check(side, 1, DATA - 8) == MQ_FILE_STALE);
    mq_store_relaxed_u64(&side->subscriber_count, MQ_RING_SUBSCRIBERS + 1);
    CHECK(mq_ring_side_check(side, 1, DATA) == MQ_FILE_NOT_OURS);
}

TEST(ring_without_its_canary_is_truncated) {
    static const mq_u64 unused = {1};
    begin();
    mq_ring_canary_write(ring, DATA, 77);
    mq_ring_canary_write(ring, DATA, 78); /* once */
    mq_canary canary = mq_canary_of_ring(ring, DATA, &unused);
    CHECK(canary.value == 77 && mq_canary_is_intact(&canary));
    mq_ring_side_record_ring(side, ring, DATA);
    CHECK(!mq_ring_canary_is_missing(ring, side, DATA));
    mq_store_relaxed_u64(mq_ring_canary_word(ring, DATA), 0);
    CHECK(!mq_canary_is_intact(&canary) && !mq_canary_is_nonzero(&canary) &&
          mq_ring_canary_is_missing(ring, side, DATA));
    one.canary = canary;
    uint8_t *payload;
    one.granted_offset = 0;
    CHECK(mq_ring_publisher_begin_message(&one, SIZE, &payload) == MQ_RING_TAKEN_OVER);
}

TEST(truncated_ring_begins_the_next_lap) {
    begin();
    mq_store_release_u64(&ring->write_pointer, mq_ring_position(3, 800));
    mq_store_release_u64(&ring->read_valids[MQ_READER_SLOTS - 1], 1);
    mq_ring_move_to_next_lap(ring, side, 2, 512); /* another ring's side */
    CHECK(mq_load_acquire_u64(&ring->write_pointer) == mq_ring_position(3, 800));
    mq_ring_move_to_next_lap(ring, side, 1, 512);
    CHECK(mq_load_acquire_u64(&ring->write_pointer) == mq_ring_position(4, 0));
    CHECK(mq_load_acquire_u64(&ring->read_valids[MQ_READER_SLOTS - 1]) == 0);
    mq_store_release_u64(&ring->write_pointer, mq_ring_position(4, 8));
    mq_ring_move_to_next_lap(ring, side, 1, 512); /* within the smaller one */
    CHECK(mq_load_acquire_u64(&ring->write_pointer) == mq_ring_position(4, 8));
}

/* ---- stock subscribers and tracked topics ---- */

/* Open a file of a child's memory, let the child call exec or die, and say whether the memory seemed to live before and
 * after that. */
static void look_at_memory(const char *file, bool execs, bool *before, bool *after) {
    int go[2], gone[2];
    char path[48], end;
    CHECK(pipe2(go, O_CLOEXEC) == 0 && pipe2(gone, O_CLOEXEC) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(go[1]);
        if (read(go[0], &end, 1) == 0 && execs)
            execlp("sleep", "sleep", "60", (char *)NULL); /* closes `gone` */
        _exit(0);
    }
    close(gone[1]);
    snprintf(path, sizeof path, "/proc/%d/%s", child, file);
    int memory = open(path, O_RDONLY | O_CLOEXEC);
    *before = memory >= 0 && mq_process_memory_exists(memory);
    close(go[1]);
    CHECK(read(gone[0], &end, 1) == 0);
    if (!execs)
        CHECK(waitpid(child, NULL, 0) == child);
    *after = memory >= 0 && mq_process_memory_exists(memory);
    kill(child, SIGKILL);
    if (execs)
        CHECK(waitpid(child, NULL, 0) == child);
    close(memory);
    close(go[0]);
    close(gone[0]);
}

TEST(memory_of_a_stock_subscriber_lives_until_exec_or_death) {
    bool before, after;
    const char *files[] = {"maps", "pagemap"};
    for (int file = 0; file < (access("/proc/self/pagemap", R_OK) == 0 ? 2 : 1); file++)
        for (int execs = 0; execs < 2; execs++) {
            look_at_memory(files[file], execs, &before, &after);
            CHECK(before && !after);
        }
}

TEST(topic_is_tracked_from_its_first_message_on_or_never) {
    begin();
    CHECK(mq_ring_side_can_track(ring, side, MQ_TRACK_YES) && mq_ring_side_can_track(ring, side, MQ_TRACK_NO));
    send_many(&one, 1, 1);
    CHECK(!mq_ring_side_can_track(ring, side, MQ_TRACK_YES) && mq_ring_side_can_track(ring, side, MQ_TRACK_UNCHANGED));
    begin();
    CHECK(mq_ring_side_decide_tracking(side, MQ_TRACK_YES) == sizeof(mq_stamps));
    CHECK(!mq_ring_side_can_track(ring, side, MQ_TRACK_NO) && mq_ring_side_can_track(ring, side, MQ_TRACK_UNCHANGED));
    mq_ring_publisher_close(&one);
    start(&two);
    mq_stamps stamps = {.publish_time = 5, .origin_time = 4}, found;
    CHECK(mq_ring_publisher_send_tracked(&two, message, SIZE, &stamps) <= MQ_RING_NOTIFY);
    mq_ring_message at;
    CHECK(mq_ring_subscriber_peek_message(&s, &at) == MQ_RING_OK && at.size == SIZE);
    mq_stamps_read(&found, at.payload);
    CHECK(found.publish_time == 5 && found.origin_time == 4 && mq_ring_subscriber_accept_copy(&s, &at));
    CHECK(mq_ring_subscriber_refresh_published(&s) == MQ_RING_EMPTY);
}
