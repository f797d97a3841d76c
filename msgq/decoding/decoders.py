"""Payloads to values, by the schema of their endpoint."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from msgq.common import queue_events
from msgq.common.dtypes import struct_dtype
from msgq.common.schema import Schema
from msgq.decoding.capnproto.schema import struct_of
from msgq.decoding.core import CapnpReader, CdrReader, FlatBufferReader
from msgq.decoding.flatbuffer.schema import table_of
from msgq.decoding.json_values import json_value
from msgq.decoding.structs import schema_struct

Decode = Callable[[bytes], Any]
NESTING_MAX = 100  # levels of lists and mappings: who goes down into a value does so by calling itself
_SHARED = b"\x1d"  # in CBOR, however long it is written
_REASON_MAX = 500  # characters
_LEAVES = (str, int, float, bytes, type(None))


@dataclass(frozen=True, slots=True)
class Undecoded:
    """A payload that could not be decoded, and why."""

    data: bytes
    reason: str


class Decoders:
    """Decodes messages of any schemas; makes a decoder for each schema once. One thread at a time."""

    def __init__(self) -> None:
        self._known: dict[Schema, Decode | str] = {}

    def value(self, schema: Schema | None, data: bytes) -> Any:
        """Return what a payload says: itself where there is no encoding, `Undecoded` where that fails."""
        if schema is None or not schema.encoding:
            return data
        decode = self._known.get(schema)
        if decode is None:
            decode = self._known[schema] = _decoder(schema)
        if isinstance(decode, str):
            return Undecoded(data, decode)
        try:
            return decode(data)
        except Exception as error:  # whatever the library of an encoding raises for bytes that make no sense
            return Undecoded(data, _cut(f"{schema.encoding}: {error or type(error).__name__}"))


def as_json(value: Any, data: bytes) -> Any:
    """Return what `Decoders.value` gave made of what JSON has, by the rules of `json_values`.

    A payload without a known encoding, which is bytes, is an `Undecoded` with the reason "". A value that JSON cannot
    say is one as well.

    Parameters
    ----------
    value : of the message.
    data : the payload.
    """
    if isinstance(value, Undecoded):
        return value
    if value is data:
        return Undecoded(data, "")
    try:
        return json_value(value)
    except Exception as error:  # what somebody sent may be any object of any library
        return Undecoded(data, f"it cannot be shown: {error or type(error).__name__}")


def is_deep(value: Any) -> bool:
    """Return whether a value is nested deeper than NESTING_MAX levels."""
    level = [value]
    for _ in range(NESTING_MAX):
        level = [part for item in level for part in _parts(item) if not isinstance(part, _LEAVES)]
        if not level:
            return False
    return True


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return chain(value, value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    return (value.value,) if hasattr(value, "tag") and hasattr(value, "value") else ()  # CBOR's


def _decoder(schema: Schema) -> Decode | str:
    make = _MAKERS.get(schema.encoding)
    if make is None:
        return f"nothing here decodes {schema.encoding!r}"
    try:
        return make(schema)
    except ModuleNotFoundError as missing:
        return f"{schema.encoding} needs the package {missing.name}, which is not installed"
    except Exception as error:  # whatever the library of an encoding raises for a schema that makes no sense
        return _cut(f"the schema {schema.name!r} makes no sense: {error or type(error).__name__}")


def nonsense(schema: Schema) -> str:
    """Return why a schema is invalid; "" if it is valid, or if the package that checks it is not installed."""
    try:
        _MAKERS[schema.encoding](schema)
    except ModuleNotFoundError:
        return ""
    except Exception as error:  # as in `_decoder`
        return _cut(str(error) or type(error).__name__)
    return ""


def _cut(reason: str) -> str:
    """Return a reason that does not repeat all that somebody sent."""
    return reason if len(reason) <= _REASON_MAX else f"{reason[:_REASON_MAX]}..."


def _json(_schema: Schema) -> Decode:
    return _check_depth(json.loads)


def _check_depth(decode: Decode) -> Decode:
    """Return a decoder that refuses what is nested too deeply: where messages say how deep they are."""

    def decode_bounded(data: bytes) -> Any:
        value = decode(data)
        if is_deep(value):
            raise ValueError(f"it is nested deeper than {NESTING_MAX} levels")
        return value

    return decode_bounded


def _msgpack(_schema: Schema) -> Decode:
    import msgpack

    return _check_depth(lambda data: msgpack.unpackb(data, strict_map_key=False))


def _cbor(_schema: Schema) -> Decode:
    import cbor2

    def decode(data: bytes) -> Any:
        value = cbor2.loads(data)
        if _SHARED in data and _has_twice(value, set()):
            raise ValueError("it refers to a value within it (tag 29); what does so may have no end")
        return value

    return _check_depth(decode)


def _has_twice(value: Any, seen: set[int]) -> bool:
    """Return whether a list or mapping, unless it is empty, is in a value more than once, or in itself."""
    if not isinstance(value, (Mapping, list, tuple)) or not value:
        return False
    if id(value) in seen:
        return True
    seen.add(id(value))
    return any(_has_twice(part, seen) for part in (value.values() if isinstance(value, Mapping) else value))


def _struct(schema: Schema) -> Decode:
    dtype = struct_dtype(schema)

    def decode(data: bytes) -> Any:
        values = np.frombuffer(data, dtype)
        for text in _texts(values):
            codes = np.ascontiguousarray(text).view(np.dtype("u4").newbyteorder(text.dtype.byteorder))
            if codes.max(initial=0) > sys.maxunicode:  # NumPy takes any bits for a character
                raise ValueError("a text has what is no character")
        return values[0] if len(values) == 1 else values

    return decode


def _texts(values: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    for name in values.dtype.names or ():
        yield from _texts(values[name])
    if values.dtype.kind == "U" and values.dtype.itemsize:
        yield values


def _protobuf(schema: Schema) -> Decode:
    decode: Decode = protobuf_class(schema).FromString
    return decode


def protobuf_class(schema: Schema) -> Any:
    """Return the class of a message of Protocol Buffers.

    Raises
    ------
    ValueError : its files are not all there, or need each other in a circle. The library raises others.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    files = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(schema.data).file}
    for file in files.values():
        if missing := [needed for needed in file.dependency if needed not in files]:
            how = "make it with `protoc --include_imports --descriptor_set_out=FILE`"
            raise ValueError(f"{file.name} imports {missing[0]}, which is not in it; {how}")
    pool = descriptor_pool.DescriptorPool()
    while files:  # a file after those that it needs
        ready = [name for name, file in files.items() if not any(needed in files for needed in file.dependency)]
        if not ready:
            raise ValueError("its files need each other in a circle")
        for name in ready:
            pool.Add(files.pop(name))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.name))


