from libc.stdint cimport int64_t

from msgq.impl.workqueue.core cimport mq_queue_taken
from msgq.impl.workqueue.handle cimport Handle


cdef class MessageQueue(Handle):
    cdef void _put_back_untouched(self, mq_queue_taken taken) noexcept
    cdef void _lease(self, const mq_queue_taken *taken, int64_t until) noexcept
