/* A work queue: messages that are sent or returned with a delay. */
#include "queue_fixture.h"

static void message_is_not_ready(void) {
    sweep_at(c, 9);
    CHECK(!mq_slot_state_is_ready(word_of(0)));
}

TEST(delayed_message_becomes_ready_at_its_due_time) {
    begin(SLOTS);
    hold_at_each_step(message_is_not_ready);
    send_delayed(a, 10);
    forget_steps();
    send_one(a, 3);
    CHECK(mq_slot_state_decode(word_of(0)) == MQ_SLOT_DELAYED && ready() == 2);
    CHECK(sweep_at(c, 9) == MQ_JOB_LEASE_TICK_NS);
    CHECK(take(b) && t.slot == 1 && !take(b) && b->saw_owned_slots);
    CHECK(sweep_at(c, 10) == MQ_QUEUE_RECOVER_NS);
    CHECK(take(b) && t.slot == 0 && t.deliveries == 1);
    CHECK(mq_load_relaxed_u64(&c->own_row->counts.returned) == 0);
}

TEST(due_message_has_the_position_of_its_send) {
    begin(SLOTS);
    b->next_search_slot = 3; /* the slots are not in the order of the sends */
    send_one(a, 3);
    send_delayed(b, 10);
    send_delayed(a, 10);
    send_one(a, 3);
    sweep_at(c, 10);
    CHECK(take(b) && t.slot == 0 && take(b) && t.slot == 3 && take(b) && t.slot == 1 && take(b) && t.slot == 2);
}

TEST(delayed_message_needs_no_living_owner) {
    begin(SLOTS);
    send_delayed(a, 10);
    die(a);
    sweep_at(c, 9);
    join(0); /* the row's next owner */
    sweep_at(c, 9);
    CHECK(mq_slot_state_decode(word_of(0)) == MQ_SLOT_DELAYED);
    sweep_at(c, 10);
    CHECK(mq_slot_state_is_ready(word_of(0)));
}

TEST(delayed_message_wakes_a_receiver_that_then_learns_its_due_time) {
    begin(SLOTS);
    sweep_at(b, 1);
    const mq_u32 *receiver = doze(b, MQ_QUEUE_RECEIVER), *watcher = doze(c, MQ_QUEUE_WATCHER);
    CHECK(!mq_queue_delays_changed(b));
    send_delayed(a, 5);
    CHECK(wakes(receiver) == 1 && wakes(watcher) == 1);
    CHECK(in_order("mq_queue_announce_delay: counted *", "mq_eventcount_notify_mp: woke *"));
    CHECK(mq_queue_delays_changed(b));
    CHECK(sweep_at(b, 1) == 4 * MQ_JOB_LEASE_TICK_NS && !mq_queue_delays_changed(b));
}

TEST(delayed_message_wakes_those_that_requested_a_notification) {
    begin(SLOTS);
    send_delayed(a, 5);
    CHECK(wakes(&queue->notify_seq) == 0);
    mq_queue_set_row_bit(&queue->notify_requested, 1);
    uint32_t before = arrived();
    send_delayed(a, 5);
    CHECK(wakes(&queue->notify_seq) == 1 && arrived() == before); /* they search for the due time */
}

TEST(message_that_becomes_due_wakes_a_receiver_and_is_notified) {
    begin(SLOTS);
    send_delayed(a, 5);
    const mq_u32 *word = doze(b, MQ_QUEUE_RECEIVER);
    mq_queue_set_row_bit(&queue->notify_requested, 1);
    uint32_t before = arrived();
    sweep_at(c, 5);
    CHECK(wakes(word) == 1 && arrived() == before + 1);
    CHECK(mq_load_acquire_u64(&c->own_row->notify_debt[1]) == 0);
}

TEST(job_returned_with_a_delay_is_taken_again_after_the_delay) {
    begin(SLOTS);
    send_one(a, 1);
    CHECK(take(b));
    mq_queue_set_job_lease(b, &t, 20);
    hold_at_each_step(message_is_not_ready);
    CHECK(mq_queue_delay_taken_message(b, &t, 10));
    forget_steps();
    CHECK(mq_load_relaxed_u64(&b->own_row->counts.returned) == 1);
    sweep_at(c, 9);
    CHECK(mq_slot_state_decode(word_of(0)) == MQ_SLOT_DELAYED && !take(c));
    CHECK(!mq_queue_free_taken_slot(b, &t)); /* the job is over */
    sweep_at(c, 10);
    CHECK(take(c) && t.deliveries == 2);
}

TEST(job_returned_with_a_delay_wakes_a_receiver) {
    begin(SLOTS);
    send_one(a, 1);
    CHECK(take(b));
    sweep_at(c, 1);
    const mq_u32 *receiver = doze(c, MQ_QUEUE_RECEIVER);
    CHECK(mq_queue_delay_taken_message(b, &t, 5));
    CHECK(wakes(receiver) == 1 && mq_queue_delays_changed(c));
}

static void end_the_old_lease_and_take(unsigned time) {
    if (time == 1) {
        sweep_at(c, 5);
        CHECK(!take(c));
    }
}

TEST(lease_that_ends_during_the_return_with_a_delay_does_not_count) {
    begin(SLOTS);
    send_one(a, 1);
    CHECK(take(b));
    mq_queue_taken_message job = t;
    mq_queue_set_job_lease(b, &job, 5);
    meet("mq_queue_delay_taken_message: exchanged word", end_the_old_lease_and_take);
    CHECK(mq_queue_delay_taken_message(b, &job, 10));
    CHECK(mq_slot_state_decode(word_of(0)) == MQ_SLOT_DELAYED);
}

TEST(delay_of_a_job_whose_lease_ended_leaves_the_next_taker_alone) {
    begin(SLOTS);
    send_one(a, 1);
    CHECK(take(b));
    mq_queue_taken_message earlier = t;
    mq_queue_set_job_lease(b, &t, 5);
    sweep_at(c, 5);
    CHECK(take(c));
    mq_queue_set_job_lease(c, &t, 20);
    CHECK(!mq_queue_delay_taken_message(b, &earlier, 10));
    CHECK(mq_job_lease_belongs_to(mq_load_acquire_u64(&b->parts.slot_headers[0].lease), word_of(0)));
    CHECK(mq_load_relaxed_u64(&b->own_row->counts.returned) == 0);
    sweep_at(b, 20);
    CHECK(mq_slot_state_is_ready(word_of(0)));
}

static void end_the_lease_of_the_renewed_job(unsigned time) {
    if (time == 1)
        sweep_at(c, 10);
}

TEST(due_time_that_ends_during_the_return_loses_no_message) {
    begin(SLOTS);
    send_one(a, 1);
    CHECK(take(b));
    meet("mq_queue_delay_taken_message: stored &header->lease", end_the_lease_of_the_renewed_job);
    CHECK(mq_queue_delay_taken_message(b, &t, 10));
    CHECK(mq_slot_state_is_ready(word_of(0)));
    CHECK(take(c) && t.deliveries == 2);
}

TEST(delayed_message_with_a_corrupt_due_time_is_due) {
    begin(SLOTS);
    send_delayed(a, 10);
    mq_store_release_u64(&a->parts.slot_headers[0].lease, 0);
    sweep_at(c, 1);
    CHECK(mq_slot_state_is_ready(word_of(0)));
}
