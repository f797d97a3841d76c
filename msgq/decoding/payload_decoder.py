"""Decodes payloads by the schema of their endpoint."""

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
from msgq.common.handler_errors import raise_handler_error
from msgq.common.schema import Schema
from msgq.decoding.capnproto.schema_reader import read_capnp_struct
from msgq.decoding.core import CapnpReader, CdrReader, FlatBufferReader
from msgq.decoding.flatbuffer.schema_reader import read_flatbuffer_table
from msgq.decoding.json_values import convert_to_json
from msgq.decoding.struct_definitions import parse_schema_struct

DecodeFunction = Callable[[bytes], Any]
VALUE_NESTING_MAX = 100  # levels of lists and mappings. Functions that read values are recursive
_CBOR_SHARED_VALUE_TAG = b"\x1d"  # in CBOR, however long it is written
_REASON_CHARACTERS_MAX = 500  # characters
_LEAF_TYPES = (str, int, float, bytes, type(None))


@dataclass(frozen=True, slots=True)
class Undecoded:
    """A payload that could not be decoded, with the reason."""

    data: bytes
    reason: str


class PayloadDecoder:
    """Decodes messages with any schemas, and creates a decoder for each schema once. One thread at a time."""

    def __init__(self) -> None:
        self._decode_functions: dict[Schema, DecodeFunction | str] = {}
        self._last: tuple[Schema | None, DecodeFunction | str] = None, ""

    def decode_payload(self, schema: Schema | None, data: bytes) -> Any:
        """Return the decoded value of a payload. Without an encoding: the payload itself.

        If decoding fails: `Undecoded`.
        """
        if schema is None or not schema.encoding:
            return data
        last_schema, decode = self._last
        if schema is not last_schema:  # usually it is, and a schema's hash takes longer than the decoding of a record
            decode = self._find_decode_function(schema)
            self._last = schema, decode
        if isinstance(decode, str):
            return Undecoded(data, decode)
        try:
            return decode(data)
        except Exception as error:  # whatever the library of an encoding raises for bytes that make no sense
            raise_handler_error(error)
            return Undecoded(data, _shorten_reason(f"{schema.encoding}: {error or type(error).__name__}"))

    def _find_decode_function(self, schema: Schema) -> DecodeFunction | str:
        decode = self._decode_functions.get(schema)
        if decode is None:
            decode = self._decode_functions[schema] = _make_decoder(schema)
        return decode


def convert_decoded_to_json(value: Any, data: bytes) -> Any:
    """Convert a result of `PayloadDecoder` to plain JSON types, by the rules of `json_values`.

    A payload without a known encoding, which is bytes, becomes an `Undecoded` with the reason "". A value without a
    JSON form also becomes an `Undecoded`.

    Args:
        value: decoded value of the message.
        data: payload.
    """
    if isinstance(value, Undecoded):
        return value
    if value is data:
        return Undecoded(data, "")
    try:
        return convert_to_json(value)
    except Exception as error:  # messages may be objects of any library
        raise_handler_error(error)
        return Undecoded(data, f"value cannot be converted to JSON: {error or type(error).__name__}")


def is_nested_too_deep(value: Any) -> bool:
    """Return True if a value has more than VALUE_NESTING_MAX levels."""
    level = [value]
    for _ in range(VALUE_NESTING_MAX):
        level = [part for item in level for part in _list_child_values(item) if not isinstance(part, _LEAF_TYPES)]
        if not level:
            return False
    return True


