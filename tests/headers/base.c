/* Rows and their owners, eventcount, and the schema descriptor. */
#include "steps.h"

#include "base/eventcount.h"
#include "base/origin.h"
#include "base/row_table.h"
#include "base/schema.h"

enum { ROWS = 3, FIRST_BYTE = 7, ROOM = 1024 };

static mq_versioned_row rows[ROWS];
static const mq_row_table row_table = {.rows = rows, .stride = sizeof *rows, .count = ROWS, .byte = FIRST_BYTE};
static mq_liveness_file liveness_file;
static mq_u32 word;

static void begin(void) {
    memset((void *)rows, 0, sizeof rows);
    memset((void *)&word, 0, sizeof word);
    forget_steps();
}

/* ---- rows ---- */

static void owner_has_its_generation(void) {
    uint64_t uid = mq_load_acquire_u64(&rows[1].participant.uid);
    CHECK(uid == 0 || mq_load_acquire_u64(&rows[1].generation) == (uid == 10 ? 1 : 2));
}

TEST(row_table_take_stores_the_generation_between_two_owners) {
    begin();
    for (uint64_t uid = 10; uid <= 20; uid += 10) {
        hold_at_each_step(owner_has_its_generation);
        CHECK(mq_row_table_occupy(&rows[1], &me, uid, true) == uid / 10);
    }
}

static void identity_is_whole(void) {
    uint64_t uid = mq_load_acquire_u64(&rows[1].participant.uid);
    if (uid)
        CHECK(mq_load_relaxed_u64(&rows[1].participant.locked_uid) == uid &&
              mq_load_relaxed_u64(&rows[1].participant.pid) == me.pid && !strcmp(rows[1].participant.name, me.name));
}

TEST(identity_is_whole_at_each_step) {
    begin();
    for (uint64_t uid = 10; uid <= 20; uid += 10) {
        hold_at_each_step(identity_is_whole);
        mq_participant_write(&rows[1].participant, &me, uid, true);
        CHECK(mq_load_acquire_u64(&rows[1].participant.uid) == uid);
    }
}

TEST(identity_life_is_that_of_its_lock) {
    begin();
    mq_liveness_probe probe = mq_liveness_probe_begin(&liveness_file);
    CHECK(mq_participant_liveness(&probe, &rows[1].participant, FIRST_BYTE + 1) == MQ_DEAD);
    mq_participant_write(&rows[1].participant, &me, 10, true);
    lives[FIRST_BYTE + 1] = MQ_ALIVE;
    CHECK(mq_participant_liveness(&probe, &rows[1].participant, FIRST_BYTE + 1) == MQ_ALIVE);
    lives[FIRST_BYTE + 1] = MQ_UNKNOWN;
    CHECK(mq_participant_liveness(&probe, &rows[1].participant, FIRST_BYTE + 1) == MQ_UNKNOWN);
}

TEST(row_table_life_of_another_generation_is_dead) {
    begin();
    mq_liveness_probe probe = mq_liveness_probe_begin(&liveness_file);
    lives[FIRST_BYTE + 1] = MQ_ALIVE;
    uint16_t generation = mq_row_table_occupy(&rows[1], &me, 10, true);
    CHECK(mq_row_liveness(&probe, &rows[1], generation, FIRST_BYTE + 1) == MQ_ALIVE);
    CHECK(mq_row_liveness(&probe, &rows[1], generation + 1, FIRST_BYTE + 1) == MQ_DEAD);
}

TEST(row_table_find_takes_a_free_row_before_a_dead_one) {
    void *liveness_token = NULL;
    begin();
    mq_row_table_occupy(&rows[0], &me, 10, true); /* dead */
    CHECK(mq_row_table_reserve(&row_table, &liveness_file, &liveness_token) == 1);
    CHECK(liveness_token == &holds[FIRST_BYTE + 1]);
    mq_row_table_occupy(&rows[1], &me, 20, true);
    mq_row_table_occupy(&rows[2], &me, 30, true);
    lives[FIRST_BYTE + 1] = lives[FIRST_BYTE + 2] = MQ_ALIVE;
    CHECK(mq_row_table_reserve(&row_table, &liveness_file, &liveness_token) == 0);
    lives[FIRST_BYTE] = MQ_UNKNOWN;
    CHECK(mq_row_table_reserve(&row_table, &liveness_file, &liveness_token) == MQ_NO_ROW);
}

TEST(row_table_find_passes_over_a_free_row_whose_lock_is_held) {
    void *liveness_token = NULL;
    begin();
    lives[FIRST_BYTE] = MQ_ALIVE; /* its owner is just leaving */
    CHECK(mq_row_table_reserve(&row_table, &liveness_file, &liveness_token) == 1);
}

