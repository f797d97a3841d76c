"""The poller of the ZMQ backend."""

from __future__ import annotations

import time

import zmq

from msgq.common.units import NS_PER_MS
from msgq.impl.base.argument_checks import timeout_ms, warn_in_event_loop
from msgq.impl.sockets.polling import PythonPoller, PyzmqPoller
from msgq.impl.zeromq.guard import call_all_exclusively
from msgq.impl.zeromq.subscriber import SubSocket


class _ZmqPoller(PythonPoller):
    _socket_type = SubSocket

    def poll(self, timeout: float) -> list[SubSocket]:
        """Return the registered sockets whose next receive returns or raises at once, in their order.

        Parameters
        ----------
        timeout : milliseconds to wait for the first socket, 0 to 2**31 - 1; -1 waits forever.

        Returns
        -------
        The registered objects; empty at the timeout, or if no socket is registered.

        Raises
        ------
        InvalidValueError : an invalid timeout.
        EndpointClosedError : a registered socket was closed.

        Notes
        -----
        The GIL is released during the wait.
        """
        milliseconds = timeout_ms(timeout)
        sockets = self._sockets.copy()  # another thread may register more sockets during the poll
        if not sockets:
            return []
        ready = call_all_exclusively(sockets, _wait_for_sockets, sockets, milliseconds)
        return [socket for socket in sockets if socket._held_message is not None or id(socket._socket) in ready]


def _wait_for_sockets(sockets: list[SubSocket], milliseconds: int) -> set[int]:
    """Wait for messages, and return the ids of ZMQ sockets with a message. The caller has acquired all guards."""
    if any(socket._held_message is not None for socket in sockets):
        milliseconds = 0
    deadline = time.monotonic_ns() + milliseconds * NS_PER_MS if milliseconds >= 0 else -1
    items = [(socket._socket, zmq.POLLIN) for socket in sockets]
    zmq_fds = [socket._zmq_fd for socket in sockets]
    max_sleep_ms = 0
    while not (ready := zmq.zmq_poll(items, 0)):
        if milliseconds and not max_sleep_ms:  # before the first sleep
            warn_in_event_loop()
        max_sleep_ms = min([socket._reconnect_if_lost() for socket in sockets])
        if not sockets[0]._sleep_on_descriptors(zmq_fds, deadline, max_sleep_ms):
            break
    for socket in sockets:
        socket._rearm_fd()
    return {id(socket) for socket, _ in ready}


class Poller(PyzmqPoller[SubSocket], _ZmqPoller):
    """Waits for several subscribers and descriptors. One thread at a time may use a poller and its sockets."""
