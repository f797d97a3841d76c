/* Functions to join and leave a topic: take a row of the side segment, start a publisher, join as a subscriber.
 *
 * Callers hold the topic's lock (flock of the ring's file), except where a comment says otherwise.
 */
#ifndef MQ_RING_REGISTRY_H
#define MQ_RING_REGISTRY_H

#include "base/populate.h"
#include "base/schema.h"
#include "ring/sleeper.h"

enum { MQ_CLAIM_TRIES = 1000 }; /* attempts to become the publisher while other publishers start */

/* Fallback if no row is free: take the row of a publisher in another PID namespace that holds no lock. The liveness
 * of the row's publisher is unknown. Another publisher has already taken over the ring from the row's publisher.
 * After write_uid changed, the row's publisher only ends its current send, if the row still has its uid. */
static inline int mq_ring_reuse_row_of_unknown_owner(const mq_liveness_file *liveness_file, const mq_ring_header *ring,
                                                     mq_ring_side *side, void **liveness_token) {
    mq_liveness_probe probe = mq_liveness_probe_begin(liveness_file);
    uint64_t current = mq_load_acquire_u64(&ring->write_uid);
    int taken = MQ_NO_ROW;
    /* relaxed: under the lock no other process writes it. */
    for (int row = 0; row < MQ_RING_PUBLISHERS && taken < 0; row++) {
        bool is_current = mq_load_relaxed_u64(&mq_ring_row_participant(side, row)->uid) == current;
        if (!is_current && mq_ring_row_liveness(&probe, side, row) == MQ_UNKNOWN &&
            (*liveness_token = mq_liveness_lock(liveness_file, (uint64_t)row, false)))
            taken = row;
    }
    mq_liveness_probe_end(&probe);
    return taken;
}

static inline int mq_ring_publisher_row_take(const mq_liveness_file *liveness_file, const mq_ring_header *ring,
                                             mq_ring_side *side, void **liveness_token) {
    mq_row_table publishers = mq_ring_publisher_row_table(side);
    int row = mq_row_table_reserve(&publishers, liveness_file, liveness_token);
    return row == MQ_NO_ROW ? mq_ring_reuse_row_of_unknown_owner(liveness_file, ring, side, liveness_token) : row;
}
static inline int mq_ring_subscriber_row_take(const mq_liveness_file *liveness_file, mq_ring_side *side,
                                              void **liveness_token) {
    mq_row_table readers = mq_ring_subscriber_row_table(side);
    return mq_row_table_reserve(&readers, liveness_file, liveness_token);
}

/* Initialize a new side segment. Messages already in the ring have no count, so counting starts at the newest
 * position. */
static inline void mq_ring_side_init(mq_ring_side *side, const mq_ring_header *ring, uint64_t inode,
                                     uint32_t data_bytes, uint64_t created_ns, bool tracked) {
    uint64_t now = mq_load_acquire_u64(&ring->write_pointer);
    mq_store_relaxed_u64(&side->version, MQ_SIDE_VERSION); /* relaxed, all: the release of magic publishes them */
    mq_store_relaxed_u64(&side->total_bytes, MQ_SIDE_BYTES);
    mq_store_relaxed_u64(&side->publisher_count, MQ_RING_PUBLISHERS);
    mq_store_relaxed_u64(&side->subscriber_count, MQ_RING_SUBSCRIBERS);
    mq_store_relaxed_u64(&side->ring_inode, inode);
    mq_store_relaxed_u64(&side->ring_data_bytes, data_bytes);
    mq_store_relaxed_u64(&side->created_ns, created_ns);
    mq_store_relaxed_u64(&side->tracked, tracked ? MQ_SIDE_TRACKED : 0);
    mq_store_relaxed_u64(&side->uncounted, now != 0);
    mq_store_relaxed_u64(&side->write_limit, now == 0 ? 0 : mq_ring_max_written_position(now, data_bytes));
    mq_store_relaxed_u64(&side->checkpoint_even.position, now);
    mq_store_release_u64(&side->magic, MQ_SIDE_MAGIC);
}

