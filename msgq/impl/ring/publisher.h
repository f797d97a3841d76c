/* Publishing: begin, write, stage, commit, notify. Numbers in comments are the steps of
 * docs/internals/topic-protocol.md, "Sending".
 *
 * One thread at a time may use an mq_ring_publisher. No function here calls Python or waits. The publisher populates
 * the ring's memory in chunks.
 */
#ifndef MQ_RING_PUBLISHER_H
#define MQ_RING_PUBLISHER_H

#include "base/eventcount.h"
#include "base/populate.h"
#include "ring/reader_slots.h"
#include "ring/stamps.h"
#include "ring/canary.h"

/* Rarely called functions are not inlined. The callers of these functions then save fewer registers. */
#define mq_cold static __attribute__((noinline, unused))

typedef enum {
    MQ_RING_OK = 0,
    MQ_RING_NOTIFY,     /* the message is published; call mq_ring_publisher_notify_subscribers next */
    MQ_RING_EMPTY,      /* no message to read */
    MQ_RING_TAKEN_OVER, /* another publisher owns the ring, or the ring was truncated; nothing was published */
    MQ_RING_TOO_LARGE,  /* the ring cannot hold three messages of this size */
    MQ_RING_CORRUPT,    /* the ring has invalid data */
    MQ_RING_UNTRACKED,  /* the topic's setting of `tracked` differs from the requested setting */
    MQ_RING_NO_MEMORY,  /* the file system has no memory for the message; nothing was published */
} mq_ring_status;

typedef struct {
    uint64_t uid;
    uint64_t cursor; /* the subscriber's read_pointer when the publisher last checked */
    uint32_t slot;
    int memory; /* open file of the process's memory; reads fail after the process died or called exec. -1: none */
    uint32_t process; /* process id for the signal. 0: send no signal */
} mq_stock_reader;

typedef struct {
    mq_ring_header *ring;
    mq_ring_side *side;
    /* locks of the side segment's rows. NULL: no locks, so liveness uses process ids */
    const mq_liveness_file *liveness_file;
    void *liveness_token; /* lock of the publisher's row; NULL: none */
    mq_ring_publisher_row *row;
    uint8_t *data;
    mq_canary canary; /* detects truncation of the ring */
    uint32_t data_bytes;
    uint32_t stamps;  /* bytes before each payload: sizeof(mq_stamps) on a tracked topic, else 0 */
    mq_track track;   /* requested setting */
    bool after_stock; /* during the start: the previous publisher was a stock program */
    /* during the start: membarrier is missing, so stores to `begun` of the previous publisher may become visible
     * late */
    bool unordered;
    bool for_bridge;  /* the messages came over a bridge, and no other bridge forwards these messages */
    bool needs_fence; /* membarrier does not reach this process, so each send issues a fence */
    uint64_t uid;
    uint64_t era;      /* incremented when the count of messages restarts */
    uint64_t position; /* write_pointer that the publisher stored last */
    uint64_t head;     /* end of the staged messages. The end is `position` if no message is staged */
    uint64_t pending;  /* staged messages */
    uint64_t pending_bytes;
    uint64_t granted_offset; /* end offset of the grant in the current lap */
    uint64_t populated_from; /* the ring has its memory between this offset and populated_to */
    uint64_t populated_to;
    uint64_t populate_step; /* bytes to populate ahead at the next step; 0: none */
    uint64_t sequence;      /* messages published */
    uint64_t bytes;         /* payload bytes published */
    uint64_t signalled_at;  /* position of the last signal to stock subscribers */
    uint64_t readers_seen;  /* num_readers at the last scan of the slots */
    /* number of further sends that scan the slots, because the uid of a slot's owner is still missing */
    uint32_t slot_polls_left;
    uint32_t stock_count;
    mq_stock_reader stock[MQ_READER_SLOTS];
} mq_ring_publisher;

/* End the send without publishing the staged messages. Another publisher took over, or the caller discards the
 * messages. */
static inline mq_ring_status mq_ring_publisher_discard_staged(mq_ring_publisher *p, mq_ring_status why) {
    p->head = p->position;
    p->pending = p->pending_bytes = 0;
    /* If this publisher's liveness is unknown in another PID namespace, another publisher may have taken the row
     * already. */
    if (mq_load_acquire_u64(&p->row->participant.uid) == p->uid)
        /* EDGE send-done: release. As in mq_ring_publisher_publish. Partner: mq_ring_publisher_is_sending. If missing:
         * a new publisher waits forever for the end of this send. */
        mq_store_release_u64(&p->row->begun, p->sequence);
    return why;
}

