"""Python values as Arrow columns, and common types for columns with several types.

Values without an Arrow type, or without a common type, become text: strings unchanged, other values as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from msgq.common.handler_errors import raise_handler_error
from msgq.decoding.json_values import format_json_text

_VALUE_DEPTH_MAX = 16  # levels of nested objects and lists. Deeper values become text
_STRUCT_FIELDS_MAX = 1000  # an object with more fields probably has values as names
_INT64_MAX = 2**63 - 1
_NANOSECONDS_BY_UNIT = {
    **{"us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9},
    **{"D": 86_400 * 10**9, "W": 7 * 86_400 * 10**9},
    **{"M": 2_629_746 * 10**9, "Y": 31_556_952 * 10**9},  # mean months and years, as NumPy has in durations
}
_UNITS_IN_NANOSECOND = {"ps": 10**3, "fs": 10**6, "as": 10**9}
_PYTHON_LIST_TYPES = {list, tuple, np.ndarray}
ARROW_CONVERSION_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError)
_SCALAR_TYPE_CHECKS = (
    kinds.is_boolean,
    kinds.is_integer,
    kinds.is_floating,
    kinds.is_string,
    kinds.is_binary,
    kinds.is_decimal128,
    kinds.is_timestamp,
    kinds.is_date,
    kinds.is_null,
)


def build_value_column(values: list[Any], depth: int = 0) -> pa.Array:
    """Return values as a column of their own type.

    Dictionaries become structs, whose fields may be missing. Lists become lists. If all values are None or empty, the
    type is null.
    """
    present = [value for value in values if value is not None]
    types = set(map(type, present))
    column = None
    if present and depth < _VALUE_DEPTH_MAX:
        if types == {dict}:
            column = _build_struct_column(values, present, depth)
        elif types <= _PYTHON_LIST_TYPES:
            column = _build_list_column(values, present, depth)
    if column is None and not types & {dict, *_PYTHON_LIST_TYPES}:
        try:
            column = pa.array(values)
        except ARROW_CONVERSION_ERRORS as error:
            raise_handler_error(error)
            column = _build_wide_integers(present, values) if types == {int} else None
        if column is not None and not any(is_kind(column.type) for is_kind in _SCALAR_TYPE_CHECKS):
            column = None
    return build_text_column(values) if column is None else column


def _build_wide_integers(present: list[int], values: list[int | None]) -> pa.Array | None:
    """Return integers beyond int64 as uint64, or as decimals if some are negative. None: the values do not fit."""
    if min(present) < -(2**63) or max(present) >= 2**64:
        return None
    if min(present) >= 0:
        return pa.array(values, pa.uint64())
    return pa.array([None if value is None else Decimal(value) for value in values], pa.decimal128(20, 0))


def _build_struct_column(values: list[Any], present: list[dict[Any, Any]], depth: int) -> pa.Array | None:
    names = list(dict.fromkeys(chain.from_iterable(present)))
    if len(names) > _STRUCT_FIELDS_MAX:
        return None
    columns = [
        build_value_column([None if value is None else value.get(name) for value in values], depth + 1)
        for name in names
    ]
    distinct = make_distinct_key_names(list(map(str, names)))
    typed_arrays = {name: array for name, array in zip(distinct, columns, strict=True) if not kinds.is_null(array.type)}
    if not typed_arrays:
        return pa.nulls(len(values))
    missing = pa.array([value is None for value in values])
    return pa.StructArray.from_arrays(list(typed_arrays.values()), list(typed_arrays), mask=missing)


def _build_list_column(values: list[Any], present: list[Any], depth: int) -> pa.Array:
    if _are_uniform_arrays(present):
        inner = build_arrow_array(np.concatenate(present))
    else:
        inner = build_value_column(list(chain.from_iterable(present)), depth + 1)
    if kinds.is_null(inner.type):
        return pa.nulls(len(values))
    ends = np.cumsum([0] + [0 if value is None else len(value) for value in values], dtype=np.int32)
    missing = np.array([*(value is None for value in values), False])
    return pa.ListArray.from_arrays(pa.array(ends, mask=missing), inner)


def _are_uniform_arrays(arrays: list[Any]) -> bool:
    """Return True if all values are one-dimensional NumPy arrays with the same element type."""
    shapes = {(value.dtype, value.ndim) if isinstance(value, np.ndarray) else None for value in arrays}
    return shapes == {(getattr(arrays[0], "dtype", None), 1)}


def build_arrow_array(array: np.ndarray[Any, Any]) -> pa.Array:
    """Return the elements along the first axis. Structs become structs, and arrays become lists of a fixed size.

    Raises:
        ValueError: a time or a duration exceeds int64 nanoseconds, or a text has an invalid code point.
    """
    dtype = array.dtype
    if array.ndim > 1:
        each = array.shape[1]
        inner = build_arrow_array(array.reshape(-1, *array.shape[2:]))
        if each == 0:
            return pa.ListArray.from_arrays(pa.array(np.zeros(len(array) + 1, np.int32)), inner)
        return pa.FixedSizeListArray.from_arrays(inner, each)
    if dtype.names is not None:
        return pa.StructArray.from_arrays(
            [build_arrow_array(array[name]) for name in dtype.names], make_distinct_names(dtype.names)
        )
    if dtype.kind == "f":  # halves are not known everywhere, longer ones than 8 bytes nowhere
        return pa.array(array.astype(np.float64 if dtype.itemsize >= 8 else np.float32))
    if dtype.kind in "mM":
        return pa.array(_convert_to_nanoseconds(array))
    if dtype.kind == "c":
        return pa.StructArray.from_arrays(
            [build_arrow_array(array.real), build_arrow_array(array.imag)], ["real", "imag"]
        )
    if dtype.kind in "SV":
        return pa.array([bytes(value) for value in array.tolist()], pa.binary())
    return pa.array(np.ascontiguousarray(array).astype(dtype.newbyteorder("=")))


def _convert_to_nanoseconds(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return times or durations in nanoseconds. NumPy's own cast wraps those that do not fit."""
    dtype = array.dtype.newbyteorder("=")
    array = np.ascontiguousarray(array).astype(dtype)
    numbers, is_missing = array.view(np.int64), np.isnat(array)
    unit, count = np.datetime_data(dtype)
    if dtype.kind == "M" and unit in ("Y", "M"):  # units of the calendar
        nanoseconds = array.astype("M8[ns]").view(np.int64)
        misfit = nanoseconds.view("M8[ns]").astype(dtype).view(np.int64) != numbers
    else:
        factor = count * _NANOSECONDS_BY_UNIT.get(unit, 1)
        most = _INT64_MAX // factor
        nanoseconds = numbers * factor // _UNITS_IN_NANOSECOND.get(unit, 1)
        misfit = (numbers > most) | (numbers < -most)
    misfit &= ~is_missing
    if misfit.any():
        noun = "time" if dtype.kind == "M" else "duration"
        raise ValueError(f"{noun} {numbers[misfit][0]} of type {dtype} exceeds int64 nanoseconds")
    nanoseconds[is_missing] = np.iinfo(np.int64).min
    return nanoseconds.view(f"{dtype.kind}8[ns]")