/* Check whether this side segment can be used with this ring. Returns MQ_FILE_STALE if the side segment belongs to a
 * removed ring, or to this ring before the ring was truncated. */
static inline mq_file_check_result mq_ring_side_check(const mq_ring_side *side, uint64_t inode, uint32_t data_bytes) {
    if (mq_load_acquire_u64(&side->magic) != MQ_SIDE_MAGIC)
        return MQ_FILE_NOT_OURS;
    if (mq_load_relaxed_u64(&side->version) != MQ_SIDE_VERSION) /* relaxed, all: constant since before magic */
        return MQ_FILE_OTHER_VERSION;
    bool same = mq_load_relaxed_u64(&side->total_bytes) == MQ_SIDE_BYTES &&
                mq_load_relaxed_u64(&side->publisher_count) == MQ_RING_PUBLISHERS &&
                mq_load_relaxed_u64(&side->subscriber_count) == MQ_RING_SUBSCRIBERS;
    if (!same)
        return MQ_FILE_NOT_OURS;
    same = mq_load_relaxed_u64(&side->ring_inode) == inode && mq_load_relaxed_u64(&side->ring_data_bytes) <= data_bytes;
    return same ? MQ_FILE_VALID : MQ_FILE_STALE;
}
/* True if the ring was truncated and grew back. The canary of a truncated ring is 0. Messages that `sent` counts may
 * be missing from the ring. */
static inline bool mq_ring_canary_is_missing(const mq_ring_header *ring, const mq_ring_side *side,
                                             uint32_t data_bytes) {
    const mq_u64 *tail = mq_ring_canary_word(ring, data_bytes);
    /* relaxed: under the lock, or an observer */
    return tail && mq_load_relaxed_u64(&side->ring_data_bytes) == data_bytes &&
           mq_load_relaxed_u64(&side->ring_canary) && mq_load_relaxed_u64(tail) == 0;
}

/* Store the current size and canary of the ring. Later checks compare the stored values with the ring. */
static inline void mq_ring_side_record_ring(mq_ring_side *side, const mq_ring_header *ring, uint32_t data_bytes) {
    const mq_u64 *tail = mq_ring_canary_word(ring, data_bytes);
    /* relaxed, all: under the lock */
    uint64_t before = mq_load_relaxed_u64(&side->ring_data_bytes), least = mq_load_relaxed_u64(&side->enlarged_from);
    if (before < data_bytes && (!least || before < least) && mq_load_acquire_u64(&ring->write_pointer) == 0)
        mq_store_relaxed_u64(&side->enlarged_from, before);
    mq_store_relaxed_u64(&side->ring_data_bytes, data_bytes);
    mq_store_relaxed_u64(&side->ring_canary, tail ? mq_load_relaxed_u64(tail) : 0);
}

/* If the write_pointer of a truncated ring is after the new end, move write_pointer to the next lap. Publishers can
 * continue at the next lap. Also clear the flags of stock subscribers, which then continue at write_pointer. `side`
 * still has the size before the truncation. */
static inline void mq_ring_move_to_next_lap(mq_ring_header *ring, const mq_ring_side *side, uint64_t inode,
                                            uint32_t data_bytes) {
    uint64_t before = mq_load_relaxed_u64(&side->ring_data_bytes); /* relaxed, all: under the lock */
    uint64_t now = mq_load_acquire_u64(&ring->write_pointer);
    bool shorter = mq_load_relaxed_u64(&side->ring_inode) == inode && before > data_bytes && before <= UINT32_MAX;
    if (!shorter || mq_ring_position_is_valid(now, data_bytes) || !mq_ring_position_is_valid(now, (uint32_t)before))
        return;
    mq_compare_exchange_u64(&ring->write_pointer, now, mq_ring_next_lap(now));
    for (int i = 0; i < MQ_READER_SLOTS; i++)
        mq_store_release_u64(&ring->read_valids[i], 0);
}

/* True if the messages of this ring were tracked. A process calls this function before it replaces a stale side
 * segment. */
