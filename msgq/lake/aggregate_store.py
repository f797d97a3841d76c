"""The derived tables of a lake: of each part of bronze what workers found in it, and its ranges.

    LAKE/aggregates/VERSION/NAME

Each row says of which part it is. The table of ranges is written last: a part that it does not have is not derived yet.
The next writer derives what a kill left out, from files that the worker left, or anew from the part.
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

from msgq.lake.batching import packed
from msgq.lake.bronze.ranges import RANGES
from msgq.lake.delta_table import SMALL_BYTES, ConflictError, File, Table, is_merged
from msgq.lake.directory import Directory
from msgq.lake.metrics.partial_aggregates import SCHEMAS, VERSION

RANGES_NAME, HOURS_NAME = "ranges", "hours"
_WHOLE = (RANGES_NAME, HOURS_NAME)  # tables of which all rows are read, again and again
#: The column that says of which part a row is.
PART = pa.field("bronze_file", pa.string())
#: Files of ranges by file system and path, as this process has read them: they never change, and each batch of a stream
#: needs all of them.
_READ: dict[tuple[str, str], pa.Table] = {}
_READ_MAX = 1 << 14
_MERGED_BYTES = 64 << 20
_ANEW = "~"  # follows the stem in names of files that were derived anew


def derived_table(lake: Directory, name: str) -> Table:
    """Return a derived table of a lake."""
    return Table(lake, f"aggregates/{VERSION}/{name}")


def derived_columns(name: str) -> pa.Schema:
    """Return the columns of a derived table."""
    return RANGES if name == RANGES_NAME else SCHEMAS[name].append(PART)


def with_part(rows: pa.Table, part: str) -> pa.Table:
    """Return rows with the part that they are of."""
    return rows.append_column(PART, pa.repeat(pa.scalar(part), rows.num_rows))


def file_name(part: str, anew: bool = False) -> str:
    """Return the name of a part's files in derived tables. anew : one that nobody else has."""
    return f"{stem(part)}{_ANEW}{uuid4().hex[:8]}.parquet" if anew else f"{stem(part)}.parquet"


def stem(part: str) -> str:
    """Return how the names of files begin which a part has in derived tables."""
    return part.removesuffix(".parquet").replace("date=", "").replace("size_class=", "").replace("/", "-")


@dataclass(frozen=True)
class View:
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
        table, where = derived_table(self.lake, name), field("bronze_file").isin(sorted(wanted))
        return table.rows(self.files(name, wanted), derived_columns(name), where)


def origin(path: str) -> str:
    """Return the stem of the part that a file is of."""
    return path.removesuffix(".parquet").partition(_ANEW)[0]


def _files_of(paths: Iterable[str], parts: Iterable[str]) -> list[str]:
    """Return those files of a table that may have rows of parts: their own, and those in which many were merged."""
    stems = set(map(stem, parts))
    return [path for path in paths if is_merged(path) or origin(path) in stems]


class Derived:
    """The derived tables of a lake. For one thread at a time."""

    def __init__(self, lake: Directory) -> None:
        self._lake = lake
        self.tables = {name: derived_table(lake, name) for name in (*SCHEMAS, RANGES_NAME)}

    def ranges(self, parts: Collection[str]) -> pa.Table:
        """Return the ranges of these parts, as far as they are there: `RANGES`."""
        table = self.tables[RANGES_NAME]
        snapshot = table.snapshot()
        paths = [] if snapshot is None else _files_of(snapshot.files, parts)
        files = [self._read(table.path(path)) for path in paths]
        found = pa.concat_tables([RANGES.empty_table(), *files])
        return found.filter(pc.is_in(found.column("bronze_file"), pa.array(sorted(parts), pa.string())))

    def view(self, parts: Collection[str]) -> View | None:
        """Return the tables as they are, if they have all of these parts, which nobody may have taken away since."""
        ranges = self.ranges(parts)
        if set(parts) - set(ranges.column("bronze_file").unique().to_pylist()):
            return None
        found = {name: table.snapshot() for name, table in self.tables.items()}
        paths = {name: [] if snapshot is None else list(snapshot.files) for name, snapshot in found.items()}
        return View(self._lake, frozenset(parts), ranges, paths)

    def lacking(self, parts: Collection[str]) -> set[str]:
        """Return those of these parts of which not all that is derived is committed."""
        return set(parts) - set(self.ranges(parts).column("bronze_file").unique().to_pylist())

    def left(self, parts: Iterable[str]) -> tuple[dict[str, list[File]], list[str]]:
        """Return files that workers wrote with these parts, by table; and the parts of which there are none."""
        names = {name: set(self._lake.names(table.place, FileType.File)) for name, table in self.tables.items()}
        files: dict[str, list[File]] = {}
        others = []
        for part in parts:
            path = file_name(part)
            mine = [name for name in self.tables if path in names[name]] if path in names[RANGES_NAME] else []
            found = {name: file for name in mine if (file := self._whole(name, path))}
            if not mine or len(found) < len(mine):
                others.append(part)
                continue
            for name, file in found.items():
                files.setdefault(name, []).append(file)
        return files, others

    def _whole(self, name: str, path: str) -> File | None:
        """Return a file of a table; None: it cannot be read, as a power failure leaves some that were not committed."""
        table = self.tables[name]
        try:
            return table.file(path, pq.read_metadata(table.path(path), filesystem=self._lake.files))
        except (pa.ArrowInvalid, OSError):
            return None

    def add(self, files: Mapping[str, Sequence[File]], parts: Collection[str]) -> None:
        """Commit files that workers wrote of these parts, but for what is there; those of ranges last.

        Raises
        ------
        RecordingError : a table cannot be written.
        """
        for name in self.tables:
            self._add(name, files.get(name, ()), parts)

    def _add(self, name: str, files: Sequence[File], parts: Collection[str]) -> None:
        table, columns = self.tables[name], derived_columns(name)
        while True:
            base = table.snapshot()  # before what follows: of whatever happens from here on, `commit` knows
            lacking = set(map(stem, self.lacking(parts)))
            there = set() if base is None else {origin(path) for path in base.files}
            new = [file for file in files if (of := origin(file.path)) in lacking and of not in there]
            if base is not None and not new:
                return
            merged, small = table.merged_small(base, columns) if name in _WHOLE else ([], [])
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
        table, columns = self.tables[name], derived_columns(name)
        while (base := table.snapshot()) is not None:
            there = set(parts())  # after the snapshot: what that has of others is of parts that are gone
            stems = set(map(stem, there))
            gone = [path for path in base.files if not is_merged(path) and origin(path) not in stems]
            whole = set(map(stem, there - self.lacking(there)))  # of others somebody may look for files by their names
            small = [file for file in base.files.values() if origin(file.path) in whole and file.size < SMALL_BYTES]
            merged = [file for file in base.files.values() if is_merged(file.path)]
            stale = [file for file in merged if self._parts_of(table, file) - there]
            ripe = stale + [file for file in small + merged if file.size < SMALL_BYTES and file not in stale]
            packs = packed(((file, file.size) for file in ripe), _MERGED_BYTES)
            groups = [[file.path for file in pack] for pack in packs if len(pack) > 1 or pack[0] in stale]
            if not gone and not groups:
                return
            add = [table.merge(group, columns, field("bronze_file").isin(sorted(there))) for group in groups]
            with suppress(ConflictError):
                table.commit(base, columns, add, [*gone, *(path for group in groups for path in group)])
                return

    def _parts_of(self, table: Table, file: File) -> set[str]:
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
