/* Subscribing: refresh, peek, copy, accept, and recovery after a lap. See docs/internals/topic-protocol.md.
 *
 * The cursor is in the subscriber's own memory. A copy is valid only if mq_ring_subscriber_accept_copy returns true.
 * One thread at a time may use an mq_ring_subscriber. No function here calls Python, allocates memory, or waits.
 */
#ifndef MQ_RING_SUBSCRIBER_H
#define MQ_RING_SUBSCRIBER_H

#include "ring/publisher.h"
#include "ring/walk.h"

typedef struct {
    mq_ring_header *ring; /* mapped read-only if passive */
    /* NULL (passive only): the topic has no side segment, and every publisher is treated as stock */
    mq_ring_side *side;
    const mq_liveness_file *liveness_file; /* see mq_ring_publisher */
    void *liveness_token;
    uint64_t uid_without_side; /* if `side` is NULL: the publisher at the last search for a side segment */
    const uint8_t *data;
    mq_canary canary; /* detects truncation of the ring */
    const char *path; /* path of the ring's file. NULL: the file never changes its size */
    uint64_t inode;   /* inode of the mapped file */
    uint32_t data_bytes;
    /* bytes before each payload, as in mq_ring_publisher. The number is valid once the topic has a message */
    uint32_t stamps;
    /* bytes of each message if all messages have one size. After a lap, the subscriber then continues at the oldest
     * message. 0: unknown */
    uint64_t record_bytes;
    bool mapping_too_small; /* a stock publisher writes beyond this mapping */
    bool passive;           /* the subscriber writes nothing to shared memory */
    bool announces_limit;   /* write_limit is valid: the publisher is a msgq publisher, or there is no publisher */
    bool lost_unknown;
    bool sequence_known;
    uint64_t cursor;    /* next message to read */
    uint64_t published; /* last loaded write_pointer; at or after the cursor */
    /* `*stock_sentinel` equals `sentinel_value` while no stock publisher started since the last classification */
    const mq_u64 *stock_sentinel;
    uint64_t sentinel_value;
    uint64_t publisher_uid;
    uint64_t era;
    uint64_t sequence_base; /* sequence at the cursor == sequence_base + received */
    uint64_t received;
    uint64_t lost;
    uint64_t resets;
    mq_ring_subscriber_row *row; /* a row of the side segment, or private_row */
    mq_ring_subscriber_row private_row;
    mq_u32 private_eventcount;
    int slot;          /* -1: none */
    bool avoids_slots; /* the subscriber leaves the slots to stock subscribers */
    uint64_t uid;      /* high half of the slot's uid. 0: the subscriber must not take a slot */
    uint64_t slot_uid;
    uint32_t signal_thread; /* thread that stock publishers signal; 0: none yet */
} mq_ring_subscriber;

typedef struct {
    const uint8_t *payload;
    uint64_t size;
} mq_ring_message;

/* ---- validity ---- */

/* Claim a slot, unless the subscriber holds a slot. If the subscriber was evicted and the publisher stayed the same,
 * a 16th stock reader evicted all readers when it joined. After an eviction by a 16th stock reader, leave the slots
 * to stock programs. Otherwise the subscriber and the stock reader would evict each other forever. */
static inline void mq_ring_subscriber_claim_slot(mq_ring_subscriber *s) {
    bool same_publisher = mq_load_acquire_u64(&s->ring->write_uid) == s->publisher_uid;
    bool evicted = s->slot >= 0 && mq_load_acquire_u64(&s->ring->read_uids[s->slot]) != s->slot_uid;
    s->avoids_slots = same_publisher && (s->avoids_slots || evicted);
    mq_reader_slot_release(s->ring, s->side, s->slot, s->slot_uid); /* the slot may be beyond num_readers */
    s->slot = -1;
    /* Repeat the claim: if a stock publisher starts between the two writes to a slot, the slot ends up beyond
     * num_readers. */
    for (int tries = 0; !s->avoids_slots && tries < 3 && !mq_reader_slot_is_mine(s->ring, s->slot, s->slot_uid);
         tries++) {
        s->slot_uid = s->uid | s->signal_thread;
        s->slot = mq_reader_slot_claim(s->ring, s->side, s->liveness_file, s->slot_uid, s->cursor);
        mq_reader_slots_announce_change(s->side);
        if (s->slot < 0)
            break;
    }
}

