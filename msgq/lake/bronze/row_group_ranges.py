"""Ranges of row groups, used to find bronze files that may share a message."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.lake.metrics.group_by import BooleanArray, IntegerArray, RowGroups, get_column, get_integer_column

#: A row for each run, endpoint, epoch and schema of each row group.
RANGES_SCHEMA = pa.schema(
    {
        "bronze_file": pa.string(),
        "run": pa.string(),
        "endpoint": pa.string(),
        "epoch": pa.int64(),
        "schema_id": pa.int64(),
        "row_count": pa.int64(),
        "first_sequence": pa.int64(),
        "last_sequence": pa.int64(),
        "start_time": pa.int64(),
        "end_time": pa.int64(),
        "has_duplicates": pa.bool_(),
    }
)


def sort_rows_by_range(table: pa.Table) -> tuple[IntegerArray, IntegerArray, BooleanArray]:
    """Return the order of the rows, the start of each group in this order, and a mask of groups with duplicates."""
    groups = RowGroups(
        *(get_column(table, name) for name in ("run", "endpoint")), *_get_integer_columns(table, "epoch", "schema_id")
    )
    times, sequences = _get_integer_columns(table, "log_time", "sequence")
    order = groups.sort_by_group(np.arange(len(times)))
    same_group = np.diff(groups.sorted_ids) == 0
    if (same_group & (times[order][1:] <= times[order][:-1])).any():  # seldom: each endpoint's messages come in order
        order = np.lexsort((sequences, times, groups.compute_group_ids()))
    twice = same_group & (np.diff(times[order]) == 0) & (np.diff(sequences[order]) == 0)
    starts = np.flatnonzero(np.diff(groups.sorted_ids, prepend=-1))
    return order, starts, np.logical_or.reduceat(np.append(twice, False), starts)


def _get_integer_columns(table: pa.Table, *names: str) -> list[IntegerArray]:
    return [get_integer_column(table, name) for name in names]


def compute_row_group_ranges(
    table: pa.Table, bronze_file: str, starts: IntegerArray, repeats: BooleanArray
) -> pa.RecordBatch:
    """Return the ranges of a bronze file's row group. The rows have the order of `sort_rows_by_range`."""
    sequences = np.asarray(table.column("sequence"), np.int64)
    times = np.asarray(table.column("log_time"), np.int64)
    ends = np.append(starts[1:], len(times))
    first = table.select(["run", "endpoint", "epoch", "schema_id"]).take(pa.array(starts))
    columns = [
        pa.array([bronze_file] * len(starts)),
        *(first.column(name).cast(RANGES_SCHEMA.field(name).type).combine_chunks() for name in first.column_names),
        ends - starts,
        np.minimum.reduceat(sequences, starts),
        np.maximum.reduceat(sequences, starts),
        times[starts],
        times[ends - 1],
        repeats,
    ]
    arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=RANGES_SCHEMA)


def find_overlapping_files(new: pa.Table, old_ranges: pa.Table) -> tuple[set[str], set[str]]:
    """Return the new bronze files that may share a message with another file, and the known files that may share it.

    Both tables: `RANGES_SCHEMA`. If the times of bronze files overlap, their sequences decide, so that consecutive
    segments do not count. The result may contain files that share no message, but all files that share one.
    """
    if len(new):  # mostly it is the newest there is, and nothing that is known meets it
        reach = (pc.field("end_time") >= pc.min(new.column("start_time"))) & (
            pc.field("start_time") <= pc.max(new.column("end_time"))
        )
        old_ranges = old_ranges.filter(reach)
    new_files: set[str] = {
        bronze_file
        for bronze_file, twice in zip(*_convert_columns_to_lists(new, "bronze_file", "has_duplicates"), strict=True)
        if twice
    }
    known_bronze_files: set[str] = set()
    for cluster in _find_time_clusters(new, old_ranges):
        fresh = [item for item in cluster if item.is_new_file]
        met = zip(fresh, _count_range_overlaps(fresh, cluster), strict=True)
        new_files |= {item.bronze_file for item, count in met if count > 1}  # itself is one
        old = [item for item in cluster if not item.is_new_file]
        known_bronze_files |= {
            item.bronze_file for item, count in zip(old, _count_range_overlaps(old, fresh), strict=True) if count
        }
    return new_files, known_bronze_files


class _SequenceRange(NamedTuple):
    bronze_file: str
    is_new_file: bool
    first_sequence: int
    last_sequence: int
    start_time: int
    end_time: int


def _find_time_clusters(new: pa.Table, old_ranges: pa.Table) -> Iterator[list[_SequenceRange]]:
    """Yield clusters of two or more ranges of one run, endpoint and epoch.

    The times of the ranges in a cluster overlap, directly or through other ranges.
    """
    every = pa.concat_tables(
        [
            new.append_column("new", pa.array(np.ones(len(new), bool))),
            old_ranges.append_column("new", pa.array(np.zeros(len(old_ranges), bool))),
        ]
    )
    keys = ("run", "endpoint", "epoch")
    every = every.sort_by([(name, "ascending") for name in (*keys, "start_time")])
    names = ("bronze_file", "new", "first_sequence", "last_sequence", "start_time", "end_time")
    cluster: list[_SequenceRange] = []
    before, until = None, 0
    for *key, bronze_file, is_new_file, first, last, begin, end in zip(
        *_convert_columns_to_lists(every, *keys, *names), strict=True
    ):
        if key != before or begin > until:
            if len(cluster) > 1:
                yield cluster
            before, until, cluster = key, end, []
        until = max(until, end)
        cluster.append(_SequenceRange(bronze_file, is_new_file, first, last, begin, end))
    if len(cluster) > 1:
        yield cluster


def _count_range_overlaps(ranges: list[_SequenceRange], other_ranges: list[_SequenceRange]) -> list[int]:
    """Return for each range the number of other ranges that overlap in time and in sequences.

    In each dimension, the ranges that begin before its end are counted, minus the ranges that end before its beginning.
    Two dimensions give four counts.
    """
    until, upto = [item.end_time for item in ranges], [item.last_sequence for item in ranges]
    before, below = [item.start_time - 1 for item in ranges], [item.first_sequence - 1 for item in ranges]
    begun = _count_dominated_points([(item.start_time, item.first_sequence) for item in other_ranges], until, upto)
    begun_below = _count_dominated_points(
        [(item.start_time, item.last_sequence) for item in other_ranges], until, below
    )
    ended = _count_dominated_points([(item.end_time, item.first_sequence) for item in other_ranges], before, upto)
    ended_below = _count_dominated_points([(item.end_time, item.last_sequence) for item in other_ranges], before, below)
    return [a - b - c + d for a, b, c, d in zip(begun, begun_below, ended, ended_below, strict=True)]


def _count_dominated_points(points: list[tuple[int, int]], x: list[int], y: list[int]) -> list[int]:
    """Return for each pair of x and y the number of points without a larger coordinate, in about n log n steps."""
    counts = [0] * len(x)
    seen: list[int] = []
    points = sorted(points, reverse=True)
    for index in sorted(range(len(x)), key=x.__getitem__):
        while points and points[-1][0] <= x[index]:
            insort(seen, points.pop()[1])
        counts[index] = bisect_right(seen, y[index])
    return counts


def _convert_columns_to_lists(table: pa.Table, *names: str) -> Iterator[list[Any]]:
    return (table.column(name).to_pylist() for name in names)
