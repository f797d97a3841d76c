/* ring/view.h: what a subscriber of a simulation sees of the ring. */
#include "ring_fixture.h"

#include "ring/view.h"

static mq_ring_header shown;

/* Show the ring up to `messages` messages after the subscriber's cursor. */
static void show(uint64_t messages) {
    mq_ring_view_show(&shown, ring, s.cursor + messages * NEED);
    s.ring = &shown;
}

TEST(messages_after_the_shown_position_do_not_exist) {
    begin();
    send_many(&one, 1, 3);
    show(2);
    CHECK(mq_ring_view_end(&shown) == s.cursor + 2 * NEED);
    CHECK(receive(false) == 1 && receive(false) == 2 && receive(false) == 0);
    show(1);
    CHECK(receive(false) == 3 && s.lost == 0);
}

TEST(conflating_subscriber_takes_the_newest_shown_message) {
    begin();
    send_many(&one, 1, 3);
    show(2);
    CHECK(receive(true) == 2 && receive(true) == 0);
}

TEST(new_publisher_is_shown) {
    begin();
    show(0);
    CHECK(receive(false) == 0);
    start(&two);
    send_many(&two, 7, 1);
    mq_ring_view_show(&shown, ring, mq_load_acquire_u64(&ring->write_pointer));
    CHECK(receive(false) == 7 && s.lost == 0);
}

TEST(message_is_intact_until_the_publisher_begins_to_overwrite_it) {
    begin();
    uint64_t first = s.cursor;
    unsigned sent = 0;
    while (mq_ring_view_is_intact(side, first)) {
        send_many(&one, ++sent, 1);
        CHECK(sent < 100);
    }
    CHECK(sent > DATA / NEED / 2);
    CHECK(!mq_ring_view_is_intact(side, first) && mq_ring_view_is_intact(side, one.position - NEED));
}

TEST(repeated_message_is_received_again_and_is_not_lost) {
    begin();
    send_many(&one, 1, 2);
    show(2);
    uint64_t first = s.cursor;
    CHECK(receive(false) == 1 && receive(false) == 2);
    mq_ring_view_repeat(&s, first + NEED);
    CHECK(mq_load_acquire_u64(&s.row->cursor) == first + NEED); /* observers see it, too */
    CHECK(receive(false) == 2 && receive(false) == 0);
    CHECK(s.received == 3 && s.lost == 0);
    send_many(&one, 3, 100);
    mq_ring_view_show(&shown, ring, one.position);
    uint64_t number = receive(false);
    if (!number) {
        send_many(&one, 103, 1);
        mq_ring_view_show(&shown, ring, one.position);
        number = receive(false);
    }
    CHECK(s.received == 4 && s.lost == number - 3); /* the repeated message counts once */
}