static inline bool mq_ring_publisher_owns_ring(const mq_ring_publisher *p) {
    /* relaxed: a new publisher's membarrier orders its store before our next load (EDGE takeover). */
    return mq_likely(mq_load_relaxed_u64(&p->ring->write_uid) == p->uid);
}

/* Steps 6 to 8: publish the bytes before `head`. The bytes hold `messages` messages with `bytes` payload bytes. */
static inline mq_ring_status mq_ring_publisher_publish(mq_ring_publisher *p, uint64_t head, uint64_t messages,
                                                       uint64_t bytes) {
    mq_ring_publisher_row *row = p->row;
    const mq_ring_side *side = p->side;
    const mq_ring_header *ring = p->ring;
    if (mq_unlikely(!mq_ring_publisher_owns_ring(p)))
        return mq_ring_publisher_discard_staged(p, MQ_RING_TAKEN_OVER);
    /* EDGE commit: release. Payloads become visible before the position that announces them. Partner:
     * mq_ring_subscriber_refresh_published. If weaker: on ARM a subscriber follows the new position into old bytes. */
    mq_store_release_u64(&p->ring->write_pointer, head);
    p->position = p->head = head;
    p->bytes = bytes += p->bytes;
    p->sequence = messages += p->sequence;
    mq_store_relaxed_u64(&row->bytes, bytes); /* relaxed: read by stats only */
    /* EDGE send-done: release. A process that sees sent == begun also sees the write_pointer above. Partner:
     * mq_ring_publisher_is_sending. */
    mq_store_release_u64(&row->sent, messages);
    bool eventcount = mq_eventcount_load_flags(&side->eventcount);
    /* relaxed: only compared. */
    bool joined = mq_load_relaxed_u64(&ring->num_readers) != p->readers_seen;
    return mq_unlikely(eventcount || joined || p->stock_count || p->slot_polls_left) ? MQ_RING_NOTIFY : MQ_RING_OK;
}

/* Publish the staged messages. */
static inline mq_ring_status mq_ring_publisher_commit_staged(mq_ring_publisher *p) {
    uint64_t messages = p->pending, bytes = p->pending_bytes;
    p->pending = p->pending_bytes = 0;
    return mq_ring_publisher_publish(p, p->head, messages, bytes);
}

/* Announce the limit of the publisher's writes, and the checkpoint. */
static inline void mq_ring_publisher_announce_limit(mq_ring_publisher *p, uint64_t limit) {
    mq_ring_side *side = p->side;
    /* relaxed, all: only the current publisher writes the grant, so it loads its own or its predecessor's last
     * value. */
    uint64_t turn = mq_load_relaxed_u64(&side->grant_seq) + 1;
    mq_ring_checkpoint_words *checkpoint = turn & 1 ? &side->checkpoint_odd : &side->checkpoint_even;
    if (mq_ring_distance(mq_load_relaxed_u64(&side->write_limit), limit) < 0)
        mq_store_relaxed_u64(&side->write_limit, limit);
    mq_store_relaxed_u64(&checkpoint->position, p->position);
    mq_store_relaxed_u64(&checkpoint->sequence, p->sequence);
    mq_store_relaxed_u64(&checkpoint->era, p->era);
    mq_store_release_u64(&side->grant_seq, turn); /* EDGE checkpoint: release. Partner: mq_ring_checkpoint_read */
    /* EDGE grant: release. Limit and flags become visible before the bytes that they warn of. This grant becomes
     * visible before the next grant overwrites the other checkpoint. Partners: mq_ring_subscriber_is_intact,
     * mq_ring_checkpoint_read, and a stock subscriber's second load of its flag. If weaker: torn messages pass. */
    mq_fence_release();
}

/* Clear read_valids of each slot whose next message may be overwritten. Scan all slots: a subscriber that joins
 * during the start of a stock publisher may have a slot beyond num_readers. */
