"""Handles after a fork and between threads: the bases of everything that a program opens.

A handle's use state is the fork generation of the process that opened it while it may be used, else one of `UseState`.
So one comparison finds a closed handle, a handle in use, and a handle that came through a fork:

    if self._use_state != fork_generation:
        self._reopen_or_raise()
"""


cdef class ForkAwareHandle:
    """See core.pxd."""

    def __cinit__(self):
        self._use_state = CLOSED
        self._endpoint = ""

    def __dealloc__(self):
        forget_at_exit(self)

    @property
    def endpoint(self):
        return self._endpoint

    @property
    def closed(self):
        return self._use_state == CLOSED

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _close_at_exit(self):
        if self._use_state == fork_generation:
            self.close()

    def _choose_bus(self):
        """Return the bus on which the handle opens its endpoint; None: shared memory."""
        return None

    cdef str _enter_bus(self, object prefix, str endpoint, bint passive=False):
        self._bus = self._choose_bus()
        if self._bus is not None:
            return require_own_prefix(self._bus, prefix, endpoint)
        in_prefix = settings.resolve_prefix(prefix)
        if in_prefix and not passive:
            settings.refuse_bus_prefix(in_prefix, endpoint)
        # an observer of a bus reads its files like others
        if not in_prefix or not in_prefix.startswith(naming.BUS_PREFIX_START):
            refuse_in_simulation(endpoint)
        return in_prefix

    cdef int64_t _now_ns(self) noexcept:
        return mq_monotonic_ns() if self._bus is None else self._bus.clock.now_ns

    cdef uint32_t _random_u32(self) noexcept:
        return random_u32() if self._bus is None else self._bus.next_number()

    cdef void _release_memory(self) noexcept:
        self._memory = None

    cdef int _check_usable(self) except -1:
        """Check that the handle may be used, at the beginning of each call. Reopen it after a fork."""
        if self._use_state != fork_generation:
            self._reopen_or_raise()
        return 0

    cdef int _reopen_or_raise(self) except -1:
        """Reopen the handle in a forked child, or raise. After an error, the handle still counts as inherited."""
        cdef int use_state = self._use_state, generation = self._fork_generation
        if use_state == CLOSED or generation == fork_generation:
            raise usage_error(use_state, self._endpoint)
        if self._bus is not None:
            raise inherited_bus_error(self._endpoint)
        self._fork_generation, self._use_state = fork_generation, BUSY
        self._user_thread_id = PyThread_get_thread_ident()
        try:
            self._reopen_in_child()
            if self._use_state == BUSY:
                self._use_state = self._fork_generation
        finally:
            if self._use_state == BUSY:
                self._fork_generation, self._use_state = generation, use_state
        return 0

    cdef int _reopen_in_child(self) except -1:
        raise not_connected_error(self._endpoint)


def require_own_prefix(Bus bus not None, prefix, str endpoint):
    in_prefix = bus.resolve_prefix(prefix)
    if find_bus(in_prefix) is not bus:
        text = (f"prefix {in_prefix!r} is not that of the current bus, {bus.prefix!r}; open the endpoint in its "
                "simulation")
        raise StateError(text, endpoint)
    return in_prefix


cdef object inherited_bus_error(str endpoint):
    text = "was connected before a fork, on the bus of the parent process; close it and connect again"
    return ForkedSocketError(text, endpoint)
