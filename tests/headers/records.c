/* Elements of vectors and boards, their writers and their readers. */
#include "steps.h"

#include "records/board.h"

enum { LENGTH = 6, ITEM = 24 };

typedef struct {
    uint64_t words[ITEM / 8];
} item;

static mq_record_header *record;
static mq_record_file_parts parts;
static mq_liveness_file liveness_file;
static mq_record_writer one, two;

static item item_of(uint64_t number) { return (item){{number, number, number}}; }

static void open_writer(mq_record_writer *w, unsigned row) {
    *w = (mq_record_writer){.parts = parts, .liveness_file = &liveness_file};
    mq_record_register_writer(w, row, &me, 100 + row, true);
    lives[MQ_RECORD_ROW_BYTE + row] = MQ_ALIVE;
}

static void begin(uint64_t copies, uint64_t flags) {
    mq_record_config shape = {.length = LENGTH, .item_bytes = ITEM, .copies = copies, .flags = flags};
    forget_steps();
    uint64_t bytes = mq_record_compute_file_bytes(&shape);
    record = zeros(bytes);
    mq_record_header_init(record, &shape, 1, 1, "test");
    CHECK(mq_record_header_check(record, bytes, &parts) == MQ_FILE_VALID);
    CHECK(mq_record_header_check(record, bytes - 1, &parts) == MQ_FILE_NOT_OURS);
    open_writer(&one, 0);
    open_writer(&two, 1);
    forget_steps();
}

static mq_vector_status write_at(mq_record_writer *w, uint64_t index, uint64_t number, int64_t time) {
    item value = item_of(number);
    uint64_t done = 0;
    mq_element_selection which = {.first = index, .count = 1};
    return mq_vector_write_elements(w, &which, (uint8_t *)&value, time, NULL, 0, &done);
}

static bool has(uint64_t index, uint64_t number) {
    item value, expected = item_of(number);
    mq_element_selection which = {.first = index, .count = 1};
    return mq_vector_read_elements(&parts, &which, (uint8_t *)&value) == 1 && !memcmp(&value, &expected, sizeof value);
}

static uint64_t version_of(uint64_t index) { return mq_load_acquire_u64(mq_cell_version_word(&parts, index)); }

/* ---- writing ---- */

TEST(exclusive_write_asks_for_sleepers_after_a_fence) {
    begin(2, MQ_RECORD_EXCLUSIVE);
    mq_eventcount_prepare_wait_mp(&record->eventcount);
    forget_steps();
    CHECK(write_at(&one, 2, 7, 1) == MQ_VECTOR_WRITTEN);
    CHECK(in_order("mq_cell_commit_exclusive_write: stored version", "*: fenced seq_cst",
                   "mq_eventcount_has_waiters_mp: loaded word"));
    CHECK(wakes(&record->eventcount) == 1 && has(2, 7));
}

TEST(shared_write_asks_for_sleepers_after_its_exchange) {
    begin(2, 0);
    mq_eventcount_prepare_wait_mp(&record->eventcount);
    forget_steps();
    CHECK(write_at(&one, 2, 7, 1) == MQ_VECTOR_WRITTEN);
    CHECK(in_order("mq_cell_commit_write: exchanged version", "mq_eventcount_has_waiters_mp: loaded word"));
    CHECK(wakes(&record->eventcount) == 1 && has(2, 7));
    CHECK(mq_load_relaxed_u64(&one.row->written) == 1);
}

TEST(write_fills_a_copy_after_a_fence) {
    begin(2, MQ_RECORD_EXCLUSIVE);
    CHECK(write_at(&one, 2, 7, 1) == MQ_VECTOR_WRITTEN);
    CHECK(in_order("mq_cell_begin_write: fenced release", "mq_cell_begin_write: stored copy", "*: copied to value",
                   "mq_cell_commit_exclusive_write: stored version"));
}

static void old_or_new_value(void) { CHECK(has(2, 7) || has(2, 8)); }

