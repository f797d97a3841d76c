/* A work queue: sending, receiving, repair, sleeping and notifications. */
#include "steps.h"

#include "workqueue/outlook.h"
#include "workqueue/peek.h"

enum { PLACES = 4, SIZE = 64, HANDLES = 3 };

static mq_queue *queue;
static mq_roll roll;
static mq_queue_handle handles[HANDLES];
static mq_queue_memory memories[HANDLES][1];
static void *locks[HANDLES];
static mq_queue_handle *const a = &handles[0], *const b = &handles[1], *const c = &handles[2];
static mq_queue_taken t;

static void join(int row) {
    mq_queue_handle *h = &handles[row];
    locks[row] = &holds[MQ_QUEUE_ROW_BYTE + row];
    h->blocks = memories[row];
    h->roll = &roll;
    memset(memories[row], 0, sizeof memories[row]);
    mq_queue_join(h, row, &me, 100 + (uint64_t)row, true);
    lives[MQ_QUEUE_ROW_BYTE + row] = MQ_ALIVE;
}

/* A queue with the handles a, b and c, in the rows 0 to 2. */
static void begin(uint64_t places) {
    uint64_t bytes = mq_queue_bytes(places, SIZE);
    forget_steps();
    memset(handles, 0, sizeof handles);
    queue = zeros(bytes);
    mq_queue_write(queue, places, SIZE, 1, 1, "test", MQ_EVENTS_NONE);
    for (int row = 0; row < HANDLES; row++) {
        CHECK(mq_queue_check(queue, bytes, &handles[row].parts) == MQ_QUEUE_SOUND);
        join(row);
    }
    forget_steps();
}

static void die(mq_queue_handle *h) { lives[MQ_QUEUE_ROW_BYTE + h->number] = MQ_DEAD; }

static uint64_t word_of(uint64_t place) { return mq_load_acquire_u64(&a->parts.words[place]); }
static uint64_t ready(void) { return mq_load_acquire_u64(&queue->ready); }
static uint32_t arrived(void) { return mq_load_acquire_u32(&queue->arrived); }
static bool is_free(uint64_t place) { return word_of(place) == 0; }

/* Fill a held place, and send it. */
static void commit(mq_queue_handle *h, int64_t place, uint64_t priority) {
    CHECK(place != MQ_NO_PLACE);
    mq_queue_commit(h, (uint64_t)place, 8, priority, 1, 0);
    mq_queue_wake_receivers(queue, 1);
}
static uint64_t send_one(mq_queue_handle *h, uint64_t priority) {
    int64_t place = mq_queue_hold(h);
    commit(h, place, priority);
    return (uint64_t)place;
}

static bool take(mq_queue_handle *h) { return mq_queue_take(h, &t) == MQ_QUEUE_OK; }
static bool receive(mq_queue_handle *h) { return take(h) && mq_queue_free(h, &t); }

static const mq_u32 *doze(mq_queue_handle *h, mq_queue_sleep kind) {
    mq_queue_lie_down(h, kind);
    return mq_queue_sleep_word(h, kind);
}

/* ---- files ---- */

TEST(queue_that_does_not_fit_into_its_file_is_rejected) {
    mq_queue_parts found;
    uint64_t bytes = mq_queue_bytes(PLACES, SIZE);
    begin(PLACES);
    CHECK(mq_queue_check(queue, bytes, &found) == MQ_QUEUE_SOUND && found.max_messages == PLACES);
    CHECK(mq_queue_check(queue, bytes - 1, &found) == MQ_QUEUE_FOREIGN);
    static const uint64_t wrong[] = {0, PLACES + 1, MQ_QUEUE_MESSAGES_MAX + 1ull, UINT64_MAX};
    for (unsigned i = 0; i < 4; i++) {
        mq_store_relaxed_u64(&queue->max_messages, wrong[i]);
        CHECK(mq_queue_check(queue, bytes, &found) == MQ_QUEUE_FOREIGN);
    }
    mq_store_relaxed_u64(&queue->max_messages, PLACES);
    mq_store_relaxed_u64(&queue->max_message_size, 0);
    CHECK(mq_queue_check(queue, bytes, &found) == MQ_QUEUE_FOREIGN);
    mq_store_relaxed_u64(&queue->max_message_size, SIZE);
    mq_store_relaxed_u64(&queue->events, 77);
    CHECK(mq_queue_check(queue, bytes, &found) == MQ_QUEUE_SOUND && found.events == MQ_EVENTS_NONE);
    mq_store_relaxed_u64(&queue->version, (uint64_t)(MQ_QUEUE_MAJOR + 1) << 32);
    CHECK(mq_queue_check(queue, bytes, &found) == MQ_QUEUE_VERSION);
}

