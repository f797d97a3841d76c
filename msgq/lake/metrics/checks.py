"""Checks: what should be so, and whether it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from msgq.lake.metrics.group_by import IntegerArray, RowGroups, build_table, column, integer_column, take_rows
from msgq.lake.metrics.saturating_time import saturating_subtract

CHECKS_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("run", "endpoint", "check_name")),
        ("passed", pa.bool_()),
        *((name, pa.int64()) for name in ("value", "threshold")),
    ]
)


@dataclass(frozen=True, slots=True)
class CheckThresholds:
    """What is still good. None: not checked.

    Attributes
    ----------
    lost : messages that may be missing of an endpoint in a run.
    latency_p99_ns : which 99 of 100 messages of an endpoint may not exceed.
    dropout_ns : how long an endpoint may be silent between two messages.
    epochs : lives of an endpoint's publishers in a run.
    negative_latency_ns : how long before its publication a message may be recorded; more means that a clock jumped.
    """

    lost: int | None = 0
    latency_p99_ns: int | None = 100_000_000
    dropout_ns: int | None = None
    epochs: int | None = None
    negative_latency_ns: int | None = 0


def checks(gold: Mapping[str, pa.Table], thresholds: CheckThresholds) -> pa.Table:
    """Return the checks of each endpoint: `CHECKS_SCHEMA`. Input: endpoints, latency_summary, dropouts of runs."""
    endpoints, latency = gold["endpoints"], gold["latency_summary"]
    wanted = [
        ("lost", endpoints, integer_column(endpoints, "lost"), thresholds.lost),
        ("epochs", endpoints, integer_column(endpoints, "epochs"), thresholds.epochs),
        ("latency p99", latency, integer_column(latency, "p99"), thresholds.latency_p99_ns),
        (
            "negative latency",
            latency,
            np.maximum(saturating_subtract(np.zeros(len(latency), np.int64), integer_column(latency, "min")), 0),
            thresholds.negative_latency_ns,
        ),
        ("dropout", endpoints, _longest_dropouts(endpoints, gold["dropouts"]), thresholds.dropout_ns),
    ]
    return pa.concat_tables(
        [CHECKS_SCHEMA.empty_table(), *(_check_rows(*check[:3], check[3]) for check in wanted if check[3] is not None)]
    )


def _longest_dropouts(endpoints: pa.Table, dropouts: pa.Table) -> IntegerArray:
    """Return the longest dropout of each endpoint, ns; 0 where there is none."""
    rows = [table.select(["run", "endpoint"]) for table in (endpoints, dropouts)]
    every = pa.concat_tables(rows)
    groups = RowGroups(*(column(every, name) for name in ("run", "endpoint")))
    longest = groups.max(np.concatenate((np.zeros(len(endpoints), np.int64), integer_column(dropouts, "duration_ns"))))
    return longest[groups.group_ids()[: len(endpoints)]]


def _check_rows(name: str, table: pa.Table, value: IntegerArray, threshold: int) -> pa.Table:
    made = {
        "check_name": pa.repeat(pa.scalar(name), len(table)),
        "passed": value <= threshold,
        "value": value,
        "threshold": np.full(len(table), threshold),
    }
    return build_table(CHECKS_SCHEMA, take_rows(table, ["run", "endpoint"], np.arange(len(table))) | made)
