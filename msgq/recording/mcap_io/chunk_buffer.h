/* A chunk of a recording while it is filled: message records in MCAP's format, and one entry with the location of each
 * record. One process owns all memory, and one thread at a time uses the chunk. No function here calls Python.
 *
 * Numbers are little-endian, like MCAP and the supported machines.
 */
#ifndef MQ_LOG_CHUNK_H
#define MQ_LOG_CHUNK_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "mcap_io/tally.h"

enum {
    /* opcode u8, length u64, channel u16, sequence u32, log_time u64, publish_time u64 */
    MQ_LOG_MESSAGE_HEADER_BYTES = 31,
    MQ_LOG_MESSAGE_OPCODE = 5,      /* Message */
    MQ_LOG_INDEX_HEADER_BYTES = 15, /* opcode u8, length u64, channel u16, bytes of the entries u32 */
    MQ_LOG_INDEX_OPCODE = 7,        /* MessageIndex */
    MQ_LOG_INDEX_ENTRY_BYTES = 16,  /* log_time u64, offset u64 */
    MQ_LOG_CHANNEL_ID_COUNT = 1 << 16,
};

typedef struct {
    uint64_t log_time, offset; /* offset: position of the record in the chunk's buffer */
    uint32_t channel, sequence;
    int64_t origin_time; /* 0: unknown */
} mq_log_chunk_entry;

typedef struct {
    uint8_t *buffer;
    uint64_t capacity_bytes, used_bytes;
    uint64_t target_bytes;          /* number of bytes at which the chunk counts as full */
    uint64_t first_time, last_time; /* smallest and largest log_time; 0 without messages */
    bool has_origins;               /* a message has an origin_time */
    mq_log_chunk_entry *entries;
    uint32_t entry_capacity, entry_count;
} mq_log_chunk;

/* A message in other memory that will be appended. */
typedef struct {
    int64_t log_time, publish_time, origin_time;
    int64_t offset, length; /* offset and length of the payload */
    uint32_t sequence;
    uint16_t channel;
    uint16_t content_index; /* index of the buffer with the payload */
} mq_log_message_row;

typedef struct {
    const uint8_t *bytes;
    int64_t size;
} mq_log_payload_buffer;

/* If `n` is 0, `value` may be NULL. */
static inline void mq_log_write_bytes(uint8_t *to, const void *value, size_t n) {
    if (n)
        memcpy(to, value, n);
}

/* True if a message of `size` bytes fits into the chunk. Copy the payload of the message to
 * mq_log_chunk_next_payload. */
static inline bool mq_log_chunk_has_room(const mq_log_chunk *chunk, uint64_t size) {
    return chunk->entry_count < chunk->entry_capacity && size <= chunk->capacity_bytes &&
           chunk->used_bytes + MQ_LOG_MESSAGE_HEADER_BYTES + size <= chunk->capacity_bytes;
}

/* Return the address of the next record's payload. */
static inline uint8_t *mq_log_chunk_next_payload(const mq_log_chunk *chunk) {
    return chunk->buffer + chunk->used_bytes + MQ_LOG_MESSAGE_HEADER_BYTES;
}

static inline void mq_log_chunk_extend_times(mq_log_chunk *chunk, bool is_first, uint64_t log_time) {
    if (is_first || log_time < chunk->first_time)
        chunk->first_time = log_time;
    if (is_first || log_time > chunk->last_time)
        chunk->last_time = log_time;
}

/* Write the header for a payload of `size` bytes, and append the record. The caller extends the times of the chunk. */
static inline void mq_log_chunk_commit_message(mq_log_chunk *chunk, uint16_t channel, uint32_t sequence,
                                               uint64_t log_time, uint64_t publish_time, int64_t origin_time,
                                               uint64_t size) {
    uint8_t *record = chunk->buffer + chunk->used_bytes;
    uint64_t length = MQ_LOG_MESSAGE_HEADER_BYTES - 9 + size;
    record[0] = MQ_LOG_MESSAGE_OPCODE;
    mq_log_write_bytes(record + 1, &length, 8);
    mq_log_write_bytes(record + 9, &channel, 2);
    mq_log_write_bytes(record + 11, &sequence, 4);
    mq_log_write_bytes(record + 15, &log_time, 8);
    mq_log_write_bytes(record + 23, &publish_time, 8);
    chunk->has_origins |= origin_time != 0;
    chunk->entries[chunk->entry_count++] =
        (mq_log_chunk_entry){log_time, chunk->used_bytes, channel, sequence, origin_time};
    chunk->used_bytes += MQ_LOG_MESSAGE_HEADER_BYTES + size;
}

/* Append a message. Return false if the message does not fit. */
static inline bool mq_log_chunk_append_message(mq_log_chunk *chunk, uint16_t channel, uint32_t sequence,
                                               uint64_t log_time, uint64_t publish_time, int64_t origin_time,
                                               const void *data, uint64_t size) {
    if (!mq_log_chunk_has_room(chunk, size))
        return false;
    mq_log_write_bytes(mq_log_chunk_next_payload(chunk), data, size);
    mq_log_chunk_commit_message(chunk, channel, sequence, log_time, publish_time, origin_time, size);
    mq_log_chunk_extend_times(chunk, chunk->entry_count == 1, log_time);
    return true;
}

