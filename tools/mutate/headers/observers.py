"""Mutants of observers: meters, snapshots, events and sources."""

from tools.mutate.headers.mutant import mutants_of

counting = mutants_of("msgq/impl/meter/counting.h", "observers")
sample = mutants_of("msgq/impl/meter/sample.h", "observers")
jobs = mutants_of("msgq/impl/workqueue/snapshot.h", "observers")
events = mutants_of("msgq/impl/workqueue/events.h", "observers")
channel = mutants_of("msgq/impl/channel/snapshot.h", "observers")
records = mutants_of("msgq/impl/records/snapshot.h", "observers")
taken = mutants_of("msgq/impl/sources/message.h", "observers")
truncation = mutants_of("msgq/impl/base/truncation.h", "observers")
channel_source = mutants_of("msgq/impl/sources/channel.h", "observers")
record_source = mutants_of("msgq/impl/sources/records.h", "observers")

MUTANTS = [
    counting(
        "buckets are twice as wide",
        "- MQ_HISTOGRAM_SUB_BUCKET_BITS; return (shift << MQ_HISTOGRAM_SUB_BUCKET_BITS)",
        "- MQ_HISTOGRAM_SUB_BUCKET_BITS + 1; return (shift << MQ_HISTOGRAM_SUB_BUCKET_BITS)",
        "bucket_middle_is_within_a_percent_of_each_value",
    ),
    counting(
        "a percentile is larger than any value",
        "middle>(double) h->max ? (double)h->max : middle;",
        "middle;",
        "percentiles_stay_between_the_least_and_the_largest_value",
    ),
    counting(
        "the time since the last look counts for each message",
        "(uint64_t)(now_ns - m->last_ns) / found, found);",
        "(uint64_t)(now_ns - m->last_ns), found);",
        "messages_of_one_look_share_the_time_since_the_last_one",
    ),
    counting(
        "a time to come is a delay of centuries",
        "m->negative_delays++; delay = 0;",
        "m->negative_delays++;",
        "delays_of_messages_from_the_future_count_as_zero",
    ),
    jobs(
        "a delayed message counts as taken",
        "bool taken = mq_slot_state_decode(word) == MQ_SLOT_TAKEN,",
        "bool taken = !mq_slot_state_is_ready(word),",
        "census_of_a_queue_counts_delayed_messages",
    ),
    jobs(
        "a delayed message counts as waiting",
        "if (ready && sent &&",
        "if (!taken && sent &&",
        "census_of_a_queue_counts_delayed_messages",
    ),
    jobs(
        "the deliveries of a delayed message are ignored",
        "|| state == MQ_SLOT_DELAYED) mq_queue_count_message_stats",
        ") mq_queue_count_message_stats",
        "census_of_a_queue_counts_delayed_messages",
    ),
    jobs(
        "each message that is taken is a redelivery",
        "counts->redelivered += deliveries > taken;",
        "counts->redelivered += deliveries > 0;",
        "census_of_a_queue_counts_places_by_their_words",
    ),
    jobs(
        "places of previous owners count for the present one",
        "!= mq_slot_state_get_generation(word);",
        "!= mq_slot_state_get_generation(word) && !counts;",
        "census_of_a_queue_counts_places_by_their_words",
    ),
    jobs(
        "a lease that ends now is not counted as expired",
        "mq_job_lease_count_ticks_left(lease, now_tick) <= 0;",
        "mq_job_lease_count_ticks_left(lease, now_tick) < 0;",
        "census_of_a_queue_counts_expired_leases",
    ),
    jobs(
        "the head of another message is counted",
        "if (mq_load_relaxed_u64(&parts->slot_states[slot]) != word) return;",
        "",
        "census_omits_a_message_that_changes_during_the_count",
    ),
    jobs(
        "counts of a previous owner count for the present one",
        "return now > then ? now - then : 0;",
        "return now > then ? now : 0;",
        "counts_of_an_owner_begin_at_those_of_its_row",
    ),
    events(
        "messages of one order have one number",
        "(mq_slot_state_get_order(key) << 16 | (slot & 0xFFFF)) + 1;",
        "(mq_slot_state_get_order(key) << 16 | (slot & 0)) + 1;",
        "events_have_numbers_of_their_own",
    ),
    events(
        "a message that was refused has a number",
        ".number = event_type == MQ_QUEUE_EVENT_REFUSED ? 0 : mq_queue_compute_message_number(key, slot),",
        ".number = mq_queue_compute_message_number(key, slot),",
        "events_have_numbers_of_their_own",
    ),
    events(
        "the time of another take is that of this one",
        "if (mq_load_acquire_u64(&header->taken_by) == taken)",
        "if (mq_load_acquire_u64(&header->taken_by) || taken)",
        "event_of_a_returned_message_has_the_time_of_its_own_take",
    ),
    events(
        "events without room are not counted",
        "if (buffer->end == buffer->capacity) mq_queue_count_lost_events(buffer, 1);",
        "if (buffer->end == buffer->capacity) return;",
        "events_without_room_are_counted",
    ),
    events(
        "events that were moved are moved again",
        "from->first = from->end = 0;",
        "from->first = 0;",
        "events_without_room_are_counted",
    ),
    channel(
        "views of messages in the order are outdated",
        "bool outdated = !(ordered->slots[slot / 64] >> slot % 64 & 1);",
        "bool outdated = ordered->slots[slot / 64] + 1;",
        "views_of_messages_that_left_the_order_are_outdated",
    ),
    records(
        "elements of previous owners count for the present one",
        "return is_current ? row : MQ_RECORD_ROWS;",
        "return is_current || row ? row : row;",
        "census_of_records_separates_present_from_previous_owners",
    ),
    taken(
        "a part that goes beyond the payload is copied",
        "buffer->skip > size - buffer->bytes)",
        "buffer->skip > size)",
        "part_of_a_payload_is_copied_as_a_whole",
    ),
    truncation(
        "a mapping that was truncated is intact",
        "mq_load_relaxed_u64(not_truncated) != 1);",
        "mq_load_relaxed_u64(not_truncated) > 1);",
        "channel_source_of_a_file_that_was_cut_is_corrupt",
    ),
    channel_source(
        "a pool that was cut is read",
        "if (mq_unlikely(mq_mapping_was_truncated(c->subscriber.not_truncated) || "
        "mq_mapping_was_truncated(c->pool_not_truncated[m->row])))",
        "if (mq_unlikely(mq_mapping_was_truncated(c->subscriber.not_truncated)))",
        "channel_source_of_a_file_that_was_cut_is_corrupt",
    ),
    channel_source(
        "a message without room is copied",
        "if (mq_unlikely(buffer->all_or_nothing && m->length > buffer->bytes))",
        "if (mq_unlikely(buffer->all_or_nothing && m->length > buffer->bytes + 1))",
        "channel_source_returns_messages_and_keeps_those_without_room",
    ),
    record_source(
        "the last element is not looked at",
        "r->end - r->next_index < r->elements_left ? r->end : r->next_index + r->elements_left;",
        "r->end - r->next_index < r->elements_left ? r->end - 1 : r->next_index + r->elements_left;",
        "record_source_gives_each_element_that_changed_once",
    ),
    record_source(
        "an element that changed once is returned again",
        "r->seen_write_counts[index] = count;",
        "",
        "record_source_gives_each_element_that_changed_once",
        "board_source_gives_values_of_named_keys",
        "meter_of_records_counts_writes_that_were_overwritten_as_lost",
    ),
    record_source(
        "a value without room is copied",
        "bool fits = !buffer->all_or_nothing || value.length <= buffer->bytes;",
        "bool fits = !buffer->all_or_nothing || value.length <= buffer->bytes + 1;",
        "board_source_gives_values_of_named_keys",
    ),
    record_source(
        "the last write of several is lost",
        "r->seen_write_counts[index], count) - 1;",
        "r->seen_write_counts[index], count);",
        "meter_of_records_counts_writes_that_were_overwritten_as_lost",
        "meter_of_a_board_counts_sizes_of_values",
    ),
    record_source(
        "a meter counts what was written before",
        "r->seen_write_counts[i] = mq_cell_write_count(mq_cell_read_begin(mq_cell_version_word(&r->parts, i)));",
        "(void)i;",
        "meter_of_records_counts_writes_that_were_overwritten_as_lost",
    ),
    record_source(
        "a scan is followed by no rest",
        "if (now < r->next_scan_ns && !r->virtual_ns) return false;",
        "",
        "meter_of_records_counts_writes_that_were_overwritten_as_lost",
    ),
    record_source(
        "a meter rests as long as a recorder",
        "r->for_meter ? MQ_RECORD_REST_FACTOR * (now - r->scan_started_ns) : MQ_RECORD_SCAN_INTERVAL_NS",
        "MQ_RECORD_SCAN_INTERVAL_NS",
        "meter_of_records_counts_writes_that_were_overwritten_as_lost",
    ),
    sample(
        "a pool that is not mapped counts as no message",
        "|| status == MQ_SOURCE_NEW_SCHEMA ? (int64_t)found : -1;",
        "|| status ? (int64_t)found : -1;",
        "meter_of_a_channel_counts_messages_and_their_delays",
    ),
    sample(
        "the header of a change counts as part of its value",
        "message.size - mq_source_header_bytes(&source), content,",
        "message.size, content,",
        "meter_of_records_counts_writes_that_were_overwritten_as_lost",
    ),
    sample(
        "a message without its time is dated",
        "if (content == MQ_METER_TIMES ? message->has_part : message->publish_time != 0)",
        "if (message->has_part || message->publish_time != 0)",
        "meter_of_a_channel_counts_messages_and_their_delays",
    ),
    sample(
        "a message that came after the last clock comes from the future",
        "if (*now_ns < (int64_t)stamp)",
        "if (*now_ns < 0)",
        "message_is_dated_by_the_last_clock_unless_it_is_younger",
    ),
    sample(
        "a message that was taken again is dated again",
        "if (taken && event->deliveries == 1)",
        "if (taken)",
        "meter_of_queue_events_counts_sends_and_dates_first_takes",
    ),
]
