"""The binary form of schemas of FlatBuffers, which is a message of FlatBuffers itself:
https://github.com/google/flatbuffers/blob/master/reflection/reflection.fbs.

Anybody may have written it. Tables may have each other in a circle; whoever reads messages bounds how deep they go.
"""

from __future__ import annotations

from typing import Any

from msgq.decoding.core import FlatBufferReader
from msgq.decoding.flatbuffer.schema_types import (
    FixedArray,
    FixedStruct,
    Scalar,
    String,
    Table,
    Type,
    Union,
    Vector,
    inline_size,
)

_NESTING_MAX = 50  # of structs in each other
_NONE, _STRING, _VECTOR, _OBJECT, _UNION, _ARRAY = 0, 13, 14, 15, 16, 17
_SCALARS = dict(enumerate(("u1", "b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"), 1))


def _load_reflection_types() -> Table:
    """Return what binary schemas are made of; only what is needed of it."""

    def table(name: str, *fields: tuple[str, int, Type, Any]) -> Table:
        return Table(
            name, [(field_name, 4 + 2 * number, kind, default) for field_name, number, kind, default in fields]
        )

    name, truth, short = ("name", 0, String(), None), Scalar("b1"), Scalar("u2")
    kind = table(
        "Type",
        ("base_type", 0, Scalar("i1"), 0),
        ("element", 1, Scalar("i1"), 0),
        ("index", 2, Scalar("i4"), -1),
        ("fixed_length", 3, short, 0),
    )
    enum_value = table(
        "Field",
        *(name, ("type", 1, kind, None), ("id", 2, short, 0), ("offset", 3, short, 0)),
        *(("default_integer", 4, Scalar("i8"), 0), ("default_real", 5, Scalar("f8"), 0.0)),
        *(("deprecated", 6, truth, False), ("optional", 11, truth, False), ("offset64", 13, truth, False)),
    )
    fields, size = ("fields", 1, Vector(enum_value), None), ("bytesize", 4, Scalar("i4"), 0)
    object_table = table("Object", name, fields, ("is_struct", 2, truth, False), size)
    value = table("EnumVal", name, ("value", 1, Scalar("i8"), 0), ("union_type", 3, kind, None))
    enum = table("Enum", name, ("values", 1, Vector(value), None))
    objects, enums = ("objects", 0, Vector(object_table), None), ("enums", 1, Vector(enum), None)
    return table("Schema", objects, enums, ("root_table", 4, object_table, None))


def read_table_type(name: str, schema: bytes) -> Table:
    """Return what messages are made of.

    Parameters
    ----------
    name : of the table; if the schema has none that is called so, its root is meant.
    schema : in binary form.

    Raises
    ------
    ValueError : it is no such schema, or has structs within themselves or at impossible places.
    """
    said = FlatBufferReader(_load_reflection_types()).read(schema)
    kinds = _TypeBuilder(said["objects"] or [], said["enums"] or [])
    return kinds.build_table(name if name in kinds.numbers else (said["root_table"] or {}).get("name") or name)


class _TypeBuilder:
    """The types of one schema.

    Attributes
    ----------
    numbers : of objects by their names.
    """

    def __init__(self, objects: list[dict[str, Any]], enums: list[dict[str, Any]]) -> None:
        self._objects, self._enums = objects, enums
        self.numbers = {entry["name"]: number for number, entry in enumerate(objects) if entry["name"]}
        self._tables: dict[int, Table] = {}
        self._structs: dict[int, FixedStruct] = {}
        self._empty: list[tuple[Table, dict[str, Any]]] = []  # tables whose fields are not known yet

    def build_table(self, name: str) -> Table:
        """Return a table, with all that it needs.

        Raises
        ------
        ValueError : there is none that is called so.
        """
        root_table = self._build_object(self.numbers.get(name, -1), 0)
        if not isinstance(root_table, Table):
            raise ValueError(f"{name} is no table")
        while self._empty:
            table, said = self._empty.pop()
            for field in _fields(said):
                if not field["deprecated"]:
                    table.fields.append((_name(field), field["offset"], *self._build_field_type(field)))
        return root_table

    def _build_object(self, number: int, level: int) -> Table | FixedStruct:
        """Return a table or a struct. level : of structs within which it is."""
        said = _at(self._objects, number, "object")
        if said["is_struct"]:
            if number not in self._structs:
                self._structs[number] = self._build_struct(said, level)
            return self._structs[number]
        if number not in self._tables:
            self._tables[number] = Table(_name(said))
            self._empty.append((self._tables[number], said))
        return self._tables[number]

    def _build_struct(self, said: dict[str, Any], level: int) -> FixedStruct:
        if level > _NESTING_MAX:
            raise ValueError(f"its structs are nested deeper than {_NESTING_MAX} levels")
        fields = tuple(
            (_name(field), field["offset"], self._build_type(field["type"], level + 1)) for field in _fields(said)
        )
        size = said["bytesize"]
        if size < 1 or any(place + inline_size(kind) > size for _, place, kind in fields):
            raise ValueError(f"the struct {_name(said)} has {size} bytes, and fields beyond them")
        return FixedStruct(size, fields)

    def _build_field_type(self, field: dict[str, Any]) -> tuple[Type, Any]:
        """Return the type of a table's field, and its value where it is missing."""
        if field["offset64"]:
            raise ValueError(f"the field {_name(field)} is 64 bits away, which nothing here reads")
        kind = self._build_type(field["type"], 0)
        if not isinstance(kind, Scalar) or field["optional"]:
            return kind, None
        if kind.code[0] == "f":
            return kind, field["default_real"]
        number = field["default_integer"]
        if kind.code == "u8" and number < 0:  # it is kept as a signed one
            number += 1 << 64
        return kind, bool(number) if kind.code == "b1" else (kind.names or {}).get(number, number)

    def _build_type(self, said: dict[str, Any] | None, level: int) -> Type:
        if said is None:
            raise ValueError("a field has no type")
        base, index = said["base_type"], said["index"]
        if base in (_VECTOR, _ARRAY):
            inner = self._build_type({"base_type": said["element"], "element": _NONE, "index": index}, level)
            return Vector(inner) if base == _VECTOR else FixedArray(inner, said["fixed_length"])
        if base == _OBJECT:
            return self._build_object(index, level)
        if base == _UNION:
            values = [value for value in self._values(index) if value["value"]]
            return Union({value["value"]: self._build_type(value["union_type"], 0) for value in values})
        if base == _STRING:
            return String()
        if base not in _SCALARS:
            raise ValueError(f"a field is of type {base}, which nothing here reads")
        names = None if index < 0 else {value["value"]: _name(value) for value in self._values(index)}
        return Scalar(_SCALARS[base], names)

    def _values(self, enum: int) -> list[dict[str, Any]]:
        return _at(self._enums, enum, "enum")["values"] or []


def _fields(said: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(said["fields"] or [], key=lambda field: int(field["id"]))


def _name(said: dict[str, Any]) -> str:
    return said["name"] or ""


def _at(them: list[dict[str, Any]], number: int, label: str) -> dict[str, Any]:
    if not 0 <= number < len(them):
        raise ValueError(f"it needs the {label} {number} of {len(them)}")
    return them[number]
