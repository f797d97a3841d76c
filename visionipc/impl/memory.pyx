# cython: language_level=3, freethreading_compatible=False, embedsignature=True, embedsignature.format=python
"""Memory of descriptors, mapped for as long as somebody looks at it."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno
from libc.stdint cimport uint64_t
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

import os

from msgq.impl.segment cimport guard_lost, guard_mapping, unguard_mapping

from msgq.errors import EndpointClosedError, SegmentError


cdef extern from "atomics.h" nogil:
    void mq_copy_out(void *to, const void *shared, size_t n)


cdef class Region:
    """See memory.pyi."""

    def __init__(self, int fd, size_t size, bint writable, str endpoint):
        cdef int protection = PROT_READ | (PROT_WRITE if writable else 0)
        cdef void *address
        if self.address != NULL:
            raise SegmentError("is mapped already", endpoint)
        address = mmap(NULL, size, protection, MAP_SHARED, fd, 0)
        if address == MAP_FAILED:
            text = f"cannot map the {size} bytes of a buffer: {os.strerror(errno)}"
            raise SegmentError(text, endpoint, errno=errno)
        self.address = <uint8_t *> address
        self.size = size
        self.guard = guard_mapping(address, size, protection)

    def __dealloc__(self):
        if self.address != NULL:
            unguard_mapping(self.guard)
            munmap(self.address, self.size)

    def read_u64(self, size_t offset):
        cdef uint64_t value
        self._check(offset, 8)
        mq_copy_out(&value, self.address + offset, 8)
        return value

    @property
    def lost(self):
        return guard_lost(self.guard)

    cdef int _check(self, size_t offset, size_t size) except -1:
        if self.address == NULL or offset > self.size or size > self.size - offset:
            raise EndpointClosedError("the region is not mapped so far")
        return 0


cdef class View:
    """See memory.pyi."""

    def __init__(self, Region region not None, size_t size, bint writable):
        self.show(region, size, writable)

    cdef int show(self, Region region, size_t size, bint writable) except -1:
        if size > region.size:
            raise SegmentError(f"a view of {size} bytes into a region of {region.size}")
        self._region = region
        self._start = region.address
        self._size = size
        self._readonly = not writable
        return 0

    def __len__(self):
        return self._size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self._start, self._size, self._readonly, flags)
