"""Control loop of the demo, from a sensor to a command. Its records carry their origin."""

import time
from collections.abc import Callable

import numpy as np

import msgq
from msgq.cli.demo import plan
from msgq.common.dtypes import struct_schema
from msgq.common.rate_loop import StopSignal, rate_loop

_STEP_FIELDS = np.dtype(
    [("published_ns", "<u8"), ("sequence", "<u8"), ("pid", "<u8"), ("value", "<f8")]
)  # as all say it
STEP_DTYPE = msgq.tracked(_STEP_FIELDS)
STEP_SCHEMA = struct_schema(STEP_DTYPE)
_RECEIVE_TIMEOUT_S = 0.1
_SMOOTHING_FACTOR = 0.8
_LOAD_LIMIT_PERCENT = 50.0  # percent, above which the machine should do less


def publish_measurements(
    steps: msgq.RecordQueue, topic: plan.DemoTopic, stop: StopSignal, pid: int, sample: Callable[[], float]
) -> None:
    """Publish the results of `sample` at the topic's rate. Each record is an origin."""
    for sequence in rate_loop(topic.rate_hz, stop):
        value = sample()
        steps.produce(_make_step(sequence, pid, value))


def answer_causes(
    steps: msgq.RecordQueue, topic: plan.DemoTopic, stop: StopSignal, pid: int, causes: msgq.RecordQueue
) -> None:
    """Publish a record for each record of `causes`, with its origin, as a stage with the topic's name."""
    sequence, state = 0, 0.0
    with msgq.StageTracer(topic.name) as tracer:
        while not stop.is_set():
            for cause in tracer.trace_messages(causes, timeout=_RECEIVE_TIMEOUT_S):
                state = (
                    _smooth_load(state, cause["value"])
                    if topic.name == "estimate"
                    else _compute_work_share(cause["value"])
                )
                steps.produce(_make_step(sequence, pid, state))
                sequence += 1
                if stop.is_set():
                    break


def _make_step(sequence: int, pid: int, value: float) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    return np.array([(time.monotonic_ns(), sequence, pid, value)], _STEP_FIELDS)


def _smooth_load(before: float, measured: float) -> float:
    return _SMOOTHING_FACTOR * before + (1 - _SMOOTHING_FACTOR) * measured


def _compute_work_share(load: float) -> float:
    """Return the share of its work that the machine should do, 0 to 1."""
    return min(1.0, _LOAD_LIMIT_PERCENT / max(load, _LOAD_LIMIT_PERCENT))
