"""Payloads as Arrow values: fixed layouts by the column, all other encodings by the message."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, MutableSequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from msgq.dtypes import struct_dtype
from msgq.recording import LogReader, Message, Undecoded
from msgq.recording.reader.batches import batches
from msgq.recording.reader.decoders import Decoders, time_offset
from msgq.schema import Schema
from msgq.spark.decode.arrow_types import UNFIT, conformed, text_column, value_column
from msgq.spark.decode.events import HEAD, event_heads, event_names, event_payloads, is_event, other_layout

_SAMPLE = 1000
_TIME_BYTES = 8
_WIDER = {1: np.int16, 2: np.int32, 4: np.int64}  # Spark has no unsigned integers


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
    rows: np.ndarray[Any, Any] | None = None
    element: np.ndarray[Any, Any] | None = None
    reason: pa.Array | None = None
    data: pa.Array | None = None


class Decoder:
    """Makes values from payloads of any schemas. One thread at a time."""

    def __init__(self, value: pa.DataType | None) -> None:
        """Make values of this type; None: of the type that those of each call have, by `arrow_types`."""
        self._type = value
        self._is_text = value is not None and pa.types.is_string(value)
        self._decoders = Decoders()

    def values(self, schema: Schema | None, data: pa.BinaryArray) -> Iterator[Values]:
        """Give the values of messages of one schema."""
        if schema is not None and is_event(schema):
            yield from self._of_events(schema, data)
        elif schema is not None and schema.encoding == "struct":
            try:
                dtype = struct_dtype(schema)
            except ValueError as error:
                yield self._without(data, str(error))
            else:
                yield from self._of_dtype(dtype, data)
        else:
            yield self._one_by_one(schema, data)

    def _without(self, data: pa.BinaryArray, reason: str, rows: np.ndarray[Any, Any] | None = None) -> Values:
        nothing = pa.nulls(len(data), self._type or pa.null())
        return Values(nothing, rows, None, pa.array([reason] * len(data), pa.string()), data)

    def _of_dtype(self, dtype: np.dtype[Any], data: pa.BinaryArray) -> Iterator[Values]:
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
            value = self._elements(payload.view(dtype))
        except UNFIT as error:
            yield self._without(data, f"its schema does not fit: {error}", rows)
            return
        element = None
        if len(value) != len(data):
            counts = sizes // dtype.itemsize
            rows = np.repeat(np.arange(len(data)) if rows is None else rows, counts)
            element = np.arange(len(value)) - np.repeat(np.cumsum(counts) - counts, counts)
        yield Values(value, rows, element)

    def _of_events(self, schema: Schema, data: pa.BinaryArray) -> Iterator[Values]:
        reason = other_layout(schema)
        if reason is not None:
            yield self._without(data, reason)
            return
        whole, heads = event_heads(data)
        if not whole.all():
            rows = np.flatnonzero(~whole)
            yield self._without(data.take(pa.array(rows)), "it is no event of a queue", rows)
            data = data.filter(pa.array(whole))
        if len(data):
            value = event_values(heads, data)
            if self._type is not None:
                value = text_column(value.to_pylist()) if self._is_text else conformed(value, self._type)
            yield Values(value, None if whole.all() else np.flatnonzero(whole))

    def _elements(self, array: np.ndarray[Any, Any]) -> pa.Array:
        if self._is_text:  # of Arrow's values it would be another one
            return text_column(list(array))
        value = arrow_array(array)
        return value if self._type is None else conformed(value, self._type)

    def _one_by_one(self, schema: Schema | None, data: pa.BinaryArray) -> Values:
        values, reasons = [], []
        payloads = data.to_pylist()
        for payload in payloads:
            value = self._value(schema, payload)
            failed = isinstance(value, Undecoded)
            values.append(None if failed else value)
            reasons.append(value.reason if failed else None)
        made = _column(values) if self._type is None else self._typed(values, reasons)
        kept = [payload if reason else None for payload, reason in zip(payloads, reasons, strict=True)]
        return Values(made, None, None, pa.array(reasons, pa.string()), pa.array(kept, pa.binary()))

    def _typed(self, values: list[Any], reasons: list[str | None]) -> pa.Array:
        try:
            return text_column(values) if self._is_text else conformed(value_column(values), self._type)
        except UNFIT:
            return pa.array([self._fitting(values, reasons, row) for row in range(len(values))], self._type)

    def _value(self, schema: Schema | None, payload: bytes) -> Any:
        value = self._decoders.value(Message("", payload, 0, 0, 0, 0, schema))
        return fields(value) if hasattr(value, "DESCRIPTOR") and not self._is_text else value

    def _fitting(self, values: list[Any], reasons: list[str | None], row: int) -> Any:
        """Return the value of a row if it fits; else None, with the reason."""
        try:
            return conformed(value_column(values[row : row + 1]), self._type)[0]
        except UNFIT as error:
            reasons[row] = f"it is not {self._type}: {error}"
            return None


def _column(values: list[Any]) -> pa.Array:
    """Return values as a column; among objects, others are objects with one field, `value`."""
    if any(isinstance(value, dict) for value in values):
        values = [value if value is None or isinstance(value, dict) else {"value": value} for value in values]
    return value_column(values)


def value_type(log: LogReader) -> pa.DataType | None:
    """Return what the messages of a log of one endpoint are, by its schema or the first ones; None: there are none."""
    batch = next(batches(log.contents, ["channel", "data"], _SAMPLE), None)
    if batch is None:
        return None
    decoder = Decoder(pa.null())
    channel = log.channels[batch.column("channel")[-1].as_py()]
    if is_event(channel.schema):
        return event_values(np.zeros(0, HEAD), pa.array([], pa.binary())).type
    if channel.schema is not None and channel.schema.encoding == "struct":
        try:
            return arrow_array(np.zeros(0, struct_dtype(channel.schema))).type
        except ValueError:
            return pa.string()
    values = [decoder._value(channel.schema, payload) for payload in batch.column("data").to_pylist()]
    found = value_column([value for value in values if not isinstance(value, Undecoded)]).type
    return pa.string() if pa.types.is_null(found) else found


def arrow_array(array: np.ndarray[Any, Any]) -> pa.Array:
    """Return the elements along the first axis, in types that Spark has."""
    dtype = array.dtype
    if array.ndim > 1:
        each = array.shape[1]
        ends = np.arange(0, (len(array) + 1) * each, max(each, 1), dtype=np.int32)[: len(array) + 1]
        return pa.ListArray.from_arrays(pa.array(ends), arrow_array(array.reshape(-1, *array.shape[2:])))
    if dtype.names is not None:
        return pa.StructArray.from_arrays([arrow_array(array[name]) for name in dtype.names], list(dtype.names))
    if dtype.kind == "u":
        return pa.array(array.astype(_WIDER[dtype.itemsize])) if dtype.itemsize < 8 else _unsigned(array)
    if dtype.kind == "f":
        return pa.array(array.astype(np.float64 if dtype.itemsize >= 8 else np.float32))
    if dtype.kind in "mM":
        return pa.array(array.astype(f"{dtype.kind}8[ns]").astype(np.int64))
    if dtype.kind == "c":
        return pa.StructArray.from_arrays([arrow_array(array.real), arrow_array(array.imag)], ["real", "imag"])
    if dtype.kind in "SV":
        return pa.array([bytes(value) for value in array.tolist()], pa.binary())
    return pa.array(np.ascontiguousarray(array).astype(dtype.newbyteorder("=")))


def event_values(heads: np.ndarray[Any, Any], data: pa.BinaryArray) -> pa.StructArray:
    """Return events of queues: the fields of their heads, what happened as text, and `payload`: what is behind them."""
    names = list(heads.dtype.names or ())
    fields = {name: arrow_array(heads[name]) for name in names}
    number = pa.array(heads["number"].astype(np.int64))  # as in `work`, and no decimal: 63 bits are not used up
    made = fields | {"event": event_names(heads), "number": number, "payload": event_payloads(data)}
    return pa.StructArray.from_arrays(list(made.values()), list(made))


def _unsigned(array: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array(array.astype(np.uint64)).cast(pa.decimal128(20, 0))


def fields(message: Any) -> dict[str, Any]:
    """Return a protobuf message as a dictionary: enums by their names, maps as lists of key and value, None for what is
    not set where that makes a difference.
    """
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if isinstance(value, MutableMapping) and not hasattr(value, "DESCRIPTOR"):
        of = field.message_type.fields_by_name["value"]
        return [{"key": key, "value": _single(value[key], of)} for key in value]
    if isinstance(value, MutableSequence) and not hasattr(value, "DESCRIPTOR"):
        return [_single(one, field) for one in value]
    return _single(value, field)


def _single(value: Any, field: Any) -> Any:
    if hasattr(value, "DESCRIPTOR"):
        return fields(value)
    if field.enum_type is not None and value in field.enum_type.values_by_number:
        return field.enum_type.values_by_number[value].name
    return value


@lru_cache(maxsize=1024)
def origin_offset(schema: Schema | None) -> int | None:
    """Return where in a message its origin time is, the field `origin_time` of a struct schema; None: it has none."""
    return time_offset(schema, "origin_time")


def origin_times(schema: Schema | None, data: pa.BinaryArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the origin time of each payload, ns since the epoch; 0 where it has none."""
    found = np.zeros(len(data), np.int64)
    at = origin_offset(schema)
    if at is None or not len(data):
        return found
    offsets = np.frombuffer(data.buffers()[1], np.int32)[data.offset : data.offset + len(data) + 1].astype(np.int64)
    fits = np.diff(offsets) >= at + _TIME_BYTES
    if fits.any():
        eight = np.arange(at, at + _TIME_BYTES)
        payload = np.frombuffer(data.buffers()[2], np.uint8)
        found[fits] = payload[offsets[:-1][fits, None] + eight].view("<i8")[:, 0]
    return np.maximum(found, 0)