TEST(element_has_the_old_or_the_new_value_at_each_step) {
    for (uint64_t flags = 0; flags <= MQ_RECORD_EXCLUSIVE; flags++) {
        begin(2, flags);
        CHECK(write_at(&one, 2, 7, 1) == MQ_VECTOR_WRITTEN);
        hold_at_each_step(old_or_new_value);
        CHECK(write_at(&one, 2, 8, 2) == MQ_VECTOR_WRITTEN);
        CHECK(has(2, 8));
    }
}

TEST(times_of_writes_do_not_go_back) {
    int64_t written = 0;
    mq_element_selection which = {.first = 2, .count = 1};
    mq_vector_read_info reading = {.write_times_ns = &written};
    begin(2, MQ_RECORD_EXCLUSIVE);
    CHECK(write_at(&one, 2, 7, 1000) == MQ_VECTOR_WRITTEN);
    CHECK(write_at(&one, 2, 8, 990) == MQ_VECTOR_WRITTEN);
    CHECK(mq_vector_read_elements_with_info(&parts, &which, NULL, &reading) == 1 && written == 1000);
    CHECK(write_at(&one, 2, 9, 1001) == MQ_VECTOR_WRITTEN);
    CHECK(mq_vector_read_elements_with_info(&parts, &which, NULL, &reading) == 1 && written == 1001);
}

TEST(times_that_wrap_never_say_never_written) {
    for (uint64_t copies = 2; copies <= 4; copies += 2) {
        begin(copies, MQ_RECORD_EXCLUSIVE);
        mq_store_release_u64(mq_cell_version_word(&parts, 2), (MQ_CELL_WRITE_COUNT_MAX - 1) << MQ_CELL_COUNT_SHIFT);
        for (uint64_t number = 1; number <= 4; number++) {
            CHECK(write_at(&one, 2, number, 1) == MQ_VECTOR_WRITTEN);
            CHECK(mq_cell_write_count(version_of(2)) != 0 && has(2, number));
            CHECK(mq_cell_count_writes_between(&parts, MQ_CELL_WRITE_COUNT_MAX - 1,
                                               mq_cell_write_count(version_of(2))) == number);
        }
    }
}

TEST(write_to_an_element_that_another_one_holds_fails) {
    begin(2, 0);
    CHECK(mq_cell_try_acquire(mq_cell_version_word(&parts, 2), two.owner) == 0);
    CHECK(write_at(&one, 2, 7, 1) == MQ_VECTOR_LOCKED);
    CHECK(mq_cell_version_owner(version_of(2)) == two.owner);
    CHECK(!mq_record_steal_element(&one, mq_cell_version_word(&parts, 2))); /* it lives */
    lives[MQ_RECORD_ROW_BYTE + 1] = MQ_UNKNOWN;
    CHECK(!mq_record_steal_element(&one, mq_cell_version_word(&parts, 2)));
    lives[MQ_RECORD_ROW_BYTE + 1] = MQ_DEAD;
    CHECK(mq_record_steal_element(&one, mq_cell_version_word(&parts, 2)));
    CHECK(mq_cell_version_owner(version_of(2)) == one.owner && mq_cell_write_count(version_of(2)) == 0);
}

static void another_takes(unsigned time) {
    if (time == 1)
        CHECK(mq_cell_try_acquire(mq_cell_version_word(&parts, 2), two.owner) == 0);
}

TEST(take_that_another_one_overtakes_fails) {
    begin(2, 0);
    meet("mq_cell_try_acquire: loaded version", another_takes);
    CHECK(mq_cell_try_acquire(mq_cell_version_word(&parts, 2), one.owner) != 0);
    CHECK(mq_cell_version_owner(version_of(2)) == two.owner);
}

static void holder_changes(unsigned time) {
    if (time != 1)
        return;
    mq_u64 *version = mq_cell_version_word(&parts, 2);
    mq_store_release_u64(version, mq_cell_write_count(version_of(2)) << MQ_CELL_COUNT_SHIFT);
    lives[MQ_RECORD_ROW_BYTE + 1] = MQ_ALIVE;
    open_writer(&two, 1); /* the row has another owner, which holds this element */
    CHECK(mq_cell_try_acquire(version, two.owner) == 0);
}

