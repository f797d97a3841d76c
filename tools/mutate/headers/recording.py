"""Mutants of recordings, and of the columns of decoded messages."""

from tools.mutate.headers.mutant import mutants_of

tally = mutants_of("msgq/recording/mcap_io/tally.h", "recording")
chunk = mutants_of("msgq/recording/mcap_io/chunk_buffer.h", "recording")
scan = mutants_of("msgq/recording/mcap_io/scan.h", "recording")
unpack = mutants_of("msgq/decoding/cdr_columns.h", "recording")
crc = mutants_of("msgq/recording/mcap_io/crc.h", "recording")

MUTANTS = [
    tally(
        "a gap counts the message after it",
        "numbering->next_sequence == 0 ? 0 : step - 1;",
        "numbering->next_sequence == 0 ? 0 : step;",
        "tally_counts_gaps_and_no_steps_back",
    ),
    tally(
        "a step back is a loss",
        "if (numbering->next_sequence == 0 || step > 0)",
        "if (numbering->next_sequence == 0 || step)",
        "tally_counts_gaps_and_no_steps_back",
    ),
    tally(
        "the wrap of numbers is a step back",
        "(int32_t)(sequence + 1 - (uint32_t)numbering->next_sequence);",
        "sequence + 1 < numbering->next_sequence ? -1 : (int32_t)(sequence + 1 - (uint32_t)numbering->next_sequence);",
        "tally_counts_a_gap_across_the_wrap_of_numbers",
    ),
    tally(
        "the first time is that of the first message",
        "if (log_time < tally->first_time) tally->first_time = log_time;",
        "",
        "tally_counts_gaps_and_no_steps_back",
    ),
    chunk(
        "a message fits that is one byte larger than the room",
        "chunk->used_bytes + MQ_LOG_MESSAGE_HEADER_BYTES + size <= chunk->capacity_bytes;",
        "chunk->used_bytes + MQ_LOG_MESSAGE_HEADER_BYTES + size <= chunk->capacity_bytes + 1;",
        "chunk_fits_messages_up_to_its_room",
    ),
    chunk(
        "a size that wraps fits",
        "size <= chunk->capacity_bytes && chunk->used_bytes",
        "chunk->used_bytes",
        "chunk_fits_messages_up_to_its_room",
    ),
    chunk(
        "a message fits without an entry",
        "return chunk->entry_count < chunk->entry_capacity &&",
        "return chunk->entry_count <= chunk->entry_capacity &&",
        "chunk_fits_messages_up_to_its_room",
    ),
    chunk(
        "a record's length leaves its header out",
        "uint64_t length = MQ_LOG_MESSAGE_HEADER_BYTES - 9 + size;",
        "uint64_t length = size;",
        "scan_finds_the_messages_that_were_appended",
    ),
    chunk(
        "a row beyond its content is written",
        "if (row->length > content->size || row->offset > content->size - row->length)",
        "if (row->length > content->size || row->offset > content->size)",
        "rows_are_taken_in_until_the_chunk_is_full",
    ),
    chunk(
        "a row of no content is written",
        "if (row->content_index >= content_count ||",
        "if (row->content_index > content_count ||",
        "rows_are_taken_in_until_the_chunk_is_full",
    ),
    chunk(
        "a chunk that has enough takes more",
        "from < count && chunk->used_bytes < chunk->target_bytes;",
        "from < count && chunk->used_bytes < chunk->capacity_bytes;",
        "rows_are_taken_in_until_the_chunk_is_full",
    ),
    chunk(
        "an index points into the chunk's buffer",
        "const uint64_t offset = entry->offset + shift;",
        "const uint64_t offset = entry->offset + 0 * shift;",
        "index_of_a_channel_has_an_entry_for_each_message",
    ),
    chunk(
        "entries of a channel are in one place",
        "places[entry->channel] = to + MQ_LOG_INDEX_ENTRY_BYTES;",
        "places[entry->channel] = to;",
        "index_of_a_channel_has_an_entry_for_each_message",
    ),
    chunk(
        "the last message of a chunk has no bytes",
        "i + 1 < chunk->entry_count ? entry[1].offset : chunk->used_bytes;",
        "i + 1 < chunk->entry_count ? entry[1].offset : entry->offset + MQ_LOG_MESSAGE_HEADER_BYTES;",
        "counts_of_a_chunk_are_those_of_its_messages",
    ),
    scan(
        "a record beyond the end is read",
        "if (length > (uint64_t)(size - at - MQ_SCAN_RECORD_HEAD_BYTES))",
        "if (length > (uint64_t)(size - at))",
        "scan_stops_at_a_record_that_goes_beyond_the_end",
    ),
    scan(
        "the head of a record beyond the end is read",
        "if (size - at < MQ_SCAN_RECORD_HEAD_BYTES)",
        "if (size - at < 1)",
        "scan_stops_at_a_record_that_goes_beyond_the_end",
    ),
    scan(
        "the end of a selection is inclusive",
        "log_time < wanted->end_time)",
        "log_time <= wanted->end_time)",
        "scan_selects_times_from_start_to_before_end",
    ),
    scan(
        "the start of a selection is exclusive",
        "log_time >= wanted->start_time &&",
        "log_time > wanted->start_time &&",
        "scan_selects_times_from_start_to_before_end",
    ),
    scan(
        "a channel beyond the codes has one",
        "channel < wanted->channel_count ?",
        "channel <= wanted->channel_count ?",
        "scan_stops_at_channels_and_times_that_only_the_caller_can_judge",
    ),
    scan(
        "a time before 1970 is a message's",
        "(log_time | publish_time) < 0 ||",
        "",
        "scan_stops_at_channels_and_times_that_only_the_caller_can_judge",
    ),
    scan(
        "a message is put beyond the columns",
        "if (r == rows)",
        "if (r > rows)",
        "scan_stops_when_its_columns_are_full_and_goes_on",
    ),
    scan(
        "payloads beyond the bytes are gathered",
        "if (columns->offset[row] > size - columns->length[row]) return -1;",
        "if (columns->offset[row] > size) return -1;",
        "gather_copies_payloads_within_the_bytes_alone",
    ),
    crc(
        "the CRC of the previous bytes is ignored",
        "_mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)~start))",
        "_mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)(~start | start)))",
        "tests/recording/test_scan.py::test_crc_equals_zlib_crc",
    ),
    crc(
        "bytes are folded over a wrong distance",
        "const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);",
        "const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd5);",
        "tests/recording/test_scan.py::test_crc_equals_zlib_crc",
    ),
    crc(
        "the last blocks of a wide fold are left out",
        "for (; at < size; at += 64)",
        "for (; at < size - 64; at += 64)",
        "tests/recording/test_scan.py::test_crc_equals_zlib_crc",
    ),
    crc(
        "a combined CRC ignores the first part",
        "return first ^ second;",
        "return second;",
        "tests/recording/test_scan.py::test_combined_crc_equals_crc_of_both_parts",
    ),
    unpack(
        "surrogates are characters",
        "first == 0xED ? 0x9F : first == 0xF4",
        "first == 0xF4",
        "text_is_utf8_by_the_table_of_unicode",
    ),
    unpack(
        "longer forms of a character are accepted",
        "first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;",
        "0x80;",
        "text_is_utf8_by_the_table_of_unicode",
    ),
    unpack(
        "a character that is cut is one",
        "if (more == 0 || more >= size)",
        "if (more == 0 || more > size)",
        "text_is_utf8_by_the_table_of_unicode",
    ),
    unpack(
        "elements of the other byte order are copied",
        "if (p->is_byteswapped && size > 1)",
        "if (p->is_byteswapped && size > 4)",
        "message_is_taken_apart_in_either_byte_order",
    ),
    unpack(
        "numbers of the other byte order are read as they are",
        "*number = p->is_byteswapped ? __builtin_bswap32(found) : found;",
        "*number = found;",
        "message_is_taken_apart_in_either_byte_order",
    ),
    unpack(
        "bytes after a message are accepted",
        "(p->is_cdr ? MQ_CDR_PADDING_BYTES_MAX : 0);",
        "MQ_CDR_PADDING_BYTES_MAX;",
        "message_that_is_cut_or_too_long_is_rejected",
    ),
    unpack(
        "elements beyond the end are taken",
        "return p->position <= p->size_bytes && count <= (p->size_bytes - p->position) / size;",
        "return p->position <= p->size_bytes && count <= (p->size_bytes - p->position) / size + 1;",
        "message_that_is_cut_or_too_long_is_rejected",
    ),
    unpack(
        "elements beyond the room of a column are written",
        "if (bytes > column->capacity_bytes - column->used_bytes)",
        "if (bytes > column->capacity_bytes - column->used_bytes + 1)",
        "column_without_room_rejects_a_message",
    ),
]
