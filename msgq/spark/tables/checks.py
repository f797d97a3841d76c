"""Checks: what should be so, and whether it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True, slots=True)
class Limits:
    """What is still good. None: not checked.

    Attributes
    ----------
    lost : messages that may be missing of an endpoint in a run.
    latency_p99_ns : which 99 of 100 messages of an endpoint may not exceed.
    silence_ns : how long an endpoint may be silent between two messages.
    epochs : lives of an endpoint's publishers in a run.
    early_ns : how long before its publication a message may be recorded; more means that a clock jumped.
    """

    lost: int | None = 0
    latency_p99_ns: int | None = 100_000_000
    silence_ns: int | None = None
    epochs: int | None = None
    early_ns: int | None = 0


def checks(gold: Mapping[str, DataFrame], limits: Limits | None = None) -> DataFrame:
    """Return what was checked of each endpoint.

    Input: tables of gold: endpoints, latency_totals, silences. Output: run, endpoint, check, passed: boolean, value and
    limit: long, ns or a count, so that value <= limit passes.
    """
    limits = limits or Limits()
    latency = gold["latency_totals"]
    silence = gold["silences"].groupBy("run", "endpoint").agg(F.max("silence").alias("silence"))
    quiet = gold["endpoints"].select("run", "endpoint").join(silence, ["run", "endpoint"], "left")
    wanted: list[tuple[str, DataFrame, Column, int | None]] = [
        ("lost", gold["endpoints"], F.col("lost"), limits.lost),
        ("epochs", gold["endpoints"], F.col("epochs"), limits.epochs),
        ("latency p99", latency, F.col("p99"), limits.latency_p99_ns),
        ("early", latency, F.greatest(-F.col("min"), F.lit(0)), limits.early_ns),
        ("silence", quiet, F.coalesce("silence", F.lit(0)), limits.silence_ns),
    ]
    found = [_check(*one) for one in wanted if one[3] is not None]
    if not found:
        return _check("none", gold["endpoints"], F.lit(0), 0).limit(0)
    return reduce(DataFrame.unionByName, found)


def _check(name: str, table: DataFrame, value: Column, limit: int | None) -> DataFrame:
    return table.select(
        "run",
        "endpoint",
        F.lit(name).alias("check"),
        (value <= F.lit(limit)).alias("passed"),
        value.cast("long").alias("value"),
        F.lit(limit).cast("long").alias("limit"),
    )