TEST(wrest_takes_nothing_from_the_next_owner_of_a_row) {
    begin(2, 0);
    CHECK(mq_cell_try_acquire(mq_cell_version_word(&parts, 2), two.owner) == 0);
    lives[MQ_RECORD_ROW_BYTE + 1] = MQ_DEAD;
    meet("mq_record_steal_element: loaded version", holder_changes);
    CHECK(!mq_record_steal_element(&one, mq_cell_version_word(&parts, 2)));
    CHECK(mq_cell_version_owner(version_of(2)) == two.owner);
}

TEST(turn_of_an_element_that_was_wrested_reports_it) {
    begin(2, 0);
    mq_u64 *version = mq_cell_version_word(&parts, 2);
    CHECK(mq_cell_try_acquire(version, one.owner) == 0);
    mq_store_release_u64(version, two.owner);
    CHECK(!mq_cell_commit_write(&parts, version, one.owner));
    CHECK(mq_cell_version_owner(version_of(2)) == two.owner);
}

TEST(join_releases_the_elements_of_the_dead_owner_of_its_row) {
    begin(2, 0);
    CHECK(write_at(&two, 3, 7, 1) == MQ_VECTOR_WRITTEN);
    CHECK(mq_cell_try_acquire(mq_cell_version_word(&parts, 2), one.owner) == 0);
    CHECK(mq_cell_try_acquire(mq_cell_version_word(&parts, 3), two.owner) == 0);
    CHECK(mq_record_acquire_owner_word(&two, &record->owner));
    open_writer(&two, 1);
    CHECK(mq_cell_version_owner(version_of(2)) == one.owner);
    CHECK(mq_cell_version_owner(version_of(3)) == 0 && mq_cell_write_count(version_of(3)) == 1 && has(3, 7));
    CHECK(mq_load_acquire_u64(&record->owner) == 0);
}

TEST(claim_takes_from_the_dead_alone) {
    begin(2, 0);
    CHECK(mq_record_acquire_owner_word(&two, &record->owner));
    CHECK(!mq_record_acquire_owner_word(&one, &record->owner) && !mq_record_acquire_owner_word(&two, &record->owner));
    lives[MQ_RECORD_ROW_BYTE + 1] = MQ_UNKNOWN;
    CHECK(!mq_record_acquire_owner_word(&one, &record->owner));
    lives[MQ_RECORD_ROW_BYTE + 1] = MQ_DEAD;
    CHECK(mq_record_acquire_owner_word(&one, &record->owner) && mq_load_acquire_u64(&record->owner) == one.owner);
    mq_record_release_owner_word(&two, &record->owner); /* another writer owns it by now */
    CHECK(mq_load_acquire_u64(&record->owner) == one.owner);
}

/* ---- reading ---- */

static void write_again(unsigned time) {
    if (time == 1)
        CHECK(write_at(&one, 2, 8, 2) == MQ_VECTOR_WRITTEN);
}

TEST(read_that_one_write_overtakes_with_two_copies_reads_again) {
    begin(2, 0);
    CHECK(write_at(&one, 2, 7, 1) == MQ_VECTOR_WRITTEN);
    meet("mq_vector_read_one: loaded half of *", write_again);
    CHECK(has(2, 8));
    CHECK(met == 2);
}

TEST(read_that_one_write_overtakes_with_four_copies_keeps_its_value) {
    begin(4, 0);
    CHECK(write_at(&one, 2, 7, 1) == MQ_VECTOR_WRITTEN);
    meet("mq_vector_read_one: loaded half of *", write_again);
    CHECK(has(2, 7));
    CHECK(met == 1);
}

