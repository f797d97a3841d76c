/* A work queue: sleeping, leaving, notifications, and peeks. */
#include "queue_fixture.h"

/* ---- sleeping and waking ---- */

TEST(sleeper_shows_itself_before_a_fence) {
    begin(PLACES);
    doze(a, MQ_RECEIVING);
    CHECK(in_order("mq_eventcount_prepare_wait_mp: exchanged word", "mq_queue_bit_on: set *",
                   "mq_queue_bit_on: fenced seq_cst"));
    CHECK(mq_queue_bits_any(&queue->asleep[MQ_RECEIVING]));
    forget_steps();
    mq_queue_finish_sleep(a, MQ_RECEIVING);
    CHECK(in_order("mq_queue_bit_off: cleared *", "mq_queue_bit_off: fenced seq_cst"));
    CHECK(!mq_queue_bits_any(&queue->asleep[MQ_RECEIVING]));
}

TEST(bits_of_the_last_row_are_seen) {
    begin(PLACES);
    mq_queue_bit_on(&queue->asleep[MQ_SENDING], MQ_QUEUE_ROWS - 1);
    CHECK(mq_queue_bits_any(&queue->asleep[MQ_SENDING]));
    CHECK(mq_queue_bit_is_on(&queue->asleep[MQ_SENDING], MQ_QUEUE_ROWS - 1));
    mq_queue_bit_off(&queue->asleep[MQ_SENDING], 0);
    CHECK(mq_queue_bits_any(&queue->asleep[MQ_SENDING]));
}

TEST(each_message_wakes_one_receiver_and_all_watchers) {
    begin(PLACES);
    const mq_u32 *receivers[] = {doze(a, MQ_RECEIVING), doze(b, MQ_RECEIVING)};
    const mq_u32 *watchers[] = {doze(b, MQ_WATCHING), doze(c, MQ_WATCHING)};
    mq_queue_wake_receivers(queue, 1);
    CHECK(wakes(receivers[0]) + wakes(receivers[1]) == 1);
    CHECK(wakes(watchers[0]) == 1 && wakes(watchers[1]) == 1);
    mq_queue_wake_receivers(queue, 2); /* the other one: the first is woken already */
    CHECK(wakes(receivers[0]) == 1 && wakes(receivers[1]) == 1);
}

TEST(free_place_wakes_one_sender) {
    begin(PLACES);
    send_one(a, 1);
    const mq_u32 *words[] = {doze(a, MQ_SENDING), doze(b, MQ_SENDING)};
    CHECK(receive(c));
    CHECK(wakes(words[0]) + wakes(words[1]) == 1);
}

TEST(dropped_place_wakes_a_sender) {
    begin(1);
    CHECK(mq_queue_hold(a, MQ_NO_TICKET) == 0);
    const mq_u32 *word = doze(b, MQ_SENDING);
    mq_queue_drop(a, 0);
    CHECK(is_free(0) && wakes(word) == 1);
}

/* ---- leaving ---- */

TEST(leave_returns_the_messages_and_places_of_its_handle) {
    begin(PLACES);
    send_one(b, 1);
    CHECK(take(a));
    CHECK(mq_queue_hold(a, MQ_NO_TICKET) == 1 && mq_queue_hold(b, MQ_NO_TICKET) == 2);
    commit(b, mq_queue_hold(b, MQ_NO_TICKET), 1);
    mq_queue_taken other;
    CHECK(mq_queue_take(b, MQ_NO_TICKET, &other) == MQ_QUEUE_OK && other.place == 3);
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(mq_word_is_ready(word_of(0)) && is_free(1) && !is_free(2) && word_of(3) == other.word);
    CHECK(mq_load_acquire_u64(&queue->rows[0].at.who.uid) == 0 && !locks[0]);
}

