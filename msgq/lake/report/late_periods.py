"""Late periods: times in which an endpoint's messages arrive much later than usual."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from msgq.common.units import NS_PER_MS, NS_PER_S
from msgq.lake.metrics.group_by import IntegerArray, get_column, get_integer_column
from msgq.lake.metrics.histograms import compute_bucket_centers
from msgq.lake.metrics.saturating_time import MAX_TIME, subtract_saturating
from msgq.lake.metrics.time_windows import HOUR_NS
from msgq.lake.report.gold_reader import GoldReader

LATENCY_RATIO_MIN = 10  # latency of a late message, divided by the usual latency
LATENCY_EXCESS_MIN_NS = NS_PER_MS  # latency of a late message, minus the usual latency
LATE_MESSAGES_MIN = 5  # consecutive late messages
LATE_PERIOD_MIN_NS = NS_PER_S
LATE_SHARE_MIN = 0.25  # share of late messages in a late period
_USUAL_SHARES_MIN = 1.5  # share of late messages in a late period, divided by the share in the run
_CHANCE_MAX = 0.001  # rough number of late periods that chance makes in the messages of an endpoint
_LATE_WINDOWS_MAX = 100_000  # the windows with most late messages
_LATE_RANGES_MAX = 1000  # the ranges with most late messages
_READ_MESSAGES_MAX = 2_000_000  # maximum messages in all ranges together
_ENDPOINT_KEY = ["run", "endpoint"]
_WINDOW_COLUMNS = ["window_start", "window_ns", "messages"]


@dataclass(frozen=True, slots=True)
class LatePeriod:
    """A time in which many or all messages of an endpoint were late.

    Attributes:
        from_time: log_time of the first late message, ns.
        to_time: log_time of the last late message, ns.
        late_messages: number of late messages.
        latency_ns: median latency of the late messages.
        usual_ns: median latency of all messages of the run.
        run_messages: number of messages with a known latency in the run.
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
    has at least 5 late messages, takes at least 1 s, and its share of late messages is at least a quarter and far above
    the share in the run. Most endpoints have single late messages, and some have a share of them all the time: neither
    is a late period.
    """
    suspects = _read_suspects(gold)
    windows = _read_late_windows(gold, suspects)
    ranges = _split_ranges(windows)
    usual_by_key = _describe_usual_latencies(suspects, windows)
    messages = _read_messages(gold, [late_range for late_range in ranges if late_range.is_coarse])
    return [
        period
        for late_range in ranges
        for period in _find_range_periods(
            late_range, messages.get(late_range), usual_by_key[late_range.run, late_range.endpoint]
        )
    ]


class UsualLatency(NamedTuple):
    """The latency of an endpoint or stage in a run.

    Attributes:
        p50: median, ns.
        limit: least latency that is late, ns.
        messages: number of messages with a known latency.
        late_messages: number of late messages.
    """

    p50: int
    limit: int
    messages: int
    late_messages: int

    @property
    def share_min(self) -> float:
        """Least share of late messages in a late period."""
        return max(LATE_SHARE_MIN, _USUAL_SHARES_MIN * self.late_messages / self.messages)

    def explains(self, late: int, messages: int) -> bool:
        """Return whether the share of late ones among the other messages makes so many late ones of some likely.

        The test is a likelihood ratio of two binomial distributions, whose limit grows with the number of messages,
        because each of them could be the first message of a late period.
        """
        share = late / messages
        # The totals come from histograms, whose buckets are 4 % wide, so a period can have a few more late messages.
        other_late, others = max(0, self.late_messages - late), max(0, self.messages - messages)
        usual_share = min(1.0, (other_late + 1) / (others + 2))  # never 0: rule of succession
        if share <= usual_share:
            return True
        ratio = late * math.log(share / usual_share)
        if late < messages:
            ratio += (messages - late) * math.log((1 - share) / (1 - usual_share))
        return ratio < math.log(self.messages / _CHANCE_MAX)


def _describe_usual_latencies(suspects: pa.Table, windows: pa.Table) -> dict[tuple[str, str], UsualLatency]:
    late = {
        (row["run"], row["endpoint"]): row["late_sum"]
        for row in windows.group_by(_ENDPOINT_KEY).aggregate([("late", "sum")]).to_pylist()
    }
    return {
        key: UsualLatency(row["p50"], row["limit"], max(1, row["messages"]), late.get(key, 0))
        for row in suspects.to_pylist()
        for key in [(row["run"], row["endpoint"])]
    }


def _read_suspects(gold: GoldReader) -> pa.Table:
    """Return the endpoints with a late message: run, endpoint, messages, p50, limit (least latency that is late)."""
    rows = gold.read_rows("latency_summary", [*_ENDPOINT_KEY, "messages", "p50", "max"])
    usual = np.minimum(get_integer_column(rows, "p50"), MAX_TIME // (2 * LATENCY_RATIO_MIN))
    limit = np.maximum(LATENCY_RATIO_MIN * usual, usual + LATENCY_EXCESS_MIN_NS)
    suspects = rows.append_column("limit", pa.array(limit)).filter(pa.array(get_integer_column(rows, "max") >= limit))
    return suspects.drop_columns("max")


def _read_late_windows(gold: GoldReader, suspects: pa.Table) -> pa.Table:
    """Return the windows with late messages, sorted by endpoint and time.

    Columns: `_WINDOW_COLUMNS`, run, endpoint, late (number of late messages), late_latency (their mean latency, ns).
    """
    columns = [*_ENDPOINT_KEY, *_WINDOW_COLUMNS]
    limits = suspects.select([*_ENDPOINT_KEY, "limit"])
    found = [pa.table({name: pa.nulls(0, pa.int64()) for name in [*columns, "late", "late_latency"]})]
    names = pc.unique(suspects["endpoint"])
    where = (ds.field("max") > LATENCY_EXCESS_MIN_NS) & ds.field("endpoint").isin(names)
    for piece in gold.iterate_pieces("latency", [*columns, "histogram"], where if len(names) else ds.scalar(False)):
        numbered = piece.select(_ENDPOINT_KEY).append_column("row", pa.array(np.arange(len(piece))))
        matched = numbered.join(limits, _ENDPOINT_KEY, join_type="inner").sort_by("row")
        chosen = piece.take(matched["row"])
        late, mean = _measure_late_messages(get_column(chosen, "histogram"), get_integer_column(matched, "limit"))
        measured = chosen.select(columns).append_column("late", pa.array(late))
        found.append(measured.append_column("late_latency", pa.array(mean)).filter(pa.array(late > 0)))
    windows = pa.concat_tables([table for table in found if len(table)] or found[:1])
    windows = windows.sort_by([("late", "descending")])[:_LATE_WINDOWS_MAX]
    return windows.sort_by([(name, "ascending") for name in (*_ENDPOINT_KEY, "window_start")])


def _measure_late_messages(histograms: pa.Array, limits: IntegerArray) -> tuple[IntegerArray, IntegerArray]:
    """Return for each histogram the number and the mean of durations in buckets whose middle is at least the limit."""
    parents = np.asarray(pc.list_parent_indices(histograms), np.int64)
    flat = pc.list_flatten(histograms)
    durations = compute_bucket_centers(np.asarray(flat.field("bucket"), np.int64))
    counts = np.where(durations >= limits[parents], np.asarray(flat.field("count"), np.int64), 0)
    late = np.bincount(parents, counts, len(limits))
    totals = np.bincount(parents, counts * durations.astype(np.float64), len(limits))
    return late.astype(np.int64), (totals / np.maximum(late, 1)).astype(np.int64)


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
        names = pa.array(sorted({one.endpoint for one in together}))
        rows = gold.read_messages(["endpoint", "log_time", "publish_time"], run, names.to_pylist(), [(begin, end)])
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
    late_range: _LateRange, messages: _MessageTimes | None, usual: UsualLatency
) -> Iterator[LatePeriod]:
    """Yield the late periods of a range, from its messages, or from its windows."""
    if messages is not None and len(messages.log_times):
        begins = ends = messages.log_times
        latency, counts = messages.latencies, np.ones(len(begins), np.int64)
        late = (latency >= usual.limit).astype(np.int64)
    else:
        windows = late_range.windows
        begins, counts = get_integer_column(windows, "window_start"), get_integer_column(windows, "messages")
        ends = subtract_saturating(begins, -get_integer_column(windows, "window_ns"))
        latency, late = get_integer_column(windows, "late_latency"), get_integer_column(windows, "late")
    for begin, stop in find_late_spans(begins, ends, late, counts, usual):
        median = int(np.median(latency[begin:stop][late[begin:stop] > 0]))
        values = (int(late[begin:stop].sum()), median, usual.p50, usual.messages)
        times = int(begins[begin]), int(ends[stop - 1])
        yield LatePeriod(late_range.run, late_range.endpoint, *times, *values)


def find_late_spans(
    begins: IntegerArray, ends: IntegerArray, late: IntegerArray, counts: IntegerArray, usual: UsualLatency
) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each group of rows that is a late period.

    Args:
        begins: begin of each row, sorted, ns. A row is a message or a window.
        ends: end of each row, ns.
        late: number of late messages of each row.
        counts: number of messages of each row.
        usual: latency in the whole run.
    """
    for begin, stop in _find_high_sums((late - usual.share_min * counts).tolist()):
        late_count, count = int(late[begin:stop].sum()), int(counts[begin:stop].sum())
        is_pause = stop - begin == 1 and 2 * late_count < count  # a single short stop of a program in a window
        is_long = int(ends[stop - 1]) - int(begins[begin]) >= LATE_PERIOD_MIN_NS
        if late_count >= LATE_MESSAGES_MIN and is_long and not is_pause and not usual.explains(late_count, count):
            yield begin, stop


def _find_high_sums(scores: list[float]) -> Iterator[tuple[int, int]]:
    """Yield the begin and the end of parts with high sums: from the left and from the right, each sum is positive.

    A scan adds scores until their sum is not positive, yields the part until the largest sum, and continues after this
    part (Kadane's algorithm, repeated).
    """
    begin = 0
    while begin < len(scores):
        stop, total, largest = begin, 0.0, 0.0
        for place in range(begin, len(scores)):
            total += scores[place]
            if total <= 0:
                break
            if total > largest:
                largest, stop = total, place + 1
        if stop > begin:
            yield begin, stop
        begin = max(stop, begin + 1)