TEST(read_compares_versions_after_a_fence) {
    begin(2, 0);
    CHECK(has(2, 0));
    CHECK(in_order("mq_cell_read_begin: loaded version", "*: loaded bytes of *", "mq_cell_read_fence: fenced acquire",
                   "mq_cell_read_valid: loaded version"));
}

static void write_third_of_four(unsigned time) {
    if (time == 1)
        CHECK(write_at(&one, 3, 8, 2) == MQ_VECTOR_WRITTEN);
}

TEST(step_of_four_that_a_write_overtakes_reads_again) {
    item values[LENGTH], expected = item_of(8);
    mq_element_selection all = {.first = 0, .count = LENGTH};
    uint64_t times[LENGTH];
    begin(2, 0);
    meet("mq_vector_read_step: loaded half of *", write_third_of_four);
    CHECK(mq_vector_read_counted(&parts, &all, (uint8_t *)values, times) == LENGTH);
    CHECK(!memcmp(&values[3], &expected, sizeof expected) && times[3] == 1 && times[2] == 0);
}

TEST(changed_finds_each_element_that_was_written) {
    uint64_t seen[LENGTH] = {0};
    int64_t found[LENGTH];
    begin(2, 0);
    CHECK(mq_vector_collect_changed(&parts, seen, 0, found, LENGTH) == 0);
    write_at(&one, 0, 7, 1);
    write_at(&one, LENGTH - 1, 7, 1);
    CHECK(mq_vector_collect_changed(&parts, seen, 0, found, LENGTH) == 2 && found[0] == 0 && found[1] == LENGTH - 1);
    CHECK(mq_vector_collect_changed(&parts, seen, 0, found, 1) == 1);
    CHECK(mq_vector_collect_changed(&parts, seen, 1, found, LENGTH) == 1);
}

TEST(agree_is_false_until_no_element_has_changed) {
    item values[LENGTH], expected = item_of(7);
    uint64_t times[LENGTH];
    mq_element_selection all = {.first = 0, .count = LENGTH};
    begin(2, 0);
    CHECK(mq_vector_read_counted(&parts, &all, (uint8_t *)values, times) == LENGTH);
    CHECK(mq_vector_snapshot_step(&parts, (uint8_t *)values, times));
    write_at(&one, LENGTH - 1, 7, 1);
    CHECK(!mq_vector_snapshot_step(&parts, (uint8_t *)values, times));
    CHECK(!memcmp(&values[LENGTH - 1], &expected, sizeof expected));
    CHECK(mq_vector_snapshot_step(&parts, (uint8_t *)values, times));
}

TEST(has_all_rejects_indices_outside) {
    int64_t list[] = {0, LENGTH - 1};
    begin(2, 0);
    CHECK(mq_vector_indices_are_valid(&parts, list, 2));
    list[1] = LENGTH;
    CHECK(!mq_vector_indices_are_valid(&parts, list, 2));
    list[1] = -1;
    CHECK(!mq_vector_indices_are_valid(&parts, list, 2));
}

TEST(write_goes_on_where_it_was_interrupted) {
    item values[LENGTH];
    uint64_t done = 0;
    mq_element_selection all = {.first = 0, .count = LENGTH};
    begin(2, 0);
    for (uint64_t i = 0; i < LENGTH; i++)
        values[i] = item_of(i + 1);
    CHECK(mq_cell_try_acquire(mq_cell_version_word(&parts, 2), two.owner) == 0);
    CHECK(mq_vector_write_elements(&one, &all, (uint8_t *)values, 1, NULL, 0, &done) == MQ_VECTOR_LOCKED && done == 2);
    CHECK(mq_cell_commit_write(&parts, mq_cell_version_word(&parts, 2), two.owner));
    CHECK(mq_vector_write_elements(&one, &all, (uint8_t *)values, 1, NULL, 0, &done) == MQ_VECTOR_WRITTEN &&
          done == LENGTH);
    for (uint64_t i = 0; i < LENGTH; i++)
        CHECK(has(i, i + 1));
    CHECK(mq_load_relaxed_u64(&one.row->written) == LENGTH);
}

