"""Types of Arrow columns for Python values, known before the values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from msgq.common.handler_errors import raise_handler_error
from msgq.decoding.arrow_types import (
    ARROW_CONVERSION_ERRORS,
    build_arrow_array,
    build_text_column,
    build_value_column,
    cast_array,
    make_distinct_key_names,
    make_distinct_names,
)

_SHOWN_CHARACTERS_MAX = 100  # characters of a value in an error
_NONE_TYPE = type(None)
_PYTHON_INTEGER_TYPES = {int, _NONE_TYPE}
_PYTHON_FLOAT_TYPES = {float, _NONE_TYPE}
_PYTHON_DICT_TYPES = {dict, _NONE_TYPE}
_NUMPY_ARRAY_TYPES = {np.ndarray, _NONE_TYPE}
_PYTHON_LIST_TYPES = {list, tuple, *_NUMPY_ARRAY_TYPES}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """Type of a column.

    Attributes:
        arrow_type: Arrow type for messages with all fields of the schema; null if it depends on the values.
        field_names: for a struct, the keys of its values.
        child_types: for a struct, the types of its fields; for a list, the type of its elements.
        union_members: names of union members. A member that no value has gets no field.
        allows_other_fields: True: values may have other keys. Types of other keys depend on the values.
        depends_on_values: True: the type of the column may differ because of union members, other keys, or a child
            type.
    """

    arrow_type: pa.DataType
    field_names: tuple[str, ...] = ()
    child_types: tuple[ColumnType, ...] = ()
    union_members: frozenset[str] = frozenset()
    allows_other_fields: bool = False
    depends_on_values: bool = field(init=False)

    def __post_init__(self) -> None:
        depends_on_values = bool(self.union_members) or self.allows_other_fields or kinds.is_null(self.arrow_type)
        object.__setattr__(
            self, "depends_on_values", depends_on_values or any(child.depends_on_values for child in self.child_types)
        )

    def get_field_type(self, name: str) -> ColumnType | None:
        """Return the type of a struct's field; None: the schema does not define the field."""
        return self.child_types[self.field_names.index(name)] if name in self.field_names else None

    def build_column(self, values: Sequence[Any]) -> pa.Array:
        """Return values as a column; None becomes null. The type is null if it is unknown.

        Raises:
            TypeError, ValueError, OverflowError, pyarrow.ArrowException: a value does not fit the type.
        """
        if kinds.is_null(self.arrow_type):
            return build_value_column(list(values))
        if not self.depends_on_values and all(value is None for value in values):
            return pa.nulls(len(values), self.arrow_type)
        if kinds.is_string(self.arrow_type):
            return build_text_column(list(values))
        if kinds.is_struct(self.arrow_type):
            return self._build_struct_array(values)
        return self._build_list_array(values) if self.child_types else _build_scalar_array(values, self.arrow_type)

    def _build_struct_array(self, values: Sequence[Any]) -> pa.Array:
        types = set(map(type, values))
        present = values if _NONE_TYPE not in types else [value for value in values if value is not None]
        if not types <= _PYTHON_DICT_TYPES and not all(isinstance(value, Mapping) for value in present):
            raise TypeError(_describe_wrong_type(present, Mapping, "an object with fields"))
        columns: dict[str, pa.Array] = {}
        keys = dict.fromkeys(chain.from_iterable(present)) if self.union_members or self.allows_other_fields else {}
        field_column_names = make_distinct_names(self.field_names)
        for column_name, name, child in zip(field_column_names, self.field_names, self.child_types, strict=True):
            if name in keys or name not in self.union_members:
                columns[column_name] = _build_field_column(
                    child, name, _extract_field_values(values, name, present is values)
                )
        if self.allows_other_fields:
            extra = [name for name in keys if name not in self.field_names]
            extra_names = make_distinct_key_names(list(map(str, extra)), field_column_names)
            columns |= {
                column_name: build_value_column(_extract_field_values(values, name, present is values))
                for column_name, name in zip(extra_names, extra, strict=True)
            }
        columns = {name: column for name, column in columns.items() if not kinds.is_null(column.type)}
        if not columns:
            return pa.nulls(len(values))
        missing = None if present is values else pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays([*columns.values()], list(columns), mask=missing)

    def _build_list_array(self, values: Sequence[Any]) -> pa.Array:
        types = set(map(type, values))
        present = values if _NONE_TYPE not in types else [value for value in values if value is not None]
        if not types <= _PYTHON_LIST_TYPES and not all(
            isinstance(value, (list, tuple, np.ndarray)) for value in present
        ):
            raise TypeError(_describe_wrong_type(present, (list, tuple, np.ndarray), "a list"))
        (child,) = self.child_types
        is_numbers = present and not child.child_types and not child.depends_on_values and types <= _NUMPY_ARRAY_TYPES
        if is_numbers and all(value.ndim == 1 for value in present):
            inner = cast_array(build_arrow_array(np.concatenate(present)), child.arrow_type)
        else:
            inner = child.build_column(list(chain.from_iterable(present)))
        if kinds.is_null(inner.type):
            return pa.nulls(len(values))
        lengths = (
            [0 if value is None else len(value) for value in values] if present is not values else map(len, values)
        )
        ends = np.cumsum([0, *lengths], dtype=np.int32)
        missing = None if present is values else np.array([*(value is None for value in values), False])
        lists = pa.ListArray.from_arrays(pa.array(ends, mask=missing), inner)
        is_fixed = kinds.is_fixed_size_list(self.arrow_type)
        return cast_array(lists, pa.list_(inner.type, self.arrow_type.list_size)) if is_fixed else lists


