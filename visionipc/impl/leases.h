/* Leases of a stream's buffers: one table in memory that a server shares with its clients.
 *
 * Words and their writers:
 * - generation[b]: number of the frame in buffer b, from 1; 0 while the server may write the buffer. Written by the
 *   server.
 * - row.state: see below.
 * - row.lease[b]: the generation that this client holds in buffer b; 0: none. Written by this client only.
 * - row.seen_generation: the newest generation that this client has handled: it took the frame, or found it gone. 0:
 *   none yet. Written by this client, and by the server when it gives the row to another client.
 *
 * States of a row. The server writes 0 and 1, and the client writes 2 to 4:
 * - 0: free.
 * - 1: belongs to a client.
 * - 2: the client left, and releases the row's lock or never had one.
 * - 3: belongs to a client that holds the row's lock (base/liveness_lock.h).
 * - 4: the client left, and still holds the lock and its last leases.
 *
 * A client takes a lease in two steps, and a server claims a buffer in two steps. Both write first and load afterwards,
 * as in Dekker's algorithm and in hazard pointers. All four accesses are sequentially consistent, so at least one side
 * sees the other:
 * - client: lease[b] = g; if generation[b] is no longer g, lease[b] = 0, and the frame is lost.
 * - server: generation[b] = 0; if a lease[b] is g, generation[b] = g again, and try another buffer.
 *
 * If both see each other, both give up: the client counts the frame as lost, and the server does not use the buffer.
 * This is EDGE claim. A lease that differs from the buffer's generation is void: its client is giving up, or another
 * program wrote it. Such a lease must not block the buffer forever. EDGE frame: a client that finds a generation also
 * sees the bytes of its frame. EDGE lease: a client's reads happen before a server that finds no lease writes the
 * buffer again.
 *
 * The order in which the server tries buffers affects only speed and losses. A frame is awaited while a present client
 * has not handled it. Of the buffers with frames that no client awaits, the server takes the most recently published
 * one, whose lines are still in the caches. If all frames are awaited, the server takes the oldest, so that buffers
 * rotate as in a stock server. In both cases, a client that lags by less than the number of free buffers loses nothing.
 * All frames count as awaited in two cases:
 * - A stock client may have the buffers, or may be joining the topic before it asks for them. Such a client holds no
 *   lease and depends on the rotation.
 * - For one rotation after the stream began or a client joined. Other clients may have read of a frame in the topic,
 *   and become known only when they ask for the buffers.
 *
 * A stream begins with fewer buffers than it may have. Before the server overwrites a frame that a client has not
 * received since it joined, the server adds a buffer instead (stream_state.h).
 *
 * `seen_generation` is a hint. If it is too old (the client is stopped, or dead and not yet detected), buffers rotate.
 * When the slowest client blocks the choice, the server tests its liveness. A wrong hint costs its writer frames.
 *
 * After a kill between any two steps, a server leaves generation 0 (no client gets the partial frame) or g (a complete
 * frame). A client leaves a lease, which the server reclaims once no process holds the row's lock. In states 1 and 2
 * the client has no lock, or is just joining or leaving. Then the server tests the process id and start time, which it
 * keeps in private memory. No write to the table can therefore make the server test another process.
 */
#ifndef VISIONIPC_LEASES_H
#define VISIONIPC_LEASES_H

#include <string.h>

#include "base/atomics.h"

enum {
    /* maximum buffers of a stream: the number of descriptors that stock accepts in one message */
    MQ_FRAME_BUFFERS_MAX = 128,
    MQ_FRAME_CLIENT_ROWS = 256, /* maximum clients of a stream */
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
    char unshared[56]; /* padding, so that rows of different clients do not share cache lines */
} mq_frame_client_row;

typedef struct {
    mq_u32 generation[MQ_FRAME_BUFFERS_MAX];
    mq_u64 dropped; /* frames that were not published because clients held all buffers. The server writes this number */
    char unshared[56];
    mq_frame_client_row rows[MQ_FRAME_CLIENT_ROWS];
} mq_frame_lease_table;

_Static_assert(sizeof(mq_frame_client_row) % 64 == 0, "a row is whole cache lines");