TEST(identity_leave_leaves_the_row_of_its_next_owner) {
    void *liveness_token = &holds[FIRST_BYTE];
    begin();
    mq_participant_write(&rows[0].participant, &me, 20, true);
    mq_participant_leave(&rows[0].participant, 10, &liveness_token);
    CHECK(mq_load_acquire_u64(&rows[0].participant.uid) == 20 && !liveness_token);
    liveness_token = &holds[FIRST_BYTE];
    forget_steps();
    mq_participant_leave(&rows[0].participant, 20, &liveness_token);
    CHECK(mq_load_acquire_u64(&rows[0].participant.uid) == 0);
    CHECK(in_order("mq_participant_leave: exchanged *", "mq_participant_leave: let go of *"));
}

/* ---- eventcount ---- */

TEST(eventcount_of_one_writer_is_announced_before_and_asked_after_a_fence) {
    begin();
    uint32_t expected = mq_eventcount_prepare_wait(&word);
    CHECK(expected == mq_load_acquire_u32(&word));
    CHECK(in_order("mq_eventcount_prepare_wait: set word", "mq_eventcount_prepare_wait: fenced seq_cst"));
    CHECK(mq_eventcount_load_flags(&word));
    CHECK(in_order("mq_eventcount_load_flags: fenced seq_cst", "mq_eventcount_load_flags: loaded word"));
    CHECK(mq_eventcount_notify(&word) == MQ_EVENTCOUNT_WAITERS);
    CHECK(wakes(&word) == 1 && !mq_eventcount_load_flags(&word) && mq_load_acquire_u32(&word) != expected);
    CHECK(in_order("mq_eventcount_notify: exchanged word", "mq_eventcount_notify: woke *"));
    mq_eventcount_notify(&word);
    CHECK(wakes(&word) == 1); /* no sleeper announced itself */
    CHECK(mq_eventcount_prepare_wait(&word) !=
          expected); /* so a sleeper that is woken before it sleeps does not sleep */
}

TEST(eventcount_of_many_writers_is_announced_before_a_fence) {
    begin();
    uint32_t expected = mq_eventcount_prepare_wait_mp(&word);
    CHECK(expected == mq_load_acquire_u32(&word));
    CHECK(in_order("mq_eventcount_prepare_wait_mp: exchanged word", "mq_eventcount_prepare_wait_mp: fenced seq_cst"));
    CHECK(mq_eventcount_prepare_wait_mp(&word) == expected); /* by a second sleeper */
}

TEST(wake_many_wakes_before_it_takes_the_announcement_away) {
    begin();
    uint32_t expected = mq_eventcount_prepare_wait_mp(&word);
    forget_steps();
    CHECK(mq_eventcount_notify_mp(&word));
    CHECK(in_order("*: exchanged word", "*: woke *", "*: exchanged word"));
    CHECK(!mq_eventcount_has_waiters_mp(&word) && mq_load_acquire_u32(&word) != expected);
    CHECK(!mq_eventcount_notify_mp(&word));
    CHECK(wakes(&word) == 1);
    CHECK(mq_eventcount_prepare_wait_mp(&word) !=
          expected); /* so a sleeper that is woken before it sleeps does not sleep */
}

static bool counted;
static void another_wakes(unsigned time) {
    if (time == 1)
        counted = mq_eventcount_notify_mp(&word);
}

TEST(wake_many_of_two_counts_for_one) {
    begin();
    mq_eventcount_prepare_wait_mp(&word);
    meet("mq_eventcount_notify_mp: exchanged word", another_wakes);
    CHECK(mq_eventcount_notify_mp(&word) && !counted);
    CHECK(wakes(&word) == 2);
}

static void another_announces(unsigned time) {
    if (time == 1)
        mq_eventcount_prepare_wait_mp(&word);
}

TEST(wake_many_keeps_an_announcement_that_comes_during_the_wake) {
    begin();
    mq_eventcount_prepare_wait_mp(&word);
    meet("mq_eventcount_notify_mp: woke *", another_announces);
    CHECK(mq_eventcount_notify_mp(&word));
    CHECK(mq_eventcount_has_waiters_mp(&word));
    CHECK(mq_eventcount_notify_mp(&word)); /* which counts */
}

/* ---- origins ---- */

static mq_u64 last;

TEST(origins_differ_also_within_a_nanosecond) {
    memset((void *)&last, 0, sizeof last);
    CHECK(mq_origin_allocate(&last, 1000, 1) == 1000 && mq_origin_allocate(&last, 1000, 5) == 1001);
    CHECK(mq_origin_allocate(&last, 1000, 1) == 1006 && mq_origin_allocate(&last, 2000, 1) == 2000);
    CHECK(mq_origin_allocate(&last, 1999, 1) == 2001);
    mq_store_relaxed_u64(&last, UINT64_MAX / 2); /* invalid data */
    CHECK(mq_origin_allocate(&last, 3000, 1) == 3000);
}

static void another_takes_it(unsigned time) {
    if (time == 1)
        mq_origin_allocate(&last, 1000, 1);
}

TEST(origin_that_another_one_takes_is_not_given_twice) {
    memset((void *)&last, 0, sizeof last);
    meet("mq_origin_allocate: loaded last", another_takes_it);
    CHECK(mq_origin_allocate(&last, 1000, 1) == 1001);
}

