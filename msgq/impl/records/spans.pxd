from libc.stdint cimport int64_t

from msgq.impl.base.waiting cimport Waitable


cdef class SpanStack:
    cdef str _name
    cdef object _now            # None: the host's clock
    cdef Span _newest          # that is open; each has the one before it
    cdef long _thread  # whose they are
    cdef int64_t _outer         # its origin without them
    cdef int64_t _leftover_origin          # what another thread, which ended the last one, could not take from it
    cdef int64_t _time(self) except? -1
    cdef int _check(self) except -1
    cdef int _begin(self, Span span, int64_t origin) except -1
    cdef int _end(self, Span span) except -1


cdef class Span:
    cdef SpanStack _stack
    cdef object _send
    cdef Waitable _reader
    cdef Span _before          # that is open as well
    cdef bint _is_open
    cdef public bint superseded
    cdef int64_t _published, _given_origin   # of the next message, as `with_stamps` said
    cdef int64_t _sent, _origin, _received  # of that which is handled
    cdef int begin(self) except -1
    cdef int end(self) except -1


cdef class Spans:
    cdef object _receive, _choose_take, _timeout, _stamps
    cdef Span _span
