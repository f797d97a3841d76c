/* Publishing: begin, write, stage, commit, notify. Numbers are the steps of docs/internals/topic-protocol.md, "Sending".
 *
 * One thread at a time may use an mq_ring_publisher. Nothing here touches Python or waits; the ring's memory comes by
 * chunks.
 */
#ifndef MQ_RING_PUBLISHER_H
#define MQ_RING_PUBLISHER_H

#include "base/eventcount.h"
#include "base/populate.h"
#include "ring/reader_slots.h"
#include "ring/stamps.h"
#include "ring/canary.h"

/* Out of the way of what calls it once in a thousand times, which then saves fewer registers. */
#define mq_cold static __attribute__((noinline, unused))

typedef enum {
    MQ_RING_OK = 0,
    MQ_RING_NOTIFY,     /* published; now call mq_ring_publisher_notify_subscribers */
    MQ_RING_EMPTY,      /* nothing to read */
    MQ_RING_TAKEN_OVER, /* another publisher owns the ring, or its file was made smaller; nothing was published */
    MQ_RING_TOO_LARGE,  /* three messages of this size do not fit */
    MQ_RING_CORRUPT,    /* the ring's bytes make no sense */
    MQ_RING_UNTRACKED,  /* the topic is tracked, or is not, and was to be the other */
    MQ_RING_NO_MEMORY,  /* the file system has none for the message; nothing was published */
} mq_ring_status;

typedef struct {
    uint64_t uid;
    uint64_t cursor; /* its read_pointer when we looked last */
    uint32_t slot;
    int memory;       /* a file of its memory, open; reads nothing once the process died or called exec. -1: none */
    uint32_t process; /* 0: must not be signalled_at */
} mq_stock_reader;

typedef struct {
    mq_ring_header *ring;
    mq_ring_side *side;
    const mq_liveness_file *liveness_file; /* where the side segment's rows are locked; NULL: nowhere, pids must do */
    void *liveness_token;                  /* our row's lock; NULL: none */
    mq_ring_publisher_row *row;
    uint8_t *data;
    mq_canary canary; /* whether the ring is still all there */
    uint32_t data_bytes;
    uint32_t stamps;  /* bytes before each payload: sizeof(mq_stamps) on a tracked topic, else 0 */
    mq_track track;   /* what is wanted */
    bool after_stock; /* while starting: the former publisher was a stock one */
    bool unordered;   /* while starting: no membarrier, so the former publisher's `begun` may be seen late */
    bool for_bridge;  /* what it publishes came over a bridge, and no other takes it out */
    bool needs_fence; /* no membarrier reaches this process: it needs_fence instead */
    uint64_t uid;
    uint64_t era;      /* grows when the count of messages cannot be continued */
    uint64_t position; /* write_pointer as we last published it */
    uint64_t head;     /* end of what is staged; == position when nothing is */
    uint64_t pending;  /* messages staged */
    uint64_t pending_bytes;
    uint64_t granted_offset; /* up to here the current lap needs no extend */
    uint64_t populated_from; /* offsets between which the ring is known to have its memory */
    uint64_t populated_to;
    uint64_t populate_step;   /* how much more to have ahead, the next time. 0: none */
    uint64_t sequence;        /* messages published */
    uint64_t bytes;           /* payload bytes published */
    uint64_t signalled_at;    /* position when stock subscribers were told of it last */
    uint64_t readers_seen;    /* num_readers at the last look at the slots */
    uint32_t slot_polls_left; /* sends that still look at the slots: one was handed out, but its owner not named yet */
    uint32_t stock_count;
    mq_stock_reader stock[MQ_READER_SLOTS];
} mq_ring_publisher;

/* The send is over, and what is staged stays unpublished: another publisher took over, or nobody wants it. */
static inline mq_ring_status mq_ring_publisher_discard_staged(mq_ring_publisher *p, mq_ring_status why) {
    p->head = p->position;
    p->pending = p->pending_bytes = 0;
    /* The row may be another one's by now: of a publisher in another PID namespace nobody can tell whether it lives. */
    if (mq_load_acquire_u64(&p->row->participant.uid) == p->uid)
        /* EDGE send-done: release. As in mq_ring_publisher_publish. Partner: mq_ring_publisher_is_sending. If missing: a
         * newcomer waits for a send that never ends. */
        mq_store_release_u64(&p->row->begun, p->sequence);
    return why;
}