TEST(queue_plan_has_room_for_each_place) {
    mq_queue_offsets at = mq_queue_plan(65, 65);
    CHECK(mq_queue_blocks(64) == 1 && mq_queue_blocks(65) == 2);
    CHECK(at.heads - at.words >= 65 * sizeof(mq_u64) && at.payloads - at.heads == 65 * sizeof(mq_queue_head));
    CHECK(at.end - at.payloads == 65 * 128 && at.payloads % 64 == 0);
}

/* ---- sending and receiving ---- */

TEST(messages_come_by_priority_and_then_in_the_order_of_sending) {
    static const uint64_t priorities[] = {1, 5, 1, 5}, places[] = {1, 3, 0, 2};
    begin(PLACES);
    for (unsigned i = 0; i < PLACES; i++)
        CHECK(send_one(a, priorities[i]) == i);
    CHECK(mq_queue_hold(a) == MQ_NO_PLACE);
    for (unsigned i = 0; i < PLACES; i++)
        CHECK(take(b) && t.place == places[i] && t.deliveries == 1 && mq_queue_free(b, &t));
    CHECK(!take(b));
}

TEST(commit_makes_the_word_ready_before_it_counts) {
    begin(PLACES);
    send_one(a, 0);
    CHECK(in_order("mq_queue_hold: exchanged word", "mq_queue_hold: counted *entered*",
                   "mq_queue_commit: stored *length", "mq_queue_commit: stored *words*",
                   "mq_queue_commit: counted *ready"));
    CHECK(ready() == 1);
}

static void return_and_send(unsigned time) {
    if (time == 1)
        CHECK(mq_queue_return(b, t.place, t.word));
}

TEST(returned_message_is_found_by_a_scan_that_has_passed_its_place) {
    begin(PLACES);
    send_one(a, 9);
    send_one(a, 1);
    CHECK(take(b) && t.place == 0);
    meet("mq_queue_scan_block: loaded &h->parts.words*", return_and_send); /* after the load of place 0 */
    mq_queue_taken best;
    CHECK(mq_queue_take(c, &best) == MQ_QUEUE_OK && best.place == 0);
    CHECK(best.deliveries == 2);
    CHECK(ready() == 3);
}

TEST(returned_message_wakes_a_receiver_and_is_notified) {
    begin(PLACES);
    send_one(a, 1);
    CHECK(take(a));
    const mq_u32 *word = doze(b, MQ_RECEIVING);
    mq_queue_bit_on(&queue->notified, c->number);
    uint32_t before = arrived();
    CHECK(mq_queue_return(a, t.place, t.word));
    CHECK(wakes(word) == 1 && arrived() == before + 1);
    CHECK(mq_load_acquire_u64(&a->row->owes[1]) == 0);
    CHECK(!mq_queue_return(a, t.place, t.word)); /* it is there already */
    CHECK(ready() == 2 && mq_load_acquire_u64(&a->row->owes[1]) == 0);
}

static uint64_t same_key;

/* A scan finds a key in place 0, and the next scan the same key, of a later message, in place 1. Before that message a
 * better one came to place 0, which the scan had passed. */
static void change_behind_the_scan(unsigned time) {
    if (time == 1) {
        same_key = word_of(0);
        mq_fetch_add_u64(&queue->ready, 1);
    } else if (time == PLACES) { /* the first scan has loaded its last place */
        mq_fetch_add_u64(&a->parts.entered[0], 1);
        mq_store_release_u64(&a->parts.words[0], 0);
    } else if (time == PLACES + 1) { /* the second scan has loaded place 0 */
        mq_fetch_add_u64(&a->parts.entered[0], 2);
        mq_store_release_u64(&a->parts.words[0], mq_word_ready(7, 5));
        mq_store_release_u64(&a->parts.words[1], same_key);
        mq_fetch_add_u64(&queue->ready, 2);
    }
}

TEST(equal_keys_of_two_places_are_two_messages) {
    begin(PLACES);
    send_one(a, 1);
    meet("mq_queue_scan_block: loaded &h->parts.words*", change_behind_the_scan);
    CHECK(take(b) && t.key == mq_word_ready(7, 5));
}

static void send_to_the_first_place(unsigned time) {
    if (time == 1)
        send_one(a, 3);
}

