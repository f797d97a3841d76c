"""Stages: how long messages waited for a part of a program, how long it worked on them, how old they were then."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.common import timing
from msgq.common.units import NS_PER_S
from msgq.decoding.fixed_headers import heads
from msgq.lake.metrics import duration_stats
from msgq.lake.metrics.group_by import Integers, RowGroups, build_table, column, integer_column, take_rows
from msgq.lake.metrics.saturating_time import window_begin
from msgq.lake.metrics.windows import TIME, align_windows, choose_widths

DURATIONS = ("queue_time", "processing_time", "e2e_latency")
RANKS = {"p50": 0.5, "p99": 0.99}
_KEYS = ("run", "stage", "endpoint")
_RECORD = np.dtype([(name, "<i8") for name in timing.FIELDS])
_COUNTS: list[tuple[str, pa.DataType]] = [(name, pa.int64()) for name in ("messages", "malformed")]
_OF_KEYS: list[tuple[str, pa.DataType]] = [(name, pa.string()) for name in _KEYS]
_DURATION_COLUMNS = [field for name in DURATIONS for field in duration_stats.stats_columns(f"{name}_")]
#: Windows of stages without percentiles, as they are merged; and with them.
STAGE_AGGREGATES = pa.schema([*_OF_KEYS, *TIME, *_COUNTS, *_DURATION_COLUMNS])
_PERCENTILE_COLUMNS = [field for name in DURATIONS for field in duration_stats.stats_columns(f"{name}_", RANKS)]
STAGES = pa.schema([*_OF_KEYS, *TIME, *_COUNTS, *_PERCENTILE_COLUMNS])
TOTALS = pa.schema([*_OF_KEYS, *_COUNTS, *_PERCENTILE_COLUMNS])


def stage_windows(messages: pa.Table, width: int = NS_PER_S) -> pa.Table:
    """Return what stages said on their timing topics in each window of `width` ns of log_time: `STAGE_AGGREGATES`.

    Input: run, endpoint, log_time, data, of which log_time is never NULL; other topics than those of timing count for
    nothing.
    """
    names = column(messages, "endpoint")
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
    window = window_begin(integer_column(records, "log_time"), width)
    groups = RowGroups(*(column(records, name) for name in _KEYS), window)
    whole, times = _records(column(records, "data"))
    published, origin, received, sent = (times[name] for name in timing.FIELDS)
    made = {
        "window_start": window[groups.first_rows],
        "window_ns": np.full(groups.count, width),
        "messages": groups.sum(whole),
        "malformed": groups.sum(~whole),
        **duration_stats.measure(groups, received - sent, whole & (sent > 0), "queue_time_"),
        **duration_stats.measure(groups, published - received, whole, "processing_time_"),
        **duration_stats.measure(groups, published - origin, whole & (origin > 0), "e2e_latency_"),
    }
    return build_table(STAGE_AGGREGATES, take_rows(records, _KEYS, groups.first_rows) | made)


def _records(data: pa.Array) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], dict[str, Integers]]:
    """Return which records have the right size, and times that can be; and their times, 0 where they have not."""
    right = np.asarray(pc.equal(pc.binary_length(data), timing.RECORD_BYTES).fill_null(False), np.bool_)
    every = np.zeros(len(data), _RECORD)
    every[right] = heads(data.filter(pa.array(right)), _RECORD)[1]
    times = {name: every[name].astype(np.int64) for name in timing.FIELDS}
    possible = (times["received"] > 0) & (times["publish_time"] >= times["received"])
    return right & possible & (times["sent"] >= 0) & (times["origin_time"] >= 0), times


def merge_windows(windows: pa.Table, width: int | Integers = 0) -> pa.Table:
    """Return windows of which no two are the same: `STAGE_AGGREGATES`. width : ns, of all or of each; 0: unchanged."""
    time, widths = align_windows(windows, width)
    groups = RowGroups(*(column(windows, name) for name in _KEYS), time, widths)
    made = {"window_start": time[groups.first_rows], "window_ns": widths[groups.first_rows], **_totals(groups, windows)}
    return build_table(STAGE_AGGREGATES, take_rows(windows, _KEYS, groups.first_rows) | made)


def stages(windows: pa.Table) -> pa.Table:
    """Return windows with percentiles: `STAGES`. Input: `STAGE_AGGREGATES`, no two the same."""
    return _with_percentiles(windows, STAGES)


def coarsen_windows(windows: pa.Table, at_least: int = NS_PER_S) -> pa.Table:
    """Return windows as wide as they need to be: `STAGES`. Input: `STAGES` or `STAGE_AGGREGATES`, no two the same."""
    said = pc.add(windows.column("messages"), windows.column("malformed"))
    known = windows.set_column(windows.schema.get_field_index("messages"), "messages", said)
    return stages(merge_windows(windows, choose_widths(known, _KEYS, at_least)))


def stage_summary(windows: pa.Table, *by: str) -> pa.Table:
    """Return the same of each run, stage, endpoint, and what else is named. Input: `STAGES` or `STAGE_AGGREGATES`."""
    keys = (*_KEYS, *by)
    groups = RowGroups(*(column(windows, name) for name in keys))
    extra = [windows.schema.field(name) for name in by]
    made = take_rows(windows, keys, groups.first_rows) | _totals(groups, windows)
    fields = list(TOTALS)
    return _with_percentiles(made, pa.schema([*fields[: len(_KEYS)], *extra, *fields[len(_KEYS) :]]))


def _totals(groups: RowGroups, windows: pa.Table) -> dict[str, pa.Array | Integers]:
    counts = {name: groups.sum(integer_column(windows, name)) for name in ("messages", "malformed")}
    return counts | {
        name: values
        for duration in DURATIONS
        for name, values in duration_stats.merge(groups, windows, f"{duration}_").items()
    }


def _with_percentiles(made: pa.Table | dict[str, pa.Array | Integers], schema: pa.Schema) -> pa.Table:
    columns = {name: column(made, name) for name in made.column_names} if isinstance(made, pa.Table) else made
    for name in DURATIONS:
        columns |= duration_stats.percentiles(columns, RANKS, f"{name}_")
    return build_table(schema, columns)
