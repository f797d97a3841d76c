"""Stages: queueing time, processing time and end-to-end latency of messages in a part of a program."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from msgq.common import timing
from msgq.lake.metrics import stages as arrow
from msgq.spark.tables.arrow_functions import list_arrow_fields, map_arrow_groups, map_message_batches
from msgq.spark.tables.time_windows import NS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STAGE_KEY = ("run", "stage", "endpoint")
_INPUT_COLUMNS = ("run", "endpoint", "log_time", "data")


def stages(messages: DataFrame, window_ns: int = NS) -> DataFrame:
    """Return the timings of stages in windows of `window_ns` of log_time, from their timing topics.

    Input: run, endpoint, log_time, data. Records with impossible times are malformed. Durations of a record:

    - queue_time: from sent to received; unknown without a sending time,
    - processing_time: from received to publish_time,
    - e2e_latency: from origin_time to publish_time; unknown without an origin.

    Output:

    - run, stage.
    - endpoint: endpoint of the handled messages.
    - window_start, window_ns: start and length of the window, ns.
    - messages: number of handled messages.
    - malformed: number of records of another size, or with impossible times.
    - queue_time_count: number of messages with the duration. The other durations have the same columns.
    - queue_time_min, queue_time_p50, queue_time_p99, queue_time_max: ns; NULL if the count is 0. Percentiles are at
      most 2.2 % off.
    - queue_time_histogram: see `msgq.lake.metrics.histograms`.
    """
    timing_messages = messages.where(
        F.col("endpoint").startswith(timing.TIMING_TOPIC_PREFIX)
    )  # files know how names begin
    stage_rows = map_message_batches(
        timing_messages, _INPUT_COLUMNS, partial(arrow.compute_stage_windows, width=window_ns), arrow.STAGE_AGGREGATES
    )
    return map_arrow_groups(stage_rows, _STAGE_KEY, _compute_stages, arrow.STAGES_SCHEMA)


def _compute_stages(rows: pa.Table) -> pa.Table:
    return arrow.compute_stages(arrow.merge_stage_windows(rows))


def stage_summary(stages: DataFrame, *by: str) -> DataFrame:
    """Return totals by run, stage, endpoint, and the columns `by`, with added histograms.

    Input: result of `stages`. You may make run, stage, endpoint and window_start coarser before. Output: the same
    columns, without window_start and window_ns unless they are in `by`.
    """
    fields = list(arrow.STAGE_SUMMARY_SCHEMA)
    schema = pa.schema([*fields[: len(_STAGE_KEY)], *list_arrow_fields(stages, by), *fields[len(_STAGE_KEY) :]])
    return map_arrow_groups(stages, _STAGE_KEY, partial(_summarize_stages, by=by), schema)


def _summarize_stages(stages: pa.Table, by: tuple[str, ...]) -> pa.Table:
    return arrow.summarize_stages(stages, *by)
