/* Rules for another size of the ring. A ring that holds nothing takes the size that the first participant requests, if
 * its creator used the default. See docs/internals/layout.md, "A size without a request". Callers hold the
 * topic's lock, except where a comment says otherwise.
 */
#ifndef MQ_RING_RESIZE_H
#define MQ_RING_RESIZE_H

#include "ring/canary.h"
#include "ring/reader_slots.h"

/* Store who chose the size of the ring. `asked`: the process requested the size. Otherwise it used the default. */
static inline void mq_ring_side_record_size(mq_ring_side *side, const mq_process_identity *self, bool asked) {
    mq_store_relaxed_u64(&side->size_pid, self->pid); /* relaxed, both: under the lock */
    mq_copy_to_shared(side->size_by, self->name, sizeof side->size_by);
    /* last: a process that is killed before this store has requested nothing */
    mq_store_release_u32(&side->size_unasked, !asked);
}

static inline bool mq_ring_size_is_unasked(const mq_ring_side *side) {
    return mq_load_acquire_u32(&side->size_unasked) == 1;
}

/* True if the ring may get another size: it holds nothing, no process has requested its size, and neither a publisher
 * nor a stock process uses it. The topic is locked. Stock processes take no lock: a stock process that opens the ring at
 * this moment sets the size of the file anyway. */
static inline bool mq_ring_may_be_resized(const mq_ring_header *ring, const mq_ring_side *side,
                                          const mq_liveness_file *liveness_file) {
    uint64_t uid = mq_load_acquire_u64(&ring->write_uid);
    const mq_ring_publisher_row *publisher = mq_ring_find_publisher(side, uid);
    bool free = mq_ring_size_is_unasked(side) && mq_load_acquire_u64(&ring->write_pointer) == 0 && (!uid || publisher);
    for (int i = 0; i < MQ_READER_SLOTS && free; i++) {
        uint64_t reader = mq_load_acquire_u64(&ring->read_uids[i]);
        free = !reader || mq_reader_slot_find_subscriber(side, reader);
    }
    if (!free || !publisher)
        return free;
    mq_liveness_probe probe = mq_liveness_probe_begin(liveness_file);
    free = mq_ring_row_liveness(&probe, side, (int)(publisher - side->publishers)) == MQ_DEAD;
    mq_liveness_probe_end(&probe);
    return free;
}

/* True if a subscriber of msgq may use the ring. Passive subscribers leave no trace. */
static inline bool mq_ring_has_subscribers(const mq_ring_side *side, const mq_liveness_file *liveness_file) {
    mq_liveness_probe probe = mq_liveness_probe_begin(liveness_file);
    bool found = mq_liveness_is_locked(&probe, MQ_RING_ROW_UNREGISTERED) != MQ_DEAD;
    for (int row = MQ_RING_PUBLISHERS; row < MQ_RING_ROWS && !found; row++)
        found = mq_ring_row_liveness(&probe, side, row) != MQ_DEAD;
    mq_liveness_probe_end(&probe);
    return found;
}

/* True if the ring grew from `former_bytes` to `data_bytes` before its first message, and was not truncated since.
 * Subscribers call this function without the lock, after they mapped the ring again. */
static inline bool mq_ring_grew_while_empty(const mq_ring_header *ring, const mq_ring_side *side, uint32_t former_bytes,
                                            uint32_t data_bytes) {
    const mq_u64 *tail = mq_ring_canary_word(ring, data_bytes);
    /* relaxed, all: constant since before the first message */
    uint64_t least = side && tail ? mq_load_relaxed_u64(&side->enlarged_from) : 0;
    return least && least <= former_bytes && mq_load_relaxed_u64(&side->ring_canary) == mq_load_relaxed_u64(tail);
}

#endif
