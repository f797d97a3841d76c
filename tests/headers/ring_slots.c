/* The slots of a ring, in which subscribers show themselves to stock publishers. */
#include "ring_fixture.h"

TEST(slot_of_a_living_owner_is_never_taken) {
    begin();
    for (int i = 0; i < MQ_READER_SLOTS; i++)
        mq_store_release_u64(&ring->read_uids[i], s.slot_uid);
    mq_store_release_u64(&ring->num_readers, MQ_READER_SLOTS);
    CHECK(mq_reader_slot_claim(ring, side, &liveness_file, 99, 0) == -1);
    lives[mq_ring_subscriber_row_index(side, s.row)] = MQ_DEAD;
    CHECK(mq_reader_slot_claim(ring, side, &liveness_file, 99, 0) == 0);
    CHECK(mq_load_acquire_u64(&ring->read_uids[0]) == 99 && mq_load_acquire_u64(&ring->read_valids[0]) == 1);
}

/* Let other readers own all slots. */
static void fill_slots(void) {
    begin();
    for (int i = 0; i < MQ_READER_SLOTS; i++)
        mq_store_release_u64(&ring->read_uids[i], s.slot_uid);
    mq_store_release_u64(&ring->num_readers, MQ_READER_SLOTS);
}

static int claim_slot(void) { return mq_reader_slot_claim(ring, side, &liveness_file, 99, 0); }

TEST(slot_beyond_the_last_one_is_never_claimed) {
    fill_slots();
    mq_store_release_u64(&ring->num_readers, MQ_READER_SLOTS + 1); /* of another program */
    CHECK(claim_slot() == -1);
    lives[mq_ring_subscriber_row_index(side, s.row)] = MQ_UNKNOWN;
    CHECK(claim_slot() == -1);
}

TEST(each_free_new_or_dead_slot_is_claimed) {
    for (int i = 0; i < MQ_READER_SLOTS; i++) {
        fill_slots();
        mq_store_release_u64(&ring->num_readers, (uint64_t)i + 1);
        mq_store_release_u64(&ring->read_uids[i], 0); /* its reader has left */
        CHECK(claim_slot() == i && mq_load_acquire_u64(&ring->num_readers) == (uint64_t)i + 1);
        mq_store_release_u64(&ring->read_uids[i], 0);
        mq_store_release_u64(&ring->num_readers, (uint64_t)i); /* no reader had the slot yet */
        CHECK(claim_slot() == i && mq_load_acquire_u64(&ring->num_readers) == (uint64_t)i + 1);
        mq_store_release_u64(&ring->num_readers, MQ_READER_SLOTS);
        mq_store_release_u64(&ring->read_uids[i], (uint64_t)1 << 40 | 0xffffff); /* a thread that does not exist */
        CHECK(claim_slot() == i);
    }
}

static void another_joins(unsigned time) {
    if (time == 1)
        mq_fetch_add_u64(&ring->num_readers, 1);
}

TEST(new_slot_that_another_reader_takes_is_left_to_it) {
    begin();
    meet("mq_reader_slot_claim: loaded &ring->num_readers", another_joins);
    CHECK(claim_slot() == 2 && mq_load_acquire_u64(&ring->num_readers) == 3);
}

static void another_claims(unsigned time) {
    if (time == 1)
        mq_store_release_u64(&ring->read_uids[0], 99);
}

TEST(released_slot_that_another_reader_claims_stays_below_the_count) {
    begin();
    CHECK(s.slot == 0);
    meet("mq_reader_slot_release: stored &ring->read_valids*", another_claims);
    mq_reader_slot_release(ring, side, 0, s.slot_uid);
    CHECK(met == 1 && mq_reader_slot_is_mine(ring, 0, 99));
    mq_store_release_u64(&ring->num_readers, 0); /* a stock publisher starts */
    CHECK(!mq_reader_slot_is_mine(ring, 0, 99));
}

static unsigned stock_starts;

/* A stock publisher clears all slots when it starts. */
static void stock_clears_slots(unsigned time) {
    if (time > stock_starts)
        return;
    for (int i = 0; i < MQ_READER_SLOTS; i++)
        mq_store_release_u64(&ring->read_uids[i], 0);
    mq_store_release_u64(&ring->num_readers, 0);
}

TEST(slot_that_a_stock_publisher_clears_is_claimed_three_times) {
    for (stock_starts = 0; stock_starts < 4; stock_starts++) {
        begin();
        mq_store_release_u64(&ring->write_uid, 12345);
        stock_clears_slots(0);
        meet("mq_reader_slot_try_claim: exchanged &ring->read_uids*", stock_clears_slots);
        mq_ring_subscriber_claim_slot(&s);
        CHECK(met == (stock_starts < 3 ? stock_starts + 1 : 3));
        CHECK(mq_reader_slot_is_mine(ring, s.slot, s.slot_uid) == (stock_starts < 3));
    }
}

TEST(evicted_subscriber_claims_no_slot_until_the_publisher_changes) {
    begin();
    CHECK(s.slot == 0);
    mq_store_release_u64(&ring->read_uids[0], 99); /* a 16th stock subscriber */
    for (int i = 0; i < 2; i++) {
        mq_ring_subscriber_classify_publisher(&s);
        CHECK(s.slot == -1 && mq_load_acquire_u64(&ring->num_readers) == 1);
    }
    start(&two);
    mq_ring_subscriber_classify_publisher(&s);
    CHECK(s.slot == 1 && mq_reader_slot_is_mine(ring, 1, s.slot_uid));
}

TEST(leave_of_the_last_slot_lowers_the_count_of_slots) {
    begin();
    CHECK(s.slot == 0 && mq_load_acquire_u64(&ring->num_readers) == 1);
    CHECK(mq_reader_slot_claim(ring, side, &liveness_file, 99, 0) == 1);
    mq_reader_slot_release(ring, side, 0, s.slot_uid);
    CHECK(mq_load_acquire_u64(&ring->num_readers) == 2 && mq_load_acquire_u64(&ring->read_uids[0]) == 0);
    CHECK(mq_reader_slot_claim(ring, side, &liveness_file, 98, 0) == 0);
    mq_reader_slot_release(ring, side, 1, 98); /* not its own */
    CHECK(mq_load_acquire_u64(&ring->num_readers) == 2);
    mq_fetch_and_u32(&side->eventcount, 0);
    mq_reader_slot_release(ring, side, 1, 99);
    CHECK(mq_load_acquire_u64(&ring->num_readers) == 1);
    CHECK(mq_load_acquire_u32(&side->eventcount) & MQ_EVENTCOUNT_SLOTS);
}