TEST(leave_passes_a_wake_on_to_a_receiver) {
    begin(PLACES);
    send_one(b, 1); /* it woke `a`, which leaves without it */
    const mq_u32 *word = doze(c, MQ_RECEIVING);
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(wakes(word) == 1);
}

TEST(leave_of_an_empty_queue_wakes_no_receiver) {
    begin(PLACES);
    const mq_u32 *word = doze(c, MQ_RECEIVING);
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(wakes(word) == 0);
}

TEST(leave_passes_free_room_on_to_a_sender) {
    begin(1);
    const mq_u32 *word = doze(c, MQ_SENDING);
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(wakes(word) == 1);
}

TEST(leave_of_a_full_queue_wakes_no_sender) {
    begin(1);
    send_one(b, 1);
    const mq_u32 *word = doze(c, MQ_SENDING);
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(wakes(word) == 0);
}

TEST(leave_notifies_about_messages_that_were_left_to_its_handle) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    doze(a, MQ_RECEIVING);
    send_one(b, 1); /* without a notification, because `a` waits */
    uint32_t before = arrived();
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(arrived() == before + 1);
    CHECK(!mq_queue_bit_is_on(&queue->asleep[MQ_RECEIVING], 0));
}

TEST(leave_with_a_debt_notifies) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    send_one(b, 1);
    mq_queue_debt_add(a->row, 1);
    uint32_t before = arrived();
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(arrived() == before + 1 && mq_load_acquire_u64(&queue->rows[0].owes[1]) == 0);
}

TEST(leave_without_a_debt_makes_no_notification) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    send_one(b, 1);
    uint32_t before = arrived();
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(arrived() == before);
}

TEST(giving_up_passes_the_wake_on_and_notifies) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    send_one(b, 1);
    const mq_u32 *word = doze(c, MQ_RECEIVING);
    uint32_t before = arrived();
    mq_queue_forward_message_wake(a);
    CHECK(wakes(word) == 1 && arrived() == before + 1);
}

static void debt_is_noted(void) {
    bool owed = mq_load_relaxed_u64(&queue->rows[0].owes[0]) || mq_load_relaxed_u64(&queue->rows[0].owes[1]);
    CHECK(owed || mq_queue_bit_is_on(&queue->asleep[MQ_RECEIVING], 0) || arrived());
}

TEST(settle_of_a_dead_row_keeps_the_debt_until_it_is_paid) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    doze(a, MQ_RECEIVING);
    mq_queue_bit_on(&queue->notified, a->number);
    send_one(b, 1);
    die(a);
    CHECK(!arrived());
    hold_at_each_step(debt_is_noted);
    mq_queue_recover_dead_rows(b);
    CHECK(arrived() == 1 && mq_queue_row_idle(queue, 0));
    CHECK(mq_queue_bit_is_on(&queue->notified, 2)); /* the other one lives */
}

TEST(settle_leaves_rows_of_the_living) {
    begin(PLACES);
    doze(a, MQ_RECEIVING);
    doze(c, MQ_SENDING);
    mq_queue_recover_dead_rows(b);
    CHECK(mq_queue_bit_is_on(&queue->asleep[MQ_RECEIVING], 0) && mq_queue_bit_is_on(&queue->asleep[MQ_SENDING], 2));
}

/* ---- notifications ---- */

TEST(message_to_an_empty_queue_is_notified_and_a_second_one_is_not) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    send_one(a, 1);
    CHECK(arrived() == 1 && wakes(&queue->arrived) == 1);
    send_one(a, 1);
    CHECK(arrived() == 1);
    CHECK(receive(b) && receive(b));
    doze(b, MQ_RECEIVING);
    send_one(a, 1);
    CHECK(arrived() == 1); /* a receiver waits for it */
}

static void empty_and_refill(unsigned time) {
    if (time != 1)
        return;
    uint64_t key = word_of(0);
    CHECK(receive(b)); /* the queue is empty */
    CHECK(is_free(0));
    mq_fetch_add_u64(&a->parts.entered[0], 1);
    mq_store_release_u64(&a->parts.words[0], key); /* after our message came: an equal key */
}

