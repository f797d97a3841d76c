/* The driver's operations on vectors and boards. Value NUMBER of a board has 1 + NUMBER % 5 words. What was achieved is
 * said.
 */
#include "c/vector.c"

#include "c/board.c"

#include <poll.h>

#include "driver.h"

enum { KEY_WORDS = 5 };

static msgq_vector *vector; /* NULL: it is a board */
static msgq_board *board;
static mqc_record_file *file;
static msgq_vector_options vector_options;
static msgq_board_options board_options;
static double patience = 1; /* seconds, with an element that another one has */

/* ---- coming and going ---- */

/* vector:LENGTH:EXCLUSIVE, or board:KEYS, of a new one */
static void choose_vector(uint64_t length, uint64_t exclusive) {
    vector_options =
        (msgq_vector_options){.dtype = "<u8", .item_bytes = 8, .length = length, .exclusive = (int)exclusive};
}
static void choose_board(uint64_t keys, uint64_t b) {
    board_options = (msgq_board_options){.keys = (uint32_t)keys, .value_bytes = 16};
}
static void open_vector(uint64_t a, uint64_t b) {
    must(msgq_vector_open(&vector, endpoint, &vector_options));
    file = &vector->r;
}
static void open_board(uint64_t a, uint64_t b) {
    must(msgq_board_open(&board, endpoint, &board_options));
    file = &board->r;
}
static void join(uint64_t a, uint64_t b) { must(mqc_record_file_ensure_row(file)); }
static void leave(uint64_t a, uint64_t b) { mqc_record_file_close(file); }
/* pass:COUNT: so many come and go */
static void pass(uint64_t count, uint64_t b) {
    mq_process_identity self;
    mq_error error;
    must(mqc_read_own_identity(&self));
    while (count--) {
        mq_record_writer w = file->w;
        mq_file_lock lock;
        void *token;
        must(mqc_lock_mapped_file(&file->endpoint, &file->segment, true, &lock));
        must(mq_record_join(&w, &lock, &self, count + 1, &token, &error));
        mqc_unlock_mapped_file(&lock);
        mq_record_unregister_writer(&w, count + 1, &token);
    }
}

/* ---- vectors ---- */

static void be_patient(uint64_t ms, uint64_t b) { patience = (double)ms / 1e3; }
static void write_items(uint64_t first, uint64_t count, const void *items, uint64_t number) {
    int status = msgq_vector_write(vector, first, count, items, patience);
    if (status == -ETIMEDOUT)
        printf("held: %s\n", msgq_error_text());
    else if (must(status) == 0)
        say("wrote", number);
}
/* write:INDEX:NUMBER */
static void write_one(uint64_t index, uint64_t number) {
    write_items(index, 1, filled(msgq_vector_item_bytes(vector), number), number);
}
/* many:COUNT:NUMBER: the first element gets this one, the next the next. */
static void write_many(uint64_t count, uint64_t number) {
    static uint8_t items[1024];
    uint64_t bytes = msgq_vector_item_bytes(vector);
    for (uint64_t i = 0; i < count; i++)
        memcpy(items + i * bytes, filled(bytes, number + i), bytes);
    write_items(0, count, items, number);
}
/* hold:INDEX: be in the middle of a write. */
static void hold(uint64_t index, uint64_t b) {
    mq_record_writer *w = &file->w;
    mq_u64 *version = mq_cell_version_word(&w->parts, index);
    uint64_t bytes = msgq_vector_item_bytes(vector);
    if (!(w->parts.config.flags & MQ_RECORD_EXCLUSIVE) && mq_cell_try_acquire(version, w->owner) != 0 &&
        !mq_record_steal_element(w, version))
        fail("held");
    mq_u64 *copy = mq_cell_begin_write(&w->parts, version, (uint64_t)msgq_time_ns());
    mq_copy_to_shared(copy, filled(bytes, ~0ull), bytes / 2);
}
/* flood:COUNT:MICROSECONDS: write the first elements at random, for ever, with pauses of about so long. */
static void flood(uint64_t count, uint64_t pause) {
    for (uint64_t number = (uint64_t)getpid() << 32;; number++) {
        uint64_t index = (uint64_t)random() % count;
        must(msgq_vector_write(vector, index, 1, filled(msgq_vector_item_bytes(vector), number), patience));
        if (pause && random() % 2)
            usleep((useconds_t)((uint64_t)random() % (2 * pause)));
    }
}
static void announce(uint64_t a, uint64_t b) { mq_eventcount_prepare_wait_mp(&file->w.parts.header->eventcount); }
/* wait:MS */
static void wait_for_change(uint64_t ms, uint64_t b) {
    must(msgq_vector_wait(vector, (double)ms / 1e3));
    puts("changed");
}

