# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=python
"""The poller of the ring's subscribers."""

from libc.stdint cimport int64_t

from msgq.impl.connection cimport FOR_EVER, checked_timeout, enter, wait_ready
from msgq.impl.context cimport CLOSED, misuse
from msgq.impl.core cimport mq_now_ns
from msgq.impl.subscriber cimport SubSocket


cdef class Poller:
    """Waits for several subscribers at once. See the type stub (poller.pyi)."""

    def __cinit__(self):
        self._sockets = []

    def registerSocket(self, SubSocket socket not None):
        if socket._ticket == CLOSED:
            raise misuse(CLOSED, socket._endpoint)
        if not any(socket is known for known in self._sockets):
            self._sockets.append(socket)

    def unregisterSocket(self, SubSocket socket not None):
        if not any(socket is known for known in self._sockets):
            raise KeyError(socket)
        self._sockets = [known for known in self._sockets if known is not socket]

    def _subscribers(self):
        return self._sockets.copy()

    def apoll(self, timeout):
        from msgq.impl import event_loop
        return event_loop.poll(self, checked_timeout(timeout, ""))

    def poll(self, timeout):
        cdef int timeout_ms = checked_timeout(timeout, "")
        cdef int64_t deadline = FOR_EVER if timeout_ms < 0 else mq_now_ns() + <int64_t> timeout_ms * 1000000
        self._stepped = self._pass_gates()
        if self._stepped:
            timeout_ms = 0  # the controller has sent all that it wants seen
        while True:
            ready = [socket for socket in self._sockets if (<SubSocket> socket)._ready()]
            # A copy: another thread may register more meanwhile.
            if ready or not timeout_ms or not self._sockets or not wait_ready(self._sockets.copy(), deadline):
                return ready

    cdef bint _pass_gates(self) except -1:
        """Pass the gates of an event-gated run, one after the other; False: there was none."""
        cdef SubSocket socket
        cdef bint any_gate = False
        for socket in self._sockets.copy():
            if socket._gate is not None:
                enter(socket)
                socket._let_through = socket._pass_gate()
                any_gate |= socket._let_through
        return any_gate
