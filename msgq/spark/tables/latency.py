"""Latency: from published to recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from msgq.spark.tables.windows import NS, window_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RANKS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def latency(windows: DataFrame, window_ns: int = NS) -> DataFrame:
    """Return percentiles of log_time - publish_time in each window of `window_ns` of log_time.

    Input: `windows` as the function of this name makes them, of which whole numbers are in `window_ns`. Records have no
    latency: see there.

    Output: run, endpoint, time: the window's beginning, ns; messages: whose latency is known, one or more; min, max,
    p50, p90, p99, p999: ns, negative where clocks disagree; sketch: a KLL sketch of bigint, which
    `kll_merge_agg_bigint` merges. Ranks are right to about 1 %.
    """
    return latency_totals(of_windows(windows).withColumn("time", window_start("time", window_ns)), "time")


def of_windows(windows: DataFrame) -> DataFrame:
    """Return the windows that `latency_totals` takes: those in which a latency is known, `messages` counting these."""
    return windows.where(F.col("known") > 0).withColumn("messages", F.col("known"))


def latency_totals(latency: DataFrame, *by: str) -> DataFrame:
    """Return the percentiles of each run, endpoint, and what else is named, by merging sketches.

    Input: what `latency` gives, perhaps with coarser values in run, endpoint, time. Output: the same columns, without
    time unless it is named.
    """
    found = latency.groupBy("run", "endpoint", *by).agg(
        F.sum("messages").alias("messages"),
        F.min("min").alias("min"),
        F.max("max").alias("max"),
        F.kll_merge_agg_bigint("sketch").alias("sketch"),
    )
    ranks = F.array(*map(F.lit, RANKS.values()))
    listed = found.withColumn("listed", F.kll_sketch_get_quantile_bigint("sketch", ranks))
    percentiles = [F.col("listed")[i].alias(name) for i, name in enumerate(RANKS)]
    return listed.select("run", "endpoint", *by, "messages", "min", "max", *percentiles, "sketch")
