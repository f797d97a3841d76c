"""Types of CDR and ROS 1 messages, from definitions in IDL, ROS 1 and ROS 2.

Definitions come from untrusted files. Therefore nesting levels and fields of a type are limited, and each element has
at least one byte. Otherwise a short message could have any number of elements.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from msgq.decoding.scalar_types import ScalarType, TextType

#: Levels of types within each other: functions that walk a type call themselves at each level.
TYPE_NESTING_MAX = 50
#: Fields of a message, with those of the structs in it, each time that they occur.
STRUCT_FIELDS_MAX = 65536
ARRAY_LENGTH_MAX = 2**31 - 1
#: The only field of a message of ROS 2 without fields: CDR has no empty structs.
EMPTY_STRUCT_MEMBER = "structure_needs_at_least_one_member"


@dataclass(frozen=True, slots=True, eq=False)
class CdrArray:
    """An array with a fixed number of elements.

    Raises:
        ValueError: on construction: no elements, too many, elements without bytes, or too deep nesting.
    """

    element_type: CdrType
    element_count: int
    type_size: CdrTypeSize = field(init=False)

    def __post_init__(self) -> None:
        if not 0 < self.element_count <= ARRAY_LENGTH_MAX:
            raise ValueError(f"an array has {self.element_count} elements; expected 1 to {ARRAY_LENGTH_MAX}")
        element = _measure_element_type(self.element_type)
        size = CdrTypeSize(element.min_bytes * self.element_count, element.field_count, element.nesting_levels + 1)
        object.__setattr__(self, "type_size", size)


@dataclass(frozen=True, slots=True, eq=False)
class CdrSequence:
    """A sequence whose length is in the message. Limits in the definition are ignored.

    Raises:
        ValueError: on construction: elements without bytes, or too deep nesting.
    """

    element_type: CdrType
    type_size: CdrTypeSize = field(init=False)

    def __post_init__(self) -> None:
        element = _measure_element_type(self.element_type)
        object.__setattr__(self, "type_size", CdrTypeSize(4, element.field_count, element.nesting_levels + 1))


@dataclass(frozen=True, slots=True, eq=False)
class CdrStruct:
    """Fields by name, in the order of the bytes.

    Attributes:
        name: name in the definition.
        fields: name and type of each field.
        is_appendable: True: in XCDR2, a length precedes the struct. None: the message decides.

    Raises:
        ValueError: on construction: two fields have the same name, or the struct is too large or nested too deeply.
    """

    name: str
    fields: tuple[tuple[str, CdrType], ...]
    is_appendable: bool | None = None
    type_size: CdrTypeSize = field(init=False)

    def __post_init__(self) -> None:
        if len(dict(self.fields)) < len(self.fields):
            raise ValueError(f"struct {self.name!r} has two fields with the same name")
        sizes = [measure_type(field_type) for _, field_type in self.fields]
        field_count = sum(size.field_count for size in sizes) + 1
        if field_count > STRUCT_FIELDS_MAX:
            raise ValueError(f"struct {self.name!r} has more than {STRUCT_FIELDS_MAX} fields, including nested fields")
        levels = max((size.nesting_levels for size in sizes), default=0) + 1
        min_bytes = sum(size.min_bytes for size in sizes)
        object.__setattr__(self, "type_size", CdrTypeSize(min_bytes, field_count, levels))


@dataclass(frozen=True, slots=True)
class UnsupportedType:
    """A type that cannot be decoded. Messages with this type are refused."""

    description: str


CdrType: TypeAlias = ScalarType | TextType | CdrArray | CdrSequence | CdrStruct | UnsupportedType


@dataclass(frozen=True, slots=True)
class CdrTypeSize:
    """Size of a type.

    Attributes:
        min_bytes: minimum bytes of a value, without padding.
        field_count: number of fields within the type.
        nesting_levels: number of nesting levels within the type.
    """

    min_bytes: int
    field_count: int
    nesting_levels: int

    def __post_init__(self) -> None:
        if self.nesting_levels > TYPE_NESTING_MAX:
            raise ValueError(f"types are nested deeper than {TYPE_NESTING_MAX} levels")


_SCALAR_SIZES = {size: CdrTypeSize(size, 1, 1) for size in (1, 2, 4, 8)}


def measure_type(value_type: CdrType) -> CdrTypeSize:
    """Return the size of a type."""
    match value_type:
        case ScalarType():
            return _SCALAR_SIZES[value_type.size_bytes]
        case CdrArray() | CdrSequence() | CdrStruct():
            return value_type.type_size
    return _SCALAR_SIZES[4]


def _measure_element_type(value_type: CdrType) -> CdrTypeSize:
    size = measure_type(value_type)
    if not size.min_bytes:
        raise ValueError("a list has elements without bytes (empty structs or arrays)")
    return size


def is_byte_array(value_type: CdrType) -> bool:
    """Return True for arrays and sequences of unsigned 8-bit numbers, whose values are bytes."""
    return isinstance(value_type, (CdrArray, CdrSequence)) and value_type.element_type == ScalarType("u1")