static inline void mq_ring_publisher_clear_read_valids(mq_ring_publisher *p, uint64_t limit) {
    for (int i = 0; i < MQ_READER_SLOTS; i++) {
        /* relaxed, all: cursors only increase, so a cursor that moves now moves away from the limit. */
        uint64_t cursor = mq_load_relaxed_u64(&p->ring->read_pointers[i]);
        /* Also clear the flag of a cursor that has the same offset as the limit in another lap. One lap later, stock
         * mistakes equal offsets for an empty ring. */
        bool same_offset =
            mq_ring_offset(limit) == mq_ring_offset(cursor) && mq_ring_cycle(limit) != mq_ring_cycle(cursor);
        /* load first: a store of an unchanged 0 would invalidate the cache line in every process */
        bool valid = mq_load_relaxed_u64(&p->ring->read_valids[i]) != 0;
        if (valid && (same_offset || !mq_ring_message_is_intact(limit, cursor)))
            mq_store_relaxed_u64(&p->ring->read_valids[i], 0);
    }
}

/* Populate the memory from `start` to `end`, and leave `spare` bytes free for other programs. In the first lap the
 * ring gets its memory chunk by chunk. The publisher remembers one range of populated offsets. Populating a page
 * again is cheap. After one lap, the range covers the whole ring. */
static inline bool mq_ring_publisher_populate_range(mq_ring_publisher *p, uint64_t start, uint64_t end,
                                                    uint64_t spare) {
    bool joins = p->populated_from <= start && start <= p->populated_to;
    uint64_t from = joins ? p->populated_to : start;
    if (from < end && !mq_populate(p->data + from, end - from, spare))
        return false;
    p->populated_from = joins ? p->populated_from : start;
    p->populated_to = joins && end < from ? from : end;
    return true;
}

/* Step 3: the message does not fit into the grant. Extend the grant, and wrap at the end of the lap. */
mq_cold mq_ring_status mq_ring_publisher_extend_grant(mq_ring_publisher *p, uint64_t need) {
    /* One check of the canary in each chunk is enough. A write into truncated memory causes a fault. The handler of the
     * fault then replaces the whole ring, including write_uid, by zeros. Without this check, a truncation followed by
     * growth would stay undetected until the publisher reaches the truncated part. */
    if (mq_unlikely(!mq_canary_is_intact(&p->canary)))
        return mq_ring_publisher_discard_staged(p, MQ_RING_TAKEN_OVER);
    uint64_t chunk = mq_ring_grant_chunk_bytes(p->data_bytes), lap_end = mq_ring_lap_end(p->data_bytes);
    uint64_t start = mq_ring_offset(p->position);
    bool wraps = start + need > lap_end;
    uint64_t lap = wraps ? mq_ring_next_lap(p->position) : mq_ring_position(mq_ring_cycle(p->position), 0);
    if (wraps)
        start = 0;
    uint64_t end = start + (need > chunk ? need : chunk);
    if (end > lap_end)
        end = lap_end;
    uint64_t mark_at = mq_ring_offset(p->position);
    /* No process writes the bytes after a wrap mark, but a lapped subscriber may read these bytes before the
     * subscriber detects the lap. */
    bool backed = !wraps || mq_ring_publisher_populate_range(p, mark_at, lap_end, 0) ||
                  mq_ring_publisher_populate_range(p, mark_at, mark_at + 8, 0);
    if (mq_unlikely(backed && !mq_ring_publisher_populate_range(p, start, end, 0))) {
        end = start + need; /* if memory is short, populate only the message itself */
        backed = mq_ring_publisher_populate_range(p, start, end, 0);
    }
    if (mq_unlikely(!backed))
        return mq_ring_publisher_discard_staged(p, mq_canary_is_intact(&p->canary) ? MQ_RING_NO_MEMORY
                                                                                   : MQ_RING_TAKEN_OVER);
    mq_ring_publisher_clear_read_valids(p, lap + end);
    mq_ring_publisher_announce_limit(p, lap + end);
    p->slot_polls_left += p->slot_polls_left == 0; /* scan the slots at least once a chunk */
    if (wraps) {
        mq_u64 *mark = (mq_u64 *)(p->data + mark_at);
        mq_store_relaxed_u64(mark, (uint64_t)MQ_RING_WRAP_MARK); /* relaxed: the release below publishes it */
        if (!mq_ring_publisher_owns_ring(p))
            return mq_ring_publisher_discard_staged(p, MQ_RING_TAKEN_OVER);
        /* EDGE commit: release, of the wrap mark. Partner: mq_ring_subscriber_refresh_published */
        mq_store_release_u64(&p->ring->write_pointer, lap);
        p->position = p->head = lap;
    }
    p->granted_offset = end;
    return MQ_RING_OK;
}

