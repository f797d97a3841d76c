"""Mutants of work queues: send, receive, and waits."""

from tools.mutate.headers.mutant import mutants_of

layout = mutants_of("msgq/impl/workqueue/layout.h", "queue")
handle = mutants_of("msgq/impl/workqueue/handle.h", "queue")
sender = mutants_of("msgq/impl/workqueue/sender.h", "queue")
scan = mutants_of("msgq/impl/workqueue/scan.h", "queue")
receiver = mutants_of("msgq/impl/workqueue/receiver.h", "queue")
slot_state = mutants_of("msgq/impl/workqueue/slot_state.h", "queue")
handoff = mutants_of("msgq/impl/workqueue/handoff.h", "queue_handoff")
poll_state = mutants_of("msgq/impl/workqueue/poll_state.h", "queue")
peek = mutants_of("msgq/impl/workqueue/peek.h", "queue")

MUTANTS = [
    sender(
        "a returned message is not counted in `ready_count`",
        "return false; } mq_fetch_add_u64(&h->parts.queue->ready_count, 1);",
        "return false; }",
        "returned_message_is_found_by_a_scan_that_has_passed_its_place",
        "returned_message_wakes_a_receiver_and_is_notified",
    ),
    sender(
        "a returned message wakes nobody",
        "mq_queue_wake_receivers(h->parts.queue, 1); "
        "if (mq_queue_any_row_bit_is_set(&h->parts.queue->notify_requested)) mq_queue_notify_not_empty",
        "if (mq_queue_any_row_bit_is_set(&h->parts.queue->notify_requested)) mq_queue_notify_not_empty",
        "returned_message_wakes_a_receiver_and_is_notified",
        "sweep_returns_the_message_of_a_dead_consumer_and_wakes_a_receiver",
    ),
    sender(
        "a returned message is not notified",
        "if (mq_queue_any_row_bit_is_set(&h->parts.queue->notify_requested)) "
        "mq_queue_notify_not_empty(h->parts.queue);",
        "",
        "returned_message_wakes_a_receiver_and_is_notified",
    ),
    sender(
        "a return wakes a receiver before it",
        "if (!mq_compare_exchange_u64(&h->parts.slot_states[slot], word, key)) {",
        "mq_queue_wake_receivers(h->parts.queue, 1); "
        "if (!mq_compare_exchange_u64(&h->parts.slot_states[slot], word, key)) {",
        "returned_message_wakes_a_receiver_and_is_notified",
    ),
    sender(
        "a failed return leaves a debt",
        "mq_queue_clear_notify_debt(h->own_row, 1); return false;",
        "return false;",
        "returned_message_wakes_a_receiver_and_is_notified",
    ),
    sender(
        "the notification witness ignores the fill count",
        "&& mq_load_acquire_u64(fill_count) == before;",
        "&& mq_load_acquire_u64(fill_count) >= before;",
        "queue_sleepers-message_is_notified_though_its_witness_has_an_equal_successor",
    ),
    sender(
        "the notification witness is looked at once",
        "witness_stayed = witness_stayed && mq_load_acquire_u64(&h->parts.slot_states[witness_slot]) == witness && "
        "mq_load_acquire_u64(fill_count) == before;",
        "",
        "queue_sleepers-message_is_notified_though_its_witness_has_an_equal_successor",
        "queue_sleepers-message_is_notified_when_its_witness_goes_before_it_comes",
    ),
    sender(
        "a message is notified though a receiver waits",
        "if (!witness_stayed && !mq_queue_any_row_bit_is_set(&h->parts.queue->sleeping_rows[MQ_QUEUE_RECEIVER]))",
        "if (!witness_stayed)",
        "queue_sleepers-message_to_an_empty_queue_is_notified_and_a_second_one_is_not",
    ),
    sender(
        "a notification requested during a send is not made",
        "if (mq_unlikely(mq_queue_any_row_bit_is_set(&h->parts.queue->notify_requested))) "
        "mq_queue_notify_not_empty(h->parts.queue);",
        "",
        "queue_sleepers-notification_that_is_requested_during_a_send_is_made",
    ),
    sender(
        "a sender owes no notification",
        "mq_store_relaxed_u64(&h->own_row->notify_debt[0], 1);",
        "",
        "queue_sleepers-sender_owes_a_notification_from_ready_on",
    ),
    sender(
        "a sender's debt stays",
        "mq_queue_commit_and_notify(h, slot, key); mq_store_release_u64(&h->own_row->notify_debt[0], 0);",
        "mq_queue_commit_and_notify(h, slot, key);",
        "queue_sleepers-sender_owes_a_notification_from_ready_on",
    ),
    sender(
        "a message is counted before it is READY",
        "mq_store_release_u64(&h->parts.slot_states[slot], key); mq_fetch_add_u64(&h->parts.queue->ready_count, 1); if",
        "mq_fetch_add_u64(&h->parts.queue->ready_count, 1); mq_store_release_u64(&h->parts.slot_states[slot], key); if",
        "commit_makes_the_word_ready_before_it_counts",
    ),
    sender(
        "`entered` is not counted",
        "mq_fetch_add_u64(&h->parts.fill_counts[slot / MQ_QUEUE_BLOCK_SLOTS], 1);",
        "",
        "message_in_a_cached_block_is_found",
        "commit_makes_the_word_ready_before_it_counts",
    ),
    sender(
        "the lease of the previous message stays",
        "mq_store_relaxed_u64(&header->lease, 0);",
        "",
        "message_inherits_nothing_from_the_previous_one_in_its_place",
    ),
    sender(
        "a message inherits the deliveries of the previous one",
        "mq_store_relaxed_u64(&header->deliveries, 0);",
        "",
        "message_inherits_nothing_from_the_previous_one_in_its_place",
    ),
    sender(
        "a dropped slot wakes no sender",
        "mq_slot_state_encode_filling(h->row_number, h->generation), 0)) mq_queue_wake_sender(h->parts.queue);",
        "mq_slot_state_encode_filling(h->row_number, h->generation), 0)) return;",
        "queue_sleepers-dropped_place_wakes_a_sender",
    ),
    sender(
        "a message without a key is lost",
        "key = mq_slot_state_encode_ready(0, mq_load_relaxed_u64(&h->parts.queue->ready_count));",
        "key = 0;",
        "message_without_a_key_comes_back_as_well",
    ),
    receiver(
        '"same key twice" ignores the slot',
        "best.key == last.key && best.slot == last.slot)",
        "best.key == last.key)",
        "equal_keys_of_two_places_are_two_messages",
    ),
    receiver(
        "`ready_count` is not looked at again",
        "if (mq_load_relaxed_u64(&h->parts.queue->ready_count) == ready)",
        "if (ready || !ready)",
        "returned_message_is_found_by_a_scan_that_has_passed_its_place",
        "equal_keys_of_two_places_are_two_messages",
    ),
    receiver(
        "`ready_count` is loaded again without a fence",
        "mq_fence_acquire();",
        "",
        "message_that_another_one_took_is_not_tried_again",
    ),
    scan(
        "a block with slots of others is cached",
        ".is_valid = !words.any_owned,",
        ".is_valid = true,",
        "block_with_a_held_or_taken_place_is_not_cached",
    ),
    receiver(
        "a message that another handle took stays cached as READY",
        "mq_queue_invalidate_block_cache(h, best.slot / MQ_QUEUE_BLOCK_SLOTS);",
        "",
        "message_that_another_one_took_is_not_tried_again",
    ),
    scan(
        "a taken message stays cached as READY",
        "cache->taken_alone = cache->has_others ? 0 : taken; cache->is_valid = false;",
        "cache->taken_alone = cache->has_others ? 0 : taken;",
        "messages_come_by_priority_and_then_in_the_order_of_sending",
    ),
    scan(
        "a block with another message counts as empty after a receive",
        "cache->taken_alone = cache->has_others ? 0 : taken;",
        "cache->taken_alone = taken;",
        "block_whose_only_message_was_received_needs_no_scan",
    ),
    scan(
        "a block counts as empty after each receive",
        "if (cache->taken_alone == taken)",
        "if (taken)",
        "message_is_found_after_a_message_that_was_taken_alone_is_freed",
        "block_whose_only_message_was_received_needs_no_scan",
    ),
    scan(
        "a block whose only message was received is scanned again",
        "if (cache->taken_alone == taken)",
        "if (!taken)",
        "block_whose_only_message_was_received_needs_no_scan",
    ),
    scan(
        "a message that was taken alone counts as received",
        "cache->taken_alone = cache->has_others ? 0 : taken; cache->is_valid = false;",
        "cache->best = 0; (void)taken;",
        "message_that_is_alone_is_found_after_its_return",
    ),
    scan(
        "the last slot of a line is not checked",
        "for (unsigned i = 0; i < MQ_QUEUE_LINE_SLOTS; i++) any |=",
        "for (unsigned i = 0; i < MQ_QUEUE_LINE_SLOTS - 1; i++) any |=",
        "scan_of_lines_finds_the_best_message_in_each_slot",
    ),
    scan(
        "a search ignores new messages",
        "if (h->found_empty && h->empty_ready_count == ready_count)",
        "if (h->found_empty)",
        "queue_sleepers-search_scans_again_only_after_a_message_was_counted",
        "queue_sleepers-search_finds_a_message_that_was_sent_behind_the_previous_scan",
    ),
    scan(
        "a search scans each time",
        "if (h->found_empty && h->empty_ready_count == ready_count)",
        "if (0)",
        "queue_sleepers-search_scans_again_only_after_a_message_was_counted",
        "queue_sleepers-call_without_a_message_spares_the_next_search_the_scan",
    ),
    scan(
        "a search counts messages that its scan passed",
        "mq_queue_keep_scan_result(h, ready_count, !found);",
        "mq_queue_keep_scan_result(h, mq_load_acquire_u64(&h->parts.queue->ready_count), !found);",
        "queue_sleepers-search_finds_a_message_that_was_sent_behind_the_previous_scan",
    ),
    scan(
        "a search finds a cached message that another handle took",
        "best.key && (mq_load_acquire_u64(&h->parts.slot_states[best.slot]) == best.key || "
        "mq_queue_has_ready_message(&h->parts));",
        "best.key != 0;",
        "queue_sleepers-search_scans_again_only_after_a_message_was_counted",
    ),
    scan(
        "a recovery keeps the result of the last search",
        "h->found_empty = false; for (uint64_t block",
        "for (uint64_t block",
        "queue_sleepers-search_finds_a_message_that_its_dead_sender_did_not_count_after_a_recovery",
    ),
    receiver(
        "a call without a message keeps no result",
        "mq_queue_keep_scan_result(h, ready, !best.key);",
        "",
        "queue_sleepers-call_without_a_message_spares_the_next_search_the_scan",
    ),
    scan(
        "slots of others are not noted",
        "h->saw_owned_slots |= words.any_owned;",
        "",
        "block_with_a_held_or_taken_place_is_not_cached",
    ),
    receiver(
        "a lease is stored with the previous take",
        "mq_job_lease_encode(delivery->word, deadline_tick));",
        "mq_job_lease_encode(delivery->word - 1, deadline_tick));",
        "lease_belongs_to_the_take_that_it_was_given_to",
        "sweep_asks_in_time_for_the_next_lease",
    ),
    receiver(
        "freeing wakes no sender",
        "mq_queue_wake_sender(h->parts.queue); mq_queue_add_to_counter(&h->own_row->counts.acknowledged, 1);",
        "mq_queue_add_to_counter(&h->own_row->counts.acknowledged, 1);",
        "queue_sleepers-free_place_wakes_one_sender",
    ),
    receiver(
        "a returned message is freed",
        "if (!mq_compare_exchange_u64(&h->parts.slot_states[delivery->slot], delivery->word, 0)) return false;",
        "mq_store_release_u64(&h->parts.slot_states[delivery->slot], 0);",
        "free_of_a_message_that_came_back_fails",
    ),
    receiver(
        "a length beyond the slot is believed",
        "return delivery->length <= h->parts.max_message_size;",
        "return delivery->length <= h->parts.max_message_size + 1;",
        "message_longer_than_the_limit_is_reported_and_can_be_freed",
    ),
    receiver(
        "deliveries are not counted",
        "mq_store_relaxed_u64(&header->deliveries, delivery->deliveries);",
        "",
        "returned_message_is_found_by_a_scan_that_has_passed_its_place",
    ),
    sender(
        "a delayed message wakes nobody",
        "mq_fetch_add_u64(&h->parts.queue->delay_count, 1); mq_queue_wake_receivers(h->parts.queue, 1);",
        "mq_fetch_add_u64(&h->parts.queue->delay_count, 1);",
        "queue_delays-delayed_message_wakes_a_receiver_that_then_learns_its_due_time",
    ),
    sender(
        "a delay wakes a receiver before it is counted",
        "mq_fetch_add_u64(&h->parts.queue->delay_count, 1); mq_queue_wake_receivers(h->parts.queue, 1);",
        "mq_queue_wake_receivers(h->parts.queue, 1); mq_fetch_add_u64(&h->parts.queue->delay_count, 1);",
        "queue_delays-delayed_message_wakes_a_receiver_that_then_learns_its_due_time",
    ),
    sender(
        "a message is DELAYED before it has its due time",
        "mq_store_relaxed_u64(&h->parts.slot_headers[slot].lease, mq_job_lease_encode(taken, due_tick)); "
        "mq_store_release_u64(&h->parts.slot_states[slot], mq_slot_state_encode_delayed(taken));",
        "mq_store_release_u64(&h->parts.slot_states[slot], mq_slot_state_encode_delayed(taken)); "
        "mq_store_relaxed_u64(&h->parts.slot_headers[slot].lease, mq_job_lease_encode(taken, due_tick));",
        "queue_delays-delayed_message_becomes_ready_at_its_due_time",
    ),
    receiver(
        "a returned message is DELAYED before it has its due time",
        "mq_store_release_u64(&header->lease, mq_job_lease_encode(renewed, due_tick)); "
        "if (mq_compare_exchange_u64(word, renewed, mq_slot_state_encode_delayed(renewed)))",
        "bool delayed = mq_compare_exchange_u64(word, renewed, mq_slot_state_encode_delayed(renewed)); "
        "mq_store_release_u64(&header->lease, mq_job_lease_encode(renewed, due_tick)); if (delayed)",
        "queue_delays-job_returned_with_a_delay_is_taken_again_after_the_delay",
    ),
    sender(
        "a delay is not counted",
        "mq_fetch_add_u64(&h->parts.queue->delay_count, 1);",
        "",
        "queue_delays-delayed_message_wakes_a_receiver_that_then_learns_its_due_time",
    ),
    sender(
        "two delayed messages have the same order",
        "mq_fetch_add_u64(&h->parts.queue->ready_count, 1); /* the next message of this thread gets a larger order */",
        "",
        "queue_delays-due_message_has_the_position_of_its_send",
        "queue_delays-delayed_message_becomes_ready_at_its_due_time",
    ),
    sender(
        "a due message counts as returned",
        "mq_fetch_add_u64(&h->own_row->counts.returned, is_taken);",
        "mq_fetch_add_u64(&h->own_row->counts.returned, 1);",
        "queue_delays-delayed_message_becomes_ready_at_its_due_time",
    ),
    receiver(
        "a delayed return does not renew the job",
        "if (!mq_compare_exchange_u64(word, delivery->word, renewed)) return false;",
        "renewed = delivery->word;",
        "queue_delays-delay_of_a_job_whose_lease_ended_leaves_the_next_taker_alone",
    ),
    poll_state(
        "a poll forgets the end of the next lease",
        "*next_recovery_ns = now + mq_queue_recover_from_dead_owners(h, now);",
        "mq_queue_recover_from_dead_owners(h, now);",
        "queue_sleepers-poll_finds_due_messages_between_recoveries",
    ),
    poll_state(
        "a poll forgets the next due time",
        "*next_recovery_ns = now + mq_queue_reclaim_slots(h, now);",
        "mq_queue_reclaim_slots(h, now);",
        "queue_sleepers-poll_finds_due_messages_between_recoveries",
    ),
    poll_state(
        "a poll searches for no due messages",
        "(mq_queue_recover_due(&state->h, &state->next_recovery_ns) && mq_queue_has_ready_message(&state->h.parts));",
        "false;",
        "queue_sleepers-poll_finds_due_messages_between_recoveries",
    ),
    poll_state(
        "a poll in the past is no limit of a sleep",
        "return left_ns > MQ_QUEUE_RECOVER_BUSY_NS ? left_ns : MQ_QUEUE_RECOVER_BUSY_NS;",
        "return left_ns;",
        "queue_sleepers-poll_finds_due_messages_between_recoveries",
    ),
    receiver(
        "a delayed return keeps its take number",
        "uint64_t renewed = mq_slot_state_encode_taken(h->row_number, h->generation, mq_queue_advance_take_number(h));",
        "uint64_t renewed = delivery->word;",
        "queue_delays-lease_that_ends_during_the_return_with_a_delay_does_not_count",
    ),
    receiver(
        "a delayed return wakes nobody",
        "mq_slot_state_encode_delayed(renewed))) mq_queue_announce_delay(h);",
        "mq_slot_state_encode_delayed(renewed))) (void)h;",
        "queue_delays-job_returned_with_a_delay_wakes_a_receiver",
    ),
    sender(
        "a delay wakes nobody that requested a notification",
        "if (mq_queue_any_row_bit_is_set(&h->parts.queue->notify_requested)) "
        "mq_futex_wake_all(mq_futex_word(&h->parts.queue->notify_seq));",
        "",
        "queue_delays-delayed_message_wakes_those_that_requested_a_notification",
    ),
    slot_state(
        "a lease of another take counts",
        "(uint64_t)mq_slot_state_get_owner_row(word) << 24 | (mq_slot_state_get_take_number(word) & 0xFFFFFF);",
        "(uint64_t)mq_slot_state_get_owner_row(word) << 24 | (mq_slot_state_get_take_number(word) & 0);",
        "lease_belongs_to_the_take_that_it_was_given_to",
    ),
    slot_state(
        "messages of one priority come in the reverse order",
        "(MQ_SLOT_ORDER_MASK - (order & MQ_SLOT_ORDER_MASK));",
        "(order & MQ_SLOT_ORDER_MASK);",
        "messages_come_by_priority_and_then_in_the_order_of_sending",
    ),
    handle(
        "a sleeper has no fence after its bit",
        "mq_fetch_or_u64(&bits->word[row / 64], mq_queue_make_row_mask(row)); mq_fence_seq_cst();",
        "mq_fetch_or_u64(&bits->word[row / 64], mq_queue_make_row_mask(row));",
        "queue_sleepers-sleeper_shows_itself_before_a_fence",
    ),
    handle(
        "a sleeper that wakes has no fence after its bit",
        "mq_fetch_and_u64(&bits->word[row / 64], ~mq_queue_make_row_mask(row)); mq_fence_seq_cst();",
        "mq_fetch_and_u64(&bits->word[row / 64], ~mq_queue_make_row_mask(row));",
        "queue_sleepers-sleeper_shows_itself_before_a_fence",
    ),
    handle(
        "bits of the rows from 64 on are not seen",
        "for (unsigned i = 0; i < MQ_QUEUE_ROWS / 64; i++) any |=",
        "for (unsigned i = 0; i < MQ_QUEUE_ROWS / 64 - 1; i++) any |=",
        "queue_sleepers-bits_of_the_last_row_are_seen",
    ),
    handle(
        "a message wakes no watchers",
        "mq_queue_wake_rows(queue, MQ_QUEUE_WATCHER, MQ_QUEUE_ROWS);",
        "(void)queue;",
        "queue_sleepers-each_message_wakes_one_receiver_and_all_watchers",
    ),
    handle(
        "a message wakes all receivers",
        "mq_queue_wake_rows(queue, MQ_QUEUE_RECEIVER, messages);",
        "mq_queue_wake_rows(queue, MQ_QUEUE_RECEIVER, MQ_QUEUE_ROWS + messages);",
        "queue_sleepers-each_message_wakes_one_receiver_and_all_watchers",
    ),
    handle(
        "a row that another sender is waking counts",
        "if (mq_eventcount_notify_mp(&queue->rows[row].eventcounts[role])) rows--;",
        "mq_eventcount_notify_mp(&queue->rows[row].eventcounts[role]); rows--;",
        "queue_sleepers-two_senders_at_a_time_wake_two_rows",
    ),
    handle(
        "an arrival wakes nobody",
        "mq_futex_wake_all(mq_futex_word(&queue->notify_seq));",
        "",
        "queue_sleepers-message_to_an_empty_queue_is_notified_and_a_second_one_is_not",
    ),
    handoff(
        "calls with a smaller ticket yield to a handoff",
        "mq_unlikely(handoff != 0) && handoff < ticket &&",
        "mq_unlikely(handoff != 0) && handoff != ticket &&",
        "calls_with_a_larger_ticket_yield_to_a_turn",
    ),
    handoff(
        "a younger call keeps the handoff",
        "if ((owner && owner <= ticket) ||",
        "if (owner ||",
        "oldest_call_takes_over_the_turn_of_a_younger_one",
        "oldest_call_is_not_overtaken_for_ever_by_calls_that_have_turns",
    ),
    handoff(
        "a wake without result is not counted",
        "wait->overtaken++; wait->expected = 0;",
        "wait->expected = 0;",
        "call_that_was_overtaken_twice_takes_the_turn",
    ),
    handoff(
        "the end of a handoff wakes nobody",
        "mq_queue_wake_rows(parts->queue, role, mq_queue_count_available(parts, role));",
        "(void)kind;",
        "end_of_a_turn_wakes_a_row_for_each_message",
    ),
    handoff(
        "the end of a handoff notifies nobody",
        "if (role == MQ_QUEUE_RECEIVER) mq_queue_notify_if_not_empty(parts);",
        "",
        "end_of_a_turn_notifies_about_what_others_left",
    ),
    handoff(
        "the debt of a handoff is paid before its end is known",
        "if (role == MQ_QUEUE_RECEIVER) mq_queue_notify_if_not_empty(parts); } mq_queue_clear_notify_debt(row, 1);",
        "mq_queue_clear_notify_debt(row, 1); if (role == MQ_QUEUE_RECEIVER) mq_queue_notify_if_not_empty(parts); }",
        "end_of_a_turn_notifies_about_what_others_left",
    ),
    handoff(
        "a call keeps its handoff when it ends",
        "mq_queue_end_handoff(&h->parts, h->own_row, wait->role, wait->ticket);",
        "(void)h;",
        "call_that_was_overtaken_twice_takes_the_turn",
        "end_of_a_turn_wakes_a_row_for_each_message",
    ),
    poll_state(
        "the first watcher takes the bit away",
        "if (--state->watcher_count == 0)",
        "if (state->watcher_count--)",
        "queue_sleepers-last_watcher_of_a_handle_takes_its_bit_away",
    ),
    poll_state(
        "a descriptor counts as a watcher each time",
        "state->fd_is_watching = true;",
        "",
        "queue_sleepers-last_watcher_of_a_handle_takes_its_bit_away",
    ),
    poll_state(
        "a notification is consumed repeatedly",
        "mq_store_release_u32(&notification->seen_notify_seq, notify_seq); return due;",
        "return due;",
        "queue_sleepers-notice_is_taken_once",
    ),
    receiver(
        "an invalid message stays taken",
        "return true; mq_queue_requeue_message(h, slot, taken);",
        "return true;",
        "invalid_message_is_not_removed",
    ),
    poll_state(
        "a notification does not search for due messages",
        "else if (mq_queue_delays_changed(h) || now >= *next_recovery_ns)",
        "else if (false)",
        "queue_sleepers-notification_finds_due_messages_between_recoveries",
    ),
    peek(
        "an equal word of the next message is the same",
        "return mq_load_relaxed_u64(&parts->slot_headers[message->slot].sent_time) == message->sent_time;",
        "return true;",
        "queue_sleepers-peek_of_a_message_that_was_replaced_fails",
    ),
    peek(
        "a head is not validated",
        "return mq_peek_message_is_unchanged(parts, message) && message->length <= parts->max_message_size;",
        "return message->length <= parts->max_message_size;",
        "queue_sleepers-peek_of_a_message_that_was_replaced_fails",
    ),
    layout(
        "a queue that is larger than its file is opened",
        "if (mq_queue_locate_parts(parts, queue, messages, size) > bytes) return MQ_FILE_NOT_OURS;",
        "mq_queue_locate_parts(parts, queue, messages, size);",
        "queue_that_does_not_fit_into_its_file_is_rejected",
    ),
    layout(
        "a queue of no messages is opened",
        "return max_messages - 1 < MQ_QUEUE_MESSAGES_MAX &&",
        "return max_messages <= MQ_QUEUE_MESSAGES_MAX &&",
        "sizes_are_valid_from_1_to_the_limit",
    ),
    layout(
        "the last slots are in no block",
        "return (max_messages + MQ_QUEUE_BLOCK_SLOTS - 1) / MQ_QUEUE_BLOCK_SLOTS;",
        "return max_messages / MQ_QUEUE_BLOCK_SLOTS;",
        "queue_plan_has_room_for_each_place",
    ),
    layout(
        "payloads overlap",
        "uint64_t end = payloads + max_messages * mq_queue_round_up_to_cache_line(max_message_size);",
        "uint64_t end = payloads + max_messages * max_message_size;",
        "queue_plan_has_room_for_each_place",
    ),
    scan(
        "a queue without sizes has a message as soon as another program writes a count",
        "return mq_queue_has_sizes(parts->queue);",
        "return true;",
        "queue-queue_without_sizes_has_no_slots_until_sizes_are_stored",
    ),
]
