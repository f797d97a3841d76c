/* Fuzzes the scan of recordings with changed MCAP files. For the usage, see driver.c. The files of the corpus follow
 * SECONDS.
 *
 * Each case changes a file or the content of a chunk, and scans the bytes as scan.pxi does. The bytes have a memory
 * block of exactly their size. The program checks that no call accesses memory outside of the bytes and the columns, that
 * the scan makes progress, and that the found messages are in the bytes and have the counted size.
 */
#define FUZZ_STEPS_MAX 5000000
#include "hostile.h"

#include "mcap_io/crc.h"
#include "mcap_io/scan.h"

enum { FILES = 64, FILE_BYTES = 1 << 20, ROWS_MAX = 64, CODES = 8, MAGIC = 8, CHUNK = 6 };

typedef struct {
    uint8_t *bytes;
    uint64_t size;
} slice;

static slice corpus[FILES];
static uint64_t files;

static void add(const uint8_t *bytes, uint64_t size) {
    if (files == FILES || size == 0)
        return;
    corpus[files] = (slice){malloc(size), size};
    memcpy(corpus[files++].bytes, bytes, size);
}

/* Add a file, and the content of each uncompressed chunk, to the corpus. */
static void learn(const char *path) {
    static uint8_t bytes[FILE_BYTES];
    FILE *file = fopen(path, "rb");
    if (!file)
        fuzz_fail("no such file in the corpus");
    uint64_t size = fread(bytes, 1, sizeof bytes, file), at = MAGIC;
    fclose(file);
    add(bytes, size);
    while (at + MQ_SCAN_RECORD_HEAD_BYTES <= size) {
        uint64_t length = mq_read_u64(bytes + at + 1), start = at + MQ_SCAN_RECORD_HEAD_BYTES;
        if (length > size - start)
            break;
        /* a chunk: two times, size, CRC, name of the compression, size of the content */
        if (bytes[at] == CHUNK && length >= 40 && mq_read_u32(bytes + start + 28) == 0)
            add(bytes + start + 40, length - 40);
        at = start + length;
    }
}

static uint64_t hostile_word(void) {
    return fuzz_one_in(5) ? MQ_SCAN_MESSAGE_HEAD_BYTES + fuzz_below(3) - 1 : fuzz_edge(64);
}

static void mutate(slice *s) {
    uint64_t at = fuzz_below(s->size), word = hostile_word(), from = fuzz_below(s->size);
    uint64_t room = s->size - at, n = fuzz_one_in(2) ? 1 + fuzz_below(8) : fuzz_below(200);
    switch (fuzz_below(5)) {
    case 0: s->size = at + 1; break;
    case 1: s->bytes[at] = fuzz_one_in(2) ? MQ_OPCODE_MESSAGE : (uint8_t)word; break;
    case 2:
    case 3: memcpy(s->bytes + at, &word, room < 8 ? room : 8); break;
    default: n = n < room ? n : room; memmove(s->bytes + at, s->bytes + from, n < s->size - from ? n : s->size - from);
    }
}

static mq_scan_columns new_columns(int64_t rows) {
    size_t n = (size_t)rows;
    return (mq_scan_columns){malloc(4 * n), malloc(8 * n), malloc(8 * n), malloc(8 * n), malloc(8 * n), malloc(8 * n)};
}

static void free_columns(mq_scan_columns *c) {
    free(c->code);
    free(c->sequence);
    free(c->log_time);
    free(c->publish_time);
    free(c->offset);
    free(c->length);
}

