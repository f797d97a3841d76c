"""Gaps: where messages are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TURN = 1 << 32  # a sequence has 32 bits
_HALF = 1 << 31


def gaps(messages: DataFrame) -> DataFrame:
    """Return the places at which sequences jump.

    Input: run, endpoint, epoch, sequence, log_time. Duplicates and messages out of order make no gap.

    Output, a row for each gap: run, endpoint, epoch; before, after: the sequences around it; lost: messages between
    them; from_time, to_time: log_time around it, ns.

    The numbers of an epoch are unrolled first: a step of less than half a turn of the 32 bits goes on, a larger one is
    a step back. A gap of 2**31 messages or more within an epoch is not seen. Epoch 0 (a file that numbers no epochs)
    counts as one epoch, unless its sequence never leaves 0.
    """
    epoch = Window.partitionBy("run", "endpoint", "epoch")
    recorded = epoch.orderBy("log_time", "sequence")
    counted = epoch.orderBy("number", "log_time")
    step = F.pmod(F.col("sequence") - F.lag("sequence").over(recorded), F.lit(_TURN))
    signed = F.when(step < _HALF, step).otherwise(step - _TURN)
    unrolled = (
        messages.select("run", "endpoint", "epoch", "sequence", "log_time")
        .withColumn("step", F.coalesce(signed, F.col("sequence")))
        .withColumn("number", F.sum("step").over(recorded.rowsBetween(Window.unboundedPreceding, 0)))
    )
    before = unrolled.select(
        "run", "endpoint", "epoch", "number",
        F.lag("number").over(counted).alias("former"),
        F.lag("log_time").over(counted).alias("from_time"),
        F.col("log_time").alias("to_time"),
    )  # fmt: skip
    return before.where(F.col("number") - F.col("former") > 1).select(
        "run", "endpoint", "epoch",
        F.pmod("former", F.lit(_TURN)).alias("before"),
        F.pmod("number", F.lit(_TURN)).alias("after"),
        (F.col("number") - F.col("former") - 1).alias("lost"),
        "from_time", "to_time",
    )  # fmt: skip
