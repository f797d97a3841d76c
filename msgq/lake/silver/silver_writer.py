"""Writes the silver files of a bronze file, one for each table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from msgq.common.handler_errors import raise_handler_error
from msgq.common.schema import Schema
from msgq.decoding.arrow_types import cast_table_columns, find_common_columns
from msgq.decoding.payload_decoder import DECODABLE_ENCODINGS
from msgq.errors import RecordingError
from msgq.lake.bronze.bronze_writer import open_messages_table
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.silver.silver_decoder import SILVER_INPUT_COLUMNS, SILVER_SOURCE_COLUMNS, SchemaFamily, SilverDecoder
from msgq.lake.silver.table_assignment import DECODE_ERRORS_TABLE, TableAssignment, open_silver_table

_BUFFERED_ROWS_MAX = 1 << 18  # maximum buffered rows of a table
_BUFFERED_BYTES_MAX = 64 << 20
_TOTAL_BUFFERED_BYTES_MAX = 256 << 20  # maximum buffered bytes of all tables
_ROW_GROUP_ROWS = 1 << 16  # few, so that each row group has few endpoints
_ROW_GROUP_BYTES = 16 << 20
_OPEN_FILES_MAX = 200  # files at a time
_DICTIONARY_ENCODED_COLUMNS = ["run", "endpoint", "encoding", "kind", "publisher", "key"]
_DELTA_ENCODED_COLUMNS = ("sequence", "publish_time", "log_time")
#: Columns of decoded files. A row is a file, with its columns; or, if `endpoint` is not NULL, the part of a file that
#: belongs to an endpoint, with its fields in their own types. An undecodable bronze file has one row, without a file.
MANIFEST_SCHEMA = pa.schema(
    [
        ("bronze_file", pa.string()),
        ("table_name", pa.string()),
        ("file", pa.string()),
        ("endpoint", pa.string()),
        ("row_count", pa.int64()),
        ("encoding", pa.string()),
        ("schema", pa.string()),
        ("has_source", pa.bool_()),
        ("size_bytes", pa.int64()),
        ("column_types", pa.binary()),
    ]
)


def decode_bronze_file(
    lake: LakeDirectory, bronze_file: str, schemas: Mapping[int, Schema], tables: TableAssignment
) -> pa.Table:
    """Decode a bronze file into new files, and return their `MANIFEST_SCHEMA`. A commit of it adds the files.

    Args:
        bronze_file: path below "messages", such as "date=2026-05-01/size_class=small/NAME.parquet".
        schemas: schemas by `schema_id`.
        tables: known tables. New tables are added.

    Raises:
        RecordingError: the bronze file cannot be read.
    """
    decoder, files = SilverDecoder(schemas), _SilverWriter(lake, bronze_file, tables)
    path = open_messages_table(lake).resolve_file_path(bronze_file)
    try:
        with pq.ParquetFile(path, filesystem=lake.files, read_dictionary=_DICTIONARY_ENCODED_COLUMNS) as source:
            for number in range(source.num_row_groups):
                for decoded in decoder.decode_messages(_read_bronze_row_group(source, number)):
                    if decoded.decoded_rows.num_rows:
                        name = tables.assign_table(decoded.schema_family, decoded.decoded_rows.schema)
                        files.add_rows(name, decoded.schema_family, decoded.decoded_rows, decoded.value_fields)
                    if decoded.decode_errors.num_rows:
                        files.add_rows(DECODE_ERRORS_TABLE, None, decoded.decode_errors, pa.schema([]))
            files.flush_buffers()
    except (OSError, pa.ArrowException) as error:
        raise_handler_error(error)
        raise RecordingError(f"bronze file '{path}' cannot be decoded: {error}") from error
    finally:
        files.close()
    return files.build_manifest_rows()


def _read_bronze_row_group(source: pq.ParquetFile, number: int) -> pa.Table:
    """Read a row group. Payloads are read only if some of them can be decoded."""
    about = source.read_row_group(
        number, [name for name in (*SILVER_INPUT_COLUMNS.names, *SILVER_SOURCE_COLUMNS.names) if name != "data"]
    )
    if set(about.column("encoding").unique().to_pylist()) & DECODABLE_ENCODINGS:
        return about.append_column("data", source.read_row_group(number, ["data"]).column("data"))
    return about.append_column("data", pa.nulls(about.num_rows, pa.binary()))


class _OpenSilverFile:
    """A file during writing, with the number of rows of each endpoint, and the columns that may have NaN."""

    def __init__(self, path: str, columns: pa.Schema, nan_columns: set[str], writer: pq.ParquetWriter) -> None:
        self.path, self.columns, self.nan_columns, self.writer = path, columns, nan_columns, writer
        self.rows: dict[str, int] = {}


class _TableBuffer:
    """Rows of a bronze file for one table: buffered rows and written files."""

    def __init__(self, family: SchemaFamily | None) -> None:
        self.family = family
        self.waiting: list[pa.Table] = []
        self.count = self.size = 0
        self.files: list[_OpenSilverFile] = []
        self.fields: dict[str, pa.Schema] = {}  # fields by endpoint

    def add_rows(self, rows: pa.Table, fields: pa.Schema) -> None:
        """Buffer rows, and store the fields of their endpoints."""
        self.waiting.append(rows)
        self.count += rows.num_rows
        self.size += rows.nbytes
        joined: dict[pa.Schema | None, pa.Schema] = {None: fields}  # most have the same
        for endpoint in rows.column("endpoint").unique().to_pylist():
            before = self.fields.get(endpoint)
            if before not in joined:
                joined[before] = find_common_columns(before, fields)
            self.fields[endpoint] = joined[before]

    def pop_rows(self) -> pa.Table:
        """Remove and return the buffered rows, sorted by endpoint.

        The order lets statistics of row groups distinguish endpoints.
        """
        rows = pa.concat_tables(self.waiting, promote_options="default")
        self.waiting, self.count, self.size = [], 0, 0
        _, ranks = np.unique(rows.column("endpoint").to_numpy(), return_inverse=True)
        return rows if (np.diff(ranks) >= 0).all() else rows.take(pa.array(np.argsort(ranks, kind="stable")))


class _SilverWriter:
    """Files made from a bronze file. Buffered rows and open files are limited."""

    def __init__(self, lake: LakeDirectory, bronze_file: str, tables: TableAssignment) -> None:
        self._lake, self._bronze_file, self._assignment = lake, bronze_file, tables
        self._tables: dict[str, _TableBuffer] = {}
        self._open_files: dict[str, _OpenSilverFile] = {}
        self._buffered_bytes = 0

    def add_rows(self, name: str, family: SchemaFamily | None, rows: pa.Table, fields: pa.Schema) -> None:
        """Add rows to a table. `family` None: the rows are decode errors."""
        table = self._tables.setdefault(name, _TableBuffer(family))
        before = table.size
        table.add_rows(rows, fields)
        self._buffered_bytes += table.size - before
        if table.count >= _BUFFERED_ROWS_MAX or table.size >= _BUFFERED_BYTES_MAX:
            self._flush_table_buffer(name)
        while self._buffered_bytes > _TOTAL_BUFFERED_BYTES_MAX:
            self._flush_table_buffer(max(self._tables, key=lambda name: self._tables[name].size))

    def _flush_table_buffer(self, name: str) -> None:
        table = self._tables[name]
        size = table.size
        self._buffered_bytes -= size
        rows = table.pop_rows()
        columns = rows.schema if table.family is None else self._assignment.get_table_columns(name)
        stored = cast_table_columns(rows, columns)
        nan_columns = _find_nan_columns(stored)
        file = self._open_files.get(name)
        if file is not None and not (file.columns == columns and nan_columns <= file.nan_columns):
            nan_columns |= file.nan_columns  # so that few files begin
            self._open_files.pop(name).writer.close()
            file = None
        file = file or self._open_silver_file(name, columns, nan_columns)
        group = min(_ROW_GROUP_ROWS, max(1, _ROW_GROUP_BYTES * rows.num_rows // max(1, size)))
        file.writer.write_table(stored, row_group_size=group)
        for count in pc.value_counts(rows.column("endpoint")).to_pylist():
            file.rows[count["values"]] = file.rows.get(count["values"], 0) + count["counts"]

    def _open_silver_file(self, name: str, columns: pa.Schema, nan_columns: set[str]) -> _OpenSilverFile:
        if len(self._open_files) >= _OPEN_FILES_MAX:
            self._open_files.pop(next(iter(self._open_files))).writer.close()
        date, kind, stem = self._bronze_file.removesuffix(".parquet").split("/")
        path = f"{date}/{stem}-{kind.removeprefix('size_class=')}-{uuid4().hex[:12]}.parquet"
        table = open_silver_table(self._lake, name)
        table.create_folder_of(path)
        file_path = table.resolve_file_path(path)
        writer = _open_silver_parquet_writer(file_path, columns, nan_columns, self._lake)
        file = self._open_files[name] = _OpenSilverFile(path, columns, nan_columns, writer)
        self._tables[name].files.append(file)
        return file

    def flush_buffers(self) -> None:
        """Write the buffered rows."""
        for name in [name for name, table in self._tables.items() if table.waiting]:
            self._flush_table_buffer(name)

    def close(self) -> None:
        """Complete all files."""
        for file in self._open_files.values():
            file.writer.close()
        self._open_files.clear()

    def build_manifest_rows(self) -> pa.Table:
        """Return the manifest rows of the written files."""
        rows: list[dict[str, Any]] = []
        for name, table in self._tables.items():
            for file in table.files:
                family = table.family or SchemaFamily("", "", False)
                about: dict[str, Any] = {"bronze_file": self._bronze_file, "table_name": name, "file": file.path}
                about |= {"encoding": family.encoding, "schema": family.schema_name, "has_source": family.has_source}
                size = self._lake.files.get_file_info(
                    open_silver_table(self._lake, name).resolve_file_path(file.path)
                ).size
                totals = {
                    "row_count": sum(file.rows.values()),
                    "size_bytes": size,
                    "column_types": _serialize_columns(file.columns),
                }
                rows.append(about | totals)
                texts = {fields: _serialize_columns(fields) for fields in set(table.fields.values())}
                rows += [
                    about | {"endpoint": endpoint, "row_count": count, "column_types": texts[table.fields[endpoint]]}
                    for endpoint, count in sorted(file.rows.items())
                ]
        return pa.Table.from_pylist(rows or [{"bronze_file": self._bronze_file, "row_count": 0}], MANIFEST_SCHEMA)


def _serialize_columns(columns: pa.Schema) -> bytes:
    return bytes(columns.serialize())


def _find_nan_columns(rows: pa.Table) -> set[str]:
    """Return the columns with NaN. The largest value that Parquet states leaves NaN out.

    For Spark, NaN is the largest number. So a file that states the largest value would be skipped.
    """
    floats = [field.name for field in rows.schema if pa.types.is_floating(field.type)]
    return {name for name in floats if pc.any(pc.is_nan(rows.column(name))).as_py()}


def _open_silver_parquet_writer(
    file_path: str, columns: pa.Schema, nan_columns: set[str], lake: LakeDirectory
) -> pq.ParquetWriter:
    without_statistics = nan_columns | ({"data"} if "reason" in columns.names else set())  # bytes of decode errors
    texts = [field.name for field in columns if pa.types.is_string(field.type)]
    return pq.ParquetWriter(
        file_path,
        columns,
        filesystem=lake.files,
        compression="zstd",
        compression_level=1,
        use_dictionary=[*texts, *(name for name in ("epoch", "element_index") if name in columns.names)],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in _DELTA_ENCODED_COLUMNS if name in columns.names},
        write_statistics=[name for name in columns.names if name not in without_statistics],
        write_page_index=True,
        store_schema=False,  # a reader wants what Parquet says
    )
