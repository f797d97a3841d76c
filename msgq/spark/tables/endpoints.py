"""Totals of endpoints, and of their publishers."""

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

    Input: `traffic_windows` or `coarsen_windows`, `sequence_gaps` and `overwrites`, from the functions of these names.
    Without `overwrites`, the column overwritten is 0.

    Output:

    - run, host, endpoint, encoding.
    - schema, kind: of the newest message.
    - messages: number of messages.
    - size_bytes, max_size_bytes: bytes of all payloads, and of the largest one.
    - start_time, end_time: log_time of the first and the last message, ns.
    - rate: messages per second; NULL for a single message.
    - epochs: number of epochs.
    - lost, sequence_gaps: number of lost messages, and of gaps.
    - publishers: number of publisher names; 0 if the endpoint has only one publisher.
    - overwritten: number of values of state that were never recorded.
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
    none = pa.schema(
        [("run", pa.string()), ("endpoint", pa.string()), ("lost", pa.int64()), ("overwritten", pa.int64())]
    ).empty_table()
    return arrow.compute_endpoints(windows, none, none)


def publishers(windows: DataFrame) -> DataFrame:
    """Return a row for each publisher of each run, for endpoints that may have several publishers.

    Input: `traffic_windows` or `coarsen_windows`, from the functions of these names. Losses are not included, because
    the publishers of a channel share a numbering, and the publisher of a missing message is unknown.

    Output:

    - run, endpoint, publisher.
    - messages: number of messages.
    - size_bytes, max_size_bytes: bytes of all payloads, and of the largest one.
    - start_time, end_time: log_time of the first and the last message, ns.
    - rate: messages per second; NULL for a single message.
    - count: number of messages with a latency (log_time - publish_time).
    - min, max, p50, p90, p99, p999: latency, ns; NULL if count is 0.
    - histogram: histogram of the latency; see `msgq.lake.metrics.histograms`.
    """
    return map_arrow_groups(windows, _ENDPOINT_KEY, arrow.compute_publishers, arrow.PUBLISHERS_SCHEMA)
