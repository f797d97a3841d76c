/* A chunk of a recording that is being filled: message records as MCAP has them, and an entry beside each that says
 * where it is. All memory belongs to one process, and to one thread at a time. Nothing here touches Python.
 *
 * Little-endian, as MCAP is and the machines that this library runs on are.
 */
#ifndef MQ_LOG_CHUNK_H
#define MQ_LOG_CHUNK_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    MQ_RECORD_HEADER = 31, /* opcode u8, length u64, channel u16, sequence u32, log_time u64, publish_time u64 */
    MQ_RECORD_OPCODE = 5,  /* Message */
};

typedef struct {
    uint64_t log_time, offset; /* offset: of the record in the chunk's buffer */
    uint32_t channel, sequence;
    int64_t origin_time; /* 0: it is not known */
} mq_log_entry;

typedef struct {
    uint8_t *bytes;
    uint64_t room, used;
    uint64_t enough; /* bytes from which on it is full */
    mq_log_entry *entries;
    uint32_t entries_room, entries_used;
} mq_log_chunk;

static inline void mq_put(uint8_t *to, const void *value, size_t n) { memcpy(to, value, n); }

/* Is there room for a message of `size` bytes? Its payload goes to mq_log_chunk_payload. */
static inline bool mq_log_chunk_fits(const mq_log_chunk *chunk, uint64_t size) {
    return chunk->entries_used < chunk->entries_room && size <= chunk->room &&
           chunk->used + MQ_RECORD_HEADER + size <= chunk->room;
}

/* Where the payload of the next record goes. */
static inline uint8_t *mq_log_chunk_payload(const mq_log_chunk *chunk) {
    return chunk->bytes + chunk->used + MQ_RECORD_HEADER;
}

/* Write the header before the payload of `size` bytes that is there, and take both in. */
static inline void mq_log_chunk_take_in(mq_log_chunk *chunk, uint16_t channel, uint32_t sequence, uint64_t log_time,
                                        uint64_t publish_time, int64_t origin_time, uint64_t size) {
    uint8_t *record = chunk->bytes + chunk->used;
    uint64_t length = MQ_RECORD_HEADER - 9 + size;
    record[0] = MQ_RECORD_OPCODE;
    mq_put(record + 1, &length, 8);
    mq_put(record + 9, &channel, 2);
    mq_put(record + 11, &sequence, 4);
    mq_put(record + 15, &log_time, 8);
    mq_put(record + 23, &publish_time, 8);
    chunk->entries[chunk->entries_used++] = (mq_log_entry){log_time, chunk->used, channel, sequence, origin_time};
    chunk->used += MQ_RECORD_HEADER + size;
}

/* Append a message. False: it does not fit. */
static inline bool mq_log_chunk_append(mq_log_chunk *chunk, uint16_t channel, uint32_t sequence, uint64_t log_time,
                                       uint64_t publish_time, int64_t origin_time, const void *data, uint64_t size) {
    if (!mq_log_chunk_fits(chunk, size))
        return false;
    mq_put(mq_log_chunk_payload(chunk), data, size);
    mq_log_chunk_take_in(chunk, channel, sequence, log_time, publish_time, origin_time, size);
    return true;
}

#endif
