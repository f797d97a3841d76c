"""A Parquet file of a table, and its entries in the Delta log."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deltalake.transaction import AddAction, RemoveAction


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table.

    Attributes:
        path: path relative to the table's directory; ASCII letters, digits, and / . - _ = ~ only.
        size_bytes: number of bytes.
        partition_values: values of the partition columns as texts. The file itself does not contain them.
        row_count: number of rows.
        column_bounds: smallest and largest value of columns. A reader that needs other values skips the file.
        null_counts: number of NULLs of columns.
    """

    path: str
    size_bytes: int
    partition_values: Mapping[str, str | None]
    row_count: int
    column_bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    null_counts: Mapping[str, int] = field(default_factory=dict)


def make_add_action(file: DataFile) -> AddAction:
    """Return the entry of the Delta log that adds a file."""
    now = time.time_ns() // 1_000_000
    statistics: dict[str, Any] = {"numRecords": file.row_count}
    if file.null_counts:
        statistics["nullCount"] = dict(file.null_counts)
    if file.column_bounds:
        statistics["minValues"] = {name: bounds[0] for name, bounds in file.column_bounds.items()}
        statistics["maxValues"] = {name: bounds[1] for name, bounds in file.column_bounds.items()}
    text = json.dumps(statistics, ensure_ascii=False)  # delta-rs misreads escapes of characters above U+1FFFF
    return AddAction(file.path, file.size_bytes, dict(file.partition_values), now, True, text)


def make_remove_action(file: DataFile) -> RemoveAction:
    """Return the entry of the Delta log that removes a file."""
    now = time.time_ns() // 1_000_000
    return RemoveAction(file.path, True, now, file.size_bytes, dict(file.partition_values))
