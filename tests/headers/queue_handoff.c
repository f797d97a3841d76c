/* A work queue: the order in which calls that wait are served. */
#include "queue_fixture.h"

static mq_queue_waiting_call waiting(mq_queue_handle *h, uint32_t overtaken) {
    mq_queue_waiting_call call = mq_queue_wait_begin(h, MQ_QUEUE_RECEIVER, true);
    call.overtaken = overtaken;
    mq_queue_wait_prepare_sleep(h, &call, call.ticket);
    return call;
}
static uint64_t turn(void) { return mq_load_acquire_u64(&queue->handoff_ticket[MQ_QUEUE_RECEIVER]); }

TEST(wake_goes_to_the_smallest_ticket) {
    begin(SLOTS);
    mq_queue_waiting_call first = waiting(b, 0), second = waiting(a, 0);
    CHECK(first.ticket < second.ticket);
    mq_queue_wake_receivers(queue, 1);
    CHECK(wakes(mq_queue_get_eventcount(b, MQ_QUEUE_RECEIVER)) == 1 &&
          wakes(mq_queue_get_eventcount(a, MQ_QUEUE_RECEIVER)) == 0);
    mq_queue_wait_prepare_sleep(b, &first, first.ticket); /* it found nothing, and keeps its ticket */
    mq_queue_wake_receivers(queue, 1);
    CHECK(wakes(mq_queue_get_eventcount(b, MQ_QUEUE_RECEIVER)) == 2 &&
          wakes(mq_queue_get_eventcount(a, MQ_QUEUE_RECEIVER)) == 0);
}

TEST(call_that_was_overtaken_twice_takes_the_turn) {
    begin(SLOTS);
    mq_queue_waiting_call call = waiting(a, 0);
    for (uint64_t wake = 1; wake <= MQ_QUEUE_OVERTAKEN_MAX; wake++) {
        CHECK(turn() == 0);
        mq_queue_wake_receivers(queue, 1);
        mq_queue_wait_prepare_sleep(a, &call, call.ticket);
    }
    CHECK(turn() == call.ticket);
    mq_queue_wait_end(a, &call);
    CHECK(turn() == 0);
}

TEST(calls_with_a_larger_ticket_yield_to_a_turn) {
    begin(SLOTS);
    mq_queue_waiting_call older = waiting(c, 0), call = waiting(a, MQ_QUEUE_OVERTAKEN_MAX), younger = waiting(b, 0);
    send_one(b, 1);
    CHECK(mq_queue_take_message(b, MQ_NO_TICKET, &t) == MQ_QUEUE_EMPTY && !mq_queue_wait_is_over(b, &younger));
    CHECK(mq_queue_wait_is_over(a, &call) && mq_queue_wait_is_over(c, &older));
    CHECK(mq_queue_take_message(a, call.ticket, &t) == MQ_QUEUE_OK);
}

TEST(oldest_call_takes_over_the_turn_of_a_younger_one) {
    begin(SLOTS);
    mq_queue_waiting_call oldest = waiting(a, 0), younger = waiting(b, MQ_QUEUE_OVERTAKEN_MAX);
    CHECK(turn() == younger.ticket);
    oldest.overtaken = MQ_QUEUE_OVERTAKEN_MAX;
    mq_queue_wait_prepare_sleep(a, &oldest, oldest.ticket);
    CHECK(turn() == oldest.ticket);
    send_one(c, 1); /* it wakes `a`, and `b` is faster */
    CHECK(mq_queue_take_message(b, younger.ticket, &t) == MQ_QUEUE_EMPTY);
    mq_queue_wait_prepare_sleep(b, &younger, younger.ticket);
    mq_queue_wait_end(b, &younger);
    CHECK(turn() == oldest.ticket);
    CHECK(mq_queue_take_message(a, oldest.ticket, &t) == MQ_QUEUE_OK);
}

