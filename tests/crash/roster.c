/* A participant of a piece with rows that have a generation, which dies at a chosen step (points.h).
 *
 *     roster FILE SIGNAL PATTERN N OPERATION...
 *
 * FILE is zeros: rows of 96 bytes. `take` takes one of them, and tells its number and generation; `ask:ROW:GENERATION`
 * tells whether the owner lives whom a word with these two names; `leave` leaves.
 */
#include "points.h"

#include "base/row_table.h"

enum { STRIDE = 96, FIRST_BYTE = 7 };

static mq_row_table roster = {.stride = STRIDE, .byte = FIRST_BYTE};
static int lock_fd;
static mq_liveness_file roll;
static int row;
static void *hold;

static mq_versioned_row *row_at(uint64_t number) { return (mq_versioned_row *)mq_row_table_at(&roster, (int)number); }

static void take(void) {
    flock(lock_fd, LOCK_EX);
    POINT("holds", lock);
    row = mq_row_table_reserve(&roster, &roll, &hold);
    if (row == MQ_NO_ROW)
        fail("no row");
    unsigned generation = mq_row_table_occupy(row_at((uint64_t)row), &self, self.pid, hold != NULL);
    flock(lock_fd, LOCK_UN);
    printf("row %d generation %u\n", row, generation);
}

static void ask(uint64_t number, uint64_t generation) {
    static const char *const answers[] = {[MQ_DEAD] = "dead", [MQ_ALIVE] = "alive", [MQ_UNKNOWN] = "unknown"};
    mq_liveness_probe inquiry = mq_liveness_probe_begin(&roll);
    puts(answers[mq_row_liveness(&inquiry, row_at(number), (uint16_t)generation, FIRST_BYTE + (int)number)]);
    mq_liveness_probe_end(&inquiry);
}

static void perform(const char *name, uint64_t a, uint64_t b) {
    if (!strcmp(name, "take"))
        take();
    else if (!strcmp(name, "ask"))
        ask(a, b);
    else if (!strcmp(name, "leave"))
        mq_identity_leave(&row_at((uint64_t)row)->who, self.pid, &hold);
    else
        fail(name);
}

int main(int count, char **arguments) {
    size_t bytes;
    begin();
    if (count < 5)
        fail("usage: roster FILE SIGNAL PATTERN N OPERATION...");
    roster.rows = map(arguments[1], &lock_fd, &bytes, &roll);
    roster.count = (int)(bytes / STRIDE);
    run(arguments + 2, perform);
    return 0;
}
