/* Copies of shared rows for statistics. Each word is loaded separately, so counters may be from slightly different
 * times. mq_ring_observer_read_subscriber reads losses together with the cursor. */
#ifndef MQ_RING_SNAPSHOT_H
#define MQ_RING_SNAPSHOT_H

#include "ring/registry.h"

typedef struct {
    uint64_t uid, pid, thread_id, start_time, pid_namespace;
    char name[MQ_NAME + 1];
} mq_participant_snapshot;

typedef struct {
    mq_participant_snapshot participant;
    uint64_t cursor, received, lost, lost_unknown, resets, base_sequence, base_tag;
} mq_ring_subscriber_snapshot;

static inline void mq_ring_snapshot_participant(const mq_participant *participant, mq_participant_snapshot *out) {
    memset(out, 0, sizeof *out);
    out->uid = mq_load_acquire_u64(&participant->uid);
    out->pid = mq_load_relaxed_u64(&participant->pid); /* relaxed, all here: see the top of the file */
    out->thread_id = mq_load_relaxed_u64(&participant->thread_id);
    out->start_time = mq_load_relaxed_u64(&participant->start_time);
    out->pid_namespace = mq_load_relaxed_u64(&participant->pid_namespace);
    mq_copy_from_shared(out->name, participant->name, MQ_NAME);
}

static inline void mq_ring_snapshot_publisher(const mq_ring_side *side, int row, mq_participant_snapshot *participant,
                                              uint64_t *sent, uint64_t *bytes) {
    mq_ring_snapshot_participant(&side->publishers[row].participant,
                                 participant); /* relaxed below, as everywhere here: see the top */
    *sent = mq_load_relaxed_u64(&side->publishers[row].sent);
    *bytes = mq_load_relaxed_u64(&side->publishers[row].bytes);
}

/* True if the publisher of this row is a bridge. `participant` is the copied identity. */
static inline bool mq_ring_snapshot_is_bridge(const mq_ring_side *side, int row,
                                              const mq_participant_snapshot *participant) {
    /* relaxed, as everywhere here: see the top */
    return mq_load_relaxed_u64(&side->publishers[row].bridge_uid) == participant->uid;
}

static inline void mq_ring_snapshot_subscriber(const mq_ring_side *side, int row, mq_ring_subscriber_snapshot *out) {
    const mq_ring_subscriber_row *reader = &side->subscribers[row];
    mq_ring_snapshot_participant(&reader->participant,
                                 &out->participant); /* relaxed below, as everywhere here: see the top */
    /* EDGE stats: acquire. The counters are those of this cursor, or newer. Partner: mq_ring_subscriber_store_stats. */
    out->cursor = mq_load_acquire_u64(&reader->cursor);
    out->received = mq_load_relaxed_u64(&reader->received);
    out->lost = mq_load_relaxed_u64(&reader->lost);
    out->lost_unknown = mq_load_relaxed_u64(&reader->lost_unknown);
    out->resets = mq_load_relaxed_u64(&reader->resets);
    out->base_tag = mq_load_acquire_u64(&reader->base_tag);
    out->base_sequence = mq_load_relaxed_u64(&reader->base_sequence);
}

/* Return an observer: a passive subscriber that checks the cursors of other subscribers. */
static inline mq_ring_subscriber mq_ring_make_observer(mq_ring_header *ring, mq_ring_side *side,
                                                       const mq_liveness_file *liveness_file, uint32_t data_bytes,
                                                       mq_canary canary) {
    const uint8_t *data = (const uint8_t *)ring + MQ_RING_HEADER;
    return (mq_ring_subscriber){.ring = ring,
                                .side = side,
                                .liveness_file = liveness_file,
                                .canary = canary,
                                .data = data,
                                .data_bytes = data_bytes,
                                .passive = true,
                                .slot = -1};
}

/* True if the subscriber at `cursor` will detect a lap at its next receive. Once the result is true, the result stays
 * true. */
static inline bool mq_ring_observer_is_lapped(mq_ring_subscriber *observer, uint64_t cursor) {
    for (int tries = 0; tries < 100; tries++) { /* repeat if the publisher changes during the check */
        mq_ring_subscriber_classify_publisher(observer);
        bool intact = mq_ring_subscriber_is_intact(observer, cursor);
        if (mq_ring_subscriber_sentinel_unchanged(observer))
            return !intact;
    }
    return false;
}

/* Compute the losses that the subscriber will have counted after its next receive. The next receive continues at the
 * newest position and counts by the sequence. Returns false if the number of losses is unknown. */
