/* A work queue: its file, sending, receiving, leases, and recovery from dead handles. */
#include "queue_fixture.h"

/* ---- files ---- */

TEST(queue_that_does_not_fit_into_its_file_is_rejected) {
    mq_queue_file_parts found;
    uint64_t bytes = mq_queue_compute_file_bytes(SLOTS, SIZE);
    begin(SLOTS);
    CHECK(mq_queue_check_header(queue, bytes, &found) == MQ_FILE_VALID && found.max_messages == SLOTS);
    CHECK(mq_queue_check_header(queue, bytes - 1, &found) == MQ_FILE_NOT_OURS);
    static const uint64_t wrong[] = {SLOTS + 1, MQ_QUEUE_MESSAGES_MAX + 1ull, UINT64_MAX};
    for (unsigned i = 0; i < 3; i++) {
        mq_store_relaxed_u64(&queue->max_messages, wrong[i]);
        CHECK(mq_queue_check_header(queue, bytes, &found) == MQ_FILE_NOT_OURS);
    }
    mq_store_relaxed_u64(&queue->max_messages, SLOTS);
    mq_store_relaxed_u64(&queue->max_message_size, 0);
    CHECK(mq_queue_check_header(queue, bytes, &found) == MQ_FILE_NOT_OURS);
    mq_store_relaxed_u64(&queue->max_message_size, SIZE);
    mq_store_relaxed_u64(&queue->events, 77);
    CHECK(mq_queue_check_header(queue, bytes, &found) == MQ_FILE_VALID && found.events == MQ_QUEUE_EVENTS_NONE);
    mq_store_relaxed_u64(&queue->version, (uint64_t)(MQ_QUEUE_MAJOR + 1) << 32);
    CHECK(mq_queue_check_header(queue, bytes, &found) == MQ_FILE_OTHER_VERSION);
}

TEST(sizes_are_valid_from_1_to_the_limit) {
    CHECK(mq_queue_sizes_are_valid(1, 1) && !mq_queue_sizes_are_valid(0, 1) && !mq_queue_sizes_are_valid(1, 0));
    CHECK(mq_queue_sizes_are_valid(MQ_QUEUE_MESSAGES_MAX, MQ_QUEUE_MESSAGE_SIZE_MAX));
    CHECK(!mq_queue_sizes_are_valid(MQ_QUEUE_MESSAGES_MAX + 1ull, 1));
    CHECK(!mq_queue_sizes_are_valid(1, MQ_QUEUE_MESSAGE_SIZE_MAX + 1ull));
}

TEST(queue_without_sizes_has_no_slots_until_sizes_are_stored) {
    mq_queue_file_parts found;
    uint64_t bytes = mq_queue_compute_file_bytes(SLOTS, SIZE);
    begin(SLOTS);
    mq_store_relaxed_u64(&queue->max_messages, 0);
    CHECK(mq_queue_check_header(queue, bytes, &found) == MQ_FILE_VALID && !found.max_messages && !found.block_count);
    CHECK(!mq_queue_has_sizes(queue) && !mq_queue_has_ready_message(&found));
    mq_store_relaxed_u64(&queue->ready_count, 1);
    CHECK(!mq_queue_has_ready_message(&found)); /* another program wrote this count */
    mq_queue_store_sizes(queue, SLOTS, SIZE, &me);
    CHECK(mq_queue_has_ready_message(&found)); /* the parts are outdated */
    CHECK(mq_queue_has_sizes(queue) && mq_queue_compute_file_bytes(0, 0) == sizeof(mq_queue));
    CHECK(mq_queue_check_header(queue, sizeof(mq_queue), &found) == MQ_FILE_VALID && !found.max_messages);
    CHECK(mq_queue_check_header(queue, bytes, &found) == MQ_FILE_VALID && found.max_messages == SLOTS);
}

TEST(queue_plan_has_room_for_each_place) {
    mq_queue_part_offsets at = mq_queue_compute_offsets(65, 65);
    CHECK(mq_queue_count_blocks(64) == 1 && mq_queue_count_blocks(65) == 2);
    CHECK(at.slot_headers - at.slot_states >= 65 * sizeof(mq_u64) &&
          at.payloads - at.slot_headers == 65 * sizeof(mq_queue_slot_header));
    CHECK(at.end - at.payloads == 65 * 128 && at.payloads % 64 == 0);
}

