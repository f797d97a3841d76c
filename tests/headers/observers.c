/* Observers: meters, censuses, events, and sources of a recorder. */
#include "steps.h"

#include "channel/header.h"
#include "channel/snapshot.h"
#include "meter/sample.h"
#include "records/snapshot.h"
#include "workqueue/recovery.h"
#include "workqueue/snapshot.h"

enum { SLOTS = 4, SIZE = 64, CAPACITY = 16, LENGTH = 6, ITEM = 24 };

static mq_liveness_file liveness_file;
static const mq_process_identity self_of_row = {.pid = 1, .pid_namespace = 1};

/* ---- meters ---- */

TEST(bucket_middle_is_within_a_percent_of_each_value) {
    unsigned before = 0;
    for (uint64_t value = 1; value; value = value + value / 3 + 1 > value ? value + value / 3 + 1 : 0) {
        unsigned bucket = mq_histogram_find_bucket(value);
        double off = mq_histogram_bucket_middle(bucket) / (double)value - 1;
        CHECK(bucket >= before && bucket < MQ_HISTOGRAM_BUCKETS && off < 0.008 && off > -0.008);
        before = bucket;
    }
    CHECK(mq_histogram_find_bucket(UINT64_MAX) == MQ_HISTOGRAM_BUCKETS - 1 && mq_histogram_find_bucket(127) == 127 &&
          mq_histogram_bucket_middle(127) == 127);
}

static mq_histogram histogram;

TEST(percentiles_stay_between_the_least_and_the_largest_value) {
    memset(&histogram, 0, sizeof histogram);
    CHECK(mq_histogram_compute_percentile(&histogram, 0.5) == 0);
    mq_histogram_add_value(&histogram, 1000, 9);
    mq_histogram_add_value(&histogram, 5001, 1);
    mq_histogram_add_value(&histogram, 1, 0); /* never */
    CHECK(histogram.count == 10 && histogram.min == 1000 && histogram.max == 5001 && histogram.sum == 14001);
    CHECK(mq_histogram_compute_percentile(&histogram, 0) >= 1000 &&
          mq_histogram_compute_percentile(&histogram, 1) == 5001);
    CHECK(mq_histogram_compute_percentile(&histogram, 0.95) == 5001 &&
          mq_histogram_compute_percentile(&histogram, 0.5) < 1010);
}

static mq_meter meter;

TEST(messages_of_one_look_share_the_time_since_the_last_one) {
    memset((void *)&meter, 0, sizeof meter);
    mq_meter_count_messages(&meter, 1000, 1);
    mq_meter_count_messages(&meter, 1500, 0);
    mq_meter_count_messages(&meter, 2000, 4);
    CHECK(meter.messages == 5 && meter.first_ns == 1000 && meter.last_ns == 2000);
    CHECK(meter.periods_ns.count == 4 && meter.periods_ns.sum == 1000);
}

TEST(delays_of_messages_from_the_future_count_as_zero) {
    memset((void *)&meter, 0, sizeof meter);
    mq_meter_add_delay(&meter, 100, 60);
    mq_meter_add_delay(&meter, 100, 101);
    CHECK(meter.negative_delays == 1 && meter.delays_ns.count == 2 && meter.delays_ns.sum == 40 &&
          meter.delays_ns.min == 0);
}

TEST(message_is_dated_by_the_last_clock_unless_it_is_younger) {
    int64_t now_ns = INT64_MIN;
    memset((void *)&meter, 0, sizeof meter);
    meter.stamp_clock = CLOCK_MONOTONIC;
    mq_meter_add_delay_of_message(&meter, &now_ns, 0);
    int64_t first = now_ns;
    CHECK(first > 0 && meter.delays_ns.count == 1);
    mq_meter_add_delay_of_message(&meter, &now_ns, (uint64_t)first);
    CHECK(now_ns == first && meter.delays_ns.min == 0 && meter.negative_delays == 0);
    now_ns = 1;
    mq_meter_add_delay_of_message(&meter, &now_ns, 2);
    CHECK(now_ns >= first && meter.negative_delays == 0);
}

