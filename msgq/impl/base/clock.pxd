from libc.stdint cimport int64_t

# Nanoseconds since the epoch, by the clock that all processes of the host share. See clock.pyi.
cdef int64_t host_offset_ns() except? -1
cdef int64_t host_time_ns() except? -1
cdef int log_problem(str level, str what, str trouble) except -1
