/* Plain copies of shared entries, for statistics. Each word is read on its own: a figure may be newer than its
 * neighbour, which harms nobody who only looks. Losses are looked at more closely. */
#ifndef MQ_SNAPSHOT_H
#define MQ_SNAPSHOT_H

#include "ring/registry.h"

typedef struct {
    uint64_t uid, pid, thread_id, start_time, pid_namespace;
    char name[MQ_NAME + 1];
} mq_identity_copy;

typedef struct {
    mq_identity_copy who;
    uint64_t cursor, received, lost, lost_unknown, resets, base, counted;
} mq_reader_copy;

static inline void mq_copy_identity(const mq_identity *who, mq_identity_copy *out) {
    memset(out, 0, sizeof *out);
    out->uid = mq_load_acquire_u64(&who->uid);
    out->pid = mq_load_relaxed_u64(&who->pid); /* relaxed, all here: see the top of the file */
    out->thread_id = mq_load_relaxed_u64(&who->thread_id);
    out->start_time = mq_load_relaxed_u64(&who->start_time);
    out->pid_namespace = mq_load_relaxed_u64(&who->pid_namespace);
    mq_copy_out(out->name, who->name, MQ_NAME);
}

static inline void mq_copy_publisher(const mq_side *side, int entry, mq_identity_copy *who, uint64_t *sent,
                                     uint64_t *bytes) {
    mq_copy_identity(&side->publishers[entry].who, who); /* relaxed below, as everywhere here: see the top */
    *sent = mq_load_relaxed_u64(&side->publishers[entry].sent);
    *bytes = mq_load_relaxed_u64(&side->publishers[entry].bytes);
}

/* Is the publisher of this row, whose identity was copied, a bridge? */
static inline bool mq_copied_bridge(const mq_side *side, int entry, const mq_identity_copy *who) {
    uint64_t said =
        mq_load_relaxed_u64(&side->publishers[entry].bridge_uid); /* relaxed, as everywhere here: see the top */
    return said == who->uid || (said != ~who->uid && !strcmp(who->name, MQ_BRIDGE_NAME));
}

static inline void mq_copy_reader(const mq_side *side, int entry, mq_reader_copy *out) {
    const mq_ring_subscriber_row *reader = &side->readers[entry];
    mq_copy_identity(&reader->who, &out->who); /* relaxed below, as everywhere here: see the top */
    /* EDGE figures: acquire. The figures are those of this cursor, or newer. Partner: mq_subscriber_store_stats. */
    out->cursor = mq_load_acquire_u64(&reader->cursor);
    out->received = mq_load_relaxed_u64(&reader->received);
    out->lost = mq_load_relaxed_u64(&reader->lost);
    out->lost_unknown = mq_load_relaxed_u64(&reader->lost_unknown);
    out->resets = mq_load_relaxed_u64(&reader->resets);
    out->counted = mq_load_acquire_u64(&reader->counted);
    out->base = mq_load_relaxed_u64(&reader->base);
}

/* Somebody who judges subscribers as they judge themselves: a passive one, which reads nothing. */
static inline mq_subscriber mq_observer(mq_ring_header *ring, mq_side *side, const mq_liveness_file *roll,
                                        uint32_t data_bytes, mq_canary whole) {
    const uint8_t *data = (const uint8_t *)ring + MQ_RING_HEADER;
    return (mq_subscriber){.ring = ring,
                           .side = side,
                           .roll = roll,
                           .whole = whole,
                           .data = data,
                           .data_bytes = data_bytes,
                           .passive = true,
                           .slot = -1};
}

/* Will the subscriber find that it was lapped when it looks? Once true, this stays true. */
static inline bool mq_observer_is_lapped(mq_subscriber *judge, uint64_t cursor) {
    for (int tries = 0; tries < 100; tries++) { /* again if somebody else publishes meanwhile */
        mq_subscriber_classify_publisher(judge);
        bool intact = mq_subscriber_intact(judge, cursor);
        if (mq_subscriber_witness_holds(judge))
            return !intact;
    }
    return false;
}

/* What it has lost, once it has looked; false: nobody can tell. It goes on at the present, and counts by the sequence. */
static inline bool mq_observer_count_lost(mq_subscriber *judge, const mq_reader_copy *reader, uint64_t *lost) {
    if (mq_subscriber_seek_latest(judge) != MQ_OK || !judge->sequence_known)
        return false;
    *lost = mq_subscriber_sequence(judge) - reader->base - reader->received;
    return reader->counted == (reader->who.uid | (uint32_t)judge->era);
}

