from libc.stdint cimport int64_t

from msgq.impl.base.waiting cimport Waitable


cdef class Desk:
    cdef str _name
    cdef object _now            # None: the host's clock
    cdef Round _newest          # that is open; each has the one before it
    cdef long _thread  # whose they are
    cdef int64_t _outer         # its origin without them
    cdef int64_t _left          # what another thread, which ended the last one, could not take from it
    cdef int64_t _time(self) except? -1
    cdef int _check(self) except -1
    cdef int _begin(self, Round this, int64_t origin) except -1
    cdef int _end(self, Round this) except -1


cdef class Round:
    cdef Desk _desk
    cdef object _send
    cdef Waitable _reader
    cdef Round _before          # that is open as well
    cdef bint _is_open
    cdef public bint untold
    cdef int64_t _published, _told_origin   # of the next message, as `of` said
    cdef int64_t _sent, _origin, _received  # of that which is handled
    cdef int begin(self) except -1
    cdef int end(self) except -1


cdef class Rounds:
    cdef object _take, _later, _timeout, _stamps
    cdef Round _round