static inline bool mq_ring_observer_count_lost(mq_ring_subscriber *observer, const mq_ring_subscriber_snapshot *reader,
                                               uint64_t *lost) {
    if (mq_ring_subscriber_seek_latest(observer) != MQ_RING_OK || !observer->sequence_known)
        return false;
    *lost = mq_ring_subscriber_sequence(observer) - reader->base_sequence - reader->received;
    return reader->base_tag == (reader->participant.uid | (uint32_t)observer->era);
}

static inline bool mq_ring_observer_is_dead(const mq_ring_subscriber *observer, int row) {
    mq_liveness_probe probe = mq_liveness_probe_begin(observer->liveness_file);
    bool dead = mq_ring_row_liveness(&probe, observer->side, MQ_RING_PUBLISHERS + row) == MQ_DEAD;
    mq_liveness_probe_end(&probe);
    return dead;
}

/* Copy a subscriber's counters. `lost` and `lost_unknown` include losses that the subscriber will detect at its next
 * receive. For a dead subscriber, the stored counters are final. If the subscriber moves its cursor during the call,
 * copy again. After the last attempt, return the stored counters. */
static inline void mq_ring_observer_read_subscriber(mq_ring_subscriber *observer, int row,
                                                    mq_ring_subscriber_snapshot *out) {
    const mq_ring_subscriber_row *reader = &observer->side->subscribers[row];
    for (int tries = 0; tries < 8; tries++) {
        uint64_t lost = 0;
        mq_ring_snapshot_subscriber(observer->side, row, out);
        if (!out->participant.uid || out->lost_unknown || !mq_ring_observer_is_lapped(observer, out->cursor) ||
            mq_ring_observer_is_dead(observer, row))
            return;
        bool known = mq_ring_observer_count_lost(observer, out, &lost);
        /* EDGE stats: acquire. The owner stored no later cursor, so the counters are current. Partner:
         * mq_ring_subscriber_store_stats */
        mq_fence_acquire(); /* relaxed below: ordered by it */
        if (mq_load_relaxed_u64(&reader->cursor) != out->cursor)
            continue;
        out->lost = known ? lost : out->lost;
        out->lost_unknown = !known;
        return;
    }
}

static inline uint64_t mq_ring_write_pointer(const mq_ring_header *ring) {
    return mq_load_relaxed_u64(&ring->write_pointer); /* relaxed: see the top */
}
static inline uint64_t mq_ring_write_uid(const mq_ring_header *ring) {
    return mq_load_relaxed_u64(&ring->write_uid); /* relaxed: see the top */
}
static inline uint64_t mq_ring_side_created_ns(const mq_ring_side *side) {
    return mq_load_relaxed_u64(&side->created_ns); /* relaxed: constant */
}

typedef struct {
    uint64_t messages, bytes, position, subscribers, lost, lost_unknown;
} mq_ring_counts;

/* Copy all counters, without names. The call is cheap enough for a hundred topics several times a second. */
static inline void mq_ring_snapshot_counts(mq_ring_header *ring, mq_ring_side *side,
                                           const mq_liveness_file *liveness_file, uint32_t data_bytes, mq_canary canary,
                                           mq_ring_counts *out) {
    mq_ring_subscriber observer = mq_ring_make_observer(ring, side, liveness_file, data_bytes, canary);
    memset(out, 0, sizeof *out);
    out->position = mq_load_relaxed_u64(&ring->write_pointer); /* relaxed, all here: see the top */
    /* a new publisher continues the totals, so the highest total counts */
    for (int i = 0; side && i < MQ_RING_PUBLISHERS; i++) {
        uint64_t sent = mq_load_relaxed_u64(&side->publishers[i].sent);
        uint64_t bytes = mq_load_relaxed_u64(&side->publishers[i].bytes);
        out->messages = sent > out->messages ? sent : out->messages;
        out->bytes = bytes > out->bytes ? bytes : out->bytes;
    }
    for (int i = 0; side && i < MQ_RING_SUBSCRIBERS; i++) {
        mq_ring_subscriber_snapshot reader;
        if (mq_load_relaxed_u64(&side->subscribers[i].participant.uid) == 0)
            continue;
        mq_ring_observer_read_subscriber(&observer, i, &reader);
        out->subscribers++;
        out->lost += reader.lost;
        out->lost_unknown |= reader.lost_unknown;
    }
}

/* Count living stock subscribers. Without a side segment, every living owner of a slot counts. */
static inline int mq_ring_count_stock_readers(const mq_ring_header *ring, const mq_ring_side *side) {
    int count = 0;
    for (int i = 0; i < MQ_READER_SLOTS; i++) {
        uint64_t uid = mq_load_acquire_u64(&ring->read_uids[i]);
        count += uid && !mq_reader_slot_find_subscriber(side, uid) &&
                 mq_thread_liveness(mq_ring_uid_thread_id(uid)) != MQ_DEAD;
    }
    return count;
}

#endif
