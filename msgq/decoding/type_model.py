"""What messages are made of, by the definitions that IDL, ROS 1 and ROS 2 have.

Their texts may be anybody's. Whatever is made here is bounded, so that those who go through it are: its levels, its
fields, and that an element has bytes, as a message of a few bytes might have any number of those that have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

#: Levels of types within each other: who goes down into a type does so by calling itself.
NESTING_MAX = 50
#: Fields of a message, with those of the structs in it, each time that they occur.
FIELDS_MAX = 65536
ARRAY_MAX = 2**31 - 1
#: The only field of a message of ROS 2 that has none: CDR has no empty structs.
PLACEHOLDER = "structure_needs_at_least_one_member"


@dataclass(frozen=True, slots=True)
class Number:
    """A number, or a truth value.

    Attributes
    ----------
    code : what NumPy calls it, without a byte order: "b1", "i1" to "i8", "u1" to "u8", "f4", "f8".
    """

    code: str


@dataclass(frozen=True, slots=True)
class Text:
    """A string.

    Attributes
    ----------
    wide : whether it is UTF-16; else it is UTF-8.
    """

    wide: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Enum:
    """A number of 32 bits that has names.

    Attributes
    ----------
    names : by number.
    """

    names: Mapping[int, str]


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """As many elements as the definition says.

    Raises
    ------
    ValueError : on construction: they are none or too many, have no bytes, or are nested too deeply.
    """

    value_type: Type
    length: int
    bounds: Bounds = field(init=False)

    def __post_init__(self) -> None:
        if not 0 < self.length <= ARRAY_MAX:
            raise ValueError(f"it has an array of {self.length} elements")
        element = _measure_element(self.value_type)
        object.__setattr__(self, "bounds", Bounds(element.least * self.length, element.fields, element.levels + 1))


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """As many elements as the message says. Bounds are not kept: a message beyond them is read as well.

    Raises
    ------
    ValueError : on construction, as of an `Array`.
    """

    value_type: Type
    bounds: Bounds = field(init=False)

    def __post_init__(self) -> None:
        element = _measure_element(self.value_type)
        object.__setattr__(self, "bounds", Bounds(4, element.fields, element.levels + 1))


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """Fields by name, in the order of the bytes.

    Attributes
    ----------
    name : as in the definition.
    fields : name and type.
    appendable : whether XCDR2 says its length before it; None: the definition leaves that to the message.

    Raises
    ------
    ValueError : on construction: two fields have one name, or it is too large or nested too deeply.
    """

    name: str
    fields: tuple[tuple[str, Type], ...]
    appendable: bool | None = None
    bounds: Bounds = field(init=False)

    def __post_init__(self) -> None:
        if len(dict(self.fields)) < len(self.fields):
            raise ValueError(f"{self.name} has two fields of one name")
        parts = [measure_type(kind) for _, kind in self.fields]
        fields = sum(part.fields for part in parts) + 1
        if fields > FIELDS_MAX:
            raise ValueError(f"{self.name} has more than {FIELDS_MAX} fields, with those within it")
        levels = max((part.levels for part in parts), default=0) + 1
        object.__setattr__(self, "bounds", Bounds(sum(part.least for part in parts), fields, levels))


@dataclass(frozen=True, slots=True)
class Unknown:
    """What nothing here decodes; a message that has it is refused.

    Attributes
    ----------
    what : it is.
    """

    what: str


Type: TypeAlias = Number | Text | Enum | Array | Sequence | Struct | Unknown


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large a type is.

    Attributes
    ----------
    least : bytes that it has at least, without padding.
    fields, levels : within it.
    """

    least: int
    fields: int
    levels: int

    def __post_init__(self) -> None:
        if self.levels > NESTING_MAX:
            raise ValueError(f"it is nested deeper than {NESTING_MAX} levels")


_NUMBER_BOUNDS = {size: Bounds(size, 1, 1) for size in (1, 2, 4, 8)}


def measure_type(value_type: Type) -> Bounds:
    """Return how large a type is."""
    match value_type:
        case Number():
            return _NUMBER_BOUNDS[int(value_type.code[1:])]
        case Array() | Sequence() | Struct():
            return value_type.bounds
    return _NUMBER_BOUNDS[4]


def _measure_element(value_type: Type) -> Bounds:
    element = measure_type(value_type)
    if not element.least:
        raise ValueError("it has elements without bytes")
    return element


def is_octets(value_type: Type) -> bool:
    """Return whether values are bytes, and not numbers: those of arrays and sequences of unsigned numbers of 8 bits."""
    return isinstance(value_type, (Array, Sequence)) and value_type.value_type == Number("u1")
