from libc.stdint cimport uint64_t

from msgq.impl.channel.core cimport mq_channel_publisher
from msgq.impl.channel.hub cimport Hub
from msgq.impl.channel.pool cimport Pool


cdef class OwnPool:
    """A row of the hub and its pool, from which this process publishes."""
    cdef Hub hub
    cdef Pool pool
    cdef mq_channel_publisher c
    cdef void *hold             # the row's lock; NULL: it has left, or locks are not to be had
    cdef bint open
    cdef bint superseded        # its publisher has another one; it ends with its last loan
    cdef int generation
    cdef uint64_t lent          # slots of loans
    cdef void _leave_row(self) noexcept
    cdef int leave(self, bint sweeps) except -1
    cdef int returned(self, bint sweeps) except -1
    cdef int drop(self, uint64_t slot, bint sweeps) except -1

cdef OwnPool enter_channel(Hub hub, str node, slots, slot_bytes, uint64_t max_bytes, bint newcomer)
