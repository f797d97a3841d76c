/* A participant of a vector or board that dies, or stops, at a chosen step of the protocol (points.h).
 *
 *     record FILE CLOCK SIGNAL PATTERN N OPERATION...
 *
 * The file is there; CLOCK is what the host's clock is ahead of CLOCK_MONOTONIC, in ns. Value NUMBER of a vector holds its
 * number in each of its words; of a board it has 1 + NUMBER % 5 words. So a torn one shows. Coming, going, writing and
 * declaring are done in the order of steps of handle.pxi, vector.pxi and board.pxi. What was achieved is said.
 */
#include "points.h"

#include <poll.h>

#include "lock.h"
#define mq_liveness_probe_end(probe) (mq_liveness_probe_end(probe), POINT("asked", whether it lives))

#include "records/join.h"

enum { KEY_WORDS = 5, BREATH_NS = MQ_NS_PER_MS, PATIENCE_NS = MQ_NS_PER_S };

static mq_liveness_file liveness_file;
static mq_record_writer w = {.liveness_file = &liveness_file};
static uint64_t uid, words;
static void *row_lock;
static int64_t clock_offset;
static uint64_t *value;                /* room for one */
static int64_t patience = PATIENCE_NS; /* with an element that another one has */

static int64_t host_time(void) { return mq_monotonic_ns() + clock_offset; }
static bool is_exclusive(void) { return w.parts.config.flags & MQ_RECORD_EXCLUSIVE; }
static void say(const char *what, uint64_t a) { printf("%s %llu\n", what, (unsigned long long)a); }

static const uint8_t *fill(uint64_t number) {
    for (uint64_t i = 0; i < words; i++)
        value[i] = number;
    return (const uint8_t *)value;
}

static uint64_t number_of(const uint64_t *filled, uint64_t count) {
    for (uint64_t i = 1; i < count; i++)
        if (filled[i] != filled[0])
            fail("torn");
    return filled[0];
}

/* ---- coming and going ---- */

static void join(void) {
    mq_file_lock lock;
    mq_error error;
    wait_for_lock(&lock, &liveness_file);
    uid = (uint64_t)random() << 32 | (uint64_t)random() | 1;
    int failed = mq_record_join(&w, &lock, &self, uid, &row_lock, &error);
    if (failed && error.kind == MQ_ERROR_OTHER_WRITER) {
        puts("owned");
        exit(0);
    }
    if (failed)
        fail(error.text);
    mq_file_lock_close(&lock);
}

static void leave(void) { mq_record_unregister_writer(&w, uid, &row_lock); }

/* ---- writing ---- */

/* As Vector._write_patiently. */
static void write_all(uint64_t first, uint64_t count, const uint8_t *from) {
    mq_element_selection which = {.first = first, .count = count};
    uint64_t done = 0;
    int64_t until = 0, began = mq_monotonic_ns(), time = host_time();
    while (mq_vector_write_elements(&w, &which, from, time, NULL, until, &done) != MQ_VECTOR_WRITTEN) {
        int64_t now = mq_monotonic_ns();
        if (until && now - began >= patience) {
            say("held", first + done);
            return;
        }
        until = now + BREATH_NS;
    }
}

/* write:INDEX:NUMBER */
static void write_one(uint64_t index, uint64_t number) {
    write_all(index, 1, fill(number));
    say("wrote", number);
}

/* many:COUNT:NUMBER: the first element gets this one, the next the next. */
static void write_many(uint64_t count, uint64_t number) {
    uint64_t *all = calloc(count, words * sizeof *all);
    for (uint64_t i = 0; i < count * words; i++)
        all[i] = number + i / words;
    write_all(0, count, (const uint8_t *)all);
    free(all);
}

/* hold:INDEX: be in the middle of a write. */
static void hold(uint64_t index) {
    mq_u64 *version = mq_cell_version_word(&w.parts, index);
    if (!is_exclusive() && mq_cell_try_acquire(version, w.owner) != 0 && !mq_record_steal_element(&w, version))
        fail("held");
    mq_u64 *copy = mq_cell_begin_write(&w.parts, version, (uint64_t)host_time());
    mq_copy_to_shared(copy, fill(~0ull), words / 2 * sizeof *value);
}

/* flood:COUNT:MICROSECONDS: write the first elements at random, for ever, with pauses of about so long. */
static void flood(uint64_t count, uint64_t pause) {
    for (uint64_t number = (uint64_t)getpid() << 32;; number++) {
        write_all((uint64_t)random() % count, 1, fill(number));
        if (pause && random() % 2)
            usleep((useconds_t)((uint64_t)random() % (2 * pause)));
    }
}

/* ---- reading ---- */

typedef struct {
    uint64_t times;
    int64_t written;
} last_seen;

/* Read an element, which is whole and no older than when it was seen last. False: it was written again and again. */
static bool look(uint64_t index, last_seen *last) {
    uint64_t times;
    int64_t written;
    if (!mq_vector_read_one(&w.parts, index, (uint8_t *)value, words * sizeof *value, &times, &written))
        return false;
    number_of(value, words);
    if (times < last->times || written < last->written)
        fail("older than before");
    *last = (last_seen){times, written};
    return true;
}

static void look_at_key(uint64_t index, last_seen *last) {
    mq_board_value_copy found;
    const uint8_t *at;
    do {
        at = mq_board_value_read_begin(&w.parts, index, &found);
        mq_copy_from_shared(value, at, found.length);
    } while (!mq_board_value_read_valid(&w.parts, index, &found));
    if (found.count && (number_of(value, found.length / 8) % KEY_WORDS + 1) * 8 != found.length)
        fail("another length");
    if (found.count < last->times)
        fail("older than before");
    *last = (last_seen){found.count, found.time_ns};
}

