from msgq.impl.ring.connection cimport SubConnection
from libc.stdint cimport int64_t, uint64_t, uint8_t

from msgq.impl.ring.core cimport mq_ring_message


cdef class SubSocket(SubConnection):
    cdef int _skip_torn(self) except -1
    cdef int _handle_corruption(self) except -1
    cdef bint _pass_gate_once(self) except -1
    cdef list _receive_gated(self, uint64_t most, bint wait_for_one, dtype)
    cdef object _receive_element(self, dtype, bint non_blocking)
    cdef bytes take_message(self, bint non_blocking)
    cdef bytes _receive(self, bint non_blocking)
    cdef int _wait_for_message(self, mq_ring_message *message, bint non_blocking) except -1
    cdef bytes _copy_large(self, const mq_ring_message *message)
    cdef uint64_t _batch_limit(self, max_messages) except? 0
    cdef object _receive_pending_array(self, numpy, dtype, uint64_t size, uint64_t most)
    cdef int64_t _copy_batches(self, uint8_t *out, uint64_t size, int64_t most) except -1
    cdef int _check_size(self, uint64_t size) except -1
