"""The loop that takes messages without the GIL: what ends a run of it."""

from __future__ import annotations

import time

import pytest

import msgq
from msgq.kinds.opening import open_source
from msgq.recording.mcap_io.core import ChunkBuffer
from msgq.recording.recorder.core import Capture
from tests.support import DEADLINE, Task


@pytest.fixture
def capture(prefix: str) -> Capture:
    return Capture()


def capture_until_interrupted(capture: Capture) -> tuple[bool, int]:
    """Run until somebody interrupts; return whether the chunk was full, and how many messages it holds."""
    chunk = ChunkBuffer(1 << 20, 1 << 10)
    begin = time.monotonic()
    full = capture.capture_messages(chunk, 2 * DEADLINE)
    assert time.monotonic() - begin < DEADLINE
    return full, len(chunk)


def test_capture_stopped_by_another_thread_ends(capture: Capture) -> None:
    running = Task(capture_until_interrupted, capture)
    running.wait_asleep()
    capture.interrupt_capture()
    assert running.result() == (False, 0)


def test_capture_takes_messages_published_before_interrupt(capture: Capture) -> None:
    pub = msgq.pub_sock("e")
    capture.add_source(open_source("e"))
    for _ in range(20):
        running = Task(capture_until_interrupted, capture)
        pub.send(b"x")
        capture.interrupt_capture()
        assert running.result() == (False, 1)


def test_capture_after_earlier_interrupt_ends_at_once(capture: Capture) -> None:
    capture.interrupt_capture()
    capture.interrupt_capture()
    assert capture_until_interrupted(capture) == (False, 0)
    chunk = ChunkBuffer(1 << 20, 1 << 10)
    begin = time.monotonic()
    assert not capture.capture_messages(chunk, 0.01)
    assert time.monotonic() - begin >= 0.01  # both were for the one before


def test_capture_of_many_messages_is_interrupted(capture: Capture) -> None:
    pub = msgq.pub_sock("busy", segment_size=4096)
    capture.add_source(open_source("busy"))
    chunk = ChunkBuffer(64 << 20, 1 << 10)
    running = Task(capture.capture_messages, chunk, 2 * DEADLINE)
    while running.is_alive():
        pub.send_many([b"%64d" % number for number in range(100)])
        capture.interrupt_capture()
    assert running.result() is False