static inline bool mq_ring_side_was_tracked(const mq_ring_side *side, uint64_t inode) {
    return mq_load_relaxed_u64(&side->ring_inode) == inode && mq_ring_side_is_tracked(side); /* relaxed: constant */
}

static inline uint64_t mq_ring_side_version(const mq_ring_side *side) {
    return mq_load_relaxed_u64(&side->version); /* relaxed: constant */
}

/* Return the parts of the side segment's schema descriptor. */
static inline mq_schema_parts mq_ring_side_schema(const mq_ring_side *side) {
    mq_ring_side *s = (mq_ring_side *)side; /* mq_schema_read stores nothing */
    return (mq_schema_parts){.seq = &s->schema_seq,
                             .bytes = &s->schema_bytes,
                             .shadow = &s->schema_shadow,
                             .name = s->schema_name,
                             .encoding = s->schema_encoding,
                             .data = s->schema_data,
                             .room = MQ_SCHEMA_DATA_MAX};
}

/* Return the bytes at the beginning of a new side segment that get memory at its creation: the header, the rows and the
 * names of the schema, in whole pages. */
static inline uint64_t mq_ring_side_allocated_bytes(void) {
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t used = (offsetof(mq_ring_side, schema_data) + page_bytes - 1) & ~(page_bytes - 1);
    return used < MQ_SIDE_BYTES ? used : MQ_SIDE_BYTES;
}

/* Allocate the memory of schema_data before the first schema of a side segment. The first writer of a schema has
 * allocated the memory for all later writers. Returns false if /dev/shm has too little memory. The topic is locked. */
static inline bool mq_ring_side_populate_schema(mq_ring_side *side) {
    bool is_first = mq_load_relaxed_u64(&side->schema_seq) == 0; /* relaxed: only lock holders write it */
    return !is_first || !mq_can_populate() || mq_populate(side->schema_data, MQ_SCHEMA_DATA_MAX, 0);
}

/* ---- publishers ---- */

/* Return the value of write_uid during the start of a publisher. */
static inline uint64_t mq_ring_publisher_starting_uid(const mq_ring_publisher *p) {
    return p->after_stock ? p->uid ^ 1ull << 63 : p->uid;
}

/* True if the previous msgq publisher is between begun and sent. If false, we see the write_pointer that it stored.
 * EDGE send-done: acquire, both. Partners: mq_ring_publisher_publish, mq_ring_publisher_discard_staged. */
static inline bool mq_ring_publisher_is_sending(const mq_ring_publisher_row *former) {
    uint64_t sent = mq_load_acquire_u64(&former->sent);
    return mq_load_acquire_u64(&former->begun) != sent; /* a discarded send sets `begun` back to `sent` */
}

/* Return a publisher that is in the middle of a send, except `p`. Returns NULL if there is no such publisher. The
 * scan covers all rows. A new publisher may die while it waits for a sender, and the sender may still be active.
 * Dead publishers are skipped. If `known` is true, publishers with unknown liveness are skipped, too. */
static inline const mq_ring_publisher_row *mq_ring_find_sending_publisher(const mq_ring_publisher *p, bool known) {
    mq_liveness_probe probe = mq_liveness_probe_begin(p->liveness_file);
    const mq_ring_publisher_row *found = NULL;
    for (int row = 0; row < MQ_RING_PUBLISHERS && !found; row++) {
        const mq_ring_publisher_row *other = &p->side->publishers[row];
        if (other == p->row || !mq_load_acquire_u64(&other->participant.uid) || !mq_ring_publisher_is_sending(other))
            continue;
        mq_liveness life = mq_ring_row_liveness(&probe, p->side, row);
        if (life == MQ_ALIVE || (life == MQ_UNKNOWN && !known))
            found = other;
    }
    mq_liveness_probe_end(&probe);
    return found;
}

static inline uint64_t mq_ring_publisher_pid(const mq_ring_publisher_row *row) {
    return mq_load_relaxed_u64(&row->participant.pid); /* relaxed: for texts */
}

