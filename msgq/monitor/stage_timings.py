"""Stages, by what they say on their timing topics."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from msgq.common import timing
from msgq.monitor.passive_topics import PassiveTopic, TopicFollower
from msgq.monitor.sliding_window import DurationSpread, RowArray, SlidingWindow, compute_spread

TIMING_DTYPE = np.dtype([(name, "<i8") for name in timing.TIMING_FIELDS])


@dataclass(frozen=True)
class StageRow:
    """What a stage did with the messages of an endpoint.

    Attributes
    ----------
    seconds : of which these figures are.
    messages : that it was through with.
    rate : of messages a second, those among them of which we lost what was said; None: nobody knows, or no time passed.
    lost : records that were overwritten before we saw them; None: nobody knows how many.
    malformed : records that make no sense.
    queue_time : from published until it was taken, where somebody told when it was published.
    processing_time : until it was through with.
    e2e_latency : from the origin until then, where somebody told it.
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


class StageCollector:
    """The timing topics, as they come and go; a topic that went stays until its last record has left the window.

    Parameters
    ----------
    wanted : whether a stage is, by the name of its topic.
    seconds : how long the window is.
    """

    def __init__(self, wanted: Callable[[str], bool], seconds: float) -> None:
        self._seconds = seconds
        self._windows: dict[str, SlidingWindow] = {}
        self.topics: TopicFollower[PassiveTopic] = TopicFollower(
            lambda name: timing.parse_timing_topic(name) is not None and wanted(name), PassiveTopic
        )

    def poll(self) -> None:
        """Take what came. What comes between two looks must have room in the rings, or else it is lost, and counted."""
        self.topics.refresh(self._collect_topic)
        for name, topic in self.topics.by_name.items():
            self._collect_topic(name, topic)

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
        return sorted((_compute_row(name, window, now_s) for name, window in self._windows.items()), key=_sort_key)


def find_plausible_records(records: RowArray) -> RowArray:
    """Return which records of timing topics may be true."""
    ended, received = records["publish_time"], records["received"]
    return (received > 0) & (ended >= received) & (records["sent"] >= 0) & (records["origin_time"] >= 0)


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
