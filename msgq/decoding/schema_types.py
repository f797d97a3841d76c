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
from msgq.decoding.capnproto.schema import read_struct_type as read_capnproto_struct
from msgq.decoding.column_type import BINARY_TYPE, NUMBER_TYPES, TEXT_TYPE, ColumnType, make_list_type, make_struct_type
from msgq.decoding.flatbuffer import schema_types as flatbuffer
from msgq.decoding.flatbuffer.schema import read_table_type
from msgq.decoding.json_schema import read_json_schema_type
from msgq.decoding.structs import parse_schema_struct

_DEPTH_MAX = 16
_FIELDS_MAX = 1 << 14
_PROTOBUF_CODES = ("", "f8", "f4", "i8", "u8", "i4", "u8", "u4", "b1", *[""] * 4, "u4", "", "i4", "i8", "i4", "i8")


def find_column_type(schema: Schema) -> ColumnType | None:
    """Return the type of the messages of a schema; None if it depends on the messages."""
    make = _TYPE_FINDERS.get(schema.encoding)
    if make is None:
        return None
    try:
        return make(schema)
    except Exception:  # of any library: the decoder reports the error of the schema
        return None


class _ColumnTypeBuilder:
    """Makes the types of one schema. Nested types go through `nest_type`, which bounds their depth."""

    def __init__(self) -> None:
        self._within: list[Any] = []
        self._fields = 0

    def nest_type(self, key: Any, fields: int, make: Callable[[], ColumnType | None]) -> ColumnType | None:
        """Return what a type with fields is made of; text where that has no end. key : tells types apart."""
        self._fields += fields
        if key in self._within or len(self._within) >= _DEPTH_MAX or self._fields > _FIELDS_MAX:
            return TEXT_TYPE
        self._within.append(key)
        try:
            return make()
        finally:
            self._within.pop()

    # Protocol Buffers

    def convert_message(self, descriptor: Any) -> ColumnType | None:
        """Return the type of a Protocol Buffers message. descriptor : of the message."""
        return self.nest_type(
            descriptor.full_name,
            len(descriptor.fields),
            lambda: make_struct_type((field.name, self._convert_field(field)) for field in descriptor.fields),
        )

    def _convert_field(self, field: Any) -> ColumnType | None:
        if field.message_type is not None:
            single = self.convert_message(field.message_type)
        elif field.enum_type is not None or field.type == field.TYPE_STRING:
            single = TEXT_TYPE
        else:
            single = BINARY_TYPE if field.type == field.TYPE_BYTES else NUMBER_TYPES[_PROTOBUF_CODES[field.type]]
        is_repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
        return make_list_type(single) if is_repeated else single

    # Cap'n Proto

    def convert_capnproto(self, value_type: capnproto.Type) -> ColumnType | None:
        """Return the type of a Cap'n Proto type."""
        match value_type:
            case capnproto.Scalar():
                return NUMBER_TYPES[value_type.code] if value_type.names is None else TEXT_TYPE
            case capnproto.Text():
                return TEXT_TYPE
            case capnproto.Data() | capnproto.List(value_type=capnproto.Scalar(code="u1", names=None)):
                return BINARY_TYPE
            case capnproto.List():
                return make_list_type(self.convert_capnproto(value_type.value_type))
            case capnproto.Struct():
                members = [field.name for field in value_type.fields if field.member is not None]
                make = lambda: make_struct_type(  # noqa: E731
                    ((field.name, self.convert_capnproto(field.value_type)) for field in value_type.fields), members
                )
                return self.nest_type(id(value_type), len(value_type.fields), make)
        return None

    # FlatBuffers

    def convert_flatbuffer(self, value_type: flatbuffer.Type) -> ColumnType | None:
        """Return the type of a FlatBuffers type."""
        match value_type:
            case flatbuffer.Scalar():
                return NUMBER_TYPES[value_type.code] if value_type.names is None else TEXT_TYPE
            case flatbuffer.String():
                return TEXT_TYPE
            case flatbuffer.Vector(value_type=flatbuffer.Scalar(code="u1", names=None)):
                return BINARY_TYPE
            case flatbuffer.FixedArray(value_type=flatbuffer.Scalar(code="u1", names=None)):
                return BINARY_TYPE
            case flatbuffer.Vector():
                return make_list_type(self.convert_flatbuffer(value_type.value_type))
            case flatbuffer.FixedArray():
                return make_list_type(self.convert_flatbuffer(value_type.value_type), value_type.length)
            case flatbuffer.Union():
                return self._convert_union([*value_type.kinds.values()])
        fields = [(name, kind) for name, _, kind, *_ in value_type.fields]
        make = lambda: make_struct_type((name, self.convert_flatbuffer(kind)) for name, kind in fields)  # noqa: E731
        return self.nest_type(id(value_type), len(value_type.fields), make)

    def _convert_union(self, members: list[flatbuffer.Type]) -> ColumnType | None:
        """Return a type for all of several types: the fields of all, or text where they differ."""
        kinds = [kind for member in members if (kind := self.convert_flatbuffer(member)) is not None]
        if len(kinds) < 2:
            return kinds[0] if kinds else None
        if not all(kind.names for kind in kinds):
            return TEXT_TYPE
        parts: dict[str, ColumnType] = {}
        for kind in kinds:
            for name, part in zip(kind.names, kind.parts, strict=True):
                before = parts.setdefault(name, part)
                parts[name] = part if before == part else TEXT_TYPE
        return make_struct_type(parts.items())

    # ROS, DDS

    def convert_definition(self, value_type: type_model.Type) -> ColumnType | None:
        """Return the type of a type in a definition, as `plans` make it."""
        match value_type:
            case type_model.Number():
                return NUMBER_TYPES[value_type.code]
            case type_model.Text() | type_model.Enum():
                return TEXT_TYPE
            case type_model.Array() | type_model.Sequence() if type_model.is_octets(value_type):
                return BINARY_TYPE
            case type_model.Array():
                return make_list_type(self.convert_definition(value_type.value_type), value_type.length)
            case type_model.Sequence():
                return make_list_type(self.convert_definition(value_type.value_type))
            case type_model.Struct():
                make = lambda: make_struct_type(  # noqa: E731
                    (name, self.convert_definition(kind))
                    for name, kind in value_type.fields
                    if type_model.measure_type(kind).least
                )
                return self.nest_type(id(value_type), len(value_type.fields), make)
        raise ValueError(f"it has {value_type}")


def _find_protobuf_type(schema: Schema) -> ColumnType | None:
    from msgq.decoding.decoders import load_protobuf_class

    return _ColumnTypeBuilder().convert_message(load_protobuf_class(schema).DESCRIPTOR)


_TYPE_FINDERS: dict[str, Callable[[Schema], ColumnType | None]] = {
    "json": lambda schema: read_json_schema_type(schema.data),
    "protobuf": _find_protobuf_type,
    "cdr": lambda schema: _ColumnTypeBuilder().convert_definition(parse_schema_struct(schema)),
    "ros1": lambda schema: _ColumnTypeBuilder().convert_definition(parse_schema_struct(schema)),
    "flatbuffer": lambda schema: _ColumnTypeBuilder().convert_flatbuffer(read_table_type(schema.name, schema.data)),
    "capnproto": lambda schema: _ColumnTypeBuilder().convert_capnproto(read_capnproto_struct(schema.name, schema.data)),
}
