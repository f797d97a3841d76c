from msgq.impl.base.core cimport mq_participant, mq_liveness, mq_liveness_file, mq_u64
from msgq.impl.base.segment cimport Segment


cdef class EndpointFile:
    """The file of an endpoint, mapped and open; its lock. Several handles of one process do not share it."""
    cdef readonly str name
    cdef readonly str prefix
    cdef readonly object trust
    cdef readonly int mode      # of the file
    cdef readonly str path
    cdef Segment segment        # None until it is open
    cdef const mq_u64 *not_truncated    # see mq_was_truncated
    cdef int fd                 # by which it is opened anew when it has no name any more

    # Each kind says:
    cdef str _kind_name(self)           # in errors
    cdef size_t _min_bytes(self) noexcept   # bytes that a file of its kind has at least
    cdef int _check_header(self) except -1  # raise if the bytes are not such a file; find its parts
    cdef tuple _directories(self)       # of its prefix
    cdef size_t _new_bytes(self) except 0
    cdef int _init_header(self) except -1   # the bytes of a new one
    cdef int _check_requested(self) except -1   # raise if it is another than was asked for
    cdef int _mark_open(self) except -1         # what follows when it is open

    cdef int open_or_create(self, object create, object mode, bint writable=*) except -1
    cdef bint _try_open_or_create(self, object create, object mode, bint writable, int *tries) except -1
    cdef bint open(self, bint writable) except -1
    cdef bint create(self, object mode) except -1
    cdef int _attach(self, int fd) except -1
    cdef void _close_fd(self) noexcept
    cdef const mq_liveness_file *liveness_file(self) noexcept
    cdef int lock(self) except -2
    cdef int check_truncation(self) except -1
    cdef bint is_linked(self) noexcept
    cdef bint remove_if(self, object condition) except -1
    cdef object missing_error(self)


# Return the participant of a row as a stats.Participant.
cdef object participant_value(const mq_participant *participant, mq_liveness life)
