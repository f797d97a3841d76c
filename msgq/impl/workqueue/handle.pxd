from libc.stdint cimport int64_t, uint32_t, uint64_t

from msgq.impl.base.waiting cimport Waitable
from msgq.impl.workqueue.core cimport (
    mq_queue_event_kind, mq_queue_handle, mq_queue_poll_state, mq_queue_sleep, mq_queue_taken, mq_queue_wait,
)
from msgq.impl.workqueue.events cimport Outlet
from msgq.impl.workqueue.queuefile cimport QueueFile


cdef enum:
    NO_WAIT = 0     # as a time to give up


cdef class Wait(Waitable)


cdef class Handle(Waitable):
    """An open queue, and the row of who opened it."""
    cdef QueueFile _file
    cdef mq_queue_handle _h
    cdef mq_queue_poll_state _outlook  # the watcher's
    cdef uint64_t _uid              # of the row
    cdef void *_held                # its lock
    cdef bint _joined               # has a row
    cdef bint _reads
    cdef bint _writes
    cdef public bint block
    cdef public bint signals_end_waits
    cdef int64_t _lease_ends_ns     # the next lease that we know of; CLOCK_MONOTONIC
    cdef int _asleep[3]             # threads, by what they sleep for
    cdef object _told               # who is told of messages that come to the empty queue (notify.py)
    cdef int _unwoken               # messages that were sent, and nobody was woken for
    cdef Outlet _outlet             # of its events; None: the queue has none
    cdef list _waits                # of threads in this handle
    cdef list _threads              # that are in it without the GIL, or waiting
    cdef int _adopt(self, QueueFile file, schema) except -1
    cdef int _join(self) except -1
    cdef int _need_read(self) except -1
    cdef int _need_write(self) except -1
    cdef int _refuse(self) except -1
    cdef void _begin(self) noexcept
    cdef void _end(self) noexcept
    cdef void _wake(self) noexcept
    cdef int _sweep(self, int64_t now) except -1
    cdef int _prepare(self, bint sends) except -1
    cdef int _prepare_to_take(self) except -1
    cdef void _tell(self) noexcept
    cdef void _tell_taken(self, mq_queue_event_kind kind, const mq_queue_taken *taken) noexcept
    cdef int64_t _doze_ns(self) except -2
    cdef Wait _new_wait(self, mq_queue_sleep kind, bint takes)
    cdef bint _sleep(self, Wait wait, int64_t until) except -1
    cdef int64_t _await_room(self, int64_t until) except -2
    cdef bint _await_message(self, mq_queue_taken *taken, int64_t until) except -1
    cdef int64_t _until(self, timeout, deadline) except -2
    cdef int64_t _find_room(self, int64_t until) except -2
    cdef int _fill(self, uint64_t place, const void *source, uint64_t size) noexcept
    cdef bint _look(self, uint64_t ticket, mq_queue_taken *taken) except -1
    cdef bint _find(self, mq_queue_taken *taken, timeout, deadline) except -1
    cdef bytes _copy(self, const mq_queue_taken *taken)
    cdef bint _is_cut(self) noexcept
    cdef uint64_t _oldest(self, mq_queue_sleep kind) noexcept


cdef class Wait(Waitable):
    """One call's wait in a handle, for a message or for room: one sleep or several."""
    cdef Handle _queue
    cdef mq_queue_wait _c
    cdef void _end(self) noexcept
