"""Rates, and silences: how often each endpoint speaks, and when it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from msgq.spark.tables.windows import NS, window_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rates(windows: DataFrame, window_ns: int = NS) -> DataFrame:
    """Return how much came in each window of `window_ns` of log_time.

    Input: `windows` as the function of this name makes them, of which whole numbers are in `window_ns`. Output: run,
    endpoint, time: the window's beginning, ns; messages; bytes: of payloads; rate: messages a second. A window without
    messages has no row.
    """
    return (
        windows.groupBy("run", "endpoint", window_start("time", window_ns).alias("time"))
        .agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))
        .withColumn("rate", F.col("messages") * (NS / window_ns))
    )


def silences(windows: DataFrame, silence_ns: int = NS) -> DataFrame:
    """Return when nothing came of an endpoint for `silence_ns` or more, between messages that came.

    Input: `windows` as the function of this name makes them, none longer than `silence_ns`: two messages that are so
    far apart are never in one of them. Output: run, endpoint, from_time, to_time: log_time of the last message before
    and the first one after, ns; silence: between them, ns.
    """
    order = Window.partitionBy("run", "endpoint").orderBy("time")
    return (
        windows.groupBy("run", "endpoint", "time")
        .agg(F.min("first_time").alias("to_time"), F.max("last_time").alias("last"))
        .select("run", "endpoint", F.lag("last").over(order).alias("from_time"), "to_time")
        .withColumn("silence", F.col("to_time") - F.col("from_time"))
        .where(F.col("silence") >= silence_ns)
    )