def make_distinct_names(names: Any, reserved: Any = ()) -> list[str]:
    """Return names that differ in SQL, which ignores case. A name that is used or reserved gets the suffix "_"."""
    used_names = {name.lower() for name in reserved} | {""}
    distinct = []
    for name in names:
        while name.lower() in used_names:
            name += "_"
        used_names.add(name.lower())
        distinct.append(name)
    return distinct


def make_distinct_key_names(names: Sequence[str], reserved: Iterable[str] = ()) -> list[str]:
    """Return distinct names for keys of messages, in the same order.

    The order of the keys does not choose the name that gets a suffix: of "a" and "A", "a" stays.
    """
    order = sorted(range(len(names)), key=lambda index: names[index].swapcase())
    distinct = make_distinct_names((names[index] for index in order), reserved)
    return [name for _, name in sorted(zip(order, distinct, strict=True))]


def list_value_column_names(value: pa.DataType, reserved: Any) -> list[str]:
    """Return the column names of a value: its fields, or the name of the value. `reserved`: names of other columns."""
    if kinds.is_null(value):
        return []
    if not kinds.is_struct(value):
        return make_distinct_names(["value"], reserved)
    return make_distinct_key_names([field.name for field in value], reserved)


def split_value_columns(value: pa.Array) -> list[pa.Array]:
    """Return the columns of a value, in the order of `list_value_column_names`."""
    if kinds.is_null(value.type):
        return []
    return list(value.flatten()) if kinds.is_struct(value.type) else [value]


def build_text_column(values: list[Any]) -> pa.Array:
    """Return values as text."""
    try:
        return pa.array([v if v is None or isinstance(v, str) else format_as_text(v) for v in values], pa.string())
    except UnicodeError:  # half a character, which JSON has
        return pa.array([None if value is None else format_as_text(value) for value in values], pa.string())


def format_as_text(value: Any) -> str:
    """Return a value without an Arrow type as JSON; see `json_values`."""
    try:
        return format_json_text(value)
    except ValueError:  # numbers and keys that JSON does not have
        return repr(value)
    except RecursionError:
        return "(nested too deep to be shown)"