TEST(message_that_comes_to_a_remembered_block_is_found) {
    begin(PLACES);
    CHECK(!take(b)); /* which remembers that the block is empty */
    send_one(a, 1);
    CHECK(receive(b));
    CHECK(!take(b));
    meet("mq_queue_scan_block: loaded *entered*", send_to_the_first_place);
    CHECK(!take(b) || t.place == 1);
    forget_steps();
    CHECK(word_of(1) == t.word || receive(b));
}

TEST(block_with_a_held_or_taken_place_is_not_remembered) {
    begin(PLACES);
    int64_t place = mq_queue_hold(a);
    CHECK(!take(b) && b->met);
    commit(a, place, 1);
    CHECK(take(b));
    CHECK(!take(c) && c->met);
    CHECK(mq_queue_return(b, t.place, t.word));
    CHECK(receive(c));
    CHECK(!take(c) && !c->met);
}

TEST(free_of_a_message_that_came_back_fails) {
    begin(PLACES);
    send_one(a, 1);
    CHECK(take(a));
    mq_queue_taken former = t;
    CHECK(mq_queue_return(b, t.place, t.word));
    CHECK(take(a));
    CHECK(!mq_queue_free(a, &former));
    CHECK(mq_queue_free(a, &t));
    CHECK(mq_load_relaxed_u64(&a->row->counts.acknowledged) == 1);
}

TEST(message_has_nothing_of_the_one_before_it_in_its_place) {
    begin(1);
    send_one(a, 1);
    CHECK(take(b) && mq_queue_return(b, t.place, t.word) && take(b) && t.deliveries == 2);
    mq_queue_lease(b, &t, 10);
    CHECK(mq_queue_free(b, &t));
    send_one(a, 1);
    CHECK(mq_load_relaxed_u64(&a->parts.heads[0].lease) == 0);
    CHECK(take(b) && t.deliveries == 1);
}

TEST(message_longer_than_any_is_reported_and_can_be_freed) {
    begin(PLACES);
    mq_queue_commit(a, (uint64_t)mq_queue_hold(a), SIZE + 1, 0, 1, 0);
    CHECK(mq_queue_take(b, &t) == MQ_QUEUE_CORRUPT && t.word);
    CHECK(mq_queue_free(b, &t) && is_free(0));
    mq_queue_commit(a, (uint64_t)mq_queue_hold(a), SIZE, 0, 1, 0);
    CHECK(mq_queue_take(b, &t) == MQ_QUEUE_OK);
}

/* ---- leases ---- */

static int64_t sweep_at(mq_queue_handle *h, uint32_t tick) {
    return mq_queue_sweep(h, (int64_t)tick * MQ_LEASE_TICK_NS);
}

TEST(lease_of_all_zeros_is_a_lease) {
    uint64_t word = mq_word_taken(0, 0, 1u << 24); /* as the low half of the tick, the row and the take are 0 */
    CHECK(mq_lease_of(word, 0) != 0);
    CHECK(mq_lease_belongs(mq_lease_of(word, 0), word));
}

TEST(lease_belongs_to_the_take_that_it_was_given_to) {
    begin(PLACES);
    send_one(a, 1);
    CHECK(take(b));
    mq_queue_lease(b, &t, 10);
    CHECK(mq_lease_belongs(mq_load_acquire_u64(&b->parts.heads[0].lease), word_of(0)));
    CHECK(sweep_at(c, 9) == MQ_LEASE_TICK_NS && word_of(0) == t.word);
    sweep_at(c, 10);
    CHECK(mq_word_is_ready(word_of(0)));
    CHECK(take(b)); /* without a lease: the former one does not count */
    sweep_at(c, 11);
    CHECK(word_of(0) == t.word);
}

TEST(sweep_asks_in_time_for_the_next_lease) {
    static const uint32_t ends[] = {8, 5, 7};
    begin(PLACES);
    CHECK(sweep_at(c, 1) == MQ_QUEUE_LOOK_NS);
    for (unsigned i = 0; i < 3; i++) {
        send_one(a, 1);
        CHECK(take(b));
        mq_queue_lease(b, &t, ends[i]);
    }
    CHECK(sweep_at(c, 1) == 4 * MQ_LEASE_TICK_NS);
}

/* ---- what the dead left ---- */

