"""Checks of endpoints against thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from msgq.lake.metrics import checks as arrow
from msgq.lake.metrics.checks import CheckThresholds as CheckThresholds
from msgq.spark.tables.arrow_functions import map_arrow_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ENDPOINT_KEY = ["run", "endpoint"]


def checks(gold: Mapping[str, DataFrame], thresholds: CheckThresholds | None = None) -> DataFrame:
    """Return the results of the checks of each endpoint.

    Input: the gold tables endpoints, latency_summary, dropouts. Output: run, endpoint, check_name; passed: boolean;
    value and threshold: long, ns or a count. A check passes if the value is at most the threshold.
    """
    latency = gold["latency_summary"].select(*_ENDPOINT_KEY, "min", "p99")
    longest = gold["dropouts"].groupBy(*_ENDPOINT_KEY).agg(F.max("duration_ns").alias("duration_ns"))
    every = gold["endpoints"].select(*_ENDPOINT_KEY, "lost", "epochs")
    every = every.join(latency, _ENDPOINT_KEY, "full").join(longest, _ENDPOINT_KEY, "left")
    return map_arrow_groups(
        every,
        _ENDPOINT_KEY,
        partial(_compute_endpoint_checks, thresholds=thresholds or CheckThresholds()),
        arrow.CHECKS_SCHEMA,
    )


def _compute_endpoint_checks(every: pa.Table, thresholds: CheckThresholds) -> pa.Table:
    tables = {"endpoints": "lost", "latency_summary": "min", "dropouts": "duration_ns"}
    return arrow.compute_checks(
        {name: every.filter(every.column(name_of_value).is_valid()) for name, name_of_value in tables.items()},
        thresholds,
    )
