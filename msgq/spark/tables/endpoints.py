"""Endpoints: what there is of each, in one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEWEST = ("host", "encoding", "schema")


def endpoints(windows: DataFrame, gaps: DataFrame) -> DataFrame:
    """Return a row for each endpoint of each run.

    Input: `windows` and `gaps` as the functions of these names make them.

    Output: run, host, endpoint, encoding, schema (of the newest message); messages; bytes, bytes_max: of payloads;
    first_time, last_time: log_time, ns; rate: messages a second, NULL for a single one; epochs; lost; gaps: how many.
    """
    seconds = (F.col("last_time") - F.col("first_time")) / 1e9
    found = windows.groupBy("run", "endpoint").agg(
        *(F.max_by(name, "last_time").alias(name) for name in _NEWEST),
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.max("bytes_max").alias("bytes_max"),
        F.min("first_time").alias("first_time"),
        F.max("last_time").alias("last_time"),
        F.countDistinct("epoch").alias("epochs"),
    )
    missing = gaps.groupBy("run", "endpoint").agg(F.sum("lost").alias("lost"), F.count("*").alias("gaps"))
    return found.join(missing, ["run", "endpoint"], "left").select(
        "run",
        "host",
        "endpoint",
        "encoding",
        "schema",
        "messages",
        "bytes",
        "bytes_max",
        "first_time",
        "last_time",
        F.when(seconds > 0, (F.col("messages") - 1) / seconds).alias("rate"),
        "epochs",
        F.coalesce("lost", F.lit(0)).alias("lost"),
        F.coalesce("gaps", F.lit(0)).alias("gaps"),
    )
