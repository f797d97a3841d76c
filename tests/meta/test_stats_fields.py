"""Each field of the statistics of an endpoint is filled while the endpoint is in use."""

from __future__ import annotations

import dataclasses
import pkgutil
import signal
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from importlib import import_module
from typing import Any, Literal

import pytest

import msgq
import visionipc
from msgq import stats
from msgq.channel import Channel
from msgq.common import stats as stat_values
from msgq.common.schema import Schema
from msgq.errors import QueueFullError
from msgq.impl import zeromq
from msgq.impl.channel.core import open_channel_file
from msgq.impl.meter import EndpointMeter, run_meters
from msgq.impl.records.core import RecordStatsReader
from msgq.impl.ring.core import TopicObserver
from msgq.impl.workqueue.core import QueueWatch
from msgq.kinds.opening import open_meter
from msgq.kinds.source import PayloadTime
from msgq.workqueue import MessageQueue
from tests.support import DEADLINE, DEADLINE_MS, wait_until

SCHEMA = Schema("Number", "struct", b'"<u4"')
DATA = b"\1\2\3\4"
AHEAD = (1 << 62).to_bytes(8, "little")  # a publish time in the future

#: Fields that may be None in some objects of a class.
MAY_BE_NONE = {
    ("EndpointStats", "lost"): "records: no process counts the values that a reader misses",
    ("EndpointStats", "schema"): "frames: their topic has none",
    ("TopicStats", "schema"): "frames: their topic has none",
    ("SubscriberStats", "lost"): "ZMQ: publishers do not number messages",
    ("ChannelStats", "max_subscribers"): "a channel for any number of subscribers",
    ("ViewHolder", "oldest_ns"): "the messages that it holds are still in the order",
    ("EndpointCounts", "bytes"): "queues and boards: not counted",
    ("EndpointCounts", "lost"): "records: as above",
    ("EndpointCounts", "received"): "all kinds but queues",
    ("MeterReading", "bytes"): "a queue without events: sizes are unknown",
    ("MeterReading", "sizes"): "a queue without events: sizes are unknown",
    ("QueueStats", "events"): "a queue without events",
}
#: Fields that only a fault or another process fills, each with the tests of such a case.
ELSEWHERE = {
    ("ChannelPublisher", "refused"): "tests/unit/test_channel_stats.py",
    ("ChannelStats", "orphans"): "tests/unit/test_channel_stats.py",
    ("QueueHandleInfo", "pending_slots"): "tests/unit/test_queue_stats.py",
    ("QueueStats", "delayed"): "tests/contract/test_queue_delays.py",
    ("QueueStats", "lost_slots"): "tests/unit/test_queue_stats.py",
    ("QueueStats", "events_lost"): "tests/contract/test_queue_events.py",
    ("QueueStats", "pending_slots"): "tests/unit/test_queue_stats.py",
    ("QueueStats", "corrupt_slots"): "tests/unit/test_queue_stats.py",
    ("QueueStats", "expired_leases"): "tests/unit/test_queue_stats.py",
    ("RecordStats", "locked"): "tests/unit/test_record_stats.py",
    ("RecordStats", "locked_by_dead"): "tests/unit/test_record_stats.py",
    ("RecordStats", "has_waiters"): "tests/unit/test_record_stats.py",
    ("RecordWriterInfo", "locked"): "tests/unit/test_record_stats.py",
    ("StreamStats", "taken_back"): "tests/visionipc/test_frames.py",
    ("TopicStats", "stock_subscribers"): "tests/unit/test_stats.py",
    ("TopicStats", "unlisted"): "tests/unit/test_stats.py",
}


def statistics_classes() -> set[type]:
    """Return the classes of statistics: those of msgq.common.stats, and of visionipc."""
    modules = [
        import_module(f"msgq.common.stats.{package.name}") for package in pkgutil.iter_modules(stat_values.__path__)
    ]
    modules += [stat_values, visionipc]
    classes = {one for module in modules for one in vars(module).values() if dataclasses.is_dataclass(one)}
    return {one for one in classes if isinstance(one, type) and not issubclass(one, Schema)}


