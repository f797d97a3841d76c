"""Reading and writing of chunks: the C declarations, and the chunk that the recorder fills without the GIL."""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t, uint8_t


cdef extern from "mcap_io/chunk_buffer.h" nogil:
    enum:
        MQ_LOG_MESSAGE_HEADER_BYTES
        MQ_LOG_INDEX_HEADER_BYTES
        MQ_LOG_INDEX_ENTRY_BYTES
        MQ_LOG_CHANNEL_ID_COUNT
    ctypedef struct mq_log_chunk_entry:
        uint64_t log_time
        uint64_t offset
        uint32_t channel
    ctypedef struct mq_log_chunk:
        uint8_t *buffer
        uint64_t capacity_bytes
        uint64_t used_bytes
        uint64_t target_bytes
        uint64_t first_time
        uint64_t last_time
        bint has_origins
        mq_log_chunk_entry *entries
        uint32_t entry_capacity
        uint32_t entry_count
    ctypedef struct mq_log_message_row:
        pass
    ctypedef struct mq_log_payload_buffer:
        const uint8_t *bytes
        int64_t size
    ctypedef struct mq_channel_tally:
        pass
    bint mq_log_chunk_append_message(mq_log_chunk *chunk, uint16_t channel, uint32_t sequence, uint64_t log_time,
                                     uint64_t publish_time, int64_t origin_time, const void *data, uint64_t size)
    int64_t mq_log_chunk_append_rows(mq_log_chunk *chunk, const mq_log_message_row *rows, int64_t start, int64_t count,
                                     const mq_log_payload_buffer *contents, int64_t content_count)
    void mq_log_chunk_clear(mq_log_chunk *chunk)
    uint32_t mq_log_chunk_count_by_channel(const mq_log_chunk *chunk, uint32_t *counts)
    uint8_t *mq_log_index_write_header(uint8_t *to, uint16_t channel, uint32_t count)
    void mq_log_chunk_write_index(const mq_log_chunk *chunk, uint64_t shift, uint8_t **places)
    void mq_log_chunk_update_tallies(const mq_log_chunk *chunk, mq_channel_tally *tallies, const uint16_t *numberings)


cdef class ChunkBuffer:
    cdef mq_log_chunk _chunk
    cdef dict _message_counts
    cdef uint32_t _counted_messages
