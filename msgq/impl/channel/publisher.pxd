from libc.stdint cimport int64_t, uint8_t, uint64_t

from msgq.impl.channel.channelfile cimport ChannelFile
from msgq.impl.channel.publisher_pool cimport PublisherPool


cdef class Publisher:
    cdef int _ticket, _generation
    cdef unsigned long _waiter  # the thread that waits for a slot; 0: none
    cdef bint _closing          # `close` was called during that wait, which closes it
    cdef readonly str endpoint
    cdef readonly str name      # of the node
    cdef ChannelFile _file
    cdef PublisherPool _pool
    cdef object _slots          # asked for; None: as fits
    cdef uint64_t _max_bytes
    cdef uint64_t _sent, _bytes, _refused, _evicted  # from pools that were outgrown
    cdef object __weakref__
    cdef int _rejoin_or_raise(self) except -1
    cdef int _rejoin(self) except -1
    cdef int _check_not_inherited(self) except -1
    cdef int _switch_pool(self, PublisherPool pool) except -1
    cdef Py_ssize_t _send_batch(self, const Py_buffer *view, uint64_t origin_time) except -1
    cdef bint _publish_batch(self, const uint8_t *rows, uint64_t size, uint64_t count, uint64_t origin_time,
                             uint64_t *done) except -1
    cdef object _send(self, object data, object timeout, uint64_t origin_time)
    cdef object _send_bytes(self, const void *data, uint64_t size, object timeout, uint64_t origin_time)
    cdef object _publish(self, PublisherPool pool, uint64_t slot, uint64_t size, uint64_t origin_time)
    cdef int _grow(self, uint64_t size) except -1
    cdef int _take_slot(self, object timeout) except -1
    cdef int _await_slot(self, object timeout) except -2
    cdef bint _end_waiting(self, PublisherPool pool, int slot) except -1
    cdef int _interrupt_wait(self) except -1
    cdef object _exhausted_error(self)


cdef class Loan:
    cdef Publisher _publisher
    cdef PublisherPool _pool
    cdef int _slot              # -1: it is not ours any more
    cdef uint64_t _size
    cdef int _generation
    cdef Py_ssize_t _exports    # buffers that look into it
    cdef bint _over
    cdef readonly object position
    cdef public uint64_t origin_time
    cdef int _check(self) except -1
