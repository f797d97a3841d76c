"""What messages of FlatBuffers are made of: tables, and what is in their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number, or a truth value.

    Attributes
    ----------
    code : what NumPy calls it: "b1", "i1" to "i8", "u1" to "u8", "f4", "f8".
    names : of its numbers, if it is an enum.
    """

    code: str
    names: Mapping[int, str] | None = None


@dataclass(frozen=True, slots=True)
class String:
    """A text."""


@dataclass(frozen=True, slots=True)
class Vector:
    """Elements of one type, as many as the message says."""

    value_type: Type


@dataclass(frozen=True, slots=True)
class FixedArray:
    """Elements of one type, as many as the schema says. Only structs have it."""

    value_type: Type
    length: int


@dataclass(frozen=True, slots=True, eq=False)
class FixedStruct:
    """Fields at fixed places, of which none is missing.

    Attributes
    ----------
    size : bytes.
    fields : name, place in bytes, and type.
    """

    size: int
    fields: tuple[tuple[str, int, Type], ...]


@dataclass(frozen=True, slots=True)
class Union:
    """One of several types, as the field before it says.

    Attributes
    ----------
    kinds : by the number that this field has.
    """

    kinds: Mapping[int, Type]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Fields of which each may be missing.

    Attributes
    ----------
    fields : name, place in the table's list of places, type, and value where it is missing.
    """

    name: str
    fields: list[tuple[str, int, Type, Any]] = field(default_factory=list, repr=False)


Type: TypeAlias = Scalar | String | Vector | FixedArray | FixedStruct | Union | Table


def inline_size(value_type: Type) -> int:
    """Return the bytes that a value has in the place where it is; of what lies elsewhere, those that say where."""
    match value_type:
        case Scalar():
            return int(value_type.code[1:])
        case FixedStruct():
            return value_type.size
        case FixedArray():
            return inline_size(value_type.value_type) * value_type.length
    return 4
