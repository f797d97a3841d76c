from libc.stdint cimport uint64_t

from msgq.impl.channel.core cimport mq_channel_subscriber_row
from msgq.impl.channel.channelfile cimport ChannelFile
from msgq.impl.channel.poolfile cimport PoolFile
from msgq.impl.base.views cimport Holder


cdef class SubscriberRows:
    """The rows of a subscriber; they stay until its last view is let go."""
    cdef ChannelFile file
    cdef mq_channel_subscriber_row *row   # NULL: it is not listed
    cdef int viewer             # its bit in pins; -1: it takes no views so far
    cdef uint64_t views_held          # views
    cdef void *row_token           # locks: of the row, or with others of MQ_CHANNEL_OPEN_BYTE
    cdef void *viewer_token
    cdef uint64_t row_uid, viewer_uid
    cdef int generation
    cdef bint closed
    cdef int join(self, str node) except -1
    cdef int become_viewer(self) except -1
    cdef void change_views_held(self, int by) noexcept
    cdef void leave(self) noexcept


cdef class MappedPool(Holder):
    """A pool as a subscriber has it mapped, which its views hold parts of."""
    cdef SubscriberRows rows
    cdef PoolFile pool_file
    cdef object publisher       # who it is, a PublisherInfo
