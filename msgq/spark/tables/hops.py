"""Hops: which endpoint's messages led to which, and how long that took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from msgq.common import timing
from msgq.lake.metrics import hops as arrow
from msgq.spark.source.arrow_batches import convert_to_spark_schema
from msgq.spark.tables.arrow_functions import map_arrow_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def hops(messages: DataFrame) -> DataFrame:
    """Return the tree of endpoints through which messages went from their origin.

    Input: run, endpoint, publish_time, and origin_time: when that happened of which the message is a consequence, ns;
    NULL or 0 where nobody knows. Messages of one run with the same origin_time are one chain; each one's parent is the
    message of another endpoint that was published last before it; of two at one time the names say the order. Without
    a column origin_time there are no hops, and the table is empty: nothing else in a message says what caused it.
    Timing topics are left out: what a stage says of a message leads to nothing.

    Output, a row for each edge: run; parent: NULL at the root; endpoint; messages; p50, p99, max: from the parent's
    publish_time to the message's, ns; e2e_p50: median from origin_time, ns. Percentiles are right to 2.2 %.
    """
    if "origin_time" not in messages.columns:
        return messages.sparkSession.createDataFrame([], convert_to_spark_schema(arrow.HOPS_SCHEMA))
    leads = (F.col("origin_time") > 0) & ~F.col("endpoint").startswith(timing.TIMING_TOPIC_PREFIX)
    known = messages.where(leads).select("run", "endpoint", "publish_time", "origin_time").dropna()
    edges = map_arrow_groups(known, ("run", "origin_time"), arrow.compute_edges, arrow.EDGES_SCHEMA)
    return map_arrow_groups(edges, ("run", "parent", "endpoint"), arrow.compute_hops, arrow.HOPS_SCHEMA)
