"""Increments of gold: an hour of a run, with its bronze files and their partial aggregates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from msgq.lake.aggregate_store import (
    BRONZE_FILE_COLUMN,
    HOURS_TABLE,
    AggregateSnapshot,
    get_bronze_file_stem,
    make_aggregate_file_stem,
    open_aggregate_table,
)
from msgq.lake.batching import pack_by_size
from msgq.lake.bronze.bronze_writer import open_messages_table
from msgq.lake.delta_table import is_merged_file
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.metrics.group_by import RowGroups, get_column, get_integer_column
from msgq.lake.metrics.hops import HOP_INPUT_SCHEMA
from msgq.lake.metrics.partial_aggregates import AGGREGATE_SCHEMAS
from msgq.lake.metrics.queues import compute_event_hours
from msgq.lake.metrics.saturating_time import limit_time
from msgq.lake.metrics.time_windows import HOUR_NS

_TASK_MESSAGES = 1 << 18  # approximate messages of a task
_INCREMENT_COST_MESSAGES = 1 << 10  # an increment costs as much as so many messages
#: The time that says of which hour a row is.
_TIME_COLUMN_BY_TABLE = {
    **{
        "traffic_windows": "window_start",
        "islands": "base_time",
        "key_islands": "base_time",
        "stages": "window_start",
        "frames": "log_time",
    },
    "origins": "origin_time",
}
_INPUT_SCHEMA_BY_TABLE = AGGREGATE_SCHEMAS | {"origins": HOP_INPUT_SCHEMA}


@dataclass(slots=True)
class GoldIncrement:
    """An hour of a run.

    Attributes:
        run: the run.
        hour_number: hour since the epoch; -1: the hour of the events is unknown.
        bronze_files: bronze files with messages of the hour ("messages"), with messages whose origins are in the hour
            ("origins"), and with queue events of the hour ("events").
        message_count: about how many messages the hour has.
    """

    run: str
    hour_number: int
    bronze_files: dict[str, set[str]] = field(default_factory=dict)
    message_count: int = 0


@dataclass(frozen=True, slots=True)
class IncrementTask:
    """The increments that a worker makes gold of, and the files of their aggregates.

    Attributes:
        increments: increments in the order of run and hour.
        paths_by_table: files of each table of aggregates; of `origins`, files of messages.
    """

    increments: Sequence[GoldIncrement]
    paths_by_table: Mapping[str, list[str]]

    def read_inputs(self, lake: LakeDirectory) -> dict[str, pa.Table]:
        """Return the rows of the increments in each of `AGGREGATE_SCHEMAS`, and in `origins`.

        The column `run` has the numbers of the increments; see `number_increments`.
        """
        return {
            name: number_increments(name, self._read_table(lake, name), self.increments)
            for name in _INPUT_SCHEMA_BY_TABLE
            if name != HOURS_TABLE
        }

    def _read_table(self, lake: LakeDirectory, name: str) -> pa.Table:
        columns = _INPUT_SCHEMA_BY_TABLE[name]
        table = open_messages_table(lake) if name == "origins" else open_aggregate_table(lake, name)
        where = _make_increments_filter(name, self.increments)
        return table.read_rows(
            self.paths_by_table.get(name, ()), columns.append(BRONZE_FILE_COLUMN), where, columns.names
        )


def number_increments(name: str, rows: pa.Table, increments: Sequence[GoldIncrement]) -> pa.Table:
    """Return the rows of the increments, with the number of its increment as the run of each row.

    No result depends on several runs. Increments in the place of runs are therefore computed all at once, in the time
    of one: a computation of a few rows takes as long as that of some thousand.

    `name`: table of aggregates, or "origins".
    """
    hours = (
        compute_event_hours(rows)
        if name == "events"
        else get_integer_column(rows, _TIME_COLUMN_BY_TABLE[name], -HOUR_NS) // HOUR_NS
    )
    groups = RowGroups(get_column(rows, "run"), hours)
    numbers = {(increment.run, increment.hour_number): number for number, increment in enumerate(increments)}
    runs = rows.column("run").take(pa.array(groups.first_rows)).to_pylist()
    keys = zip(runs, hours[groups.first_rows].tolist(), strict=True)
    number = np.array([numbers.get(key, -1) for key in keys], np.int32)[groups.compute_group_ids()]
    texts = pa.array([f"{number:08}" for number in range(len(increments))], pa.string())
    run = pa.DictionaryArray.from_arrays(pa.array(number, mask=number < 0), texts)
    return rows.set_column(rows.schema.get_field_index("run"), "run", run).filter(pa.array(number >= 0))


def restore_increments(rows: pa.Table, increments: Sequence[GoldIncrement]) -> pa.Table:
    """Return the rows with the runs of their increments, and with the hours as an additional column."""
    number = rows.column("run").cast(pa.string()).cast(pa.int64())
    run = pa.array([increment.run for increment in increments], pa.string()).take(number)
    hour = pa.array([increment.hour_number for increment in increments], pa.int64()).take(number)
    return rows.set_column(rows.schema.get_field_index("run"), "run", run).append_column("hour", hour)


def _get_bronze_files_key(name: str) -> str:
    return name if name in ("origins", "events") else "messages"


def _make_increments_filter(name: str, increments: Sequence[GoldIncrement]) -> Any:
    """Return a filter that leaves out most rows of other increments where files are read."""
    where = ds.field("run").isin(sorted({increment.run for increment in increments}))
    if name != "origins":
        key = _get_bronze_files_key(name)
        where &= ds.field("bronze_file").isin(pa.array(_list_bronze_files(increments, key), pa.string()))
    if name in _TIME_COLUMN_BY_TABLE:
        time = ds.field(_TIME_COLUMN_BY_TABLE[name])
        hours = [increment.hour_number for increment in increments]
        begin, end = min(hours) * HOUR_NS, (max(hours) + 1) * HOUR_NS
        where &= (time >= limit_time(begin)) & (time <= limit_time(end - 1))
    return where


def list_increment_tasks(aggregates: AggregateSnapshot, increments: Iterable[GoldIncrement]) -> list[IncrementTask]:
    """Return tasks with increments of about the same number of messages, in the order of run and hour.

    A task has files of the bronze files of its increments only, and merged files.
    """
    ordered = sorted(increments, key=lambda increment: (increment.run, increment.hour_number))
    files: dict[str, dict[str, list[str]]] = {}
    for name in AGGREGATE_SCHEMAS:
        bronze_files = _list_bronze_files(ordered, _get_bronze_files_key(name)) if name != HOURS_TABLE else ()
        for path in aggregates.list_files(name, bronze_files):
            files.setdefault(name, {}).setdefault(
                "" if is_merged_file(path) else get_bronze_file_stem(path), []
            ).append(path)
    weights = ((increment, increment.message_count + _INCREMENT_COST_MESSAGES) for increment in ordered)
    return [
        IncrementTask(group, _list_increment_files(group, files)) for group in pack_by_size(weights, _TASK_MESSAGES)
    ]


def _list_increment_files(
    increments: Sequence[GoldIncrement], files: Mapping[str, Mapping[str, list[str]]]
) -> dict[str, list[str]]:
    paths_by_table = {"origins": _list_bronze_files(increments, "origins")}
    for name, own in files.items():
        stems = map(make_aggregate_file_stem, _list_bronze_files(increments, _get_bronze_files_key(name)))
        paths_by_table[name] = [path for stem in ("", *stems) for path in own.get(stem, ())]
    return {name: paths for name, paths in paths_by_table.items() if paths}


def _list_bronze_files(increments: Iterable[GoldIncrement], key: str) -> list[str]:
    return sorted({file for increment in increments for file in increment.bronze_files.get(key, ())})
