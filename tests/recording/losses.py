"""A bus that laps its recorder, and counts of its losses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.recording import LogReader, Recorder
from msgq.recording.recorder.rolling_writer import RecordingLimits
from tests.support import wait_until

Losses = dict[str, int | None]
BURST = 6000  # laps each endpoint ...
FEWEST = 1800  # ... and costs at least so many messages: the channel of events has room for 4096


@pytest.fixture
def holding(prefix: str, monkeypatch: pytest.MonkeyPatch) -> threading.Lock:
    """A lock: while it is held, no recorder takes a message."""
    lock = threading.Lock()
    fill = Recorder._fill_open_chunk

    def fill_unless_held(recorder: Recorder, seconds: float) -> bool:
        with lock:
            return fill(recorder, min(seconds, 0.001))

    monkeypatch.setattr(Recorder, "_fill_open_chunk", fill_unless_held)
    return lock


class Bus:
    """An endpoint of each kind, with little room, and how much was published on each."""

    def __init__(self) -> None:
        self.topic = msgq.pub_sock("topic", segment_size=4096)
        self.channel = msgq.Channel("channel", capacity=16)
        self.publishers = [self.channel.publisher(slots=64), self.channel.publisher(slots=64)]
        self.queue = msgq.MessageQueue("queue", max_messages=4, max_message_size=8, events=True)
        self.queue.send(b"job")  # makes the channel of events
        self.queue.receive()
        self.vector = msgq.SeqlockVector("vector", "<i8", 4)
        self.vector[:] = 7  # each recorded once
        self.middle = 0  # a time after the first burst
        self.published = {"topic": 0, "channel/channel": 0, "queue/queue": 0}

    def send(self, count: int) -> None:
        """Publish so many messages on each endpoint."""
        self.topic.send_many(np.zeros((count, 64), np.uint8))
        for number in range(count):
            self.publishers[number % 2].send(b"%d" % number)
        for _ in range(count // 2):
            self.queue.send(b"job")
            self.queue.receive()
        for endpoint in self.published:
            self.published[endpoint] += count

    def close(self) -> None:
        closed: list[Any] = [self.topic, *self.publishers, self.channel, self.queue, self.vector]
        for endpoint in closed:
            endpoint.close()


def record(bus: Bus, path: Path, holding: threading.Lock, limits: RecordingLimits | None = None) -> Recorder:
    """Record a bus whose endpoints have lapped the recorder before its first message, and once more in between."""
    with holding:
        recorder = Recorder(path, chunk_bytes=16_384, chunk_seconds=0.01, limits=limits)
        bus.send(BURST)
    for count in (0, 10):
        bus.send(count)
        wait_until_accounted(recorder, bus)
    bus.middle = recorder._capture.read_host_clock_ns()
    for count in (10, BURST, 10):
        with holding:
            bus.send(count)
        wait_until_accounted(recorder, bus)
    recorder.stop()
    return recorder


def wait_until_accounted(recorder: Recorder, bus: Bus) -> None:
    """Wait until all that was published is recorded or lost, and written."""

    def is_accounted() -> bool:
        losses = recorder._recorded_endpoints.count_losses()
        counted = recorder.stats().messages + sum(losses.get(endpoint) or 0 for endpoint in bus.published)
        return counted == sum(bus.published.values()) + len(bus.vector) and not recorder.stats().at_risk_bytes

    wait_until(is_accounted)


def read_stated_losses(path: Path) -> Losses:
    """Return the `msgq.losses` at the end of a recording."""
    (*_, last) = [record.values for record in LogReader(path).metadata if record.name == "msgq.losses"]
    return {endpoint: None if lost == "unknown" else int(lost) for endpoint, lost in last.items()}


def count_losses(*paths: str | Path, **options: Any) -> Losses:
    return {endpoint: info.lost for endpoint, info in LogReader(*paths, **options).endpoints.items()}


@pytest.fixture
def bus(prefix: str) -> Iterator[Bus]:
    """A bus of the test alone."""
    made = Bus()
    yield made
    made.close()
