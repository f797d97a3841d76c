"""Wait for several readers of any type."""


cdef class Poller:
    """Waits for several readers. See the type stub (core.pyi)."""

    def __cinit__(self):
        self._sockets = []

    def registerSocket(self, Waitable socket not None):
        if socket._use_state == CLOSED:
            raise usage_error(CLOSED, socket._endpoint)
        if not any(socket is known for known in self._sockets):
            self._sockets.append(socket)

    def unregisterSocket(self, Waitable socket not None):
        if not any(socket is known for known in self._sockets):
            raise KeyError(socket)
        self._sockets = [known for known in self._sockets if known is not socket]

    def _registered_sockets(self):
        return self._sockets.copy()

    def apoll(self, timeout):
        from msgq.impl.base import event_loop
        return event_loop.poll_async(self, timeout_ms(timeout))

    def poll(self, timeout):
        cdef int left_ms = timeout_ms(timeout)
        deadline = WAIT_FOREVER if left_ms < 0 else self._now_ns() + left_ms * <int64_t> MQ_NS_PER_MS
        self._last_poll_was_step = self._pass_event_gates()
        if self._last_poll_was_step:
            left_ms = 0  # the controller has sent all messages of this step
        while True:
            ready = [socket for socket in self._sockets if (<Waitable> socket)._poll_now()]
            # Pass a copy, because another thread may register more readers.
            if ready or not left_ms or not self._sockets or not wait_until_ready(self._sockets.copy(), deadline):
                return ready
            # Publishers may lap a subscriber whenever it becomes readable.
            PyErr_CheckSignals()
            if 0 <= deadline <= self._now_ns():
                left_ms = 0

    cdef int64_t _now_ns(self) noexcept:
        return (<Waitable> self._sockets[0])._now_ns() if self._sockets else mq_monotonic_ns()

    cdef bint _pass_event_gates(self) except -1:
        """Pass the gates of an event-gated run, one after the other. Return False if there was none."""
        cdef bint any_gate = False
        for socket in self._sockets.copy():
            any_gate |= (<Waitable> socket)._begin_poll()
        return any_gate
