"""Decoded endpoints as data frames, from the silver tables."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pa_types

from msgq.decoding.arrow_types import cast_table_columns, find_common_columns
from msgq.lake.catalog import quote_sql_name
from msgq.lake.silver.silver_manifest import EndpointFiles, SilverManifest
from msgq.lake.silver.table_assignment import open_silver_table
from msgq.spark.lake.spark_directory import SparkDirectory
from msgq.spark.source.arrow_batches import convert_to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DATE_FIELD = pa.field("date", pa.date32())


class SilverViews:
    """Decoded messages of a lake, by endpoint. One thread at a time."""

    def __init__(self, directory: SparkDirectory, manifest: SilverManifest) -> None:
        self._directory, self._manifest = directory, manifest

    def list_endpoints(self) -> list[str]:
        """Return the endpoints that have decoded messages."""
        return self._manifest.list_endpoints()

    def read_endpoint(self, endpoint: str) -> DataFrame | None:
        """Return the decoded messages of an endpoint; None: no decoded messages."""
        sources = self._manifest.list_endpoint_files(endpoint)
        if not sources:
            return None
        common_columns = reduce(find_common_columns, [source.endpoint_columns for source in sources])
        parts = [self._read_endpoint_files(source, endpoint, common_columns) for source in sources]
        return reduce(lambda rows, other: rows.union(other), parts)

    def read_decode_errors(self) -> DataFrame:
        """Return the messages that could not be decoded."""
        return self._read_silver_files(self._manifest.list_decode_error_files())

    def _read_silver_files(self, source: EndpointFiles, condition: pc.Expression | None = None) -> DataFrame:
        columns = source.table_columns.append(_DATE_FIELD)
        return self._directory.read_files(
            open_silver_table(self._directory, source.table_name), source.file_paths, columns, condition
        )

    def _read_endpoint_files(self, source: EndpointFiles, endpoint: str, target_schema: pa.Schema) -> DataFrame:
        """Return the rows of an endpoint in a table, with the columns of the endpoint and without its name."""
        from pyspark.sql import functions as F

        rows = self._read_silver_files(source, pc.field("endpoint") == endpoint).where(F.col("endpoint") == endpoint)
        names = [name for name in target_schema.names if name != "endpoint"]
        columns = _convert_endpoint_columns(source, target_schema)
        if columns is None:
            rows, columns = (
                _convert_on_workers(rows, source.endpoint_columns, target_schema),
                {name: _make_column_reference(name) for name in names},
            )
        return rows.select(*(columns[name].alias(name) for name in names), _DATE_FIELD.name)


def _make_column_reference(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(quote_sql_name(name))


def _convert_endpoint_columns(source: EndpointFiles, target_schema: pa.Schema) -> dict[str, Column] | None:
    """Return the columns of a table with the requested types; None: Spark would convert some values to other texts."""
    from pyspark.sql import functions as F

    types = {field.name: field.dataType for field in convert_to_spark_schema(target_schema)}
    columns = {name: F.lit(None).cast(kind) for name, kind in types.items()}
    names = {name.lower(): name for name in target_schema.names}
    for have, own in zip(source.table_columns, source.endpoint_columns, strict=True):
        name = names[own.name.lower()]
        column = _convert_column_type(_make_column_reference(have.name), have.type, own.type)
        column = None if column is None else _convert_column_type(column, own.type, target_schema.field(name).type)
        if column is None:
            return None
        columns[name] = column
    return columns


def _convert_column_type(column: Column, have: pa.DataType, target_type: pa.DataType) -> Column | None:
    """Return a column with another type; None: Spark converts differently from `arrow_types.cast_array`."""
    from pyspark.sql import functions as F

    if have == target_type:
        return column
    if _is_number_type(have) and _is_number_type(target_type):
        return column.cast(_convert_to_spark_type(target_type))
    if pa_types.is_list(have) and pa_types.is_list(target_type):
        if _convert_column_type(column, have.value_type, target_type.value_type) is None:
            return None

        def convert_item(item: Column) -> Column:
            return (
                item
                if (converted := _convert_column_type(item, have.value_type, target_type.value_type)) is None
                else converted
            )

        return F.transform(column, convert_item)
    if not (pa_types.is_struct(have) and pa_types.is_struct(target_type)):
        return None
    types, parts = {field.name: field.type for field in have}, []
    for field in target_type:
        part: Column | None = F.lit(None).cast(_convert_to_spark_type(field.type))
        if field.name in types:
            part = _convert_column_type(column.getField(field.name), types[field.name], field.type)
        if part is None:
            return None
        parts.append(part.alias(field.name))
    return F.when(column.isNotNull(), F.struct(*parts))


def _is_number_type(arrow_type: pa.DataType) -> bool:
    return bool(pa_types.is_integer(arrow_type) or pa_types.is_floating(arrow_type) or pa_types.is_decimal(arrow_type))


def _convert_to_spark_type(arrow_type: pa.DataType) -> Any:
    return convert_to_spark_schema(pa.schema([("value", arrow_type)]))[0].dataType


def _convert_on_workers(rows: DataFrame, own: pa.Schema, target_schema: pa.Schema) -> DataFrame:
    """Return rows with other types, converted in Python."""
    columns = target_schema.append(_DATE_FIELD)

    def convert_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch]).rename_columns([*own.names, _DATE_FIELD.name])
            table = cast_table_columns(table, own.append(_DATE_FIELD))
            yield from cast_table_columns(table, columns).to_batches()

    plain = rows.toDF(*map(str, range(len(rows.columns))))  # mapInArrow takes dots and backticks in names for syntax
    return plain.mapInArrow(convert_batches, convert_to_spark_schema(columns))