static inline bool mq_observer_is_dead(const mq_subscriber *judge, int entry) {
    mq_liveness_probe inquiry = mq_liveness_probe_begin(judge->roll);
    bool dead = mq_ring_row_liveness(&inquiry, judge->side, MQ_RING_PUBLISHERS + entry) == MQ_DEAD;
    mq_liveness_probe_end(&inquiry);
    return dead;
}

/* A subscriber's figures, with `lost` and `lost_unknown` as it will find them when it looks. The dead look no more, so
 * theirs stay as they are. Of one that goes on meanwhile the figures are copied again; in the end they are its own. */
static inline void mq_observer_reader_stats(mq_subscriber *judge, int entry, mq_reader_copy *out) {
    const mq_ring_subscriber_row *reader = &judge->side->readers[entry];
    for (int tries = 0; tries < 8; tries++) {
        uint64_t lost = 0;
        mq_copy_reader(judge->side, entry, out);
        if (!out->who.uid || out->lost_unknown || !mq_observer_is_lapped(judge, out->cursor) ||
            mq_observer_is_dead(judge, entry))
            return;
        bool known = mq_observer_count_lost(judge, out, &lost);
        /* EDGE figures: acquire. The owner has shown no later cursor, so it has not gone on. Partner: mq_subscriber_store_stats */
        mq_fence_acquire(); /* relaxed below: ordered by it */
        if (mq_load_relaxed_u64(&reader->cursor) != out->cursor)
            continue;
        out->lost = known ? lost : out->lost;
        out->lost_unknown = !known;
        return;
    }
}

static inline uint64_t mq_read_write_pointer(const mq_ring_header *ring) {
    return mq_load_relaxed_u64(&ring->write_pointer); /* relaxed: see the top */
}
static inline uint64_t mq_read_write_uid(const mq_ring_header *ring) {
    return mq_load_relaxed_u64(&ring->write_uid); /* relaxed: see the top */
}
static inline uint64_t mq_read_created_ns(const mq_side *side) {
    return mq_load_relaxed_u64(&side->created_ns); /* relaxed: constant */
}

typedef struct {
    uint64_t messages, bytes, position, subscribers, lost, lost_unknown;
} mq_counts;

/* All that moves, without names: cheap enough to be asked of a hundred topics several times a second. */
static inline void mq_copy_counts(mq_ring_header *ring, mq_side *side, const mq_liveness_file *roll,
                                  uint32_t data_bytes, mq_canary whole, mq_counts *out) {
    mq_subscriber judge = mq_observer(ring, side, roll, data_bytes, whole);
    memset(out, 0, sizeof *out);
    out->position = mq_load_relaxed_u64(&ring->write_pointer); /* relaxed, all here: see the top */
    for (int i = 0; side && i < MQ_RING_PUBLISHERS; i++) {     /* each goes on from its forerunner's */
        uint64_t sent = mq_load_relaxed_u64(&side->publishers[i].sent);
        uint64_t bytes = mq_load_relaxed_u64(&side->publishers[i].bytes);
        out->messages = sent > out->messages ? sent : out->messages;
        out->bytes = bytes > out->bytes ? bytes : out->bytes;
    }
    for (int i = 0; side && i < MQ_READERS; i++) {
        mq_reader_copy reader;
        if (mq_load_relaxed_u64(&side->readers[i].who.uid) == 0)
            continue;
        mq_observer_reader_stats(&judge, i, &reader);
        out->subscribers++;
        out->lost += reader.lost;
        out->lost_unknown |= reader.lost_unknown;
    }
}

/* Living stock subscribers; without a side segment everybody in a slot counts. */
static inline int mq_count_stock(const mq_ring_header *ring, const mq_side *side) {
    int count = 0;
    for (int i = 0; i < MQ_SLOTS; i++) {
        uint64_t uid = mq_load_acquire_u64(&ring->read_uids[i]);
        count += uid && !mq_reader_slot_row(side, uid) && mq_thread_liveness(mq_uid_thread(uid)) != MQ_DEAD;
    }
    return count;
}

#endif
