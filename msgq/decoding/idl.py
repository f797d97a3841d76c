"""Definitions in OMG's IDL, as ROS 2 and DDS use it: the schema encodings ros2idl and omgidl.

It is the part of https://www.omg.org/spec/IDL/4.2 that describes data. What messages are rarely made of (unions, maps,
bit masks, optional and mutable members) is read as `Unknown`, so that it only hinders messages that have it.
"""

from __future__ import annotations

from msgq.decoding.idl_tokens import Constant, TokenReader
from msgq.decoding.type_model import Array, Enum, Number, Sequence, Struct, Text, Type, Unknown

_NESTING_MAX = 50  # of types in each other
_NUMBER_TYPES = {
    **{"boolean": "b1", "char": "u1", "octet": "u1", "float": "f4", "double": "f8"},
    **{"short": "i2", "long": "i4", "long long": "i8"},
    **{"unsigned short": "u2", "unsigned long": "u4", "unsigned long long": "u8"},
    **{f"{sign}int{8 * size}": f"{sign or 'i'}{size}" for sign in ("", "u") for size in (1, 2, 4, 8)},
}
_MULTIWORD_TYPES = ("unsigned", "long", "short", "double")  # words of which types have more than one
_UNSUPPORTED_TYPES = ("wchar", "any", "Object", "fixed", "map", "long double")


def parse_idl_struct(name: str, text: str) -> Struct:
    """Return what a message is made of.

    Parameters
    ----------
    name : of the struct, with "/" or "::" between its modules.
    text : its definition, with those that it needs, in any order. A line of "=" and one with "IDL:" are passed over:
        they are between the files that recordings of ROS 2 put together.

    Raises
    ------
    ValueError : the text is no IDL, or has no such struct; it needs what is not there; it is too large.
    """
    struct = _IdlParser(TokenReader(text)).find_type(name.replace("/", "::"), ())
    if not isinstance(struct, Struct):
        raise ValueError(f"it has no struct {name}" if struct is None else f"{name} is no struct")
    return struct


