"""An open vector or board: join, leave, wait. The base of SeqlockVector and Board.

Several threads may use a handle at the same time (base/shared_handle.pxi). A handle takes a row at its first write, so
readers have none.
"""


cdef enum:
    READ_TIMEOUT_NS = MQ_NS_PER_S  # limit of a reader's attempts while writers replace the value
    WRITE_TIMEOUT_NS = MQ_NS_PER_S  # limit of a write's wait for an element that another writer has locked
    RECHECK_SLEEP_NS = MQ_NS_PER_S  # first poll interval without a wake; the next intervals are 3 s, 9 s, ...
    PASSIVE_SLEEP_MIN_NS = MQ_NS_PER_MS  # poll interval of a passive handle, which announces no sleep
    PASSIVE_SLEEP_MAX_NS = 10 * MQ_NS_PER_MS


cdef int64_t compute_max_sleep_ns(bint passive, int64_t slept_ns) noexcept:
    if passive:
        return min(max(slept_ns // 4, <int64_t> PASSIVE_SLEEP_MIN_NS), <int64_t> PASSIVE_SLEEP_MAX_NS)
    return max(<int64_t> RECHECK_SLEEP_NS, 2 * slept_ns)


cdef uint32_t prepare_eventcount_wait(mq_u32 *eventcount, bint passive) noexcept:
    """Announce a sleep, and return the value of the word.

    Passive handles only return the value; wakes for others end it.
    """
    return mq_load_acquire_u32(eventcount) if passive else mq_eventcount_prepare_wait_mp(eventcount)


cdef mq_poll_ops make_poll_ops(mq_poll_ops reader, bint passive) noexcept:
    """Return the poll callbacks of a reader. Passive readers announce no sleep."""
    if not passive:
        reader.prepare_wait = mq_poll_prepare_wait_mp
    return reader


cdef bint wait_until_readable(Waitable waitable, RecordFile file, timeout) except -1:
    """Wait until the handle has a change to report. Return False at the timeout."""
    cdef int64_t patience = parse_timeout_ns(timeout, waitable._endpoint)
    waitable._check_usable()
    cdef int64_t until = WAIT_FOREVER if patience < 0 else waitable._now_ns() + patience
    while not waitable._is_readable():
        if not patience or not wait_until_ready((waitable,), until):
            return False
        waitable._check_usable()  # a signal handler may have closed the handle, or forked
    file.check_truncation()
    return True


cdef bint may_mark_seen(const mq_record_file_parts *parts, uint64_t index, uint64_t count, uint64_t seen) noexcept:
    """Return False if another thread, whose read began later, has marked a newer value of the element as seen."""
    cdef uint64_t newer = mq_cell_count_writes_between(parts, seen, count)
    return newer < <uint64_t> 1 << (63 - MQ_CELL_COUNT_SHIFT) or count == mq_cell_write_count(
        mq_load_acquire_u64(mq_cell_version_word(parts, index)))  # the count of invalid data may go back


cdef enum WriteState:
    WRITES_DIRECTLY
    WRITES_IN_THREAD  # exclusive vectors: a thread writes without the GIL
    WRITES_ON_BUS     # each write is a RecordWrite


@cython.no_gc_clear  # __dealloc__ needs the mapping
cdef class RecordHandle(ThreadSharedHandle):
    """An open vector or board, with its writer's row."""
    cdef RecordFile _file
    cdef mq_record_writer _writer
    cdef mq_record_file_parts _opened_parts  # parts of the file, restricted to the elements of this handle
    cdef mq_vector_poll_state _poll_state  # the handle's state for the watcher thread
    cdef uint64_t *_seen_counts  # number of writes of each element when `changes` last reported it
    cdef uint64_t _uid  # uid of the row
    cdef void *_row_token  # lock of the row
    cdef bint _passive
    cdef int64_t _clock_offset  # host's clock minus CLOCK_MONOTONIC, in nanoseconds
    cdef uint64_t _next_index  # element at which a limited batch of changes continues
    cdef bint _is_reading_changes  # a thread is in `changes`
    cdef WriteState _write_state

    def _open_handle(self, wanted, prefix, trust, spin_us):
        """Open the file that the options describe, and attach it."""
        cdef RecordFile file
        self._endpoint, self._passive = wanted.name, wanted.passive
        self._spin_us = settings.resolve_spin_us(spin_us, wanted.name)
        self._bus = self._choose_bus()
        self._clock_offset = host_offset_ns() if self._bus is None else 0
        if not wanted.name:
            self._attach_record_file(make_private_record_file(wanted, self._bus))
            return
        in_prefix = self._enter_bus(prefix, wanted.name, wanted.passive)
        with settings.overrides(trust=trust):
            file = make_record_file(wanted.name, in_prefix, trust, wanted)
            if wanted.passive:
                file.open_existing()
                file._check_requested_options()
            else:
                file.open_or_create(wanted.create, wanted.mode)
        self._attach_record_file(file)

    cdef int _attach_record_file(self, RecordFile file) except -1:
        """Attach an open file that matches the options."""
        self._file, self._writer.parts, self._opened_parts = file, file.parts, file.parts
        self._writer.liveness_file = file.liveness_file()
        self._seen_counts = <uint64_t *> PyMem_Calloc(file.parts.config.length, sizeof(uint64_t))
        if self._seen_counts == NULL:
            raise MemoryError()
        self._poll_state.parts, self._poll_state.seen_write_counts = &self._opened_parts, self._seen_counts
        self._poll_state.not_truncated = file.not_truncated
        self._reset_for_process()
        return 0

    def _reset_for_process(self):
        """Reset the state for this process: no users and no row."""
        self._forget_user_threads()
        self._is_reading_changes = False
        self._write_state = WRITES_DIRECTLY if self._bus is None else WRITES_ON_BUS
        self._writer.row, self._row_token = NULL, NULL
        self._forget_inherited_wait()
        self._use_state = self._fork_generation = fork_generation

    def __dealloc__(self):
        if self._fork_generation == fork_generation:
            self._close_handle()  # also of a handle that was closed during its use, because its users may remain
        PyMem_Free(self._seen_counts)

    # ---- join and leave ----

    cdef int _reopen_in_child(self) except -1:
        self._reset_for_process()
        return 0

    cdef int _ensure_writer_row(self) except -1:
        """Check the handle and take a row if needed, at the beginning of each write."""
        self._check_usable()
        if self._writer.row == NULL:
            self._register_writer()
        return 0

    cdef int _register_writer(self) except -1:
        if self._passive:
            raise options.passive_writer_error(self._endpoint)
        if self._bus is None:
            close_at_exit(self)  # runs Python code, which may close the handle: do this before taking the row
        cdef mq_file_lock lock
        if self._file.fd < 0:  # private memory has no liveness file, and one handle
            return self._take_writer_row(NULL)
        self._file.lock(&lock)
        try:
            self._check_usable()  # during the wait, other code may have closed the handle, written, or forked
            if self._writer.row == NULL:
                self._take_writer_row(&lock)
        finally:
            self._file.unlock(&lock)
        return 0

    cdef int _take_writer_row(self, const mq_file_lock *lock) except -1:
        """Take a row under the lock."""
        cdef mq_process_identity identity
        cdef mq_error error
        read_own_identity(&identity, NULL)
        self._uid = self._file.make_uid()
        if mq_record_join(&self._writer, lock, &identity, self._uid, &self._row_token, &error):
            raise_error(&error, self._endpoint)
        return 0

    cdef int _abandon_rows(self) except -1:
        mq_liveness_unlock(self._row_token)
        self._writer.row, self._row_token, self._file.held_writes = NULL, NULL, 0
        return 0

    cdef int _close_handle(self) except -1:
        if self._file.held_writes:
            return 0  # the last one closes the handle
        return ThreadSharedHandle._close_handle(self)

    cdef int _release_rows(self) except -1:
        if self._writer.row != NULL:
            mq_record_unregister_writer(&self._writer, self._uid, &self._row_token)
        return 0

    cdef void _release_memory(self) noexcept:
        if self._file is not None:
            self._file.release()

    # ---- wait ----

    cdef bint _is_readable(self) noexcept:
        return mq_vector_is_readable(&self._poll_state) != 0

    cdef mq_u32 *_futex_word(self) noexcept:
        return &self._writer.parts.header.eventcount

    cdef uint32_t _prepare_wait(self) noexcept:
        return prepare_eventcount_wait(self._futex_word(), self._passive)

    cdef int64_t _max_sleep_ns(self, int64_t slept_ns) except -2:
        return compute_max_sleep_ns(self._passive, slept_ns)

    cdef mq_poll_ops _poll_ops(self) noexcept:
        cdef mq_poll_ops reader = mq_poll_ops(mq_vector_is_readable, &self._poll_state, self._futex_word(), NULL, NULL,
                                              False, NULL)
        return make_poll_ops(reader, self._passive)

    def wait(self, timeout=None):
        return wait_until_readable(self, self._file, timeout)

    cdef uint64_t _collect_changes(self, int64_t *indices, uint64_t limit) noexcept:
        """Find up to `limit` changed elements, ascending. A batch starts after a previous one that was full."""
        cdef uint64_t count = mq_vector_collect_changed(&self._opened_parts, self._seen_counts, self._next_index,
                                                        indices, limit)
        if count == 0 and self._next_index:
            count = mq_vector_collect_changed(&self._opened_parts, self._seen_counts, 0, indices, limit)
        self._next_index = indices[count - 1] + 1 if count and count == limit else 0
        return count

    cdef int _begin_reading_changes(self) except -1:
        self._check_usable()
        if self._is_reading_changes:
            raise options.concurrent_changes_error(self._endpoint)
        self._is_reading_changes = True
        return 0

    cdef void _mark_changes_seen(self, const uint64_t *counts, const int64_t *indices, uint64_t count) noexcept:
        """Store the counts of reported elements."""
        cdef uint64_t i
        watcher_lock()
        for i in range(count):
            if may_mark_seen(&self._opened_parts, indices[i], counts[i], self._seen_counts[indices[i]]):
                self._seen_counts[indices[i]] = counts[i]
        watcher_unlock()

    # ---- information ----

    @property
    def name(self):
        return self._endpoint or None

    @property
    def prefix(self):
        return shm_paths.strip_bus(self._file.prefix)

    @property
    def path(self):
        return self._file.path

    @property
    def mode(self):
        return self._file.mode

    @property
    def schema(self):
        return self._file.schema

    @property
    def creator(self):
        return self._file.creator

    @property
    def created_ns(self):
        return self._file.created_ns

    @property
    def passive(self):
        return self._passive

    @property
    def identity(self):
        """Unique identity: device and inode of the file; None for private memory."""
        liveness_file = self._file.segment.liveness_file
        return (liveness_file.device, liveness_file.inode) if self._endpoint else None

    @property
    def _file_memory(self):
        return self._file.memory

    @property
    def _held_writes(self):
        return self._file.held_writes

    @property
    def _state(self):
        return self._file.state

    def _observe(self, state):
        """Let `state` get each write from now on."""
        self._file.state = state

    def stats(self):
        self._check_usable()
        stats = _read_record_stats(self._file)
        self._check_usable()  # another thread may have closed the handle, so that its elements read as zeros
        return stats

    def arecv(self):
        return load_event_loop().receive_async(self, 0.0)

    def unlink(self):
        from msgq.impl.records.core import unlink_records

        self._check_usable()
        if self._endpoint:
            with settings.overrides(trust=self._file.trust):
                unlink_records(self._endpoint, self._file.prefix)