def find_common_type(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """Return a type for all values of both types: the wider number type, or a struct with all fields; else text."""
    if first == second:
        return first
    for left, other in ((first, second), (second, first)):
        if kinds.is_decimal(left) and kinds.is_integer(other):  # Arrow gives too few digits
            digits = max(left.precision - left.scale, 20) + left.scale
            return pa.decimal128(digits, left.scale) if digits <= 38 else pa.string()
        if kinds.is_uint64(left) and kinds.is_signed_integer(other):  # Arrow gives a bit too few
            return pa.decimal128(20, 0)
    try:
        both = [pa.schema([("value", first)]), pa.schema([("value", second)])]
        return _merge_name_variants(pa.unify_schemas(both, promote_options="permissive").field(0).type)
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return pa.string()


def _merge_name_variants(arrow_type: pa.DataType) -> pa.DataType:
    """Return a type in which fields of a struct whose names differ only in case are one field."""
    if kinds.is_struct(arrow_type):
        fields = pa.schema([field.with_type(_merge_name_variants(field.type)) for field in arrow_type])
        return pa.struct(list(find_common_columns(pa.schema([]), fields)))
    if kinds.is_list(arrow_type):
        return pa.list_(_merge_name_variants(arrow_type.value_type))
    if kinds.is_fixed_size_list(arrow_type):
        return pa.list_(_merge_name_variants(arrow_type.value_type), arrow_type.list_size)
    return arrow_type


def find_common_columns(first: pa.Schema, second: pa.Schema) -> pa.Schema:
    """Return the columns of both schemas. Each column has a type for all its values.

    Names are compared without case.
    """
    if first.equals(second):
        return first
    by_name = {field.name.lower(): field for field in first}
    for field in second:
        same_field = by_name.get(field.name.lower(), field)
        by_name[field.name.lower()] = pa.field(same_field.name, find_common_type(same_field.type, field.type))
    return pa.schema(list(by_name.values()))


def cast_table_columns(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Return a table with these columns. Names are compared without case. Missing columns are null.

    Raises:
        pyarrow.ArrowException: a value does not fit its type.
    """
    if rows.schema.equals(columns):
        return rows
    by_name = {name.lower(): _combine_column_chunks(rows.column(name)) for name in rows.column_names}
    arrays = [
        cast_array(by_name[field.name.lower()], field.type)
        if field.name.lower() in by_name
        else pa.nulls(rows.num_rows, field.type)
        for field in columns
    ]
    return pa.Table.from_arrays(arrays, schema=columns)


def _combine_column_chunks(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def cast_array(array: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Return the values as another type. Fields are matched by name without case, and missing fields are null.

    Raises:
        pyarrow.ArrowException: a value does not fit the type.
    """
    if array.type == target_type:
        return array
    if kinds.is_null(target_type) or kinds.is_null(array.type):
        return pa.nulls(len(array), target_type)
    if kinds.is_struct(target_type) and kinds.is_struct(array.type):
        values_by_name = {field.name.lower(): part for field, part in zip(array.type, array.flatten(), strict=True)}
        parts = [
            cast_array(values_by_name[field.name.lower()], field.type)
            if field.name.lower() in values_by_name
            else pa.nulls(len(array), field.type)
            for field in target_type
        ]
        return pa.StructArray.from_arrays(parts, fields=list(target_type), mask=array.is_null())
    if _is_list_type(target_type) and _is_list_type(array.type):
        return _cast_list_array(array, target_type)
    if kinds.is_string(target_type) and not kinds.is_string(array.type):
        return build_text_column(array.to_pylist())
    return array.cast(target_type, safe=not kinds.is_floating(target_type))


def _is_list_type(arrow_type: pa.DataType) -> bool:
    return bool(kinds.is_list(arrow_type) or kinds.is_fixed_size_list(arrow_type))


def _cast_list_array(array: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Return lists as another list type. Null lists have no elements, except in lists of a fixed size."""
    valid = np.asarray(array.is_valid())
    sizes = np.where(valid, np.asarray(pc.list_value_length(array).fill_null(0)), 0)
    inner = cast_array(array.flatten(), target_type.value_type)
    if kinds.is_list(target_type):
        ends = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(ends, mask=np.append(~valid, False)), inner)
    each = target_type.list_size
    if (sizes[valid] != each).any():
        raise pa.ArrowInvalid(f"a list does not have {each} elements")
    places = np.arange(len(array) * each) - np.repeat(np.cumsum(~valid) * each, each)
    filled = inner.take(pa.array(places, mask=np.repeat(~valid, each)))
    return pa.FixedSizeListArray.from_arrays(filled, each, mask=pa.array(~valid))