/* ---- sending and receiving ---- */

TEST(messages_come_by_priority_and_then_in_the_order_of_sending) {
    static const uint64_t priorities[] = {1, 5, 1, 5}, slots[] = {1, 3, 0, 2};
    begin(SLOTS);
    for (unsigned i = 0; i < SLOTS; i++)
        CHECK(send_one(a, priorities[i]) == i);
    CHECK(mq_queue_claim_free_slot(a, MQ_NO_TICKET) == MQ_QUEUE_NO_SLOT);
    for (unsigned i = 0; i < SLOTS; i++)
        CHECK(take(b) && t.slot == slots[i] && t.deliveries == 1 && mq_queue_free_taken_slot(b, &t) &&
              mq_slot_state_get_take_number(t.word) == i + 1); /* without an attempt at the previous message */
    CHECK(!take(b));
}

TEST(commit_makes_the_word_ready_before_it_counts) {
    begin(SLOTS);
    send_one(a, 0);
    CHECK(in_order("mq_queue_claim_free_slot: exchanged word", "mq_queue_claim_free_slot: counted *fill_counts*",
                   "mq_queue_write_slot_header: stored *length", "mq_queue_commit_message: stored *slot_states*",
                   "mq_queue_commit_message: counted *ready_count"));
    CHECK(ready() == 1);
}

static void return_and_send(unsigned time) {
    if (time == 1)
        CHECK(mq_queue_requeue_message(b, t.slot, t.word));
}

TEST(returned_message_is_found_by_a_scan_that_has_passed_its_place) {
    begin(SLOTS);
    send_one(a, 9);
    send_one(a, 1);
    CHECK(take(b) && t.slot == 0);
    meet("mq_queue_scan_block: loaded &h->parts.slot_states*", return_and_send); /* after the load of slot 0 */
    mq_queue_taken_message best;
    CHECK(mq_queue_take_message(c, MQ_NO_TICKET, &best) == MQ_QUEUE_OK && best.slot == 0);
    CHECK(best.deliveries == 2);
    CHECK(ready() == 3);
}

TEST(returned_message_wakes_a_receiver_and_is_notified) {
    begin(SLOTS);
    send_one(a, 1);
    CHECK(take(a));
    const mq_u32 *word = doze(b, MQ_QUEUE_RECEIVER);
    mq_queue_set_row_bit(&queue->notify_requested, c->row_number);
    uint32_t before = arrived();
    CHECK(mq_queue_requeue_message(a, t.slot, t.word));
    CHECK(wakes(word) == 1 && arrived() == before + 1);
    CHECK(in_order("mq_queue_requeue_message: exchanged *", "mq_eventcount_notify_mp: woke *"));
    CHECK(mq_load_acquire_u64(&a->own_row->notify_debt[1]) == 0);
    CHECK(!mq_queue_requeue_message(a, t.slot, t.word)); /* it is there already */
    CHECK(ready() == 2 && mq_load_acquire_u64(&a->own_row->notify_debt[1]) == 0);
}

static uint64_t same_key;

/* The first scan finds a key in slot 0. The second scan finds the same key, of a later message, in slot 1. Before that
 * message, a better one came to slot 0 after the second scan had loaded this slot. */
static void change_a_scanned_place(unsigned time) {
    if (time == 1) {
        same_key = word_of(0);
        mq_fetch_add_u64(&queue->ready_count, 1);
    } else if (time == SLOTS) { /* the first scan has loaded its last slot */
        mq_fetch_add_u64(&a->parts.fill_counts[0], 1);
        mq_store_release_u64(&a->parts.slot_states[0], 0);
    } else if (time == SLOTS + 1) { /* the second scan has loaded slot 0 */
        mq_fetch_add_u64(&a->parts.fill_counts[0], 2);
        mq_store_release_u64(&a->parts.slot_states[0], mq_slot_state_encode_ready(7, 5));
        mq_store_release_u64(&a->parts.slot_states[1], same_key);
        mq_fetch_add_u64(&queue->ready_count, 2);
    }
}

