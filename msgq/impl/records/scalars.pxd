from libc.stdint cimport uint8_t

cdef int learn_scalars() except -1
cdef object scalar_dtype(value)
cdef const uint8_t *scalar_bytes(value) noexcept
