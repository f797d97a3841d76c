"""Mutants of the views of a simulation: what has arrived at a subscriber."""

from tools.mutate.headers.mutant import mutants_of

ring = mutants_of("msgq/impl/ring/view.h", "ring_view")
channel = mutants_of("msgq/impl/channel/view.h", "channel_view")

MUTANTS = [
    ring(
        "the view shows the newest position of the ring",
        "mq_store_release_u64(&shown->write_pointer, position);",
        "mq_store_release_u64(&shown->write_pointer, mq_load_acquire_u64(&ring->write_pointer));",
        "messages_after_the_shown_position_do_not_exist",
        "conflating_subscriber_takes_the_newest_shown_message",
    ),
    ring(
        "the view keeps the publisher that it began with",
        "mq_store_release_u64(&shown->write_uid, mq_load_acquire_u64(&ring->write_uid));",
        "if (!shown->write_uid) shown->write_uid = mq_load_acquire_u64(&ring->write_uid);",
        "new_publisher_is_shown",
    ),
    ring(
        "a message counts as intact forever",
        "return mq_ring_message_is_intact(mq_load_relaxed_u64(&side->write_limit), position);",
        "return side != NULL || position;",
        "message_is_intact_until_the_publisher_begins_to_overwrite_it",
    ),
    ring(
        "a repeated message is not delivered",
        "s->cursor = position;",
        "(void)position;",
        "repeated_message_is_received_again_and_is_not_lost",
    ),
    ring(
        "a repeated message counts as published twice",
        "s->sequence_base -= 1;",
        "",
        "repeated_message_is_received_again_and_is_not_lost",
    ),
    ring(
        "observers do not see that a message is repeated",
        "mq_ring_subscriber_store_stats(s);",
        "",
        "repeated_message_is_received_again_and_is_not_lost",
    ),
    channel(
        "the subscriber reads the channel's entries",
        "s->order.tail = &v->tail, s->order.entries = v->entries;",
        "s->order.tail = &v->tail;",
        "messages_are_received_once_they_have_arrived",
        "retracted_message_is_lost_in_its_turn",
    ),
    channel(
        "the subscriber reads the channel's tail",
        "s->order.tail = &v->tail, s->order.entries = v->entries;",
        "s->order.entries = v->entries;",
        "conflating_subscriber_takes_the_newest_that_has_arrived",
    ),
    channel(
        "a view is freed twice",
        "free(v->entries); v->entries = NULL;",
        "free(v->entries);",
        "messages_are_received_once_they_have_arrived",
    ),
    channel(
        "messages that have not arrived are shown",
        "if (ahead >= 0)",
        "if (ahead > INT64_MAX / 2)",
        "messages_are_received_once_they_have_arrived",
        "message_of_a_later_lap_stays_hidden",
    ),
    channel(
        "the newest message that has arrived is hidden",
        "if (ahead >= 0)",
        "if (ahead >= -1)",
        "messages_are_received_once_they_have_arrived",
    ),
    channel(
        "the next message that arrives is shown",
        "if (ahead >= 0)",
        "if (ahead > 0)",
        "messages_are_received_once_they_have_arrived",
    ),
    channel(
        "an entry that is hidden counts as empty, so a lap is not noticed",
        "return mq_index_entry_pack(last + 1, MQ_INDEX_RING_RETRACTED, 0);",
        "return last * 0;",
        "messages_overwritten_by_hidden_ones_are_lost",
    ),
    channel(
        "a conflating subscriber gets the tail of the ring",
        "tail = v->end; break;",
        "break;",
        "conflating_subscriber_takes_the_newest_that_has_arrived",
    ),
    channel(
        "a conflating subscriber gets the end of what has arrived, although that is overwritten",
        "if (mq_index_ring_load_entry(&s->order, at - 1, &entry) != 0) break;",
        "if (mq_index_ring_load_entry(&s->order, at - 1, &entry) != 0) { tail = v->end; break; }",
        "lapped_conflating_subscriber_without_an_arrived_message_gets_the_tail_of_the_ring",
    ),
    channel(
        "a retracted message is intact",
        "return mq_index_ring_load_entry(&v->ring, position, &entry) == 0 &&",
        "return mq_index_ring_load_entry(&v->ring, position, &entry) == 0 ||",
        "only_shown_messages_of_the_channel_are_retracted",
    ),
    channel(
        "a dropped message is not lost",
        "if (position < v->end && mq_channel_view_is_intact(v, position))",
        "if (position + 1 == 0)",
        "retracted_message_is_lost_in_its_turn",
    ),
    channel(
        "a dropped message hides the message that has overwritten it",
        "if (position < v->end && mq_channel_view_is_intact(v, position))",
        "if (position < v->end)",
        "only_shown_messages_of_the_channel_are_retracted",
    ),
    channel(
        "a dropped message is retracted before its turn",
        "if (position < v->end && mq_channel_view_is_intact(v, position))",
        "if (mq_channel_view_is_intact(v, position))",
        "only_shown_messages_of_the_channel_are_retracted",
    ),
    channel(
        "a lap counts although the subscriber has read all",
        "if (mq_channel_load_cursor(s) >= position)",
        "if (mq_channel_load_cursor(s) > position)",
        "lap_skips_unread_messages_and_counts_a_reset",
    ),
    channel(
        "a lap is not counted",
        "s->resets++;",
        "",
        "lap_skips_unread_messages_and_counts_a_reset",
    ),
    channel(
        "the messages of a lap are not lost",
        "mq_channel_skip_lost(s, position);",
        "",
        "lap_skips_unread_messages_and_counts_a_reset",
    ),
]
