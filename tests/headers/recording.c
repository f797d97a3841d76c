/* Chunks of recordings that are written and read, the tallies of their channels, and the columns of decoded messages. */
#include "steps.h"

#include "decoding/cdr_columns.h"
#include "mcap_io/chunk_buffer.h"
#include "mcap_io/scan.h"

enum { ROOM = 200 };

/* ---- tallies ---- */

static mq_channel_tally tally, other;

static void add(int64_t time, uint32_t sequence, int64_t bytes) {
    mq_tally_add_message(&tally, &tally, time, sequence, bytes);
}

TEST(tally_counts_gaps_and_no_steps_back) {
    memset(&tally, 0, sizeof tally);
    add(5, 7, 10);
    add(6, 8, 20);
    CHECK(tally.lost == 0);
    add(7, 11, 5);
    CHECK(tally.lost == 2);
    add(4, 9, 5);
    CHECK(tally.lost == 2 && tally.next_sequence == 12);
    CHECK(tally.messages == 4 && tally.bytes == 40 && tally.largest == 20);
    CHECK(tally.first_time == 4 && tally.last_time == 7 && tally.first_sequence == 7);
}

TEST(tally_counts_a_gap_across_the_wrap_of_numbers) {
    memset(&tally, 0, sizeof tally);
    add(1, UINT32_MAX - 1, 1);
    add(2, 1, 1);
    CHECK(tally.lost == 2);
}

TEST(tally_of_a_numbering_has_the_losses_of_all_its_channels) {
    memset(&tally, 0, sizeof tally), memset(&other, 0, sizeof other);
    mq_tally_add_message(&tally, &tally, 1, 0, 1);
    mq_tally_add_message(&other, &tally, 2, 3, 1);
    CHECK(tally.lost == 2 && other.lost == 0 && tally.messages == 1 && other.messages == 1);
}

/* ---- chunks that are written ---- */

static uint8_t bytes[ROOM];
static mq_log_chunk_entry entries[4];
static mq_log_chunk chunk;

static void begin(void) {
    memset(bytes, 0, sizeof bytes);
    chunk = (mq_log_chunk){
        .buffer = bytes, .capacity_bytes = ROOM, .target_bytes = 150, .entries = entries, .entry_capacity = 4};
}

TEST(chunk_fits_messages_up_to_its_room) {
    begin();
    CHECK(mq_log_chunk_has_room(&chunk, ROOM - MQ_LOG_MESSAGE_HEADER_BYTES));
    CHECK(!mq_log_chunk_has_room(&chunk, ROOM - MQ_LOG_MESSAGE_HEADER_BYTES + 1) &&
          !mq_log_chunk_has_room(&chunk, UINT64_MAX));
    for (unsigned i = 0; i < 4; i++)
        CHECK(mq_log_chunk_append_message(&chunk, 1, i, 1, 1, 0, "ab", 2));
    CHECK(!mq_log_chunk_has_room(&chunk, 0)); /* no entry is left */
}

static mq_scan_filter all;
static int32_t codes[3];
static struct {
    int32_t code[4];
    int64_t sequence[4], log_time[4], publish_time[4], offset[4], length[4];
} found;
static const mq_scan_columns columns = {found.code,         found.sequence, found.log_time,
                                        found.publish_time, found.offset,   found.length};

static int scan(int64_t size, int64_t rows, int64_t *position, int64_t *row) {
    return mq_scan_chunk_messages(bytes, size, &all, &columns, rows, position, row);
}

/* Three messages, of the channels 1, 2 and 1, in a chunk. */
static void write_three(void) {
    begin();
    CHECK(mq_log_chunk_append_message(&chunk, 1, 10, 100, 99, 98, "one", 3));
    CHECK(mq_log_chunk_append_message(&chunk, 2, 20, 200, 199, 0, "second", 6));
    CHECK(mq_log_chunk_append_message(&chunk, 1, 11, 300, 299, 0, "", 0));
    codes[0] = MQ_CHANNEL_CODE_UNKNOWN, codes[1] = 5, codes[2] = 6;
    all = (mq_scan_filter){.channel_codes = codes, .channel_count = 3, .start_time = 0, .end_time = INT64_MAX};
}

