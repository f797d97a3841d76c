"""The demo's loop from a sensor to a command: messages that say when that happened of which they are a consequence."""

import json
import struct
import time
from collections.abc import Callable

import msgq
from msgq.demo import plan
from msgq.impl.ground import clock
from msgq.tooling.steady import Stop, ticks

FIELDS = [
    ("published_ns", "<u8"),
    ("sequence", "<u8"),
    ("pid", "<u8"),  # as in every message of the demo
    ("publish_time", "<i8"),
    ("origin_time", "<i8"),
    ("value", "<f8"),
    ("spare", "<u8", 2),
]
_MESSAGE = struct.Struct("<QQQqqd16x")
SCHEMA = msgq.Schema("Step", "struct", json.dumps(FIELDS).encode())
_SMOOTHING = 0.8
_ENOUGH = 50.0  # percent, above which the machine should do less


def measure(socket: msgq.PubSocket, topic: plan.Topic, stop: Stop, pid: int, sample: Callable[[], float]) -> None:
    """Publish what `sample` says, at the topic's rate: each message is an origin."""
    for sequence in ticks(topic.rate_hz, stop):
        value, now_ns = sample(), clock.time_ns()
        socket.send(_MESSAGE.pack(time.monotonic_ns(), sequence, pid, now_ns, now_ns, value))


def answer(socket: msgq.PubSocket, topic: plan.Topic, stop: Stop, pid: int, cause: msgq.SubSocket) -> None:
    """Publish a message for each one of `cause`, and pass on its origin."""
    sequence, state = 0, 0.0
    while not stop.is_set():
        message = cause.receive()
        if message is None:
            continue
        *_, origin_ns, value = _MESSAGE.unpack(message)
        state = _estimate(state, value) if topic.name == "estimate" else _command(value)
        socket.send(_MESSAGE.pack(time.monotonic_ns(), sequence, pid, clock.time_ns(), origin_ns, state))
        sequence += 1


def _estimate(before: float, measured: float) -> float:
    return _SMOOTHING * before + (1 - _SMOOTHING) * measured


def _command(load: float) -> float:
    """Return how much of its work the machine should do, 0 to 1."""
    return min(1.0, _ENOUGH / max(load, _ENOUGH))