def dataclasses_in(value: Any) -> Iterator[Any]:
    """Yield the dataclasses in a value, with those in their fields."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from dataclasses_in(one)
    elif dataclasses.is_dataclass(value) and not isinstance(value, Schema):
        yield value
        for field in dataclasses.fields(value):
            yield from dataclasses_in(getattr(value, field.name))


def fields_with_none(found: Iterable[Any]) -> set[tuple[str, str]]:
    """Return class and field of each None."""
    return {(type(one).__name__, name) for one in found for name, value in _fields(one) if value is None}


def fields_without_values(found: Iterable[Any]) -> set[tuple[str, str]]:
    """Return class and field where the value is None, 0 or empty in all objects."""
    places: dict[tuple[str, str], bool] = {}
    for one in found:
        for name, value in _fields(one):
            place = type(one).__name__, name
            places[place] = places.get(place, False) or bool(value)
    return {place for place, is_filled in places.items() if not is_filled}


def _fields(one: Any) -> list[tuple[str, Any]]:
    return [(field.name, getattr(one, field.name)) for field in dataclasses.fields(one)]


def topics(stack: ExitStack, prefix: str) -> Iterator[Any]:
    """Yield statistics of a topic with a lapped subscriber."""
    pub = stack.enter_context(msgq.PubSocket())
    pub.connect(msgq.context, "topic", segment_size=1024, schema=SCHEMA, tracked=True)
    sub = stack.enter_context(msgq.sub_sock("topic"))
    meter = open_meter("topic", PayloadTime(0, "host"))
    for _ in range(100):
        pub.send(AHEAD)
        run_meters([meter], 0)
    pub.send(b"short")
    run_meters([meter], 0)
    assert sub.receive(non_blocking=True) is None  # it was lapped
    pub.send(AHEAD)
    assert sub.receive() == AHEAD
    pub.send(AHEAD)
    yield from (pub.stats(), sub.stats(), TopicObserver("topic", prefix).counts(), meter.take_reading())
    meter.close()


def zmq_topics(stack: ExitStack, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield statistics of sockets over ZMQ after the queue of the subscriber was full."""
    monkeypatch.setenv("MSGQ_ZMQ_HWM", "1")
    context = zeromq.Context()
    pub, sub = stack.enter_context(zeromq.PubSocket()), stack.enter_context(zeromq.SubSocket())
    pub.connect(context, endpoint)
    sub.connect(context, endpoint)
    pub.wait_for_readers(DEADLINE)
    while not pub.stats().dropped:
        pub.send(bytes(1 << 16))
    sub.setTimeout(DEADLINE_MS)
    assert sub.receive() is not None
    yield from (pub.stats(), sub.stats())


def channels(stack: ExitStack, prefix: str) -> Iterator[Any]:
    """Yield statistics of a channel with a lapped subscriber, held views, and a publisher that grew."""
    channel = stack.enter_context(Channel("channel", capacity=8, schema=SCHEMA, node="tester"))
    publisher = stack.enter_context(channel.publisher(slots=4, slot_bytes=8))
    late, viewer = stack.enter_context(channel.subscriber()), stack.enter_context(channel.subscriber())
    meter = open_meter("channel/channel")
    for _ in range(3):
        publisher.send(DATA)
        run_meters([meter], 0)
    views = [viewer.receive_view(0) for _ in range(3)]
    publisher.send_many([DATA] * 20, origin_time=1)
    run_meters([meter], 0)
    assert late.receive(0) == DATA
    publisher.send(bytes(100))
    channel_file = open_channel_file("channel", prefix)
    stack.enter_context(stack.enter_context(Channel("small", subscribers=2, schema=SCHEMA)).publisher())
    yield from (stats.channel("channel"), channel_file.counts(), meter.take_reading(), late.last)
    meter.close()
    del views


def records(stack: ExitStack, prefix: str) -> Iterator[Any]:
    """Yield statistics of a vector and a board."""
    vector = stack.enter_context(msgq.SeqlockVector("vector", length=4, dtype="<u4", exclusive=True))
    board = stack.enter_context(msgq.Board("board", schema=SCHEMA))
    entry = stack.enter_context(board.declare("key"))
    other = stack.enter_context(stack.enter_context(msgq.Board("board")).declare("other"))
    other.write(DATA)
    meters = [open_meter(f"records/{name}") for name in ("vector", "board")]
    for i in range(3):
        vector[1] = i
        entry.write(DATA)
        wait_until(lambda: all(one.messages + (one.lost or 0) > i for one in readings(meters)))  # noqa: B023
    yield from (stats.record("vector"), stats.record("board"))
    for name, meter in zip(("vector", "board"), meters, strict=True):
        yield from (RecordStatsReader(name, prefix).counts(), meter.take_reading())
        meter.close()


