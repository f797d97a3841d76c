/* Steps of a queue's file: check, initialize, choose the sizes, join. Python and C call them. To choose the sizes and to
 * join, the caller holds the file's lock (base/file_lock.h), and releases it afterwards.
 *
 *   `To choose the sizes`: allocate the whole file, store the sizes, and last max_messages.
 *   `To join`: reserve a row and lock its byte, repair what a dead owner of the row left, occupy the row.
 *
 * If a process is killed while it chooses the sizes, the queue has no sizes, and any process may choose others. If a
 * process is killed while it joins, the row is free, or its owner is dead (row_table.h). A child that is forked during
 * a step has neither the lock nor the row. */
#ifndef MQ_WORKQUEUE_JOIN_H
#define MQ_WORKQUEUE_JOIN_H

#include "base/file.h"
#include "workqueue/recovery.h"

/* ---- file ---- */

/* Check a mapped file, and compute the addresses of its parts. */
static inline int mq_queue_check_file(mq_queue *queue, uint64_t bytes, const char *path, mq_queue_file_parts *parts,
                                      mq_error *error) {
    return mq_check_layout(mq_queue_check_header(queue, bytes, parts), MQ_QUEUE_MAJOR, "a queue", path, error);
}

/* Check a file that was mapped after its sizes were chosen. After an error, *parts is unchanged. */
static inline int mq_queue_check_sized_file(mq_queue *queue, uint64_t bytes, const char *path,
                                            mq_queue_file_parts *parts, mq_error *error) {
    mq_queue_file_parts found = {.max_messages = 0};
    int failed = mq_queue_check_file(queue, bytes, path, &found, error);
    if (!failed && !found.max_messages)
        failed = mq_fail(error, MQ_ERROR_CORRUPT, EPROTO, path,
                         "has no slots, but has sizes: another program wrote into the file; remove it");
    if (!failed)
        *parts = found;
    return failed;
}

/* ---- sizes ---- */

enum { MQ_QUEUE_DEFAULT_MESSAGES = 128, MQ_QUEUE_DEFAULT_MESSAGE_SIZE = 8192 };

/* The queue that a handle creates if it does not exist. */
typedef struct {
    uint64_t max_messages, max_message_size;
    mq_queue_events_mode events;
    bool names_sizes; /* a new file has these sizes. False: the first sender chooses the sizes */
} mq_queue_request;

/* 0: the program requests no value. Events depend on the sizes, so a queue with events has sizes from the start. */
static inline mq_queue_request mq_queue_make_request(uint64_t max_messages, uint64_t max_message_size,
                                                     mq_queue_events_mode events) {
    return (mq_queue_request){
        .max_messages = max_messages ? max_messages : MQ_QUEUE_DEFAULT_MESSAGES,
        .max_message_size = max_message_size ? max_message_size : MQ_QUEUE_DEFAULT_MESSAGE_SIZE,
        .events = events,
        .names_sizes = max_messages || max_message_size || events != MQ_QUEUE_EVENTS_NONE,
    };
}

/* Return the size of a new file in bytes. */
static inline uint64_t mq_queue_compute_new_file_bytes(const mq_queue_request *request) {
    return request->names_sizes ? mq_queue_compute_file_bytes(request->max_messages, request->max_message_size)
                                : sizeof(mq_queue);
}

/* Initialize the header in a new file of zeros that has no name yet. */
static inline void mq_queue_init_file(mq_queue *queue, const mq_queue_request *request, uint64_t created_ns,
                                      const mq_process_identity *self) {
    mq_queue_write_file_header(queue, request->names_sizes ? request->max_messages : 0,
                               request->names_sizes ? request->max_message_size : 0, created_ns, self, request->events);
}

/* Choose the sizes of the queue, unless another process has chosen them. */
static inline int mq_queue_choose_sizes(mq_queue *queue, const mq_file_policy *policy, const mq_file_lock *lock,
                                        const mq_queue_request *request, const mq_process_identity *self,
                                        mq_error *error) {
    uint64_t bytes = mq_queue_compute_file_bytes(request->max_messages, request->max_message_size);
    if (mq_queue_has_sizes(queue))
        return 0;
    int failed = mq_grow_file(policy, lock->fd, 0, bytes, lock->file.path, error);
    if (!failed)
        mq_queue_store_sizes(queue, request->max_messages, request->max_message_size, self);
    return failed;
}

/* ---- handle ---- */

/* Begin searches for free slots at another place than the handles of other rows. */
static inline void mq_queue_begin_search_at_row(mq_queue_handle *h) {
    h->next_search_slot = h->row_number * (h->parts.max_messages / MQ_QUEUE_ROWS);
}

/* Use the slots of a queue whose sizes were chosen after the handle joined. `caches` has zeros for each block. */
static inline void mq_queue_use_slots(mq_queue_handle *h, const mq_queue_file_parts *parts,
                                      mq_queue_block_cache *caches) {
    h->parts = *parts, h->block_caches = caches;
    h->own_row = &parts->queue->rows[h->row_number];
    mq_queue_begin_search_at_row(h);
}

/* Take a row. Afterwards, without the lock, call mq_queue_recover, which reclaims the slots of dead owners. */
static inline int mq_queue_join(mq_queue_handle *h, const mq_file_lock *lock, const mq_process_identity *self,
                                uint64_t uid, void **row_token, mq_error *error) {
    mq_row_table row_table = mq_queue_make_row_table(h->parts.queue);
    int row = mq_row_table_reserve(&row_table, &lock->file, row_token);
    if (row == MQ_NO_ROW)
        return mq_fail(error, MQ_ERROR_TOO_MANY_HANDLES, ENFILE, "",
                       "has %d open handles, its limit; close some, or share one between threads", MQ_QUEUE_ROWS);
    mq_queue_occupy_row(h, row, self, uid, *row_token != NULL);
    mq_queue_begin_search_at_row(h);
    return 0;
}

/* True if a living handle of another process has requested notifications. */
static inline bool mq_queue_other_process_is_notified(const mq_queue_handle *h) {
    const mq_queue *queue = h->parts.queue;
    /* relaxed, both: a row changes its owner only under the lock */
    uint64_t own_pid = mq_load_relaxed_u64(&h->own_row->at.participant.pid);
    mq_liveness_probe probe = mq_liveness_probe_begin(h->liveness_file);
    bool found = false;
    for (unsigned row = 0; row < MQ_QUEUE_ROWS && !found; row++) {
        const mq_participant *participant = &queue->rows[row].at.participant;
        found = mq_queue_row_bit_is_set(&queue->notify_requested, row) &&
                mq_load_relaxed_u64(&participant->pid) != own_pid &&
                mq_participant_liveness(&probe, participant, MQ_QUEUE_ROW_BYTE + (int)row) != MQ_DEAD;
    }
    mq_liveness_probe_end(&probe);
    return found;
}

#endif