TEST(scan_finds_the_messages_that_were_appended) {
    int64_t position = 0, row = 0;
    write_three();
    CHECK(scan((int64_t)chunk.used_bytes, 4, &position, &row) == MQ_SCAN_END_OF_BYTES && row == 3 &&
          position == (int64_t)chunk.used_bytes);
    CHECK(found.code[0] == 5 && found.code[1] == 6 && found.sequence[2] == 11);
    CHECK(found.log_time[1] == 200 && found.publish_time[1] == 199 && found.length[1] == 6 && found.length[2] == 0);
    CHECK(!memcmp(bytes + found.offset[1], "second", 6));
}

TEST(scan_selects_times_from_start_to_before_end) {
    int64_t position = 0, row = 0;
    write_three();
    all.start_time = 200, all.end_time = 300;
    CHECK(scan((int64_t)chunk.used_bytes, 4, &position, &row) == MQ_SCAN_END_OF_BYTES && row == 1 &&
          found.log_time[0] == 200);
}

TEST(scan_stops_at_a_record_that_goes_beyond_the_end) {
    write_three();
    for (int64_t size = 1; size < (int64_t)chunk.used_bytes; size++) {
        int64_t position = 0, row = 0;
        int why = scan(size, 4, &position, &row);
        bool whole = size == MQ_LOG_MESSAGE_HEADER_BYTES + 3 || size == 2 * MQ_LOG_MESSAGE_HEADER_BYTES + 9;
        CHECK(why == (whole ? MQ_SCAN_END_OF_BYTES : MQ_SCAN_TRUNCATED_RECORD) && position <= size);
    }
}

TEST(scan_stops_when_its_columns_are_full_and_goes_on) {
    int64_t position = 0, row = 0;
    write_three();
    CHECK(scan((int64_t)chunk.used_bytes, 2, &position, &row) == MQ_SCAN_COLUMNS_FULL && row == 2);
    CHECK(scan((int64_t)chunk.used_bytes, 4, &position, &row) == MQ_SCAN_END_OF_BYTES && row == 3);
}

TEST(scan_stops_at_channels_and_times_that_only_the_caller_can_judge) {
    int64_t position = 0, row = 0;
    write_three();
    codes[2] = MQ_CHANNEL_CODE_UNKNOWN;
    CHECK(scan((int64_t)chunk.used_bytes, 4, &position, &row) == MQ_SCAN_OTHER_RECORD && row == 1);
    codes[2] = MQ_CHANNEL_CODE_UNWANTED;
    CHECK(scan((int64_t)chunk.used_bytes, 4, &position, &row) == MQ_SCAN_END_OF_BYTES && row == 2);
    all.channel_count = 2, position = row = 0; /* the third is beyond */
    CHECK(scan((int64_t)chunk.used_bytes, 4, &position, &row) == MQ_SCAN_OTHER_RECORD && row == 1);
    write_three();
    position = row = 0;
    bytes[15 + 7] = 0x80; /* a time before 1970 */
    CHECK(scan((int64_t)chunk.used_bytes, 4, &position, &row) == MQ_SCAN_OTHER_RECORD && row == 0);
}

TEST(gather_copies_payloads_within_the_bytes_alone) {
    int64_t position = 0, row = 0;
    uint8_t data[32];
    int32_t ends[4];
    write_three();
    CHECK(scan((int64_t)chunk.used_bytes, 4, &position, &row) == MQ_SCAN_END_OF_BYTES);
    CHECK(mq_scan_sum_payload_bytes(&columns, 0, 3) == 9);
    CHECK(mq_scan_copy_payloads(bytes, (int64_t)chunk.used_bytes, &columns, 0, 3, data, 1, ends) == 10);
    CHECK(!memcmp(data + 1, "onesecond", 9) && ends[0] == 4 && ends[1] == 10 && ends[2] == 10);
    CHECK(mq_scan_copy_payloads(bytes, found.offset[1] + 5, &columns, 0, 2, data, 0, ends) == -1);
}

