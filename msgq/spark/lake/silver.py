"""Silver in a lake: one table an endpoint, decoded, and what could not be decoded.

    LAKE/silver/ENDPOINT/date=.../*.parquet
    LAKE/undecoded/date=.../*.parquet

Workers read parts of bronze and write their rows without a way through Java. A part never changes, and what is made of
it has names that follow from its own: made twice, it is there once. All files of a table have the same type for a
column; some may not have it at all. Where a type becomes wider, the table's files are written anew.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector

from msgq.decoding.arrow_types import common_columns, with_columns
from msgq.decoding.decoders import ENCODINGS
from msgq.recording.format.conventions import file_name
from msgq.recording.reader.parquet import parquet_writer
from msgq.schema import Schema
from msgq.spark.lake.directory import Directory
from msgq.spark.lake.journal import STAGED, Journal
from msgq.spark.lake.schema_texts import read_schemas
from msgq.spark.lake.store import Store
from msgq.spark.source.arrow_batches import spark_schema
from msgq.spark.tables.decoded_rows import NEEDED, SOURCES, UNDECODED, RowDecoder, gathered_messages
from msgq.units import NS_PER_DAY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OPEN_MAX = 200  # files at a time
_ASIDE = "\0"  # in place of an endpoint, for what could not be decoded
_STATE = "silver/_state.json"
_TASKS = 1000
#: A row is a file that a worker wrote: of which endpoint, where it lies, where it belongs, and its columns.
_WRITTEN = pa.schema(
    [("endpoint", pa.string()), ("staged", pa.string()), ("target", pa.string()), ("columns", pa.string())]
)
#: A row is a file to be written anew with other columns.
_REWRITES = pa.schema([("source", pa.string()), ("target", pa.string()), ("columns", pa.string())])
_Hints = Mapping[str, pa.Schema]


class _File(NamedTuple):
    """A file of a table: where it lies, where it belongs, and its columns."""

    path: str
    target: str
    columns: pa.Schema


def _place(endpoint: str) -> str:
    return "undecoded" if endpoint == _ASIDE else f"silver/{file_name(endpoint)}"


class Silver:
    """The tables of silver of a lake. For its one writer, and any number of readers."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store, self._journal = store, journal

    def names(self) -> list[str]:
        """Return the endpoints that have a table."""
        return sorted(set(self._state()["tables"]) - {_ASIDE})

    def table(self, endpoint: str) -> DataFrame | None:
        """Return the table of an endpoint; None: there is none."""
        columns = self._state()["tables"].get(endpoint)
        return None if columns is None or endpoint == _ASIDE else self._read(endpoint, _columns(columns))

    def undecoded(self) -> DataFrame:
        """Return what could not be decoded."""
        return self._read(_ASIDE, UNDECODED)

    def _read(self, endpoint: str, columns: pa.Schema) -> DataFrame:
        return self._store.read(_place(endpoint), spark_schema(columns.append(pa.field("date", pa.date32()))))

    def _state(self) -> dict[str, Any]:
        found: dict[str, Any] = self._store.get(_STATE, {"done": [], "tables": {}})
        return found

    def refresh(self, every: bool) -> int:
        """Decode what is new, or every message again; return how many entries of the journal that was."""
        names, state = self._journal.names(), self._state()
        new = names if every else sorted(set(names) - set(state["done"]))
        if new and not self._store.is_parquet:
            new, every = names, True  # whole tables are written there
        if every:
            self._store.put(_STATE, {"done": [], "tables": {}})  # first: a kill must not leave it saying what is gone
            self._store.remove("silver")
            self._store.remove("undecoded")
            state = {"done": [], "tables": {}}
        if new:
            known = {endpoint: _columns(text) for endpoint, text in state["tables"].items()}
            tables = self._add(new, known)
            state["tables"].update({endpoint: _text(columns) for endpoint, columns in tables.items()})
        self._store.put(_STATE, state | {"done": names})
        return len(new)

    def _add(self, entries: list[str], known: _Hints) -> dict[str, pa.Schema]:
        """Add the messages of some entries; return the columns that their tables have now."""
        staged = f"{STAGED}/{uuid4().hex}"
        files: dict[str, list[_File]] = {}
        for row in self._decode(entries, staged, known).to_pylist():
            file = _File(row["staged"], row["target"], _columns(row["columns"]))
            files.setdefault(row["endpoint"], []).append(file)
        tables = {}
        for endpoint, new in files.items():
            before = [known[endpoint]] if endpoint in known else []
            tables[endpoint] = columns = reduce(common_columns, [*before, *(file.columns for file in new)])
            if before and not _fits(before[0], columns):
                new += self._files(endpoint)
        self._rewrite(files, tables, staged)
        for endpoint, there in files.items():
            self._put(endpoint, there, tables[endpoint])
        self._store.remove(staged)
        return tables

    def _files(self, endpoint: str) -> list[_File]:
        """Return the files that a table has."""
        lake = self._store
        found = lake.files.get_file_info(FileSelector(lake.path(_place(endpoint)), recursive=True))
        paths = [info.path.removeprefix(f"{lake.root}/") for info in found if info.path.endswith(".parquet")]
        return [_File(path, path, pq.read_schema(lake.path(path), filesystem=lake.files)) for path in paths]

    def _decode(self, entries: list[str], staged: str, known: _Hints) -> pa.Table:
        """Let workers write the rows of all messages of these entries; return `_WRITTEN`."""
        store = self._store
        schemas, uri = read_schemas(store), store.uri
        if store.is_parquet:
            parts = self._journal.parts(entries)
            if not parts:
                return _WRITTEN.empty_table()
            tasks = store.spark.createDataFrame(pa.table({"part": parts})).repartition(min(len(parts), _TASKS))
            work = tasks.mapInArrow(lambda found: _of_parts(found, uri, staged, schemas, known), spark_schema(_WRITTEN))
        else:
            columns = spark_schema(pa.schema([*NEEDED, *SOURCES]))
            messages = store.read("messages", columns).select(*columns.names)
            work = messages.mapInArrow(lambda rows: _of_rows(rows, uri, staged, schemas), spark_schema(_WRITTEN))
        return work.toArrow().cast(_WRITTEN)

    def _rewrite(self, files: dict[str, list[_File]], tables: dict[str, pa.Schema], staged: str) -> None:
        """Write those files anew that have another type for a column than their table has now."""
        tasks = []
        for endpoint, there in files.items():
            for number, file in enumerate(there):
                if not _fits(file.columns, tables[endpoint]):
                    there[number] = file._replace(path=f"{staged}/{uuid4().hex}.parquet")
                    columns = _text(tables[endpoint])
                    tasks.append({"source": file.path, "target": there[number].path, "columns": columns})
        if tasks:
            uri = self._store.uri
            rows = self._store.spark.createDataFrame(pa.Table.from_pylist(tasks, _REWRITES))
            work = rows.repartition(min(len(tasks), _TASKS))
            work.mapInArrow(lambda rows: _rewritten(rows, uri), spark_schema(_REWRITES)).toArrow()

    def _put(self, endpoint: str, files: list[_File], columns: pa.Schema) -> None:
        """Add files to a table; in a format that is not plain files, its rows."""
        if self._store.is_parquet:
            for file in files:
                if file.path != file.target:
                    self._store.move(file.path, file.target)
            return
        from pyspark.sql import functions as F

        paths = [self._store.address(file.path) for file in files]
        rows = self._store.spark.read.schema(spark_schema(columns)).parquet(*paths)
        date = F.expr(f"date_from_unix_date(int((log_time - pmod(log_time, {NS_PER_DAY})) div {NS_PER_DAY}))")  # of UTC
        self._store.save(rows.withColumn("date", date), _place(endpoint), ["date"], "overwrite")


