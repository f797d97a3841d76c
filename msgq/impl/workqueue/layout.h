/* Layout of a work queue. docs/internals/queue-protocol.md describes the same bytes, and tests/meta compares the
 * two. */
#ifndef MQ_WORKQUEUE_LAYOUT_H
#define MQ_WORKQUEUE_LAYOUT_H

#include "base/layout.h"

enum {
    MQ_QUEUE_MAJOR = 1, /* major version of the layout: other versions are unreadable */
    MQ_QUEUE_MINOR = 0, /* minor version: readers may ignore later additions */
    MQ_QUEUE_CREATOR_BYTES = 64,
    MQ_QUEUE_ROWS = 128,           /* maximum number of open handles */
    MQ_QUEUE_ROW_BYTE = 0,         /* byte of the file that the first row's owner locks (liveness_lock.h) */
    MQ_QUEUE_BLOCK_SLOTS = 64,     /* slots in one cached block of a receiver */
    MQ_QUEUE_MESSAGES_MAX = 65536, /* with more messages, a scan of all words takes much longer than a system call */
    MQ_QUEUE_MESSAGE_SIZE_MAX = 1073741824, /* maximum bytes of a message */
    MQ_QUEUE_PRIORITY_MAX = 32767,
};

#define MQ_QUEUE_MAGIC 0x3153424f4a515347ull /* "GSQJOBS1" read as little-endian */

/* Counters of a handle. */
typedef struct {
    mq_u64 sent;
    mq_u64 received; /* received or taken */
    mq_u64 acknowledged;
    mq_u64 returned; /* messages returned to the queue, its own and other handles' */
    mq_u64 refused;  /* messages that found the queue full */
} mq_queue_handle_counts;

/* Events that handles of the queue publish. The process that creates the queue selects the mode. */
typedef enum {
    MQ_QUEUE_EVENTS_NONE,    /* also for invalid values of the word */
    MQ_QUEUE_EVENTS_HEADS,   /* one event for each change of a message */
    MQ_QUEUE_EVENTS_PAYLOAD, /* the same, and the event of a send has the payload */
} mq_queue_events_mode;

/* Condition for which a handle sleeps. */
typedef enum {
    MQ_QUEUE_RECEIVER, /* a message to take */
    MQ_QUEUE_WATCHER,  /* a message, without taking it */
    MQ_QUEUE_SENDER,   /* a free slot */
    MQ_QUEUE_ROLES,
} mq_queue_role;

/* One open handle. The first two cache lines are written under the lock. The owner writes the third. The owner and its
 * wakers write the last. */
typedef struct {
    mq_versioned_row at;
    mq_queue_handle_counts counts_before; /* counts at the join of this owner, because counts continue over owners */
    mq_u64 pad[2];
    mq_u64 take_count; /* messages taken by this row. TAKEN words hold its low half */
    mq_queue_handle_counts counts;
    /* Pending notifications: not 0 while the owner has made a change and not yet notified. If the owner dies, another
     * process sends the notification (recovery.h). The first is for sends. The second counts all other changes. */
    mq_u64 notify_debt[2];
    mq_u32 eventcounts[MQ_QUEUE_ROLES]; /* eventcount.h, several writers: futex words of this handle's sleepers */
    mq_u32 pad1[1];
    mq_u64 events_lost;                   /* events that could not be published; continues over owners */
    mq_u64 oldest_ticket[MQ_QUEUE_ROLES]; /* smallest ticket of the row's calls, for each role (handoff.h) */
    mq_u64 pad2[2];
} mq_queue_row;
_Static_assert(sizeof(mq_queue_row) == 256, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue_row, eventcounts) == 192, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue_row, events_lost) == 208, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue_row, oldest_ticket) == 216, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue_row, take_count) == 128, "bump MQ_QUEUE_MAJOR");

/* One bit for each row. */
typedef struct {
    mq_u64 word[MQ_QUEUE_ROWS / 64];
} mq_queue_row_bits;

