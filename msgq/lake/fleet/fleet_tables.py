"""Fleet tables: their columns, and the replacement of the rows of a lake.

FLEET/TABLE/date=2026-05-01/*.parquet     rows of a gold table of many lakes, sorted by host and run
FLEET/_lakes/date=2026-05-01/*.parquet    copied lakes, and the version of gold of each lake
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from msgq.errors import InvalidValueError
from msgq.lake.batching import pack_by_size
from msgq.lake.data_file import DataFile
from msgq.lake.delta_table import SMALL_FILE_BYTES, LakeTable, has_table
from msgq.lake.fleet.fleet_lakes import FleetLake
from msgq.lake.gold.gold_builder import GOLD_TABLE_NAMES
from msgq.lake.gold.gold_files import GOLD_TABLE_SCHEMAS, SMALL_FILES_MAX, FileReplacement, may_have_value
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.table_snapshot import TableSnapshot

#: The table of the copied lakes. Its commit is the last one of an update.
LAKES_TABLE = "_lakes"
FLEET_TABLE_NAMES = (*GOLD_TABLE_NAMES, LAKES_TABLE)
#: Compressed bytes of the input of a fleet file, about. One worker holds the rows.
FLEET_FILE_BYTES = 16 << 20

_LAKES_SCHEMA = pa.schema([("gold_version", pa.string())])
_LAKE_FIELDS = (pa.field("lake", pa.string()), pa.field("host", pa.string()))
_DATE_FIELD = pa.field("date", pa.date32())  # field in the path of a file
_SORT_COLUMNS = ("host", "run", "lake")


def get_file_columns(name: str) -> pa.Schema:
    """Return the columns of the files of a fleet table."""
    columns = _LAKES_SCHEMA if name == LAKES_TABLE else GOLD_TABLE_SCHEMAS[name]
    return pa.schema([*columns, *(field for field in _LAKE_FIELDS if field.name not in columns.names)])


def get_table_columns(name: str) -> pa.Schema:
    """Return the columns of a fleet table."""
    return get_file_columns(name).append(_DATE_FIELD)


def open_fleet_table(fleet: LakeDirectory, name: str) -> LakeTable:
    """Return a fleet table, which may not exist yet."""
    return LakeTable(fleet, name, ["date"], has_statistics=True)


def is_fleet_directory(directory: LakeDirectory) -> bool:
    """Return True if a directory has fleet tables."""
    return has_table(directory, LAKES_TABLE)


def refuse_fleet_directory(directory: LakeDirectory) -> None:
    """Raise InvalidValueError if a directory has fleet tables, and so cannot be a lake."""
    if is_fleet_directory(directory):
        raise InvalidValueError(
            f"'{directory.root}' has fleet tables, and is not a lake; give the directory of a lake, or read the fleet "
            f"tables with a Delta reader such as DuckDB or Polars, e.g. {directory.root}/endpoints"
        )


def write_fleet_file(fleet: LakeDirectory, name: str, day: date, rows: pa.Table) -> DataFile:
    """Write the rows of a date into a file of a fleet table. A later commit adds the file to the table."""
    keys = [(column, "ascending") for column in _SORT_COLUMNS if column in rows.column_names]
    path = f"date={day.isoformat()}/{uuid4().hex}.parquet"
    return open_fleet_table(fleet, name).write_file(path, rows.select(get_file_columns(name).names).sort_by(keys))


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Files of one date whose rows a worker writes again, without the rows of some lakes.

    Attributes:
        name: table.
        paths: files. The worker leaves files unchanged that have no rows of the lakes.
        stale_lakes: paths of the lakes.
        merges: whether the worker merges all files.
    """

    name: str
    day: date
    paths: list[str]
    stale_lakes: list[str]
    merges: bool


def list_rewrite_tasks(name: str, snapshot: TableSnapshot, stale_lakes: Collection[FleetLake]) -> list[RewriteTask]:
    """Return tasks for the files that may have rows of some lakes, and for the small files of dates with many.

    A lake with a date in its path has rows of this date only.
    """
    files_by_date: dict[date, list[DataFile]] = defaultdict(list)
    for file in snapshot.files_by_path.values():
        files_by_date[date.fromisoformat(file.partition_values["date"] or "")].append(file)
    lakes_by_date: dict[date | None, list[FleetLake]] = defaultdict(list)
    for lake in stale_lakes:
        lakes_by_date[lake.date].append(lake)
    return [
        task
        for day, files in files_by_date.items()
        for task in _list_tasks_of_date(name, day, files, lakes_by_date[day] + lakes_by_date[None])
    ]


def _list_tasks_of_date(
    name: str, day: date, files: list[DataFile], lakes: Collection[FleetLake]
) -> Iterator[RewriteTask]:
    small = [file for file in files if file.size_bytes < SMALL_FILE_BYTES]
    merged = small if len(small) >= SMALL_FILES_MAX else []
    paths = sorted(lake.path for lake in lakes)
    hosts = sorted({lake.host for lake in lakes if lake.host is not None})
    has_hosts = all(lake.host is not None for lake in lakes)
    checked = [
        file
        for file in files
        if file not in merged
        and may_have_value(file, "lake", paths)
        and (not has_hosts or may_have_value(file, "host", hosts))
    ]
    for group, merges in ((merged, True), (checked, False)):
        for some in pack_by_size(((file.path, file.size_bytes) for file in group), FLEET_FILE_BYTES):
            yield RewriteTask(name, day, some, paths, merges)


def rewrite_files(fleet: LakeDirectory, task: RewriteTask) -> FileReplacement:
    """Write the rows of other lakes into one new file, on a worker. Return the file, and the files that it replaces."""
    table, columns = open_fleet_table(fleet, task.name), get_file_columns(task.name)
    is_stale = pc.field("lake").isin(pa.array(task.stale_lakes, pa.string()))
    replaced = [
        path
        for path in sorted(task.paths)
        if task.merges or table.read_rows([path], columns, is_stale, ["lake"]).num_rows
    ]
    rows = table.read_rows(replaced, columns, ~is_stale)
    kept = [write_fleet_file(fleet, task.name, task.day, rows)] if rows.num_rows else []
    return FileReplacement(replaced, kept)
