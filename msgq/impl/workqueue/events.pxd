from libc.stdint cimport int64_t, uint64_t

from msgq.impl.workqueue.core cimport mq_queue_handle, mq_queue_log, mq_queue_noted
from msgq.impl.workqueue.queuefile cimport QueueFile


cdef class Log:
    """Room for what is noted by one thread at a time, until it is published."""
    cdef mq_queue_log c


cdef class Outlet:
    """Where a handle publishes its events. One thread at a time does; what others tell meanwhile it publishes, too."""
    cdef QueueFile _file
    cdef Log log                # of the handle
    cdef Log watched            # of the watcher's thread, guarded by its mutex
    cdef object _publisher      # of the channel; None: there is none so far, or it could not be had
    cdef uint64_t _most         # bytes that its slots take
    cdef bint _payload          # events of sending have it
    cdef bint _roomy            # the slots are for that
    cdef bint _busy             # somebody is publishing, or opening it
    cdef int64_t _again_ns      # when to try again to open it; CLOCK_MONOTONIC
    cdef object _pending        # told while it was busy: messages, each with its origin
    cdef int restart(self, const mq_queue_handle *h) except -1
    cdef bint is_ready(self, bint sends) noexcept
    cdef int open(self, bint sends) except -1
    cdef bint has_noted(self) noexcept
    cdef void tell_noted(self) noexcept
    cdef void tell(self, const mq_queue_noted *noted, const Py_buffer *payload) noexcept
    cdef void close(self) noexcept
    cdef int _open(self, bint sends) except -1
    cdef int _publish(self, bytes message, uint64_t origin_time) except -1
    cdef int _send(self, bytes message, uint64_t origin_time) except -1
    cdef int _send_pending(self) except -1


cdef Outlet new_outlet(QueueFile file)
