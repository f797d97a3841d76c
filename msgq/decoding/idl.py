"""Definitions in OMG's IDL, as in ROS 2 and DDS: the schema encodings ros2idl and omgidl.

Supports the data types of https://www.omg.org/spec/IDL/4.2. Rare types (unions, maps, bit masks, optional and mutable
members) are read as `UnsupportedType`, so only messages with such types cannot be decoded.
"""

from __future__ import annotations

from msgq.decoding.cdr_types import CdrArray, CdrSequence, CdrStruct, CdrType, UnsupportedType
from msgq.decoding.idl_tokens import IdlConstant, IdlTokenReader
from msgq.decoding.scalar_types import ScalarType, TextType

_DEFINITION_NESTING_MAX = 50  # maximum depth of nested types
_CODE_BY_IDL_TYPE = {
    **{"boolean": "b1", "char": "u1", "octet": "u1", "float": "f4", "double": "f8"},
    **{"short": "i2", "long": "i4", "long long": "i8"},
    **{"unsigned short": "u2", "unsigned long": "u4", "unsigned long long": "u8"},
    **{f"{sign}int{8 * size}": f"{sign or 'i'}{size}" for sign in ("", "u") for size in (1, 2, 4, 8)},
}
_MULTIWORD_TYPE_PARTS = ("unsigned", "long", "short", "double")  # words of which types have more than one
_UNSUPPORTED_TYPE_NAMES = ("wchar", "any", "Object", "fixed", "map", "long double")


def parse_idl_struct(name: str, text: str) -> CdrStruct:
    """Return the type of a message.

    Args:
        name: name of the struct, with "/" or "::" between its modules.
        text: definition, with all needed definitions in any order. Lines of "=" and lines with "IDL:" separate files in
            ROS 2 recordings, and are skipped.

    Raises:
        ValueError: the text is invalid or too large, or the struct or a needed definition is missing.
    """
    struct = _IdlParser(IdlTokenReader(text)).find_definition(name.replace("/", "::"), ())
    if not isinstance(struct, CdrStruct):
        raise ValueError(f"struct {name!r} is not defined" if struct is None else f"{name!r} is not a struct")
    return struct


