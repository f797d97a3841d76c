from libc.stdint cimport int64_t, uint32_t, uint64_t

from msgq.impl.base.waiting cimport Waitable
from msgq.impl.workqueue.core cimport (
    mq_queue_event_type, mq_queue_handle, mq_queue_poll_state, mq_queue_role, mq_queue_delivery, mq_queue_wait,
)
from msgq.impl.workqueue.events cimport EventPublisher
from msgq.impl.workqueue.queuefile cimport QueueFile


cdef enum:
    NO_WAIT = 0     # as a time to give up


cdef class Wait(Waitable)


cdef class Handle(Waitable):
    """An open queue, and the row of who opened it."""
    cdef QueueFile _file
    cdef mq_queue_handle _h
    cdef mq_queue_poll_state _poll_state  # the watcher's
    cdef uint64_t _uid              # of the row
    cdef void *_held                # its lock
    cdef bint _joined               # has a row
    cdef bint _reads
    cdef bint _writes
    cdef public bint block
    cdef public bint signals_end_waits
    cdef int64_t _next_lease_end_ns     # the next lease that we know of; CLOCK_MONOTONIC
    cdef int _asleep[3]             # threads, by what they sleep for
    cdef object _registration               # notifies of messages that come to the empty queue (notifier.py)
    cdef int _unwoken_messages               # messages sent, for which no receiver was woken so far
    cdef EventPublisher _event_publisher             # of its events; None: the queue has none
    cdef list _waits                # of threads in this handle
    cdef list _threads              # that are in it without the GIL, or waiting
    cdef int _attach(self, QueueFile file, schema) except -1
    cdef int _join(self) except -1
    cdef int _need_read(self) except -1
    cdef int _need_write(self) except -1
    cdef int _reopen_after_fork(self) except -1
    cdef void _add_user(self) noexcept
    cdef void _remove_user(self) noexcept
    cdef void _wake_receivers(self) noexcept
    cdef int _recover(self, int64_t now) except -1
    cdef int _open_events(self, bint sends) except -1
    cdef int _open_events_to_take(self) except -1
    cdef void _publish_events(self) noexcept
    cdef void _publish_delivery_event(self, mq_queue_event_type event_type, const mq_queue_delivery *delivery) noexcept
    cdef int64_t _next_recovery_in_ns(self) except -2
    cdef Wait _new_wait(self, mq_queue_role role, bint takes)
    cdef bint _sleep(self, Wait wait, int64_t give_up_ns) except -1
    cdef int64_t _wait_for_slot(self, int64_t give_up_ns) except -2
    cdef bint _wait_for_message(self, mq_queue_delivery *delivery, int64_t give_up_ns) except -1
    cdef int64_t _give_up_ns(self, timeout, deadline) except -2
    cdef int64_t _claim_slot(self, int64_t give_up_ns) except -2
    cdef int _copy_in(self, uint64_t slot, const void *source, uint64_t size) noexcept
    cdef bint _try_take(self, uint64_t ticket, mq_queue_delivery *delivery) except -1
    cdef bint _take_or_wait(self, mq_queue_delivery *delivery, timeout, deadline) except -1
    cdef bytes _copy_out(self, const mq_queue_delivery *delivery)
    cdef bint _is_truncated(self) noexcept
    cdef uint64_t _oldest_ticket(self, mq_queue_role role) noexcept


cdef class Wait(Waitable):
    """One call's wait in a handle, for a message or for room: one sleep or several."""
    cdef Handle _queue
    cdef mq_queue_wait _c
    cdef void _finish(self) noexcept
