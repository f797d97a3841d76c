"""Column types of messages from their schema. The same schema always gives the same types.

A recursive type, or a type deeper than 16 levels, becomes text in JSON. If a schema has too many fields, its structs
become text, too. Messages without fields, and values that are always None, have no columns. A member of a Cap'n Proto
union gets a column only if a message has the member: openpilot's events have more than a hundred members.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgq.common.handler_errors import raise_handler_error
from msgq.common.schema import Schema
from msgq.decoding.capnproto.capnp_types import CapnpData, CapnpList, CapnpStruct, CapnpType
from msgq.decoding.capnproto.schema_reader import read_capnp_struct
from msgq.decoding.cdr_types import CdrArray, CdrSequence, CdrStruct, CdrType, is_byte_array, measure_type
from msgq.decoding.column_type import (
    BINARY_COLUMN_TYPE,
    NUMBER_COLUMN_TYPES,
    TEXT_COLUMN_TYPE,
    ColumnType,
    make_list_column_type,
    make_struct_column_type,
)
from msgq.decoding.flatbuffer.flatbuffer_types import FlatbufferArray, FlatbufferType, FlatbufferUnion, FlatbufferVector
from msgq.decoding.flatbuffer.schema_reader import read_flatbuffer_table
from msgq.decoding.json_schema import convert_json_schema
from msgq.decoding.scalar_types import ScalarType, TextType
from msgq.decoding.struct_definitions import parse_schema_struct

_SCHEMA_DEPTH_MAX = 16
_SCHEMA_FIELDS_MAX = 1 << 14
_CODE_BY_PROTOBUF_TYPE = {
    **{1: "f8", 2: "f4", 3: "i8", 4: "u8", 5: "i4", 6: "u8", 7: "u4", 8: "b1"},
    **{13: "u4", 15: "i4", 16: "i8", 17: "i4", 18: "i8"},
}


def find_column_type(schema: Schema) -> ColumnType | None:
    """Return the column type of a schema's messages; None: the type depends on the messages."""
    make = _COLUMN_TYPE_FINDERS.get(schema.encoding)
    if make is None:
        return None
    try:
        return make(schema)
    except Exception as error:  # error of any library: the decoder reports the error of the schema
        raise_handler_error(error)
        return None


