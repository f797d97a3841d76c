"""Mutants of vectors and boards."""

from tools.mutate.headers.mutant import mutants_of

cell = mutants_of("msgq/impl/records/cell.h", "records")
writer = mutants_of("msgq/impl/records/writer.h", "records")
vector = mutants_of("msgq/impl/records/vector.h", "records")
board = mutants_of("msgq/impl/records/board.h", "records")
layout = mutants_of("msgq/impl/records/layout.h", "records")

MUTANTS = [
    writer(
        "a record write lacks the fence after its store",
        "if (exclusive) mq_fence_seq_cst();",
        "(void)exclusive;",
        "exclusive_write_asks_for_sleepers_after_a_fence",
        "board_value_has_its_length",
    ),
    writer(
        "a write wakes nobody",
        "mq_eventcount_notify_mp(eventcount);",
        "(void)eventcount;",
        "exclusive_write_asks_for_sleepers_after_a_fence",
        "shared_write_asks_for_sleepers_after_its_exchange",
        "board_value_has_its_length",
    ),
    writer(
        "writes are counted once a call",
        "mq_load_relaxed_u64(written) + elements);",
        "mq_load_relaxed_u64(written) + (elements > 0));",
        "write_goes_on_where_it_was_interrupted",
    ),
    writer(
        "an element is taken from a holder of unknown liveness",
        "mq_record_owner_liveness(w->parts.header, &probe, holder) == MQ_DEAD;",
        "mq_record_owner_liveness(w->parts.header, &probe, holder) != MQ_ALIVE;",
        "write_to_an_element_that_another_one_holds_fails",
    ),
    writer(
        "the version that is taken is loaded after the question",
        "return is_dead && mq_cell_steal_ownership(version, held, w->owner);",
        "return is_dead && mq_cell_steal_ownership(version, mq_load_acquire_u64(version), w->owner);",
        "wrest_takes_nothing_from_the_next_owner_of_a_row",
    ),
    writer(
        "a joining writer keeps the elements of the dead owner of its row",
        "mq_record_reclaim_row(&w->parts, row); w->owner",
        "(void)row; w->owner",
        "join_releases_the_elements_of_the_dead_owner_of_its_row",
    ),
    writer(
        "a joining writer releases elements of others",
        "if (mq_cell_version_owner(held) && mq_cell_owner_row(mq_cell_version_owner(held)) == row)",
        "if (mq_cell_version_owner(held))",
        "join_releases_the_elements_of_the_dead_owner_of_its_row",
    ),
    writer(
        "a file is owned by a row's next owner",
        "if (owner && mq_cell_owner_row(owner) == row) mq_store_release_u64(&parts->header->owner, 0);",
        "(void)owner;",
        "join_releases_the_elements_of_the_dead_owner_of_its_row",
    ),
    writer(
        "a key whose owner has unknown liveness is claimed",
        "if (life != MQ_DEAD) return false;",
        "if (life == MQ_ALIVE) return false;",
        "claim_takes_from_the_dead_alone",
    ),
    writer(
        "a leaving writer clears the ownership of another one",
        "{ mq_compare_exchange_u64(owner, w->owner, 0); }",
        "{ (void)w; mq_store_release_u64(owner, 0); }",
        "claim_takes_from_the_dead_alone",
        "leave_lets_go_of_the_keys_of_its_owner_alone",
    ),
    writer(
        "a leaving writer keeps its last key",
        "for (uint64_t i = 0; is_board && i < w->parts.config.length; i++) mq_record_release_owner_word",
        "for (uint64_t i = 0; is_board && i + 1 < w->parts.config.length; i++) mq_record_release_owner_word",
        "leave_lets_go_of_the_keys_of_its_owner_alone",
    ),
    cell(
        "times that were counted to the end begin at 0",
        "mq_likely(count != MQ_CELL_WRITE_COUNT_MAX) ? count + 1 : parts->config.copies;",
        "mq_likely(count != MQ_CELL_WRITE_COUNT_MAX) || !parts ? count + 1 : 0;",
        "times_that_wrap_never_say_never_written",
    ),
    cell(
        "writes across the wrap are counted as if 0 were used",
        "? now - before + MQ_CELL_WRITE_COUNT_MAX + 1 - parts->config.copies : now - before;",
        "? now - before + MQ_CELL_WRITE_COUNT_MAX + 1 : now - before + 0 * parts->config.copies;",
        "times_that_wrap_never_say_never_written",
    ),
    cell(
        "a copy is filled without a fence",
        "mq_fence_release(); mq_u64 *copy",
        "mq_u64 *copy",
        "write_fills_a_copy_after_a_fence",
    ),
    cell(
        "the copy that is read is filled",
        "mq_u64 *copy = mq_cell_value_copy_at(parts, version, count + 1);",
        "mq_u64 *copy = mq_cell_value_copy_at(parts, version, count);",
        "element_has_the_old_or_the_new_value_at_each_step",
    ),
    cell(
        "the time of a write goes back",
        "before - time < MQ_CELL_AHEAD_NS ? before : time);",
        "before - time < 0 ? before : time);",
        "times_of_writes_do_not_go_back",
    ),
    cell(
        "an element is taken by a store",
        "mq_likely(mq_compare_exchange_u64(version, now, now | owner)) ? 0",
        "(mq_store_release_u64(version, now | owner), true) ? 0",
        "take_that_another_one_overtakes_fails",
    ),
    cell(
        "an element that another writer took is committed",
        "return mq_compare_exchange_u64(version, count << MQ_CELL_COUNT_SHIFT | owner, "
        "mq_cell_next_write_count(parts, count) "
        "<< MQ_CELL_COUNT_SHIFT);",
        "return owner && (mq_store_release_u64(version, mq_cell_next_write_count(parts, count) << "
        "MQ_CELL_COUNT_SHIFT), true);",
        "turn_of_an_element_that_was_wrested_reports_it",
    ),
    cell(
        "wresting counts as a write",
        "(current & ~(uint64_t)((1u << MQ_CELL_COUNT_SHIFT) - 1)) | owner);",
        "((mq_cell_write_count(current) + 1) << MQ_CELL_COUNT_SHIFT) | owner);",
        "write_to_an_element_that_another_one_holds_fails",
    ),
    cell(
        "a value is accepted that was written over",
        "<= parts->config.copies - 2;",
        "<= parts->config.copies - 1;",
        "read_that_one_write_overtakes_with_two_copies_reads_again",
        "board_value_has_its_length",
    ),
    cell(
        "a value is rejected that other copies leave alone",
        "<= parts->config.copies - 2;",
        "== 0 && parts;",
        "read_that_one_write_overtakes_with_four_copies_keeps_its_value",
    ),
    cell(
        "versions are compared without a fence",
        "mq_fence_acquire();",
        "",
        "read_compares_versions_after_a_fence",
    ),
    vector(
        "one of four elements is not compared",
        "for (int k = 0; k < MQ_VECTOR_STEP; k++) changed |=",
        "for (int k = 0; k + 1 < MQ_VECTOR_STEP; k++) changed |=",
        "step_of_four_that_a_write_overtakes_reads_again",
    ),
    vector(
        "the last element is not looked at",
        "const uint64_t stride = parts->stride, length = parts->config.length;",
        "const uint64_t stride = parts->stride, length = parts->config.length - 1;",
        "changed_finds_each_element_that_was_written",
    ),
    vector(
        "elements that were read again are not compared again",
        "same = false;",
        "",
        "agree_is_false_until_no_element_has_changed",
    ),
    vector(
        "an index equal to the length is accepted",
        "all &= (uint64_t)indices[i] < parts->config.length;",
        "all &= (uint64_t)indices[i] <= parts->config.length;",
        "has_all_rejects_indices_outside",
    ),
    vector(
        "values that were written are not counted when a write ends early",
        "*done = i; return status;",
        "*done = status == MQ_VECTOR_WRITTEN ? i : *done; return status;",
        "write_goes_on_where_it_was_interrupted",
    ),
    board(
        "a key is named before its name is there",
        "mq_copy_to_shared(parts->key_table[i].name, name, sizeof name); "
        "mq_store_release_u64(&parts->key_table[i].named, 1);",
        "mq_store_release_u64(&parts->key_table[i].named, 1); "
        "mq_copy_to_shared(parts->key_table[i].name, name, sizeof name);",
        "board_key_is_named_after_its_name_is_whole",
    ),
    board(
        "the beginning of a key is found",
        "if (!memcmp(at->name, key, bytes) && !at->name[bytes])",
        "if (!memcmp(at->name, key, bytes))",
        "board_key_is_named_after_its_name_is_whole",
    ),
    board(
        "a key is named beyond the last element",
        "if (i == parts->config.length) return MQ_BOARD_NO_KEY; char name",
        "char name",
        "board_key_is_named_after_its_name_is_whole",
    ),
    board(
        "a length beyond the element is believed",
        "value->is_corrupt = length > mq_board_value_bytes(parts);",
        "value->is_corrupt = length > mq_board_value_bytes(parts) + 8;",
        "board_value_longer_than_the_limit_is_corrupt",
    ),
    layout(
        "a file that is too short is taken for whole",
        "if (!needed || needed > bytes ||",
        "if (!needed ||",
        "exclusive_write_asks_for_sleepers_after_a_fence",
    ),
]
