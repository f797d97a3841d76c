"""Payloads to values, by the schema of their endpoint."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from msgq import queue_events
from msgq.dtypes import struct_dtype
from msgq.recording.reader.json_values import json_value
from msgq.recording.reader.message import Message
from msgq.schema import Schema

Decode = Callable[[bytes], Any]
NESTING_MAX = 100  # levels of lists and mappings: who goes down into a value does so by calling itself
_SHARED = b"\x1d"  # in CBOR, however long it is written
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

    def value(self, message: Message) -> Any:
        """Return what the message says: its payload where there is no encoding, `Undecoded` where that fails."""
        if message.schema is None or not message.schema.encoding:
            return message.data
        decode = self._known.get(message.schema)
        if decode is None:
            decode = self._known[message.schema] = _decoder(message.schema)
        if isinstance(decode, str):
            return Undecoded(message.data, decode)
        try:
            value = decode(message.data)
            if is_deep(value):
                raise ValueError(f"it is nested deeper than {NESTING_MAX} levels")
            return value
        except Exception as error:  # whatever the library of an encoding raises for bytes that make no sense
            return Undecoded(message.data, f"{message.schema.encoding}: {error or type(error).__name__}")


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
        level = [part for one in level for part in _parts(one) if not isinstance(part, _LEAVES)]
        if not level:
            return False
    return True


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return chain(value, value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    return (value.value,) if hasattr(value, "tag") and hasattr(value, "value") else ()  # CBOR's


def time_offset(schema: Schema | None, field: str) -> int | None:
    """Return the byte at which messages of a struct schema have a field with a time, 8 bytes; None: they have none."""
    if schema is None or schema.encoding != "struct":
        return None
    try:
        fields = struct_dtype(schema).fields
    except ValueError:
        return None
    if not fields or field not in fields:
        return None
    kind, offset, *_ = fields[field]
    return int(offset) if kind in (np.dtype("<u8"), np.dtype("<i8")) else None


@lru_cache(maxsize=1024)
def stamp_dtype(schema: Schema | None, fields: tuple[str, ...]) -> np.dtype[Any] | None:
    """Return a dtype of the size of messages of a struct schema that has only these times; None: they lack one."""
    offsets = [time_offset(schema, field) for field in fields]
    if schema is None or None in offsets:
        return None
    itemsize = struct_dtype(schema).itemsize
    described: Any = {"names": fields, "formats": ["<i8"] * len(fields), "offsets": offsets, "itemsize": itemsize}
    dtype: np.dtype[Any] = np.dtype(described)
    return dtype


def _decoder(schema: Schema) -> Decode | str:
    make = _MAKERS.get(schema.encoding)
    if make is None:
        return f"nothing here decodes {schema.encoding!r}"
    try:
        return make(schema)
    except ModuleNotFoundError as missing:
        return f"{schema.encoding} needs the package {missing.name}, which is not installed"
    except Exception as error:  # whatever the library of an encoding raises for a schema that makes no sense
        return f"the schema {schema.name!r} makes no sense: {error or type(error).__name__}"


def _json(_schema: Schema) -> Decode:
    return json.loads


def _msgpack(_schema: Schema) -> Decode:
    import msgpack

    return lambda data: msgpack.unpackb(data, strict_map_key=False)


def _cbor(_schema: Schema) -> Decode:
    import cbor2

    def decode(data: bytes) -> Any:
        value = cbor2.loads(data)
        if _SHARED in data and _has_twice(value, set()):
            raise ValueError("it refers to a value within it (tag 29); what does so may have no end")
        return value

    return decode


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
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    files = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(schema.data).file}
    pool = descriptor_pool.DescriptorPool()
    while files:  # a file after those that it needs
        ready = [name for name, file in files.items() if not any(needed in files for needed in file.dependency)]
        if not ready:
            raise ValueError("its files need each other in a circle")
        for name in ready:
            pool.Add(files.pop(name))
    decode: Decode = message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.name)).FromString
    return decode


def _queue_event(_schema: Schema) -> Decode:
    names = [name for name, _ in queue_events.FIELDS]

    def decode(data: bytes) -> dict[str, Any]:
        event, *rest = struct.unpack_from(queue_events.FORMAT, data)
        said = dict(zip(names, (queue_events.Event(event).name.lower(), *rest), strict=True))
        return said | {"payload": data[queue_events.HEAD_BYTES :]}

    return decode


_MAKERS: dict[str, Callable[[Schema], Decode]] = {
    "json": _json,
    "msgpack": _msgpack,
    "cbor": _cbor,
    "struct": _struct,
    "protobuf": _protobuf,
    queue_events.ENCODING: _queue_event,
}
#: What can be decoded here, and of that what needs no schema's text.
ENCODINGS = frozenset(_MAKERS)
SELF_DESCRIBING = frozenset(("json", "msgpack", "cbor", queue_events.ENCODING))
