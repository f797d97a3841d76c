/* A participant of a piece with rows that have a generation, which dies at a chosen step (points.h).
 *
 *     row_table FILE SIGNAL PATTERN N OPERATION...
 *
 * FILE is zeros: rows of 96 bytes. `take` takes one of them, and tells its number and generation; `ask:ROW:GENERATION`
 * tells whether the owner lives whom a word with these two names; `leave` leaves.
 */
#include "points.h"

#include "base/row_table.h"

enum { STRIDE = 96, FIRST_BYTE = 7 };

static mq_row_table row_table = {.stride = STRIDE, .byte = FIRST_BYTE};
static int lock_fd;
static mq_liveness_file liveness_file;
static int row;
static void *liveness_token;

static mq_versioned_row *row_at(uint64_t number) {
    return (mq_versioned_row *)mq_row_table_participant(&row_table, (int)number);
}

static void take(void) {
    flock(lock_fd, LOCK_EX);
    POINT("holds", lock);
    row = mq_row_table_reserve(&row_table, &liveness_file, &liveness_token);
    if (row == MQ_NO_ROW)
        fail("no row");
    unsigned generation = mq_row_table_occupy(row_at((uint64_t)row), &self, self.pid, liveness_token != NULL);
    flock(lock_fd, LOCK_UN);
    printf("row %d generation %u\n", row, generation);
}

static void ask(uint64_t number, uint64_t generation) {
    static const char *const answers[] = {[MQ_DEAD] = "dead", [MQ_ALIVE] = "alive", [MQ_UNKNOWN] = "unknown"};
    mq_liveness_probe probe = mq_liveness_probe_begin(&liveness_file);
    puts(answers[mq_row_liveness(&probe, row_at(number), (uint16_t)generation, FIRST_BYTE + (int)number)]);
    mq_liveness_probe_end(&probe);
}

static void perform(const char *name, uint64_t a, uint64_t b) {
    if (!strcmp(name, "take"))
        take();
    else if (!strcmp(name, "ask"))
        ask(a, b);
    else if (!strcmp(name, "leave"))
        mq_participant_leave(&row_at((uint64_t)row)->participant, self.pid, &liveness_token);
    else
        fail(name);
}

int main(int count, char **arguments) {
    size_t bytes;
    begin();
    if (count < 5)
        fail("usage: row_table FILE SIGNAL PATTERN N OPERATION...");
    row_table.rows = map(arguments[1], &lock_fd, &bytes, &liveness_file);
    row_table.count = (int)(bytes / STRIDE);
    run(arguments + 2, perform);
    return 0;
}
