"""Reads the binary form of Cap'n Proto schemas: a CodeGeneratorRequest.

The format is a Cap'n Proto message: https://github.com/capnproto/capnproto/blob/v2/c%2B%2B/src/capnp/schema.capnp.

Schemas come from untrusted files. Structs may contain each other recursively, so readers of messages limit the nesting.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgq.common.texts import join_first_texts
from msgq.decoding.capnproto.capnp_types import (
    CapnpAnyPointer,
    CapnpData,
    CapnpField,
    CapnpList,
    CapnpStruct,
    CapnpType,
    CapnpVoid,
)
from msgq.decoding.core import CapnpReader
from msgq.decoding.scalar_types import ScalarType, TextType

#: Types of the parameters of generic structs, by the struct that has them.
_GenericBindings: TypeAlias = tuple[tuple[int, tuple[CapnpType, ...]], ...]

_LIST_NESTING_MAX = 50  # maximum depth of nested lists
_SCHEMA_STRUCTS_MAX = 10_000  # limit of structs; a struct with other parameters counts again
_SCHEMA_FIELDS_MAX = 65536
_NO_DISCRIMINANT = 0xFFFF
_NUMBER_CODES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")
_NUMBER_NAMES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
_SIMPLE_TYPES: dict[str, CapnpType] = {"void": CapnpVoid(), "text": TextType(), "data": CapnpData()}
_CODE_BY_CAPNP_TYPE = dict(zip(_NUMBER_NAMES, _NUMBER_CODES, strict=True))


def _make_group(name: str, *fields: CapnpField) -> CapnpStruct:
    return CapnpStruct(name, is_group=True, fields=list(fields))


def _build_request_struct() -> CapnpStruct:
    """Return the necessary part of the type CodeGeneratorRequest."""
    u2, u8, text = ScalarType("u2"), ScalarType("u8"), TextType()
    struct = _make_group(
        "struct", CapnpField("isGroup", ScalarType("b1"), 224), CapnpField("discriminantCount", u2, 15)
    )
    struct.fields.extend(
        [
            CapnpField("discriminantOffset", ScalarType("u4"), 8),
            CapnpField("fields", CapnpList(_build_field_struct()), 3),
        ]
    )
    enum = _make_group(
        "enum", CapnpField("enumerants", CapnpList(CapnpStruct("Enumerant", fields=[CapnpField("name", text, 0)])), 3)
    )
    node = CapnpStruct(
        "Node", discriminant_position=6, fields=[CapnpField("id", u8, 0), CapnpField("displayName", text, 0)]
    )
    node.fields.extend([CapnpField("struct", struct, 0, 1), CapnpField("enum", enum, 0, 2)])
    return CapnpStruct("CodeGeneratorRequest", fields=[CapnpField("nodes", CapnpList(node), 0)])


def _build_field_struct() -> CapnpStruct:
    """Return the necessary part of the type Field."""
    u2, u8 = ScalarType("u2"), ScalarType("u8")
    slot = _make_group(
        "slot",
        CapnpField("offset", ScalarType("u4"), 1),
        CapnpField("type", _build_type_struct(), 2),
        CapnpField("defaultValue", _build_value_struct(), 3),
    )
    group = _make_group("group", CapnpField("typeId", u8, 2))
    fields = [
        CapnpField("name", TextType(), 0),
        CapnpField("codeOrder", u2, 0),
        CapnpField("discriminantValue", u2, 1, default_bits=_NO_DISCRIMINANT),
        CapnpField("slot", slot, 0, 0),
        CapnpField("group", group, 0, 1),
    ]
    return CapnpStruct("Field", discriminant_position=4, fields=fields)


def _build_type_struct() -> CapnpStruct:
    """Return the necessary part of the type Type, with the bindings of generic parameters."""
    u2, u8 = ScalarType("u2"), ScalarType("u8")
    kind, brand = CapnpStruct("Type", discriminant_position=0), CapnpStruct("Brand")
    binding = CapnpStruct(
        "Binding",
        discriminant_position=0,
        fields=[CapnpField("unbound", CapnpVoid(), 0, 0), CapnpField("type", kind, 0, 1)],
    )
    binds = [
        CapnpField("scopeId", u8, 0),
        CapnpField("bind", CapnpList(binding), 0, 0),
        CapnpField("inherit", CapnpVoid(), 0, 1),
    ]
    brand.fields.append(CapnpField("scopes", CapnpList(CapnpStruct("Scope", discriminant_position=4, fields=binds)), 0))
    parameter = _make_group("parameter", CapnpField("scopeId", u8, 2), CapnpField("parameterIndex", u2, 5))
    anything = CapnpStruct(
        "anyPointer", is_group=True, discriminant_position=4, fields=[CapnpField("parameter", parameter, 0, 1)]
    )
    named = [CapnpField("typeId", u8, 1), CapnpField("brand", brand, 0)]
    words = ("void", *_NUMBER_NAMES, "text", "data")
    kind.fields.extend(CapnpField(word, CapnpVoid(), 0, number) for number, word in enumerate(words))
    kind.fields.append(CapnpField("list", _make_group("list", CapnpField("elementType", kind, 0)), 0, 14))
    kind.fields.extend(
        [CapnpField(word, _make_group(word, *named), 0, number) for number, word in enumerate(("enum", "struct"), 15)]
    )
    kind.fields.extend([CapnpField("interface", CapnpVoid(), 0, 17), CapnpField("anyPointer", anything, 0, 18)])
    return kind


def _build_value_struct() -> CapnpStruct:
    """Return the necessary part of the type Value. The values of numbers are their bits."""
    value = CapnpStruct("Value", discriminant_position=0, fields=[CapnpField("bool", ScalarType("b1"), 16, 1)])
    for number, code in enumerate(_NUMBER_CODES[1:], 2):
        size = int(code[1:])
        value.fields.append(CapnpField("bits", ScalarType(f"u{size}"), max(2 // size, 1), number))
    value.fields.append(CapnpField("bits", ScalarType("u2"), 1, 15))
    return value


def read_capnp_struct(name: str, schema: bytes) -> CapnpStruct:
    """Return the type of messages from a schema.

    Args:
        name: name of the struct: "Event", or with its file "log.capnp:Event".
        schema: schema in binary form.

    Raises:
        ValueError: the schema is invalid or too large, or does not contain the struct.
    """
    request = CapnpReader(_build_request_struct()).read(schema)
    return _CapnpStructBuilder(request.get("nodes", [])).find_named_struct(name)


class _CapnpStructBuilder:
    """Builds the struct types of one schema."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self._nodes = {node["id"]: node for node in nodes}
        self._structs: dict[tuple[int, _GenericBindings], CapnpStruct] = {}
        # Structs whose fields are not built yet, each with its node.
        self._unfilled_structs: list[tuple[CapnpStruct, dict[str, Any], _GenericBindings]] = []
        self._field_count = 0

    def find_named_struct(self, name: str) -> CapnpStruct:
        """Return a struct type, with the types of its fields."""
        full_names = {node.get("displayName", ""): node_id for node_id, node in self._nodes.items() if "struct" in node}
        short_names = {full_name.rpartition(":")[2]: node_id for full_name, node_id in full_names.items()}
        node_id = full_names.get(name, short_names.get(name))
        if node_id is None:
            raise ValueError(
                f"struct {name!r} is not defined; defined structs: {join_first_texts(sorted(short_names), 5)}"
            )
        root_struct = self._build_struct_type(node_id, ())
        while self._unfilled_structs:
            struct, struct_node, bindings = self._unfilled_structs.pop()
            for field_node in sorted(struct_node.get("fields", []), key=lambda field: int(field["codeOrder"])):
                struct.fields.append(self._build_field(field_node, bindings))
            self._field_count += len(struct.fields)
            if self._field_count > _SCHEMA_FIELDS_MAX:
                raise ValueError(f"schema has more than {_SCHEMA_FIELDS_MAX} fields")
        return root_struct

    def _get_schema_node(self, node_id: int, label: str) -> dict[str, Any]:
        node = self._nodes.get(node_id, {})
        if label not in node:
            raise ValueError(f"{label} {node_id:#x} is not defined")
        return node

    def _build_struct_type(self, node_id: int, bindings: _GenericBindings) -> CapnpStruct:
        if (node_id, bindings) not in self._structs:
            if len(self._structs) == _SCHEMA_STRUCTS_MAX:
                raise ValueError(f"schema has more than {_SCHEMA_STRUCTS_MAX} structs")
            node = self._get_schema_node(node_id, "struct")
            struct_node = node["struct"]
            position = struct_node["discriminantOffset"] if struct_node["discriminantCount"] else None
            struct = CapnpStruct(node.get("displayName", ""), struct_node["isGroup"], position)
            self._structs[node_id, bindings] = struct
            self._unfilled_structs.append((struct, struct_node, bindings))
        return self._structs[node_id, bindings]

    def _build_field(self, field_node: dict[str, Any], bindings: _GenericBindings) -> CapnpField:
        number = field_node["discriminantValue"]
        discriminant = None if number == _NO_DISCRIMINANT else number
        name = field_node.get("name", "")
        if "group" in field_node:
            group = self._build_struct_type(field_node["group"]["typeId"], bindings)
            if not group.is_group:
                raise ValueError(f"group {name!r} refers to a struct that is not a group")
            return CapnpField(name, group, 0, discriminant)
        slot = field_node.get("slot", {})
        value_type = self._build_value_type(slot.get("type", {}), bindings, _LIST_NESTING_MAX)
        if isinstance(value_type, CapnpStruct) and value_type.is_group:
            raise ValueError(f"field {name!r} refers to a group of another struct")
        default = slot.get("defaultValue", {})
        default_bits = int(default.get("bool", default.get("bits", 0)))
        return CapnpField(name, value_type, slot.get("offset", 0), discriminant, default_bits)

    def _build_value_type(self, type_node: dict[str, Any], bindings: _GenericBindings, levels: int) -> CapnpType:
        word = next(iter(type_node), "anyPointer")
        if word in _CODE_BY_CAPNP_TYPE:
            return ScalarType(_CODE_BY_CAPNP_TYPE[word])
        if word == "enum":
            enumerants = self._get_schema_node(type_node["enum"]["typeId"], "enum")["enum"].get("enumerants", [])
            return ScalarType("u2", {number: enumerant.get("name", "") for number, enumerant in enumerate(enumerants)})
        if word == "list":
            if not levels:
                raise ValueError(f"lists are nested deeper than {_LIST_NESTING_MAX} levels")
            return CapnpList(self._build_value_type(type_node["list"].get("elementType", {}), bindings, levels - 1))
        if word == "struct":
            struct_node = type_node["struct"]
            return self._build_struct_type(
                struct_node["typeId"], self._read_generic_bindings(struct_node, bindings, levels)
            )
        if word == "anyPointer" and "parameter" in type_node.get(word, {}):
            parameter = type_node[word]["parameter"]
            bound, index = dict(bindings).get(parameter["scopeId"], ()), parameter["parameterIndex"]
            return bound[index] if index < len(bound) else CapnpAnyPointer()
        return _SIMPLE_TYPES.get(word, CapnpAnyPointer())

    def _read_generic_bindings(
        self, struct_node: dict[str, Any], within: _GenericBindings, levels: int
    ) -> _GenericBindings:
        """Return the values of a struct's type parameters, from the field and the enclosing struct."""
        if not levels:
            raise ValueError(f"type parameters are nested deeper than {_LIST_NESTING_MAX} levels")
        bindings = []
        for scope in struct_node.get("brand", {}).get("scopes", []):
            if "inherit" in scope:
                bound = dict(within).get(scope["scopeId"], ())
            else:
                type_nodes = [binding.get("type", {}) for binding in scope.get("bind", [])]
                bound = tuple(self._build_value_type(type_node, within, levels - 1) for type_node in type_nodes)
            bindings.append((scope["scopeId"], bound))
        return tuple(bindings)