/* ---- queues ---- */

static mq_queue *queue;
static mq_queue_handle a, b;
static mq_queue_block_cache memories[2][1];
static mq_queue_taken_message t;
static mq_queue_event_buffer buffer_of_a, buffer_of_b;
static mq_queue_event_record event_records[2][2];

static void join(mq_queue_handle *h, int row) {
    h->block_caches = memories[row];
    h->liveness_file = &liveness_file;
    memset(memories[row], 0, sizeof memories[row]);
    mq_queue_occupy_row(h, row, &self_of_row, 100 + (uint64_t)row, true);
    lives[MQ_QUEUE_ROW_BYTE + row] = MQ_ALIVE;
}

static void begin_queue(void) {
    uint64_t bytes = mq_queue_compute_file_bytes(SLOTS, SIZE);
    queue = zeros(bytes);
    mq_queue_write_file_header(queue, SLOTS, SIZE, 1, &self_of_row, MQ_QUEUE_EVENTS_HEADS);
    memset(&a, 0, sizeof a), memset(&b, 0, sizeof b);
    CHECK(mq_queue_check_header(queue, bytes, &a.parts) == MQ_FILE_VALID);
    b.parts = a.parts;
    join(&a, 0);
    join(&b, 1);
    buffer_of_a =
        (mq_queue_event_buffer){.own_row = a.own_row, .number = 0, .capacity = 2, .records = event_records[0]};
    buffer_of_b =
        (mq_queue_event_buffer){.own_row = b.own_row, .number = 1, .capacity = 2, .records = event_records[1]};
    forget_steps();
}
static void send_one(uint64_t sent_time) {
    mq_queue_commit_message(&a, (uint64_t)mq_queue_claim_free_slot(&a, MQ_NO_TICKET), 8, 1, sent_time, 0);
}

static mq_queue_slot_counts counts;
static uint32_t priorities[MQ_QUEUE_PRIORITIES];
static void look(uint64_t now_ns) {
    memset(priorities, 0, sizeof priorities);
    mq_queue_count_all_slots(&a.parts, now_ns, &counts, priorities);
}

TEST(census_of_a_queue_counts_places_by_their_words) {
    begin_queue();
    send_one(7);
    send_one(5);
    CHECK(mq_queue_take_message(&b, MQ_NO_TICKET, &t) == MQ_QUEUE_OK &&
          mq_queue_claim_free_slot(&a, MQ_NO_TICKET) == 2);
    mq_store_release_u64(&a.parts.slot_states[3], 1);
    look(1);
    CHECK(counts.free == 0 && counts.filling == 1 && counts.taken == 1 && counts.ready == 1 && counts.corrupt == 1);
    CHECK(priorities[1] == 1 && counts.oldest == 5 && counts.most_deliveries == 1 && counts.redelivered == 0);
    CHECK(counts.rows[0].filling == 1 && counts.rows[1].taken == 1 && counts.lost == 0);
    CHECK(mq_queue_requeue_message(&b, t.slot, t.word));
    look(1);
    CHECK(counts.redelivered == 1 && counts.taken == 0);
    join(&a, 0); /* a later owner of its row */
    look(1);
    CHECK(counts.lost == 1 && counts.rows[0].filling == 0);
}

TEST(census_of_a_queue_counts_delayed_messages) {
    begin_queue();
    send_one(1);
    CHECK(mq_queue_take_message(&b, MQ_NO_TICKET, &t) == MQ_QUEUE_OK);
    CHECK(mq_queue_delay_taken_message(&b, &t, 10));
    look(1);
    CHECK(counts.delayed == 1 && counts.ready == 0 && counts.taken == 0 && counts.lost == 0);
    CHECK(counts.redelivered == 1 && counts.most_deliveries == 1 && counts.leases == 0 && counts.oldest == 0);
}