/* ---- bounds ---- */

static void word_changes(unsigned time) {
    (void)time;
    mq_fetch_add_u32(&word, MQ_EVENTCOUNT_WAKE);
}

TEST(eventcount_that_changes_all_the_time_ends_and_wakes) {
    begin();
    mq_eventcount_prepare_wait_mp(&word);
    meet("*: loaded word", word_changes);
    mq_eventcount_notify_mp(&word);
    CHECK(met == MQ_EVENTCOUNT_TRIES && wakes(&word) == 1);
    meet("*: loaded word", word_changes);
    CHECK(mq_eventcount_prepare_wait_mp(&word) != mq_load_acquire_u32(&word)); /* so no sleeper sleeps on it */
    CHECK(met == MQ_EVENTCOUNT_TRIES);
    meet("*: loaded word", word_changes);
    mq_eventcount_notify(&word);
    CHECK(met == MQ_EVENTCOUNT_TRIES && wakes(&word) == 1);
}

/* ---- schemas ---- */

static mq_schema *schema;
static mq_schema_parts parts;
static char name[MQ_SCHEMA_NAME], encoding[MQ_SCHEMA_ENCODING], data[ROOM];
static uint64_t bytes;

static bool reads(const char *expected) {
    memset(name, 0, sizeof name);
    return mq_schema_read(&parts, name, encoding, data, &bytes) && !strncmp(name, expected, sizeof name) &&
           bytes == strlen(expected) && !memcmp(data, expected, bytes);
}

static void one_of_two_is_there(void) { CHECK(reads("first") || reads("second, longer")); }

static void begin_schema(void) {
    schema = zeros(sizeof *schema + ROOM);
    parts = mq_schema_parts_from_block(schema, (char *)(schema + 1), ROOM);
    mq_schema_write(&parts, "first", "text", "first", 5);
}

TEST(schema_is_the_old_or_the_new_one_at_each_step) {
    begin_schema();
    hold_at_each_step(one_of_two_is_there);
    mq_schema_write(&parts, "second, longer", "text", "second, longer", 14);
    CHECK(reads("second, longer"));
}

TEST(schema_of_a_killed_writer_is_completed_by_the_next_one) {
    begin_schema();
    mq_schema_write_shadow(&parts, 3, "second", "text", "second", 6);
    mq_store_relaxed_u64(parts.seq, 3); /* killed here */
    CHECK(reads("second"));
    mq_schema_write(&parts, "second", "text", "second", 6);
    CHECK(mq_load_acquire_u64(parts.seq) == 4 && reads("second"));
}

/* More than half of the room: it has no spare copy, and overlaps the first word, the length, of another one's spare. */
enum { SHADOW_AT = ROOM - sizeof(mq_schema_shadow) - 8, LARGE = SHADOW_AT + 1 };
static char large[LARGE + 1];

static void each_schema_is_whole(void) {
    if (mq_schema_read(&parts, name, encoding, data, &bytes))
        CHECK(reads("first") || reads("second") || reads(large));
}

TEST(large_schema_is_whole_or_unreadable_at_each_step) {
    memset(large, 'x', LARGE);
    large[SHADOW_AT] = 1;
    begin_schema();
    mq_schema_write_shadow(&parts, 3, "second", "text", "second", 6);
    mq_store_relaxed_u64(parts.seq, 3); /* its writer was killed here */
    hold_at_each_step(each_schema_is_whole);
    mq_schema_write(&parts, large, "text", large, LARGE);
    CHECK(reads(large));
    mq_schema_write(&parts, "first", "text", "first", 5);
    CHECK(reads("first"));
}

static void another_describes(unsigned time) {
    if (time == 1)
        mq_schema_write(&parts, "second", "text", "second", 6);
}

TEST(schema_read_that_a_writer_overtakes_reads_again) {
    begin_schema();
    meet("mq_schema_read: loaded bytes of coded", another_describes);
    CHECK(reads("second"));
    CHECK(met == 2);
}

static void another_is_killed(unsigned time) {
    if (time > 1)
        return;
    mq_schema_write_shadow(&parts, 3, "second", "text", "second", 6);
    mq_store_release_u64(parts.seq, 3);
    mq_copy_to_shared(parts.data, "seco", 4); /* killed here */
}

TEST(schema_read_that_a_killed_writer_overtakes_reads_its_shadow) {
    begin_schema();
    meet("mq_schema_read: loaded bytes of coded", another_is_killed);
    CHECK(reads("second"));
}

TEST(schema_read_rejects_a_shadow_beyond_the_room) {
    begin_schema();
    mq_store_release_u64(parts.seq, 3);
    mq_store_release_u64(parts.shadow, (uint64_t)3 << 32 | ROOM);
    CHECK(!mq_schema_read(&parts, name, encoding, data, &bytes));
    mq_store_release_u64(parts.seq, 2);
    mq_store_release_u64(parts.bytes, ROOM + 1);
    CHECK(!mq_schema_read(&parts, name, encoding, data, &bytes));
}
