"""Each public call that waits, and each close that must end it: the table of test_closing.py.

A row names the methods as users write them, `Class.method`. `test_each_waiting_method_is_in_the_table` compares the
names with the public classes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import msgq
from msgq.bridge import Bridge
from msgq.channel import Channel
from msgq.errors import EndpointClosedError, EventError
from msgq.impl import backend as backends
from msgq.posix_ipc import O_CREAT, ExistentialError
from msgq.posix_ipc import MessageQueue as PosixQueue
from msgq.recording import Player, PlayerStats
from msgq.topic import fake_events
from tests.recording.logs import write_log
from tests.unit.recordfile import RecordFile
from visionipc import FrameSync, VisionIpcClient, VisionIpcServer

Call = Callable[[Any], Any]
ALL, OURS, RING = ("msgq", "zmq", "fake"), ("msgq", "fake"), ("msgq",)
READY_IN_THE_FUTURE = 3_600_000_000_000


@dataclass(frozen=True)
class Row:
    """Things of one kind that calls wait for.

    Attributes
    ----------
    backends : that have it.
    open : returns it, and what closes it by the name of the way.
    waits : calls that wait for ever, by their name.
    tasks : the same for asyncio. On the fake backend, where no other thread can act, these alone are tried.
    ends : the exception of a call whose wait was ended, or its result.
    polled : whether pollers wait for it.
    """

    backends: tuple[str, ...]
    open: Callable[[Place], tuple[Any, dict[str, Callable[[], Any]]]]
    waits: dict[str, Call] = field(default_factory=dict)
    tasks: dict[str, Call] = field(default_factory=dict)
    ends: Any = EndpointClosedError
    polled: bool = False


class Place:
    """Where a test opens things: one backend, names that are the test's own."""

    def __init__(self, module: Any, backend: str, name: str, prefix: str, tmp_path: Any) -> None:
        self.module, self.backend, self.tmp_path = module, backend, tmp_path
        self.name, self.prefix = name, prefix
        self.context = module.Context()
        self._open = contextlib.ExitStack()

    def opened(self, one: Any) -> Any:
        """Close it when the test ends."""
        self._open.callback(one.close)
        return one

    def pipe(self) -> tuple[int, int]:
        """Return a pipe in which nothing is written."""
        ends = os.pipe()
        for end in ends:
            self._open.callback(os.close, end)
        return ends

    def close(self) -> None:
        self._open.close()

    def pub(self) -> Any:
        pub = self.opened(self.module.PubSocket())
        pub.connect(self.context, self.name)
        return pub

    def sub(self) -> Any:
        sub = self.opened(self.module.SubSocket())
        sub.connect(self.context, self.name)
        sub.setTimeout(-1)
        return sub


@contextlib.contextmanager
def place_on(backend: str, name: str, prefix: str, tmp_path: Path) -> Iterator[Place]:
    """Choose a backend, and close what is opened on it."""
    module = backends.load_backend(backend)
    previous = backends.set_backend(module)
    place = Place(module, backend, name, prefix, tmp_path)
    try:
        yield place
    finally:
        place.close()
        backends.set_backend(previous)


def closing(one: Any) -> tuple[Any, dict[str, Callable[[], Any]]]:
    return one, {"close": one.close}


def _sub(place: Place) -> Any:
    return closing(place.sub())


def _pub(place: Place) -> Any:
    return closing(place.pub())


def _gated(place: Place) -> Any:
    msgq.toggle_fake_events(True)
    place._open.callback(msgq.toggle_fake_events, False)
    place.opened(msgq.fake_event_handle(place.name, enable=True))
    return closing(place.sub())


def _subscriber(place: Place) -> Any:
    channel = Channel(place.name)
    place._open.callback(channel.unlink)
    place.opened(channel.publisher())
    return closing(place.opened(channel.subscriber()))


def _node(place: Place) -> Any:
    node = place.opened(msgq.Node("node"))
    subscriber = node.subscribe(place.name)
    place._open.callback(node.channels[place.name].unlink)
    return subscriber, {"Node.close": node.close}