TEST(sweep_frees_the_place_of_a_dead_sender_and_wakes_a_sender) {
    begin(1);
    CHECK(mq_queue_hold(a) == 0);
    const mq_u32 *word = doze(b, MQ_SENDING);
    mq_queue_sweep(c, 1);
    CHECK(!is_free(0) && wakes(word) == 0);
    die(a);
    mq_queue_sweep(c, 1);
    CHECK(is_free(0) && wakes(word) == 1);
}

TEST(sweep_brings_back_the_message_of_a_dead_consumer_and_wakes_a_receiver) {
    begin(PLACES);
    send_one(b, 1);
    uint64_t key = word_of(0);
    CHECK(take(a));
    const mq_u32 *word = doze(b, MQ_RECEIVING);
    mq_queue_sweep(c, 1);
    CHECK(word_of(0) == t.word && wakes(word) == 0);
    lives[MQ_QUEUE_ROW_BYTE] = MQ_UNKNOWN;
    mq_queue_sweep(c, 1);
    CHECK(word_of(0) == t.word);
    die(a);
    mq_queue_sweep(c, 1);
    CHECK(word_of(0) == key && wakes(word) == 1);
}

TEST(sweep_takes_nothing_from_its_own_handle) {
    begin(PLACES);
    send_one(a, 1);
    CHECK(take(a));
    CHECK(mq_queue_hold(a) == 1);
    die(a); /* its own lock looks free to it */
    mq_queue_sweep(a, 1);
    CHECK(word_of(0) == t.word && !is_free(1));
}

TEST(sweep_brings_back_what_the_former_owner_of_a_row_had) {
    begin(PLACES);
    send_one(b, 1);
    CHECK(take(a));
    CHECK(mq_queue_hold(a) == 1);
    join(0); /* the row's next owner, who lives */
    mq_queue_sweep(b, 1);
    CHECK(mq_word_is_ready(word_of(0)) && is_free(1));
}

TEST(message_without_a_key_comes_back_as_well) {
    begin(PLACES);
    send_one(a, 1);
    CHECK(take(a));
    mq_store_release_u64(&a->parts.heads[0].key, 0);
    CHECK(mq_queue_return(b, t.place, t.word) && take(b));
}

/* ---- sleeping and waking ---- */

TEST(sleeper_shows_itself_before_a_fence) {
    begin(PLACES);
    doze(a, MQ_RECEIVING);
    CHECK(in_order("mq_attention_announce_many: exchanged word", "mq_queue_bit_on: set *",
                   "mq_queue_bit_on: fenced seq_cst"));
    CHECK(mq_queue_bits_any(&queue->asleep[MQ_RECEIVING]));
    forget_steps();
    mq_queue_get_up(a, MQ_RECEIVING);
    CHECK(in_order("mq_queue_bit_off: cleared *", "mq_queue_bit_off: fenced seq_cst"));
    CHECK(!mq_queue_bits_any(&queue->asleep[MQ_RECEIVING]));
}

TEST(bits_of_the_last_row_are_seen) {
    begin(PLACES);
    mq_queue_bit_on(&queue->asleep[MQ_SENDING], MQ_QUEUE_ROWS - 1);
    CHECK(mq_queue_bits_any(&queue->asleep[MQ_SENDING]));
    CHECK(mq_queue_bit_is_on(&queue->asleep[MQ_SENDING], MQ_QUEUE_ROWS - 1));
    mq_queue_bit_off(&queue->asleep[MQ_SENDING], 0);
    CHECK(mq_queue_bits_any(&queue->asleep[MQ_SENDING]));
}

TEST(each_message_wakes_one_receiver_and_all_watchers) {
    begin(PLACES);
    const mq_u32 *receivers[] = {doze(a, MQ_RECEIVING), doze(b, MQ_RECEIVING)};
    const mq_u32 *watchers[] = {doze(b, MQ_WATCHING), doze(c, MQ_WATCHING)};
    mq_queue_wake_receivers(queue, 1);
    CHECK(wakes(receivers[0]) + wakes(receivers[1]) == 1);
    CHECK(wakes(watchers[0]) == 1 && wakes(watchers[1]) == 1);
    mq_queue_wake_receivers(queue, 2); /* the other one: the first is woken already */
    CHECK(wakes(receivers[0]) == 1 && wakes(receivers[1]) == 1);
}

TEST(free_place_wakes_one_sender) {
    begin(PLACES);
    send_one(a, 1);
    const mq_u32 *words[] = {doze(a, MQ_SENDING), doze(b, MQ_SENDING)};
    CHECK(receive(c));
    CHECK(wakes(words[0]) + wakes(words[1]) == 1);
}

