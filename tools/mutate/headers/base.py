"""Mutants of rows and their owners, of eventcount, and of the schema descriptor."""

from tools.mutate.headers.mutant import mutants_of

row_table = mutants_of("msgq/impl/base/row_table.h", "base")
eventcount = mutants_of("msgq/impl/base/eventcount.h", "base")
origin = mutants_of("msgq/impl/base/origin.h", "base")
schema = mutants_of("msgq/impl/base/schema.h", "base")
directory = mutants_of("msgq/impl/base/directory.h", "files")

MUTANTS = [
    directory(
        "a link in place of a checked directory is followed",
        ".resolve = 4",
        ".resolve = 0",
        "link_that_replaces_the_directory_after_its_check_is_not_followed",
    ),
    directory(
        "a link to a directory is a directory",
        "if (!S_ISDIR(status->st_mode))",
        "if (!S_ISDIR(status->st_mode) && !S_ISLNK(status->st_mode))",
        "directory_of_a_prefix_is_used_and_a_link_to_it_is_refused",
        "kernel_without_openat2_uses_the_directory_and_refuses_a_link_to_it",
    ),
    row_table(
        "a generation is stored after the identity",
        "mq_store_release_u64(&row->generation, generation); mq_participant_write(&row->participant, self, uid, held);",
        "mq_participant_write(&row->participant, self, uid, held); mq_store_release_u64(&row->generation, generation);",
        "row_table_take_stores_the_generation_between_two_owners",
    ),
    row_table(
        "a generation is stored while the previous owner is named",
        "mq_participant_clear(&row->participant);",
        "",
        "row_table_take_stores_the_generation_between_two_owners",
    ),
    row_table(
        "a row's next owner has the same generation",
        "mq_load_relaxed_u64(&row->generation) + 1;",
        "mq_load_relaxed_u64(&row->generation) | 1;",
        "row_table_take_stores_the_generation_between_two_owners",
    ),
    row_table(
        "an identity is written over the previous one",
        "mq_store_release_u64(&participant->uid, 0); mq_fence_release();",
        "",
        "identity_is_whole_at_each_step",
    ),
    row_table(
        "uid is stored before the lock is said to be held",
        "mq_store_relaxed_u64(&participant->locked_uid, held ? uid : 0); mq_store_release_u64(&participant->uid, uid);",
        "mq_store_release_u64(&participant->uid, uid); mq_store_relaxed_u64(&participant->locked_uid, held ? uid : 0);",
        "identity_is_whole_at_each_step",
    ),
    row_table(
        "the lock of an owner is not asked for",
        "if (mq_load_relaxed_u64(&participant->locked_uid) == uid)",
        "if (mq_load_relaxed_u64(&participant->locked_uid) == uid && !pid)",
        "identity_life_is_that_of_its_lock",
    ),
    row_table(
        "the generation of a word is not compared",
        "if ((uint16_t)mq_load_acquire_u64(&row->generation) != generation) return MQ_DEAD;",
        "(void)generation;",
        "row_table_life_of_another_generation_is_dead",
    ),
    row_table(
        "a dead row is taken before a free one",
        "!(pass && mq_participant_liveness",
        "!((pass || !pass) && mq_participant_liveness",
        "row_table_find_takes_a_free_row_before_a_dead_one",
    ),
    row_table(
        "a row whose owner is unknown is taken",
        "mq_participant_liveness(&probe, participant, byte) == MQ_DEAD))",
        "mq_participant_liveness(&probe, participant, byte) != MQ_ALIVE))",
        "row_table_find_takes_a_free_row_before_a_dead_one",
    ),
    row_table(
        "a row whose owner is just leaving is taken",
        "if (*liveness_token || errno != EAGAIN)",
        "if (*liveness_token || errno)",
        "row_table_find_passes_over_a_free_row_whose_lock_is_held",
    ),
    row_table(
        "a leaving owner clears the row of its next owner",
        "mq_compare_exchange_u64(&participant->uid, uid, 0); mq_liveness_unlock(*liveness_token);",
        "(void)uid; mq_participant_clear(participant); mq_liveness_unlock(*liveness_token);",
        "identity_leave_leaves_the_row_of_its_next_owner",
    ),
    row_table(
        "a leaving owner releases its lock first",
        "mq_compare_exchange_u64(&participant->uid, uid, 0); mq_liveness_unlock(*liveness_token);",
        "mq_liveness_unlock(*liveness_token); mq_compare_exchange_u64(&participant->uid, uid, 0);",
        "identity_leave_leaves_the_row_of_its_next_owner",
    ),
    eventcount(
        "one writer: no fence after the announcement",
        "mq_fence_seq_cst(); return before | MQ_EVENTCOUNT_WAITERS;",
        "return before | MQ_EVENTCOUNT_WAITERS;",
        "eventcount_of_one_writer_is_announced_before_and_asked_after_a_fence",
    ),
    eventcount(
        "one writer: no fence before the flag is loaded",
        "mq_fence_seq_cst(); return mq_load_relaxed_u32(word)",
        "return mq_load_relaxed_u32(word)",
        "eventcount_of_one_writer_is_announced_before_and_asked_after_a_fence",
    ),
    eventcount(
        "one writer: a wake is not counted",
        "(old & ~(uint32_t)MQ_EVENTCOUNT_FLAGS) + MQ_EVENTCOUNT_WAKE) &&",
        "old & ~(uint32_t)MQ_EVENTCOUNT_FLAGS) &&",
        "eventcount_of_one_writer_is_announced_before_and_asked_after_a_fence",
    ),
    eventcount(
        "one writer: all are woken for a flag of the owner",
        "if (old & MQ_EVENTCOUNT_WAITERS) mq_futex_wake_all(mq_futex_word(word)); return old",
        "mq_futex_wake_all(mq_futex_word(word)); return old",
        "eventcount_of_one_writer_is_announced_before_and_asked_after_a_fence",
    ),
    eventcount(
        "several writers: no fence after the announcement",
        "mq_fence_seq_cst(); return announced;",
        "return announced;",
        "eventcount_of_many_writers_is_announced_before_a_fence",
    ),
    eventcount(
        "several writers: an announcement leaves the flag of a wake",
        "announced = (old | MQ_EVENTCOUNT_WAITERS) & ~(uint32_t)MQ_EVENTCOUNT_NOTIFYING;",
        "announced = old | MQ_EVENTCOUNT_WAITERS;",
        "wake_many_keeps_an_announcement_that_comes_during_the_wake",
    ),
    eventcount(
        "several writers: the announcement is taken away before the wake",
        "mq_futex_wake_all(mq_futex_word(word)); mq_compare_exchange_u32(word, waking, waking & "
        "~(uint32_t)MQ_EVENTCOUNT_FLAGS);",
        "mq_compare_exchange_u32(word, waking, waking & ~(uint32_t)MQ_EVENTCOUNT_FLAGS); "
        "mq_futex_wake_all(mq_futex_word(word));",
        "wake_many_wakes_before_it_takes_the_announcement_away",
    ),
    eventcount(
        "several writers: a wake is not counted",
        "waking = (old | MQ_EVENTCOUNT_NOTIFYING) + MQ_EVENTCOUNT_WAKE;",
        "waking = old | MQ_EVENTCOUNT_NOTIFYING;",
        "wake_many_wakes_before_it_takes_the_announcement_away",
    ),
    eventcount(
        "several writers: two wakes of one announcement count for two",
        "return !(old & MQ_EVENTCOUNT_NOTIFYING);",
        "return true;",
        "wake_many_of_two_counts_for_one",
    ),
    eventcount(
        "several writers: a wake takes later announcements away",
        "mq_compare_exchange_u32(word, waking, waking & ~(uint32_t)MQ_EVENTCOUNT_FLAGS);",
        "mq_fetch_and_u32(word, ~(uint32_t)MQ_EVENTCOUNT_FLAGS);",
        "wake_many_keeps_an_announcement_that_comes_during_the_wake",
    ),
    schema(
        "a schema is written over the former one in an even turn",
        "mq_store_relaxed_u64(parts->seq, seq); mq_fence_release();",
        "mq_fence_release();",
        "schema_is_the_old_or_the_new_one_at_each_step",
    ),
    schema(
        "a schema has no shadow",
        "mq_schema_write_shadow(parts, ++seq, name, encoding, data, bytes);",
        "++seq;",
        "schema_is_the_old_or_the_new_one_at_each_step",
    ),
    schema(
        "a shadow overlaps the schema that is there",
        "offset < bytes || offset < present)",
        "offset < bytes)",
        "large_schema_is_whole_or_unreadable_at_each_step",
    ),
    schema(
        "a killed writer's schema is not completed",
        "if (shadow) {",
        "if (shadow && !bytes) {",
        "large_schema_is_whole_or_unreadable_at_each_step",
    ),
    schema(
        "a copy is not validated",
        "if (mq_load_relaxed_u64(parts->seq) == seq) return true;",
        "return true;",
        "schema_read_that_a_writer_overtakes_reads_again",
    ),
    schema(
        "a shadow beyond the room is read",
        "offset & 7 || offset > room ||",
        "offset & 7 ||",
        "schema_read_rejects_a_shadow_beyond_the_room",
    ),
    schema(
        "a length beyond the room is believed",
        "if (*bytes > parts->room) continue;",
        "",
        "schema_read_rejects_a_shadow_beyond_the_room",
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
    eventcount(
        "several writers: an announcement that fails looks as if it had succeeded",
        "return announced;",
        "return mq_load_relaxed_u32(word);",
        "eventcount_that_changes_all_the_time_ends_and_wakes",
    ),
    schema(
        "a copy is accepted while the next change is being made",
        "if (mq_load_relaxed_u64(parts->seq) == seq) return true;",
        "if (mq_load_relaxed_u64(parts->seq) - seq <= 1) return true;",
        "schema_read_that_a_killed_writer_overtakes_reads_its_shadow",
    ),
]
