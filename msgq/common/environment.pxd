"""Settings that each opening of an endpoint reads several times, without Python code."""

cdef bint is_preallocation_enabled() noexcept
cdef bint is_sigbus_handled() except -1
