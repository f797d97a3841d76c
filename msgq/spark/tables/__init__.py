"""Functions that compute tables from messages, from DataFrame to DataFrame.

The input is *messages*, with the columns of ``format("msgq")``, or tables that the docstring names. The functions start
no Spark job. Times and durations are ``long`` nanoseconds, and times are since the epoch. Tables about one run of a
recorder have the column `run`, so one table can contain many runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgq.spark.tables.checks import CheckThresholds, checks
from msgq.spark.tables.decoding import decode_errors, silver
from msgq.spark.tables.duplicates import find_duplicates
from msgq.spark.tables.endpoints import endpoints, publishers
from msgq.spark.tables.frames import frames
from msgq.spark.tables.hops import hops
from msgq.spark.tables.latency import latency, latency_summary
from msgq.spark.tables.overwrites import overwrites
from msgq.spark.tables.queues import queue_deliveries, queue_summary, queue_windows
from msgq.spark.tables.sequence_gaps import sequence_gaps
from msgq.spark.tables.stages import stage_summary, stages
from msgq.spark.tables.throughput import dropouts, throughput
from msgq.spark.tables.time_windows import NS, coarsen_windows, traffic_windows
from msgq.spark.tables.timestamps import with_timestamps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "NS",
    "CheckThresholds",
    "checks",
    "coarsen_windows",
    "decode_errors",
    "dropouts",
    "endpoints",
    "find_duplicates",
    "frames",
    "gold",
    "hops",
    "latency",
    "latency_summary",
    "overwrites",
    "publishers",
    "queue_deliveries",
    "queue_summary",
    "queue_windows",
    "sequence_gaps",
    "silver",
    "stage_summary",
    "stages",
    "throughput",
    "traffic_windows",
    "with_timestamps",
]


def gold(messages: DataFrame, window_ns: int = NS, thresholds: CheckThresholds | None = None) -> dict[str, DataFrame]:
    """Return all gold tables by name, as in a lake.

    Args:
        window_ns: minimum width of windows.
        thresholds: thresholds of `checks`.
    """
    tables: dict[str, DataFrame] = {}
    seconds = traffic_windows(messages)
    tables["traffic_windows"] = coarsen_windows(seconds, window_ns)
    tables["sequence_gaps"] = sequence_gaps(messages)
    tables["overwrites"] = overwrites(messages)
    tables["endpoints"] = endpoints(tables["traffic_windows"], tables["sequence_gaps"], tables["overwrites"])
    tables["publishers"] = publishers(tables["traffic_windows"])
    tables["throughput"] = throughput(tables["traffic_windows"])
    tables["dropouts"] = dropouts(seconds)
    tables["latency"] = latency(tables["traffic_windows"])
    tables["latency_summary"] = latency_summary(tables["latency"])
    tables["hops"] = hops(messages)
    tables["stages"] = coarsen_windows(stages(messages), window_ns)
    tables["stage_summary"] = stage_summary(tables["stages"])
    tables["queue_deliveries"] = queue_deliveries(messages)
    tables["queue_windows"] = coarsen_windows(queue_windows(tables["queue_deliveries"]), window_ns)
    tables["queue_summary"] = queue_summary(tables["queue_windows"])
    tables["frames"] = frames(messages)
    tables["checks"] = checks(tables, thresholds)
    return tables