def _text(columns: pa.Schema) -> str:
    return base64.b64encode(columns.serialize()).decode()


def _columns(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _fits(columns: pa.Schema, wanted: pa.Schema) -> bool:
    types = {field.name.lower(): field.type for field in wanted}
    return all(types[field.name.lower()] == field.type for field in columns)


# ---- on workers ----


class _Files:
    """The files that a worker writes: one for each endpoint, or several where its columns change."""

    def __init__(self, uri: str, staged: str, known: _Hints, target: str) -> None:
        """target : where a file belongs in its table, but for a number and the suffix."""
        self._lake = Directory(uri)
        self._staged, self._target = staged, target
        self._columns = dict(known)
        self._open: dict[str, pq.ParquetWriter] = {}
        self._counts: dict[str, int] = {}
        self.written: list[dict[str, Any]] = []
        self._lake.files.create_dir(self._lake.path(staged))

    def write(self, endpoint: str, rows: pa.Table) -> None:
        """Add rows to a table."""
        if not rows.num_rows:
            return
        before = self._columns.get(endpoint)
        columns = rows.schema if before is None else common_columns(before, rows.schema)
        if endpoint in self._open and columns != before:
            self._open.pop(endpoint).close()
        self._columns[endpoint] = columns
        if endpoint not in self._open:
            self._begin(endpoint, columns)
        self._open[endpoint].write_table(with_columns(rows, columns))

    def _begin(self, endpoint: str, columns: pa.Schema) -> None:
        if len(self._open) >= _OPEN_MAX:
            self._open.pop(next(iter(self._open))).close()
        staged = f"{self._staged}/{uuid4().hex}.parquet"
        number = self._counts[endpoint] = self._counts.get(endpoint, -1) + 1
        self._open[endpoint] = parquet_writer(self._lake.path(staged), columns, self._lake.files)
        target = f"{_place(endpoint)}/{self._target}-{number}.parquet"
        row = {"endpoint": endpoint, "staged": staged, "target": target, "columns": _text(columns)}
        self.written.append(row)

    def close(self) -> None:
        """Complete them."""
        for writer in self._open.values():
            writer.close()


def _of_parts(
    found: Iterable[pa.RecordBatch], uri: str, staged: str, schemas: Mapping[int, Schema], known: _Hints
) -> Iterator[pa.RecordBatch]:
    """Decode parts of bronze."""
    decoder, lake = RowDecoder(schemas), Directory(uri)
    for part in (part for batch in found for part in batch.column("part").to_pylist()):
        date, kind, name = part.removesuffix(".parquet").split("/")
        with (
            closing(_Files(uri, staged, known, f"{date}/{name}-{kind.removeprefix('class=')}")) as out,
            pq.ParquetFile(lake.path(f"messages/{part}"), filesystem=lake.files) as file,
        ):
            for group in range(file.num_row_groups):
                _decode(decoder, _needed(file, group), out)
        yield pa.RecordBatch.from_pylist(out.written, _WRITTEN)


def _needed(file: pq.ParquetFile, group: int) -> pa.Table:
    """Read a row group; the payloads only if something here decodes some of them."""
    about = file.read_row_group(group, [name for name in (*NEEDED.names, *SOURCES.names) if name != "data"])
    if set(about.column("encoding").unique().to_pylist()) & ENCODINGS:
        return about.append_column("data", file.read_row_group(group, ["data"]).column("data"))
    return about.append_column("data", pa.nulls(about.num_rows, pa.binary()))


def _of_rows(
    batches: Iterable[pa.RecordBatch], uri: str, staged: str, schemas: Mapping[int, Schema]
) -> Iterator[pa.RecordBatch]:
    """Decode messages that come through Spark."""
    decoder = RowDecoder(schemas)
    with closing(_Files(uri, staged, {}, uuid4().hex)) as out:
        for table in gathered_messages(batches):
            _decode(decoder, table, out)
    yield pa.RecordBatch.from_pylist(out.written, _WRITTEN)


def _decode(decoder: RowDecoder, messages: pa.Table, out: _Files) -> None:
    for decoded in decoder.decoded(messages):
        out.write(decoded.endpoint, decoded.rows)
        out.write(_ASIDE, decoded.undecoded)


def _rewritten(tasks: Iterable[pa.RecordBatch], uri: str) -> Iterator[pa.RecordBatch]:
    """Write files anew with the columns that their table has."""
    lake = Directory(uri)
    for batch in tasks:
        for task in batch.to_pylist():
            columns = _columns(task["columns"])
            with (
                pq.ParquetFile(lake.path(task["source"]), filesystem=lake.files) as source,
                parquet_writer(lake.path(task["target"]), columns, lake.files) as target,
            ):
                for group in range(source.num_row_groups):
                    target.write_table(with_columns(source.read_row_group(group), columns))
        yield batch
