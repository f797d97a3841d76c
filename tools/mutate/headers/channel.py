"""Mutants of channels: pools, the order, publishers and subscribers."""

from tools.mutate.headers.mutant import mutants_of

pool = mutants_of("msgq/impl/channel/pool.h", "channel")
order = mutants_of("msgq/impl/channel/index_ring.h", "channel")
header = mutants_of("msgq/impl/channel/header.h", "channel")
publisher = mutants_of("msgq/impl/channel/publisher.h", "channel")
subscriber = mutants_of("msgq/impl/channel/subscriber.h", "channel")
layout = mutants_of("msgq/impl/channel/layout.h", "channel")
join = mutants_of("msgq/impl/channel/join.h", "channel_rows")
room = mutants_of("msgq/impl/channel/room.h", "channel_room")

MUTANTS = [
    publisher(
        "a slot gets no memory if further slots get none",
        "return (end > slot && mq_channel_populate_slots(p, end)) || mq_channel_populate_slots(p, (uint64_t)slot + 1);",
        "return end > slot && mq_channel_populate_slots(p, end);",
        "channel_memory-slot_gets_memory_alone_if_further_slots_get_none",
        "channel_memory-slot_beyond_the_further_slots_gets_memory",
    ),
    publisher(
        "a slot gets memory without further slots",
        "return (end > slot && mq_channel_populate_slots(p, end)) || mq_channel_populate_slots(p, (uint64_t)slot + 1);",
        "return end && mq_channel_populate_slots(p, (uint64_t)slot + 1);",
        "channel_memory-slot_gets_memory_with_further_slots_if_memory_is_left",
    ),
    publisher(
        "only further slots get memory",
        "return (end > slot && mq_channel_populate_slots(p, end))",
        "return mq_channel_populate_slots(p, end)",
        "channel_memory-slot_beyond_the_further_slots_gets_memory",
    ),
    publisher(
        "a slot without memory is taken",
        "if (mq_unlikely(slot >= p->populated_slots) && !mq_channel_populate_slot(p, slot)) return MQ_CHANNEL_NO_SLOT;",
        "if (mq_unlikely(slot >= p->populated_slots)) mq_channel_populate_slot(p, slot);",
        "channel_memory-slot_without_memory_stays_free",
    ),
    pool(
        "unpin does not wake",
        "if (mq_eventcount_has_waiters_mp(&slots->pool_header->slot_released)) "
        "mq_eventcount_notify_mp(&slots->pool_header->slot_released);",
        "",
        "pin_clear_wakes_an_owner_that_sleeps",
        "hold_of_a_message_that_has_gone_takes_its_pin_back",
    ),
    pool(
        "unpin clears the pins of all viewers",
        "&slots->pool_header->pins[slot].holders, ~(1ull << viewer)",
        "&slots->pool_header->pins[slot].holders, (uint64_t)viewer & 0",
        "pin_clear_leaves_the_pins_of_other_viewers",
    ),
    pool(
        "a pin of a viewer above 31 is that of another one",
        "mq_fetch_or_u64(&slots->pool_header->pins[slot].holders, 1ull << viewer);",
        "mq_fetch_or_u64(&slots->pool_header->pins[slot].holders, 1ull << viewer % 32);",
        "pin_clear_leaves_the_pins_of_other_viewers",
    ),
    subscriber(
        "a failed hold keeps its pin",
        "mq_pool_pin_clear(pool, m->number, viewer);",
        "",
        "hold_of_a_message_that_has_gone_takes_its_pin_back",
    ),
    subscriber(
        "hold looks at the entry, then pins",
        "mq_pool_pin_set(pool, m->number, viewer); if (!mq_index_ring_entry_is_unchanged(&s->order, "
        "m->position, m->entry)) {",
        "bool stands = mq_index_ring_entry_is_unchanged(&s->order, m->position, m->entry); "
        "mq_pool_pin_set(pool, m->number, "
        "viewer); if (!stands) {",
        "hold_pins_before_it_looks_at_the_entry",
        "hold_of_a_message_that_has_gone_takes_its_pin_back",
    ),
    publisher(
        "clearing the pins of the dead clears those of the living",
        "mq_fetch_and_u64(&p->slots.pool_header->pins[p->limbo_slots[i]].holders, ~dead);",
        "mq_fetch_and_u64(&p->slots.pool_header->pins[p->limbo_slots[i]].holders, 0);",
        "clear_dead_takes_the_pins_of_dead_viewers_alone",
    ),
    header(
        "a joiner takes the pins of all viewers of a slot",
        "if (mq_pool_pin_holders(slots, slot) >> viewer & 1) mq_pool_pin_clear(slots, slot, (unsigned)viewer);",
        "if (mq_pool_pin_holders(slots, slot) >> viewer & 1) "
        "mq_fetch_and_u64(&slots->pool_header->pins[slot].holders, 0);",
        "clear_pins_takes_the_pins_of_one_viewer_alone",
    ),
    header(
        "a joiner leaves the pins of the last slot",
        "for (uint32_t slot = 0; slot < slots->slots; slot++) if (mq_pool_pin_holders",
        "for (uint32_t slot = 0; slot + 1 < slots->slots; slot++) if (mq_pool_pin_holders",
        "clear_pins_takes_the_pins_of_one_viewer_alone",
    ),
    publisher(
        "the pins of dead viewers on published messages are cleared",
        "for (uint32_t i = 0; dead && i < p->limbo_count; i++) "
        "if (mq_pool_pin_holders(&p->slots, p->limbo_slots[i]) & dead) "
        "mq_fetch_and_u64(&p->slots.pool_header->pins[p->limbo_slots[i]].holders, ~dead);",
        "for (uint32_t i = 0; dead && i < mq_channel_count_used_slots(p); i++) "
        "mq_fetch_and_u64(&p->slots.pool_header->pins[mq_channel_get_used_slot(p, i)].holders, ~dead);",
        "channel_rows-pins_of_the_dead_are_cleared_where_the_next_viewer_cannot_pin",
    ),
    publisher(
        "a viewer that was found dead stays dead",
        "uint64_t dead = mq_channel_find_dead_viewers(p, p->limbo_count);",
        "static uint64_t dead; dead |= mq_channel_find_dead_viewers(p, p->limbo_count);",
        "channel_rows-next_viewer_in_the_row_of_the_dead_is_alive",
    ),
    publisher(
        "a slot that was released in limbo is taken last",
        "if (slot == MQ_CHANNEL_NO_SLOT) slot = mq_channel_take_released_slot(p);",
        "if (slot == MQ_CHANNEL_NO_SLOT && !mq_channel_has_unpinned_slot(p, 0)) "
        "slot = mq_channel_take_released_slot(p);",
        "channel_rows-released_slot_is_taken_before_a_message_is_withdrawn",
    ),
    join(
        "a viewer inherits the pins of the dead",
        "failed = mq_channel_clear_pins_of_viewer(files, lock, row, error);",
        "failed = 0;",
        "viewer_clears_the_pins_of_the_dead_before_it_locks_the_row",
    ),
    join(
        "a viewer locks its row, then clears the pins of the dead",
        "if (mq_channel_viewer_row_is_stale(files->header, row)) "
        "failed = mq_channel_clear_pins_of_viewer(files, lock, row, error); if (failed) return failed; "
        "rows->viewer_token = mq_liveness_lock(&lock->file, "
        "MQ_CHANNEL_VIEWER_BYTE + (uint64_t)row, false);",
        "rows->viewer_token = mq_liveness_lock(&lock->file, MQ_CHANNEL_VIEWER_BYTE + (uint64_t)row, false); "
        "failed = mq_channel_clear_pins_of_viewer(files, lock, row, error); if (failed) return failed;",
        "viewer_clears_the_pins_of_the_dead_before_it_locks_the_row",
    ),
    join(
        "the pool of a dead row is removed before its messages",
        "if (has_order) mq_channel_retract_row_entries(&order, (unsigned)dead[i].row);",
        "",
        "row_of_the_dead_is_released_after_its_messages_are_retracted",
    ),
    join(
        "the entries of a row are counted, then its owner is found dead",
        "|| living >> i & 1) continue; "
        "mq_channel_dead_pool *pool = &dead[count++]; *pool = (mq_channel_dead_pool){.row = i, "
        ".bytes = mq_load_relaxed_u64(&row->pool_bytes)}; "
        "if (order && !mq_channel_count_row_entries(order, (unsigned)i, &pool->newest)) pool->newest = 0;",
        ")\ncontinue;\nmq_channel_dead_pool *pool = &dead[count]; *pool = (mq_channel_dead_pool){.row = i, "
        ".bytes = mq_load_relaxed_u64(&row->pool_bytes)}; "
        "if (order && !mq_channel_count_row_entries(order, (unsigned)i, &pool->newest)) pool->newest = 0; "
        "mq_liveness_probe probe = mq_liveness_probe_begin(files->liveness_file); "
        "count += mq_channel_publisher_liveness(files->header, &probe, i) == MQ_DEAD;",
        "entries_of_a_row_are_counted_after_the_death_of_its_owner",
    ),
    publisher(
        "a slot that is held is taken for free",
        "if (!mq_pool_pin_holders(&p->slots, slot)) return (int)slot;",
        "return (int)slot;",
        "take_of_a_slot_that_a_living_viewer_holds_fails_until_it_lets_go",
    ),
    publisher(
        "slots in limbo stay there",
        "if (slot == MQ_CHANNEL_NO_SLOT) slot = mq_channel_take_released_slot(p);",
        "",
        "take_of_a_slot_that_a_living_viewer_holds_fails_until_it_lets_go",
    ),
    publisher(
        "messages are retracted though all slots are held",
        "if (!mq_channel_can_evict_message(p)) break;",
        "if (!p->published_count) break;",
        "publisher_evicts_nothing_when_all_its_messages_are_held",
    ),
    publisher(
        "payload is written without a fence",
        "mq_fence_release(); return mq_pool_slot_payload(",
        "return mq_pool_slot_payload(",
        "publish_stores_the_message_before_its_entry",
    ),
    publisher(
        "publish asks for no wake",
        "return mq_eventcount_has_waiters_mp(&p->header->eventcount) ? MQ_CHANNEL_NOTIFY : MQ_CHANNEL_OK;",
        "return MQ_CHANNEL_OK;",
        "publish_asks_for_a_wake_when_a_subscriber_sleeps",
    ),
    publisher(
        "all rows of a batch are its first one",
        "mq_copy_to_shared(mq_channel_begin_slot_write(p, (uint32_t)slot), rows + done * size, size);",
        "mq_copy_to_shared(mq_channel_begin_slot_write(p, (uint32_t)slot), rows, size);",
        "publish_batch_gives_each_row_its_own_slot_and_position",
    ),
    publisher(
        "a batch returns its last position",
        "if (!done) *first = position;",
        "*first = position;",
        "publish_batch_gives_each_row_its_own_slot_and_position",
    ),
    subscriber(
        "an unmapped slot is not checked again",
        "if (!mq_index_ring_entry_is_unchanged(&s->order, m->position, m->entry)) continue;",
        "if (0) continue;",
        "next_asks_for_no_pool_of_a_message_that_has_gone",
        "next_reports_no_corruption_of_a_message_that_has_gone",
    ),
    subscriber(
        "a slot beyond the pool is opened",
        "if (m->number >= pool->slots)",
        "if (m->number > pool->slots)",
        "next_reports_a_slot_beyond_the_pool",
    ),
    subscriber(
        "a length beyond the slot is believed",
        "return m->length <= pool->slot_bytes ? MQ_CHANNEL_OK : MQ_CHANNEL_CORRUPT;",
        "return m->length <= pool->slot_bytes + 1 ? MQ_CHANNEL_OK : MQ_CHANNEL_CORRUPT;",
        "next_reports_a_length_beyond_the_slot",
    ),
    subscriber(
        "a batch continues across a loss",
        "mq_channel_following_message(s, &m) == MQ_CHANNEL_OK &&",
        "mq_channel_next_message(s, &m) == MQ_CHANNEL_OK &&",
        "take_batch_ends_before_a_loss",
    ),
    subscriber(
        "a message follows after a lap",
        "if (ahead > 0 && !passes_losses) return MQ_CHANNEL_EMPTY;",
        "",
        "take_batch_ends_before_a_loss",
    ),
    subscriber(
        "a message follows after a retracted one",
        "if (m->row == MQ_INDEX_RING_RETRACTED && !passes_losses) return MQ_CHANNEL_EMPTY;",
        "",
        "following_message_is_not_after_a_retracted_one",
    ),
    subscriber(
        "a message follows the newest one",
        "return s->conflate ? MQ_CHANNEL_EMPTY : mq_channel_find_message(s, m, false);",
        "return mq_channel_find_message(s, m, false);",
        "newest_message_has_no_following_one",
    ),
    subscriber(
        "a batch continues with another publisher",
        "m.row == last->row && m.pool_uid == last->pool_uid && m.length == size",
        "m.length == size",
        "take_batch_ends_before_another_publisher_and_another_size",
    ),
    subscriber(
        "a batch continues with another size",
        "m.pool_uid == last->pool_uid && m.length == size) {",
        "m.pool_uid == last->pool_uid && m.length >= size) {",
        "take_batch_ends_before_another_publisher_and_another_size",
    ),
    subscriber(
        "a copy is not validated",
        "if (mq_load_relaxed_u64(mq_index_ring_entry_at(&s->order, m->position)) != m->entry) return false;",
        "",
        "accept_of_a_message_that_was_overwritten_fails",
    ),
    subscriber(
        "a copy is validated without a fence",
        "mq_fence_acquire();",
        "",
        "accept_looks_at_the_entry_after_a_fence",
    ),
    subscriber(
        "a lap is counted as one message",
        "s->lost += cursor - from;",
        "s->lost += 1;",
        "lapped_subscriber_counts_each_message_that_it_passes",
    ),
    subscriber(
        "messages from before the join are lost",
        "if (from < s->joined_at) from = cursor < s->joined_at ? cursor : s->joined_at;",
        "",
        "messages_before_the_join_are_not_lost",
    ),
    subscriber(
        "a subscriber that is lapped again continues at the oldest message",
        "s->margin = !again ? 0 : margin < most ? margin : most;",
        "s->margin = again * (most - most) + 0 * margin;",
        "lapped_subscriber_continues_at_the_oldest_message_unless_it_is_lapped_again_at_once",
    ),
    subscriber(
        "a subscriber that was lapped once keeps its margin",
        "bool again = s->resets > 1 && s->received - s->received_at_lap < least;",
        "bool again = s->resets > 1;",
        "lapped_subscriber_continues_at_the_oldest_message_unless_it_is_lapped_again_at_once",
    ),
    subscriber(
        "a margin grows beyond half of the capacity",
        "margin < most ? margin : most;",
        "margin;",
        "lapped_subscriber_continues_at_the_oldest_message_unless_it_is_lapped_again_at_once",
    ),
    subscriber(
        "a lapped subscriber never stops napping",
        "return now_ns < s->behind_until && s->order.capacity",
        "return s->behind_until && s->order.capacity",
        "lapped_subscriber_naps_for_a_while",
    ),
    subscriber(
        "own messages are lost",
        "if (!is_excluded) return status == MQ_CHANNEL_UNMAPPED ? status : MQ_CHANNEL_CORRUPT; "
        "mq_channel_set_cursor(s, m->position + 1);",
        "if (!is_excluded) return status == MQ_CHANNEL_UNMAPPED ? status : MQ_CHANNEL_CORRUPT; "
        "mq_channel_skip_lost(s, m->position + 1);",
        "own_messages_are_passed_and_not_lost",
    ),
    subscriber(
        "messages that conflation skips are not lost",
        "mq_channel_skip_lost(s, at - 1); return;",
        "mq_channel_set_cursor(s, at - 1); return;",
        "conflating_subscriber_takes_the_newest_and_counts_the_rest",
    ),
    header(
        "a pool's uid is stored before its identity",
        "mq_participant_write(&row->participant, self, slots->uid, held); "
        "mq_store_release_u64(&row->pool_uid, slots->uid);",
        "mq_store_release_u64(&row->pool_uid, slots->uid); "
        "mq_participant_write(&row->participant, self, slots->uid, held);",
        "channel_rows-publisher_register_stores_the_pool_after_the_identity",
    ),
    header(
        "a row is freed before its identity is cleared",
        "mq_participant_clear(&row->participant); mq_store_release_u64(&row->pool_uid, 0);",
        "mq_store_release_u64(&row->pool_uid, 0); mq_participant_clear(&row->participant);",
        "channel_rows-release_row_clears_the_identity_before_the_pool",
    ),
    header(
        "a row whose owner is just leaving is taken",
        "if (*liveness_token || errno != EAGAIN)",
        "if (*liveness_token || errno)",
        "channel_rows-find_free_row_skips_a_row_whose_lock_is_held",
    ),
    header(
        "messages of others are retracted with those of a dead row",
        "if (mq_index_entry_pool_row(entry) == row)",
        "if (mq_index_entry_pool_row(entry) >= row)",
        "channel_rows-retract_all_of_a_dead_row_leaves_the_messages_of_others",
    ),
    header(
        "the newest message of a row is its last entry",
        "*newest = after > *newest ? after : *newest;",
        "*newest = after - 1;",
        "channel_rows-retract_all_of_a_dead_row_leaves_the_messages_of_others",
    ),
    order(
        "a publisher that stopped before its tail is not helped",
        "if (ahead == 0) mq_compare_exchange_u64(order->tail, position, position + 1);",
        "",
        "publish_helps_a_publisher_that_stopped_before_its_tail",
    ),
    order(
        "a helper stores the tail without an exchange",
        "if (ahead == 0) mq_compare_exchange_u64(order->tail, position, position + 1);",
        "if (ahead == 0) mq_store_release_u64(order->tail, position + 1);",
        "helper_that_others_overtake_leaves_the_tail",
    ),
    order(
        "an entry is stored without an exchange",
        "mq_compare_exchange_u64(at, entry, mq_index_entry_pack(position, row, slot))) {",
        "(mq_store_release_u64(at, mq_index_entry_pack(position, row, slot)), true)) {",
        "publish_that_another_one_overtakes_gets_the_next_position",
    ),
    header(
        "a channel file that is larger than its file is opened",
        "return known && mq_load_relaxed_u64(&header->total_bytes) <= bytes ?",
        "return known ?",
        "header_of_another_size_or_version_is_rejected",
    ),
    header(
        "the order has any capacity",
        "if (config.capacity && !mq_channel_capacity_is_valid(config.capacity)) return false;",
        "",
        "configure_accepts_capacities_that_are_powers_of_two_alone",
    ),
    layout(
        "a capacity need not be a power of two",
        "capacity <= MQ_CHANNEL_CAPACITY_MAX && !(capacity & (capacity - 1));",
        "capacity <= MQ_CHANNEL_CAPACITY_MAX;",
        "configure_accepts_capacities_that_are_powers_of_two_alone",
    ),
    layout(
        "the number of subscribers is that of publishers",
        ".subscribers = word >> 24 & 0xFF,",
        ".subscribers = word >> 16 & 0xFF,",
        "configure_accepts_capacities_that_are_powers_of_two_alone",
    ),
    pool(
        "a pool has slots beyond its file",
        "(bytes - offset) / stride < count)",
        "(bytes - offset) / stride + 1 < count)",
        "pool_that_does_not_fit_into_its_file_is_rejected",
    ),
    pool(
        "slots lie over pins",
        "offset < sizeof(mq_pool_header) + count * sizeof(mq_pool_pin) ||",
        "",
        "pool_that_does_not_fit_into_its_file_is_rejected",
    ),
    pool(
        "the pool of another channel is opened",
        "!= uid || mq_load_relaxed_u64(&pool->channel_inode) != channel_inode)",
        "!= uid || !channel_inode)",
        "pool_that_does_not_fit_into_its_file_is_rejected",
    ),
    pool(
        "a slot of any size is believed",
        "slot_bytes > MQ_POOL_BYTES_MAX ||",
        "",
        "pool_that_does_not_fit_into_its_file_is_rejected",
    ),
    pool(
        "a slot begins within a page",
        "offset % 4096 ||",
        "",
        "pool_that_does_not_fit_into_its_file_is_rejected",
    ),
    pool(
        "pins may not end at the first slot",
        "offset < sizeof(mq_pool_header) + count * sizeof(mq_pool_pin)",
        "offset <= sizeof(mq_pool_header) + count * sizeof(mq_pool_pin)",
        "pool_that_does_not_fit_into_its_file_is_rejected",
    ),
    pool(
        "a long name in a pool has no NUL",
        "mq_copy_to_shared(pool->node, node, strnlen(node, MQ_NODE_NAME_BYTES - 1));",
        "mq_copy_to_shared(pool->node, node, strnlen(node, MQ_NODE_NAME_BYTES));",
        "name_of_a_node_ends_with_a_nul",
    ),
    header(
        "a long name in a row has no NUL",
        "strnlen(node, MQ_NODE_NAME_BYTES - 1)); mq_store_relaxed_u64(&row->slots, slots->slots);",
        "strnlen(node, MQ_NODE_NAME_BYTES)); mq_store_relaxed_u64(&row->slots, slots->slots);",
        "name_of_a_node_ends_with_a_nul",
    ),
    subscriber(
        "a skip before the join makes `lost` underflow",
        "from = cursor < s->joined_at ? cursor : s->joined_at;",
        "from = s->joined_at;",
        "retracted_messages_before_the_join_are_not_lost",
    ),
    publisher(
        "dead viewers of published messages are not looked for",
        "mq_channel_find_dead_viewers(p, mq_channel_count_used_slots(p)) : 0;",
        "mq_channel_find_dead_viewers(p, p->limbo_count) : 0;",
        "take_with_all_messages_held_by_the_dead_retracts_one",
    ),
    subscriber(
        "a batch continues with the next pool of a row",
        "m.row == last->row && m.pool_uid == last->pool_uid &&",
        "m.row == last->row &&",
        "take_batch_ends_before_another_pool_of_the_row_and_in_a_truncated_pool",
    ),
    subscriber(
        "a batch continues in a truncated pool",
        "if (mq_mapping_was_truncated(not_truncated)) break;",
        "(void)not_truncated;",
        "take_batch_ends_before_another_pool_of_the_row_and_in_a_truncated_pool",
    ),
    pool(
        "the first slot is beyond the file",
        "offset > bytes ||",
        "",
        "pool_that_does_not_fit_into_its_file_is_rejected",
    ),
    room(
        "a subscriber without a cursor leaves no room",
        "cursor = cursor ? cursor : p->order.capacity;",
        "",
        "room_of_a_subscriber_without_a_cursor_ends_after_the_capacity",
    ),
    room(
        "history takes room",
        "return cursor > joined ? cursor : joined;",
        "(void)joined; return cursor;",
        "history_before_the_join_takes_no_room",
    ),
    room(
        "only the last row counts",
        "first = position < first ? position : first;",
        "first = position;",
        "room_ends_at_the_oldest_unread_message_of_all_rows",
    ),
    room(
        "the next owner of a dead subscriber's row does not count",
        "if (!uid || uid == p->dead_subscribers[i])",
        "if (!uid || p->dead_subscribers[i])",
        "row_of_a_dead_owner_leaves_room_until_it_has_another_owner",
    ),
    room(
        "a dead subscriber leaves no room",
        "p->dead_subscribers[i] = uid;",
        "(void)uid;",
        "row_of_a_dead_owner_leaves_room_until_it_has_another_owner",
    ),
    room(
        "a subscriber whose life is unknown leaves room",
        "MQ_CHANNEL_SUBSCRIBER_BYTE + i) == MQ_DEAD)",
        "MQ_CHANNEL_SUBSCRIBER_BYTE + i) != MQ_ALIVE)",
        "row_of_an_owner_whose_life_is_unknown_leaves_no_room",
    ),
    room(
        "a message before its tail takes no room",
        "return mq_channel_snapshot_end_position(&p->order) + messages",
        "return mq_index_ring_load_tail(&p->order) + messages",
        "room_counts_a_message_before_its_tail",
    ),
    room(
        "slots of unread messages are room",
        "->position >= p->unread_from) break;",
        "->position >= UINT64_MAX) break;",
        "slots_of_unread_messages_are_no_room",
    ),
    room(
        "pinned slots are room",
        "slots += !(mq_pool_pin_holders(&p->slots, mq_channel_get_used_slot(p, i)) & ~dead);",
        "(void)dead; slots++;",
        "slots_of_unread_messages_are_no_room",
    ),
    room(
        "sends do not clear the pins of a dead viewer at once",
        "if (dead) p->next_probe_at = p->sent;",
        "",
        "pins_of_a_dead_viewer_are_room_and_are_cleared_by_the_next_sends",
    ),
]
