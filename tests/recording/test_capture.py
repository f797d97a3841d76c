"""The loop that takes messages without the GIL: what ends a run of it."""

from __future__ import annotations

import struct
import time

import numpy as np
import pytest

import msgq
from msgq.kinds.opening import open_source
from msgq.recording.mcap_io.core import CHUNK_ENTRY_FIELDS, ChunkBuffer
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


def test_capture_stops_at_first_message_with_new_schema(capture: Capture) -> None:
    schemas = [msgq.Schema(name, "json") for name in ("first", "second")]
    with msgq.PubSocket() as former, msgq.PubSocket() as latter:
        former.connect(msgq.context, "e", schema=schemas[0])
        source = open_source("e")
        assert source.read_message_schema() == schemas[0]
        number = capture.add_source(source)
        former.send_many([b"1", b"2"])
        latter.connect(msgq.context, "e", schema=schemas[1])
        latter.send(b"3")
        chunk = ChunkBuffer(1 << 20, 1 << 10)
        assert capture.list_sources_with_new_schema() == []
        capture.capture_messages(chunk, 0)
        assert (len(chunk), capture.list_sources_with_new_schema()) == (2, [number])
        assert source.schema == source.read_message_schema() == schemas[1]
        capture.accept_schema(number)
        capture.capture_messages(chunk, 0)
        assert (len(chunk), capture.list_sources_with_new_schema()) == (3, [])


@pytest.mark.parametrize("follows", [False, True])
def test_only_source_that_follows_publisher_stops_at_new_publisher(capture: Capture, follows: bool) -> None:
    first = msgq.pub_sock("e")
    number = capture.add_source(source := open_source("e"), follows_publisher=follows)
    chunk = ChunkBuffer(1 << 20, 1 << 10)
    first.send(b"1")
    capture.capture_messages(chunk, 0)
    second = msgq.pub_sock("e")
    second.send(b"2")
    capture.capture_messages(chunk, 0)
    assert (len(chunk), capture.list_sources_with_new_publisher()) == ((1, [number]) if follows else (2, []))
    if follows:
        assert source.poll_takeover()
        capture.accept_publisher(number)
        capture.capture_messages(chunk, 0)
        assert len(chunk) == 2


def read_times(chunk: ChunkBuffer) -> list[tuple[int, int]]:
    """Return log_time and publish_time of each record; the entries state the same log_times."""
    entries = np.frombuffer(chunk.message_entries, CHUNK_ENTRY_FIELDS)
    times = [struct.unpack_from("<QQ", chunk.record_bytes, int(offset) + 15) for offset in entries["offset"]]
    assert [log_time for log_time, _ in times] == entries["log_time"].tolist()
    return times


@pytest.mark.parametrize("size", [8, 5000])
def test_log_times_of_captured_messages_are_after_publication(capture: Capture, size: int) -> None:
    dtype = np.dtype([("publish_time", "<i8"), ("rest", "u1", size - 8)])
    pub = msgq.pub_sock("timed", schema=dtype)
    source = open_source("timed")
    assert source.read_message_schema() is not None
    capture.add_source(source, publish_offset=0)
    chunk = ChunkBuffer(1 << 20, 1 << 13)
    begin = capture.read_host_clock_ns()
    for _ in range(50):
        pub.send((capture.read_host_clock_ns(), np.zeros(size - 8, "u1")))
    assert not capture.capture_messages(chunk, 0)
    times = read_times(chunk)
    assert len(times) == 50
    assert all(begin <= publish_time < log_time for log_time, publish_time in times)
    assert [log_time for log_time, _ in times] == sorted(log_time for log_time, _ in times)
    assert (chunk.first_time, chunk.last_time) == (times[0][0], times[-1][0])
    assert chunk.last_time <= capture.read_host_clock_ns()


def test_captured_messages_without_publish_time_get_log_time(capture: Capture) -> None:
    pub = msgq.pub_sock("untimed")
    capture.add_source(open_source("untimed"))
    chunk = ChunkBuffer(1 << 20, 1 << 10)
    for number in range(3):
        pub.send_many([b"%d" % number] * 40)
        assert not capture.capture_messages(chunk, 0)
    times = read_times(chunk)
    assert len(times) == 120
    assert all(log_time == publish_time for log_time, publish_time in times)
    assert times[39] < times[40] <= times[79] < times[80]  # times of messages of one run may be equal
    assert (chunk.first_time, chunk.last_time) == (times[0][0], times[-1][0])
