"""Reads the binary form of FlatBuffers schemas.

The format is a FlatBuffers message: https://github.com/google/flatbuffers/blob/master/reflection/reflection.fbs.

Schemas come from untrusted files. Tables may contain each other recursively, so readers of messages limit the nesting.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from msgq.decoding.core import FlatBufferReader
from msgq.decoding.flatbuffer.flatbuffer_types import (
    FlatbufferArray,
    FlatbufferStruct,
    FlatbufferTable,
    FlatbufferType,
    FlatbufferUnion,
    FlatbufferVector,
    measure_inline_bytes,
)
from msgq.decoding.scalar_types import ScalarType, TextType

_STRUCT_NESTING_MAX = 50  # maximum depth of nested structs
_CODE_BY_BASE_TYPE = dict(enumerate(("u1", "b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"), 1))


class _BaseType(IntEnum):
    """Base types of reflection.fbs, without scalars."""

    NONE = 0
    STRING = 13
    VECTOR = 14
    OBJECT = 15
    UNION = 16
    ARRAY = 17


def _build_reflection_table() -> FlatbufferTable:
    """Return the necessary part of the type of binary schemas."""

    def make_table(name: str, *fields: tuple[str, int, FlatbufferType, Any]) -> FlatbufferTable:
        return FlatbufferTable(
            name, [(field_name, 4 + 2 * number, kind, default) for field_name, number, kind, default in fields]
        )

    name, truth, short = ("name", 0, TextType(), None), ScalarType("b1"), ScalarType("u2")
    kind = make_table(
        "Type",
        ("base_type", 0, ScalarType("i1"), 0),
        ("element", 1, ScalarType("i1"), 0),
        ("index", 2, ScalarType("i4"), -1),
        ("fixed_length", 3, short, 0),
    )
    enum_value = make_table(
        "Field",
        *(name, ("type", 1, kind, None), ("id", 2, short, 0), ("offset", 3, short, 0)),
        *(("default_integer", 4, ScalarType("i8"), 0), ("default_real", 5, ScalarType("f8"), 0.0)),
        *(("deprecated", 6, truth, False), ("optional", 11, truth, False), ("offset64", 13, truth, False)),
    )
    fields, size = ("fields", 1, FlatbufferVector(enum_value), None), ("bytesize", 4, ScalarType("i4"), 0)
    object_table = make_table("Object", name, fields, ("is_struct", 2, truth, False), size)
    value = make_table("EnumVal", name, ("value", 1, ScalarType("i8"), 0), ("union_type", 3, kind, None))
    enum = make_table("Enum", name, ("values", 1, FlatbufferVector(value), None))
    objects, enums = ("objects", 0, FlatbufferVector(object_table), None), ("enums", 1, FlatbufferVector(enum), None)
    return make_table("Schema", objects, enums, ("root_table", 4, object_table, None))


def read_flatbuffer_table(name: str, schema: bytes) -> FlatbufferTable:
    """Return the type of messages from a schema.

    Args:
        name: name of the table. If the schema has no table with this name, its root table is used.
        schema: schema in binary form.

    Raises:
        ValueError: the schema is invalid, or has recursive structs or invalid offsets.
    """
    reflection = FlatBufferReader(_build_reflection_table()).read(schema)
    builder = _FlatbufferTypeBuilder(reflection["objects"] or [], reflection["enums"] or [])
    root_name = (reflection["root_table"] or {}).get("name")
    return builder.build_root_table(name if name in builder.object_index_by_name else root_name or name)


class _FlatbufferTypeBuilder:
    """Builds the types of one schema.

    Attributes:
        object_index_by_name: index of each object in the schema.
    """

    def __init__(self, objects: list[dict[str, Any]], enums: list[dict[str, Any]]) -> None:
        self._objects, self._enums = objects, enums
        self.object_index_by_name = {entry["name"]: number for number, entry in enumerate(objects) if entry["name"]}
        self._tables: dict[int, FlatbufferTable] = {}
        self._structs: dict[int, FlatbufferStruct] = {}
        # Tables whose fields are not built yet, each with its object.
        self._unfilled_tables: list[tuple[FlatbufferTable, dict[str, Any]]] = []

    def build_root_table(self, name: str) -> FlatbufferTable:
        """Return a table type, with the types of its fields.

        Raises:
            ValueError: the schema has no table with this name.
        """
        root_table = self._build_object_type(self.object_index_by_name.get(name, -1), 0)
        if not isinstance(root_table, FlatbufferTable):
            raise ValueError(f"{name!r} is not a table")
        while self._unfilled_tables:
            table, object_entry = self._unfilled_tables.pop()
            for field in _sort_fields_by_id(object_entry):
                if not field["deprecated"]:
                    table.fields.append((_get_entry_name(field), field["offset"], *self._build_table_field(field)))
        return root_table

    def _build_object_type(self, number: int, level: int) -> FlatbufferTable | FlatbufferStruct:
        """Return a table or struct type. `level`: number of enclosing structs."""
        object_entry = _get_checked_entry(self._objects, number, "object")
        if object_entry["is_struct"]:
            if number not in self._structs:
                self._structs[number] = self._build_struct_type(object_entry, level)
            return self._structs[number]
        if number not in self._tables:
            self._tables[number] = FlatbufferTable(_get_entry_name(object_entry))
            self._unfilled_tables.append((self._tables[number], object_entry))
        return self._tables[number]

    def _build_struct_type(self, object_entry: dict[str, Any], level: int) -> FlatbufferStruct:
        if level > _STRUCT_NESTING_MAX:
            raise ValueError(f"structs are nested deeper than {_STRUCT_NESTING_MAX} levels")
        fields = tuple(
            (_get_entry_name(field), field["offset"], self._build_value_type(field["type"], level + 1))
            for field in _sort_fields_by_id(object_entry)
        )
        size = object_entry["bytesize"]
        if size < 1 or any(offset + measure_inline_bytes(field_type) > size for _, offset, field_type in fields):
            raise ValueError(
                f"struct {_get_entry_name(object_entry)!r} has {size} bytes, but a field ends after the last byte"
            )
        return FlatbufferStruct(size, fields)

    def _build_table_field(self, field: dict[str, Any]) -> tuple[FlatbufferType, Any]:
        """Return the type and the default value of a table's field."""
        if field["offset64"]:
            raise ValueError(f"field {_get_entry_name(field)!r} has a 64-bit offset, which is not supported")
        kind = self._build_value_type(field["type"], 0)
        if not isinstance(kind, ScalarType) or field["optional"]:
            return kind, None
        if kind.code[0] == "f":
            return kind, field["default_real"]
        number = field["default_integer"]
        if kind.code == "u8" and number < 0:  # it is kept as a signed one
            number += 1 << 64
        return kind, bool(number) if kind.code == "b1" else (kind.enum_names or {}).get(number, number)

    def _build_value_type(self, type_entry: dict[str, Any] | None, level: int) -> FlatbufferType:
        if type_entry is None:
            raise ValueError("a field has no type")
        base, index = type_entry["base_type"], type_entry["index"]
        if base in (_BaseType.VECTOR, _BaseType.ARRAY):
            element_entry = {"base_type": type_entry["element"], "element": _BaseType.NONE, "index": index}
            element_type = self._build_value_type(element_entry, level)
            if base == _BaseType.VECTOR:
                return FlatbufferVector(element_type)
            return FlatbufferArray(element_type, type_entry["fixed_length"])
        if base == _BaseType.OBJECT:
            return self._build_object_type(index, level)
        if base == _BaseType.UNION:
            values = [value for value in self._list_enum_values(index) if value["value"]]
            return FlatbufferUnion({value["value"]: self._build_value_type(value["union_type"], 0) for value in values})
        if base == _BaseType.STRING:
            return TextType()
        if base not in _CODE_BY_BASE_TYPE:
            raise ValueError(f"a field has base type {base}, which is not supported")
        names = (
            None if index < 0 else {value["value"]: _get_entry_name(value) for value in self._list_enum_values(index)}
        )
        return ScalarType(_CODE_BY_BASE_TYPE[base], names)

    def _list_enum_values(self, enum: int) -> list[dict[str, Any]]:
        return _get_checked_entry(self._enums, enum, "enum")["values"] or []


def _sort_fields_by_id(entry: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(entry["fields"] or [], key=lambda field: int(field["id"]))


def _get_entry_name(entry: dict[str, Any]) -> str:
    return entry["name"] or ""


def _get_checked_entry(entries: list[dict[str, Any]], number: int, label: str) -> dict[str, Any]:
    if not 0 <= number < len(entries):
        raise ValueError(f"{label} {number} is not defined; the schema has {len(entries)}")
    return entries[number]
