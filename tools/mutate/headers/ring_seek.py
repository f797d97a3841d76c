"""Mutants of topics: a subscriber that begins at the oldest or at the last message."""

from tools.mutate.headers.mutant import mutants_of

seek = mutants_of("msgq/impl/ring/seek.h", "ring_seek")
next_message = mutants_of("msgq/impl/ring/next_message.h", "ring_seek")

MUTANTS = [
    next_message(
        "the last message is searched without the previous checkpoint",
        "s->announces_limit && s->side && i < 2; i++",
        "s->announces_limit && s->side && i < 1; i++",
        "subscriber_from_the_last_message_on_receives_it_before_the_first_of_a_lap",
    ),
    next_message(
        "the last message is searched without checkpoints and in the lap only",
        "s->announces_limit && s->side && i < 2; i++",
        "s->announces_limit && s->side && i < 0; i++",
        "subscriber_from_the_last_message_on_receives_it_before_the_first_of_a_lap",
    ),
    next_message(
        "invalid positions are searched for the last message",
        "if (!mq_ring_position_is_valid(from, s->data_bytes) || mq_ring_count",
        "if (mq_ring_count",
        "subscriber_from_the_last_message_on_ignores_invalid_positions",
    ),
    seek(
        "messages before the last one are lost",
        "mq_ring_subscriber_skip_to(s, last, 0);",
        "mq_ring_subscriber_skip_to(s, last, 1);",
        "subscriber_from_the_last_message_on_receives_it",
    ),
    next_message(
        "the last message is overwritten during its search",
        "return mq_ring_subscriber_is_valid(s, from) && mq_ring_subscriber_is_intact(s, *last);",
        "return true;",
        "subscriber_from_the_last_message_on_searches_again_if_a_stock_publisher_laps_the_search",
    ),
    seek(
        "messages before the oldest one are not lost",
        "former = (int64_t)mq_ring_subscriber_sequence(s); s->sequence_base -= (uint64_t)former;",
        "former = 0;",
        "subscriber_from_the_oldest_message_on_counts_earlier_ones",
    ),
    next_message(
        "only the last message is validated after the search, not its begin",
        "return mq_ring_subscriber_is_valid(s, from) && mq_ring_subscriber_is_intact(s, *last);",
        "return mq_ring_subscriber_is_intact(s, *last);",
        "subscriber_from_the_last_message_on_searches_again_if_the_begin_of_the_search_is_overwritten",
    ),
    next_message(
        "only the begin of the search is validated after the search, not the last message",
        "return mq_ring_subscriber_is_valid(s, from) && mq_ring_subscriber_is_intact(s, *last);",
        "return mq_ring_subscriber_is_valid(s, from);",
        "subscriber_from_the_last_message_on_searches_again_if_the_message_is_overwritten",
    ),
    seek(
        "the last message is searched in a truncated ring",
        "uint64_t last = 0; if (!mq_ring_subscriber_mapping_valid(s)) return MQ_RING_CORRUPT;",
        "uint64_t last = 0;",
        "invalid_ring_is_corrupt_and_is_not_searched",
    ),
    seek(
        "the oldest message is searched in a truncated ring",
        "so a new lap has begun */ if (!mq_ring_subscriber_mapping_valid(s)) return MQ_RING_CORRUPT;",
        "so a new lap has begun */",
        "invalid_ring_is_corrupt_and_is_not_searched",
    ),
    seek(
        "the last message is searched up to an invalid position",
        "if (!mq_ring_position_is_valid(now, s->data_bytes)) return MQ_RING_CORRUPT; if (now == 0)",
        "if (now == 0)",
        "invalid_ring_is_corrupt_and_is_not_searched",
    ),
    seek(
        "the oldest message is searched up to an invalid position",
        "if (!mq_ring_position_is_valid(now, s->data_bytes)) return MQ_RING_CORRUPT; s->published = now;",
        "s->published = now;",
        "invalid_ring_is_corrupt_and_is_not_searched",
    ),
    seek(
        "the last message is searched with the classification of the join",
        "mq_ring_subscriber_classify_publisher(s); uint64_t now = mq_load_acquire_u64(&s->ring->write_pointer); "
        "if (!mq_ring_position_is_valid(now, s->data_bytes)) return MQ_RING_CORRUPT; if (now == 0)",
        "uint64_t now = mq_load_acquire_u64(&s->ring->write_pointer); "
        "if (!mq_ring_position_is_valid(now, s->data_bytes)) return MQ_RING_CORRUPT; if (now == 0)",
        "stock_publisher_that_starts_after_the_join_is_detected_before_the_search",
    ),
    seek(
        "the oldest message is searched with the classification of the join",
        "mq_ring_subscriber_classify_publisher(s); uint64_t now = mq_load_acquire_u64(&s->ring->write_pointer); "
        "if (!mq_ring_position_is_valid(now, s->data_bytes)) return MQ_RING_CORRUPT; s->published = now;",
        "uint64_t now = mq_load_acquire_u64(&s->ring->write_pointer); "
        "if (!mq_ring_position_is_valid(now, s->data_bytes)) return MQ_RING_CORRUPT; s->published = now;",
        "stock_publisher_that_starts_after_the_join_is_detected_before_the_search",
    ),
    seek(
        "the last message is read without the stamps of a topic that is tracked now",
        "s->cursor = last, s->published = now; s->stamps = mq_ring_side_stamp_bytes(s->side);",
        "s->cursor = last, s->published = now;",
        "first_message_has_stamps_if_the_topic_is_tracked_after_the_join",
    ),
    seek(
        "the oldest message is read without the stamps of a topic that is tracked now",
        "s->cursor = mq_ring_position(mq_ring_cycle(now), 0); s->stamps = mq_ring_side_stamp_bytes(s->side);",
        "s->cursor = mq_ring_position(mq_ring_cycle(now), 0);",
        "first_message_has_stamps_if_the_topic_is_tracked_after_the_join",
    ),
    seek(
        "observers do not see the position of the last message",
        "mq_ring_subscriber_skip_to(s, last, 0);",
        "",
        "subscriber_from_the_last_message_on_shows_its_position_to_observers",
    ),
    seek(
        "observers do not see the newest position",
        "if (status == MQ_RING_OK) mq_ring_subscriber_skip_to(s, s->cursor, 0);",
        "",
        "subscriber_stays_at_the_newest_position_if_the_last_message_cannot_be_found",
    ),
]
