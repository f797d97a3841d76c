from libc.stdint cimport uint8_t


cdef class Region:
    """Mapped memory; unmapped when the last reference goes."""
    cdef uint8_t *address
    cdef readonly size_t size
    cdef void *guard            # for memory that its server makes smaller
    cdef int _check(self, size_t offset, size_t size) except -1


cdef class View:
    """A part of a region as a buffer."""
    cdef Region _region
    cdef uint8_t *_start
    cdef Py_ssize_t _size
    cdef bint _readonly
    cdef int show(self, Region region, size_t size, bint writable) except -1
