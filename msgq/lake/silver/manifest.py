"""The ledger of silver: which parts of bronze are decoded, and in which files of which tables that is.

    LAKE/silver_manifest    the ledger
    LAKE/silver/TABLE    decoded messages, a table a schema
    LAKE/decode_errors     what could not be decoded

One commit to the ledger makes a decoding count, of all endpoints at once: a reader of an endpoint reads the files that
the ledger names. The tables follow it, each in one commit, for those who read them as they are. After a kill the next
decoding lets them follow. So no row is ever there twice, and none is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from msgq.decoding.arrow_types import common_columns
from msgq.lake.delta_table import ConflictError, File, Snapshot, Table, has_table, table_places
from msgq.lake.directory import Directory
from msgq.lake.silver.decoder import DECODE_ERRORS, Family
from msgq.lake.silver.table_assignment import DECODE_ERRORS_TABLE, Known, Tables, silver_table
from msgq.lake.silver.writer import LEDGER

_FILES_MAX = 64  # of the ledger, until they become one
_DATE = pa.field("date", pa.date32())
_SYNCED = "silver/_synced.json"
#: Decodes parts, knowing what tables there are, and gives the ledger of each.
Run = Callable[[Sequence[str], Mapping[str, Known]], Iterable[pa.Table]]


class Source(NamedTuple):
    """Where messages of an endpoint are in a table.

    Attributes
    ----------
    table : its name, or DECODE_ERRORS_TABLE.
    files : below the table's directory.
    columns : of the table, those that the endpoint has: `FIXED`, publisher and key of what is no topic, and fields.
    own : the same in the types that they have in this endpoint, to which they can be cast.
    """

    table: str
    files: list[str]
    columns: pa.Schema
    own: pa.Schema


@dataclass(frozen=True)
class _State:
    """The ledger as it is in one version."""

    snapshot: Snapshot | None

    @cached_property
    def files(self) -> pa.Table:
        """The rows of files."""
        return self.read(pc.field("endpoint").is_null())

    def read(self, where: Any, columns: Sequence[str] | None = None) -> pa.Table:
        if self.snapshot is None:
            return LEDGER.empty_table().select(columns or LEDGER.names)
        return self.snapshot.read(columns, where).select(columns or LEDGER.names)

    @property
    def version(self) -> int:
        return -1 if self.snapshot is None else self.snapshot.version

    @cached_property
    def parts(self) -> set[str]:
        """The parts that are decoded."""
        return set(self.files.column("bronze_file").to_pylist())

    @cached_property
    def tables(self) -> dict[str, Known]:
        """What is known of each table of silver."""
        found: dict[str, Known] = {}
        seen: set[tuple[str, bytes]] = set()
        for row in self.files.to_pylist():
            name, text = row["table_name"], row["column_types"]
            if name in (None, DECODE_ERRORS_TABLE) or (name, text) in seen:
                continue
            seen.add((name, text))
            family, columns = _described(row)
            found[name] = Known(family, common_columns(found[name].columns, columns) if name in found else columns)
        return found


class Ledger:
    """What is decoded. For any number of writers and readers; of this object, one thread at a time."""

    def __init__(self, lake: Directory) -> None:
        """Look at a lake that may not exist yet."""
        self._lake = lake
        self._table = Table(lake, "silver_manifest")

    # ---- reading ----

    def endpoints(self) -> list[str]:
        """Return the endpoints of which something is decoded, sorted."""
        wanted = pc.field("endpoint").is_valid() & (pc.field("table_name") != DECODE_ERRORS_TABLE)
        return sorted(self._state().read(wanted, ["endpoint"]).column("endpoint").unique().to_pylist())

    def sources(self, endpoint: str) -> list[Source]:
        """Return where the decoded messages of an endpoint are."""
        state = self._state()
        rows = state.read((pc.field("endpoint") == endpoint) & (pc.field("table_name") != DECODE_ERRORS_TABLE))
        files: dict[str, dict[str, None]] = {}
        fields: dict[str, pa.Schema] = {}
        for row in rows.sort_by("file").to_pylist():
            name, found = row["table_name"], _columns(row)
            files.setdefault(name, {})[row["file"]] = None
            fields[name] = common_columns(fields[name], found) if name in fields else found
        return [Source(name, list(found), *_chosen(state.tables[name], fields[name])) for name, found in files.items()]

    def decode_errors(self) -> Source:
        """Return where that is which could not be decoded."""
        files = self._state().files.filter(pc.field("table_name") == DECODE_ERRORS_TABLE).column("file")
        return Source(DECODE_ERRORS_TABLE, sorted(files.to_pylist()), DECODE_ERRORS, DECODE_ERRORS)

    # ---- writing ----

    def decode(self, parts: Callable[[], set[str]], run: Run, every: bool = False) -> int:
        """Decode the parts that are not decoded, forget those that are gone; return how many were decoded.

        Parameters
        ----------
        parts : returns all parts of bronze as it is now.
        run : writes the files of parts; those that do not count in the end are forgotten.
        every : decode all parts anew; readers see what was there until all is done.
        """
        made: dict[str, pa.Table] = {}
        while True:
            state = self._state()
            there = parts()
            wanted = there if every else there - state.parts
            made = {part: rows for part, rows in made.items() if part in wanted}
            made = _decoded(wanted, made, Tables({} if every else state.tables), run)
            gone = state.parts - there
            if not made and not gone:
                break
            try:
                self._commit(state, made, gone)
            except ConflictError:
                if self._state().version == state.version:
                    raise
                continue
            break
        self.sync()
        return len(made)

    def sync(self) -> None:
        """Make the tables what the ledger says: whoever was to do it may have been killed."""
        while (state := self._state()).version != self._lake.get(_SYNCED, -1):
            self._sync(state)
            self._lake.put(_SYNCED, state.version)

    def _state(self) -> _State:
        return _State(self._table.snapshot())

    def _commit(self, state: _State, made: Mapping[str, pa.Table], gone: set[str]) -> None:
        """Add the rows of parts, in place of those that there are of them; take away those of parts that are gone."""
        base, rows = state.snapshot, list(made.values())
        away = gone | (state.parts & set(made))
        whole = base is not None and (bool(away) or len(base.files) >= _FILES_MAX)
        if whole:
            kept = state.read(None)
            rows.insert(
                0, kept.filter(pc.invert(pc.is_in(kept.column("bronze_file"), pa.array(sorted(away), pa.string()))))
            )
        for name, files in _files(made.values()):
            silver_table(self._lake, name).sync(files)  # they count by the ledger, before their tables have them
        file = self._table.write(f"{uuid4().hex}.parquet", pa.concat_tables(rows))
        self._table.commit(base, LEDGER, [file], None if whole else ())

    def _sync(self, state: _State) -> None:
        wanted: dict[str, list[dict[str, Any]]] = {}
        for row in state.files.select(["table_name", "file", "row_count", "size_bytes", "column_types"]).to_pylist():
            if row["table_name"] is not None:
                wanted.setdefault(row["table_name"], []).append(row)
        there = [place.removeprefix("silver/") for place in table_places(self._lake, "silver")]
        aside = [DECODE_ERRORS_TABLE] if has_table(self._lake, DECODE_ERRORS_TABLE) else []
        for name in sorted({*wanted, *there, *aside}):
            self._sync_table(name, wanted.get(name, []), state)

    def _sync_table(self, name: str, rows: list[dict[str, Any]], state: _State) -> None:
        """Change a table in one commit, unless there is nothing to change."""
        table = silver_table(self._lake, name)
        base = table.snapshot()
        there = {} if base is None else base.files
        files = {row["file"]: row for row in rows}
        add = [_file(row) for path, row in files.items() if path not in there]
        remove = [path for path in there if path not in files]
        if not add and not remove:
            return
        columns = DECODE_ERRORS if name == DECODE_ERRORS_TABLE else state.tables[name].columns if add else pa.schema([])
        is_anew = base is not None and add and len(remove) == len(there)  # columns may have other types
        if base is not None and not is_anew:
            before = base.columns.remove(base.columns.get_field_index(_DATE.name))
            columns = pa.schema([*before, *(field for field in columns if field.name not in before.names)])
        try:
            table.commit(base, columns.append(_DATE), add, None if is_anew else remove)
        except ConflictError:  # somebody else does the same; who finds the ledger changed begins again
            now = table.snapshot()
            if now is None or (base is not None and now.version == base.version):
                raise


def _described(row: Mapping[str, Any]) -> tuple[Family, pa.Schema]:
    """Return the family and the columns of a file."""
    return Family(row["encoding"], row["schema"], row["has_source"]), _columns(row)


def _columns(row: Mapping[str, Any]) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(row["column_types"]))


def _file(row: Mapping[str, Any]) -> File:
    date = row["file"].partition("/")[0].removeprefix(f"{_DATE.name}=")
    return File(row["file"], row["size_bytes"], {_DATE.name: date}, row["row_count"])


def _chosen(table: Known, fields: pa.Schema) -> tuple[pa.Schema, pa.Schema]:
    """Return those columns of a table that an endpoint with these fields has, and the same in its own types."""
    first = list(table.columns)[: table.family.own]
    return pa.schema([*first, *(table.columns.field(name) for name in fields.names)]), pa.schema([*first, *fields])


def _decoded(wanted: set[str], made: dict[str, pa.Table], tables: Tables, run: Run) -> dict[str, pa.Table]:
    """Return the ledgers of all parts that are wanted. made : some of them, as far as they fit to the tables that there
    are; of parts that are decoded at the same time, too, one may have a column in a table as another has it, of another
    type: it is decoded again, knowing the other's.
    """
    fitting = {part: rows for part, rows in made.items() if _fits(rows, tables)}
    while todo := sorted(wanted - set(fitting)):
        for rows in run(todo, tables.known()):
            if _fits(rows, tables):
                fitting[rows.column("bronze_file")[0].as_py()] = rows
    return fitting


def _files(every: Iterable[pa.Table]) -> Iterator[tuple[str, list[str]]]:
    """Give each table in rows of the ledger, and the files that these have in it."""
    rows = pa.concat_tables([LEDGER.empty_table(), *every]).filter(pc.field("table_name").is_valid())
    found = rows.group_by("table_name").aggregate([("file", "distinct")])
    yield from zip(found.column("table_name").to_pylist(), found.column("file_distinct").to_pylist(), strict=True)


def _fits(rows: pa.Table, tables: Tables) -> bool:
    files = rows.filter(
        pc.and_(pc.is_null(rows.column("endpoint")), pc.is_valid(rows.column("table_name")))
    ).to_pylist()
    return tables.take(
        (row["table_name"], *_described(row)) for row in files if row["table_name"] != DECODE_ERRORS_TABLE
    )
