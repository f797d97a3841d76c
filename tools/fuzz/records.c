/* Fuzzes vectors and boards: writers, readers, observers, declarations, joins and leaves. A hostile program rewrites words
 * of the file before and during each call. For the usage, see driver.c. The program checks that:
 *
 * - no call accesses bytes outside of the file or of a caller's buffer, or returns an invalid index or length;
 * - handles without permission write nothing;
 * - every call ends;
 * - without hostile stores, an element can be written and read.
 */
#include <sched.h>
#include <sys/file.h>

#define FUZZ_STEPS_MAX 5000000
#include "hostile.h"

/* The code of topics never uses this load. */
#define mq_load_seq_cst_u32(word) (fuzz_before_load(), mq_load_seq_cst_u32(word))

/* The seed also determines the clock and sleeps. */
static uint64_t fuzz_now_ns;
static int fuzz_clock(clockid_t clock, struct timespec *t) {
    fuzz_now_ns += fuzz_one_in(4) ? fuzz_below(1000000000ull) : fuzz_below(1000);
    *t = (struct timespec){(time_t)(fuzz_now_ns / 1000000000), (long)(fuzz_now_ns % 1000000000)};
    return clock < 0 ? -1 : 0;
}
#define clock_gettime(clock, t) fuzz_clock(clock, t)
#define nanosleep(nap, rest) ((void)(nap))
#define sched_yield() ((void)0)

#include "base/file_lock.h"
#include "records/join.h"
#include "sources/records.h"

enum { OPS = 200, HANDLES = 3, LENGTH_MOST = 20, ITEM_MOST = 200, TRIES = 50, PAGE = 4096 };
enum { BYTES_MOST = sizeof(mq_record_header) + LENGTH_MOST * (sizeof(mq_record_key) + 5 * (ITEM_MOST + 16) + 64) };

static fuzz_memory memory;
static mq_record_file_parts parts, seen_parts; /* parts of the new file: writable, and read-only */
static mq_liveness_file liveness_file = {.path = "/dev/shm/msgqrec_fuzz", .inode = 1};
static mq_process_identity self = {.pid = 7, .name = "fuzz"};
static bool contended; /* the hostile stores only change elements */
static const char *const keys[] = {"a", "second", "a key that is rather long, and that nobody abbreviates"};

typedef struct {
    mq_record_writer w;
    void *liveness_token;
    uint64_t uid, seen[LENGTH_MOST];
    bool joined;
} member;
static member members[HANDLES];

static mq_record_header *record(void) { return (mq_record_header *)(void *)memory.writable; }
static bool is_board(void) { return parts.config.flags & MQ_RECORD_BOARD; }
static uint64_t any_element(void) { return fuzz_below(parts.config.length); }

/* ---- the stranger ---- */

static void store(void *at, uint64_t value) { __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELAXED); }

/* Return an owner word: of a participant, of a missing participant, or of this process. */
static uint64_t hostile_name(void) {
    if (fuzz_one_in(3))
        return members[fuzz_below(HANDLES)].w.owner;
    unsigned row = fuzz_one_in(4) ? (unsigned)fuzz_below(255) : (unsigned)fuzz_below(HANDLES + 1);
    return mq_cell_pack_owner(row, (uint16_t)(fuzz_one_in(4) ? fuzz_random() : fuzz_below(4)));
}

static uint64_t hostile_version(void) {
    switch (fuzz_below(4)) {
    case 0: return fuzz_edge(64);
    case 1: return fuzz_below(8) << MQ_CELL_COUNT_SHIFT;
    case 2: return (fuzz_one_in(4) ? fuzz_random() : fuzz_below(8)) << MQ_CELL_COUNT_SHIFT | hostile_name();
    default: return ~fuzz_below(1u << 25);
    }
}

static void contend(void) {
    mq_u64 *version = mq_cell_version_word(&parts, any_element());
    for (uint64_t i = 0; i < parts.config.length; i++)
        store(mq_cell_version_word(&parts, i), (fuzz_steps << 4 | 1) << MQ_CELL_COUNT_SHIFT);
    store(version, fuzz_random() << MQ_CELL_COUNT_SHIFT);
}

static void scribble_key(void) {
    mq_record_key *key = &parts.key_table[any_element()];
    switch (fuzz_below(4)) {
    case 0: store(&key->owner, fuzz_one_in(2) ? hostile_name() : fuzz_edge(64)); break;
    case 1: store(&key->named, fuzz_one_in(2) ? fuzz_below(2) : fuzz_edge(8)); break;
    case 2: memset(key->name, (int)fuzz_random(), sizeof key->name); break;
    default: strcpy(key->name, keys[fuzz_below(3)]); store(&key->named, 1);
    }
}

