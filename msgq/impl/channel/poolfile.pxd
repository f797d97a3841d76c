from libc.stdint cimport uint64_t

from msgq.impl.channel.core cimport mq_pool_map
from msgq.impl.channel.channelfile cimport ChannelFile
from msgq.impl.base.core cimport mq_u64
from msgq.impl.base.segment cimport Segment


cdef class PoolFile:
    """A publisher's pool, mapped."""
    cdef Segment segment
    cdef const mq_u64 *whole
    cdef mq_pool_map slots
    cdef readonly str node      # name of the publisher's node
    cdef readonly uint64_t pid
    cdef int check_whole(self, str name) except -1
    cdef int fd                 # of a new one that has no name yet

cdef PoolFile open_pool(ChannelFile file, uint64_t uid, bint writable)
cdef PoolFile make_pool(ChannelFile file, uint64_t slots, uint64_t slot_bytes, uint64_t pid, str node)
cdef int name_pool(ChannelFile file, PoolFile pool) except -1