TEST(oldest_call_is_not_overtaken_for_ever_by_calls_that_have_turns) {
    begin(SLOTS);
    mq_queue_waiting_call oldest = waiting(a, 0);
    for (int round = 0; round < 20 && oldest.overtaken <= MQ_QUEUE_OVERTAKEN_MAX + HANDLES; round++) {
        mq_queue_waiting_call younger = waiting(b, MQ_QUEUE_OVERTAKEN_MAX);
        mq_queue_wait_prepare_sleep(a, &oldest, oldest.ticket);
        send_one(c, 1); /* it wakes `a`, and `b` is faster */
        if (mq_queue_take_message(b, younger.ticket, &t) == MQ_QUEUE_OK)
            CHECK(mq_queue_free_taken_slot(b, &t));
        mq_queue_wait_end(b, &younger);
        if (mq_queue_take_message(a, oldest.ticket, &t) == MQ_QUEUE_OK)
            return;
    }
    CHECK(!"`a` starves");
}

TEST(end_of_a_turn_wakes_a_row_for_each_message) {
    begin(SLOTS);
    mq_queue_waiting_call call = waiting(a, MQ_QUEUE_OVERTAKEN_MAX), younger = waiting(b, 0);
    const mq_u32 *word = mq_queue_get_eventcount(b, MQ_QUEUE_RECEIVER);
    send_one(c, 1);
    send_one(c, 1);
    uint64_t before = wakes(word);
    mq_queue_wait_prepare_sleep(b, &younger, younger.ticket);
    CHECK(mq_queue_take_message(a, call.ticket, &t) == MQ_QUEUE_OK);
    mq_queue_finish_sleep(a, MQ_QUEUE_RECEIVER);
    mq_queue_wait_end(a, &call);
    CHECK(wakes(word) == before + 1);
}

static void end_is_owed(void) { CHECK(turn() || arrived() || mq_load_relaxed_u64(&a->own_row->notify_debt[1])); }

TEST(end_of_a_turn_notifies_about_what_others_left) {
    begin(SLOTS);
    mq_queue_set_row_bit(&queue->notify_requested, c->row_number);
    mq_queue_waiting_call call = waiting(a, MQ_QUEUE_OVERTAKEN_MAX);
    send_one(b, 1);
    CHECK(!take(c) && !arrived()); /* it yields, and waits to be notified */
    hold_at_each_step(end_is_owed);
    mq_queue_wait_end(a, &call);
    CHECK(arrived() == 1 && !mq_load_relaxed_u64(&a->own_row->notify_debt[1]));
}

TEST(looks_for_the_dead_end_a_turn_that_leaves_a_message) {
    begin(SLOTS);
    waiting(a, MQ_QUEUE_OVERTAKEN_MAX);
    mq_queue_recover_from_dead_owners(b, mq_monotonic_ns());
    CHECK(turn() && !b->yields[MQ_QUEUE_RECEIVER].ticket); /* there is no message */
    send_one(c, 1);
    mq_queue_recover_from_dead_owners(b, mq_monotonic_ns());
    CHECK(turn());
    b->yields[MQ_QUEUE_RECEIVER].until_ns = 0;
    mq_queue_recover_from_dead_owners(b, mq_monotonic_ns());
    CHECK(!turn());
}

TEST(settle_ends_the_turn_of_a_dead_row) {
    begin(SLOTS);
    waiting(a, MQ_QUEUE_OVERTAKEN_MAX);
    mq_queue_finish_sleep(a, MQ_QUEUE_RECEIVER);
    CHECK(turn() != 0 && !mq_queue_row_is_clean(queue, a->row_number));
    mq_queue_recover_row(&a->parts, a->row_number);
    CHECK(turn() == 0 && mq_queue_row_is_clean(queue, a->row_number));
}

TEST(join_ends_the_turn_of_the_dead_owner_of_its_row) {
    begin(SLOTS);
    waiting(a, MQ_QUEUE_OVERTAKEN_MAX);
    mq_queue_set_row_bit(&queue->notify_requested, a->row_number);
    die(a);
    CHECK(turn() != 0);
    join(0);
    CHECK(turn() == 0 && mq_queue_row_is_clean(queue, a->row_number));
}