TEST(equal_keys_of_two_places_are_two_messages) {
    begin(SLOTS);
    send_one(a, 1);
    meet("mq_queue_scan_block: loaded &h->parts.slot_states*", change_a_scanned_place);
    CHECK(take(b) && t.key == mq_slot_state_encode_ready(7, 5));
}

static void send_to_the_first_place(unsigned time) {
    if (time == 1)
        send_one(a, 3);
}

TEST(message_in_a_cached_block_is_found) {
    begin(SLOTS);
    CHECK(!take(b)); /* it caches that the block is empty */
    send_one(a, 1);
    CHECK(receive(b));
    CHECK(!take(b));
    meet("mq_queue_scan_block: loaded *fill_counts*", send_to_the_first_place);
    CHECK(!take(b) || t.slot == 1);
    forget_steps();
    CHECK(word_of(1) == t.word || receive(b));
}

TEST(block_with_a_held_or_taken_place_is_not_cached) {
    begin(SLOTS);
    int64_t slot = mq_queue_claim_free_slot(a, MQ_NO_TICKET);
    CHECK(!take(b) && b->saw_owned_slots);
    commit(a, slot, 1);
    CHECK(take(b));
    CHECK(!take(c) && c->saw_owned_slots);
    CHECK(mq_queue_requeue_message(b, t.slot, t.word));
    CHECK(receive(c));
    CHECK(!take(c) && !c->saw_owned_slots);
}

TEST(block_whose_only_message_was_received_needs_no_scan) {
    begin(SLOTS);
    send_one(a, 1);
    CHECK(receive(b));
    forget_steps();
    CHECK(!take(b) && !in_order("mq_queue_scan_block: loaded *slot_states*"));
    send_one(a, 1);
    send_one(a, 2);
    CHECK(receive(b) && receive(b) && !take(b));
}

TEST(message_that_is_alone_is_found_after_its_return) {
    begin(SLOTS);
    send_one(a, 1);
    CHECK(take(b) && mq_queue_requeue_message(b, t.slot, t.word));
    CHECK(receive(b));
}

TEST(message_is_found_after_a_message_that_was_taken_alone_is_freed) {
    mq_queue_taken_message first;
    begin(SLOTS);
    send_one(a, 1);
    CHECK(take(b));
    first = t;
    send_one(a, 1);
    CHECK(take(b) && mq_queue_free_taken_slot(b, &first));
    CHECK(mq_queue_requeue_message(b, t.slot, t.word));
    CHECK(take(b));
}

TEST(scan_of_lines_finds_the_best_message_in_each_slot) {
    enum { MANY = MQ_QUEUE_BLOCK_SLOTS - 1 }; /* seven lines, and seven slots */
    begin(MANY);
    for (unsigned i = 0; i < MANY; i++)
        CHECK(send_one(a, i % 2 ? 0 : i) == i);
    for (unsigned i = MANY - 1; i > 0; i -= 2)
        CHECK(receive(b) && t.slot == i);
    for (unsigned i = 0; i < MANY; i += i ? 2 : 1) /* priority 0: slots 0, 1, 3, 5... */
        CHECK(receive(b) && t.slot == i);
    CHECK(!take(b));
}

static void another_takes(unsigned time) {
    if (time == 2) /* `b` has scanned all slots */
        CHECK(take(c));
}

TEST(message_that_another_one_took_is_not_tried_again) {
    begin(SLOTS);
    send_one(a, 1);
    meet("mq_queue_find_best_message: loaded *ready_count", another_takes);
    CHECK(mq_queue_take_message(b, MQ_NO_TICKET, &t) == MQ_QUEUE_EMPTY);
    CHECK(in_order("mq_queue_scan_block: loaded *slot_states*", "mq_queue_find_best_message: fenced acquire",
                   "mq_queue_find_best_message: loaded *ready_count"));
}

TEST(free_of_a_message_that_came_back_fails) {
    begin(SLOTS);
    send_one(a, 1);
    CHECK(take(a));
    mq_queue_taken_message earlier = t;
    CHECK(mq_queue_requeue_message(b, t.slot, t.word));
    CHECK(take(a));
    CHECK(!mq_queue_free_taken_slot(a, &earlier));
    CHECK(mq_queue_free_taken_slot(a, &t));
    CHECK(mq_load_relaxed_u64(&a->own_row->counts.acknowledged) == 1);
}

