"""Queries about a lake in DuckDB, without Spark. The tables have the names, columns and values of `Lake.sql`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.types as pa_types

from msgq.common.optional import require_extra
from msgq.common.storage.store_errors import translate_store_errors
from msgq.decoding.arrow_types import find_common_columns
from msgq.errors import InvalidValueError
from msgq.lake.bronze.bronze_reader import BronzeReader
from msgq.lake.bronze.ingest_log import IngestLog
from msgq.lake.catalog import find_unquoted_name, list_sql_names
from msgq.lake.gold.gold_builder import GOLD_TABLE_NAMES
from msgq.lake.gold.gold_files import GOLD_TABLE_SCHEMAS, open_gold_table
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.message_columns import BRONZE_COLUMNS, READ_ERRORS_SCHEMA
from msgq.lake.query_names import find_named_tables
from msgq.lake.silver.silver_manifest import EndpointFiles, SilverManifest
from msgq.lake.silver.table_assignment import open_silver_table
from msgq.lake.timestamp_columns import list_timestamp_columns

if TYPE_CHECKING:
    import duckdb

_SILVER_PREFIX = "silver_"
_NUMBER_TYPES = {
    **{pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT"},
    **{pa.float32(): "FLOAT", pa.float64(): "DOUBLE"},
}
_DATE_FIELD = pa.field("date", pa.date32())


@translate_store_errors()
def run_query(lake: LakeDirectory, query: str, limit: int, version: int | None = None) -> tuple[list[str], list[Any]]:
    """Return the column names and the first rows of the result of a query.

    Args:
        limit: largest number of rows.
        version: version of the table of messages; None: the newest.

    Raises:
        MissingLibraryError: DuckDB is not installed.
        InvalidValueError: DuckDB rejects the query, or the query names an endpoint whose values have several types.
        StorageError: the object store cannot be used.
    """
    require_extra("a query in DuckDB", "duckdb", "duckdb")
    import duckdb

    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        tables = _LakeViews(lake, connection, version)
        tables.create_views(query)
        try:
            answer = connection.execute(query)
            return [column[0] for column in answer.description or ()], answer.fetchmany(limit)
        except duckdb.Error as error:
            raise InvalidValueError(
                f"DuckDB rejects the query: {_describe_error(str(error), query, tables.names)}"
            ) from None


class _LakeViews:
    """Views of the tables of a lake."""

    def __init__(self, lake: LakeDirectory, connection: duckdb.DuckDBPyConnection, version: int | None) -> None:
        self._lake, self._connection = lake, connection
        self._registered_count = 0
        self._reader, self._manifest = BronzeReader(lake, version), SilverManifest(lake)
        gold = [name for name in GOLD_TABLE_NAMES if open_gold_table(lake, name).read_snapshot() is not None]
        silver = [f"{_SILVER_PREFIX}{endpoint}" for endpoint in self._manifest.list_endpoints()]
        self.names = ["messages", "read_errors", "decode_errors", *gold, *silver]

    def create_views(self, query: str) -> None:
        """Create a view of each table that a query names."""
        for name in find_named_tables(query, self.names, '"'):
            select = self._select_silver(name) if name.startswith(_SILVER_PREFIX) else self._select_table(name)
            self._connection.execute(f"CREATE VIEW {_quote_name(name)} AS {select}")

    def _select_table(self, name: str) -> str:
        if name == "messages":
            rows, columns = self._reader.open_dataset(), BRONZE_COLUMNS.names
        elif name == "read_errors":
            problems = IngestLog(self._lake).list_read_errors()
            values = [{"file": found.path, "byte_offset": found.offset, "reason": found.reason} for found in problems]
            rows, columns = pa.Table.from_pylist(values, READ_ERRORS_SCHEMA), READ_ERRORS_SCHEMA.names
        elif name == "decode_errors":
            source = self._manifest.list_decode_error_files()
            rows, columns = self._open_files(source), [*source.table_columns.names, _DATE_FIELD.name]
        else:
            snapshot, columns = open_gold_table(self._lake, name).read_snapshot(), GOLD_TABLE_SCHEMAS[name].names
            rows = GOLD_TABLE_SCHEMAS[name].empty_table() if snapshot is None else snapshot.open_dataset()
        stamps = [] if name == "read_errors" else _make_timestamps(columns)
        return f"SELECT {', '.join([*map(_quote_name, columns), *stamps])} FROM {self._register_rows(rows)}"

    def _select_silver(self, name: str) -> str:
        endpoint = name.removeprefix(_SILVER_PREFIX)
        sources = self._manifest.list_endpoint_files(endpoint)
        common_columns = reduce(find_common_columns, [source.endpoint_columns for source in sources])
        selects = [self._select_endpoint_files(source, endpoint, common_columns) for source in sources]
        stamps = _make_timestamps(common_columns.names, ("publish_time", "log_time"))
        return f"SELECT {', '.join(['*', *stamps])} FROM ({' UNION ALL '.join(selects)})"

    def _select_endpoint_files(self, source: EndpointFiles, endpoint: str, target_schema: pa.Schema) -> str:
        """Return a query for the rows of an endpoint in a table, with the columns of the endpoint."""
        names = [own.name.lower() for own in source.endpoint_columns]
        stored = dict(zip(names, source.table_columns, strict=True))
        fields = [field for field in target_schema if field.name != "endpoint"]
        values = [_make_value(stored.get(field.name.lower()), field, endpoint) for field in fields]
        where = f"endpoint = '{endpoint.replace(chr(39), chr(39) * 2)}'"
        rows = self._register_rows(self._open_files(source))
        return f"SELECT {', '.join(values)}, {_DATE_FIELD.name} FROM {rows} WHERE {where}"

    def _open_files(self, source: EndpointFiles) -> ds.Dataset | pa.Table:
        columns = source.table_columns.append(_DATE_FIELD)
        table = open_silver_table(self._lake, source.table_name)
        places = [table.resolve_file_path(path) for path in source.file_paths]
        if not places:
            return columns.empty_table()
        dates = ds.partitioning(pa.schema([_DATE_FIELD]), flavor="hive")
        return ds.dataset(places, columns, "parquet", self._lake.files, dates)

    def _register_rows(self, rows: ds.Dataset | pa.Table) -> str:
        """Make rows available to DuckDB, and return their name in SQL."""
        self._registered_count += 1
        name = f"lake_rows_{self._registered_count}"
        self._connection.register(name, rows)
        return name


def _make_timestamps(columns: Iterable[str], times: Sequence[str] = ()) -> list[str]:
    stamps = list_timestamp_columns(columns, times)
    return [f"make_timestamp({_quote_name(time)} // 1000) AS {stamp}" for stamp, time in stamps.items()]


def _describe_error(text: str, query: str, names: Sequence[str]) -> str:
    """Return DuckDB's reason in one line. For a missing table, name the existing tables instead of DuckDB's advice."""
    reason = " ".join(text.partition("\n\n")[0].split())
    missing = re.search(r'Table with name "?(.+?)"? does not exist', reason)
    if missing is None and not reason.startswith("Parser Error"):
        return reason
    if unquoted := find_unquoted_name(query, names, _quote_name):
        return f"table {unquoted!r} needs quotes; write {_quote_name(unquoted)}"
    if missing is None:
        return reason
    name = missing[1]
    return f"Table with name {name} does not exist; {list_sql_names(name, names, _quote_name)}"


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _make_value(stored: pa.Field | None, target_field: pa.Field, endpoint: str) -> str:
    """Return a stored column with the type of the endpoint. Raises InvalidValueError if DuckDB cannot convert it."""
    name = _quote_name(target_field.name)
    if stored is None:
        return f"NULL AS {name}"
    if stored.type == target_field.type:
        return f"{_quote_name(stored.name)} AS {name}"
    kinds = [_find_number_type(kind) for kind in (stored.type, target_field.type)]
    if None in kinds:
        place = f"field {target_field.name!r} of endpoint {endpoint!r}"
        text = f"{place} is stored as {stored.type} instead of {target_field.type}"
        raise InvalidValueError(f"{text}, and DuckDB converts such values differently; use --engine spark")
    return f"CAST({_quote_name(stored.name)} AS {kinds[1]}) AS {name}"


def _find_number_type(kind: pa.DataType) -> str | None:
    """Return the type of numbers in DuckDB; None: other values."""
    return f"DECIMAL({kind.precision}, {kind.scale})" if pa_types.is_decimal(kind) else _NUMBER_TYPES.get(kind)
