"""Stages: how long messages waited for a part of a program, how long it worked on them, how old they were then."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from msgq.common import timing
from msgq.lake.figures import stages as arrow
from msgq.spark.tables.arrow import arrow_fields, of_keys, of_messages
from msgq.spark.tables.windows import NS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEYS = ("run", "stage", "endpoint")
_COLUMNS = ("run", "endpoint", "log_time", "data")


def stages(messages: DataFrame, window_ns: int = NS) -> DataFrame:
    """Return what stages said on their timing topics in each window of `window_ns` of log_time.

    Input: run, endpoint, log_time, data. Of each record, whose times must be possible: `wait` is from sent to received,
    `work` from received to publish_time, `age` from origin_time to publish_time. A message of which nobody told when it
    was sent has no wait, one without an origin no age.

    Output: run; stage; endpoint: whose messages it handled; time: the window's beginning, ns; width: `window_ns`;
    messages; malformed: records of another size, or with times that cannot be; for each of wait, work, age: wait_known:
    how many messages have it; wait_min, wait_p50, wait_p99, wait_max: ns, NULL where none has, percentiles right to
    2.2 %; wait_histogram: see `msgq.lake.figures.histograms`.
    """
    told = messages.where(F.col("endpoint").startswith(timing.PREFIX))  # files know how names begin
    found = of_messages(told, _COLUMNS, partial(arrow.stage_windows, width=window_ns), arrow.SPREADS)
    return of_keys(found, _KEYS, _stages, arrow.STAGES)


def _stages(found: pa.Table) -> pa.Table:
    return arrow.stages(arrow.merged(found))


def stage_totals(stages: DataFrame, *by: str) -> DataFrame:
    """Return the same of each run, stage, endpoint, and what else is named, by adding histograms.

    Input: what `stages` gives, perhaps with coarser values in run, stage, endpoint, time. Output: the same columns,
    without time and width unless they are named.
    """
    fields = list(arrow.TOTALS)
    schema = pa.schema([*fields[: len(_KEYS)], *arrow_fields(stages, by), *fields[len(_KEYS) :]])
    return of_keys(stages, _KEYS, partial(_totals, by=by), schema)


def _totals(stages: pa.Table, by: tuple[str, ...]) -> pa.Table:
    return arrow.stage_totals(stages, *by)
