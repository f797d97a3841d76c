"""Uses of the base that only Cython can make, compiled by test_base.py."""

from cython cimport no_gc_clear
from libc.stdint cimport uint8_t, uint64_t
from posix.fcntl cimport O_RDWR
from posix.stat cimport struct_stat
from posix.unistd cimport close

from msgq.impl.base.core cimport (
    check_file, expose_buffer, map_file, mq_schema_parts, open_file, pin_view, PinnedView, PinOwner,
    read_schema, mq_mapping_was_truncated, Segment, write_schema,
)


cdef extern from "base/schema.h" nogil:
    ctypedef struct mq_schema:
        pass
    mq_schema_parts mq_schema_parts_from_block(mq_schema *schema, char *data, uint64_t room)


@no_gc_clear
cdef class Pins(PinOwner):
    """Notes what was let go."""

    cdef readonly list gone

    def __cinit__(self):
        self.gone = []

    cdef void _unpin_part(self, uint64_t part) noexcept:
        self.gone.append(part)

    def view(self, Parts parts, uint64_t part, size_t size):
        cdef PinnedView view = PinnedView.__new__(PinnedView)
        expose_buffer(view, parts, parts.segment.address + part, size, False)
        pin_view(view, self, part)
        return view


cdef class Parts:
    """A file whose head can be written."""

    cdef Segment segment

    def __init__(self, str path, size_t writable_bytes):
        cdef struct_stat found
        cdef int fd = open_file("parts", path, O_RDWR)
        try:
            check_file(fd, &found, "parts", path)
            self.segment = map_file(fd, &found, writable_bytes, "parts", path)
        finally:
            close(fd)

    def write(self, size_t offset, uint8_t value):
        (<volatile uint8_t *> self.segment.address)[offset] = value

    def read(self, size_t offset):
        return (<volatile uint8_t *> self.segment.address)[offset]

    @property
    def lost(self):
        return mq_mapping_was_truncated(self.segment.not_truncated)

    def describe(self, schema, uint64_t room):
        cdef mq_schema *head = <mq_schema *> self.segment.address
        cdef mq_schema_parts at = mq_schema_parts_from_block(head, <char *> (head + 1), room)
        if schema is not None:
            write_schema(&at, schema)
        return read_schema(&at)