/* Read all elements, or values, again and again until somebody says a word; say how often, and how long it took at
 * most. */
static void watch(void) {
    last_seen *last = calloc(w.parts.config.length, sizeof *last);
    struct pollfd in = {.fd = 0, .events = POLLIN};
    uint64_t rounds = 0, restless = 0;
    do {
        for (uint64_t i = 0; i < w.parts.config.length; i++)
            if (w.parts.config.flags & MQ_RECORD_BOARD)
                look_at_key(i, &last[i]);
            else
                restless += !look(i, &last[i]);
        rounds++;
    } while (poll(&in, 1, 0) == 0);
    say("read", rounds);
    say("restless", restless);
    free(last);
}

/* wait:MS: sleep until something was written since now. */
static void sleep_once(uint64_t ms) {
    uint64_t *seen = calloc(w.parts.config.length, sizeof *seen);
    for (uint64_t i = 0; i < w.parts.config.length; i++)
        seen[i] = mq_cell_write_count(mq_load_acquire_u64(mq_cell_version_word(&w.parts, i)));
    mq_u32 *word = &w.parts.header->eventcount;
    uint32_t expected = mq_eventcount_prepare_wait_mp(word);
    if (mq_vector_next_changed(&w.parts, seen, 0) == w.parts.config.length)
        mq_futex_wait(mq_futex_word(word), expected, mq_monotonic_ns() + (int64_t)ms * MQ_NS_PER_MS);
    say("changed", mq_vector_next_changed(&w.parts, seen, 0));
    free(seen);
}

/* ---- boards ---- */

static size_t name_of(uint64_t key, char *name) {
    return (size_t)snprintf(name, MQ_RECORD_KEY_BYTES, "a key that is called %llu", (unsigned long long)key);
}

static uint64_t find(uint64_t key) {
    char name[MQ_RECORD_KEY_BYTES];
    return mq_board_find_key(&w.parts, name, name_of(key, name), 0);
}

/* declare:KEY */
static void declare(uint64_t key) {
    char name[MQ_RECORD_KEY_BYTES];
    mq_file_lock lock;
    mq_error error;
    wait_for_lock(&lock, &liveness_file);
    int64_t index = mq_board_declare_key(&w, name, name_of(key, name), &error);
    mq_file_lock_close(&lock);
    if (index < 0 && error.kind != MQ_ERROR_KEY_TAKEN)
        fail(error.text);
    say(index < 0 ? "taken" : "declared", key);
}

/* put:KEY:NUMBER, as Entry.write */
static void put(uint64_t key, uint64_t number) {
    fill(number);
    mq_board_write_value(&w, find(key), value, (number % KEY_WORDS + 1) * 8, host_time());
    say("wrote", number);
}

/* begin:KEY: be in the middle of a write. */
static void begin_value(uint64_t key) {
    mq_u64 *copy = mq_cell_begin_write(&w.parts, mq_cell_version_word(&w.parts, find(key)), (uint64_t)host_time());
    mq_store_relaxed_u64(copy, ~0ull);
    mq_copy_to_shared(copy + 1, fill(~0ull), 8);
}

/* return:KEY, as Entry.close */
static void give_key_back(uint64_t key) { mq_record_release_owner_word(&w, &w.parts.key_table[find(key)].owner); }

/* ---- */

static bool perform_on_board(const char *name, uint64_t a, uint64_t b) {
    if (!strcmp(name, "declare"))
        declare(a);
    else if (!strcmp(name, "put"))
        put(a, b);
    else if (!strcmp(name, "begin"))
        begin_value(a);
    else if (!strcmp(name, "return"))
        give_key_back(a);
    else
        return false;
    return true;
}

static void pass(uint64_t count) {
    while (count--) {
        join();
        leave();
    }
}

static void perform(const char *name, uint64_t a, uint64_t b) {
    if (perform_on_board(name, a, b))
        return;
    if (!strcmp(name, "join"))
        join();
    else if (!strcmp(name, "leave"))
        leave();
    else if (!strcmp(name, "pass"))
        pass(a);
    else if (!strcmp(name, "patience"))
        patience = (int64_t)a * MQ_NS_PER_MS;
    else if (!strcmp(name, "write"))
        write_one(a, b);
    else if (!strcmp(name, "many"))
        write_many(a, b);
    else if (!strcmp(name, "hold"))
        hold(a);
    else if (!strcmp(name, "flood"))
        flood(a, b);
    else if (!strcmp(name, "lie"))
        mq_eventcount_prepare_wait_mp(&w.parts.header->eventcount);
    else if (!strcmp(name, "wait"))
        sleep_once(a);
    else if (!strcmp(name, "watch"))
        watch();
    else
        fail(name);
}

int main(int count, char **arguments) {
    size_t bytes;
    int fd;
    begin();
    if (count < 7)
        fail("usage: record FILE CLOCK SIGNAL PATTERN N OPERATION...");
    mq_record_header *record = map(arguments[1], &fd, &bytes, &liveness_file);
    close(fd);
    mq_error error;
    if (mq_record_check_file(record, bytes, arguments[1], &w.parts, &error) != 0)
        fail(error.text);
    clock_offset = atoll(arguments[2]);
    words = w.parts.config.item_bytes / sizeof *value;
    value = calloc(words + 1, sizeof *value);
    run(arguments + 3, perform);
    return 0;
}
