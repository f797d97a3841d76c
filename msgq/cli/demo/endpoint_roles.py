"""Writers and readers of the demo's channel, vector and work queue. Readers are measured like subscribers of topics."""

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
from msgq.cli.demo.meter import DemoMeter
from msgq.common.dtypes import struct_schema
from msgq.common.rate_loop import StopSignal, rate_loop
from msgq.errors import MsgqError, SegmentError
from msgq.records.names import KIND as RECORDS
from msgq.workqueue.names import KIND as QUEUE

#: What is said on the channel, and of each gauge.
ALERT_DTYPE = np.dtype([("published_ns", "<u8"), ("sequence", "<u8"), ("pid", "<u8"), ("value", "<f8")])
GAUGE_COUNT = 8  # elements of the vector; a machine with fewer cores leaves some at zero
_STAMP_STRUCT = struct.Struct("<QQQ")
_CHANNEL_CAPACITY = 1024  # of the channel, messages: more than eight seconds of both publishers
_JOBS_MAX = 1024  # that wait
_JOB_BYTES = 512  # the stamp, and a path
_READ_CHUNK_BYTES = 64 << 10
_RECEIVE_TIMEOUT_S = 0.1

SampleFunction = Callable[[], Sequence[float]]


def open_alert_channel(run: str, topic: plan.DemoTopic) -> msgq.Channel:
    """Open the channel with alerts about the machine."""
    name = plan.make_endpoint_name(run, topic)
    return msgq.Channel(name, capacity=_CHANNEL_CAPACITY, schema=struct_schema(ALERT_DTYPE, "Alert"), node=topic.name)


def open_gauge_vector(run: str) -> msgq.SeqlockVector:
    """Open the vector with the machine's gauges."""
    return msgq.SeqlockVector(plan.make_endpoint_name(run, plan.GAUGES_TOPIC), ALERT_DTYPE, GAUGE_COUNT)


def open_job_queue(run: str) -> msgq.MessageQueue:
    """Open the queue with names of files to read. The queue publishes events with payloads."""
    name = plan.make_endpoint_name(run, plan.JOBS_TOPIC)
    return msgq.MessageQueue(name, max_messages=_JOBS_MAX, max_message_size=_JOB_BYTES, events="payload")


# ---- writers ----


def publish_to_endpoint(
    run: str, topic: plan.DemoTopic, stop: StopSignal, pid: int, sample: SampleFunction, begin: Callable[[], object]
) -> None:
    """Write to a channel, a vector or a queue until `stop`.

    Parameters
    ----------
    sample : measures the machine.
    begin : waits until all roles run.
    """
    {CHANNEL.name: _publish_alerts, RECORDS.name: _write_gauges, QUEUE.name: _send_jobs}[topic.kind](
        run, topic, stop, pid, sample, begin
    )


def _publish_alerts(
    run: str, topic: plan.DemoTopic, stop: StopSignal, pid: int, sample: SampleFunction, begin: Callable[[], object]
) -> None:
    with open_alert_channel(run, topic) as channel, channel.publisher(slot_bytes=ALERT_DTYPE.itemsize) as publisher:
        begin()
        for sequence in rate_loop(topic.rate_hz, stop):
            publisher.send(_make_alert(max(sample()), sequence, pid))


def _write_gauges(
    run: str, topic: plan.DemoTopic, stop: StopSignal, pid: int, sample: SampleFunction, begin: Callable[[], object]
) -> None:
    with open_gauge_vector(run) as vector:
        vector.claim()
        begin()
        for sequence in rate_loop(topic.rate_hz, stop):
            for index, value in enumerate(sample()[:GAUGE_COUNT]):
                vector[index] = _make_alert(value, sequence, pid)[0]


