from libc.stdint cimport uint8_t, uint64_t


cdef class Region:
    """Mapped memory; unmapped when the last reference goes."""
    cdef uint8_t *address
    cdef readonly size_t size
    cdef void *guard            # for memory that its server makes smaller
    cdef int _check(self, size_t offset, size_t size) except -1


cdef class View:
    """A part of a region, or of other memory, as a buffer."""
    cdef object _owner          # keeps it mapped
    cdef uint8_t *_start
    cdef Py_ssize_t _size
    cdef bint _readonly
    cdef int show(self, Region region, size_t size, bint writable) except -1
    cdef int show_part(self, object owner, uint8_t *start, size_t size, bint writable) except -1


cdef class Holder:
    """What has parts that views hold."""
    cdef void _let_go(self, uint64_t part) noexcept


cdef class HeldView(View):
    """A view that holds a part of its holder."""
    cdef Holder _holder         # None: let go
    cdef uint64_t _part
    cdef int _generation        # of the process that holds it
    cdef Py_ssize_t _exports    # buffers that look through it
    cdef int hold(self, Holder holder, uint64_t part) except -1
    cdef void _end(self) noexcept
