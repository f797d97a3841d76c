/* A work queue: sleeping, leaving, notifications, and peeks. */
#include "queue_fixture.h"

/* ---- sleeping and waking ---- */

TEST(sleeper_shows_itself_before_a_fence) {
    begin(SLOTS);
    doze(a, MQ_QUEUE_RECEIVER);
    CHECK(in_order("mq_eventcount_prepare_wait_mp: exchanged word", "mq_queue_set_row_bit: set *",
                   "mq_queue_set_row_bit: fenced seq_cst"));
    CHECK(!mq_queue_search_message(a));
    CHECK(in_order("mq_queue_set_row_bit: fenced seq_cst", "mq_queue_search_message: loaded *ready_count",
                   "mq_queue_scan_block: loaded *slot_states*"));
    CHECK(mq_queue_any_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_RECEIVER]));
    forget_steps();
    mq_queue_finish_sleep(a, MQ_QUEUE_RECEIVER);
    CHECK(in_order("mq_queue_clear_row_bit: cleared *", "mq_queue_clear_row_bit: fenced seq_cst"));
    CHECK(!mq_queue_any_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_RECEIVER]));
}

static bool scans(void) { return in_order("mq_queue_*: loaded *slot_states*"); }

TEST(search_scans_again_only_after_a_message_was_counted) {
    begin(SLOTS);
    CHECK(!mq_queue_search_message(a));
    forget_steps();
    CHECK(!mq_queue_search_message(a) && !scans());
    send_one(b, 1);
    CHECK(mq_queue_search_message(a) && take(c));
    CHECK(!mq_queue_search_message(a)); /* its cached message is gone */
    forget_steps();
    CHECK(!mq_queue_search_message(a) && !scans());
    CHECK(mq_queue_requeue_message(c, t.slot, t.word));
    CHECK(mq_queue_search_message(a));
}

TEST(call_without_a_message_spares_the_next_search_the_scan) {
    begin(SLOTS);
    mq_queue_claim_free_slot(b, MQ_NO_TICKET); /* so that `a` caches no block */
    CHECK(!take(a));
    forget_steps();
    CHECK(!mq_queue_search_message(a) && !scans());
}

static void send_behind_the_scan(unsigned time) {
    if (time == SLOTS)
        send_one(b, 1);
}

TEST(search_finds_a_message_that_was_sent_behind_the_previous_scan) {
    begin(SLOTS);
    meet("mq_queue_scan_block: loaded &h->parts.slot_states*", send_behind_the_scan);
    CHECK(!mq_queue_search_message(a));
    CHECK(mq_queue_search_message(a));
}

TEST(search_finds_a_message_that_its_dead_sender_did_not_count_after_a_recovery) {
    begin(SLOTS);
    CHECK(!mq_queue_search_message(a));
    mq_store_release_u64(&a->parts.slot_states[mq_queue_claim_free_slot(b, MQ_NO_TICKET)],
                         mq_slot_state_encode_ready(0, 0));
    mq_queue_recover(a, 1);
    CHECK(mq_queue_search_message(a));
}

TEST(bits_of_the_last_row_are_seen) {
    begin(SLOTS);
    mq_queue_set_row_bit(&queue->sleeping_rows[MQ_QUEUE_SENDER], MQ_QUEUE_ROWS - 1);
    CHECK(mq_queue_any_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_SENDER]));
    CHECK(mq_queue_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_SENDER], MQ_QUEUE_ROWS - 1));
    mq_queue_clear_row_bit(&queue->sleeping_rows[MQ_QUEUE_SENDER], 0);
    CHECK(mq_queue_any_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_SENDER]));
}

TEST(each_message_wakes_one_receiver_and_all_watchers) {
    begin(SLOTS);
    const mq_u32 *receivers[] = {doze(a, MQ_QUEUE_RECEIVER), doze(b, MQ_QUEUE_RECEIVER)};
    const mq_u32 *watchers[] = {doze(b, MQ_QUEUE_WATCHER), doze(c, MQ_QUEUE_WATCHER)};
    mq_queue_wake_receivers(queue, 1);
    CHECK(wakes(receivers[0]) + wakes(receivers[1]) == 1);
    CHECK(wakes(watchers[0]) == 1 && wakes(watchers[1]) == 1);
    mq_queue_wake_receivers(queue, 2); /* the other one: the first is woken already */
    CHECK(wakes(receivers[0]) == 1 && wakes(receivers[1]) == 1);
}

