/* Recovery of slots whose owners died, and of expired leases. Any participant may repair a word at any time, with one
 * exchange. Several processes may repair words at once during normal traffic.
 *
 * A word names its owner by row and generation. The owner is dead if the row has another generation, or if the owner's
 * process is dead (row_table.h). A process loads the word again before it loads the generation. With the word from an
 * earlier relaxed scan, a living owner would look dead after the row got a new owner.
 *
 * Rows change owners under the lock of the queue's file. Processes clear the bits of dead sleepers under the same lock.
 * Otherwise a new owner could set its bit between the liveness test and the clearing of the bit.
 */
#ifndef MQ_WORKQUEUE_RECOVERY_H
#define MQ_WORKQUEUE_RECOVERY_H

#include "workqueue/receiver.h"

enum {
    MQ_QUEUE_RECOVER_NS = 1000000000,    /* interval of recoveries in sleepers, and in busy receivers */
    MQ_QUEUE_RECOVER_BUSY_NS = 10000000, /* shortest interval after a scan that found slots of other owners */
};

/* Liveness of a row's owner during one recovery. The row may get another owner during the recovery. */
typedef struct {
    bool asked;
    bool died;
    uint16_t generation;
} mq_queue_owner_liveness;

static inline bool mq_queue_owner_died(mq_queue_handle *h, mq_liveness_probe *probe, mq_queue_owner_liveness *cache,
                                       uint64_t word) {
    unsigned row = mq_slot_state_get_owner_row(word);
    uint16_t generation = mq_slot_state_get_generation(word);
    mq_queue_owner_liveness *cached = &cache[row];
    const mq_queue_row *owner = &h->parts.queue->rows[row];
    if ((uint16_t)mq_load_acquire_u64(&owner->at.generation) != generation)
        return true;
    if (row == h->row_number && generation == h->generation)
        return false; /* this handle is the owner, and its own lock would appear to be free */
    if (!cached->asked || cached->generation != generation) {
        mq_liveness liveness = mq_row_liveness(probe, &owner->at, generation, MQ_QUEUE_ROW_BYTE + (int)row);
        *cached = (mq_queue_owner_liveness){.asked = true, .died = liveness == MQ_DEAD, .generation = generation};
    }
    return cached->died;
}

/* True if a message became DELAYED after this handle's last search for due messages. */
static inline bool mq_queue_delays_changed(const mq_queue_handle *h) {
    return mq_load_acquire_u64(&h->parts.queue->delay_count) != h->seen_delay_count;
}

/* Reclaim all slots whose owner is dead or whose lease has ended, and make due messages READY. Returns the nanoseconds
 * until the next lease ends or the next message is due, at most MQ_QUEUE_RECOVER_NS. */
static inline int64_t mq_queue_reclaim_slots(mq_queue_handle *h, int64_t now_ns) {
    mq_queue_owner_liveness cache[MQ_QUEUE_ROWS] = {0};
    mq_liveness_probe probe = mq_liveness_probe_begin(h->liveness_file);
    uint32_t tick = mq_job_lease_convert_to_ticks((uint64_t)(now_ns + h->clock_offset));
    int64_t next = MQ_QUEUE_RECOVER_NS;
    /* before the scan: the scan finds each message that the count includes. Partner: mq_queue_announce_delay */
    h->seen_delay_count = mq_load_acquire_u64(&h->parts.queue->delay_count);
    for (uint64_t slot = 0; slot < h->parts.max_messages; slot++) {
        /* EDGE word-owner: acquire. The word is loaded, then the generation of its owner's row. Partner:
         * mq_queue_claim_free_slot */
        uint64_t word = mq_load_acquire_u64(&h->parts.slot_states[slot]);
        mq_slot_state state = mq_slot_state_decode(word);
        if (state != MQ_SLOT_FILLING && state != MQ_SLOT_TAKEN && state != MQ_SLOT_DELAYED)
            continue;
        /* EDGE lease-end: acquire. Partner: mq_queue_set_job_lease. If weaker: the next sender writes while its taker
         * copies. */
        uint64_t lease = mq_load_acquire_u64(&h->parts.slot_headers[slot].lease);
        bool leased = state != MQ_SLOT_FILLING && mq_job_lease_belongs_to(lease, word);
        int64_t left = leased ? (int64_t)mq_job_lease_count_ticks_left(lease, tick) * MQ_JOB_LEASE_TICK_NS : next;
        /* a DELAYED message needs no owner. If its due time is corrupt, the message is due now */
        bool is_over =
            state == MQ_SLOT_DELAYED ? !leased || left <= 0 : left <= 0 || mq_queue_owner_died(h, &probe, cache, word);
        if (is_over) {
            if (state != MQ_SLOT_FILLING)
                mq_queue_requeue_message(h, slot, word);
            else if (mq_compare_exchange_u64(&h->parts.slot_states[slot], word, 0))
                mq_queue_wake_sender(h->parts.queue);
        } else if (left < next)
            next = left;
    }
    mq_liveness_probe_end(&probe);
    return next;
}

