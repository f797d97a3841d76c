/* Bytes of a work queue, without behaviour. docs/internals/queue-protocol.md describes the bytes; tests/meta compares. */
#ifndef MQ_WORKQUEUE_LAYOUT_H
#define MQ_WORKQUEUE_LAYOUT_H

#include "base/layout.h"

enum {
    MQ_QUEUE_MAJOR = 1, /* of the layout: another one cannot be read */
    MQ_QUEUE_MINOR = 0, /* what was added since can be passed over */
    MQ_QUEUE_CREATOR_BYTES = 64,
    MQ_QUEUE_ROWS = 128,                    /* handles that are open at a time */
    MQ_QUEUE_ROW_BYTE = 0,                  /* of the file, that the owner of the first row locks (liveness_lock.h) */
    MQ_QUEUE_BLOCK_SLOTS = 64,              /* words that a receiver remembers together */
    MQ_QUEUE_MESSAGES_MAX = 65536,          /* beyond it a look at all words takes longer than a system call by far */
    MQ_QUEUE_MESSAGE_SIZE_MAX = 1073741824, /* of a message, bytes */
    MQ_QUEUE_PRIORITY_MAX = 32767,
};

#define MQ_QUEUE_MAGIC 0x3153424f4a515347ull /* "GSQJOBS1" read as little-endian */

/* What a handle did. */
typedef struct {
    mq_u64 sent;
    mq_u64 received; /* or taken */
    mq_u64 acknowledged;
    mq_u64 returned; /* brought back, of whomever */
    mq_u64 refused;  /* messages for which there was no room */
} mq_queue_handle_counts;

/* What a queue's handles publish; decided by who makes it. */
typedef enum {
    MQ_QUEUE_EVENTS_NONE,    /* also of a word that is none of these */
    MQ_QUEUE_EVENTS_HEADS,   /* an event of each thing that happens to a message */
    MQ_QUEUE_EVENTS_PAYLOAD, /* the same, with the payload in that of sending */
} mq_queue_events_mode;

/* What a handle may sleep for. */
typedef enum {
    MQ_QUEUE_RECEIVER, /* a message that it takes */
    MQ_QUEUE_WATCHER,  /* a message, which it may not take */
    MQ_QUEUE_SENDER,   /* room */
    MQ_QUEUE_ROLES,
} mq_queue_role;

/* One open handle. The first two lines are written under the lock, the third is its owner's, the last is its owner's
 * and of those who wake it. */
typedef struct {
    mq_versioned_row at;
    mq_queue_handle_counts counts_before; /* what the counts were when this owner came: they go on over owners */
    mq_u64 pad[2];
    mq_u64 take_count; /* messages taken so far; TAKEN words have its low half */
    mq_queue_handle_counts counts;
    /* Not 0: it has changed something of which it tells those who want to be notified next. If it dies before that,
     * others tell them (recovery.h). The first is for sends, the second counts all else. */
    mq_u64 notify_debt[2];
    mq_u32 eventcounts[MQ_QUEUE_ROLES]; /* eventcount.h, several writers: the futex words of this handle's sleepers */
    mq_u32 pad1[1];
    mq_u64 events_lost;                   /* events that could not be published; it goes on over owners */
    mq_u64 oldest_ticket[MQ_QUEUE_ROLES]; /* for each kind of sleep the smallest ticket of the row (handoff.h) */
    mq_u64 pad2[2];
} mq_queue_row;
_Static_assert(sizeof(mq_queue_row) == 256, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue_row, eventcounts) == 192, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue_row, events_lost) == 208, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue_row, oldest_ticket) == 216, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue_row, take_count) == 128, "bump MQ_QUEUE_MAJOR");

/* One bit a row. */
typedef struct {
    mq_u64 word[MQ_QUEUE_ROWS / 64];
} mq_queue_row_bits;