static void wake_for_a_second_message(unsigned time) {
    if (time == 1)
        mq_queue_wake_receivers(queue, 1);
}

TEST(two_senders_at_a_time_wake_two_rows) {
    begin(SLOTS);
    const mq_u32 *receivers[] = {doze(a, MQ_QUEUE_RECEIVER), doze(b, MQ_QUEUE_RECEIVER)};
    meet("mq_eventcount_notify_mp: exchanged word", wake_for_a_second_message);
    mq_queue_wake_receivers(queue, 1);
    CHECK(wakes(receivers[0]) && wakes(receivers[1]));
}

TEST(free_place_wakes_one_sender) {
    begin(SLOTS);
    send_one(a, 1);
    const mq_u32 *words[] = {doze(a, MQ_QUEUE_SENDER), doze(b, MQ_QUEUE_SENDER)};
    CHECK(receive(c));
    CHECK(wakes(words[0]) + wakes(words[1]) == 1);
}

TEST(dropped_place_wakes_a_sender) {
    begin(1);
    CHECK(mq_queue_claim_free_slot(a, MQ_NO_TICKET) == 0);
    const mq_u32 *word = doze(b, MQ_QUEUE_SENDER);
    mq_queue_release_unsent_slot(a, 0);
    CHECK(is_free(0) && wakes(word) == 1);
}

/* ---- leaving ---- */

TEST(leave_returns_the_messages_and_places_of_its_handle) {
    begin(SLOTS);
    send_one(b, 1);
    CHECK(take(a));
    CHECK(mq_queue_claim_free_slot(a, MQ_NO_TICKET) == 1 && mq_queue_claim_free_slot(b, MQ_NO_TICKET) == 2);
    commit(b, mq_queue_claim_free_slot(b, MQ_NO_TICKET), 1);
    mq_queue_taken_message other;
    CHECK(mq_queue_take_message(b, MQ_NO_TICKET, &other) == MQ_QUEUE_OK && other.slot == 3);
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(mq_slot_state_is_ready(word_of(0)) && is_free(1) && !is_free(2) && word_of(3) == other.word);
    CHECK(mq_load_acquire_u64(&queue->rows[0].at.participant.uid) == 0 && !locks[0]);
}

TEST(leave_passes_a_wake_on_to_a_receiver) {
    begin(SLOTS);
    send_one(b, 1); /* it woke `a`, which leaves without it */
    const mq_u32 *word = doze(c, MQ_QUEUE_RECEIVER);
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(wakes(word) == 1);
}

TEST(leave_of_an_empty_queue_wakes_no_receiver) {
    begin(SLOTS);
    const mq_u32 *word = doze(c, MQ_QUEUE_RECEIVER);
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(wakes(word) == 0);
}

TEST(leave_passes_free_room_on_to_a_sender) {
    begin(1);
    const mq_u32 *word = doze(c, MQ_QUEUE_SENDER);
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(wakes(word) == 1);
}

TEST(leave_of_a_full_queue_wakes_no_sender) {
    begin(1);
    send_one(b, 1);
    const mq_u32 *word = doze(c, MQ_QUEUE_SENDER);
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(wakes(word) == 0);
}

TEST(leave_notifies_about_messages_that_were_left_to_its_handle) {
    begin(SLOTS);
    mq_queue_set_row_bit(&queue->notify_requested, c->row_number);
    doze(a, MQ_QUEUE_RECEIVER);
    send_one(b, 1); /* without a notification, because `a` waits */
    uint32_t before = arrived();
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(arrived() == before + 1);
    CHECK(!mq_queue_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_RECEIVER], 0));
}

TEST(leave_with_a_debt_notifies) {
    begin(SLOTS);
    mq_queue_set_row_bit(&queue->notify_requested, c->row_number);
    send_one(b, 1);
    mq_queue_add_notify_debt(a->own_row, 1);
    uint32_t before = arrived();
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(arrived() == before + 1 && mq_load_acquire_u64(&queue->rows[0].notify_debt[1]) == 0);
}

