"""Aggregate store of a lake: partial aggregates of each bronze file, and its ranges.

    LAKE/aggregates/AGGREGATES_VERSION/NAME

Each row has its bronze file. The table of ranges is written last, so a bronze file without ranges is incomplete. After
a kill, the next writer completes it, from the worker's files or from the bronze file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.dataset import field
from pyarrow.fs import FileType

from msgq.common.handler_errors import raise_handler_error
from msgq.lake.batching import pack_by_size
from msgq.lake.bronze.row_group_ranges import RANGES_SCHEMA
from msgq.lake.data_file import DataFile
from msgq.lake.delta_table import SMALL_FILE_BYTES, CommitConflictError, LakeTable, is_merged_file
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.message_filter import MessageFilter
from msgq.lake.metrics.partial_aggregates import AGGREGATE_SCHEMAS, AGGREGATES_VERSION
from msgq.lake.table_head import TableHead, restore_head, store_head
from msgq.lake.table_snapshot import TableSnapshot
from msgq.lake.text_columns import TextColumn, make_text_column, subtract_texts

RANGES_TABLE, HOURS_TABLE = "ranges", "hours"
_FULLY_READ_TABLES = (RANGES_TABLE, HOURS_TABLE)  # tables of which all rows are read, again and again
#: The column that says of which bronze file a row is.
BRONZE_FILE_COLUMN = pa.field("bronze_file", pa.string())
_MERGED_FILE_BYTES_MAX = 64 << 20
#: Version of `messages` whose bronze files all have aggregates: its head, or only table id and number.
_COMPLETE_VERSION_PATH = f"aggregates/{AGGREGATES_VERSION}/_complete.json"
_UNCHECKED_COMMITS_MAX = 100  # to check all bronze files costs less than to read the log entries of more commits
_STEM_REPLACEMENTS = (("date=", ""), ("size_class=", ""), ("/", "-"))
_REBUILT_FILE_MARK = "~"  # follows the stem in names of files that were computed again


_ContentT = TypeVar("_ContentT")


class FileCache(Generic[_ContentT]):
    """Contents of files that this process has read last. The files never change. Any thread may use it."""

    def __init__(self, file_count_max: int) -> None:
        self._file_count_max = file_count_max
        self._contents: dict[tuple[str, str], _ContentT] = {}

    def __len__(self) -> int:
        return len(self._contents)

    def read_file(self, lake: LakeDirectory, path: str, read: Callable[[], _ContentT]) -> _ContentT:
        """Return the content of a file of a lake. `read`: reads the content if it is not in the cache."""
        key = (lake.files.type_name, path)
        content = self._contents.get(key)
        if content is None:
            content = self._contents[key] = read()
            for oldest in list(self._contents)[: -self._file_count_max]:
                self._contents.pop(oldest, None)
        return content


_RANGES_CACHE = FileCache[pa.Table](1 << 14)
#: The bronze files of merged files. A stream of batches replaces its merged file again and again.
_BRONZE_FILES_CACHE = FileCache[TextColumn](64)


def open_aggregate_table(lake: LakeDirectory, name: str) -> LakeTable:
    """Return a table of the aggregate store."""
    return LakeTable(lake, f"aggregates/{AGGREGATES_VERSION}/{name}", has_statistics=name == RANGES_TABLE)


def get_aggregate_columns(name: str) -> pa.Schema:
    """Return the columns of a table of aggregates."""
    return RANGES_SCHEMA if name == RANGES_TABLE else AGGREGATE_SCHEMAS[name].append(BRONZE_FILE_COLUMN)


def _compute_stems(bronze_files: TextColumn) -> TextColumn:
    """Return `make_aggregate_file_stem` of each bronze file."""
    stems = pc.replace_substring_regex(bronze_files, r"\.parquet$", "")
    for old, new in _STEM_REPLACEMENTS:
        stems = pc.replace_substring(stems, old, new)
    return stems


def add_bronze_file_column(rows: pa.Table, bronze_file: str) -> pa.Table:
    """Return the rows with the column `bronze_file`."""
    return rows.append_column(BRONZE_FILE_COLUMN, pa.repeat(pa.scalar(bronze_file), rows.num_rows))


def make_aggregate_file_name(bronze_file: str, is_rebuilt: bool = False) -> str:
    """Return the name of a bronze file's files in the aggregate store. `is_rebuilt`: True for a unique name."""
    return (
        f"{make_aggregate_file_stem(bronze_file)}{_REBUILT_FILE_MARK}{uuid4().hex[:8]}.parquet"
        if is_rebuilt
        else f"{make_aggregate_file_stem(bronze_file)}.parquet"
    )


