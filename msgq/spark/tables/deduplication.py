"""Bronze: each message once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from msgq.lake.repeats import KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def repeats(keys: DataFrame) -> DataFrame:
    """Return which rows to leave out, so that each message is there once.

    Input: `msgq.lake.repeats.KEYS`. Output: part, row, of those that are not known whose message another row has: a
    known one, or one that comes first in the order of part and row. Shuffles by `KEY`; no payload is moved.
    """
    same = Window.partitionBy(*KEY, "identity").orderBy(F.col("known").desc(), "part", "row")
    ranked = keys.withColumn("_copy", F.row_number().over(same))
    return ranked.where(~F.col("known") & (F.col("_copy") > 1)).select("part", "row")


def payload_bytes(messages: DataFrame) -> Column:
    """Return the size of payloads: the column `bytes` where a lake has it, so that no payload needs to be read."""
    return F.col("bytes") if "bytes" in messages.columns else F.octet_length("data")
