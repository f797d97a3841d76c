"""Traffic of each endpoint in windows of time. Other tables use these windows instead of the messages."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgq.common.units import NS_PER_S
from msgq.lake.metrics import queues, stages
from msgq.lake.metrics import time_windows as arrow
from msgq.spark.tables.arrow_functions import map_arrow_groups, map_message_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NS = NS_PER_S  # a public name
_INPUT_COLUMNS = (*arrow.TRAFFIC_WINDOW_KEY_COLUMNS, "log_time", "publish_time", "size_bytes")
_ENDPOINT_KEY: tuple[str, ...] = ("run", "endpoint")


def traffic_windows(messages: DataFrame, window_ns: int = NS) -> DataFrame:
    """Return the traffic in windows of `window_ns` of log_time.

    Input: messages. The latency is log_time - publish_time. If the two times are equal, the latency is unknown, because
    a recorder without a publish time writes its own time twice. The latency of records is also unknown, because their
    values may be hours old when the recorder starts.

    Output, a row for each combination of the first two items:

    - run, endpoint, epoch, host, encoding, schema, kind, publisher (NULL if the endpoint has only one publisher).
    - window_start: start of the window, ns.
    - window_ns: length of the window, ns.
    - messages: number of messages.
    - size_bytes, max_size_bytes: bytes of all payloads, and of the largest one.
    - start_time, end_time: log_time of the first and the last message, ns.
    - count: number of messages with a known latency.
    - min, max: latency, ns; NULL if count is 0.
    - histogram: histogram of the latency; see `msgq.lake.metrics.histograms`.
    """
    windows = map_message_batches(
        messages, _INPUT_COLUMNS, partial(arrow.compute_traffic_windows, width=window_ns), arrow.TRAFFIC_WINDOWS_SCHEMA
    )
    return map_arrow_groups(windows, _ENDPOINT_KEY, arrow.merge_traffic_windows, arrow.TRAFFIC_WINDOWS_SCHEMA)


def coarsen_windows(windows: DataFrame, window_ns: int = NS) -> DataFrame:
    """Return wider windows for slow endpoints, so that they have fewer windows.

    Input: `traffic_windows`, `stages` or `queue_windows`, from the functions of these names, with windows that divide a
    second. Output: the same columns. In each hour, the width of an endpoint (of a stage, of a queue) is the smallest of
    1, 10, 60, 600 and 3600 s at which its non-empty windows have 64 messages on average; otherwise 3600 s. The width is
    at least `window_ns`. For a queue, each event counts as a message.
    """
    keys, function, schema = _ENDPOINT_KEY, arrow.coarsen_traffic_windows, arrow.TRAFFIC_WINDOWS_SCHEMA
    if "stage" in windows.columns:
        keys, function, schema = ("run", "stage", "endpoint"), stages.coarsen_stage_windows, stages.STAGES_SCHEMA
    elif "queue" in windows.columns:
        keys, function, schema = ("run", "queue"), queues.coarsen_queue_windows, queues.QUEUE_WINDOWS_SCHEMA
    return map_arrow_groups(windows, keys, partial(function, at_least=window_ns), schema)