def make_aggregate_file_stem(bronze_file: str) -> str:
    """Return the prefix of the names of a bronze file's files in the aggregate store."""
    stem = bronze_file.removesuffix(".parquet")
    for old, new in _STEM_REPLACEMENTS:
        stem = stem.replace(old, new)
    return stem


@dataclass(frozen=True)
class AggregateSnapshot:
    """Aggregates of one version of the messages.

    Attributes:
        bronze_files: all bronze files of the version.
        snapshots_by_table: versions of the tables. Some files contain rows of removed bronze files.
    """

    lake_directory: LakeDirectory
    bronze_files: TextColumn
    snapshots_by_table: Mapping[str, TableSnapshot | None]

    def list_files(self, name: str, bronze_files: Collection[str]) -> list[str]:
        """Return the files that may have rows of these bronze files: their own files, and merged files."""
        snapshot = self.snapshots_by_table[name]
        if snapshot is None or not bronze_files:
            return []
        merged = _find_merged_files(snapshot, min(bronze_files), max(bronze_files))
        return [*_find_own_files(snapshot, bronze_files), *merged]

    def read_rows(self, name: str, bronze_files: Collection[str] | None = None) -> pa.Table:
        """Return the rows of these bronze files with the column `bronze_file`, read in this process; None: all rows."""
        requested_files = self.bronze_files if bronze_files is None else make_text_column(bronze_files)
        snapshot = self.snapshots_by_table[name]
        paths = [] if snapshot is None else snapshot.paths
        if bronze_files is not None:
            paths = self.list_files(name, bronze_files)
        table = open_aggregate_table(self.lake_directory, name)
        return table.read_rows(paths, get_aggregate_columns(name), _make_bronze_file_filter(requested_files))


def get_bronze_file_stem(path: str) -> str:
    """Return the stem of the bronze file to which a file belongs."""
    return path.removesuffix(".parquet").partition(_REBUILT_FILE_MARK)[0]


def _make_bronze_file_filter(bronze_files: Iterable[str] | TextColumn) -> pc.Expression:
    column = make_text_column(bronze_files)
    return field("bronze_file").isin(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)


def _find_own_files(snapshot: TableSnapshot, bronze_files: Iterable[str]) -> list[str]:
    """Return the files of a table with rows of only one of these bronze files."""
    stems = {make_aggregate_file_stem(bronze_file) for bronze_file in bronze_files}
    paths = snapshot.path_column
    rebuilt = paths.filter(pc.match_substring(paths, _REBUILT_FILE_MARK)).to_pylist()
    existing = snapshot.select_existing_paths(f"{stem}.parquet" for stem in stems)
    return [*existing, *(path for path in rebuilt if get_bronze_file_stem(path) in stems)]


def _find_merged_files(snapshot: TableSnapshot, first: str, last: str) -> list[str]:
    """Return the merged files that may have rows of bronze files from the first to the last name."""
    return list(filter(is_merged_file, snapshot.find_paths({"bronze_file": (first, last)})))


def _get_merge_order(file: DataFile) -> tuple[int, str]:
    """Return a sort key that brings rows of one time together, so that readers skip other rows by their statistics."""
    return file.column_bounds.get("start_time", (0, 0))[0], file.path


