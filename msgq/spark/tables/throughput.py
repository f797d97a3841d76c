"""Rates, and dropouts: how often each endpoint speaks, and when it does not."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgq.lake.metrics import dropouts as arrow_dropouts
from msgq.lake.metrics import time_windows as arrow
from msgq.spark.tables.arrow_functions import map_arrow_groups
from msgq.spark.tables.time_windows import NS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_ENDPOINT_KEY = ("run", "endpoint")


def throughput(windows: DataFrame) -> DataFrame:
    """Return how much came of each endpoint in each window.

    Input: `traffic_windows` or `coarsen_windows` as the functions of these names make them. Output: run, endpoint,
    window_start: ns; window_ns: its length; messages; size_bytes: of payloads; rate: messages a second. A window
    without messages has no row.
    """
    return map_arrow_groups(windows, _ENDPOINT_KEY, arrow.compute_throughput, arrow.THROUGHPUT_SCHEMA)


def dropouts(windows: DataFrame, dropout_ns: int = NS) -> DataFrame:
    """Return when nothing came of an endpoint for longer than its own period explains, between messages that came.

    Input: `traffic_windows` as the function of this name makes them, none longer than `dropout_ns`: two messages that
    are so far apart are never in one of them. Output: run, endpoint, from_time, to_time: log_time of the last message
    before and the first one after, ns; duration_ns: between them; period_ns: of the endpoint in the run.

    The period is the interval between messages in which the middle of the time lies: of n intervals by their length,
    without the longest ones, as many as the root of n, so that dropouts do not make the period. Of those in one window,
    their mean counts for each. A dropout is an interval of at least `dropout_ns`, 5 periods, and 2 periods of the hour
    in which it is, if that has 16 intervals or more.
    """
    return map_arrow_groups(
        windows, _ENDPOINT_KEY, partial(_find_dropouts, dropout_ns=dropout_ns), arrow_dropouts.DROPOUTS_SCHEMA
    )


def _find_dropouts(windows: pa.Table, dropout_ns: int) -> pa.Table:
    return arrow_dropouts.find_dropouts(arrow_dropouts.compute_message_intervals(windows, dropout_ns), dropout_ns)