static inline bool mq_ring_publisher_has_room(const mq_ring_publisher *p, uint64_t size) {
    return mq_likely(mq_ring_offset(p->head) + mq_ring_frame_bytes(size + p->stamps) <= p->granted_offset);
}

/* Steps 1 to 3: reserve room for one message of `size` bytes after the staged messages. Fill *payload, and on a
 * tracked topic the stamps before the payload. Then stage and commit the message, or discard the message. If the
 * grant has no room for a further message, commit the staged messages before this call. */
static inline mq_ring_status mq_ring_publisher_begin_message(mq_ring_publisher *p, uint64_t size, uint8_t **payload) {
    const uint64_t stamps = p->stamps, stamped_size = size + stamps;
    if (mq_unlikely(stamped_size > p->data_bytes))
        return MQ_RING_TOO_LARGE;
    bool room = mq_ring_publisher_has_room(p, size); /* a message that fits into a grant is never too large */
    if (mq_unlikely(!room) && mq_ring_frame_bytes(stamped_size) > mq_ring_frame_bytes_max(p->data_bytes))
        return MQ_RING_TOO_LARGE;
    /* if no message is staged, no send is in progress, and the row must stay unchanged */
    if (!mq_ring_publisher_owns_ring(p))
        return p->pending ? mq_ring_publisher_discard_staged(p, MQ_RING_TAKEN_OVER) : MQ_RING_TAKEN_OVER;
    /* EDGE takeover: begun is stored, then write_uid is loaded; the new publisher's membarrier is the fence between
     * them. Partner: mq_ring_publisher_claim_ring. If weaker: two publishers write at once. */
    mq_store_relaxed_u64(&p->row->begun, p->sequence + p->pending + 1); /* relaxed: ordered by the edge */
    if (mq_unlikely(p->needs_fence))
        mq_fence_seq_cst();
    mq_fence_compiler();
    if (!mq_ring_publisher_owns_ring(p))
        return mq_ring_publisher_discard_staged(p, MQ_RING_TAKEN_OVER);
    if (mq_unlikely(!room)) {
        mq_ring_status status = mq_ring_publisher_extend_grant(p, mq_ring_frame_bytes(stamped_size));
        if (status != MQ_RING_OK)
            return status;
    }
    uint8_t *message = p->data + mq_ring_offset(p->head);
    mq_store_relaxed_u64((mq_u64 *)message, stamped_size); /* relaxed: published by commit */
    *payload = message + 8 + stamps;
    return MQ_RING_OK;
}

/* Stage the complete message of `size` bytes, after step 4. The next call of mq_ring_publisher_begin_message
 * reserves room after this message. */
static inline void mq_ring_publisher_stage_message(mq_ring_publisher *p, uint64_t size) {
    p->head += mq_ring_frame_bytes(size + p->stamps);
    p->pending += 1;
    p->pending_bytes += size;
}

/* Return the data needed to signal a stock subscriber. SIGUSR2 kills a thread that neither catches nor blocks the
 * signal, for example a thread that called exec after it subscribed. Therefore the publisher inspects the thread's
 * signal masks once. Before each signal, the publisher checks that the process still runs the same program. An open
 * file of the process's memory shows whether the program still runs. Reading pagemap takes a third of the time of
 * reading maps, but some kernels have no pagemap. */
static inline mq_stock_reader mq_stock_reader_inspect(const mq_ring_publisher *p, uint64_t uid, uint32_t slot) {
    static const char *const files[] = {"pagemap", "maps"};
    char path[48];
    mq_stock_reader reader = {.uid = uid, .slot = slot, .memory = -1};
    /* Open the file before reading the masks. If the process calls exec in between, the file becomes unreadable, and
     * no signal is sent. */
    for (int i = 0; i < 2 && reader.memory < 0; i++) {
        snprintf(path, sizeof path, "/proc/%u/%s", mq_ring_uid_thread_id(uid), files[i]);
        reader.memory = open(path, O_RDONLY | O_CLOEXEC);
    }
    reader.process = reader.memory < 0 ? 0 : mq_thread_survives_signal(mq_ring_uid_thread_id(uid), SIGUSR2);
    reader.cursor = mq_load_relaxed_u64(&p->ring->read_pointers[slot]); /* relaxed: only compared */
    return reader;
}

