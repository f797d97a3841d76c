"""Settings that each opening of an endpoint reads several times, without Python code."""

cdef const char *file_group() noexcept      # MSGQ_GROUP
cdef const char *trusted_users() noexcept   # MSGQ_TRUST
cdef bint is_preallocation_enabled() noexcept
cdef bint is_sigbus_handled() except -1
