"""Board over shared memory: named values. See core.pyi."""


cdef enum:
    CHANGE_BATCH_KEYS = 64  # number of keys in one search for changes


def _reopen_board(kind, name, prefix, trust, passive):
    """Return a handle for a pickled one."""
    return kind(name, create=False, prefix=prefix, trust=trust, passive=passive)


cdef object _check_read_deadline(int64_t deadline, uint64_t index, str name):
    """Raise if writers replaced the value until the deadline; otherwise let other threads run."""
    if mq_monotonic_ns() > deadline:
        raise options.read_contention_error(index, options.READ_TIMEOUT_S, name)
    PyErr_CheckSignals()


cdef int _check_value_length(RecordFile file, const mq_board_value_copy *value) except -1:
    """Raise if a validated value has an invalid length."""
    file.check_truncation()
    if value.is_corrupt:
        text = "has a value of invalid length: another program wrote into the file; remove it"
        raise CorruptSegmentError(text, file.name, file.path)
    return 0


cdef bytes _read_value_bytes(Waitable handle, RecordFile file, uint64_t index, mq_board_value_copy *value):
    """Return a key's value, or None if it was never written."""
    cdef int64_t deadline = mq_monotonic_ns() + READ_TIMEOUT_NS
    cdef const uint8_t *at
    cdef bytes data
    cdef char *to
    while True:
        at = mq_board_value_read_begin(&file.parts, index, value)
        if not value.count:
            file.check_truncation()
            return None
        data = PyBytes_FromStringAndSize(NULL, value.length)
        to = PyBytes_AS_STRING(data)
        if value.length >= LARGE_BYTES:
            with nogil:
                mq_copy_from_shared(to, at, value.length)
        else:
            mq_copy_from_shared(to, at, value.length)
        if handle._use_state == CLOSED:  # another thread closed it during a large copy, so the value reads as zeros
            raise usage_error(CLOSED, file.name)
        if mq_board_value_read_valid(&file.parts, index, value):
            _check_value_length(file, value)
            return data
        _check_read_deadline(deadline, index, file.name)


@cython.final
cdef class _OwnerLookup:
    """When called, returns the owner of a key and whether it lives."""
    cdef RecordFile _file
    cdef uint64_t _index

    def __call__(self):
        cdef RecordFile file = self._file
        cdef uint64_t owner = mq_load_acquire_u64(&file.parts.key_table[self._index].owner)
        cdef mq_liveness_probe probe
        cdef mq_liveness life
        if not owner or mq_cell_owner_row(owner) >= MQ_RECORD_ROWS:
            return None
        probe = mq_liveness_probe_begin(file.liveness_file())
        life = mq_record_owner_liveness(file.parts.header, &probe, owner)
        mq_liveness_probe_end(&probe)
        return read_participant(&file.parts.header.rows[mq_cell_owner_row(owner)].at.participant, life)


cdef object _read_board_value(Waitable handle, RecordFile file, uint64_t index, int64_t now_ns,
                              mq_board_value_copy *value):
    cdef uint64_t age_ns
    data = _read_value_bytes(handle, file, index, value)
    if data is None:
        return None
    cdef _OwnerLookup owner = _OwnerLookup.__new__(_OwnerLookup)
    owner._file, owner._index = file, index
    # unsigned: if the file is corrupt, the time may be any number
    age_ns = <uint64_t> now_ns - <uint64_t> value.time_ns if value.time_ns < now_ns else 0
    return Value(data, value.time_ns, value.count, age_ns, owner)


