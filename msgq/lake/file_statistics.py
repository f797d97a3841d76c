"""Statistics of a Parquet file for the Delta log.

delta-rs takes a column without bounds in a file with bounds of other columns for a column without values, and then
skips the file. Therefore a file has the bounds of all columns with values, or of none.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow.parquet as pq

_TEXT_LENGTH_MAX = 64  # characters; of a longer text, the log has a prefix
_LARGEST_CHARACTER = chr(0x10FFFF)
_LAST_BEFORE_SURROGATES, _FIRST_AFTER_SURROGATES = chr(0xD7FF), chr(0xE000)

ColumnBounds = dict[str, tuple[Any, Any]]


def collect_statistics(about: pq.FileMetaData) -> tuple[ColumnBounds, dict[str, int]]:
    """Return the smallest and largest value of each column, and the number of NULLs of each column.

    Columns of bytes and nested columns have no bounds. The bounds of a long text are a prefix, and a prefix whose last
    character is replaced by the next character.
    """
    bounds: ColumnBounds = {}
    null_counts: dict[str, int] = {}
    is_complete = True
    for index in range(about.num_columns):
        column = about.schema.column(index)
        groups = [about.row_group(group).column(index) for group in range(about.num_row_groups)]
        statistics = [group.statistics for group in groups]
        if "." in column.path or any(found is None or not found.has_null_count for found in statistics):
            is_complete = is_complete and ("." in column.path or _is_bytes(column))
            continue
        null_counts[column.path] = sum(found.null_count for found in statistics)
        filled = [found for found in statistics if found.num_values]
        if _is_bytes(column) or not filled:
            continue
        found_bounds = _merge_bounds(filled)
        is_complete = is_complete and found_bounds is not None
        if found_bounds is not None:
            bounds[column.path] = found_bounds
    return bounds if is_complete else {}, null_counts


def _is_bytes(column: pq.ColumnSchema) -> bool:
    return bool(column.physical_type == "BYTE_ARRAY" and column.logical_type.type != "STRING")


def _merge_bounds(statistics: list[pq.Statistics]) -> tuple[Any, Any] | None:
    """Return the bounds of several row groups; None: a row group has none, or JSON has no such number."""
    if not all(found.has_min_max for found in statistics):
        return None
    low, high = min(found.min for found in statistics), max(found.max for found in statistics)
    if isinstance(low, str):
        upper = high if len(high) <= _TEXT_LENGTH_MAX else _shorten_upper_bound(high)
        return None if upper is None else (low[:_TEXT_LENGTH_MAX], upper)
    if isinstance(low, float) and not (math.isfinite(low) and math.isfinite(high)):
        return None
    return low, high


def _shorten_upper_bound(text: str) -> str | None:
    """Return a short text above a long one; None: each character of the prefix is the largest character."""
    prefix = text[:_TEXT_LENGTH_MAX].rstrip(_LARGEST_CHARACTER)
    if not prefix:
        return None
    last = prefix[-1]
    following = _FIRST_AFTER_SURROGATES if last == _LAST_BEFORE_SURROGATES else chr(ord(last) + 1)
    return prefix[:-1] + following