class _IdlParser:
    """Finds the position of each definition, and parses a definition at its first use."""

    def __init__(self, tokens: IdlTokenReader) -> None:
        self._tokens = tokens
        self._definition_indexes: dict[str, int] = {}  # index of the first word of a definition or of its annotations
        self._definitions: dict[str, CdrType | IdlConstant] = {}
        self._levels = 0
        scope: list[str] = []
        while tokens.peek_token():
            place = tokens.token_index
            self._skip_annotations()
            kind = tokens.take_token()
            if kind == "module":
                scope.append(tokens.take_identifier())
                tokens.expect_token("{")
            elif kind == "}" and scope:
                scope.pop()
            elif kind != ";":
                for name in self._scan_definition_names(kind):
                    self._definition_indexes["::".join((*scope, name))] = place

    def _skip_annotations(self) -> dict[str, int]:
        """Skip annotations. Return the position of each annotation's arguments."""
        annotations = {}
        while self._tokens.accept_token("@"):
            name = self._tokens.take_token().rpartition("::")[2]
            annotations[name] = self._tokens.token_index + 1
            if self._tokens.accept_token("("):
                self._tokens.skip_to_token(")")
                self._tokens.expect_token(")")
        return annotations

    def _scan_definition_names(self, kind: str) -> list[str]:
        """Skip a definition, and return the names that it defines."""
        tokens = self._tokens
        if kind in ("struct", "union", "enum", "bitmask", "bitset"):
            name = tokens.take_identifier()
            passed = tokens.skip_to_token(";")
            return [name] if passed else []  # else it is announced, and defined elsewhere
        if kind in ("typedef", "const"):
            ends = ("[", ",", ";") if kind == "typedef" else ("=",)
            words = [word for word, behind in tokens.skip_to_token(";") if behind in ends]
            return [word.removeprefix("_") for word in words if word.isidentifier()]
        raise ValueError(f"expected a definition, got {kind!r}")

    def find_definition(self, name: str, within: tuple[str, ...]) -> CdrType | IdlConstant | None:
        """Return the definition of a full name; None: not defined.

        Args:
            within: names of the definitions that are being parsed, because they need this one.
        """
        if name in within:
            raise ValueError(f"{name!r} contains itself")
        if name not in self._definitions and name in self._definition_indexes:
            if len(within) >= _DEFINITION_NESTING_MAX:
                raise ValueError(f"types are nested deeper than {_DEFINITION_NESTING_MAX} levels")
            place, self._tokens.token_index = self._tokens.token_index, self._definition_indexes[name]
            self._definitions[name] = self._parse_definition(name, (*within, name))
            self._tokens.token_index = place
        return self._definitions.get(name)

    def _parse_definition(self, full: str, within: tuple[str, ...]) -> CdrType | IdlConstant:
        tokens, name = self._tokens, full.rpartition("::")[2]
        notes = self._skip_annotations()
        kind = tokens.take_token()
        if kind == "struct":
            return self._parse_struct(full, notes, within)
        if kind == "enum":
            return self._parse_enum(notes, within)
        if kind == "const":
            self._parse_type_spec(within)
            tokens.take_identifier()
            tokens.expect_token("=")
            return self._parse_constant_expression(within)
        if kind == "typedef":
            return dict(self._parse_declarators(self._parse_type_spec(within), within))[name]
        return UnsupportedType(f"a {kind}")

    def _parse_struct(self, full: str, notes: dict[str, int], within: tuple[str, ...]) -> CdrType:
        tokens, fields = self._tokens, list[tuple[str, CdrType]]()
        tokens.take_identifier()
        if tokens.accept_token(":"):
            base = self._resolve_scoped_name(tokens.take_token(), within)
            if not isinstance(base, CdrStruct):
                raise ValueError(f"the base of struct {full!r} is not a struct")
            fields += base.fields
        tokens.expect_token("{")
        while not tokens.accept_token("}"):
            optional = "optional" in self._skip_annotations()
            members = self._parse_declarators(self._parse_type_spec(within), within)
            fields += [(name, UnsupportedType("an optional member")) for name, _ in members] if optional else members
            tokens.expect_token(";")
        extent = self._parse_extensibility(notes)
        return (
            UnsupportedType("a mutable struct")
            if extent == "mutable"
            else CdrStruct(full, tuple(fields), _APPENDABLE_BY_EXTENSIBILITY[extent])
        )

    def _parse_extensibility(self, notes: dict[str, int]) -> str:
        if "extensibility" in notes:
            self._tokens.token_index = notes["extensibility"]
            return self._tokens.take_token().lower()
        return next((name for name in ("final", "appendable", "mutable") if name in notes), "")

    def _parse_enum(self, notes: dict[str, int], within: tuple[str, ...]) -> CdrType:
        tokens, number, names = self._tokens, 0, dict[int, str]()
        tokens.take_identifier()
        tokens.expect_token("{")
        while not tokens.accept_token("}"):
            of_one = self._skip_annotations()
            if "value" in of_one:
                number = self._parse_annotation_argument(of_one["value"], within)
            names[number] = tokens.take_identifier()
            number += 1
            if not tokens.accept_token(",") and tokens.peek_token() != "}":
                raise ValueError(
                    f"expected ',' or '}}' after enumerator {names[number - 1]!r}, got {tokens.peek_token()!r}"
                )
        if "bit_bound" in notes and self._parse_annotation_argument(notes["bit_bound"], within) <= 16:
            return UnsupportedType("an enum of few bits")
        return ScalarType("i4", names)

    def _parse_annotation_argument(self, at: int, within: tuple[str, ...]) -> int:
        """Return the number in an annotation's brackets."""
        place, self._tokens.token_index = self._tokens.token_index, at
        length = self._parse_array_length(within)
        self._tokens.token_index = place
        return length

    def _parse_declarators(self, base_type: CdrType, within: tuple[str, ...]) -> list[tuple[str, CdrType]]:
        """Parse the names of a declaration with this base type. A name may declare an array."""
        tokens, declared = self._tokens, list[tuple[str, CdrType]]()
        while not declared or tokens.accept_token(","):
            name, lengths, kind = tokens.take_identifier(), [], base_type
            while tokens.accept_token("["):
                lengths.append(self._parse_array_length(within))
                tokens.expect_token("]")
            for length in reversed(lengths):
                kind = kind if isinstance(kind, UnsupportedType) else CdrArray(kind, length)
            declared.append((name, kind))
        return declared

    def _parse_type_spec(self, within: tuple[str, ...], levels: int = _DEFINITION_NESTING_MAX) -> CdrType:
        tokens = self._tokens
        word = tokens.take_token()
        if word == "sequence":
            if not levels:
                raise ValueError(f"types are nested deeper than {_DEFINITION_NESTING_MAX} levels")
            tokens.expect_token("<")
            value_type = self._parse_type_spec(within, levels - 1)
            if tokens.accept_token(","):
                self._parse_array_length(within)
            tokens.expect_token(">")
            return value_type if isinstance(value_type, UnsupportedType) else CdrSequence(value_type)
        if word in ("string", "wstring"):
            if tokens.accept_token("<"):
                self._parse_array_length(within)
                tokens.expect_token(">")
            return TextType(is_wide=word == "wstring")
        while word.rpartition(" ")[2] in _MULTIWORD_TYPE_PARTS and tokens.peek_token() in _MULTIWORD_TYPE_PARTS:
            word = f"{word} {tokens.take_token()}"
        if word in _CODE_BY_IDL_TYPE:
            return ScalarType(_CODE_BY_IDL_TYPE[word])
        if word in _UNSUPPORTED_TYPE_NAMES:
            if tokens.accept_token("<"):
                tokens.skip_to_token(">")
                tokens.expect_token(">")
            return UnsupportedType(word)
        definition = self._resolve_scoped_name(word, within)
        if isinstance(definition, (int, float, str)):
            raise ValueError(f"{word!r} is a constant; expected a type")
        return definition

    def _resolve_scoped_name(self, name: str, within: tuple[str, ...]) -> CdrType | IdlConstant:
        """Return the definition of a name within a definition. The innermost module with this name counts."""
        modules = [] if name.startswith("::") else within[-1].split("::")
        for depth in range(len(modules), -1, -1):
            definition = self.find_definition("::".join((*modules[:depth], name.removeprefix("::"))), within)
            if definition is not None:
                return definition
        raise ValueError(f"{within[-1]!r} needs {name!r}, which is not defined")

    def _find_constant_value(self, name: str, within: tuple[str, ...]) -> IdlConstant:
        constant = self._resolve_scoped_name(name, within)
        if not isinstance(constant, (int, float, str)):
            raise ValueError(f"{name!r} is not a constant")
        return constant

    def _parse_constant_expression(self, within: tuple[str, ...]) -> IdlConstant:
        return self._tokens.parse_expression(lambda name: self._find_constant_value(name, within))

    def _parse_array_length(self, within: tuple[str, ...]) -> int:
        return self._tokens.parse_length(lambda name: self._find_constant_value(name, within))


_APPENDABLE_BY_EXTENSIBILITY = {"": None, "final": False, "appendable": True}