TEST(index_of_a_channel_has_an_entry_for_each_message) {
    uint32_t counts[3] = {0};
    uint8_t first[2 * MQ_LOG_INDEX_ENTRY_BYTES], second[MQ_LOG_INDEX_ENTRY_BYTES], *places[] = {NULL, first, second};
    uint64_t values[4];
    write_three();
    CHECK(mq_log_chunk_count_by_channel(&chunk, counts) == 3 && counts[1] == 2 && counts[2] == 1);
    mq_log_chunk_write_index(&chunk, 1000, places);
    memcpy(values, first, sizeof first);
    CHECK(values[0] == 100 && values[1] == 1000 && values[2] == 300);
    CHECK(values[3] == 1000 + 2 * MQ_LOG_MESSAGE_HEADER_BYTES + 9 && places[1] == first + sizeof first);
}

TEST(counts_of_a_chunk_are_those_of_its_messages) {
    mq_channel_tally tallies[3];
    static const uint16_t numberings[] = {0, 1, 1};
    memset(tallies, 0, sizeof tallies);
    write_three();
    CHECK(mq_log_chunk_append_message(&chunk, 1, 12, 400, 399, 0, "last", 4));
    mq_log_chunk_update_tallies(&chunk, tallies, numberings);
    CHECK(tallies[1].messages == 3 && tallies[1].bytes == 7 && tallies[2].bytes == 6 && tallies[2].largest == 6);
    CHECK(tallies[1].lost == 9 && tallies[2].lost == 0);
}

TEST(rows_are_taken_in_until_the_chunk_is_full) {
    uint8_t content[200] = {0};
    const mq_log_payload_buffer contents[] = {{content, sizeof content}};
    mq_log_message_row rows[] = {
        {.length = 60}, {.offset = 140, .length = 60}, {.length = 1}, {.offset = 141, .length = 60}};
    begin();
    chunk.target_bytes = MQ_LOG_MESSAGE_HEADER_BYTES + 60;
    CHECK(mq_log_chunk_append_rows(&chunk, rows, 0, 4, contents, 1) == 1); /* it has enough */
    begin();
    CHECK(mq_log_chunk_append_rows(&chunk, rows, 3, 4, contents, 1) == -1); /* beyond its content */
    rows[3] = (mq_log_message_row){.content_index = 1};
    CHECK(mq_log_chunk_append_rows(&chunk, rows, 3, 4, contents, 1) == -1);
    rows[3] = (mq_log_message_row){.length = ROOM - MQ_LOG_MESSAGE_HEADER_BYTES};
    CHECK(mq_log_chunk_append_message(&chunk, 1, 1, 1, 1, 0, "", 0));
    CHECK(mq_log_chunk_append_rows(&chunk, rows, 3, 4, contents, 1) == 3); /* it does not fit */
}

/* ---- columns ---- */

TEST(text_is_utf8_by_the_table_of_unicode) {
    static const char *const good[] = {"",
                                       "a",
                                       "\xC2\x80",
                                       "\xDF\xBF",
                                       "\xE0\xA0\x80",
                                       "\xED\x9F\xBF",
                                       "\xEE\x80\x80",
                                       "\xF0\x90\x80\x80",
                                       "\xF4\x8F\xBF\xBF",
                                       "eight by\xC3\xA4"};
    static const char *const bad[] = {"\x80",
                                      "\xC1\xBF",
                                      "\xC2",
                                      "\xC2\x7F",
                                      "\xE0\x9F\x80",
                                      "\xED\xA0\x80",
                                      "\xE1\x80\x7F",
                                      "\xF0\x8F\x80\x80",
                                      "\xF4\x90\x80\x80",
                                      "\xF5\x80\x80\x80",
                                      "eight by\xC3",
                                      "\xF0\x90\x80"};
    for (unsigned i = 0; i < sizeof good / sizeof *good; i++)
        CHECK(mq_utf8_is_valid((const uint8_t *)good[i], (int64_t)strlen(good[i])));
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!mq_utf8_is_valid((const uint8_t *)bad[i], (int64_t)strlen(bad[i])));
    CHECK(!mq_utf8_is_valid((const uint8_t *)"\xC3\xA4", 1));
}

