from libc.stdint cimport uint64_t

cdef object new_message(bytes data, uint64_t priority, uint64_t deliveries, uint64_t sent_time, uint64_t origin_time)
