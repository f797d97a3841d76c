"""The demo's channel, vector and work queue: those who write there, and those who read, each measured as topics are."""

from __future__ import annotations

import contextlib
import struct
import sysconfig
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np

import msgq
from msgq import stats
from msgq.channel.names import KIND as CHANNEL
from msgq.cli.demo import plan
from msgq.cli.demo.meter import Meter
from msgq.common.dtypes import struct_schema
from msgq.common.rate_loop import Stop, rate_loop
from msgq.errors import MsgqError, SegmentError
from msgq.records.names import KIND as RECORDS
from msgq.workqueue.names import KIND as QUEUE

#: What is said on the channel, and of each gauge.
ALERT = np.dtype([("published_ns", "<u8"), ("sequence", "<u8"), ("pid", "<u8"), ("value", "<f8")])
GAUGES = 8  # elements of the vector; a machine with fewer cores leaves some at zero
_STAMP = struct.Struct("<QQQ")
_CAPACITY = 1024  # of the channel, messages: more than eight seconds of both publishers
_JOBS_MAX = 1024  # that wait
_JOB_BYTES = 512  # the stamp, and a path
_READ_BYTES = 64 << 10
_PATIENCE_S = 0.1

Sample = Callable[[], Sequence[float]]


def alerts(run: str, topic: plan.Topic) -> msgq.Channel:
    """Open the channel of those who watch the machine."""
    name = plan.endpoint_name(run, topic)
    return msgq.Channel(name, capacity=_CAPACITY, schema=struct_schema(ALERT, "Alert"), node=topic.name)


def gauges(run: str) -> msgq.SeqlockVector:
    """Open the vector of the machine's gauges."""
    return msgq.SeqlockVector(plan.endpoint_name(run, plan.GAUGES), ALERT, GAUGES)


def jobs(run: str) -> msgq.MessageQueue:
    """Open the queue of files to be read. It says of each job what becomes of it, and what it was."""
    name = plan.endpoint_name(run, plan.JOBS)
    return msgq.MessageQueue(name, max_messages=_JOBS_MAX, max_message_size=_JOB_BYTES, events="payload")


# ---- who writes ----


def publish(run: str, topic: plan.Topic, stop: Stop, pid: int, sample: Sample, begin: Callable[[], object]) -> None:
    """Play the role that writes to a channel, a vector or a queue.

    Parameters
    ----------
    sample : looks at the machine.
    begin : waits until all roles are there.
    """
    {CHANNEL.name: _watch, RECORDS.name: _show, QUEUE.name: _dispatch}[topic.kind](run, topic, stop, pid, sample, begin)


def _watch(run: str, topic: plan.Topic, stop: Stop, pid: int, sample: Sample, begin: Callable[[], object]) -> None:
    with alerts(run, topic) as channel, channel.publisher(slot_bytes=ALERT.itemsize) as publisher:
        begin()
        for sequence in rate_loop(topic.rate_hz, stop):
            publisher.send(_alert(max(sample()), sequence, pid))


def _show(run: str, topic: plan.Topic, stop: Stop, pid: int, sample: Sample, begin: Callable[[], object]) -> None:
    with gauges(run) as vector:
        vector.claim()
        begin()
        for sequence in rate_loop(topic.rate_hz, stop):
            for index, value in enumerate(sample()[:GAUGES]):
                vector[index] = _alert(value, sequence, pid)[0]


