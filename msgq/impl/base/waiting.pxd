from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from libc.stdint cimport int64_t, uint32_t

from msgq.impl.base.core cimport MQ_NS_PER_MS, mq_poll_ops, mq_now_ns, mq_u32
from msgq.impl.base.process cimport fork_generation


cdef enum:
    FOR_EVER = -1


cdef class Waitable:
    cdef int _use_state
    cdef int _generation
    cdef str _endpoint
    cdef bint _closing          # close() was called while it is in use
    cdef unsigned long _user    # thread that is using it, while BUSY
    cdef int _spin_us
    cdef bint _signals_end      # a signal's handler that ran ends its wait, as system calls have it
    cdef int _fd                # for event loops; -1: nobody has asked for it
    cdef public object _waiting  # see event_loop.py
    cdef object __weakref__

    # Each kind says:
    cdef bint _is_readable(self) noexcept
    cdef uint32_t _prepare_wait(self) noexcept
    cdef mq_u32 *_futex_word(self) noexcept
    cdef int64_t _max_sleep_ns(self, int64_t slept_ns) except -2
    cdef mq_poll_ops _poll_ops(self) noexcept
    cdef int _detach(self) except -1
    # Some kinds say more than this class does:
    cdef int _check_usable(self) except -1
    cdef bint _ready(self) except -1
    cdef bint _begin_poll(self) except -1
    cdef void _interrupt_wait(self) noexcept
    cdef void _end_wait(self) noexcept
    cdef void _acquire(self) noexcept
    cdef void _release(self) noexcept
    cdef void _rearm_watch(self) noexcept
    cdef int _leave(self) except -1
    cdef bint _stamps_of_last(self, int64_t *published, int64_t *origin) noexcept

    # Its own:
    cdef int _end_if_closing(self) except -1
    cdef int _rearm_fd(self) except -1
    cdef void _update_watched(self, void *reader, const void *now, size_t bytes) noexcept


cdef inline int64_t deadline_after(int64_t timeout_ms) noexcept:
    """Return when a time-out is over, in CLOCK_MONOTONIC ns; FOR_EVER when it has no end."""
    return FOR_EVER if timeout_ms < 0 else mq_now_ns() + timeout_ms * MQ_NS_PER_MS
cdef int check_time(timeout, str endpoint) except -1


cdef inline int require_time(timeout, str endpoint) except -1:
    """Refuse a time-out in seconds that is not possible, also when the call will not wait."""
    if timeout is None or PyFloat_CheckExact(timeout) and PyFloat_AS_DOUBLE(timeout) >= 0:
        return 0
    if PyLong_CheckExact(timeout) and timeout >= 0:
        return 0
    return check_time(timeout, endpoint)


cdef bint wait_ready(list waitables, int64_t deadline) except -1

# Between these two the watcher thread looks at nothing.
cdef void watcher_lock() noexcept
cdef void watcher_unlock() noexcept
