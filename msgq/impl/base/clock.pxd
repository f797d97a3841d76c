from libc.stdint cimport int64_t, uint64_t

from msgq.impl.base.core cimport Bus

# Nanoseconds since the epoch, by the clock that all processes of the host share. See clock.pyi.
cdef int64_t host_offset_ns() except? -1
cdef int64_t host_time_ns() except? -1
cdef int64_t bus_time_ns(Bus bus) except? -1  # virtual time of a bus; None: host_time_ns()
cdef int64_t host_time_of(int64_t time_ns, int clock_id) except? -1
cdef int log_problem(str level, str what, str trouble) except -1

# Origin of the messages that this thread publishes. See clock.pyi.
cdef int64_t current_origin() noexcept nogil                 # 0: no origin is set
cdef void change_origin(int64_t origin) noexcept nogil
cdef int64_t new_origin(int64_t now_ns) except? -1  # the origin is unique on this host for this user
cdef int refuse_foreign_origin(uint64_t origin_time, str endpoint) except -1
cdef int prepare_origins() except -1  # afterwards, new_origin runs no Python code