def _dispatch(run: str, topic: plan.Topic, stop: Stop, pid: int, _: Sample, begin: Callable[[], object]) -> None:
    files = cycle(sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")))
    with jobs(run) as queue:
        begin()
        for tick in rate_loop(topic.rate_hz, stop):
            for nth in range(topic.burst):
                stamp = _STAMP.pack(time.monotonic_ns(), tick * topic.burst + nth, pid)
                queue.send(stamp + bytes(next(files)), timeout=0)


def _alert(value: float, sequence: int, pid: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    return np.array([(time.monotonic_ns(), sequence, pid, value)], ALERT)


# ---- who reads ----


class Alarm:
    """A subscriber of the channel. What it hears of each publisher is measured apart."""

    def __init__(self, run: str, subscriber: plan.Subscriber) -> None:
        self._channel = alerts(run, plan.TOPICS[subscriber.topics[0]])
        self._subscriber = self._channel.subscriber()

    @property
    def lost(self) -> int | None:
        """Messages that it lost, of any publisher."""
        return self._subscriber.lost

    def take(self, meters: dict[str, Meter], timeout_s: float) -> bool:
        """Measure one message, if there is one in time."""
        message = self._subscriber.receive(timeout=timeout_s)
        if message is None or self._subscriber.last is None:
            return False
        meter = meters[self._subscriber.last.publisher.name]
        meter.take(_STAMP.unpack_from(message), len(message), time.monotonic_ns())
        return True

    def close(self) -> None:
        """Let go of the channel."""
        self._channel.close()


class Panel:
    """A reader of the vector.

    Attributes
    ----------
    lost : values that were overwritten before they were looked at, which is no loss of a gauge.
    """

    def __init__(self, run: str, _: plan.Subscriber) -> None:
        self._vector = gauges(run)
        self._counts = np.zeros(GAUGES, np.int64)
        self.lost = 0

    def take(self, meters: dict[str, Meter], timeout_s: float) -> bool:
        """Measure what has changed, if something has in time. It is numbered as all that was ever written."""
        self._vector.wait(timeout=timeout_s)
        changes = self._vector.changes()
        for index, row, count in zip(changes.indices, changes.rows, changes.counts, strict=True):
            self.lost += int(count - self._counts[index] - 1)
            self._counts[index] = count
            stamp = (int(row["published_ns"]), int(self._counts.sum()) - 1, int(row["pid"]))
            meters[plan.GAUGES.name].take(stamp, ALERT.itemsize, time.monotonic_ns())
        return bool(len(changes.indices))

    def close(self) -> None:
        """Let go of the vector."""
        self._vector.close()


class Worker:
    """One who takes jobs, and reads the files that they name.

    Attributes
    ----------
    lost : 0: what it does not finish is another one's.
    """

    lost = 0

    def __init__(self, run: str, subscriber: plan.Subscriber) -> None:
        self._queue, self._pause_s = jobs(run), subscriber.pause_s
        self._done = 0

    def take(self, meters: dict[str, Meter], timeout_s: float) -> bool:
        """Do one job, if there is one in time."""
        job = self._queue.take(timeout=timeout_s)
        if job is None:
            return False
        with job:
            published_ns, _, pid = _STAMP.unpack_from(job.data)
            meters[plan.JOBS.name].take((published_ns, self._done, pid), len(job.data), time.monotonic_ns())
            with open(job.data[_STAMP.size :], "rb") as file:
                zlib.crc32(file.read(_READ_BYTES))
            time.sleep(self._pause_s)
        self._done += 1
        return True

    def close(self) -> None:
        """Let go of the queue."""
        self._queue.close()


READERS: dict[str, Callable[[str, plan.Subscriber], Alarm | Panel | Worker]] = {
    "channel": Alarm,
    "vector": Panel,
    "worker": Worker,
}


# ---- who looks on ----


@dataclass(frozen=True)
class KilledWorker:
    """A worker that was killed with a job in its hands."""

    name: str
    pid: int


@dataclass(frozen=True)
class WorkResults:
    """What became of the jobs, by the queue's own counters.

    `waiting`, `taken`: that are there and were not worked off. `returned`: those that came back from a worker that was
    killed, and went to another one.
    """

    topic: str
    sent: int
    acknowledged: int
    returned: int
    waiting: int
    taken: int
    killed: tuple[KilledWorker, ...]


def work(run: str, killed: Sequence[KilledWorker]) -> WorkResults | None:
    """Look at the queue, after all workers have ended; None: the run ended before one of them had made it."""
    try:
        queue = stats.queue(plan.endpoint_name(run, plan.JOBS))
    except SegmentError:
        return None
    results = (queue.sent, queue.acknowledged, queue.returned, queue.depth, queue.in_flight)
    return WorkResults(plan.JOBS.name, *results, tuple(killed))


def has_job(run: str, pid: int) -> bool:
    """Whether a process has taken a job that it has not finished."""
    handles = stats.queue(plan.endpoint_name(run, plan.JOBS)).handles
    return any(row.taken for row in handles if row.participant.pid == pid)


def read_published(run: str, topic: plan.Topic, pid: int | None) -> plan.Published:
    """Return what was written to a channel (by this topic's publisher), a vector or a queue so far."""
    name = plan.endpoint_name(run, topic)
    with contextlib.suppress(SegmentError):
        if topic.kind == CHANNEL.name:
            pools = [row for row in stats.channel(name).publishers if row.node == topic.name]
            return plan.Published(pid, sum(row.sent for row in pools), sum(row.bytes for row in pools))
        if topic.kind == RECORDS.name:
            written = stats.record(name).written
            return plan.Published(pid, written, written * ALERT.itemsize)
        return plan.Published(pid, stats.queue(name).sent, None)
    return plan.Published(pid, 0, 0)  # nobody has made it so far


def has_publisher(run: str, topic: plan.Topic) -> bool:
    """Whether somebody who writes to a channel, vector or queue is there."""
    name = plan.endpoint_name(run, topic)
    if topic.kind == CHANNEL.name:
        return any(row.node == topic.name for row in stats.channel(name).publishers)
    if topic.kind == RECORDS.name:
        return bool(stats.record(name).writers)
    return len(stats.queue(name).handles) > sum(topic.name in row.topics for row in plan.SUBSCRIBERS.values())


def sweep(run: str) -> None:
    """Remove what the endpoints of a run left."""
    for topic in plan.OTHER_KINDS:
        name = plan.endpoint_name(run, topic)
        with contextlib.suppress(MsgqError):
            if topic.kind == CHANNEL.name:
                msgq.Channel(name, create=False, passive=True).unlink()
            elif topic.kind == RECORDS.name:
                msgq.SeqlockVector.unlink_name(name)
            else:
                msgq.MessageQueue.unlink_name(name)
