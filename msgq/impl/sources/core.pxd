"""Cython declarations of sources."""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from msgq.impl.channel.core cimport mq_channel_message, mq_channel_subscriber
from msgq.impl.base.core cimport mq_u64
from msgq.impl.records.core cimport mq_record_file_parts
from msgq.impl.ring.core cimport mq_ring_subscriber


cdef extern from "sources/message.h" nogil:
    ctypedef enum mq_source_status:
        MQ_SOURCE_UNMAPPED


cdef extern from "sources/channel.h" nogil:
    ctypedef struct mq_channel_source:
        mq_channel_subscriber subscriber
        const mq_u64 *pool_not_truncated[63]
        uint32_t origin_ids[63]
        mq_channel_message at
    bint mq_channel_source_has_pending(const mq_channel_source *c)
    void mq_channel_source_skip_pending(mq_channel_source *c)


cdef extern from "sources/records.h" nogil:
    enum:
        MQ_RECORD_SCAN_ELEMENTS
    ctypedef struct mq_record_source:
        mq_record_file_parts parts
        const mq_u64 *not_truncated
        uint64_t *seen_write_counts
        uint64_t elements_left
        const int64_t *virtual_ns
    bint mq_record_source_has_scanned_since(const mq_record_source *r, int64_t since_ns)
    void mq_record_source_follow_writes(mq_record_source *r)


cdef extern from "sources/polled.h" nogil:
    ctypedef struct mq_polled_source:
        const uint8_t *payloads
        const uint64_t *payload_ends
        const int64_t *publish_times
        uint64_t count, next, taken
    bint mq_polled_source_has_pending(const mq_polled_source *p)


cdef extern from "sources/source.h" nogil:
    ctypedef enum mq_source_kind:
        MQ_SOURCE_RING
        MQ_SOURCE_CHANNEL
        MQ_SOURCE_RECORDS
        MQ_SOURCE_POLLED
    ctypedef struct mq_source:
        mq_source_kind kind
        mq_ring_subscriber *ring_subscriber
        mq_channel_source *channel_source
        mq_polled_source *polled_source
        mq_record_source *record_source
        uint64_t schema_seq_seen, write_uid_seen
    bint mq_source_schema_is_seen(const mq_source *source)
    uint64_t mq_source_load_schema_seq(const mq_source *source)
    uint64_t mq_source_count_unseen(const mq_source *source)
    bint mq_source_lost_is_known(const mq_source *source)
    bint mq_ring_source_has_seen_schema(const mq_source *source, uint64_t position)
    bint mq_ring_source_note_schema(mq_source *source, uint64_t seq, uint64_t position)