def _list_child_values(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return chain(value, value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    return (value.value,) if hasattr(value, "tag") and hasattr(value, "value") else ()  # CBOR's


def _make_decoder(schema: Schema) -> DecodeFunction | str:
    make = _DECODER_MAKERS.get(schema.encoding)
    if make is None:
        return f"encoding {schema.encoding!r} is not supported"
    try:
        return make(schema)
    except ModuleNotFoundError as missing:
        return f"{schema.encoding} needs the package {missing.name}, which is not installed"
    except Exception as error:  # whatever the library of an encoding raises for a schema that makes no sense
        raise_handler_error(error)
        return _shorten_reason(f"schema {schema.name!r} is invalid: {error or type(error).__name__}")


def find_schema_error(schema: Schema) -> str:
    """Return the reason why a schema is invalid; "": it is valid, or the package for the check is not installed."""
    try:
        _DECODER_MAKERS[schema.encoding](schema)
    except ModuleNotFoundError:
        return ""
    except Exception as error:  # any error, see `_make_decoder`
        raise_handler_error(error)
        return _shorten_reason(str(error) or type(error).__name__)
    return ""


def _shorten_reason(reason: str) -> str:
    """Return a shortened reason, because it may quote a long message."""
    return reason if len(reason) <= _REASON_CHARACTERS_MAX else f"{reason[:_REASON_CHARACTERS_MAX]}..."


def _make_json_decoder(_schema: Schema) -> DecodeFunction:
    return _limit_nesting(json.loads)


def _limit_nesting(decode: DecodeFunction) -> DecodeFunction:
    """Return a decoder that refuses values nested too deeply. Use it if the message determines the nesting."""

    def decode_bounded(data: bytes) -> Any:
        value = decode(data)
        if is_nested_too_deep(value):
            raise ValueError(f"value is nested deeper than {VALUE_NESTING_MAX} levels")
        return value

    return decode_bounded


def _make_msgpack_decoder(_schema: Schema) -> DecodeFunction:
    import msgpack

    return _limit_nesting(lambda data: msgpack.unpackb(data, strict_map_key=False))


def _make_cbor_decoder(_schema: Schema) -> DecodeFunction:
    import cbor2

    def decode_payload(data: bytes) -> Any:
        value = cbor2.loads(data)
        if _CBOR_SHARED_VALUE_TAG in data and _has_shared_value(value, set()):
            raise ValueError(
                "value contains a reference to a shared value (tag 29); "
                "references can form an endless value, so they are not supported"
            )
        return value

    return _limit_nesting(decode_payload)


def _has_shared_value(value: Any, seen: set[int]) -> bool:
    """Return True if a list or mapping with elements occurs more than once in a value, or contains itself."""
    if not isinstance(value, (Mapping, list, tuple)) or not value:
        return False
    if id(value) in seen:
        return True
    seen.add(id(value))
    return any(_has_shared_value(part, seen) for part in (value.values() if isinstance(value, Mapping) else value))


def _make_struct_decoder(schema: Schema) -> DecodeFunction:
    dtype = struct_dtype(schema)

    def decode_records(data: bytes) -> Any:
        values = np.frombuffer(data, dtype)
        return values[0] if len(values) == 1 else values

    def decode_texts(data: bytes) -> Any:
        values = np.frombuffer(data, dtype)
        for path, text in _iter_text_arrays(values):
            codes = np.ascontiguousarray(text).view(np.dtype("u4").newbyteorder(text.dtype.byteorder))
            if (code := codes.max(initial=0)) > sys.maxunicode:  # NumPy takes any bits for a character
                subject = f"text field {path!r}" if path else "text"
                raise ValueError(f"{subject} contains {int(code):#x}, which is not a Unicode code point")
        return values[0] if len(values) == 1 else values

    return decode_texts if any(_iter_text_arrays(np.empty(0, dtype))) else decode_records


def _iter_text_arrays(values: np.ndarray[Any, Any], path: str = "") -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield each field of texts with its path, such as "header.name"; "": the values are texts themselves."""
    for name in values.dtype.names or ():
        yield from _iter_text_arrays(values[name], f"{path}.{name}" if path else name)
    if values.dtype.kind == "U" and values.dtype.itemsize:
        yield path, values


def _make_protobuf_decoder(schema: Schema) -> DecodeFunction:
    decode: DecodeFunction = load_protobuf_class(schema).FromString
    return decode


def load_protobuf_class(schema: Schema) -> Any:
    """Return the class of a Protocol Buffers message.

    Raises:
        ValueError: a needed file is missing, or files need each other. The protobuf library raises other errors.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    files = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(schema.data).file}
    for file in files.values():
        if missing := [needed for needed in file.dependency if needed not in files]:
            remedy = "create the schema with `protoc --include_imports --descriptor_set_out=FILE`"
            raise ValueError(
                f"schema file {file.name!r} imports {missing[0]!r}, which the schema does not contain; {remedy}"
            )
    pool = descriptor_pool.DescriptorPool()
    while files:  # a file after those that it needs
        ready = [name for name, file in files.items() if not any(needed in files for needed in file.dependency)]
        if not ready:
            raise ValueError("schema files import each other in a circle")
        for name in ready:
            pool.Add(files.pop(name))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.name))


def _make_cdr_decoder(schema: Schema) -> DecodeFunction:
    return CdrReader(parse_schema_struct(schema), is_cdr=True).read


def _make_ros1_decoder(schema: Schema) -> DecodeFunction:
    return CdrReader(parse_schema_struct(schema), is_cdr=False).read


def _make_flatbuffer_decoder(schema: Schema) -> DecodeFunction:
    return FlatBufferReader(read_flatbuffer_table(schema.name, schema.data)).read


def _make_capnproto_decoder(schema: Schema) -> DecodeFunction:
    return CapnpReader(read_capnp_struct(schema.name, schema.data)).read


def _make_queue_event_decoder(_schema: Schema) -> DecodeFunction:
    names = [name for name, _ in queue_events.EVENT_FIELDS]

    def decode_payload(data: bytes) -> dict[str, Any]:
        event, *fields = struct.unpack_from(queue_events.EVENT_HEAD_FORMAT, data)
        event_fields = dict(zip(names, (queue_events.Event(event).name.lower(), *fields), strict=True))
        return event_fields | {"payload": data[queue_events.EVENT_HEAD_BYTES :]}

    return decode_payload


_DECODER_MAKERS: dict[str, Callable[[Schema], DecodeFunction]] = {
    "json": _make_json_decoder,
    "msgpack": _make_msgpack_decoder,
    "cbor": _make_cbor_decoder,
    "struct": _make_struct_decoder,
    "protobuf": _make_protobuf_decoder,
    "cdr": _make_cdr_decoder,
    "ros1": _make_ros1_decoder,
    "flatbuffer": _make_flatbuffer_decoder,
    "capnproto": _make_capnproto_decoder,
    queue_events.EVENT_ENCODING: _make_queue_event_decoder,
}
#: Encodings that can be decoded here, and those that need no schema's text.
DECODABLE_ENCODINGS = frozenset(_DECODER_MAKERS)
SELF_DESCRIBING_ENCODINGS = frozenset(("json", "msgpack", "cbor", queue_events.EVENT_ENCODING))
