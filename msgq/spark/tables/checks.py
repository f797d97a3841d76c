"""Checks: what should be so, and whether it is."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from msgq.lake.figures import checks as arrow
from msgq.lake.figures.checks import Limits as Limits
from msgq.spark.tables.arrow import of_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = ["run", "endpoint"]


def checks(gold: Mapping[str, DataFrame], limits: Limits | None = None) -> DataFrame:
    """Return what was checked of each endpoint.

    Input: tables of gold: endpoints, latency_totals, silences. Output: run, endpoint, check, passed: boolean, value and
    limit: long, ns or a count, so that value <= limit passes.
    """
    latency = gold["latency_totals"].select(*_PLACE, "min", "p99")
    silence = gold["silences"].groupBy(*_PLACE).agg(F.max("silence").alias("silence"))
    every = gold["endpoints"].select(*_PLACE, "lost", "epochs")
    every = every.join(latency, _PLACE, "full").join(silence, _PLACE, "left")
    return of_keys(every, _PLACE, partial(_checks, limits=limits or Limits()), arrow.CHECKS)


def _checks(every: pa.Table, limits: Limits) -> pa.Table:
    tables = {"endpoints": "lost", "latency_totals": "min", "silences": "silence"}
    return arrow.checks({name: every.filter(every.column(of).is_valid()) for name, of in tables.items()}, limits)
