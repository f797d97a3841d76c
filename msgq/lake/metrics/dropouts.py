"""Dropouts: times without a message of an endpoint that are longer than its period explains."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.common.units import NS_PER_S
from msgq.lake.metrics import histograms
from msgq.lake.metrics.group_by import RowGroups, build_typed_table, get_column, get_integer_column, take_column_rows
from msgq.lake.metrics.saturating_time import MAX_TIME, compute_window_start, subtract_saturating
from msgq.lake.metrics.time_windows import HOUR_NS

_DROPOUT_PERIODS_MIN = 5  # length of a dropout at least
_HOUR_DROPOUT_PERIODS_MIN = 2  # the same, of the hour's own period, where it has so many intervals:
_HOUR_INTERVALS_MIN = 16
_ENDPOINT_KEY = ("run", "endpoint")
_INTERVAL_TYPE = pa.struct([("from_time", pa.int64()), ("to_time", pa.int64())])
#: An endpoint's intervals in an hour. `pauses` has each interval that may be a dropout.
INTERVALS_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in _ENDPOINT_KEY),
        *((name, pa.int64()) for name in ("window_start", "start_time", "end_time")),
        ("histogram", histograms.HISTOGRAM_TYPE),
        ("pauses", pa.list_(_INTERVAL_TYPE)),
    ]
)
DROPOUTS_SCHEMA = pa.schema(
    [*((name, pa.string()) for name in _ENDPOINT_KEY)]
    + [(name, pa.int64()) for name in ("from_time", "to_time", "duration_ns", "period_ns")]
)


def compute_message_intervals(windows: pa.Table, least: int = NS_PER_S) -> pa.Table:
    """Return the intervals between messages of each endpoint in each hour: `INTERVALS_SCHEMA`.

    Input: windows of at most `least` ns. The intervals within a window count as equal. A dropout is at least as long as
    a window, so this does not hide dropouts.
    """
    whole = RowGroups(
        *(get_column(windows, name) for name in _ENDPOINT_KEY), get_integer_column(windows, "window_start")
    )
    first, last = (
        whole.min_by_group(get_integer_column(windows, "start_time")),
        whole.max_by_group(get_integer_column(windows, "end_time")),
    )
    messages = whole.sum_by_group(get_integer_column(windows, "messages"))
    rows = windows.take(pa.array(whole.first_rows))
    hour = get_integer_column(rows, "window_start") // HOUR_NS
    hours = RowGroups(*(get_column(rows, name) for name in _ENDPOINT_KEY), hour)
    inside = np.diff(hours.sorted_ids, prepend=-1) == 0
    between, begin = first - np.roll(last, 1), np.roll(last, 1)
    several = messages > 1
    ids = np.concatenate((hours.sorted_ids[several], hours.sorted_ids[inside]))
    lengths = np.concatenate(((last - first)[several] // (messages[several] - 1), between[inside]))
    counts = np.concatenate((messages[several] - 1, np.ones(int(inside.sum()), np.int64)))
    histogram = histograms.build_duration_histograms(ids, lengths, hours.count, counts)
    total = np.bincount(ids, counts, hours.count)
    period = histograms.estimate_typical_intervals(histogram)
    needed = np.maximum(least, np.where(total >= _HOUR_INTERVALS_MIN, _HOUR_DROPOUT_PERIODS_MIN * period, 0))
    paused = np.flatnonzero(inside & (between >= needed[hours.sorted_ids]))
    offsets = np.searchsorted(hours.sorted_ids[paused], np.arange(hours.count + 1)).astype(np.int32)
    pauses = pa.StructArray.from_arrays([pa.array(begin[paused]), pa.array(first[paused])], ["from_time", "to_time"])
    columns = {
        "window_start": compute_window_start(get_integer_column(rows, "window_start")[hours.first_rows], HOUR_NS),
        "start_time": hours.min_by_group(first),
        "end_time": hours.max_by_group(last),
        "histogram": histogram,
        "pauses": pa.ListArray.from_arrays(pa.array(offsets), pauses),
    }
    return build_typed_table(INTERVALS_SCHEMA, take_column_rows(rows, _ENDPOINT_KEY, hours.first_rows) | columns)


def find_dropouts(intervals: pa.Table, least: int = NS_PER_S) -> pa.Table:
    """Return the times without messages between two messages of an endpoint: `DROPOUTS_SCHEMA`.

    Input: `INTERVALS_SCHEMA` of whole runs, with one row for each hour. A dropout is an interval of at least `least`
    ns, of at least 5 periods, and of at least 2 periods of its hour, if the hour has 16 intervals. The period follows
    from all intervals of the endpoint in the run (see `msgq.lake.metrics.histograms.estimate_typical_intervals`), and
    that of an hour from its intervals.
    """
    groups = RowGroups(
        *(get_column(intervals, name) for name in _ENDPOINT_KEY), get_integer_column(intervals, "window_start")
    )
    rows = intervals.take(pa.array(groups.first_rows))
    groups = RowGroups(*(get_column(rows, name) for name in _ENDPOINT_KEY))
    first, last = get_integer_column(rows, "start_time"), get_integer_column(rows, "end_time")
    inside = np.diff(groups.sorted_ids, prepend=-1) == 0
    border = np.flatnonzero(inside)
    between = histograms.build_duration_histograms(
        groups.sorted_ids[border], subtract_saturating(first[border], last[border - 1]), groups.count
    )
    every = pa.concat_arrays([get_column(rows, "histogram"), between])
    period = histograms.estimate_typical_intervals(
        histograms.merge_histograms(RowGroups(np.concatenate((groups.sorted_ids, np.arange(groups.count)))), every)
    )
    pauses = get_column(rows, "pauses")
    lengths = np.asarray(pc.list_value_length(pauses).fill_null(0), np.int64)
    flat = pauses.flatten()
    row = np.concatenate((np.repeat(np.arange(len(rows)), lengths), border))
    begin = np.concatenate((np.asarray(flat.field("from_time"), np.int64), last[border - 1]))
    end = np.concatenate((np.asarray(flat.field("to_time"), np.int64), first[border]))
    length, period = subtract_saturating(end, begin), period[groups.sorted_ids[row]]
    chosen = length >= np.maximum(least, _DROPOUT_PERIODS_MIN * np.minimum(period, MAX_TIME // _DROPOUT_PERIODS_MIN))
    row, begin, end, length, period = (values[chosen] for values in (row, begin, end, length, period))
    order = np.lexsort((begin, groups.sorted_ids[row]))
    columns = {"from_time": begin, "to_time": end, "duration_ns": length, "period_ns": period}
    return build_typed_table(
        DROPOUTS_SCHEMA,
        take_column_rows(rows, _ENDPOINT_KEY, row[order]) | {name: values[order] for name, values in columns.items()},
    )
