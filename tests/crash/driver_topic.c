/* The driver's operations on topics. */
#include "c/topicpublisher.c"
#include "c/topicsubscriber.c"

#include "ring/batch.h"

#include "driver.h"

static msgq_publisher *publisher;
static msgq_subscriber *subscriber;
static char schema_data[ROOM], letter_name[2];
static msgq_schema schema = {.name = letter_name, .encoding = letter_name, .data = schema_data};
static msgq_topic_options options;

static void claim(uint64_t a, uint64_t b) { must(msgq_publisher_open(&publisher, endpoint, &options)); }
static void track(uint64_t a, uint64_t b) { options.tracked = MSGQ_TRACKED; }
/* schema:SIZE:LETTER, of the next claim: all its letters are the same */
static void describe(uint64_t size, uint64_t letter) {
    memset(schema_data, (int)letter, size);
    letter_name[0] = (char)letter;
    schema.bytes = size;
    options.schema = &schema;
}
static void close_publisher(uint64_t a, uint64_t b) { msgq_publisher_close(publisher); }

/* A send was refused: another publisher took over. */
static void accepted(int result) {
    if (result == -EADDRINUSE) {
        printf("refused: %s\n", msgq_error_text());
        exit(0);
    }
    must(result);
}
static void heed(mq_ring_status status) {
    if (status == MQ_RING_NOTIFY)
        mq_ring_publisher_notify_subscribers(&publisher->p);
    else if (status != MQ_RING_OK)
        accepted(mqc_send_error(publisher, status, 0));
}

/* send:SIZE:NUMBER */
static void send_one(uint64_t size, uint64_t number) {
    accepted(msgq_publisher_send(publisher, filled(size, number), size));
}

/* batch:SIZE:NUMBER: three messages, committed as one, as send_many of a list does it. */
static void send_batch(uint64_t size, uint64_t number) {
    mq_ring_publisher *p = &publisher->p;
    uint8_t *payload;
    for (uint64_t i = 0; i < 3; i++) {
        if (p->pending && !mq_ring_publisher_has_room(p, size))
            heed(mq_ring_publisher_commit_staged(p));
        heed(mq_ring_publisher_begin_message(p, size, &payload));
        mq_copy_to_shared(payload, filled(size, number + i), size);
        mq_ring_publisher_stage_message(p, size);
    }
    heed(mq_ring_publisher_commit_staged(p));
}

/* rows:SIZE:NUMBER: three messages, committed as one where there is room, as send_many of an array does it. */
static void send_rows(uint64_t size, uint64_t number) {
    static uint8_t rows[3 * 1024];
    mq_ring_publisher *p = &publisher->p;
    uint8_t *payload;
    for (uint64_t i = 0; i < 3; i++)
        memcpy(rows + i * size, filled(size, number + i), size);
    for (uint64_t done = 0, block; done < 3; done += block) {
        if (p->pending)
            heed(mq_ring_publisher_commit_staged(p));
        heed(mq_ring_publisher_begin_message(p, size, &payload));
        block = 3 - done;
        heed(mq_ring_publisher_stage_batch(p, rows + done * size, size, &block));
    }
    heed(mq_ring_publisher_commit_staged(p));
}

static void join(uint64_t conflate, uint64_t b) {
    options.conflate = (int)conflate;
    must(msgq_subscriber_open(&subscriber, endpoint, &options));
}
static void leave(uint64_t a, uint64_t b) { msgq_subscriber_close(subscriber); }
static void receive(uint64_t count, uint64_t b) {
    static uint8_t copy[ROOM];
    while (count--) {
        int64_t size = msgq_subscriber_receive(subscriber, copy, sizeof copy, 0, NULL);
        if (size == -EAGAIN)
            return;
        number_of(copy, (uint64_t)must(size));
    }
}
/* Announce a sleep, and never sleep. */
static void announce(uint64_t a, uint64_t b) { mq_ring_subscriber_prepare_wait(&subscriber->s); }
/* Sleep once, until somebody wakes us. */
static void doze(uint64_t a, uint64_t b) {
    mq_ring_subscriber *s = &subscriber->s;
    mq_ring_subscriber_recheck_publisher(s);
    uint32_t expected = mq_ring_subscriber_prepare_wait(s);
    if (!mq_ring_subscriber_is_readable(s))
        mq_futex_wait(mq_ring_subscriber_futex_word(s), expected, -1);
}
static void tell(uint64_t a, uint64_t b) {
    uint64_t received, lost;
    if (msgq_subscriber_counts(subscriber, &received, &lost) != 0)
        fail("lost is unknown");
    say("received", received);
    say("missed", lost);
}

const operation topic_operations[] = {
    {"claim", claim},   {"track", track},      {"schema", describe},   {"close", close_publisher},
    {"send", send_one}, {"batch", send_batch}, {"rows", send_rows},    {"join", join},
    {"leave", leave},   {"receive", receive},  {"announce", announce}, {"doze", doze},
    {"tell", tell},     {NULL, NULL},
};
