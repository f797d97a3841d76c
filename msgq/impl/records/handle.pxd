from libc.stdint cimport int64_t, uint32_t, uint64_t

from msgq.impl.base.core cimport mq_poll_ops, mq_u32
from msgq.impl.base.waiting cimport Waitable
from msgq.impl.records.core cimport mq_record_parts, mq_record_writer, mq_vector_poll_state
from msgq.impl.records.recordfile cimport RecordFile


cdef enum:
    READ_LIMIT_NS = 1000000000  # how long a reader tries, while others write faster than it reads


cdef class Handle(Waitable):
    """An open vector or board, and the row of who writes with it."""
    cdef RecordFile _file
    cdef mq_record_writer _w
    cdef mq_record_parts _view       # of those elements that are meant
    cdef mq_vector_poll_state _poll_state  # the watcher's
    cdef uint64_t *_seen_counts             # how often each element was written when `changes` told of it last
    cdef uint64_t _uid               # of the row
    cdef void *_row_token                 # its lock
    cdef bint _passive
    cdef int64_t _clock_offset       # of the host's clock to CLOCK_MONOTONIC
    cdef list _threads               # that are in it without the GIL, or waiting
    cdef bint _in_changes               # a thread is in `changes`
    cdef bint _writing               # of an exclusive vector: a thread writes without Python's lock
    cdef int _adopt(self, RecordFile file) except -1
    cdef int _ensure_row(self) except -1
    cdef int _register_writer(self) except -1
    cdef int _claim_exclusive(self) except -1
    cdef void _begin(self) noexcept
    cdef void _end(self) noexcept
    cdef object _owner_name(self, uint64_t who)
    cdef int _begin_changes(self) except -1
    cdef void _end_changes(self, const uint64_t *counts, const int64_t *indices, uint64_t count) noexcept


cdef uint32_t prepare_wait(mq_u32 *attention, bint passive) noexcept
cdef mq_poll_ops make_poll_ops(mq_poll_ops reader, bint passive) noexcept
cdef bint wait_for(Waitable waitable, RecordFile file, timeout) except -1

# Whether a wait goes by the clock, and how long it naps; as all that reads.
cdef int64_t nap_ns(bint passive, int64_t slept_ns) noexcept