/* True if bytes that were read before this call belong to the ring. */
static inline bool mq_ring_subscriber_mapping_valid(const mq_ring_subscriber *s) {
    return mq_canary_is_intact(&s->canary) && mq_likely(!s->mapping_too_small);
}

/* Classify the publisher as msgq or stock. The class selects how positions are validated. While the sentinel stays
 * unchanged after this call, no stock publisher has started. */
static inline void mq_ring_subscriber_classify_publisher(mq_ring_subscriber *s) {
    if (s->uid && !mq_reader_slot_is_mine(s->ring, s->slot, s->slot_uid))
        mq_ring_subscriber_claim_slot(s);
    /* Claim the slot before loading write_uid. A stock publisher writes write_uid before it clears the slots. If the
     * stock publisher cleared the slots before the claim, its uid is visible here. If the stock publisher starts
     * later, the start changes the sentinel. */
    /* repeat if write_uid changed: the previous publisher's row may be cleared */
    for (int tries = 0; tries < 100; tries++) {
        s->publisher_uid = mq_load_acquire_u64(&s->ring->write_uid);
        /* 0: no publisher is present, and the grant is valid. */
        s->announces_limit = s->side && (s->publisher_uid == 0 || mq_ring_find_publisher(s->side, s->publisher_uid));
        if (s->announces_limit || mq_load_acquire_u64(&s->ring->write_uid) == s->publisher_uid)
            break;
    }
    s->stock_sentinel = s->slot >= 0 ? &s->ring->read_uids[s->slot] : &s->ring->write_uid;
    s->sentinel_value = s->slot >= 0 ? s->slot_uid : s->publisher_uid;
    /* A stock publisher sizes the file before it writes write_uid. A larger ring needs a larger margin than this
     * mapping's data_bytes / 3. */
    s->mapping_too_small = !s->announces_limit && s->path && mq_file_grew(s->path, s->inode, s->data_bytes);
}

/* True if no byte from `position` on was overwritten since its publication. Call this after the message was copied. */
static inline bool mq_ring_subscriber_is_intact(const mq_ring_subscriber *s, uint64_t position) {
    /* EDGE grant: acquire. If a copied byte belongs to a newer lap, we now see the limit (or write_pointer) that warned
     * of it. Partner: mq_ring_publisher_announce_limit. If weaker: torn messages pass. */
    mq_fence_acquire();
    /* relaxed: ordered by the fence above. */
    if (mq_likely(s->announces_limit))
        return mq_ring_message_is_intact(mq_load_relaxed_u64(&s->side->write_limit), position);
    return mq_ring_message_is_intact_without_limit(mq_load_relaxed_u64(&s->ring->write_pointer), position,
                                                   s->data_bytes);
}

/* Returns false if a stock publisher started, another process took the slot, or the publisher changed. If the result
 * is false, classify the publisher again. */
static inline bool mq_ring_subscriber_sentinel_unchanged(const mq_ring_subscriber *s) {
    /* acquire: a stock publisher and then a msgq publisher may have started and restored the value. A later load of
     * the limit then sees the limit that the msgq publisher announced. */
    return mq_likely(mq_load_acquire_u64(s->stock_sentinel) == s->sentinel_value) &&
           mq_likely(s->announces_limit || mq_load_acquire_u64(&s->ring->write_uid) == s->publisher_uid);
}

/* True if the message is intact and the classification is still valid. The sentinel is loaded before the limit. EDGE
 * grant: acquire. A stock publisher changes the sentinel before it writes bytes. The limit shows bytes that follow
 * those. Partner: mq_ring_publisher_announce_limit. */
static inline bool mq_ring_subscriber_is_valid(const mq_ring_subscriber *s, uint64_t position) {
    mq_fence_acquire();
    return mq_ring_subscriber_mapping_valid(s) && mq_ring_subscriber_sentinel_unchanged(s) &&
           mq_ring_subscriber_is_intact(s, position);
}

static inline mq_ring_status mq_ring_subscriber_resolve_sequence(mq_ring_subscriber *s);

static inline void mq_ring_subscriber_store_base_sequence(mq_ring_subscriber *s);

static inline void mq_ring_subscriber_reclassify_publisher(mq_ring_subscriber *s) {
    mq_ring_subscriber_classify_publisher(s);
    mq_ring_subscriber_resolve_sequence(s); /* ignore the result: an unknown sequence is stored as unknown */
    mq_ring_subscriber_store_base_sequence(s);
}

