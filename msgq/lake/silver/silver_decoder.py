"""Silver rows: messages decoded by their schemas, with a column for each field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.common.schema import Schema
from msgq.decoding.arrow_types import cast_array, list_value_column_names, split_value_columns
from msgq.decoding.column_decoder import ColumnDecoder, DecodedValues
from msgq.decoding.column_type import VALUE_DEFINED_COLUMN_TYPE, ColumnType
from msgq.decoding.payload_decoder import DECODABLE_ENCODINGS, SELF_DESCRIBING_ENCODINGS
from msgq.kinds import list_kinds_without_senders
from msgq.lake.delta_types import convert_to_delta_type

_BATCH_ROWS = 65536
_BATCH_BYTES = 16 << 20  # bytes of payloads that are decoded at once
#: First columns of each silver table.
SILVER_FIXED_COLUMNS = pa.schema(
    [
        ("run", pa.string()),
        ("endpoint", pa.string()),
        ("epoch", pa.int64()),
        ("sequence", pa.int64()),
        ("publish_time", pa.int64()),
        ("log_time", pa.int64()),
        ("element_index", pa.int32()),
    ]
)
_MESSAGE_COLUMNS = SILVER_FIXED_COLUMNS.names[:-1]
#: Messages that could not be decoded.
DECODE_ERRORS_SCHEMA = pa.schema(
    [
        *(SILVER_FIXED_COLUMNS.field(name) for name in ("run", "endpoint", "epoch", "sequence", "log_time")),
        ("reason", pa.string()),
        ("data", pa.binary()),
    ]
)
#: Columns of messages that the decoder needs.
SILVER_INPUT_COLUMNS = pa.schema(
    [
        *(SILVER_FIXED_COLUMNS.field(name) for name in _MESSAGE_COLUMNS),
        ("encoding", pa.string()),
        ("data", pa.binary()),
        ("schema_id", pa.int64()),
    ]
)
#: Columns that the decoder reads if they exist. Kinds other than topics have publisher and key, too.
SILVER_SOURCE_COLUMNS = pa.schema([("kind", pa.string()), ("publisher", pa.string()), ("key", pa.string())])
_SOURCE_COLUMN_NAMES = ("publisher", "key")
_FLOAT64_EXACT_INTEGER_MAX = 1 << 53  # up to here double has all whole numbers
_KINDS_WITHOUT_SENDERS = pa.array(list_kinds_without_senders())
_RESERVED_COLUMN_NAMES = (
    *SILVER_FIXED_COLUMNS.names,
    "publish_timestamp",
    "log_timestamp",
    "date",
)  # no field has such a name


class SchemaFamily(NamedTuple):
    """Common properties of the messages in one table.

    Attributes:
        encoding: encoding of the payloads.
        schema_name: name of the schema; "": the messages have no schema with a text.
        has_source: True if rows have publisher and key, that is for all kinds except topics.
    """

    encoding: str
    schema_name: str
    has_source: bool

    @property
    def leading_column_count(self) -> int:
        """Number of columns before the fields."""
        return len(SILVER_FIXED_COLUMNS) + (len(_SOURCE_COLUMN_NAMES) if self.has_source else 0)


class DecodedMessages(NamedTuple):
    """Result of decoding some messages.

    Attributes:
        schema_family: family of the messages.
        decoded_rows: `SILVER_FIXED_COLUMNS`, publisher and key except for topics, and fields of decoded values. Each
            endpoint has all columns.
        value_fields: fields in their own types. In `decoded_rows`, numbers without a number type in their schema are
            double, unless they are too large. Therefore 1 and 1.5 fit into one table.
        decode_errors: `DECODE_ERRORS_SCHEMA`.
    """

    schema_family: SchemaFamily
    decoded_rows: pa.Table
    value_fields: pa.Schema
    decode_errors: pa.Table


class SilverDecoder:
    """Decodes messages to silver rows. One thread at a time."""

    def __init__(self, schemas: Mapping[int, Schema], value: pa.DataType | None = None) -> None:
        """Set the schemas by `schema_id`. `value`: type of the messages; None: any type."""
        self._schemas, self._is_typed = schemas, value is not None
        self._decoder = ColumnDecoder(value, convert_to_delta_type)

    def decode_messages(self, messages: pa.Table) -> Iterator[DecodedMessages]:
        """Yield the decoded messages of `SILVER_INPUT_COLUMNS`. Messages without an encoding are omitted.

        Without `SILVER_SOURCE_COLUMNS`, all messages belong to topics.
        """
        for group, is_topic in _group_by_schema(messages):
            encoding, number = group.column("encoding")[0].as_py(), group.column("schema_id")[0].as_py()
            if not encoding:
                continue
            schema = self._schemas.get(number) if number is not None else None
            family = SchemaFamily(encoding, "" if schema is None else schema.name, not is_topic)
            if encoding not in DECODABLE_ENCODINGS:
                yield _make_decode_errors(family, group, f"encoding {encoding!r} is not supported")
            elif schema is None and encoding not in SELF_DESCRIBING_ENCODINGS:
                yield _make_decode_errors(
                    family,
                    group,
                    f"encoding {encoding!r} needs the text of its schema, which the lake does not contain",
                )
            else:
                for piece in _split_by_payload_size(group):
                    known_schema = schema or Schema("message", encoding)
                    for values in self._decode_values(known_schema, piece):
                        yield _build_decoded_messages(family, piece, values, self._find_integer_type(known_schema))

    def _find_integer_type(self, schema: Schema) -> ColumnType | None:
        """Return the type from a schema by which integers are converted; None: integers keep their type."""
        if self._is_typed or schema.encoding not in SELF_DESCRIBING_ENCODINGS:
            return None
        return self._decoder.find_schema_column_type(schema) or VALUE_DEFINED_COLUMN_TYPE

    def _decode_values(self, schema: Schema, messages: pa.Table) -> Iterator[DecodedValues]:
        data = messages.column("data").combine_chunks()
        if self._is_typed or self._decoder.find_value_type(schema) is not None:
            return self._decoder.decode_values(schema, data)
        return self._decode_values_by_endpoint(schema, messages, data)

    def _decode_values_by_endpoint(
        self, schema: Schema, messages: pa.Table, data: pa.BinaryArray
    ) -> Iterator[DecodedValues]:
        """Yield the values of messages that define their own type. Each endpoint is decoded separately."""
        by_type: dict[pa.DataType, list[DecodedValues]] = {}
        for begin, end in _find_equal_runs(_encode_column_groups(messages, ("endpoint",))):
            for values in self._decoder.decode_values(schema, data.slice(begin, end - begin)):
                rows = np.arange(begin, end) if values.message_rows is None else values.message_rows + begin
                by_type.setdefault(values.value_column.type, []).append(replace(values, message_rows=rows))
        for parts in by_type.values():
            yield _concatenate_decoded_values(parts)


def _concatenate_decoded_values(parts: list[DecodedValues]) -> DecodedValues:
    """Return values of one type and without element indexes as one object."""
    if len(parts) == 1:
        return parts[0]
    value = pa.concat_arrays([part.value_column for part in parts])
    rows = np.concatenate([part.message_rows for part in parts if part.message_rows is not None])
    reason = pa.concat_arrays(
        [pa.nulls(len(p.value_column), pa.string()) if p.failure_reasons is None else p.failure_reasons for p in parts]
    )
    data = pa.concat_arrays(
        [pa.nulls(len(p.value_column), pa.binary()) if p.failed_payloads is None else p.failed_payloads for p in parts]
    )
    return DecodedValues(value, rows, None, reason, data)


def _group_by_schema(messages: pa.Table) -> Iterator[tuple[pa.Table, bool]]:
    """Yield the messages of each encoding and schema, sorted by endpoint, and True if they belong to topics."""
    if not messages.num_rows:
        return
    messages = messages.combine_chunks()
    kind = messages.column("kind") if "kind" in messages.column_names else pa.nulls(messages.num_rows, pa.string())
    is_topic = pc.or_kleene(pc.is_null(kind), pc.is_in(kind.cast(pa.string()), _KINDS_WITHOUT_SENDERS))
    messages = messages.append_column("is_topic", is_topic)
    code = _encode_column_groups(messages, ("is_topic", "encoding", "schema_id", "endpoint"))
    order = np.argsort(code, kind="stable")
    if (np.diff(order) < 0).any():
        messages = messages.take(pa.array(order)).combine_chunks()
    for begin, end in _find_equal_runs(_encode_column_groups(messages, ("is_topic", "encoding", "schema_id"))):
        group = messages.slice(begin, end - begin)
        yield group, group.column("is_topic")[0].as_py()


def _encode_column_groups(messages: pa.Table, names: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a number for each row.

    Equal values of the columns have equal numbers, ordered by the first column first.
    """
    code = np.zeros(messages.num_rows, np.int64)
    for name in names:
        values = messages.column(name).dictionary_encode().unify_dictionaries().combine_chunks()
        values = values.chunk(0) if isinstance(values, pa.ChunkedArray) else values
        count = len(values.dictionary)
        code = code * (count + 1) + np.asarray(values.indices.fill_null(count))
        _, code = np.unique(code, return_inverse=True)  # so that it stays small
    return code


