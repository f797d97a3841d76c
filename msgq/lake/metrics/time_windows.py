"""Windows: what came of each endpoint in each block of time, and what is made of that."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.common.units import NS_PER_S
from msgq.kinds import state_kinds
from msgq.lake.metrics import duration_stats, histograms
from msgq.lake.metrics.group_by import (
    BooleanArray,
    IntegerArray,
    RowGroups,
    build_table,
    column,
    integer_column,
    take_rows,
)
from msgq.lake.metrics.saturating_time import saturating_subtract, window_begin

#: How long windows may be, ns; each is a whole number of those before, and an hour of all.
WINDOW_WIDTHS_NS = tuple(seconds * NS_PER_S for seconds in (1, 10, 60, 600, 3600))
HOUR_NS = WINDOW_WIDTHS_NS[-1]
_MESSAGES_PER_WINDOW = 64  # messages that the windows of an endpoint have on average
PERCENTILE_RANKS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}

_TEXT_COLUMNS = ("host", "encoding", "schema", "kind", "publisher")
WINDOW_KEY = ("run", "endpoint", "epoch", *_TEXT_COLUMNS)
COUNT_COLUMNS = ("messages", "size_bytes", "max_size_bytes", "start_time", "end_time")
_WINDOW_KEY_COLUMNS: list[tuple[str, pa.DataType]] = [
    *((name, pa.string()) for name in ("run", "endpoint")),
    ("epoch", pa.int64()),
    *((name, pa.string()) for name in _TEXT_COLUMNS),
]
_ENDPOINT_KEY_COLUMNS: list[tuple[str, pa.DataType]] = [("run", pa.string()), ("endpoint", pa.string())]
WINDOW_TIME_COLUMNS: list[tuple[str, pa.DataType]] = [("window_start", pa.int64()), ("window_ns", pa.int64())]
WINDOWS_SCHEMA = pa.schema(
    [
        *_WINDOW_KEY_COLUMNS,
        *WINDOW_TIME_COLUMNS,
        *((name, pa.int64()) for name in COUNT_COLUMNS),
        *duration_stats.stats_columns(),
    ]
)
THROUGHPUT_SCHEMA = pa.schema(
    [
        *_ENDPOINT_KEY_COLUMNS,
        *WINDOW_TIME_COLUMNS,
        ("messages", pa.int64()),
        ("size_bytes", pa.int64()),
        ("rate", pa.float64()),
    ]
)
_LATENCY_COLUMNS: list[tuple[str, pa.DataType]] = [
    *((name, pa.int64()) for name in ("messages", "min", "max", *PERCENTILE_RANKS)),
    ("histogram", histograms.HISTOGRAM_TYPE),
]
LATENCY_SCHEMA = pa.schema([*_ENDPOINT_KEY_COLUMNS, *WINDOW_TIME_COLUMNS, *_LATENCY_COLUMNS])


def traffic_windows(messages: pa.Table, width: int = NS_PER_S) -> pa.Table:
    """Return what came in each window of `width` ns of log_time.

    Input: run, endpoint, epoch, host, encoding, schema, kind, publisher, bytes, publish_time, and log_time, which is
    never NULL. Fastest where messages come by run, endpoint, epoch and time. Output: `WINDOWS_SCHEMA`, in their
    order; see `msgq.spark.tables.traffic_windows`.
    """
    times = integer_column(messages, "log_time")
    window = window_begin(times, width)
    groups = RowGroups(*(column(messages, name) for name in WINDOW_KEY), window)
    sizes = integer_column(messages, "size_bytes")
    late = saturating_subtract(times, integer_column(messages, "publish_time"))
    known = (late != 0) & ~keeps_values(messages)
    if column(messages, "publish_time").null_count:
        known &= np.asarray(column(messages, "publish_time").is_valid())
    made = {
        "window_start": window[groups.first_rows],
        "window_ns": np.full(groups.count, width),
        "messages": groups.sizes,
        "size_bytes": groups.sum(sizes),
        "max_size_bytes": groups.max(sizes),
        "start_time": groups.min(times),
        "end_time": groups.max(times),
        **duration_stats.compute_stats(groups, late, known),
    }
    return build_table(WINDOWS_SCHEMA, take_rows(messages, WINDOW_KEY, groups.first_rows) | made)


def is_of_kind(messages: pa.Table, kind: str) -> BooleanArray:
    """Return which messages are of a kind."""
    kinds = column(messages, "kind")
    if not pa.types.is_dictionary(kinds.type):
        kinds = kinds.dictionary_encode()
    is_one: BooleanArray = np.asarray(pc.equal(kinds.dictionary, kind).fill_null(False), np.bool_)
    is_kind: BooleanArray = np.append(is_one, False)[np.asarray(kinds.indices.fill_null(len(is_one)))]
    return is_kind


def keeps_values(messages: pa.Table) -> BooleanArray:
    """Return which messages are changes of values, by their kind (`Kind.keeps_values`)."""
    masks: list[BooleanArray] = [is_of_kind(messages, kind) for kind in state_kinds()]
    changes: BooleanArray = np.logical_or.reduce(masks)
    return changes


def merge_windows(windows: pa.Table, width: int | IntegerArray = 0) -> pa.Table:
    """Return windows of which no two are the same. width : ns, of all or of each; 0: as they are."""
    time, widths = align_windows(windows, width)
    groups = RowGroups(*(column(windows, name) for name in WINDOW_KEY), time, widths)
    made = {
        "window_start": time[groups.first_rows],
        "window_ns": widths[groups.first_rows],
        **sum_windows(groups, windows),
    }
    return build_table(
        WINDOWS_SCHEMA,
        take_rows(windows, WINDOW_KEY, groups.first_rows) | made | duration_stats.merge_stats(groups, windows),
    )


def align_windows(windows: pa.Table, width: int | IntegerArray) -> tuple[IntegerArray, IntegerArray]:
    """Return where the windows begin that are so wide, and how wide each is. width : as `merge_windows` takes it."""
    time, widths = integer_column(windows, "window_start"), integer_column(windows, "window_ns")
    if np.any(width):
        widths = np.broadcast_to(np.asarray(width, np.int64), time.shape)
    return window_begin(time, widths), widths


def sum_windows(groups: RowGroups, windows: pa.Table) -> dict[str, IntegerArray]:
    """Return what came in all windows of each group."""
    return {
        "messages": groups.sum(integer_column(windows, "messages")),
        "size_bytes": groups.sum(integer_column(windows, "size_bytes")),
        "max_size_bytes": groups.max(integer_column(windows, "max_size_bytes")),
        "start_time": groups.min(integer_column(windows, "start_time")),
        "end_time": groups.max(integer_column(windows, "end_time")),
    }


def coarsen_windows(windows: pa.Table, at_least: int = NS_PER_S) -> pa.Table:
    """Return windows as wide as the endpoint needs: in each hour the least of `WINDOW_WIDTHS_NS` in which those that
    have anything have 64 messages on average, and an hour where none does.

    Input: windows of 1 s or more, no two of them the same. at_least : the least width, ns.
    """
    return merge_windows(windows, choose_window_widths(windows, ("run", "endpoint"), at_least))


def choose_window_widths(rows: pa.Table, keys: tuple[str, ...], at_least: int) -> IntegerArray:
    """Return the width that each row needs, ns. Input: keys, time, messages."""
    time, messages = integer_column(rows, "window_start"), integer_column(rows, "messages")
    hours = RowGroups(*(column(rows, name) for name in keys), time // HOUR_NS)
    place = hours.group_ids()
    total, widths = hours.sum(messages), np.full(hours.count, HOUR_NS)
    for width in sorted((width for width in WINDOW_WIDTHS_NS if width >= at_least), reverse=True):
        filled = RowGroups(place, time // width)
        count = np.bincount(place[filled.first_rows], minlength=hours.count)
        widths[total >= _MESSAGES_PER_WINDOW * count] = width
    return widths[place]


def throughput(windows: pa.Table) -> pa.Table:
    """Return how much came of each endpoint in each window: `THROUGHPUT_SCHEMA`."""
    groups = RowGroups(*(column(windows, name) for name in ("run", "endpoint", "window_start", "window_ns")))
    messages, widths = (
        groups.sum(integer_column(windows, "messages")),
        integer_column(windows, "window_ns")[groups.first_rows],
    )
    made = {
        "messages": messages,
        "size_bytes": groups.sum(integer_column(windows, "size_bytes")),
        "rate": messages * (NS_PER_S / widths),
    }
    return build_table(
        THROUGHPUT_SCHEMA,
        take_rows(windows, ["run", "endpoint", "window_start", "window_ns"], groups.first_rows) | made,
    )


def latency(windows: pa.Table) -> pa.Table:
    """Return percentiles of the latency of each endpoint in each window, where any is known: `LATENCY_SCHEMA`."""
    return group_latency(windows, "window_start", "window_ns")


def group_latency(windows: pa.Table, *by: str) -> pa.Table:
    """Return the same of each run, endpoint, and what else is named. Input: windows, perhaps some of one time."""
    return _latency_percentiles(windows.filter(pc.greater(windows.column("count"), 0)), ("run", "endpoint", *by))


def latency_summary(latency: pa.Table, *by: str) -> pa.Table:
    """Return the percentiles of each run, endpoint, and what else is named. Input: `LATENCY_SCHEMA`, perhaps with
    coarser values in run, endpoint, time. Output: run, endpoint, `by`, the columns of `LATENCY_SCHEMA` from `messages`.
    """
    known = latency.append_column("count", latency.column("messages"))
    return _latency_percentiles(known, ("run", "endpoint", *by))


def _latency_percentiles(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    groups = RowGroups(*(column(rows, name) for name in keys))
    spread = duration_stats.merge_stats(groups, rows)
    made = spread | {"messages": spread["count"]} | duration_stats.compute_percentiles(spread, PERCENTILE_RANKS)
    schema = pa.schema([*(rows.schema.field(name) for name in keys), *_LATENCY_COLUMNS])
    return build_table(schema, take_rows(rows, keys, groups.first_rows) | made)