static void scribble(void) {
    mq_record_row *row = &record()->rows[fuzz_below(HANDLES + 1)];
    mq_u64 *version = mq_cell_version_word(&parts, any_element());
    if (contended) {
        contend();
        return;
    }
    switch (fuzz_below(12)) {
    case 0:
    case 1:
    case 2:
    case 3: store(version, hostile_version()); break;
    case 4: store(mq_cell_value_copy_at(&parts, version, fuzz_below(4)), fuzz_edge(64)); break; /* its time */
    case 5:
        store(mq_cell_value_copy_at(&parts, version, fuzz_below(4)) + 1, fuzz_edge(2 * ITEM_MOST));
        break; /* length */
    case 6: store((uint64_t *)(void *)row + fuzz_below(sizeof *row / 8), fuzz_edge(8)); break;
    case 7: store(&record()->owner, fuzz_one_in(2) ? hostile_name() : fuzz_edge(64)); break;
    case 8: store((uint64_t *)(void *)&record()->eventcount, fuzz_edge(8)); break;
    case 9: store((uint64_t *)(void *)record() + fuzz_below(40), fuzz_edge(64)); break; /* the header */
    case 10:
        if (is_board()) {
            scribble_key();
            break;
        } /* fall through */
    default: store(memory.writable + 8 * fuzz_below(memory.bytes / 8), fuzz_edge(64));
    }
}

/* ---- join and leave ---- */

static void leave(member *m) {
    if (m->joined)
        mq_record_unregister_writer(&m->w, m->uid, &m->liveness_token);
    m->joined = false;
}

static void join(member *m) {
    static uint64_t uids;
    mq_file_lock lock;
    mq_error error;
    leave(m);
    memset(m, 0, sizeof *m);
    m->w.parts = parts;
    m->w.liveness_file = &liveness_file;
    if (!mq_file_lock_open(&lock, &liveness_file))
        return;
    while (mq_file_lock_try(&lock) != 0)
        ;
    m->joined = mq_record_join(&m->w, &lock, &self, m->uid = ++uids, &m->liveness_token, &error) == 0;
    mq_file_lock_close(&lock);
    check(!m->joined || (m->w.row >= record()->rows && m->w.row < record()->rows + MQ_RECORD_ROWS),
          "a row that is none");
}

/* Check the parts of a file that was accepted as valid. */
static void check_parts(const mq_record_file_parts *found, uint64_t bytes) {
    uint64_t length = found->config.length, copies = found->config.copies, item = found->config.item_bytes;
    uint64_t first = (uint64_t)(found->elements_base - memory.writable);
    check(length && (copies == 2 || copies == 4) && item, "a shape that is none");
    check(first + length * found->stride <= bytes && length * found->stride / length == found->stride,
          "beyond the file");
    uint64_t end = (copies - 1) * found->copy_stride + 16 + item;
    check(found->stride < 1ull << 40 && end <= found->stride, "copies beyond their element");
    if (found->config.flags & MQ_RECORD_BOARD) {
        mq_board_value_copy value;
        check((uint8_t *)(found->key_table + length) <= found->elements_base, "keys among the elements");
        check(mq_board_value_bytes(found) < item, "values beyond their element");
        mq_board_value_read_begin(found, length - 1, &value);
        mq_board_key_count(found);
    }
    mq_cell_read_begin(mq_cell_version_word(found, length - 1));
}