/* True if a recovery is due. The interval depends on whether the last scan found slots of other owners. */
static inline bool mq_queue_recovery_is_due(const mq_queue_handle *h, int64_t now_ns) {
    return now_ns - h->last_recovery_ns >= (h->saw_owned_slots ? MQ_QUEUE_RECOVER_BUSY_NS : MQ_QUEUE_RECOVER_NS);
}

/* ---- under the lock ---- */

static inline void mq_queue_clear_all_row_bits(mq_queue *queue, unsigned row) {
    for (unsigned role = 0; role < MQ_QUEUE_ROLES; role++)
        mq_queue_clear_row_bit(&queue->sleeping_rows[role], row);
    mq_queue_clear_row_bit(&queue->notify_requested, row);
}

/* Return `handoff_ticket` if the row's oldest ticket has the same value. Otherwise returns 0. */
static inline uint64_t mq_queue_get_row_handoff_ticket(const mq_queue *queue, unsigned row, unsigned role) {
    uint64_t handoff = mq_load_acquire_u64(&queue->handoff_ticket[role]);
    /* relaxed: the owner is dead */
    return handoff == mq_load_relaxed_u64(&queue->rows[row].oldest_ticket[role]) ? handoff : 0;
}

static inline bool mq_queue_row_is_clean(const mq_queue *queue, unsigned row) {
    const mq_queue_row *r = &queue->rows[row]; /* relaxed, all: the owner is dead and changes nothing any more */
    bool is_clean = !mq_queue_row_bit_is_set(&queue->notify_requested, row) &&
                    !mq_load_relaxed_u64(&r->notify_debt[0]) && !mq_load_relaxed_u64(&r->notify_debt[1]);
    for (unsigned role = 0; role < MQ_QUEUE_ROLES; role++)
        is_clean = is_clean && !mq_queue_row_bit_is_set(&queue->sleeping_rows[role], row) &&
                   !mq_queue_get_row_handoff_ticket(queue, row, role);
    return is_clean;
}

/* Clear the row's sleeper bits, and send the notification that the row's owner left pending. */
static inline void mq_queue_recover_row(const mq_queue_file_parts *parts, unsigned row) {
    mq_queue *queue = parts->queue;
    mq_u64 *notify_debt = queue->rows[row].notify_debt;
    bool has_debt = mq_load_relaxed_u64(&notify_debt[0]) || mq_load_relaxed_u64(&notify_debt[1]) ||
                    mq_queue_row_bit_is_set(&queue->sleeping_rows[MQ_QUEUE_RECEIVER], row);
    if (has_debt)
        mq_store_relaxed_u64(&notify_debt[0], 1); /* needed if this process dies before it sends the notification */
    mq_queue_clear_all_row_bits(queue, row);
    for (unsigned role = 0; role < MQ_QUEUE_ROLES; role++)
        if (mq_queue_get_row_handoff_ticket(queue, row, role))
            mq_queue_end_handoff(parts, &queue->rows[row], (mq_queue_role)role,
                                 mq_load_relaxed_u64(&queue->rows[row].oldest_ticket[role]));
    mq_fence_seq_cst();
    if (has_debt)
        mq_queue_notify_if_not_empty(parts);
    mq_store_release_u64(&notify_debt[0], 0);
    mq_store_release_u64(&notify_debt[1], 0);
}

