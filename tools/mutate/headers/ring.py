"""Mutants of topics: the ring, its publishers, subscribers and slots."""

from tools.mutate.headers.mutant import mutants_of

position = mutants_of("msgq/impl/ring/position.h", "ring")
publisher = mutants_of("msgq/impl/ring/publisher.h", "ring")
subscriber = mutants_of("msgq/impl/ring/subscriber.h", "ring")
next_message = mutants_of("msgq/impl/ring/next_message.h", "ring")
rows = mutants_of("msgq/impl/ring/batch.h", "ring")
walk = mutants_of("msgq/impl/ring/walk.h", "ring")
canary = mutants_of("msgq/impl/ring/canary.h", "ring")
snapshot = mutants_of("msgq/impl/ring/snapshot.h", "ring")
stamps = mutants_of("msgq/impl/ring/stamps.h", "ring")

MUTANTS = [
    position(
        "a limit one lap later that has reached a message leaves it intact",
        "return laps == 1 && mq_ring_offset(limit) <= mq_ring_offset(position);",
        "return laps == 1 && mq_ring_offset(limit) <= mq_ring_offset(position) + 8;",
        "positions_are_intact_up_to_the_limit_one_lap_later",
    ),
    position(
        "a message two laps before the limit is intact",
        "return laps == 1 && mq_ring_offset(limit)",
        "return laps && mq_ring_offset(limit)",
        "positions_are_intact_up_to_the_limit_one_lap_later",
    ),
    publisher(
        "a refused read of a living program's memory counts as its death",
        "return got > 0 || (got < 0 && errno == EINVAL);",
        "return got > 0;",
        "ring_readers-memory_of_a_stock_subscriber_lives_until_exec_or_death",
    ),
    publisher(
        "a program that called exec still has its memory",
        "return got > 0 || (got < 0 && errno == EINVAL);",
        "return got >= 0 || errno == EINVAL;",
        "ring_readers-memory_of_a_stock_subscriber_lives_until_exec_or_death",
    ),
    position(
        "a silent publisher has no message in progress",
        "(uint64_t)mq_ring_offset(write_pointer) + data_bytes / 3 + 8;",
        "(uint64_t)mq_ring_offset(write_pointer) + data_bytes * 0 + 8;",
        "positions_of_a_silent_publisher_keep_a_margin_of_the_largest_message",
    ),
    position(
        "a silent publisher writes no wrap mark",
        "(uint64_t)mq_ring_offset(write_pointer) + data_bytes / 3 + 8;",
        "(uint64_t)mq_ring_offset(write_pointer) + data_bytes / 3;",
        "positions_of_a_silent_publisher_keep_a_margin_of_the_largest_message",
    ),
    position(
        "a lap ends 8 bytes later",
        "return (data_bytes - 9) & ~7u;",
        "return (data_bytes - 1) & ~7u;",
        "sizes_of_messages_and_laps_are_those_of_stock",
    ),
    position(
        "an offset at the end of a lap is impossible",
        "mq_ring_offset(position) <= mq_ring_lap_end(data_bytes) &&",
        "mq_ring_offset(position) < mq_ring_lap_end(data_bytes) &&",
        "sizes_of_messages_and_laps_are_those_of_stock",
    ),
    publisher(
        "write_uid is not looked at before the commit",
        "if (mq_unlikely(!mq_ring_publisher_owns_ring(p))) "
        "return mq_ring_publisher_discard_staged(p, MQ_RING_TAKEN_OVER); "
        "mq_store_release_u64(&p->ring->write_pointer, head);",
        "mq_store_release_u64(&p->ring->write_pointer, head);",
        "send_that_another_publisher_overtakes_publishes_nothing",
    ),
    publisher(
        "write_uid is not looked at after begun is stored",
        "mq_fence_compiler(); if (!mq_ring_publisher_owns_ring(p)) return mq_ring_publisher_discard_staged(p, "
        "MQ_RING_TAKEN_OVER);",
        "mq_fence_compiler();",
        "send_stores_begun_then_the_message_then_its_position",
    ),
    publisher(
        "a publisher that membarrier does not reach has no fence",
        "if (mq_unlikely(p->needs_fence)) mq_fence_seq_cst();",
        "",
        "send_stores_begun_then_the_message_then_its_position",
    ),
    publisher(
        "an abandoned send stays in progress",
        "mq_store_release_u64(&p->row->begun, p->sequence); return why;",
        "return why;",
        "send_that_another_publisher_overtakes_publishes_nothing",
        "rows_that_another_publisher_overtakes_are_dropped",
    ),
    publisher(
        "begun is not stored",
        "mq_store_relaxed_u64(&p->row->begun, p->sequence + p->pending + 1);",
        "",
        "newcomer_waits_for_a_send_in_progress_unless_its_owner_is_dead",
        "send_stores_begun_then_the_message_then_its_position",
    ),
    publisher(
        "`sent` is stored before the position",
        "mq_store_release_u64(&p->ring->write_pointer, head); p->position",
        "mq_store_release_u64(&row->sent, p->sequence + messages); "
        "mq_store_release_u64(&p->ring->write_pointer, head); p->position",
        "message_is_counted_as_sent_after_its_position_is_stored",
    ),
    publisher(
        "the limit is announces_limit without a fence",
        "mq_store_release_u64(&side->grant_seq, turn); mq_fence_release();",
        "mq_store_release_u64(&side->grant_seq, turn);",
        "send_announces_its_limit_before_the_message",
        "ring_readers-grant_clears_flags_before_it_is_announced",
    ),
    publisher(
        "the limit is not announces_limit",
        "if (mq_ring_distance(mq_load_relaxed_u64(&side->write_limit), limit) < 0) "
        "mq_store_relaxed_u64(&side->write_limit, limit);",
        "(void)limit;",
        "send_announces_its_limit_before_the_message",
    ),
    publisher(
        "the limit goes back",
        "if (mq_ring_distance(mq_load_relaxed_u64(&side->write_limit), limit) < 0) mq_store",
        "mq_store",
        "announced_limit_does_not_go_back",
    ),
    publisher(
        "a checkpoint is written over the one that is valid",
        "turn & 1 ? &side->checkpoint_odd : &side->checkpoint_even;",
        "turn & 1 ? &side->checkpoint_even : &side->checkpoint_odd;",
        "checkpoint_is_the_old_or_the_new_one_at_each_step",
    ),
    publisher(
        "flags of the last slot stay",
        "for (int i = 0; i < MQ_READER_SLOTS; i++) { uint64_t cursor",
        "for (int i = 0; i < MQ_READER_SLOTS - 1; i++) { uint64_t cursor",
        "ring_readers-limit_clears_flags_of_stock_subscribers_in_its_way",
    ),
    publisher(
        "the flag of a cursor at the limit stays",
        "if (valid && (same_offset || !mq_ring_message_is_intact(limit, cursor)))",
        "if (valid && !mq_ring_message_is_intact(limit, cursor) && (same_offset || !same_offset))",
        "ring_readers-limit_clears_flags_of_stock_subscribers_in_its_way",
    ),
    publisher(
        "flags are cleared after the limit is announces_limit",
        "mq_ring_publisher_clear_read_valids(p, lap + end); mq_ring_publisher_announce_limit(p, lap + end);",
        "mq_ring_publisher_announce_limit(p, lap + end); mq_ring_publisher_clear_read_valids(p, lap + end);",
        "ring_readers-grant_clears_flags_before_it_is_announced",
    ),
    publisher(
        "a message is larger than a third of the ring",
        "if (mq_unlikely(!room) && mq_ring_frame_bytes(stamped_size) > "
        "mq_ring_frame_bytes_max(p->data_bytes)) return MQ_RING_TOO_LARGE;",
        "",
        "largest_message_fits_three_times",
    ),
    publisher(
        "a size that wraps is not too large",
        "if (mq_unlikely(stamped_size > p->data_bytes)) return MQ_RING_TOO_LARGE;",
        "",
        "largest_message_fits_three_times",
    ),
    publisher(
        "a ring that was cut is written to",
        "if (mq_unlikely(!mq_canary_is_intact(&p->canary))) "
        "return mq_ring_publisher_discard_staged(p, MQ_RING_TAKEN_OVER);",
        "",
        "ring_readers-ring_without_its_canary_is_truncated",
    ),
    publisher(
        "a lap has no wrap mark",
        "mq_store_relaxed_u64(mark, (uint64_t)MQ_RING_WRAP_MARK);",
        "(void)mark;",
        "ring_readers-messages_are_received_across_the_end_of_a_lap",
    ),
    publisher(
        "sleepers are not checked",
        "bool eventcount = mq_eventcount_load_flags(&side->eventcount);",
        "bool eventcount = !side;",
        "send_stores_begun_then_the_message_then_its_position",
    ),
    subscriber(
        "a copy is not validated",
        "if (mq_unlikely(!mq_ring_subscriber_validate_cursor(s))) return false;",
        "",
        "ring_readers-copy_that_was_overwritten_is_not_accepted",
    ),
    rows(
        "a copy of a known message is not validated",
        "!mq_ring_subscriber_is_valid(s, s->cursor)))",
        "0))",
        "ring_readers-known_message_that_was_overwritten_is_not_accepted",
    ),
    rows(
        "a copy of a known message is accepted without a limit",
        "if (mq_unlikely(!s->announces_limit || ",
        "if (mq_unlikely(",
        "ring_readers-known_message_of_a_stock_publisher_is_not_accepted",
    ),
    subscriber(
        "a copy is validated without a fence",
        "mq_fence_acquire(); if (mq_likely(s->announces_limit))",
        "if (mq_likely(s->announces_limit))",
        "ring_readers-copy_is_validated_after_a_fence_by_the_limit",
        "ring_readers-copy_that_was_overwritten_is_not_accepted",
    ),
    subscriber(
        "the limit is looked at before the witness",
        "return mq_ring_subscriber_mapping_valid(s) && mq_ring_subscriber_sentinel_unchanged(s) && "
        "mq_ring_subscriber_is_intact(s, position);",
        "return mq_ring_subscriber_mapping_valid(s) && mq_ring_subscriber_is_intact(s, position) && "
        "mq_ring_subscriber_sentinel_unchanged(s);",
        "ring_readers-copy_is_validated_after_a_fence_by_the_limit",
    ),
    subscriber(
        "an announces_limit limit is not looked at",
        "return mq_ring_message_is_intact(mq_load_relaxed_u64(&s->side->write_limit), position);",
        "return mq_ring_message_is_intact(mq_load_relaxed_u64(&s->ring->write_pointer), position);",
        "ring_readers-copy_is_validated_after_a_fence_by_the_limit",
    ),
    subscriber(
        "a ring that is one lap ahead is empty",
        "if (now == s->cursor) { s->published = now;",
        "if (mq_ring_offset(now) == mq_ring_offset(s->cursor)) { s->published = now;",
        "ring_readers-ring_that_is_one_lap_ahead_is_not_empty",
    ),
    subscriber(
        "an impossible write_pointer is believed",
        "if (mq_unlikely(!mq_ring_position_is_valid(now, s->data_bytes) || mq_ring_distance(now, s->cursor) < 0)) "
        "return MQ_RING_CORRUPT;",
        "if (mq_unlikely(mq_ring_distance(now, s->cursor) < 0)) return MQ_RING_CORRUPT;",
        "ring_readers-write_pointer_that_is_impossible_is_corrupt",
    ),
    subscriber(
        "a size beyond what is published is believed",
        "mq_ring_distance(s->published, s->cursor + need) >= 0);",
        "mq_ring_distance(s->published, s->cursor) >= 0);",
        "ring_readers-size_beyond_what_is_published_is_corrupt",
    ),
    subscriber(
        "messages that a lap costs are not counted",
        "s->lost += (uint64_t)passed; s->sequence_base",
        "s->sequence_base",
        "ring_readers-lapped_subscriber_counts_lost_messages",
        "ring_readers-conflating_subscriber_takes_the_newest_and_counts_the_rest",
        "ring_seek-subscriber_from_the_oldest_message_on_counts_earlier_ones",
    ),
    next_message(
        "conflation counts one lost message too few",
        "(int64_t)(passed + (uint64_t)count - 1));",
        "(int64_t)(passed + (uint64_t)count - 2));",
        "ring_readers-conflating_subscriber_takes_the_newest_and_counts_the_rest",
    ),
    next_message(
        "a lapped subscriber that conflates does not search before the checkpoint of a new publisher",
        "if (lapped && checkpoint_is_last &&",
        "if (lapped && checkpoint_is_last && false &&",
        "ring_readers-lapped_conflating_subscriber_takes_the_last_message_of_the_previous_publisher",
    ),
    next_message(
        "the message before a new publisher's checkpoint is lost, too",
        "found = true, passed = (uint64_t)before, count = 0;",
        "found = true, passed = (uint64_t)before, count = 1;",
        "ring_readers-lapped_conflating_subscriber_takes_the_last_message_of_the_previous_publisher",
    ),
    next_message(
        "a lapped subscriber is ready",
        "if (status != MQ_RING_OK || mq_likely(mq_ring_subscriber_validate_cursor(s))) return status;",
        "if (status != MQ_RING_OK || mq_likely(s->ring != NULL)) return status;",
        "ring_readers-lapped_subscriber_has_no_message_until_the_next_one",
        "ring_readers-message_that_is_overwritten_during_a_poll_is_not_ready",
    ),
    next_message(
        "a poll leaves a lapped cursor where it is",
        "if (!conflate && mq_ring_subscriber_recover_from_lap(s) != MQ_RING_OK) return MQ_RING_CORRUPT;",
        "",
        "ring_readers-lapped_subscriber_has_no_message_until_the_next_one",
        "ring_readers-message_that_is_overwritten_during_a_poll_is_not_ready",
    ),
    rows(
        "messages that follow end at a wrap mark",
        "if (!mq_ring_subscriber_validate_cursor(s) || !mq_ring_subscriber_pass_wrap_mark(s, size)) return false;",
        "return false;",
        "ring_readers-following_messages_are_received_across_the_end_of_a_lap",
    ),
    rows(
        "messages that follow continue at the wrap mark of a newer lap",
        "if (!mq_ring_subscriber_validate_cursor(s) || !mq_ring_subscriber_pass_wrap_mark(s, size)) return false;",
        "if (!mq_ring_subscriber_pass_wrap_mark(s, size)) return false;",
        "ring_readers-following_messages_end_before_a_loss",
    ),
    rows(
        "a batch is staged beyond what was granted",
        "const uint64_t many = *count < room ? *count : room;",
        "const uint64_t many = *count < room ? *count : *count;",
        "rows_are_staged_and_taken_in_their_order",
    ),
    rows(
        "write_uid is not looked at within a batch",
        "if (mq_unlikely(mq_load_relaxed_u64(owner) != uid)) "
        "return mq_ring_publisher_discard_staged(p, MQ_RING_TAKEN_OVER);",
        "(void)owner, (void)uid;",
        "rows_that_another_publisher_overtakes_are_dropped",
    ),
    rows(
        "a block counts as one message",
        "s->received += (uint64_t)count;",
        "s->received += count > 0;",
        "rows_are_staged_and_taken_in_their_order",
    ),
    walk(
        "a checkpoint's turn is not looked at again",
        "if (mq_load_relaxed_u64(&side->grant_seq) == m->grant_seq) return true;",
        "return true;",
        "checkpoint_that_changes_twice_is_read_again",
    ),
    walk(
        "a walk that ends elsewhere counts",
        "count++; } from = next; } return from == to ? count : -1;",
        "count++; } from = next; } return count;",
        "ring_readers-walk_counts_messages_and_rejects_sizes_that_lead_elsewhere",
    ),
    walk(
        "a size beyond the lap is a message",
        "size <= data_bytes && offset + mq_ring_frame_bytes(size) <= mq_ring_lap_end(data_bytes);",
        "size <= data_bytes && offset + mq_ring_frame_bytes(size) <= 2 * mq_ring_lap_end(data_bytes);",
        "ring_readers-walk_counts_messages_and_rejects_sizes_that_lead_elsewhere",
    ),
    walk(
        "the oldest record is one that the limit touches",
        "(mq_ring_offset(limit) + spare + need - 1) / need * need;",
        "(mq_ring_offset(limit) + spare) / need * need;",
        "ring_readers-oldest_record_is_the_first_one_after_the_limit",
    ),
    walk(
        "records of another size are counted",
        "if (next == from || (need && is_message && next != from + need))",
        "if (next == from || (is_message && need == 1))",
        "ring_readers-oldest_record_is_the_first_one_after_the_limit",
    ),
    walk(
        "before the first lap there is a lap",
        "bool fits = mq_ring_cycle(limit) > 0 && offset",
        "bool fits = offset",
        "ring_readers-oldest_record_is_the_first_one_after_the_limit",
    ),
    subscriber(
        "a lapped consumer of records continues at the newest position",
        "mq_ring_subscriber_seek_oldest_record(s) ? MQ_RING_OK : mq_ring_subscriber_seek_latest(s);",
        "mq_ring_subscriber_seek_latest(s);",
        "ring_readers-lapped_consumer_of_records_continues_at_the_oldest_one",
    ),
    subscriber(
        "a lapped consumer of records miscounts its losses",
        "s->sequence_base = m.sequence - (uint64_t)count - s->received;",
        "s->sequence_base = m.sequence + 0 * (uint64_t)count - s->received;",
        "ring_readers-lapped_consumer_of_records_continues_at_the_oldest_one",
    ),
    subscriber(
        "a lapped consumer of records that was overtaken goes on in small steps",
        "tries ? chunk << 3 * (tries - 1) : 0",
        "tries * chunk",
        "ring_readers-lapped_consumer_of_records_that_is_overtaken_begins_far_enough_ahead",
    ),
    canary(
        "a ring's tail is written again",
        "mq_compare_exchange_u64(tail, 0, random);",
        "mq_store_release_u64(tail, random);",
        "ring_readers-ring_without_its_canary_is_truncated",
    ),
    stamps(
        "a topic is tracked from a later message on",
        "return wanted != MQ_TRACK_YES || mq_load_acquire_u64(&ring->write_pointer) == 0;",
        "return wanted != MQ_TRACK_YES || ring;",
        "ring_readers-topic_is_tracked_from_its_first_message_on_or_never",
    ),
    stamps(
        "a tracked topic is published without stamps",
        "if (mq_ring_side_is_tracked(side)) return wanted != MQ_TRACK_NO;",
        "if (mq_ring_side_is_tracked(side)) return true;",
        "ring_readers-topic_is_tracked_from_its_first_message_on_or_never",
    ),
    snapshot(
        "losses count only after the subscriber detects them",
        "out->lost = known ? lost : out->lost;",
        "(void)lost;",
        "ring_readers-observer_counts_losses_before_the_subscriber_detects_them",
    ),
    snapshot(
        "the dead lose more",
        "|| !mq_ring_observer_is_lapped(observer, out->cursor) || mq_ring_observer_is_dead(observer, row)) return;",
        "|| !mq_ring_observer_is_lapped(observer, out->cursor)) return;",
        "ring_readers-observer_counts_losses_before_the_subscriber_detects_them",
    ),
    snapshot(
        "a base of another era counts",
        "return reader->base_tag == (reader->participant.uid | (uint32_t)observer->era);",
        "return true;",
        "ring_readers-losses_are_unknown_with_the_base_of_another_era",
    ),
    snapshot(
        "received messages count as lost",
        "*lost = mq_ring_subscriber_sequence(observer) - reader->base_sequence - reader->received;",
        "*lost = mq_ring_subscriber_sequence(observer) - reader->base_sequence;",
        "ring_readers-observer_counts_losses_before_the_subscriber_detects_them",
    ),
    publisher(
        "a discard writes into the row of another publisher",
        "if (mq_load_acquire_u64(&p->row->participant.uid) == p->uid)",
        "",
        "discard_leaves_the_row_of_another_publisher",
    ),
    publisher(
        "a discarded send stays in progress",
        "if (mq_load_acquire_u64(&p->row->participant.uid) == p->uid)",
        "if (mq_load_acquire_u64(&p->row->participant.uid) != p->uid)",
        "discard_leaves_the_row_of_another_publisher",
    ),
    rows(
        "a copy of a batch is not validated",
        "if (!mq_ring_subscriber_validate_cursor(s)) return -1;",
        "",
        "ring_readers-batch_that_was_overwritten_is_not_accepted",
    ),
]