TEST(census_of_a_queue_counts_expired_leases) {
    begin_queue();
    send_one(1);
    CHECK(mq_queue_take_message(&b, MQ_NO_TICKET, &t) == MQ_QUEUE_OK);
    look(1);
    CHECK(counts.leases == 0);
    mq_queue_set_job_lease(&b, &t, 10);
    look(9 * MQ_JOB_LEASE_TICK_NS);
    CHECK(counts.leases == 1 && counts.expired_leases == 0);
    look(10 * MQ_JOB_LEASE_TICK_NS);
    CHECK(counts.leases == 1 && counts.expired_leases == 1);
}

static void take_it(unsigned time) {
    if (time == 1)
        CHECK(mq_queue_take_message(&b, MQ_NO_TICKET, &t) == MQ_QUEUE_OK);
}

TEST(census_omits_a_message_that_changes_during_the_count) {
    begin_queue();
    send_one(5);
    meet("mq_queue_count_message_stats: loaded &header->deliveries", take_it);
    look(1);
    CHECK(counts.oldest == 0 && counts.most_deliveries == 0);
}

TEST(counts_of_an_owner_begin_at_those_of_its_row) {
    begin_queue();
    send_one(1);
    CHECK(mq_queue_count_since_join(&a.own_row->counts.sent, &a.own_row->counts_before.sent) == 1);
    join(&a, 0);
    CHECK(mq_queue_count_since_join(&a.own_row->counts.sent, &a.own_row->counts_before.sent) == 0);
    send_one(1);
    CHECK(mq_queue_count_since_join(&a.own_row->counts.sent, &a.own_row->counts_before.sent) == 1);
    mq_store_relaxed_u64(&a.own_row->counts_before.sent, 5); /* invalid data */
    CHECK(mq_queue_count_since_join(&a.own_row->counts.sent, &a.own_row->counts_before.sent) == 0);
}

TEST(events_have_numbers_of_their_own) {
    uint64_t key = mq_slot_state_encode_ready(3, 7);
    CHECK(mq_queue_compute_message_number(key, 0) == (7 << 16) + 1 &&
          mq_queue_compute_message_number(key, 2) == (7 << 16) + 3);
    CHECK(mq_queue_compute_message_number(mq_slot_state_encode_ready(0, 0), 0) != 0);
    begin_queue();
    CHECK(mq_queue_make_event(&buffer_of_a, MQ_QUEUE_EVENT_SENT, key, 2, 1ull << 40).event.size == UINT32_MAX);
    CHECK(mq_queue_make_refused_event(&buffer_of_a, 3, 8, 0).event.number == 0);
}

TEST(event_of_a_returned_message_has_the_time_of_its_own_take) {
    begin_queue();
    a.event_buffer = &buffer_of_a, b.event_buffer = &buffer_of_b;
    send_one(1);
    CHECK(mq_queue_take_message(&b, MQ_NO_TICKET, &t) == MQ_QUEUE_OK);
    uint64_t earlier = t.word;
    CHECK(mq_queue_requeue_message(&a, t.slot, t.word));
    CHECK(buffer_of_a.end == 1 && event_records[0][0].event.event == MQ_QUEUE_EVENT_RETURNED &&
          event_records[0][0].event.deliveries == 1);
    CHECK(event_records[0][0].event.taken_time == t.taken_time);
    CHECK(mq_queue_take_message(&b, MQ_NO_TICKET, &t) == MQ_QUEUE_OK);
    mq_queue_event_record back =
        mq_queue_make_returned_event(&buffer_of_a, &a.parts.slot_headers[0], t.key, 0, earlier);
    CHECK(back.event.taken_time == 0); /* the time of the take is unknown */
    CHECK(!mq_queue_requeue_message(&a, t.slot, earlier) && buffer_of_a.end == 1);
}

