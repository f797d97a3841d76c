"""Stages, measured from their timing topics."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from msgq.common import timing
from msgq.monitor.passive_topics import PassiveTopic, TopicFollower
from msgq.monitor.sliding_window import DurationSpread, SlidingWindow, compute_spread
from msgq.monitor.stage_threads import StageThreads
from msgq.records.age_split import AgeParts, average_parts, split_ages
from msgq.records.tracing_rules import TIMING_DTYPE, find_plausible_records, find_wait_begins

_SPLIT_RECORDS_MAX = 1 << 14  # newest messages whose ages are divided, because that takes longer than percentiles
# Share of the time since the sending that has no samples; with a larger one, the parts are unknown.
_UNKNOWN_SHARE_MAX = 0.5
_END_OF_TIME = np.iinfo(np.int64).max


@dataclass(frozen=True)
class StageRow:
    """Timings of a stage for the messages of one endpoint.

    Attributes:
        seconds: duration of the measurement.
        messages: number of handled messages.
        rate: handled messages per second, including those with lost records; None: unknown, or no time passed.
        lost: number of records overwritten before they were read; None: unknown.
        malformed: number of invalid records.
        queue_time: time from publishing to receiving, for messages with a publish time.
        processing_time: time from receiving to the end of the handling.
        e2e_latency: time from the origin to the end of the handling, for messages with an origin.
        age_parts: mean parts of the age by their causes, of the newest 16,384 messages; None: unknown.
        thread_problem: reason why the stage's thread has no samples; "": it has some.
    """

    stage: str
    endpoint: str
    seconds: float
    messages: int
    rate: float | None
    lost: int | None
    malformed: int
    queue_time: DurationSpread
    processing_time: DurationSpread
    e2e_latency: DurationSpread
    age_parts: AgeParts | None = None
    thread_problem: str = ""


class StageCollector:
    """Reads timing topics, and follows new and removed ones.

    A removed topic stays until its last record leaves the window.

    Args:
        wanted: returns True for the name of a selected timing topic.
        seconds: length of the window.
    """

    def __init__(self, is_selected: Callable[[str], bool], seconds: float) -> None:
        self._seconds = seconds
        self._windows: dict[str, SlidingWindow] = {}
        self._threads = StageThreads(seconds)
        self.topics: TopicFollower[PassiveTopic] = TopicFollower(
            lambda name: timing.parse_timing_topic(name) is not None and is_selected(name), PassiveTopic
        )

    def poll(self) -> None:
        """Read the new records. Records that the ring overwrites between two polls count as lost."""
        self.topics.refresh(self._collect_topic)
        for name, topic in self.topics.by_name.items():
            self._collect_topic(name, topic)
        self._threads.poll(self.topics.by_name)

    def _collect_topic(self, name: str, topic: PassiveTopic) -> None:
        batch, now_s = topic.take_messages(TIMING_DTYPE), time.monotonic()
        if name not in self._windows:
            self._windows[name] = SlidingWindow(self._seconds, now_s)
        whole = [rows[find_plausible_records(rows)] for rows in batch.rows]
        malformed = len(batch.other_messages) + sum(map(len, batch.rows)) - sum(map(len, whole))
        self._windows[name].add_sample(now_s, whole, batch.lost, malformed)

    def compute_rows(self) -> list[StageRow]:
        """Return a row for each stage and endpoint, sorted."""
        now_s = time.monotonic()
        for name in [name for name in self._windows if name not in self.topics.by_name]:
            self._windows[name].drop_old_samples(now_s)
            if self._windows[name].is_empty:
                del self._windows[name]
        rows = (self._add_age_parts(name, _compute_row(name, window, now_s)) for name, window in self._windows.items())
        return sorted(rows, key=_sort_key)

    def _add_age_parts(self, name: str, row: StageRow) -> StageRow:
        thread = self._threads.find_thread(name)
        problem = self._threads.find_problem(name)
        if thread is None or problem:
            return replace(row, thread_problem=problem)
        records = self._windows[name].concatenate_rows(TIMING_DTYPE)[-_SPLIT_RECORDS_MAX:]
        begins = find_wait_begins(records)
        together = [window for other, window in self._windows.items() if self._threads.find_thread(other) == thread]
        thread_records = np.concatenate([window.concatenate_rows(TIMING_DTYPE) for window in together])
        thread_records = thread_records[thread_records["publish_time"] >= begins.min(initial=_END_OF_TIME)]
        parts = average_parts(split_ages(records, thread_records, self._threads.get_samples(thread)))
        is_known = parts is not None and parts.unknown <= _UNKNOWN_SHARE_MAX * (parts.total - parts.sender)
        return replace(row, age_parts=parts if is_known else None)


def _compute_row(name: str, window: SlidingWindow, now_s: float) -> StageRow:
    records, seconds, lost = window.concatenate_rows(TIMING_DTYPE), window.compute_duration_s(now_s), window.lost
    ended, received = records["publish_time"], records["received"]
    stage, endpoint = timing.parse_timing_topic(name) or (name, "")
    return StageRow(
        stage,
        endpoint,
        seconds,
        len(records),
        None if lost is None or seconds <= 0 else (len(records) + lost) / seconds,
        lost,
        window.left_out,
        compute_spread((received - records["sent"])[records["sent"] > 0]),
        compute_spread(ended - received),
        compute_spread((ended - records["origin_time"])[records["origin_time"] > 0]),
    )


def _sort_key(row: StageRow) -> tuple[str, str]:
    return row.stage, row.endpoint
