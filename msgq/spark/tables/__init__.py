"""Tables from recordings: pure functions from DataFrame to DataFrame, one contract each.

They take *messages*, the columns that ``format("msgq")`` reads, or what their own texts name, and start no job. Times
and durations are ``long`` nanoseconds, times since the epoch. What concerns one run of a recorder keeps its column
`run`, so that the tables of many runs are one table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from msgq import timing
from msgq.kinds import QUEUE, RECORDS
from msgq.spark.tables.checks import Limits, checks
from msgq.spark.tables.decoding import silver, undecoded
from msgq.spark.tables.deduplication import deduplicated
from msgq.spark.tables.endpoints import endpoints, publishers
from msgq.spark.tables.gaps import gaps
from msgq.spark.tables.hops import hops
from msgq.spark.tables.latency import latency, latency_totals
from msgq.spark.tables.overwrites import overwrites
from msgq.spark.tables.pictures import frames, thumbnails
from msgq.spark.tables.rates import rates, silences
from msgq.spark.tables.stages import stage_totals, stages
from msgq.spark.tables.times import with_timestamps
from msgq.spark.tables.windows import NS, window_start, windows
from msgq.spark.tables.work import work, work_totals, work_windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "GOLD",
    "NS",
    "Limits",
    "checks",
    "deduplicated",
    "endpoints",
    "frames",
    "gaps",
    "gold",
    "has_rows",
    "hops",
    "latency",
    "latency_totals",
    "overwrites",
    "publishers",
    "rates",
    "silences",
    "silver",
    "stage_totals",
    "stages",
    "thumbnails",
    "undecoded",
    "window_start",
    "windows",
    "with_timestamps",
    "work",
    "work_totals",
    "work_windows",
]

#: The tables that `gold` makes.
GOLD = (
    "windows",
    "gaps",
    "overwrites",
    "endpoints",
    "publishers",
    "rates",
    "silences",
    "latency",
    "latency_totals",
    "hops",
    "stages",
    "stage_totals",
    "work",
    "work_windows",
    "work_totals",
    "frames",
    "checks",
)


def gold(
    messages: DataFrame,
    window_ns: int = NS,
    limits: Limits | None = None,
    keep: Callable[[str, DataFrame], DataFrame] = lambda _, table: table,
) -> dict[str, DataFrame]:
    """Return every table of gold by name.

    Parameters
    ----------
    window_ns : of the tables that have windows.
    limits : of `checks`.
    keep : is given each table with its name, and returns what the tables that build on it read, as a written copy.
    """
    made: dict[str, DataFrame] = {}
    steps: dict[str, Callable[[], DataFrame]] = {
        "windows": lambda: windows(messages, window_ns),
        "gaps": lambda: gaps(messages),
        "overwrites": lambda: overwrites(messages),
        "endpoints": lambda: endpoints(made["windows"], made["gaps"], made["overwrites"]),
        "publishers": lambda: publishers(made["windows"]),
        "rates": lambda: rates(made["windows"], window_ns),
        "silences": lambda: silences(made["windows"] if window_ns <= NS else windows(messages)),
        "latency": lambda: latency(made["windows"], window_ns),
        "latency_totals": lambda: latency_totals(made["latency"]),
        "hops": lambda: hops(messages),
        "stages": lambda: stages(messages, window_ns),
        "stage_totals": lambda: stage_totals(made["stages"]),
        "work": lambda: work(messages),
        "work_windows": lambda: work_windows(made["work"], window_ns),
        "work_totals": lambda: work_totals(made["work_windows"]),
        "frames": lambda: frames(messages),
        "checks": lambda: checks(made, limits),
    }
    for name in GOLD:
        made[name] = keep(name, steps[name]())
    return made


def has_rows(windows: DataFrame) -> DataFrame:
    """Return one row with a column for each table of gold that not every recording has something for: whether it may
    have rows; NULL where there are no windows.

    Input: `windows` as the function of this name makes them.
    """
    is_state, is_queue = F.col("kind") == RECORDS.name, F.col("kind") == QUEUE.name
    is_stage = F.col("endpoint").startswith(timing.PREFIX)
    needed = {
        "overwrites": is_state,
        "publishers": F.col("publisher").isNotNull(),
        **dict.fromkeys(("stages", "stage_totals"), is_stage),
        **dict.fromkeys(("work", "work_windows", "work_totals"), is_queue),
    }
    return windows.agg(*(F.bool_or(condition).alias(name) for name, condition in needed.items()))