TEST(events_without_room_are_counted) {
    begin_queue();
    mq_queue_event_record one = {.event.event = MQ_QUEUE_EVENT_SENT};
    for (int i = 0; i < 3; i++)
        mq_queue_event_buffer_append(&buffer_of_a, &one);
    CHECK(buffer_of_a.end == 2 && mq_load_relaxed_u64(&a.own_row->events_lost) == 1);
    mq_queue_event_buffer_append(&buffer_of_b, &one);
    mq_queue_event_buffer_move_all(&buffer_of_a, &buffer_of_b);
    CHECK(buffer_of_b.end == 2 && mq_load_relaxed_u64(&b.own_row->events_lost) == 1);
    CHECK(buffer_of_a.first == 0 && buffer_of_a.end == 0);
}

/* ---- channels ---- */

static mq_channel_header header;
static mq_channel_publisher p;
static mq_channel_source source;

static void begin_channel(void) {
    char node[MQ_NODE_NAME_BYTES] = "test";
    uint64_t bytes = mq_pool_header_bytes(CAPACITY + 2, 4096) + (CAPACITY + 2) * mq_pool_slot_stride_bytes(SIZE);
    mq_pool_header *pool = zeros(bytes);
    memset((void *)&header, 0, sizeof header);
    CHECK(
        mq_channel_store_config(&header, (mq_channel_config){.capacity = CAPACITY, .publishers = 1, .subscribers = 1}));
    p = (mq_channel_publisher){
        .header = &header, .liveness_file = &liveness_file, .row = &header.publishers[0], .stamps = true};
    mq_pool_header_init(pool, bytes, CAPACITY + 2, SIZE, 4096, 1, 10, 1, node);
    CHECK(!mq_pool_header_check(pool, bytes, 1, 10, &p.slots) && mq_channel_load_index_ring(&header, &p.order));
    CHECK(mq_channel_publisher_init(&p, false));
    mq_channel_publisher_register(p.row, &self_of_row, true, &p.slots, bytes, 0, node);
    memset((void *)&source, 0, sizeof source);
    source.subscriber.header = &header;
    source.subscriber.pools[0] = p.slots;
    source.origin_ids[0] = 9;
    forget_steps();
}
static void publish(uint64_t first, uint64_t count) {
    for (uint64_t number = first; number < first + count; number++) {
        uint64_t position;
        int slot = mq_channel_take_free_slot(&p);
        mq_copy_to_shared(mq_channel_begin_slot_write(&p, (uint32_t)slot), &number, sizeof number);
        CHECK(mq_channel_publish(&p, (uint32_t)slot, sizeof number, number, &position) != MQ_CHANNEL_CORRUPT);
    }
}

TEST(channel_source_returns_messages_and_keeps_those_without_room) {
    uint8_t bytes[8];
    mq_source_buffer room = {.data = bytes, .bytes = 7, .all_or_nothing = true};
    mq_source_message taken;
    begin_channel();
    publish(1, 2);
    CHECK(mq_channel_source_has_pending(&source) && mq_channel_source_count_pending(&source) == 2);
    CHECK(mq_channel_source_take_message(&source, &room, &taken) == MQ_SOURCE_FULL && taken.size == 8);
    room.bytes = 8;
    for (uint64_t number = 1; number <= 2; number++) {
        CHECK(mq_channel_source_take_message(&source, &room, &taken) == MQ_SOURCE_OK);
        CHECK(!memcmp(bytes, &number, 8) && taken.size == 8 && taken.origin_id == 9 && taken.counted);
        CHECK(taken.sequence == CAPACITY + number - 1 && taken.origin_time == (int64_t)number);
    }
    CHECK(mq_channel_source_take_message(&source, &room, &taken) == MQ_SOURCE_EMPTY &&
          !mq_channel_source_has_pending(&source));
}

static const mq_u64 cut = {0};

