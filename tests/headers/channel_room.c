/* Room of a channel: which rows leave no room, and what others do while a publisher loads the rows. */
#include "channel_fixture.h"

#include "channel/room.h"

enum { FIRST = CAPACITY, OWNER_UID = 70, NEXT_UID = 71 };

/* Give a row of subscribers an owner. */
static void own_row(int row, uint64_t uid, uint64_t cursor, uint64_t joined) {
    mq_channel_subscriber_register(&header.subscribers[row], &me, uid, true, "test");
    mq_store_relaxed_u64(&header.subscribers[row].joined, joined);
    mq_store_relaxed_u64(&header.subscribers[row].cursor, cursor);
    lives[MQ_CHANNEL_SUBSCRIBER_BYTE + row] = MQ_ALIVE;
}

static void begin_with_row(uint64_t cursor) {
    begin(CAPACITY + 2, CAPACITY + 2);
    own_row(0, OWNER_UID, cursor, FIRST);
}

/* Return the room of `a`. */
static uint64_t room(bool probes) {
    uint64_t messages = 0;
    while (messages < CAPACITY && mq_channel_find_room(&a, messages + 1, probes))
        messages++;
    return messages;
}

TEST(room_ends_at_the_oldest_unread_message_of_all_rows) {
    begin_with_row(FIRST + 5);
    own_row(40, NEXT_UID, FIRST + 2, FIRST);
    send_many(&a, 1, 6);
    CHECK(room(false) == CAPACITY - 4);
    mq_store_relaxed_u64(&header.subscribers[40].cursor, FIRST + 6);
    CHECK(room(false) == CAPACITY - 1);
}

TEST(room_ends_at_the_tail_without_rows) {
    begin(CAPACITY + 2, CAPACITY + 2);
    send_many(&a, 1, 3 * CAPACITY);
    CHECK(room(false) == CAPACITY);
    send_many(&a, 1, 1);
    CHECK(!mq_channel_has_room(&a, CAPACITY, 0) && mq_channel_has_room(&a, CAPACITY - 1, 0));
}

TEST(room_of_a_subscriber_without_a_cursor_ends_after_the_capacity) {
    begin_with_row(0);
    CHECK(room(false) == CAPACITY);
    send_many(&a, 1, 3);
    CHECK(room(false) == CAPACITY - 3);
}

TEST(history_before_the_join_takes_no_room) {
    begin_with_row(FIRST);
    send_many(&a, 1, 6);
    mq_store_relaxed_u64(&header.subscribers[0].joined, FIRST + 6);
    CHECK(room(false) == CAPACITY);
}

TEST(room_counts_a_message_before_its_tail) {
    begin_with_row(FIRST);
    send_many(&b, 1, 2);
    mq_store_release_u64(&header.tail, FIRST + 1); /* b was killed before it advanced the tail */
    CHECK(room(false) == CAPACITY - 2);
}

TEST(row_of_a_dead_owner_leaves_room_until_it_has_another_owner) {
    begin_with_row(FIRST);
    send_many(&a, 1, CAPACITY);
    lives[MQ_CHANNEL_SUBSCRIBER_BYTE] = MQ_DEAD;
    CHECK(room(false) == 0);
    CHECK(room(true) == CAPACITY);
    CHECK(room(false) == CAPACITY);
    own_row(0, NEXT_UID, FIRST + CAPACITY, FIRST + CAPACITY);
    send_many(&a, 1, 1);
    CHECK(room(true) == CAPACITY - 1);
}

TEST(row_of_an_owner_whose_life_is_unknown_leaves_no_room) {
    begin_with_row(FIRST);
    send_many(&a, 1, CAPACITY);
    lives[MQ_CHANNEL_SUBSCRIBER_BYTE] = MQ_UNKNOWN;
    CHECK(room(true) == 0);
}

/* ---- slots ---- */

TEST(slots_of_unread_messages_are_no_room) {
    begin(4, 4);
    own_row(0, OWNER_UID, FIRST, FIRST);
    send_many(&a, 1, 4);
    CHECK(room(false) == 0);
    mq_store_relaxed_u64(&header.subscribers[0].cursor, FIRST + 3);
    mq_pool_pin_set(&a.slots, a.published_slots[1].slot, 3);
    CHECK(room(false) == 2);
    send_many(&a, 1, 2);
    CHECK(!mq_index_ring_entry_is_evicted(&a.order, FIRST + 3, a.number, a.published_slots[3].slot));
}

TEST(pins_of_a_dead_viewer_are_room_and_are_cleared_by_the_next_sends) {
    begin(4, 4);
    own_row(0, OWNER_UID, FIRST + 2, FIRST);
    mq_participant_write(&header.viewers[3].participant, &me, 30, true);
    send_many(&a, 1, 4);
    a.next_probe_at = a.sent + CAPACITY; /* another lap */
    for (int i = 0; i < 2; i++)
        mq_pool_pin_set(&a.slots, a.published_slots[i].slot, 3);
    lives[MQ_CHANNEL_VIEWER_BYTE + 3] = MQ_ALIVE;
    CHECK(room(true) == 0);
    lives[MQ_CHANNEL_VIEWER_BYTE + 3] = MQ_DEAD;
    CHECK(room(true) == 2);
    send_many(&a, 5, 2);
    CHECK(!mq_index_ring_entry_is_evicted(&a.order, FIRST + 2, a.number, 2));
}

/* ---- others act between the loads ---- */

static unsigned act_at;

/* The owner of the row receives all messages, and `b` publishes further ones. */
static void receive_and_publish(unsigned time) {
    if (time != act_at)
        return;
    mq_store_relaxed_u64(&header.subscribers[0].cursor, mq_index_ring_load_tail(&b.order));
    send_many(&b, 1, 5);
}

/* The owner leaves, and the next one starts at the tail. */
static void replace_owner(unsigned time) {
    if (time != act_at)
        return;
    send_many(&b, 1, 5);
    own_row(0, NEXT_UID, mq_index_ring_load_tail(&b.order), mq_index_ring_load_tail(&b.order));
}

static void load_while(void (*act)(unsigned time)) {
    for (act_at = 1; act_at < 10; act_at++) {
        begin_with_row(FIRST);
        send_many(&a, 1, 3);
        meet("mq_channel_load_unread*: loaded *", act);
        mq_channel_load_unread(&a);
        CHECK(met >= 10);
        CHECK(a.unread_from <= mq_load_relaxed_u64(&header.subscribers[0].cursor));
    }
}

TEST(known_room_is_never_larger_while_a_subscriber_receives) { load_while(receive_and_publish); }

TEST(known_room_is_never_larger_while_a_row_gets_another_owner) { load_while(replace_owner); }
