/* Who holds which buffer of a stream: one table in memory that a server shares with its clients.
 *
 * Words and writers:
 *   generation[b]   the frame in buffer b, counted from 1; 0 while the server may write there. Written by the server.
 *   row.state       1: a client's; 3: a client's that holds the row's lock (life.h); 4: that client left, and still
 *                   holds the lock and its last leases; 2: it left, and lets go of the lock, or never had one. The
 *                   server writes 0 and 1, the client 2 to 4.
 *   row.lease[b]    the generation that this client holds in buffer b; 0: none. Written by this client alone.
 *   row.seen_generation      the newest generation that this client has come to: it took the frame, or found it gone. 0: none so
 *                   far. Written by this client, and by the server when it gives the row to another one.
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
 * Which buffer is tried first is a matter of speed and of losses, never of what is torn. A frame is awaited while a client
 * that is there has not come to it. The server takes, of the buffers whose frames nobody awaits, the one that was
 * published last: its lines are still in the caches. If all are awaited it takes the oldest, so that frames go round as
 * those of a stock server do: who lags by less than the buffers that are free loses nothing, either way. All frames
 * count as awaited
 *   - while a stock client may have the buffers, or one may be in the topic, which it joins before it asks for them: it
 *     holds nothing, says nothing, and counts on the round;
 *   - for one round after the stream began or a client came: others may be on their way, who have read of a frame in the
 *     topic and will be known only when they have asked for the buffers.
 * `seen_generation` is a hint. One that is too old (a client that is stopped, or dead and not asked so far) makes frames go round;
 * the one that lags most is asked whether it lives when it stands in the way. One that is wrong costs its writer frames.
 *
 * A kill between any two steps: a server leaves generation 0 (nobody gets the half frame) or g (a whole one). A client
 * leaves a lease, which the server takes back when it finds the process dead: nobody holds the row's lock. Of a row in
 * state 1 or 2 its client has no lock, or is just coming or gone: then pid and start time tell, which the
 * server keeps in memory of its own, so that nothing written here can make it look for another process.
 */
#ifndef VISIONIPC_LEASES_H
#define VISIONIPC_LEASES_H

#include <string.h>

#include "base/atomics.h"

enum {
    MQ_FRAME_BUFFERS_MAX = 128, /* of a stream, at most: as many descriptors as stock takes in one message */
    MQ_FRAME_CLIENT_ROWS = 256, /* clients of a stream, at most */
    MQ_FRAME_LEASE_VERSION = 1,
};
enum {
    MQ_FRAME_ROW_FREE = 0,
    MQ_FRAME_ROW_TAKEN = 1,
    MQ_FRAME_ROW_LEFT = 2,
    MQ_FRAME_ROW_LOCKED = 3,
    MQ_FRAME_ROW_LEAVING = 4
};

typedef struct {
    mq_u32 state;
    mq_u32 seen_generation;
    mq_u32 lease[MQ_FRAME_BUFFERS_MAX];
    char unshared[56]; /* rows do not share cache lines: each is another client's */
} mq_frame_client_row;

typedef struct {
    mq_u32 generation[MQ_FRAME_BUFFERS_MAX];
    mq_u64 dropped; /* frames that were not published because clients held all buffers. Written by the server */
    char unshared[56];
    mq_frame_client_row rows[MQ_FRAME_CLIENT_ROWS];
} mq_frame_lease_table;

_Static_assert(sizeof(mq_frame_client_row) % 64 == 0, "a row is whole cache lines");

/* What the server knows of its buffers, in memory of its own: clients may write into the table. */
typedef struct {
    uint32_t buffers;
    uint32_t newest;                           /* frames so far, without 0 when it begins again */
    uint32_t generation[MQ_FRAME_BUFFERS_MAX]; /* as it should be in the table */
    uint8_t order[MQ_FRAME_BUFFERS_MAX];       /* the buffers, the one that was published last first */
} mq_frame_buffer_mru;

/* The client's side. */