static uint8_t values[64], ends[64];

/* Take a message of a number of 4 bytes, and then a text, apart. */
static bool unpack(const uint8_t *message, int64_t size, bool is_cdr, mq_column_buffer *columns) {
    static const mq_cdr_step steps[] = {{MQ_CDR_STEP_NUMBERS, 4, 1, 0, -1, 0}, {MQ_CDR_STEP_TEXT, 1, -1, 1, 2, 0}};
    mq_cdr_plan plan = {steps, 2, 3, is_cdr};
    mq_cdr_payload payload;
    static uint8_t number[8];
    columns[0] = (mq_column_buffer){number, sizeof number, 0, 0};
    columns[1] = (mq_column_buffer){values, sizeof values, 0, 0};
    columns[2] = (mq_column_buffer){ends, sizeof ends, 0, 0};
    return mq_cdr_payload_read_header(&plan, message, size, &payload) &&
           mq_cdr_unpack_message(&plan, &payload, columns);
}

TEST(message_is_taken_apart_in_either_byte_order) {
    static const uint8_t little[] = {0, 1, 0, 0, 1, 2, 3, 4, 3, 0, 0, 0, 'a', 'b', 0};
    static const uint8_t big[] = {0, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 3, 'a', 'b', 0, 0, 0, 0};
    mq_column_buffer columns[3];
    for (int i = 0; i < 2; i++) {
        CHECK(unpack(i ? big : little, i ? sizeof big : sizeof little, true, columns));
        CHECK(!memcmp(columns[0].bytes, "\1\2\3\4", 4) && columns[1].used_bytes == 2 && !memcmp(values, "ab", 2));
        CHECK(columns[2].used_bytes == 4 && columns[2].last_offset == 2);
    }
}

TEST(message_that_is_cut_or_too_long_is_rejected) {
    static const uint8_t message[] = {1, 2, 3, 4, 2, 0, 0, 0, 'a', 'b', 0, 0};
    static const uint8_t cdr[] = {0, 1, 0, 0, 1, 2, 3, 4, 3, 0, 0, 0, 'a', 'b', 0, 0, 0, 0, 0};
    mq_column_buffer columns[3];
    for (int64_t size = 0; size <= (int64_t)sizeof message; size++)
        CHECK(unpack(message, size, false, columns) == (size == 10));
    for (int64_t size = 0; size <= (int64_t)sizeof cdr; size++)
        CHECK(unpack(cdr, size, true, columns) == (size >= 15 && size <= 15 + MQ_CDR_PADDING_BYTES_MAX));
}

TEST(column_without_room_rejects_a_message) {
    static const uint8_t message[] = {1, 2, 3, 4, 2, 0, 0, 0, 'a', 'b'};
    static const mq_cdr_step steps[] = {{MQ_CDR_STEP_NUMBERS, 4, 1, -1, -1, 0}, {MQ_CDR_STEP_TEXT, 1, -1, 0, 1, 0}};
    mq_cdr_plan plan = {steps, 2, 2, false};
    for (int64_t room = 0; room < 4; room++) {
        mq_column_buffer columns[] = {{values, room, 0, 0}, {ends, 4, 0, 0}};
        mq_cdr_payload payload;
        CHECK(mq_cdr_payload_read_header(&plan, message, sizeof message, &payload));
        CHECK(mq_cdr_unpack_message(&plan, &payload, columns) == (room >= 2));
    }
}