typedef struct {
    mq_u64 magic;        /* written last */
    mq_u64 version;      /* major << 32 | minor */
    mq_u64 header_bytes; /* offset of `fill_counts` */
    mq_u64 total_bytes;
    mq_u64 created_ns; /* nanoseconds by the host's clock */
    mq_u64 creator_pid;
    mq_u64 max_messages;
    mq_u64 max_message_size;
    char creator[MQ_QUEUE_CREATOR_BYTES]; /* name of the process, padded with NUL bytes */
    mq_u64 stride;                        /* bytes from one payload to the next */
    mq_u64 events;                        /* mq_queue_events_mode */
    mq_u64 pad0[14];
    mq_u64 ready_count; /* number of messages that ever became READY */
    mq_u64 pad1[7];
    mq_queue_row_bits sleeping_rows[MQ_QUEUE_ROLES]; /* rows that may sleep, as their eventcounts show */
    mq_queue_row_bits notify_requested; /* rows that request a notification when a message arrives in an empty queue */
    mq_u32 notify_seq; /* counts messages that arrived in an empty queue: the futex word of notifications */
    mq_u32 pad2[15];
    mq_u64 last_ticket; /* last ticket that was drawn */
    mq_u64 pad3[7];
    mq_u64 handoff_ticket[MQ_QUEUE_ROLES]; /* for each role, the ticket to which larger tickets yield; 0: none */
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

/* Describes the message in the slot with the same index. Written by the slot's owner, which the word names. */
typedef struct {
    mq_u64 key;    /* READY word of this message, also after its return to the queue */
    mq_u64 length; /* bytes */
    mq_u64 deliveries;
    mq_u64 sent_time;   /* nanoseconds by the host's clock */
    mq_u64 origin_time; /* the same; 0: unknown */
    mq_u64 lease;       /* see slot_state.h; 0: none */
    mq_u64 taken_by;    /* with events only: the TAKEN word to which taken_time belongs */
    mq_u64 taken_time;  /* with events only: nanoseconds by the host's clock */
} mq_queue_slot_header;
_Static_assert(sizeof(mq_queue_slot_header) == 64, "bump MQ_QUEUE_MAJOR");

/* Addresses and sizes of a mapped queue. A checked copy, because another program may change the header. */
typedef struct {
    mq_queue *queue;
    mq_u64 *fill_counts; /* for each block, how often a sender has begun to fill one of its slots */
    mq_u64 *slot_states; /* for each slot, its state and owner (slot_state.h) */
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

/* Offsets of the parts in the file, and its end. The first part follows the header. */
typedef struct {
    uint64_t slot_states, slot_headers, payloads, end;
} mq_queue_part_offsets;

static inline uint64_t mq_queue_count_blocks(uint64_t max_messages) {
    return (max_messages + MQ_QUEUE_BLOCK_SLOTS - 1) / MQ_QUEUE_BLOCK_SLOTS;
}

/* The sizes must be valid. */
static inline mq_queue_part_offsets mq_queue_compute_offsets(uint64_t max_messages, uint64_t max_message_size) {
    uint64_t slot_states =
        sizeof(mq_queue) + mq_queue_round_up_to_cache_line(mq_queue_count_blocks(max_messages) * sizeof(mq_u64));
    uint64_t slot_headers = slot_states + mq_queue_round_up_to_cache_line(max_messages * sizeof(mq_u64));
    uint64_t payloads = slot_headers + max_messages * sizeof(mq_queue_slot_header);
    uint64_t end = payloads + max_messages * mq_queue_round_up_to_cache_line(max_message_size);
    return (mq_queue_part_offsets){
        .slot_states = slot_states, .slot_headers = slot_headers, .payloads = payloads, .end = end};
}

/* Compute the addresses of a queue with these valid sizes. Returns the bytes of its file. */
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

/* Initialize a new file of zeros that has no name yet. */
static inline void mq_queue_write_file_header(mq_queue *queue, uint64_t max_messages, uint64_t max_message_size,
                                              uint64_t created_ns, uint64_t pid, const char *creator,
                                              mq_queue_events_mode events) {
    /* relaxed, all: no other process has the file yet */
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

/* Check a mapped file of `bytes` bytes, and compute the addresses of its parts. */
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