typedef struct {
    mq_u64 magic;        /* written last */
    mq_u64 version;      /* major << 32 | minor */
    mq_u64 header_bytes; /* where `fill_counts` begins */
    mq_u64 total_bytes;
    mq_u64 created_ns; /* host's clock */
    mq_u64 creator_pid;
    mq_u64 max_messages;
    mq_u64 max_message_size;
    char creator[MQ_QUEUE_CREATOR_BYTES]; /* name of the process, NUL-padded */
    mq_u64 stride;                        /* from one payload to the next */
    mq_u64 events;                        /* mq_queue_events_mode */
    mq_u64 pad0[14];
    mq_u64 ready_count; /* messages that became READY, ever */
    mq_u64 pad1[7];
    mq_queue_row_bits sleeping_rows[MQ_QUEUE_ROLES]; /* rows that may sleep; their eventcount tells */
    mq_queue_row_bits notify_requested;              /* rows that want to know when a message comes to an empty queue */
    mq_u32 notify_seq; /* counts messages that came to an empty queue: the futex word of notifications */
    mq_u32 pad2[15];
    mq_u64 last_ticket; /* the last ticket that was drawn */
    mq_u64 pad3[7];
    mq_u64 handoff_ticket[MQ_QUEUE_ROLES]; /* for each kind of sleep the ticket to which larger ones yield; 0: none */
    mq_u64 reserved[445];
    mq_queue_row rows[MQ_QUEUE_ROWS];
    mq_schema schema;
    char schema_data[20480 - sizeof(mq_schema)];
} mq_queue;
_Static_assert(offsetof(mq_queue, ready_count) == 256, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue, sleeping_rows) == 320, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue, notify_seq) == 384, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue, last_ticket) == 448, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue, handoff_ticket) == 512, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue, rows) == 4096, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue, schema) == 36864, "bump MQ_QUEUE_MAJOR");
_Static_assert(sizeof(mq_queue) == 57344, "bump MQ_QUEUE_MAJOR");

#define MQ_QUEUE_SCHEMA_DATA_BYTES (sizeof(((mq_queue *)0)->schema_data))

/* Describes the message in the slot of the same number. Written by whoever the word says has it. */
typedef struct {
    mq_u64 key;    /* the READY word of this message, to which it comes back */
    mq_u64 length; /* bytes */
    mq_u64 deliveries;
    mq_u64 sent_time;   /* host's clock, ns */
    mq_u64 origin_time; /* the same; 0: unknown */
    mq_u64 lease;       /* see slot_state.h; 0: none */
    mq_u64 taken_by;    /* with events only: the TAKEN word of which taken_time tells */
    mq_u64 taken_time;  /* the same: host's clock, ns */
} mq_queue_slot_header;
_Static_assert(sizeof(mq_queue_slot_header) == 64, "bump MQ_QUEUE_MAJOR");

/* Where the parts of a mapped queue are, with its sizes: a checked copy, for the header's may change under us. */
typedef struct {
    mq_queue *queue;
    mq_u64 *fill_counts; /* a block each: slots of it that were ever filled, or began to be */
    mq_u64 *slot_states; /* a slot each: whose it is (slot_state.h) */
    mq_queue_slot_header *slot_headers;
    uint8_t *payloads;
    uint64_t max_messages;
    uint64_t max_message_size;
    uint64_t block_count;
    uint64_t stride;
    mq_queue_events_mode events;
} mq_queue_file_parts;

static inline uint64_t mq_queue_round_up_to_cache_line(uint64_t bytes) { return (bytes + 63) & ~(uint64_t)63; }

static inline bool mq_queue_sizes_are_valid(uint64_t max_messages, uint64_t max_message_size) {
    return max_messages - 1 < MQ_QUEUE_MESSAGES_MAX && max_message_size - 1 < MQ_QUEUE_MESSAGE_SIZE_MAX;
}

/* Where the parts begin in the file, and its end. The first part is behind the header. */
typedef struct {
    uint64_t slot_states, slot_headers, payloads, end;
} mq_queue_part_offsets;

static inline uint64_t mq_queue_count_blocks(uint64_t max_messages) {
    return (max_messages + MQ_QUEUE_BLOCK_SLOTS - 1) / MQ_QUEUE_BLOCK_SLOTS;
}

/* Of sizes that make sense. */
static inline mq_queue_part_offsets mq_queue_compute_offsets(uint64_t max_messages, uint64_t max_message_size) {
    uint64_t slot_states =
        sizeof(mq_queue) + mq_queue_round_up_to_cache_line(mq_queue_count_blocks(max_messages) * sizeof(mq_u64));
    uint64_t slot_headers = slot_states + mq_queue_round_up_to_cache_line(max_messages * sizeof(mq_u64));
    uint64_t payloads = slot_headers + max_messages * sizeof(mq_queue_slot_header);
    uint64_t end = payloads + max_messages * mq_queue_round_up_to_cache_line(max_message_size);
    return (mq_queue_part_offsets){
        .slot_states = slot_states, .slot_headers = slot_headers, .payloads = payloads, .end = end};
}