static inline bool mq_frame_lease_take(mq_frame_lease_table *table, uint32_t row, uint32_t buffer,
                                       uint32_t generation) {
    mq_u32 *lease = &table->rows[row].lease[buffer];
    /* EDGE claim: sequentially consistent. The lease is stored, then the generation is loaded. Partner:
     * mq_frame_buffer_claim. If weaker: the server finds no lease and the client the old generation, and one writes
     * what the other reads. */
    mq_store_release_u32(lease, generation);
    mq_fence_seq_cst();
    /* EDGE frame: acquire. Partner: mq_frame_buffer_publish */
    bool is_ours = mq_load_acquire_u32(&table->generation[buffer]) == generation;
    if (!is_ours)
        mq_store_release_u32(lease, 0);
    /* Not before the lease is there, or the server takes the buffer from under us and we lose the frame. */
    mq_store_release_u32(&table->rows[row].seen_generation, generation);
    return is_ours;
}

static inline void mq_frame_lease_return(mq_frame_lease_table *table, uint32_t row, uint32_t buffer) {
    /* EDGE lease: release. What was read of the frame is read before. Partner: mq_frame_lease_find_holder,
     * mq_frame_row_has_leases. If weaker: on ARM a load of the old frame may find bytes of the next one. */
    mq_store_release_u32(&table->rows[row].lease[buffer], 0);
}

/* The lock is held; from now on it tells whether the client lives. */
static inline void mq_frame_row_set_locked(mq_frame_lease_table *table, uint32_t row) {
    mq_store_release_u32(&table->rows[row].state, MQ_FRAME_ROW_LOCKED);
}

/* The client wants no more frames; what it still holds it holds, and the lock tells whether it lives. */
static inline void mq_frame_row_set_leaving(mq_frame_lease_table *table, uint32_t row) {
    mq_store_release_u32(&table->rows[row].state, MQ_FRAME_ROW_LEAVING);
}

/* EDGE client-left: release. The leases that are still held are there for who sees that the client left. Partner:
 * mq_frame_row_is_released. If weaker: the row is given to another client, and the frames that are held to the server.
 * */
static inline void mq_frame_row_set_left(mq_frame_lease_table *table, uint32_t row) {
    mq_store_release_u32(&table->rows[row].state, MQ_FRAME_ROW_LEFT);
}

/* The server's side. `rows`: how many of them were ever taken. */

/* The first row that holds a buffer, or -1. `generation`: what the buffer has, 0: no frame, so nobody holds it.
 * EDGE lease: acquire. Partner: mq_frame_lease_return */
static inline int mq_frame_lease_find_holder(const mq_frame_lease_table *table, uint32_t rows, uint32_t buffer,
                                             uint32_t generation) {
    for (uint32_t row = 0; generation && row < rows; row++)
        if (mq_load_acquire_u32(&table->rows[row].lease[buffer]) == generation)
            return (int)row;
    return -1;
}

/* Does this row hold any? `generations`: of all MQ_FRAME_BUFFERS_MAX. EDGE lease: acquire. Partner:
 * mq_frame_lease_return */
static inline bool mq_frame_row_has_leases(const mq_frame_lease_table *table, uint32_t row,
                                           const uint32_t *generations) {
    for (uint32_t buffer = 0; buffer < MQ_FRAME_BUFFERS_MAX; buffer++)
        if (generations[buffer] && mq_load_acquire_u32(&table->rows[row].lease[buffer]) == generations[buffer])
            return true;
    return false;
}

/* Make a buffer the server's to write. Returns -1, or the first row that holds it. */
static inline int mq_frame_buffer_claim(mq_frame_lease_table *table, uint32_t rows, uint32_t buffer,
                                        uint32_t generation) {
    int holder = mq_frame_lease_find_holder(table, rows, buffer, generation);
    if (holder >= 0) /* so that a buffer that is held does not flicker for newcomers */
        return holder;
    /* EDGE claim: sequentially consistent. The generation is stored, then the leases are loaded. Partner:
     * mq_frame_lease_take */
    mq_store_release_u32(&table->generation[buffer], 0);
    mq_fence_seq_cst();
    holder = mq_frame_lease_find_holder(table, rows, buffer, generation);
    if (holder >= 0)
        mq_store_release_u32(&table->generation[buffer], generation);
    return holder;
}

static inline void mq_frame_buffer_publish(mq_frame_lease_table *table, uint32_t buffer, uint32_t generation) {
    /* EDGE frame: release. Partner: mq_frame_lease_take. If weaker: a client holds a buffer whose bytes are
     * still to come. */
    mq_store_release_u32(&table->generation[buffer], generation);
}