static inline bool mq_ring_publisher_owns_ring(const mq_ring_publisher *p) {
    /* relaxed: a newcomer's membarrier orders its store before our next load (EDGE takeover). */
    return mq_likely(mq_load_relaxed_u64(&p->ring->write_uid) == p->uid);
}

/* Steps 6 to 8: publish what lies before `head`: so many messages more, of so many bytes. */
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
    /* EDGE send-done: release. Who sees sent == begun also sees the write_pointer above. Partner:
     * mq_ring_publisher_is_sending. */
    mq_store_release_u64(&row->sent, messages);
    bool eventcount = mq_eventcount_load_flags(&side->eventcount);
    /* relaxed: only compared. */
    bool joined = mq_load_relaxed_u64(&ring->num_readers) != p->readers_seen;
    return mq_unlikely(eventcount || joined || p->stock_count || p->slot_polls_left) ? MQ_RING_NOTIFY : MQ_RING_OK;
}

/* Publish what is staged. */
static inline mq_ring_status mq_ring_publisher_commit_staged(mq_ring_publisher *p) {
    uint64_t messages = p->pending, bytes = p->pending_bytes;
    p->pending = p->pending_bytes = 0;
    return mq_ring_publisher_publish(p, p->head, messages, bytes);
}

/* Tell everybody how far we are going to write, and where they may start counting. */
static inline void mq_ring_publisher_announce_limit(mq_ring_publisher *p, uint64_t limit) {
    mq_ring_side *side = p->side;
    /* relaxed, all: only the current publisher writes the grant, so it reads its own or its predecessor's last value.
     * */
    uint64_t turn = mq_load_relaxed_u64(&side->grant_seq) + 1;
    mq_ring_checkpoint_words *checkpoint = turn & 1 ? &side->checkpoint_odd : &side->checkpoint_even;
    if (mq_ring_distance(mq_load_relaxed_u64(&side->write_limit), limit) < 0)
        mq_store_relaxed_u64(&side->write_limit, limit);
    mq_store_relaxed_u64(&checkpoint->position, p->position);
    mq_store_relaxed_u64(&checkpoint->sequence, p->sequence);
    mq_store_relaxed_u64(&checkpoint->era, p->era);
    mq_store_release_u64(&side->grant_seq, turn); /* EDGE checkpoint: release. Partner: mq_ring_checkpoint_read */
    /* EDGE grant: release. Limit and flags become visible before the bytes that they warn of, and this turn before the
     * next one overwrites the other checkpoint. Partners: mq_ring_subscriber_is_intact, mq_ring_checkpoint_read, and a
     * stock subscriber's second look at its flag. If weaker: torn messages pass. */
    mq_fence_release();
}

/* Stock subscribers trust a flag: clear it for those whose message we may overwrite. All slots, not only num_readers:
 * one that joins while a stock publisher starts may sit beyond. */
static inline void mq_ring_publisher_clear_read_valids(mq_ring_publisher *p, uint64_t limit) {
    for (int i = 0; i < MQ_READER_SLOTS; i++) {
        /* relaxed, all: whoever moves its cursor now does not move it into the limit's way, for it only moves forward.
         * */
        uint64_t cursor = mq_load_relaxed_u64(&p->ring->read_pointers[i]);
        /* A cursor at the limit itself goes too: after exactly one lap stock takes equal offsets for an empty ring. */
        bool same_offset =
            mq_ring_offset(limit) == mq_ring_offset(cursor) && mq_ring_cycle(limit) != mq_ring_cycle(cursor);
        bool valid = mq_load_relaxed_u64(&p->ring->read_valids[i]) != 0; /* a store would disturb the line for all */
        if (valid && (same_offset || !mq_ring_message_is_intact(limit, cursor)))
            mq_store_relaxed_u64(&p->ring->read_valids[i], 0);
    }
}

/* Have memory from `start` to `end`, which a ring gets in the first lap, chunk by chunk, and leave `spare` bytes to
 * others. What is known to have it is one stretch: to ask again costs little, and after a lap nobody asks. */
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

