from msgq.impl.base.core cimport mq_identity, mq_liveness, mq_liveness_file, mq_u64
from msgq.impl.base.segment cimport Segment


cdef class EndpointFile:
    """A piece's file, mapped and open; its lock. Several handles of one process do not share it."""
    cdef readonly str name
    cdef readonly str prefix
    cdef readonly object trust
    cdef readonly int mode      # of the file
    cdef readonly str path
    cdef Segment segment        # None until it is open
    cdef const mq_u64 *whole    # NULL: nobody tells whether others cut the file
    cdef int fd                 # by which it is opened anew when it has no name any more

    # Each kind says:
    cdef str _noun(self)                # what it is, in errors
    cdef size_t _least(self) noexcept   # bytes that a file of its kind has at least
    cdef int _check(self) except -1     # are the bytes such a piece? Where its parts are
    cdef tuple _directories(self)       # of its prefix
    cdef size_t _new_bytes(self) except 0
    cdef int _fill(self) except -1      # the bytes of a new one
    cdef int _agree(self) except -1     # raise if it is another than was asked for

    cdef int obtain(self, object create, object mode) except -1
    cdef bint open(self, bint writable) except -1
    cdef bint make(self, object mode) except -1
    cdef int _adopt(self, int fd) except -1
    cdef const mq_liveness_file *roll(self) noexcept
    cdef int lock(self) except -2
    cdef int check_whole(self) except -1
    cdef bint has_name(self) noexcept
    cdef bint remove_if(self, object wanted) except -1
    cdef object missing(self)


# Return who is in a row, as a figures.Participant.
cdef object participant(const mq_identity *who, mq_liveness life)
