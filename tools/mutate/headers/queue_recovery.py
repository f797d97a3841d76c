"""Mutants of work queues: recovery from dead owners, and ended leases."""

from tools.mutate.headers.mutant import mutants_of

recovery = mutants_of("msgq/impl/workqueue/recovery.h", "queue")
join = mutants_of("msgq/impl/workqueue/join.h", "queue_join")

MUTANTS = [
    recovery(
        "rows with notifications to send are not recovered",
        "if (debts || mq_queue_other_row_has_bit(h))",
        "if (mq_queue_other_row_has_bit(h))",
        "queue_sleepers-row_with_any_trace_of_its_owner_is_settled",
    ),
    recovery(
        "rows with bits are not recovered",
        "if (debts || mq_queue_other_row_has_bit(h))",
        "if (debts)",
        "queue_sleepers-row_with_any_trace_of_its_owner_is_settled",
    ),
    recovery(
        "rows with a handoff are not recovered",
        "unsigned row = handoffs ? 0 : MQ_QUEUE_ROWS;",
        "unsigned row = handoffs ? MQ_QUEUE_ROWS : MQ_QUEUE_ROWS;",
        "queue_sleepers-row_with_any_trace_of_its_owner_is_settled",
    ),
    recovery(
        "looks for the dead leave handoffs",
        "mq_queue_must_yield_to_handoff(h, (mq_queue_role)role, MQ_NO_TICKET);",
        "(void)kind;",
        "queue_handoff-looks_for_the_dead_end_a_turn_that_leaves_a_message",
    ),
    recovery(
        "freeing a filling slot wakes no sender",
        "else if (mq_compare_exchange_u64(&h->parts.slot_states[slot], word, 0)) mq_queue_wake_sender(h->parts.queue);",
        "else mq_compare_exchange_u64(&h->parts.slot_states[slot], word, 0);",
        "sweep_frees_the_place_of_a_dead_sender_and_wakes_a_sender",
    ),
    recovery(
        "a leaving handle forwards no wake",
        "mq_queue_forward_receiver_wake(h); mq_queue_forward_sender_wake(h);",
        "mq_queue_forward_sender_wake(h);",
        "queue_sleepers-leave_passes_a_wake_on_to_a_receiver",
    ),
    recovery(
        "a leaving handle forwards no free room",
        "mq_queue_forward_sender_wake(h); mq_queue_recover_row",
        "mq_queue_recover_row",
        "queue_sleepers-leave_passes_free_room_on_to_a_sender",
    ),
    recovery(
        "a leaving handle does not notify about remaining messages",
        "if (has_debt) mq_queue_notify_if_not_empty(parts);",
        "",
        "queue_sleepers-leave_notifies_about_messages_that_were_left_to_its_handle",
        "queue_sleepers-leave_with_a_debt_notifies",
        "queue_sleepers-settle_of_a_dead_row_keeps_the_debt_until_it_is_paid",
    ),
    recovery(
        "a leaving handle notifies without a debt",
        "if (has_debt) mq_queue_notify_if_not_empty(parts);",
        "mq_queue_notify_if_not_empty(parts);",
        "queue_sleepers-leave_without_a_debt_makes_no_notification",
    ),
    recovery(
        "a waiting handle owes no notification",
        "|| mq_queue_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_RECEIVER], row); if (has_debt)",
        "; if (has_debt)",
        "queue_sleepers-leave_notifies_about_messages_that_were_left_to_its_handle",
    ),
    recovery(
        "a debt of the dead is not kept until it is paid",
        "mq_store_relaxed_u64(&notify_debt[0], 1);",
        ";",
        "queue_sleepers-settle_of_a_dead_row_keeps_the_debt_until_it_is_paid",
    ),
    recovery(
        "a waiter that gives up notifies no process",
        "mq_queue_forward_receiver_wake(h); mq_queue_notify_if_not_empty(&h->parts);",
        "mq_queue_forward_receiver_wake(h);",
        "queue_sleepers-giving_up_passes_the_wake_on_and_notifies",
    ),
    recovery(
        "bits of the living are cleared",
        "participant, MQ_QUEUE_ROW_BYTE + (int)row) == MQ_DEAD) mq_queue_recover_row",
        "participant, MQ_QUEUE_ROW_BYTE + (int)row) != MQ_UNKNOWN) mq_queue_recover_row",
        "queue_sleepers-settle_leaves_rows_of_the_living",
    ),
    recovery(
        "rows of the dead are recovered without the lock of the file",
        "if (fd >= 0) mq_queue_recover_dead_rows(h);",
        "mq_queue_recover_dead_rows(h);",
        "queue_sleepers-row_of_the_dead_is_settled_under_the_lock_of_the_file",
    ),
    recovery(
        "a request for notification outlives its owner",
        "mq_queue_clear_row_bit(&queue->notify_requested, row);",
        "",
        "queue_sleepers-settle_of_a_dead_row_keeps_the_debt_until_it_is_paid",
    ),
    recovery(
        "an owner of unknown liveness is dead",
        ".died = liveness == MQ_DEAD,",
        ".died = liveness != MQ_ALIVE,",
        "sweep_returns_the_message_of_a_dead_consumer_and_wakes_a_receiver",
    ),
    recovery(
        "a handle takes itself for dead",
        "if (row == h->row_number && generation == h->generation) return false;",
        "if (row == h->row_number && generation != h->generation) return false;",
        "sweep_takes_nothing_from_its_own_handle",
    ),
    recovery(
        "a handle's own row may need a recovery",
        "return row != h->row_number && !mq_queue_row_is_clean(h->parts.queue, row);",
        "return !mq_queue_row_is_clean(h->parts.queue, row);",
        "each_row_of_another_participant_may_need_a_recovery",
    ),
    recovery(
        "the first row needs no recovery",
        "unsigned row = handoffs ? 0 : MQ_QUEUE_ROWS; while (row < MQ_QUEUE_ROWS &&",
        "unsigned row = 1; while (row < MQ_QUEUE_ROWS &&",
        "each_row_of_another_participant_may_need_a_recovery",
    ),
    recovery(
        "the last row needs no recovery",
        "return row < MQ_QUEUE_ROWS; }",
        "return row < MQ_QUEUE_ROWS - 1; }",
        "each_row_of_another_participant_may_need_a_recovery",
    ),
    recovery(
        "the time of a recovery is not stored",
        "h->last_recovery_ns = now_ns;",
        "",
        "queue_sleepers-poll_finds_due_messages_between_recoveries",
    ),
    recovery(
        "a delayed message is due one tick later",
        "? !leased || left <= 0",
        "? !leased || left < 0",
        "queue_delays-delayed_message_becomes_ready_at_its_due_time",
    ),
    recovery(
        "a delayed message belongs to its sender",
        "bool is_over = state == MQ_SLOT_DELAYED ? !leased || left <= 0 :",
        "bool is_over = state == MQ_SLOT_DELAYED && !leased ? true :",
        "queue_delays-delayed_message_needs_no_living_owner",
    ),
    recovery(
        "a delayed message with a corrupt due time stays",
        "? !leased || left <= 0",
        "? left <= 0",
        "queue_delays-delayed_message_with_a_corrupt_due_time_is_due",
    ),
    recovery(
        "a search for due messages is repeated",
        "h->seen_delay_count = mq_load_acquire_u64(&h->parts.queue->delay_count);",
        "",
        "queue_delays-delayed_message_wakes_a_receiver_that_then_learns_its_due_time",
    ),
    recovery(
        "a lease lasts one tick longer",
        ": left <= 0 ||",
        ": left < 0 ||",
        "lease_belongs_to_the_take_that_it_was_given_to",
    ),
    recovery(
        "a sweep returns the end of the last lease",
        "} else if (left < next) next = left;",
        "} else next = left;",
        "sweep_asks_in_time_for_the_next_lease",
    ),
    recovery(
        "a leaving handle returns nothing",
        "if (mq_slot_state_decode(word) == MQ_SLOT_TAKEN) mq_queue_requeue_message(h, slot, word); "
        "else mq_queue_release",
        "if (mq_slot_state_decode(word) != MQ_SLOT_TAKEN) mq_queue_release",
        "queue_sleepers-leave_returns_the_messages_and_places_of_its_handle",
    ),
    # Equivalent: mq_queue_owner_died without the comparison of the generation. mq_row_liveness compares it, too. If the
    # owner of a row changes during a recovery, the next recovery finds the row.
    recovery(
        "a leaving handle frees slots of others",
        "if (!mq_queue_owns_word(h, word)) continue; if (mq_slot",
        "if (mq_slot",
        "queue_sleepers-leave_returns_the_messages_and_places_of_its_handle",
    ),
    recovery(
        "a request for notifications is no trace of an owner",
        "!mq_queue_row_bit_is_set(&queue->notify_requested, row) && !mq_load_relaxed_u64(&r->notify_debt[0])",
        "!mq_load_relaxed_u64(&r->notify_debt[0])",
        "queue_sleepers-row_with_any_trace_of_its_owner_is_settled",
    ),
    recovery(
        "the debt of a send is no trace of an owner",
        "!mq_load_relaxed_u64(&r->notify_debt[0]) &&",
        "",
        "queue_sleepers-row_with_any_trace_of_its_owner_is_settled",
    ),
    recovery(
        "other debts are no trace of an owner",
        "&& !mq_load_relaxed_u64(&r->notify_debt[1]);",
        ";",
        "queue_sleepers-row_with_any_trace_of_its_owner_is_settled",
    ),
    recovery(
        "a sleeper is no trace of an owner",
        "is_clean && !mq_queue_row_bit_is_set(&queue->sleeping_rows[role], row) &&",
        "is_clean &&",
        "queue_sleepers-row_with_any_trace_of_its_owner_is_settled",
    ),
    recovery(
        "a handoff is no trace of an owner",
        "&& !mq_queue_get_row_handoff_ticket(queue, row, role);",
        ";",
        "queue_sleepers-row_with_any_trace_of_its_owner_is_settled",
    ),
    recovery(
        "a joining handle keeps the traces of the dead owner of its row",
        "mq_queue_recover_row(&h->parts, (unsigned)row); mq_copy_to_shared",
        "mq_copy_to_shared",
        "queue_handoff-join_ends_the_turn_of_the_dead_owner_of_its_row",
    ),
    recovery(
        "the counts of a handle include those of the former owners of its row",
        "mq_copy_to_shared(&own_row->counts_before, &own_row->counts, sizeof own_row->counts_before);",
        "",
        "observers-counts_of_an_owner_begin_at_those_of_its_row",
    ),
    join(
        "a handle without a lock claims that it holds one",
        "*row_token != NULL);",
        "true);",
        "join_without_a_lock_claims_none",
    ),
]
