"""The contract tests run once per backend. A new backend joins by one line in BACKENDS."""

from __future__ import annotations

import contextlib
import select
import shutil
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from msgq import stats
from msgq.channel import Channel, Node
from msgq.channel.channel import ReservedChannel
from msgq.common import shm_paths
from msgq.errors import SegmentError
from msgq.impl import backend as backends
from msgq.impl.base import clock
from msgq.impl.base.files import list_files
from msgq.impl.fake.bus import current_bus
from tests.contract import posix_children, posix_programs, record_children
from tests.contract.queue_children import MODULES
from tests.support import DEADLINE, DEADLINE_MS, SHM, Child, wait_threads_asleep

#: Promises that the fake backend makes for no kind: keys of these tests, and words of docs/guides/simulation.md.
FAKE_LACKS = {
    "fork": "forked children",
    "processes": "other processes",
    "threads": "threads that wake each other",
}

#: Backend: what it does not promise. The words, as used by ``@pytest.mark.needs``:
#: fork: a child goes on with a cursor of its own, and may not publish. lost: exact counts. passive: watching without a
#: trace. processes: a topic reaches other processes. read: the publisher knows what was read. replay: a restart of the
#: publisher loses nothing. segment: ``segment_size`` is a bound, and a slow subscriber is lapped. stats: `msgq.stats`
#: sees it. takeover: the last publisher to connect wins. threads: a thread that waits is woken by what others do.
#: tracked: messages may carry their publish and origin time.
BACKENDS: dict[str, frozenset[str]] = {
    "msgq": frozenset(),
    "zmq": frozenset({"fork", "lost", "passive", "read", "replay", "segment", "stats", "takeover", "tracked"}),
    "fake": frozenset(FAKE_LACKS),
}


class Backend:
    """A backend's classes, and sockets that are closed when the test ends."""

    def __init__(self, name: str) -> None:
        self.name = name
        module = backends.load_backend(name)
        self.Context, self.Poller = module.Context, module.Poller
        self.PubSocket, self.SubSocket = module.PubSocket, module.SubSocket
        self.context = module.Context()
        #: The clock of stamps, and the one that the backend's time-outs are about.
        self.time_ns = current_bus().clock.time_ns if name == "fake" else clock.time_ns
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

    def close_sockets(self) -> None:
        """Close the sockets. The test can open new ones."""
        while self._sockets:
            self._sockets.pop().close()

    def close(self) -> None:
        self.close_sockets()
        self.context.term()


def collect(sub: Any, count: int) -> list[bytes]:
    """Return the next `count` messages, however many calls that takes."""
    messages: list[bytes] = []
    while len(messages) < count and (batch := sub.receive_many(count - len(messages), wait_for_one=True)):
        messages += batch
    return messages


def skip_unpromised(request: pytest.FixtureRequest, lacking: dict[str, frozenset[str]]) -> None:
    """Skip the test if it needs what its backend does not promise."""
    needed = {promise for mark in request.node.iter_markers("needs") for promise in mark.args}
    if missing := needed & lacking[request.param]:
        pytest.skip(f"{request.param} does not promise: {', '.join(sorted(missing))}")


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.ci] * (name == "zmq")) for name in BACKENDS])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    skip_unpromised(request, BACKENDS)
    monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "ipc")  # tests that run side by side have no ports to share
    backend = Backend(request.param)
    yield backend
    backend.close()


#: Backend: what it does not promise of channels, in the words above. fork: a child's subscriber goes on.
CHANNELS: dict[str, frozenset[str]] = {
    "msgq": frozenset(),
    "fake": frozenset(FAKE_LACKS),
}


