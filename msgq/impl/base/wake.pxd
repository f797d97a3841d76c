from libc.stdint cimport int64_t

from msgq.impl.base.core cimport mq_futex_many

cdef int sleep_on(mq_futex_many *words, unsigned count, int64_t deadline_ns) noexcept nogil
cdef bint can_order_stores()
