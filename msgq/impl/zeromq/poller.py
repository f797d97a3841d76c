"""The poller of the ZMQ backend."""

from __future__ import annotations

import time

import zmq

from msgq.common.units import NS_PER_MS
from msgq.impl.base.core import warn_in_event_loop
from msgq.impl.sockets.polling import PythonPoller, PyzmqPoller
from msgq.impl.zeromq.guard import call_all_exclusively
from msgq.impl.zeromq.subscriber import SubSocket

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from typing import Any


class _ZmqPoller(PythonPoller):
    _reader_type = SubSocket

    def _poll_readers(self, wait_ms: int) -> list[Any]:
        """See `PythonPoller`."""
        results = self._results.copy()  # another thread may register more sockets during the poll
        if not results:
            return []
        sockets = list(results)
        ready = call_all_exclusively(sockets, _wait_for_sockets, sockets, wait_ms)
        return [
            result
            for socket, result in results.items()
            if socket._held_message is not None or id(socket._socket) in ready
        ]


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
