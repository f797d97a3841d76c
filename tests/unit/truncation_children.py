"""Programs whose mapped files another program cuts, each in its own process: the table of test_truncated_files.py."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

import msgq
from msgq import stats
from msgq.channel import Channel
from msgq.common import settings
from msgq.errors import IpcError, PoolExhaustedError
from msgq.impl.meter import run_meters
from msgq.impl.ring.core import TopicObserver
from msgq.kinds.opening import open_meter
from tests.support import hear, say

Use = Callable[[], Any]
Program = Callable[[str], list[Use]]
TRIES = 100  # calls until a cut file must have raised
_open: list[Any] = []  # objects that live as long as the program


def _pair(endpoint: str) -> tuple[Any, Any]:
    """Return a publisher, and a subscriber with a message that is pending."""
    pub, sub = msgq.pub_sock(endpoint), msgq.sub_sock(endpoint)
    _open.extend((pub, sub))
    pub.send_many([b"first", b"second"])
    sub.receive()
    return pub, sub


def _publisher(endpoint: str) -> list[Use]:
    pub, _ = _pair(endpoint)
    return [lambda: pub.send(b"x"), lambda: pub.wait_for_readers(0.001, n=9), pub.all_readers_updated]


def _publisher_alone(endpoint: str) -> list[Use]:
    pub = msgq.pub_sock(endpoint)
    return [lambda: pub.send_many([b"x", b"y"])]


def _publisher_of_arrays(endpoint: str) -> list[Use]:
    pub = msgq.pub_sock(endpoint)
    return [lambda: pub.send_many(np.zeros(2))]


def _subscriber_of_arrays(endpoint: str) -> list[Use]:
    _, sub = _pair(endpoint)
    return [lambda: sub.receive_array("S6")]


def _subscriber(endpoint: str) -> list[Use]:
    _, sub = _pair(endpoint)
    sub.setTimeout(1)
    return [sub.receive, sub.receive_many, lambda: sub.receive(True)]


def _passive(endpoint: str) -> list[Use]:
    pub, _ = _pair(endpoint)
    sub = msgq.SubSocket()
    sub.connect(msgq.context, endpoint, passive=True)
    pub.send(b"third")
    return [lambda: sub.receive(True)]


def _poller(endpoint: str) -> list[Use]:
    _, sub = _pair(endpoint)
    poller = msgq.Poller()
    poller.registerSocket(sub)

    def poll() -> None:
        if poller.poll(1):
            sub.receive(True)

    return [poll]


def _topic_watch(endpoint: str) -> list[Use]:
    _pair(endpoint)
    watch = TopicObserver(endpoint, settings.get_prefix())
    watch.stats()
    return [watch.counts, watch.stats, watch.is_bridged]


def _topic_meter(endpoint: str) -> list[Use]:
    pub, _ = _pair(endpoint)
    meter = open_meter(endpoint)
    pub.send(b"third")
    return [lambda: run_meters([meter], 0.001)]


def _topic_stats(endpoint: str) -> list[Use]:
    _pair(endpoint)
    return [lambda: stats.topic(endpoint)]


def _channel(endpoint: str) -> tuple[Any, Any]:
    channel = Channel(endpoint, capacity=4)
    return channel.publisher(), channel.subscriber()


def _channel_publisher(endpoint: str) -> list[Use]:
    publisher, _ = _channel(endpoint)

    def send() -> None:
        with contextlib.suppress(PoolExhaustedError):
            publisher.send(b"x")

    return [send]


def _channel_subscriber(endpoint: str) -> list[Use]:
    publisher, subscriber = _channel(endpoint)
    publisher.send(b"x")
    subscriber.receive(0)
    publisher.send(b"x")
    publisher.send(b"x")
    return [lambda: subscriber.receive(0)]


def _channel_publisher_of_arrays(endpoint: str) -> list[Use]:
    publisher, _ = _channel(endpoint)
    publisher.send(b"first")  # all slots have memory

    def send() -> None:
        publisher.send_many(np.zeros(2))
        raise AssertionError("the first call should raise")

    return [send]


def _channel_subscriber_of_arrays(endpoint: str) -> list[Use]:
    publisher, subscriber = _channel(endpoint)
    publisher.send_many([b"x", b"y", b"z"])
    subscriber.receive(0)
    return [lambda: subscriber.receive_array("S1")]


def _channel_stats(endpoint: str) -> list[Use]:
    channel = Channel(endpoint)
    channel.publisher().send(b"x")
    return [channel.diagnose]


def _queue(endpoint: str) -> list[Use]:
    queue = msgq.MessageQueue(endpoint, max_messages=10)
    queue.send(b"x")
    return [lambda: queue.receive(0), lambda: stats.queue(endpoint)]


def _queue_sender(endpoint: str) -> list[Use]:
    queue = msgq.MessageQueue(endpoint, max_messages=10)
    return [lambda: queue.send_many([b"x"], timeout=0)]


def _vector(endpoint: str) -> list[Use]:
    vector = msgq.SeqlockVector(endpoint, np.dtype("f8"), 10000)
    vector[:] = 1.0
    return [lambda: vector[9999], lambda: vector.wait(0)]


def _vector_writer(endpoint: str) -> list[Use]:
    vector = msgq.SeqlockVector(endpoint, np.dtype("f8"), 10000)
    vector[:] = 1.0

    def write() -> None:
        vector[:] = 2.0

    return [write]


def _board(endpoint: str) -> list[Use]:
    board = msgq.Board(endpoint)
    entry = board.declare("key")
    entry.write(b"x")
    observed = board.observe("key")
    observed.data()
    return [board.changes, observed.data, lambda: entry.write(b"y")]


def _controller(endpoint: str) -> list[Use]:
    handle = msgq.fake_event_handle(endpoint, enable=True)
    event = handle.recv_called_event
    return [event.peek, event.set, event.clear, lambda: event.wait(0.01), lambda: handle.enabled]


def _waiting_controller(endpoint: str) -> list[Use]:
    handle = msgq.fake_event_handle(endpoint, enable=True)
    return [lambda: handle.recv_called_event.wait(5)]


def _gated(endpoint: str) -> list[Use]:
    msgq.toggle_fake_events(True)
    handle = msgq.fake_event_handle(endpoint, enable=True)
    sub = msgq.sub_sock(endpoint)
    _open.append(handle)
    handle.recv_ready_event.set()
    sub.receive(True)  # from now on it has the gate
    return [lambda: sub.receive(True)]


#: Programs that have a part of a file mapped, by the part that is cut.
RING: dict[str, Program] = {
    "publisher": _publisher,
    "publisher alone": _publisher_alone,
    "publisher of arrays": _publisher_of_arrays,
    "subscriber": _subscriber,
    "subscriber of arrays": _subscriber_of_arrays,
    "passive": _passive,
    "poller": _poller,
    "watch": _topic_watch,
    "meter": _topic_meter,
    "stats": _topic_stats,
}
CHANNEL: dict[str, Program] = {
    "publisher": _channel_publisher,
    "publisher of arrays": _channel_publisher_of_arrays,
    "subscriber": _channel_subscriber,
    "subscriber of arrays": _channel_subscriber_of_arrays,
}
FILES: dict[str, tuple[str, dict[str, Program]]] = {
    "ring": ("msgq_{prefix}/{name}", RING),
    "side segment": ("msgqside_{prefix}/{name}", RING),
    "channel": (
        "msgqchan_{prefix}/{name}",
        CHANNEL | {"stats": _channel_stats},
    ),
    "pool": ("msgqpool_{prefix}/{name}*", CHANNEL),
    "queue": ("msgqjobs_{prefix}/{name}", {"receiver": _queue, "sender": _queue_sender}),
    "vector": ("msgqrec_{prefix}/{name}", {"reader": _vector, "writer": _vector_writer}),
    "board": ("msgqrec_{prefix}/{name}", {"all": _board}),
    "gate": (
        "msgqgate_{prefix}*{name}",
        {"controller": _controller, "waiting controller": _waiting_controller, "gated": _gated},
    ),
}


def use(file: str, program: str, name: str, call: int) -> list[str] | None:
    """Use what was opened, by the call of this number, until it raises; return the class and the text of the error."""
    calls = FILES[file][1][program](name)
    say(len(calls))
    hear()
    for _ in range(TRIES):
        try:
            calls[call]()
        except IpcError as error:
            return [type(error).__name__, str(error)]
    return None