/* Step 3: the message does not fit into what was granted. Grant more, wrapping when the lap is over. */
mq_cold mq_ring_status mq_ring_publisher_extend_grant(mq_ring_publisher *p, uint64_t need) {
    /* Once a chunk is enough: a message into what was cut off faults, and then write_uid is 0. Nor would we ever know
     * of a file that was made smaller and larger again before we came to that part. */
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
    /* What is behind a wrap mark nobody wrote, but a subscriber that is overtaken may look there before it knows. */
    bool backed = !wraps || mq_ring_publisher_populate_range(p, mark_at, lap_end, 0) ||
                  mq_ring_publisher_populate_range(p, mark_at, mark_at + 8, 0);
    if (mq_unlikely(backed && !mq_ring_publisher_populate_range(p, start, end, 0))) {
        end = start + need; /* where memory is short, the message itself is enough */
        backed = mq_ring_publisher_populate_range(p, start, end, 0);
    }
    if (mq_unlikely(!backed))
        return mq_ring_publisher_discard_staged(p, mq_canary_is_intact(&p->canary) ? MQ_RING_NO_MEMORY
                                                                                   : MQ_RING_TAKEN_OVER);
    mq_ring_publisher_clear_read_valids(p, lap + end);
    mq_ring_publisher_announce_limit(p, lap + end);
    p->slot_polls_left += p->slot_polls_left == 0; /* and once a chunk the slots are looked at in any case */
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

/* Steps 1 to 3: room for one message of `size` bytes behind what is staged. Fill *payload (and on a tracked topic the
 * stamps before it), then stage and commit, or discard. The caller commits what is staged before it begins a message
 * for which there is no room. */
static inline mq_ring_status mq_ring_publisher_begin_message(mq_ring_publisher *p, uint64_t size, uint8_t **payload) {
    const uint64_t stamps = p->stamps, stamped_size = size + stamps;
    if (mq_unlikely(stamped_size > p->data_bytes))
        return MQ_RING_TOO_LARGE;
    bool room = mq_ring_publisher_has_room(p, size); /* no grant is larger than the largest message */
    if (mq_unlikely(!room) && mq_ring_frame_bytes(stamped_size) > mq_ring_frame_bytes_max(p->data_bytes))
        return MQ_RING_TOO_LARGE;
    if (!mq_ring_publisher_owns_ring(
            p)) /* with nothing staged the send is over, and the row not to be touched any more */
        return p->pending ? mq_ring_publisher_discard_staged(p, MQ_RING_TAKEN_OVER) : MQ_RING_TAKEN_OVER;
    /* EDGE takeover: begun is stored, then write_uid is loaded; the newcomer's membarrier is the fence between them.
     * Partner: mq_ring_publisher_claim_ring. If weaker: two publishers write at once. */
    mq_store_relaxed_u64(&p->row->begun, p->sequence + p->pending + 1); /* relaxed: ordered as the edge says */
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

/* Step 4 is done: the message of `size` bytes is complete, and the next begin comes behind it. */
static inline void mq_ring_publisher_stage_message(mq_ring_publisher *p, uint64_t size) {
    p->head += mq_ring_frame_bytes(size + p->stamps);
    p->pending += 1;
    p->pending_bytes += size;
}

/* SIGUSR2 kills a thread that neither catches nor blocks it, as one that called exec after subscribing. So what the
 * thread does with the signal is found out once, and whether it is still the same program before each signal. Any file
 * of the memory tells; pagemap tells it at a third of the price of maps, but is missing in some kernels. */
static inline mq_stock_reader mq_stock_reader_inspect(const mq_ring_publisher *p, uint64_t uid, uint32_t slot) {
    static const char *const files[] = {"pagemap", "maps"};
    char path[48];
    mq_stock_reader reader = {.uid = uid, .slot = slot, .memory = -1};
    for (int i = 0; i < 2 && reader.memory < 0; i++) { /* first, so that the answer is about this program or an older */
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

/* In a forked child: forget the parent's row, lock and reservation. The page that holds the lock is not inherited, and
 * the descriptors are copies. */
static inline void mq_ring_publisher_detach_row(mq_ring_publisher *p) {
    mq_ring_publisher_forget_stock_readers(p);
    p->liveness_token = NULL;
    p->head = p->position;
    p->pending = p->pending_bytes = 0;
}

/* Find the stock subscribers, the only ones that must be signalled_at one by one. */
static inline void mq_ring_publisher_scan_stock_readers(mq_ring_publisher *p) {
    mq_ring_publisher_forget_stock_readers(p);
    for (uint32_t i = 0; i < MQ_READER_SLOTS; i++) {
        uint64_t uid = mq_load_acquire_u64(&p->ring->read_uids[i]);
        if (uid == 0 || mq_reader_slot_find_subscriber(p->side, uid))
            continue;
        p->stock[p->stock_count++] = mq_stock_reader_inspect(p, uid, i);
    }
}

/* Are there other stock subscribers than at the last survey? *unsettled: a slot that was handed out names no owner;
 * perhaps a stock subscriber is joining. */
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

/* The cheap part of the same question: what a stock subscriber that joins or is evicted changes first. */
static inline bool mq_ring_publisher_stock_readers_may_differ(const mq_ring_publisher *p) {
    for (uint32_t i = 0; i < p->stock_count; i++)
        if (mq_load_relaxed_u64(&p->ring->read_uids[p->stock[i].slot]) != p->stock[i].uid) /* relaxed: only compared */
            return true;
    return mq_load_relaxed_u64(&p->ring->num_readers) != p->readers_seen; /* relaxed: the same */
}

/* May a stock subscriber be there, or just be joining, that will read what was published already? Behind the fence of
 * mq_eventcount_load_flags, and who joins later reads only what is published later. */
static inline bool mq_ring_publisher_may_have_stock_readers(const mq_ring_publisher *p) {
    /* relaxed: ordered by that fence, and only compared. */
    return p->stock_count || p->slot_polls_left || mq_load_relaxed_u64(&p->ring->num_readers) != p->readers_seen;
}

/* Does it sleep, perhaps, although there is a message? It goes to sleep only when it finds its cursor at write_pointer,
 * and stays there until it is awake. We look at its cursor behind the fence of mq_eventcount_load_flags, and it stores
 * its cursor before it looks at write_pointer, both in one order for all: so the first message that it does not find
 * there finds it at what was signalled_at last (or beyond, at a wrap mark), and each later one where it was. */
static inline bool mq_ring_publisher_reader_may_sleep(const mq_ring_publisher *p, mq_stock_reader *reader) {
    uint64_t before = reader->cursor;
    reader->cursor = mq_load_relaxed_u64(&p->ring->read_pointers[reader->slot]); /* relaxed: ordered by the fence */
    return reader->cursor != p->position &&
           (reader->cursor == before || mq_ring_distance(reader->cursor, p->signalled_at) >= 0);
}

/* Does the program with this memory still run? For a read of one byte, pagemap finds the memory and then returns
 * EINVAL, before it walks a page table: a third of the cost of reading 8 bytes. From maps, one byte is read. */
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

/* Have memory and mappings for the next chunk and some more, after a message: else the next ones wait for them. A step
 * takes 15 to 50 us, and what opens a topic none of it. A subscriber that follows finds pages that are ready, and then
 * the kernel maps it 16 of them with one fault. */
mq_cold void mq_ring_publisher_populate_ahead(mq_ring_publisher *p) {
    uint64_t from = p->granted_offset, to = from + p->populate_step;
    bool known = p->populated_from <= from && from + mq_ring_grant_chunk_bytes(p->data_bytes) <= p->populated_to;
    if (known || p->populated_to == p->data_bytes)
        return;
    if (to > p->data_bytes)
        to = p->data_bytes;
    mq_ring_publisher_populate_range(p, from, to, MQ_POPULATE_SPARE); /* the send that needs it says if there is none */
    p->populate_step = 2 * p->populate_step < MQ_POPULATE_MOST ? 2 * p->populate_step : MQ_POPULATE_MOST;
}

/* Wake whoever sleeps; to be called after MQ_RING_NOTIFY. Publishing makes system calls only here, and where the ring
 * has no memory so far (mq_ring_publisher_extend_grant). */
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

/* One message from a buffer: the copying path, on the same core as writing in place. Nothing is staged: it need not go
 * through memory, where the fence of mq_ring_publisher_publish would wait for it. */
static inline mq_ring_status mq_ring_publisher_send(mq_ring_publisher *p, const void *bytes, uint64_t size) {
    uint8_t *payload;
    mq_ring_status status = mq_ring_publisher_begin_message(p, size, &payload);
    if (mq_unlikely(status != MQ_RING_OK))
        return status;
    mq_copy_to_shared(payload, bytes, size);
    return mq_ring_publisher_publish(p, p->head + mq_ring_frame_bytes(size + p->stamps), 1, size);
}

/* The same on a tracked topic. */
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
