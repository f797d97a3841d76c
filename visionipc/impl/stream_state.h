/* State of a stream that a server and its forked children share, and no client can write.
 *
 * The process that created the server answers clients. Any one process of the family publishes: the sender. A child
 * becomes the sender of a stream with its first frame, and the previous sender gets an error at its next frame. The
 * state is therefore in memory that a fork shares: which buffers hold frames, and which clients have rows.
 *
 * A mutex orders the steps of several processes. Before the first fork no other process exists, and the GIL, or the lock
 * of the Python object, orders the threads, so a server that never forks never locks. No copy of a picture and no wait happens under the mutex. The
 * kernel releases the mutex of a killed process, and the next process repairs the one field that a step can leave
 * incomplete: the order of the buffers.
 *
 * The previous sender may still write a picture while a child becomes the sender. `mru.writer` names the sender that
 * claimed a buffer, so the new sender leaves this buffer alone. The previous sender finds the new one when it
 * publishes, and gives the buffer back without a frame. A sender that was killed while it wrote a picture can give
 * nothing back, so the next sender frees the buffer. If the sender was killed only after its replacement, the buffer
 * stays unused until the server creates the stream again.
 */
#ifndef VISIONIPC_STREAM_STATE_H
#define VISIONIPC_STREAM_STATE_H

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include "base/process_info.h"
#include "leases.h"

typedef struct {
    uint64_t pid; /* 0: in an invisible PID namespace */
    uint64_t start_time;
    int64_t probed_ns;        /* time of the last liveness test */
    uint64_t joined_at_frame; /* number of frames published before the client joined */
    bool taken;
} mq_frame_client;

typedef struct {
    pthread_mutex_t mutex;
    mq_frame_buffer_mru mru;
    uint64_t published;      /* number of frames; the sender writes it */
    uint64_t dropped;        /* number of frames; the sender writes it */
    uint64_t round_end;      /* number of published frames at which the rotation of buffers ends */
    uint64_t taken_back;     /* number of clients that died with a lease */
    uint32_t used_row_count; /* number of rows that were ever taken */
    bool has_stock_client;   /* a stock client may have the buffers */
    bool is_replaced;        /* the server has created the stream again */
    mq_process_identity sender_process;
    mq_frame_client clients[MQ_FRAME_CLIENT_ROWS];
} mq_frame_stream_state;

/* Return zeroed state with a mutex that all forked children can lock, or NULL and errno. */
static inline mq_frame_stream_state *mq_frame_stream_state_create(void) {
    mq_frame_stream_state *state =
        mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attributes;
    if (state == MAP_FAILED)
        return NULL;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&state->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return state;
}

/* Unmap this process's view. The memory disappears with the last process that maps it. */
static inline void mq_frame_stream_state_unmap(mq_frame_stream_state *state) { munmap(state, sizeof(*state)); }

static inline void mq_frame_stream_state_lock(mq_frame_stream_state *state) {
    if (pthread_mutex_lock(&state->mutex) == EOWNERDEAD) {
        mq_frame_buffer_mru_repair(&state->mru);
        pthread_mutex_consistent(&state->mutex);
    }
}

static inline void mq_frame_stream_state_unlock(mq_frame_stream_state *state) { pthread_mutex_unlock(&state->mutex); }

/* Make a process the sender, under the lock. A buffer that a killed sender was writing becomes free. */
static inline void mq_frame_stream_state_set_sender(mq_frame_stream_state *state, uint64_t sender,
                                                    const mq_process_identity *self) {
    const mq_process_identity *previous = &state->sender_process;
    for (uint32_t buffer = 0; buffer < state->mru.buffers; buffer++)
        if (state->mru.writer[buffer] != 0 && state->mru.writer[buffer] == state->mru.sender &&
            mq_process_liveness(previous->pid, previous->start_time, previous->pid_namespace) == MQ_DEAD)
            state->mru.writer[buffer] = 0;
    state->sender_process = *self;
    state->mru.sender = sender;
}

/* Return the number of newest frames that a client has not handled since it joined. Stores the row of the slowest
 * client, or -1, in *slowest. Unlike awaited frames, frames of the time before a client joined do not count. */
static inline uint32_t mq_frame_count_waiting_frames(const mq_frame_stream_state *state,
                                                     const mq_frame_lease_table *table, int *slowest) {
    uint32_t most = 0;
    *slowest = -1;
    for (uint32_t row = 0; row < state->used_row_count; row++) {
        uint32_t seen = mq_load_acquire_u32(&table->rows[row].seen_generation);
        uint32_t since_joined = (uint32_t)(state->published - state->clients[row].joined_at_frame);
        uint32_t lag = seen ? state->mru.newest - seen : since_joined;
        if (lag > most && mq_frame_row_is_receiving(table, row))
            most = lag, *slowest = (int)row;
    }
    return most;
}

#endif