/* The server's own copy of its buffers' states, because clients may write the table. */
typedef struct {
    uint64_t sender; /* id of the process that publishes now (stream_state.h) */
    uint32_t buffers;
    uint32_t newest;                           /* number of the newest frame; the number skips 0 after a wrap-around */
    uint32_t generation[MQ_FRAME_BUFFERS_MAX]; /* generations that the server stored in the table */
    uint8_t order[MQ_FRAME_BUFFERS_MAX];       /* buffer indices, most recently published first */
    uint64_t writer[MQ_FRAME_BUFFERS_MAX];     /* id of the sender that claimed the buffer for a frame; 0: none */
} mq_frame_buffer_mru;

/* ---- client ---- */

static inline bool mq_frame_lease_take(mq_frame_lease_table *table, uint32_t row, uint32_t buffer,
                                       uint32_t generation) {
    mq_u32 *lease = &table->rows[row].lease[buffer];
    /* EDGE claim: sequentially consistent. The lease is stored, then the generation is loaded. Partner:
     * mq_frame_buffer_claim. If weaker: the server finds no lease and the client the old generation, and the server
     * writes a buffer that the client reads. */
    mq_store_release_u32(lease, generation);
    mq_fence_seq_cst();
    /* EDGE frame: acquire. Partner: mq_frame_buffer_publish */
    bool is_ours = mq_load_acquire_u32(&table->generation[buffer]) == generation;
    if (!is_ours)
        mq_store_release_u32(lease, 0);
    /* Store the seen generation after the lease. Otherwise the server could claim the buffer first, and the client
     * would lose the frame. */
    mq_store_release_u32(&table->rows[row].seen_generation, generation);
    return is_ours;
}

static inline void mq_frame_lease_return(mq_frame_lease_table *table, uint32_t row, uint32_t buffer) {
    /* EDGE lease: release. All reads of the frame happened before. Partner: mq_frame_lease_find_holder,
     * mq_frame_row_has_leases. If weaker: on ARM a load of the old frame may find bytes of the next one. */
    mq_store_release_u32(&table->rows[row].lease[buffer], 0);
}

/* The client has locked its row. From now on, the lock shows whether the client lives. */
static inline void mq_frame_row_set_locked(mq_frame_lease_table *table, uint32_t row) {
    mq_store_release_u32(&table->rows[row].state, MQ_FRAME_ROW_LOCKED);
}

/* The client wants no more frames. A leaving client keeps its leases, and its lock shows whether the client lives. */
static inline void mq_frame_row_set_leaving(mq_frame_lease_table *table, uint32_t row) {
    mq_store_release_u32(&table->rows[row].state, MQ_FRAME_ROW_LEAVING);
}

/* EDGE client-left: release. The remaining leases are visible to a server that sees that the client left. Partner:
 * mq_frame_row_is_released. If weaker: the server gives the row to another client, and reuses frames that are held. */
static inline void mq_frame_row_set_left(mq_frame_lease_table *table, uint32_t row) {
    mq_store_release_u32(&table->rows[row].state, MQ_FRAME_ROW_LEFT);
}

/* ---- server; `rows` is the number of rows that were ever taken ---- */

/* Return the first row that holds a buffer, or -1. `generation`: that of the buffer; 0: no frame, so no client holds
 * it. EDGE lease: acquire. Partner: mq_frame_lease_return */
static inline int mq_frame_lease_find_holder(const mq_frame_lease_table *table, uint32_t rows, uint32_t buffer,
                                             uint32_t generation) {
    for (uint32_t row = 0; generation && row < rows; row++)
        if (mq_load_acquire_u32(&table->rows[row].lease[buffer]) == generation)
            return (int)row;
    return -1;
}

/* True if this row holds a buffer. `generations`: those of all MQ_FRAME_BUFFERS_MAX buffers. EDGE lease: acquire.
 * Partner: mq_frame_lease_return */
static inline bool mq_frame_row_has_leases(const mq_frame_lease_table *table, uint32_t row,
                                           const uint32_t *generations) {
    for (uint32_t buffer = 0; buffer < MQ_FRAME_BUFFERS_MAX; buffer++)
        if (generations[buffer] && mq_load_acquire_u32(&table->rows[row].lease[buffer]) == generations[buffer])
            return true;
    return false;
}