/* Return the process id of the current publisher; 0: no publisher, or a stock program. */
static inline uint64_t mq_ring_current_publisher_pid(const mq_ring_header *ring, const mq_ring_side *side) {
    const mq_ring_publisher_row *row = mq_ring_find_publisher(side, mq_load_acquire_u64(&ring->write_uid));
    return row ? mq_ring_publisher_pid(row) : 0;
}

/* Store the publisher's identity in its row. */
static inline void mq_ring_publisher_write_identity(mq_ring_publisher *p, const mq_process_identity *self) {
    /* relaxed: published with the uid. With any other uid, the value has no meaning. */
    mq_store_relaxed_u64(&p->row->bridge_uid, p->for_bridge ? p->uid : ~p->uid);
    mq_participant_write(&p->row->participant, self, p->uid, p->liveness_token != NULL);
}

/* True if another publisher of msgq has a row. Publishers take rows under the lock, and leave rows after their last
 * send. */
static inline bool mq_ring_has_other_publishers(const mq_ring_publisher *p) {
    for (int i = 0; i < MQ_RING_PUBLISHERS; i++)
        if (&p->side->publishers[i] != p->row && mq_load_acquire_u64(&p->side->publishers[i].participant.uid))
            return true;
    return false;
}

/* Claim the ring for `p`, which holds a row (steps 1 and 2). Returns the previous uid. If the start fails, the
 * caller restores that uid. */
static inline uint64_t mq_ring_publisher_claim_ring(mq_ring_publisher *p, const mq_process_identity *self,
                                                    uint32_t random, int row) {
    mq_ring_side *side = p->side;
    uint64_t former;
    p->row = &side->publishers[row];
    p->uid = mq_ring_make_uid(random, (unsigned)row, (uint32_t)self->thread_id);
    /* continue the highest totals of all rows; a free row keeps the totals of its last publisher */
    for (int i = 0; i < MQ_RING_PUBLISHERS; i++) {
        uint64_t sent = mq_load_relaxed_u64(&side->publishers[i].sent); /* relaxed, both: only statistics */
        uint64_t bytes = mq_load_relaxed_u64(&side->publishers[i].bytes);
        p->sequence = sent > p->sequence ? sent : p->sequence;
        p->bytes = bytes > p->bytes ? bytes : p->bytes;
    }
    mq_participant_clear(&p->row->participant);
    mq_store_relaxed_u64(&p->row->begun, p->sequence); /* relaxed, both: published with the identity */
    mq_store_relaxed_u64(&p->row->sent, p->sequence);
    /* Stock publishers take no lock. If a stock publisher starts during this loop, repeat. Bound: MQ_CLAIM_TRIES.
     * After the bound, the first send reports another publisher, as if the stock publisher had started after this
     * loop. */
    int tries = 0;
    do {
        former = mq_load_acquire_u64(&p->ring->write_uid);
        p->after_stock = former != 0 && !mq_ring_find_publisher(side, former);
        mq_participant_clear(&p->row->participant);
        /* Subscribers trust the grant as soon as write_uid names a row. After a msgq publisher the grant is always
         * valid. After a stock publisher the grant is valid only after mq_ring_publisher_start. Until
         * mq_ring_publisher_start, write_uid therefore names no row. */
        if (!p->after_stock)
            mq_ring_publisher_write_identity(p, self);
    } while (!mq_compare_exchange_u64(&p->ring->write_uid, former, mq_ring_publisher_starting_uid(p)) &&
             ++tries < MQ_CLAIM_TRIES);
    mq_fence_seq_cst();
    /* EDGE takeover: membarrier. Partner: mq_ring_publisher_begin_message. If no other publisher of msgq has a row, no
     * send of msgq can be in progress. */
    p->unordered = (p->after_stock || mq_ring_has_other_publishers(p)) && !mq_membarrier();
    return former;
}

/* Take a row, and claim the ring. *former is the previous uid: wait for the end of that publisher's send. Returns false
 * if living publishers have all rows. */
