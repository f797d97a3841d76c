"""A Delta table of a lake. Workers write its files, and this module commits them atomically.

A reader uses a snapshot: the files of one version. Later commits do not change or remove these files, only `vacuum`
does. A writer names the snapshot on which its work is based. If another writer has committed since, `commit_files`
raises an error, and the writer repeats its work. Therefore any number of processes may read and write at the same time,
on any storage that delta-rs supports.

Format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    PostCommitHookProperties,
    RemoveAction,
    Transaction,
    create_table_with_add_actions,
)
from pyarrow.dataset import dataset
from pyarrow.fs import FileSystem, FileType, LocalFileSystem, SubTreeFileSystem

from msgq.errors import InvalidValueError, RecordingError
from msgq.lake.data_file import DataFile, make_add_action, make_remove_action
from msgq.lake.file_statistics import collect_statistics
from msgq.lake.lake_directory import FILE_URI_PREFIX, LakeDirectory, sync_path

_TRANSACTION_APPLICATION_ID = (
    "msgq"  # the application id of our commits: of two on one snapshot, the second one is refused
)
_DELTA_LOG_DIRECTORY = "_delta_log"
_UNSUPPORTED_PATH_PATTERN = re.compile(
    r"\\|%[0-9A-Fa-f]{2}"
)  # in paths of a disk: delta-rs takes them for something else
#: A file of less may be put together with others.
SMALL_FILE_BYTES = 1 << 20
_SMALL_FILES_MAX = 64  # that are left beside each other
_MERGED_FILE_PREFIX = "merged-"
_ZSTD_LEVEL = 9  # of zstd: they are small, and are read more often than written
#: What delta-rs does behind a commit may fail, which would look as if the commit had: checkpoints are made here.
_NO_POST_COMMIT_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_VERSIONS_PER_CHECKPOINT = 100  # versions from one checkpoint to the next
_UNSYNCED_LOG_ENTRIES_MAX = (
    3  # writers in a row that have committed, and were stopped before the disk had their entries
)
_SYNC_THREADS_MAX = 8  # at a time: a disk writes them together
_ROW_GROUP_ROWS = 1 << 16  # of a row group that `write` makes: of a file of many parts a reader wants few


class CommitConflictError(RecordingError):
    """Another writer has committed since the base snapshot. Read the new snapshot, and try again."""


class TableSnapshot:
    """One version of a table. Any thread may use it."""

    def __init__(self, delta: DeltaTable, files: FileSystem) -> None:
        """Set the version. `files`: file system of the table's directory."""
        self._delta, self._files = delta, files

    @property
    def version(self) -> int:
        """Number of the commit that created the version."""
        return self._delta.version()

    @cached_property
    def columns(self) -> pa.Schema:
        """Columns of the table, including partition columns."""
        return pa.schema(self._delta.schema().to_arrow())

    @cached_property
    def _add_actions(self) -> pa.Table:
        return pa.table(self._delta.get_add_actions(flatten=True))

    def find_paths(self, column_bounds: Mapping[str, tuple[Any, Any]]) -> list[str]:
        """Return the paths of the files that may have a row with values in these bounds.

        A file without statistics of a column may have any value.

        Parameters
        ----------
        column_bounds : smallest and largest wanted value of columns, both included; None: no bound.
        """
        adds = self._add_actions
        for column, (low, high) in column_bounds.items():
            for statistic, bound, compare in (("max", low, pc.greater_equal), ("min", high, pc.less_equal)):
                if bound is not None and (name := f"{statistic}.{column}") in adds.column_names:
                    adds = adds.filter(pc.fill_null(compare(adds.column(name), pa.scalar(bound)), True))
        paths: list[str] = adds.column("path").to_pylist()
        return paths

    @cached_property
    def paths(self) -> list[str]:
        """Paths of the files."""
        paths: list[str] = self._add_actions.column("path").to_pylist()
        return paths

    @cached_property
    def files_by_path(self) -> dict[str, DataFile]:
        """Files by path."""
        adds = self._add_actions
        names = [name for name in adds.column_names if name.startswith("partition.")]
        bounded = [name.removeprefix("min.") for name in adds.column_names if name.startswith("min.")]
        bounds = [f"{statistic}.{name}" for name in bounded for statistic in ("min", "max")]
        actions = adds.select(["path", "size_bytes", "num_records", *names, *bounds]).to_pylist()
        return {
            row["path"]: DataFile(
                row["path"],
                row["size_bytes"],
                {name.removeprefix("partition."): _format_optional_text(row[name]) for name in names},
                row["num_records"] or 0,
                {
                    name: (row[f"min.{name}"], row[f"max.{name}"])
                    for name in bounded
                    if row[f"min.{name}"] is not None and row[f"max.{name}"] is not None
                },
            )
            for row in actions
        }

    def open_dataset(self) -> ds.Dataset:
        """Return the rows as a dataset, for reading in batches, for example with DuckDB or Polars."""
        # Not by delta-rs' own file system, which is Python's: a thread of Arrow that gives a file back while Python is
        # ending aborts the process.
        rows: ds.Dataset = self._delta.to_pyarrow_dataset(filesystem=self._files)
        return rows

    def read_rows(self, columns: Sequence[str] | None = None, where: Any = None) -> pa.Table:
        """Return all rows, for small tables. `where`: an expression of `pyarrow.dataset.field`."""
        return self.open_dataset().to_table(columns=columns, filter=where)

    @property
    def commit_number(self) -> int:
        """Number of msgq's commits, without compactions; -1: none."""
        number = self._delta.transaction_version(_TRANSACTION_APPLICATION_ID)
        return -1 if number is None else number