/* Set the log time of the messages from entry `first` on. A publish time of 0 is unknown, and also becomes the log
 * time. */
static inline void mq_log_chunk_set_log_time(mq_log_chunk *chunk, uint32_t first, uint64_t log_time) {
    for (uint32_t i = first; i < chunk->entry_count; i++) {
        uint8_t *record = chunk->buffer + chunk->entries[i].offset;
        uint64_t publish_time;
        memcpy(&publish_time, record + 23, 8);
        chunk->entries[i].log_time = log_time;
        mq_log_write_bytes(record + 15, &log_time, 8);
        if (publish_time == 0)
            mq_log_write_bytes(record + 23, &log_time, 8);
    }
    if (first < chunk->entry_count)
        mq_log_chunk_extend_times(chunk, first == 0, log_time);
}

/* Append messages, starting at row `from`, until the chunk is full or the next message does not fit. Returns the row
 * after the last appended message. Returns -1 if the next message is not within its buffer. */
static inline int64_t mq_log_chunk_append_rows(mq_log_chunk *chunk, const mq_log_message_row *rows, int64_t from,
                                               int64_t count, const mq_log_payload_buffer *contents,
                                               int64_t content_count) {
    for (; from < count && chunk->used_bytes < chunk->target_bytes; from++) {
        const mq_log_message_row *row = &rows[from];
        if (row->content_index >= content_count || row->length < 0 || row->offset < 0)
            return -1;
        const mq_log_payload_buffer *content = &contents[row->content_index];
        if (row->length > content->size || row->offset > content->size - row->length)
            return -1;
        if (!mq_log_chunk_append_message(chunk, row->channel, row->sequence, (uint64_t)row->log_time,
                                         (uint64_t)row->publish_time, row->origin_time, content->bytes + row->offset,
                                         (uint64_t)row->length))
            break;
    }
    return from;
}

static inline void mq_log_chunk_clear(mq_log_chunk *chunk) {
    chunk->used_bytes = chunk->first_time = chunk->last_time = 0;
    chunk->entry_count = 0;
    chunk->has_origins = false;
}

/* Count the messages of each channel in `counts`. The caller passes `counts` with a zero for each possible channel
 * id. Returns the largest channel id of a message + 1. */
static inline uint32_t mq_log_chunk_count_by_channel(const mq_log_chunk *chunk, uint32_t *counts) {
    uint32_t behind = 0;
    for (uint32_t i = 0; i < chunk->entry_count; i++) {
        const uint32_t channel = chunk->entries[i].channel;
        counts[channel]++;
        if (channel >= behind)
            behind = channel + 1;
    }
    return behind;
}

/* Write the header of a channel's index, before its entries. Returns the address of the first entry. */
static inline uint8_t *mq_log_index_write_header(uint8_t *to, uint16_t channel, uint32_t count) {
    const uint32_t bytes = count * MQ_LOG_INDEX_ENTRY_BYTES;
    const uint64_t length = 6 + (uint64_t)bytes;
    to[0] = MQ_LOG_INDEX_OPCODE;
    mq_log_write_bytes(to + 1, &length, 8);
    mq_log_write_bytes(to + 9, &channel, 2);
    mq_log_write_bytes(to + 11, &bytes, 4);
    return to + MQ_LOG_INDEX_HEADER_BYTES;
}

/* Write the index entry of each message to the address in `places` for the message's channel, and advance the
 * address. `shift` is the number of bytes before the first message. */
static inline void mq_log_chunk_write_index(const mq_log_chunk *chunk, uint64_t shift, uint8_t **places) {
    for (uint32_t i = 0; i < chunk->entry_count; i++) {
        const mq_log_chunk_entry *entry = &chunk->entries[i];
        const uint64_t offset = entry->offset + shift;
        uint8_t *to = places[entry->channel];
        mq_log_write_bytes(to, &entry->log_time, 8);
        mq_log_write_bytes(to + 8, &offset, 8);
        places[entry->channel] = to + MQ_LOG_INDEX_ENTRY_BYTES;
    }
}

/* Count the messages of a chunk in the tallies of their channels. numberings[channel] is the channel whose tally
 * counts the losses. Both arrays have an element for each possible channel id. */
static inline void mq_log_chunk_update_tallies(const mq_log_chunk *chunk, mq_channel_tally *tallies,
                                               const uint16_t *numberings) {
    for (uint32_t i = 0; i < chunk->entry_count; i++) {
        const mq_log_chunk_entry *entry = &chunk->entries[i];
        const uint64_t end = i + 1 < chunk->entry_count ? entry[1].offset : chunk->used_bytes;
        mq_tally_add_message(&tallies[entry->channel], &tallies[numberings[entry->channel]], (int64_t)entry->log_time,
                             entry->sequence, (int64_t)(end - entry->offset - MQ_LOG_MESSAGE_HEADER_BYTES));
    }
}

#endif
