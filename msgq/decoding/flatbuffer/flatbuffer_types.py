"""Types of messages of FlatBuffers: tables, and what is in their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgq.decoding.scalar_types import ScalarType, TextType


@dataclass(frozen=True, slots=True)
class FlatbufferVector:
    """Elements of one type. The message says how many."""

    element_type: FlatbufferType


@dataclass(frozen=True, slots=True)
class FlatbufferArray:
    """Elements of one type. The schema says how many. Only structs have arrays."""

    element_type: FlatbufferType
    element_count: int


@dataclass(frozen=True, slots=True, eq=False)
class FlatbufferStruct:
    """Fields at fixed offsets. None of them can be missing.

    Attributes
    ----------
    fields : name, offset in bytes, and type.
    """

    size_bytes: int
    fields: tuple[tuple[str, int, FlatbufferType], ...]


@dataclass(frozen=True, slots=True)
class FlatbufferUnion:
    """One of several types. The field before it selects the type.

    Attributes
    ----------
    member_types : by the number that this field has.
    """

    member_types: Mapping[int, FlatbufferType]


@dataclass(frozen=True, slots=True, eq=False)
class FlatbufferTable:
    """Fields of which each may be missing.

    Attributes
    ----------
    fields : name, offset in the vtable, type, and the default of a missing field.
    """

    name: str
    fields: list[tuple[str, int, FlatbufferType, Any]] = field(default_factory=list, repr=False)


FlatbufferType: TypeAlias = (
    ScalarType | TextType | FlatbufferVector | FlatbufferArray | FlatbufferStruct | FlatbufferUnion | FlatbufferTable
)


def measure_inline_bytes(value_type: FlatbufferType) -> int:
    """Return the bytes of a value where its field is: of a table, vector, text or union those of its offset."""
    match value_type:
        case ScalarType() | FlatbufferStruct():
            return value_type.size_bytes
        case FlatbufferArray():
            return measure_inline_bytes(value_type.element_type) * value_type.element_count
    return 4
