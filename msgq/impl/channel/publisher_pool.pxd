from libc.stdint cimport uint64_t

from msgq.impl.channel.core cimport mq_channel_publisher
from msgq.impl.channel.channelfile cimport ChannelFile
from msgq.impl.channel.poolfile cimport PoolFile


cdef class PublisherPool:
    """A row of the file and its pool, from which this process publishes."""
    cdef ChannelFile channel_file
    cdef PoolFile pool_file
    cdef mq_channel_publisher c
    cdef void *hold             # the row's lock; NULL: it has left, or locks are not to be had
    cdef bint open
    cdef bint superseded        # its publisher has another one; it ends with its last loan
    cdef int generation
    cdef uint64_t open_loans          # slots of loans
    cdef void _leave_row(self) noexcept
    cdef int leave(self, bint removes_pool) except -1
    cdef int end_loan(self, bint removes_pool) except -1
    cdef int cancel_loan(self, uint64_t slot, bint removes_pool) except -1

cdef PublisherPool register_publisher(ChannelFile file, str node, slots, slot_bytes, uint64_t max_bytes, bint newcomer)
