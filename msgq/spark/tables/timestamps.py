"""Columns with Spark timestamps, in addition to the exact times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from msgq.lake.timestamp_columns import list_timestamp_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_timestamps(table: DataFrame, *times: str) -> DataFrame:
    """Return a table with an additional timestamp column for each time, at the end.

    Input: columns `times`, long, ns since the epoch. Without names: publish_time, log_time, origin_time, window_start,
    start_time, end_time, from_time, to_time, sent_time, delivered_time, ended_time, as far as present. Output: the same
    columns, then a timestamp for each time, in microseconds, rounded down: log_timestamp for log_time, window_timestamp
    for window_start.
    """
    stamps = list_timestamp_columns(table.columns, times)
    return table.withColumns({stamp: F.timestamp_micros(F.expr(f"{time} div 1000")) for stamp, time in stamps.items()})
