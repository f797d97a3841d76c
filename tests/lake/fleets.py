"""Lakes with a few rows of gold, and fleet tables of them; and a child who is killed while it builds the tables."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from msgq.lake.bronze.bronze_writer import open_messages_table
from msgq.lake.delta_table import LakeTable
from msgq.lake.fleet.fleet_builder import FleetBuilder, FleetResult
from msgq.lake.fleet.fleet_tables import FLEET_TABLE_NAMES, open_fleet_table
from msgq.lake.gold.gold_files import get_stored_columns, open_gold_table, write_gold_files
from msgq.lake.gold.increment_inputs import open_inputs_table
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.message_columns import BRONZE_COLUMNS
from tests.lake.in_place import InPlaceExecutor
from tests.lake.kills import die_at, kill
from tests.lake.rows import sorted_rows

Rows = dict[str, list[tuple[Any, ...]]]
_INCREMENT_STATES = pa.table({"run": ["r"]})


def write_lake(path: Path, **rows_by_table: Iterable[dict[str, Any]]) -> None:
    """Create a lake, or replace the gold of one. Columns without a value are NULL."""
    lake = LakeDirectory(path)
    messages = open_messages_table(lake)
    if messages.read_snapshot() is None:
        messages.commit_files(None, BRONZE_COLUMNS)
    for name, rows in rows_by_table.items():
        table, columns = open_gold_table(lake, name), get_stored_columns(name)
        made = pa.Table.from_pylist([{"hour": 0} | row for row in rows], columns)
        files = write_gold_files(lake, {name: made}).get(name, [])
        table.commit_files(table.read_snapshot(), columns, files, None)
    states = open_inputs_table(lake)
    file = states.write_file(f"{uuid4().hex}.parquet", _INCREMENT_STATES)
    states.commit_files(states.read_snapshot(), _INCREMENT_STATES.schema, [file], None)


def endpoint(name: str, run: str = "r", host: str = "h", messages: int = 1, start_time: int = 0) -> dict[str, Any]:
    """Return a row of `endpoints`."""
    return {"run": run, "host": host, "endpoint": name, "messages": messages, "start_time": start_time}


def build_fleet(fleet: Path, *lakes: Path, remove_missing: bool = False) -> FleetResult:
    return FleetBuilder(fleet, InPlaceExecutor()).build_fleet(lakes, remove_missing)


def table(fleet: Path, name: str) -> pa.Table:
    snapshot = open_fleet_table(LakeDirectory(fleet), name).read_snapshot()
    assert snapshot is not None
    return snapshot.read_rows()


def rows(fleet: Path, name: str, *columns: str) -> list[tuple[Any, ...]]:
    return sorted_rows(table(fleet, name), *columns)


def tables(fleet: Path) -> Rows:
    """Return all rows of all existing tables, sorted; except the versions of gold."""
    found = {}
    for name in FLEET_TABLE_NAMES:
        if open_fleet_table(LakeDirectory(fleet), name).read_snapshot() is not None:
            columns = [column for column in table(fleet, name).column_names if column != "gold_version"]
            found[name] = rows(fleet, name, *columns)
    return found


def build_killed(fleet: str, place: int, lakes: str) -> None:
    """Build fleet tables, and die at a commit."""
    with die_at(place, kill, (LakeTable, "commit_files")):
        build_fleet(Path(fleet), Path(lakes))