def readings(meters: list[EndpointMeter]) -> list[stats.MeterReading]:
    run_meters(meters, 0.001)
    return [meter.take_reading() for meter in meters]


def queues(stack: ExitStack, prefix: str) -> Iterator[Any]:
    """Yield statistics of a queue with events and of one without, with taken messages."""
    kinds: tuple[tuple[str, Literal["payload"] | None], ...] = (("logged", "payload"), ("plain", None))
    for name, events in kinds:
        queue = stack.enter_context(
            MessageQueue(name, max_messages=8, max_message_size=8, schema=SCHEMA, events=events)
        )
        meter = open_meter(f"queue/{name}")
        for _ in range(3):
            queue.send(DATA, priority=3, origin_time=1)
            assert queue.receive(0)
            run_meters([meter], 0)
        for _ in range(8):
            queue.send(DATA, priority=2, origin_time=1)
        with pytest.raises(QueueFullError):
            queue.send(DATA, timeout=0)
        jobs = [queue.take(0, lease=lease) for lease in (None, 3600.0, None)]
        assert queue.receive(0)
        if (given_back := jobs.pop()) is not None:
            given_back.nack()
        stack.enter_context(MessageQueue(name)).notify(signal.SIGURG)
        yield from (
            stats.queue(name),
            QueueWatch(name, prefix).counts(),
            meter.take_reading(),
            stats.queue_messages(name),
        )
        meter.close()


def frames(stack: ExitStack, name: str) -> Iterator[Any]:
    """Yield statistics of a stream while a client holds all buffers, and one frame was dropped."""
    server = stack.enter_context(visionipc.VisionIpcServer(name))
    server.create_buffers(0, 1, 64, 48, visionipc.FrameFormat.RGB24)
    server.create_buffers(1, 1, 64, 48)
    server.start_listener()
    client = stack.enter_context(visionipc.VisionIpcClient(name, 0, False))
    assert client.connect(True)
    picture = bytes(64 * 48 * 3)
    server.send(0, picture)
    held = [client.recv(DEADLINE_MS)]
    while server.send(0, picture):
        held.append(client.recv(DEADLINE_MS))
    assert all(held)
    yield from (server.stats(0), server.stats(1))


@pytest.fixture
def found(prefix: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Statistics of endpoints of all kinds, in use."""
    with ExitStack() as stack:
        parts = [topics(stack, prefix), channels(stack, prefix), records(stack, prefix), queues(stack, prefix)]
        parts += [frames(stack, endpoint), zmq_topics(stack, endpoint, monkeypatch)]
        objects = [one for part in parts for one in part]
        yield [*dataclasses_in([objects, stats.endpoints()])]


def test_each_statistics_class_is_filled_by_live_endpoint(found: list[Any]) -> None:
    assert {one.__name__ for one in statistics_classes() - {type(one) for one in found}} == set()


def test_statistics_fields_that_may_be_none_are_listed(found: list[Any]) -> None:
    assert fields_with_none(found) == set(MAY_BE_NONE)


def test_statistics_fields_without_value_in_this_test_are_listed(found: list[Any]) -> None:
    assert fields_without_values(found) == set(ELSEWHERE)


@dataclasses.dataclass(frozen=True)
class Inner:
    """Stand in for a part of statistics."""

    count: int = 0


@dataclasses.dataclass(frozen=True)
class Outer:
    """Stand in for statistics with a field that is never filled."""

    name: str
    parts: tuple[Inner, ...]
    age: int | None = None


def test_unfilled_statistics_field_is_reported() -> None:
    objects = [*dataclasses_in([Outer("a", (Inner(),)), (Outer("b", (Inner(1), Inner())),)])]
    assert fields_with_none(objects) == fields_without_values(objects) == {("Outer", "age")}
    assert fields_without_values(objects[:2]) == {("Outer", "age"), ("Inner", "count")}