static inline bool mq_ring_publisher_claim(mq_ring_publisher *p, const mq_process_identity *self, uint32_t random,
                                           uint64_t *former) {
    int row = mq_ring_publisher_row_take(p->liveness_file, p->ring, p->side, &p->liveness_token);
    if (row == MQ_NO_ROW)
        return false;
    *former = mq_ring_publisher_claim_ring(p, self, random, row);
    return true;
}

/* Undo mq_ring_publisher_claim_ring. */
static inline void mq_ring_publisher_release_ring(mq_ring_publisher *p, uint64_t former) {
    mq_compare_exchange_u64(&p->ring->write_uid, mq_ring_publisher_starting_uid(p), former);
    mq_participant_leave(&p->row->participant, p->uid, &p->liveness_token);
}

/* Release slots of msgq subscribers that died. Keep the slots of stock subscribers. The slot of a stock subscriber
 * names only the thread that created the slot, and this thread may have ended in a living process. */
static inline void mq_reader_slots_reclaim(mq_ring_header *ring, mq_ring_side *side, mq_liveness_probe *probe) {
    for (int i = 0; i < MQ_READER_SLOTS; i++) {
        uint64_t uid = mq_load_acquire_u64(&ring->read_uids[i]);
        const mq_ring_subscriber_row *row = mq_reader_slot_find_subscriber(side, uid);
        if (uid && row && mq_ring_row_liveness(probe, side, mq_ring_subscriber_row_index(side, row)) == MQ_DEAD)
            mq_reader_slot_release(ring, side, i, uid);
    }
}

/* Clear the rows of dead publishers. The rows keep their totals. Call this after the caller stored its uid in
 * write_uid. Until write_uid has this uid, readers may use a dead publisher's row. */
static inline void mq_ring_publishers_reclaim(mq_ring_publisher *p, mq_liveness_probe *probe) {
    for (int row = 0; row < MQ_RING_PUBLISHERS; row++) {
        mq_participant *participant = &p->side->publishers[row].participant;
        /* relaxed: under the lock */
        if (participant != &p->row->participant && mq_load_relaxed_u64(&participant->uid) &&
            mq_ring_row_liveness(probe, p->side, row) == MQ_DEAD)
            mq_participant_clear(participant);
    }
}

static inline void mq_ring_reclaim_dead(mq_ring_publisher *p) {
    mq_liveness_probe probe = mq_liveness_probe_begin(p->liveness_file);
    mq_ring_publishers_reclaim(p, &probe);
    mq_reader_slots_reclaim(p->ring, p->side, &probe);
    mq_liveness_probe_end(&probe);
}

/* Do steps 4 to 6 of "Starting a publisher". Call this after the previous publisher stopped writing. Returns
 * MQ_RING_CORRUPT if the ring's header is invalid. Returns MQ_RING_UNTRACKED if a message was sent since the caller
 * checked mq_ring_side_can_track. */
