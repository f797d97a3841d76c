"""Latency: from published to recorded."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from msgq.lake.metrics import time_windows as arrow
from msgq.spark.tables.arrow_functions import list_arrow_fields, map_arrow_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def latency(windows: DataFrame) -> DataFrame:
    """Return percentiles of log_time - publish_time of each endpoint in each window.

    Input: `traffic_windows` or `coarsen_windows` as the functions of these names make them. Records have no latency:
    see there.

    Output: run, endpoint, window_start: ns; window_ns: its length; messages: whose latency is known,
    one or more; min, max, p50, p90, p99, p999: ns, negative where clocks disagree, right to 2.2 %; histogram: see
    `msgq.lake.metrics.histograms`.
    """
    return map_arrow_groups(windows, ("run", "endpoint"), arrow.compute_latency, arrow.LATENCY_SCHEMA)


def latency_summary(latency: DataFrame, *by: str) -> DataFrame:
    """Return the percentiles of each run, endpoint, and what else is named, by adding histograms.

    Input: what `latency` gives, perhaps with coarser values in run, endpoint, window_start. Output: the same columns,
    without window_start and window_ns unless they are named.
    """
    columns = list_arrow_fields(latency, ["run", "endpoint", *by])
    kept = [
        field for field in arrow.LATENCY_SCHEMA if field.name not in ("run", "endpoint", "window_start", "window_ns")
    ]
    function = partial(_summarize_latency, by=by)
    return map_arrow_groups(latency, ("run", "endpoint"), function, pa.schema([*columns, *kept]))


def _summarize_latency(latency: pa.Table, by: tuple[str, ...]) -> pa.Table:
    return arrow.summarize_latency(latency, *by)
