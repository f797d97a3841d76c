"""Times of other clocks, and times of frames, on the host's clock; origins of other clocks are refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import msgq
from msgq import errors
from msgq.simulation import Simulation
from tests.support import DEADLINE_MS
from visionipc import VisionIpcClient, VisionIpcServer

ROUNDING_NS = 500_000  # largest error of a converted time
DTYPE = msgq.tracked("<f8")


def boot_time() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@pytest.fixture
def frames(prefix: str, token: str) -> Iterator[tuple[VisionIpcServer, VisionIpcClient]]:
    """A server of one stream, and its connected client."""
    with VisionIpcServer(token) as server, VisionIpcClient(token, 0, False) as client:
        server.create_buffers(0, 2, 4, 4)
        server.start_listener()
        assert client.connect(True)
        yield server, client


@pytest.mark.parametrize("clock", ["CLOCK_BOOTTIME", "CLOCK_MONOTONIC", "CLOCK_REALTIME"])
def test_converted_time_lies_between_readings_of_host_clock(clock: str) -> None:
    number = getattr(time, clock)
    before, reading, after = msgq.time_ns(), time.clock_gettime_ns(number), msgq.time_ns()
    assert before - ROUNDING_NS <= msgq.to_host_time(reading, number) <= after + ROUNDING_NS


def test_converted_time_is_always_the_same() -> None:
    """An origin identifies an input, so all processes must compute the same one."""
    reading = boot_time()
    assert len({msgq.to_host_time(reading, time.CLOCK_BOOTTIME) for _ in range(1000)}) == 1


def test_conversion_from_unknown_clock_raises() -> None:
    with pytest.raises(errors.InvalidValueError, match="clock is 99"):
        msgq.to_host_time(1, 99)


def _send_many(publisher: Any, origin: int) -> None:
    publisher.send_many([b"x"], origin_time=origin)


def _reserve(publisher: Any, origin: int) -> None:
    with publisher.reserve(1, origin_time=origin):
        pass


def _loan(publisher: Any, origin: int) -> None:
    with publisher.loan(1) as loan:
        loan.origin_time = origin


CALLS: dict[str, tuple[str, Any]] = {
    "topic": ("topic", lambda sender, origin: sender.send(b"x", origin_time=origin)),
    "topic-many": ("topic", _send_many),
    "topic-reservation": ("topic", _reserve),
    "channel": ("channel", lambda sender, origin: sender.send(b"x", origin_time=origin)),
    "channel-many": ("channel", _send_many),
    "channel-loan": ("channel", _loan),
    "queue": ("queue", lambda sender, origin: sender.send(b"x", origin_time=origin)),
    "records": ("records", lambda sender, origin: sender.produce(1.5, origin_time=origin)),
}
SENDERS: dict[str, Any] = {
    "topic": lambda name: msgq.pub_sock(name, tracked=True),
    "channel": lambda name: msgq.Channel(name).publisher(),
    "queue": msgq.MessageQueue,
    "records": lambda name: msgq.RecordQueue(name, DTYPE),
}


@pytest.mark.parametrize("call", CALLS)
def test_origin_since_boot_is_refused(prefix: str, token: str, call: str) -> None:
    kind, send = CALLS[call]
    with SENDERS[kind](token) as sender:
        with pytest.raises(errors.InvalidValueError, match=r"since the boot.*to_host_time"):
            send(sender, 123 * 10**9)
        send(sender, msgq.to_host_time(boot_time(), time.CLOCK_BOOTTIME))


def test_frame_times_are_on_host_clock(frames: Any) -> None:
    server, client = frames
    before = msgq.time_ns()
    with server.frame(0) as outgoing:
        middle = msgq.time_ns()
    after = msgq.time_ns()
    frame = client.frame(DEADLINE_MS)
    assert before - ROUNDING_NS <= frame.origin_time <= middle + ROUNDING_NS
    assert middle - ROUNDING_NS <= frame.publish_time <= after + ROUNDING_NS
    assert frame.origin_time == msgq.to_host_time(frame.timestamp_sof, time.CLOCK_BOOTTIME)
    assert not outgoing.dropped


@pytest.mark.parametrize("timestamp", [0, 1 << 62, (1 << 64) - 1])
def test_frame_times_of_other_clock_are_unknown(frames: Any, timestamp: int) -> None:
    server, client = frames
    server.send(0, bytes(24), 1, timestamp, timestamp)
    frame = client.frame(DEADLINE_MS)
    assert (frame.origin_time, frame.publish_time) == (0, 0)


@pytest.mark.parametrize("in_list", [False, True])
def test_tracer_of_frames_passes_their_origin_on(frames: Any, token: str, in_list: bool) -> None:
    server, client = frames
    with ExitStack() as stack:
        timings = stack.enter_context(msgq.sub_sock(f"timing:{token}:{client.endpoint}", timeout=DEADLINE_MS))
        sub = stack.enter_context(msgq.sub_sock(f"{token}_boxes", timeout=DEADLINE_MS))
        boxes = stack.enter_context(msgq.pub_sock(f"{token}_boxes", tracked=True))
        tracer = stack.enter_context(msgq.StageTracer(token))
        with server.frame(0):
            pass
        for item in tracer.trace_messages([client] if in_list else client, timeout=0.01):
            frame = item[1] if in_list else item
            boxes.send(b"a box")
        _, origin, received, sent = np.frombuffer(timings.receive() or b"", "<i8")
        assert origin == frame.origin_time > 0
        assert sent == frame.publish_time
        assert sent - ROUNDING_NS <= received <= msgq.time_ns()
        box = sub.receive_tracked()
        assert box is not None
        assert box.origin_time == origin


def test_simulated_times_are_virtual() -> None:
    with Simulation() as sim, VisionIpcServer("cam") as server, VisionIpcClient("cam", 0, False) as client:
        server.create_buffers(0, 2, 4, 4)
        server.start_listener()
        client.connect(True)
        with server.frame(0) as outgoing:
            sof = outgoing.timestamp_sof
        frame = client.recv(1)
        assert frame is not None
        assert frame.origin_time == frame.timestamp_sof == sof
        assert msgq.time_ns() == sim.clock.time_ns() == msgq.to_host_time(msgq.time_ns(), time.CLOCK_BOOTTIME)
