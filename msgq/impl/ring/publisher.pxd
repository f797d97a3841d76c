from libc.stdint cimport int64_t, uint64_t, uint8_t

from msgq.impl.base.segment cimport Segment
from msgq.impl.ring.core cimport mq_stamps
from msgq.impl.ring.pub_connection cimport PubConnection


cdef class PubSocket(PubConnection):
    cdef int _handle_status(self, int status, uint64_t size) except -1
    cdef int _populate_ring(self) except -1
    cdef object _too_large(self, object size)
    cdef int _fill_stamps(self, mq_stamps *stamps, int64_t origin_time) except -1
    cdef int _check_origin(self, int64_t origin_time) except -1
    cdef int _send_any(self, object data, int64_t origin_time) except -1
    cdef int _send_bytes(self, const void *data, uint64_t size, int64_t origin_time) except -1
    cdef int _send_buffer(self, object data, int64_t origin_time) except -1
    cdef Py_ssize_t _send_batch(self, object messages, int64_t origin_time) except -1
    cdef Py_ssize_t _send_array(self, object array, int64_t origin_time) except -1
    cdef int _stage(self, const void *data, uint64_t size, int64_t origin_time) except -1
    cdef int _stage_batch(self, const uint8_t *rows, uint64_t size, uint64_t count) except -1
    cdef int _begin_large(self, const void *data, uint64_t size, uint8_t **payload) except -1
    cdef int _finish(self, uint8_t *payload, uint64_t size, int64_t origin_time) except -1
    cdef int _flush(self) except -1
    cdef int _check_empty(self) except -1


cdef class Reservation:
    cdef PubSocket _socket
    cdef Segment _ring          # keeps the memory mapped for as long as a view of it lives
    cdef uint8_t *_payload
    cdef uint64_t _size
    cdef int _generation        # of the process that entered it
    cdef int64_t _origin_time
    cdef object _view
