/* The fixture of the tests of channels. */
#ifndef CHANNEL_FIXTURE_H
#define CHANNEL_FIXTURE_H

#include "steps.h"

enum { CAPACITY = 16, SIZE = 64, MEMORY_FILES_MAX = 20 };

static void *new_file_memory(uint64_t uid, uint64_t bytes);

#include "../../tools/fuzz/memory_files.h"

#include "channel/join.h"
#include "channel/snapshot.h"

static mq_channel_header header;
static mq_liveness_file liveness_file = {.inode = 1};
static mq_channel_publisher a, b;
static mq_channel_subscriber s;
static mq_channel_message m;

static const mq_channel_files files = {.policy = &memory_file_policy,
                                       .pool_prefix = MEMORY_FILE_PREFIX,
                                       .header = &header,
                                       .liveness_file = &liveness_file};

static void *new_file_memory(uint64_t uid, uint64_t bytes) {
    (void)uid;
    return zeros(bytes);
}

static inline void open_publisher(mq_channel_publisher *p, uint32_t slots, uint64_t uid) {
    mq_file_lock lock = {.fd = -1};
    mq_channel_join_request request = {
        .self = &me, .node = "test", .pool_uid = uid, .slots = slots, .slot_bytes = SIZE, .max_bytes = UINT64_MAX};
    void *liveness_token = NULL;
    mq_pool_file pool;
    mq_error error;
    CHECK(mq_channel_join(&files, &lock, &request, p, &liveness_token, &pool, &error) == 0);
    lives[MQ_CHANNEL_PUBLISHER_BYTE + p->number] = MQ_ALIVE;
}

/* A header with the publishers a and b, and a subscriber that maps both pools. */
static inline void begin(uint32_t slots_of_a, uint32_t slots_of_b) {
    memset((void *)&header, 0, sizeof header);
    CHECK(
        mq_channel_store_config(&header, (mq_channel_config){.capacity = CAPACITY, .publishers = 2, .subscribers = 2}));
    open_publisher(&a, slots_of_a, 10);
    open_publisher(&b, slots_of_b, 20);
    s = (mq_channel_subscriber){.header = &header, .row = &header.subscribers[0]};
    CHECK(mq_channel_subscriber_join(&s, true));
    s.pools[0] = a.slots;
    s.pools[1] = b.slots;
    forget_steps();
}

static inline void send_many(mq_channel_publisher *p, uint64_t first, uint64_t count) {
    for (uint64_t number = first; number < first + count; number++) {
        uint64_t position;
        int slot = mq_channel_take_free_slot(p);
        CHECK(slot != MQ_CHANNEL_NO_SLOT);
        mq_copy_to_shared(mq_channel_begin_slot_write(p, (uint32_t)slot), &number, sizeof number);
        CHECK(mq_channel_publish(p, (uint32_t)slot, sizeof number, number, &position) != MQ_CHANNEL_CORRUPT);
    }
}

static inline bool receive(uint64_t number) {
    uint64_t found;
    if (mq_channel_next_message(&s, &m) != MQ_CHANNEL_OK)
        return false;
    mq_copy_from_shared(&found, mq_pool_slot_payload(m.slot), sizeof found);
    return mq_channel_accept_entry(&s, &m) && found == number && m.origin_time == number;
}

#endif
