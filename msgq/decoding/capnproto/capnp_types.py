"""Types of messages of Cap'n Proto: structs, and what is in their fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from msgq.decoding.scalar_types import ScalarType, TextType


@dataclass(frozen=True, slots=True)
class CapnpVoid:
    """A field without bytes, whose value is always None."""


@dataclass(frozen=True, slots=True)
class CapnpData:
    """Bytes."""


@dataclass(frozen=True, slots=True)
class CapnpList:
    """A list of elements of one type. A boolean has one bit here."""

    element_type: CapnpType


@dataclass(frozen=True, slots=True)
class CapnpField:
    """A field of a struct.

    Attributes
    ----------
    position : of a scalar, in units of its size from the first byte of the data section; of any other type, the index
        of its pointer.
    discriminant : of a member of the struct's union, the number by which the struct selects it; else None.
    default_bits : bits of a scalar that a message leaves out. The bits of a message are combined with them by
        exclusive or.
    """

    name: str
    value_type: CapnpType
    position: int
    discriminant: int | None = None
    default_bits: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class CapnpStruct:
    """A struct. Each of its fields may be beyond the end of a message's struct.

    Attributes
    ----------
    discriminant_position : of the union's discriminant, in units of two bytes; None: the struct has no union.
    is_group : whether its bytes are those of the struct that contains it.
    """

    name: str
    is_group: bool = False
    discriminant_position: int | None = None
    fields: list[CapnpField] = field(default_factory=list, repr=False)


@dataclass(frozen=True, slots=True)
class CapnpAnyPointer:
    """A pointer to any type, or a capability. Its value is always None."""


CapnpType: TypeAlias = CapnpVoid | ScalarType | TextType | CapnpData | CapnpList | CapnpStruct | CapnpAnyPointer
