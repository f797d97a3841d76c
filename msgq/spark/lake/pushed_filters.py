"""Conditions that Spark pushes into a scan of messages, as filters of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

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

    Parameters
    ----------
    conditions : Java objects of `org.apache.spark.sql.sources.Filter`. Classes and columns without a counterpart in
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
        known = endpoints.get(times, frozenset())
        endpoints[times] = None if known is None or found.endpoints is None else known | found.endpoints
    joined = [MessageFilter(names, *times) for times, names in endpoints.items()]
    return _ALL_MESSAGES if MessageFilter() in joined or len(joined) > _ALTERNATIVES_MAX else joined
