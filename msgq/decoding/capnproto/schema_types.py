"""What messages of Cap'n Proto are made of: structs, and what is in their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Void:
    """What has no bytes, and always the same value: None."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number, or a truth value.

    Attributes
    ----------
    code : what NumPy calls it: "b1" (which has one bit here), "i1" to "i8", "u1" to "u8", "f4", "f8".
    names : of its numbers, if it is an enum.
    default : its bits where the message has none; what a message has is combined with them by exclusive or.
    """

    code: str
    names: Mapping[int, str] | None = field(default=None, hash=False)
    default: int = 0


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes."""


@dataclass(frozen=True, slots=True)
class List:
    """Elements of one type."""

    value_type: Type


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct.

    Attributes
    ----------
    place : of a scalar, in its own sizes from the first byte on; of what lies elsewhere, which of the pointers it is.
    member : if it is of the struct's union, what the struct says when it has this one; else None.
    """

    name: str
    value_type: Type
    place: int
    member: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """Fields, each of which may be beyond what a message has.

    Attributes
    ----------
    union_place : which two bytes say what the union has; None: it has no union.
    is_group : whether its bytes are those of the struct that it is in.
    """

    name: str
    is_group: bool = False
    union_place: int | None = None
    fields: list[Field] = field(default_factory=list, repr=False)


@dataclass(frozen=True, slots=True)
class Opaque:
    """What only its own program understands: pointers to anything, and capabilities."""


Type: TypeAlias = Void | Scalar | Text | Data | List | Struct | Opaque
