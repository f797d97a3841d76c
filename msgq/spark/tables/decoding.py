"""Silver: the messages of an endpoint decoded, a column for each field; and those that cannot be."""

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

_BATCH_ROWS = 1 << 18  # that are decoded together
_BATCH_BYTES = 64 << 20
_RecordBatches = Iterable["pyarrow.RecordBatch"]


def silver(messages: DataFrame, value: DataType | str, schemas: Mapping[int, Schema] | None = None) -> DataFrame:
    """Return the messages of one endpoint decoded.

    Input: messages; where their encoding needs the text of a schema (struct, protobuf) with `schema_id`, which
    ``columns=`` of `msgq.spark.read` gives.

    Parameters
    ----------
    value : what a message says, as a type of Spark or its text: "struct<x: double, n: bigint>", or of a single value
        "double". Fields that a message does not have are NULL; those that are not named here are left out.
    schemas : their texts by `schema_id`.

    Output: run, epoch, sequence, publish_time, log_time; element_index: int, counts the values of a message that has
    several; then the fields, or `value`. A field whose name is one of these, in any case, or that of a timestamp of
    theirs or `date`, has a _ behind it. What cannot be decoded, or is not of this type, is left out: see
    `decode_errors`.
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
    """Return the messages that `silver` leaves out, and why; of any endpoints, those without an encoding excepted.

    Input and parameters as there; value : None is whatever they are.

    Output: run, endpoint, epoch, sequence, log_time, reason, data: the payload, NULL where nothing here knows the
    encoding.
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