static inline void mq_ring_publisher_forget_stock_readers(mq_ring_publisher *p) {
    for (uint32_t i = 0; i < p->stock_count; i++)
        if (p->stock[i].memory >= 0)
            close(p->stock[i].memory);
    p->stock_count = 0;
}

/* In a forked child: discard the parent's row, lock and reservation. The child does not inherit the lock's page. Its
 * file descriptors are copies of the parent's descriptors. */
static inline void mq_ring_publisher_detach_row(mq_ring_publisher *p) {
    mq_ring_publisher_forget_stock_readers(p);
    p->liveness_token = NULL;
    p->head = p->position;
    p->pending = p->pending_bytes = 0;
}

/* Find the stock subscribers. Only stock subscribers need a signal each. */
static inline void mq_ring_publisher_scan_stock_readers(mq_ring_publisher *p) {
    mq_ring_publisher_forget_stock_readers(p);
    for (uint32_t i = 0; i < MQ_READER_SLOTS; i++) {
        uint64_t uid = mq_load_acquire_u64(&p->ring->read_uids[i]);
        if (uid == 0 || mq_reader_slot_find_subscriber(p->side, uid))
            continue;
        p->stock[p->stock_count++] = mq_stock_reader_inspect(p, uid, i);
    }
}

/* True if the stock subscribers differ from the last scan. Sets *unsettled if a slot was handed out and its uid is
 * still missing: a stock subscriber may be joining. */
static inline bool mq_ring_publisher_stock_readers_differ(mq_ring_publisher *p, bool *unsettled) {
    uint32_t known = 0;
    *unsettled = false;
    p->readers_seen = mq_load_acquire_u64(&p->ring->num_readers);
    for (uint32_t i = 0; i < MQ_READER_SLOTS; i++) {
        uint64_t uid = mq_load_acquire_u64(&p->ring->read_uids[i]);
        *unsettled |= uid == 0 && i < p->readers_seen;
        if (uid == 0 || mq_reader_slot_find_subscriber(p->side, uid))
            continue;
        if (known == p->stock_count || p->stock[known].slot != i || p->stock[known].uid != uid)
            return true;
        known++;
    }
    return known != p->stock_count;
}

/* Do the cheap check first: compare words that change when a stock subscriber joins or is evicted. */
static inline bool mq_ring_publisher_stock_readers_may_differ(const mq_ring_publisher *p) {
    for (uint32_t i = 0; i < p->stock_count; i++)
        if (mq_load_relaxed_u64(&p->ring->read_uids[p->stock[i].slot]) != p->stock[i].uid) /* relaxed: only compared */
            return true;
    return mq_load_relaxed_u64(&p->ring->num_readers) != p->readers_seen; /* relaxed: the same */
}

/* True if a stock subscriber that can read the published messages may be present or joining. Call this after the fence
 * of mq_eventcount_load_flags. A subscriber that joins later reads only later messages. */
static inline bool mq_ring_publisher_may_have_stock_readers(const mq_ring_publisher *p) {
    /* relaxed: ordered by that fence, and only compared. */
    return p->stock_count || p->slot_polls_left || mq_load_relaxed_u64(&p->ring->num_readers) != p->readers_seen;
}

/* True if a stock subscriber may sleep although a message is available. A stock subscriber sleeps only if its cursor
 * equals write_pointer. The cursor of a sleeping subscriber stays unchanged until the subscriber wakes. Before the
 * sleep, a stock subscriber stores its cursor and then loads write_pointer. The publisher loads that cursor after
 * the fence of mq_eventcount_load_flags. All processes see these stores and loads in the same order. At the first
 * message after the sleep began, the cursor is signalled_at or, after a wrap mark, a later position. At each later
 * message, the cursor of the sleeping subscriber is unchanged. */
static inline bool mq_ring_publisher_reader_may_sleep(const mq_ring_publisher *p, mq_stock_reader *reader) {
    uint64_t before = reader->cursor;
    reader->cursor = mq_load_relaxed_u64(&p->ring->read_pointers[reader->slot]); /* relaxed: ordered by the fence */
    return reader->cursor != p->position &&
           (reader->cursor == before || mq_ring_distance(reader->cursor, p->signalled_at) >= 0);
}

