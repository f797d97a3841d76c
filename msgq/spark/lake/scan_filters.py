"""The filters that Spark pushes into the scans of a query, read from the text of EXPLAIN FORMATTED.

Spark has no interface that tells a program the pushed filters, neither on a classic session nor behind Spark Connect.
The text does not quote values, and a value can come from a function, a variable or a view. Therefore the filters of a
scan count only if each value in them is a number or a literal of the query, and no literal has a character that could
end a value. Otherwise the scan counts as a scan without filters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from msgq.lake.message_columns import BRONZE_COLUMNS
from msgq.lake.message_filter import MessageFilter

_LITERAL_PATTERN = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_SAFE_LITERAL_PATTERN = re.compile(r"[\w./:~@+ -]+")
_SCAN_PATTERN = re.compile(r"^Location: \w+ \[(?P<location>.*)\]$(?P<details>(?:\n[A-Z]\w+: .*$)*)", re.MULTILINE)
_PUSHED_FILTERS_PATTERN = re.compile(r"^PushedFilters: \[(.*)\]$", re.MULTILINE)
_NUMBER_PATTERN = re.compile(r"-?\d+")
_MISSING_VALUE_PATTERN = re.compile(r"[\[(,],|,[\])]|\[\]")  # an empty text leaves nothing between two marks
_NESTED_COLUMN = "("  # of a filter that contains other filters
_TOKEN_PATTERN = re.compile(r"(?P<name>[A-Z]\w*)\(|(?P<value>[\w./:~@+-]+)|(?P<mark>, |[,()\[\]])")


class _PushedFilter(NamedTuple):
    """A filter as Spark writes it, for example LessThan(log_time,5): a name, a column and values."""

    name: str
    column: str
    values: list[str]


def find_scan_filters(query: str, plan: str, location: str) -> list[MessageFilter] | None:
    """Return the filter of each scan of a table in a plan.

    Parameters
    ----------
    query : the query of the plan.
    plan : output of EXPLAIN FORMATTED for the query, with a large `spark.sql.maxMetadataStringLength`.
    location : file that the plan reads in place of the table.

    Returns
    -------
    filters : one for each scan; None: the plan has no scan of the table, or the query has a literal with characters
        that could be misread.
    """
    literals = {single or double for single, double in _LITERAL_PATTERN.findall(query)}
    if "\\" in query or not all(map(_SAFE_LITERAL_PATTERN.fullmatch, literals)):
        return None
    scans = [match["details"] for match in _SCAN_PATTERN.finditer(plan) if location in match["location"]]
    if not scans or plan.count(location) != len(scans):
        return None
    return [_read_scan_filter(details, literals) for details in scans]


def _read_scan_filter(details: str, literals: Collection[str]) -> MessageFilter:
    match = _PUSHED_FILTERS_PATTERN.search(details)
    filters = _parse_filters(match[1]) if match and not _MISSING_VALUE_PATTERN.search(match[1]) else None
    combined = MessageFilter()
    for pushed in filters or ():
        if not all(_is_known_value(value, pushed, literals) for value in pushed.values):
            return MessageFilter()
        combined = _add_pushed_filter(combined, pushed)
    return combined


def _is_known_value(value: str, pushed: _PushedFilter, literals: Collection[str]) -> bool:
    is_column = pushed.column == _NESTED_COLUMN and value in BRONZE_COLUMNS.names
    return is_column or value in literals or _NUMBER_PATTERN.fullmatch(value) is not None


def _add_pushed_filter(combined: MessageFilter, pushed: _PushedFilter) -> MessageFilter:
    """Return a filter with one more condition; conditions of other forms change nothing."""
    endpoints, start, end = combined.endpoints, combined.start_time, combined.end_time
    if pushed.column == "endpoint" and (
        pushed.name == "In" or (pushed.name in _EQUALITY_FILTERS and len(pushed.values) == 1)
    ):
        named = frozenset(pushed.values)
        endpoints = named if endpoints is None else endpoints & named
    if pushed.column == "log_time" and pushed.name in _TIME_FILTERS and _is_integer(pushed.values):
        low, high = _TIME_FILTERS[pushed.name](int(pushed.values[0]))
        start = low if start is None else start if low is None else max(start, low)
        end = high if end is None else end if high is None else min(end, high)
    return MessageFilter(endpoints, start, end)


_EQUALITY_FILTERS = ("EqualTo", "EqualNullSafe")
#: The first wanted log_time and the first that is no longer wanted, by the name of a filter.
_TIME_FILTERS: dict[str, Callable[[int], tuple[int | None, int | None]]] = {
    "EqualTo": lambda time: (time, time + 1),
    "EqualNullSafe": lambda time: (time, time + 1),
    "GreaterThan": lambda time: (time + 1, None),
    "GreaterThanOrEqual": lambda time: (time, None),
    "LessThan": lambda time: (None, time),
    "LessThanOrEqual": lambda time: (None, time + 1),
}


def _is_integer(values: list[str]) -> bool:
    return len(values) == 1 and _NUMBER_PATTERN.fullmatch(values[0]) is not None


def _parse_filters(text: str) -> list[_PushedFilter] | None:
    """Return the filters of a list like IsNotNull(endpoint), In(endpoint, [a,b]); None: the text is not such a list.

    A filter that contains others, such as Or, gets no column.
    """
    filters: list[_PushedFilter] = []
    depth, position = 0, 0
    while position < len(text):
        token = _TOKEN_PATTERN.match(text, position)
        if token is None:
            return None
        position = token.end()
        if token["name"]:
            if depth == 0:
                filters.append(_PushedFilter(token["name"], "", []))
            elif filters[-1].column != _NESTED_COLUMN:
                filters[-1] = filters[-1]._replace(column=_NESTED_COLUMN)
            depth += 1
        elif token["value"]:
            if depth == 0:
                return None
            filters[-1] = _add_argument(filters[-1], token["value"])
        elif token["mark"] == ")":
            depth -= 1
            if depth < 0:
                return None
    return filters if depth == 0 else None


def _add_argument(pushed: _PushedFilter, value: str) -> _PushedFilter:
    if pushed.column == "":
        return pushed._replace(column=value)
    return pushed._replace(values=[*pushed.values, value])