/* ---- boards ---- */

static void name_is_whole(void) {
    if (mq_board_key_count(&parts) == 2)
        CHECK(mq_board_find_key(&parts, "second", 6, 0) == 1);
}

TEST(board_key_is_named_after_its_name_is_whole) {
    begin(2, MQ_RECORD_BOARD);
    CHECK(mq_board_add_key(&parts, "first", 5) == 0);
    hold_at_each_step(name_is_whole);
    CHECK(mq_board_add_key(&parts, "second", 6) == 1);
    forget_steps();
    CHECK(mq_board_find_key(&parts, "first", 5, 0) == 0 && mq_board_find_key(&parts, "second", 6, 0) == 1);
    CHECK(mq_board_find_key(&parts, "sec", 3, 0) == MQ_BOARD_NO_KEY &&
          mq_board_find_key(&parts, "first", 5, 1) == MQ_BOARD_NO_KEY);
    for (unsigned i = 2; i < LENGTH; i++)
        CHECK(mq_board_add_key(&parts, (const char[]){(char)('a' + i)}, 1) == i);
    CHECK(mq_board_add_key(&parts, "more", 4) == MQ_BOARD_NO_KEY);
}

TEST(board_value_has_its_length) {
    mq_board_value_copy value;
    begin(2, MQ_RECORD_BOARD);
    CHECK(mq_board_add_key(&parts, "first", 5) == 0);
    mq_eventcount_prepare_wait_mp(&record->eventcount);
    forget_steps();
    mq_board_write_value(&one, 0, "value", 5, 9);
    CHECK(in_order("mq_cell_commit_exclusive_write: stored version", "*: fenced seq_cst",
                   "mq_eventcount_has_waiters_mp: loaded word"));
    CHECK(wakes(&record->eventcount) == 1);
    const uint8_t *bytes = mq_board_value_read_begin(&parts, 0, &value);
    CHECK(value.length == 5 && value.time_ns == 9 && !memcmp(bytes, "value", 5));
    CHECK(mq_board_value_read_valid(&parts, 0, &value));
    mq_board_write_value(&one, 0, "other", 5, 10);
    CHECK(!mq_board_value_read_valid(&parts, 0, &value));
}

TEST(board_value_longer_than_the_limit_is_corrupt) {
    mq_board_value_copy value;
    begin(2, MQ_RECORD_BOARD);
    mq_u64 *length = mq_cell_value_copy_at(&parts, mq_cell_version_word(&parts, 0), 0) + 1;
    mq_store_relaxed_u64(length, ITEM - 8);
    mq_board_value_read_begin(&parts, 0, &value);
    CHECK(!value.is_corrupt && value.length == ITEM - 8);
    mq_store_relaxed_u64(length, ITEM - 7);
    mq_board_value_read_begin(&parts, 0, &value);
    CHECK(value.is_corrupt && value.length == 0);
}

TEST(leave_lets_go_of_the_keys_of_its_owner_alone) {
    void *liveness_token = &holds[0];
    begin(2, MQ_RECORD_BOARD);
    CHECK(mq_record_acquire_owner_word(&one, &parts.key_table[0].owner) &&
          mq_record_acquire_owner_word(&two, &parts.key_table[1].owner));
    CHECK(mq_record_acquire_owner_word(&one, &parts.key_table[LENGTH - 1].owner) &&
          mq_record_acquire_owner_word(&one, &record->owner));
    mq_record_unregister_writer(&one, 100, &liveness_token);
    CHECK(mq_load_acquire_u64(&parts.key_table[0].owner) == 0 &&
          mq_load_acquire_u64(&parts.key_table[LENGTH - 1].owner) == 0);
    CHECK(mq_load_acquire_u64(&parts.key_table[1].owner) == two.owner && mq_load_acquire_u64(&record->owner) == 0);
    CHECK(mq_load_acquire_u64(&record->rows[0].at.participant.uid) == 0 && !liveness_token);
}