/* Both accesses are relaxed: the count orders nothing. */
static inline void mq_frame_store_dropped_count(mq_frame_lease_table *table, uint64_t dropped) {
    mq_store_relaxed_u64(&table->dropped, dropped);
}

/* relaxed: see mq_frame_store_dropped_count */
static inline uint64_t mq_frame_load_dropped_count(const mq_frame_lease_table *table) {
    return mq_load_relaxed_u64(&table->dropped);
}

static inline void mq_frame_buffer_mru_init(mq_frame_buffer_mru *mru, uint32_t buffers) {
    *mru = (mq_frame_buffer_mru){.buffers = buffers};
    for (uint32_t i = 0; i < buffers; i++) /* the first one is the oldest */
        mru->order[i] = (uint8_t)(buffers - 1 - i);
}

/* Add a buffer without a frame. The server tries it first, because it has no frame that a client could want. */
static inline void mq_frame_buffer_mru_add(mq_frame_buffer_mru *mru) {
    mru->order[mru->buffers] = (uint8_t)mru->buffers;
    mru->buffers++;
}

/* A frame was written into a buffer that was taken: let clients have it. Returns its generation. */
static inline uint32_t mq_frame_buffer_mru_publish(mq_frame_buffer_mru *mru, mq_frame_lease_table *table,
                                                   uint32_t buffer) {
    uint32_t at = 0;
    mru->newest = mru->newest == UINT32_MAX ? 1 : mru->newest + 1;
    mru->generation[buffer] = mru->newest;
    while (mru->order[at] != buffer)
        at++;
    memmove(mru->order + 1, mru->order, at);
    mru->order[0] = (uint8_t)buffer;
    mq_frame_buffer_publish(table, buffer, mru->newest);
    return mru->newest;
}

/* How many of the newest frames are awaited by somebody; UINT32_MAX: all. `slowest`: who lags most, or -1. */
static inline uint32_t mq_frame_count_awaited_frames(const mq_frame_lease_table *table, uint32_t rows, uint32_t newest,
                                                     int *slowest) {
    uint32_t most = 0;
    *slowest = -1;
    for (uint32_t row = 0; row < rows; row++) {
        uint32_t state = mq_load_acquire_u32(&table->rows[row].state);
        uint32_t seen = mq_load_acquire_u32(&table->rows[row].seen_generation);
        uint32_t lag = seen ? newest - seen : UINT32_MAX;
        if (lag > most && (state == MQ_FRAME_ROW_TAKEN || state == MQ_FRAME_ROW_LOCKED))
            most = lag, *slowest = (int)row;
    }
    return most;
}

/* Take the buffer that was published last of those that nobody holds or awaits; -1: there is none. */
static inline int mq_frame_buffer_claim_mru(const mq_frame_buffer_mru *mru, mq_frame_lease_table *table, uint32_t rows,
                                            uint32_t awaited) {
    for (uint32_t i = 0; i < mru->buffers; i++) {
        uint32_t buffer = mru->order[i], generation = mru->generation[buffer];
        bool is_seen = generation == 0 || mru->newest - generation >= awaited;
        if (is_seen && mq_frame_buffer_claim(table, rows, buffer, generation) < 0)
            return (int)buffer;
    }
    return -1;
}

/* Did a client leave, and let go of all? EDGE client-left: acquire. Partner: mq_frame_row_set_left */
static inline bool mq_frame_row_is_released(const mq_frame_lease_table *table, uint32_t row,
                                            const uint32_t *generations) {
    return mq_load_acquire_u32(&table->rows[row].state) == MQ_FRAME_ROW_LEFT &&
           !mq_frame_row_has_leases(table, row, generations);
}

static inline bool mq_frame_row_is_locked(const mq_frame_lease_table *table, uint32_t row) {
    uint32_t state = mq_load_acquire_u32(&table->rows[row].state);
    return state == MQ_FRAME_ROW_LOCKED || state == MQ_FRAME_ROW_LEAVING;
}

static inline void mq_frame_row_reset(mq_frame_lease_table *table, uint32_t row, uint32_t state) {
    for (uint32_t buffer = 0; buffer < MQ_FRAME_BUFFERS_MAX; buffer++)
        mq_store_release_u32(&table->rows[row].lease[buffer], 0);
    mq_store_release_u32(&table->rows[row].seen_generation, 0);
    mq_store_release_u32(&table->rows[row].state, state);
}

#endif