/* True if the bytes at the cursor are intact, whichever publishers started since the last classification. */
static inline bool mq_ring_subscriber_validate_cursor(mq_ring_subscriber *s) {
    for (int tries = 0; tries < 100; tries++) {
        if (mq_likely(mq_ring_subscriber_is_valid(s, s->cursor)))
            return true;
        if (mq_ring_subscriber_sentinel_unchanged(s))
            return false;
        mq_ring_subscriber_reclassify_publisher(s);
    }
    return false;
}

/* ---- counting ---- */

static inline uint64_t mq_ring_subscriber_sequence(const mq_ring_subscriber *s) {
    return s->sequence_base + s->received;
}
static inline uint64_t mq_ring_subscriber_frame_bytes(const mq_ring_subscriber *s, uint64_t size) {
    return mq_ring_frame_bytes(size + s->stamps);
}

/* True if no side segment is attached, and a new publisher may have created one. If true, the caller searches for a
 * side segment and attaches the side segment. */
static inline bool mq_ring_subscriber_may_attach_side(mq_ring_subscriber *s) {
    uint64_t before = s->uid_without_side;
    if (mq_likely(s->side))
        return false;
    /* write_uid is loaded before the search: a msgq publisher creates the side segment before it writes write_uid */
    s->uid_without_side = mq_load_acquire_u64(&s->ring->write_uid);
    return s->uid_without_side != before;
}
static inline void mq_ring_subscriber_attach_side(mq_ring_subscriber *s, mq_ring_side *side) {
    s->side = side;
    s->stamps = mq_ring_side_stamp_bytes(s->side);
    mq_ring_subscriber_reclassify_publisher(s);
}

/* Find the sequence at the cursor: walk between the cursor and the checkpoint. Returns MQ_RING_OK if the sequence
 * was found, or if the publisher announces no checkpoint. Returns MQ_RING_EMPTY if the publisher lapped the
 * subscriber during the walk. Returns MQ_RING_CORRUPT if the bytes between cursor and checkpoint are invalid. */
static inline mq_ring_status mq_ring_subscriber_resolve_sequence(mq_ring_subscriber *s) {
    mq_ring_checkpoint m;
    uint64_t last;
    if (s->announces_limit && s->sequence_known && mq_ring_checkpoint_read(s->side, &m) && m.era == s->era)
        return MQ_RING_OK;
    s->sequence_known = false;
    for (int tries = 0; s->announces_limit && tries < 100; tries++) {
        if (!mq_ring_checkpoint_read(s->side, &m) || !mq_ring_position_is_valid(m.position, s->data_bytes))
            return MQ_RING_CORRUPT;
        bool behind = mq_ring_distance(m.position, s->cursor) > 0;
        uint64_t from = behind ? s->cursor : m.position, to = behind ? m.position : s->cursor;
        /* the position is checked before the walk, too, because the walk may take long */
        if (!mq_ring_subscriber_is_intact(s, from))
            continue;
        int64_t count = mq_ring_count_messages(s->data, s->data_bytes, from, to, &last);
        if (!mq_ring_subscriber_is_valid(s, s->cursor))
            return MQ_RING_EMPTY;
        if (!mq_ring_subscriber_is_intact(s, from))
            continue;
        if (count < 0)
            return MQ_RING_CORRUPT;
        s->sequence_base = m.sequence + (uint64_t)(behind ? -count : count) - s->received;
        s->era = m.era;
        s->sequence_known = true;
        return MQ_RING_OK;
    }
    return s->announces_limit ? MQ_RING_EMPTY : MQ_RING_OK;
}

static inline void mq_ring_subscriber_store_stats(mq_ring_subscriber *s) {
    mq_store_relaxed_u64(&s->row->received, s->received); /* relaxed: the release below publishes it */
    /* EDGE stats: release. All counters are stored before the cursor that they belong to. Partner:
     * mq_ring_snapshot_subscriber. If weaker: an observer briefly shows counted losses as received messages. */
    mq_store_release_u64(&s->row->cursor, s->cursor);
}

/* Store the sequence at which the subscriber's count begins. Observers then compute losses before the subscriber
 * detects the losses. */
