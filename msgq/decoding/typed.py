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

from msgq.decoding.arrow_types import arrow_array, cast_to, distinct_names, text_column, value_column

_NONE = type(None)
_WHOLE, _REAL, _DICTS = {int, _NONE}, {float, _NONE}, {dict, _NONE}
_ARRAYS = {np.ndarray, _NONE}
_LISTS = {list, tuple, *_ARRAYS}


@dataclass(frozen=True, slots=True)
class Kind:
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
    parts: tuple[Kind, ...] = ()
    members: frozenset[str] = frozenset()
    is_more: bool = False
    is_open: bool = field(init=False)

    def __post_init__(self) -> None:
        is_open = bool(self.members) or self.is_more or kinds.is_null(self.type)
        object.__setattr__(self, "is_open", is_open or any(part.is_open for part in self.parts))

    def part(self, name: str) -> Kind | None:
        """Return the type of a field of a struct; None if the schema does not name it."""
        return self.parts[self.names.index(name)] if name in self.names else None

    def column(self, values: Sequence[Any]) -> pa.Array:
        """Return values as a column; None is null. Of the type null if nothing is known of its type.

        Raises
        ------
        TypeError, ValueError, OverflowError, pyarrow.ArrowException : a value is not of the type.
        """
        if kinds.is_null(self.type):
            return value_column(list(values))
        if not self.is_open and all(value is None for value in values):
            return pa.nulls(len(values), self.type)
        if kinds.is_string(self.type):
            return text_column(list(values))
        if kinds.is_struct(self.type):
            return self._structs(values)
        return self._lists(values) if self.parts else _scalars(values, self.type)

    def _structs(self, values: Sequence[Any]) -> pa.Array:
        types = set(map(type, values))
        present = values if _NONE not in types else [value for value in values if value is not None]
        if not types <= _DICTS and not all(isinstance(value, Mapping) for value in present):
            raise TypeError("a value is not an object")
        columns: dict[Any, pa.Array] = {}
        keys = dict.fromkeys(chain.from_iterable(present)) if self.members or self.is_more else {}
        for name, part in zip(self.names, self.parts, strict=True):
            if name in keys or name not in self.members:
                columns[name] = part.column(_fields(values, name, present is values))
        if self.is_more:
            extra = (name for name in keys if name not in self.names)
            columns |= {name: value_column(_fields(values, name, present is values)) for name in extra}
        columns = {str(name): column for name, column in columns.items() if not kinds.is_null(column.type)}
        if not columns:
            return pa.nulls(len(values))
        missing = None if present is values else pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays([*columns.values()], distinct_names(columns), mask=missing)

    def _lists(self, values: Sequence[Any]) -> pa.Array:
        types = set(map(type, values))
        present = values if _NONE not in types else [value for value in values if value is not None]
        if not types <= _LISTS and not all(isinstance(value, (list, tuple, np.ndarray)) for value in present):
            raise TypeError("a value is not a list")
        (part,) = self.parts
        is_numbers = present and not part.parts and not part.is_open and types <= _ARRAYS
        if is_numbers and all(value.ndim == 1 for value in present):
            inner = cast_to(arrow_array(np.concatenate(present)), part.type)
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
        return cast_to(made, pa.list_(inner.type, self.type.list_size)) if is_fixed else made


def _fields(values: Sequence[Any], name: Any, is_whole: bool) -> list[Any]:
    """Return a field of each value. is_whole : none of them is None."""
    if not is_whole:
        return [None if value is None else value.get(name) for value in values]
    try:
        return list(map(itemgetter(name), values))
    except KeyError:
        return [value.get(name) for value in values]


def _scalars(values: Sequence[Any], wanted: pa.DataType) -> pa.Array:
    if kinds.is_integer(wanted) and not set(map(type, values)) <= _WHOLE:  # Arrow would cut 1.5 to 1
        values = [None if value is None else _whole(value) for value in values]
    elif kinds.is_floating(wanted) and not set(map(type, values)) <= _REAL:
        values = [None if value is None else _real(value) for value in values]
    return pa.array(values, wanted)


def _whole(value: Any) -> int:
    if isinstance(value, (bool, str)) or int(value) != value:
        raise TypeError(f"{value!r} is not a whole number")
    return int(value)


def _real(value: Any) -> float:
    if isinstance(value, (bool, str)):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


TEXT = Kind(pa.string())
BINARY = Kind(pa.binary())
BY_VALUE = Kind(pa.null())
NUMBERS = {
    "b1": Kind(pa.bool_()),
    **{f"i{size}": Kind(getattr(pa, f"int{8 * size}")()) for size in (1, 2, 4, 8)},
    **{f"u{size}": Kind(getattr(pa, f"uint{8 * size}")()) for size in (1, 2, 4, 8)},
    "f4": Kind(pa.float32()),
    "f8": Kind(pa.float64()),
}


def list_of(part: Kind | None, length: int = -1) -> Kind | None:
    """Return lists of a part, of a fixed length if one is given; None if the part has no values."""
    return None if part is None else Kind(pa.list_(part.type, length), (), (part,))


def struct_of(
    fields: Iterable[tuple[str, Kind | None]], members: Iterable[str] = (), is_more: bool = False
) -> Kind | None:
    """Return structs of fields by their names; those without values are left out. None: none is left."""
    typed_fields = [(name, part) for name, part in fields if part is not None]
    if not typed_fields:
        return BY_VALUE if is_more else None
    names = tuple(name for name, _ in typed_fields)
    parts = tuple(part for _, part in typed_fields)
    columns = zip(distinct_names(names), parts, strict=True)
    type_ = pa.struct([(name, part.type) for name, part in columns])
    return Kind(type_, names, parts, frozenset(members) & frozenset(names), is_more)
