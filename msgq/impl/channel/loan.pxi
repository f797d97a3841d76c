"""A slot that a publisher lends for writing in place."""


@no_gc_clear  # __dealloc__ needs the pool
cdef class Loan:
    """See core.pyi."""
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
        if self._slot != MQ_CHANNEL_NO_SLOT and self._fork_generation == fork_generation:
            self._pool.cancel_loan(self._slot, False)

    def __len__(self):
        return self._size

    def __setitem__(self, index, value):
        cdef Py_ssize_t start, stop, step, size
        if PyBytes_CheckExact(value) and PySlice_Check(index):
            PySlice_GetIndicesEx(index, self._size, &start, &stop, &step, &size)
            if step == 1 and size == PyBytes_GET_SIZE(value):
                self._check_usable_loan()
                mq_copy_to_shared(mq_channel_begin_slot_write(&self._pool.c, self._slot) + start,
                                  PyBytes_AS_STRING(value), size)
                return
        assign_bytes(memoryview(self), index, value, self._publisher._endpoint)

    def __enter__(self):
        self._check_usable_loan()
        return self

    def __exit__(self, kind, *_):
        if self._is_finished:
            return
        if kind is None:
            self.publish()
        else:
            self.discard()

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
        cdef uint64_t wanted = self._size if size is None else size
        self._check_usable_loan()
        cdef uint64_t slot = self._slot
        if wanted > self._size:
            raise InvalidValueError(f"loan has {self._size} bytes, but {wanted} were to be published",
                                    self._publisher._endpoint)
        if self._export_count:
            text = f"loan has open buffers: {self._export_count} (memoryview, array), which could change "
            raise BufferError(text + "the message; release or delete them first")
        refuse_foreign_origin(self.origin_time, self._publisher._endpoint)
        self._is_finished, self._slot = True, MQ_CHANNEL_NO_SLOT
        try:
            self.position = self._publisher._publish_slot(self._pool, slot, wanted, self.origin_time)
        finally:
            self._pool.end_loan(True)
        return self.position

    def discard(self):
        if self._is_finished or self._pool is None:
            return
        self._is_finished = True
        # if buffers are left, the release of the last buffer cancels the loan
        if not self._export_count and self._fork_generation == fork_generation:
            slot, self._slot = self._slot, MQ_CHANNEL_NO_SLOT
            self._pool.cancel_loan(slot, True)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        self._check_usable_loan()
        PyBuffer_FillInfo(buffer, self, mq_channel_begin_slot_write(&self._pool.c, self._slot), self._size, 0, flags)
        self._export_count += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self._export_count -= 1