/* Lay out a queue of such sizes, which make sense; returns the bytes of its file. */
static inline uint64_t mq_queue_locate_parts(mq_queue_file_parts *parts, mq_queue *queue, uint64_t max_messages,
                                             uint64_t max_message_size) {
    mq_queue_part_offsets at = mq_queue_compute_offsets(max_messages, max_message_size);
    uint8_t *base = (uint8_t *)queue;
    *parts = (mq_queue_file_parts){.queue = queue,
                                   .fill_counts = (mq_u64 *)(void *)(base + sizeof(mq_queue)),
                                   .slot_states = (mq_u64 *)(void *)(base + at.slot_states),
                                   .slot_headers = (mq_queue_slot_header *)(void *)(base + at.slot_headers),
                                   .payloads = base + at.payloads,
                                   .max_messages = max_messages,
                                   .max_message_size = max_message_size,
                                   .block_count = mq_queue_count_blocks(max_messages),
                                   .stride = mq_queue_round_up_to_cache_line(max_message_size)};
    return at.end;
}

static inline uint64_t mq_queue_compute_file_bytes(uint64_t max_messages, uint64_t max_message_size) {
    return mq_queue_compute_offsets(max_messages, max_message_size).end;
}

/* Fill a new file of zeros, which has no name so far. */
static inline void mq_queue_write_file_header(mq_queue *queue, uint64_t max_messages, uint64_t max_message_size,
                                              uint64_t created_ns, uint64_t pid, const char *creator,
                                              mq_queue_events_mode events) {
    /* relaxed, all: nobody else has it so far */
    mq_store_relaxed_u64(&queue->version, (uint64_t)MQ_QUEUE_MAJOR << 32 | MQ_QUEUE_MINOR);
    mq_store_relaxed_u64(&queue->header_bytes, sizeof(mq_queue));
    mq_store_relaxed_u64(&queue->total_bytes, mq_queue_compute_file_bytes(max_messages, max_message_size));
    mq_store_relaxed_u64(&queue->created_ns, created_ns);
    mq_store_relaxed_u64(&queue->creator_pid, pid);
    mq_store_relaxed_u64(&queue->max_messages, max_messages);
    mq_store_relaxed_u64(&queue->max_message_size, max_message_size);
    mq_store_relaxed_u64(&queue->stride, mq_queue_round_up_to_cache_line(max_message_size));
    mq_store_relaxed_u64(&queue->events, events);
    mq_copy_to_shared(queue->creator, creator, strnlen(creator, MQ_QUEUE_CREATOR_BYTES - 1));
    mq_store_release_u64(&queue->magic, MQ_QUEUE_MAGIC);
}

/* Check a mapped file of so many bytes, and say where its parts are. */
static inline mq_file_check_result mq_queue_check_file(mq_queue *queue, uint64_t bytes, mq_queue_file_parts *parts) {
    if (bytes < sizeof(mq_queue) || mq_load_acquire_u64(&queue->magic) != MQ_QUEUE_MAGIC)
        return MQ_FILE_NOT_OURS;
    if (mq_load_relaxed_u64(&queue->version) >> 32 != MQ_QUEUE_MAJOR) /* relaxed, all: constant since before the name */
        return MQ_FILE_OTHER_VERSION;
    uint64_t messages = mq_load_relaxed_u64(&queue->max_messages), size = mq_load_relaxed_u64(&queue->max_message_size);
    if (!mq_queue_sizes_are_valid(messages, size) || mq_load_relaxed_u64(&queue->header_bytes) != sizeof(mq_queue))
        return MQ_FILE_NOT_OURS;
    if (mq_queue_locate_parts(parts, queue, messages, size) > bytes)
        return MQ_FILE_NOT_OURS;
    uint64_t events = mq_load_relaxed_u64(&queue->events);
    parts->events = events <= MQ_QUEUE_EVENTS_PAYLOAD ? (mq_queue_events_mode)events : MQ_QUEUE_EVENTS_NONE;
    return MQ_FILE_VALID;
}

#endif