def _full_publisher(place: Place) -> Any:
    """A publisher whose slots are all lent."""
    channel = Channel(place.name)
    place._open.callback(channel.unlink)
    publisher = place.opened(channel.publisher(slots=1))
    place._open.callback(publisher.loan(1).discard)
    return closing(publisher)


def _queue(place: Place, **options: Any) -> Any:
    queue = place.opened(msgq.MessageQueue(place.name, **options))
    place._open.callback(queue.unlink)
    return closing(queue)


def _full_queue(place: Place) -> Any:
    queue, closes = _queue(place, max_messages=1)
    queue.send(b"full")
    return queue, closes


def _posix_queue(place: Place) -> Any:
    queue = PosixQueue(f"/{place.name}", O_CREAT, max_messages=1)
    place._open.callback(queue.unlink)
    return closing(queue)


def _full_posix_queue(place: Place) -> Any:
    queue, closes = _posix_queue(place)
    queue.send(b"full")
    return queue, closes


def _records(place: Place, one: Any) -> Any:
    place._open.callback(partial(msgq.Board.unlink_name, place.name))
    return closing(place.opened(one))


def _vector(place: Place) -> Any:
    return _records(place, msgq.SeqlockVector(place.name, "f8", 4))


def _seqlock(place: Place) -> Any:
    return _records(place, msgq.Seqlock(place.name, "f8"))


def _held(place: Place, vector: Any) -> Any:
    """A vector whose first element another handle holds: as if that were stopped in the middle of a write."""
    _records(place, vector)
    holder = place.opened(msgq.SeqlockVector(place.name))
    holder[0] = 1.0
    file = RecordFile(f"{place.prefix}/{place.name}")
    file.write(file.version(0), 1 << 24 | 1 << 16 | file.read(file.row(0, 8)) & 0xFFFF)
    return closing(vector)


def _held_vector(place: Place) -> Any:
    return _held(place, msgq.SeqlockVector(place.name, "f8", 4))


def _held_seqlock(place: Place) -> Any:
    return _held(place, msgq.Seqlock(place.name, "f8"))


def _board(place: Place) -> Any:
    return _records(place, msgq.Board(place.name))


def _observed(place: Place) -> Any:
    board, _ = _board(place)
    observed = place.opened(board.observe("key"))
    return observed, {"close": observed.close, "Board.close": board.close}


def _record_queue(place: Place, producers: Any) -> Any:
    queue = place.opened(msgq.RecordQueue(place.name, np.dtype("f8"), producers=producers))
    if producers == "multiple":
        place._open.callback(Channel(place.name).unlink)
    return closing(queue)


def _submaster(place: Place) -> Any:
    return closing(place.opened(msgq.SubMaster([place.name])))


def _pubmaster(place: Place) -> Any:
    return closing(place.opened(msgq.PubMaster([place.name])))


def _each(place: Place) -> Any:
    """A loop of a tracer; its source ends the wait."""
    tracer, sub = place.opened(msgq.StageTracer("stage")), place.sub()
    return (tracer, sub), {"close of the source": sub.close}


def _event(place: Place) -> Any:
    handle = place.opened(msgq.fake_event_handle(place.name, enable=True))
    return handle.recv_called_event, {"SocketEventHandle.close": handle.close}


def _client(place: Place) -> Any:
    server = VisionIpcServer(place.name)
    place._open.callback(server.close)
    server.create_buffers(0, 4, 64, 48)
    server.start_listener()
    client = place.opened(VisionIpcClient(place.name, 0, False))
    assert client.connect(True)
    return closing(client)


def _unconnected_client(place: Place) -> Any:
    return closing(place.opened(VisionIpcClient(place.name, 0, False)))


def _sync(place: Place) -> Any:
    client, closes = _client(place)
    return FrameSync([client], 0), {"close of a client": closes["close"]}


