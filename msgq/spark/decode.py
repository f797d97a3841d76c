"""Payloads as Arrow values: fixed layouts by the column, all other encodings by the message."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from msgq.recording import LogReader, Message, Undecoded
from msgq.recording.batches import batches
from msgq.recording.decode import Decoders, struct_dtype
from msgq.recording.files import Channel

_SAMPLE = 1000
_DEPTH = 64  # of lists and structs in each other; Java's stack has an end
_UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)
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
    """Makes values of one type from payloads of any schemas. One thread at a time."""

    def __init__(self, value: pa.DataType) -> None:
        self._type = value
        self._decoders = Decoders()

    def values(self, channel: Channel, data: pa.BinaryArray) -> Iterator[Values]:
        """Give the values of messages of one channel."""
        if channel.schema is not None and channel.schema.encoding == "struct":
            try:
                dtype = struct_dtype(channel.schema)
            except ValueError as error:
                yield self._without(data, str(error))
            else:
                yield from self._of_dtype(dtype, data)
        else:
            yield self._one_by_one(channel, data)

    def _without(self, data: pa.BinaryArray, reason: str, rows: np.ndarray[Any, Any] | None = None) -> Values:
        return Values(pa.nulls(len(data), self._type), rows, None, pa.array([reason] * len(data), pa.string()), data)

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
            value = conformed(arrow_array(payload.view(dtype)), self._type)
        except _UNFIT as error:
            yield self._without(data, f"its schema does not fit: {error}", rows)
            return
        element = None
        if len(value) != len(data):
            counts = sizes // dtype.itemsize
            rows = np.repeat(np.arange(len(data)) if rows is None else rows, counts)
            element = np.arange(len(value)) - np.repeat(np.cumsum(counts) - counts, counts)
        yield Values(value, rows, element)

    def _one_by_one(self, channel: Channel, data: pa.BinaryArray) -> Values:
        values, reasons = [], []
        for payload in data.to_pylist():
            value = self._value(channel, payload)
            failed = isinstance(value, Undecoded)
            values.append(None if failed else value)
            reasons.append(value.reason if failed else None)
        if pa.types.is_string(self._type):
            values = [value if value is None or isinstance(value, str) else json.dumps(value, default=str)
                      for value in values]  # fmt: skip
        try:
            made = pa.array(values, self._type)
        except _UNFIT:
            made = pa.array([self._fitting(values, reasons, row) for row in range(len(values))], self._type)
        kept = [payload if reason else None for payload, reason in zip(data.to_pylist(), reasons, strict=True)]
        return Values(made, None, None, pa.array(reasons, pa.string()), pa.array(kept, pa.binary()))

    def _value(self, channel: Channel, payload: bytes) -> Any:
        message = Message(channel.endpoint, payload, 0, 0, 0, channel.epoch, channel.schema)
        value = self._decoders.value(message)
        if isinstance(value, Undecoded):
            return value
        try:
            return plain(fields(value) if hasattr(value, "DESCRIPTOR") else value)
        except ValueError as error:
            return Undecoded(payload, str(error))

    def _fitting(self, values: list[Any], reasons: list[str | None], row: int) -> Any:
        """Return the value of a row if it fits; else None, with the reason."""
        try:
            return pa.array(values[row : row + 1], self._type)[0]
        except _UNFIT as error:
            reasons[row] = f"it is not {self._type}: {error}"
            return None


def value_type(log: LogReader) -> pa.DataType | None:
    """Return what the messages of a log of one endpoint are, by its schema or the first ones; None: there are none."""
    batch = next(batches(log, ["channel", "data"], _SAMPLE), None)
    if batch is None:
        return None
    decoder = Decoder(pa.null())
    channel = log.channels[batch.column("channel")[-1].as_py()]
    if channel.schema is not None and channel.schema.encoding == "struct":
        try:
            return arrow_array(np.zeros(0, struct_dtype(channel.schema))).type
        except ValueError:
            return pa.string()
    values = [decoder._value(channel, payload) for payload in batch.column("data").to_pylist()]
    try:
        return _known(pa.array([value for value in values if not isinstance(value, Undecoded)]).type) or pa.string()
    except _UNFIT:
        return pa.string()  # of no one type: JSON


def _known(found: pa.DataType) -> pa.DataType | None:
    """Return a type that Spark has, with text for what was only null; None where there is nothing but empty structs."""
    if pa.types.is_struct(found):
        parts = [(field.name, _known(field.type)) for field in found]
        kept = [part for part in parts if part[1] is not None]
        return pa.struct(kept) if kept else None
    if pa.types.is_list(found):
        each = _known(found.value_type)
        return None if each is None else pa.list_(each)
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


def _unsigned(array: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array(array.astype(np.uint64)).cast(pa.decimal128(20, 0))


def conformed(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the same values as another type: fields by their names, those that are not there null."""
    if array.type == wanted:
        return array
    if pa.types.is_null(wanted):
        return pa.nulls(len(array))
    if not (pa.types.is_struct(wanted) and pa.types.is_struct(array.type)):
        return array.cast(wanted)
    there = {field.name: array.field(number) for number, field in enumerate(array.type)}
    parts = [
        conformed(there[field.name], field.type) if field.name in there else pa.nulls(len(array), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(parts, fields=list(wanted))


def fields(message: Any) -> dict[str, Any]:
    """Return a protobuf message as a dictionary: enums by their names, None for what has presence and is not set."""
    found = {}
    for field in message.DESCRIPTOR.fields:
        is_set = not field.has_presence or message.HasField(field.name)
        found[field.name] = _field(getattr(message, field.name), field.enum_type) if is_set else None
    return found


def _field(value: Any, enum: Any) -> Any:
    if hasattr(value, "DESCRIPTOR"):
        return fields(value)
    if isinstance(value, Mapping):
        return {str(key): _field(part, None) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_field(part, enum) for part in value]
    named = enum and enum.values_by_number.get(value)
    return named.name if named else value


def plain(value: Any, depth: int = _DEPTH) -> Any:
    """Return a value in the types of JSON, and bytes; what is none of these as text.

    Raises
    ------
    ValueError : lists and mappings are in each other more than `depth` times, or within themselves.
    """
    if value is None or isinstance(value, (str, int, float, bytes)):
        return value
    if not depth:
        raise ValueError(f"it is nested more than {_DEPTH} deep")
    if isinstance(value, Mapping):
        return {_name(name): plain(part, depth - 1) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part, depth - 1) for part in value]
    if isinstance(value, (set, frozenset)):
        return [plain(part, depth - 1) for part in sorted(value, key=str)]
    return str(value)


def _name(key: Any) -> str:
    return key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(key)
