"""Stages: queueing time, processing time and end-to-end latency of messages in a part of a program."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.common import timing
from msgq.common.units import NS_PER_S
from msgq.decoding.fixed_headers import read_fixed_headers
from msgq.lake.metrics import duration_stats
from msgq.lake.metrics.group_by import (
    BooleanArray,
    IntegerArray,
    RowGroups,
    build_typed_table,
    get_column,
    get_integer_column,
    take_column_rows,
)
from msgq.lake.metrics.saturating_time import compute_window_start
from msgq.lake.metrics.time_windows import WINDOW_TIME_COLUMNS, align_window_starts, choose_window_widths
from msgq.records.tracing_rules import TIMING_DTYPE, RowArray, find_plausible_records

STAGE_DURATION_NAMES = ("queue_time", "processing_time", "e2e_latency")
STAGE_PERCENTILE_RANKS = {"p50": 0.5, "p99": 0.99}
_STAGE_KEY = ("run", "stage", "endpoint")
_COUNT_FIELDS: list[tuple[str, pa.DataType]] = [(name, pa.int64()) for name in ("messages", "malformed")]
_STAGE_KEY_COLUMNS: list[tuple[str, pa.DataType]] = [(name, pa.string()) for name in _STAGE_KEY]
_DURATION_COLUMNS = [field for name in STAGE_DURATION_NAMES for field in duration_stats.list_stats_columns(f"{name}_")]
#: Windows of stages without percentiles, as they are merged; and with them.
STAGE_AGGREGATES = pa.schema([*_STAGE_KEY_COLUMNS, *WINDOW_TIME_COLUMNS, *_COUNT_FIELDS, *_DURATION_COLUMNS])
_PERCENTILE_COLUMNS = [
    field
    for name in STAGE_DURATION_NAMES
    for field in duration_stats.list_stats_columns(f"{name}_", STAGE_PERCENTILE_RANKS)
]
STAGES_SCHEMA = pa.schema([*_STAGE_KEY_COLUMNS, *WINDOW_TIME_COLUMNS, *_COUNT_FIELDS, *_PERCENTILE_COLUMNS])
STAGE_SUMMARY_SCHEMA = pa.schema([*_STAGE_KEY_COLUMNS, *_COUNT_FIELDS, *_PERCENTILE_COLUMNS])


def compute_stage_windows(messages: pa.Table, width: int = NS_PER_S) -> pa.Table:
    """Return the timings of stages in windows of `width` ns of log_time: `STAGE_AGGREGATES`.

    Input: run, endpoint, log_time, data. log_time is never NULL. Only timing topics count.
    """
    names = get_column(messages, "endpoint")
    names = names if pa.types.is_dictionary(names.type) else names.dictionary_encode()
    topics = [None if name is None else timing.parse_timing_topic(name) for name in names.dictionary.to_pylist()]
    if not any(topics):
        return STAGE_AGGREGATES.empty_table()
    is_told = np.append(np.array([topic is not None for topic in topics], np.bool_), False)
    codes = np.asarray(names.indices.fill_null(len(topics)), np.int64)
    rows = np.flatnonzero(is_told[codes])
    records = messages.select(["run", "log_time", "data"]).take(pa.array(rows))
    stage, endpoint = (pa.array([topic and topic[part] for topic in topics], pa.string()) for part in (0, 1))
    records = records.append_column("stage", stage.take(pa.array(codes[rows])))
    records = records.append_column("endpoint", endpoint.take(pa.array(codes[rows])))
    window = compute_window_start(get_integer_column(records, "log_time"), width)
    groups = RowGroups(*(get_column(records, name) for name in _STAGE_KEY), window)
    whole, timings = read_timing_records(get_column(records, "data"))
    published, origin, received, sent = (timings[name] for name in timing.TIMING_FIELDS)
    columns = {
        "window_start": window[groups.first_rows],
        "window_ns": np.full(groups.count, width),
        "messages": groups.sum_by_group(whole),
        "malformed": groups.sum_by_group(~whole),
        **duration_stats.compute_duration_stats(groups, received - sent, whole & (sent > 0), "queue_time_"),
        **duration_stats.compute_duration_stats(groups, published - received, whole, "processing_time_"),
        **duration_stats.compute_duration_stats(groups, published - origin, whole & (origin > 0), "e2e_latency_"),
    }
    return build_typed_table(STAGE_AGGREGATES, take_column_rows(records, _STAGE_KEY, groups.first_rows) | columns)


def read_timing_records(data: pa.Array) -> tuple[BooleanArray, RowArray]:
    """Return a mask of the valid records (size and plausible times), and a row of `TIMING_DTYPE` for each payload."""
    right = np.asarray(pc.equal(pc.binary_length(data), timing.TIMING_RECORD_BYTES).fill_null(False), np.bool_)
    records = np.zeros(len(data), TIMING_DTYPE)
    records[right] = read_fixed_headers(data.filter(pa.array(right)), TIMING_DTYPE)[1]
    return find_plausible_records(records), records


def merge_stage_windows(windows: pa.Table, width: int | IntegerArray = 0) -> pa.Table:
    """Return `STAGE_AGGREGATES` without repeated windows.

    `width`: new width in ns, of all windows or of each; 0: unchanged.
    """
    time, widths = align_window_starts(windows, width)
    groups = RowGroups(*(get_column(windows, name) for name in _STAGE_KEY), time, widths)
    columns = {
        "window_start": time[groups.first_rows],
        "window_ns": widths[groups.first_rows],
        **_sum_window_groups(groups, windows),
    }
    return build_typed_table(STAGE_AGGREGATES, take_column_rows(windows, _STAGE_KEY, groups.first_rows) | columns)


def compute_stages(windows: pa.Table) -> pa.Table:
    """Return windows with percentiles: `STAGES_SCHEMA`. Input: `STAGE_AGGREGATES` without repeated windows."""
    return _add_duration_percentiles(windows, STAGES_SCHEMA)


def coarsen_stage_windows(windows: pa.Table, at_least: int = NS_PER_S) -> pa.Table:
    """Return wider windows for stages with few messages: `STAGES_SCHEMA`.

    Input: `STAGES_SCHEMA` or `STAGE_AGGREGATES`, without repeated windows.
    """
    message_counts = pc.add(windows.column("messages"), windows.column("malformed"))
    counted_windows = windows.set_column(windows.schema.get_field_index("messages"), "messages", message_counts)
    return compute_stages(merge_stage_windows(windows, choose_window_widths(counted_windows, _STAGE_KEY, at_least)))


def summarize_stages(windows: pa.Table, *by: str) -> pa.Table:
    """Return totals by run, stage, endpoint, and the columns `by`.

    Input: `STAGES_SCHEMA` or `STAGE_AGGREGATES`.
    """
    keys = (*_STAGE_KEY, *by)
    groups = RowGroups(*(get_column(windows, name) for name in keys))
    extra = [windows.schema.field(name) for name in by]
    columns = take_column_rows(windows, keys, groups.first_rows) | _sum_window_groups(groups, windows)
    fields = list(STAGE_SUMMARY_SCHEMA)
    return _add_duration_percentiles(
        columns, pa.schema([*fields[: len(_STAGE_KEY)], *extra, *fields[len(_STAGE_KEY) :]])
    )


def _sum_window_groups(groups: RowGroups, windows: pa.Table) -> dict[str, pa.Array | IntegerArray]:
    counts = {name: groups.sum_by_group(get_integer_column(windows, name)) for name in ("messages", "malformed")}
    return counts | {
        name: values
        for duration in STAGE_DURATION_NAMES
        for name, values in duration_stats.merge_duration_stats(groups, windows, f"{duration}_").items()
    }


def _add_duration_percentiles(rows: pa.Table | dict[str, pa.Array | IntegerArray], schema: pa.Schema) -> pa.Table:
    columns = {name: get_column(rows, name) for name in rows.column_names} if isinstance(rows, pa.Table) else rows
    for name in STAGE_DURATION_NAMES:
        columns |= duration_stats.compute_duration_percentiles(columns, STAGE_PERCENTILE_RANKS, f"{name}_")
    return build_typed_table(schema, columns)
