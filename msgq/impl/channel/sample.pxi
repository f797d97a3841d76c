"""A view of a received message, without a copy."""


@cython.no_gc_clear  # the pool is needed until the end
cdef class Sample(PinnedView):
    """See core.pyi."""
    cdef readonly uint64_t position, publish_time, origin_time
    cdef str _publisher_node
    cdef uint64_t _publisher_pid

    @property
    def publisher(self):
        return _make_publisher_info(self._publisher_node, self._publisher_pid)

    def __bool__(self):  # an empty message is a true sample, too
        return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()
