"""The contract tests run once per backend. A new backend joins by one line in BACKENDS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from msgq import backend as backends
from msgq.impl.fake.bus import current_bus
from tests.support import DEADLINE, DEADLINE_MS, wait_threads_asleep

#: Backend: what it does not promise. The words, as used by ``@pytest.mark.needs``:
#: fork: a child goes on with a cursor of its own, and may not publish. lost: exact counts. passive: watching without a
#: trace. processes: a topic reaches other processes. read: the publisher knows what was read. replay: a restart of the
#: publisher loses nothing. segment: ``segment_size`` is a bound, and a slow subscriber is lapped. stats: `msgq.stats`
#: sees it. takeover: the last publisher to connect wins. threads: a thread that waits is woken by what others do.
BACKENDS: dict[str, frozenset[str]] = {
    "msgq": frozenset(),
    "zmq": frozenset({"fork", "lost", "passive", "read", "replay", "segment", "stats", "takeover"}),
    "fake": frozenset({"fork", "processes", "stats", "threads"}),
}


class Backend:
    """A backend's classes, and sockets that are closed when the test ends."""

    def __init__(self, name: str) -> None:
        self.name = name
        module = backends.load(name)
        self.Context, self.Poller = module.Context, module.Poller
        self.PubSocket, self.SubSocket = module.PubSocket, module.SubSocket
        self.context = module.Context()
        #: The clock that the backend's time-outs are about.
        self.monotonic_ns = current_bus().clock.monotonic_ns if name == "fake" else time.monotonic_ns
        self._sockets: list[Any] = []

    def pub(self, endpoint: str, *args: Any, **options: Any) -> Any:
        """Return a connected publisher."""
        self._sockets.append(socket := self.PubSocket())
        socket.connect(self.context, endpoint, *args, **options)
        return socket

    def sub(self, endpoint: str, *args: Any, timeout: int = DEADLINE_MS, **options: Any) -> Any:
        """Return a connected subscriber, whose time-out only a bug reaches."""
        self._sockets.append(socket := self.SubSocket())
        socket.connect(self.context, endpoint, *args, **options)
        socket.setTimeout(timeout)
        return socket

    def pair(self, endpoint: str, segment_size: int = 0, **options: Any) -> tuple[Any, Any]:
        """Return a publisher, and a subscriber that gets all it sends from now on."""
        pub, sub = self.pub(endpoint, segment_size), self.sub(endpoint, **options)
        pub.wait_for_readers(DEADLINE, n=1)
        return pub, sub

    def poller(self, *sockets: Any) -> Any:
        poller = self.Poller()
        for socket in sockets:
            poller.registerSocket(socket)
        return poller

    def settle(self) -> None:
        """Return when what was sent and closed within this process has arrived; on the ring it has."""
        if self.name == "zmq":
            wait_threads_asleep("ZMQbg")

    def close(self) -> None:
        for socket in self._sockets:
            socket.close()
        self.context.term()


def collect(sub: Any, count: int) -> list[bytes]:
    """Return the next `count` messages, however many calls that takes."""
    messages: list[bytes] = []
    while len(messages) < count and (more := sub.receive_many(count - len(messages), wait_for_one=True)):
        messages += more
    return messages


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    needed = {promise for mark in request.node.iter_markers("needs") for promise in mark.args}
    if missing := needed & BACKENDS[request.param]:
        pytest.skip(f"{request.param} does not promise: {', '.join(sorted(missing))}")
    monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "ipc")  # tests that run side by side have no ports to share
    backend = Backend(request.param)
    yield backend
    backend.close()
