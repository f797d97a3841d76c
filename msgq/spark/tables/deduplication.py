"""Bronze: the messages themselves, each of them once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: What makes a message the same one. A sequence has 32 bits and wraps; the time tells its turns apart.
KEY = ("run", "endpoint", "epoch", "sequence", "log_time")
_IDENTITY = "_identity"


def identity() -> Column:
    """Return what tells messages with one `KEY` apart: nothing, but in files that number nothing (epoch 0).

    Files of other programs often leave every sequence 0. There, equal bytes at one time are one message.
    """
    return F.when(F.col("epoch") == 0, F.xxhash64("data", "publish_time")).otherwise(F.lit(0))


def deduplicated(messages: DataFrame, known: DataFrame | None = None) -> DataFrame:
    """Return each message once, and none that `known` has.

    Input: the columns of messages; `known` the same ones. Output: the same columns. Which one of several equal
    messages is left is not said: they are equal. Shuffles by `KEY`.
    """
    keys = [*KEY, _IDENTITY]
    found = messages.withColumn(_IDENTITY, identity()).dropDuplicates(keys)
    if known is not None:
        there = known.withColumn(_IDENTITY, identity()).select(keys)
        same = [found[key].eqNullSafe(there[key]) for key in keys]
        condition = same[0]
        for one in same[1:]:
            condition = condition & one
        found = found.join(there, condition, "left_anti")
    return found.drop(_IDENTITY)


def payload_bytes(messages: DataFrame) -> Column:
    """Return the size of payloads: the column `bytes` where a lake has it, so that no payload needs to be read."""
    return F.col("bytes") if "bytes" in messages.columns else F.octet_length("data")
