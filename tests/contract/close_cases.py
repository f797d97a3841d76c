"""Each public call that waits, and each close that must end it: the table of test_closing.py.

A row names the methods as users write them, `Class.method`. `test_each_waiting_method_has_a_close_test_case`
compares the names with the public classes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.bridge import Bridge
from msgq.channel import Channel
from msgq.errors import EndpointClosedError, EventError
from msgq.impl import backend as backends
from msgq.posix_ipc import O_CREAT, ExistentialError
from msgq.posix_ipc import MessageQueue as PosixQueue
from msgq.recording import Player, PlayerStats
from msgq.topic import fake_events
from tests.cases import each_case
from tests.recording.logs import write_log
from tests.unit.recordfile import RecordFile
from visionipc import FrameSync, VisionIpcClient, VisionIpcServer

Call = Callable[[Any], Any]
EVERY_BACKEND = ["msgq", pytest.param("zmq", marks=pytest.mark.ci), "fake"]
ALL, OURS, RING = ("msgq", "zmq", "fake"), ("msgq", "fake"), ("msgq",)
READY_IN_THE_FUTURE = 3_600_000_000_000


@dataclass(frozen=True)
class Row:
    """Things of one kind that calls wait for.

    Attributes:
        backends: that have it.
        open: returns it, and what closes it by the name of the way.
        waits: calls that wait for ever, by their name.
        tasks: the same for asyncio. On the fake backend, where no other thread can act, these alone are tried.
        ends: the exception of a call whose wait was ended, or its result.
        polled: whether pollers wait for it.
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
        self._names = (f"{name}{number}" for number in count(1))
        self.context = module.Context()
        self._exit_stack = contextlib.ExitStack()

    def close_after_test(self, one: Any) -> Any:
        """Close it when the test ends."""
        self._exit_stack.callback(one.close)
        return one

    def pipe(self) -> tuple[int, int]:
        """Return a pipe in which nothing is written."""
        ends = os.pipe()
        for end in ends:
            self._exit_stack.callback(os.close, end)
        return ends

    def close(self) -> None:
        self._exit_stack.close()

    def renew(self) -> None:
        """Close what is open, and use another name from now on."""
        self.close()
        self.name = next(self._names)

    def pub(self) -> Any:
        pub = self.close_after_test(self.module.PubSocket())
        pub.connect(self.context, self.name)
        return pub

    def sub(self) -> Any:
        sub = self.close_after_test(self.module.SubSocket())
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


def make_close_case(one: Any) -> tuple[Any, dict[str, Callable[[], Any]]]:
    return one, {"close": one.close}


def open_sub_socket(place: Place) -> Any:
    return make_close_case(place.sub())


def open_typed_subscriber(place: Place) -> Any:
    sub = msgq.sub_sock(place.name, decoded=msgq.Schema.json("State"))
    return make_close_case(place.close_after_test(sub))


def open_pub_socket(place: Place) -> Any:
    return make_close_case(place.pub())


def open_gated_sub_socket(place: Place) -> Any:
    msgq.toggle_fake_events(True)
    place._exit_stack.callback(msgq.toggle_fake_events, False)
    place.close_after_test(msgq.fake_event_handle(place.name, enable=True))
    return make_close_case(place.sub())


def open_channel_subscriber(place: Place) -> Any:
    channel = Channel(place.name)
    place._exit_stack.callback(channel.unlink)
    place.close_after_test(channel.publisher())
    return make_close_case(place.close_after_test(channel.subscriber()))


def open_node_subscriber(place: Place) -> Any:
    node = place.close_after_test(msgq.Node("node"))
    subscriber = node.subscribe(place.name)
    place._exit_stack.callback(node.channels[place.name].unlink)
    return subscriber, {"Node.close": node.close}


def open_full_publisher(place: Place) -> Any:
    """A publisher whose slots are all lent."""
    channel = Channel(place.name)
    place._exit_stack.callback(channel.unlink)
    publisher = place.close_after_test(channel.publisher(slots=1))
    place._exit_stack.callback(publisher.loan(1).discard)
    return make_close_case(publisher)


