# cython: language_level=3
"""What other modules of a recording see of a chunk: the C struct, to fill it without the GIL."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "format/chunk.h" nogil:
    enum:
        MQ_RECORD_HEADER
    ctypedef struct mq_log_entry:
        uint64_t log_time
        uint64_t offset
        uint32_t channel
    ctypedef struct mq_log_chunk:
        uint8_t *bytes
        uint64_t room
        uint64_t used
        uint64_t enough
        mq_log_entry *entries
        uint32_t entries_room
        uint32_t entries_used
    bint mq_log_chunk_append(mq_log_chunk *chunk, uint16_t channel, uint32_t sequence, uint64_t log_time,
                             uint64_t publish_time, int64_t origin_time, const void *data, uint64_t size)


cdef class Chunk:
    cdef mq_log_chunk _chunk
