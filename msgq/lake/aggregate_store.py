"""The derived tables of a lake: of each part of bronze what workers found in it, and its ranges.

    LAKE/aggregates/VERSION/NAME

Each row says of which part it is. The table of ranges is written last: a part that it does not have is not derived yet.
The next writer derives what a kill left out, from files that the worker left, or computes it again from the part.
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
from msgq.lake.bronze.ranges import RANGES
from msgq.lake.delta_table import SMALL_BYTES, ConflictError, DataFile, LakeTable, is_merged
from msgq.lake.directory import Directory
from msgq.lake.metrics.partial_aggregates import SCHEMAS, VERSION

RANGES_NAME, HOURS_NAME = "ranges", "hours"
_SMALL_TABLES = (RANGES_NAME, HOURS_NAME)  # tables of which all rows are read, again and again
#: The column that says of which part a row is.
BRONZE_FILE = pa.field("bronze_file", pa.string())
#: Files of ranges by file system and path, as this process has read them: they never change, and each batch of a stream
#: needs all of them.
_READ: dict[tuple[str, str], pa.Table] = {}
_READ_MAX = 1 << 14
_MERGED_BYTES = 64 << 20
_REBUILT = "~"  # follows the stem in names of files that were computed again


def aggregate_table(lake: Directory, name: str) -> LakeTable:
    """Return a derived table of a lake."""
    return LakeTable(lake, f"aggregates/{VERSION}/{name}")


def aggregate_columns(name: str) -> pa.Schema:
    """Return the columns of a derived table."""
    return RANGES if name == RANGES_NAME else SCHEMAS[name].append(BRONZE_FILE)


def with_bronze_file(rows: pa.Table, part: str) -> pa.Table:
    """Return rows with the part that they are of."""
    return rows.append_column(BRONZE_FILE, pa.repeat(pa.scalar(part), rows.num_rows))


def file_name(part: str, is_rebuilt: bool = False) -> str:
    """Return the name of a part's files in derived tables. is_rebuilt : one that nobody else has."""
    return f"{file_stem(part)}{_REBUILT}{uuid4().hex[:8]}.parquet" if is_rebuilt else f"{file_stem(part)}.parquet"


def file_stem(part: str) -> str:
    """Return how the names of files begin which a part has in derived tables."""
    return part.removesuffix(".parquet").replace("date=", "").replace("size_class=", "").replace("/", "-")


@dataclass(frozen=True)
class AggregateSnapshot:
    """The derived tables as they belong to one version of the messages, whoever writes meanwhile.

    Attributes
    ----------
    parts : all of that version.
    ranges : of all of them.
    paths : the files of each table, below its directory; some have rows of parts that are gone.
    """

    lake: Directory
    parts: frozenset[str]
    ranges: pa.Table
    paths: Mapping[str, Sequence[str]]

    def files(self, name: str, parts: Collection[str] | None = None) -> list[str]:
        """Return the files that may have rows of these parts; None: of all."""
        return _files_of(self.paths[name], self.parts if parts is None else parts)

    def read(self, name: str, parts: Collection[str] | None = None) -> pa.Table:
        """Return the rows of these parts, with the column `part`, in this process; None: of all."""
        wanted = self.parts if parts is None else parts
        table, where = aggregate_table(self.lake, name), field("bronze_file").isin(sorted(wanted))
        return table.rows(self.files(name, wanted), aggregate_columns(name), where)


def bronze_stem(path: str) -> str:
    """Return the stem of the part that a file is of."""
    return path.removesuffix(".parquet").partition(_REBUILT)[0]


def _files_of(paths: Iterable[str], parts: Iterable[str]) -> list[str]:
    """Return those files of a table that may have rows of parts: their own, and those in which many were merged."""
    stems = set(map(file_stem, parts))
    return [path for path in paths if is_merged(path) or bronze_stem(path) in stems]


