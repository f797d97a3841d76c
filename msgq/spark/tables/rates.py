"""Rates, and silences: how often each endpoint speaks, and when it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from msgq.spark.tables.bronze import payload_bytes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NS = 1_000_000_000


def window_start(time: str, window_ns: int) -> Column:
    """Return the beginning of the window in which a time is: whole numbers of windows since the epoch, ns."""
    return F.col(time) - F.pmod(F.col(time), F.lit(window_ns))


def rates(messages: DataFrame, window_ns: int = NS) -> DataFrame:
    """Return how much came in each window of `window_ns` of log_time.

    Input: run, endpoint, log_time, data. Output: run, endpoint, time: the window's beginning, ns; messages; bytes: of
    payloads; rate: messages a second. A window without messages has no row.
    """
    return (
        messages.groupBy("run", "endpoint", window_start("log_time", window_ns).alias("time"))
        .agg(F.count("*").alias("messages"), F.sum(payload_bytes(messages)).alias("bytes"))
        .withColumn("rate", F.col("messages") * (NS / window_ns))
    )


def silences(messages: DataFrame, silence_ns: int = NS) -> DataFrame:
    """Return when nothing came of an endpoint for `silence_ns` or more, between messages that came.

    Input: run, endpoint, log_time. Output: run, endpoint, from_time, to_time: log_time of the last message before and
    the first one after, ns; silence: between them, ns.

    Two messages that are so far apart are never in one window of `silence_ns`: only the ends of windows are compared.
    """
    windows = messages.groupBy("run", "endpoint", window_start("log_time", max(1, silence_ns)).alias("window")).agg(
        F.min("log_time").alias("to_time"), F.max("log_time").alias("last")
    )
    before = F.lag("last").over(Window.partitionBy("run", "endpoint").orderBy("window"))
    return (
        windows.select("run", "endpoint", before.alias("from_time"), "to_time")
        .withColumn("silence", F.col("to_time") - F.col("from_time"))
        .where(F.col("silence") >= silence_ns)
    )
