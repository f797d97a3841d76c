"""Messages and series made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TEXTS = ("run", "host", "endpoint", "encoding", "schema")
_NUMBERS = ("epoch", "sequence", "publish_time", "log_time")
_TYPES = dict.fromkeys(_TEXTS, pa.string()) | dict.fromkeys(_NUMBERS, pa.int64()) | {"data": pa.binary()}
MESSAGES = pa.schema(_TYPES)
SECOND = 1_000_000_000


def message(endpoint: str | None, sequence: int | None, log_time: int | None, **columns: Any) -> dict[str, Any]:
    """Return a row with what is not said made up."""
    made = {
        "run": "r",
        "host": "h",
        "endpoint": endpoint,
        "epoch": 1,
        "sequence": sequence,
        "publish_time": log_time,
        "log_time": log_time,
        "encoding": "",
        "schema": None,
        "data": b"data",
    }
    return made | columns


def messages(spark: SparkSession, rows: Iterable[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), MESSAGES))


def sorted_rows(table: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows of these columns, sorted; NULL first."""
    rows = [tuple(row) for row in table.select(*columns).collect()]
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])
