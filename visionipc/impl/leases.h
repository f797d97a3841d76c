/* Who holds which buffer of a stream: one table in memory that a server shares with its clients.
 *
 * Words and writers:
 *   generation[b]   the frame in buffer b, counted from 1; 0 while the server may write there. Written by the server.
 *   row.state       1: a client's; 2: the client left, its last leases may still be held; 3: a client's that holds the
 *                   row's lock (life.h). The server writes 0 and 1, the client 2 and 3.
 *   row.lease[b]    the generation that this client holds in buffer b; 0: none. Written by this client alone.
 *
 * A client takes a lease in two steps, and a server a buffer in two, each of which writes first and looks afterwards
 * (as Dekker's algorithm and hazard pointers do). All four are sequentially consistent, so at least one of them sees
 * the other:
 *
 *   client: lease[b] = g;       generation[b] still g?  else lease[b] = 0, the frame is lost
 *   server: generation[b] = 0;  no lease[b] is g?       else generation[b] = g again, and on to another buffer
 *
 * When both see each other, both give way: the frame is lost to this client, which is counted, and the buffer is not
 * used. That is EDGE claim. A lease that is not the buffer's generation is none: its client gives way just now, or
 * somebody wrote it who has no business there, and that must not keep the buffer from everybody for ever. EDGE frame:
 * what the server wrote into a buffer is there for whoever finds its generation. EDGE lease: what a client read is read
 * before the server that finds no lease writes there again.
 *
 * A kill between any two steps: a server leaves generation 0 (nobody gets the half frame) or g (a whole one). A client
 * leaves a lease, which the server takes back when it finds the process dead: nobody holds the row's lock. Of a row that
 * is not in state 3 its client has the release before, or is just coming: then pid and start time tell, which the server
 * keeps in memory of its own, so that nothing written here can make it look for another process.
 */
#ifndef VISIONIPC_LEASES_H
#define VISIONIPC_LEASES_H

#include "ground/atomics.h"

enum {
    MQ_LEASE_BUFFERS = 128, /* of a stream, at most: as many descriptors as stock takes in one message */
    MQ_LEASE_ROWS = 256,    /* clients of a stream, at most */
    MQ_LEASE_VERSION = 1,
};
enum { MQ_ROW_FREE = 0, MQ_ROW_TAKEN = 1, MQ_ROW_LEFT = 2, MQ_ROW_HELD = 3 };

typedef struct {
    mq_u32 state;
    mq_u32 lease[MQ_LEASE_BUFFERS];
    char unshared[60]; /* rows do not share cache lines: each is another client's */
} mq_lease_row;

typedef struct {
    mq_u32 generation[MQ_LEASE_BUFFERS];
    mq_lease_row rows[MQ_LEASE_ROWS];
} mq_leases;

_Static_assert(sizeof(mq_lease_row) % 64 == 0, "a row is whole cache lines");

/* The client's side. */

static inline bool mq_lease_take(mq_leases *table, uint32_t row, uint32_t buffer, uint32_t generation) {
    mq_u32 *lease = &table->rows[row].lease[buffer];
    /* EDGE claim: sequentially consistent. The lease is stored, then the generation is loaded. Partner: mq_buffer_take.
     * If weaker: the server finds no lease and the client the old generation, and one writes what the other reads. */
    mq_store_release_u32(lease, generation);
    mq_fence_seq_cst();
    /* EDGE frame: acquire. Partner: mq_buffer_publish */
    if (mq_load_acquire_u32(&table->generation[buffer]) == generation)
        return true;
    mq_store_release_u32(lease, 0);
    return false;
}

static inline void mq_lease_return(mq_leases *table, uint32_t row, uint32_t buffer) {
    /* EDGE lease: release. What was read of the frame is read before. Partner: mq_lease_holder, mq_row_done. If weaker:
     * on ARM a load of the old frame may find bytes of the next one. */
    mq_store_release_u32(&table->rows[row].lease[buffer], 0);
}

/* The lock is held; from now on it tells whether the client lives. */
static inline void mq_lease_hold(mq_leases *table, uint32_t row) {
    mq_store_release_u32(&table->rows[row].state, MQ_ROW_HELD);
}

/* EDGE leave: release. The leases that are still held are there for who sees that the client left. Partner: mq_row_done.
 * If weaker: the row is given to another client, and the frames that are held to the server. */
static inline void mq_lease_leave(mq_leases *table, uint32_t row) {
    mq_store_release_u32(&table->rows[row].state, MQ_ROW_LEFT);
}

/* The server's side. `rows`: how many of them were ever taken. */

/* The first row that holds a buffer, or -1. `generation`: what the buffer has, 0: no frame, so nobody holds it.
 * EDGE lease: acquire. Partner: mq_lease_return */
static inline int mq_lease_holder(const mq_leases *table, uint32_t rows, uint32_t buffer, uint32_t generation) {
    for (uint32_t row = 0; generation && row < rows; row++)
        if (mq_load_acquire_u32(&table->rows[row].lease[buffer]) == generation)
            return (int)row;
    return -1;
}

/* Make a buffer the server's to write. Returns -1, or the first row that holds it. */
static inline int mq_buffer_take(mq_leases *table, uint32_t rows, uint32_t buffer, uint32_t generation) {
    int holder = mq_lease_holder(table, rows, buffer, generation);
    if (holder >= 0) /* so that a buffer that is held does not flicker for newcomers */
        return holder;
    /* EDGE claim: sequentially consistent. The generation is stored, then the leases are loaded. Partner: mq_lease_take */
    mq_store_release_u32(&table->generation[buffer], 0);
    mq_fence_seq_cst();
    holder = mq_lease_holder(table, rows, buffer, generation);
    if (holder >= 0)
        mq_store_release_u32(&table->generation[buffer], generation);
    return holder;
}

static inline void mq_buffer_publish(mq_leases *table, uint32_t buffer, uint32_t generation) {
    /* EDGE frame: release. Partner: mq_lease_take. If weaker: a client holds a buffer whose bytes are still to come. */
    mq_store_release_u32(&table->generation[buffer], generation);
}

/* Did a client leave, and let go of all? EDGE leave: acquire. Partner: mq_lease_leave. EDGE lease: acquire. Partner:
 * mq_lease_return */
static inline bool mq_row_done(const mq_leases *table, uint32_t row, const uint32_t *generations) {
    if (mq_load_acquire_u32(&table->rows[row].state) != MQ_ROW_LEFT)
        return false;
    for (uint32_t buffer = 0; buffer < MQ_LEASE_BUFFERS; buffer++)
        if (generations[buffer] && mq_load_acquire_u32(&table->rows[row].lease[buffer]) == generations[buffer])
            return false;
    return true;
}

static inline bool mq_row_is_held(const mq_leases *table, uint32_t row) {
    return mq_load_acquire_u32(&table->rows[row].state) == MQ_ROW_HELD;
}

static inline void mq_row_reset(mq_leases *table, uint32_t row, uint32_t state) {
    for (uint32_t buffer = 0; buffer < MQ_LEASE_BUFFERS; buffer++)
        mq_store_release_u32(&table->rows[row].lease[buffer], 0);
    mq_store_release_u32(&table->rows[row].state, state);
}

#endif
