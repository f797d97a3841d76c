from libc.stdint cimport int64_t, uint32_t, uint64_t

from msgq.impl.ground.core cimport mq_roll
from msgq.impl.ground.views cimport Holder, Region, View


cdef extern from "leases.h" nogil:
    ctypedef struct mq_leases:
        pass


cdef struct Tenant:
    uint64_t pid
    uint64_t start_time
    int64_t asked_ns
    bint taken


cdef class ServerLeases:
    cdef Region _region
    cdef mq_leases *_table
    cdef mq_roll _roll              # the table's file, whose byte n the client of row n has locked
    cdef str _endpoint
    cdef uint32_t _buffers
    cdef uint32_t _last             # the buffer that was taken last
    cdef uint32_t _published        # frames so far, without 0 when it begins again
    cdef uint32_t _rows             # that were ever taken
    cdef uint32_t _generation[128]  # as it should be in the table: clients may write there
    cdef Tenant _tenants[256]
    cdef readonly uint64_t taken_back
    cdef bint _is_done(self, uint32_t row) noexcept
    cdef bint _is_dead(self, uint32_t row) noexcept
    cdef bint _take_back(self, uint32_t row) noexcept
    cdef int take(self) noexcept
    cdef uint32_t publish(self, uint32_t buffer) noexcept


cdef class ClientLeases(Holder):
    cdef Region _region
    cdef mq_leases *_table
    cdef uint32_t _row
    cdef void *_hold                # the row's lock
    cdef int _fork_generation
    cdef uint32_t _held[128]  # views of each buffer
    cdef bint _take(self, uint32_t buffer, uint32_t generation) except -1


cdef View lease(ClientLeases leases, Region region, size_t size, uint32_t buffer, uint32_t generation)