/* ---- reading ---- */

/* Read an element or a value, which is whole and no older than when it was seen last. */
static void look(uint64_t index, uint64_t *seen) {
    static uint8_t item[ROOM];
    uint64_t count = 0;
    msgq_value info = {.count = 0};
    if (vector) {
        must(msgq_vector_read(vector, index, 1, item, &count, NULL));
        number_of(item, msgq_vector_item_bytes(vector));
    } else if (msgq_board_read(board, (int64_t)index, item, sizeof item, &info) >= 0) {
        count = info.count;
        if ((number_of(item, info.size) % KEY_WORDS + 1) * 8 != info.size)
            fail("another length");
    }
    if (count < *seen)
        fail("older than before");
    *seen = count;
}
/* Read everything again and again until the parent says a word; say how often. */
static void watch(uint64_t a, uint64_t b) {
    uint64_t *seen = calloc(file->length, sizeof *seen), rounds = 0;
    struct pollfd in = {.fd = 0, .events = POLLIN};
    do {
        for (uint64_t i = 0; i < file->length; i++)
            look(i, &seen[i]);
        rounds++;
    } while (poll(&in, 1, 0) == 0);
    say("read", rounds);
    free(seen);
}

/* ---- boards ---- */

static const char *name_of(uint64_t key) {
    static char name[MQ_RECORD_KEY_BYTES];
    snprintf(name, sizeof name, "a key that is called %llu", (unsigned long long)key);
    return name;
}
/* declare:KEY */
static void declare(uint64_t key, uint64_t b) { must(msgq_board_declare(board, name_of(key))); }
/* put:KEY:NUMBER */
static void put(uint64_t key, uint64_t number) {
    uint64_t size = 8 * (number % KEY_WORDS + 1);
    must(msgq_board_write(board, must(msgq_board_find(board, name_of(key))), filled(size, number), size));
    say("wrote", number);
}
/* begin:KEY: be in the middle of a write. */
static void begin_value(uint64_t key, uint64_t b) {
    const mq_record_file_parts *parts = &file->w.parts;
    mq_u64 *version = mq_cell_version_word(parts, (uint64_t)must(msgq_board_find(board, name_of(key))));
    mq_u64 *copy = mq_cell_begin_write(parts, version, (uint64_t)msgq_time_ns());
    mq_store_relaxed_u64(copy, ~0ull);
    mq_copy_to_shared(copy + 1, filled(8, ~0ull), 8);
}
/* return:KEY, as Entry.close does it. */
static void give_key_back(uint64_t key, uint64_t b) {
    int64_t index = must(msgq_board_find(board, name_of(key)));
    mq_record_release_owner_word(&file->w, &file->w.parts.key_table[index].owner);
}

const operation record_operations[] = {
    {"vector", choose_vector},
    {"board", choose_board},
    {"open", open_vector},
    {"openboard", open_board},
    {"join", join},
    {"leave", leave},
    {"pass", pass},
    {"patience", be_patient},
    {"write", write_one},
    {"many", write_many},
    {"hold", hold},
    {"flood", flood},
    {"lie", announce},
    {"wait", wait_for_change},
    {"watch", watch},
    {"declare", declare},
    {"put", put},
    {"begin", begin_value},
    {"return", give_key_back},
    {NULL, NULL},
};
