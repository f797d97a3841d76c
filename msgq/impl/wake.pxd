from msgq.impl.core cimport int64_t, mq_futex_many

cdef int sleep_on(mq_futex_many *words, unsigned count, int64_t deadline_ns) noexcept nogil
cdef bint can_order_stores()
