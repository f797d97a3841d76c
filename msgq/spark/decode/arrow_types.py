"""Values of Python as Arrow columns, and one type for columns that have several.

What has no type of its own, or no common one, is text: JSON, and strings as they are.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from msgq.recording.reader.json_values import json_text

_DEPTH_MAX = 16  # of objects and lists in each other; what is deeper is text
_FIELDS_MAX = 1000  # of an object; what has more has names that are values
UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)
_SCALARS = (
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


def value_column(values: list[Any], depth: int = 0) -> pa.Array:
    """Return values as a column of their own type: dictionaries as structs, whose fields may be missing, lists as
    lists. Of the type null where nothing is known: all are None, or empty.
    """
    there = [value for value in values if value is not None]
    found = set(map(type, there))
    made = None
    if there and depth < _DEPTH_MAX:
        if found == {dict}:
            made = _struct(values, there, depth)
        elif found <= {list, tuple}:
            made = _list(values, there, depth)
    if made is None and not found & {dict, list, tuple}:
        try:
            made = pa.array(values)
        except UNFIT:
            made = None
        if made is not None and not any(is_kind(made.type) for is_kind in _SCALARS):
            made = None
    return text_column(values) if made is None else made


def _struct(values: list[Any], there: list[dict[Any, Any]], depth: int) -> pa.Array | None:
    names = list(dict.fromkeys(chain.from_iterable(there)))
    if len(names) > _FIELDS_MAX:
        return None
    found = {
        name: value_column([None if value is None else value.get(name) for value in values], depth + 1)
        for name in names
    }
    known = {name: array for name, array in found.items() if not kinds.is_null(array.type)}
    if not known:
        return pa.nulls(len(values))
    missing = pa.array([value is None for value in values])
    return pa.StructArray.from_arrays(list(known.values()), distinct_names(map(str, known)), mask=missing)


def _list(values: list[Any], there: list[Any], depth: int) -> pa.Array:
    inner = value_column(list(chain.from_iterable(there)), depth + 1)
    if kinds.is_null(inner.type):
        return pa.nulls(len(values))
    ends = np.cumsum([0] + [0 if value is None else len(value) for value in values], dtype=np.int32)
    missing = np.array([*(value is None for value in values), False])
    return pa.ListArray.from_arrays(pa.array(ends, mask=missing), inner)


def distinct_names(names: Any, taken: Any = ()) -> list[str]:
    """Return names that Spark tells apart, whatever their case, and from those that are taken: with _ behind them."""
    known = {name.lower() for name in taken} | {""}
    found = []
    for name in names:
        while name.lower() in known:
            name += "_"
        known.add(name.lower())
        found.append(name)
    return found


def text_column(values: list[Any]) -> pa.Array:
    """Return values as text."""
    try:
        return pa.array([v if v is None or isinstance(v, str) else text(v) for v in values], pa.string())
    except UnicodeError:  # half a character, which JSON has
        return pa.array([None if value is None else text(value) for value in values], pa.string())


def text(value: Any) -> str:
    """Return a value that has no type of its own as JSON, which is the same text everywhere: see `json_values`."""
    try:
        return json_text(value)
    except ValueError:  # numbers and keys that JSON does not have
        return repr(value)
    except RecursionError:
        return "(nested too deep to be shown)"


def common_type(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """Return the type that has the values of both: the wider number, all fields; text where there is none."""
    if first == second:
        return first
    for one, other in ((first, second), (second, first)):
        if kinds.is_decimal(one) and kinds.is_integer(other):  # Arrow gives too few digits
            digits = max(one.precision - one.scale, 20) + one.scale
            return pa.decimal128(digits, one.scale) if digits <= 38 else pa.string()
    try:
        both = [pa.schema([("value", first)]), pa.schema([("value", second)])]
        return pa.unify_schemas(both, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return pa.string()


def common_columns(first: pa.Schema, second: pa.Schema) -> pa.Schema:
    """Return the columns of both, by their names in any case, each of a type that has all its values."""
    found = {field.name.lower(): field for field in first}
    for field in second:
        known = found.get(field.name.lower(), field)
        found[field.name.lower()] = pa.field(known.name, common_type(known.type, field.type))
    return pa.schema(list(found.values()))


def conformed(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the same values as another type: fields by their names, those that are not there null.

    Raises
    ------
    pyarrow.ArrowException : they are not of this type.
    """
    if array.type == wanted:
        return array
    if kinds.is_null(wanted) or kinds.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if kinds.is_struct(wanted) and kinds.is_struct(array.type):
        there = {field.name: part for field, part in zip(array.type, array.flatten(), strict=True)}
        parts = [
            conformed(there[field.name], field.type) if field.name in there else pa.nulls(len(array), field.type)
            for field in wanted
        ]
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=array.is_null())
    if kinds.is_list(wanted) and kinds.is_list(array.type):
        sizes = np.asarray(pc.list_value_length(array).fill_null(0))
        ends = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
        missing = np.append(np.asarray(array.is_null()), False)
        return pa.ListArray.from_arrays(pa.array(ends, mask=missing), conformed(array.flatten(), wanted.value_type))
    if kinds.is_string(wanted) and not kinds.is_string(array.type):
        return text_column(array.to_pylist())
    return array.cast(wanted, safe=not kinds.is_floating(wanted))
