"""Mutants of topics: the schema of each message."""

from tools.mutate.headers.mutant import mutants_of

source = mutants_of("msgq/impl/sources/source.h", "ring_schema")
registry = mutants_of("msgq/impl/ring/registry.h", "ring_schema")

MUTANTS = [
    source(
        "a message is taken with any schema",
        "if (mq_unlikely(!mq_ring_source_has_seen_schema(source, s->cursor))) return MQ_SOURCE_NEW_SCHEMA;",
        "",
        "source_stops_at_the_first_message_of_a_new_schema",
        "source_takes_no_message_of_a_schema_that_begins_at_any_step",
    ),
    source(
        "a message before a change waits for the new schema",
        "return mq_schema_count_changes(seq) == mq_schema_count_changes(source->schema_seq_seen) + 1 &&",
        "return false &&",
        "source_stops_at_the_first_message_of_a_new_schema",
        "source_takes_no_message_of_a_schema_that_begins_at_any_step",
    ),
    source(
        "a message before two changes keeps its schema",
        "return mq_schema_count_changes(seq) == mq_schema_count_changes(source->schema_seq_seen) + 1 &&",
        "return",
        "source_takes_messages_of_a_replaced_schema_without_a_schema",
    ),
    source(
        "the position of a later change counts for an earlier one",
        "return mq_ring_distance(begin, position) > 0 && "
        "mq_schema_count_changes(mq_load_relaxed_u64(&s->side->schema_seq)) == changes;",
        "return mq_ring_distance(begin, position) > 0;",
        "source_does_not_take_the_position_of_a_later_schema_for_an_earlier_one",
    ),
    source(
        "messages of a replaced schema have the newest one",
        "source->schema_seq_seen = is_older ? 2 * (mq_schema_count_changes(seq) - 1) : seq; return !is_older;",
        "source->schema_seq_seen = seq; return true;",
        "source_takes_messages_of_a_replaced_schema_without_a_schema",
    ),
    registry(
        "the position of a schema is that of the previous change",
        "schema_begins[(mq_schema_count_changes(seq) + 1) % 2]",
        "schema_begins[mq_schema_count_changes(seq) % 2]",
        "source_stops_at_the_first_message_of_a_new_schema",
        "schema_of_a_killed_publisher_begins_at_its_position",
    ),
]
