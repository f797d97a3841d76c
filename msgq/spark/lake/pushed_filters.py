"""Conditions that Spark pushes into a scan, as filters of files and of rows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from datetime import date
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pa_types

from msgq.lake.message_filter import MessageFilter

_ALTERNATIVES_MAX = 16  # number of filters that are searched one after the other
_ALL_MESSAGES = [MessageFilter()]
#: Wanted range of log_time by class of condition: first wanted time, and first time after the range.
_TIME_RANGES: dict[str, Callable[[int], tuple[int | None, int | None]]] = {
    "GreaterThan": lambda time: (time + 1, None),
    "GreaterThanOrEqual": lambda time: (time, None),
    "LessThan": lambda time: (None, time),
    "LessThanOrEqual": lambda time: (None, time + 1),
}


def make_message_filters(conditions: Iterable[Any]) -> list[MessageFilter]:
    """Return filters for the messages that meet all conditions: each such message passes at least one filter.

    Args:
        conditions: Java objects of `org.apache.spark.sql.sources.Filter`. Classes and columns without a counterpart in
            `MessageFilter` restrict nothing.
    """
    return reduce(_intersect_alternatives, map(_convert_condition, conditions), _ALL_MESSAGES)


def _convert_condition(condition: Any) -> list[MessageFilter]:
    name = condition.getClass().getSimpleName()
    if name == "And":
        return _intersect_alternatives(_convert_condition(condition.left()), _convert_condition(condition.right()))
    if name == "Or":
        return _join_alternatives(_convert_condition(condition.left()), _convert_condition(condition.right()))
    if name == "In":
        return _convert_values(condition.attribute(), [value for value in condition.values() if value is not None])
    if name in _TIME_RANGES and condition.attribute() == "log_time":
        return [MessageFilter(None, *_TIME_RANGES[name](condition.value()))]
    if name == "EqualTo" or (name == "EqualNullSafe" and condition.value() is not None):
        return _convert_values(condition.attribute(), [condition.value()])
    return _ALL_MESSAGES


def _convert_values(column: str, values: list[Any]) -> list[MessageFilter]:
    if column == "endpoint":
        return [MessageFilter(frozenset(values))]
    if column == "log_time" and values:
        return [MessageFilter(None, min(values), max(values) + 1)]
    return _ALL_MESSAGES


def _intersect_alternatives(some: list[MessageFilter], others: list[MessageFilter]) -> list[MessageFilter]:
    if len(some) * len(others) > _ALTERNATIVES_MAX:
        return min(some, others, key=len)
    return [one.intersect(other) for one in some for other in others]


def _join_alternatives(some: list[MessageFilter], others: list[MessageFilter]) -> list[MessageFilter]:
    """Return the filters of both lists; filters with equal times become one filter."""
    endpoints: dict[tuple[int | None, int | None], frozenset[str] | None] = {}
    for found in (*some, *others):
        times = found.start_time, found.end_time
        endpoint_set = endpoints.get(times, frozenset())
        endpoints[times] = None if endpoint_set is None or found.endpoints is None else endpoint_set | found.endpoints
    joined = [MessageFilter(names, *times) for times, names in endpoints.items()]
    return _ALL_MESSAGES if MessageFilter() in joined or len(joined) > _ALTERNATIVES_MAX else joined


#: Comparisons of a column with a value, by class of condition.
_COMPARISONS: dict[str, Callable[[Any, Any], pc.Expression]] = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}


def make_row_condition(conditions: Iterable[Any], columns: pa.Schema) -> pc.Expression | None:
    """Return a condition of pyarrow that each row with all conditions meets, and that other rows may meet; None: all.

    Args:
        conditions: as for `make_message_filters`. Only whole numbers, texts and dates are compared, because Spark
            orders other values differently.
        columns: columns of the files.
    """
    return _join_conditions(operator.and_, [_convert_row_condition(condition, columns) for condition in conditions])


def _convert_row_condition(condition: Any, columns: pa.Schema) -> pc.Expression | None:
    name = condition.getClass().getSimpleName()
    if name in ("And", "Or"):
        parts = [_convert_row_condition(part, columns) for part in (condition.left(), condition.right())]
        if name == "Or" and None in [part if part is None else True for part in parts]:
            return None
        return _join_conditions(operator.and_ if name == "And" else operator.or_, parts)
    if name not in (*_COMPARISONS, "In", "IsNull") or condition.attribute() not in columns.names:
        return None
    column = columns.field(condition.attribute())
    if name == "IsNull":
        return pc.field(column.name).is_null()
    if name == "In":
        values = [_convert_value(value, column.type) for value in condition.values() if value is not None]
        return None if None in values else pc.field(column.name).isin(pa.array(values, column.type))
    value = _convert_value(condition.value(), column.type)
    return None if value is None else _COMPARISONS[name](pc.field(column.name), pa.scalar(value, column.type))


def _join_conditions(
    join: Callable[[Any, Any], pc.Expression], conditions: Iterable[pc.Expression | None]
) -> pc.Expression | None:
    filters = [condition for condition in conditions if condition is not None]
    return reduce(join, filters) if filters else None


def _convert_value(value: Any, column_type: pa.DataType) -> int | str | date | None:
    """Return a value of Java for a column; None: pyarrow and Spark compare such values differently."""
    if pa_types.is_integer(column_type) and isinstance(value, int):
        return value
    if pa_types.is_string(column_type) and isinstance(value, str):
        return value
    if pa_types.is_date32(column_type) and hasattr(value, "toString"):
        return date.fromisoformat(value.toString())
    return None
