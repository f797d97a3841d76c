/* channel/view.h: what a subscriber of a simulation sees of the index ring. */
#include "channel_fixture.h"

#include "channel/view.h"

static mq_channel_view view;

/* A channel with a subscriber that sees the messages before `end`. */
static void begin_view(void) {
    view = (mq_channel_view){0};
    begin(3 * CAPACITY, 3 * CAPACITY);
    CHECK(mq_channel_view_begin(&view, &s));
    view.end = mq_index_ring_load_tail(&view.ring);
}

static void show(uint64_t arrived) {
    view.end += arrived;
    mq_channel_view_show(&view);
    mq_channel_view_choose_tail(&view, &s);
}

TEST(messages_are_received_once_they_have_arrived) {
    begin_view();
    send_many(&a, 1, 3);
    show(0);
    CHECK(!receive(1));
    show(2);
    CHECK(receive(1) && receive(2) && !receive(3));
    show(1);
    CHECK(receive(3) && s.lost == 0);
    mq_channel_view_free(&view);
    CHECK(!view.entries);
}

TEST(message_of_a_later_lap_stays_hidden) {
    begin_view();
    send_many(&a, 1, CAPACITY);
    show(CAPACITY);
    for (uint64_t number = 1; number <= CAPACITY; number++)
        CHECK(receive(number));
    send_many(&a, CAPACITY + 1, 1);
    show(0);
    CHECK(!receive(CAPACITY + 1) && s.lost == 0 && s.resets == 0);
    show(1);
    CHECK(receive(CAPACITY + 1));
}

TEST(messages_overwritten_by_hidden_ones_are_lost) {
    begin_view();
    send_many(&a, 1, CAPACITY);
    show(4);
    CHECK(receive(1));
    send_many(&a, CAPACITY + 1, 3); /* overwrites 1, 2 and 3 */
    show(0);
    CHECK(receive(4) && s.lost == 2);
    CHECK(!receive(5));
}

TEST(conflating_subscriber_takes_the_newest_that_has_arrived) {
    begin_view();
    s.conflate = true;
    send_many(&a, 1, 5);
    show(3);
    CHECK(receive(3));
    show(0);
    CHECK(!receive(4));
    show(2);
    CHECK(receive(5));
}

TEST(lapped_conflating_subscriber_without_an_arrived_message_gets_the_tail_of_the_ring) {
    begin_view();
    s.conflate = true;
    send_many(&a, 1, 2);
    show(1);
    send_many(&a, 3, CAPACITY);
    show(1); /* both that have arrived are overwritten */
    CHECK(mq_load_acquire_u64(&view.tail) == mq_index_ring_load_tail(&view.ring));
}

TEST(retracted_message_is_lost_in_its_turn) {
    begin_view();
    uint64_t first = view.end;
    send_many(&a, 1, 3);
    view.end += 3;
    mq_channel_view_show(&view);
    mq_channel_view_retract(&view, first + 1);
    mq_channel_view_choose_tail(&view, &s);
    CHECK(receive(1) && s.lost == 0);
    CHECK(receive(3) && s.lost == 1);
}

TEST(only_shown_messages_of_the_channel_are_retracted) {
    begin_view();
    uint64_t first = view.end;
    send_many(&a, 1, CAPACITY + 2);
    show(CAPACITY);
    uint64_t before[CAPACITY];
    memcpy(before, (void *)view.entries, sizeof before);
    mq_channel_view_retract(&view, first);        /* overwritten */
    mq_channel_view_retract(&view, view.end + 1); /* not arrived */
    CHECK(!memcmp(before, (void *)view.entries, sizeof before));
    CHECK(!mq_channel_view_is_intact(&view, first) && mq_channel_view_is_intact(&view, first + 2));
}

TEST(lap_skips_unread_messages_and_counts_a_reset) {
    begin_view();
    uint64_t first = view.end;
    send_many(&a, 1, 4);
    show(4);
    CHECK(receive(1));
    mq_channel_view_lap(&s, first + 1);
    CHECK(s.resets == 0 && s.lost == 0);
    mq_channel_view_lap(&s, first + 3);
    CHECK(s.resets == 1 && s.lost == 2 && receive(4));
}
