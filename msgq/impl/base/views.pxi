"""Mapped memory of descriptors, for the lifetime of its views."""


cdef class DescriptorMapping:
    """See core.pyi."""

    def __init__(self, int fd, size_t size, bint writable, str endpoint, bint populate=False):
        cdef int protection = PROT_READ | (PROT_WRITE if writable else 0)
        cdef int flags = MAP_SHARED | (MAP_POPULATE if populate else 0)
        cdef void *address
        if self.address != NULL:
            raise SegmentError("is mapped already", endpoint)
        with nogil:  # a large buffer has many pages, so this takes milliseconds
            address = mmap(NULL, size, protection, flags, fd, 0)
        if address == MAP_FAILED:
            text = f"cannot map the {size} bytes of a buffer: {os.strerror(errno)}"
            raise SegmentError(text, endpoint, errno=errno)
        self.address = <uint8_t *> address
        self.size = size
        self.guard = guard_mapping(address, size, protection, &self.not_truncated)

    def __dealloc__(self):
        if self.address != NULL:
            unguard_mapping(self.guard)
            munmap(self.address, self.size)

    def read_u64(self, size_t offset):
        cdef uint64_t value
        self._check_range(offset, 8)
        mq_copy_from_shared(&value, self.address + offset, 8)
        return value

    @property
    def lost(self):
        return mq_mapping_was_truncated(self.not_truncated)

    cdef int _check_range(self, size_t offset, size_t size) except -1:
        if self.address == NULL or offset > self.size or size > self.size - offset:
            raise EndpointClosedError("region is not mapped yet")
        return 0


@cython.freelist(16)
@cython.no_gc_clear  # the part stays mapped until its last buffer is released
cdef class MappedView:
    """See core.pyi."""

    def __init__(self, DescriptorMapping region not None, size_t size, bint writable):
        if size > region.size:
            raise SegmentError(f"view of {size} bytes is larger than the region of {region.size} bytes")
        expose_buffer(self, region, region.address, size, writable)

    def __len__(self):
        return self._size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self._start, self._size, self._readonly, flags)


cdef class PinOwner:
    """See core.pyi."""

    cdef void _unpin_part(self, uint64_t part) noexcept:
        pass


@no_gc_clear  # __dealloc__ needs the owner
cdef class PinnedView(MappedView):
    """See core.pyi."""

    def __init__(self):
        raise TypeError("views cannot be created directly")

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if self._pin_owner is None:
            raise EndpointClosedError("view was released, and its memory may hold another message; receive another "
                                      "view")
        PyBuffer_FillInfo(buffer, self, self._start, self._size, self._readonly, flags)
        self._buffer_exports += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self._buffer_exports -= 1

    def release(self):
        if self._buffer_exports:
            raise BufferError(f"view has open buffers: {self._buffer_exports} (memoryview, array); "
                              "release or delete them first")
        release_pin(self)

    def __dealloc__(self):  # no buffer is left, because each buffer keeps the view alive
        release_pin(self)


cdef inline void release_pin(PinnedView view) noexcept:
    cdef mq_object_lock lock
    cdef PinOwner owner = view._pin_owner
    if owner is None:
        return
    view._pin_owner = None  # first, because the lock may let another thread release the view
    if view._fork_generation == fork_generation:
        mq_lock_object(&lock, <PyObject *> owner)
        owner._unpin_part(view._pinned_part)
        mq_unlock_object(&lock)
    view._owner = None
