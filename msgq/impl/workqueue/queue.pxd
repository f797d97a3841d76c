from libc.stdint cimport int64_t, uint64_t

from msgq.impl.workqueue.core cimport mq_queue_taken
from msgq.impl.workqueue.handle cimport Handle


cdef class MessageQueue(Handle):
    cdef bint _send(self, const Py_buffer *view, uint64_t rank, uint64_t origin, int64_t until) except -1
    cdef void _tell_sent(self, const Py_buffer *view, uint64_t key, uint64_t place, int64_t sent_time,
                         uint64_t origin) noexcept
    cdef void _tell_refused(self, const Py_buffer *view, uint64_t rank, uint64_t origin) noexcept
    cdef object _peek(self, uint64_t place, uint64_t word)
    cdef void _put_back_untouched(self, mq_queue_taken taken) noexcept
    cdef void _lease(self, const mq_queue_taken *taken, int64_t until) noexcept
    cdef int _wish(self, bint told) except -1