class AggregateStore:
    """The derived tables of a lake. For one thread at a time."""

    def __init__(self, lake: Directory) -> None:
        self._lake = lake
        self.tables = {name: aggregate_table(lake, name) for name in (*SCHEMAS, RANGES_NAME)}

    def ranges(self, parts: Collection[str]) -> pa.Table:
        """Return the ranges of these parts, as far as they are there: `RANGES`."""
        table = self.tables[RANGES_NAME]
        snapshot = table.snapshot()
        paths = [] if snapshot is None else _files_of(snapshot.files, parts)
        files = [self._read(table.path(path)) for path in paths]
        ranges = pa.concat_tables([RANGES.empty_table(), *files])
        return ranges.filter(pc.is_in(ranges.column("bronze_file"), pa.array(sorted(parts), pa.string())))

    def snapshot(self, parts: Collection[str]) -> AggregateSnapshot | None:
        """Return the tables as they are, if they have all of these parts, which nobody may have taken away since."""
        ranges = self.ranges(parts)
        if set(parts) - set(ranges.column("bronze_file").unique().to_pylist()):
            return None
        snapshots = {name: table.snapshot() for name, table in self.tables.items()}
        paths = {name: [] if snapshot is None else list(snapshot.files) for name, snapshot in snapshots.items()}
        return AggregateSnapshot(self._lake, frozenset(parts), ranges, paths)

    def missing(self, parts: Collection[str]) -> set[str]:
        """Return those of these parts of which not all that is derived is committed."""
        return set(parts) - set(self.ranges(parts).column("bronze_file").unique().to_pylist())

    def find_uncommitted(self, parts: Iterable[str]) -> tuple[dict[str, list[DataFile]], list[str]]:
        """Return files that workers wrote with these parts, by table; and the parts of which there are none."""
        names = {name: set(self._lake.names(table.place, FileType.File)) for name, table in self.tables.items()}
        files: dict[str, list[DataFile]] = {}
        without_files = []
        for part in parts:
            path = file_name(part)
            written = [name for name in self.tables if path in names[name]] if path in names[RANGES_NAME] else []
            complete = {name: file for name in written if (file := self._open_file(name, path))}
            if not written or len(complete) < len(written):
                without_files.append(part)
                continue
            for name, file in complete.items():
                files.setdefault(name, []).append(file)
        return files, without_files

    def _open_file(self, name: str, path: str) -> DataFile | None:
        """Return a file of a table; None: it cannot be read, as a power failure leaves some that were not committed."""
        table = self.tables[name]
        try:
            return table.file(path, pq.read_metadata(table.path(path), filesystem=self._lake.files))
        except (pa.ArrowInvalid, OSError):
            return None

    def add(self, files: Mapping[str, Sequence[DataFile]], parts: Collection[str]) -> None:
        """Commit files that workers wrote of these parts, but for what is there; those of ranges last.

        Raises
        ------
        RecordingError : a table cannot be written.
        """
        for name in self.tables:
            self._add(name, files.get(name, ()), parts)

    def _add(self, name: str, files: Sequence[DataFile], parts: Collection[str]) -> None:
        table, columns = self.tables[name], aggregate_columns(name)
        while True:
            base = table.snapshot()  # before what follows: of whatever happens from here on, `commit` knows
            missing = set(map(file_stem, self.missing(parts)))
            present = set() if base is None else {bronze_stem(path) for path in base.files}
            new = [file for file in files if (stem := bronze_stem(file.path)) in missing and stem not in present]
            if base is not None and not new:
                return
            merged, small = table.merge_small_files(base, columns) if name in _SMALL_TABLES else ([], [])
            with suppress(ConflictError):
                table.commit(base, columns, [*new, *merged], small)
                return

    def compact(self, parts: Callable[[], Collection[str]]) -> None:
        """Put small files together, and leave out what is of parts that are gone. parts : gives those that there are.

        Raises
        ------
        RecordingError : a table cannot be written.
        """
        for name in self.tables:
            self._compact(name, parts)

    def _compact(self, name: str, parts: Callable[[], Collection[str]]) -> None:
        table, columns = self.tables[name], aggregate_columns(name)
        while (base := table.snapshot()) is not None:
            current = set(parts())  # after the snapshot: what that has of others is of parts that are gone
            stems = set(map(file_stem, current))
            removed = [path for path in base.files if not is_merged(path) and bronze_stem(path) not in stems]
            whole = set(
                map(file_stem, current - self.missing(current))
            )  # of others somebody may look for files by their names
            small = [
                file for file in base.files.values() if bronze_stem(file.path) in whole and file.size < SMALL_BYTES
            ]
            merged = [file for file in base.files.values() if is_merged(file.path)]
            stale = [file for file in merged if self._parts_of(table, file) - current]
            ripe = stale + [file for file in small + merged if file.size < SMALL_BYTES and file not in stale]
            packs = pack_by_size(((file, file.size) for file in ripe), _MERGED_BYTES)
            groups = [[file.path for file in pack] for pack in packs if len(pack) > 1 or pack[0] in stale]
            if not removed and not groups:
                return
            add = [table.merge(group, columns, field("bronze_file").isin(sorted(current))) for group in groups]
            with suppress(ConflictError):
                table.commit(base, columns, add, [*removed, *(path for group in groups for path in group)])
                return

    def _parts_of(self, table: LakeTable, file: DataFile) -> set[str]:
        rows = pq.read_table(table.path(file.path), columns=["bronze_file"], filesystem=self._lake.files)
        return set(rows.column("bronze_file").unique().to_pylist())

    def _read(self, path: str) -> pa.Table:
        key = (self._lake.files.type_name, path)
        if key not in _READ:
            if len(_READ) == _READ_MAX:
                _READ.clear()
            with pq.ParquetFile(path, filesystem=self._lake.files) as file:  # 4x faster than read_table
                _READ[key] = file.read().cast(RANGES)
        return _READ[key]
