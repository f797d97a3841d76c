"""Messages as Spark rows: Arrow batches with only the requested columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from msgq.decoding.column_decoder import ColumnDecoder, DecodedValues
from msgq.errors import InvalidValueError
from msgq.lake.message_columns import MESSAGE_COLUMNS, OPTIONAL_COLUMNS
from msgq.lake.schema_ids import compute_schema_id
from msgq.recording import LogReader, Problem
from msgq.recording.mcap_io.channel_registry import RecordedChannel
from msgq.recording.mcap_io.metadata_keys import RECORDING_METADATA
from msgq.recording.mcap_io.problem import make_printable_path
from msgq.recording.reader.arrow_batches import read_arrow_batches
from msgq.spark.source.origin_times import find_origin_time_byte_offset, read_origin_times

_ORIGIN_COLUMN = "origin_time"
_BATCH_ROWS = 65536
_BATCH_BYTES = 32 << 20  # bytes of payloads in a batch; the worker and Java hold a few batches

#: Columns about the source of a message, in addition to its endpoint.
MESSAGE_SOURCE_COLUMNS = ("kind", "publisher", "key")


_CHANNEL_COLUMNS: dict[str, Callable[[RecordedChannel], str | int | None]] = {
    "run": lambda channel: channel.run_id,
    "endpoint": lambda channel: channel.endpoint,
    "epoch": lambda channel: channel.epoch,
    "encoding": lambda channel: channel.schema.encoding if channel.schema else "",
    "schema": lambda channel: channel.schema.name if channel.schema else None,
    "schema_id": lambda channel: compute_schema_id(channel.schema) if channel.schema else None,
    "kind": lambda channel: channel.message_source.kind,
    "publisher": lambda channel: channel.message_source.publisher or None,
    "key": lambda channel: channel.message_source.key or None,
    "options": lambda channel: channel.message_source.options or None,
}
_FILE_COLUMNS: dict[str, Callable[[LogReader], str]] = {
    "host": lambda log: log.files[0].metadata.get(RECORDING_METADATA, {}).get("host", ""),
    "file": lambda log: make_printable_path(log.files[0].path),
}


def make_value_columns_schema(value: pa.DataType) -> pa.Schema:
    """Return the columns of decoded messages.

    `element` is the index of a value in its message (0 unless the message has several). Rows without a `value` have a
    `reason` and the payload in `data`.
    """
    value_columns = [("element_index", pa.int32()), ("value", value), ("reason", pa.string()), ("data", pa.binary())]
    names = ("run", "host", "endpoint", "epoch", "sequence", "publish_time", "log_time")
    sources = [MESSAGE_COLUMNS.field(name) for name in MESSAGE_SOURCE_COLUMNS]
    return pa.schema(
        [MESSAGE_COLUMNS.field(name) for name in names] + [pa.field(*field) for field in value_columns] + sources
    )


def convert_to_spark_schema(schema: pa.Schema) -> StructType:
    """Return the columns as a Spark schema."""
    struct: StructType = from_arrow_schema(schema)
    return struct


def select_message_columns(columns: Iterable[str]) -> pa.Schema:
    """Return some columns of messages. Raises InvalidValueError for an unknown column."""
    names = list(columns)
    known_fields = {field.name: field for field in (*MESSAGE_COLUMNS, *OPTIONAL_COLUMNS)}
    if unknown := [name for name in names if name not in known_fields]:
        raise InvalidValueError(f"column {unknown[0]!r} does not exist; columns: {', '.join(known_fields)}")
    return pa.schema([known_fields[name] for name in names])


def convert_to_arrow_schema(user_schema: StructType, source_schema: pa.Schema) -> pa.Schema:
    """Return the user's columns as an Arrow schema.

    Raises:
        InvalidValueError: a column does not exist, or has another type.
    """
    schema = to_arrow_schema(user_schema, timezone="UTC")
    types = {field.name: field.type for field in source_schema}
    for field in schema:
        if field.name not in types:
            raise InvalidValueError(f"column {field.name!r} does not exist; columns: {', '.join(types)}")
        arrow_type = types[field.name]
        if field.type != arrow_type and field.name != "value":
            raise InvalidValueError(f"column {field.name!r} has type {arrow_type}; the schema asks for {field.type}")
    return schema


def read_message_batches(log: LogReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the messages of one file, in the order of the file."""
    direct = [name for name in schema.names if name not in (*_CHANNEL_COLUMNS, *_FILE_COLUMNS, _ORIGIN_COLUMN)]
    traced = _ORIGIN_COLUMN in schema.names
    if traced:
        direct += [_ORIGIN_COLUMN] if "data" in direct else [_ORIGIN_COLUMN, "data"]
    for batch in read_arrow_batches(log.log_view, ["channel", *direct], _BATCH_ROWS, _BATCH_BYTES):
        yield _make_record_batch(log, schema, batch, {_ORIGIN_COLUMN: _read_origin_times(log, batch)} if traced else {})


