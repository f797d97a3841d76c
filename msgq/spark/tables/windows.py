"""Windows: what came of each endpoint in each stretch of time; other tables are made of it, not of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from msgq.kinds import RECORDS
from msgq.spark.tables.deduplication import payload_bytes
from msgq.spark.tables.sources import kind, said
from msgq.units import NS_PER_S

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NS = NS_PER_S  # of the public names


def window_start(time: str, window_ns: int) -> Column:
    """Return the beginning of the window in which a time is: whole numbers of windows since the epoch, ns."""
    return F.col(time) - F.pmod(F.col(time), F.lit(window_ns))


def windows(messages: DataFrame, window_ns: int = NS) -> DataFrame:
    """Return what came in each window of `window_ns` of log_time.

    Input: messages. Output, a row for each run, endpoint, epoch, host, encoding, schema, kind, publisher and time, the
    window's beginning, ns: these, publisher NULL where an endpoint has one only; messages; bytes, bytes_max: of
    payloads; first_time, last_time: log_time, ns; of log_time - publish_time, ns, where the two differ (a recorder that
    does not know when a message was published writes its own time twice), but not of records, whose values may have
    been there for hours when the recorder looked: known: how many messages; min, max: NULL where known is 0; sketch: a
    KLL sketch of bigint.
    """
    size = payload_bytes(messages)
    late = F.col("log_time") - F.col("publish_time")
    known = F.when((late != 0) & (kind(messages) != RECORDS.name), late)
    return messages.groupBy(
        *("run", "endpoint", "epoch", "host", "encoding", "schema"),
        kind(messages).alias("kind"),
        said(messages, "publisher").alias("publisher"),
        window_start("log_time", window_ns).alias("time"),
    ).agg(
        F.count("*").alias("messages"),
        F.sum(size).alias("bytes"),
        F.max(size).alias("bytes_max"),
        F.min("log_time").alias("first_time"),
        F.max("log_time").alias("last_time"),
        F.count(known).alias("known"),
        F.min(known).alias("min"),
        F.max(known).alias("max"),
        F.kll_sketch_agg_bigint(known).alias("sketch"),
    )
