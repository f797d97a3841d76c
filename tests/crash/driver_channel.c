/* The driver's operations on channels. */
#include "c/channelpublisher.c"
#include "c/channelsubscriber.c"

#include "driver.h"

enum { KEPT_MAX = 64 };

static msgq_channel_publisher *publisher;
static msgq_channel_subscriber *subscriber;
static msgq_channel_options options;
static uint64_t begun; /* the first position */

/* history:COUNT:CAPACITY, of those who open the channel next */
static void choose(uint64_t history, uint64_t capacity) {
    options.history = (uint32_t)history;
    options.capacity = (uint32_t)capacity;
}
/* join:SLOTS:BYTES */
static void join(uint64_t slots, uint64_t bytes) {
    options.slots = (uint32_t)slots;
    options.slot_bytes = bytes;
    must(msgq_channel_publisher_open(&publisher, endpoint, &options));
}
static void close_publisher(uint64_t a, uint64_t b) { msgq_channel_publisher_close(publisher); }
/* send:SIZE:NUMBER; a larger size than that of the slots makes a larger pool. */
static void send_one(uint64_t size, uint64_t number) {
    must(msgq_channel_send(publisher, filled(size, number), size, 0));
}

static void listen_in(uint64_t a, uint64_t b) {
    must(msgq_channel_subscriber_open(&subscriber, endpoint, &options));
    begun = mq_channel_load_cursor(&subscriber->c);
}
static void leave(uint64_t a, uint64_t b) { msgq_channel_subscriber_close(subscriber); }

/* Return the number of a message of the one who publishes while we are at work: its numbers go up with the positions. */
static uint64_t check(const void *message, uint64_t size, uint64_t position) {
    static uint64_t first;
    uint64_t number = number_of(message, size);
    if (size && first && number - position != first)
        fail("another message than that of its position");
    first = size ? number - position : first;
    return number;
}
static void receive(uint64_t count, uint64_t b) {
    static uint8_t copy[ROOM];
    msgq_message info;
    while (count--) {
        int64_t size = msgq_channel_receive(subscriber, copy, sizeof copy, 0, &info);
        if (size == -EAGAIN)
            return;
        check(copy, (uint64_t)must(size), info.position);
    }
}
static void announce(uint64_t a, uint64_t b) { mq_eventcount_prepare_wait_mp(&subscriber->file.header->eventcount); }
static void tell(uint64_t a, uint64_t b) {
    uint64_t received, lost;
    must(msgq_channel_counts(subscriber, &received, &lost));
    say("received", received);
    say("missed", lost);
    say("passed", mq_channel_load_cursor(&subscriber->c) - begun);
}

/* ---- views, which the C library does not have ---- */

static struct {
    mq_pool_map pool;
    uint32_t slot;
    uint64_t number, length;
} kept[KEPT_MAX];
static uint64_t held;

static void become_viewer(uint64_t a, uint64_t b) {
    mqc_channel_file *file = &subscriber->file;
    mq_channel_files files = mqc_channel_files(file);
    mq_process_identity self;
    mq_file_lock lock;
    mq_error error;
    must(mqc_read_own_identity(&self));
    must(mqc_channel_file_lock(file, true, &lock));
    if (mq_channel_register_viewer(&files, &lock, &self, mq_new_uid(), &subscriber->rows, &error))
        fail(error.text);
    mqc_unlock_mapped_file(&lock);
}

/* Map the pool of the message so that a pin can be set. */
static void map_pool(const mq_channel_message *message) {
    mq_channel_files files = mqc_channel_files(&subscriber->file);
    mq_pool_file pool;
    mq_error error;
    int failed = mq_pool_open(&files, message->pool_uid, true, &pool, &error);
    if (failed == -ENOENT)
        mq_channel_skip_message(&subscriber->c, message);
    else if (failed)
        fail(error.text);
    else
        subscriber->c.pools[message->row] = pool.slots;
}

/* hold:COUNT */
static void hold(uint64_t count, uint64_t b) {
    mq_channel_subscriber *c = &subscriber->c;
    mq_channel_message message;
    mq_channel_status status;
    while (held < count && (status = mq_channel_next_message(c, &message)) != MQ_CHANNEL_EMPTY) {
        if (status == MQ_CHANNEL_CORRUPT)
            fail("corrupt");
        if (status == MQ_CHANNEL_UNMAPPED)
            map_pool(&message);
        else if (mq_channel_pin_message(c, &message, (unsigned)subscriber->rows.viewer)) {
            kept[held].pool = c->pools[message.row];
            kept[held].slot = message.number;
            kept[held].length = message.length;
            kept[held].number = check(mq_pool_slot_payload(message.slot), message.length, message.position);
            mq_store_release_u64(&c->row->views_held, ++held);
        }
    }
}
/* What is held has not changed; then let it go. */
static void let_go(uint64_t a, uint64_t b) {
    for (; held; held--) {
        mq_pool_slot *slot = mq_pool_slot_at(&kept[held - 1].pool, kept[held - 1].slot);
        if (number_of(mq_pool_slot_payload(slot), kept[held - 1].length) != kept[held - 1].number)
            fail("a view has changed");
        mq_pool_pin_clear(&kept[held - 1].pool, kept[held - 1].slot, (unsigned)subscriber->rows.viewer);
        mq_store_release_u64(&subscriber->c.row->views_held, held - 1);
    }
}

const operation channel_operations[] = {
    {"history", choose},
    {"join", join},
    {"close", close_publisher},
    {"send", send_one},
    {"listen", listen_in},
    {"leave", leave},
    {"receive", receive},
    {"announce", announce},
    {"tell", tell},
    {"view", become_viewer},
    {"hold", hold},
    {"release", let_go},
    {NULL, NULL},
};