static inline void mq_ring_subscriber_store_base_sequence(mq_ring_subscriber *s) {
    uint64_t base = s->sequence_base - s->lost;
    uint64_t counted = s->uid && s->sequence_known ? s->uid | (uint32_t)s->era : 0;
    /* relaxed, all: only we write them, and the next store of the cursor publishes them. */
    if (mq_load_relaxed_u64(&s->row->base_tag) == counted && mq_load_relaxed_u64(&s->row->base_sequence) == base)
        return; /* base_sequence and base_tag stay unchanged within an era */
    mq_store_relaxed_u64(&s->row->base_tag, 0);
    mq_store_release_u64(&s->row->base_sequence, base);
    mq_store_release_u64(&s->row->base_tag, counted);
}

/* Continue at `position` and skip `passed` messages. A negative `passed` is an unknown number. */
static inline void mq_ring_subscriber_skip_to(mq_ring_subscriber *s, uint64_t position, int64_t passed) {
    s->cursor = position;
    if (passed < 0)
        s->lost_unknown = true;
    else {
        s->lost += (uint64_t)passed;
        s->sequence_base += (uint64_t)passed;
    }
    mq_store_relaxed_u64(&s->row->lost,
                         s->lost); /* relaxed, both: the release in mq_ring_subscriber_store_stats publishes them */
    mq_store_relaxed_u64(&s->row->lost_unknown, s->lost_unknown);
    mq_ring_subscriber_store_base_sequence(s);
    mq_ring_subscriber_store_stats(s);
    if (s->slot >= 0 && !s->announces_limit)
        mq_reader_slot_write_cursor(s->ring, s->slot, s->cursor);
}

/* Seek the newest position: write_pointer and its sequence. If the publisher is too fast for the walk, seek the
 * checkpoint. The checkpoint stores its sequence. The checkpoint is at most one chunk before the newest position. */
static inline mq_ring_status mq_ring_subscriber_seek_latest(mq_ring_subscriber *s) {
    mq_ring_checkpoint m;
    if (!mq_ring_subscriber_mapping_valid(s))
        return MQ_RING_CORRUPT;
    for (int tries = 0; tries < 8; tries++) {
        mq_ring_subscriber_classify_publisher(s);
        /* EDGE commit: acquire. Partner: mq_ring_publisher_publish */
        uint64_t now = mq_load_acquire_u64(&s->ring->write_pointer);
        if (!mq_ring_position_is_valid(now, s->data_bytes))
            return MQ_RING_CORRUPT;
        s->cursor = s->published = now;
        s->stamps = mq_ring_side_stamp_bytes(s->side);
        s->sequence_known = false;
        if (mq_ring_subscriber_resolve_sequence(s) != MQ_RING_EMPTY)
            /* even if the messages before the newest position are invalid, the subscriber continues at the newest
             * position */
            return MQ_RING_OK;
    }
    for (int tries = 0; tries < 100 && mq_ring_checkpoint_read(s->side, &m); tries++) {
        mq_ring_subscriber_classify_publisher(s);
        /* EDGE commit: acquire. Partner: mq_ring_publisher_publish */
        uint64_t now = mq_load_acquire_u64(&s->ring->write_pointer);
        /* Another program may write any value into the checkpoint. Accept only a checkpoint from which all bytes up
         * to write_pointer are intact. */
        if (!mq_ring_position_is_valid(m.position, s->data_bytes) || mq_ring_distance(now, m.position) < 0 ||
            !mq_ring_subscriber_is_valid(s, m.position) || !mq_ring_subscriber_is_intact(s, now))
            continue;
        s->cursor = s->published = m.position;
        s->stamps = mq_ring_side_stamp_bytes(s->side);
        s->sequence_base = m.sequence - s->received;
        s->era = m.era;
        s->sequence_known = true;
        break;
    }
    return MQ_RING_OK;
}

/* After a lap: if all messages have one size, seek the oldest intact message. Returns false if the position of the
 * oldest intact message is unknown. */
