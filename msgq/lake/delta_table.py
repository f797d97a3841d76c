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
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    RemoveAction,
    Transaction,
    create_table_with_add_actions,
)
from pyarrow.dataset import dataset
from pyarrow.fs import FileType, LocalFileSystem, SubTreeFileSystem

from msgq.common.handler_errors import raise_handler_error
from msgq.common.storage.store_errors import explain_error, translate_store_errors
from msgq.common.storage.urls import translate_scheme
from msgq.errors import InvalidValueError, RecordingError, StorageError
from msgq.lake.batching import combine_batches
from msgq.lake.data_file import DataFile, make_add_action, make_remove_action
from msgq.lake.delta_log import LOG_DIRECTORY, NO_ENTRY, DeltaLog, LogEntryState, make_entry_path
from msgq.lake.file_statistics import collect_statistics
from msgq.lake.lake_directory import LakeDirectory, sync_path
from msgq.lake.log_retention import (
    NEW_TABLE_RETAIN_HOURS,
    NO_POST_COMMIT_HOOKS,
    get_checkpoint_interval,
    make_retention_property,
    set_log_retention,
)
from msgq.lake.parquet_options import choose_parquet_options
from msgq.lake.table_features import check_table_is_readable, check_table_is_writable
from msgq.lake.table_head import TableHead, make_append_entry
from msgq.lake.table_snapshot import TRANSACTION_APPLICATION_ID, TableSnapshot
from msgq.lake.text_columns import TextColumn

_UNSUPPORTED_PATH_PATTERN = re.compile(
    r"\\|%[0-9A-Fa-f]{2}"
)  # in paths of a disk: delta-rs takes them for something else
#: A file of less may be put together with others.
SMALL_FILE_BYTES = 1 << 20
_SMALL_FILES_MAX = 64  # small files that may stay side by side
_MERGED_FILE_PREFIX = "merged-"
#: Prefixes of files with rows of several files: our files, and the files that Spark and delta-rs write for OPTIMIZE.
_MERGED_FILE_PREFIXES = (_MERGED_FILE_PREFIX, "part-")
_UNSYNCED_LOG_ENTRIES_MAX = (
    3  # writers in a row that have committed, and were stopped before the disk had their entries
)
_SYNC_THREADS_MAX = 8  # files that are synced at the same time
_ROW_GROUP_ROWS = 1 << 16  # rows of a row group in `write`: readers need few parts of a large file
_ROW_GROUP_BYTES = 32 << 20  # uncompressed
_MERGED_FILE_ROWS_MAX = 1 << 22  # a merged file can exceed the limit by one row group
_MERGED_FILE_BYTES_MAX = 1 << 30  # uncompressed


class CommitConflictError(RecordingError):
    """Another writer has committed since the base snapshot. Read the new snapshot, and try again."""