/* True if the program that has this memory still runs. A read of one byte from pagemap returns EINVAL after the kernel
 * found the memory and before it walks a page table. Reading one byte takes a third of the time of reading 8 bytes. A
 * read of maps returns one byte. */
static inline bool mq_process_memory_exists(int memory) {
    uint8_t byte;
    ssize_t got = pread(memory, &byte, sizeof byte, 0);
    return got > 0 || (got < 0 && errno == EINVAL);
}

static inline void mq_stock_reader_signal(const mq_stock_reader *reader) {
    if (reader->process && mq_process_memory_exists(reader->memory))
        syscall(SYS_tgkill, reader->process, mq_ring_uid_thread_id(reader->uid), SIGUSR2);
}

enum { MQ_POPULATE_FIRST = 65536, MQ_POPULATE_MOST = 262144, MQ_POPULATE_SPARE = 16 << 20 };

/* After a message, populate the next chunk and more, so that later messages do not wait for memory. One step takes 15
 * to 50 us. Opening a topic populates no memory. A subscriber that reads populated pages maps 16 pages with one page
 * fault. */
mq_cold void mq_ring_publisher_populate_ahead(mq_ring_publisher *p) {
    uint64_t from = p->granted_offset, to = from + p->populate_step;
    bool known = p->populated_from <= from && from + mq_ring_grant_chunk_bytes(p->data_bytes) <= p->populated_to;
    if (known || p->populated_to == p->data_bytes)
        return;
    if (to > p->data_bytes)
        to = p->data_bytes;
    /* if memory is missing, the send that needs the memory returns the error */
    mq_ring_publisher_populate_range(p, from, to, MQ_POPULATE_SPARE);
    p->populate_step = 2 * p->populate_step < MQ_POPULATE_MOST ? 2 * p->populate_step : MQ_POPULATE_MOST;
}

/* Wake all sleepers. Call this after MQ_RING_NOTIFY. Publishing makes system calls only in this function, and in
 * mq_ring_publisher_extend_grant if the ring has no memory yet. */
static inline void mq_ring_publisher_notify_subscribers(mq_ring_publisher *p) {
    enum { POLLS = 64 };
    uint32_t flags = mq_eventcount_notify(&p->side->eventcount);
    bool news = (flags & MQ_EVENTCOUNT_SLOTS) || mq_ring_publisher_stock_readers_may_differ(p);
    if (news || p->slot_polls_left) {
        bool unsettled;
        if (mq_ring_publisher_stock_readers_differ(p, &unsettled))
            mq_ring_publisher_scan_stock_readers(p);
        p->slot_polls_left = !unsettled ? 0 : news ? POLLS : p->slot_polls_left - (p->slot_polls_left > 0);
        if (p->populate_step)
            mq_ring_publisher_populate_ahead(p);
    }
    for (uint32_t i = 0; i < p->stock_count; i++)
        if (mq_ring_publisher_reader_may_sleep(p, &p->stock[i]))
            mq_stock_reader_signal(&p->stock[i]);
    p->signalled_at = p->position;
}

/* Send one message from a buffer. The steps are the same as for a message written in place. This function stages
 * nothing. Staging would store counts in memory, and the fence of mq_ring_publisher_publish would wait for these
 * stores. */
static inline mq_ring_status mq_ring_publisher_send(mq_ring_publisher *p, const void *bytes, uint64_t size) {
    uint8_t *payload;
    mq_ring_status status = mq_ring_publisher_begin_message(p, size, &payload);
    if (mq_unlikely(status != MQ_RING_OK))
        return status;
    mq_copy_to_shared(payload, bytes, size);
    return mq_ring_publisher_publish(p, p->head + mq_ring_frame_bytes(size + p->stamps), 1, size);
}

/* Do the same as mq_ring_publisher_send, on a tracked topic. */
static inline mq_ring_status mq_ring_publisher_send_tracked(mq_ring_publisher *p, const void *bytes, uint64_t size,
                                                            const mq_stamps *stamps) {
    uint8_t *payload;
    mq_ring_status status = mq_ring_publisher_begin_message(p, size, &payload);
    if (mq_unlikely(status != MQ_RING_OK))
        return status;
    mq_stamps_write(payload, stamps);
    mq_copy_to_shared(payload, bytes, size);
    return mq_ring_publisher_publish(p, p->head + mq_ring_frame_bytes(size + p->stamps), 1, size);
}

#endif