/* Check a file with hostile but consistent sizes, as in an open. */
static void open_file(void) {
    mq_record_file_parts found;
    mq_error error;
    uint64_t bytes = fuzz_one_in(2) ? memory.bytes : fuzz_below(memory.bytes);
    mq_record_header sound = {.length = record()->length,
                              .item_bytes = record()->item_bytes,
                              .copies = record()->copies,
                              .flags = record()->flags,
                              .stride = record()->stride,
                              .copy_stride = record()->copy_stride};
    mq_record_config shape = parts.config;
    if (fuzz_one_in(2))
        shape.length = fuzz_one_in(2) ? fuzz_edge(2 * LENGTH_MOST) : 1 + fuzz_below(LENGTH_MOST);
    if (fuzz_one_in(2))
        shape.item_bytes = fuzz_one_in(2) ? fuzz_edge(2 * ITEM_MOST) : fuzz_below(24);
    if (fuzz_one_in(4))
        shape.copies = fuzz_edge(10);
    if (fuzz_one_in(2))
        shape.flags = fuzz_one_in(4) ? fuzz_edge(8) : fuzz_below(4);
    uint64_t copy = 8 + ((shape.item_bytes + 7) & ~7ull), all = 8 + shape.copies * copy;
    uint64_t copy_stride = all > 64 && copy <= 56 ? 64 : copy;
    store(&record()->length, shape.length);
    store(&record()->item_bytes, shape.item_bytes);
    store(&record()->copies, shape.copies);
    store(&record()->flags, shape.flags);
    store(&record()->stride, (8 + (shape.copies - 1) * copy_stride + copy + 63) & ~63ull);
    store(&record()->copy_stride, copy_stride);
    store(&record()->magic, MQ_RECORD_MAGIC);
    store(&record()->version, (uint64_t)MQ_RECORD_MAJOR << 32);
    store(&record()->header_bytes, sizeof(mq_record_header));
    if (mq_record_check_file(record(), bytes, liveness_file.path, &found, &error) == 0)
        check_parts(&found, bytes);
    memcpy(&record()->length, &sound.length, offsetof(mq_record_header, creator) - offsetof(mq_record_header, length));
}

/* ---- elements ---- */

static mq_element_selection any_selection(int64_t *list) {
    mq_element_selection which = {.first = any_element()};
    which.count = fuzz_below(parts.config.length - which.first + 1);
    if (fuzz_one_in(2))
        return which;
    which.count = fuzz_below(2 * LENGTH_MOST);
    which.indices = list;
    for (uint64_t i = 0; i < which.count; i++)
        list[i] = (int64_t)any_element();
    return which;
}

/* Return memory of the exact size, so that the sanitizer detects a longer copy. */
static void *room(uint64_t count, uint64_t bytes) { return malloc(count && bytes ? count * bytes : 1); }

static const mq_record_file_parts *any_parts(void) { return fuzz_one_in(2) ? &parts : &seen_parts; }

static void read_some(void) {
    int64_t *list = room(2 * LENGTH_MOST, 8);
    mq_element_selection which = any_selection(list);
    if (which.indices)
        which.indices = list = realloc(list, which.count * 8 + !which.count);
    uint8_t *to = room(which.count, parts.config.item_bytes);
    mq_vector_read_info reading = {.write_counts = room(which.count, 8),
                                   .write_times_ns = fuzz_one_in(2) ? room(which.count, 8) : NULL};
    uint64_t done = fuzz_one_in(2)
                        ? mq_vector_read_elements(any_parts(), &which, to)
                        : mq_vector_read_elements_with_info(any_parts(), &which, fuzz_one_in(4) ? NULL : to, &reading);
    check(done <= which.count, "more than was asked for");
    free(reading.write_counts);
    free(reading.write_times_ns);
    free(to);
    free(list);
}

static void take_snapshot(void) {
    mq_element_selection which = {.count = parts.config.length};
    uint8_t *to = room(which.count, parts.config.item_bytes);
    mq_vector_read_info reading = {.write_counts = room(which.count, 8)};
    const mq_record_file_parts *from = any_parts();
    if (mq_vector_read_elements_with_info(from, &which, to, &reading) == which.count)
        for (int tries = 0; tries < TRIES && !mq_vector_snapshot_step(from, to, reading.write_counts); tries++)
            check(fuzz_rate || tries < 2, "no instant, though nobody writes");
    free(reading.write_counts);
    free(to);
}

static void find_changes(member *m) {
    uint64_t most = fuzz_below(parts.config.length + 1), times;
    int64_t *found = room(most, 8);
    uint64_t count = mq_vector_collect_changed(any_parts(), m->seen, fuzz_below(parts.config.length + 1), found, most);
    check(count <= most, "more changes than there is room for");
    for (uint64_t i = 0; i < count; i++) {
        check((uint64_t)found[i] < parts.config.length, "a change of no element");
        mq_element_selection one = {.first = (uint64_t)found[i], .count = 1};
        if (mq_vector_read_elements_with_info(&parts, &one, NULL, &(mq_vector_read_info){.write_counts = &times}))
            m->seen[found[i]] = times;
    }
    free(found);
}