/* True if the row of another participant may need a recovery, because its owner may be dead. */
static inline bool mq_queue_row_may_need_recovery(const mq_queue_handle *h, unsigned row) {
    return row != h->row_number && !mq_queue_row_is_clean(h->parts.queue, row);
}

/* True if a bit of another row is set. */
static inline bool mq_queue_other_row_has_bit(const mq_queue_handle *h) {
    const mq_queue *queue = h->parts.queue;
    uint64_t any = 0;
    for (unsigned i = 0; i < MQ_QUEUE_ROWS / 64; i++) {
        /* relaxed, both: as in mq_queue_row_bit_is_set */
        uint64_t bits = mq_load_relaxed_u64(&queue->notify_requested.word[i]);
        for (unsigned role = 0; role < MQ_QUEUE_ROLES; role++)
            bits |= mq_load_relaxed_u64(&queue->sleeping_rows[role].word[i]);
        any |= h->row_number / 64 == i ? bits & ~mq_queue_make_row_mask(h->row_number) : bits;
    }
    return any;
}

/* True if a row of another participant may need a recovery. Bits and handoffs of all rows are in a few words, so that
 * this loads only the debts of each row, in most queues. */
static inline bool mq_queue_any_row_may_need_recovery(const mq_queue_handle *h) {
    const mq_queue *queue = h->parts.queue;
    uint64_t debts = 0, handoffs = 0;
    for (unsigned row = 0; row < MQ_QUEUE_ROWS; row++) {
        const mq_queue_row *r = &queue->rows[row]; /* relaxed, both: as in mq_queue_row_is_clean */
        uint64_t debt = mq_load_relaxed_u64(&r->notify_debt[0]) | mq_load_relaxed_u64(&r->notify_debt[1]);
        debts |= row == h->row_number ? 0 : debt;
    }
    for (unsigned role = 0; role < MQ_QUEUE_ROLES; role++)
        handoffs |= mq_load_acquire_u64(&queue->handoff_ticket[role]);
    if (debts || mq_queue_other_row_has_bit(h))
        return true;
    unsigned row = handoffs ? 0 : MQ_QUEUE_ROWS;
    while (row < MQ_QUEUE_ROWS && !mq_queue_row_may_need_recovery(h, row))
        row++;
    return row < MQ_QUEUE_ROWS;
}

static inline void mq_queue_recover_dead_rows(mq_queue_handle *h) {
    const mq_queue *queue = h->parts.queue;
    mq_liveness_probe probe = mq_liveness_probe_begin(h->liveness_file);
    for (unsigned row = 0; row < MQ_QUEUE_ROWS; row++) {
        const mq_participant *participant = &queue->rows[row].at.participant;
        if (mq_queue_row_may_need_recovery(h, row) &&
            mq_participant_liveness(&probe, participant, MQ_QUEUE_ROW_BYTE + (int)row) == MQ_DEAD)
            mq_queue_recover_row(&h->parts, row);
    }
    mq_liveness_probe_end(&probe);
}

/* Recover all slots and rows of dead owners. Returns the nanoseconds until the next lease or delay ends, as
 * mq_queue_reclaim_slots does. */
static inline int64_t mq_queue_recover_from_dead_owners(mq_queue_handle *h, int64_t now_ns) {
    int64_t next = mq_queue_reclaim_slots(h, now_ns);
    h->last_recovery_ns = now_ns;
    for (unsigned role = 0; role < MQ_QUEUE_ROLES;
         role++) /* a call with a timeout of 0 yields once, and its program may never call again */
        mq_queue_must_yield_to_handoff(h, (mq_queue_role)role, MQ_NO_TICKET);
    if (!mq_queue_any_row_may_need_recovery(h))
        return next;
    int fd = mq_liveness_begin_moment(h->liveness_file);
    if (fd >= 0)
        mq_queue_recover_dead_rows(h);
    mq_liveness_end_moment(fd);
    return next;
}

