"""A slot that a publisher lends for writing in place."""


@no_gc_clear  # __dealloc__ needs the pool
cdef class Loan:
    """See core.pyi.

    The lock of the publisher guards the publisher, its pool and the loan, because threads may use several of them at
    once.
    """
    cdef Publisher _publisher
    cdef PublisherPool _pool
    cdef int _slot  # -1: the slot no longer belongs to the loan
    cdef uint64_t _size
    cdef int _fork_generation
    cdef Py_ssize_t _export_count  # number of exported buffers
    cdef bint _is_finished
    cdef readonly object position
    cdef public uint64_t origin_time

    def __cinit__(self):
        self._slot = MQ_CHANNEL_NO_SLOT

    def __init__(self):
        raise TypeError("loans cannot be created directly; call the publisher's loan()")

    def __dealloc__(self):  # each buffer keeps the loan alive, so no buffer is left
        cdef mq_object_lock lock
        if self._slot != MQ_CHANNEL_NO_SLOT and self._fork_generation == fork_generation:
            mq_lock_object(&lock, <PyObject *> self._publisher)
            try:
                self._pool.cancel_loan(self._slot, False)
            finally:
                mq_unlock_object(&lock)

    def __len__(self):
        return self._size

    def __setitem__(self, index, value):
        cdef Py_ssize_t start, stop, step, size
        cdef uint8_t *payload
        if PyBytes_CheckExact(value) and PySlice_Check(index):
            PySlice_GetIndicesEx(index, self._size, &start, &stop, &step, &size)
            if step == 1 and size == PyBytes_GET_SIZE(value):
                payload = self._begin_export()
                mq_copy_to_shared(payload + start, PyBytes_AS_STRING(value), size)
                self._end_export()
                return
        assign_bytes(memoryview(self), index, value, self._publisher._endpoint)

    def __enter__(self):
        cdef mq_object_lock lock
        mq_lock_object(&lock, <PyObject *> self._publisher)
        try:
            self._check_usable_loan()
        finally:
            mq_unlock_object(&lock)
        return self

    def __exit__(self, kind, *_):
        if self._is_finished:
            return
        if kind is None:
            self.publish()
        else:
            self.discard()

    # ---- buffers ----

    cdef uint8_t *_begin_export(self) except NULL:
        """Return the payload to write. Until `_end_export`, the message cannot be published."""
        cdef mq_object_lock lock
        mq_lock_object(&lock, <PyObject *> self._publisher)
        try:
            self._check_usable_loan()
            self._export_count += 1
        finally:
            mq_unlock_object(&lock)
        return mq_channel_begin_slot_write(&self._pool.c, self._slot)

    cdef void _end_export(self) noexcept:
        cdef mq_object_lock lock
        mq_lock_object(&lock, <PyObject *> self._publisher)
        self._export_count -= 1
        mq_unlock_object(&lock)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self._begin_export(), self._size, 0, flags)

    def __releasebuffer__(self, Py_buffer *buffer):
        self._end_export()

    # ---- the end ----

    cdef int _check_usable_loan(self) except -1:
        if self._pool is None:
            raise TypeError("loans cannot be created directly; call the publisher's loan()")
        if self._is_finished:
            raise StateError("loan was already published or discarded; take another one", self._publisher._endpoint)
        if self._fork_generation != fork_generation:
            text = "loan belongs to the parent process, which alone can publish it; take another one here"
            raise ForkedSocketError(text, self._publisher._endpoint)
        if self._publisher._use_state != fork_generation:
            self._publisher._reopen_or_raise()
        return 0

    def publish(self, size=None):
        cdef mq_object_lock lock
        cdef uint64_t wanted = self._size if size is None else size
        mq_lock_object(&lock, <PyObject *> self._publisher)
        try:
            position = self._publish_slot(wanted)
        finally:
            mq_unlock_object(&lock)
        self.position = position
        return position

    cdef object _publish_slot(self, uint64_t size):
        cdef uint64_t slot
        self._check_usable_loan()
        if self.origin_time:
            refuse_foreign_origin(self.origin_time, self._publisher._endpoint)
            self._check_usable_loan()  # the first use of origins runs Python code
        if size > self._size:
            raise InvalidValueError(f"loan has {self._size} bytes, but {size} were to be published",
                                    self._publisher._endpoint)
        if self._export_count:
            text = f"loan has open buffers: {self._export_count} (memoryview, array), which could change "
            raise BufferError(text + "the message; release or delete them first")
        slot, self._slot, self._is_finished = self._slot, MQ_CHANNEL_NO_SLOT, True
        try:
            return self._publisher._publish_slot(self._pool, slot, size, self.origin_time)
        finally:
            self._pool.end_loan(True)

    def discard(self):
        cdef mq_object_lock lock
        mq_lock_object(&lock, <PyObject *> self._publisher)
        try:
            self._discard_slot()
        finally:
            mq_unlock_object(&lock)

    cdef int _discard_slot(self) except -1:
        if self._is_finished or self._pool is None:
            return 0
        self._is_finished = True
        # if buffers are left, the release of the last buffer cancels the loan
        if not self._export_count and self._fork_generation == fork_generation:
            slot, self._slot = self._slot, MQ_CHANNEL_NO_SLOT
            self._pool.cancel_loan(slot, True)
        return 0
