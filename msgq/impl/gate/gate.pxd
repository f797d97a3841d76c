from libc.stdint cimport int64_t

from msgq.impl.gate.core cimport mq_gate
from msgq.impl.base.segment cimport Segment


cdef class SocketEventHandle:
    cdef readonly str endpoint
    cdef readonly str identifier
    cdef str _path
    cdef Segment _segment       # None: nobody manages the endpoint
    cdef mq_gate *_gate
    cdef int _fifos[2]          # open descriptors, or -1
    cdef bint _owner
    cdef void *_liveness_token            # the owner's life
    cdef int _generation
    cdef object __weakref__
    cdef int _map(self, Segment segment) except -1
    cdef int _check(self) except -1
    cdef int _check_truncation(self) except -1
    cdef int _check_owner(self) except -1
    cdef int _set(self, int which) except -1
    cdef bint _clear(self, int which) except -1
    cdef int _tell(self, int which) except -1
    cdef int _descriptor(self, int which) except -2
    cdef int _open_fifo(self, int which, bint fresh) except -1
    cdef int _make_fifo(self, int which) except -1


cdef class Event:
    cdef SocketEventHandle _handle
    cdef int _which


cdef class Gate:
    cdef str _endpoint
    cdef str _identifier
    cdef str _path
    cdef SocketEventHandle _handle  # None: nobody manages the endpoint, as of the last look
    cdef list _ready                # its recv_ready_event
    cdef bint _called               # recv_called was set for the receive that is on its way
    cdef int _generation            # of the process that set it
    cdef const bint *_cancelled     # of the receive that is on its way
    cdef bint enter(self, const bint *cancelled) except -1
    cdef bint _is_enabled(self) except -1
    cdef bint _holds(self) noexcept
    cdef int _look(self) except -1
    cdef void wake(self) noexcept