static inline mq_ring_status mq_ring_publisher_start(mq_ring_publisher *p, const mq_process_identity *self) {
    mq_ring_side *side = p->side;
    mq_ring_checkpoint m;
    uint64_t last;
    int64_t walked = -1;
    p->position = p->head = mq_load_acquire_u64(&p->ring->write_pointer);
    if (!mq_ring_position_is_valid(p->position, p->data_bytes))
        return MQ_RING_CORRUPT;
    if (!mq_ring_side_can_track(p->ring, side, p->track))
        return MQ_RING_UNTRACKED;
    p->stamps = mq_ring_side_decide_tracking(side, p->track);
    bool readable = mq_ring_checkpoint_read(side, &m) && mq_ring_position_is_valid(m.position, p->data_bytes);
    if (!p->after_stock && readable)
        walked = mq_ring_count_messages(p->data, p->data_bytes, m.position, p->position, &last);
    if (walked >= 0) {
        p->sequence = m.sequence + (uint64_t)walked;
        p->era = m.era;
    } else /* a stock publisher wrote, or the messages cannot be counted */
        p->era = (readable ? m.era : 0) + 1;
    /* The limit never decreases: a publisher that died during a send may have written up to the limit. */
    mq_ring_publisher_announce_limit(p, walked >= 0 ? p->position
                                                    : mq_ring_max_written_position(p->position, p->data_bytes));
    /* relaxed: equal to `sent` again before any process compares them */
    mq_store_relaxed_u64(&p->row->begun, p->sequence);
    mq_store_release_u64(&p->row->sent, p->sequence);
    p->granted_offset = mq_ring_offset(p->position);
    if (p->after_stock) {
        uint64_t claim = mq_ring_publisher_starting_uid(p);
        mq_ring_publisher_write_identity(p, self);
        mq_compare_exchange_u64(&p->ring->write_uid, claim, p->uid);
        p->after_stock = false;
    }
    mq_ring_reclaim_dead(p);
    p->slot_polls_left = 1;
    /* Wake all sleepers. A publisher may have died after it cleared the flags in eventcount, and before the wake of the
     * sleepers. */
    mq_fetch_or_u32(&side->eventcount, MQ_EVENTCOUNT_WAITERS);
    mq_ring_publisher_notify_subscribers(p);
    if (mq_can_populate())
        /* `populate_step` is set last, so that opening a topic does not wait for memory */
        p->populate_step = MQ_POPULATE_FIRST;
    else
        /* the process that created or opened the file has already populated the whole file */
        p->populated_to = p->data_bytes;
    return MQ_RING_OK;
}

/* Store the position at which the next schema begins: the publisher's first message. Call this under the lock, after
 * mq_ring_publisher_start and before mq_schema_write. If the schema then stays the same, no process reads the
 * position. */
static inline void mq_ring_publisher_begin_schema(mq_ring_publisher *p) {
    uint64_t seq = mq_load_relaxed_u64(&p->side->schema_seq); /* relaxed: only lock holders write it */
    /* EDGE schema: release. A reader that takes this position for the position of the change before the previous one
     * finds another schema_seq afterwards. Partner: mq_ring_source_is_before_change. */
    mq_store_release_u64(&p->side->schema_begins[(mq_schema_count_changes(seq) + 1) % 2], p->position);
    /* EDGE schema: release. A reader that sees the change also sees its position, even if the publisher is killed
     * during the change. Partner: mq_source_load_schema_seq. */
    mq_fence_release();
}

static inline void mq_ring_publisher_close(mq_ring_publisher *p) {
    p->populate_step = 0;
    /* 0 means that no publisher is present and the grant is valid. Woken subscribers then classify the publisher
     * again. */
    mq_compare_exchange_u64(&p->ring->write_uid, p->uid, 0);
    mq_ring_publisher_notify_subscribers(p);
    mq_ring_publisher_forget_stock_readers(p);
    mq_participant_leave(&p->row->participant, p->uid, &p->liveness_token);
}

/* Store the number of living subscribers in *attached. Subscribers without a row count as one. Store the number of living subscribers that have read all
 * messages in *updated. The messages of a later publisher count, too. */
static inline void mq_ring_count_subscribers(const mq_ring_publisher *p, int *attached, int *updated) {
    uint64_t published = mq_load_acquire_u64(&p->ring->write_pointer);
    mq_liveness_probe probe = mq_liveness_probe_begin(p->liveness_file);
    *attached = *updated = 0;
    for (int i = 0; i < MQ_RING_SUBSCRIBERS; i++) {
        if (mq_ring_row_liveness(&probe, p->side, MQ_RING_PUBLISHERS + i) == MQ_DEAD)
            continue;
        *attached += 1;
        *updated += mq_load_acquire_u64(&p->side->subscribers[i].cursor) == published;
    }
    /* One or more subscribers have no row, because all rows are in use: nobody knows what they have read. */
    *attached += mq_liveness_is_locked(&probe, MQ_RING_ROW_UNREGISTERED) == MQ_ALIVE;
    mq_liveness_probe_end(&probe);
    for (int i = 0; i < MQ_READER_SLOTS; i++) {
        uint64_t uid = mq_load_acquire_u64(&p->ring->read_uids[i]);
        if (uid == 0 || mq_reader_slot_find_subscriber(p->side, uid) ||
            mq_thread_liveness(mq_ring_uid_thread_id(uid)) == MQ_DEAD)
            continue;
        *attached += 1;
        *updated += mq_load_acquire_u64(&p->ring->read_valids[i]) &&
                    mq_load_acquire_u64(&p->ring->read_pointers[i]) == published;
    }
}