/* Claim a buffer for writing. Returns -1 after success, or the first row that holds the buffer. */
static inline int mq_frame_buffer_claim(mq_frame_lease_table *table, uint32_t rows, uint32_t buffer,
                                        uint32_t generation) {
    int holder = mq_frame_lease_find_holder(table, rows, buffer, generation);
    if (holder >= 0) /* check first, so that new clients rarely find generation 0 in a held buffer */
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
    /* EDGE frame: release. Partner: mq_frame_lease_take. If weaker: a client holds a buffer whose bytes are not visible
     * yet. */
    mq_store_release_u32(&table->generation[buffer], generation);
}

/* relaxed, both accesses: the count orders nothing. */
static inline void mq_frame_store_dropped_count(mq_frame_lease_table *table, uint64_t dropped) {
    mq_store_relaxed_u64(&table->dropped, dropped);
}

/* relaxed: see mq_frame_store_dropped_count */
static inline uint64_t mq_frame_load_dropped_count(const mq_frame_lease_table *table) {
    return mq_load_relaxed_u64(&table->dropped);
}

static inline void mq_frame_buffer_mru_init(mq_frame_buffer_mru *mru, uint32_t buffers) {
    *mru = (mq_frame_buffer_mru){.buffers = buffers};
    for (uint32_t i = 0; i < buffers; i++) /* buffer 0 counts as the oldest */
        mru->order[i] = (uint8_t)(buffers - 1 - i);
}

/* Add a buffer without a frame. No client can await a buffer without a frame, so the server may claim the buffer at
 * once. */
static inline void mq_frame_buffer_mru_add(mq_frame_buffer_mru *mru) {
    mru->order[mru->buffers] = (uint8_t)mru->buffers;
    mru->buffers++;
}

/* Return the number of frames that are newer than the frame in a buffer; UINT32_MAX: the buffer holds no frame. */
static inline uint32_t mq_frame_buffer_mru_age(const mq_frame_buffer_mru *mru, uint32_t buffer) {
    return mru->generation[buffer] ? mru->newest - mru->generation[buffer] : UINT32_MAX;
}

/* Publish the frame in a claimed buffer. Returns the frame's generation. */
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

/* Sort the buffers again by their frames, after a sender was killed between two steps of a publish. */
static inline void mq_frame_buffer_mru_repair(mq_frame_buffer_mru *mru) {
    for (uint32_t buffer = 0; buffer < mru->buffers; buffer++) {
        uint32_t newer = 0; /* number of sorted buffers that stay in front of this one */
        for (uint32_t other = 0; other < buffer; other++)
            newer += mq_frame_buffer_mru_age(mru, mru->order[other]) <= mq_frame_buffer_mru_age(mru, buffer);
        memmove(mru->order + newer + 1, mru->order + newer, buffer - newer);
        mru->order[newer] = (uint8_t)buffer;
    }
}

/* True if no previous sender still writes into the buffer. */
static inline bool mq_frame_buffer_is_ours(const mq_frame_buffer_mru *mru, uint32_t buffer) {
    return mru->writer[buffer] == 0 || mru->writer[buffer] == mru->sender;
}

/* True if the row's client wants further frames. */
static inline bool mq_frame_row_is_receiving(const mq_frame_lease_table *table, uint32_t row) {
    uint32_t state = mq_load_acquire_u32(&table->rows[row].state);
    return state == MQ_FRAME_ROW_TAKEN || state == MQ_FRAME_ROW_LOCKED;
}

/* Return the number of newest frames that clients await. Returns UINT32_MAX if clients await all frames. Stores the row
 * of the slowest client, or -1, in *slowest. */
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

/* Claim the most recently published buffer that no client holds or awaits. Returns -1 if there is no such buffer. */
static inline int mq_frame_buffer_claim_mru(const mq_frame_buffer_mru *mru, mq_frame_lease_table *table, uint32_t rows,
                                            uint32_t awaited) {
    for (uint32_t i = 0; i < mru->buffers; i++) {
        uint32_t buffer = mru->order[i], generation = mru->generation[buffer];
        bool is_seen = generation == 0 || mru->newest - generation >= awaited;
        if (is_seen && mq_frame_buffer_is_ours(mru, buffer) &&
            mq_frame_buffer_claim(table, rows, buffer, generation) < 0)
            return (int)buffer;
    }
    return -1;
}

/* True if the client left and released all leases. EDGE client-left: acquire. Partner: mq_frame_row_set_left */
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