class LakeTable:
    """A table that may not exist yet. One thread at a time."""

    def __init__(
        self, lake: LakeDirectory, place: str, partitions: Sequence[str] = (), has_statistics: bool = False
    ) -> None:
        """Set the location of a table.

        Parameters
        ----------
        place : directory in the lake.
        partitions : columns that are in the paths, as folders NAME=VALUE.
        has_statistics : whether the Delta log gets the statistics of each file.

        Raises
        ------
        InvalidValueError : the lake is on a disk, and its path contains a backslash, or % and two hexadecimal digits.
        """
        self.lake, self.place, self.partitions = lake, place, list(partitions)
        self._has_statistics = has_statistics
        self._is_local = isinstance(lake.files, LocalFileSystem)
        self._uri = f"{lake.uri}/{place}"
        if self._is_local:
            path = lake.resolve_path(place)
            if unsupported := _UNSUPPORTED_PATH_PATTERN.search(path):
                raise InvalidValueError(
                    f"lake folder '{lake.root}' cannot be used: its path contains {unsupported[0]!r}; rename the folder"
                )
            self._uri = f"{FILE_URI_PREFIX}{quote(path)}"

    def read_snapshot(self, version: int | None = None) -> TableSnapshot | None:
        """Return the current version of the table, or the given version; None: the table does not exist.

        Raises
        ------
        RecordingError : the version no longer exists, or the log cannot be read.
        """
        try:
            return self._wrap_delta_table(DeltaTable(self._uri, version=version))
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            if self._remove_torn_log_entry():
                return self.read_snapshot(version)
            wanted = ""
            if version is not None:
                wanted, newest = f" in version {version}", self.read_snapshot()
                if newest is not None and newest.version < version:
                    raise RecordingError(
                        f"table '{self._table_path}' has no such version; its newest version is {newest.version}"
                    ) from None
            raise RecordingError(
                f"table '{self._table_path}'{wanted} cannot be read: {_get_first_line(error)}"
            ) from None

    def _wrap_delta_table(self, delta: DeltaTable) -> TableSnapshot:
        return TableSnapshot(delta, SubTreeFileSystem(self._table_path, self.lake.files))

    def _remove_torn_log_entry(self) -> bool:
        """Remove the newest log entry if a power failure has left it empty.

        The commit of such an entry never succeeded.
        """
        with suppress(OSError):  # it is not ours
            entries = self._list_log_entries() if self._is_local else []
            if entries and not os.path.getsize(newest := self.resolve_file_path(entries[-1])):
                os.remove(newest)
                return True
        return False

    def _list_log_entries(self) -> list[str]:
        names = self.lake.list_entry_names(f"{self.place}/{_DELTA_LOG_DIRECTORY}", FileType.File)
        return [f"{_DELTA_LOG_DIRECTORY}/{name}" for name in names if name.endswith(".json")]

    @property
    def _table_path(self) -> str:
        return self.lake.resolve_path(self.place)

    def resolve_file_path(self, path: str) -> str:
        """Return the path of a file in the lake's file system."""
        return self.lake.resolve_path(f"{self.place}/{path}")

    def describe_file(self, path: str, about: pq.FileMetaData) -> DataFile:
        """Return the description of a file that was written into the table's directory.

        `about`: its Parquet metadata.
        """
        info = self.lake.files.get_file_info(self.resolve_file_path(path))
        parted = dict(folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder)
        statistics = collect_statistics(about) if self._has_statistics else ({}, {})
        return DataFile(path, info.size, {name: parted[name] for name in self.partitions}, about.num_rows, *statistics)

    def write_file(self, path: str, rows: pa.Table) -> DataFile:
        """Write a file into the table's directory. A later commit adds the file to the table."""
        self.lake.files.create_dir(self.resolve_file_path(path).rpartition("/")[0])
        about: list[pq.FileMetaData] = []
        options = _choose_parquet_options(rows.schema) | {"metadata_collector": about}
        pq.write_table(rows, self.resolve_file_path(path), filesystem=self.lake.files, **options)
        return self.describe_file(path, about[0])

    def append_rows(self, rows: pa.Table) -> None:
        """Add rows that do not depend on the table's content. Raises RecordingError if the table cannot be written."""
        file = self.write_file(f"{uuid4().hex}.parquet", rows)
        while True:
            base = self.read_snapshot()
            merged, small = self.merge_small_files(base, rows.schema)
            with suppress(CommitConflictError):
                self.commit_files(base, rows.schema, [file, *merged], small)
                return

    def merge_small_files(self, base: TableSnapshot | None, columns: pa.Schema) -> tuple[list[DataFile], list[str]]:
        """If a snapshot has many small files, write one file with their rows. For tables without partitions.

        Returns
        -------
        The new file, and the paths of the small files.
        """
        small = (
            []
            if base is None
            else [file.path for file in base.files_by_path.values() if file.size_bytes < SMALL_FILE_BYTES]
        )
        if len(small) < _SMALL_FILES_MAX:
            return [], []
        return [self.merge_files(small, columns)], small

    def merge_files(self, paths: Iterable[str], columns: pa.Schema, where: Any = None) -> DataFile:
        """Write a file with the rows of other files, without a commit. `where`: condition for rows; None: all rows."""
        return self.write_file(f"{_MERGED_FILE_PREFIX}{uuid4().hex}.parquet", self.read_rows(paths, columns, where))

    def read_rows(
        self, paths: Iterable[str], columns: pa.Schema, where: Any = None, names: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the rows of files, read in this process.

        columns : columns of the files. where : condition for rows; None: all. names : columns to return; None: all.
        """
        places = [self.resolve_file_path(path) for path in paths]
        if not places:
            return columns.empty_table().select(names or columns.names)
        source = dataset(places, schema=columns, format="parquet", filesystem=self.lake.files)
        return source.to_table(columns=names, filter=where)

    def commit_files(
        self,
        base: TableSnapshot | None,
        columns: pa.Schema,
        add: Iterable[DataFile] = (),
        remove: Iterable[str] | None = (),
    ) -> None:
        """Change the table atomically.

        Parameters
        ----------
        base : base snapshot of this change; None: the table does not exist yet.
        columns : all columns after the change, including partition columns. Columns may be added. If a column is
            removed or changes its type, `remove` must be None.
        add : files in the table's directory. Files that the table already has are ignored.
        remove : paths of `base`; None: all files, so that `add` has all files of the table, and only new ones.

        Raises
        ------
        CommitConflictError : another writer has committed since `base`. The table is unchanged, except for added
            columns.
        RecordingError : the table cannot be written.
        """
        add = list(add)
        self.sync_files(file.path for file in add)
        removed = [] if base is None else list(base.paths if remove is None else remove)
        self._write_commit(base, columns, add, removed, remove is None)
        # Others may have committed before, on which this rests, and may not have come to this yet.
        version = 0 if base is None else max(0, base.version - _UNSYNCED_LOG_ENTRIES_MAX)
        since = f"{_DELTA_LOG_DIRECTORY}/{version:020}.json"
        self.sync_files(entry for entry in self._list_log_entries() if entry >= since)

    def sync_files(self, paths: Iterable[str]) -> None:
        """Sync files and the folders on their paths to the disk, so that they survive a power failure."""
        if not self._is_local:
            return
        places = set()
        for path in paths:
            place = self.resolve_file_path(path)
            while len(place) > len(self.lake.root):
                places.add(place)
                place = place.rpartition("/")[0]
            places |= {place, os.path.dirname(place)}  # which has the lake's own name
        with ThreadPoolExecutor(_SYNC_THREADS_MAX) as pool:
            list(pool.map(sync_path, places))

    def _write_commit(
        self, base: TableSnapshot | None, columns: pa.Schema, add: list[DataFile], remove: list[str], replaces_all: bool
    ) -> None:
        schema = Schema.from_arrow(columns)
        how: dict[str, Any] = {
            "commit_properties": CommitProperties(
                app_transactions=[
                    Transaction(_TRANSACTION_APPLICATION_ID, 0 if base is None else base.commit_number + 1)
                ]
            ),
            "post_commithook_properties": _NO_POST_COMMIT_HOOKS,
        }
        try:
            if base is None:
                adds = list(map(make_add_action, add))
                create_table_with_add_actions(self._uri, schema, adds, "error", self.partitions, **how)
                return
            present = set() if replaces_all else set(base.paths)
            actions: list[AddAction | RemoveAction] = [
                make_add_action(file) for file in add if file.path not in present
            ]
            actions += [make_remove_action(base.files_by_path[path]) for path in remove if path in present]
            delta = base._delta if replaces_all else self._add_missing_columns(base, schema)
            mode = "overwrite" if replaces_all else "append"
            delta.create_write_transaction(actions, mode, schema, self.partitions, **how)
        except (DeltaError, OSError) as error:
            self._resolve_failed_commit(base, add, remove, error)
            return
        if (delta.version() + 1) % _VERSIONS_PER_CHECKPOINT == 0:
            with suppress(DeltaError, OSError):  # the commit counts without it
                self._write_checkpoint(DeltaTable(self._uri))

    def _resolve_failed_commit(
        self, base: TableSnapshot | None, add: list[DataFile], remove: list[str], error: Exception
    ) -> None:
        """Raise the error of a failed commit. If the commit succeeded in spite of an error, do nothing."""
        now = self.read_snapshot()
        if now is None or (base is not None and now.version == base.version):
            raise RecordingError(f"table '{self._table_path}' cannot be written: {_get_first_line(error)}") from None
        if not (add and {file.path for file in add} <= set(now.paths) and set(now.paths).isdisjoint(remove)):
            raise CommitConflictError(
                f"table '{self._table_path}' was written by another process at the same time"
            ) from None

    def _write_checkpoint(self, delta: DeltaTable) -> None:
        """Write the state of the table into one file, so that readers need not read each log entry."""
        delta.create_checkpoint()
        names = self.lake.list_entry_names(f"{self.place}/{_DELTA_LOG_DIRECTORY}", FileType.File)
        made = (name for name in names if name.startswith((f"{delta.version():020}.checkpoint", "_last_checkpoint")))
        self.sync_files(f"{_DELTA_LOG_DIRECTORY}/{name}" for name in made)

    def vacuum(self, retain_hours: int) -> None:
        """Remove files that no snapshot of the last `retain_hours` hours uses, and unneeded log entries.

        Older snapshots lose their files. Writers lose files of this age that they have not committed.
        """
        snapshot = self.read_snapshot()
        if snapshot is None:
            return
        snapshot._delta.vacuum(
            retain_hours,
            dry_run=False,
            enforce_retention_duration=False,
            post_commithook_properties=_NO_POST_COMMIT_HOOKS,
            full=True,
        )
        self.sync_files(self._list_log_entries()[-_UNSYNCED_LOG_ENTRIES_MAX:])
        delta = DeltaTable(self._uri)
        self._write_checkpoint(delta)  # which the disk must have before the entries go
        delta.cleanup_metadata()

    def _add_missing_columns(self, base: TableSnapshot, schema: Schema) -> DeltaTable:
        """Return the table of a snapshot, with the missing columns added."""
        missing = [field for field in schema.fields if field.name not in base.columns.names]
        if not missing:
            return base._delta
        delta = DeltaTable(self._uri, version=base.version)
        delta.alter.add_columns(missing, post_commithook_properties=_NO_POST_COMMIT_HOOKS)
        grown = self._wrap_delta_table(DeltaTable(self._uri))
        if grown.commit_number != base.commit_number:
            raise CommitConflictError(f"table '{self._table_path}' was written by another process at the same time")
        return grown._delta


def has_table(lake: LakeDirectory, place: str) -> bool:
    """Return True if a table exists at a location."""
    return lake.has_entry(f"{place}/{_DELTA_LOG_DIRECTORY}")


def list_table_paths(lake: LakeDirectory, below: str = "") -> list[str]:
    """Return the paths of all tables of a lake."""
    places = []
    for name in lake.list_entry_names(below, FileType.Directory):
        place = f"{below}/{name}".lstrip("/")
        if has_table(lake, place):
            places.append(place)
        elif not name.startswith("_") and "=" not in name:
            places += list_table_paths(lake, place)
    return places


def is_merged_file(path: str) -> bool:
    """Return True if a file has the rows of several files."""
    return path.startswith(_MERGED_FILE_PREFIX)


def _get_first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _choose_parquet_options(columns: pa.Schema) -> dict[str, Any]:
    """Return Parquet options for small files: differences of times, and dictionaries for repeated values."""
    times = [field.name for field in columns if field.name.endswith("time")]
    lists = [leaf for field in columns if pa.types.is_list(field.type) for leaf in _list_leaf_columns(field)]
    dictionary_columns = [
        field.name for field in columns if field.name not in times and not pa.types.is_nested(field.type)
    ]
    return {
        "compression": "zstd",
        "compression_level": _ZSTD_LEVEL,
        "use_dictionary": dictionary_columns + lists,
        "column_encoding": dict.fromkeys(times, "DELTA_BINARY_PACKED"),
        "row_group_size": _ROW_GROUP_ROWS,
        "store_schema": False,
    }


def _list_leaf_columns(column: pa.Field) -> list[str]:
    item_type = column.type.value_type
    names = [f".{field.name}" for field in item_type] if pa.types.is_struct(item_type) else [""]
    return [f"{column.name}.list.element{name}" for name in names]


def _format_optional_text(value: Any) -> str | None:
    return None if value is None else str(value)