class Channels:
    """The channels of one backend, in a process that has chosen it."""

    def __init__(self, name: str, token: str) -> None:
        self.name, self.token = name, token
        self.Poller: Callable[[], Any] = backends.load_backend(name).Poller
        self.monotonic_ns = current_bus().clock.monotonic_ns if name == "fake" else time.monotonic_ns
        self.time_ns = current_bus().clock.time_ns if name == "fake" else clock.time_ns

    def open(self, name: str = "", **options: Any) -> Any:
        """Open the test's channel, or another one of the test."""
        return Channel(self.token + name, **options)

    def pair(self, name: str = "", *, publisher: dict[str, Any] | None = None, **options: Any) -> tuple[Any, Any]:
        """Return a publisher, and a subscriber of it."""
        configuration = {key: options.pop(key) for key in ("capacity", "stamps") if key in options}
        channel = self.open(name, **configuration)
        subscriber = channel.subscriber(**options)
        return channel.publisher(**(publisher or {})), subscriber

    def node(self, name: str, **options: Any) -> Any:
        return Node(self.token + name, **options)

    def close(self) -> None:
        """Remove the test's channels, in whichever prefix."""
        for prefix, name in self._names():
            with contextlib.suppress(SegmentError):  # a part of the test may have made it useless
                ReservedChannel(name, prefix=prefix, create=False).unlink()
        for kind in ("msgqchan_", "msgqpool_"):
            shutil.rmtree(SHM / f"{kind}p{self.token}", ignore_errors=True)
            for path in SHM.glob(f"{kind}{self.token}*"):
                path.unlink()

    def _names(self) -> list[tuple[str, str]]:
        if self.name == "fake":
            return [
                (prefix, name.removeprefix(start))
                for prefix in ("", f"p{self.token}")
                for directory, start in [shm_paths.locate_channel_files(current_bus().resolve_prefix(prefix))]
                for name, _ in list_files(directory)
                if name.startswith(start) and self.token in name
            ]
        bare = [("", path.name.removeprefix("msgqchan_")) for path in SHM.glob(f"msgqchan_{self.token}*")]
        prefix = f"p{self.token}"
        return bare + [(prefix, path.name) for path in SHM.glob(f"msgqchan_{prefix}/*")]


def channels_of(name: str, token: str) -> Iterator[Channels]:
    """Choose a backend while the caller goes on, and remove its channels afterwards."""
    former = backends.set_backend(backends.load_backend(name))
    channels = Channels(name, token)
    try:
        yield channels
    finally:
        channels.close()
        backends.set_backend(former)


@pytest.fixture(params=CHANNELS)
def channels(request: pytest.FixtureRequest, token: str) -> Iterator[Channels]:
    skip_unpromised(request, CHANNELS)
    yield from channels_of(request.param, token)


#: Backend: what it does not promise of work queues, in the words above. fork: a child's handle opens itself again.
QUEUES: dict[str, frozenset[str]] = {
    "msgq": frozenset(),
    "fake": frozenset(FAKE_LACKS),
}


class Queues:
    """The work queues of one backend, in a process that has chosen it."""

    def __init__(self, name: str, token: str) -> None:
        self.backend, self.name = name, token
        module = import_module(MODULES[name])
        self.MessageQueue, self.Job, self.Message = module.MessageQueue, module.Job, module.Message
        self.Poller: Callable[[], Any] = backends.load_backend(name).Poller
        virtual = current_bus().clock
        self.monotonic = virtual.monotonic if name == "fake" else time.monotonic
        self.time_ns = virtual.time_ns if name == "fake" else clock.time_ns
        self.sleep = virtual.sleep if name == "fake" else time.sleep
        self._open: list[Any] = []

    def open(self, flags: Any = None, *, name: Any = "", **options: Any) -> Any:
        """Open the test's queue, or another one of the test."""
        self._open.append(queue := self.MessageQueue(self.name + name, flags, **options))
        return queue

    def poller(self, *waited_for: Any) -> Any:
        poller = self.Poller()
        for each in waited_for:
            poller.registerSocket(each)
        return poller

    def close(self) -> None:
        """Close what is open, and remove the test's queues, in whichever prefix."""
        for queue in self._open:
            queue.close()
        for prefix, name in self._names():
            self.MessageQueue.unlink_name(name, prefix)
        shutil.rmtree(SHM / f"msgqjobs_p{self.name}", ignore_errors=True)

    def _names(self) -> list[tuple[str, str]]:
        places = "", f"p{self.name}"
        return [
            (prefix, name) for prefix in places for name in stats.queue_inodes(prefix) if name.startswith(self.name)
        ]


def receive_all(queue: Any) -> list[bytes]:
    """Receive all that is there."""
    return [data for data, _ in queue.receive_many()]


def readable(fd: int, seconds: float = 0) -> bool:
    """Whether a descriptor can be read now, or soon."""
    return bool(select.select([fd], [], [], seconds)[0])


def call_arguments(call: str) -> list[Any]:
    """Return what a method of a queue is called with, at least."""
    arguments: dict[str, list[Any]] = {"send": [b""], "send_many": [[b""]], "receive_into": [bytearray(8)]}
    return arguments.get(call, [])


def queues_of(name: str, token: str) -> Iterator[Queues]:
    """Choose a backend while the caller goes on, and remove its queues afterwards."""
    former = backends.set_backend(backends.load_backend(name))
    queues = Queues(name, token)
    try:
        yield queues
    finally:
        queues.close()
        backends.set_backend(former)


@pytest.fixture(params=QUEUES)
def queues(request: pytest.FixtureRequest, token: str) -> Iterator[Queues]:
    skip_unpromised(request, QUEUES)
    yield from queues_of(request.param, token)