def open_publisher_without_room(place: Place) -> Any:
    """A publisher whose next message would overwrite one that a subscriber has not received."""
    channel = Channel(place.name, capacity=2)
    place._exit_stack.callback(channel.unlink)
    place.close_after_test(channel.subscriber())
    publisher = place.close_after_test(channel.publisher())
    publisher.send_many([b"x"] * 2)
    return make_close_case(publisher)


def open_queue(place: Place, **options: Any) -> Any:
    queue = place.close_after_test(msgq.MessageQueue(place.name, **options))
    place._exit_stack.callback(queue.unlink)
    return make_close_case(queue)


def open_full_queue(place: Place) -> Any:
    queue, closes = open_queue(place, max_messages=1)
    queue.send(b"full")
    return queue, closes


def open_posix_queue(place: Place) -> Any:
    queue = PosixQueue(f"/{place.name}", O_CREAT, max_messages=1)
    place._exit_stack.callback(queue.unlink)
    return make_close_case(queue)


def open_full_posix_queue(place: Place) -> Any:
    queue, closes = open_posix_queue(place)
    queue.send(b"full")
    return queue, closes


def make_records_case(place: Place, one: Any) -> Any:
    place._exit_stack.callback(partial(msgq.Board.unlink_name, place.name))
    return make_close_case(place.close_after_test(one))


def open_vector(place: Place) -> Any:
    return make_records_case(place, msgq.SeqlockVector(place.name, "f8", 4))


def open_seqlock(place: Place) -> Any:
    return make_records_case(place, msgq.Seqlock(place.name, "f8"))


def hold_record(place: Place, vector: Any) -> Any:
    """A vector whose first element another handle holds: as if that were stopped in the middle of a write."""
    make_records_case(place, vector)
    holder = place.close_after_test(msgq.SeqlockVector(place.name))
    holder[0] = 1.0
    file = RecordFile(f"{place.prefix}/{place.name}")
    file.write(file.version(0), 1 << 24 | 1 << 16 | file.read(file.row(0, 8)) & 0xFFFF)
    return make_close_case(vector)


def open_held_vector(place: Place) -> Any:
    return hold_record(place, msgq.SeqlockVector(place.name, "f8", 4))


def open_held_seqlock(place: Place) -> Any:
    return hold_record(place, msgq.Seqlock(place.name, "f8"))


def open_board(place: Place) -> Any:
    return make_records_case(place, msgq.Board(place.name))


def open_key_observer(place: Place) -> Any:
    board, _ = open_board(place)
    observed = place.close_after_test(board.observe("key"))
    return observed, {"close": observed.close, "Board.close": board.close}


def open_record_queue(place: Place, producers: Any) -> Any:
    queue = place.close_after_test(msgq.RecordQueue(place.name, np.dtype("f8"), producers=producers))
    if producers == "multiple":
        place._exit_stack.callback(Channel(place.name).unlink)
    return make_close_case(queue)


def open_submaster(place: Place) -> Any:
    return make_close_case(place.close_after_test(msgq.SubMaster([place.name])))


def open_pubmaster(place: Place) -> Any:
    return make_close_case(place.close_after_test(msgq.PubMaster([place.name])))


def open_message_iterator(place: Place) -> Any:
    """A loop of a tracer; its source ends the wait."""
    tracer, sub = place.close_after_test(msgq.StageTracer("stage")), place.sub()
    return (tracer, sub), {"close of the source": sub.close}


def open_event(place: Place) -> Any:
    handle = place.close_after_test(msgq.fake_event_handle(place.name, enable=True))
    return handle.recv_called_event, {"SocketEventHandle.close": handle.close}


def open_frame_client(place: Place) -> Any:
    server = VisionIpcServer(place.name)
    place._exit_stack.callback(server.close)
    server.create_buffers(0, 4, 64, 48)
    server.start_listener()
    client = place.close_after_test(VisionIpcClient(place.name, 0, False))
    assert client.connect(True)
    return make_close_case(client)