TEST(dropped_place_wakes_a_sender) {
    begin(1);
    CHECK(mq_queue_hold(a) == 0);
    const mq_u32 *word = doze(b, MQ_SENDING);
    mq_queue_drop(a, 0);
    CHECK(is_free(0) && wakes(word) == 1);
}

/* ---- leaving ---- */

TEST(leave_brings_back_what_the_handle_had) {
    begin(PLACES);
    send_one(b, 1);
    CHECK(take(a));
    CHECK(mq_queue_hold(a) == 1 && mq_queue_hold(b) == 2);
    commit(b, mq_queue_hold(b), 1);
    mq_queue_taken other;
    CHECK(mq_queue_take(b, &other) == MQ_QUEUE_OK && other.place == 3);
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(mq_word_is_ready(word_of(0)) && is_free(1) && !is_free(2) && word_of(3) == other.word);
    CHECK(mq_load_acquire_u64(&queue->rows[0].at.who.uid) == 0 && !locks[0]);
}

TEST(leave_passes_a_wake_on_to_a_receiver) {
    begin(PLACES);
    send_one(b, 1); /* it woke `a`, who leaves without it */
    const mq_u32 *word = doze(c, MQ_RECEIVING);
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(wakes(word) == 1);
}

TEST(leave_of_an_empty_queue_wakes_no_receiver) {
    begin(PLACES);
    const mq_u32 *word = doze(c, MQ_RECEIVING);
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(wakes(word) == 0);
}

TEST(leave_passes_free_room_on_to_a_sender) {
    begin(1);
    const mq_u32 *word = doze(c, MQ_SENDING);
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(wakes(word) == 1);
}

TEST(leave_of_a_full_queue_wakes_no_sender) {
    begin(1);
    send_one(b, 1);
    const mq_u32 *word = doze(c, MQ_SENDING);
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(wakes(word) == 0);
}

TEST(leave_notifies_about_messages_that_were_left_to_its_handle) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    doze(a, MQ_RECEIVING);
    send_one(b, 1); /* notifies nobody, because `a` waits */
    uint32_t before = arrived();
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(arrived() == before + 1);
    CHECK(!mq_queue_bit_is_on(&queue->asleep[MQ_RECEIVING], 0));
}

TEST(leave_with_a_debt_notifies) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    send_one(b, 1);
    mq_queue_owe(a->row, 1);
    uint32_t before = arrived();
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(arrived() == before + 1 && mq_load_acquire_u64(&queue->rows[0].owes[1]) == 0);
}

TEST(leave_without_a_debt_notifies_nobody) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    send_one(b, 1);
    uint32_t before = arrived();
    mq_queue_leave(a, 100, &locks[0]);
    CHECK(arrived() == before);
}

TEST(giving_up_passes_the_wake_on_and_notifies) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    send_one(b, 1);
    const mq_u32 *word = doze(c, MQ_RECEIVING);
    uint32_t before = arrived();
    mq_queue_pass_on_message(a);
    CHECK(wakes(word) == 1 && arrived() == before + 1);
}

static void debt_is_noted(void) {
    bool owed = mq_load_relaxed_u64(&queue->rows[0].owes[0]) || mq_load_relaxed_u64(&queue->rows[0].owes[1]);
    CHECK(owed || mq_queue_bit_is_on(&queue->asleep[MQ_RECEIVING], 0) || arrived());
}

TEST(settle_of_a_dead_row_keeps_the_debt_until_it_is_paid) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    doze(a, MQ_RECEIVING);
    mq_queue_bit_on(&queue->notified, a->number);
    send_one(b, 1);
    die(a);
    CHECK(!arrived());
    hold_at_each_step(debt_is_noted);
    mq_queue_settle_dead_rows(b);
    CHECK(arrived() == 1 && mq_queue_row_idle(queue, 0));
    CHECK(mq_queue_bit_is_on(&queue->notified, 2)); /* the other one lives */
}

TEST(settle_leaves_rows_of_the_living) {
    begin(PLACES);
    doze(a, MQ_RECEIVING);
    doze(c, MQ_SENDING);
    mq_queue_settle_dead_rows(b);
    CHECK(mq_queue_bit_is_on(&queue->asleep[MQ_RECEIVING], 0) && mq_queue_bit_is_on(&queue->asleep[MQ_SENDING], 2));
}

/* ---- notifications ---- */

