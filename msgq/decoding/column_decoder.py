"""Decodes payloads to Arrow columns: CDR and fixed layouts in columns, other encodings one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, MutableSequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from msgq.common.dtypes import struct_dtype
from msgq.common.handler_errors import raise_handler_error
from msgq.common.schema import Schema
from msgq.decoding.arrow_types import (
    ARROW_CONVERSION_ERRORS,
    build_arrow_array,
    build_text_column,
    build_value_column,
    cast_array,
)
from msgq.decoding.column_type import ColumnType
from msgq.decoding.columnar_decode_plan import ColumnarDecodePlan, make_columnar_decode_plan
from msgq.decoding.payload_decoder import PayloadDecoder, Undecoded
from msgq.decoding.queue_event_columns import (
    EVENT_HEAD_DTYPE,
    build_event_structs,
    explain_unknown_event_layout,
    is_queue_event_schema,
    read_event_heads,
)
from msgq.decoding.schema_column_types import find_column_type

_RowIndexes = np.ndarray[Any, Any]
_MISFIT_BLOCK_ROWS = 32  # values that are tried together, to find those that do not fit


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """Values of some messages.

    Attributes:
        value_column: one value for each row; null: no value.
        message_rows: for each value, the row of its message in the input; None: each message has one value.
        element_indexes: index of each value in its message; None: always 0.
        failure_reasons: reason for each row without a value.
        failed_payloads: payload for each row without a value.
    """

    value_column: pa.Array
    message_rows: _RowIndexes | None = None
    element_indexes: _RowIndexes | None = None
    failure_reasons: pa.Array | None = None
    failed_payloads: pa.Array | None = None


class ColumnDecoder:
    """Decodes payloads with any schemas to columns. One thread at a time."""

    def __init__(
        self, value: pa.DataType | None = None, allowed: Callable[[pa.DataType], pa.DataType] | None = None
    ) -> None:
        """Set the type of the values.

        Args:
            value: type of the values; None: the type follows from the schema, or from the messages of each call.
            allowed: used if `value` is None: takes a type, and returns the type to use instead.
        """
        self._type, self._allowed = value, allowed
        self._is_text = value is not None and pa.types.is_string(value)
        self._payload_decoder = PayloadDecoder()
        self._plans: dict[Schema, ColumnarDecodePlan | None] = {}
        self._column_types: dict[Schema, ColumnType | None] = {}
        self._value_types: dict[Schema, pa.DataType | None] = {}

    def decode_values(self, schema: Schema | None, data: pa.BinaryArray) -> Iterator[DecodedValues]:
        """Yield the values of messages of one schema. No message may be null."""
        if schema is not None and is_queue_event_schema(schema):
            yield from self._decode_queue_events(schema, data)
        elif schema is not None and schema.encoding == "struct":
            yield from self._decode_struct_messages(schema, data)
        elif (plan := self._find_decode_plan(schema)) is not None and not self._is_text:
            yield from self._decode_by_columnar_plan(plan, schema, data)
        else:
            yield self._decode_each_payload(schema, data)

    def find_value_type(self, schema: Schema | None) -> pa.DataType | None:
        """Return the type of all messages of a schema; None: the type depends on the messages."""
        if schema is None:
            return None
        if schema not in self._value_types:
            self._value_types[schema] = self._compute_value_type(schema)
        return self._value_types[schema]

    def _compute_value_type(self, schema: Schema) -> pa.DataType | None:
        if is_queue_event_schema(schema):
            return self._cast_to_wanted_type(
                build_event_structs(np.zeros(0, EVENT_HEAD_DTYPE), pa.array([], pa.binary()))
            ).type
        if schema.encoding == "struct":
            try:
                return self._cast_to_wanted_type(build_arrow_array(np.zeros(0, struct_dtype(schema)))).type
            except ARROW_CONVERSION_ERRORS as error:
                raise_handler_error(error)
                return None
        if (plan := self._find_decode_plan(schema)) is not None:
            return self._cast_to_wanted_type(pa.nulls(0, plan.arrow_type)).type
        column_type = self.find_schema_column_type(schema)
        if column_type is None or column_type.depends_on_values:
            return None
        return self._cast_to_wanted_type(pa.nulls(0, column_type.arrow_type)).type

    def _find_decode_plan(self, schema: Schema | None) -> ColumnarDecodePlan | None:
        if schema is None:
            return None
        if schema not in self._plans:
            self._plans[schema] = make_columnar_decode_plan(schema)
        return self._plans[schema]

    def find_schema_column_type(self, schema: Schema | None) -> ColumnType | None:
        """Return the column type that a schema defines for messages decoded one by one; None: none."""
        if schema is None:
            return None
        if schema not in self._column_types:
            self._column_types[schema] = find_column_type(schema)
        return self._column_types[schema]

    def _cast_to_wanted_type(self, value: pa.Array) -> pa.Array:
        """Return values as the requested type."""
        arrow_type = self._type
        if arrow_type is None:
            arrow_type = value.type if self._allowed is None else self._allowed(value.type)
        return cast_array(value, arrow_type)

    def _make_undecoded_values(
        self, data: pa.BinaryArray, reason: str, rows: _RowIndexes | None = None
    ) -> DecodedValues:
        nothing = pa.nulls(len(data), self._type or pa.null())
        return DecodedValues(nothing, rows, None, pa.array([reason] * len(data), pa.string()), data)

    # By the column

    def _decode_struct_messages(self, schema: Schema, data: pa.BinaryArray) -> Iterator[DecodedValues]:
        try:
            dtype = struct_dtype(schema)
        except ValueError as error:
            yield self._make_undecoded_values(data, str(error))
        else:
            yield from self._decode_numpy_records(dtype, data)

    def _decode_numpy_records(self, dtype: np.dtype[Any], data: pa.BinaryArray) -> Iterator[DecodedValues]:
        offsets = np.frombuffer(data.buffers()[1], np.int32)[data.offset : data.offset + len(data) + 1]
        sizes = np.diff(offsets)
        bad = (sizes % dtype.itemsize != 0) | (sizes == 0)
        rows = None
        if bad.any():
            rows = np.flatnonzero(bad)
            reason = f"message size is not a positive multiple of {dtype.itemsize} bytes, the size of one element"
            yield self._make_undecoded_values(data.take(pa.array(rows)), reason, rows)
            rows = np.flatnonzero(~bad)
            data, sizes = data.take(pa.array(rows)), sizes[~bad]
            offsets = np.concatenate(([0], np.cumsum(sizes)))
        if not len(data):
            return
        elements = np.frombuffer(data.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].view(dtype)
        counts = sizes // dtype.itemsize
        try:
            value = self._build_element_array(elements)
        except ARROW_CONVERSION_ERRORS as error:  # most messages may fit
            raise_handler_error(error)
            value, reasons = self._build_fitting_elements(elements, counts)
            rows = np.arange(len(data)) if rows is None else rows
            misfit = np.array([reason is not None for reason in reasons])
            yield DecodedValues(
                pa.nulls(int(misfit.sum()), value.type),
                rows[misfit],
                None,
                pa.array([reason for reason in reasons if reason is not None], pa.string()),
                data.filter(pa.array(misfit)),
            )
            data, rows, counts = data.filter(pa.array(~misfit)), rows[~misfit], counts[~misfit]
            if not len(data):
                return
        element = None
        if len(value) != len(data):
            rows = np.repeat(np.arange(len(data)) if rows is None else rows, counts)
            element = np.arange(len(value)) - np.repeat(np.cumsum(counts) - counts, counts)
        yield DecodedValues(value, rows, element)

    def _build_fitting_elements(
        self, elements: np.ndarray[Any, Any], counts: np.ndarray[Any, Any]
    ) -> tuple[pa.Array, list[str | None]]:
        """Return the elements of the messages that fit their columns, and the reason for each other message.

        `counts`: number of elements of each message.
        """
        indexes: list[Any] = np.split(np.arange(len(elements)), np.cumsum(counts)[:-1])
        reasons: list[str | None] = [None] * len(indexes)
        _reject_misfit_values(
            lambda parts: self._build_element_array(elements[np.concatenate(parts)]), indexes, reasons
        )
        fitting = [part for part in indexes if part is not None]
        return self._build_element_array(elements[np.concatenate([np.zeros(0, np.int64), *fitting])]), reasons

    def _build_element_array(self, array: np.ndarray[Any, Any]) -> pa.Array:
        if self._is_text:  # Arrow's values would give another text
            try:
                return build_text_column(list(array))
            except SystemError as error:  # NumPy's error for such a text
                raise ValueError("text has a code point above 0x10FFFF") from error
        return self._cast_to_wanted_type(build_arrow_array(array))

    def _decode_queue_events(self, schema: Schema, data: pa.BinaryArray) -> Iterator[DecodedValues]:
        reason = explain_unknown_event_layout(schema)
        if reason is not None:
            yield self._make_undecoded_values(data, reason)
            return
        whole, heads = read_event_heads(data)
        if not whole.all():
            rows = np.flatnonzero(~whole)
            yield self._make_undecoded_values(data.take(pa.array(rows)), "message is not a queue event", rows)
            data = data.filter(pa.array(whole))
        if len(data):
            value = build_event_structs(heads, data)
            value = build_text_column(value.to_pylist()) if self._is_text else self._cast_to_wanted_type(value)
            yield DecodedValues(value, None if whole.all() else np.flatnonzero(whole))

    def _decode_by_columnar_plan(
        self, plan: ColumnarDecodePlan, schema: Schema | None, data: pa.BinaryArray
    ) -> Iterator[DecodedValues]:
        value, failed = plan.decode_columns(data)
        try:
            value = self._cast_to_wanted_type(value)
        except ARROW_CONVERSION_ERRORS as error:  # some of them may fit
            raise_handler_error(error)
            yield self._decode_each_payload(schema, data)
            return
        if not failed.any():
            yield DecodedValues(value)
            return
        yield DecodedValues(value, np.flatnonzero(~failed))
        rows = np.flatnonzero(failed)
        remaining = self._decode_each_payload(schema, data.take(pa.array(rows)), value.type)
        yield DecodedValues(remaining.value_column, rows, None, remaining.failure_reasons, remaining.failed_payloads)

    # One by one

    def _decode_each_payload(
        self, schema: Schema | None, data: pa.BinaryArray, default_type: pa.DataType | None = None
    ) -> DecodedValues:
        """Decode messages one by one. `default_type`: type of the values; None: unknown."""
        values, reasons = [], []
        payloads = data.to_pylist()
        for payload in payloads:
            value = self.decode_payload(schema, payload)
            is_undecoded = isinstance(value, Undecoded)
            values.append(None if is_undecoded else value)
            reasons.append(value.reason if is_undecoded else None)
        value_column = self._build_checked_column(
            self.find_schema_column_type(schema), values, reasons, self._type or default_type
        )
        failed_payloads = [payload if reason else None for payload, reason in zip(payloads, reasons, strict=True)]
        return DecodedValues(
            value_column, None, None, pa.array(reasons, pa.string()), pa.array(failed_payloads, pa.binary())
        )

    def decode_payload(self, schema: Schema | None, payload: bytes) -> Any:
        """Return the value of a payload, as `PayloadDecoder` does. Protocol Buffers messages become dictionaries."""
        value = self._payload_decoder.decode_payload(schema, payload)
        return convert_protobuf_to_dict(value) if hasattr(value, "DESCRIPTOR") and not self._is_text else value

    def build_schema_column(self, schema: Schema | None, values: list[Any]) -> pa.Array:
        """Return decoded values of messages of one schema as a column, with the types of the schema."""
        column_type = self.find_schema_column_type(schema)
        reasons: list[str | None] = [None] * len(values)
        if column_type is None:
            return self._cast_to_wanted_type(_build_fitting_column(build_value_column, values, reasons))
        return self._cast_to_wanted_type(self._build_checked_column(column_type, values, reasons, None))

    def _build_checked_column(
        self,
        column_type: ColumnType | None,
        values: list[Any],
        reasons: list[str | None],
        target_type: pa.DataType | None,
    ) -> pa.Array:
        """Return values as a column. Values of a wrong type become null with a reason.

        `target_type`: the type; None: any.
        """
        if self._is_text:
            return build_text_column(values)

        def build_column(column_values: list[Any]) -> pa.Array:
            if column_type is not None:
                column = column_type.build_column(column_values)
            elif target_type is not None:
                column = build_value_column(column_values)
            else:
                column = _build_mixed_column(column_values)
            return self._cast_to_wanted_type(column) if target_type is None else cast_array(column, target_type)

        return _build_fitting_column(build_column, values, reasons)


def _build_fitting_column(
    build_column: Callable[[list[Any]], pa.Array], values: list[Any], reasons: list[str | None]
) -> pa.Array:
    """Return values as a column. Values that do not fit become null with a reason."""
    try:
        return build_column(values)
    except ARROW_CONVERSION_ERRORS as error:
        raise_handler_error(error)
        _reject_misfit_values(build_column, values, reasons)
        return build_column(values)


def _reject_misfit_values(
    build_column: Callable[[list[Any]], pa.Array], values: list[Any], reasons: list[str | None]
) -> None:
    """Replace the values that do not fit the column by None, and store the reasons."""
    for begin in range(0, len(values), _MISFIT_BLOCK_ROWS):
        block = values[begin : begin + _MISFIT_BLOCK_ROWS]
        if _explain_type_mismatch(build_column, block) is None:
            continue
        for row, value in enumerate(block, begin):
            if (reason := _explain_type_mismatch(build_column, [value])) is not None:
                values[row], reasons[row] = None, reason


def _explain_type_mismatch(build_column: Callable[[list[Any]], pa.Array], values: list[Any]) -> str | None:
    """Return the reason why values do not fit a column; None: they fit."""
    try:
        build_column(values)
    except UnicodeError as error:
        return f"message has a text or a name that is not Unicode: {error}"
    except ARROW_CONVERSION_ERRORS as error:
        raise_handler_error(error)
        return f"message does not match its schema: {error}"
    return None


def _build_mixed_column(values: list[Any]) -> pa.Array:
    """Return values as a column. If some values are objects, other values become objects with the field `value`."""
    if any(isinstance(value, dict) for value in values):
        values = [value if value is None or isinstance(value, dict) else {"value": value} for value in values]
    return build_value_column(values)


def convert_protobuf_to_dict(message: Any) -> dict[str, Any]:
    """Return a protobuf message as a dictionary.

    Enums become names, and maps become lists of key and value. An unset field is None if the type distinguishes unset
    fields from default values.
    """
    return {field.name: _read_protobuf_field(message, field) for field in message.DESCRIPTOR.fields}


def _read_protobuf_field(message: Any, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if isinstance(value, MutableMapping) and not hasattr(value, "DESCRIPTOR"):
        value_field = field.message_type.fields_by_name["value"]
        return [{"key": key, "value": _convert_protobuf_value(value[key], value_field)} for key in value]
    if isinstance(value, MutableSequence) and not hasattr(value, "DESCRIPTOR"):
        return [_convert_protobuf_value(element, field) for element in value]
    return _convert_protobuf_value(value, field)


def _convert_protobuf_value(value: Any, field: Any) -> Any:
    if hasattr(value, "DESCRIPTOR"):
        return convert_protobuf_to_dict(value)
    if field.enum_type is not None and value in field.enum_type.values_by_number:
        return field.enum_type.values_by_number[value].name
    return value
