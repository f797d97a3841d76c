"""Read and write elements: the shared code of SeqlockVector and Seqlock. Rows are in handle.pxi. See core.pyi."""


cdef enum:
    SPIN_GIL_NS = 10 * MQ_NS_PER_MS  # time in which a wait for an element ignores signals
    # bytes of the rows that are allocated at once. An allocation takes as long as seven reads of 64 bytes; with 16 KiB,
    # fewer than one read in a hundred allocates
    VALUE_ROWS_BYTES = 16384


@cython.no_gc_clear  # same as the base class
cdef class VectorBase(RecordHandle):
    """Elements of one dtype."""
    cdef object _dtype
    cdef object _equal_dtype  # a dtype object that equals _dtype
    cdef bint _is_f8
    cdef object _ndarray          # numpy.ndarray
    cdef object _empty_array           # numpy.empty
    cdef object _index_dtype  # dtype of indexes
    cdef object _integer_check  # check of values for the scratch row; None: the dtype has no integers
    cdef tuple _integer_positions
    cdef _ArrayMemory _scratch_row  # a row for the conversion of single values; None: the values are large
    cdef _ArrayMemory _value_rows  # rows for single values that are read
    cdef _ArrayMemory _other_value_rows  # the rows before or after _value_rows
    cdef Py_ssize_t _value_rows_used  # number of used rows in _value_rows
    cdef bint _is_converting  # the scratch row is in use, and code that uses it may call this handle
    cdef bint _exclusive  # only one handle writes
    cdef bint _tracked  # the library writes timestamps into the values
    cdef uint64_t _length  # number of elements of this handle, which begin with the vector's first element

    def _apply_open_options(self, wanted):
        """Compare the file with the requested options, and prepare conversions."""
        load_numpy()
        config = self._file.parts.config
        self._dtype = options.read_schema_dtype(self._file.schema, config.item_bytes, self._endpoint)
        exclusive = config.flags & MQ_RECORD_EXCLUSIVE != 0
        self._length = wanted.check_existing(self._dtype, config.length, exclusive, config.copies)
        self._dtype = self._equal_dtype = wanted.dtype or self._dtype  # use the equal dtype object that values have
        self._is_f8 = self._dtype == f8_dtype
        self._opened_parts.config.length = self._length
        self._exclusive = exclusive
        self._ndarray, self._empty_array, self._index_dtype = numpy.ndarray, numpy.empty, index_dtype
        self._tracked = arrays.is_tracked_dtype(self._dtype)
        if self._tracked and not wanted.passive and self._bus is None:
            prepare_origins()
        if config.item_bytes < LARGE_BYTES:
            self._scratch_row = _ArrayMemory(numpy.zeros(1, self._dtype), True)
            self._integer_check = make_integer_check(self._dtype)
            self._integer_positions = () if self._integer_check is None else self._integer_check.integer_positions
        if self._bus is not None and self._endpoint:
            self._bus.on_opened(self)

    def __repr__(self):
        kind = type(self).__name__
        name = repr(self._endpoint) if self._endpoint else "in private memory"
        state = "closed" if self._use_state == CLOSED else f"{self._length} x {self._dtype}"
        return f"<msgq {kind} {name}, {state}>"

    def __reduce__(self):
        if not self._endpoint:
            raise TypeError("private memory (name=None) cannot be pickled; give a name to share it")
        arguments = (self._endpoint, None, self._length) if isinstance(self, SeqlockVector) else (self._endpoint,)
        return _reopen_vector, (type(self), arguments, self.prefix, self._file.trust, self._passive)

    @property
    def dtype(self):
        return self._dtype

    @property
    def exclusive(self):
        return self._exclusive

    @property
    def copies(self):
        return self._opened_parts.config.copies

    cdef bint _is_large_copy(self, uint64_t count) noexcept:
        return count * self._opened_parts.config.item_bytes >= LARGE_BYTES

    cdef bint _is_element_index(self, selection) except -1:
        """True if an index is of one element. The index may still be invalid."""
        if type(selection) is int:
            return True
        return not (isinstance(selection, (slice, list, range)) or getattr(selection, "ndim", 0))

    cdef uint64_t _resolve_element_index(self, index) except? 0:
        cdef Py_ssize_t number
        if type(index) is int:
            try:
                number = index
            except OverflowError:
                number = -1
            if 0 <= number < <Py_ssize_t> self._length:
                return number
        return arrays.check_element_index(index, self._length, self._endpoint)

    # ---- read ----

    cdef int _read_elements(self, mq_element_selection *elements, uint8_t *to, mq_vector_read_info *info,
                            int64_t limit_ns) except -1:
        """Read all selected elements. A NULL `info` is faster. `limit_ns`: how long to try."""
        cdef uint64_t done
        cdef int64_t deadline = 0
        cdef bint large = self._is_large_copy(elements.count)
        while True:
            if large:
                self._add_user_thread()
                with nogil:
                    done = self._try_read_elements(elements, to, info)
                self._remove_user_thread()
            else:
                done = self._try_read_elements(elements, to, info)
            if done == elements.count:
                self._file.check_truncation()
                return 0
            if deadline and mq_monotonic_ns() > deadline:
                index = self._selected_element_index(elements, done)
                raise options.read_contention_error(index, limit_ns / MQ_NS_PER_S, self._endpoint)
            deadline = deadline or mq_monotonic_ns() + limit_ns
            to = _advance_selection(elements, to, info, done, self._opened_parts.config.item_bytes)
            with nogil:
                sched_yield()
            PyErr_CheckSignals()
            self._check_usable()

    cdef uint64_t _try_read_elements(self, const mq_element_selection *elements, uint8_t *to,
                                     const mq_vector_read_info *info) noexcept nogil:
        if info == NULL:
            return mq_vector_read_elements(&self._opened_parts, elements, to)
        return mq_vector_read_elements_with_info(&self._opened_parts, elements, to, info)

    cdef uint64_t _selected_element_index(self, const mq_element_selection *elements, uint64_t i) noexcept:
        return elements.indices[i] if elements.indices != NULL else elements.first + i

    cdef object _read_element(self, uint64_t index, mq_vector_read_info *info):
        """Return a copy of the value of one element."""
        cdef mq_element_selection elements = _select_range(index, 1)
        cdef _ArrayMemory to
        cdef Py_ssize_t row
        self._check_usable()
        if self._value_rows is None or self._value_rows_used == self._value_rows.view.shape[0]:
            self._renew_value_rows()
        to, row = self._value_rows, self._value_rows_used
        self._value_rows_used += 1
        self._read_elements(&elements, to.at + row * self._opened_parts.config.item_bytes, info, READ_TIMEOUT_NS)
        return to.array[row]

    cdef int _renew_value_rows(self) except -1:
        """Take other rows, each used for one value: a NumPy structured scalar refers to memory of an array.

        The earlier rows are used again if no value refers to them. They are two, because the last value of a program
        still refers to the one that is full. Without them, the allocation would be the slowest of 256 reads.
        """
        cdef Py_ssize_t count = max(1, VALUE_ROWS_BYTES // <Py_ssize_t> self._opened_parts.config.item_bytes)
        cdef _ArrayMemory rows
        if self._other_value_rows is not None and _is_unshared(<PyObject *> self._other_value_rows):
            rows = self._other_value_rows
        else:
            rows = _ArrayMemory(self._empty_array(count, self._dtype), True)
            rows.array.flags.writeable = False  # so that `vector[i]["field"] = x` raises
        # A failed allocation must change nothing: the full rows would count as unused.
        self._value_rows, self._other_value_rows, self._value_rows_used = rows, self._value_rows, 0
        return 0

    cdef object _read_selection(self, selection, out):
        cdef mq_element_selection elements
        cdef _ArrayMemory index_memory
        if selection is None:
            elements = _select_range(0, self._length)
        else:
            index_memory = self._resolve_indices(selection)
            elements = _select_indices(index_memory)
        cdef _ArrayMemory to = self._prepare_output_array(out, elements.count)
        self._check_usable()
        self._read_elements(&elements, to.at, NULL, READ_TIMEOUT_NS)
        return to.array

    cdef object _read_selection_readonly(self, selection):
        """Return a read-only copy of elements."""
        rows = self._read_selection(selection, None)
        rows.flags.writeable = False
        return rows

    cdef _ArrayMemory _prepare_output_array(self, out, uint64_t count):
        """Return the memory for `count` rows."""
        cdef _ArrayMemory to
        if out is None:
            return _ArrayMemory(self._empty_array(count, self._dtype), True)
        if type(out) is self._ndarray and self._is_element_dtype(out.dtype):
            try:
                to = _ArrayMemory(out, True)
            except (BufferError, ValueError):
                to = None  # let the check below raise a better error
            if to is not None and to.view.ndim == 1 and to.view.shape[0] == <Py_ssize_t> count:
                return to
        return _ArrayMemory(arrays.check_output_array(out, self._dtype, (count,), self._endpoint), True)

    cdef _ArrayMemory _resolve_indices(self, selection):
        """Return the valid indexes in an array that no other code has."""
        cdef _ArrayMemory index_memory
        if type(selection) is self._ndarray and selection.ndim == 1 and selection.dtype == self._index_dtype:
            index_memory = _ArrayMemory(selection.copy(), False)
            if mq_vector_indices_are_valid(&self._opened_parts, <const int64_t *> index_memory.at,
                                           index_memory.view.shape[0]):
                return index_memory
        return _ArrayMemory(arrays.resolve_element_indices(selection, self._length, self._endpoint), False)

    def snapshot(self, atomic=False, out=None, timeout=1.0):
        cdef mq_element_selection elements = _select_range(0, self._length)
        cdef mq_vector_read_info info
        cdef int64_t limit = parse_timeout_ns(timeout, self._endpoint)
        limit = limit if limit >= 0 else 1 << 62
        cdef _ArrayMemory to = self._prepare_output_array(out, self._length)
        self._check_usable()
        if not atomic:
            self._read_elements(&elements, to.at, NULL, limit)
            return to.array
        cdef _ArrayMemory counts = _ArrayMemory(self._empty_array(self._length, "u8"), True)
        info.write_counts, info.write_times_ns = <uint64_t *> counts.at, NULL
        self._read_elements(&elements, to.at, &info, limit)
        self._reread_until_atomic(to.at, <uint64_t *> counts.at, limit)
        return to.array

    cdef int _reread_until_atomic(self, uint8_t *to, uint64_t *times, int64_t limit_ns) except -1:
        """Read elements again that were written during the read, until all are of one instant."""
        cdef int64_t deadline = mq_monotonic_ns() + limit_ns
        cdef bint is_atomic = False
        while not is_atomic:
            self._add_user_thread()
            with nogil:
                is_atomic = mq_vector_snapshot_step(&self._opened_parts, to, times)
            self._remove_user_thread()
            if not is_atomic and mq_monotonic_ns() > deadline:
                raise options.no_atomic_snapshot_error(limit_ns / MQ_NS_PER_S, self._endpoint)
            PyErr_CheckSignals()
            self._check_usable()
        return self._file.check_truncation()

    cdef object _read_counts_or_times(self, selection, bint of_times):
        """Return the number of writes of elements, or the times of their last writes."""
        cdef mq_element_selection elements
        cdef mq_vector_read_info info
        cdef _ArrayMemory index_memory = self._resolve_indices(selection)
        elements = _select_indices(index_memory)
        cdef _ArrayMemory to = _ArrayMemory(self._empty_array(elements.count, "i8" if of_times else "u8"), True)
        info.write_counts = NULL if of_times else <uint64_t *> to.at
        info.write_times_ns = <int64_t *> to.at if of_times else NULL
        self._check_usable()
        self._read_elements(&elements, NULL, &info, READ_TIMEOUT_NS)
        return to.array

    # ---- write ----

    cdef const mq_stamps *_make_value_stamps(self, int64_t time, mq_stamps *stamps) except? NULL:
        """Return the stamps for values of a tracked dtype, or NULL if it is not tracked."""
        if not self._tracked:
            return NULL
        stamps.publish_time, stamps.origin_time = time, current_origin() or self._make_new_origin(time)
        return stamps

    cdef int64_t _make_new_origin(self, int64_t time) except -1:
        return new_origin(time) if self._bus is None else self._bus.clock.new_origin_time()

    cdef int _write_element(self, uint64_t index, value, int64_t patience) except -1:
        """Write one element."""
        cdef mq_element_selection elements = _select_range(index, 1)
        cdef bytes copied
        cdef _ArrayMemory source
        cdef const uint8_t *scalar = self._get_scalar_address(value)
        if scalar != NULL:
            self._ensure_writer_row()
            if self._try_write_elements(&elements, scalar):
                return 0
            copied = (<const char *> scalar)[:self._opened_parts.config.item_bytes]
            return self._write_elements(&elements, <const uint8_t *> <char *> copied, patience)
        if self._scratch_row is None or self._is_converting or not self._convert_into_scratch(value):
            source = _ArrayMemory(arrays.convert_element_values(value, self._dtype, 1, self._endpoint), False)
            return self._write_elements(&elements, source.at, patience)
        try:
            self._ensure_writer_row()
            if self._try_write_elements(&elements, self._scratch_row.at):
                return 0
            copied = (<const char *> self._scratch_row.at)[:self._opened_parts.config.item_bytes]
        finally:
            self._is_converting = False
        return self._write_elements(&elements, <const uint8_t *> <char *> copied, patience)

    cdef bint _is_element_dtype(self, dtype) except -1:
        """True if a dtype equals that of the elements.

        The last equal dtype is cached, because a comparison takes long.
        """
        if dtype is not self._dtype and dtype is not self._equal_dtype:
            if dtype != self._dtype:
                return False
            self._equal_dtype = dtype
        return True

    cdef const uint8_t *_get_scalar_address(self, value) except? NULL:
        """Return the address of a structured scalar's bytes, or NULL for other values."""
        dtype = get_scalar_dtype(value)
        return get_scalar_bytes(value) if dtype is not None and self._is_element_dtype(dtype) else NULL

    cdef bint _convert_into_scratch(self, value) except -1:
        """Convert a value into the scratch row, and set `_is_converting`. Return False if it was not converted."""
        if self._is_f8 and isinstance(value, float):  # true for np.float64, too
            self._is_converting = True
            (<double *> self._scratch_row.at)[0] = value
            return True
        if type(value) not in (float, int, tuple, bool, bytes, str):
            dtype = getattr(value, "dtype", None)
            if dtype is None or not self._is_element_dtype(dtype):  # NumPy treats None as float64
                return False
            if self._is_converting:  # the attribute may run Python code, so another thread may use the row by now
                return False
        self._is_converting = True
        try:
            self._scratch_row.array[0] = value
            if self._integer_check is not None and not self._has_exact_integers(value):
                self._integer_check.check_values(value, self._endpoint)
            return True
        except (TypeError, ValueError, OverflowError):
            self._is_converting = False
            return False  # let the slow path raise a better error
        except BaseException:
            self._is_converting = False
            raise

    cdef bint _has_exact_integers(self, value) except -1:
        """Return True for an integer, and for a tuple with an integer for each integer field.

        This is a fast test of values that NumPy has converted. If it returns False, `_integer_check` decides.
        """
        if not self._integer_positions or type(value) is not tuple:
            return type(value) is int
        for position in self._integer_positions:
            if type((<tuple> value)[position]) is not int:
                return False
        return True

    cdef bint _try_write_elements(self, const mq_element_selection *elements, const uint8_t *source) except -1:
        """Write without waiting. Return False if another writer has the element, or the write takes longer."""
        cdef mq_stamps stamps
        cdef uint64_t done = 0
        cdef int64_t time
        if self._write_state:
            return False
        time = mq_monotonic_ns() + self._clock_offset
        status = mq_vector_write_elements(&self._writer, elements, source, time,
                                          self._make_value_stamps(time, &stamps), 0, &done)
        self._file.check_truncation()
        if status == MQ_VECTOR_CORRUPT:
            raise self._corrupt_versions_error()
        return status == MQ_VECTOR_WRITTEN

    cdef int _write_elements(self, mq_element_selection *elements, const uint8_t *source,
                             int64_t patience) except -1:
        """Write all selected elements, one after the other."""
        cdef mq_stamps stamps
        cdef uint64_t done = 0
        cdef int64_t time
        self._ensure_writer_row()
        if self._write_state == WRITES_ON_BUS:
            return self._write_on_bus(elements, source, patience)
        if self._write_state:
            text = "another thread writes; an exclusive vector allows one writing thread at a time"
            raise ConcurrentUseError(text, self._endpoint)
        time = mq_monotonic_ns() + self._clock_offset
        self._write_until_deadline(elements, source, self._make_value_stamps(time, &stamps), time, patience, &done)
        return self._file.check_truncation()

    cdef int _write_until_deadline(self, mq_element_selection *elements, const uint8_t *source, const mq_stamps *stamps,
                                   int64_t time, int64_t patience, uint64_t *done) except -1:
        cdef int64_t now = 0, began = 0
        cdef int64_t until = 0  # in the first round, do not wait: first wake the readers of written elements
        cdef uint64_t before = 0, already
        cdef bint large = self._is_large_copy(elements.count)
        cdef mq_vector_status status
        while True:
            if large or until:
                already = done[0]
                self._add_user_thread()
                self._write_state = WRITES_IN_THREAD if self._exclusive else WRITES_DIRECTLY
                with nogil:
                    status = mq_vector_write_uncounted(&self._writer, elements, source, time, stamps, until, done)
                mq_record_count_written(&self._writer, done[0] - already)
                self._write_state = WRITES_DIRECTLY
                self._remove_user_thread()
            else:
                status = mq_vector_write_elements(&self._writer, elements, source, time, stamps, until, done)
            if status == MQ_VECTOR_WRITTEN:
                return 0
            if status == MQ_VECTOR_CORRUPT:
                self._file.check_truncation()
                raise self._corrupt_versions_error()
            now = mq_monotonic_ns()
            began = now if done[0] != before or not began else began
            before = done[0]
            if until and 0 <= patience <= now - began:
                index = self._selected_element_index(elements, before)
                raise self._element_locked_error(index, (now - began) / <double> MQ_NS_PER_S)
            until = now + SPIN_GIL_NS if patience < 0 else min(now + SPIN_GIL_NS, began + patience)
            PyErr_CheckSignals()
            self._ensure_writer_row()

    cdef int _write_on_bus(self, const mq_element_selection *elements, const uint8_t *source,
                           int64_t patience) except -1:
        if not elements.count:
            return 0
        write = _make_vector_write(self, elements, source, patience)
        if self._file.state is None:
            write.complete()
        else:
            self._file.state.publish(self, write)
        return 0

    cdef object _element_locked_error(self, uint64_t index, double waited_s):
        cdef char owner[MQ_RECORD_OWNER_TEXT_BYTES]
        version = mq_load_acquire_u64(mq_cell_version_word(&self._opened_parts, index))
        mq_record_describe_owner(self._writer.parts.header, mq_cell_version_owner(version), owner)
        return options.element_locked_error(index, owner.decode(errors="replace"), waited_s, self._endpoint)

    cdef object _corrupt_versions_error(self):
        text = "has element versions that change during a write: another program writes the file; remove it"
        return CorruptSegmentError(text, self._endpoint, self._file.path)

    cdef int _write_selection(self, selection, values, int64_t patience) except -1:
        cdef mq_element_selection elements
        cdef _ArrayMemory index_memory
        elements = _select_range(0, self._length)
        if selection is not None:
            index_memory = self._resolve_indices(selection)
            elements = _select_indices(index_memory)
        if not (type(values) is self._ndarray and self._is_element_dtype(values.dtype) and
                values.shape == (elements.count,) and values.flags.c_contiguous):
            values = arrays.convert_element_values(values, self._dtype, elements.count, self._endpoint)
        cdef _ArrayMemory source = _ArrayMemory(values, False)
        return self._write_elements(&elements, source.at, patience)

    def claim(self):
        """Take a row now. For an exclusive vector: become its only writer."""
        self._ensure_writer_row()

    # ---- changes ----

    @property
    def changed(self):
        self._check_usable()
        return self._is_readable()

    def changes(self, limit=None):
        cdef uint64_t room = options.resolve_change_limit(limit, self._length, self._endpoint)
        cdef mq_element_selection elements
        cdef mq_vector_read_info info
        cdef _ArrayMemory index_memory, rows, times, counts
        self._begin_reading_changes()
        try:
            self._next_index = 0 if limit is None else self._next_index
            index_memory = _ArrayMemory(self._empty_array(room, "i8"), True)
            count = self._collect_changes(<int64_t *> index_memory.at, room)
            index_memory = _ArrayMemory(index_memory.array[:count].copy(), False)
            rows, times = _ArrayMemory(self._empty_array(count, self._dtype),
                                       True), _ArrayMemory(self._empty_array(count, "i8"), True)
            counts = _ArrayMemory(self._empty_array(count, "u8"), True)
            elements = _select_indices(index_memory)
            info.write_counts, info.write_times_ns = <uint64_t *> counts.at, <int64_t *> times.at
            self._read_elements(&elements, rows.at, &info, READ_TIMEOUT_NS)
            self._mark_changes_seen(<uint64_t *> counts.at, <int64_t *> index_memory.at, count)
            self._rearm_fd()
            return Changes(index_memory.array, rows.array, times.array, counts.array)
        finally:
            self._is_reading_changes = False

    def receive(self, timeout=None):
        """Return the changes, or None at the timeout."""
        if not self.wait(timeout):
            self._rearm_fd()
            return None
        return self.changes()

    def areceive(self):
        return self.arecv()

    def watch(self, timeout=None):
        parse_timeout_ns(timeout, self._endpoint)  # raises if the timeout is invalid
        return ChangeIterator(self, timeout)