/* Recover from dead owners, and scan all blocks of the handle again, because another program may have written a fill
 * count that a cache entry still accepts. Returns when the next lease or delay ends, by CLOCK_MONOTONIC. */
static inline int64_t mq_queue_recover(mq_queue_handle *h, int64_t now_ns) {
    mq_queue_invalidate_all_caches(h);
    return now_ns + mq_queue_recover_from_dead_owners(h, now_ns);
}

/* Occupy a row that the caller has reserved under the lock. Later recoveries reclaim the slots of previous owners,
 * whose words name older generations. */
static inline void mq_queue_occupy_row(mq_queue_handle *h, int row, const mq_process_identity *self, uint64_t uid,
                                       bool held) {
    mq_queue_row *own_row = &h->parts.queue->rows[row];
    mq_queue_recover_row(&h->parts, (unsigned)row);
    mq_copy_to_shared(&own_row->counts_before, &own_row->counts, sizeof own_row->counts_before);
    h->own_row = own_row, h->row_number = (unsigned)row;
    h->take_count = mq_load_relaxed_u64(&own_row->take_count); /* relaxed: under the lock */
    h->generation = mq_row_table_occupy(&own_row->at, self, uid, held);
}

/* ---- leave ---- */

/* True if this handle owns a slot with the word. */
static inline bool mq_queue_owns_word(const mq_queue_handle *h, uint64_t word) {
    mq_slot_state state = mq_slot_state_decode(word);
    return (state == MQ_SLOT_FILLING || state == MQ_SLOT_TAKEN) && mq_slot_state_get_owner_row(word) == h->row_number &&
           mq_slot_state_get_generation(word) == h->generation;
}

/* Return all taken messages of this handle, and release its unsent slots. Call this when no thread uses the handle
 * any more. */
static inline void mq_queue_requeue_own_messages(mq_queue_handle *h) {
    for (uint64_t slot = 0; slot < h->parts.max_messages; slot++) {
        uint64_t word = mq_load_acquire_u64(&h->parts.slot_states[slot]);
        if (!mq_queue_owns_word(h, word))
            continue;
        if (mq_slot_state_decode(word) == MQ_SLOT_TAKEN)
            mq_queue_requeue_message(h, slot, word);
        else
            mq_queue_release_unsent_slot(h, slot);
    }
}

/* Forward a wake when a sleeper leaves without a message. If a message waits, the wake belongs to another receiver. */
static inline void mq_queue_forward_receiver_wake(mq_queue_handle *h) {
    mq_fence_seq_cst();
    if (mq_queue_has_ready_message(&h->parts))
        mq_queue_wake_receivers(h->parts.queue, 1);
}
static inline void mq_queue_forward_wake_and_notify(mq_queue_handle *h) {
    mq_queue_forward_receiver_wake(h);
    mq_queue_notify_if_not_empty(&h->parts);
}
static inline void mq_queue_forward_sender_wake(mq_queue_handle *h) {
    mq_fence_seq_cst();
    if (mq_queue_has_free_slot(&h->parts))
        mq_queue_wake_sender(h->parts.queue);
}

static inline void mq_queue_leave(mq_queue_handle *h, uint64_t uid, void **liveness_token) {
    mq_queue_requeue_own_messages(h);
    mq_queue_forward_receiver_wake(h); /* a leaving thread may have consumed another thread's wake */
    mq_queue_forward_sender_wake(h);
    /* this call notifies only if a notification is pending, because the messages may be old */
    mq_queue_recover_row(&h->parts, h->row_number);
    mq_participant_leave(&h->own_row->at.participant, uid, liveness_token);
}

#endif
