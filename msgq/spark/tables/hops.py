"""Hops: which endpoint's messages led to which, and how long that took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from msgq import timing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COLUMNS = "run string, parent string, endpoint string, messages long, p50 long, p99 long, max long, from_origin long"


def hops(messages: DataFrame) -> DataFrame:
    """Return the tree of endpoints through which messages went from their origin.

    Input: run, endpoint, publish_time, and origin_time: when that happened of which the message is a consequence, ns;
    NULL or 0 where nobody knows. Messages of one run with the same origin_time are one chain; each one's parent is the
    message of another endpoint that was published last before it. Without a column origin_time there are no hops, and
    the table is empty: nothing else in a message says what caused it. Timing topics are left out: what a stage says of
    a message leads to nothing.

    Output, a row for each edge: run; parent: NULL at the root; endpoint; messages; p50, p99, max: from the parent's
    publish_time to the message's, ns; from_origin: median from origin_time, ns.
    """
    if "origin_time" not in messages.columns:
        return messages.sparkSession.createDataFrame([], _COLUMNS)
    chain = Window.partitionBy("run", "origin_time").orderBy("publish_time", "endpoint")
    leads = (F.col("origin_time") > 0) & ~F.col("endpoint").startswith(timing.PREFIX)
    known = messages.where(leads).select("run", "endpoint", "publish_time", "origin_time")
    linked = known.select(
        "run",
        "endpoint",
        F.lag("endpoint").over(chain).alias("parent"),
        (F.col("publish_time") - F.lag("publish_time").over(chain)).alias("hop"),
        (F.col("publish_time") - F.col("origin_time")).alias("age"),
    )
    edges = linked.where(F.col("parent").isNull() | (F.col("parent") != F.col("endpoint")))
    return edges.groupBy("run", "parent", "endpoint").agg(
        F.count("*").alias("messages"),
        F.percentile_approx("hop", 0.5).alias("p50"),
        F.percentile_approx("hop", 0.99).alias("p99"),
        F.max("hop").alias("max"),
        F.percentile_approx("age", 0.5).alias("from_origin"),
    )