#: Backend: what it does not promise of vectors and boards, in the words above.
RECORDS: dict[str, frozenset[str]] = {
    "msgq": frozenset(),
    "fake": frozenset(FAKE_LACKS),
}


class Records:
    """The vectors and boards of one backend, in a process that has chosen it."""

    def __init__(self, name: str, token: str) -> None:
        self.backend, self.name = name, token
        module = import_module(record_children.MODULES[name])
        self.SeqlockVector, self.Seqlock, self.Board = module.SeqlockVector, module.Seqlock, module.Board
        self.Poller: Callable[[], Any] = backends.load_backend(name).Poller
        virtual = current_bus().clock
        self.monotonic = virtual.monotonic if name == "fake" else time.monotonic
        self.time_ns = virtual.time_ns if name == "fake" else clock.time_ns
        self._open: list[Any] = []

    def vector(self, dtype: Any = None, length: int | None = None, *, name: str = "", **options: Any) -> Any:
        """Open the test's vector, or another one of the test."""
        self._open.append(vector := self.SeqlockVector(self.name + name, dtype, length, **options))
        return vector

    def seqlock(self, dtype: Any = None, *, name: str = "", **options: Any) -> Any:
        """Open the test's vector of one."""
        self._open.append(seqlock := self.Seqlock(self.name + name, dtype, **options))
        return seqlock

    def board(self, *sizes: int | None, name: str = "", **options: Any) -> Any:
        """Open the test's board."""
        self._open.append(board := self.Board(self.name + name, *sizes, **options))
        return board

    def poller(self, *waited_for: Any) -> Any:
        poller = self.Poller()
        for each in waited_for:
            poller.registerSocket(each)
        return poller

    def close(self) -> None:
        """Close what is open, and remove the test's vectors and boards, in whichever prefix."""
        for each in self._open:
            each.close()
        for prefix, name in self._names():
            with contextlib.suppress(SegmentError):  # the test has removed it
                self.Board.unlink_name(name, prefix)
        shutil.rmtree(SHM / f"msgqrec_p{self.name}", ignore_errors=True)

    def _names(self) -> list[tuple[str, str]]:
        if self.backend == "fake":
            return [(each.prefix, each.name) for each in self._open if each.name]
        bare = [("", path.name.removeprefix("msgqrec_")) for path in SHM.glob(f"msgqrec_{self.name}*")]
        prefix = f"p{self.name}"
        return bare + [(prefix, path.name) for path in SHM.glob(f"msgqrec_{prefix}/*")]


def records_of(name: str, token: str) -> Iterator[Records]:
    """Choose a backend while the caller goes on, and remove its vectors and boards afterwards."""
    former = backends.set_backend(backends.load_backend(name))
    records = Records(name, token)
    try:
        yield records
    finally:
        records.close()
        backends.set_backend(former)


@pytest.fixture(params=RECORDS)
def records(request: pytest.FixtureRequest, token: str) -> Iterator[Records]:
    skip_unpromised(request, RECORDS)
    yield from records_of(request.param, token)


@pytest.fixture(params=posix_programs.MODULES)
def both(request: pytest.FixtureRequest, endpoint: str) -> Iterator[posix_children.Queues]:
    """Queues of posix_ipc, or ours: what is asserted of ours holds for the other one, too."""
    queues = posix_children.Queues(request.param, f"/{endpoint}")
    yield queues
    queues.end()


@pytest.fixture
def own(endpoint: str) -> Iterator[posix_children.Queues]:
    """Queues of ours alone, as posix_ipc has them."""
    queues = posix_children.Queues(posix_programs.MODULES[1], f"/{endpoint}")
    yield queues
    queues.end()


def race_sizes(
    request: Callable[[str, int], str], endpoint: str, sizes: list[int]
) -> tuple[tuple[int, int], tuple[int, str]]:
    """Run the function once with each size, at the same time. Exactly one of both children must win.

    Return the size and the process of the winner, then the size and the error of the loser.
    """
    with Child(request, endpoint, sizes[0]) as first, Child(request, endpoint, sizes[1]) as second:
        children = [first, second]
        assert [child.hear() for child in children] == ["ready", "ready"]
        for child in children:
            child.say()
        outcomes = [child.hear() for child in children]
        assert sorted(outcomes) == ["lost", "won"]
        for child in children:
            child.say()
        winner, loser = outcomes.index("won"), outcomes.index("lost")
        assert children[winner].result() == ""
        return (sizes[winner], children[winner].pid), (sizes[loser], children[loser].result())
