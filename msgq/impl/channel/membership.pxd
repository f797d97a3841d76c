from libc.stdint cimport uint64_t

from msgq.impl.channel.core cimport mq_listener_row
from msgq.impl.channel.hub cimport Hub
from msgq.impl.channel.pool cimport Pool
from msgq.impl.base.views cimport Holder


cdef class Membership:
    """The rows of a subscriber; they stay until its last view is let go."""
    cdef Hub hub
    cdef mq_listener_row *row   # NULL: it is not listed
    cdef int viewer             # its bit in pins; -1: it takes no views so far
    cdef uint64_t held          # views
    cdef void *listed           # locks: of the row, or with others of MQ_OPEN_BYTE
    cdef void *views
    cdef uint64_t listed_uid, view_uid
    cdef int generation
    cdef bint closed
    cdef int join(self, str node) except -1
    cdef int become_viewer(self) except -1
    cdef void change_held(self, int by) noexcept
    cdef void leave(self) noexcept


cdef class MappedPool(Holder):
    """A pool as a subscriber has it mapped, which its views hold parts of."""
    cdef Membership member
    cdef Pool pool
    cdef object publisher       # who it is, a PublisherInfo
