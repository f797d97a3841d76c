"""The bronze files from which each hour of gold was made, and the hours that an update must make again.

    LAKE/gold/_increments    a row for each hour of a run, bronze file and kind of input

An update compares the bronze files of this table with the bronze files of the lake. The update then reads the ranges
of new bronze files, and the rows of the affected runs. The cost does not grow with the other runs of the lake.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from msgq.lake.aggregate_store import HOURS_TABLE, RANGES_TABLE, AggregateSnapshot
from msgq.lake.bronze.bronze_writer import open_messages_table
from msgq.lake.delta_table import LakeTable
from msgq.lake.gold.gold_increments import GoldIncrement
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.metrics.group_by import RowGroups, get_column, get_integer_column
from msgq.lake.metrics.partial_aggregates import AGGREGATES_VERSION
from msgq.lake.metrics.time_windows import HOUR_NS
from msgq.lake.table_snapshot import TableSnapshot
from msgq.lake.text_columns import TextColumn, make_text_column, subtract_texts

_GOLD_FORMAT_VERSION = 1  # version of the gold tables; a new version computes all hours again
_INPUT_FORMAT = f"{AGGREGATES_VERSION} {_GOLD_FORMAT_VERSION}"
_INPUTS_SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("hour", pa.int64()),
        ("about", pa.string()),
        ("bronze_file", pa.string()),
        ("message_count", pa.int64()),
        ("format", pa.string()),
    ]
)


@dataclass(frozen=True)
class InputChanges:
    """The changes of the inputs since the last update.

    Attributes:
        stale_hours: hours to make again or to remove, by run.
        increments: inputs of the hours to make again.
        new_rows: rows to add to the table.
        removed_files: bronze files whose rows are removed from the table.
    """

    stale_hours: dict[str, set[int]]
    increments: list[GoldIncrement]
    new_rows: pa.Table
    removed_files: set[str]


def open_inputs_table(lake: LakeDirectory) -> LakeTable:
    """Return the table of the inputs of gold."""
    return LakeTable(lake, "gold/_increments")


def read_gold_version(lake: LakeDirectory) -> str | None:
    """Return a text that is different after each update of gold; None: the lake has no gold.

    Unlike the number of a version, the text is also different after gold was deleted and built again.
    """
    snapshot = open_inputs_table(lake).read_snapshot()
    if snapshot is None:
        return None
    return hashlib.sha256("\n".join(sorted(snapshot.paths)).encode()).hexdigest()[:32]


def is_gold_current(lake: LakeDirectory) -> bool:
    """Return whether the gold tables have all messages of a lake. The function writes nothing."""
    base, messages = open_inputs_table(lake).read_snapshot(), open_messages_table(lake).read_snapshot()
    if base is None or messages is None:
        return False
    current_files, outdated = _list_known_files(base)
    bronze_files = messages.path_column
    return not any(
        map(len, (outdated, subtract_texts(current_files, bronze_files), subtract_texts(bronze_files, current_files)))
    )


def find_input_changes(base: TableSnapshot | None, aggregates: AggregateSnapshot, full_refresh: bool) -> InputChanges:
    """Compare the inputs of the last update with the bronze files of the lake."""
    known_files, outdated = _list_known_files(base)
    gone = known_files if full_refresh else subtract_texts(known_files, aggregates.bronze_files)
    removed = {*gone.to_pylist(), *outdated.to_pylist()}
    kept_files = subtract_texts(known_files, make_text_column(removed))
    new_rows = _make_input_rows(aggregates, subtract_texts(aggregates.bronze_files, kept_files).to_pylist())
    removed_rows = _read_input_rows(base, pc.field("bronze_file").isin(make_text_column(removed)))
    keys = _list_hours(new_rows) | _list_hours(removed_rows)
    stale: dict[str, set[int]] = {}
    for run, hour in keys:
        stale.setdefault(run, set()).add(hour)
    kept = pc.field("run").isin(make_text_column(stale)) & ~pc.field("bronze_file").isin(make_text_column(removed))
    rows = pa.concat_tables([_read_input_rows(base, kept), new_rows])
    return InputChanges(stale, _group_by_increment(rows, keys), new_rows, removed)


def commit_inputs(table: LakeTable, base: TableSnapshot | None, changes: InputChanges) -> None:
    """Store the inputs of an update. Raises CommitConflictError if another process has stored other inputs."""
    rows = changes.new_rows
    if changes.removed_files:
        kept = ~pc.field("bronze_file").isin(make_text_column(changes.removed_files))
        rows = pa.concat_tables([_read_input_rows(base, kept), rows])
    merged, small = ([], None) if changes.removed_files else table.merge_small_files(base, _INPUTS_SCHEMA)
    table.commit_files(base, _INPUTS_SCHEMA, [table.write_file(f"{uuid4().hex}.parquet", rows), *merged], small)


def _list_known_files(base: TableSnapshot | None) -> tuple[TextColumn, TextColumn]:
    """Return the bronze files of the last update, and those whose rows have another format."""
    if base is None:
        return make_text_column(()), make_text_column(())
    rows = base.read_rows(["bronze_file", "format"])
    is_current = pc.equal(rows.column("format"), _INPUT_FORMAT)
    current_files, outdated = (
        rows.filter(mask).column("bronze_file").unique() for mask in (is_current, pc.invert(is_current))
    )
    return current_files, outdated


def _read_input_rows(base: TableSnapshot | None, where: pc.Expression) -> pa.Table:
    return _INPUTS_SCHEMA.empty_table() if base is None else base.read_rows(_INPUTS_SCHEMA.names, where)


def _list_hours(rows: pa.Table) -> set[tuple[str, int]]:
    groups = rows.group_by(["run", "hour"]).aggregate([])
    return set(zip(groups.column("run").to_pylist(), groups.column("hour").to_pylist(), strict=True))


def _make_input_rows(aggregates: AggregateSnapshot, bronze_files: Collection[str]) -> pa.Table:
    """Return a row for each hour to which a bronze file contributes."""
    ranges = aggregates.read_rows(RANGES_TABLE, bronze_files)
    first, last = (get_integer_column(ranges, name) // HOUR_NS for name in ("start_time", "end_time"))
    groups = RowGroups(get_column(ranges, "bronze_file"), get_column(ranges, "run"), first, last)
    chosen = ranges.select(["bronze_file", "run"]).take(pa.array(groups.first_rows)).to_pylist()
    counts = groups.sum_by_group(get_integer_column(ranges, "row_count")).tolist()
    spans = zip(chosen, first[groups.first_rows].tolist(), last[groups.first_rows].tolist(), counts, strict=True)
    rows = [
        _complete_input_row({**group, "hour": hour, "about": "messages"}, count // (end + 1 - begin))
        for group, begin, end, count in spans
        for hour in range(begin, end + 1)
    ]
    others = aggregates.read_rows(HOURS_TABLE, bronze_files).select(["bronze_file", "run", "hour", "about"]).to_pylist()
    rows += [_complete_input_row(row, 0) for row in others]
    return pa.Table.from_pylist(rows, _INPUTS_SCHEMA)


def _complete_input_row(row: dict[str, Any], message_count: int) -> dict[str, Any]:
    return {**row, "message_count": message_count, "format": _INPUT_FORMAT}


def _group_by_increment(rows: pa.Table, keys: set[tuple[str, int]]) -> list[GoldIncrement]:
    increments: dict[tuple[str, int], GoldIncrement] = {}
    for row in rows.to_pylist():
        key = row["run"], row["hour"]
        if key in keys:
            increment = increments.setdefault(key, GoldIncrement(*key))
            increment.bronze_files.setdefault(row["about"], set()).add(row["bronze_file"])
            increment.message_count += row["message_count"]
    return list(increments.values())
