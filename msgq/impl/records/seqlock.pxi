"""SeqlockVector and Seqlock: the public classes. Their shared code is in vector.pxi. See core.pyi."""


def _reopen_vector(kind, arguments, prefix, trust, passive):
    """Return a handle for a pickled one."""
    return kind(*arguments, create=False, prefix=prefix, trust=trust, passive=passive)


@cython.no_gc_clear  # same as the base class
cdef class SeqlockVector(VectorBase):
    """See core.pyi."""

    def __init__(self, name, dtype=None, length=None, *, exclusive=None, copies=None, create=None, mode=None,
                 prefix=None, trust=None, passive=False, spin_us=None):
        wanted = options.check_vector_options(name, dtype, length, exclusive, copies, create, mode, passive)
        self._open_handle(wanted, prefix, trust, spin_us)
        self._apply_open_options(wanted)

    def __len__(self):
        return self._length

    def __getitem__(self, selection):
        if self._is_element_index(selection):
            return self._read_element(self._resolve_element_index(selection), NULL)
        return self._read_selection_readonly(selection)

    def __setitem__(self, selection, value):
        if self._is_element_index(selection):
            self._write_element(self._resolve_element_index(selection), value, WRITE_TIMEOUT_NS)
        else:
            self._write_selection(selection, value, WRITE_TIMEOUT_NS)

    def __iter__(self):
        return iter(self._read_selection_readonly(None))

    def read(self, indices=None, out=None):
        return self._read_selection(indices, out)

    def write(self, indices, values, *, timeout=1.0):
        self._write_selection(indices, values, parse_timeout_ns(timeout, self._endpoint))

    def times(self, indices=None):
        return self._read_counts_or_times(indices, True)

    def counts(self, indices=None):
        return self._read_counts_or_times(indices, False)

    @staticmethod
    def unlink_name(name, prefix=None):
        unlink_records(naming.validate_records_name(name), settings.resolve_prefix(prefix))


@cython.no_gc_clear  # same as the base class
cdef class Seqlock(VectorBase):
    """See core.pyi."""

    def __init__(self, name, dtype=None, *, exclusive=None, copies=None, create=None, mode=None, prefix=None,
                 trust=None, passive=False, spin_us=None):
        wanted = options.check_vector_options(name, dtype, None, exclusive, copies, create, mode, passive,
                                              is_single_element=True)
        self._open_handle(wanted, prefix, trust, spin_us)
        self._apply_open_options(wanted)

    def read(self, out=None):
        cdef mq_element_selection elements = _select_range(0, 1)
        cdef mq_vector_read_info info
        cdef uint64_t times = 0
        cdef _ArrayMemory to
        info.write_counts, info.write_times_ns = &times, NULL
        if out is None:
            out = self._read_element(0, &info)
        else:
            to = self._prepare_output_array(out, 1)
            self._check_usable()
            self._read_elements(&elements, to.at, &info, READ_TIMEOUT_NS)
        self._mark_write_seen(times)
        return out

    def write(self, value, timeout=1.0):
        self._write_element(0, value, parse_timeout_ns(timeout, self._endpoint))

    cdef int _mark_write_seen(self, uint64_t times) except -1:
        """Mark the element as seen at this number of writes."""
        cdef int64_t only = 0
        if times != self._seen_counts[0]:
            self._mark_changes_seen(&times, &only, 1)
            self._rearm_fd()
        return 0

    @property
    def value(self):
        return self.read()

    @value.setter
    def value(self, value):
        self._write_element(0, value, WRITE_TIMEOUT_NS)

    @property
    def time(self):
        return int(self._read_counts_or_times(None, True)[0])

    @property
    def count(self):
        return int(self._read_counts_or_times(None, False)[0])

    @staticmethod
    def unlink_name(name, prefix=None):
        unlink_records(naming.validate_records_name(name), settings.resolve_prefix(prefix))