def _send_jobs(
    run: str, topic: plan.DemoTopic, stop: StopSignal, pid: int, _: SampleFunction, begin: Callable[[], object]
) -> None:
    files = cycle(sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")))
    with open_job_queue(run) as queue:
        begin()
        for tick in rate_loop(topic.rate_hz, stop):
            for nth in range(topic.burst_messages):
                stamp = _STAMP_STRUCT.pack(time.monotonic_ns(), tick * topic.burst_messages + nth, pid)
                queue.send(stamp + bytes(next(files)), timeout=0)


def _make_alert(value: float, sequence: int, pid: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    return np.array([(time.monotonic_ns(), sequence, pid, value)], ALERT_DTYPE)


# ---- readers ----


class AlertReader:
    """Subscriber of the channel. The messages of each publisher are measured separately."""

    def __init__(self, run: str, subscriber: plan.DemoSubscriber) -> None:
        self._channel = open_alert_channel(run, plan.DEMO_TOPICS[subscriber.topics[0]])
        self._subscriber = self._channel.subscriber()

    @property
    def lost(self) -> int | None:
        """Number of lost messages of all publishers."""
        return self._subscriber.lost

    def receive_next(self, meters: dict[str, DemoMeter], timeout_s: float) -> bool:
        """Measure one message. Return False at the timeout."""
        message = self._subscriber.receive(timeout=timeout_s)
        if message is None or self._subscriber.last is None:
            return False
        meter = meters[self._subscriber.last.publisher.name]
        meter.count_message(_STAMP_STRUCT.unpack_from(message), len(message), time.monotonic_ns())
        return True

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


class GaugeReader:
    """Reader of the vector.

    Attributes
    ----------
    lost : number of values overwritten before they were read. Overwritten values are normal for a gauge.
    """

    def __init__(self, run: str, _: plan.DemoSubscriber) -> None:
        self._vector = open_gauge_vector(run)
        self._counts = np.zeros(GAUGE_COUNT, np.int64)
        self.lost = 0

    def receive_next(self, meters: dict[str, DemoMeter], timeout_s: float) -> bool:
        """Measure the changed values. Return False at the timeout.

        The number of a value is the total number of writes.
        """
        self._vector.wait(timeout=timeout_s)
        changes = self._vector.changes()
        for index, row, count in zip(changes.indices, changes.rows, changes.counts, strict=True):
            self.lost += int(count - self._counts[index] - 1)
            self._counts[index] = count
            stamp = (int(row["published_ns"]), int(self._counts.sum()) - 1, int(row["pid"]))
            meters[plan.GAUGES_TOPIC.name].count_message(stamp, ALERT_DTYPE.itemsize, time.monotonic_ns())
        return bool(len(changes.indices))

    def close(self) -> None:
        """Close the vector."""
        self._vector.close()


class JobWorker:
    """Takes jobs, and reads the files that they name.

    Attributes
    ----------
    lost : always 0, because another worker gets unfinished jobs.
    """

    lost = 0

    def __init__(self, run: str, subscriber: plan.DemoSubscriber) -> None:
        self._queue, self._pause_s = open_job_queue(run), subscriber.pause_s
        self._done = 0

    def receive_next(self, meters: dict[str, DemoMeter], timeout_s: float) -> bool:
        """Do one job. Return False at the timeout."""
        job = self._queue.take(timeout=timeout_s)
        if job is None:
            return False
        with job:
            published_ns, _, pid = _STAMP_STRUCT.unpack_from(job.data)
            meters[plan.JOBS_TOPIC.name].count_message(
                (published_ns, self._done, pid), len(job.data), time.monotonic_ns()
            )
            with open(job.data[_STAMP_STRUCT.size :], "rb") as file:
                zlib.crc32(file.read(_READ_CHUNK_BYTES))
            time.sleep(self._pause_s)
        self._done += 1
        return True

    def close(self) -> None:
        """Close the queue."""
        self._queue.close()


READER_CLASSES: dict[str, Callable[[str, plan.DemoSubscriber], AlertReader | GaugeReader | JobWorker]] = {
    "channel": AlertReader,
    "vector": GaugeReader,
    "worker": JobWorker,
}


# ---- observers ----


@dataclass(frozen=True)
class KilledWorker:
    """A worker that was killed while it had a job."""

    name: str
    pid: int


@dataclass(frozen=True)
class WorkResults:
    """Results of the jobs, from the counters of the queue.

    `pending_jobs`, `unfinished_jobs`: number of jobs that were not taken, and not finished. `returned_jobs`: number of
    jobs that a killed worker had, and another worker finished.
    """

    topic: str
    sent_jobs: int
    acknowledged_jobs: int
    returned_jobs: int
    pending_jobs: int
    unfinished_jobs: int
    killed_workers: tuple[KilledWorker, ...]


def read_work_results(run: str, killed: Sequence[KilledWorker]) -> WorkResults | None:
    """Read the queue after the end of all workers; None: the run ended before a worker created the queue."""
    try:
        queue = stats.queue(plan.make_endpoint_name(run, plan.JOBS_TOPIC))
    except SegmentError:
        return None
    results = (queue.sent, queue.acknowledged, queue.returned, queue.depth, queue.in_flight)
    return WorkResults(plan.JOBS_TOPIC.name, *results, tuple(killed))


def holds_job(run: str, pid: int) -> bool:
    """Return True if a process has taken a job and not finished it."""
    handles = stats.queue(plan.make_endpoint_name(run, plan.JOBS_TOPIC)).handles
    return any(row.taken for row in handles if row.participant.pid == pid)


def read_published_counts(run: str, topic: plan.DemoTopic, pid: int | None) -> plan.PublishedCounts:
    """Return the number of writes to a channel (by this topic's publisher), a vector or a queue."""
    name = plan.make_endpoint_name(run, topic)
    with contextlib.suppress(SegmentError):
        if topic.kind == CHANNEL.name:
            pools = [row for row in stats.channel(name).publishers if row.node == topic.name]
            return plan.PublishedCounts(pid, sum(row.sent for row in pools), sum(row.bytes for row in pools))
        if topic.kind == RECORDS.name:
            written = stats.record(name).written
            return plan.PublishedCounts(pid, written, written * ALERT_DTYPE.itemsize)
        return plan.PublishedCounts(pid, stats.queue(name).sent, None)
    return plan.PublishedCounts(pid, 0, 0)  # the endpoint was not created yet


def has_publisher(run: str, topic: plan.DemoTopic) -> bool:
    """Return True if a writer of a channel, vector or queue is present."""
    name = plan.make_endpoint_name(run, topic)
    if topic.kind == CHANNEL.name:
        return any(row.node == topic.name for row in stats.channel(name).publishers)
    if topic.kind == RECORDS.name:
        return bool(stats.record(name).writers)
    return len(stats.queue(name).handles) > sum(topic.name in row.topics for row in plan.DEMO_SUBSCRIBERS.values())


def remove_leftovers(run: str) -> None:
    """Remove the files of a run's endpoints."""
    for topic in plan.OTHER_KIND_TOPICS:
        name = plan.make_endpoint_name(run, topic)
        with contextlib.suppress(MsgqError):
            if topic.kind == CHANNEL.name:
                msgq.Channel(name, create=False, passive=True).unlink()
            elif topic.kind == RECORDS.name:
                msgq.SeqlockVector.unlink_name(name)
            else:
                msgq.MessageQueue.unlink_name(name)