TEST(message_is_notified_though_its_witness_has_an_equal_successor) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    send_one(a, 1);
    CHECK(arrived() == 1);
    int64_t place = mq_queue_hold(a, MQ_NO_TICKET);
    CHECK(place == 1);
    meet("mq_queue_commit_watched: loaded &h->parts.words*", empty_and_refill);
    commit(a, place, 1);
    CHECK(arrived() == 2);
}

static void empty(unsigned time) {
    if (time == 1)
        CHECK(receive(b));
}

TEST(message_is_notified_when_its_witness_goes_before_it_comes) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    send_one(a, 1);
    int64_t place = mq_queue_hold(a, MQ_NO_TICKET);
    meet("mq_queue_commit_watched: loaded &h->parts.words*", empty);
    commit(a, place, 1);
    CHECK(arrived() == 2);
}

static void want_notifications(unsigned time) {
    if (time == 1)
        mq_queue_bit_on(&queue->notified, c->number);
}

TEST(notification_that_is_requested_during_a_send_is_made) {
    begin(PLACES);
    meet("mq_queue_commit: stored &h->parts.words*", want_notifications);
    send_one(a, 1);
    CHECK(arrived() == 1);
}

static void sender_owes(void) {
    CHECK(arrived() || is_free(0) || !mq_word_is_ready(word_of(0)) || mq_load_relaxed_u64(&a->row->owes[0]));
}

TEST(sender_owes_a_notification_from_ready_on) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    hold_at_each_step(sender_owes);
    send_one(a, 1);
    CHECK(arrived() == 1 && mq_load_relaxed_u64(&a->row->owes[0]) == 0);
}

/* ---- peeks ---- */

static void next_message(unsigned time) {
    if (time == 1)
        CHECK(receive(b) && send_one(a, 1) == 0);
}

TEST(peek_of_a_message_that_was_replaced_fails) {
    mq_queue_waiting it;
    uint8_t room[SIZE];
    begin(1);
    send_one(a, 1);
    CHECK(mq_peek_look(&a->parts, 0, &it) && it.length == 8);
    CHECK(mq_peek_copy(&a->parts, &it, room));
    meet("mq_peek_look: loaded &head->length", next_message);
    CHECK(!mq_peek_look(&a->parts, 0, &it));
    CHECK(mq_peek_look(&a->parts, 0, &it));
    mq_store_relaxed_u64(&a->parts.heads[0].sent_time, 2); /* an equal word of the next message */
    CHECK(!mq_peek_copy(&a->parts, &it, room));
}

/* ---- watching ---- */

TEST(last_watcher_of_a_handle_takes_its_bit_away) {
    mq_queue_poll_state outlook;
    begin(PLACES);
    outlook = (mq_queue_poll_state){.h = *a};
    mq_queue_watch(&outlook);
    mq_queue_poll_prepare_wait(&outlook, NULL);
    mq_queue_poll_prepare_wait(&outlook, NULL); /* again: it is one watcher */
    CHECK(outlook.watching == 2);
    mq_queue_poll_end_wait(&outlook);
    CHECK(mq_queue_bit_is_on(&queue->asleep[MQ_WATCHING], 0));
    mq_queue_unwatch(&outlook);
    CHECK(!mq_queue_bit_is_on(&queue->asleep[MQ_WATCHING], 0));
}

TEST(notice_is_taken_once) {
    mq_queue_notice notice;
    begin(PLACES);
    notice = (mq_queue_notice){.h = *c};
    CHECK(!mq_queue_notice_take(&notice));
    mq_queue_bit_on(&queue->notified, c->number);
    send_one(a, 1);
    CHECK(mq_queue_notice_due(&notice) && mq_queue_notice_take(&notice) && !mq_queue_notice_take(&notice));
}
