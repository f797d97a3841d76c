/* What the tests of topics share. */
#ifndef RING_FIXTURE_H
#define RING_FIXTURE_H

#include "steps.h"

#include <sys/wait.h>

#undef mq_membarrier
#define mq_membarrier() (POINT("ordered", membarrier), true)

#include "ring/seek.h"
#include "ring/registry.h"
#include "ring/batch.h"
#include "ring/snapshot.h"

enum { DATA = 1024, SIZE = 16, NEED = 24 };

static mq_ring_header *ring;
static mq_ring_side *side;
static mq_liveness_file liveness_file;
static mq_ring_publisher one;
__attribute__((unused)) static mq_ring_publisher two;
static mq_ring_subscriber s;
__attribute__((unused)) static uint8_t message[DATA];

static inline void claim(mq_ring_publisher *p) {
    *p = (mq_ring_publisher){.ring = ring,
                             .side = side,
                             .data = (uint8_t *)ring + MQ_RING_HEADER,
                             .data_bytes = DATA,
                             .canary = mq_canary_always_intact(),
                             .needs_fence = true,
                             .liveness_file = &liveness_file};
    static uint32_t claims;
    uint64_t former;
    CHECK(mq_ring_publisher_claim(p, &me, ++claims, &former));
    lives[p->row - side->publishers] = MQ_ALIVE;
}
static inline void start(mq_ring_publisher *p) {
    claim(p);
    CHECK(mq_ring_publisher_start(p, &me) == MQ_RING_OK);
    p->populated_to = DATA;
    p->populate_step = 0;
}
static inline void join(void) {
    s = (mq_ring_subscriber){.ring = ring,
                             .side = side,
                             .data = (const uint8_t *)ring + MQ_RING_HEADER,
                             .data_bytes = DATA,
                             .liveness_file = &liveness_file,
                             .canary = mq_canary_always_intact()};
    CHECK(mq_ring_subscriber_join(&s, &me, 7) == MQ_RING_OK);
    lives[mq_ring_subscriber_row_index(side, s.row)] = MQ_ALIVE;
}

/* A ring with a publisher and a subscriber. */
static inline void begin(void) {
    forget_steps();
    memset(lives, 0, sizeof lives);
    ring = zeros(MQ_RING_HEADER + DATA);
    side = zeros(MQ_SIDE_BYTES);
    mq_ring_side_init(side, ring, 1, DATA, 1, false);
    start(&one);
    join();
    forget_steps();
}

/* Messages have 16 bytes: their number, twice. */
static inline mq_ring_status send_one(mq_ring_publisher *p, uint64_t number) {
    uint64_t words[] = {number, number};
    mq_ring_status status = mq_ring_publisher_send(p, words, sizeof words);
    if (status == MQ_RING_NOTIFY)
        mq_ring_publisher_notify_subscribers(p);
    return status == MQ_RING_NOTIFY ? MQ_RING_OK : status;
}
static inline void send_many(mq_ring_publisher *p, uint64_t first, uint64_t count) {
    for (uint64_t number = first; number < first + count; number++)
        CHECK(send_one(p, number) == MQ_RING_OK);
}

/* Returns the number; 0: there is no message. */
static inline uint64_t receive(bool conflate) {
    mq_ring_message found;
    uint64_t words[2];
    for (;;) {
        mq_ring_status status = mq_ring_subscriber_next_message(&s, conflate, &found);
        if (status == MQ_RING_EMPTY)
            return 0;
        CHECK(status == MQ_RING_OK);
        mq_copy_from_shared(words, found.payload, sizeof words);
        if (mq_ring_subscriber_accept_copy(&s, &found))
            break;
        CHECK(mq_ring_subscriber_recover_from_lap(&s) == MQ_RING_OK);
    }
    CHECK(found.size == SIZE && words[0] == words[1]);
    return words[0];
}

#endif