TEST(leave_without_a_debt_makes_no_notification) {
    begin(SLOTS);
    mq_queue_set_row_bit(&queue->notify_requested, c->row_number);
    send_one(b, 1);
    uint32_t before = arrived();
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(arrived() == before);
}

TEST(giving_up_passes_the_wake_on_and_notifies) {
    begin(SLOTS);
    mq_queue_set_row_bit(&queue->notify_requested, c->row_number);
    send_one(b, 1);
    const mq_u32 *word = doze(c, MQ_QUEUE_RECEIVER);
    uint32_t before = arrived();
    mq_queue_forward_wake_and_notify(a);
    CHECK(wakes(word) == 1 && arrived() == before + 1);
}

static void debt_is_noted(void) {
    bool has_debt =
        mq_load_relaxed_u64(&queue->rows[0].notify_debt[0]) || mq_load_relaxed_u64(&queue->rows[0].notify_debt[1]);
    CHECK(has_debt || mq_queue_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_RECEIVER], 0) || arrived());
}

TEST(settle_of_a_dead_row_keeps_the_debt_until_it_is_paid) {
    begin(SLOTS);
    mq_queue_set_row_bit(&queue->notify_requested, c->row_number);
    doze(a, MQ_QUEUE_RECEIVER);
    mq_queue_set_row_bit(&queue->notify_requested, a->row_number);
    send_one(b, 1);
    die(a);
    CHECK(!arrived());
    hold_at_each_step(debt_is_noted);
    mq_queue_recover_dead_rows(b);
    CHECK(arrived() == 1 && mq_queue_row_is_clean(queue, 0));
    CHECK(mq_queue_row_bit_is_set(&queue->notify_requested, 2)); /* the other one lives */
}

TEST(row_with_any_trace_of_its_owner_is_settled) {
    begin(SLOTS);
    for (unsigned trace = 0; trace < 8; trace++) {
        mq_queue_row *row = &queue->rows[0];
        uint64_t ticket = 5 + trace;
        if (trace < MQ_QUEUE_ROLES)
            mq_queue_set_row_bit(&queue->sleeping_rows[trace], 0);
        else if (trace == 3)
            mq_queue_set_row_bit(&queue->notify_requested, 0);
        else if (trace < 6)
            mq_store_relaxed_u64(&row->notify_debt[trace - 4], 1);
        else {
            unsigned role = trace == 6 ? MQ_QUEUE_RECEIVER : MQ_QUEUE_SENDER;
            mq_store_relaxed_u64(&row->oldest_ticket[role], ticket);
            mq_store_relaxed_u64(&queue->handoff_ticket[role], ticket);
        }
        CHECK(!mq_queue_row_is_clean(queue, 0) && mq_queue_row_is_clean(queue, 1));
        CHECK(mq_queue_any_row_may_need_recovery(b) && !mq_queue_any_row_may_need_recovery(a));
        die(a);
        mq_queue_recover_dead_rows(b);
        CHECK(mq_queue_row_is_clean(queue, 0) && !mq_queue_any_row_may_need_recovery(b));
    }
}

TEST(row_of_the_dead_is_settled_under_the_lock_of_the_file) {
    struct stat found;
    int fd = memfd_create("queue", MFD_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &found) == 0 && flock(fd, LOCK_EX) == 0);
    begin(SLOTS);
    liveness_file = mq_liveness_file_make(NULL, fd, &found);
    doze(a, MQ_QUEUE_RECEIVER);
    die(a);
    mq_queue_recover(b, 0);
    CHECK(!mq_queue_row_is_clean(queue, 0)); /* the next owner of the row may set its bit now */
    CHECK(flock(fd, LOCK_UN) == 0);
    mq_queue_recover(b, 0);
    CHECK(mq_queue_row_is_clean(queue, 0));
    close(fd);
    liveness_file = (mq_liveness_file){0};
}

