from libc.stdint cimport int64_t, uint64_t

from msgq.impl.workqueue.core cimport mq_queue_handle, mq_queue_event_buffer, mq_queue_event_record
from msgq.impl.workqueue.queuefile cimport QueueFile


cdef class EventBuffer:
    """Room for what is noted by one thread at a time, until it is published."""
    cdef mq_queue_event_buffer c


cdef class EventPublisher:
    """Where a handle publishes its events. One thread at a time does; what others tell meanwhile it publishes, too."""
    cdef QueueFile _file
    cdef EventBuffer buffer                # of the handle
    cdef EventBuffer watcher_buffer            # of the watcher's thread, guarded by its mutex
    cdef object _publisher      # of the channel; None: there is none so far, or it could not be had
    cdef uint64_t _slot_bytes         # bytes that its slots take
    cdef bint _payload          # events of sending have it
    cdef bint _has_payload_slots            # the slots are for that
    cdef bint _busy             # somebody is publishing, or opening it
    cdef int64_t _retry_ns      # when to try again to open it; CLOCK_MONOTONIC
    cdef object _deferred        # told while it was busy: messages, each with its origin
    cdef int restart(self, const mq_queue_handle *h) except -1
    cdef bint is_ready(self, bint sends) noexcept
    cdef int open(self, bint sends) except -1
    cdef bint has_buffered(self) noexcept
    cdef void publish_buffered(self) noexcept
    cdef void publish(self, const mq_queue_event_record *record, const Py_buffer *payload) noexcept
    cdef void close(self) noexcept
    cdef int _open(self, bint sends) except -1
    cdef int _publish_or_defer(self, bytes message, uint64_t origin_time) except -1
    cdef int _send(self, bytes message, uint64_t origin_time) except -1
    cdef int _send_deferred(self) except -1


cdef EventPublisher new_event_publisher(QueueFile file)
