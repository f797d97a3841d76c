"""Stages: how long messages waited for a part of a program, how long it worked on them, how old they were then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from msgq import timing
from msgq.spark.tables.spreads import merged, spreads, with_percentiles
from msgq.spark.tables.windows import NS, window_start

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DURATIONS = ("wait", "work", "age")
_TOPIC = rf"\A{timing.PREFIX}([^:]*):([^:]*)\z"  # of Java


def stages(messages: DataFrame, window_ns: int = NS) -> DataFrame:
    """Return what stages said on their timing topics in each window of `window_ns` of log_time.

    Input: run, endpoint, log_time, data. Of each record, whose times must be possible: `wait` is from sent to received,
    `work` from received to publish_time, `age` from origin_time to publish_time. A message of which nobody told when it
    was sent has no wait, one without an origin no age.

    Output: run; stage; endpoint: whose messages it handled; time: the window's beginning, ns; messages; malformed:
    records of another size, or with times that cannot be; for each of wait, work, age: wait_known: how many messages
    have it; wait_p50, wait_p99, wait_max: ns, NULL where none has; wait_sketch: a KLL sketch of bigint. Ranks are right
    to about 1 %.
    """
    topic = F.col("endpoint")
    said = messages.where(topic.startswith(timing.PREFIX) & topic.rlike(_TOPIC)).select(  # files know how names begin
        "run",
        _unquoted(F.regexp_extract("endpoint", _TOPIC, 1)).alias("stage"),
        _unquoted(F.regexp_extract("endpoint", _TOPIC, 2)).alias("endpoint"),
        window_start("log_time", window_ns).alias("time"),
        *(_time(number).alias(name) for number, name in enumerate(timing.FIELDS)),
    )
    makes_sense = F.expr("received > 0 AND publish_time >= received AND sent >= 0 AND origin_time >= 0")
    known = said.withColumn("whole", F.coalesce(makes_sense, F.lit(False))).select(
        *("run", "stage", "endpoint", "time", "whole"),
        F.expr("CASE WHEN whole AND sent > 0 THEN received - sent END").alias("wait"),
        F.expr("CASE WHEN whole THEN publish_time - received END").alias("work"),
        F.expr("CASE WHEN whole AND origin_time > 0 THEN publish_time - origin_time END").alias("age"),
    )
    found = known.groupBy("run", "stage", "endpoint", "time").agg(
        F.count_if("whole").alias("messages"),
        F.count_if(~F.col("whole")).alias("malformed"),
        *spreads(DURATIONS),
    )
    return found.select("run", "stage", "endpoint", "time", "messages", "malformed", *with_percentiles(DURATIONS))


def stage_totals(stages: DataFrame, *by: str) -> DataFrame:
    """Return the same of each run, stage, endpoint, and what else is named, by merging sketches.

    Input: what `stages` gives, perhaps with coarser values in run, stage, endpoint, time. Output: the same columns,
    without time unless it is named.
    """
    found = stages.groupBy("run", "stage", "endpoint", *by).agg(
        F.sum("messages").alias("messages"),
        F.sum("malformed").alias("malformed"),
        *merged(DURATIONS),
    )
    return found.select("run", "stage", "endpoint", *by, "messages", "malformed", *with_percentiles(DURATIONS))


def _unquoted(name: Column) -> Column:
    """As `timing.timed` does it."""
    for sign, written in reversed(timing.QUOTED):
        name = F.replace(name, F.lit(written), F.lit(sign))
    return name


def _time(number: int) -> Column:
    """Return a time of a record: NULL where the record has another size. Spark reads numbers from text only."""
    digits = [f"substr(hex(data), {16 * number + 2 * byte + 1}, 2)" for byte in reversed(range(8))]
    size = f"octet_length(data) = {timing.RECORD_BYTES}"
    return F.expr(f"CASE WHEN {size} THEN CAST(conv(concat({', '.join(digits)}), 16, -10) AS BIGINT) END")