@cython.no_gc_clear  # same as the base class
cdef class Board(RecordHandle):
    """See core.pyi."""
    # The KeyObserver objects of this handle, by id: unlike a WeakSet, a list of them is possible beside an addition.
    cdef object _observers

    def __cinit__(self):
        self._observers = weakref.WeakValueDictionary()

    def __init__(self, name, keys=None, value_bytes=None, *, schema=None, create=None, mode=None, prefix=None,
                 trust=None, passive=False, spin_us=None):
        wanted = options.check_board_options(name, keys, value_bytes, schema, create, mode, passive)
        self._open_handle(wanted, prefix, trust, spin_us)
        wanted.check_existing(self._writer.parts.config.length, mq_board_value_bytes(&self._writer.parts))
        if self._bus is not None:
            self._bus.on_opened(self)

    def __repr__(self):
        state = "closed" if self._use_state == CLOSED else f"{len(self)} of {self._writer.parts.config.length} keys"
        return f"<msgq Board {self._endpoint!r}, {state}>"

    def __reduce__(self):
        return _reopen_board, (type(self), self._endpoint, self.prefix, self._file.trust, self._passive)

    @property
    def capacity(self):
        return self._writer.parts.config.length

    @property
    def value_bytes(self):
        return mq_board_value_bytes(&self._writer.parts)

    def close(self):
        RecordHandle.close(self)
        for reference in self._observers.valuerefs():
            observed = reference()
            if observed is not None:
                observed.close()

    # ---- write ----

    def declare(self, key):
        """Claim a key, under the lock."""
        cdef bytes name = options.validate_key(key, self._endpoint)
        cdef Entry entry
        cdef int64_t index
        cdef mq_error error
        cdef mq_file_lock lock
        self._ensure_writer_row()
        entry = _make_entry(self, key)
        self._file.lock(&lock)
        try:
            self._ensure_writer_row()  # a signal handler may have closed the handle, or forked
            index = mq_board_declare_key(&self._writer, name, len(name), &error)
            if index < 0:
                raise_error(&error, self._endpoint)
            entry._index, entry._uid, entry._closed = index, self._uid, False  # releases the key if the rest raises
        finally:
            self._file.unlock(&lock)
        self._file.check_truncation()
        return entry

    # ---- read ----

    def observe(self, key):
        return KeyObserver(self, key)

    def keys(self):
        cdef uint64_t i
        self._check_usable()
        keys = [_read_key_name(self._file, i) for i in range(mq_board_key_count(&self._writer.parts))]
        self._file.check_truncation()
        return keys

    def __len__(self):
        self._check_usable()
        return mq_board_key_count(&self._writer.parts)

    def __iter__(self):
        return iter(self.keys())

    def __contains__(self, key):
        cdef bytes name
        self._check_usable()
        if not isinstance(key, str):
            return False
        name = key.encode(errors="surrogatepass")
        return b"\0" not in name and 0 < len(name) <= options.KEY_BYTES_MAX and mq_board_find_key(
            &self._writer.parts, name, len(name), 0) != MQ_BOARD_NO_KEY

    def __getitem__(self, key):
        cdef mq_board_value_copy value
        cdef bytes name = options.validate_key(key, self._endpoint)
        self._check_usable()
        cdef uint64_t index = mq_board_find_key(&self._writer.parts, name, len(name), 0)
        data = None if index == MQ_BOARD_NO_KEY else _read_value_bytes(self, self._file, index, &value)
        if data is None:
            self._file.check_truncation()
            raise options.unwritten_key_error(key, self._endpoint)
        return data

    def __setitem__(self, key, value):
        raise key_assignment_error(key, self._endpoint)

    def items(self):
        """Return (key, value) of all written keys."""
        cdef mq_board_value_copy value
        cdef uint64_t i
        self._check_usable()
        items = [(_read_key_name(self._file, i), _read_value_bytes(self, self._file, i, &value))
                 for i in range(mq_board_key_count(&self._writer.parts))]
        self._file.check_truncation()
        return [(key, data) for key, data in items if data is not None]

    def changes(self, limit=None):
        cdef int64_t indices[CHANGE_BATCH_KEYS]
        cdef uint64_t length = self._opened_parts.config.length
        cdef uint64_t count, i, remaining = options.resolve_change_limit(limit, length, self._endpoint)
        self._begin_reading_changes()
        changes = {}
        try:
            self._next_index = 0 if limit is None else self._next_index
            while remaining:
                first = self._next_index
                count = mq_vector_collect_changed(&self._opened_parts, self._seen_counts, first, indices,
                                                  min(remaining, <uint64_t> CHANGE_BATCH_KEYS))
                if not count and (first == 0 or changes):
                    break
                for i in range(count):
                    key, current = self._read_change(indices[i])
                    changes[key] = current
                # continue after these keys, so that a key that changes all the time is returned once
                self._next_index = indices[count - 1] + 1 if count else 0
                remaining -= count
            if remaining:
                self._next_index = 0
            self._file.check_truncation()
            self._rearm_fd()
            return changes
        finally:
            self._is_reading_changes = False

    def _read_change(self, uint64_t index):
        cdef mq_board_value_copy value
        cdef int64_t at = index
        current = _read_board_value(self, self._file, index, self._now_ns() + self._clock_offset, &value)
        self._mark_changes_seen(&value.count, &at, 1)
        return _read_key_name(self._file, index), current

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

    @staticmethod
    def unlink_name(name, prefix=None):
        unlink_records(naming.validate_records_name(name), settings.resolve_prefix(prefix))