TEST(channel_source_of_a_file_that_was_cut_is_corrupt) {
    uint8_t bytes[8];
    mq_source_buffer room = {.data = bytes, .bytes = 8, .all_or_nothing = true};
    mq_source_message taken;
    begin_channel();
    publish(1, 1);
    source.pool_not_truncated[0] = &cut;
    CHECK(mq_channel_source_take_message(&source, &room, &taken) == MQ_SOURCE_CORRUPT &&
          source.subscriber.received == 0);
}

TEST(channel_source_counts_skipped_messages_as_lost) {
    begin_channel();
    publish(1, 3);
    mq_channel_source_skip_pending(&source);
    CHECK(source.subscriber.lost == 3 && mq_channel_source_count_pending(&source) == 0);
}

TEST(part_of_a_payload_is_copied_as_a_whole) {
    uint8_t bytes[8] = {0};
    mq_source_buffer room = {.data = bytes, .bytes = 3, .skip = 2};
    CHECK(mq_source_buffer_copy_payload(&room, (const uint8_t *)"abcde", 5) && !memcmp(bytes, "cde\0", 4));
    CHECK(!mq_source_buffer_copy_payload(&room, (const uint8_t *)"xxxx", 4));
    CHECK(!mq_source_buffer_copy_payload(&room, (const uint8_t *)"xx", 2) && !memcmp(bytes, "cde\0", 4));
    CHECK(!mq_source_buffer_copy_payload(&(mq_source_buffer){.data = NULL}, (const uint8_t *)"abc", 3));
}

TEST(views_of_messages_that_left_the_order_are_outdated) {
    static mq_channel_published_slot_set ordered;
    mq_channel_view_counts holdings[MQ_CHANNEL_VIEWERS] = {0};
    begin_channel();
    publish(1, 2);
    mq_pool_pin_set(&p.slots, (uint32_t)p.published_slots[0].slot, 3);
    mq_pool_pin_set(&p.slots, (uint32_t)p.published_slots[1].slot, 3);
    CHECK(mq_index_ring_retract_entry(&p.order, p.published_slots[0].position, 0, p.published_slots[0].slot));
    mq_channel_snapshot_slots(&p.order, 0, &ordered);
    CHECK(ordered.messages == 1);
    mq_channel_snapshot_views(&p.slots, &ordered, holdings);
    CHECK(holdings[3].views == 2 && holdings[3].outdated == 1 && holdings[3].publish_time && !holdings[4].views);
}

/* ---- records ---- */

static mq_record_header *record;
static mq_record_writer writer;
static mq_record_source records;
static uint64_t seen[LENGTH];

static void begin_records(uint64_t flags) {
    mq_record_config shape = {.length = LENGTH, .item_bytes = ITEM, .copies = 2, .flags = flags};
    uint64_t bytes = mq_record_compute_file_bytes(&shape);
    record = zeros(bytes);
    mq_record_header_init(record, &shape, 1, 1, "test");
    memset(&records, 0, sizeof records), memset(seen, 0, sizeof seen);
    CHECK(mq_record_header_check(record, bytes, &records.parts) == MQ_FILE_VALID);
    records.seen_write_counts = seen, records.elements_left = MQ_RECORD_SCAN_ELEMENTS;
    writer = (mq_record_writer){.parts = records.parts, .liveness_file = &liveness_file};
    mq_record_register_writer(&writer, 0, &self_of_row, 100, true);
    forget_steps();
}
static void write_at(uint64_t index, int64_t time) {
    uint8_t value[ITEM] = {(uint8_t)(index + 1)};
    uint64_t done = 0;
    mq_element_selection one = {.first = index, .count = 1};
    CHECK(mq_vector_write_elements(&writer, &one, value, time, NULL, 0, &done) == MQ_VECTOR_WRITTEN);
}