def _cdr(schema: Schema) -> Decode:
    return CdrReader(schema_struct(schema), is_cdr=True).read


def _ros1(schema: Schema) -> Decode:
    return CdrReader(schema_struct(schema), is_cdr=False).read


def _flatbuffer(schema: Schema) -> Decode:
    return FlatBufferReader(table_of(schema.name, schema.data)).read


def _capnproto(schema: Schema) -> Decode:
    return CapnpReader(struct_of(schema.name, schema.data)).read


def _queue_event(_schema: Schema) -> Decode:
    names = [name for name, _ in queue_events.FIELDS]

    def decode(data: bytes) -> dict[str, Any]:
        event, *fields = struct.unpack_from(queue_events.FORMAT, data)
        said = dict(zip(names, (queue_events.Event(event).name.lower(), *fields), strict=True))
        return said | {"payload": data[queue_events.HEAD_BYTES :]}

    return decode


_MAKERS: dict[str, Callable[[Schema], Decode]] = {
    "json": _json,
    "msgpack": _msgpack,
    "cbor": _cbor,
    "struct": _struct,
    "protobuf": _protobuf,
    "cdr": _cdr,
    "ros1": _ros1,
    "flatbuffer": _flatbuffer,
    "capnproto": _capnproto,
    queue_events.ENCODING: _queue_event,
}
#: What can be decoded here, and of that what needs no schema's text.
ENCODINGS = frozenset(_MAKERS)
SELF_DESCRIBING = frozenset(("json", "msgpack", "cbor", queue_events.ENCODING))
