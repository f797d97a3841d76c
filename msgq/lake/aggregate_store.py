"""Aggregate store of a lake: partial aggregates of each bronze file, and its ranges.

    LAKE/aggregates/AGGREGATES_VERSION/NAME

Each row has its bronze file. The table of ranges is written last, so a bronze file without ranges is incomplete. After
a kill, the next writer completes it, from the worker's files or from the bronze file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.dataset import field
from pyarrow.fs import FileType

from msgq.lake.batching import pack_by_size
from msgq.lake.bronze.row_group_ranges import RANGES_SCHEMA
from msgq.lake.data_file import DataFile
from msgq.lake.delta_table import SMALL_FILE_BYTES, CommitConflictError, LakeTable, TableSnapshot, is_merged_file
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.message_filter import MessageFilter
from msgq.lake.metrics.partial_aggregates import AGGREGATE_SCHEMAS, AGGREGATES_VERSION

RANGES_TABLE, HOURS_TABLE = "ranges", "hours"
_FULLY_READ_TABLES = (RANGES_TABLE, HOURS_TABLE)  # tables of which all rows are read, again and again
#: The column that says of which bronze file a row is.
BRONZE_FILE_COLUMN = pa.field("bronze_file", pa.string())
#: Files of ranges by file system and path, as this process has read them: they never change, and each batch of a stream
#: needs all of them.
_RANGES_BY_PATH: dict[tuple[str, str], pa.Table] = {}
#: The bronze files of merged files, by file system and path.
_BRONZE_FILES_BY_PATH: dict[tuple[str, str], frozenset[str]] = {}
_CACHED_RANGES_MAX = 1 << 14
_MERGED_FILE_BYTES_MAX = 64 << 20
_REBUILT_FILE_MARK = "~"  # follows the stem in names of files that were computed again


def open_aggregate_table(lake: LakeDirectory, name: str) -> LakeTable:
    """Return a table of the aggregate store."""
    return LakeTable(lake, f"aggregates/{AGGREGATES_VERSION}/{name}", has_statistics=name == RANGES_TABLE)


def get_aggregate_columns(name: str) -> pa.Schema:
    """Return the columns of a table of aggregates."""
    return RANGES_SCHEMA if name == RANGES_TABLE else AGGREGATE_SCHEMAS[name].append(BRONZE_FILE_COLUMN)


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
    return bronze_file.removesuffix(".parquet").replace("date=", "").replace("size_class=", "").replace("/", "-")


@dataclass(frozen=True)
class AggregateSnapshot:
    """Aggregates of one version of the messages.

    Attributes
    ----------
    bronze_files : all bronze files of the version.
    paths_by_table : files of each table, relative to its directory. Some contain rows of removed bronze files.
    """

    lake_directory: LakeDirectory
    bronze_files: frozenset[str]
    paths_by_table: Mapping[str, Sequence[str]]

    def list_files(self, name: str, bronze_files: Collection[str] | None = None) -> list[str]:
        """Return the files that may have rows of these bronze files; None: of all bronze files."""
        return _select_aggregate_files(
            self.paths_by_table[name], self.bronze_files if bronze_files is None else bronze_files
        )

    def read_rows(self, name: str, bronze_files: Collection[str] | None = None) -> pa.Table:
        """Return the rows of these bronze files with the column `bronze_file`, read in this process; None: all rows."""
        wanted = self.bronze_files if bronze_files is None else bronze_files
        table, where = (
            open_aggregate_table(self.lake_directory, name),
            field("bronze_file").isin(pa.array(sorted(wanted), pa.string())),
        )
        return table.read_rows(self.list_files(name, wanted), get_aggregate_columns(name), where)


def get_bronze_file_stem(path: str) -> str:
    """Return the stem of the bronze file to which a file belongs."""
    return path.removesuffix(".parquet").partition(_REBUILT_FILE_MARK)[0]


def _select_aggregate_files(paths: Iterable[str], bronze_files: Iterable[str]) -> list[str]:
    """Return the files of a table that may have rows of the bronze files: their own files, and merged files."""
    stems = set(map(make_aggregate_file_stem, bronze_files))
    return [path for path in paths if is_merged_file(path) or get_bronze_file_stem(path) in stems]


class AggregateStore:
    """Partial aggregates of a lake. One thread at a time."""

    def __init__(self, lake: LakeDirectory) -> None:
        self._lake = lake
        self.tables = {name: open_aggregate_table(lake, name) for name in (*AGGREGATE_SCHEMAS, RANGES_TABLE)}

    def read_nearby_ranges(self, bronze_files: Collection[str], near: pa.Table) -> pa.Table:
        """Return the ranges of these bronze files that may meet other ranges in run and time.

        The statistics of the Delta log select the files of ranges, so that the cost does not grow with the lake.

        Parameters
        ----------
        near : the other ranges: `RANGES_SCHEMA`.
        """
        snapshot = self.tables[RANGES_TABLE].read_snapshot()
        if snapshot is None or not near.num_rows:
            return RANGES_SCHEMA.empty_table()
        runs, start, end = near.column("run"), pc.min(near.column("start_time")), pc.max(near.column("end_time"))
        paths = snapshot.find_paths(
            {
                "run": (pc.min(runs).as_py(), pc.max(runs).as_py()),
                "start_time": (None, end.as_py()),
                "end_time": (start.as_py(), None),
            }
        )
        table = self.tables[RANGES_TABLE]
        chosen = _select_aggregate_files(paths, bronze_files)
        files = [self._read_ranges_file(table.resolve_file_path(path)) for path in chosen]
        ranges = pa.concat_tables([RANGES_SCHEMA.empty_table(), *files])
        known = pc.is_in(ranges.column("bronze_file"), pa.array(sorted(bronze_files), pa.string()))
        return ranges.filter(pc.and_(known, pc.is_in(ranges.column("run"), runs.unique())))

    def select_bronze_files(self, bronze_files: Sequence[str], wanted: MessageFilter) -> list[str]:
        """Return those of these bronze files that may have a message that passes a filter by endpoint.

        A bronze file without ranges may have any message: its ingest was killed before the ranges were committed.
        """
        table = self.tables[RANGES_TABLE]
        snapshot = table.read_snapshot()
        if snapshot is None:
            return list(bronze_files)
        start, end = wanted.column_bounds.get("log_time", (None, None))
        bounds = {"endpoint": wanted.column_bounds.get("endpoint", (None, None))}
        paths = snapshot.find_paths(bounds | {"start_time": (None, end), "end_time": (start, None)})
        where = field("endpoint").isin(pa.array(sorted(wanted.endpoints or ()), pa.string()))
        if start is not None:
            where &= field("end_time") >= start
        if end is not None:
            where &= field("start_time") <= end
        chosen = _select_aggregate_files(paths, bronze_files)
        rows = table.read_rows(chosen, RANGES_SCHEMA, where, ["bronze_file"])
        found = set(rows.column("bronze_file").unique().to_pylist()) | self._find_uncovered(snapshot, bronze_files)
        return [bronze_file for bronze_file in bronze_files if bronze_file in found]

    def read_endpoints(self, bronze_files: Collection[str]) -> set[str]:
        """Return the endpoints in the existing ranges of these bronze files."""
        table = self.tables[RANGES_TABLE]
        snapshot = table.read_snapshot()
        paths = [] if snapshot is None else _select_aggregate_files(snapshot.paths, bronze_files)
        where = field("bronze_file").isin(pa.array(sorted(bronze_files), pa.string()))
        rows = table.read_rows(paths, RANGES_SCHEMA, where, ["endpoint"])
        return set(rows.column("endpoint").unique().to_pylist())

    def read_snapshot(self, bronze_files: Collection[str]) -> AggregateSnapshot | None:
        """Return the current tables; None: they do not have all of these bronze files."""
        if self.find_missing_aggregates(bronze_files):
            return None
        snapshots = {name: table.read_snapshot() for name, table in self.tables.items()}
        paths = {name: [] if snapshot is None else list(snapshot.paths) for name, snapshot in snapshots.items()}
        return AggregateSnapshot(self._lake, frozenset(bronze_files), paths)

    def find_missing_aggregates(self, bronze_files: Collection[str]) -> set[str]:
        """Return the bronze files whose aggregates are not committed."""
        snapshot = self.tables[RANGES_TABLE].read_snapshot()
        return set(bronze_files) if snapshot is None else self._find_uncovered(snapshot, bronze_files)

    def _find_uncovered(self, snapshot: TableSnapshot, bronze_files: Iterable[str]) -> set[str]:
        """Return the bronze files without ranges, by the names of files; of merged files, by their rows."""
        table = self.tables[RANGES_TABLE]
        stems = {get_bronze_file_stem(path) for path in snapshot.paths}
        uncovered = {file for file in bronze_files if make_aggregate_file_stem(file) not in stems}
        for path in filter(is_merged_file, snapshot.paths if uncovered else ()):
            uncovered -= self._read_bronze_files(table, path)
        return uncovered

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
        except (pa.ArrowInvalid, OSError):
            return None

    def commit_files(self, files: Mapping[str, Sequence[DataFile]], bronze_files: Collection[str]) -> None:
        """Commit the workers' files of these bronze files, except for existing rows. The ranges are committed last.

        Raises
        ------
        RecordingError : a table cannot be written.
        """
        for name in self.tables:
            self._commit_to_table(name, files.get(name, ()), bronze_files)

    def _commit_to_table(self, name: str, files: Sequence[DataFile], bronze_files: Collection[str]) -> None:
        table, columns = self.tables[name], get_aggregate_columns(name)
        while True:
            base = table.read_snapshot()  # before what follows: of whatever happens from here on, `commit` knows
            missing = set(map(make_aggregate_file_stem, self.find_missing_aggregates(bronze_files)))
            present = set() if base is None else {get_bronze_file_stem(path) for path in base.paths}
            new = [
                file for file in files if (stem := get_bronze_file_stem(file.path)) in missing and stem not in present
            ]
            if base is not None and not new:
                return
            merged, small = table.merge_small_files(base, columns) if name in _FULLY_READ_TABLES else ([], [])
            with suppress(CommitConflictError):
                table.commit_files(base, columns, [*new, *merged], small)
                return

    def compact_tables(self, bronze_files: Callable[[], Collection[str]]) -> None:
        """Merge small files, and remove rows of removed bronze files.

        bronze_files : returns the existing bronze files.

        Raises
        ------
        RecordingError : a table cannot be written.
        """
        for name in self.tables:
            self._compact_table(name, bronze_files)

    def _compact_table(self, name: str, bronze_files: Callable[[], Collection[str]]) -> None:
        table, columns = self.tables[name], get_aggregate_columns(name)
        while (base := table.read_snapshot()) is not None:
            current = set(
                bronze_files()
            )  # after the snapshot: what that has of others is of bronze files that are gone
            stems = set(map(make_aggregate_file_stem, current))
            removed = [
                path
                for path in base.files_by_path
                if not is_merged_file(path) and get_bronze_file_stem(path) not in stems
            ]
            whole = set(
                map(make_aggregate_file_stem, current - self.find_missing_aggregates(current))
            )  # of others somebody may look for files by their names
            small = [
                file
                for file in base.files_by_path.values()
                if get_bronze_file_stem(file.path) in whole and file.size_bytes < SMALL_FILE_BYTES
            ]
            merged = [file for file in base.files_by_path.values() if is_merged_file(file.path)]
            stale = [file for file in merged if self._read_bronze_files(table, file.path) - current]
            ripe = stale + [file for file in small + merged if file.size_bytes < SMALL_FILE_BYTES and file not in stale]
            packs = pack_by_size(((file, file.size_bytes) for file in ripe), _MERGED_FILE_BYTES_MAX)
            groups = [[file.path for file in pack] for pack in packs if len(pack) > 1 or pack[0] in stale]
            if not removed and not groups:
                return
            add = [table.merge_files(group, columns, field("bronze_file").isin(sorted(current))) for group in groups]
            with suppress(CommitConflictError):
                table.commit_files(base, columns, add, [*removed, *(path for group in groups for path in group)])
                return

    def _read_bronze_files(self, table: LakeTable, path: str) -> frozenset[str]:
        """Return the bronze files that have rows in a file. Files never change, so the process keeps the answer."""
        key = (self._lake.files.type_name, table.resolve_file_path(path))
        if key not in _BRONZE_FILES_BY_PATH:
            with pq.ParquetFile(
                table.resolve_file_path(path), filesystem=self._lake.files, read_dictionary=["bronze_file"]
            ) as file:
                names = (
                    batch.column(0).unique().dictionary_decode() for batch in file.iter_batches(columns=["bronze_file"])
                )
                _BRONZE_FILES_BY_PATH[key] = frozenset(name for found in names for name in found.to_pylist())
        return _BRONZE_FILES_BY_PATH[key]

    def _read_ranges_file(self, path: str) -> pa.Table:
        key = (self._lake.files.type_name, path)
        if key not in _RANGES_BY_PATH:
            if len(_RANGES_BY_PATH) == _CACHED_RANGES_MAX:
                _RANGES_BY_PATH.clear()
            with pq.ParquetFile(path, filesystem=self._lake.files) as file:  # 4x faster than read_table
                _RANGES_BY_PATH[key] = file.read().cast(RANGES_SCHEMA)
        return _RANGES_BY_PATH[key]
