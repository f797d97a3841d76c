"""Rates, and silences: how often each endpoint speaks, and when it does not."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgq.lake.figures import silences as arrow_silences
from msgq.lake.figures import windows as arrow
from msgq.spark.tables.arrow import of_keys
from msgq.spark.tables.windows import NS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_PLACE = ("run", "endpoint")


def rates(windows: DataFrame) -> DataFrame:
    """Return how much came of each endpoint in each window.

    Input: `windows` or `widened` as the functions of these names make them. Output: run, endpoint, time: the window's
    beginning, ns; width: its length, ns; messages; bytes: of payloads; rate: messages a second. A window without
    messages has no row.
    """
    return of_keys(windows, _PLACE, arrow.rates, arrow.RATES)


def silences(windows: DataFrame, silence_ns: int = NS) -> DataFrame:
    """Return when nothing came of an endpoint for longer than its own period explains, between messages that came.

    Input: `windows` as the function of this name makes them, none longer than `silence_ns`: two messages that are so
    far apart are never in one of them. Output: run, endpoint, from_time, to_time: log_time of the last message before
    and the first one after, ns; silence: between them, ns; period: of the endpoint in the run, ns.

    The period is the interval between messages in which the middle of the time lies: of n intervals by their length,
    without the longest ones, as many as the root of n, so that silences do not make the period. Of those in one window,
    their mean counts for each. A silence is an interval of at least `silence_ns`, 5 periods, and 2 periods of the hour
    in which it is, if that has 16 intervals or more.
    """
    return of_keys(windows, _PLACE, partial(_silences, silence_ns=silence_ns), arrow_silences.SILENCES)


def _silences(windows: pa.Table, silence_ns: int) -> pa.Table:
    return arrow_silences.silences(arrow_silences.intervals(windows, silence_ns), silence_ns)
