from libc.stdint cimport uint64_t

from msgq.impl.channel.core cimport mq_channel_config, mq_channel_header, mq_load_relaxed_u64
from msgq.impl.base.core cimport mq_liveness_file, mq_u64
from msgq.impl.base.segment cimport Segment


cdef class ChannelFile:
    """A channel's file, mapped; and where its pools are."""
    cdef readonly str name
    cdef readonly str prefix
    cdef readonly bint writable
    cdef Segment segment
    cdef mq_channel_header *header
    cdef const mq_u64 *whole    # NULL: nobody tells whether others cut the file
    cdef readonly object trust
    cdef int mode               # of its files
    cdef void *hold             # that it is open here (MQ_CHANNEL_OPEN_BYTE); NULL: no trace, or closed
    cdef int generation         # whose hold that is
    cdef uint64_t own_pools[63]       # the pools that were made through this object, by row
    cdef const mq_liveness_file *roll(self) noexcept
    cdef int lock(self, bint patient=*) except -2
    cdef int check_whole(self) except -1
    cdef int _mark_open(self) except -1
    cdef void _let_go(self) noexcept
    cdef int _configure_locked(self, capacity, publishers, subscribers, stamps, bint publishes) except -1
    cdef mq_channel_config _merge_config(self, mq_channel_config before, capacity, publishers, subscribers, stamps,
                                         bint publishes) except *
    cdef uint64_t _merge_value(self, str setting, uint64_t current, asked, uint64_t default) except? 0

cdef inline bint is_whole(const mq_u64 *whole) noexcept:
    """False: others cut the mapped file. Inline, for each message asks; check_whole says more."""
    return whole == NULL or mq_load_relaxed_u64(whole) == 1

cdef int remove_dead_pools(ChannelFile file, int max_kept=*) except -1