cdef str _read_key_name(RecordFile file, uint64_t index):
    cdef char name[112]
    mq_copy_from_shared(name, file.parts.key_table[index].name, sizeof(name))
    return name[:sizeof(name)].partition(b"\0")[0].decode(errors="replace")


cdef Entry _make_entry(Board board, str key):
    """Return the entry of a key that the board has not declared yet."""
    cdef Entry entry = Entry.__new__(Entry) if board._bus is None else EntryOnBus.__new__(EntryOnBus)
    entry._board, entry.key, entry._closed = board, key, True
    return entry


cdef class Entry:
    """See core.pyi. All entries of a board use its row, so each method locks the board."""
    cdef Board _board
    cdef readonly str key
    cdef uint64_t _index
    cdef uint64_t _uid  # uid of the row that declared the key
    cdef bint _closed
    cdef bint _is_writing
    cdef uint64_t _held_writes  # number of writes that a simulation holds

    def __init__(self):
        raise TypeError("entries cannot be created directly; call Board.declare()")

    def __del__(self):  # the program may have no reference, for example because a signal handler raised
        if self._board is not None:
            self.close()

    def __reduce__(self):
        raise TypeError("Entry cannot be pickled or copied, because a key has one handle; close it, and declare the "
                        "key elsewhere")

    cdef int _check_entry_writable(self) except -1:
        if self._closed:
            raise options.closed_entry_error(self.key, self._board._endpoint)
        self._board._ensure_writer_row()
        if self._board._uid != self._uid:  # this process is a forked child
            raise options.inherited_entry_error(self.key, self._board._endpoint)
        if self._is_writing:
            raise ConcurrentUseError(f"another thread writes key {self.key!r}; use one thread at a "
                                     "time", self._board._endpoint)
        return 0

    def write(self, data):
        cdef Py_buffer view
        cdef mq_object_lock lock
        cdef Board board = self._board
        cdef uint64_t max_bytes, index = self._index
        get_message_buffer(data, &view, board._endpoint)
        mq_lock_object(&lock, <PyObject *> board)
        try:
            self._check_entry_writable()
            max_bytes = mq_board_value_bytes(&board._writer.parts)
            if <uint64_t> view.len > max_bytes:
                raise options.value_too_large_error(view.len, max_bytes, board._endpoint)
            if view.len < LARGE_BYTES:
                mq_board_write_value(&board._writer, index, view.buf, view.len, mq_monotonic_ns() + board._clock_offset)
            else:
                self._write_large_value(&view)
            board._file.check_truncation()
        finally:
            mq_unlock_object(&lock)
            PyBuffer_Release(&view)

    cdef int _write_large_value(self, const Py_buffer *view) except -1:
        cdef Board board = self._board
        cdef mq_u64 *version = mq_cell_version_word(&board._writer.parts, self._index)
        cdef int64_t now = mq_monotonic_ns() + board._clock_offset
        self._is_writing = True
        board._add_user_thread()
        with nogil:
            mq_board_fill_value(&board._writer, version, view.buf, view.len, now)
        mq_board_commit_value(&board._writer, version)
        board._remove_user_thread()
        self._is_writing = False
        return 0

    def close(self):
        with cython.critical_section(self._board):
            self._close_entry()

    cdef int _close_entry(self) except -1:
        cdef Board board = self._board
        if self._closed:
            return 0
        if self._is_writing:
            raise ConcurrentUseError(f"another thread writes key {self.key!r}; use one thread at a "
                                     "time", board._endpoint)
        self._closed = True
        if board._use_state == fork_generation and board._writer.row != NULL and board._uid == self._uid:
            self._release_key()
        return 0

    cdef int _release_key(self) except -1:
        if not self._held_writes:  # the last one releases the key
            mq_record_release_owner_word(&self._board._writer, &self._board._writer.parts.key_table[self._index].owner)
        return 0

    @property
    def closed(self):
        return self._closed

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<msgq Entry {self.key!r} of board {self._board._endpoint!r}>"