def _read_origin_times(log: LogReader, batch: pa.RecordBatch) -> pa.Array:
    """Return the origin of each message, from its stored origin or its payload; null: none."""
    codes = batch.column("channel").to_numpy()
    present = np.flatnonzero(np.bincount(codes)).tolist()
    origins = batch.column(_ORIGIN_COLUMN).to_numpy().copy()
    for code in [code for code in present if find_origin_time_byte_offset(log.channels[code].schema) is not None]:
        rows = (codes == code) & (origins == 0)
        if rows.all():
            origins = read_origin_times(log.channels[code].schema, batch.column("data"))
        elif rows.any():
            origins[rows] = read_origin_times(log.channels[code].schema, batch.column("data").filter(pa.array(rows)))
    return pa.array(origins, mask=origins == 0)


def read_decoded_batches(log: LogReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the decoded messages of one endpoint in one file."""
    decoded_names = ("value", "element_index", "reason", "data")
    direct = [name for name in schema.names if name not in (*_CHANNEL_COLUMNS, *_FILE_COLUMNS, *decoded_names)]
    value = schema.field("value").type if "value" in schema.names else pa.null()
    decoder = ColumnDecoder(value)
    for batch in read_arrow_batches(log.log_view, ["channel", "data", *direct], _BATCH_ROWS, _BATCH_BYTES):
        codes = batch.column("channel").to_numpy()
        for code in np.unique(codes).tolist():
            same_channel = batch if (codes == code).all() else batch.filter(pa.array(codes == code))
            for values in decoder.decode_values(log.channels[code].schema, same_channel.column("data")):
                rows = same_channel if values.message_rows is None else same_channel.take(pa.array(values.message_rows))
                yield _make_record_batch(log, schema, rows, _make_value_columns(values))


def _make_value_columns(values: DecodedValues) -> dict[str, pa.Array]:
    count = len(values.value_column)
    element = np.zeros(count, np.int32) if values.element_indexes is None else values.element_indexes
    reason = pa.nulls(count, pa.string()) if values.failure_reasons is None else values.failure_reasons
    data = pa.nulls(count, pa.binary()) if values.failed_payloads is None else values.failed_payloads
    return {
        "value": values.value_column,
        "element_index": pa.array(element, pa.int32()),
        "reason": reason,
        "data": data,
    }


def _make_record_batch(log: LogReader, schema: pa.Schema, batch: pa.RecordBatch, columns: dict[str, pa.Array]) -> Any:
    arrays = []
    for field in schema:
        if field.name in columns:
            arrays.append(columns[field.name])
        elif field.name in _FILE_COLUMNS:
            arrays.append(_make_repeated_column(_FILE_COLUMNS[field.name](log), field.type, batch.num_rows))
        elif field.name in _CHANNEL_COLUMNS:
            arrays.append(_make_channel_column(log.channels, batch.column("channel"), field))
        else:
            arrays.append(batch.column(field.name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _make_channel_column(channels: Sequence[RecordedChannel], codes: pa.Array, field: pa.Field) -> pa.Array:
    values = [_CHANNEL_COLUMNS[field.name](channel) for channel in channels]
    if len(set(values)) == 1:
        return _make_repeated_column(values[0], field.type, len(codes))
    return pa.array(values, field.type).take(codes)


def _make_repeated_column(value: str | int | None, kind: pa.DataType, count: int) -> pa.Array:
    """Return a column of equal values, such as a property that all messages of a file share."""
    return (
        _make_constant_array(value, kind)[:count] if count <= _BATCH_ROWS else pa.repeat(pa.scalar(value, kind), count)
    )


@lru_cache(maxsize=64)
def _make_constant_array(value: str | int | None, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), _BATCH_ROWS)


def make_read_error_batches(problems: Sequence[Problem], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield read errors with the columns file, byte_offset, reason and errno of the schema. Other columns are NULL."""
    if problems:
        rows = [{"file": p.path, "byte_offset": p.offset, "reason": p.reason, "errno": p.errno} for p in problems]
        yield pa.RecordBatch.from_pylist(rows, schema)
