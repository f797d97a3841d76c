/* Layout of a work queue. docs/internals/queue-protocol.md describes the same bytes, and tests/meta compares the
 * two. */
#ifndef MQ_WORKQUEUE_LAYOUT_H
#define MQ_WORKQUEUE_LAYOUT_H

#include "base/process_info.h"

enum {
    MQ_QUEUE_MAJOR = 1, /* major version of the layout. This code cannot read other major versions */
    MQ_QUEUE_MINOR = 1, /* minor version. Readers may ignore the additions of later minor versions */
    MQ_QUEUE_CREATOR_BYTES = 64,
    MQ_QUEUE_ROWS = 128,           /* maximum number of open handles */
    MQ_QUEUE_ROW_BYTE = 0,         /* byte of the file that the owner of the first row locks (liveness_lock.h) */
    MQ_QUEUE_BLOCK_SLOTS = 64,     /* slots in one block that a receiver caches */
    MQ_QUEUE_MESSAGES_MAX = 65536, /* maximum messages; a scan of more words takes much longer than a system call */
    MQ_QUEUE_MESSAGE_SIZE_MAX = 1073741824, /* maximum bytes of a message */
    MQ_QUEUE_PRIORITY_MAX = 32767,
};

#define MQ_QUEUE_MAGIC 0x3153424f4a515347ull /* "GSQJOBS1" read as little-endian */

/* Counters of a handle. */
typedef struct {
    mq_u64 sent;
    mq_u64 received; /* messages received or taken */
    mq_u64 acknowledged;
    mq_u64 returned; /* messages that this handle returned to the queue, including messages of other handles */
    mq_u64 refused;  /* sends that found the queue full */
} mq_queue_handle_counts;

/* Events that handles of the queue publish. The process that creates the queue selects the mode. */
typedef enum {
    MQ_QUEUE_EVENTS_NONE,    /* invalid values of `events` count as MQ_QUEUE_EVENTS_NONE */
    MQ_QUEUE_EVENTS_HEADS,   /* one event for each change of a message */
    MQ_QUEUE_EVENTS_PAYLOAD, /* as MQ_QUEUE_EVENTS_HEADS; the event of a send also has the payload */
} mq_queue_events_mode;

/* The role of a sleeping handle: what the handle waits for. */
typedef enum {
    MQ_QUEUE_RECEIVER, /* a receiver waits for a message to take */
    MQ_QUEUE_WATCHER,  /* a watcher waits for a message, and does not take the message */
    MQ_QUEUE_SENDER,   /* a sender waits for a free slot */
    MQ_QUEUE_ROLES,
} mq_queue_role;

/* One open handle. Processes write the first two cache lines under the lock. The owner writes the third cache line.
 * The owner and its wakers write the last cache line. */
