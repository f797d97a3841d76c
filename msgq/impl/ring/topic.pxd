from libc.stdint cimport uint32_t

from msgq.impl.base.segment cimport Segment
from msgq.impl.ring.core cimport mq_canary


cdef class TopicFiles:
    """An endpoint's two files. Locked from open_topic until unlock, so that comers and goers are one at a time."""
    cdef readonly str endpoint
    cdef readonly Segment ring
    cdef readonly Segment side      # None: passive, and there is none
    cdef uint32_t data_bytes
    cdef mq_canary canary             # tells whether the ring is still all there
    cdef int lock_fd
    cdef void unlock(self)


cdef struct LastRing:
    const void *header              # of the ring on which this process sent last; perhaps unmapped since. Only a hint


cdef LastRing last_ring

cdef TopicFiles open_topic(str endpoint, str in_prefix, object segment_size, object mode)
cdef TopicFiles map_topic(str endpoint, str in_prefix)
cdef int wait_for_side(TopicFiles topic, str in_prefix) except -1
cdef Segment find_side(str endpoint, str in_prefix, Segment ring)

# When the ring turns out to be another one than was mapped.
cdef TopicFiles remap_grown_topic(str endpoint, Segment former, Segment side, bint writable)
cdef object size_changed_error(str endpoint, Segment ring, Segment side)
cdef int check_topic_truncation(TopicFiles topic) except -1