TEST(record_source_gives_each_element_that_changed_once) {
    uint8_t bytes[MQ_RECORD_CHANGE_HEADER_BYTES + ITEM];
    mq_source_buffer room = {.data = bytes, .bytes = sizeof bytes - 1, .all_or_nothing = true};
    mq_source_message taken;
    begin_records(0);
    write_at(0, 5);
    write_at(LENGTH - 1, 6);
    write_at(LENGTH - 1, 7);
    CHECK(mq_record_source_take_change(&records, &room, &taken) == MQ_SOURCE_FULL && taken.size == sizeof bytes);
    room.bytes = sizeof bytes;
    CHECK(mq_record_source_take_change(&records, &room, &taken) == MQ_SOURCE_OK && taken.publish_time == 5);
    CHECK(bytes[0] == 0 && bytes[4] == 1 && bytes[MQ_RECORD_CHANGE_HEADER_BYTES] == 1);
    CHECK(mq_record_source_take_change(&records, &room, &taken) == MQ_SOURCE_OK && taken.publish_time == 7);
    CHECK(bytes[0] == LENGTH - 1 && bytes[4] == 2 && bytes[MQ_RECORD_CHANGE_HEADER_BYTES] == LENGTH &&
          taken.sequence == 1);
    CHECK(mq_record_source_take_change(&records, &room, &taken) == MQ_SOURCE_EMPTY);
    CHECK(records.next_index == 0 && mq_record_source_has_scanned_since(&records, records.scan_started_ns - 1));
    records.next_scan_ns = 0;
    CHECK(mq_record_source_take_change(&records, &room, &taken) == MQ_SOURCE_EMPTY);
}

TEST(board_source_gives_values_of_named_keys) {
    uint8_t bytes[ITEM];
    mq_source_buffer room = {.data = bytes, .bytes = 4, .all_or_nothing = true};
    mq_source_message taken;
    begin_records(MQ_RECORD_BOARD);
    CHECK(mq_board_add_key(&records.parts, "key", 3) == 0);
    mq_board_write_value(&writer, 0, "value", 5, 9);
    CHECK(mq_record_source_take_change(&records, &room, &taken) == MQ_SOURCE_FULL && taken.size == 5);
    room.bytes = 5;
    CHECK(mq_record_source_take_change(&records, &room, &taken) == MQ_SOURCE_OK);
    CHECK(!memcmp(bytes, "value", 5) && taken.size == 5 && taken.publish_time == 9 && taken.sequence == 1);
    CHECK(mq_record_source_take_change(&records, &room, &taken) == MQ_SOURCE_EMPTY);
    records.next_scan_ns = 0;
    CHECK(mq_record_source_take_change(&records, &room, &taken) == MQ_SOURCE_EMPTY);
}

TEST(census_of_records_separates_present_from_previous_owners) {
    mq_record_summary found;
    begin_records(MQ_RECORD_BOARD);
    CHECK(mq_board_add_key(&records.parts, "key", 3) == 0 &&
          mq_record_acquire_owner_word(&writer, &records.parts.key_table[0].owner));
    mq_board_write_value(&writer, 0, "value", 5, 9);
    CHECK(mq_cell_try_acquire(mq_cell_version_word(&records.parts, 1), writer.owner) == 0);
    mq_record_summarize_file(&records.parts, &found);
    CHECK(found.elements_written == 1 && found.locked == 1 && found.orphaned == 0 && found.last_time_ns == 9 &&
          found.last_index == 0);
    CHECK(found.rows[0].locked == 1 && found.rows[0].keys == 1);
    mq_store_release_u64(&record->rows[0].at.generation, 2); /* the row has another owner */
    mq_record_summarize_file(&records.parts, &found);
    CHECK(found.locked == 1 && found.orphaned == 1 && found.rows[0].locked == 0 && found.rows[0].keys == 0);
}

/* ---- meters of channels and records ---- */

static mq_source metered_source;
static mq_metered_endpoint metered = {.meter = &meter, .source = &metered_source};

static void begin_meter(mq_source read) {
    memset((void *)&meter, 0, sizeof meter);
    meter.stamp_offset = -1, meter.stamp_clock = CLOCK_MONOTONIC;
    metered_source = read;
}

