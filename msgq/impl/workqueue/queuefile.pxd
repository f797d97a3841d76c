from msgq.impl.ground.core cimport mq_roll, mq_u64
from msgq.impl.ground.segment cimport Segment
from msgq.impl.workqueue.core cimport mq_queue_parts


cdef class QueueFile:
    """A queue's file, mapped and open; its lock. Several handles of one process do not share it."""
    cdef readonly str name
    cdef readonly str prefix
    cdef readonly object trust
    cdef readonly int mode      # of the file
    cdef Segment segment
    cdef mq_queue_parts parts
    cdef const mq_u64 *whole    # NULL: nobody tells whether others cut the file
    cdef int fd                 # by which it is opened anew when it has no name any more
    cdef const mq_roll *roll(self) noexcept
    cdef int lock(self) except -2
    cdef int check_whole(self) except -1
    cdef bint has_name(self) noexcept

cdef QueueFile find_queue(str name, str in_prefix, object trust, bint writable)
cdef QueueFile make_queue(str name, str in_prefix, object mode, object trust, max_messages, max_message_size)