TEST(settle_leaves_rows_of_the_living) {
    begin(SLOTS);
    doze(a, MQ_QUEUE_RECEIVER);
    doze(c, MQ_QUEUE_SENDER);
    mq_queue_recover_dead_rows(b);
    CHECK(mq_queue_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_RECEIVER], 0) &&
          mq_queue_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_SENDER], 2));
}

/* ---- notifications ---- */

TEST(message_to_an_empty_queue_is_notified_and_a_second_one_is_not) {
    begin(SLOTS);
    mq_queue_set_row_bit(&queue->notify_requested, c->row_number);
    send_one(a, 1);
    CHECK(arrived() == 1 && wakes(&queue->notify_seq) == 1);
    send_one(a, 1);
    CHECK(arrived() == 1);
    CHECK(receive(b) && receive(b));
    doze(b, MQ_QUEUE_RECEIVER);
    send_one(a, 1);
    CHECK(arrived() == 1); /* a receiver waits for it */
}

static void empty_and_refill(unsigned time) {
    if (time != 1)
        return;
    uint64_t key = word_of(0);
    CHECK(receive(b)); /* the queue is empty */
    CHECK(is_free(0));
    mq_fetch_add_u64(&a->parts.fill_counts[0], 1);
    mq_store_release_u64(&a->parts.slot_states[0], key); /* after our message came: an equal key */
}

TEST(message_is_notified_though_its_witness_has_an_equal_successor) {
    begin(SLOTS);
    mq_queue_set_row_bit(&queue->notify_requested, c->row_number);
    send_one(a, 1);
    CHECK(arrived() == 1);
    int64_t slot = mq_queue_claim_free_slot(a, MQ_NO_TICKET);
    CHECK(slot == 1);
    meet("mq_queue_commit_and_notify: loaded &h->parts.slot_states*", empty_and_refill);
    commit(a, slot, 1);
    CHECK(arrived() == 2);
}

static void empty(unsigned time) {
    if (time == 1)
        CHECK(receive(b));
}

TEST(message_is_notified_when_its_witness_goes_before_it_comes) {
    begin(SLOTS);
    mq_queue_set_row_bit(&queue->notify_requested, c->row_number);
    send_one(a, 1);
    int64_t slot = mq_queue_claim_free_slot(a, MQ_NO_TICKET);
    meet("mq_queue_commit_and_notify: loaded &h->parts.slot_states*", empty);
    commit(a, slot, 1);
    CHECK(arrived() == 2);
}

static void want_notifications(unsigned time) {
    if (time == 1)
        mq_queue_set_row_bit(&queue->notify_requested, c->row_number);
}

TEST(notification_that_is_requested_during_a_send_is_made) {
    begin(SLOTS);
    meet("mq_queue_commit_message: stored &h->parts.slot_states*", want_notifications);
    send_one(a, 1);
    CHECK(arrived() == 1);
}

static void sender_owes(void) {
    CHECK(arrived() || is_free(0) || !mq_slot_state_is_ready(word_of(0)) ||
          mq_load_relaxed_u64(&a->own_row->notify_debt[0]));
}

TEST(sender_owes_a_notification_from_ready_on) {
    begin(SLOTS);
    mq_queue_set_row_bit(&queue->notify_requested, c->row_number);
    hold_at_each_step(sender_owes);
    send_one(a, 1);
    CHECK(arrived() == 1 && mq_load_relaxed_u64(&a->own_row->notify_debt[0]) == 0);
}

/* ---- peeks ---- */

static void next_message(unsigned time) {
    if (time == 1)
        CHECK(receive(b) && send_one(a, 1) == 0);
}

TEST(peek_of_a_message_that_was_replaced_fails) {
    mq_queue_pending_message it;
    uint8_t room[SIZE];
    begin(1);
    send_one(a, 1);
    CHECK(mq_peek_read_slot(&a->parts, 0, &it) && it.length == 8);
    CHECK(mq_peek_copy_payload(&a->parts, &it, room));
    meet("mq_peek_read_slot: loaded &header->length", next_message);
    CHECK(!mq_peek_read_slot(&a->parts, 0, &it));
    CHECK(mq_peek_read_slot(&a->parts, 0, &it));
    mq_store_relaxed_u64(&a->parts.slot_headers[0].sent_time, 2); /* an equal word of the next message */
    CHECK(!mq_peek_copy_payload(&a->parts, &it, room));
}

