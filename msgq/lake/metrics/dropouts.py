"""Dropouts: times without a message of an endpoint, longer than its period explains."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.common.units import NS_PER_S
from msgq.lake.metrics import histograms
from msgq.lake.metrics.group_by import Groups, column, integers, rows_of, table_of
from msgq.lake.metrics.saturating_time import MOST, begins, since
from msgq.lake.metrics.windows import HOUR

_PERIODS = 5  # length of a dropout at least
_OF_HOUR = 2  # the same, of the hour's own period, where it has so many intervals:
_ENOUGH = 16
_PLACE = ("run", "endpoint")
_PAUSE = pa.struct([("from_time", pa.int64()), ("to_time", pa.int64())])
#: What an hour says of an endpoint's intervals: those that may be dropouts, `pauses`, one by one.
INTERVALS = pa.schema(
    [
        *((name, pa.string()) for name in _PLACE),
        *((name, pa.int64()) for name in ("window_start", "start_time", "end_time")),
        ("histogram", histograms.TYPE),
        ("pauses", pa.list_(_PAUSE)),
    ]
)
DROPOUTS = pa.schema(
    [*((name, pa.string()) for name in _PLACE)]
    + [(name, pa.int64()) for name in ("from_time", "to_time", "duration_ns", "period_ns")]
)


def intervals(windows: pa.Table, least: int = NS_PER_S) -> pa.Table:
    """Return the intervals between messages of each endpoint in each hour: `INTERVALS`.

    Input: windows, each not longer than `least` ns. Of several messages in a window, the intervals count as equal: a
    dropout is longer than a window, and its threshold at least as long.
    """
    whole = Groups(*(column(windows, name) for name in _PLACE), integers(windows, "window_start"))
    first, last = whole.min(integers(windows, "start_time")), whole.max(integers(windows, "end_time"))
    messages = whole.sum(integers(windows, "messages"))
    rows = windows.take(pa.array(whole.first))
    hour = integers(rows, "window_start") // HOUR
    of = Groups(*(column(rows, name) for name in _PLACE), hour)
    inside = np.diff(of.ids, prepend=-1) == 0
    between, begin = first - np.roll(last, 1), np.roll(last, 1)
    several = messages > 1
    ids = np.concatenate((of.ids[several], of.ids[inside]))
    lengths = np.concatenate(((last - first)[several] // (messages[several] - 1), between[inside]))
    counts = np.concatenate((messages[several] - 1, np.ones(int(inside.sum()), np.int64)))
    histogram = histograms.counted(ids, lengths, of.count, counts)
    total = np.bincount(ids, counts, of.count)
    period = histograms.periods(histogram)
    needed = np.maximum(least, np.where(total >= _ENOUGH, _OF_HOUR * period, 0))
    paused = np.flatnonzero(inside & (between >= needed[of.ids]))
    offsets = np.searchsorted(of.ids[paused], np.arange(of.count + 1)).astype(np.int32)
    pauses = pa.StructArray.from_arrays([pa.array(begin[paused]), pa.array(first[paused])], ["from_time", "to_time"])
    made = {
        "window_start": begins(integers(rows, "window_start")[of.first], HOUR),
        "start_time": of.min(first),
        "end_time": of.max(last),
        "histogram": histogram,
        "pauses": pa.ListArray.from_arrays(pa.array(offsets), pauses),
    }
    return table_of(INTERVALS, rows_of(rows, _PLACE, of.first) | made)


def dropouts(intervals: pa.Table, least: int = NS_PER_S) -> pa.Table:
    """Return when nothing came of an endpoint, between messages that came: `DROPOUTS`.

    Input: `INTERVALS` of whole runs, no two of an hour. A dropout is an interval of at least `least` ns, 5 periods, and
    2 periods of the hour in which it is, if that has 16 intervals. The period is that of all intervals of the endpoint
    in the run, as `msgq.lake.metrics.histograms.periods` finds it; that of an hour, of those in it.
    """
    of = Groups(*(column(intervals, name) for name in _PLACE), integers(intervals, "window_start"))
    rows = intervals.take(pa.array(of.first))
    of = Groups(*(column(rows, name) for name in _PLACE))
    first, last = integers(rows, "start_time"), integers(rows, "end_time")
    inside = np.diff(of.ids, prepend=-1) == 0
    border = np.flatnonzero(inside)
    between = histograms.counted(of.ids[border], since(first[border], last[border - 1]), of.count)
    every = pa.concat_arrays([column(rows, "histogram"), between])
    period = histograms.periods(histograms.merged(Groups(np.concatenate((of.ids, np.arange(of.count)))), every))
    pauses = column(rows, "pauses")
    lengths = np.asarray(pc.list_value_length(pauses).fill_null(0), np.int64)
    flat = pauses.flatten()
    row = np.concatenate((np.repeat(np.arange(len(rows)), lengths), border))
    begin = np.concatenate((np.asarray(flat.field("from_time"), np.int64), last[border - 1]))
    end = np.concatenate((np.asarray(flat.field("to_time"), np.int64), first[border]))
    length, period = since(end, begin), period[of.ids[row]]
    chosen = length >= np.maximum(least, _PERIODS * np.minimum(period, MOST // _PERIODS))
    row, begin, end, length, period = (one[chosen] for one in (row, begin, end, length, period))
    order = np.lexsort((begin, of.ids[row]))
    made = {"from_time": begin, "to_time": end, "duration_ns": length, "period_ns": period}
    return table_of(DROPOUTS, rows_of(rows, _PLACE, row[order]) | {name: one[order] for name, one in made.items()})
