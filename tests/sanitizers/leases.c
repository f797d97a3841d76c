/* Frames under stress in one process: a server that renders without a pause; clients that hold, leave with frames in
 * their hands, and die. Usage: leases SECONDS SEED. Prints what was done; ends with 1 and a text when a frame changed.
 *
 * What: every word of a frame is its generation. Clients look at all of them when they get it and before they let go.
 * Why: the frames are plain memory, read in place. Only the leases keep the server from writing into them.
 * Failure would mean: a buffer was written while somebody held it, or handed out before it was written.
 *
 * What the thread sanitizer can say here: whether EDGE frame and EDGE lease order each plain access to a frame before
 * the next one of the other side. Packets are passed relaxed, so that nothing else does. What it cannot say: whether
 * EDGE claim is strong enough, as it does not model fences; there, the words of the frames count, and the orders that
 * tests/headers and tests/meta check.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "leases.h"

enum { BUFFERS = 4, CLIENTS = 4, WORDS = 64, HELD_MAX = 2 };

static mq_frame_lease_table *table;
static uint64_t frames[BUFFERS][WORDS];
static mq_u64 packets[2]; /* buffer << 32 | generation; the newest, and the one before */
static mq_u32 dead[CLIENTS];
static mq_frame_buffer_mru shelf; /* the server's: what each buffer has */
static _Atomic bool stop;
static _Atomic uint64_t published, warm, dropped, held, missed, left, died;
static unsigned seed;

static uint32_t below(uint64_t *state, uint32_t n) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33) % n;
}

static void verify(uint32_t client, uint32_t buffer, uint32_t generation) {
    for (int i = 0; i < WORDS; i++) {
        if (frames[buffer][i] == generation)
            continue;
        fprintf(stderr, "leases: client %u holds frame %u and finds %llu at %d (seed %u)\n", client, generation,
                (unsigned long long)frames[buffer][i], i, seed);
        _exit(1);
    }
    mq_fence_compiler(); /* look again the next time */
}

/* ---- the server ---- */

/* Rows of clients that died, or left and let go of all, are for others. */
static void free_rows(void) {
    for (uint32_t row = 0; row < CLIENTS; row++) {
        bool is_dead = mq_load_acquire_u32(&dead[row]);
        if (!is_dead && !mq_frame_row_is_released(table, row, shelf.generation))
            continue;
        mq_frame_row_reset(table, row, MQ_FRAME_ROW_TAKEN);
        mq_store_release_u32(&dead[row], 0);
    }
}

/* The warmest that nobody awaits (or, for these clients may be asleep, that only few do); else the oldest. -1: none. */
static int take(uint64_t *chance) {
    int slowest, buffer = -1;
    uint32_t awaited = mq_frame_count_awaited_frames(table, CLIENTS, shelf.newest, &slowest);
    if (below(chance, 4))
        buffer =
            mq_frame_buffer_claim_mru(&shelf, table, CLIENTS, awaited < BUFFERS ? awaited : below(chance, BUFFERS));
    warm += buffer >= 0;
    for (int place = BUFFERS - 1; place >= 0 && buffer < 0; place--)
        if (mq_frame_buffer_claim(table, CLIENTS, shelf.order[place], shelf.generation[shelf.order[place]]) < 0)
            buffer = shelf.order[place];
    return buffer;
}

static void *run_server(void *unused) {
    uint64_t chance = seed;
    mq_frame_buffer_mru_init(&shelf, BUFFERS);
    while (!stop) {
        free_rows();
        int buffer = take(&chance);
        if (buffer < 0) {
            dropped++;
            sched_yield();
            continue;
        }
        uint32_t generation = shelf.newest + 1;
        shelf.generation[buffer] = 0;
        for (int i = 0; i < WORDS; i++)
            frames[buffer][i] = generation;
        mq_frame_buffer_mru_publish(&shelf, table, (uint32_t)buffer);
        mq_store_relaxed_u64(&packets[1], mq_load_relaxed_u64(&packets[0]));
        mq_store_relaxed_u64(&packets[0], (uint64_t)(uint32_t)buffer << 32 | generation);
        published++;
    }
    return unused;
}

/* ---- the clients ---- */

typedef struct {
    uint32_t row, count;
    uint32_t buffers[HELD_MAX], generations[HELD_MAX];
} client;

static void let_go(client *c) {
    while (c->count) {
        c->count--;
        verify(c->row, c->buffers[c->count], c->generations[c->count]);
        mq_frame_lease_return(table, c->row, c->buffers[c->count]);
    }
}

static void hold(client *c, uint64_t packet) {
    uint32_t buffer = (uint32_t)(packet >> 32), generation = (uint32_t)packet;
    if (generation == 0 || (c->count && c->buffers[0] == buffer))
        return;
    if (!mq_frame_lease_take(table, c->row, buffer, generation)) {
        missed++;
        return;
    }
    verify(c->row, buffer, generation);
    c->buffers[c->count] = buffer;
    c->generations[c->count++] = generation;
    held++;
}

static void *run_client(void *number) {
    client c = {.row = (uint32_t)(uintptr_t)number};
    uint64_t chance = seed * 31 + c.row;
    while (!stop) {
        hold(&c, mq_load_relaxed_u64(&packets[below(&chance, 2)]));
        if (below(&chance, 64) == 0)
            usleep(below(&chance, 50));
        uint32_t fate = below(&chance, 512);
        if (fate == 0) { /* dies with what it holds */
            c.count = 0;
            mq_store_release_u32(&dead[c.row], 1);
            while (mq_load_acquire_u32(&dead[c.row]) && !stop)
                sched_yield();
            died++;
        } else if (fate == 1) { /* leaves, and looks at its last frames some more */
            mq_frame_row_set_left(table, c.row);
            sched_yield();
            let_go(&c);
            while (mq_load_acquire_u32(&table->rows[c.row].state) != MQ_FRAME_ROW_TAKEN && !stop)
                sched_yield();
            left++;
        } else if (c.count == HELD_MAX || below(&chance, 2)) {
            let_go(&c);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[1 + CLIENTS];
    if (argc != 3)
        return fprintf(stderr, "usage: leases SECONDS SEED\n"), 2;
    seed = (unsigned)strtoul(argv[2], NULL, 10);
    table = aligned_alloc(64, sizeof *table);
    memset((void *)table, 0, sizeof *table);
    for (uint32_t row = 0; row < CLIENTS; row++)
        mq_frame_row_reset(table, row, MQ_FRAME_ROW_TAKEN);
    pthread_create(&threads[CLIENTS], NULL, run_server, NULL);
    for (int i = 0; i < CLIENTS; i++)
        pthread_create(&threads[i], NULL, run_client, (void *)(uintptr_t)i);
    usleep((useconds_t)(atof(argv[1]) * 1e6));
    stop = true;
    for (int i = 0; i <= CLIENTS; i++)
        pthread_join(threads[i], NULL);
    printf("published %llu warm %llu dropped %llu held %llu missed %llu left %llu died %llu\n",
           (unsigned long long)published, (unsigned long long)warm, (unsigned long long)dropped,
           (unsigned long long)held, (unsigned long long)missed, (unsigned long long)left, (unsigned long long)died);
    free(table);
    return 0;
}
