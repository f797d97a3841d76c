"""Tables from recordings: pure functions from DataFrame to DataFrame, one contract each.

They take *messages*, the columns that ``format("msgq")`` reads, or what their own texts name, and start no job. Times
and durations are ``long`` nanoseconds, times since the epoch. What concerns one run of a recorder keeps its column
`run`, so that the tables of many runs are one table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgq.spark.tables.checks import Limits, checks
from msgq.spark.tables.decoding import silver, undecoded
from msgq.spark.tables.deduplication import repeats
from msgq.spark.tables.endpoints import endpoints, publishers
from msgq.spark.tables.gaps import gaps
from msgq.spark.tables.hops import hops
from msgq.spark.tables.latency import latency, latency_totals
from msgq.spark.tables.overwrites import overwrites
from msgq.spark.tables.pictures import frames
from msgq.spark.tables.rates import rates, silences
from msgq.spark.tables.stages import stage_totals, stages
from msgq.spark.tables.times import with_timestamps
from msgq.spark.tables.windows import NS, widened, windows
from msgq.spark.tables.work import work, work_totals, work_windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "NS",
    "Limits",
    "checks",
    "endpoints",
    "frames",
    "gaps",
    "gold",
    "hops",
    "latency",
    "latency_totals",
    "overwrites",
    "publishers",
    "rates",
    "repeats",
    "silences",
    "silver",
    "stage_totals",
    "stages",
    "undecoded",
    "widened",
    "windows",
    "with_timestamps",
    "work",
    "work_totals",
    "work_windows",
]


def gold(messages: DataFrame, window_ns: int = NS, limits: Limits | None = None) -> dict[str, DataFrame]:
    """Return every table of gold by name, as a lake has them.

    Parameters
    ----------
    window_ns : the least width of windows.
    limits : of `checks`.
    """
    made: dict[str, DataFrame] = {}
    seconds = windows(messages)
    made["windows"] = widened(seconds, window_ns)
    made["gaps"] = gaps(messages)
    made["overwrites"] = overwrites(messages)
    made["endpoints"] = endpoints(made["windows"], made["gaps"], made["overwrites"])
    made["publishers"] = publishers(made["windows"])
    made["rates"] = rates(made["windows"])
    made["silences"] = silences(seconds)
    made["latency"] = latency(made["windows"])
    made["latency_totals"] = latency_totals(made["latency"])
    made["hops"] = hops(messages)
    made["stages"] = widened(stages(messages), window_ns)
    made["stage_totals"] = stage_totals(made["stages"])
    made["work"] = work(messages)
    made["work_windows"] = widened(work_windows(made["work"]), window_ns)
    made["work_totals"] = work_totals(made["work_windows"])
    made["frames"] = frames(messages)
    made["checks"] = checks(made, limits)
    return made