/* Read changes as the recorder. */
static void record_changes(member *m) {
    mq_record_source source = {
        .parts = *any_parts(), .seen_write_counts = m->seen, .elements_left = 1 + fuzz_below(MQ_RECORD_SCAN_ELEMENTS)};
    mq_source_message taken;
    for (int i = 0; i < 64; i++) {
        uint64_t bytes = fuzz_below(2 * ITEM_MOST);
        uint8_t *to = room(bytes, 1);
        mq_source_status status = mq_record_source_take_change(
            &source, &(mq_source_buffer){.data = to, .bytes = bytes, .all_or_nothing = true}, &taken);
        check(status != MQ_SOURCE_OK || (taken.size <= bytes && taken.origin_id < parts.config.length),
              "beyond the room");
        check(status != MQ_SOURCE_FULL || taken.size > bytes, "no room, though there is");
        check(source.next_index <= source.end && source.end <= parts.config.length, "a look beyond all elements");
        free(to);
        if (status == MQ_SOURCE_EMPTY)
            break;
    }
}

/* As VectorBase._write_until_deadline. */
static bool write_some(member *m, const mq_element_selection *which, const uint8_t *from) {
    static const mq_stamps stamps = {1, 2};
    uint64_t done = 0;
    bool stamped = parts.config.item_bytes >= sizeof stamps && fuzz_one_in(4);
    for (int tries = 0; tries < 3; tries++) {
        int64_t deadline = tries ? (int64_t)fuzz_now_ns + 1000000 : 0;
        mq_vector_status status =
            mq_vector_write_elements(&m->w, which, from, mq_monotonic_ns(), stamped ? &stamps : NULL, deadline, &done);
        check(done <= which->count, "more were written than there are");
        check((done == which->count) == (status == MQ_VECTOR_WRITTEN), "it is said to be written, and is not");
        if (status == MQ_VECTOR_WRITTEN)
            return true;
        if (status == MQ_VECTOR_CORRUPT)
            break;
    }
    return false;
}

static void write_any(member *m) {
    int64_t list[2 * LENGTH_MOST];
    mq_element_selection which = any_selection(list);
    uint8_t *from = room(which.count, parts.config.item_bytes);
    memset(from, 1, which.count * parts.config.item_bytes);
    write_some(m, &which, from);
    free(from);
}

/* ---- boards ---- */

static uint64_t find_key(const char *key) {
    uint64_t i = mq_board_find_key(any_parts(), key, strlen(key), fuzz_one_in(4) ? any_element() : 0);
    check(i == MQ_BOARD_NO_KEY || i < parts.config.length, "a key of no element");
    return i;
}

/* Declare a key, write some values, and close it as Entry.close. */
static void declare(member *m) {
    const char *key = keys[fuzz_below(3)];
    uint64_t most = mq_board_value_bytes(&parts), length = fuzz_below(most + 1);
    mq_error error;
    int64_t declared = mq_board_declare_key(&m->w, key, strlen(key), &error);
    if (declared < 0)
        return;
    uint64_t i = (uint64_t)declared;
    check(i < parts.config.length, "a name of no element");
    uint8_t *from = room(length, 1);
    memset(from, 1, length);
    mq_board_write_value(&m->w, i, from, length, mq_monotonic_ns());
    free(from);
    if (fuzz_one_in(2))
        mq_record_release_owner_word(&m->w, &parts.key_table[i].owner);
}

static void observe(void) {
    const mq_record_file_parts *from = any_parts();
    uint64_t i = fuzz_one_in(2) ? any_element() : find_key(keys[fuzz_below(3)]);
    mq_board_value_copy value;
    for (int tries = 0; i != MQ_BOARD_NO_KEY && tries < TRIES; tries++) {
        const uint8_t *at = mq_board_value_read_begin(from, i, &value);
        check(value.length <= mq_board_value_bytes(&parts), "a length beyond the element");
        uint8_t *copy = room(value.length, 1);
        mq_copy_from_shared(copy, at, value.length);
        free(copy);
        if (mq_board_value_read_valid(from, i, &value))
            break;
        check(fuzz_rate, "torn, though nobody writes");
    }
    check(mq_board_key_count(from) <= parts.config.length, "more keys than elements");
}

/* All steps of a wait or poll except the sleep. */
static void rest(member *m) {
    static const mq_u64 whole = {1};
    mq_vector_poll_state vector = {
        .parts = any_parts(), .seen_write_counts = m->seen, .not_truncated = fuzz_one_in(2) ? &whole : NULL};
    mq_board_poll_state board = {.parts = any_parts(), .key = "second", .bytes = 6, .index = MQ_BOARD_NO_KEY};
    mq_eventcount_prepare_wait_mp(&record()->eventcount);
    mq_vector_is_readable(&vector);
    if (is_board()) {
        mq_board_key_is_readable(&board);
        board.index = any_element();
        mq_board_key_is_readable(&board);
    }
}

