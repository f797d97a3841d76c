from libc.stdint cimport int64_t, uint64_t

from msgq.impl.workqueue.core cimport mq_queue_delivery
from msgq.impl.workqueue.handle cimport Handle


cdef class MessageQueue(Handle):
    cdef bint _send(self, const Py_buffer *view, uint64_t rank, uint64_t origin, int64_t give_up_ns) except -1
    cdef void _publish_sent_event(self, const Py_buffer *view, uint64_t key, uint64_t slot, int64_t sent_time,
                                  uint64_t origin) noexcept
    cdef void _publish_refused_event(self, const Py_buffer *view, uint64_t rank, uint64_t origin) noexcept
    cdef object _peek(self, uint64_t slot, uint64_t word)
    cdef void _put_back_untouched(self, mq_queue_delivery delivery) noexcept
    cdef void _lease(self, const mq_queue_delivery *delivery, int64_t give_up_ns) noexcept
    cdef int _set_notify_bit(self, bint requested) except -1
