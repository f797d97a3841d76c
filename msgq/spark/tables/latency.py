"""Latency: time from publishing to recording."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from msgq.lake.metrics import time_windows as arrow
from msgq.spark.tables.arrow_functions import list_arrow_fields, map_arrow_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def latency(windows: DataFrame) -> DataFrame:
    """Return percentiles of log_time - publish_time for each endpoint and window.

    Input: `traffic_windows` or `coarsen_windows`, from the functions of these names. Records have no latency; see
    `traffic_windows`.

    Output:

    - run, endpoint.
    - window_start, window_ns: start and length of the window, ns.
    - messages: number of messages with a known latency, at least one.
    - min, max, p50, p90, p99, p999: latency, ns; negative if clocks disagree. Percentiles are at most 2.2 % off.
    - histogram: see `msgq.lake.metrics.histograms`.
    """
    return map_arrow_groups(windows, ("run", "endpoint"), arrow.compute_latency, arrow.LATENCY_SCHEMA)


def latency_summary(latency: DataFrame, *by: str) -> DataFrame:
    """Return the percentiles by run, endpoint, and the columns `by`, from added histograms.

    Input: result of `latency`. You may make run, endpoint and window_start coarser before. Output: the same columns,
    without window_start and window_ns unless they are in `by`.
    """
    columns = list_arrow_fields(latency, ["run", "endpoint", *by])
    kept = [
        field for field in arrow.LATENCY_SCHEMA if field.name not in ("run", "endpoint", "window_start", "window_ns")
    ]
    function = partial(_summarize_latency, by=by)
    return map_arrow_groups(latency, ("run", "endpoint"), function, pa.schema([*columns, *kept]))


def _summarize_latency(latency: pa.Table, by: tuple[str, ...]) -> pa.Table:
    return arrow.summarize_latency(latency, *by)