def _find_equal_runs(code: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each run of equal numbers."""
    borders = (np.flatnonzero(np.diff(code)) + 1).tolist()
    return zip([0, *borders], [*borders, len(code)], strict=True)


def _split_by_payload_size(group: pa.Table) -> Iterator[pa.Table]:
    """Yield the messages in parts, so that memory stays limited."""
    step = min(_BATCH_ROWS, max(1, _BATCH_BYTES * len(group) // max(1, group.column("data").nbytes)))
    for first in range(0, len(group), step):
        yield group.slice(first, step)


def _make_decode_errors(family: SchemaFamily, group: pa.Table, reason: str) -> DecodedMessages:
    """Return the messages as decode errors with a reason. The payloads of the messages stay in bronze."""
    count = len(group)
    columns = [_cast_fixed_column(group.column(name), name) for name in DECODE_ERRORS_SCHEMA.names[:-2]]
    decode_errors = pa.table(
        [*columns, pa.array([reason] * count), pa.nulls(count, pa.binary())], schema=DECODE_ERRORS_SCHEMA
    )
    return DecodedMessages(family, SILVER_FIXED_COLUMNS.empty_table(), pa.schema([]), decode_errors)


def _build_decoded_messages(
    family: SchemaFamily, group: pa.Table, values: DecodedValues, column_type: ColumnType | None
) -> DecodedMessages:
    """Return decoded messages. `column_type`: schema type to which integers are converted; None: no conversion."""
    if values.message_rows is not None:
        group = group.take(pa.array(values.message_rows))
    decode_errors = DECODE_ERRORS_SCHEMA.empty_table()
    value, element = values.value_column, values.element_indexes
    reasons, payloads = values.failure_reasons, values.failed_payloads
    if reasons is not None and payloads is not None and reasons.null_count < len(reasons):
        failed = reasons.is_valid()
        columns = [
            _cast_fixed_column(group.column(name).filter(failed), name) for name in DECODE_ERRORS_SCHEMA.names[:-2]
        ]
        failures = [reasons.filter(failed), payloads.filter(failed)]
        decode_errors = pa.table([*columns, *failures], schema=DECODE_ERRORS_SCHEMA)
        good = reasons.is_null()
        group, value = group.filter(good), value.filter(good)
        element = None  # those of several elements have no reason
    element = np.zeros(len(group), np.int32) if element is None else element.astype(np.int32)
    sources = _SOURCE_COLUMN_NAMES if family.has_source else ()
    names, arrays = list_field_column_names(value.type, sources), split_value_columns(value)
    fields = pa.schema([(name, array.type) for name, array in zip(names, arrays, strict=True)])
    if column_type is not None:
        arrays = split_value_columns(_convert_integers(value, column_type))
    columns = [*(_cast_fixed_column(group.column(name), name) for name in _MESSAGE_COLUMNS), pa.array(element)]
    columns += [group.column(name).cast(pa.string()) for name in sources]
    return DecodedMessages(
        family, pa.table([*columns, *arrays], [*SILVER_FIXED_COLUMNS.names, *sources, *names]), fields, decode_errors
    )


def _convert_integers(array: pa.Array, column_type: ColumnType) -> pa.Array:
    """Return the values with integers as equal doubles, if the schema does not define the type."""
    if not column_type.depends_on_values:
        return array
    if pa.types.is_int64(array.type):
        least, most = pc.min_max(array).values()
        is_exact = (
            least.as_py() is None
            or -_FLOAT64_EXACT_INTEGER_MAX <= least.as_py() <= most.as_py() <= _FLOAT64_EXACT_INTEGER_MAX
        )
        return array.cast(pa.float64()) if is_exact else array
    if pa.types.is_struct(array.type):
        names = [field.name for field in array.type]
        parts = [
            _convert_integers(p, column_type.get_field_type(name) or VALUE_DEFINED_COLUMN_TYPE)
            for name, p in zip(names, array.flatten(), strict=True)
        ]
        return pa.StructArray.from_arrays(parts, names, mask=array.is_null())
    if pa.types.is_list(array.type):
        inner = _convert_integers(
            array.flatten(), column_type.child_types[0] if column_type.child_types else VALUE_DEFINED_COLUMN_TYPE
        )
        return cast_array(array, pa.list_(inner.type))
    return array


def _cast_fixed_column(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    return column.cast(SILVER_FIXED_COLUMNS.field(name).type)


def list_field_column_names(value: pa.DataType, sources: Sequence[str] = ()) -> list[str]:
    """Return the column names of a value. `sources`: names that are used already."""
    return list_value_column_names(value, (*_RESERVED_COLUMN_NAMES, *sources))
