"""Endpoints, and their publishers: what there is of each, in one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from msgq.lake.metrics import endpoints as arrow
from msgq.spark.tables.arrow_functions import map_arrow_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ENDPOINT_KEY = ["run", "endpoint"]
_LOSS_COLUMNS = ("lost", "sequence_gaps", "overwritten")


def endpoints(windows: DataFrame, gaps: DataFrame, overwrites: DataFrame | None = None) -> DataFrame:
    """Return a row for each endpoint of each run.

    Input: `traffic_windows` or `coarsen_windows`, `sequence_gaps` and `overwrites` as the functions of these names make
    them; without the last one nothing was overwritten.

    Output: run, host, endpoint, encoding, schema (of the newest message); messages; size_bytes, max_size_bytes: of
    payloads; start_time, end_time: log_time, ns; rate: messages a second, NULL for a single one; epochs; lost;
    sequence_gaps: count; kind (of the newest message); publishers: how many names of them there are, 0 where the
    endpoint has one only; overwritten: values of state that were never recorded.
    """
    table = map_arrow_groups(windows, _ENDPOINT_KEY, _compute_endpoints, arrow.ENDPOINTS_SCHEMA).drop(*_LOSS_COLUMNS)
    missing = gaps.groupBy(*_ENDPOINT_KEY).agg(F.sum("lost").alias("lost"), F.count("*").alias("sequence_gaps"))
    table = table.join(missing, _ENDPOINT_KEY, "left")
    if overwrites is None:
        table = table.withColumn("overwritten", F.lit(0))
    else:
        passed = overwrites.groupBy(*_ENDPOINT_KEY).agg(F.sum("overwritten").alias("overwritten"))
        table = table.join(passed, _ENDPOINT_KEY, "left")
    filled = {name: F.coalesce(name, F.lit(0)).cast("long") for name in _LOSS_COLUMNS}
    return table.withColumns(filled).select(*arrow.ENDPOINTS_SCHEMA.names)


def _compute_endpoints(windows: pa.Table) -> pa.Table:
    none = pa.schema([("run", pa.string()), ("endpoint", pa.string()), ("lost", pa.int64())]).empty_table()
    return arrow.compute_endpoints(windows, none, none)


def publishers(windows: DataFrame) -> DataFrame:
    """Return a row for each publisher of each endpoint that may have several, of each run.

    Input: `traffic_windows` or `coarsen_windows` as the functions of these names make them. What was lost is not here:
    the publishers of a channel number together, and nobody knows whose a message was that is missing.

    Output: run, endpoint, publisher; messages; size_bytes, max_size_bytes: of payloads; start_time, end_time: log_time,
    ns; rate: messages a second, NULL for a single one; then of log_time - publish_time: count: messages that have it;
    min, max, p50, p90, p99, p999: ns, NULL where none has; histogram: see `msgq.lake.metrics.histograms`.
    """
    return map_arrow_groups(windows, _ENDPOINT_KEY, arrow.compute_publishers, arrow.PUBLISHERS_SCHEMA)
