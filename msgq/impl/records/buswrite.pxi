"""Writes on a bus of the fake backend, in the two steps of the real ones: fill the copy, then commit it.

A simulation may stop or kill the writer between both steps. The cell then is in the state that a real process would
leave, and other writers wait for the cell, or take it, as in shared memory. They wait in virtual time.
"""


cdef enum:
    # A deadline that has passed: take the element from a dead writer, but do not wait for a living one.
    ONLY_FROM_DEAD_WRITER = 1


cdef class RecordWrite:
    """See core.pyi."""
    cdef readonly RecordHandle handle
    cdef readonly bytes data
    cdef readonly int64_t time_ns
    cdef readonly bint is_held
    cdef bint _is_filled  # the first step is done: one cell is filled, but not committed

    def complete(self):
        """Do both steps. While another writer has an element, let other nodes run."""
        self._repeat_until_done(self.finish)

    def stop_in_middle(self):
        """Do the first step, after the same wait. `finish` does the second one."""
        self._repeat_until_done(self._fill)

    def hold(self):
        """Let the handle keep its row until the write has ended, even if the program closes the handle."""
        self.handle._ensure_writer_row()
        self.is_held = True
        self.handle._file.held_writes += 1

    def finish(self):
        raise NotImplementedError

    def abandon(self):
        raise NotImplementedError

    def is_unlocked(self):
        """Return True if no living writer has the next element."""
        return True

    def _fill(self):
        raise NotImplementedError

    def _repeat_until_done(self, step):
        self.handle._ensure_writer_row()
        step()

    cdef int _end_hold(self) except -1:
        if self.is_held:
            self.is_held = False
            self.handle._file.held_writes -= 1
            if self.handle._use_state == CLOSED:
                self.handle._close_handle()
        return 0


cdef class VectorWrite(RecordWrite):
    """See core.pyi."""
    cdef _ArrayMemory _indices
    cdef mq_element_selection _elements
    cdef uint64_t _done  # number of written elements
    cdef int64_t _patience_ns  # -1: forever

    @property
    def indices(self):
        return self._indices.array

    def is_unlocked(self):
        cdef mq_record_writer *w = &self.handle._writer
        cdef uint64_t owner = mq_cell_version_owner(mq_load_acquire_u64(self._next_version()))
        cdef mq_liveness_probe probe = mq_liveness_probe_begin(w.liveness_file)
        cdef bint is_dead = not owner or mq_record_owner_liveness(w.parts.header, &probe, owner) == MQ_DEAD
        mq_liveness_probe_end(&probe)
        return is_dead

    cdef uint64_t _next_index(self) noexcept:
        return self._elements.indices[self._done]

    cdef mq_u64 *_next_version(self) noexcept:
        return mq_cell_version_word(&self.handle._writer.parts, self._next_index())

    def _repeat_until_done(self, step):
        cdef RecordHandle handle = self.handle
        cdef int64_t began = handle._now_ns(), waited
        cdef uint64_t before = 0
        handle._ensure_writer_row()
        while not step():
            if self._done != before:
                before, began = self._done, handle._now_ns()
            waited = handle._now_ns() - began
            index = self._next_index()
            if 0 <= self._patience_ns <= waited:
                raise (<VectorBase> handle)._element_locked_error(index, waited / <double> MQ_NS_PER_S)
            handle._bus.wait_until(self.is_unlocked, None if self._patience_ns < 0 else self._patience_ns - waited,
                                   f"element {index} of {handle._endpoint!r}")
            handle._ensure_writer_row()

    def _fill(self):
        cdef mq_record_writer *w = &self.handle._writer
        cdef uint64_t item_bytes = w.parts.config.item_bytes
        if self._done < self._elements.count and not self._is_filled:
            self._is_filled = mq_vector_fill_one(
                w, self._next_version(), <const uint8_t *> <const char *> self.data + self._done * item_bytes,
                item_bytes, self.time_ns, NULL, ONLY_FROM_DEAD_WRITER) == MQ_VECTOR_WRITTEN
        return self._is_filled

    def finish(self):
        """Do what is left of the write. Return False if another living writer has the next element."""
        cdef mq_record_writer *w = &self.handle._writer
        cdef mq_vector_status status = MQ_VECTOR_WRITTEN
        if self._is_filled:
            status = mq_vector_commit_one(w, self._next_version())
            self._is_filled = False
            self._done += 1
            mq_record_notify_written(w, 1, w.parts.config.flags & MQ_RECORD_EXCLUSIVE)
        if status == MQ_VECTOR_WRITTEN:
            status = mq_vector_write_elements(w, &self._elements, <const uint8_t *> <const char *> self.data,
                                              self.time_ns, NULL, ONLY_FROM_DEAD_WRITER, &self._done)
        if status != MQ_VECTOR_WRITTEN and status != MQ_VECTOR_CORRUPT:
            return False
        self._end_hold()
        if status == MQ_VECTOR_CORRUPT:
            raise (<VectorBase> self.handle)._corrupt_versions_error()
        return True

    def abandon(self):
        """End the write in its middle, as the death of the writer does. A later write takes a new row.

        The version of an exclusive vector does not name its writer, which therefore stays the owner.
        """
        if not (<VectorBase> self.handle)._exclusive:
            self.handle._abandon_rows()


cdef class ValueWrite(RecordWrite):
    """See core.pyi."""
    cdef Entry _entry

    @property
    def key(self):
        return self._entry.key

    cdef mq_u64 *_version(self) noexcept:
        return mq_cell_version_word(&self.handle._writer.parts, self._entry._index)

    def hold(self):
        RecordWrite.hold(self)
        self._entry._held_writes += 1

    def _fill(self):
        if not self._is_filled:
            mq_board_fill_value(&self.handle._writer, self._version(), <const char *> self.data, len(self.data),
                                self.time_ns)
        self._is_filled = True
        return True

    def finish(self):
        """Do what is left of the write. Return True, because a key has one writer."""
        self._fill()
        mq_board_commit_value(&self.handle._writer, self._version())
        if self.is_held:
            self._entry._held_writes -= 1
            if self._entry._closed:
                self._entry._release_key()
        self._end_hold()
        return True

    def abandon(self):
        """End the write in its middle. The handle stays the owner of the key."""


cdef VectorWrite _make_vector_write(VectorBase vector, const mq_element_selection *elements, const uint8_t *source,
                                    int64_t patience_ns):
    """Return a write of a copy of the elements, with stamps for a tracked dtype."""
    cdef VectorWrite write = VectorWrite.__new__(VectorWrite)
    cdef uint64_t i, item_bytes = vector._opened_parts.config.item_bytes
    cdef mq_stamps stamps
    cdef char *row
    write.handle, write.time_ns, write._patience_ns = vector, vector._now_ns(), patience_ns
    write._indices = _ArrayMemory(vector._empty_array(elements.count, "i8"), True)
    write._elements = _select_indices(write._indices)
    write.data = (<const char *> source)[:elements.count * item_bytes]
    if vector._make_value_stamps(write.time_ns, &stamps) == NULL:
        stamps.publish_time = 0
    for i in range(elements.count):
        (<int64_t *> write._indices.at)[i] = vector._selected_element_index(elements, i)
        if vector._tracked:
            row = <char *> write.data + i * item_bytes
            memcpy(row, &stamps, sizeof(stamps))
    return write


cdef ValueWrite _make_value_write(Entry entry, bytes data):
    cdef ValueWrite write = ValueWrite.__new__(ValueWrite)
    write.handle, write._entry, write.data = entry._board, entry, data
    write.time_ns = entry._board._now_ns()
    return write
