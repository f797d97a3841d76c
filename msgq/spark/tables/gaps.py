"""Gaps: where messages are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

_TURN = 1 << 32  # a sequence has 32 bits
_HALF = 1 << 31
_SPAN_NS = 60_000_000_000  # of log_time for one task: 2**31 messages in a minute there will not be
_EPOCH = ("run", "endpoint", "epoch")


def gaps(messages: DataFrame) -> DataFrame:
    """Return the places at which sequences jump.

    Input: run, endpoint, epoch, sequence, log_time. Duplicates and messages out of order make no gap.

    Output, a row for each gap: run, endpoint, epoch; before, after: the sequences around it; lost: messages between
    them; from_time, to_time: log_time around it, ns.

    The numbers of an epoch are unrolled first: a step of less than half a turn of the 32 bits goes on, a larger one is
    a step back. A gap of 2**31 messages or more within an epoch is not seen. Epoch 0 (a file that numbers no epochs)
    counts as one epoch, unless its sequence never leaves 0.

    Each minute of an epoch becomes its islands, stretches without a gap, by itself, so that one endpoint with nearly
    all messages is the work of many tasks. What is between islands is a gap, if no island of another minute covers it.
    """
    whole = Window.partitionBy(*_EPOCH)
    turned = F.sum(_step("base", whole.orderBy("span", "island"))).over(whole.orderBy("span", "island"))
    placed = (
        _islands(messages)
        .withColumn("turned", F.first("base").over(whole.orderBy("span", "island")) + F.coalesce(turned, F.lit(0)))
        .withColumn("low", F.col("turned") + F.col("first.number"))
        .withColumn("end", F.struct((F.col("turned") + F.col("last.number")).alias("high"), "last.log_time"))
    )
    earlier = whole.orderBy("low", "end").rowsBetween(Window.unboundedPreceding, -1)
    found = placed.withColumn("former", F.max("end").over(earlier))
    return found.where(F.col("low") - F.col("former.high") > 1).select(
        *_EPOCH,
        F.pmod("former.high", F.lit(_TURN)).alias("before"),
        F.pmod("low", F.lit(_TURN)).alias("after"),
        (F.col("low") - F.col("former.high") - 1).alias("lost"),
        F.col("former.log_time").alias("from_time"), F.col("first.log_time").alias("to_time"),
    )  # fmt: skip


def _islands(messages: DataFrame) -> DataFrame:
    """Return the stretches without a gap of each minute: span, island; base: the sequence that came first in the
    span; first, last: number, counted from there, and log_time.
    """
    span = Window.partitionBy(*_EPOCH, "span")
    recorded = span.orderBy("log_time", "sequence")
    counted = span.orderBy("number", "log_time")
    numbered = (
        messages.select(*_EPOCH, "sequence", "log_time", F.expr(f"log_time div {_SPAN_NS}").alias("span"))
        .withColumn("base", F.first("sequence").over(recorded))
        .withColumn("number", F.coalesce(F.sum(_step("sequence", recorded)).over(recorded), F.lit(0)))
    )
    jumps = (F.col("number") - F.lag("number").over(counted) > 1).cast("int")
    marked = numbered.withColumn("jump", jumps).withColumn("island", F.sum("jump").over(counted))
    return marked.groupBy(*_EPOCH, "span", F.coalesce("island", F.lit(0)).alias("island")).agg(
        F.first("base").alias("base"),
        F.min(F.struct("number", "log_time")).alias("first"),
        F.max(F.struct("number", "log_time")).alias("last"),
    )


def _step(sequence: str, order: WindowSpec) -> Column:
    """Return how far a sequence went from the row before: less than half a turn forwards, else backwards."""
    step = F.pmod(F.col(sequence) - F.lag(sequence).over(order), F.lit(_TURN))
    return F.when(step < _HALF, step).otherwise(step - _TURN)
