"""Short dropouts of fast endpoints: shorter than 1 s, the minimum of the table `dropouts`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from msgq.common.units import NS_PER_S
from msgq.lake.metrics.group_by import IntegerArray, get_integer_column
from msgq.lake.metrics.saturating_time import subtract_saturating
from msgq.lake.report.gold_reader import GoldReader

SHORT_DROPOUT_MIN_NS = NS_PER_S // 5
FAST_RATE_MIN_HZ = 64  # gold has windows of 1 s for endpoints at this rate
_FULL_WINDOW_SHARE = 0.9  # a window with fewer messages may have a dropout, or half of it
_EXAMINED_WINDOWS_MAX = 40  # windows with the fewest messages, at most one per endpoint
_ENDPOINT_KEY = ["run", "endpoint"]


def find_short_dropouts(gold: GoldReader, endpoints: pa.Table, periods_min: int) -> list[dict[str, Any]]:
    """Return for each fast endpoint the longest dropout of 0.2 to 1 s around its emptiest second.

    Args:
        endpoints: rows of the table `endpoints`: run, endpoint, rate, start_time, end_time.
        periods_min: usual intervals that a dropout takes at least.

    Returns:
        run, endpoint, and the times as in the table `dropouts`.
    """
    found = []
    for window in _find_emptiest_windows(gold, endpoints):
        times = _read_log_times(gold, window)
        intervals = np.diff(times)
        if not len(intervals):
            continue
        longest, period = int(intervals.argmax()), _find_usual_interval(intervals)
        duration = int(intervals[longest])
        if SHORT_DROPOUT_MIN_NS <= duration < NS_PER_S and duration >= periods_min * period:
            values = {"from_time": int(times[longest]), "to_time": int(times[longest + 1]), "period_ns": period}
            found.append({name: window[name] for name in _ENDPOINT_KEY} | values | {"duration_ns": duration})
    return found


def _find_emptiest_windows(gold: GoldReader, endpoints: pa.Table) -> list[dict[str, Any]]:
    """Return the second with the smallest share of the usual messages of each fast endpoint, not the first or last."""
    fast = endpoints.filter(pc.greater_equal(endpoints["rate"].fill_null(0), float(FAST_RATE_MIN_HZ)))
    usual = fast.select([*_ENDPOINT_KEY, "rate", "start_time", "end_time"])
    emptiest: dict[tuple[str, str], dict[str, Any]] = {}
    if not len(usual):
        return []
    where = ds.field("window_ns") == NS_PER_S
    for piece in gold.iterate_pieces("throughput", [*_ENDPOINT_KEY, "window_start", "messages"], where):
        rows = piece.join(usual, _ENDPOINT_KEY, join_type="inner")
        share = pc.divide(rows["messages"].cast(pa.float64()), rows["rate"])
        start, first, last = (get_integer_column(rows, name) for name in ("window_start", "start_time", "end_time"))
        is_inside = (start > first) & (subtract_saturating(start, -NS_PER_S) < last)
        is_empty = pc.and_(pc.less(share, _FULL_WINDOW_SHARE), pa.array(is_inside))
        for row in rows.append_column("share", share).filter(is_empty).sort_by("share").to_pylist():
            key = row["run"], row["endpoint"]
            emptiest[key] = min(emptiest.get(key, row), row, key=lambda one: one["share"])
    return sorted(emptiest.values(), key=lambda row: (row["share"], row["endpoint"]))[:_EXAMINED_WINDOWS_MAX]


def _read_log_times(gold: GoldReader, window: dict[str, Any]) -> IntegerArray:
    """Return the log_time of the messages in a window, and 1 s before and after it, sorted."""
    begin, end = window["window_start"] - NS_PER_S, window["window_start"] + 2 * NS_PER_S
    rows = gold.read_messages(["log_time"], window["run"], [window["endpoint"]], [(begin, end)])
    return np.sort(get_integer_column(rows, "log_time"))


def _find_usual_interval(intervals: IntegerArray) -> int:
    """Return the median interval, weighted by duration, so that bursts do not shorten it."""
    ordered = np.sort(intervals)
    until = np.cumsum(ordered)
    return int(ordered[np.searchsorted(until, until[-1] / 2)])
