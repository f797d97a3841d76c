"""The environment of this process."""

from libc.stdlib cimport getenv
from libc.string cimport strcmp

from msgq.errors import InvalidValueError


cdef str read_variable(const char *name):
    # C's getenv, which os.environ keeps up to date, is 20 times faster than os.environ; each connect asks for several.
    cdef const char *value = getenv(name)
    return None if value == NULL else (<bytes> value).decode(errors="surrogateescape")


def environment(str name):
    return read_variable(name.encode())


cdef const char *file_group() noexcept:
    return getenv("MSGQ_GROUP")


cdef const char *trusted_users() noexcept:
    return getenv("MSGQ_TRUST")


cdef bint is_preallocation_enabled() noexcept:
    """Return True if whole files are allocated and mapped at once (MSGQ_PREALLOC)."""
    return getenv("MSGQ_PREALLOC") != NULL


cdef bint is_sigbus_handled() except -1:
    """Return True if a truncated ring causes an error instead of the signal SIGBUS (MSGQ_SIGBUS)."""
    cdef const char *value = getenv("MSGQ_SIGBUS")
    if value == NULL or value[0] == 0 or strcmp(value, "1") == 0:
        return True
    if strcmp(value, "0") != 0:
        raise InvalidValueError(f"MSGQ_SIGBUS is {read_variable('MSGQ_SIGBUS')!r}; give 1, or 0 for no signal handler")
    return False