/* As ScanColumns.copy_payloads and ScanColumns.update_tallies. */
static void use_rows(const slice *s, const mq_scan_columns *c, int64_t first, int64_t rows) {
    mq_channel_tally tallies[CODES] = {0};
    int32_t numberings[CODES];
    int64_t bytes = mq_scan_sum_payload_bytes(c, first, rows);
    check(bytes >= 0 && bytes <= (int64_t)s->size, "payloads larger than what they were found in");
    uint8_t *data = malloc((size_t)bytes + 1);
    int32_t *ends = malloc(sizeof *ends * (size_t)rows + 1);
    check(mq_scan_copy_payloads(s->bytes, (int64_t)s->size, c, first, rows, data, 0, ends) == bytes,
          "payloads of another size");
    for (int i = 0; i < CODES; i++)
        numberings[i] = (int32_t)fuzz_below((uint64_t)i + 1);
    mq_scan_update_tallies(c, first, rows, tallies, numberings);
    free(data);
    free(ends);
    for (int64_t i = 0, sum = 0; i < CODES; i++) {
        sum += tallies[i].messages;
        check(i + 1 < CODES || sum == rows - first, "a message that was not counted");
        check(tallies[i].first_time <= tallies[i].last_time && tallies[i].lost >= 0, "times or losses that cannot be");
    }
}

/* Scan all bytes. Skip other records than messages by their length. */
static void walk(const slice *s) {
    int32_t codes[CODES];
    int64_t position = fuzz_one_in(2) ? 0 : (int64_t)fuzz_below(s->size + 1), row = 0;
    int64_t rows = 1 + (int64_t)fuzz_below(ROWS_MAX), size = (int64_t)s->size;
    mq_scan_columns columns = new_columns(rows);
    for (int i = 0; i < CODES; i++)
        codes[i] = (int32_t)fuzz_below(CODES + 2) - 2;
    mq_scan_filter wanted = {codes, CODES, 0, INT64_MAX, fuzz_one_in(2)};
    if (fuzz_one_in(4))
        wanted.start_time = (int64_t)hostile_word();
    for (int why = MQ_SCAN_COLUMNS_FULL;
         why != MQ_SCAN_END_OF_BYTES && why != MQ_SCAN_TRUNCATED_RECORD && why != MQ_SCAN_ZERO_OPCODE;) {
        int64_t before = position, had = row;
        why = mq_scan_chunk_messages(s->bytes, size, &wanted, &columns, rows, &position, &row);
        check(position >= before && position <= size && row >= had && row <= rows, "a scan that went astray");
        check(why != MQ_SCAN_COLUMNS_FULL || row == rows, "full, it says, but is not");
        use_rows(s, &columns, (int64_t)fuzz_below((uint64_t)row + 1), row);
        if (why == MQ_SCAN_COLUMNS_FULL)
            row = 0;
        if (why == MQ_SCAN_OTHER_RECORD)
            position += MQ_SCAN_RECORD_HEAD_BYTES + (int64_t)mq_read_u64(s->bytes + position + 1);
        check(why == MQ_SCAN_END_OF_BYTES || why == MQ_SCAN_TRUNCATED_RECORD || why == MQ_SCAN_ZERO_OPCODE ||
                  position > before || had,
              "a scan that stands still");
    }
    free_columns(&columns);
}

static void run_case(void) {
    const slice *from = &corpus[fuzz_below(files)];
    slice s = {malloc(from->size), from->size};
    memcpy(s.bytes, from->bytes, s.size);
    fuzz_op = "scan";
    for (uint64_t times = fuzz_below(6); times > 0; times--)
        mutate(&s);
    slice exact = {malloc(s.size), s.size}; /* so that the sanitizer detects an access after the end */
    memcpy(exact.bytes, s.bytes, s.size);
    free(s.bytes);
    walk(&exact);
    if (mq_crc_is_fold_supported() && exact.size >= 64) {
        uint8_t folded[16];
        fuzz_op = "crc";
        mq_crc_fold_bytes(exact.bytes, (int64_t)(exact.size & ~63ull), 0, folded);
    }
    free(exact.bytes);
}

int main(int argc, char **argv) {
    for (int i = 5; i < argc; i++)
        learn(argv[i]);
    if (files == 0)
        fuzz_fail("usage: logs SEED FIRST COUNT SECONDS FILE...");
    return fuzz_main(argc, argv, run_case, 1);
}
