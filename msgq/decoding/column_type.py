"""Arrow columns of Python values, with types that are known before the values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from msgq.decoding.arrow_types import (
    build_arrow_array,
    build_text_column,
    build_value_column,
    cast_array,
    make_distinct_names,
)

_NONE_TYPE = type(None)
_INTEGER_TYPES, _FLOAT_TYPES, _DICT_TYPES = {int, _NONE_TYPE}, {float, _NONE_TYPE}, {dict, _NONE_TYPE}
_ARRAY_TYPES = {np.ndarray, _NONE_TYPE}
_LIST_TYPES = {list, tuple, *_ARRAY_TYPES}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column.

    Attributes
    ----------
    type : of the column, if messages have all that the schema says; null if only the values tell.
    names, parts : of a struct, the keys of its values, and what each has; of a list what its elements are.
    members : names of a union. Those that no value has are left out of the column.
    is_more : whether values may have other keys as well, whose columns are as these values are.
    is_open : whether columns may differ: by members, other keys, or parts that only the values tell.
    """

    type: pa.DataType
    names: tuple[str, ...] = ()
    parts: tuple[ColumnType, ...] = ()
    members: frozenset[str] = frozenset()
    is_more: bool = False
    is_open: bool = field(init=False)

    def __post_init__(self) -> None:
        is_open = bool(self.members) or self.is_more or kinds.is_null(self.type)
        object.__setattr__(self, "is_open", is_open or any(part.is_open for part in self.parts))

    def part(self, name: str) -> ColumnType | None:
        """Return the type of a field of a struct; None if the schema does not name it."""
        return self.parts[self.names.index(name)] if name in self.names else None

    def column(self, values: Sequence[Any]) -> pa.Array:
        """Return values as a column; None is null. Of the type null if nothing is known of its type.

        Raises
        ------
        TypeError, ValueError, OverflowError, pyarrow.ArrowException : a value is not of the type.
        """
        if kinds.is_null(self.type):
            return build_value_column(list(values))
        if not self.is_open and all(value is None for value in values):
            return pa.nulls(len(values), self.type)
        if kinds.is_string(self.type):
            return build_text_column(list(values))
        if kinds.is_struct(self.type):
            return self._build_structs(values)
        return self._build_lists(values) if self.parts else _build_scalars(values, self.type)

    def _build_structs(self, values: Sequence[Any]) -> pa.Array:
        types = set(map(type, values))
        present = values if _NONE_TYPE not in types else [value for value in values if value is not None]
        if not types <= _DICT_TYPES and not all(isinstance(value, Mapping) for value in present):
            raise TypeError("a value is not an object")
        columns: dict[Any, pa.Array] = {}
        keys = dict.fromkeys(chain.from_iterable(present)) if self.members or self.is_more else {}
        for name, part in zip(self.names, self.parts, strict=True):
            if name in keys or name not in self.members:
                columns[name] = part.column(_extract_field(values, name, present is values))
        if self.is_more:
            extra = (name for name in keys if name not in self.names)
            columns |= {name: build_value_column(_extract_field(values, name, present is values)) for name in extra}
        columns = {str(name): column for name, column in columns.items() if not kinds.is_null(column.type)}
        if not columns:
            return pa.nulls(len(values))
        missing = None if present is values else pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays([*columns.values()], make_distinct_names(columns), mask=missing)

    def _build_lists(self, values: Sequence[Any]) -> pa.Array:
        types = set(map(type, values))
        present = values if _NONE_TYPE not in types else [value for value in values if value is not None]
        if not types <= _LIST_TYPES and not all(isinstance(value, (list, tuple, np.ndarray)) for value in present):
            raise TypeError("a value is not a list")
        (part,) = self.parts
        is_numbers = present and not part.parts and not part.is_open and types <= _ARRAY_TYPES
        if is_numbers and all(value.ndim == 1 for value in present):
            inner = cast_array(build_arrow_array(np.concatenate(present)), part.type)
        else:
            inner = part.column(list(chain.from_iterable(present)))
        if kinds.is_null(inner.type):
            return pa.nulls(len(values))
        lengths = (
            [0 if value is None else len(value) for value in values] if present is not values else map(len, values)
        )
        ends = np.cumsum([0, *lengths], dtype=np.int32)
        missing = None if present is values else np.array([*(value is None for value in values), False])
        made = pa.ListArray.from_arrays(pa.array(ends, mask=missing), inner)
        is_fixed = kinds.is_fixed_size_list(self.type)
        return cast_array(made, pa.list_(inner.type, self.type.list_size)) if is_fixed else made


def _extract_field(values: Sequence[Any], name: Any, is_whole: bool) -> list[Any]:
    """Return a field of each value. is_whole : none of them is None."""
    if not is_whole:
        return [None if value is None else value.get(name) for value in values]
    try:
        return list(map(itemgetter(name), values))
    except KeyError:
        return [value.get(name) for value in values]


def _build_scalars(values: Sequence[Any], wanted: pa.DataType) -> pa.Array:
    if kinds.is_integer(wanted) and not set(map(type, values)) <= _INTEGER_TYPES:  # Arrow would cut 1.5 to 1
        values = [None if value is None else _check_integer(value) for value in values]
    elif kinds.is_floating(wanted) and not set(map(type, values)) <= _FLOAT_TYPES:
        values = [None if value is None else _check_float(value) for value in values]
    return pa.array(values, wanted)


def _check_integer(value: Any) -> int:
    if isinstance(value, (bool, str)) or int(value) != value:
        raise TypeError(f"{value!r} is not a whole number")
    return int(value)


def _check_float(value: Any) -> float:
    if isinstance(value, (bool, str)):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


TEXT_TYPE = ColumnType(pa.string())
BINARY_TYPE = ColumnType(pa.binary())
TYPE_BY_VALUE = ColumnType(pa.null())
NUMBER_TYPES = {
    "b1": ColumnType(pa.bool_()),
    **{f"i{size}": ColumnType(getattr(pa, f"int{8 * size}")()) for size in (1, 2, 4, 8)},
    **{f"u{size}": ColumnType(getattr(pa, f"uint{8 * size}")()) for size in (1, 2, 4, 8)},
    "f4": ColumnType(pa.float32()),
    "f8": ColumnType(pa.float64()),
}


def make_list_type(part: ColumnType | None, length: int = -1) -> ColumnType | None:
    """Return lists of a part, of a fixed length if one is given; None if the part has no values."""
    return None if part is None else ColumnType(pa.list_(part.type, length), (), (part,))


def make_struct_type(
    fields: Iterable[tuple[str, ColumnType | None]], members: Iterable[str] = (), is_more: bool = False
) -> ColumnType | None:
    """Return structs of fields by their names; those without values are left out. None: none is left."""
    typed_fields = [(name, part) for name, part in fields if part is not None]
    if not typed_fields:
        return TYPE_BY_VALUE if is_more else None
    names = tuple(name for name, _ in typed_fields)
    parts = tuple(part for _, part in typed_fields)
    columns = zip(make_distinct_names(names), parts, strict=True)
    type_ = pa.struct([(name, part.type) for name, part in columns])
    return ColumnType(type_, names, parts, frozenset(members) & frozenset(names), is_more)
