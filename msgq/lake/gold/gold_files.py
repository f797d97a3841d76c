"""Files of the gold tables: which rows an update replaces, and which rows move to a new file.

A file has the rows of one or several groups. A group of an hourly table is an hour of a run, a group of a run table is
a run. The Delta log has the smallest and largest run and hour of each file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from msgq.lake.batching import pack_by_size
from msgq.lake.data_file import DataFile
from msgq.lake.delta_table import SMALL_FILE_BYTES, LakeTable
from msgq.lake.gold.gold_tables import HOURLY_SCHEMAS, RUN_SCHEMAS
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.table_snapshot import TableSnapshot

#: The columns that queries see.
GOLD_TABLE_SCHEMAS = HOURLY_SCHEMAS | RUN_SCHEMAS
_HOUR_FIELD = pa.field("hour", pa.int64())  # hours since the epoch, in hourly tables
#: Number of small files of a table before an update merges the files.
SMALL_FILES_MAX = 16
_KEPT_FILE_ROWS = 1 << 17
_READ_BYTES_MAX = 16 << 20  # compressed bytes of the files that are in memory at the same time


def open_gold_table(lake: LakeDirectory, name: str) -> LakeTable:
    """Return a gold table, which may not exist yet."""
    return LakeTable(lake, f"gold/{name}", has_statistics=True)


def get_stored_columns(name: str) -> pa.Schema:
    """Return the columns of the files of a table."""
    return GOLD_TABLE_SCHEMAS[name].append(_HOUR_FIELD) if name in HOURLY_SCHEMAS else GOLD_TABLE_SCHEMAS[name]


def write_gold_files(lake: LakeDirectory, rows_by_table: Mapping[str, pa.Table]) -> dict[str, list[DataFile]]:
    """Write a file of each table that has rows, and return the files by table.

    The rows have the columns of `get_stored_columns`.
    """
    files = {}
    for name, rows in rows_by_table.items():
        if rows.num_rows:
            files[name] = [open_gold_table(lake, name).write_file(f"{uuid4().hex}.parquet", rows)]
    return files


def find_files_of_runs(files: Iterable[DataFile], runs: Sequence[str]) -> list[DataFile]:
    """Return the files that may have rows of these runs. `runs`: sorted."""
    return [file for file in files if may_have_value(file, "run", runs)]


def may_have_value(file: DataFile, column: str, values: Sequence[str]) -> bool:
    """Return whether a file may have a row with one of these values. `values`: sorted."""
    first, last = file.column_bounds.get(column, (None, None))
    if first is None or last is None:
        return True
    index = bisect_left(values, first)
    return index < len(values) and values[index] <= last


@dataclass(frozen=True)
class FileReplacement:
    """Files that an update removes from a table, and files of the rows that stay.

    Attributes:
        removed_paths: paths of the removed files.
        kept_files: files with the rows of other groups in the removed files.
    """

    removed_paths: list[str] = field(default_factory=list)
    kept_files: list[DataFile] = field(default_factory=list)


def replace_groups(
    table: LakeTable, name: str, base: TableSnapshot | None, stale: Mapping[str, Collection[int]]
) -> FileReplacement:
    """Write the rows that stay in files with stale groups, and return the files that go.

    An update also merges the small files of a table with many of them.

    Args:
        stale: hours whose rows an update replaces, by run. All rows of these runs go from a run table.
    """
    files = [] if base is None else list(base.files_by_path.values())
    runs = sorted(stale)
    removed = {
        file.path: file
        for file in files
        if may_have_value(file, "run", runs) and _has_hour(file, stale) and _has_stale_rows(table, file, name, stale)
    }
    small = [file for file in files if _is_small_file(file) and file.path not in removed]
    if len(small) >= SMALL_FILES_MAX:
        removed |= {file.path: file for file in small}
    read = sorted((file for file in removed.values() if not _is_stale_group(file, name, stale)), key=_get_group_order)
    kept_files: list[DataFile] = []
    for group in pack_by_size(((file.path, file.size_bytes) for file in read), _READ_BYTES_MAX):
        rows = _drop_stale_rows(table.read_rows(group, get_stored_columns(name)), name, stale)
        kept_files += _write_kept_rows(table, name, rows)
    return FileReplacement(list(removed), kept_files)


def _is_small_file(file: DataFile) -> bool:
    """Return whether the rows of a file may share a new file with other rows."""
    return file.size_bytes < SMALL_FILE_BYTES and file.row_count < _KEPT_FILE_ROWS


def _get_group_order(file: DataFile) -> tuple[str, int, str]:
    """Return a sort key that brings files with rows of one run together."""
    return file.column_bounds.get("run", ("",))[0], file.column_bounds.get("hour", (0,))[0], file.path


def _has_stale_rows(table: LakeTable, file: DataFile, name: str, stale: Mapping[str, Collection[int]]) -> bool:
    """Return whether a file has rows that go. For a file of several groups, the columns of its groups are read."""
    if _is_stale_group(file, name, stale):
        return True
    columns = get_stored_columns(name)
    keys = ["run"] if name in RUN_SCHEMAS else ["run", _HOUR_FIELD.name]
    rows = table.read_rows([file.path], columns, names=keys)
    return bool(_drop_stale_rows(rows, name, stale).num_rows < rows.num_rows)


def _write_kept_rows(table: LakeTable, name: str, rows: pa.Table) -> list[DataFile]:
    """Write rows that stay, in the order of their groups, so that each file has few runs."""
    keys = ["run"] if name in RUN_SCHEMAS else ["run", _HOUR_FIELD.name]
    rows = rows.sort_by([(key, "ascending") for key in keys])
    parts = (rows.slice(start, _KEPT_FILE_ROWS) for start in range(0, rows.num_rows, _KEPT_FILE_ROWS))
    return [table.write_file(f"{uuid4().hex}.parquet", part) for part in parts]


def _has_hour(file: DataFile, stale: Mapping[str, Collection[int]]) -> bool:
    """Return whether a file may have rows of a stale hour; True for files without hours or with several runs."""
    run, last_run = file.column_bounds.get("run", (None, None))
    first, last = file.column_bounds.get("hour", (None, None))
    if run != last_run or run is None or first is None or last is None:
        return True
    return any(first <= hour <= last for hour in stale.get(run, ()))


def _is_stale_group(file: DataFile, name: str, stale: Mapping[str, Collection[int]]) -> bool:
    """Return whether a file has rows of one stale group only, so that no row stays."""
    run, last_run = file.column_bounds.get("run", (None, None))
    if run is None or run != last_run or run not in stale:
        return False
    first, last = file.column_bounds.get("hour", (None, None))
    return name in RUN_SCHEMAS or (first is not None and first == last and first in stale[run])


def _drop_stale_rows(rows: pa.Table, name: str, stale: Mapping[str, Collection[int]]) -> pa.Table:
    if not rows.num_rows:
        return rows
    if name in RUN_SCHEMAS:
        is_stale = pc.is_in(rows.column("run"), pa.array(sorted(stale), pa.string()))
    else:
        keys = pc.binary_join_element_wise(rows.column("hour").cast(pa.string()), rows.column("run"), " ")
        groups = [f"{hour} {run}" for run, hours in stale.items() for hour in hours]
        is_stale = pc.is_in(keys, pa.array(groups, pa.string()))
    return rows.filter(pc.invert(is_stale))
