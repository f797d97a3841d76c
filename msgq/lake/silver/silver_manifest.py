"""Manifest of silver: decoded bronze files, and the files of silver tables with their rows.

    LAKE/silver_manifest    the manifest
    LAKE/silver/TABLE    decoded messages, a table for each schema
    LAKE/decode_errors     messages that could not be decoded

One commit to the manifest adds the decoded messages of all endpoints at once. A reader of an endpoint reads the files
in the manifest. Then each table is updated by one commit, for readers of whole tables. After a kill, the next decoding
updates the tables. Therefore no row is repeated or missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from msgq.decoding.arrow_types import find_common_columns
from msgq.lake.data_file import DataFile
from msgq.lake.delta_table import CommitConflictError, LakeTable, has_table, list_table_paths
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.silver.silver_decoder import DECODE_ERRORS_SCHEMA, SchemaFamily
from msgq.lake.silver.silver_writer import MANIFEST_SCHEMA
from msgq.lake.silver.table_assignment import DECODE_ERRORS_TABLE, SilverTable, TableAssignment, open_silver_table
from msgq.lake.table_snapshot import TableSnapshot
from msgq.lake.text_columns import TextColumn, make_text_column, subtract_texts

_MANIFEST_FILES_MAX = 64  # maximum files of the manifest before they become one
_TABLE_COLUMNS = ("table_name", "encoding", "schema", "has_source", "column_types")  # these describe a silver table
_DATE_FIELD = pa.field("date", pa.date32())
_APPLIED_VERSION_PATH = "silver/_synced.json"
_NO_VERSION: list[str | int] = ["", -1]
#: Decodes bronze files, knowing what tables there are, and gives the manifest of each.
BronzeDecodeFunction = Callable[[Sequence[str], Mapping[str, SilverTable]], Iterable[pa.Table]]


class EndpointFiles(NamedTuple):
    """Files with the messages of an endpoint in one table.

    Attributes:
        table_name: name of the table, or DECODE_ERRORS_TABLE.
        file_paths: paths relative to the table's directory.
        table_columns: columns of the table that the endpoint has: `SILVER_FIXED_COLUMNS`, publisher and key except for
            topics, and fields.
        endpoint_columns: the same columns in the types of this endpoint, to which they can be cast.
    """

    table_name: str
    file_paths: list[str]
    table_columns: pa.Schema
    endpoint_columns: pa.Schema


@dataclass(frozen=True)
class _ManifestVersion:
    """One version of the manifest."""

    table_snapshot: TableSnapshot | None

    @cached_property
    def file_rows(self) -> pa.Table:
        """Rows about files."""
        return self.read_rows(pc.field("endpoint").is_null())

    def read_rows(self, where: Any, columns: Sequence[str] | None = None) -> pa.Table:
        if self.table_snapshot is None:
            return MANIFEST_SCHEMA.empty_table().select(columns or MANIFEST_SCHEMA.names)
        return self.table_snapshot.read_rows(columns, where).select(columns or MANIFEST_SCHEMA.names)

    @property
    def identity(self) -> list[str | int]:
        """Id and version of the manifest. A user may delete the manifest, and versions of a new one begin at 0."""
        snapshot = self.table_snapshot
        return _NO_VERSION if snapshot is None else [snapshot.table_id, snapshot.version]

    @cached_property
    def decoded_bronze_files(self) -> TextColumn:
        """Decoded bronze files."""
        return self.file_rows.column("bronze_file").unique()

    @cached_property
    def silver_tables(self) -> dict[str, SilverTable]:
        """Properties of each silver table."""
        tables: dict[str, SilverTable] = {}
        rows = self.file_rows.filter(pc.field("table_name") != DECODE_ERRORS_TABLE)
        for row in rows.group_by(list(_TABLE_COLUMNS), use_threads=False).aggregate([]).to_pylist():
            name = row["table_name"]
            family, columns = _read_file_family(row)
            tables[name] = SilverTable(
                family, find_common_columns(tables[name].column_schema, columns) if name in tables else columns
            )
        return tables


class SilverManifest:
    """Manifest of decoded messages. Any number of writers and readers. One thread at a time may use an object."""

    def __init__(self, lake: LakeDirectory) -> None:
        """Set the lake, which may not exist yet."""
        self._lake = lake
        self._table = LakeTable(lake, "silver_manifest")
        self._silver_tables: dict[str, LakeTable] = {}

    # ---- reading ----

    def list_endpoints(self) -> list[str]:
        """Return the endpoints with decoded messages, sorted."""
        is_endpoint_part = pc.field("endpoint").is_valid() & (pc.field("table_name") != DECODE_ERRORS_TABLE)
        return sorted(
            self._read_version().read_rows(is_endpoint_part, ["endpoint"]).column("endpoint").unique().to_pylist()
        )

    def list_endpoint_files(self, endpoint: str) -> list[EndpointFiles]:
        """Return the files with the decoded messages of an endpoint."""
        state = self._read_version()
        rows = state.read_rows((pc.field("endpoint") == endpoint) & (pc.field("table_name") != DECODE_ERRORS_TABLE))
        files: dict[str, dict[str, None]] = {}
        fields: dict[str, pa.Schema] = {}
        for row in rows.sort_by("file").to_pylist():
            name, columns = row["table_name"], _deserialize_columns(row)
            files.setdefault(name, {})[row["file"]] = None
            fields[name] = find_common_columns(fields[name], columns) if name in fields else columns
        return [
            EndpointFiles(name, list(columns), *_select_endpoint_columns(state.silver_tables[name], fields[name]))
            for name, columns in files.items()
        ]

    def list_decode_error_files(self) -> EndpointFiles:
        """Return the files with messages that could not be decoded."""
        files = self._read_version().file_rows.filter(pc.field("table_name") == DECODE_ERRORS_TABLE).column("file")
        return EndpointFiles(DECODE_ERRORS_TABLE, sorted(files.to_pylist()), DECODE_ERRORS_SCHEMA, DECODE_ERRORS_SCHEMA)

    # ---- writing ----

    def decode_bronze_files(
        self,
        bronze_files: Callable[[], Iterable[str] | TextColumn],
        run: BronzeDecodeFunction,
        full_refresh: bool = False,
    ) -> int:
        """Decode bronze files that are not decoded, and drop removed ones. Return the number of decoded files.

        Args:
            bronze_files: returns all current bronze files.
            run: decodes bronze files, and writes files. Files that are not committed are ignored.
            full_refresh: True: decode all bronze files again. Until the end, readers see the old rows.
        """
        decoded: dict[str, pa.Table] = {}
        while True:
            state = self._read_version()
            present = make_text_column(bronze_files())
            new = present if full_refresh else subtract_texts(present, self._list_readable_bronze_files(state))
            new_files: set[str] = set(new.to_pylist())
            decoded = {bronze_file: rows for bronze_file, rows in decoded.items() if bronze_file in new_files}
            decoded = _decode_missing_files(
                new_files, decoded, TableAssignment({} if full_refresh else state.silver_tables), run
            )
            removed: set[str] = set(subtract_texts(state.decoded_bronze_files, present).to_pylist())
            if not decoded and not removed:
                break
            try:
                self._commit_manifest(state, decoded, removed)
            except CommitConflictError:
                if self._read_version().identity == state.identity:
                    raise
                continue
            break
        self.apply_to_tables()
        return len(decoded)

    def _list_readable_bronze_files(self, state: _ManifestVersion) -> TextColumn:
        """Return the decoded bronze files whose decoded rows still exist.

        If another program optimizes a silver table, it moves the rows to new files. It may later remove the old files.
        """
        rows, lost = state.file_rows.select(["table_name", "file", "bronze_file"]), set[str]()
        for name in rows.column("table_name").unique().drop_null().to_pylist():
            table = self._open_table(name)
            snapshot, files = table.read_snapshot(), rows.filter(pc.field("table_name") == name)
            if snapshot is not None:
                files = files.filter(pc.invert(pc.is_in(files.column("file"), snapshot.path_column)))
            lost |= {
                row["bronze_file"]
                for row in files.to_pylist()
                if not self._lake.has_entry(f"{table.place}/{row['file']}")
            }
        return subtract_texts(state.decoded_bronze_files, make_text_column(lost))

    def apply_to_tables(self) -> None:
        """Update the tables to the state of the manifest, in case another process was killed before it did so."""
        while (state := self._read_version()).identity != self._lake.read_json(_APPLIED_VERSION_PATH, _NO_VERSION):
            self._apply_version(state)
            self._lake.write_json(_APPLIED_VERSION_PATH, state.identity)

    def _open_table(self, name: str) -> LakeTable:
        """Return a silver table, which keeps its version."""
        if name not in self._silver_tables:
            self._silver_tables[name] = open_silver_table(self._lake, name)
        return self._silver_tables[name]

    def _read_version(self) -> _ManifestVersion:
        return _ManifestVersion(self._table.read_snapshot())

    def _commit_manifest(self, state: _ManifestVersion, new_rows: Mapping[str, pa.Table], removed: set[str]) -> None:
        """Replace the rows of bronze files, and remove the rows of removed bronze files."""
        base, rows = state.table_snapshot, list(new_rows.values())
        decoded_again = pc.is_in(make_text_column(new_rows), state.decoded_bronze_files)
        away = removed | set(make_text_column(new_rows).filter(decoded_again).to_pylist())
        whole = base is not None and (bool(away) or base.file_count >= _MANIFEST_FILES_MAX)
        if whole:
            kept = state.read_rows(None)
            rows.insert(
                0, kept.filter(pc.invert(pc.is_in(kept.column("bronze_file"), pa.array(sorted(away), pa.string()))))
            )
        for name, files in _list_files_by_table(new_rows.values()):
            self._open_table(name).sync_files(files)  # they count by the manifest, before their tables have them
        file = self._table.write_file(f"{uuid4().hex}.parquet", pa.concat_tables(rows))
        self._table.commit_files(base, MANIFEST_SCHEMA, [file], None if whole else ())

    def _apply_version(self, state: _ManifestVersion) -> None:
        rows_by_table: dict[str, list[dict[str, Any]]] = {}
        for row in state.file_rows.select(
            ["table_name", "file", "row_count", "size_bytes", "column_types"]
        ).to_pylist():
            if row["table_name"] is not None:
                rows_by_table.setdefault(row["table_name"], []).append(row)
        names = [place.removeprefix("silver/") for place in list_table_paths(self._lake, "silver")]
        aside = [DECODE_ERRORS_TABLE] if has_table(self._lake, DECODE_ERRORS_TABLE) else []
        for name in sorted({*rows_by_table, *names, *aside}):
            self._apply_manifest_to_table(name, rows_by_table.get(name, []), state)

    def _apply_manifest_to_table(self, name: str, rows: list[dict[str, Any]], state: _ManifestVersion) -> None:
        """Update a table in one commit, if necessary."""
        table = self._open_table(name)
        base = table.read_snapshot()
        if self._read_version().identity != state.identity:
            return  # another process may have applied a newer manifest; `apply_to_tables` then begins again
        present = {} if base is None else base.files_by_path
        files = {row["file"]: row for row in rows}
        add = [_make_data_file(row) for path, row in files.items() if path not in present]
        remove = [path for path in present if path not in files]
        if not add and not remove:
            return
        columns = (
            DECODE_ERRORS_SCHEMA
            if name == DECODE_ERRORS_TABLE
            else state.silver_tables[name].column_schema
            if add
            else pa.schema([])
        )
        is_anew = base is not None and add and len(remove) == len(present)  # columns may have other types
        if base is not None and not is_anew:
            before = base.columns.remove(base.columns.get_field_index(_DATE_FIELD.name))
            columns = pa.schema([*before, *(field for field in columns if field.name not in before.names)])
        try:
            table.commit_files(base, columns.append(_DATE_FIELD), add, None if is_anew else remove)
        except CommitConflictError:  # another process committed; after a change of the manifest, begin again
            now = table.read_snapshot()
            if now is None or (base is not None and now.version == base.version):
                raise


def _read_file_family(row: Mapping[str, Any]) -> tuple[SchemaFamily, pa.Schema]:
    """Return the family and the columns of a file."""
    return SchemaFamily(row["encoding"], row["schema"], row["has_source"]), _deserialize_columns(row)


def _deserialize_columns(row: Mapping[str, Any]) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(row["column_types"]))


def _make_data_file(row: Mapping[str, Any]) -> DataFile:
    date = row["file"].partition("/")[0].removeprefix(f"{_DATE_FIELD.name}=")
    return DataFile(row["file"], row["size_bytes"], {_DATE_FIELD.name: date}, row["row_count"])


def _select_endpoint_columns(table: SilverTable, fields: pa.Schema) -> tuple[pa.Schema, pa.Schema]:
    """Return the columns of a table that an endpoint with these fields has.

    The second value has the same columns in the endpoint's types.
    """
    first = list(table.column_schema)[: table.schema_family.leading_column_count]
    return pa.schema([*first, *(table.column_schema.field(name) for name in fields.names)]), pa.schema(
        [*first, *fields]
    )


def _decode_missing_files(
    bronze_files: set[str], decoded: dict[str, pa.Table], tables: TableAssignment, run: BronzeDecodeFunction
) -> dict[str, pa.Table]:
    """Return the manifests of all wanted bronze files.

    `decoded`: manifests that exist already. Two bronze files that are decoded at the same time may have different types
        for a column of a table. In this case one of the two files is decoded again, with the type from the other file.
    """
    fitting = {bronze_file: rows for bronze_file, rows in decoded.items() if _accept_assigned_files(rows, tables)}
    while todo := sorted(bronze_files - set(fitting)):
        for rows in run(todo, tables.list_tables()):
            if _accept_assigned_files(rows, tables):
                fitting[rows.column("bronze_file")[0].as_py()] = rows
    return fitting


def _list_files_by_table(manifests: Iterable[pa.Table]) -> Iterator[tuple[str, list[str]]]:
    """Yield each table in rows of the manifest, and the files of these rows in the table."""
    rows = pa.concat_tables([MANIFEST_SCHEMA.empty_table(), *manifests]).filter(pc.field("table_name").is_valid())
    tables = rows.group_by("table_name").aggregate([("file", "distinct")])
    yield from zip(tables.column("table_name").to_pylist(), tables.column("file_distinct").to_pylist(), strict=True)


def _accept_assigned_files(rows: pa.Table, tables: TableAssignment) -> bool:
    files = rows.filter(
        pc.and_(pc.is_null(rows.column("endpoint")), pc.is_valid(rows.column("table_name")))
    ).to_pylist()
    return tables.accept_assignments(
        (row["table_name"], *_read_file_family(row)) for row in files if row["table_name"] != DECODE_ERRORS_TABLE
    )