static inline bool mq_ring_subscriber_seek_oldest_record(mq_ring_subscriber *s) {
    mq_ring_checkpoint m;
    for (uint64_t tries = 0; s->record_bytes && tries < 6; tries++) {
        mq_ring_subscriber_classify_publisher(s);
        s->stamps = mq_ring_side_stamp_bytes(s->side);
        if (!s->announces_limit || !mq_ring_checkpoint_read(s->side, &m))
            return false;
        /* These are loaded after the checkpoint, so that they are not before it. relaxed: mq_ring_subscriber_is_valid
         * checks the limit. EDGE commit: acquire. Partner: mq_ring_publisher_publish */
        uint64_t now = mq_load_acquire_u64(&s->ring->write_pointer), limit = mq_load_relaxed_u64(&s->side->write_limit);
        if (!mq_ring_position_is_valid(m.position, s->data_bytes) || !mq_ring_position_is_valid(now, s->data_bytes))
            return false;
        /* The publisher may write much of a lap during the walk. The first retry starts one chunk after the limit.
         * Each further retry multiplies the distance from the limit by eight. */
        uint64_t need = mq_ring_subscriber_frame_bytes(s, s->record_bytes),
                 chunk = mq_ring_grant_chunk_bytes(s->data_bytes);
        uint64_t from =
            mq_ring_oldest_record_position(limit, s->data_bytes, need, tries ? chunk << 3 * (tries - 1) : 0);
        if (mq_ring_distance(from, s->cursor) <= 0 || mq_ring_distance(now, m.position) < 0)
            return false;
        if (mq_ring_distance(m.position, from) < 0) /* the publisher lapped the ring after the checkpoint was loaded */
            continue;
        uint64_t last; /* unused */
        int64_t count = mq_ring_count_messages_of_size(s->data, s->data_bytes, from, m.position, need, &last);
        if (!mq_ring_subscriber_is_valid(s, from))
            continue;
        if (count < 0)
            return false;
        s->cursor = from, s->published = now, s->era = m.era;
        s->sequence_base = m.sequence - (uint64_t)count - s->received;
        return s->sequence_known = true;
    }
    return false;
}

/* After a lap: continue at the oldest record or at the newest position. The sequence gives the number of skipped
 * messages. */
static inline mq_ring_status mq_ring_subscriber_recover_from_lap(mq_ring_subscriber *s) {
    bool known = s->sequence_known;
    uint64_t expected = mq_ring_subscriber_sequence(s), era = s->era;
    mq_ring_status status = mq_ring_subscriber_seek_oldest_record(s) ? MQ_RING_OK : mq_ring_subscriber_seek_latest(s);
    if (status != MQ_RING_OK)
        return status;
    int64_t passed = -1;
    if (known && s->sequence_known && s->era == era) {
        passed = (int64_t)(mq_ring_subscriber_sequence(s) - expected);
        s->sequence_base -= (uint64_t)passed; /* mq_ring_subscriber_skip_to adds this number */
    }
    s->resets += 1;
    mq_store_relaxed_u64(&s->row->resets, s->resets); /* relaxed: for stats */
    mq_ring_subscriber_skip_to(s, s->cursor, passed);
    return MQ_RING_OK;
}

/* ---- reading ---- */

/* Load write_pointer. Returns MQ_RING_EMPTY if the subscriber has read all messages. Compare all 64 bits: with fewer
 * bits, a full lap would look like an empty ring. */
static inline mq_ring_status mq_ring_subscriber_refresh_published(mq_ring_subscriber *s) {
    /* EDGE commit: acquire. Partner: mq_ring_publisher_publish. */
    uint64_t now = mq_load_acquire_u64(&s->ring->write_pointer);
    if (now == s->cursor) {
        s->published = now; /* another program may have decreased write_pointer */
        /* A stock publisher waits for its readers before it sends. Therefore claim the slot again, even if no
         * message is available. */
        if (mq_unlikely(!mq_ring_subscriber_sentinel_unchanged(s)))
            mq_ring_subscriber_reclassify_publisher(s);
        return mq_ring_subscriber_mapping_valid(s) ? MQ_RING_EMPTY : MQ_RING_CORRUPT;
    }
    if (mq_unlikely(!mq_ring_position_is_valid(now, s->data_bytes) || mq_ring_distance(now, s->cursor) < 0))
        return MQ_RING_CORRUPT;
    /* these are the topic's first messages, and their publisher decides the tracking */
    if (mq_unlikely(s->cursor == 0)) {
        if (!s->side && mq_load_acquire_u64(&s->ring->write_uid) != s->uid_without_side)
            return MQ_RING_EMPTY; /* the next call searches for the side segment */
        s->stamps = mq_ring_side_stamp_bytes(s->side);
    }
    s->published = now;
    return MQ_RING_OK;
}

/* Validate a cursor that may be lapped. Returns MQ_RING_OK if the cursor is valid. Returns MQ_RING_EMPTY if the
 * publisher lapped the subscriber and the subscriber recovered. */
