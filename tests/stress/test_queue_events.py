"""Events of work queues in the middle of whose calls Python code runs, and of many processes at once."""

from __future__ import annotations

import gc
import os
import signal
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from msgq import stats
from msgq.channel import Channel
from msgq.common.naming import events_channel
from msgq.common.queue_events import EVENT_HEAD_BYTES, EVENT_HEAD_FORMAT, Event
from msgq.workqueue import MessageQueue
from tests.support import DEADLINE, Child, say

MESSAGES = 2000


class Ear:
    """All events of a queue, gathered by a thread of its own, in the order of the channel."""

    def __init__(self, name: str) -> None:
        self.channel = Channel(events_channel(name), capacity=8192)
        self.sub = self.channel.subscriber()
        self.heard: list[tuple[Any, ...]] = []
        self._over = False
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while not self._over:
            self._gather(self.sub.receive(timeout=0.02))
        for data in self.sub.receive_many():
            self._gather(data)

    def _gather(self, data: bytes | None) -> None:
        if data is not None:
            event, *rest = struct.unpack_from(EVENT_HEAD_FORMAT, data)
            self.heard.append((Event(event), *rest, data[EVENT_HEAD_BYTES:]))

    def end(self) -> Counter[Event]:
        """Hear the rest, and return how many there were of each kind."""
        self._over = True
        self._thread.join()
        self.sub.close()
        self.channel.close()
        return Counter(one[0] for one in self.heard)


@pytest.fixture
def queue(endpoint: str) -> Iterator[MessageQueue]:
    queue = MessageQueue(endpoint, max_messages=64, max_message_size=600_000, events="payload")
    yield queue
    queue.unlink()
    queue.close()


@pytest.fixture
def ear(endpoint: str) -> Iterator[Ear]:
    ear = Ear(endpoint)
    yield ear
    ear.end()


def check_events(queue: MessageQueue, ear: Ear) -> Counter[Event]:
    """Compare what was told with what the queue counted: nothing is missing, and nothing is told twice."""
    told, found, lost = ear.end(), stats.queue(queue.name), ear.sub.lost
    assert found.events_lost == 0
    events = (Event.SENT, Event.REFUSED, Event.RETURNED, Event.TAKEN, Event.ACKNOWLEDGED)
    # One event reports a received message, which is taken and acknowledged at once.
    counts = (found.sent, found.refused, found.returned, found.received, found.acknowledged)
    assert sum(told.values()) + told[Event.RECEIVED] <= sum(counts)
    assert sum(told.values()) + told[Event.RECEIVED] + 2 * lost >= sum(counts), "as many as were overtaken are missing"
    for event, count in zip(events, counts, strict=True):
        both = told[event] + (told[Event.RECEIVED] if event in (Event.TAKEN, Event.ACKNOWLEDGED) else 0)
        assert both <= count
    for each in ear.heard:
        assert len(each[-1]) == (each[8] if each[0] == Event.SENT else 0)
    return told


def test_events_are_exact_if_signal_handler_uses_interrupted_queue(queue: MessageQueue, ear: Ear) -> None:
    """Failure would mean: a handler's call fails as its publisher is in use, or its events are lost or doubled."""
    handled = []

    def handle(*_: object) -> None:
        queue.send(b"handler")
        assert queue.receive(0)
        handled.append(True)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        while len(handled) < 300:
            queue.send(b"x" * (300_000 if len(handled) % 10 == 0 else 10))
            assert queue.receive(0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert check_events(queue, ear)[Event.SENT]
    assert stats.queue(queue.name).sent >= 600


def test_signal_handler_that_raises_during_channel_open_leaves_usable_handle(
    endpoint: str, queue: MessageQueue, ear: Ear
) -> None:
    """What: every send is the first of a new handle, and a signal may come at any of its instructions.

    Failure would mean: an exception took a message along, or a place.
    """

    class Interrupted(Exception):
        pass

    def handle(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handle)
    rounds = interrupted = 0
    try:
        while rounds < 200:
            rounds += 1
            handle_ = MessageQueue(endpoint)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.00002 * (rounds % 60) + 0.00001)
                handle_.send(b"message")
                assert handle_.receive(0)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                interrupted += 1
                queue.receive_many()
            finally:
                signal.signal(signal.SIGALRM, signal.SIG_IGN)
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, handle)
                handle_.close()
    finally:
        signal.signal(signal.SIGALRM, before)
    queue.receive_many()
    found = stats.queue(queue.name)
    assert found.sent == found.acknowledged
    ear.end()


def test_events_are_exact_if_jobs_are_collected_during_calls(endpoint: str, queue: MessageQueue, ear: Ear) -> None:
    """What: jobs, and handles with jobs, are garbage in circles, and are collected while others send.

    Failure would mean: a crash, a publisher that is used after it was taken apart, or an event that is missing.
    """
    threshold = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        for number in range(150):
            queue.send(b"message")
            other = MessageQueue(endpoint)
            circle: dict[str, Any] = {"job": queue.take(0) if number % 2 else other.take(0)}
            circle["self"] = circle
            if number % 3:
                circle["queue"] = other
            del other, circle
            if number % 32 == 31:  # Python without the GIL collects less often, and the circles would fill the queue
                gc.collect()
            while queue.receive(0):
                [{} for _ in range(3)]
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    queue.receive_many()
    assert check_events(queue, ear)[Event.RETURNED]


def work(endpoint: str, count: int) -> int:
    """Child: send, take, give back every fifth for the first time."""
    queue = MessageQueue(endpoint)
    say("ready")
    done = 0
    for number in range(count):
        queue.send(b"%d" % number, number % 3, timeout=DEADLINE)
        job = queue.take(DEADLINE)
        assert job is not None
        if job.deliveries == 1 and number % 5 == 0:
            job.nack()
            job = queue.take(DEADLINE)
            assert job is not None
        job.ack()
        done += 1
    return done


@pytest.mark.nightly
def test_queue_events_of_many_processes_are_complete_and_ordered(queue: MessageQueue, ear: Ear) -> None:
    """Failure would mean: a number belongs to two messages, a message's events run backwards, or one is missing."""
    with ExitStack() as stack:
        children = [stack.enter_context(Child(work, queue.name, MESSAGES)) for _ in range(3)]
        for child in children:
            assert child.hear() == "ready"
        for child in children:
            assert child.result() == MESSAGES
    told, found = ear.end(), stats.queue(queue.name)
    assert sum(told.values()) + ear.sub.lost + found.events_lost == found.sent + found.received + found.returned + (
        found.acknowledged
    )
    by_number: dict[int, list[tuple[Any, ...]]] = {}
    for each in ear.heard:
        by_number.setdefault(each[4], []).append(each)
    for events in by_number.values():
        assert len({(each[6], each[2]) for each in events}) == 1, "one sent_time, one priority"
        if ear.sub.lost == 0:
            ordered = [each[0] for each in sorted(events, key=lambda each: each[5])]
            assert (ordered[0], ordered[-1]) == (Event.SENT, Event.ACKNOWLEDGED)
            assert ordered.count(Event.SENT) == ordered.count(Event.ACKNOWLEDGED) == 1
    assert os.getpid() not in {each[9] for each in ear.heard}
