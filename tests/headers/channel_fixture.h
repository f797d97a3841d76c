/* The fixture of the tests of channels. */
#ifndef CHANNEL_FIXTURE_H
#define CHANNEL_FIXTURE_H

#include "steps.h"

#include "channel/header.h"
#include "channel/snapshot.h"
#include "channel/subscriber.h"

enum { CAPACITY = 16, SIZE = 64 };

static mq_channel_header header;
static mq_liveness_file liveness_file;
static mq_channel_publisher a, b;
static mq_channel_subscriber s;
static mq_channel_message m;

static inline void open_publisher(mq_channel_publisher *p, int row, uint32_t slots, uint64_t uid) {
    char node[MQ_NODE_NAME_BYTES] = "test";
    uint64_t bytes = mq_pool_header_bytes(slots, 4096) + slots * mq_pool_slot_stride_bytes(SIZE);
    mq_pool_header *pool = zeros(bytes);
    *p = (mq_channel_publisher){
        .header = &header, .liveness_file = &liveness_file, .row = &header.publishers[row], .number = (unsigned)row};
    mq_pool_header_init(pool, bytes, slots, SIZE, 4096, 1, uid, 1, node);
    CHECK(!mq_pool_header_check(pool, bytes, 1, uid, &p->slots));
    CHECK(mq_channel_load_index_ring(&header, &p->order));
    CHECK(mq_channel_publisher_init(p, false));
    lives[MQ_CHANNEL_PUBLISHER_BYTE + row] = MQ_ALIVE;
    mq_channel_publisher_register(p->row, &me, true, &p->slots, bytes, 0, node);
}

/* A header with the publishers a and b, and a subscriber that maps both pools. */
static inline void begin(uint32_t slots_of_a, uint32_t slots_of_b) {
    memset((void *)&header, 0, sizeof header);
    CHECK(
        mq_channel_store_config(&header, (mq_channel_config){.capacity = CAPACITY, .publishers = 2, .subscribers = 2}));
    open_publisher(&a, 0, slots_of_a, 10);
    open_publisher(&b, 1, slots_of_b, 20);
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
