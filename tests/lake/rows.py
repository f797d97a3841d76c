"""Messages made by hand, as workers write them; and rows of tables, to be compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from msgq.lake.message_columns import INGEST_COLUMNS


def message(endpoint: str, sequence: int, log_time: int, **columns: Any) -> dict[str, Any]:
    """Return a row with what is not said made up."""
    made = {"run": "r", "host": "h", "endpoint": endpoint, "epoch": 1, "sequence": sequence, "publish_time": log_time}
    return made | {"log_time": log_time, "encoding": "", "kind": "topic", "data": b"data"} | columns


def batch(rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), INGEST_COLUMNS)


def sorted_rows(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table, in an order."""
    return in_order(row.values() for row in table.select(list(columns) or table.column_names).to_pylist())


def in_order(rows: Iterable[Iterable[Any]]) -> list[tuple[Any, ...]]:
    comparable = (tuple(map(_comparable, row)) for row in rows)
    return sorted(comparable, key=lambda row: [(value is not None, value) for value in row])


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(map(_comparable, value.values()))
    return tuple(map(_comparable, value)) if isinstance(value, list) else value
