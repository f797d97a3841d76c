"""Hops: messages of one endpoint that led to messages of another, and the time between them."""

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
    """Return the tree of endpoints on the ways of messages from their origin.

    Input: run, endpoint, publish_time, and origin_time: time of the event that caused the message, ns; NULL or 0:
    unknown. Messages of one run with the same origin_time form a chain. The parent of a message is the previous message
    of another endpoint in its chain. At equal times, the names decide. Without a column origin_time the table is empty.
    Timing topics are excluded, because their records lead to no message.

    Output, a row for each edge: run; parent: NULL at the root; endpoint; messages; p50, p99, max: from the parent's
    publish_time to the message's, ns; e2e_p50: median time from origin_time, ns. Percentiles are at most 2.2 % off.
    """
    if "origin_time" not in messages.columns:
        return messages.sparkSession.createDataFrame([], convert_to_spark_schema(arrow.HOPS_SCHEMA))
    leads = (F.col("origin_time") > 0) & ~F.col("endpoint").startswith(timing.TIMING_TOPIC_PREFIX)
    timed_messages = messages.where(leads).select("run", "endpoint", "publish_time", "origin_time").dropna()
    edges = map_arrow_groups(timed_messages, ("run", "origin_time"), arrow.compute_edges, arrow.EDGES_SCHEMA)
    return map_arrow_groups(edges, ("run", "parent", "endpoint"), arrow.compute_hops, arrow.HOPS_SCHEMA)
