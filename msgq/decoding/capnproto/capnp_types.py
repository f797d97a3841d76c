"""Types of Cap'n Proto messages: structs and the types of their fields."""

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
    """A list of elements of one type. A boolean element has one bit."""

    element_type: CapnpType


@dataclass(frozen=True, slots=True)
class CapnpField:
    """A field of a struct.

    Attributes:
        position: for a scalar, its position in the data section, in units of its size; for other types, the index of
            the pointer.
        discriminant: for a member of the struct's union, the number that selects it; else None.
        default_bits: default bits of a scalar. The stored bits are the value's bits XOR these bits.
    """

    name: str
    value_type: CapnpType
    position: int
    discriminant: int | None = None
    default_bits: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class CapnpStruct:
    """A struct. A message's struct may be shorter, and then lacks some of the fields.

    Attributes:
        discriminant_position: position of the union's discriminant, in units of two bytes; None: the struct has no
            union.
        is_group: True: the struct's bytes are a part of the struct that contains it.
    """

    name: str
    is_group: bool = False
    discriminant_position: int | None = None
    fields: list[CapnpField] = field(default_factory=list, repr=False)


@dataclass(frozen=True, slots=True)
class CapnpAnyPointer:
    """A pointer to any type, or a capability. Its value is always None."""


CapnpType: TypeAlias = CapnpVoid | ScalarType | TextType | CapnpData | CapnpList | CapnpStruct | CapnpAnyPointer
