"""Silver: decoded messages of an endpoint with a column for each field, and messages that cannot be decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import DataType

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

    from msgq.common.schema import Schema
    from msgq.lake.silver.silver_decoder import DecodedMessages

_BATCH_ROWS = 1 << 18  # rows that are decoded together
_BATCH_BYTES = 64 << 20
_RecordBatches = Iterable["pyarrow.RecordBatch"]


def silver(messages: DataFrame, value: DataType | str, schemas: Mapping[int, Schema] | None = None) -> DataFrame:
    """Return the decoded messages of one endpoint.

    Input: messages. If the encoding needs the text of a schema (struct, protobuf), the input needs the column
    `schema_id`, which ``columns=`` of `msgq.spark.read` selects.

    Args:
        value: type of the messages, as a Spark type or its text: "struct<x: double, n: bigint>", or "double" for single
            values. Missing fields of a message are NULL, and fields that the type does not name are omitted.
        schemas: schemas with their texts, by `schema_id`.

    Output: run, epoch, sequence, publish_time, log_time; element_index: int, index of a value in its message; then the
    fields, or `value`. A field with the name of another column, of a timestamp or of `date`, in any case, gets the
    suffix "_". Messages that cannot be decoded, or have another type, are omitted: see `decode_errors`.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    from msgq.lake.silver.silver_decoder import SILVER_FIXED_COLUMNS, list_field_column_names
    from msgq.spark.source.arrow_batches import convert_to_spark_schema

    kind = to_arrow_type(_parse_spark_type(value))
    fields = list(kind) if pa.types.is_struct(kind) else [pa.field("value", kind)]
    names = list_field_column_names(kind)
    fixed = [field for field in SILVER_FIXED_COLUMNS if field.name != "endpoint"]  # there is one only
    columns = pa.schema([*fixed, *(field.with_name(name) for field, name in zip(fields, names, strict=True))])

    def decode_value_batches(batches: _RecordBatches) -> Iterator[Any]:
        for decoded in _decode_batches(batches, schemas, kind):
            if decoded.decoded_rows.num_rows:
                yield from decoded.decoded_rows.drop_columns(["endpoint"]).cast(columns).to_batches()

    return _select_silver_input(messages).mapInArrow(decode_value_batches, convert_to_spark_schema(columns))


def decode_errors(
    messages: DataFrame, value: DataType | str | None = None, schemas: Mapping[int, Schema] | None = None
) -> DataFrame:
    """Return the messages that `silver` omits, with reasons, for any endpoints.

    Messages without an encoding are excluded.

    Input and parameters: as in `silver`. `value` None: any type.

    Output: run, endpoint, epoch, sequence, log_time, reason, data: the payload, NULL if the encoding is unknown.
    """
    from pyspark.sql.pandas.types import to_arrow_type

    from msgq.lake.silver.silver_decoder import DECODE_ERRORS_SCHEMA
    from msgq.spark.source.arrow_batches import convert_to_spark_schema

    kind = None if value is None else to_arrow_type(_parse_spark_type(value))

    def decode_error_batches(batches: _RecordBatches) -> Iterator[Any]:
        for decoded in _decode_batches(batches, schemas, kind):
            yield from decoded.decode_errors.to_batches()

    return _select_silver_input(messages).mapInArrow(
        decode_error_batches, convert_to_spark_schema(DECODE_ERRORS_SCHEMA)
    )


def _parse_spark_type(value: DataType | str) -> DataType:
    return value if isinstance(value, DataType) else DataType.fromDDL(value)


def _select_silver_input(messages: DataFrame) -> DataFrame:
    from msgq.lake.silver.silver_decoder import SILVER_INPUT_COLUMNS

    if "schema_id" not in messages.columns:
        messages = messages.withColumn("schema_id", F.lit(None).cast("long"))
    return messages.select(*SILVER_INPUT_COLUMNS.names)


def _decode_batches(
    batches: _RecordBatches, schemas: Mapping[int, Schema] | None, kind: Any
) -> Iterator[DecodedMessages]:
    from msgq.lake.batching import combine_batches
    from msgq.lake.silver.silver_decoder import SilverDecoder

    decoder = SilverDecoder(schemas or {}, kind)
    for table in combine_batches(batches, _BATCH_ROWS, _BATCH_BYTES):
        yield from decoder.decode_messages(table)
