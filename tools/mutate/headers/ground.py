"""Mutants of rows and their owners, of attention, and of the schema descriptor."""

from tools.mutate.headers.mutant import mutants_of

roster = mutants_of("msgq/impl/base/row_table.h", "base")
attention = mutants_of("msgq/impl/base/eventcount.h", "base")
origin = mutants_of("msgq/impl/base/origin.h", "base")
schema = mutants_of("msgq/impl/base/schema.h", "base")

MUTANTS = [
    roster(
        "a generation is stored after the identity",
        "mq_store_release_u64(&row->generation, generation); mq_identity_write(&row->who, self, uid, held);",
        "mq_identity_write(&row->who, self, uid, held); mq_store_release_u64(&row->generation, generation);",
        "roster_take_stores_the_generation_between_two_owners",
    ),
    roster(
        "a generation is stored while the previous owner is named",
        "mq_identity_clear(&row->who);",
        "",
        "roster_take_stores_the_generation_between_two_owners",
    ),
    roster(
        "a row's next owner has the same generation",
        "mq_load_relaxed_u64(&row->generation) + 1;",
        "mq_load_relaxed_u64(&row->generation) | 1;",
        "roster_take_stores_the_generation_between_two_owners",
    ),
    roster(
        "an identity is written over the previous one",
        "mq_store_release_u64(&who->uid, 0); mq_fence_release();",
        "",
        "identity_is_whole_at_each_step",
    ),
    roster(
        "uid is stored before the lock is said to be held",
        "mq_store_relaxed_u64(&who->held_uid, held ? uid : 0); mq_store_release_u64(&who->uid, uid);",
        "mq_store_release_u64(&who->uid, uid); mq_store_relaxed_u64(&who->held_uid, held ? uid : 0);",
        "identity_is_whole_at_each_step",
    ),
    roster(
        "the lock of an owner is not asked for",
        "if (mq_load_relaxed_u64(&who->held_uid) == uid)",
        "if (mq_load_relaxed_u64(&who->held_uid) == uid && !pid)",
        "identity_life_is_that_of_its_lock",
    ),
    roster(
        "the generation of a word is not compared",
        "if ((uint16_t)mq_load_acquire_u64(&row->generation) != generation) return MQ_DEAD;",
        "(void)generation;",
        "roster_life_of_another_generation_is_dead",
    ),
    roster(
        "a dead row is taken before a free one",
        "!(pass && mq_identity_liveness",
        "!((pass || !pass) && mq_identity_liveness",
        "roster_find_takes_a_free_row_before_a_dead_one",
    ),
    roster(
        "a row whose owner is unknown is taken",
        "mq_identity_liveness(&inquiry, who, byte) == MQ_DEAD))",
        "mq_identity_liveness(&inquiry, who, byte) != MQ_ALIVE))",
        "roster_find_takes_a_free_row_before_a_dead_one",
    ),
    roster(
        "a row whose owner is just leaving is taken",
        "if (*hold || errno != EAGAIN)",
        "if (*hold || errno)",
        "roster_find_passes_over_a_free_row_whose_lock_is_held",
    ),
    roster(
        "a leaving owner clears the row of its next owner",
        "mq_compare_exchange_u64(&who->uid, uid, 0); mq_liveness_unlock(*hold);",
        "(void)uid; mq_identity_clear(who); mq_liveness_unlock(*hold);",
        "identity_leave_leaves_the_row_of_its_next_owner",
    ),
    roster(
        "a leaving owner releases its lock first",
        "mq_compare_exchange_u64(&who->uid, uid, 0); mq_liveness_unlock(*hold);",
        "mq_liveness_unlock(*hold); mq_compare_exchange_u64(&who->uid, uid, 0);",
        "identity_leave_leaves_the_row_of_its_next_owner",
    ),
    attention(
        "one writer: no fence after the announcement",
        "mq_fence_seq_cst(); return before | MQ_ATTENTION_WAITERS;",
        "return before | MQ_ATTENTION_WAITERS;",
        "attention_of_one_writer_is_announced_before_and_asked_after_a_fence",
    ),
    attention(
        "one writer: no fence before the flag is loaded",
        "mq_fence_seq_cst(); return mq_load_relaxed_u32(word)",
        "return mq_load_relaxed_u32(word)",
        "attention_of_one_writer_is_announced_before_and_asked_after_a_fence",
    ),
    attention(
        "one writer: a wake is not counted",
        "(old & ~(uint32_t)MQ_ATTENTION_FLAGS) + MQ_ATTENTION_WAKE) &&",
        "old & ~(uint32_t)MQ_ATTENTION_FLAGS) &&",
        "attention_of_one_writer_is_announced_before_and_asked_after_a_fence",
    ),
    attention(
        "one writer: all are woken for a flag of the owner",
        "if (old & MQ_ATTENTION_WAITERS) mq_futex_wake_all(mq_futex_word(word)); return old",
        "mq_futex_wake_all(mq_futex_word(word)); return old",
        "attention_of_one_writer_is_announced_before_and_asked_after_a_fence",
    ),
    attention(
        "several writers: no fence after the announcement",
        "mq_fence_seq_cst(); return announced;",
        "return announced;",
        "attention_of_many_writers_is_announced_before_a_fence",
    ),
    attention(
        "several writers: an announcement leaves the flag of a wake",
        "announced = (old | MQ_ATTENTION_WAITERS) & ~(uint32_t)MQ_ATTENTION_WAKING;",
        "announced = old | MQ_ATTENTION_WAITERS;",
        "wake_many_keeps_an_announcement_that_comes_during_the_wake",
    ),
    attention(
        "several writers: the announcement is taken away before the wake",
        "mq_futex_wake_all(mq_futex_word(word)); mq_compare_exchange_u32(word, waking, waking & "
        "~(uint32_t)MQ_ATTENTION_FLAGS);",
        "mq_compare_exchange_u32(word, waking, waking & ~(uint32_t)MQ_ATTENTION_FLAGS); "
        "mq_futex_wake_all(mq_futex_word(word));",
        "wake_many_wakes_before_it_takes_the_announcement_away",
    ),
    attention(
        "several writers: a wake is not counted",
        "waking = (old | MQ_ATTENTION_WAKING) + MQ_ATTENTION_WAKE;",
        "waking = old | MQ_ATTENTION_WAKING;",
        "wake_many_wakes_before_it_takes_the_announcement_away",
    ),
    attention(
        "several writers: two wakes of one announcement count for two",
        "return !(old & MQ_ATTENTION_WAKING);",
        "return true;",
        "wake_many_of_two_counts_for_one",
    ),
    attention(
        "several writers: a wake takes later announcements away",
        "mq_compare_exchange_u32(word, waking, waking & ~(uint32_t)MQ_ATTENTION_FLAGS);",
        "mq_fetch_and_u32(word, ~(uint32_t)MQ_ATTENTION_FLAGS);",
        "wake_many_keeps_an_announcement_that_comes_during_the_wake",
    ),
    schema(
        "a schema is written over the former one in an even turn",
        "mq_store_relaxed_u64(at->turn, turn); mq_fence_release();",
        "mq_fence_release();",
        "schema_is_the_old_or_the_new_one_at_each_step",
    ),
    schema(
        "a schema has no spare",
        "mq_schema_save(at, ++turn, name, encoding, data, bytes);",
        "++turn;",
        "schema_is_the_old_or_the_new_one_at_each_step",
    ),
    schema(
        "a spare overlaps the schema that is there",
        "offset < bytes || offset < present)",
        "offset < bytes)",
        "large_schema_is_whole_or_unreadable_at_each_step",
    ),
    schema(
        "a killed writer's schema is not completed",
        "if (spare) {",
        "if (spare && !bytes) {",
        "large_schema_is_whole_or_unreadable_at_each_step",
    ),
    schema(
        "a copy is not validated",
        "if (mq_load_relaxed_u64(at->turn) == turn) return true;",
        "return true;",
        "schema_read_that_a_writer_overtakes_reads_again",
    ),
    schema(
        "a spare beyond the room is read",
        "offset & 7 || offset > room ||",
        "offset & 7 ||",
        "schema_read_rejects_a_spare_beyond_the_room",
    ),
    schema(
        "a length beyond the room is believed",
        "if (*bytes > at->room) continue;",
        "",
        "schema_read_rejects_a_spare_beyond_the_room",
    ),
    origin(
        "two origins within a nanosecond are one",
        "next = seen - now < MQ_ORIGIN_AHEAD_NS ? seen + 1 : now;",
        "next = seen - now < MQ_ORIGIN_AHEAD_NS ? seen : now;",
        "origins_differ_also_within_a_nanosecond",
        "origin_that_another_one_takes_is_not_given_twice",
    ),
    origin(
        "an origin of invalid data is continued",
        "seen - now < MQ_ORIGIN_AHEAD_NS ?",
        "seen >= now ?",
        "origins_differ_also_within_a_nanosecond",
    ),
    origin(
        "origins of one call are not taken",
        "mq_compare_exchange_u64(last, seen, next + count - 1)",
        "mq_compare_exchange_u64(last, seen, next + 0 * count)",
        "origins_differ_also_within_a_nanosecond",
    ),
    origin(
        "an origin is stored without an exchange",
        "if (mq_compare_exchange_u64(last, seen, next + count - 1)) break;",
        "mq_store_relaxed_u64(last, next + count - 1); break;",
        "origin_that_another_one_takes_is_not_given_twice",
    ),
    attention(
        "several writers: an announcement that fails looks as if it had succeeded",
        "return announced;",
        "return mq_load_relaxed_u32(word);",
        "attention_that_changes_all_the_time_ends_and_wakes",
    ),
]
