"""Traffic of each endpoint in windows of time, and tables computed from these windows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.common.units import NS_PER_S
from msgq.kinds import list_state_kinds
from msgq.lake.metrics import duration_stats, histograms
from msgq.lake.metrics.group_by import (
    BooleanArray,
    IntegerArray,
    RowGroups,
    build_typed_table,
    get_column,
    get_integer_column,
    take_column_rows,
)
from msgq.lake.metrics.saturating_time import compute_window_start, subtract_saturating

#: Widths of windows in ns; each is a multiple of all smaller widths, and a divisor of an hour.
WINDOW_WIDTHS_NS = tuple(seconds * NS_PER_S for seconds in (1, 10, 60, 600, 3600))
HOUR_NS = WINDOW_WIDTHS_NS[-1]
_MESSAGES_PER_WINDOW_MIN = 64  # messages that the windows of an endpoint have on average
LATENCY_PERCENTILE_RANKS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}

_TEXT_COLUMNS = ("host", "encoding", "schema", "kind", "publisher")
TRAFFIC_WINDOW_KEY_COLUMNS = ("run", "endpoint", "epoch", *_TEXT_COLUMNS)
TRAFFIC_COUNT_COLUMNS = ("messages", "size_bytes", "max_size_bytes", "start_time", "end_time")
_WINDOW_KEY_COLUMNS: list[tuple[str, pa.DataType]] = [
    *((name, pa.string()) for name in ("run", "endpoint")),
    ("epoch", pa.int64()),
    *((name, pa.string()) for name in _TEXT_COLUMNS),
]
_ENDPOINT_KEY_COLUMNS: list[tuple[str, pa.DataType]] = [("run", pa.string()), ("endpoint", pa.string())]
WINDOW_TIME_COLUMNS: list[tuple[str, pa.DataType]] = [("window_start", pa.int64()), ("window_ns", pa.int64())]
TRAFFIC_WINDOWS_SCHEMA = pa.schema(
    [
        *_WINDOW_KEY_COLUMNS,
        *WINDOW_TIME_COLUMNS,
        *((name, pa.int64()) for name in TRAFFIC_COUNT_COLUMNS),
        *duration_stats.list_stats_columns(),
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
    *((name, pa.int64()) for name in ("messages", "min", "max", *LATENCY_PERCENTILE_RANKS)),
    ("histogram", histograms.HISTOGRAM_TYPE),
]
LATENCY_SCHEMA = pa.schema([*_ENDPOINT_KEY_COLUMNS, *WINDOW_TIME_COLUMNS, *_LATENCY_COLUMNS])


def compute_traffic_windows(messages: pa.Table, width: int = NS_PER_S) -> pa.Table:
    """Return the traffic in windows of `width` ns of log_time.

    Input: run, endpoint, epoch, host, encoding, schema, kind, publisher, size_bytes, publish_time, and log_time, which
    is never NULL. Fast if messages are sorted by run, endpoint, epoch and time. Output: `TRAFFIC_WINDOWS_SCHEMA`, in
    the same order; see `msgq.spark.tables.traffic_windows`.
    """
    times = get_integer_column(messages, "log_time")
    window = compute_window_start(times, width)
    groups = RowGroups(*(get_column(messages, name) for name in TRAFFIC_WINDOW_KEY_COLUMNS), window)
    sizes = get_integer_column(messages, "size_bytes")
    late = subtract_saturating(times, get_integer_column(messages, "publish_time"))
    is_measured = (late != 0) & ~is_value_change(messages)
    if get_column(messages, "publish_time").null_count:
        is_measured &= np.asarray(get_column(messages, "publish_time").is_valid())
    columns = {
        "window_start": window[groups.first_rows],
        "window_ns": np.full(groups.count, width),
        "messages": groups.sizes,
        "size_bytes": groups.sum_by_group(sizes),
        "max_size_bytes": groups.max_by_group(sizes),
        "start_time": groups.min_by_group(times),
        "end_time": groups.max_by_group(times),
        **duration_stats.compute_duration_stats(groups, late, is_measured),
    }
    return build_typed_table(
        TRAFFIC_WINDOWS_SCHEMA, take_column_rows(messages, TRAFFIC_WINDOW_KEY_COLUMNS, groups.first_rows) | columns
    )


def is_message_of_kind(messages: pa.Table, kind: str) -> BooleanArray:
    """Return a mask of the messages of a kind."""
    kinds = get_column(messages, "kind")
    if not pa.types.is_dictionary(kinds.type):
        kinds = kinds.dictionary_encode()
    is_one: BooleanArray = np.asarray(pc.equal(kinds.dictionary, kind).fill_null(False), np.bool_)
    is_kind: BooleanArray = np.append(is_one, False)[np.asarray(kinds.indices.fill_null(len(is_one)))]
    return is_kind


def is_value_change(messages: pa.Table) -> BooleanArray:
    """Return a mask of the messages that are changes of values, by their kind (`Kind.keeps_values`)."""
    masks: list[BooleanArray] = [is_message_of_kind(messages, kind) for kind in list_state_kinds()]
    changes: BooleanArray = np.logical_or.reduce(masks)
    return changes


def merge_traffic_windows(windows: pa.Table, width: int | IntegerArray = 0) -> pa.Table:
    """Return the windows without repeated ones. `width`: new width in ns, of all windows or of each; 0: unchanged."""
    time, widths = align_window_starts(windows, width)
    groups = RowGroups(*(get_column(windows, name) for name in TRAFFIC_WINDOW_KEY_COLUMNS), time, widths)
    columns = {
        "window_start": time[groups.first_rows],
        "window_ns": widths[groups.first_rows],
        **sum_window_counts(groups, windows),
    }
    return build_typed_table(
        TRAFFIC_WINDOWS_SCHEMA,
        take_column_rows(windows, TRAFFIC_WINDOW_KEY_COLUMNS, groups.first_rows)
        | columns
        | duration_stats.merge_duration_stats(groups, windows),
    )


def align_window_starts(windows: pa.Table, width: int | IntegerArray) -> tuple[IntegerArray, IntegerArray]:
    """Return the start and the length of each window with the new width.

    `width`: as in `merge_traffic_windows`.
    """
    time, widths = get_integer_column(windows, "window_start"), get_integer_column(windows, "window_ns")
    if np.any(width):
        widths = np.broadcast_to(np.asarray(width, np.int64), time.shape)
    return compute_window_start(time, widths), widths


def sum_window_counts(groups: RowGroups, windows: pa.Table) -> dict[str, IntegerArray]:
    """Return the sums of each group of windows."""
    return {
        "messages": groups.sum_by_group(get_integer_column(windows, "messages")),
        "size_bytes": groups.sum_by_group(get_integer_column(windows, "size_bytes")),
        "max_size_bytes": groups.max_by_group(get_integer_column(windows, "max_size_bytes")),
        "start_time": groups.min_by_group(get_integer_column(windows, "start_time")),
        "end_time": groups.max_by_group(get_integer_column(windows, "end_time")),
    }


def coarsen_traffic_windows(windows: pa.Table, at_least: int = NS_PER_S) -> pa.Table:
    """Return wider windows for slow endpoints.

    In each hour, the width of an endpoint is the smallest of `WINDOW_WIDTHS_NS` at which its non-empty windows have 64
    messages on average; otherwise one hour. Input: windows of 1 s or more, without repeated windows.

    `at_least`: minimum width, ns.
    """
    return merge_traffic_windows(windows, choose_window_widths(windows, ("run", "endpoint"), at_least))


def choose_window_widths(rows: pa.Table, keys: tuple[str, ...], at_least: int) -> IntegerArray:
    """Return the new width of each row's window, ns. Input: keys, window_start, messages."""
    time, messages = get_integer_column(rows, "window_start"), get_integer_column(rows, "messages")
    hours = RowGroups(*(get_column(rows, name) for name in keys), time // HOUR_NS)
    place = hours.compute_group_ids()
    total, widths = hours.sum_by_group(messages), np.full(hours.count, HOUR_NS)
    for width in sorted((width for width in WINDOW_WIDTHS_NS if width >= at_least), reverse=True):
        filled = RowGroups(place, time // width)
        count = np.bincount(place[filled.first_rows], minlength=hours.count)
        widths[total >= _MESSAGES_PER_WINDOW_MIN * count] = width
    return widths[place]


def compute_throughput(windows: pa.Table) -> pa.Table:
    """Return the messages of each endpoint in each window: `THROUGHPUT_SCHEMA`."""
    groups = RowGroups(*(get_column(windows, name) for name in ("run", "endpoint", "window_start", "window_ns")))
    messages, widths = (
        groups.sum_by_group(get_integer_column(windows, "messages")),
        get_integer_column(windows, "window_ns")[groups.first_rows],
    )
    columns = {
        "messages": messages,
        "size_bytes": groups.sum_by_group(get_integer_column(windows, "size_bytes")),
        "rate": messages * (NS_PER_S / widths),
    }
    return build_typed_table(
        THROUGHPUT_SCHEMA,
        take_column_rows(windows, ["run", "endpoint", "window_start", "window_ns"], groups.first_rows) | columns,
    )


def compute_latency(windows: pa.Table) -> pa.Table:
    """Return latency percentiles of each endpoint in each window with a known latency: `LATENCY_SCHEMA`."""
    return compute_grouped_latency(windows, "window_start", "window_ns")


def compute_grouped_latency(windows: pa.Table, *by: str) -> pa.Table:
    """Return latency percentiles by run, endpoint, and the columns `by`. Input: windows, also repeated ones."""
    return _compute_latency_percentiles(
        windows.filter(pc.greater(windows.column("count"), 0)), ("run", "endpoint", *by)
    )


def summarize_latency(latency: pa.Table, *by: str) -> pa.Table:
    """Return the percentiles by run, endpoint, and the columns `by`.

    Input: `LATENCY_SCHEMA`. You may make run, endpoint and window_start coarser before. Output: run, endpoint, `by`,
    and the columns of `LATENCY_SCHEMA` from `messages`.
    """
    counted_latency = latency.append_column("count", latency.column("messages"))
    return _compute_latency_percentiles(counted_latency, ("run", "endpoint", *by))


def _compute_latency_percentiles(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    groups = RowGroups(*(get_column(rows, name) for name in keys))
    spread = duration_stats.merge_duration_stats(groups, rows)
    columns = (
        spread
        | {"messages": spread["count"]}
        | duration_stats.compute_duration_percentiles(spread, LATENCY_PERCENTILE_RANKS)
    )
    schema = pa.schema([*(rows.schema.field(name) for name in keys), *_LATENCY_COLUMNS])
    return build_typed_table(schema, take_column_rows(rows, keys, groups.first_rows) | columns)
