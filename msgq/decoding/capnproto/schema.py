"""The binary form of schemas of Cap'n Proto: a CodeGeneratorRequest, as its compiler makes it, which is a message of
Cap'n Proto itself: https://github.com/capnproto/capnproto/blob/v2/c%2B%2B/src/capnp/schema.capnp.

Anybody may have written it. Structs may have each other in a circle; whoever reads messages bounds how deep they go.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgq.common.texts import join_first
from msgq.decoding.capnproto.schema_types import Data, Field, List, Opaque, Scalar, Struct, Text, Type, Void
from msgq.decoding.core import CapnpReader

#: What the parameters of generic structs are, by the struct that has them.
_GenericBindings: TypeAlias = tuple[tuple[int, tuple[Type, ...]], ...]

_NESTING_MAX = 50  # of lists in each other
_STRUCTS_MAX = 10_000  # each with other parameters counts
_FIELDS_MAX = 65536
_NO_MEMBER = 0xFFFF
_NUMBER_CODES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")
_NUMBER_NAMES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
_PLAIN_TYPES: dict[str, Type] = {"void": Void(), "text": Text(), "data": Data()}
_SCALAR_CODES = dict(zip(_NUMBER_NAMES, _NUMBER_CODES, strict=True))


def _group(name: str, *fields: Field) -> Struct:
    return Struct(name, is_group=True, fields=list(fields))


def _load_request_type() -> Struct:
    """Return what a CodeGeneratorRequest is made of; only what is needed of it."""
    u2, u8, text = Scalar("u2"), Scalar("u8"), Text()
    kind, brand = Struct("Type", union_place=0), Struct("Brand")
    binding = Struct("Binding", union_place=0, fields=[Field("unbound", Void(), 0, 0), Field("type", kind, 0, 1)])
    binds = [Field("scopeId", u8, 0), Field("bind", List(binding), 0, 0), Field("inherit", Void(), 0, 1)]
    brand.fields.append(Field("scopes", List(Struct("Scope", union_place=4, fields=binds)), 0))
    parameter = _group("parameter", Field("scopeId", u8, 2), Field("parameterIndex", u2, 5))
    anything = Struct("anyPointer", is_group=True, union_place=4, fields=[Field("parameter", parameter, 0, 1)])
    named = [Field("typeId", u8, 1), Field("brand", brand, 0)]
    words = ("void", *_NUMBER_NAMES, "text", "data")
    kind.fields.extend(Field(word, Void(), 0, number) for number, word in enumerate(words))
    kind.fields.append(Field("list", _group("list", Field("elementType", kind, 0)), 0, 14))
    kind.fields.extend(
        [Field(word, _group(word, *named), 0, number) for number, word in enumerate(("enum", "struct"), 15)]
    )
    kind.fields.extend([Field("interface", Void(), 0, 17), Field("anyPointer", anything, 0, 18)])
    # Of numbers their bits.
    value = Struct("Value", union_place=0, fields=[Field("bool", Scalar("b1"), 16, 1)])
    for number, code in enumerate(_NUMBER_CODES[1:], 2):
        size = int(code[1:])
        value.fields.append(Field("bits", Scalar(f"u{size}"), max(2 // size, 1), number))
    value.fields.append(Field("bits", u2, 1, 15))
    slot = _group("slot", Field("offset", Scalar("u4"), 1), Field("type", kind, 2), Field("defaultValue", value, 3))
    group = _group("group", Field("typeId", u8, 2))
    field_struct = Struct("Field", union_place=4, fields=[Field("name", text, 0), Field("codeOrder", u2, 0)])
    field_struct.fields.append(Field("discriminantValue", Scalar("u2", default=_NO_MEMBER), 1))
    field_struct.fields.extend([Field("slot", slot, 0, 0), Field("group", group, 0, 1)])
    struct = _group("struct", Field("isGroup", Scalar("b1"), 224), Field("discriminantCount", u2, 15))
    struct.fields.extend([Field("discriminantOffset", Scalar("u4"), 8), Field("fields", List(field_struct), 3)])
    enum = _group("enum", Field("enumerants", List(Struct("Enumerant", fields=[Field("name", text, 0)])), 3))
    node = Struct("Node", union_place=6, fields=[Field("id", u8, 0), Field("displayName", text, 0)])
    node.fields.extend([Field("struct", struct, 0, 1), Field("enum", enum, 0, 2)])
    return Struct("CodeGeneratorRequest", fields=[Field("nodes", List(node), 0)])


def read_struct_type(name: str, schema: bytes) -> Struct:
    """Return what messages are made of.

    Parameters
    ----------
    name : of the struct: "Event", or with its file: "log.capnp:Event".
    schema : in binary form.

    Raises
    ------
    ValueError : it is no such schema, has no such struct, or is too large.
    """
    return _StructBuilder(CapnpReader(_load_request_type()).read(schema).get("nodes", [])).find_struct(name)


class _StructBuilder:
    """The structs of one schema."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self._nodes = {node["id"]: node for node in nodes}
        self._known: dict[tuple[int, _GenericBindings], Struct] = {}
        self._empty: list[tuple[Struct, dict[str, Any], _GenericBindings]] = []  # whose fields are not known yet
        self._fields = 0

    def find_struct(self, name: str) -> Struct:
        """Return a struct, with all that it needs."""
        full = {node.get("displayName", ""): number for number, node in self._nodes.items() if "struct" in node}
        short = {one.rpartition(":")[2]: number for one, number in full.items()}
        number = full.get(name, short.get(name))
        if number is None:
            raise ValueError(f"it has no struct {name}; it has {join_first(sorted(short), 5)}")
        found_struct = self._build_struct(number, ())
        while self._empty:
            struct, said, bindings = self._empty.pop()
            for one in sorted(said.get("fields", []), key=lambda field: int(field["codeOrder"])):
                struct.fields.append(self._build_field(one, bindings))
            self._fields += len(struct.fields)
            if self._fields > _FIELDS_MAX:
                raise ValueError(f"it has more than {_FIELDS_MAX} fields")
        return found_struct

    def _find_node(self, number: int, label: str) -> dict[str, Any]:
        node = self._nodes.get(number, {})
        if label not in node:
            raise ValueError(f"it needs the {label} {number:#x}, which is not there")
        return node

    def _build_struct(self, number: int, bindings: _GenericBindings) -> Struct:
        if (number, bindings) not in self._known:
            if len(self._known) == _STRUCTS_MAX:
                raise ValueError(f"it has more than {_STRUCTS_MAX} structs")
            node = self._find_node(number, "struct")
            said = node["struct"]
            place = said["discriminantOffset"] if said["discriminantCount"] else None
            struct = Struct(node.get("displayName", ""), said["isGroup"], place)
            self._known[number, bindings] = struct
            self._empty.append((struct, said, bindings))
        return self._known[number, bindings]

    def _build_field(self, said: dict[str, Any], bindings: _GenericBindings) -> Field:
        member = None if said["discriminantValue"] == _NO_MEMBER else said["discriminantValue"]
        name = said.get("name", "")
        if "group" in said:
            group = self._build_struct(said["group"]["typeId"], bindings)
            if not group.is_group:
                raise ValueError(f"the group {name} is none")
            return Field(name, group, 0, member)
        slot = said.get("slot", {})
        kind = self._build_type(slot.get("type", {}), bindings, slot.get("defaultValue", {}), _NESTING_MAX)
        if isinstance(kind, Struct) and kind.is_group:
            raise ValueError(f"the field {name} is a group of another struct")
        return Field(name, kind, slot.get("offset", 0), member)

    def _build_type(
        self, said: dict[str, Any], bindings: _GenericBindings, default: dict[str, Any], levels: int
    ) -> Type:
        word = next(iter(said), "anyPointer")
        if word in _SCALAR_CODES:
            return Scalar(_SCALAR_CODES[word], default=int(default.get("bool", default.get("bits", 0))))
        if word == "enum":
            names = self._find_node(said["enum"]["typeId"], "enum")["enum"].get("enumerants", [])
            named = {number: enumerant.get("name", "") for number, enumerant in enumerate(names)}
            return Scalar("u2", named, default.get("bits", 0))
        if word == "list":
            if not levels:
                raise ValueError(f"its lists are nested deeper than {_NESTING_MAX} levels")
            return List(self._build_type(said["list"].get("elementType", {}), bindings, {}, levels - 1))
        if word == "struct":
            return self._build_struct(said["struct"]["typeId"], self._read_bindings(said["struct"], bindings, levels))
        if word == "anyPointer" and "parameter" in said.get(word, {}):
            parameter = said[word]["parameter"]
            bound, index = dict(bindings).get(parameter["scopeId"], ()), parameter["parameterIndex"]
            return bound[index] if index < len(bound) else Opaque()
        return _PLAIN_TYPES.get(word, Opaque())

    def _read_bindings(self, said: dict[str, Any], within: _GenericBindings, levels: int) -> _GenericBindings:
        """Return what the parameters of a struct are, by what the field says, and the struct that it is in."""
        if not levels:
            raise ValueError(f"its parameters are nested deeper than {_NESTING_MAX} levels")
        bindings = []
        for scope in said.get("brand", {}).get("scopes", []):
            if "inherit" in scope:
                bound = dict(within).get(scope["scopeId"], ())
            else:
                kinds = [binding.get("type", {}) for binding in scope.get("bind", [])]
                bound = tuple(self._build_type(kind, within, {}, levels - 1) for kind in kinds)
            bindings.append((scope["scopeId"], bound))
        return tuple(bindings)
