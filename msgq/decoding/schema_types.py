"""Types of the columns of messages from their schema: the same schema gives the same types.

A type that is within itself, or deeper than 16 levels, is text: JSON. So are structs when a schema has more fields than
are counted here. Messages without any fields, and values that are always None, have no columns. Members of a union of
Cap'n Proto have a column if a message has them: openpilot's events have more than a hundred.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgq.common.schema import Schema
from msgq.decoding import type_model
from msgq.decoding.capnproto import schema_types as capnproto
from msgq.decoding.capnproto.schema import struct_of as capnproto_struct
from msgq.decoding.flatbuffer import schema_types as flatbuffer
from msgq.decoding.flatbuffer.schema import table_of
from msgq.decoding.json_schema import json_kind
from msgq.decoding.structs import schema_struct
from msgq.decoding.typed import BINARY, NUMBERS, TEXT, Kind, list_of, struct_of

_DEPTH_MAX = 16
_FIELDS_MAX = 1 << 14
_PROTOBUF = ("", "f8", "f4", "i8", "u8", "i4", "u8", "u4", "b1", *[""] * 4, "u4", "", "i4", "i8", "i4", "i8")


def kind_of(schema: Schema) -> Kind | None:
    """Return the type of the messages of a schema; None if it depends on the messages."""
    make = _MAKERS.get(schema.encoding)
    if make is None:
        return None
    try:
        return make(schema)
    except Exception:  # of any library: the decoder reports the error of the schema
        return None


class _Kinds:
    """Makes the types of one schema. Nested types go through `within`, which bounds their depth."""

    def __init__(self) -> None:
        self._within: list[Any] = []
        self._fields = 0

    def within(self, key: Any, fields: int, make: Callable[[], Kind | None]) -> Kind | None:
        """Return what a type with fields is made of; text where that has no end. key : tells types apart."""
        self._fields += fields
        if key in self._within or len(self._within) >= _DEPTH_MAX or self._fields > _FIELDS_MAX:
            return TEXT
        self._within.append(key)
        try:
            return make()
        finally:
            self._within.pop()

    # Protocol Buffers

    def of_message(self, descriptor: Any) -> Kind | None:
        """Return the type of a Protocol Buffers message. descriptor : of the message."""
        return self.within(
            descriptor.full_name,
            len(descriptor.fields),
            lambda: struct_of((field.name, self._of_field(field)) for field in descriptor.fields),
        )

    def _of_field(self, field: Any) -> Kind | None:
        if field.message_type is not None:
            single = self.of_message(field.message_type)
        elif field.enum_type is not None or field.type == field.TYPE_STRING:
            single = TEXT
        else:
            single = BINARY if field.type == field.TYPE_BYTES else NUMBERS[_PROTOBUF[field.type]]
        is_repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
        return list_of(single) if is_repeated else single

    # Cap'n Proto

    def of_capnproto(self, value_type: capnproto.Type) -> Kind | None:
        """Return the type of a Cap'n Proto type."""
        match value_type:
            case capnproto.Scalar():
                return NUMBERS[value_type.code] if value_type.names is None else TEXT
            case capnproto.Text():
                return TEXT
            case capnproto.Data() | capnproto.List(value_type=capnproto.Scalar(code="u1", names=None)):
                return BINARY
            case capnproto.List():
                return list_of(self.of_capnproto(value_type.value_type))
            case capnproto.Struct():
                members = [field.name for field in value_type.fields if field.member is not None]
                make = lambda: struct_of(  # noqa: E731
                    ((field.name, self.of_capnproto(field.value_type)) for field in value_type.fields), members
                )
                return self.within(id(value_type), len(value_type.fields), make)
        return None

    # FlatBuffers

    def of_flatbuffer(self, value_type: flatbuffer.Type) -> Kind | None:
        """Return the type of a FlatBuffers type."""
        match value_type:
            case flatbuffer.Scalar():
                return NUMBERS[value_type.code] if value_type.names is None else TEXT
            case flatbuffer.String():
                return TEXT
            case flatbuffer.Vector(value_type=flatbuffer.Scalar(code="u1", names=None)):
                return BINARY
            case flatbuffer.FixedArray(value_type=flatbuffer.Scalar(code="u1", names=None)):
                return BINARY
            case flatbuffer.Vector():
                return list_of(self.of_flatbuffer(value_type.value_type))
            case flatbuffer.FixedArray():
                return list_of(self.of_flatbuffer(value_type.value_type), value_type.length)
            case flatbuffer.Union():
                return self._of_union([*value_type.kinds.values()])
        make = lambda: struct_of((name, self.of_flatbuffer(kind)) for name, _, kind, *_ in value_type.fields)  # noqa: E731
        return self.within(id(value_type), len(value_type.fields), make)

    def _of_union(self, members: list[flatbuffer.Type]) -> Kind | None:
        """Return a type for all of several types: the fields of all, or text where they differ."""
        kinds = [kind for member in members if (kind := self.of_flatbuffer(member)) is not None]
        if len(kinds) < 2:
            return kinds[0] if kinds else None
        if not all(kind.names for kind in kinds):
            return TEXT
        parts: dict[str, Kind] = {}
        for kind in kinds:
            for name, part in zip(kind.names, kind.parts, strict=True):
                before = parts.setdefault(name, part)
                parts[name] = part if before == part else TEXT
        return struct_of(parts.items())

    # ROS, DDS

    def of_definition(self, value_type: type_model.Type) -> Kind | None:
        """Return the type of a type in a definition, as `plans` make it."""
        match value_type:
            case type_model.Number():
                return NUMBERS[value_type.code]
            case type_model.Text() | type_model.Enum():
                return TEXT
            case type_model.Array() | type_model.Sequence() if type_model.is_octets(value_type):
                return BINARY
            case type_model.Array():
                return list_of(self.of_definition(value_type.value_type), value_type.length)
            case type_model.Sequence():
                return list_of(self.of_definition(value_type.value_type))
            case type_model.Struct():
                make = lambda: struct_of(  # noqa: E731
                    (name, self.of_definition(kind))
                    for name, kind in value_type.fields
                    if type_model.bounds(kind).least
                )
                return self.within(id(value_type), len(value_type.fields), make)
        raise ValueError(f"it has {value_type}")


def _protobuf(schema: Schema) -> Kind | None:
    from msgq.decoding.decoders import protobuf_class

    return _Kinds().of_message(protobuf_class(schema).DESCRIPTOR)


_MAKERS: dict[str, Callable[[Schema], Kind | None]] = {
    "json": lambda schema: json_kind(schema.data),
    "protobuf": _protobuf,
    "cdr": lambda schema: _Kinds().of_definition(schema_struct(schema)),
    "ros1": lambda schema: _Kinds().of_definition(schema_struct(schema)),
    "flatbuffer": lambda schema: _Kinds().of_flatbuffer(table_of(schema.name, schema.data)),
    "capnproto": lambda schema: _Kinds().of_capnproto(capnproto_struct(schema.name, schema.data)),
}