TEST(message_inherits_nothing_from_the_previous_one_in_its_place) {
    begin(1);
    send_one(a, 1);
    CHECK(take(b) && mq_queue_requeue_message(b, t.slot, t.word) && take(b) && t.deliveries == 2);
    mq_queue_set_job_lease(b, &t, 10);
    CHECK(mq_queue_free_taken_slot(b, &t));
    send_one(a, 1);
    CHECK(mq_load_relaxed_u64(&a->parts.slot_headers[0].lease) == 0);
    CHECK(take(b) && t.deliveries == 1);
}

TEST(message_longer_than_the_limit_is_reported_and_can_be_freed) {
    begin(SLOTS);
    mq_queue_commit_message(a, (uint64_t)mq_queue_claim_free_slot(a, MQ_NO_TICKET), SIZE + 1, 0, 1, 0);
    CHECK(mq_queue_take_message(b, MQ_NO_TICKET, &t) == MQ_QUEUE_CORRUPT && t.word);
    CHECK(mq_queue_free_taken_slot(b, &t) && is_free(0));
    mq_queue_commit_message(a, (uint64_t)mq_queue_claim_free_slot(a, MQ_NO_TICKET), SIZE, 0, 1, 0);
    CHECK(mq_queue_take_message(b, MQ_NO_TICKET, &t) == MQ_QUEUE_OK);
}

/* ---- leases ---- */

TEST(lease_of_all_zeros_is_a_lease) {
    uint64_t word =
        mq_slot_state_encode_taken(0, 0, 1u << 24); /* as the low half of the tick, the row and the take are 0 */
    CHECK(mq_job_lease_encode(word, 0) != 0);
    CHECK(mq_job_lease_belongs_to(mq_job_lease_encode(word, 0), word));
}

TEST(lease_belongs_to_the_take_that_it_was_given_to) {
    begin(SLOTS);
    send_one(a, 1);
    CHECK(take(b));
    mq_queue_set_job_lease(b, &t, 10);
    CHECK(mq_job_lease_belongs_to(mq_load_acquire_u64(&b->parts.slot_headers[0].lease), word_of(0)));
    CHECK(sweep_at(c, 9) == MQ_JOB_LEASE_TICK_NS && word_of(0) == t.word);
    sweep_at(c, 10);
    CHECK(mq_slot_state_is_ready(word_of(0)));
    CHECK(take(b)); /* without a lease: the previous one does not count */
    sweep_at(c, 11);
    CHECK(word_of(0) == t.word);
}

TEST(sweep_asks_in_time_for_the_next_lease) {
    static const uint32_t ends[] = {8, 5, 7};
    begin(SLOTS);
    CHECK(sweep_at(c, 1) == MQ_QUEUE_RECOVER_NS);
    for (unsigned i = 0; i < 3; i++) {
        send_one(a, 1);
        CHECK(take(b));
        mq_queue_set_job_lease(b, &t, ends[i]);
    }
    CHECK(sweep_at(c, 1) == 4 * MQ_JOB_LEASE_TICK_NS);
}

/* ---- recovery ---- */

TEST(sweep_frees_the_place_of_a_dead_sender_and_wakes_a_sender) {
    begin(1);
    CHECK(mq_queue_claim_free_slot(a, MQ_NO_TICKET) == 0);
    const mq_u32 *word = doze(b, MQ_QUEUE_SENDER);
    mq_queue_reclaim_slots(c, 1);
    CHECK(!is_free(0) && wakes(word) == 0);
    die(a);
    mq_queue_reclaim_slots(c, 1);
    CHECK(is_free(0) && wakes(word) == 1);
}

static void leave_trace(unsigned kind, unsigned row, bool is_there) {
    if (kind == 0 && is_there)
        mq_queue_set_row_bit(&queue->notify_requested, row);
    else if (kind == 0)
        mq_queue_clear_row_bit(&queue->notify_requested, row);
    else if (kind == 1)
        mq_store_relaxed_u64(&queue->rows[row].notify_debt[1], is_there);
    else {
        mq_store_relaxed_u64(&queue->handoff_ticket[MQ_QUEUE_SENDER], is_there ? 7 : 0);
        mq_store_relaxed_u64(&queue->rows[row].oldest_ticket[MQ_QUEUE_SENDER], is_there ? 7 : 0);
    }
}