class LakeTable:
    """A table that may not exist yet. One thread at a time.

    Attributes:
        lake: directory of the lake.
        place: path of the table's directory in it.
        partitions: columns that are in the paths.
        log: log of the table.
    """

    def __init__(
        self, lake: LakeDirectory, place: str, partitions: Sequence[str] = (), has_statistics: bool = False
    ) -> None:
        """Set the location of a table.

        Args:
            place: directory in the lake.
            partitions: columns that are in the paths, as folders NAME=VALUE.
            has_statistics: whether the Delta log gets the statistics of each file.

        Raises:
            InvalidValueError: the path of the lake contains a backslash, or % and two hexadecimal digits.
        """
        self.lake, self.place, self.partitions = lake, place, list(partitions)
        self._has_statistics = has_statistics
        self.log = DeltaLog(lake, place)
        self._is_local = isinstance(lake.files, LocalFileSystem)
        self._newest: TableSnapshot | None = None
        self._newest_entry: LogEntryState = NO_ENTRY
        if unsupported := _UNSUPPORTED_PATH_PATTERN.search(lake.root):
            raise InvalidValueError(
                f"lake folder '{lake.root}' cannot be used: its path contains {unsupported[0]!r}; rename the folder"
            )
        scheme, _, path = lake.uri.partition("://")
        root, slash, path = path.partition("/")
        self._uri = f"{translate_scheme(scheme)}://{root}{slash}{quote(path)}/{quote(place)}"
        self._storage_options = lake.storage_options

    @translate_store_errors()
    def read_snapshot(self, version: int | None = None) -> TableSnapshot | None:
        """Return the current version of the table, or the given version; None: the table does not exist.

        The table keeps the current version, and reads the log again only after another commit.

        Raises:
            RecordingError: the version no longer exists, the log cannot be read, or another program gave the table a
                feature that msgq cannot read.
        """
        if version is not None:
            return self._load_snapshot(version)
        if self._newest is None or not self._is_newest_version(self._newest.version):
            self._newest = None  # to free its memory before the next version is loaded
            self._newest = self._load_snapshot(None)
            if self._newest is not None:
                self._newest_entry = self.log.describe_entry(self._newest.version)
        return self._newest

    def _is_newest_version(self, version: int) -> bool:
        """Return whether the log entry of a loaded version is unchanged, and no entry follows."""
        entry, following = (self.log.describe_entry(number) for number in (version, version + 1))
        return entry == self._newest_entry != NO_ENTRY and following == NO_ENTRY

    def _load_snapshot(self, version: int | None) -> TableSnapshot | None:
        try:
            return self._wrap_delta_table(self._open_delta_table(version))
        except TableNotFoundError:
            if version is not None and (missing := self.log.explain_missing_version(version)):
                raise RecordingError(f"table '{self._table_path}' {missing}") from None
            return None
        except (DeltaError, OSError) as error:
            raise_handler_error(error)
            if self.log.remove_torn_entry():
                return self._load_snapshot(version)
            reason = f"cannot be read: {explain_error(error, self._storage_options)}"
            if version is not None:
                reason = self.log.explain_missing_version(version) or f"in version {version} {reason}"
            raise RecordingError(f"table '{self._table_path}' {reason}") from None

    def _open_delta_table(self, version: int | None = None) -> DeltaTable:
        return DeltaTable(self._uri, version=version, storage_options=self._storage_options)

    def _wrap_delta_table(self, delta: DeltaTable) -> TableSnapshot:
        check_table_is_readable(delta, self._table_path)
        return TableSnapshot(delta, SubTreeFileSystem(self._table_path, self.lake.files))

    @property
    def _table_path(self) -> str:
        return self.lake.resolve_path(self.place)

    def resolve_file_path(self, path: str) -> str:
        """Return the path of a file in the lake's file system."""
        return self.lake.resolve_path(f"{self.place}/{path}")

    def create_folder_of(self, path: str) -> None:
        """Create the folder of a new file, unless the store has no folders."""
        self.lake.create_folder(f"{self.place}/{path}".rpartition("/")[0])

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
        self.create_folder_of(path)
        about: list[pq.FileMetaData] = []
        group_rows = _limit_row_count(rows.num_rows, rows.nbytes)
        options = choose_parquet_options(rows.schema) | {"row_group_size": group_rows}
        pq.write_table(
            rows, self.resolve_file_path(path), filesystem=self.lake.files, metadata_collector=about, **options
        )
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
        """If a snapshot has many small files, write large files with their rows. For tables without partitions.

        Returns:
            The new files, and the paths of the small files.
        """
        small = [] if base is None else [file.path for file in base.describe_files(size_limit=SMALL_FILE_BYTES)]
        if len(small) < _SMALL_FILES_MAX:
            return [], []
        return self.merge_files(small, columns), small

    def merge_files(self, paths: Iterable[str], columns: pa.Schema, where: Any = None) -> list[DataFile]:
        """Write files with the rows of other files, without a commit. The memory does not grow with the rows.

        `where`: condition for rows; None: all rows.
        """
        row_groups = combine_batches(self._read_batches(paths, columns, where), _ROW_GROUP_ROWS, _ROW_GROUP_BYTES)
        return [self._write_merged_file(chain([first], row_groups)) for first in row_groups]

    def _read_batches(self, paths: Iterable[str], columns: pa.Schema, where: Any) -> Iterator[pa.RecordBatch]:
        for path in paths:  # one dataset of all paths would read many files ahead
            source = dataset([self.resolve_file_path(path)], schema=columns, filesystem=self.lake.files)
            for file in source.get_fragments():
                for group in file.split_by_row_group():
                    about = group.row_groups[0]
                    batch_rows = _limit_row_count(about.num_rows, about.total_byte_size)
                    yield from group.to_batches(
                        schema=columns, filter=where, batch_size=batch_rows, batch_readahead=1, use_threads=False
                    )

    def _write_merged_file(self, row_groups: Iterator[pa.Table]) -> DataFile:
        """Write row groups into a file until the file is large, and return its description."""
        path, about = f"{_MERGED_FILE_PREFIX}{uuid4().hex}.parquet", list[pq.FileMetaData]()
        first = next(row_groups)
        row_count = byte_count = 0
        with pq.ParquetWriter(
            self.resolve_file_path(path),
            first.schema,
            filesystem=self.lake.files,
            metadata_collector=about,
            **choose_parquet_options(first.schema),
        ) as writer:
            for rows in chain([first], row_groups):
                writer.write_table(rows)
                row_count, byte_count = row_count + rows.num_rows, byte_count + rows.nbytes
                if row_count >= _MERGED_FILE_ROWS_MAX or byte_count >= _MERGED_FILE_BYTES_MAX:
                    break
        return self.describe_file(path, about[0])

    def read_rows(
        self, paths: Iterable[str], columns: pa.Schema, where: Any = None, names: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the rows of files, read in this process.

        `columns`: columns of the files. `where`: condition for rows; None: all. `names`: columns to return; None: all.
        """
        places = [self.resolve_file_path(path) for path in paths]
        if not places:
            return columns.empty_table().select(names or columns.names)
        source = dataset(places, schema=columns, format="parquet", filesystem=self.lake.files)
        return source.to_table(columns=names, filter=where)

    def commit_files(
        self,
        base: TableSnapshot | TableHead | None,
        columns: pa.Schema,
        add: Iterable[DataFile] = (),
        remove: Iterable[str] | None = (),
    ) -> None:
        """Change the table atomically.

        Args:
            base: base snapshot of this change; None: the table does not exist yet. A head: the change only adds files
                that are new, and no columns.
            columns: all columns after the change, including partition columns. Columns may be added. If a column is
                removed or changes its type, `remove` must be None.
            add: files in the table's directory. Files that the table already has are ignored.
            remove: paths of `base`; None: all files, so that `add` has all files of the table, and only new ones.

        Raises:
            CommitConflictError: another writer has committed since `base`. The table is unchanged, except for added
                columns.
            RecordingError: the table cannot be written.
        """
        add = list(add)
        self.sync_files(file.path for file in add)
        if isinstance(base, TableHead):
            self._append_to_log(base, add)
        else:
            self._write_commit(base, columns, add, None if remove is None else list(remove))
        if not self._is_local:
            return
        # This commit depends on commits of other processes, which they may not have synced yet.
        version = 0 if base is None else max(0, base.version - _UNSYNCED_LOG_ENTRIES_MAX)
        existing = 0 if base is None else base.version
        self.sync_files(map(make_entry_path, self.log.list_versions_since(version, existing)))

    def _append_to_log(self, head: TableHead, add: Sequence[DataFile]) -> None:
        version = head.version + 1
        try:
            is_created = self.log.create_entry(version, make_append_entry(head, add, self.partitions))
        except OSError as error:
            raise_handler_error(error)
            raise RecordingError(f"table '{self._table_path}' cannot be written: {error}") from None
        if not is_created:
            raise self._make_conflict_error()
        with suppress(StorageError):  # the commit counts without a checkpoint
            if self.log.read_checkpoint_version() <= version - 2 * get_checkpoint_interval(version):
                self._write_due_checkpoint(version)  # it loads the list of all files, so `optimize` writes most

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
            places |= {place, os.path.dirname(place)}  # the parent has the lake's own name
        with ThreadPoolExecutor(_SYNC_THREADS_MAX) as pool:
            list(pool.map(sync_path, places))

    def _write_commit(
        self, base: TableSnapshot | None, columns: pa.Schema, add: list[DataFile], remove: list[str] | None
    ) -> None:
        if base is not None:
            check_table_is_writable(base.delta_table, self._table_path)
        schema = Schema.from_arrow(columns)
        number = 0 if base is None else base.commit_number + 1
        commit_info: dict[str, Any] = {
            "commit_properties": CommitProperties(
                # If two processes create the table, delta-rs would commit the second as version 1, without a conflict
                max_commit_retries=0 if base is None else None,
                app_transactions=[Transaction(TRANSACTION_APPLICATION_ID, number)],
            ),
            "post_commithook_properties": NO_POST_COMMIT_HOOKS,
        }
        try:
            if base is None:
                adds = list(map(make_add_action, add))
                commit_info["configuration"] = make_retention_property(NEW_TABLE_RETAIN_HOURS)
                commit_info["storage_options"] = self._storage_options
                create_table_with_add_actions(self._uri, schema, adds, "error", self.partitions, **commit_info)
                return
            if remove is None:
                delta, mode = base.delta_table, "overwrite"
                actions: list[AddAction | RemoveAction] = list(map(make_add_action, add))
            else:
                delta, mode = self._add_missing_columns(base, schema), "append"
                present = set(base.select_existing_paths(file.path for file in add))
                actions = [make_add_action(file) for file in add if file.path not in present]
                actions += map(make_remove_action, base.describe_files(remove))
            delta.create_write_transaction(actions, mode, schema, self.partitions, **commit_info)
        except (DeltaError, OSError) as error:
            raise_handler_error(error)
            removed = [] if base is None else base.path_column if remove is None else remove
            self._resolve_failed_commit(base, add, removed, error)
            return
        self._write_due_checkpoint(delta.version() + 1)

    def _write_due_checkpoint(self, version: int) -> None:
        if version % get_checkpoint_interval(version) == 0:
            try:
                self._write_checkpoint(self._open_delta_table())
            except (DeltaError, OSError, StorageError) as error:  # the commit counts without it
                raise_handler_error(error)

    def _resolve_failed_commit(
        self, base: TableSnapshot | None, add: list[DataFile], removed: list[str] | TextColumn, error: Exception
    ) -> None:
        """Raise the error of a failed commit. If the commit succeeded in spite of an error, do nothing."""
        now = self.read_snapshot()
        if now is None or (base is not None and now.version == base.version):
            text = f"table '{self._table_path}' cannot be written: {explain_error(error, self._storage_options)}"
            raise RecordingError(text) from None
        added = {file.path for file in add}
        is_committed = bool(added) and added == set(now.select_existing_paths(added))
        if not is_committed or now.select_existing_paths(removed):
            raise self._make_conflict_error() from None

    def _make_conflict_error(self) -> CommitConflictError:
        return CommitConflictError(f"table '{self._table_path}' was written by another process at the same time")

    def _write_checkpoint(self, delta: DeltaTable) -> None:
        """Write the state of the table into one file, so that readers need not read each log entry."""
        delta.create_checkpoint()
        self.sync_files(self.log.list_checkpoint_paths(delta.version()))

    def vacuum(self, retain_hours: int) -> None:
        """Remove files and log entries that no snapshot of the last `retain_hours` hours uses.

        Older snapshots lose their files. Writers lose files of this age that they have not committed.
        """
        self._newest = None  # to free its memory
        snapshot = self._load_snapshot(None)
        if snapshot is None:
            return
        delta = snapshot.delta_table  # no other caller has this object, so it may change
        check_table_is_writable(delta, self._table_path)
        set_log_retention(delta, retain_hours)
        delta.vacuum(
            retain_hours,
            dry_run=False,
            enforce_retention_duration=False,
            post_commithook_properties=NO_POST_COMMIT_HOOKS,
            full=True,
        )
        self.sync_files(map(make_entry_path, self.log.list_versions()[-_UNSYNCED_LOG_ENTRIES_MAX:]))
        delta.update_incremental()
        checkpoints = self.log.list_checkpoint_versions()
        if not checkpoints or delta.version() - checkpoints[-1] >= get_checkpoint_interval(delta.version()):
            self._write_checkpoint(delta)  # the disk must have the checkpoint before the cleanup removes entries
        delta.cleanup_metadata()

    def _add_missing_columns(self, base: TableSnapshot, schema: Schema) -> DeltaTable:
        """Return the table of a snapshot, with the missing columns added."""
        missing = [field for field in schema.fields if field.name not in base.columns.names]
        if not missing:
            return base.delta_table
        delta = self._open_delta_table(base.version)
        delta.alter.add_columns(missing, post_commithook_properties=NO_POST_COMMIT_HOOKS)
        grown = self._wrap_delta_table(self._open_delta_table())
        if grown.commit_number != base.commit_number:
            raise self._make_conflict_error()
        return grown.delta_table


def has_table(lake: LakeDirectory, place: str) -> bool:
    """Return True if a table exists at a location."""
    return lake.has_entry(f"{place}/{LOG_DIRECTORY}")


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
    return path.rpartition("/")[2].startswith(_MERGED_FILE_PREFIXES)


def _limit_row_count(row_count: int, byte_count: int) -> int:
    """Return the number of rows for a row group, for rows of the size of some given rows."""
    return max(1, min(_ROW_GROUP_ROWS, _ROW_GROUP_BYTES * row_count // max(1, byte_count)))
