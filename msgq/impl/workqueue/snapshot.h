/* A queue as observers see it, for statistics. Each word is loaded separately, so counters may be from slightly
 * different times. Loaded values are not trusted: no loaded value bounds a loop or an index. */
#ifndef MQ_WORKQUEUE_SNAPSHOT_H
#define MQ_WORKQUEUE_SNAPSHOT_H

#include "workqueue/handle.h"

enum { MQ_QUEUE_PRIORITIES = MQ_QUEUE_PRIORITY_MAX + 1 };

/* Number of slots that a row's owner holds. */
typedef struct {
    uint64_t filling;
    uint64_t taken;
} mq_queue_row_slot_counts;

/* Content of a queue's slots. */
typedef struct {
    uint64_t free, filling, ready, taken, delayed, corrupt; /* number of slots in each state */
    uint64_t lost;            /* filling or taken slots that belong to a row's previous owner */
    uint64_t redelivered;     /* messages that were delivered before */
    uint64_t most_deliveries; /* largest number of deliveries of a message in the queue */
    uint64_t leases;          /* taken messages with a lease */
    uint64_t expired_leases;  /* taken messages with an expired lease */
    uint64_t oldest;          /* sent time of the message that has waited longest; 0: no message waits */
    mq_queue_row_slot_counts rows[MQ_QUEUE_ROWS];
} mq_queue_slot_counts;

/* Count a slot that a row owns. */
static inline void mq_queue_count_owned_slot(const mq_queue *queue, uint64_t word, bool taken,
                                             mq_queue_slot_counts *counts) {
    /* the row is below MQ_QUEUE_ROWS; otherwise the word would be corrupt */
    unsigned row = mq_slot_state_get_owner_row(word);
    bool former = (uint16_t)mq_load_acquire_u64(&queue->rows[row].at.generation) != mq_slot_state_get_generation(word);
    counts->lost += former;
    counts->rows[row].filling += !former && !taken;
    counts->rows[row].taken += !former && taken;
}

/* Count a message if the message was in the slot while its header was read. */
static inline void mq_queue_count_message_stats(const mq_queue_file_parts *parts, uint64_t slot, uint64_t word,
                                                uint32_t now_tick, mq_queue_slot_counts *counts) {
    const mq_queue_slot_header *header = &parts->slot_headers[slot];
    bool taken = mq_slot_state_decode(word) == MQ_SLOT_TAKEN, ready = mq_slot_state_is_ready(word);
    uint64_t deliveries = mq_load_relaxed_u64(&header->deliveries); /* relaxed, all: validated below */
    uint64_t sent = mq_load_relaxed_u64(&header->sent_time), lease = mq_load_relaxed_u64(&header->lease);
    mq_fence_acquire();
    if (mq_load_relaxed_u64(&parts->slot_states[slot]) != word) /* relaxed: after the fence */
        return;
    counts->redelivered += deliveries > taken;
    counts->most_deliveries = deliveries > counts->most_deliveries ? deliveries : counts->most_deliveries;
    if (ready && sent && (!counts->oldest || sent < counts->oldest))
        counts->oldest = sent;
    if (taken && mq_job_lease_belongs_to(lease, word)) {
        counts->leases++;
        counts->expired_leases += mq_job_lease_count_ticks_left(lease, now_tick) <= 0;
    }
}

/* Count all slots. The caller passes MQ_QUEUE_PRIORITIES zeros in by_priority, and gets the number of waiting
 * messages of each priority. */
static inline void mq_queue_count_all_slots(const mq_queue_file_parts *parts, uint64_t now_ns,
                                            mq_queue_slot_counts *counts, uint32_t *by_priority) {
    memset(counts, 0, sizeof *counts);
    for (uint64_t slot = 0; slot < parts->max_messages; slot++) {
        uint64_t word = mq_load_acquire_u64(&parts->slot_states[slot]);
        mq_slot_state state = mq_slot_state_decode(word);
        counts->free += state == MQ_SLOT_FREE;
        counts->filling += state == MQ_SLOT_FILLING;
        counts->taken += state == MQ_SLOT_TAKEN;
        counts->delayed += state == MQ_SLOT_DELAYED;
        counts->ready += state == MQ_SLOT_READY;
        counts->corrupt += state == MQ_SLOT_CORRUPT;
        if (state == MQ_SLOT_READY)
            by_priority[mq_slot_state_get_priority(word)]++;
        if (state == MQ_SLOT_FILLING || state == MQ_SLOT_TAKEN)
            mq_queue_count_owned_slot(parts->queue, word, state == MQ_SLOT_TAKEN, counts);
        if (state == MQ_SLOT_READY || state == MQ_SLOT_TAKEN || state == MQ_SLOT_DELAYED)
            mq_queue_count_message_stats(parts, slot, word, mq_job_lease_convert_to_ticks(now_ns), counts);
    }
}

/* Return the part of a count that belongs to the row's current owner. Counts continue over owners. Invalid data
 * gives 0 instead of a negative number. */
static inline uint64_t mq_queue_count_since_join(const mq_u64 *count, const mq_u64 *before) {
    /* relaxed: see the top of the file */
    uint64_t now = mq_load_relaxed_u64(count), then = mq_load_relaxed_u64(before);
    return now > then ? now - then : 0;
}

#endif
