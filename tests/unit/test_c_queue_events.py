"""Handles in C publish the events of a queue as Python's do."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

import msgq
from msgq import stats
from msgq.channel import Channel
from msgq.common import queue_events
from msgq.common.queue_events import EVENT_HEAD_BYTES, EVENT_HEAD_FORMAT, Event
from msgq.errors import LeaseExpiredError, MessageTooLargeError, QueueFullError, SegmentError
from msgq.impl.base.clock import set_origin
from msgq.recording import LogReader
from msgq.recording.recorder.recorder import Recorder
from tests.support import DEADLINE, SHM, wait_until
from tests.unit.c_programs import Program

SENT, TAKEN, ACKNOWLEDGED, RETURNED, REFUSED, RECEIVED = Event
LEASE_MS = 20
OPEN_OR_MAKE, OPEN, MAKE = range(3)
WISHES: list[Any] = [None, True, "payload"]


class Heard(NamedTuple):
    """An event as a subscriber gets it, with what its message has beside."""

    event: Event
    row: int
    priority: int
    deliveries: int
    number: int
    publish_time: int
    sent_time: int
    taken_time: int
    size: int
    pid: int
    payload: bytes
    origin: int

    def told(self) -> tuple[object, ...]:
        """What does not depend on when it happened, and by whom."""
        known = (self.sent_time > 0, self.taken_time > 0, self.publish_time == self.taken_time)
        return (self.event, self.priority, self.deliveries, self.number, self.size, self.payload, self.origin, known)


class Ear:
    """A subscriber of the events of the queue `jobs`."""

    def __init__(self) -> None:
        self.channel = Channel("jobs:events")
        self.sub = self.channel.subscriber(max_views=16)

    def heard(self) -> list[Heard]:
        found = []
        while (sample := self.sub.receive_view(timeout=0)) is not None:
            with sample:
                data = bytes(sample)
                head = Heard._make(
                    (*struct.unpack_from(EVENT_HEAD_FORMAT, data), data[EVENT_HEAD_BYTES:], sample.origin_time)
                )
                found.append(head._replace(event=Event(head.event)))
        return found

    def close(self) -> None:
        self.sub.close()
        self.channel.close()


@pytest.fixture
def ear(prefix: str) -> Iterator[Ear]:
    ear = Ear()
    yield ear
    ear.close()


class Handle(Protocol):
    """What handles of both languages do here."""

    def send(self, text: str, priority: int = 0) -> int: ...
    def receive(self, room: int) -> int: ...
    def take(self, job: int, lease_ms: int = 0) -> int: ...
    def done(self, job: int, how: str) -> int: ...
    def origin(self, time_ns: int) -> None: ...
    def close(self) -> None: ...


class InPython:
    """A handle of this process."""

    def __init__(self) -> None:
        self.queue = msgq.MessageQueue("jobs", 0)
        self.jobs: dict[int, Any] = {}
        self.pid = os.getpid()

    def send(self, text: str, priority: int = 0) -> int:
        try:
            self.queue.send(text.encode(), priority, timeout=0)
        except QueueFullError:
            return -errno.EAGAIN
        return 0

    def receive(self, room: int) -> int:
        try:
            found = self.queue.receive_into(bytearray(room), 0)
        except MessageTooLargeError:
            return -errno.EMSGSIZE
        return found[0] if found else -errno.EAGAIN

    def take(self, job: int, lease_ms: int = 0) -> int:
        self.jobs[job] = self.queue.take(DEADLINE, lease=lease_ms / 1000 or None)
        return len(self.jobs[job].data)

    def done(self, job: int, how: str) -> int:
        try:
            self.jobs[job].ack() if how == "acknowledge" else self.jobs[job].nack()
        except LeaseExpiredError:
            return -errno.ESTALE
        return 0

    def origin(self, time_ns: int) -> None:
        set_origin(time_ns)

    def close(self) -> None:
        set_origin(0)
        self.queue.close()
        self.jobs.clear()


class InC(Program):
    """A handle of a program in C."""

    def __init__(self, programs: Path) -> None:
        super().__init__(programs / "c-queue")

    def does(self, line: str) -> int:
        return int(self.ask(line).split()[0])

    def opened(self, create: int = OPEN, messages: int = 0, size: int = 0, events: int = 0) -> InC:
        assert self.does(f"open jobs {create} {messages} {size} {events}") == 0
        return self

    def send(self, text: str, priority: int = 0) -> int:
        return self.does(f"send {priority} {text}")

    def receive(self, room: int) -> int:
        return self.does(f"receive {room}")

    def take(self, job: int, lease_ms: int = 0) -> int:
        return self.does(f"take {job} {lease_ms}")

    def done(self, job: int, how: str) -> int:
        return self.does(f"{how} {job}")

    def origin(self, time_ns: int) -> None:
        assert self.does(f"origin {time_ns}") == 0

    def close(self) -> None:
        assert self.does("close") == 0


@pytest.fixture
def program(programs: Path, prefix: str) -> Iterator[InC]:
    with InC(programs) as program:
        yield program


@pytest.fixture
def other(programs: Path, prefix: str) -> Iterator[InC]:
    with InC(programs) as program:
        yield program


def told_by(handle: Handle, ear: Ear) -> list[Heard]:
    """Do what has events to a queue with room for three messages; return them."""
    handle.origin(77)
    assert [handle.send("first", 3), handle.send("second")] == [0, 0]
    handle.origin(0)
    assert [handle.send("third"), handle.send("fourth", 2)] == [0, -errno.EAGAIN]
    assert [handle.receive(64), handle.receive(2), handle.take(0), handle.done(0, "return")] == [
        5,
        -errno.EMSGSIZE,
        6,
        0,
    ]
    assert [handle.take(0), handle.done(0, "acknowledge")] == [6, 0]
    assert [handle.take(1, LEASE_MS), handle.take(2), handle.done(1, "acknowledge")] == [5, 5, -errno.ESTALE]
    handle.close()  # with an open job
    return ear.heard()


# ---- reported events ----


@pytest.mark.parametrize("events", [True, "payload"])
def test_c_and_python_handles_publish_equal_events(program: InC, prefix: str, events: Any) -> None:
    heard = []
    for opened in (InPython, program.opened):
        with msgq.MessageQueue("jobs", max_messages=3, max_message_size=64, events=events) as queue:
            ear = Ear()
            heard.append(told_by(opened(), ear))
            ear.close()
            assert stats.queue("jobs").events_lost == 0
            queue.unlink()
    python, c = heard
    assert [one.event for one in c] == [
        *(SENT, SENT, SENT, REFUSED, RECEIVED, TAKEN, RETURNED, TAKEN, RETURNED, TAKEN, ACKNOWLEDGED),
        *(TAKEN, RETURNED, TAKEN, RETURNED),
    ]
    assert [one.told() for one in c] == [one.told() for one in python]
    assert {one.payload for one in c} == ({b"", b"first", b"second", b"third"} if events == "payload" else {b""})
    assert {(one.row, one.pid) for one in c} == {(python[0].row, program.pid)}
    assert [one.publish_time for one in c] == sorted(one.publish_time for one in c)
    for taken, end in zip(c[9:14:2], c[10:15:2], strict=True):
        assert (end.taken_time, end.sent_time, end.number) == (taken.publish_time, taken.sent_time, taken.number)


def test_c_and_python_handles_report_equal_event_numbers(program: InC, ear: Ear) -> None:
    with msgq.MessageQueue("jobs", events="payload") as queue:
        ours, theirs, us, them = InPython(), program.opened(), os.getpid(), program.pid
        turns: list[tuple[Handle, int, Handle, int]] = [(ours, us, theirs, them), (theirs, them, ours, us)] * 10
        for i, (first, *_) in enumerate(turns):
            first.send(f"{i}")
        for first, _, second, _ in turns:
            second.take(0)
            second.done(0, "return")
            first.receive(64)
        ours.close()
        assert queue.current_messages == queue.in_flight == 0
    heard = ear.heard()
    sent = [one for one in heard if one.event is SENT]
    assert [one.payload for one in sent] == [b"%d" % i for i in range(20)]
    assert len({one.number for one in sent}) == 20
    for one, (_, sender, _, taker) in zip(sent, turns, strict=True):
        of_it = [each for each in heard if each.number == one.number]
        does = [(SENT, sender), (TAKEN, taker), (RETURNED, taker), (RECEIVED, sender)]
        assert [(each.event, each.pid) for each in of_it] == does
        assert {each.sent_time for each in of_it} == {one.sent_time}


def test_python_publishes_event_of_killed_c_receiver(program: InC, ear: Ear) -> None:
    with msgq.MessageQueue("jobs", events=True) as queue:
        queue.send(b"piece")
        program.opened().take(0)
        program.kill()
        message = queue.receive(DEADLINE)
    assert message is not None
    assert message.deliveries == 2
    heard = ear.heard()
    assert [(one.event, one.pid, one.deliveries) for one in heard] == [
        (SENT, os.getpid(), 0),
        (TAKEN, program.pid, 1),
        (RETURNED, os.getpid(), 1),
        (RECEIVED, os.getpid(), 2),
    ]
    assert heard[2].taken_time == heard[1].publish_time
    assert len({one.number for one in heard}) == 1


def test_c_handle_publishes_events_for_messages_of_killed_process(program: InC, other: InC, ear: Ear) -> None:
    with msgq.MessageQueue("jobs", events=True) as queue:
        for i in range(3):
            queue.send(b"%d" % i)
        other.opened()
        for i in range(3):
            other.take(i)
        other.kill()
        program.opened()  # a newcomer looks for the dead
        heard = ear.heard()[-3:]
        assert [(one.event, one.pid) for one in heard] == [(RETURNED, program.pid)] * 3
        assert all(one.sent_time < one.taken_time < one.publish_time for one in heard)
        assert stats.queue("jobs").events_lost == 0


# ---- the channel ----


def pools() -> list[tuple[int, int, bool | None]]:
    """Return slots, bytes of a slot, and whether it lives, of each publisher that the channel knows."""
    known = stats.channel("jobs:events").publishers
    return [(one.slots, one.slot_bytes, one.participant.alive) for one in known]


@pytest.mark.parametrize(
    ("events", "size"),
    [
        (True, 64),
        ("payload", 64),
        ("payload", 1 << 20),
        pytest.param("payload", 1 << 22, marks=pytest.mark.needs_shm(48 << 20)),
    ],
)
def test_c_and_python_create_equal_events_channels(program: InC, prefix: str, events: Any, size: int) -> None:
    shapes = []
    for opened in (InPython, program.opened):
        with msgq.MessageQueue("jobs", max_messages=4, max_message_size=size, events=events) as queue:
            handle: Handle = opened()
            assert handle.receive(64) == -errno.EAGAIN
            assert not (SHM / f"msgqchan_{prefix}" / "jobs:events").exists(), "a handle that does nothing opens none"
            queue.send(b"x" * size)
            handle.take(0)
            handle.send("message")
            with Channel("jobs:events", passive=True, create=False) as channel:
                shapes.append((channel.capacity, channel.stamps, channel.schema, pools()))
            handle.close()
            queue.unlink()
    python, c = shapes
    assert c == python
    assert c[:3] == (4096, True, queue_events.QUEUE_EVENT_SCHEMA)
    assert {slot_bytes for _, slot_bytes, _ in c[3]} == ({48, 48 + size} if events == "payload" else {48})


def test_c_events_carry_payloads_up_to_one_mebibyte(program: InC, ear: Ear) -> None:
    with msgq.MessageQueue("jobs", max_messages=4, max_message_size=1 << 20, events="payload"):
        program.opened()
        for size in (0, 1, 4096, 1 << 20):
            assert program.does(f"fill {size}") == 0
    assert [(one.size, one.payload) for one in ear.heard()] == [(n, b"x" * n) for n in (0, 1, 4096, 1 << 20)]


def test_c_call_succeeds_and_counts_event_it_cannot_publish(program: InC, prefix: str) -> None:
    channel_path = SHM / f"msgqchan_{prefix}" / "jobs:events"
    with msgq.MessageQueue("jobs", events=True):
        program.opened()
        channel_path.parent.mkdir(exist_ok=True)
        channel_path.write_bytes(b"garbage" * 1000)
        assert program.ask("receive 64").startswith(f"{-errno.EAGAIN} queue jobs")
        assert program.ask("send 0 message") == "0 queue jobs: no message available", (
            "the text is the last failed call's"
        )
        assert [program.take(0), program.done(0, "return"), program.receive(64)] == [7, 0, 7]
        assert stats.queue("jobs").events_lost == 4
        channel_path.unlink()
        ear = Ear()
        heard = wait_until(lambda: [program.send("message"), program.receive(64), ear.heard()][-1], "it is tried again")
        assert [one.event for one in heard] in ([SENT, RECEIVED], [RECEIVED])
        ear.close()


def test_removed_queue_has_no_events_channel(program: InC, prefix: str) -> None:
    queue = msgq.MessageQueue("jobs", events=True)
    program.opened()
    queue.unlink()
    assert [program.send("message"), program.receive(64)] == [0, 7]
    with pytest.raises(SegmentError):
        stats.channel("jobs:events")
    queue.close()


def test_forked_child_does_not_use_event_publisher_of_parent(program: InC, ear: Ear) -> None:
    with msgq.MessageQueue("jobs", events=True):
        program.opened().send("before")
        assert program.does("fork") == 0
        program.send("after")
        assert [(one.event, one.pid) for one in ear.heard()] == [(SENT, program.pid)] * 2
        assert [alive for *_, alive in pools()] == [True]
        assert stats.queue("jobs").events_lost == 0


def test_closed_c_handle_removes_its_event_publisher(program: InC, ear: Ear) -> None:
    with msgq.MessageQueue("jobs", events=True):
        program.opened().send("message")
        assert [alive for *_, alive in pools()] == [True]
        program.close()
        assert [alive for *_, alive in pools()] == [False]
        assert [one.event for one in ear.heard()] == [SENT]


# ---- making one ----


@pytest.mark.parametrize("events", range(3))
def test_c_open_creates_queue_with_requested_events(program: InC, prefix: str, events: int) -> None:
    program.opened(MAKE, messages=3, size=64, events=events)
    with msgq.MessageQueue("jobs", 0) as queue:
        assert (queue.events, queue.max_messages, queue.max_message_size) == (WISHES[events], 3, 64)
        program.close()
    for asked in range(3):
        said = program.ask(f"open jobs {OPEN_OR_MAKE} 0 0 {asked}")
        assert int(said.split()[0]) == (0 if asked in (0, events) else -errno.EEXIST), said
        assert asked in (0, events) or "events" in said
        program.close()


@pytest.mark.parametrize("line", ["open jobs 0 0 0 3", "open jobs 0 0 0 -1", f"open {'x' * 223} 0 0 0 1"])
def test_c_open_with_invalid_events_is_refused(program: InC, prefix: str, line: str) -> None:
    said = program.ask(line)
    assert int(said.split()[0]) == -errno.EINVAL
    assert "events" in said
    assert not (SHM / f"msgqjobs_{prefix}").exists()


# ---- recorded ----


def test_recorder_records_queue_events_of_c_sender(programs: Path, prefix: str, tmp_path: Path) -> None:
    with msgq.MessageQueue("jobs", max_messages=64, max_message_size=64, events="payload") as queue:
        recorder = Recorder(tmp_path / "log", chunk_seconds=0.02)
        with Program(programs / "queue", "send", "jobs", "20") as sender:
            sender.end()
        with Program(programs / "queue", "work", "jobs", "20") as worker:
            worker.end()
        wait_until(lambda: recorder.stats().messages >= 60)
        assert recorder.stop().lost == 0
        assert queue.current_messages == 0
    found = [(message, value) for message, value in LogReader(tmp_path / "log").decoded()]
    assert {(message.endpoint, message.kind) for message, _ in found} == {("queue/jobs", "queue")}
    by_kind = {kind: [v for _, v in found if v["event"] == kind] for kind in ("sent", "taken", "acknowledged")}
    assert {kind: len(values) for kind, values in by_kind.items()} == {"sent": 20, "taken": 20, "acknowledged": 20}
    assert [value["payload"] for value in by_kind["sent"]] == [b"job %d" % i for i in range(20)]
    assert {value["pid"] for value in by_kind["sent"]} == {sender.pid}
    assert {value["pid"] for value in by_kind["acknowledged"]} == {worker.pid}
    assert len({value["number"] for value in by_kind["sent"]}) == 20
