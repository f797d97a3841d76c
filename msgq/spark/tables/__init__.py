"""Tables from recordings: pure functions from DataFrame to DataFrame, one contract each.

All of them take *messages*, the columns that ``format("msgq")`` reads, or what the functions' own texts name, and start
no job. Times and durations are ``long`` nanoseconds, times since the epoch. What concerns one run of a recorder keeps
its column `run`, so that the tables of many runs are one table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgq.spark.tables.bronze import MESSAGE_COLUMNS, deduplicated, ordered
from msgq.spark.tables.checks import Limits, checks
from msgq.spark.tables.endpoints import endpoints
from msgq.spark.tables.frames import frames, thumbnails
from msgq.spark.tables.gaps import gaps
from msgq.spark.tables.hops import hops
from msgq.spark.tables.latency import latency, latency_totals
from msgq.spark.tables.rates import rates, silences

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "GOLD", "MESSAGE_COLUMNS", "Limits", "checks", "deduplicated", "endpoints", "frames", "gaps", "gold", "hops",
    "latency", "latency_totals", "ordered", "rates", "silences", "thumbnails",
]  # fmt: skip

#: The tables of gold that are made of messages alone; the others are made of these.
GOLD: dict[str, Callable[[DataFrame], DataFrame]] = {
    "gaps": gaps,
    "rates": rates,
    "silences": silences,
    "latency": latency,
    "hops": hops,
    "frames": frames,
}


def gold(messages: DataFrame, window_ns: int = 1_000_000_000) -> dict[str, DataFrame]:
    """Return every table of gold but `checks`, by name. window_ns : of those that have windows."""
    windowed = {"rates": partial(rates, window_ns=window_ns), "latency": partial(latency, window_ns=window_ns)}
    made = {name: make(messages) for name, make in (GOLD | windowed).items()}
    return {"endpoints": endpoints(messages, made["gaps"]), "latency_totals": latency_totals(made["latency"]), **made}