TEST(each_row_of_another_participant_may_need_a_recovery) {
    begin(SLOTS);
    for (unsigned kind = 0; kind < 3; kind++) {
        leave_trace(kind, b->row_number, true);
        CHECK(!mq_queue_any_row_may_need_recovery(b));
        leave_trace(kind, b->row_number, false);
        for (unsigned row = 0; row < MQ_QUEUE_ROWS; row += MQ_QUEUE_ROWS - 1) {
            leave_trace(kind, row, true);
            CHECK(mq_queue_any_row_may_need_recovery(b));
            leave_trace(kind, row, false);
        }
    }
}

TEST(sweep_returns_the_message_of_a_dead_consumer_and_wakes_a_receiver) {
    begin(SLOTS);
    send_one(b, 1);
    uint64_t key = word_of(0);
    CHECK(take(a));
    const mq_u32 *word = doze(b, MQ_QUEUE_RECEIVER);
    mq_queue_reclaim_slots(c, 1);
    CHECK(word_of(0) == t.word && wakes(word) == 0);
    lives[MQ_QUEUE_ROW_BYTE] = MQ_UNKNOWN;
    mq_queue_reclaim_slots(c, 1);
    CHECK(word_of(0) == t.word);
    die(a);
    mq_queue_reclaim_slots(c, 1);
    CHECK(word_of(0) == key && wakes(word) == 1);
}

TEST(sweep_takes_nothing_from_its_own_handle) {
    begin(SLOTS);
    send_one(a, 1);
    CHECK(take(a));
    CHECK(mq_queue_claim_free_slot(a, MQ_NO_TICKET) == 1);
    die(a); /* its own lock seems free to it */
    mq_queue_reclaim_slots(a, 1);
    CHECK(word_of(0) == t.word && !is_free(1));
}

TEST(sweep_reclaims_the_words_of_the_previous_owner_of_a_row) {
    begin(SLOTS);
    send_one(b, 1);
    CHECK(take(a));
    CHECK(mq_queue_claim_free_slot(a, MQ_NO_TICKET) == 1);
    join(0); /* the row's next owner, alive */
    mq_queue_reclaim_slots(b, 1);
    CHECK(mq_slot_state_is_ready(word_of(0)) && is_free(1));
}

TEST(message_without_a_key_comes_back_as_well) {
    begin(SLOTS);
    send_one(a, 1);
    CHECK(take(a));
    mq_store_release_u64(&a->parts.slot_headers[0].key, 0);
    CHECK(mq_queue_requeue_message(b, t.slot, t.word) && take(b));
}

/* ---- removing a certain message ---- */

TEST(certain_message_is_taken_out_of_order) {
    begin(SLOTS);
    send_one(a, 3);
    send_one(a, 3);
    send_delayed(a, 10);
    CHECK(take(b) && t.slot == 0); /* the cache of b has slot 1 */
    mq_queue_taken_message removed;
    uint64_t waiting = word_of(1), delayed = word_of(2);
    CHECK(!mq_queue_take_slot(c, 1, waiting + 1, &removed) && word_of(1) == waiting);
    CHECK(mq_queue_take_slot(c, 1, waiting, &removed) && removed.slot == 1 && removed.key == waiting);
    CHECK(mq_queue_take_slot(c, 2, delayed, &removed) && removed.slot == 2);
    CHECK(!mq_queue_take_slot(c, 2, delayed, &removed) && !take(b));
    sweep_at(c, 11);
    CHECK(mq_slot_state_decode(word_of(2)) == MQ_SLOT_TAKEN); /* the due time does not belong to the new word */
    CHECK(mq_queue_free_taken_slot(c, &removed) && word_of(2) == 0);
    die(c);
    sweep_at(b, 11);
    CHECK(word_of(1) == waiting && take(b) && t.slot == 1 && t.deliveries == 2);
}

TEST(invalid_message_is_not_removed) {
    begin(SLOTS);
    send_one(a, 3);
    mq_queue_taken_message removed;
    uint64_t waiting = word_of(0);
    mq_store_relaxed_u64(&c->parts.slot_headers[0].length, c->parts.max_message_size + 1);
    CHECK(!mq_queue_take_slot(c, 0, waiting, &removed) && word_of(0) == waiting);
}
