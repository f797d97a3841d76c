"""Increments of gold: an hour of a run, with its bronze files and their partial aggregates."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from msgq.lake.aggregate_store import (
    BRONZE_FILE_COLUMN,
    HOURS_TABLE,
    AggregateSnapshot,
    get_bronze_file_stem,
    make_aggregate_file_stem,
    open_aggregate_table,
)
from msgq.lake.bronze.bronze_writer import open_messages_table
from msgq.lake.delta_table import is_merged_file
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.metrics.group_by import RowGroups, get_column, get_integer_column
from msgq.lake.metrics.hops import HOP_INPUT_SCHEMA
from msgq.lake.metrics.partial_aggregates import AGGREGATE_SCHEMAS, AGGREGATES_VERSION
from msgq.lake.metrics.queues import compute_event_hours
from msgq.lake.metrics.saturating_time import MAX_TIME, MIN_TIME
from msgq.lake.metrics.time_windows import HOUR_NS

_GOLD_FORMAT_VERSION = 1  # of the tables that are made; with another number, all are made anew
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


@dataclass(frozen=True, slots=True)
class GoldIncrement:
    """An hour of a run.

    Attributes
    ----------
    run, hour_number : run, and hours since the epoch; -1: unknown.
    bronze_files : bronze files with data of the hour: "messages", "origins" (messages whose origin is in the hour), and
        "events".
    """

    run: str
    hour_number: int
    bronze_files: dict[str, set[str]] = field(default_factory=dict)

    @property
    def input_fingerprint(self) -> str:
        """Fingerprint of the inputs. It changes if the result may change."""
        known = (
            f"{about} {bronze_file}"
            for about, bronze_files in self.bronze_files.items()
            for bronze_file in bronze_files
        )
        return hashlib.sha256(
            "\n".join([f"{AGGREGATES_VERSION} {_GOLD_FORMAT_VERSION}", *sorted(known)]).encode()
        ).hexdigest()[:32]


def list_increments(view: AggregateSnapshot) -> dict[tuple[str, int], GoldIncrement]:
    """Return the increments of all messages by run and hour."""
    increments: dict[tuple[str, int], GoldIncrement] = {}
    ranges = view.row_group_ranges
    hours = [get_integer_column(ranges, name) // HOUR_NS for name in ("start_time", "end_time")]
    rows = RowGroups(get_column(ranges, "bronze_file"), get_column(ranges, "run"), *hours).first_rows
    chosen = ranges.select(["bronze_file", "run"]).take(pa.array(rows))
    for bronze_file, run, first, last in zip(
        *_convert_columns_to_lists(chosen), *(hour[rows].tolist() for hour in hours), strict=True
    ):
        for hour in range(first, last + 1):
            _add_increment_file(increments, run, hour, "messages", bronze_file)
    other_hours = view.read_rows(HOURS_TABLE).select(["bronze_file", "run", "hour", "about"])
    for bronze_file, run, hour, about in zip(*_convert_columns_to_lists(other_hours), strict=True):
        _add_increment_file(increments, run, hour, about, bronze_file)
    return increments


def _add_increment_file(
    increments: dict[tuple[str, int], GoldIncrement], run: str, hour: int, about: str, bronze_file: str
) -> None:
    increments.setdefault((run, hour), GoldIncrement(run, hour)).bronze_files.setdefault(about, set()).add(bronze_file)


def _convert_columns_to_lists(table: pa.Table) -> list[list[Any]]:
    return [values.to_pylist() for values in table.columns]


@dataclass(frozen=True, slots=True)
class IncrementTask:
    """Task of a worker: an increment, and the files with its aggregates by table."""

    increment: GoldIncrement
    files_by_table: Mapping[str, list[str]]

    def read_inputs(self, lake: LakeDirectory) -> dict[str, pa.Table]:
        """Return the rows of the increment in each of `AGGREGATE_SCHEMAS`.

        `origins` has messages whose origin is in the hour.
        """
        tables = {}
        for name, columns in _INPUT_SCHEMA_BY_TABLE.items():
            table = open_messages_table(lake) if name == "origins" else open_aggregate_table(lake, name)
            bronze_files = (
                None if name == "origins" else self.increment.bronze_files.get(_get_bronze_files_key(name), ())
            )
            where, schema = (
                _make_increment_filter(name, self.increment, bronze_files),
                columns.append(BRONZE_FILE_COLUMN),
            )
            rows = table.read_rows(self.files_by_table.get(name, ()), schema, where, columns.names)
            tables[name] = filter_increment_rows(name, rows, self.increment.run, self.increment.hour_number)
        return tables


def filter_increment_rows(name: str, rows: pa.Table, run: str, hour: int) -> pa.Table:
    """Return the rows of aggregates, or of `origins`, that belong to an increment."""
    if name == "hours":
        return rows.slice(0, 0)
    hours = (
        compute_event_hours(rows)
        if name == "events"
        else get_integer_column(rows, _TIME_COLUMN_BY_TABLE[name], -HOUR_NS) // HOUR_NS
    )
    is_one = pc.and_(pc.equal(rows.column("run"), run), pa.chunked_array([pa.array(hours == hour)]))
    return rows.filter(is_one)


def _get_bronze_files_key(name: str) -> str:
    return name if name in ("origins", "events") else "messages"


def _make_increment_filter(name: str, group: GoldIncrement, bronze_files: Collection[str] | None) -> Any:
    """Return a condition that skips most rows of other increments while files are read."""
    where = ds.field("run") == group.run
    if bronze_files is not None:
        where &= ds.field("bronze_file").isin(sorted(bronze_files))
    if name in _TIME_COLUMN_BY_TABLE:
        time = ds.field(_TIME_COLUMN_BY_TABLE[name])
        first, last = group.hour_number * HOUR_NS, (group.hour_number + 1) * HOUR_NS - 1
        where &= (time >= max(first, MIN_TIME)) & (time <= min(last, MAX_TIME))
    return where


def list_increment_tasks(view: AggregateSnapshot, groups: Iterable[GoldIncrement]) -> list[IncrementTask]:
    """Return the task of each increment, with the files of its bronze files and merged files."""
    files: dict[str, dict[str, list[str]]] = {}
    for name in AGGREGATE_SCHEMAS:
        for path in view.list_files(name) if name != HOURS_TABLE else ():
            files.setdefault(name, {}).setdefault(
                "" if is_merged_file(path) else get_bronze_file_stem(path), []
            ).append(path)
    return [IncrementTask(group, _list_increment_files(group, files)) for group in groups]


def _list_increment_files(group: GoldIncrement, files: Mapping[str, Mapping[str, list[str]]]) -> dict[str, list[str]]:
    paths_by_table = {"origins": sorted(group.bronze_files.get("origins", ()))}
    for name, own in files.items():
        stems = map(make_aggregate_file_stem, sorted(group.bronze_files.get(_get_bronze_files_key(name), ())))
        paths_by_table[name] = [path for stem in ("", *stems) for path in own.get(stem, ())]
    return {name: paths for name, paths in paths_by_table.items() if paths}