class _ColumnTypeBuilder:
    """Builds the column types of one schema. `build_nested_type` limits the nesting."""

    def __init__(self) -> None:
        self._enclosing_keys: list[Any] = []
        self._field_count = 0

    def build_nested_type(
        self, key: Any, field_count: int, build: Callable[[], ColumnType | None]
    ) -> ColumnType | None:
        """Return the result of `build` for a type with fields; text if the type is recursive.

        `key` identifies the type.
        """
        self._field_count += field_count
        is_deep = len(self._enclosing_keys) >= _SCHEMA_DEPTH_MAX
        if is_deep or key in self._enclosing_keys or self._field_count > _SCHEMA_FIELDS_MAX:
            return TEXT_COLUMN_TYPE
        self._enclosing_keys.append(key)
        try:
            return build()
        finally:
            self._enclosing_keys.pop()

    # Protocol Buffers

    def convert_protobuf_message(self, descriptor: Any) -> ColumnType | None:
        """Return the column type of a Protocol Buffers message, given by its descriptor."""
        return self.build_nested_type(
            descriptor.full_name,
            len(descriptor.fields),
            lambda: make_struct_column_type(
                (field.name, self._convert_protobuf_field_type(field)) for field in descriptor.fields
            ),
        )

    def _convert_protobuf_field_type(self, field: Any) -> ColumnType | None:
        if field.message_type is not None:
            single = self.convert_protobuf_message(field.message_type)
        elif field.enum_type is not None or field.type == field.TYPE_STRING:
            single = TEXT_COLUMN_TYPE
        elif field.type == field.TYPE_BYTES:
            single = BINARY_COLUMN_TYPE
        else:
            single = NUMBER_COLUMN_TYPES[_CODE_BY_PROTOBUF_TYPE[field.type]]
        is_repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
        return make_list_column_type(single) if is_repeated else single

    # Cap'n Proto

    def convert_capnp_type(self, value_type: CapnpType) -> ColumnType | None:
        """Return the column type of a Cap'n Proto type."""
        match value_type:
            case ScalarType() | TextType():
                return _convert_scalar_type(value_type)
            case CapnpData() | CapnpList(element_type=ScalarType(code="u1", enum_names=None)):
                return BINARY_COLUMN_TYPE
            case CapnpList():
                return make_list_column_type(self.convert_capnp_type(value_type.element_type))
            case CapnpStruct(fields=fields):
                members = [field.name for field in fields if field.discriminant is not None]
                build = lambda: make_struct_column_type(  # noqa: E731
                    ((field.name, self.convert_capnp_type(field.value_type)) for field in fields), members
                )
                return self.build_nested_type(id(value_type), len(fields), build)
        return None

    # FlatBuffers

    def convert_flatbuffer_type(self, value_type: FlatbufferType) -> ColumnType | None:
        """Return the column type of a FlatBuffers type."""
        match value_type:
            case ScalarType() | TextType():
                return _convert_scalar_type(value_type)
            case FlatbufferVector(element_type=element_type) | FlatbufferArray(element_type=element_type):
                if element_type == ScalarType("u1"):
                    return BINARY_COLUMN_TYPE
                length = value_type.element_count if isinstance(value_type, FlatbufferArray) else -1
                return make_list_column_type(self.convert_flatbuffer_type(element_type), length)
            case FlatbufferUnion():
                return self._convert_flatbuffer_union([*value_type.member_types.values()])
        fields = [(name, field_type) for name, _, field_type, *_ in value_type.fields]
        build = lambda: make_struct_column_type(  # noqa: E731
            (name, self.convert_flatbuffer_type(field_type)) for name, field_type in fields
        )
        return self.build_nested_type(id(value_type), len(fields), build)

    def _convert_flatbuffer_union(self, members: list[FlatbufferType]) -> ColumnType | None:
        """Return a column type for several types: all fields of structs, or text."""
        converted = (self.convert_flatbuffer_type(member) for member in members)
        member_types = [member_type for member_type in converted if member_type is not None]
        if len(member_types) < 2:
            return member_types[0] if member_types else None
        if not all(member_type.field_names for member_type in member_types):
            return TEXT_COLUMN_TYPE
        fields: dict[str, ColumnType] = {}
        for member_type in member_types:
            for name, field_type in zip(member_type.field_names, member_type.child_types, strict=True):
                former = fields.setdefault(name, field_type)
                fields[name] = field_type if former == field_type else TEXT_COLUMN_TYPE
        return make_struct_column_type(fields.items())

    # ROS, DDS

    def convert_cdr_type(self, value_type: CdrType) -> ColumnType | None:
        """Return the column type of a CDR or ROS 1 type, as in `ColumnarDecodePlan`."""
        match value_type:
            case ScalarType() | TextType():
                return _convert_scalar_type(value_type)
            case CdrArray() | CdrSequence() if is_byte_array(value_type):
                return BINARY_COLUMN_TYPE
            case CdrArray():
                return make_list_column_type(self.convert_cdr_type(value_type.element_type), value_type.element_count)
            case CdrSequence():
                return make_list_column_type(self.convert_cdr_type(value_type.element_type))
            case CdrStruct(fields=fields):
                build = lambda: make_struct_column_type(  # noqa: E731
                    (name, self.convert_cdr_type(field_type))
                    for name, field_type in fields
                    if measure_type(field_type).min_bytes
                )
                return self.build_nested_type(id(value_type), len(fields), build)
        raise ValueError(f"schema has a field of type {value_type}, which has no column type")


def _convert_scalar_type(value_type: ScalarType | TextType) -> ColumnType:
    """Return the column type of a scalar. Enums and texts become text."""
    is_number = isinstance(value_type, ScalarType) and value_type.enum_names is None
    return NUMBER_COLUMN_TYPES[value_type.code] if is_number else TEXT_COLUMN_TYPE  # type: ignore[union-attr]


def _find_protobuf_column_type(schema: Schema) -> ColumnType | None:
    from msgq.decoding.payload_decoder import load_protobuf_class

    return _ColumnTypeBuilder().convert_protobuf_message(load_protobuf_class(schema).DESCRIPTOR)


_COLUMN_TYPE_FINDERS: dict[str, Callable[[Schema], ColumnType | None]] = {
    "json": lambda schema: convert_json_schema(schema.data),
    "protobuf": _find_protobuf_column_type,
    "cdr": lambda schema: _ColumnTypeBuilder().convert_cdr_type(parse_schema_struct(schema)),
    "ros1": lambda schema: _ColumnTypeBuilder().convert_cdr_type(parse_schema_struct(schema)),
    "flatbuffer": lambda schema: _ColumnTypeBuilder().convert_flatbuffer_type(
        read_flatbuffer_table(schema.name, schema.data)
    ),
    "capnproto": lambda schema: _ColumnTypeBuilder().convert_capnp_type(read_capnp_struct(schema.name, schema.data)),
}
