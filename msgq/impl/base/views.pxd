from libc.stdint cimport uint8_t, uint64_t

from msgq.impl.base.process cimport fork_generation


cdef class Mapping:
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


cdef class PinOwner:
    """What has parts that views hold."""
    cdef void _unpin(self, uint64_t part) noexcept


cdef class PinnedView(View):
    """A view that holds a part of its holder."""
    cdef PinOwner _holder         # None: let go
    cdef uint64_t _part
    cdef int _generation        # of the process that holds it
    cdef Py_ssize_t _exports    # buffers that look through it
    cdef void _end(self) noexcept


# Inline: views are made for each frame, mostly after a sleep. Code in the caller's own module touches no further cold
# page.

cdef inline void expose(View view, object owner, uint8_t *start, Py_ssize_t size, bint writable) noexcept:
    view._owner, view._start, view._size, view._readonly = owner, start, size, not writable


cdef inline void pin(PinnedView view, PinOwner holder, uint64_t part) noexcept:
    view._part, view._holder, view._generation = part, holder, fork_generation