class _IdlParser:
    """Finds where each name is defined; what it is, is read when somebody needs it."""

    def __init__(self, tokens: TokenReader) -> None:
        self._tokens = tokens
        self._places: dict[str, int] = {}  # where the first word of a definition is, or of its annotations
        self._known: dict[str, Type | Constant] = {}
        self._levels = 0
        scope: list[str] = []
        while tokens.peek():
            place = tokens.place
            self._skip_annotations()
            kind = tokens.take()
            if kind == "module":
                scope.append(tokens.name())
                tokens.expect("{")
            elif kind == "}" and scope:
                scope.pop()
            elif kind != ";":
                for name in self._define(kind):
                    self._places["::".join((*scope, name))] = place

    def _skip_annotations(self) -> dict[str, int]:
        """Take annotations; return where what stands in their brackets begins."""
        annotations = {}
        while self._tokens.accept("@"):
            name = self._tokens.take().rpartition("::")[2]
            annotations[name] = self._tokens.place + 1
            if self._tokens.accept("("):
                self._tokens.skip(")")
                self._tokens.expect(")")
        return annotations

    def _define(self, kind: str) -> list[str]:
        """Pass over a definition, and return the names that it defines."""
        tokens = self._tokens
        if kind in ("struct", "union", "enum", "bitmask", "bitset"):
            name = tokens.name()
            passed = tokens.skip(";")
            return [name] if passed else []  # else it is announced, and defined elsewhere
        if kind in ("typedef", "const"):
            ends = ("[", ",", ";") if kind == "typedef" else ("=",)
            words = [word for word, behind in tokens.skip(";") if behind in ends]
            return [word.removeprefix("_") for word in words if word.isidentifier()]
        raise ValueError(f"it has {kind!r} where a definition begins")

    def find_type(self, name: str, within: tuple[str, ...]) -> Type | Constant | None:
        """Return what a name with all its modules stands for; None: it is not defined.

        Parameters
        ----------
        within : what is not read to its end yet, as it needs this.
        """
        if name in within:
            raise ValueError(f"{name} is within itself")
        if name not in self._known and name in self._places:
            if len(within) >= _NESTING_MAX:
                raise ValueError(f"it is nested deeper than {_NESTING_MAX} levels")
            place, self._tokens.place = self._tokens.place, self._places[name]
            self._known[name] = self._read_definition(name, (*within, name))
            self._tokens.place = place
        return self._known.get(name)

    def _read_definition(self, full: str, within: tuple[str, ...]) -> Type | Constant:
        tokens, name = self._tokens, full.rpartition("::")[2]
        notes = self._skip_annotations()
        kind = tokens.take()
        if kind == "struct":
            return self._read_struct(full, notes, within)
        if kind == "enum":
            return self._read_enum(notes, within)
        if kind == "const":
            self._read_type(within)
            tokens.name()
            tokens.expect("=")
            return self._read_expression(within)
        if kind == "typedef":
            return dict(self._read_declarators(self._read_type(within), within))[name]
        return Unknown(f"a {kind}")

    def _read_struct(self, full: str, notes: dict[str, int], within: tuple[str, ...]) -> Type:
        tokens, fields = self._tokens, list[tuple[str, Type]]()
        tokens.name()
        if tokens.accept(":"):
            base = self._find_in_scope(tokens.take(), within)
            if not isinstance(base, Struct):
                raise ValueError(f"{full} is based on what is no struct")
            fields += base.fields
        tokens.expect("{")
        while not tokens.accept("}"):
            optional = "optional" in self._skip_annotations()
            members = self._read_declarators(self._read_type(within), within)
            fields += [(name, Unknown("an optional member")) for name, _ in members] if optional else members
            tokens.expect(";")
        extent = self._find_extensibility(notes)
        return Unknown("a mutable struct") if extent == "mutable" else Struct(full, tuple(fields), _APPENDABLE[extent])

    def _find_extensibility(self, notes: dict[str, int]) -> str:
        if "extensibility" in notes:
            self._tokens.place = notes["extensibility"]
            return self._tokens.take().lower()
        return next((name for name in ("final", "appendable", "mutable") if name in notes), "")

    def _read_enum(self, notes: dict[str, int], within: tuple[str, ...]) -> Type:
        tokens, number, names = self._tokens, 0, dict[int, str]()
        tokens.name()
        tokens.expect("{")
        while not tokens.accept("}"):
            of_one = self._skip_annotations()
            if "value" in of_one:
                number = self._read_argument(of_one["value"], within)
            names[number] = tokens.name()
            number += 1
            if not tokens.accept(",") and tokens.peek() != "}":
                raise ValueError(f"an enum has {tokens.peek()!r} behind {names[number - 1]}")
        if "bit_bound" in notes and self._read_argument(notes["bit_bound"], within) <= 16:
            return Unknown("an enum of few bits")
        return Enum(names)

    def _read_argument(self, at: int, within: tuple[str, ...]) -> int:
        """Return the number in the brackets of an annotation."""
        place, self._tokens.place = self._tokens.place, at
        length = self._read_length(within)
        self._tokens.place = place
        return length

    def _read_declarators(self, base_type: Type, within: tuple[str, ...]) -> list[tuple[str, Type]]:
        """Take names of that type, which may be arrays of it."""
        tokens, declared = self._tokens, list[tuple[str, Type]]()
        while not declared or tokens.accept(","):
            name, lengths, kind = tokens.name(), [], base_type
            while tokens.accept("["):
                lengths.append(self._read_length(within))
                tokens.expect("]")
            for length in reversed(lengths):
                kind = kind if isinstance(kind, Unknown) else Array(kind, length)
            declared.append((name, kind))
        return declared

    def _read_type(self, within: tuple[str, ...], levels: int = _NESTING_MAX) -> Type:
        tokens = self._tokens
        word = tokens.take()
        if word == "sequence":
            if not levels:
                raise ValueError(f"it is nested deeper than {_NESTING_MAX} levels")
            tokens.expect("<")
            value_type = self._read_type(within, levels - 1)
            if tokens.accept(","):
                self._read_length(within)
            tokens.expect(">")
            return value_type if isinstance(value_type, Unknown) else Sequence(value_type)
        if word in ("string", "wstring"):
            if tokens.accept("<"):
                self._read_length(within)
                tokens.expect(">")
            return Text(wide=word == "wstring")
        while word.rpartition(" ")[2] in _MULTIWORD_TYPES and tokens.peek() in _MULTIWORD_TYPES:
            word = f"{word} {tokens.take()}"
        if word in _NUMBER_TYPES:
            return Number(_NUMBER_TYPES[word])
        if word in _UNSUPPORTED_TYPES:
            if tokens.accept("<"):
                tokens.skip(">")
                tokens.expect(">")
            return Unknown(word)
        definition = self._find_in_scope(word, within)
        if isinstance(definition, (int, float, str)):
            raise ValueError(f"{word} is a constant, and no type")
        return definition

    def _find_in_scope(self, name: str, within: tuple[str, ...]) -> Type | Constant:
        """Return what a name stands for within a definition: of the innermost module that has it."""
        modules = [] if name.startswith("::") else within[-1].split("::")
        for depth in range(len(modules), -1, -1):
            definition = self.find_type("::".join((*modules[:depth], name.removeprefix("::"))), within)
            if definition is not None:
                return definition
        raise ValueError(f"{within[-1]} needs {name}, whose definition is not there")

    def _find_constant(self, name: str, within: tuple[str, ...]) -> Constant:
        constant = self._find_in_scope(name, within)
        if not isinstance(constant, (int, float, str)):
            raise ValueError(f"{name} is no constant")
        return constant

    def _read_expression(self, within: tuple[str, ...]) -> Constant:
        return self._tokens.expression(lambda name: self._find_constant(name, within))

    def _read_length(self, within: tuple[str, ...]) -> int:
        return self._tokens.length(lambda name: self._find_constant(name, within))


_APPENDABLE = {"": None, "final": False, "appendable": True}
