"""Types of FlatBuffers messages: tables and the types of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgq.decoding.scalar_types import ScalarType, TextType


@dataclass(frozen=True, slots=True)
class FlatbufferVector:
    """Elements of one type. The message contains their number."""

    element_type: FlatbufferType


@dataclass(frozen=True, slots=True)
class FlatbufferArray:
    """Elements of one type. The schema contains their number. Only structs have arrays."""

    element_type: FlatbufferType
    element_count: int


@dataclass(frozen=True, slots=True, eq=False)
class FlatbufferStruct:
    """Fields at fixed offsets. A message always contains all fields.

    Attributes:
        fields: name, offset in bytes, and type of each field.
    """

    size_bytes: int
    fields: tuple[tuple[str, int, FlatbufferType], ...]


@dataclass(frozen=True, slots=True)
class FlatbufferUnion:
    """A value of one of several types. The field before the union selects the type.

    Attributes:
        member_types: types by the number in the selecting field.
    """

    member_types: Mapping[int, FlatbufferType]


@dataclass(frozen=True, slots=True, eq=False)
class FlatbufferTable:
    """Fields that may be missing.

    Attributes:
        fields: name, offset in the vtable, type, and default of each field.
    """

    name: str
    fields: list[tuple[str, int, FlatbufferType, Any]] = field(default_factory=list, repr=False)


FlatbufferType: TypeAlias = (
    ScalarType | TextType | FlatbufferVector | FlatbufferArray | FlatbufferStruct | FlatbufferUnion | FlatbufferTable
)


def measure_inline_bytes(value_type: FlatbufferType) -> int:
    """Return the bytes of a value within its table, struct or vector.

    Tables, vectors, texts and unions have an offset there.
    """
    match value_type:
        case ScalarType() | FlatbufferStruct():
            return value_type.size_bytes
        case FlatbufferArray():
            return measure_inline_bytes(value_type.element_type) * value_type.element_count
    return 4