class AggregateStore:
    """Partial aggregates of a lake. One thread at a time."""

    def __init__(self, lake: LakeDirectory) -> None:
        self._lake = lake
        self.tables = {name: open_aggregate_table(lake, name) for name in (*AGGREGATE_SCHEMAS, RANGES_TABLE)}

    def read_nearby_ranges(self, near: pa.Table, bronze_files: TextColumn | None = None) -> pa.Table:
        """Return the ranges that may meet other ranges in run and time.

        The statistics of the Delta log select the files of ranges, so that the cost does not grow with the lake.

        Args:
            near: the other ranges: `RANGES_SCHEMA`.
            bronze_files: bronze files of the ranges; None: all, including removed bronze files.
        """
        table = self.tables[RANGES_TABLE]
        snapshot = table.read_snapshot()
        if snapshot is None or not near.num_rows:
            return RANGES_SCHEMA.empty_table()
        runs = near.column("run").unique()
        start, end = pc.min(near.column("start_time")).as_py(), pc.max(near.column("end_time")).as_py()
        paths = snapshot.find_paths(
            {
                "run": (pc.min(runs).as_py(), pc.max(runs).as_py()),
                "start_time": (None, end),
                "end_time": (start, None),
            }
        )
        is_near = field("run").isin(runs) & (field("start_time") <= end) & (field("end_time") >= start)
        own = [self._read_ranges_file(table.resolve_file_path(path)) for path in paths if not is_merged_file(path)]
        merged = table.read_rows(filter(is_merged_file, paths), RANGES_SCHEMA, is_near)
        ranges = pa.concat_tables([merged, *own])
        is_wanted = pc.is_in(ranges.column("run"), runs)
        if bronze_files is not None:
            is_wanted = pc.and_(is_wanted, pc.is_in(ranges.column("bronze_file"), bronze_files))
        return ranges.filter(is_wanted)

    def select_bronze_files(self, bronze_files: Sequence[str], message_filter: MessageFilter) -> list[str]:
        """Return those of these bronze files that may have a message that passes a filter by endpoint.

        A bronze file without ranges may have any message: its ingest was killed before the ranges were committed.
        """
        table = self.tables[RANGES_TABLE]
        snapshot = table.read_snapshot()
        if snapshot is None:
            return list(bronze_files)
        start, end = message_filter.column_bounds.get("log_time", (None, None))
        bounds = {"endpoint": message_filter.column_bounds.get("endpoint", (None, None))}
        paths = snapshot.find_paths(bounds | {"start_time": (None, end), "end_time": (start, None)})
        where = field("endpoint").isin(pa.array(sorted(message_filter.endpoints or ()), pa.string()))
        if start is not None:
            where &= field("end_time") >= start
        if end is not None:
            where &= field("start_time") <= end
        rows = table.read_rows(paths, RANGES_SCHEMA, where, ["bronze_file"])
        uncovered = self._find_uncovered(snapshot, make_text_column(bronze_files))
        found = {*rows.column("bronze_file").unique().to_pylist(), *uncovered.to_pylist()}
        return [bronze_file for bronze_file in bronze_files if bronze_file in found]

    def read_endpoints(self, bronze_files: TextColumn) -> set[str]:
        """Return the endpoints in the existing ranges of these bronze files."""
        table = self.tables[RANGES_TABLE]
        snapshot = table.read_snapshot()
        paths = [] if snapshot is None else snapshot.paths
        rows = table.read_rows(paths, RANGES_SCHEMA, _make_bronze_file_filter(bronze_files), ["endpoint"])
        return set(rows.column("endpoint").unique().to_pylist())

    def read_snapshot(
        self, bronze_files: Collection[str] | TextColumn, unchecked: Collection[str] | TextColumn | None = None
    ) -> AggregateSnapshot | None:
        """Return the current tables; None: they do not have all of these bronze files.

        `unchecked`: the bronze files that may lack aggregates; None: all.
        """
        if self.find_missing_aggregates(bronze_files if unchecked is None else unchecked):
            return None
        snapshots = {name: table.read_snapshot() for name, table in self.tables.items()}
        return AggregateSnapshot(self._lake, make_text_column(bronze_files), snapshots)

    def find_missing_aggregates(self, bronze_files: Collection[str] | TextColumn) -> set[str]:
        """Return the bronze files whose aggregates are not committed."""
        snapshot, column = self.tables[RANGES_TABLE].read_snapshot(), make_text_column(bronze_files)
        return set((column if snapshot is None else self._find_uncovered(snapshot, column)).to_pylist())

    def _find_uncovered(self, snapshot: TableSnapshot, bronze_files: TextColumn) -> TextColumn:
        """Return the bronze files without ranges, by the names of files; of merged files, by their rows."""
        stems = {get_bronze_file_stem(path) for path in snapshot.paths if not is_merged_file(path)}
        uncovered = bronze_files.filter(pc.invert(pc.is_in(_compute_stems(bronze_files), make_text_column(stems))))
        if not len(uncovered):
            return uncovered
        bounds = pc.min_max(uncovered).as_py()
        for path in _find_merged_files(snapshot, bounds["min"], bounds["max"]):
            uncovered = subtract_texts(uncovered, self._read_bronze_files(self.tables[RANGES_TABLE], path))
        return uncovered

    def list_unchecked_files(self, messages: TableSnapshot, table: LakeTable) -> TextColumn:
        """Return the bronze files of a version that may lack aggregates: those since the last complete version."""
        complete = self._lake.read_json(_COMPLETE_VERSION_PATH, {})
        version = complete.get("version", -1)
        if complete.get("table_id") == messages.table_id and 0 <= messages.version - version <= _UNCHECKED_COMMITS_MAX:
            added = table.log.list_added_paths(version, messages.version)
            if added is not None:
                return make_text_column(messages.select_existing_paths(added))
        return messages.path_column

    def find_complete_version(self) -> TableHead | None:
        """Return the version of messages that was recorded last; None: it has no head, or no version was recorded."""
        return restore_head(self._lake.read_json(_COMPLETE_VERSION_PATH))

    def record_complete_version(self, messages: TableSnapshot | TableHead) -> None:
        """Record that all bronze files of a version have aggregates, so that no process checks these files again."""
        complete = {"table_id": messages.table_id, "version": messages.version}
        if isinstance(messages, TableHead):
            complete = store_head(messages)
        if self._lake.read_json(_COMPLETE_VERSION_PATH) != complete:
            self._lake.write_json(_COMPLETE_VERSION_PATH, complete)

    def find_uncommitted_files(self, bronze_files: Iterable[str]) -> tuple[dict[str, list[DataFile]], list[str]]:
        """Return files by table that workers wrote for these bronze files, and the bronze files without such files."""
        names = {
            name: set(self._lake.list_entry_names(table.place, FileType.File)) for name, table in self.tables.items()
        }
        files: dict[str, list[DataFile]] = {}
        without_files = []
        for bronze_file in bronze_files:
            path = make_aggregate_file_name(bronze_file)
            written = [name for name in self.tables if path in names[name]] if path in names[RANGES_TABLE] else []
            complete = {name: file for name in written if (file := self._describe_aggregate_file(name, path))}
            if not written or len(complete) < len(written):
                without_files.append(bronze_file)
                continue
            for name, file in complete.items():
                files.setdefault(name, []).append(file)
        return files, without_files

    def _describe_aggregate_file(self, name: str, path: str) -> DataFile | None:
        """Return the description of a table's file; None: unreadable. A power failure may damage uncommitted files."""
        table = self.tables[name]
        try:
            return table.describe_file(
                path, pq.read_metadata(table.resolve_file_path(path), filesystem=self._lake.files)
            )
        except (pa.ArrowInvalid, OSError) as error:
            raise_handler_error(error)
            return None

    def commit_files(self, files: Mapping[str, Sequence[DataFile]], bronze_files: Collection[str]) -> None:
        """Commit the workers' files of these bronze files, except for existing rows. The ranges are committed last.

        Raises:
            RecordingError: a table cannot be written.
        """
        for name in self.tables:
            self._commit_to_table(name, files.get(name, ()), bronze_files)

    def _commit_to_table(self, name: str, files: Sequence[DataFile], bronze_files: Collection[str]) -> None:
        table, columns = self.tables[name], get_aggregate_columns(name)
        while True:
            base = table.read_snapshot()  # before what follows: of whatever happens from here on, `commit` knows
            missing = self.find_missing_aggregates(bronze_files)
            present = [] if base is None else _find_own_files(base, missing)
            stems = set(map(make_aggregate_file_stem, missing)) - set(map(get_bronze_file_stem, present))
            new = [file for file in files if get_bronze_file_stem(file.path) in stems]
            if base is not None and not new:
                return
            merged, small = table.merge_small_files(base, columns) if name in _FULLY_READ_TABLES else ([], [])
            with suppress(CommitConflictError):
                table.commit_files(base, columns, [*new, *merged], small)
                return

    def compact_tables(self, bronze_files: Callable[[], TextColumn]) -> None:
        """Merge small files, and remove rows of removed bronze files.

        `bronze_files`: returns the existing bronze files.

        Raises:
            RecordingError: a table cannot be written.
        """
        for name in self.tables:
            self._compact_table(name, bronze_files)

    def _compact_table(self, name: str, bronze_files: Callable[[], TextColumn]) -> None:
        table, columns = self.tables[name], get_aggregate_columns(name)
        while (base := table.read_snapshot()) is not None:
            current = bronze_files()  # read after `base`: absent bronze files of `base` were removed
            files = base.describe_files()
            merged = [file for file in files if is_merged_file(file.path)]
            own = [file for file in files if not is_merged_file(file.path)]
            stems = [get_bronze_file_stem(file.path) for file in own]
            is_current = pc.is_in(pa.array(stems, pa.string()), _compute_stems(current)).to_pylist()
            removed = [file.path for file, is_kept in zip(own, is_current, strict=True) if not is_kept]
            # Another process may search for the files of incomplete bronze files by name.
            unmerged = {*removed, *_find_own_files(base, self.find_missing_aggregates(current))}
            stale = [file for file in merged if len(subtract_texts(self._read_bronze_files(table, file.path), current))]
            small = [file for file in (*own, *merged) if file.size_bytes < SMALL_FILE_BYTES and file not in stale]
            ripe = stale + sorted((file for file in small if file.path not in unmerged), key=_get_merge_order)
            packs = pack_by_size(((file, file.size_bytes) for file in ripe), _MERGED_FILE_BYTES_MAX)
            groups = [[file.path for file in pack] for pack in packs if len(pack) > 1 or pack[0] in stale]
            if not removed and not groups:
                return
            is_current_row = _make_bronze_file_filter(current)
            add = [file for group in groups for file in table.merge_files(group, columns, is_current_row)]
            with suppress(CommitConflictError):
                table.commit_files(base, columns, add, [*removed, *(path for group in groups for path in group)])
                return

    def _read_bronze_files(self, table: LakeTable, path: str) -> TextColumn:
        """Return the bronze files that have rows in a file."""
        place = table.resolve_file_path(path)

        def read_names() -> TextColumn:
            with pq.ParquetFile(place, filesystem=self._lake.files, read_dictionary=["bronze_file"]) as file:
                names = [
                    batch.column(0).unique().dictionary_decode() for batch in file.iter_batches(columns=["bronze_file"])
                ]
            return pa.chunked_array(names, pa.string()).unique()

        return _BRONZE_FILES_CACHE.read_file(self._lake, place, read_names)

    def _read_ranges_file(self, path: str) -> pa.Table:
        def read_ranges() -> pa.Table:
            with pq.ParquetFile(path, filesystem=self._lake.files) as file:  # 4x faster than read_table
                return file.read().cast(RANGES_SCHEMA)

        return _RANGES_CACHE.read_file(self._lake, path, read_ranges)