typedef struct {
    mq_versioned_row at;
    mq_queue_handle_counts counts_before; /* `counts` when this owner joined; a new owner continues the counts */
    mq_u64 pad[2];
    /* number of messages taken or delayed by owners of this row. A TAKEN or DELAYED word holds the low half */
    mq_u64 take_count;
    mq_queue_handle_counts counts;
    /* Pending notifications: not 0 while the owner has made a change and not yet sent the notification. If the owner
     * dies, another process sends the notification (recovery.h). notify_debt[0] is for sends. notify_debt[1] counts
     * all other changes. */
    mq_u64 notify_debt[2];
    mq_u32 eventcounts[MQ_QUEUE_ROLES]; /* futex words of this handle's sleepers (eventcount.h, several writers) */
    mq_u32 pad1[1];
    mq_u64 events_lost;                   /* events that could not be published; a new owner continues the count */
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
    mq_u64 version;      /* major version << 32 | minor version */
    mq_u64 header_bytes; /* offset of `fill_counts` in bytes */
    mq_u64 total_bytes;
    mq_u64 created_ns; /* creation time in nanoseconds of the host's clock */
    mq_u64 creator_pid;
    mq_u64 max_messages;
    mq_u64 max_message_size;
    char creator[MQ_QUEUE_CREATOR_BYTES]; /* name of the process, padded with NUL bytes */
    mq_u64 stride;                        /* bytes from the start of one payload to the next */
    mq_u64 events;                        /* mq_queue_events_mode */
    mq_u64 pad0[14];
    mq_u64 ready_count; /* number of times that a message became READY, or was sent with a delay */
    mq_u64 pad1[7];
    /* rows that may sleep. The eventcount of a row shows whether the row sleeps */
    mq_queue_row_bits sleeping_rows[MQ_QUEUE_ROLES];
    mq_queue_row_bits notify_requested; /* rows that request a notification when a message arrives in an empty queue */
    mq_u32 notify_seq; /* futex word of notifications: number of messages that arrived in an empty queue */
    mq_u32 pad2[15];
    mq_u64 last_ticket; /* last ticket that a call drew */
    mq_u64 pad3[7];
    mq_u64 handoff_ticket[MQ_QUEUE_ROLES]; /* for each role: calls with larger tickets yield to this ticket. 0: none */
    mq_u64 delay_count;                    /* number of times that a message became DELAYED */
    mq_u64 reserved[444];
    mq_queue_row rows[MQ_QUEUE_ROWS];
    mq_schema schema;
    char schema_data[20480 - sizeof(mq_schema)];
} mq_queue;
_Static_assert(offsetof(mq_queue, ready_count) == 256, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue, sleeping_rows) == 320, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue, notify_seq) == 384, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue, last_ticket) == 448, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue, handoff_ticket) == 512, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue, delay_count) == 536, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue, rows) == 4096, "bump MQ_QUEUE_MAJOR");
_Static_assert(offsetof(mq_queue, schema) == 36864, "bump MQ_QUEUE_MAJOR");
_Static_assert(sizeof(mq_queue) == 57344, "bump MQ_QUEUE_MAJOR");

#define MQ_QUEUE_SCHEMA_DATA_BYTES (sizeof(((mq_queue *)0)->schema_data))

/* Header of the slot with the same index. The header describes the slot's message. The slot's owner writes the
 * header. The slot's word names the owner. */
typedef struct {
    mq_u64 key;    /* READY word of this message, also after the message returns to the queue */
    mq_u64 length; /* bytes */
    mq_u64 deliveries;
    mq_u64 sent_time;   /* send time in nanoseconds of the host's clock */
    mq_u64 origin_time; /* origin time in nanoseconds of the host's clock; 0: unknown */
    mq_u64 lease;       /* lease or due time of the message (slot_state.h). 0: none */
    mq_u64 taken_by;    /* on queues with events: the TAKEN word that taken_time belongs to */
    mq_u64 taken_time;  /* on queues with events: time of the take, in nanoseconds of the host's clock */
} mq_queue_slot_header;
_Static_assert(sizeof(mq_queue_slot_header) == 64, "bump MQ_QUEUE_MAJOR");

/* Addresses and sizes of a mapped queue. The values are a checked copy, because another program may change the
 * header. */
