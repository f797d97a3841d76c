from libc.stdint cimport int64_t, uint64_t

from msgq.impl.base.segment cimport Segment
from msgq.impl.ring.core cimport mq_ring_publisher
from msgq.impl.ring.topic cimport TopicFiles


cdef class PubConnection:
    cdef int _ticket
    cdef int _generation
    cdef str _endpoint
    cdef str _prefix
    cdef tuple _options  # of `connect`, for a forked child
    cdef Segment _ring
    cdef Segment _side
    cdef mq_ring_publisher _publisher
    cdef int64_t _clock_offset_ns  # of the host's clock
    cdef public bint _for_bridge  # see bridge.py
    cdef object __weakref__
    cdef int _open(self, int ticket, int generation) except -1
    cdef int _take_over_in_child(self) except -1
    cdef int _start(self, TopicFiles topic, tracked) except -1
    cdef int _wait_for_previous_send(self, uint64_t uid) except -1
    cdef int _recover_use(self) except -1
    cdef int _check_truncation(self) except -1
