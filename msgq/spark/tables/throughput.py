"""Message rates, and dropouts: times without messages."""

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
    """Return the messages of each endpoint in each window.

    Input: `traffic_windows` or `coarsen_windows`, from the functions of these names. Output: run, endpoint,
    window_start: ns; window_ns: its length; messages; size_bytes: of payloads; rate: messages per second. A window
    without messages has no row.
    """
    return map_arrow_groups(windows, _ENDPOINT_KEY, arrow.compute_throughput, arrow.THROUGHPUT_SCHEMA)


def dropouts(windows: DataFrame, dropout_ns: int = NS) -> DataFrame:
    """Return times without a message of an endpoint that are longer than its period explains.

    Input: `traffic_windows`, from the function of this name, with windows of at most `dropout_ns`. Two messages at that
    distance are then in different windows. Output: run, endpoint, from_time, to_time: log_time of the last message
    before and the first message after, ns; duration_ns: time between them; period_ns: period of the endpoint in the
    run.

    The period is the duration-weighted median of the n intervals between messages, without the sqrt(n) longest
    intervals. Within a window, the mean interval counts for each interval. A dropout is an interval of at least
    `dropout_ns`, of at least 5 periods, and of at least 2 periods of its hour, if the hour has 16 intervals or more.
    """
    return map_arrow_groups(
        windows, _ENDPOINT_KEY, partial(_find_dropouts, dropout_ns=dropout_ns), arrow_dropouts.DROPOUTS_SCHEMA
    )


def _find_dropouts(windows: pa.Table, dropout_ns: int) -> pa.Table:
    return arrow_dropouts.find_dropouts(arrow_dropouts.compute_message_intervals(windows, dropout_ns), dropout_ns)
