"""Latency: from published to recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from msgq.spark.tables.rates import NS, window_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RANKS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def latency(messages: DataFrame, window_ns: int = NS) -> DataFrame:
    """Return percentiles of log_time - publish_time in each window of `window_ns` of log_time.

    Input: run, endpoint, log_time, publish_time. Messages whose two times are equal have no known latency (a recorder
    writes its own time where it knows no other) and do not count.

    Output: run, endpoint, time: the window's beginning, ns; messages; min, max, p50, p90, p99, p999: ns, negative where
    clocks disagree; sketch: a KLL sketch of bigint, which `kll_merge_agg_bigint` merges. Ranks are right to about 1 %.
    """
    late = F.col("log_time") - F.col("publish_time")
    known = messages.where(late != 0).select(
        "run", "endpoint", window_start("log_time", window_ns).alias("time"), late.alias("latency")
    )
    found = known.groupBy("run", "endpoint", "time").agg(
        F.count("*").alias("messages"),
        F.min("latency").alias("min"),
        F.max("latency").alias("max"),
        F.kll_sketch_agg_bigint("latency").alias("sketch"),
    )
    return _with_percentiles(found, "time")


def latency_totals(latency: DataFrame, *by: str) -> DataFrame:
    """Return the percentiles of each run, endpoint, and what else is named, by merging the sketches of windows.

    Input: what `latency` gives, perhaps with coarser values in run, endpoint, time. Output: the same columns, without
    time unless it is named. No message is looked at again.
    """
    found = latency.groupBy("run", "endpoint", *by).agg(
        F.sum("messages").alias("messages"),
        F.min("min").alias("min"),
        F.max("max").alias("max"),
        F.kll_merge_agg_bigint("sketch").alias("sketch"),
    )
    return _with_percentiles(found, *by)


def _with_percentiles(found: DataFrame, *more: str) -> DataFrame:
    ranks = F.array(*map(F.lit, RANKS.values()))
    listed = found.withColumn("listed", F.kll_sketch_get_quantile_bigint("sketch", ranks))
    percentiles = [F.col("listed")[i].alias(name) for i, name in enumerate(RANKS)]
    return listed.select("run", "endpoint", *more, "messages", "min", "max", *percentiles, "sketch")