typedef struct {
    mq_queue *queue;
    mq_u64 *fill_counts; /* for each block: number of times that a sender began to fill a slot of the block */
    mq_u64 *slot_states; /* for each slot: state and owner (slot_state.h) */
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

/* Offsets of the file's parts, and the end of the last part. The first part follows the header. */
typedef struct {
    uint64_t slot_states, slot_headers, payloads, end;
} mq_queue_part_offsets;

static inline uint64_t mq_queue_count_blocks(uint64_t max_messages) {
    return (max_messages + MQ_QUEUE_BLOCK_SLOTS - 1) / MQ_QUEUE_BLOCK_SLOTS;
}

/* Compute the offsets of the file's parts. The sizes must be valid. */
static inline mq_queue_part_offsets mq_queue_compute_offsets(uint64_t max_messages, uint64_t max_message_size) {
    uint64_t slot_states =
        sizeof(mq_queue) + mq_queue_round_up_to_cache_line(mq_queue_count_blocks(max_messages) * sizeof(mq_u64));
    uint64_t slot_headers = slot_states + mq_queue_round_up_to_cache_line(max_messages * sizeof(mq_u64));
    uint64_t payloads = slot_headers + max_messages * sizeof(mq_queue_slot_header);
    uint64_t end = payloads + max_messages * mq_queue_round_up_to_cache_line(max_message_size);
    return (mq_queue_part_offsets){
        .slot_states = slot_states, .slot_headers = slot_headers, .payloads = payloads, .end = end};
}

/* Compute the addresses of the queue's parts. The sizes must be valid. Returns the size of the file in bytes. */
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

/* Store the sizes of the queue, and the process that chose them. A new file has no other user yet. Otherwise the caller
 * holds the lock of the file and has allocated all of it, and max_messages is 0. */
static inline void mq_queue_store_sizes(mq_queue *queue, uint64_t max_messages, uint64_t max_message_size,
                                        const mq_process_identity *creator) {
    char padded[MQ_QUEUE_CREATOR_BYTES] = "";
    memcpy(padded, creator->name, sizeof creator->name);
    /* relaxed, all: released with max_messages */
    mq_store_relaxed_u64(&queue->total_bytes, mq_queue_compute_file_bytes(max_messages, max_message_size));
    mq_store_relaxed_u64(&queue->creator_pid, creator->pid);
    mq_store_relaxed_u64(&queue->max_message_size, max_message_size);
    mq_store_relaxed_u64(&queue->stride, mq_queue_round_up_to_cache_line(max_message_size));
    mq_copy_to_shared(queue->creator, padded, sizeof padded);
    /* last, with release: a process that loads max_messages with acquire sees a complete file and all other sizes */
    mq_store_release_u64(&queue->max_messages, max_messages);
}

/* True if the queue has slots. Until then, its file ends with the header, and the queue never had a message. */
static inline bool mq_queue_has_sizes(const mq_queue *queue) { return mq_load_acquire_u64(&queue->max_messages) != 0; }

/* Initialize the header in a new file of zeros that has no name yet. Sizes of 0: a later process chooses the sizes. */
static inline void mq_queue_write_file_header(mq_queue *queue, uint64_t max_messages, uint64_t max_message_size,
                                              uint64_t created_ns, const mq_process_identity *creator,
                                              mq_queue_events_mode events) {
    /* relaxed, all: no other process has the file yet */
    mq_store_relaxed_u64(&queue->version, (uint64_t)MQ_QUEUE_MAJOR << 32 | MQ_QUEUE_MINOR);
    mq_store_relaxed_u64(&queue->header_bytes, sizeof(mq_queue));
    mq_store_relaxed_u64(&queue->created_ns, created_ns);
    mq_store_relaxed_u64(&queue->events, events);
    mq_queue_store_sizes(queue, max_messages, max_message_size, creator);
    mq_store_release_u64(&queue->magic, MQ_QUEUE_MAGIC);
}

/* Check a mapped file of `bytes` bytes, and compute the addresses of its parts. The parts have no slots if the sizes are
 * not chosen, or were chosen after the file was mapped. */
static inline mq_file_check_result mq_queue_check_header(mq_queue *queue, uint64_t bytes, mq_queue_file_parts *parts) {
    if (bytes < sizeof(mq_queue) || mq_load_acquire_u64(&queue->magic) != MQ_QUEUE_MAGIC)
        return MQ_FILE_NOT_OURS;
    if (mq_load_relaxed_u64(&queue->version) >> 32 != MQ_QUEUE_MAJOR) /* relaxed, all: constant since before the name */
        return MQ_FILE_OTHER_VERSION;
    /* acquire: the other sizes are those of mq_queue_store_sizes */
    uint64_t messages = bytes == sizeof(mq_queue) ? 0 : mq_load_acquire_u64(&queue->max_messages);
    uint64_t size = messages ? mq_load_relaxed_u64(&queue->max_message_size) : 0;
    if ((messages && !mq_queue_sizes_are_valid(messages, size)) ||
        mq_load_relaxed_u64(&queue->header_bytes) != sizeof(mq_queue))
        return MQ_FILE_NOT_OURS;
    if (mq_queue_locate_parts(parts, queue, messages, size) > bytes)
        return MQ_FILE_NOT_OURS;
    uint64_t events = mq_load_relaxed_u64(&queue->events);
    parts->events = events <= MQ_QUEUE_EVENTS_PAYLOAD ? (mq_queue_events_mode)events : MQ_QUEUE_EVENTS_NONE;
    return MQ_FILE_VALID;
}

#endif
