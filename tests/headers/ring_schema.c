/* Topics: the schema of each message, for sources of a recorder. */
#include "ring_fixture.h"

#include "sources/source.h"

static mq_source source;

/* Write a schema for the messages of a publisher. */
static void change_schema(mq_ring_publisher *p, const char *name) {
    mq_schema_parts parts = mq_ring_side_schema(side);
    mq_ring_publisher_begin_schema(p);
    mq_schema_write(&parts, name, "text", name, strlen(name));
}

/* Replace the publisher by a publisher with a schema. */
static void replace_publisher(const char *name) {
    mq_ring_publisher_close(&one);
    start(&one);
    change_schema(&one, name);
}

/* Read the schema for the next message. Returns false if the message has a schema that was replaced. */
static bool read_schema(void) {
    return mq_ring_source_note_schema(&source, mq_source_load_schema_seq(&source), s.cursor);
}

static mq_source_status status;

/* Take a message, and return its number. 0: no message, or a message with another schema. */
static uint64_t take(void) {
    uint64_t words[2] = {0, 0};
    mq_source_buffer room = {.data = (uint8_t *)words, .bytes = sizeof words, .all_or_nothing = true};
    mq_source_message taken;
    status = mq_source_take_message(&source, &room, &taken);
    return status == MQ_SOURCE_OK ? words[0] : 0;
}

static void begin_source(void) {
    begin();
    change_schema(&one, "first");
    source = (mq_source){.kind = MQ_SOURCE_RING, .ring_subscriber = &s};
    CHECK(read_schema());
    forget_steps();
}

TEST(source_stops_at_the_first_message_of_a_new_schema) {
    begin_source();
    send_many(&one, 1, 2);
    replace_publisher("second");
    send_many(&one, 3, 1);
    CHECK(mq_source_schema_is_seen(&source) && take() == 1 && take() == 2);
    CHECK(take() == 0 && status == MQ_SOURCE_NEW_SCHEMA && !mq_source_schema_is_seen(&source));
    CHECK(read_schema() && take() == 3);
    CHECK(take() == 0 && status == MQ_SOURCE_EMPTY && mq_source_schema_is_seen(&source));
}

static unsigned acting_step;
static void replace_and_send(unsigned time) {
    if (time != acting_step)
        return;
    replace_publisher("second");
    send_many(&one, 2, 1);
}

TEST(source_takes_no_message_of_a_schema_that_begins_at_any_step) {
    for (acting_step = 1;; acting_step++) {
        begin_source();
        send_many(&one, 1, 1);
        meet("*", replace_and_send);
        CHECK(take() == 1 && take() == 0);
        bool has_acted = met >= acting_step;
        forget_steps();
        if (!has_acted)
            break;
        CHECK(!mq_source_schema_is_seen(&source) && read_schema() && take() == 2);
    }
    CHECK(acting_step > 10);
}

static void replace_twice(unsigned time) {
    if (time > 1)
        return;
    replace_publisher("third");
    replace_publisher("fourth");
}

TEST(source_does_not_take_the_position_of_a_later_schema_for_an_earlier_one) {
    begin_source();
    replace_publisher("second");
    send_many(&one, 1, 1);
    meet("mq_source_load_schema_seq: loaded *", replace_twice);
    CHECK(take() == 0 && status == MQ_SOURCE_NEW_SCHEMA && met);
    forget_steps();
    CHECK(!read_schema() && take() == 1);
    CHECK(!mq_source_schema_is_seen(&source) && read_schema());
}

TEST(source_takes_messages_of_a_replaced_schema_without_a_schema) {
    begin_source();
    replace_publisher("second");
    send_many(&one, 1, 2);
    replace_publisher("third");
    send_many(&one, 3, 1);
    CHECK(take() == 0 && status == MQ_SOURCE_NEW_SCHEMA);
    CHECK(!read_schema() && take() == 1 && take() == 2);
    CHECK(take() == 0 && status == MQ_SOURCE_NEW_SCHEMA);
    CHECK(read_schema() && take() == 3);
}

TEST(schema_of_a_killed_publisher_begins_at_its_position) {
    begin_source();
    send_many(&one, 1, 1);
    mq_ring_publisher_close(&one);
    start(&one);
    mq_schema_parts parts = mq_ring_side_schema(side);
    mq_ring_publisher_begin_schema(&one);
    mq_schema_write_shadow(&parts, 3, "second", "text", "second", 6);
    mq_store_release_u64(&side->schema_seq, 3); /* the publisher is killed here */
    send_many(&one, 2, 1);                      /* of the next publisher, which has no schema */
    CHECK(take() == 1 && take() == 0 && status == MQ_SOURCE_NEW_SCHEMA);
    CHECK(read_schema() && take() == 2);
}

TEST(publisher_with_the_same_schema_changes_nothing) {
    begin_source();
    send_many(&one, 1, 1);
    replace_publisher("first");
    send_many(&one, 2, 1);
    CHECK(mq_source_schema_is_seen(&source) && take() == 1 && take() == 2);
}
