"""Late periods: times in which an endpoint's messages arrive much later than usual."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from msgq.common.units import NS_PER_MS, NS_PER_S
from msgq.lake.metrics.group_by import BooleanArray, IntegerArray, get_column, get_integer_column
from msgq.lake.metrics.histograms import compute_bucket_centers
from msgq.lake.metrics.saturating_time import MAX_TIME, subtract_saturating
from msgq.lake.metrics.time_windows import HOUR_NS
from msgq.lake.report.gold_reader import GoldReader

LATENCY_RATIO_MIN = 10  # latency of a late message, divided by the usual latency
LATENCY_EXCESS_MIN_NS = NS_PER_MS  # latency of a late message, minus the usual latency
LATE_MESSAGES_MIN = 5  # in sequence
LATE_PERIOD_MIN_NS = NS_PER_S
_LATE_WINDOWS_MAX = 100_000  # the windows with most late messages
_LATE_RANGES_MAX = 1000  # the ranges with most late messages
_READ_MESSAGES_MAX = 2_000_000  # in all ranges together
_ENDPOINT_KEY = ["run", "endpoint"]
_WINDOW_COLUMNS = ["window_start", "window_ns", "messages", "p50"]


@dataclass(frozen=True, slots=True)
class LatePeriod:
    """A time in which all messages of an endpoint were late.

    Attributes
    ----------
    from_time, to_time : log_time of the first and the last late message, ns.
    late_messages : number of late messages.
    latency_ns, usual_ns : median latency in the period, and in the run.
    run_messages : number of messages with a known latency in the run.
    """

    run: str
    endpoint: str
    from_time: int
    to_time: int
    late_messages: int
    latency_ns: int
    usual_ns: int
    run_messages: int


def find_late_periods(gold: GoldReader) -> list[LatePeriod]:
    """Return the late periods of all endpoints.

    A message is late if its latency is at least 10 times the endpoint's median in the run, and 1 ms more. A late period
    has at least 5 late messages in sequence, and takes at least 1 s. Most endpoints have single late messages. A single
    late message is not a late period.
    """
    suspects = _read_suspects(gold)
    ranges = _split_ranges(_read_late_windows(gold, suspects))
    usual_by_key = {(row["run"], row["endpoint"]): row for row in suspects.to_pylist()}
    messages = _read_messages(gold, [late_range for late_range in ranges if late_range.is_coarse])
    return [
        period
        for late_range in ranges
        for period in _find_range_periods(
            late_range, messages.get(late_range), usual_by_key[late_range.run, late_range.endpoint]
        )
    ]


def _read_suspects(gold: GoldReader) -> pa.Table:
    """Return the endpoints with a late message: run, endpoint, messages, p50, limit (least latency that is late)."""
    rows = gold.read_rows("latency_summary", [*_ENDPOINT_KEY, "messages", "p50", "max"])
    usual = np.minimum(get_integer_column(rows, "p50"), MAX_TIME // (2 * LATENCY_RATIO_MIN))
    limit = np.maximum(LATENCY_RATIO_MIN * usual, usual + LATENCY_EXCESS_MIN_NS)
    suspects = rows.append_column("limit", pa.array(limit)).filter(pa.array(get_integer_column(rows, "max") >= limit))
    return suspects.drop_columns("max")


def _read_late_windows(gold: GoldReader, suspects: pa.Table) -> pa.Table:
    """Return the windows with late messages, sorted by endpoint and time: `_WINDOW_COLUMNS`, late, run, endpoint."""
    columns = [*_ENDPOINT_KEY, *_WINDOW_COLUMNS]
    limits = suspects.select([*_ENDPOINT_KEY, "limit"])
    found = [pa.table({name: pa.nulls(0, pa.int64()) for name in [*columns, "late"]})]
    names = pc.unique(suspects["endpoint"])
    where = (ds.field("max") > LATENCY_EXCESS_MIN_NS) & ds.field("endpoint").isin(names)
    for piece in gold.iterate_pieces("latency", [*columns, "histogram"], where if len(names) else ds.scalar(False)):
        numbered = piece.select(_ENDPOINT_KEY).append_column("row", pa.array(np.arange(len(piece))))
        matched = numbered.join(limits, _ENDPOINT_KEY, join_type="inner").sort_by("row")
        chosen = piece.take(matched["row"])
        late = _count_late_messages(get_column(chosen, "histogram"), get_integer_column(matched, "limit"))
        kept = chosen.select(columns).append_column("late", pa.array(late)).filter(pa.array(late > 0))
        found.append(kept)
    windows = pa.concat_tables([table for table in found if len(table)] or found[:1])
    windows = windows.sort_by([("late", "descending")])[:_LATE_WINDOWS_MAX]
    return windows.sort_by([(name, "ascending") for name in (*_ENDPOINT_KEY, "window_start")])


def _count_late_messages(histograms: pa.Array, limits: IntegerArray) -> IntegerArray:
    """Return for each histogram the number of durations in buckets whose middle is at least the limit, ns."""
    parents = np.asarray(pc.list_parent_indices(histograms), np.int64)
    flat = pc.list_flatten(histograms)
    durations = compute_bucket_centers(np.asarray(flat.field("bucket"), np.int64))
    counts = np.where(durations >= limits[parents], np.asarray(flat.field("count"), np.int64), 0)
    return np.bincount(parents, counts, len(limits)).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _LateRange:
    """Windows of an endpoint without a pause, each with late messages. `begin`, `end`: of the windows, ns."""

    run: str
    endpoint: str
    begin: int
    end: int
    windows: pa.Table

    @property
    def is_coarse(self) -> bool:
        """Whether the windows are longer than 1 s. The endpoint then has less than 64 messages/s."""
        is_coarse: bool = get_integer_column(self.windows, "window_ns").max() > NS_PER_S
        return is_coarse


class _MessageTimes(NamedTuple):
    """Times of the messages of a range, ns, sorted by log_time."""

    log_times: IntegerArray
    latencies: IntegerArray


def _split_ranges(windows: pa.Table) -> list[_LateRange]:
    """Return the ranges with enough late messages, those with most late messages first."""
    start, late = get_integer_column(windows, "window_start"), get_integer_column(windows, "late")
    end = subtract_saturating(start, -get_integer_column(windows, "window_ns"))
    messages = get_integer_column(windows, "messages")
    keys = list(zip(windows["run"].to_pylist(), windows["endpoint"].to_pylist(), strict=True))
    first = [row for row in range(len(keys)) if row == 0 or keys[row] != keys[row - 1] or start[row] > end[row - 1]]
    rows = zip(first, [*first[1:], len(keys)], strict=False)
    counted = sorted(((int(late[begin:stop].sum()), begin, stop) for begin, stop in rows), reverse=True)
    ranges: list[_LateRange] = []
    read = 0
    for count, begin, stop in counted[:_LATE_RANGES_MAX]:
        read += int(messages[begin:stop].sum())
        if count < LATE_MESSAGES_MIN or (read > _READ_MESSAGES_MAX and ranges):
            break
        ranges.append(_LateRange(*keys[begin], int(start[begin]), int(end[stop - 1]), windows[begin:stop]))
    return ranges


def _read_messages(gold: GoldReader, ranges: list[_LateRange]) -> dict[_LateRange, _MessageTimes]:
    """Return log_time and latency of the messages of each range, sorted by log_time. Each hour is read once."""
    by_hour: dict[tuple[str, int], list[_LateRange]] = defaultdict(list)
    for late_range in ranges:
        by_hour[late_range.run, late_range.begin // HOUR_NS].append(late_range)
    messages = {}
    for (run, _), together in by_hour.items():
        begin, end = min(one.begin for one in together), max(one.end for one in together)
        days = [datetime.fromtimestamp(time // NS_PER_S, UTC).date().isoformat() for time in (begin, end)]
        names = pa.array(sorted({one.endpoint for one in together}))
        where = (ds.field("run") == run) & ds.field("endpoint").isin(names)
        where &= (ds.field("log_time") >= begin) & (ds.field("log_time") < end)
        where &= (ds.field("date").cast("string") >= days[0]) & (ds.field("date").cast("string") <= days[1])
        rows = gold.read_rows("messages", ["endpoint", "log_time", "publish_time"], where)
        times, published = get_integer_column(rows, "log_time"), get_integer_column(rows, "publish_time")
        endpoint = np.asarray(pc.index_in(rows["endpoint"], value_set=names), np.int64)
        order = np.lexsort((times, endpoint))
        endpoint, times, latency = endpoint[order], times[order], subtract_saturating(times, published)[order]
        for one in together:
            first, last = np.searchsorted(endpoint, names.index(one.endpoint).as_py() + np.arange(2))
            chosen = slice(*(first + np.searchsorted(times[first:last], (one.begin, one.end))))
            messages[one] = _MessageTimes(times[chosen], latency[chosen])
    return messages


def _find_range_periods(
    late_range: _LateRange, messages: _MessageTimes | None, usual: dict[str, Any]
) -> Iterator[LatePeriod]:
    """Yield the late periods of a range, from its messages, or from its windows."""
    if messages is not None and len(messages.log_times):
        begins = ends = messages.log_times
        latency, counts = messages.latencies, np.ones(len(begins), np.int64)
        is_late = latency >= usual["limit"]
    else:
        windows = late_range.windows
        begins, counts = get_integer_column(windows, "window_start"), get_integer_column(windows, "late")
        ends = subtract_saturating(begins, -get_integer_column(windows, "window_ns"))
        latency = get_integer_column(windows, "p50")
        is_late = 2 * counts > get_integer_column(windows, "messages")
    for begin, stop in _find_true_runs(is_late):
        from_time, to_time, late = int(begins[begin]), int(ends[stop - 1]), int(counts[begin:stop].sum())
        if late >= LATE_MESSAGES_MIN and to_time - from_time >= LATE_PERIOD_MIN_NS:
            known = (late, int(np.median(latency[begin:stop])), usual["p50"], usual["messages"])
            yield LatePeriod(late_range.run, late_range.endpoint, from_time, to_time, *known)


def _find_true_runs(mask: BooleanArray) -> Iterator[tuple[int, int]]:
    """Yield the begin and the end of each sequence of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False]))))
    yield from ((int(begin), int(end)) for begin, end in edges.reshape(-1, 2))
