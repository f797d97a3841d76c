"""Roles of processes beside one that records or follows a topic: they publish at a rate, or record; see `roles`.

The process beside them sets the control word `control.TOTAL` to the steps below. The word of a process is 1 when it is
ready, and 2 when it has sent or recorded all messages.
"""

import time
from collections.abc import Callable
from typing import Any

from tools.bench import control
from tools.bench.adapters import OURS
from tools.bench.job import Job
from tools.bench.roles import Role, in_slices

PUBLISH, STOP_RECORDING, CLOSE = 1, 2, 3
SEGMENT_BYTES = 64 << 20
TICK_S = 0.0001


def publish(job: Job) -> Role:
    """Publish texts."""
    from tools.bench.works.files import make_texts

    rows = make_texts(job.case.size, job.case.messages)
    return in_slices(job, lambda words: _publish(job, words, lambda due: rows[:due]))


def publish_times(job: Job) -> Role:
    """Publish rows with the time of their publication."""
    import numpy as np

    from msgq.common.dtypes import struct_schema

    dtype = np.dtype([("publish_time", "<u8"), ("rest", "<u8", job.case.size // 8 - 1)])

    def make_rows(due: int) -> Any:
        rows = np.zeros(due, dtype)
        rows["publish_time"] = time.time_ns()
        return rows

    return in_slices(job, lambda words: _publish(job, words, make_rows, struct_schema(dtype)))


def record(job: Job) -> Role:
    """Record what the publisher sends."""
    from msgq.recording import Recorder

    def once(words: memoryview) -> None:
        recorder = Recorder(job.folder / job.name / "log", [f"{job.name}-data"])
        words[control.OWN + job.number] = 1
        control.wait_until(lambda: words[control.TOTAL] >= STOP_RECORDING)
        recorder.stop()
        words[control.OWN + job.number] = 2

    return in_slices(job, once)


def _publish(job: Job, words: memoryview, make_rows: Callable[[int], Any], schema: Any = None) -> None:
    import msgq

    if job.system != OURS:
        return  # libraries write messages from memory
    case, sent = job.case, 0
    with msgq.pub_sock(f"{job.name}-data", segment_size=SEGMENT_BYTES, schema=schema) as pub:
        words[control.OWN + job.number] = 1
        control.wait_until(lambda: words[control.TOTAL] >= PUBLISH)
        begin = time.perf_counter()
        while sent < case.messages:
            due = min(int((time.perf_counter() - begin) * case.rate), case.messages) - sent
            if due > 0:
                sent += pub.send_many(make_rows(due))
            else:
                time.sleep(TICK_S)
        words[control.OWN + job.number] = 2
        control.wait_until(lambda: words[control.TOTAL] >= CLOSE)