/* ---- watching ---- */

TEST(last_watcher_of_a_handle_takes_its_bit_away) {
    mq_queue_poll_state state;
    begin(SLOTS);
    state = (mq_queue_poll_state){.h = *a};
    mq_queue_poll_add_watcher(&state);
    mq_queue_poll_prepare_wait(&state, NULL);
    mq_queue_poll_prepare_wait(&state, NULL); /* again: it is one watcher */
    CHECK(state.watcher_count == 2);
    mq_queue_poll_end_wait(&state);
    CHECK(mq_queue_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_WATCHER], 0));
    mq_queue_poll_remove_watcher(&state);
    CHECK(!mq_queue_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_WATCHER], 0));
}

TEST(notice_is_taken_once) {
    mq_queue_notification notification;
    begin(SLOTS);
    notification = (mq_queue_notification){.h = *c};
    CHECK(!mq_queue_notification_consume(&notification));
    mq_queue_set_row_bit(&queue->notify_requested, c->row_number);
    send_one(a, 1);
    CHECK(mq_queue_notification_is_due(&notification) && mq_queue_notification_consume(&notification) &&
          !mq_queue_notification_consume(&notification));
}

TEST(notification_finds_due_messages_between_recoveries) {
    mq_queue_notification notification;
    begin(SLOTS);
    uint32_t tick = mq_job_lease_convert_to_ticks((uint64_t)mq_monotonic_ns());
    int64_t slot = mq_queue_claim_free_slot(a, MQ_NO_TICKET);
    notification = (mq_queue_notification){.h = *c};
    mq_queue_recover_from_dead_owners(&notification.h, mq_monotonic_ns());
    mq_queue_set_row_bit(&queue->notify_requested, c->row_number);
    mq_queue_commit_delayed_message(a, (uint64_t)slot, 1, 3, 1, 0, tick + 50);
    CHECK(mq_queue_delays_changed(&notification.h));
    CHECK(!mq_queue_notification_has_more(&notification) && !mq_queue_delays_changed(&notification.h));
    CHECK(mq_queue_notification_max_sleep_ns(&notification) <= 50 * MQ_JOB_LEASE_TICK_NS);
    /* as if the time had passed */
    mq_store_relaxed_u64(&a->parts.slot_headers[slot].lease, mq_job_lease_encode(word_of(slot), tick));
    notification.next_recovery_ns = 0;
    CHECK(mq_queue_notification_has_more(&notification) && mq_queue_notification_consume(&notification));
}

TEST(poll_finds_due_messages_between_recoveries) {
    begin(SLOTS);
    int64_t begin_ns = mq_monotonic_ns();
    uint32_t tick = mq_job_lease_convert_to_ticks((uint64_t)begin_ns);
    mq_queue_poll_state state = {.h = *c};
    CHECK(!mq_queue_poll_has_more(&state) && state.h.last_recovery_ns >= begin_ns);
    CHECK(state.next_recovery_ns > begin_ns && mq_queue_poll_max_sleep_ns(&state) <= MQ_QUEUE_RECOVER_NS);
    int64_t slot = mq_queue_claim_free_slot(a, MQ_NO_TICKET);
    mq_queue_commit_delayed_message(a, (uint64_t)slot, 1, 3, 1, 0, tick + 1000000);
    state.h.last_recovery_ns = mq_monotonic_ns();
    state.next_recovery_ns = 0;
    CHECK(mq_queue_delays_changed(&state.h));
    CHECK(!mq_queue_poll_has_more(&state) && !mq_queue_delays_changed(&state.h) && state.next_recovery_ns > begin_ns);
    /* as if the time had passed */
    mq_store_relaxed_u64(&a->parts.slot_headers[slot].lease, mq_job_lease_encode(word_of((uint64_t)slot), tick));
    state.next_recovery_ns = 0;
    CHECK(mq_queue_poll_max_sleep_ns(&state) == MQ_QUEUE_RECOVER_BUSY_NS);
    CHECK(mq_queue_poll_has_more(&state));
}
