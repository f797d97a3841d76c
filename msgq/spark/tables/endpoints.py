"""Endpoints, and their publishers: what there is of each, in one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from msgq.spark.tables.latency import RANKS, latency_totals, of_windows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NEWEST = ("host", "encoding", "schema", "kind")
_PUBLISHER = ("run", "endpoint", "publisher")


def endpoints(windows: DataFrame, gaps: DataFrame, overwrites: DataFrame | None = None) -> DataFrame:
    """Return a row for each endpoint of each run.

    Input: `windows`, `gaps` and `overwrites` as the functions of these names make them; without the last one nothing
    was overwritten.

    Output: run, host, endpoint, encoding, schema (of the newest message); messages; bytes, bytes_max: of payloads;
    first_time, last_time: log_time, ns; rate: messages a second, NULL for a single one; epochs; lost; gaps: how many;
    kind (of the newest message); publishers: how many names of them there are, 0 where the endpoint has one only;
    overwritten: values of state that were never recorded.
    """
    found = windows.groupBy("run", "endpoint").agg(
        *(F.max_by(name, "last_time").alias(name) for name in _NEWEST),
        *_totals(),
        F.countDistinct("epoch").alias("epochs"),
        F.countDistinct("publisher").alias("publishers"),
    )
    missing = gaps.groupBy("run", "endpoint").agg(F.sum("lost").alias("lost"), F.count("*").alias("gaps"))
    found = found.join(missing, ["run", "endpoint"], "left")
    if overwrites is None:
        found = found.withColumn("overwritten", F.lit(0))
    else:
        passed = overwrites.groupBy("run", "endpoint").agg(F.sum("overwritten").alias("overwritten"))
        found = found.join(passed, ["run", "endpoint"], "left")
    return found.select(
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
        _rate().alias("rate"),
        "epochs",
        F.coalesce("lost", F.lit(0)).alias("lost"),
        F.coalesce("gaps", F.lit(0)).alias("gaps"),
        "kind",
        "publishers",
        F.coalesce("overwritten", F.lit(0)).cast("long").alias("overwritten"),
    )


def publishers(windows: DataFrame) -> DataFrame:
    """Return a row for each publisher of each endpoint that may have several, of each run.

    Input: `windows` as the function of this name makes them. What was lost is not here: the publishers of a channel
    number together, and nobody knows whose a message was that is missing.

    Output: run, endpoint, publisher; messages; bytes, bytes_max: of payloads; first_time, last_time: log_time, ns;
    rate: messages a second, NULL for a single one; then of log_time - publish_time known: how many messages have it;
    min, max, p50, p90, p99, p999: ns, NULL where none has; sketch.
    """
    named = windows.where(F.col("publisher").isNotNull())
    found = named.groupBy(*_PUBLISHER).agg(
        *_totals(),
        F.sum("known").alias("known"),
    )
    late = latency_totals(of_windows(named), "publisher").drop("messages")
    counted = ("messages", "bytes", "bytes_max", "first_time", "last_time", _rate().alias("rate"), "known")
    joined = found.join(late, list(_PUBLISHER), "left")
    return joined.select(*_PUBLISHER, *counted, "min", "max", *RANKS, "sketch")


def _totals() -> list[Column]:
    """Return what windows have counted, of all of them together."""
    return [
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.max("bytes_max").alias("bytes_max"),
        F.min("first_time").alias("first_time"),
        F.max("last_time").alias("last_time"),
    ]


def _rate() -> Column:
    """Return messages a second: NULL for a single one."""
    seconds = (F.col("last_time") - F.col("first_time")) / 1e9
    return F.when(seconds > 0, (F.col("messages") - 1) / seconds)
