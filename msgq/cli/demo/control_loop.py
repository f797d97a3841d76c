"""The demo's loop from a sensor to a command: records that say when that happened of which they are a consequence."""

import time
from collections.abc import Callable

import numpy as np

import msgq
from msgq.cli.demo import plan
from msgq.common.dtypes import struct_schema
from msgq.common.rate_loop import Stop, rate_loop

_SAID = np.dtype([("published_ns", "<u8"), ("sequence", "<u8"), ("pid", "<u8"), ("value", "<f8")])  # as all say it
STEP = msgq.tracked(_SAID)
SCHEMA = struct_schema(STEP)
_PATIENCE_S = 0.1
_SMOOTHING = 0.8
_ENOUGH = 50.0  # percent, above which the machine should do less


def measure(steps: msgq.RecordQueue, topic: plan.Topic, stop: Stop, pid: int, sample: Callable[[], float]) -> None:
    """Publish what `sample` says, at the topic's rate: each record is an origin."""
    for sequence in rate_loop(topic.rate_hz, stop):
        value = sample()
        steps.produce(_record(sequence, pid, value))


def answer(steps: msgq.RecordQueue, topic: plan.Topic, stop: Stop, pid: int, causes: msgq.RecordQueue) -> None:
    """Publish a record for each one of `causes`, with its origin, as a stage of this name."""
    sequence, state = 0, 0.0
    with msgq.StageTracer(topic.name) as tracer:
        while not stop.is_set():
            for cause in tracer.trace_messages(causes, timeout=_PATIENCE_S):
                state = _estimate(state, cause["value"]) if topic.name == "estimate" else _command(cause["value"])
                steps.produce(_record(sequence, pid, state))
                sequence += 1
                if stop.is_set():
                    break


def _record(sequence: int, pid: int, value: float) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    return np.array([(time.monotonic_ns(), sequence, pid, value)], _SAID)


def _estimate(before: float, measured: float) -> float:
    return _SMOOTHING * before + (1 - _SMOOTHING) * measured


def _command(load: float) -> float:
    """Return how much of its work the machine should do, 0 to 1."""
    return min(1.0, _ENOUGH / max(load, _ENOUGH))