TEST(meter_of_records_counts_writes_that_were_overwritten_as_lost) {
    begin_records(0);
    write_at(0, 5);
    begin_meter((mq_source){.kind = MQ_SOURCE_RECORDS, .record_source = &records});
    mq_record_source_follow_writes(&records); /* what was written before does not count */
    CHECK(mq_meter_sample(&metered) == 0);
    for (int i = 0; i < 3; i++)
        write_at(LENGTH - 1, 6);
    write_at(0, 7);
    records.next_scan_ns = 0;
    CHECK(mq_meter_sample(&metered) == 2 && mq_source_count_unseen(&metered_source) == 2 && meter.messages == 2);
    CHECK(meter.sizes.min == ITEM && meter.delays_ns.count == 2);
    CHECK(records.next_scan_ns > 0 && records.next_scan_ns - records.scan_started_ns < MQ_RECORD_SCAN_INTERVAL_NS);
    records.next_scan_ns = 0;
    CHECK(mq_meter_sample(&metered) == 0);
    write_at(0, 8);
    records.next_scan_ns = INT64_MAX;
    CHECK(mq_meter_sample(&metered) == 0); /* it rests */
}

TEST(meter_of_a_board_counts_sizes_of_values) {
    begin_records(MQ_RECORD_BOARD);
    CHECK(mq_board_add_key(&records.parts, "key", 3) == 0);
    begin_meter((mq_source){.kind = MQ_SOURCE_RECORDS, .record_source = &records});
    mq_record_source_follow_writes(&records);
    mq_board_write_value(&writer, 0, "old", 3, 8);
    mq_board_write_value(&writer, 0, "value", 5, 9);
    CHECK(mq_meter_sample(&metered) == 1 && meter.sizes.sum == 5 && mq_source_count_unseen(&metered_source) == 1);
}

TEST(meter_of_a_channel_counts_messages_and_their_delays) {
    begin_channel();
    begin_meter((mq_source){.kind = MQ_SOURCE_CHANNEL, .channel_source = &source});
    publish(1, 3);
    CHECK(mq_meter_sample(&metered) == 3 && meter.messages == 3 && meter.sizes.sum == 24);
    CHECK(meter.delays_ns.count == 3 && meter.without_timestamp == 0);
    meter.stamp_offset = 8; /* beyond the messages */
    publish(4, 2);
    CHECK(mq_meter_sample(&metered) == 2 && meter.without_timestamp == 2 && meter.delays_ns.count == 3);
    meter.stamp_offset = 0;
    publish(6, 1);
    CHECK(mq_meter_sample(&metered) == 1 && meter.delays_ns.count == 4 && meter.delays_ns.max > 1000);
    source.subscriber.pools[0].uid = 99;
    publish(7, 1);
    CHECK(mq_meter_sample(&metered) == -1 && metered.status == MQ_SOURCE_UNMAPPED);
}

TEST(meter_of_queue_events_counts_sends_and_dates_first_takes) {
    mq_queue_event event = {.event = MQ_QUEUE_EVENT_SENT, .size = 8};
    memset((void *)&meter, 0, sizeof meter);
    CHECK(mq_meter_count_queue_event(&meter, &event) && meter.sizes.sum == 8);
    event = (mq_queue_event){.event = MQ_QUEUE_EVENT_TAKEN, .deliveries = 1, .sent_time = 10, .publish_time = 15};
    CHECK(!mq_meter_count_queue_event(&meter, &event) && meter.delays_ns.sum == 5);
    event.deliveries = 2;
    CHECK(!mq_meter_count_queue_event(&meter, &event) && meter.delays_ns.count == 1);
    begin_channel();
    begin_meter((mq_source){.kind = MQ_SOURCE_CHANNEL, .channel_source = &source});
    metered.counts_events = true;
    publish(1, 1);
    CHECK(mq_meter_sample(&metered) == 0 && meter.messages == 0); /* too short for an event */
    metered.counts_events = false;
}
