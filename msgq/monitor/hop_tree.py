"""Tree of endpoints by the origins of their messages. `msgq.spark.tables.hops` computes the same for recordings."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from msgq.common import timing
from msgq.common.units import NS_PER_S
from msgq.decoding.time_fields import make_time_fields_dtype
from msgq.impl.base import clock
from msgq.monitor.passive_topics import STAMP_FIELDS, STAMPS_DTYPE, PassiveTopic, TopicFollower
from msgq.monitor.sliding_window import RowArray, SlidingWindow, pick_percentile
from msgq.records.tracing_rules import find_parents

_STAMPS_DTYPE = np.dtype([("endpoint", "<i8"), *((name, "<i8") for name in STAMP_FIELDS)])


@dataclass(frozen=True)
class HopEdge:
    """An edge between two endpoints, like a row of the table `hops`.

    Attributes:
        parent: endpoint before this one; None: root.
        messages: number of messages on this edge; 0 for an endpoint without an edge.
        p50: median time from the parent's publish time to this message's publish time, ns; None at the root.
        p99: 99th percentile of this time, ns; None at the root.
        max: maximum of this time, ns; None at the root.
        e2e_p50: median time from the origin to the publish time, ns.
    """

    parent: str | None
    endpoint: str
    messages: int
    p50: int | None = None
    p99: int | None = None
    max: int | None = None
    e2e_p50: int | None = None


@dataclass(frozen=True)
class HopTree:
    """Result of a measurement.

    Attributes:
        hops: edges, sorted by name.
        seconds: duration of the measurement.
        topic_count: number of topics.
        stamped_topic_count: number of topics whose messages have timestamps.
        messages: number of messages in complete chains.
        cut_chain_count: number of omitted chains, which began before the first known message.
        lost: for each topic, messages overwritten before they were read; None: unknown.
        left_out: for each topic, messages with missing or invalid timestamps.
    """

    hops: list[HopEdge]
    seconds: float
    topic_count: int
    stamped_topic_count: int
    messages: int
    cut_chain_count: int
    lost: dict[str, int | None]
    left_out: dict[str, int]


class _StampedTopic:
    """A topic whose messages may carry stamps."""

    def __init__(self, name: str, came_late: bool) -> None:
        self._topic = PassiveTopic(name, came_late)
        self.dtype: np.dtype[Any] | None = None

    def take_messages(self) -> tuple[list[RowArray], int | None, int]:
        """Return the new timestamps, the number of lost messages, and the number of messages without timestamps."""
        if self._topic.is_tracked:
            self.dtype = STAMPS_DTYPE
            batch = self._topic.take_stamp_batch()
            return batch.rows, batch.lost, 0
        was_known, before = self._topic.is_known, self.dtype
        self.dtype = make_time_fields_dtype(self._topic.read_schema(), STAMP_FIELDS)
        if self.dtype is None:
            return [], 0, 0
        batch = self._topic.take_messages(self.dtype)
        count = sum(map(len, batch.rows)) + len(batch.other_messages)
        if was_known and before != self.dtype:  # an unknown number of messages had the previous schema
            return [], batch.lost, count
        rows = [*batch.rows, *_read_first_stamps(batch.other_messages, self.dtype)]
        return rows, batch.lost, count - sum(map(len, rows))

    def close(self) -> None:
        """Close the subscriber."""
        self._topic.close()


def _read_first_stamps(messages: Sequence[bytes], dtype: np.dtype[Any]) -> Iterator[RowArray]:
    """Yield the timestamps of messages of other sizes, from their first element, like recordings."""
    needed = max(dtype.fields[name][1] + dtype[name].itemsize for name in STAMP_FIELDS) if dtype.fields else 0
    for message in messages:
        if len(message) >= needed:
            yield np.frombuffer(message[: dtype.itemsize].ljust(dtype.itemsize, b"\0"), dtype)


class HopTreeCollector:
    """Reads topics whose messages have timestamps. Follows new and removed topics, and ignores timing topics.

    Args:
        wanted: returns True for the name of a selected topic.
        seconds: length of the window.
    """

    def __init__(self, is_selected: Callable[[str], bool], seconds: float) -> None:
        self._seconds = seconds
        self._window = SlidingWindow(seconds, time.monotonic())
        self._numbers: dict[str, int] = {}  # numbers of endpoints
        self._counts: dict[str, SlidingWindow] = {}  # lost and omitted messages of each endpoint
        self._polled_ns = 0
        self.topics: TopicFollower[_StampedTopic] = TopicFollower(
            lambda name: not name.startswith(timing.TIMING_TOPIC_PREFIX) and is_selected(name), _StampedTopic
        )

    def poll(self) -> None:
        """Read the new messages. Messages that the ring overwrites between two polls count as lost."""
        self._polled_ns = clock.time_ns()
        self.topics.refresh(self._collect_topic)
        for name, topic in self.topics.by_name.items():
            self._collect_topic(name, topic)

    def _collect_topic(self, name: str, topic: _StampedTopic) -> None:
        stamps, lost, left_out = topic.take_messages()
        if topic.dtype is None:
            return
        now_s = time.monotonic()
        number = self._numbers.setdefault(name, len(self._numbers))
        rows = []
        for batch in stamps:
            row = np.empty(len(batch), _STAMPS_DTYPE)
            row["endpoint"] = number
            for field in STAMP_FIELDS:
                row[field] = batch[field]
            rows.append(row[(row["publish_time"] >= 0) & (row["origin_time"] > 0)])
            left_out += len(batch) - len(rows[-1])
        self._window.add_sample(now_s, rows)
        self._counts.setdefault(name, SlidingWindow(self._seconds, now_s)).add_sample(now_s, [], lost, left_out)

    def build_tree(self) -> HopTree:
        """Return the tree of the messages in the window.

        Messages published after the start of the last poll are left for the next tree, because their predecessors may
        not have been read yet. A chain is omitted if its origin is earlier than the first known message by less than
        the window, because its beginning was not read. Earlier origins come from playback or another clock, and their
        chains count.
        """
        now_s = time.monotonic()
        self._window.drop_old_samples(now_s)
        rows = self._window.concatenate_rows(_STAMPS_DTYPE)
        late_ns = rows["publish_time"] - self._polled_ns
        rows = rows[(late_ns <= 0) | (late_ns > NS_PER_S)]  # much later times are from another clock
        first = int(rows["publish_time"].min(initial=np.iinfo(np.int64).max))
        is_cut = (rows["origin_time"] < first) & (rows["origin_time"] > first - int(self._seconds * NS_PER_S))
        cut, whole = rows[is_cut], rows[~is_cut]
        names = list(self._numbers)
        edges = compute_hops(names, *(whole[field] for field in ("endpoint", *STAMP_FIELDS)))
        counts = {name: window for name, window in self._counts.items() if self._is_shown(name, window, now_s, edges)}
        self._counts = counts
        lonely = counts.keys() - {hop.endpoint for hop in edges}
        return HopTree(
            sorted([*edges, *(HopEdge(None, name, 0) for name in lonely)], key=_sort_key),
            self._window.compute_duration_s(now_s),
            len(self.topics.by_name),
            sum(topic.dtype is not None for topic in self.topics.by_name.values()),
            len(whole),
            len(np.unique(cut["origin_time"])),
            {name: window.lost for name, window in counts.items()},
            {name: window.left_out for name, window in counts.items()},
        )

    def _is_shown(self, name: str, counts: SlidingWindow, now_s: float, edges: Sequence[HopEdge]) -> bool:
        """Return True if a topic has timestamps now, or had messages within the window."""
        counts.drop_old_samples(now_s)
        topic = self.topics.by_name.get(name)
        has_stamps = topic is not None and topic.dtype is not None
        return has_stamps or not counts.is_empty or any(hop.endpoint == name for hop in edges)


def compute_hops(
    names: Sequence[str], endpoint: RowArray, publish_time: RowArray, origin_time: RowArray
) -> list[HopEdge]:
    """Return the edges between the endpoints of some messages. All messages have an origin.

    Messages with the same origin form a chain, ordered by publish time and then by endpoint name.

    Args:
        names: names of the endpoints.
        endpoint: for each message, the index of its endpoint in `names`.
        publish_time: publishing time of each message, ns.
        origin_time: origin time of each message, ns.
    """
    if not len(endpoint):
        return []
    rank = np.empty(len(names), np.int64)
    rank[sorted(range(len(names)), key=lambda number: names[number].encode())] = np.arange(len(names))
    order = np.lexsort((rank[endpoint], publish_time, origin_time))
    endpoint, publish_time, origin_time = endpoint[order], publish_time[order], origin_time[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = origin_time[1:] != origin_time[:-1]
    parent = find_parents(is_first, endpoint)
    edge = np.where(parent < 0, 0, endpoint[parent] + 1) * len(names) + endpoint
    return list(_compute_edges(names, edge, publish_time - publish_time[parent], publish_time - origin_time))


def _compute_edges(names: Sequence[str], edge: RowArray, hop: RowArray, age: RowArray) -> Iterator[HopEdge]:
    order = np.argsort(edge, kind="stable")
    numbers, starts = np.unique(edge[order], return_index=True)
    for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        parent, endpoint = divmod(number, len(names))
        e2e_p50 = pick_percentile(np.sort(age[rows]), 0.5)
        if not parent:
            yield HopEdge(None, names[endpoint], len(rows), e2e_p50=e2e_p50)
            continue
        times = np.sort(hop[rows])
        percentiles = pick_percentile(times, 0.5), pick_percentile(times, 0.99), int(times[-1])
        yield HopEdge(names[parent - 1], names[endpoint], len(rows), *percentiles, e2e_p50)


def _sort_key(hop: HopEdge) -> tuple[str, str]:
    return hop.parent or "", hop.endpoint


def walk_branches(edges: Sequence[HopEdge]) -> Iterator[tuple[int, HopEdge]]:
    """Yield each edge once, with its depth. The edges that continue an endpoint follow its first occurrence."""
    waiting = sorted(edges, key=_sort_key)
    stack = [(0, hop) for hop in reversed(waiting) if hop.parent is None]
    waiting = [hop for hop in waiting if hop.parent is not None]
    while stack or waiting:
        depth, hop = stack.pop() if stack else (0, waiting.pop(0))
        yield depth, hop
        stack += [(depth + 1, edge) for edge in reversed(waiting) if edge.parent == hop.endpoint]
        waiting = [edge for edge in waiting if edge.parent != hop.endpoint]