def _player(place: Place) -> Any:
    write_log(place.tmp_path / "log.mcap", (place.name, 0, b"a"), (place.name, READY_IN_THE_FUTURE, b"b"))
    player = place.opened(Player(str(place.tmp_path / "log.mcap")))
    return player, {"close": player.close, "stop": player.stop}


def _bridge(place: Place) -> Any:
    bridge = place.opened(Bridge())
    return bridge, {"close": bridge.close, "stop": bridge.stop}


RECEIVES: dict[str, Call] = {
    "SubSocket.receive": lambda sub: sub.receive(),
    "SubSocket.receive_many": lambda sub: sub.receive_many(wait_for_one=True),
    "SubSocket.receive_into": lambda sub: sub.receive_into(bytearray(8)),
    "SubSocket.receive_array": lambda sub: sub.receive_array("u1", wait_for_one=True),
    "SubSocket.recv": lambda sub: sub.recv(),
    "SubSocket.recv_into": lambda sub: sub.recv_into(bytearray(8)),
    "SubSocket.__next__": next,
    "drain_sock_raw": lambda sub: msgq.drain_sock_raw(sub, wait_for_one=True),
}
ARRIVALS: dict[str, Call] = {
    "Subscriber.receive": lambda subscriber: subscriber.receive(),
    "Subscriber.receive_array": lambda subscriber: subscriber.receive_array("u1", timeout=None),
    "Subscriber.receive_into": lambda subscriber: subscriber.receive_into(bytearray(8)),
    "Subscriber.receive_view": lambda subscriber: subscriber.receive_view(),
    "Subscriber.__next__": next,
}
TABLE = [
    Row(
        ALL,
        _sub,
        RECEIVES,
        {
            "SubSocket.areceive": lambda sub: sub.areceive(),
            "SubSocket.arecv": lambda sub: sub.arecv(),
            "SubSocket.__anext__": anext,
        },
        polled=True,
    ),
    Row(RING, _sub, {"SubSocket.receive_tracked": lambda sub: sub.receive_tracked()}),
    Row(RING, _gated, {"SubSocket.receive": RECEIVES["SubSocket.receive"]}),
    Row(
        ("msgq", "zmq"),
        _pub,
        {"PubSocket.wait_for_readers": lambda pub: pub.wait_for_readers(None, n=1)},
    ),
    Row(
        OURS,
        _subscriber,
        ARRIVALS,
        {"Subscriber.arecv": lambda subscriber: subscriber.arecv(), "Subscriber.__anext__": anext},
        polled=True,
    ),
    Row(OURS, _node, ARRIVALS, {"Subscriber.arecv": lambda subscriber: subscriber.arecv()}, polled=True),
    Row(
        RING,
        _full_publisher,
        {
            "Publisher.send": lambda publisher: publisher.send(b"x", timeout=None),
            "Publisher.loan": lambda publisher: publisher.loan(1, timeout=None),
        },
    ),
    Row(
        OURS,
        _queue,
        {
            "MessageQueue.receive": lambda queue: queue.receive(),
            "MessageQueue.receive_into": lambda queue: queue.receive_into(bytearray(8192)),
            "MessageQueue.take": lambda queue: queue.take(),
            "MessageQueue.__next__": next,
        },
        {
            "MessageQueue.arecv": lambda queue: queue.arecv(),
            "MessageQueue.areceive": lambda queue: queue.areceive(),
            "MessageQueue.__anext__": anext,
        },
        polled=True,
    ),
    Row(
        OURS,
        _full_queue,
        {
            "MessageQueue.send": lambda queue: queue.send(b"x"),
            "MessageQueue.send_many": lambda queue: queue.send_many([b"x"]),
            "MessageQueue.wait_space": lambda queue: queue.wait_space(),
        },
    ),
    Row(
        RING,
        _posix_queue,
        {"posix_ipc.MessageQueue.receive": lambda queue: queue.receive()},
        ends=ExistentialError,
    ),
    Row(
        RING,
        _full_posix_queue,
        {"posix_ipc.MessageQueue.send": lambda queue: queue.send(b"x")},
        ends=ExistentialError,
    ),
    *(
        Row(
            OURS,
            opener,
            {
                f"{kind}.wait": lambda handle: handle.wait(),
                f"{kind}.receive": lambda handle: handle.receive(),
                f"{kind}.watch": lambda handle: next(handle.watch()),
            },
            {
                f"{kind}.areceive": lambda handle: handle.areceive(),
                f"{kind}.arecv": lambda handle: handle.arecv(),
                "ChangeIterator.__anext__": lambda handle: anext(handle.watch()),
            }
            | ({} if kind == "Board" else {f"{kind}.__anext__": anext}),
            polled=True,
        )
        for kind, opener in {
            "SeqlockVector": _vector,
            "Seqlock": _seqlock,
            "Board": _board,
            "KeyObserver": _observed,
        }.items()
    ),
    Row(OURS, _board, {}, {"Board.__anext__": lambda board: board.__anext__()}),
    Row(RING, _held_vector, {"SeqlockVector.write": lambda vector: vector.write(None, 2.0, timeout=None)}),
    Row(RING, _held_seqlock, {"Seqlock.write": lambda seqlock: seqlock.write(2.0, timeout=None)}),
    *(
        Row(
            backends,
            partial(_record_queue, producers=producers),
            {
                "RecordQueue.consume": lambda queue: queue.consume(),
                "RecordQueue.receive": lambda queue: queue.receive(),
                "RecordQueue.__next__": next,
            }
            | ({"RecordQueue.consume_with_publishers": lambda queue: queue.consume_with_publishers()} if many else {}),
            {
                "RecordQueue.aconsume": lambda queue: queue.aconsume(),
                "RecordQueue.areceive": lambda queue: queue.areceive(),
                "RecordQueue.__anext__": anext,
            },
            polled=True,
        )
        for producers, backends, many in (("single", ALL, False), ("multiple", OURS, True))
    ),
    Row(("msgq", "zmq"), _submaster, {"SubMaster.update": lambda master: master.update(-1)}),
    Row(("msgq", "zmq"), _pubmaster, {"PubMaster.wait_for_readers": lambda master: master.wait_for_readers(None, n=1)}),
    Row(RING, _each, {"StageTracer.trace_messages": lambda pair: next(iter(pair[0].trace_messages(pair[1])))}),
    Row(
        RING,
        _event,
        {
            "Event.wait": lambda event: event.wait(),
            "wait_for_one_event": lambda event: fake_events.wait_for_one_event([event]),
        },
        ends=EventError,
    ),
    Row(
        OURS,
        _client,
        {
            "VisionIpcClient.recv": lambda client: client.recv(-1),
            "VisionIpcClient.frame": lambda client: client.frame(-1),
        },
        {"VisionIpcClient.arecv": lambda client: client.arecv(), "VisionIpcClient.__anext__": anext},
    ),
    Row(RING, _unconnected_client, {"VisionIpcClient.connect": lambda client: client.connect(True)}),
    Row(
        OURS,
        _sync,
        {"FrameSync.recv": lambda sync: sync.recv(-1)},
        {"FrameSync.arecv": lambda sync: sync.arecv(), "FrameSync.__anext__": anext},
    ),
    Row(RING, _player, {"Player.run": lambda player: player.run()}, ends=PlayerStats),
    Row(RING, _bridge, {"Bridge.run": lambda bridge: bridge.run()}, ends=False),
]
POLLS = {"Poller.poll", "Poller.apoll"}
#: Waits without an object that could be closed, or that end by themselves, and why.
APART = {
    "VisionIpcClient.available_streams": "a static method",
    "SeqlockVector.snapshot": "reads until its time-out; it does not sleep",
    "Seqlock.snapshot": "the same",
    "ChangeIterator.__next__": "what `watch` of each class returns",
    "SubSocket.setTimeout": "sets a time-out",
    "SubSocket.rcvtimeo": "sets a time-out",
}
