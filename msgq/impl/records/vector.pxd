from libc.stdint cimport int64_t, uint8_t, uint64_t

from msgq.impl.records.core cimport mq_read_info, mq_selection, mq_stamps
from msgq.impl.records.handle cimport Handle


cdef class _ArrayMemory:
    cdef Py_buffer view
    cdef uint8_t *at
    cdef object array


cdef class Vector(Handle):
    """Elements of one dtype."""
    cdef object _dtype
    cdef object _equal_dtype          # another one that is equal
    cdef bint _is_f8
    cdef object _ndarray          # numpy.ndarray
    cdef object _empty_array           # numpy.empty
    cdef object _index_dtype          # the dtype of indexes
    cdef _ArrayMemory _scratch        # a row in which single values are converted; None: they are large
    cdef _ArrayMemory _value_rows          # rows for single values that are read
    cdef Py_ssize_t _value_rows_used       # of these
    cdef bint _converting       # somebody uses the scratch, whose code may come back here
    cdef bint _exclusive            # one handle writes
    cdef bint _tracked          # the library writes the times into the values
    cdef uint64_t _length       # as it was opened: of those that there are, the first so many
    cdef bint _is_large(self, uint64_t count) noexcept
    cdef bint _is_single(self, selection) except -1
    cdef uint64_t _element(self, index) except? 0
    cdef int _read(self, mq_selection *elements, uint8_t *to, mq_read_info *info, int64_t limit_ns) except -1
    cdef uint64_t _read_some(self, const mq_selection *elements, uint8_t *to, const mq_read_info *info) noexcept nogil
    cdef uint64_t _at(self, const mq_selection *elements, uint64_t i) noexcept
    cdef object _read_one(self, uint64_t index, mq_read_info *info)
    cdef object _read_many(self, selection, out)
    cdef object _read_only_rows(self, selection)
    cdef _ArrayMemory _output(self, out, uint64_t count)
    cdef _ArrayMemory _resolve_indices(self, selection)
    cdef int _new_rows(self) except -1
    cdef int _read_atomic(self, uint8_t *to, uint64_t *times, int64_t limit_ns) except -1
    cdef object _read_info(self, selection, bint of_times)
    cdef int _write_one(self, uint64_t index, value, timeout) except -1
    cdef bint _is_dtype(self, dtype) except -1
    cdef const uint8_t *_scalar_address(self, value) except? NULL
    cdef bint _convert(self, value) except -1
    cdef bint _try_write(self, const mq_selection *elements, const uint8_t *source) except -1
    cdef const mq_stamps *_stamps(self, int64_t time, mq_stamps *stamps) except? NULL
    cdef int _write(self, mq_selection *elements, const uint8_t *source, timeout) except -1
    cdef int _write_until(self, mq_selection *elements, const uint8_t *source, const mq_stamps *stamps, int64_t time,
                          int64_t patience, uint64_t *done) except -1
    cdef object _locked_error(self, uint64_t index, double waited_s)
    cdef object _corrupt_error(self)
    cdef int _write_many(self, selection, values, timeout) except -1