TEST(message_to_an_empty_queue_is_notified_and_a_second_one_is_not) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    send_one(a, 1);
    CHECK(arrived() == 1 && wakes(&queue->arrived) == 1);
    send_one(a, 1);
    CHECK(arrived() == 1);
    CHECK(receive(b) && receive(b));
    doze(b, MQ_RECEIVING);
    send_one(a, 1);
    CHECK(arrived() == 1); /* a receiver waits for it */
}

static void empty_and_refill(unsigned time) {
    if (time != 1)
        return;
    uint64_t key = word_of(0);
    CHECK(receive(b)); /* the queue is empty */
    CHECK(is_free(0));
    mq_fetch_add_u64(&a->parts.entered[0], 1);
    mq_store_release_u64(&a->parts.words[0], key); /* after our message came: an equal key */
}

TEST(message_is_notified_though_its_witness_has_an_equal_successor) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    send_one(a, 1);
    CHECK(arrived() == 1);
    int64_t place = mq_queue_hold(a);
    CHECK(place == 1);
    meet("mq_queue_commit_watched: loaded &h->parts.words*", empty_and_refill);
    commit(a, place, 1);
    CHECK(arrived() == 2);
}

static void empty(unsigned time) {
    if (time == 1)
        CHECK(receive(b));
}

TEST(message_is_notified_when_its_witness_goes_before_it_comes) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    send_one(a, 1);
    int64_t place = mq_queue_hold(a);
    meet("mq_queue_commit_watched: loaded &h->parts.words*", empty);
    commit(a, place, 1);
    CHECK(arrived() == 2);
}

static void want_notifications(unsigned time) {
    if (time == 1)
        mq_queue_bit_on(&queue->notified, c->number);
}

TEST(wish_that_comes_with_a_message_is_fulfilled) {
    begin(PLACES);
    meet("mq_queue_commit: stored &h->parts.words*", want_notifications);
    send_one(a, 1);
    CHECK(arrived() == 1);
}

static void sender_owes(void) {
    CHECK(arrived() || is_free(0) || !mq_word_is_ready(word_of(0)) || mq_load_relaxed_u64(&a->row->owes[0]));
}

TEST(sender_owes_a_notification_from_ready_on) {
    begin(PLACES);
    mq_queue_bit_on(&queue->notified, c->number);
    hold_at_each_step(sender_owes);
    send_one(a, 1);
    CHECK(arrived() == 1 && mq_load_relaxed_u64(&a->row->owes[0]) == 0);
}

/* ---- looking without taking ---- */

static void next_message(unsigned time) {
    if (time == 1)
        CHECK(receive(b) && send_one(a, 1) == 0);
}

TEST(peek_of_a_message_that_was_replaced_fails) {
    mq_queue_waiting it;
    uint8_t room[SIZE];
    begin(1);
    send_one(a, 1);
    CHECK(mq_peek_look(&a->parts, 0, &it) && it.length == 8);
    CHECK(mq_peek_copy(&a->parts, &it, room));
    meet("mq_peek_look: loaded &head->length", next_message);
    CHECK(!mq_peek_look(&a->parts, 0, &it));
    CHECK(mq_peek_look(&a->parts, 0, &it));
    mq_store_relaxed_u64(&a->parts.heads[0].sent_time, 2); /* an equal word of the next message */
    CHECK(!mq_peek_copy(&a->parts, &it, room));
}

/* ---- watching ---- */

TEST(last_watcher_of_a_handle_takes_its_bit_away) {
    mq_queue_outlook outlook;
    begin(PLACES);
    outlook = (mq_queue_outlook){.h = *a};
    mq_queue_watch(&outlook);
    mq_queue_outlook_announce(&outlook, NULL);
    mq_queue_outlook_announce(&outlook, NULL); /* again: it is one watcher */
    CHECK(outlook.watching == 2);
    mq_queue_outlook_awake(&outlook);
    CHECK(mq_queue_bit_is_on(&queue->asleep[MQ_WATCHING], 0));
    mq_queue_unwatch(&outlook);
    CHECK(!mq_queue_bit_is_on(&queue->asleep[MQ_WATCHING], 0));
}

TEST(notice_is_taken_once) {
    mq_queue_notice notice;
    begin(PLACES);
    notice = (mq_queue_notice){.h = *c};
    CHECK(!mq_queue_notice_take(&notice));
    mq_queue_bit_on(&queue->notified, c->number);
    send_one(a, 1);
    CHECK(mq_queue_notice_due(&notice) && mq_queue_notice_take(&notice) && !mq_queue_notice_take(&notice));
}