/* ---- subscribers ---- */

/* Release the slots of the dead previous owner of this row. Without the release, these slots would look like slots
 * of stock subscribers. */
static inline void mq_ring_subscriber_reclaim_slots(mq_ring_subscriber *s) {
    for (int i = 0; i < MQ_READER_SLOTS; i++) {
        uint64_t uid = mq_load_acquire_u64(&s->ring->read_uids[i]);
        if (uid && mq_reader_slot_find_subscriber(s->side, uid) == s->row)
            mq_reader_slot_release(s->ring, s->side, i, uid);
    }
}

/* Reset row, slot and lock. In a forked child, row, slot and lock belong to the parent. */
static inline void mq_ring_subscriber_detach_row(mq_ring_subscriber *s) {
    s->slot = -1;
    s->uid = 0;
    s->row = &s->private_row;
    s->liveness_token = NULL;
}

/* Take a row. A subscriber with a row appears in stats and may take a slot. If all rows are locked, the subscriber
 * has no row and no slot, and still works correctly. */
static inline void mq_ring_subscriber_register(mq_ring_subscriber *s, const mq_process_identity *self,
                                               uint32_t random) {
    mq_ring_subscriber_detach_row(s);
    int row =
        s->passive || !s->side ? MQ_NO_ROW : mq_ring_subscriber_row_take(s->liveness_file, s->side, &s->liveness_token);
    if (row == MQ_NO_ROW) {
        if (!s->passive)
            s->liveness_token = mq_liveness_lock(s->liveness_file, MQ_RING_ROW_UNREGISTERED, true);
        return;
    }
    s->row = &s->side->subscribers[row];
    s->uid = mq_ring_make_uid(random, (unsigned)row, 0);
    mq_ring_subscriber_reclaim_slots(s);
    mq_participant_clear(&s->row->participant);
    mq_store_relaxed_u64(&s->row->cursor, s->cursor); /* relaxed, all: the release of uid publishes them */
    mq_store_relaxed_u64(&s->row->received, s->received);
    mq_store_relaxed_u64(&s->row->lost, s->lost);
    mq_store_relaxed_u64(&s->row->lost_unknown, s->lost_unknown);
    mq_store_relaxed_u64(&s->row->resets, s->resets);
    mq_ring_subscriber_store_base_sequence(s);
    mq_participant_write(&s->row->participant, self, s->uid, s->liveness_token != NULL);
}

/* Join at the newest position. */
static inline mq_ring_status mq_ring_subscriber_join(mq_ring_subscriber *s, const mq_process_identity *self,
                                                     uint32_t random) {
    /* EDGE commit: acquire. Partner: mq_ring_publisher_publish */
    s->cursor = mq_load_acquire_u64(&s->ring->write_pointer);
    mq_ring_subscriber_register(s, self, random);
    mq_ring_status status = mq_ring_subscriber_seek_latest(s);
    mq_ring_subscriber_store_base_sequence(s);
    mq_ring_subscriber_store_stats(s);
    return status;
}

/* In a forked child: continue at the parent's cursor, with a new row. */
static inline void mq_ring_subscriber_rejoin(mq_ring_subscriber *s, const mq_process_identity *self, uint32_t random) {
    s->signal_thread = 0;
    mq_ring_subscriber_register(s, self, random);
    mq_ring_subscriber_classify_publisher(s);
}

static inline void mq_ring_subscriber_leave(mq_ring_subscriber *s) {
    mq_reader_slot_release(s->ring, s->side, s->slot, s->slot_uid);
    s->slot = -1;
    mq_participant_leave(&s->row->participant, s->uid, &s->liveness_token);
    s->row = &s->private_row;
    s->uid = 0; /* a subscriber without a uid claims no slot */
}

#endif
