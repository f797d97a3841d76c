"""Payloads as Arrow values: fixed layouts and definitions by the column, all other encodings by the message."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, MutableSequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from msgq.common.dtypes import struct_dtype
from msgq.common.schema import Schema
from msgq.decoding.arrow_types import (
    CONVERSION_ERRORS,
    build_arrow_array,
    build_text_column,
    build_value_column,
    cast_array,
)
from msgq.decoding.column_type import ColumnType
from msgq.decoding.columnar_plan import ColumnarPlan, make_columnar_plan
from msgq.decoding.decoders import Decoders, Undecoded
from msgq.decoding.events import EVENT_HEAD_DTYPE, explain_other_layout, is_event, read_event_heads, read_event_values
from msgq.decoding.schema_types import find_column_type

_RowNumbers = np.ndarray[Any, Any]
_BLOCK_ROWS = 32  # values that are tried together, to find those that do not fit


@dataclass(frozen=True, slots=True)
class Values:
    """Values of some messages.

    Attributes
    ----------
    value : one a row; null where there is none.
    rows : of which message each one is; None: of each its own.
    element : its number in its message; None: 0.
    reason, data : why there is no value, and the payload instead.
    """

    value: pa.Array
    rows: _RowNumbers | None = None
    element: _RowNumbers | None = None
    reason: pa.Array | None = None
    data: pa.Array | None = None


class ColumnDecoder:
    """Makes columns of values from payloads of any schemas. One thread at a time."""

    def __init__(
        self, value: pa.DataType | None = None, allowed: Callable[[pa.DataType], pa.DataType] | None = None
    ) -> None:
        """Make values of one type.

        Parameters
        ----------
        value : the type; None: that of the messages of each call, by their schema, or by what they say.
        allowed : where `value` is None, returns which type instead of one that somebody does not have.
        """
        self._type, self._allowed = value, allowed
        self._is_text = value is not None and pa.types.is_string(value)
        self._decoders = Decoders()
        self._plans: dict[Schema, ColumnarPlan | None] = {}
        self._kinds: dict[Schema, ColumnType | None] = {}

    def values(self, schema: Schema | None, data: pa.BinaryArray) -> Iterator[Values]:
        """Give the values of messages of one schema, none of which is null."""
        if schema is not None and is_event(schema):
            yield from self._decode_events(schema, data)
        elif schema is not None and schema.encoding == "struct":
            yield from self._decode_structs(schema, data)
        elif (plan := self._find_plan(schema)) is not None and not self._is_text:
            yield from self._decode_by_plan(plan, schema, data)
        else:
            yield self._decode_one_by_one(schema, data)

    def type(self, schema: Schema | None) -> pa.DataType | None:
        """Return the type of all messages of a schema; None if it depends on the messages."""
        if schema is None:
            return None
        if is_event(schema):
            return self._convert_to_type(
                read_event_values(np.zeros(0, EVENT_HEAD_DTYPE), pa.array([], pa.binary()))
            ).type
        if schema.encoding == "struct":
            try:
                return self._convert_to_type(build_arrow_array(np.zeros(0, struct_dtype(schema)))).type
            except CONVERSION_ERRORS:
                return None
        if (plan := self._find_plan(schema)) is not None:
            return self._convert_to_type(pa.nulls(0, plan.type)).type
        kind = self.kind(schema)
        return None if kind is None or kind.is_open else self._convert_to_type(pa.nulls(0, kind.type)).type

    def _find_plan(self, schema: Schema | None) -> ColumnarPlan | None:
        if schema is None:
            return None
        if schema not in self._plans:
            self._plans[schema] = make_columnar_plan(schema)
        return self._plans[schema]

    def kind(self, schema: Schema | None) -> ColumnType | None:
        """Return the columns that the schema states for messages that are decoded one by one; None: none."""
        if schema is None:
            return None
        if schema not in self._kinds:
            self._kinds[schema] = find_column_type(schema)
        return self._kinds[schema]

    def _convert_to_type(self, value: pa.Array) -> pa.Array:
        """Return values as the type that is wanted."""
        wanted = self._type
        if wanted is None:
            wanted = value.type if self._allowed is None else self._allowed(value.type)
        return cast_array(value, wanted)

    def _without(self, data: pa.BinaryArray, reason: str, rows: _RowNumbers | None = None) -> Values:
        nothing = pa.nulls(len(data), self._type or pa.null())
        return Values(nothing, rows, None, pa.array([reason] * len(data), pa.string()), data)

    # By the column

    def _decode_structs(self, schema: Schema, data: pa.BinaryArray) -> Iterator[Values]:
        try:
            dtype = struct_dtype(schema)
        except ValueError as error:
            yield self._without(data, str(error))
        else:
            yield from self._decode_dtype(dtype, data)

    def _decode_dtype(self, dtype: np.dtype[Any], data: pa.BinaryArray) -> Iterator[Values]:
        offsets = np.frombuffer(data.buffers()[1], np.int32)[data.offset : data.offset + len(data) + 1]
        sizes = np.diff(offsets)
        bad = (sizes % dtype.itemsize != 0) | (sizes == 0)
        rows = None
        if bad.any():
            rows = np.flatnonzero(bad)
            reason = f"its size is no number of elements of {dtype.itemsize} bytes"
            yield self._without(data.take(pa.array(rows)), reason, rows)
            rows = np.flatnonzero(~bad)
            data, sizes = data.take(pa.array(rows)), sizes[~bad]
            offsets = np.concatenate(([0], np.cumsum(sizes)))
        if not len(data):
            return
        payload = np.frombuffer(data.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        try:
            value = self._list_elements(payload.view(dtype))
        except CONVERSION_ERRORS as error:
            yield self._without(data, f"its schema does not fit: {error}", rows)
            return
        element = None
        if len(value) != len(data):
            counts = sizes // dtype.itemsize
            rows = np.repeat(np.arange(len(data)) if rows is None else rows, counts)
            element = np.arange(len(value)) - np.repeat(np.cumsum(counts) - counts, counts)
        yield Values(value, rows, element)

    def _list_elements(self, array: np.ndarray[Any, Any]) -> pa.Array:
        if self._is_text:  # of Arrow's values it would be another one
            return build_text_column(list(array))
        return self._convert_to_type(build_arrow_array(array))

    def _decode_events(self, schema: Schema, data: pa.BinaryArray) -> Iterator[Values]:
        reason = explain_other_layout(schema)
        if reason is not None:
            yield self._without(data, reason)
            return
        whole, heads = read_event_heads(data)
        if not whole.all():
            rows = np.flatnonzero(~whole)
            yield self._without(data.take(pa.array(rows)), "it is no event of a queue", rows)
            data = data.filter(pa.array(whole))
        if len(data):
            value = read_event_values(heads, data)
            value = build_text_column(value.to_pylist()) if self._is_text else self._convert_to_type(value)
            yield Values(value, None if whole.all() else np.flatnonzero(whole))

    def _decode_by_plan(self, plan: ColumnarPlan, schema: Schema | None, data: pa.BinaryArray) -> Iterator[Values]:
        value, failed = plan.columns(data)
        try:
            value = self._convert_to_type(value)
        except CONVERSION_ERRORS:  # some of them may fit
            yield self._decode_one_by_one(schema, data)
            return
        if not failed.any():
            yield Values(value)
            return
        yield Values(value, np.flatnonzero(~failed))
        rows = np.flatnonzero(failed)
        remaining = self._decode_one_by_one(schema, data.take(pa.array(rows)), value.type)
        yield Values(remaining.value, rows, None, remaining.reason, remaining.data)

    # One by one

    def _decode_one_by_one(
        self, schema: Schema | None, data: pa.BinaryArray, known: pa.DataType | None = None
    ) -> Values:
        """Return values, of a type that is known if there is one."""
        values, reasons = [], []
        payloads = data.to_pylist()
        for payload in payloads:
            value = self.value(schema, payload)
            failed = isinstance(value, Undecoded)
            values.append(None if failed else value)
            reasons.append(value.reason if failed else None)
        made = self._build_column(self.kind(schema), values, reasons, self._type or known)
        kept = [payload if reason else None for payload, reason in zip(payloads, reasons, strict=True)]
        return Values(made, None, None, pa.array(reasons, pa.string()), pa.array(kept, pa.binary()))

    def value(self, schema: Schema | None, payload: bytes) -> Any:
        """Return what one payload says, as `Decoders` have it, but Protocol Buffers as dictionaries."""
        value = self._decoders.value(schema, payload)
        return fields(value) if hasattr(value, "DESCRIPTOR") and not self._is_text else value

    def column(self, schema: Schema | None, values: list[Any]) -> pa.Array:
        """Return values of messages of one schema as a column, with the types that the schema states."""
        kind = self.kind(schema)
        made = (
            build_value_column(values) if kind is None else self._build_column(kind, values, [None] * len(values), None)
        )
        return self._convert_to_type(made)

    def _build_column(
        self, kind: ColumnType | None, values: list[Any], reasons: list[str | None], wanted: pa.DataType | None
    ) -> pa.Array:
        """Return values as a column; those that are not of its type get a reason. wanted : the type; None: any."""
        if self._is_text:
            return build_text_column(values)
        if kind is None and wanted is None:
            return self._convert_to_type(_column(values))

        def column(some: list[Any]) -> pa.Array:
            made = build_value_column(some) if kind is None else kind.column(some)
            return self._convert_to_type(made) if wanted is None else cast_array(made, wanted)

        try:
            return column(values)
        except CONVERSION_ERRORS:
            for begin in range(0, len(values), _BLOCK_ROWS):
                _set_aside(column, values, reasons, range(begin, min(begin + _BLOCK_ROWS, len(values))))
            return column(values)


def _set_aside(
    column: Callable[[list[Any]], pa.Array], values: list[Any], reasons: list[str | None], rows: range
) -> None:
    """Give the rows whose values do not fit a column a reason, and no value."""
    if _explain_misfit(column, values[rows.start : rows.stop]) is None:
        return
    for row in rows:
        if (why := _explain_misfit(column, values[row : row + 1])) is not None:
            values[row], reasons[row] = None, why


def _explain_misfit(column: Callable[[list[Any]], pa.Array], values: list[Any]) -> str | None:
    """Return why values do not fit a column; None if they fit."""
    try:
        column(values)
    except CONVERSION_ERRORS as error:
        return f"it does not match its schema: {error}"
    return None


def _column(values: list[Any]) -> pa.Array:
    """Return values as a column; among objects, others are objects with one field, `value`."""
    if any(isinstance(value, dict) for value in values):
        values = [value if value is None or isinstance(value, dict) else {"value": value} for value in values]
    return build_value_column(values)


def fields(message: Any) -> dict[str, Any]:
    """Return a protobuf message as a dictionary: enums by their names, maps as lists of key and value, None for what is
    not set where that makes a difference.
    """
    return {field.name: _read_field(message, field) for field in message.DESCRIPTOR.fields}


def _read_field(message: Any, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if isinstance(value, MutableMapping) and not hasattr(value, "DESCRIPTOR"):
        value_field = field.message_type.fields_by_name["value"]
        return [{"key": key, "value": _read_single_value(value[key], value_field)} for key in value]
    if isinstance(value, MutableSequence) and not hasattr(value, "DESCRIPTOR"):
        return [_read_single_value(element, field) for element in value]
    return _read_single_value(value, field)


def _read_single_value(value: Any, field: Any) -> Any:
    if hasattr(value, "DESCRIPTOR"):
        return fields(value)
    if field.enum_type is not None and value in field.enum_type.values_by_number:
        return field.enum_type.values_by_number[value].name
    return value