def _build_field_column(child: ColumnType, name: Any, values: list[Any]) -> pa.Array:
    """Return the column of a field. Errors contain the name of the field."""
    try:
        return child.build_column(values)
    except ARROW_CONVERSION_ERRORS as error:
        raise_handler_error(error)
        raise ValueError(f"field {str(name)!r}: {error}") from error


def _describe_wrong_type(values: Iterable[Any], expected: Any, noun: str) -> str:
    wrong = next(value for value in values if not isinstance(value, expected))
    return f"value {_shorten_value(wrong)} has type {type(wrong).__name__}; expected {noun}"


def _shorten_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}..."


def _extract_field_values(values: Sequence[Any], name: Any, is_whole: bool) -> list[Any]:
    """Return one field of each value. `is_whole`: True if no value is None."""
    if not is_whole:
        return [None if value is None else value.get(name) for value in values]
    try:
        return list(map(itemgetter(name), values))
    except KeyError:
        return [value.get(name) for value in values]


def _build_scalar_array(values: Sequence[Any], target_type: pa.DataType) -> pa.Array:
    if (
        kinds.is_integer(target_type) and not set(map(type, values)) <= _PYTHON_INTEGER_TYPES
    ):  # Arrow would cut 1.5 to 1
        values = [None if value is None else _check_integer_value(value) for value in values]
    elif kinds.is_floating(target_type) and not set(map(type, values)) <= _PYTHON_FLOAT_TYPES:
        values = [None if value is None else _check_float_value(value) for value in values]
    return pa.array(values, target_type)


def _check_integer_value(value: Any) -> int:
    if isinstance(value, (bool, str)) or int(value) != value:
        raise TypeError(f"value {_shorten_value(value)} is not an integer")
    return int(value)


def _check_float_value(value: Any) -> float:
    if isinstance(value, (bool, str)):
        raise TypeError(f"value {_shorten_value(value)} is not a number")
    return float(value)


TEXT_COLUMN_TYPE = ColumnType(pa.string())
BINARY_COLUMN_TYPE = ColumnType(pa.binary())
VALUE_DEFINED_COLUMN_TYPE = ColumnType(pa.null())
NUMBER_COLUMN_TYPES = {
    "b1": ColumnType(pa.bool_()),
    **{f"i{size}": ColumnType(getattr(pa, f"int{8 * size}")()) for size in (1, 2, 4, 8)},
    **{f"u{size}": ColumnType(getattr(pa, f"uint{8 * size}")()) for size in (1, 2, 4, 8)},
    "f4": ColumnType(pa.float32()),
    "f8": ColumnType(pa.float64()),
}


def make_list_column_type(element_type: ColumnType | None, length: int = -1) -> ColumnType | None:
    """Return the type of lists. `length`: fixed length; -1: variable. None: the elements have no column type."""
    return None if element_type is None else ColumnType(pa.list_(element_type.arrow_type, length), (), (element_type,))


def make_struct_column_type(
    fields: Iterable[tuple[str, ColumnType | None]], members: Iterable[str] = (), allows_other_fields: bool = False
) -> ColumnType | None:
    """Return the type of structs with these fields. Fields without a type are omitted; None: no field is left."""
    typed_fields = [(name, field_type) for name, field_type in fields if field_type is not None]
    if not typed_fields:
        return VALUE_DEFINED_COLUMN_TYPE if allows_other_fields else None
    names = tuple(name for name, _ in typed_fields)
    child_types = tuple(field_type for _, field_type in typed_fields)
    columns = zip(make_distinct_names(names), child_types, strict=True)
    arrow_type = pa.struct([(name, child_type.arrow_type) for name, child_type in columns])
    return ColumnType(arrow_type, names, child_types, frozenset(members) & frozenset(names), allows_other_fields)
