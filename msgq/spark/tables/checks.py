"""Checks: what should be so, and whether it is."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from msgq.lake.metrics import checks as arrow
from msgq.lake.metrics.checks import Limits as Limits
from msgq.spark.tables.arrow_functions import of_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = ["run", "endpoint"]


def checks(gold: Mapping[str, DataFrame], limits: Limits | None = None) -> DataFrame:
    """Return what was checked of each endpoint.

    Input: tables of gold: endpoints, latency_summary, dropouts. Output: run, endpoint, check_name; passed: boolean;
    value and threshold: long, ns or a count. A value up to the threshold passes.
    """
    latency = gold["latency_summary"].select(*_PLACE, "min", "p99")
    longest = gold["dropouts"].groupBy(*_PLACE).agg(F.max("duration_ns").alias("duration_ns"))
    every = gold["endpoints"].select(*_PLACE, "lost", "epochs")
    every = every.join(latency, _PLACE, "full").join(longest, _PLACE, "left")
    return of_keys(every, _PLACE, partial(_checks, limits=limits or Limits()), arrow.CHECKS)


def _checks(every: pa.Table, limits: Limits) -> pa.Table:
    tables = {"endpoints": "lost", "latency_summary": "min", "dropouts": "duration_ns"}
    return arrow.checks({name: every.filter(every.column(of).is_valid()) for name, of in tables.items()}, limits)