static inline mq_ring_status mq_ring_subscriber_revalidate_cursor(mq_ring_subscriber *s) {
    if (mq_ring_subscriber_validate_cursor(s))
        return MQ_RING_OK;
    mq_ring_status status = mq_ring_subscriber_recover_from_lap(s);
    return status == MQ_RING_OK ? MQ_RING_EMPTY : status;
}

/* Locate the message of `size` stored bytes at the cursor. Returns false if no published message of this size fits
 * there. relaxed: the size may belong to a newer lap. The conditions here bound the size (a smaller size wraps and is
 * rejected), and mq_ring_subscriber_accept_copy validates it. */
static inline bool mq_ring_subscriber_locate_message(const mq_ring_subscriber *s, uint64_t size,
                                                     mq_ring_message *message) {
    uint64_t offset = mq_ring_offset(s->cursor), need = mq_ring_frame_bytes(size);
    message->payload = s->data + offset + 8 + s->stamps;
    message->size = size - s->stamps;
    return mq_likely(message->size <= s->data_bytes) && mq_likely(offset + need <= mq_ring_lap_end(s->data_bytes)) &&
           mq_likely(mq_ring_distance(s->published, s->cursor + need) >= 0);
}

/* Move the cursor past the wrap mark at the cursor. Returns false if `size`, an intact size word, is no wrap mark. */
static inline bool mq_ring_subscriber_pass_wrap_mark(mq_ring_subscriber *s, uint64_t size) {
    if (size != (uint64_t)MQ_RING_WRAP_MARK || mq_ring_offset(s->cursor) == 0 ||
        mq_ring_distance(s->published, mq_ring_next_lap(s->cursor)) < 0)
        return false;
    s->cursor = mq_ring_next_lap(s->cursor);
    /* a publisher that waits for this subscriber must see the new cursor, even if no message follows the wrap mark */
    mq_ring_subscriber_store_stats(s);
    return true;
}

/* Return the message at the cursor, without moving the cursor. Copy the message, then call
 * mq_ring_subscriber_accept_copy. */
static inline mq_ring_status mq_ring_subscriber_peek_message(mq_ring_subscriber *s, mq_ring_message *message) {
    for (int tries = 0; tries < 64; tries++) {
        if (s->cursor == s->published) {
            mq_ring_status status = mq_ring_subscriber_refresh_published(s);
            if (status != MQ_RING_OK)
                return status;
        }
        uint64_t size = mq_ring_message_size(s->data, s->cursor);
        if (mq_likely(mq_ring_subscriber_locate_message(s, size, message)))
            return MQ_RING_OK;
        mq_ring_status status = mq_ring_subscriber_revalidate_cursor(s);
        if (status == MQ_RING_EMPTY)
            continue; /* the subscriber recovered from a lap; `published` shows whether more messages arrived */
        if (status != MQ_RING_OK || !mq_ring_subscriber_pass_wrap_mark(s, size))
            return MQ_RING_CORRUPT;
    }
    /* The publisher laps the subscriber faster than the subscriber reads. The caller may sleep until the next
     * message, and call again. */
    return MQ_RING_EMPTY;
}

/* Move the cursor past the message, and count the message. */
static inline void mq_ring_subscriber_advance_past(mq_ring_subscriber *s, const mq_ring_message *message) {
    s->cursor += mq_ring_subscriber_frame_bytes(s, message->size);
    s->received += 1;
    mq_ring_subscriber_store_stats(s);
}

/* Validate the copy of the message. An intact copy counts as a received message. Returns false if the copy is torn.
 * If the copy is torn, all bytes at the cursor may be overwritten. If the copy is torn, the caller calls
 * mq_ring_subscriber_recover_from_lap. A caller that conflates seeks the newest message again instead. */
static inline bool mq_ring_subscriber_accept_copy(mq_ring_subscriber *s, const mq_ring_message *message) {
    if (mq_unlikely(!mq_ring_subscriber_validate_cursor(s)))
        return false;
    mq_ring_subscriber_advance_past(s, message);
    if (mq_unlikely(!s->announces_limit && s->slot >= 0))
        mq_reader_slot_write_cursor(s->ring, s->slot, s->cursor);
    return true;
}

/* Prefetch a cache line that the caller reads soon. The address need not be mapped. */
static inline void mq_prefetch(const void *line) { __builtin_prefetch(line); }

#endif