cdef class EntryOnBus(Entry):
    """An entry on a bus of the fake backend."""

    def write(self, data):
        cdef Board board = self._board
        cdef bytes value = copy_message(data, board._endpoint)
        with cython.critical_section(board):
            self._write_on_bus(board, value)

    cdef int _write_on_bus(self, Board board, bytes value) except -1:
        self._check_entry_writable()
        max_bytes = mq_board_value_bytes(&board._writer.parts)
        if <uint64_t> len(value) > max_bytes:
            raise options.value_too_large_error(len(value), max_bytes, board._endpoint)
        write = _make_value_write(self, value)
        if board._file.state is None:
            write.complete()
        else:
            board._file.state.publish(board, write)
        return 0


@cython.no_gc_clear  # its mapping is needed until the end
cdef class KeyObserver(Waitable):
    """See core.pyi."""
    cdef RecordFile _file
    cdef mq_board_poll_state _key_poll_state
    cdef readonly str key
    cdef bint _passive
    cdef int64_t _clock_offset

    def __cinit__(self, Board board not None, key):
        cdef bytes name = options.validate_key(key, board._endpoint)
        board._observers[id(self)] = self  # before the check, so that a later close of the board closes the observer
        with cython.critical_section(board):
            self._attach_board(board)
        self.key = key
        self._key_poll_state.parts, self._key_poll_state.not_truncated = &self._file.parts, self._file.not_truncated
        memset(self._key_poll_state.key, 0, sizeof(self._key_poll_state.key))
        memcpy(self._key_poll_state.key, <const char *> name, len(name))
        self._key_poll_state.bytes, self._key_poll_state.index = len(name), MQ_BOARD_NO_KEY
        self._use_state = self._fork_generation = fork_generation
        if self._bus is None:
            close_at_exit(self)

    cdef int _attach_board(self, Board board) except -1:
        board._check_usable()
        self._file, self._memory, self._endpoint = board._file, board._file.memory, board._endpoint
        self._passive, self._clock_offset, self._spin_us = board._passive, board._clock_offset, board._spin_us
        self._bus = board._bus
        return 0

    def __dealloc__(self):
        if self._use_state == fork_generation:
            self._close_handle()

    def __reduce__(self):
        raise TypeError("KeyObserver cannot be pickled or copied; pickle its board, and observe the key there")

    def __repr__(self):
        return f"<msgq KeyObserver {self.key!r} of board {self._endpoint!r}>"

    cdef int _reopen_in_child(self) except -1:
        self._forget_inherited_wait()
        return 0

    def _close_at_exit(self):
        self.close()

    cdef uint64_t _find_key_element(self) except? 0:
        """Return the element of the key, or MQ_BOARD_NO_KEY if no handle has declared it."""
        self._check_usable()
        if self._key_poll_state.index == MQ_BOARD_NO_KEY:
            index = mq_board_find_key(&self._file.parts, self._key_poll_state.key, self._key_poll_state.bytes, 0)
            watcher_lock()
            self._key_poll_state.index = index
            watcher_unlock()
            self._file.check_truncation()
        return self._key_poll_state.index

    cdef int _mark_write_seen(self, uint64_t times) except -1:
        watcher_lock()
        if may_mark_seen(&self._file.parts, self._key_poll_state.index, times, self._key_poll_state.seen_write_count):
            self._key_poll_state.seen_write_count = times
        watcher_unlock()
        return self._rearm_fd()

    def read(self):
        cdef mq_board_value_copy value
        cdef uint64_t index = self._find_key_element()
        current = None
        if index != MQ_BOARD_NO_KEY:
            current = _read_board_value(self, self._file, index, self._now_ns() + self._clock_offset, &value)
        if current is None:
            self._rearm_fd()
        else:
            self._mark_write_seen(value.count)
        return current

    def data(self):
        cdef mq_board_value_copy value
        cdef uint64_t index = self._find_key_element()
        data = None if index == MQ_BOARD_NO_KEY else _read_value_bytes(self, self._file, index, &value)
        if data is not None:
            self._mark_write_seen(value.count)
        return data

    def read_into(self, buffer):
        cdef Py_buffer view
        cdef mq_board_value_copy value
        cdef uint64_t index = self._find_key_element()
        if index == MQ_BOARD_NO_KEY:
            return None
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        try:
            if not self._copy_value_into(index, &view, &value):
                return None
        finally:
            PyBuffer_Release(&view)
        self._mark_write_seen(value.count)
        return value.length

    cdef bint _copy_value_into(self, uint64_t index, const Py_buffer *view, mq_board_value_copy *value) except -1:
        cdef int64_t deadline = mq_monotonic_ns() + READ_TIMEOUT_NS
        cdef const uint8_t *at
        while True:
            at = mq_board_value_read_begin(&self._file.parts, index, value)
            if not value.count:
                self._file.check_truncation()
                return False
            if <int64_t> value.length <= view.len:
                mq_copy_from_shared(view.buf, at, value.length)
            if mq_board_value_read_valid(&self._file.parts, index, value):
                _check_value_length(self._file, value)
                if <int64_t> value.length > view.len:
                    raise options.buffer_too_small_error(value.length, view.len, self._endpoint)
                return True
            _check_read_deadline(deadline, index, self._endpoint)

    @property
    def changed(self):
        self._check_usable()
        return self._is_readable()

    def wait(self, timeout=None):
        return wait_until_readable(self, self._file, timeout)

    def receive(self, timeout=None):
        """Return the value if it is new, or None at the timeout."""
        if not self.wait(timeout):
            self._rearm_fd()
            return None
        return self.read()

    def areceive(self):
        return self.arecv()

    def watch(self, timeout=None):
        parse_timeout_ns(timeout, self._endpoint)  # raises if the timeout is invalid
        return ChangeIterator(self, timeout)

    def arecv(self):
        return load_event_loop().receive_async(self, 0.0)

    cdef bint _is_readable(self) noexcept:
        return mq_board_key_is_readable(&self._key_poll_state) != 0

    cdef mq_u32 *_futex_word(self) noexcept:
        return &self._file.parts.header.eventcount

    cdef uint32_t _prepare_wait(self) noexcept:
        return prepare_eventcount_wait(self._futex_word(), self._passive)

    cdef int64_t _max_sleep_ns(self, int64_t slept_ns) except -2:
        return compute_max_sleep_ns(self._passive, slept_ns)

    cdef mq_poll_ops _poll_ops(self) noexcept:
        cdef mq_poll_ops poll_ops = mq_poll_ops(mq_board_key_is_readable, &self._key_poll_state, self._futex_word(),
                                                NULL, NULL, False, NULL)
        return make_poll_ops(poll_ops, self._passive)
