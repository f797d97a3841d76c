/* Fuzzes the table of leases: a server that admits clients, takes buffers and publishes frames, and a client that holds
 * frames. A hostile program rewrites words before and during each call. For the usage, see driver.c. The program checks
 * that:
 *
 * - no call accesses bytes outside of the table, or returns an invalid row or buffer;
 * - every call ends;
 * - after the hostile stores, the server can take a buffer again.
 */
#define FUZZ_STEPS_MAX 100000 /* the rows, for each buffer */
#include "hostile.h"

#include "leases.h"

enum { OPS = 200, SIZE = sizeof(mq_frame_lease_table) };

static fuzz_memory memory;
static mq_frame_buffer_mru mru; /* of the server */
static uint32_t rows;
static bool taken[MQ_FRAME_CLIENT_ROWS];
static uint32_t row; /* of the client */

static mq_frame_lease_table *table(void) { return (mq_frame_lease_table *)(void *)memory.writable; }

static uint32_t hostile_word(void) {
    switch (fuzz_below(4)) {
    case 0: return (uint32_t)fuzz_random();
    case 1: return (uint32_t)fuzz_below(4);
    case 2: return mru.newest - (uint32_t)fuzz_below(3); /* a possible lease */
    default: return mru.generation[fuzz_below(MQ_FRAME_BUFFERS_MAX)];
    }
}

static void scribble(void) {
    uint64_t words = SIZE / 4,
             used = (offsetof(mq_frame_lease_table, rows) / 4 + rows * sizeof(mq_frame_client_row) / 4) % words + 1;
    uint64_t at = fuzz_below(4) ? fuzz_below(used) : fuzz_below(words);
    __atomic_store_n((uint32_t *)(void *)memory.writable + at, hostile_word(), __ATOMIC_RELAXED);
}

/* As ServerLeases.admit. Half of the clients are dead. */
static void admit(void) {
    uint32_t free = 0;
    while (free < MQ_FRAME_CLIENT_ROWS && taken[free] && !mq_frame_row_is_released(table(), free, mru.generation) &&
           fuzz_one_in(2))
        free++;
    if (free == MQ_FRAME_CLIENT_ROWS)
        return;
    taken[free] = true;
    mq_frame_row_reset(table(), free, MQ_FRAME_ROW_TAKEN);
    rows = rows > free ? rows : free + 1;
}

static void publish(uint32_t buffer) {
    mru.generation[buffer] = 0;
    check(mq_frame_buffer_mru_publish(&mru, table(), buffer) != 0, "a frame has generation 0, which is none");
}

/* Take a buffer and publish a frame, as ServerLeases. */
static void render(void) {
    int slowest;
    uint32_t awaited = mq_frame_count_awaited_frames(table(), rows, mru.newest, &slowest);
    check(slowest >= -1 && slowest < (int)rows, "a client lags that is none");
    int warmest = mq_frame_buffer_claim_mru(&mru, table(), rows, awaited);
    check(warmest >= -1 && warmest < (int)mru.buffers, "a buffer is warm that is none");
    if (warmest >= 0 && fuzz_one_in(2)) {
        publish((uint32_t)warmest);
        return;
    }
    for (uint32_t place = mru.buffers; place-- > 0;) {
        uint32_t buffer = mru.order[place];
        int holder = mq_frame_buffer_claim(table(), rows, buffer, mru.generation[buffer]);
        check(holder >= -1 && holder < (int)rows, "a buffer is held by a client that is none");
        if (holder >= 0 && fuzz_one_in(2)) { /* the client is dead, so its buffers are free */
            mq_frame_row_reset(table(), (uint32_t)holder, MQ_FRAME_ROW_FREE);
            taken[holder] = false;
        }
        if (holder >= 0)
            continue;
        publish(buffer);
        return;
    }
}

static void call(void) {
    uint32_t buffer = (uint32_t)fuzz_below(MQ_FRAME_BUFFERS_MAX), generation = (uint32_t)fuzz_random() | 1;
    switch (fuzz_below(8)) {
    case 0:
        fuzz_op = "admit";
        admit();
        break;
    case 1:
        fuzz_op = "hold";
        mq_frame_lease_take(table(), row, buffer, fuzz_one_in(2) ? mru.generation[buffer] : generation);
        break;
    case 2:
        fuzz_op = "let go";
        mq_frame_lease_return(table(), row, buffer);
        break;
    case 3:
        fuzz_op = "leave";
        mq_frame_row_set_left(table(), row);
        row = (uint32_t)fuzz_below(MQ_FRAME_CLIENT_ROWS);
        break;
    case 4:
        fuzz_op = "held";
        mq_frame_lease_find_holder(table(), rows, buffer, mru.generation[buffer]);
        break;
    case 5:
        fuzz_op = "grow";
        if (mru.buffers < MQ_FRAME_BUFFERS_MAX)
            mq_frame_buffer_mru_add(&mru);
        break;
    default: fuzz_op = "render"; render();
    }
}

static void run_case(void) {
    static const uint64_t rates[] = {0, 4, 64, 512};
    fuzz_use(&memory, SIZE);
    memset(taken, 0, sizeof taken);
    mq_frame_buffer_mru_init(&mru, 1 + (uint32_t)fuzz_below(MQ_FRAME_BUFFERS_MAX));
    rows = 0;
    row = (uint32_t)fuzz_below(MQ_FRAME_CLIENT_ROWS);
    mru.newest = fuzz_one_in(4) ? UINT32_MAX - (uint32_t)fuzz_below(4) : 0;
    fuzz_calls(OPS, call, rates);
    /* if all clients are dead, the server must get the next buffer */
    for (uint32_t i = 0; i < rows; i++)
        mq_frame_row_reset(table(), i, MQ_FRAME_ROW_FREE);
    check(mq_frame_buffer_claim(table(), rows, 0, mru.generation[0]) == -1,
          "nobody holds it, and yet it cannot be had");
}

int main(int argc, char **argv) {
    fuzz_map(&memory, (SIZE + 4095) & ~4095);
    fuzz_scribble = scribble;
    return fuzz_main(argc, argv, run_case, OPS);
}