def open_unconnected_client(place: Place) -> Any:
    return make_close_case(place.close_after_test(VisionIpcClient(place.name, 0, False)))


def open_frame_sync(place: Place) -> Any:
    client, closes = open_frame_client(place)
    return FrameSync([client], 0), {"close of a client": closes["close"]}


def open_player(place: Place) -> Any:
    write_log(place.tmp_path / "log.mcap", (place.name, 0, b"a"), (place.name, READY_IN_THE_FUTURE, b"b"))
    player = place.close_after_test(Player(str(place.tmp_path / "log.mcap")))
    return player, {"close": player.close, "stop": player.stop}


def open_bridge(place: Place) -> Any:
    bridge = place.close_after_test(Bridge())
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
        open_sub_socket,
        RECEIVES,
        {
            "SubSocket.areceive": lambda sub: sub.areceive(),
            "SubSocket.arecv": lambda sub: sub.arecv(),
            "SubSocket.__anext__": anext,
        },
        polled=True,
    ),
    Row(
        ALL,
        open_typed_subscriber,
        {
            "TypedSubscriber.receive": lambda sub: sub.receive(),
            "TypedSubscriber.receive_many": lambda sub: sub.receive_many(wait_for_one=True),
            "TypedSubscriber.recv": lambda sub: sub.recv(),
            "TypedSubscriber.__next__": next,
        },
        {
            "TypedSubscriber.areceive": lambda sub: sub.areceive(),
            "TypedSubscriber.arecv": lambda sub: sub.arecv(),
            "TypedSubscriber.__anext__": anext,
        },
        polled=True,
    ),
    Row(RING, open_sub_socket, {"SubSocket.receive_tracked": lambda sub: sub.receive_tracked()}),
    Row(RING, open_typed_subscriber, {"TypedSubscriber.receive_tracked": lambda sub: sub.receive_tracked()}),
    Row(RING, open_gated_sub_socket, {"SubSocket.receive": RECEIVES["SubSocket.receive"]}),
    Row(
        ("msgq", "zmq"),
        open_pub_socket,
        {"PubSocket.wait_for_readers": lambda pub: pub.wait_for_readers(None, n=1)},
    ),
    Row(
        OURS,
        open_channel_subscriber,
        ARRIVALS,
        {"Subscriber.arecv": lambda subscriber: subscriber.arecv(), "Subscriber.__anext__": anext},
        polled=True,
    ),
    Row(OURS, open_node_subscriber, ARRIVALS, {"Subscriber.arecv": lambda subscriber: subscriber.arecv()}, polled=True),
    Row(
        RING,
        open_full_publisher,
        {
            "Publisher.send": lambda publisher: publisher.send(b"x", timeout=None),
            "Publisher.loan": lambda publisher: publisher.loan(1, timeout=None),
        },
    ),
    Row(RING, open_publisher_without_room, {"Publisher.wait_for_room": lambda publisher: publisher.wait_for_room()}),
    Row(
        OURS,
        open_queue,
        {
            "MessageQueue.receive": lambda queue: queue.receive(),
            "MessageQueue.receive_into": lambda queue: queue.receive_into(bytearray(8192)),
            "MessageQueue.take": lambda queue: queue.take(),
            "MessageQueue.jobs": lambda queue: next(queue.jobs()),
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
        open_full_queue,
        {
            "MessageQueue.send": lambda queue: queue.send(b"x"),
            "MessageQueue.send_many": lambda queue: queue.send_many([b"x"]),
            "MessageQueue.wait_space": lambda queue: queue.wait_space(),
        },
    ),
    Row(
        RING,
        open_posix_queue,
        {"posix_ipc.MessageQueue.receive": lambda queue: queue.receive()},
        ends=ExistentialError,
    ),
    Row(
        RING,
        open_full_posix_queue,
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
            "SeqlockVector": open_vector,
            "Seqlock": open_seqlock,
            "Board": open_board,
            "KeyObserver": open_key_observer,
        }.items()
    ),
    Row(OURS, open_board, {}, {"Board.__anext__": lambda board: board.__anext__()}),
    Row(RING, open_held_vector, {"SeqlockVector.write": lambda vector: vector.write(None, 2.0, timeout=None)}),
    Row(RING, open_held_seqlock, {"Seqlock.write": lambda seqlock: seqlock.write(2.0, timeout=None)}),
    *(
        Row(
            backends,
            partial(open_record_queue, producers=producers),
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
    Row(("msgq", "zmq"), open_submaster, {"SubMaster.update": lambda master: master.update(-1)}),
    Row(
        ("msgq", "zmq"),
        open_pubmaster,
        {"PubMaster.wait_for_readers": lambda master: master.wait_for_readers(timeout=None, n=1)},
    ),
    Row(
        RING,
        open_message_iterator,
        {"StageTracer.trace_messages": lambda pair: next(iter(pair[0].trace_messages(pair[1])))},
    ),
    Row(
        RING,
        open_event,
        {
            "Event.wait": lambda event: event.wait(),
            "wait_for_one_event": lambda event: fake_events.wait_for_one_event([event]),
        },
        ends=EventError,
    ),
    Row(
        OURS,
        open_frame_client,
        {
            "VisionIpcClient.recv": lambda client: client.recv(-1),
            "VisionIpcClient.frame": lambda client: client.frame(-1),
        },
        {"VisionIpcClient.arecv": lambda client: client.arecv(), "VisionIpcClient.__anext__": anext},
    ),
    Row(RING, open_unconnected_client, {"VisionIpcClient.connect": lambda client: client.connect(True)}),
    Row(
        OURS,
        open_frame_sync,
        {"FrameSync.recv": lambda sync: sync.recv(-1)},
        {"FrameSync.arecv": lambda sync: sync.arecv(), "FrameSync.__anext__": anext},
    ),
    Row(RING, open_player, {"Player.run": lambda player: player.run()}, ends=PlayerStats),
    Row(RING, open_bridge, {"Bridge.run": lambda bridge: bridge.run()}, ends=False),
]
POLLS = {"Poller.poll", "Poller.apoll"}
#: Waits without an object that could be closed, or that end by themselves, and why.
APART = {
    "VisionIpcClient.available_streams": "a static method",
    "SeqlockVector.snapshot": "reads until its time-out; it does not sleep",
    "Seqlock.snapshot": "the same",
    "ChangeIterator.__next__": "what `watch` of each class returns",
    "JobClient.submit": "waits in methods of two queues",
    "JobFuture.result": "waits in MessageQueue.receive",
    "Worker.run": "waits in MessageQueue.take",
    "SubSocket.setTimeout": "sets a time-out",
    "SubSocket.rcvtimeo": "sets a time-out",
}


def each_call(kind: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with each call of a kind that waits."""
    cases = {f"{_opener(row)}-{name}": (row, name) for row in TABLE for name in _calls(row, kind)}
    return each_case("row, name", cases.values(), cases, reset="place.renew")


def _calls(row: Row, kind: str) -> list[str]:
    polls = [("Poller.poll" if kind == "waits" else "Poller.apoll")] if row.polled else []
    mixed = ["Poller.poll and a descriptor"] if row.polled and kind == "waits" else []
    return [*getattr(row, kind), *polls, *mixed]


def _opener(row: Row) -> str:
    function = row.open
    if isinstance(function, partial):
        return f"{function.func.__name__} {function.keywords['producers']}"
    return function.__name__


def make_call(place: Place, row: Row, name: str, one: Any) -> Callable[[], Any]:
    if not name.startswith("Poller"):
        return partial((row.waits | row.tasks)[name], one)
    poller = place.module.Poller()
    poller.registerSocket(one)
    if name == "Poller.apoll":
        return partial(poller.apoll, -1)
    if name != "Poller.poll":
        poller.register(place.pipe()[0])
    return partial(poller.poll, -1)