/* A read while elements change before each load. */
static void check_termination(void) {
    uint64_t rate = fuzz_rate;
    contended = true;
    fuzz_rate = 1;
    fuzz_op = "read, while elements change all the time";
    fuzz_steps = 0;
    read_some();
    take_snapshot();
    contended = false;
    fuzz_rate = rate;
}

static void call(void) {
    member *m = &members[fuzz_below(HANDLES)];
    switch (m->joined ? fuzz_below(18) : fuzz_below(8)) {
    case 0:
        fuzz_op = "join";
        join(m);
        break;
    case 1:
        fuzz_op = "open";
        open_file();
        break;
    case 2:
        fuzz_op = "rest";
        rest(m);
        break;
    case 3:
        fuzz_op = "snapshot";
        take_snapshot();
        break;
    case 4:
        fuzz_op = "changes";
        find_changes(m);
        record_changes(m);
        break;
    case 5:
        fuzz_op = "observe";
        if (is_board()) {
            observe();
            break;
        } /* fall through */
    case 6:
    case 7:
        fuzz_op = "read";
        read_some();
        break;
    case 8:
        fuzz_op = "leave";
        leave(m);
        break;
    case 9:
    case 10:
    case 11:
        fuzz_op = "declare";
        if (is_board()) {
            declare(m);
            break;
        } /* fall through */
    default: fuzz_op = "write"; write_any(m);
    }
}

/* Without hostile stores, an element without an owner can be written and read. */
static void check_delivers(member *m) {
    static uint8_t from[ITEM_MOST], to[ITEM_MOST];
    uint64_t i = any_element(), before, after = 0;
    mq_element_selection one = {.first = i, .count = 1};
    mq_u64 *version = mq_cell_version_word(&parts, i);
    fuzz_op = "the sound write";
    fuzz_steps = 0;
    store(version, *(uint64_t *)(void *)version & ~0xffffffull);
    before = mq_cell_write_count(mq_cell_read_begin(version));
    memset(from, (int)fuzz_random(), sizeof from);
    uint64_t done = 0;
    check(mq_vector_write_elements(&m->w, &one, from, 1, NULL, 0, &done) == MQ_VECTOR_WRITTEN,
          "an element cannot be written");
    check(mq_vector_read_elements_with_info(&seen_parts, &one, to, &(mq_vector_read_info){.write_counts = &after}) == 1,
          "it cannot be read");
    check(after == mq_cell_next_write_count(&parts, before), "it was not counted");
    check(!memcmp(from, to, parts.config.item_bytes), "another value is read than was written");
}

static void run_case(void) {
    static const uint64_t rates[] = {0, 4, 64, 512};
    mq_record_config shape = {.length = 1 + fuzz_below(fuzz_one_in(4) ? 1 : LENGTH_MOST),
                              .item_bytes = fuzz_one_in(2) ? 8 * (1 + fuzz_below(8)) : 1 + fuzz_below(ITEM_MOST),
                              .copies = fuzz_one_in(2) ? 2 : 4,
                              .flags = fuzz_one_in(2) ? 0 : fuzz_below(4)};
    if (shape.flags & MQ_RECORD_BOARD && shape.item_bytes <= 8)
        shape.item_bytes += 8;
    fuzz_use(&memory, mq_record_compute_file_bytes(&shape));
    memset(members, 0, sizeof members);
    mq_record_header_init(record(), &shape, 1, 7, "fuzz");
    mq_error error;
    check(mq_record_check_file(record(), memory.bytes, liveness_file.path, &parts, &error) == 0, "its own file");
    mq_record_compute_file_parts(&seen_parts, (mq_record_header *)(void *)memory.readable, &shape);
    if (fuzz_one_in(8)) /* random bytes after a valid header */
        for (size_t at = sizeof(mq_record_header); at + 8 <= memory.bytes; at += 8)
            store(memory.writable + at, fuzz_one_in(8) ? hostile_version() : fuzz_random() | 1);
    for (int i = 0; i < HANDLES; i++)
        join(&members[i]);
    fuzz_calls(OPS, call, rates);
    if (fuzz_one_in(4))
        check_termination();
    for (int i = 0; i < HANDLES; i++)
        if (members[i].joined)
            check_delivers(&members[i]);
}

int main(int argc, char **argv) {
    fuzz_map(&memory, (BYTES_MOST + PAGE - 1) & ~(size_t)(PAGE - 1));
    fuzz_scribble = scribble;
    return fuzz_main(argc, argv, run_case, OPS);
}
