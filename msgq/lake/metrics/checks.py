"""Checks of endpoints against thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from msgq.kinds import find_recorded_kind
from msgq.lake.metrics.group_by import (
    IntegerArray,
    RowGroups,
    build_typed_table,
    get_column,
    get_integer_column,
    take_column_rows,
)
from msgq.lake.metrics.saturating_time import subtract_saturating

CHECKS_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("run", "endpoint", "check_name")),
        ("passed", pa.bool_()),
        *((name, pa.int64()) for name in ("value", "threshold")),
    ]
)


@dataclass(frozen=True, slots=True)
class CheckThresholds:
    """Thresholds of the checks. None: no check.

    Attributes:
        lost: maximum number of lost messages of an endpoint in a run.
        latency_p99_ns: maximum 99th percentile of an endpoint's latency, ns. For frames, the maximum is 10 times as
            long, because pictures take long to record (`msgq.kinds.Kind.latency_limit_factor`).
        dropout_ns: maximum time without a message of an endpoint, ns.
        epochs: maximum number of epochs of an endpoint in a run.
        negative_latency_ns: maximum time from recording to publishing, ns. A longer time shows that a clock jumped.
    """

    lost: int | None = 0
    latency_p99_ns: int | None = 100_000_000
    dropout_ns: int | None = None
    epochs: int | None = None
    negative_latency_ns: int | None = 0


def compute_checks(gold: Mapping[str, pa.Table], thresholds: CheckThresholds) -> pa.Table:
    """Return the checks of each endpoint: `CHECKS_SCHEMA`.

    Input: tables endpoints, latency_summary, dropouts of runs.
    """
    endpoints, latency = gold["endpoints"], gold["latency_summary"]
    checks = [
        ("lost", endpoints, get_integer_column(endpoints, "lost"), thresholds.lost),
        ("epochs", endpoints, get_integer_column(endpoints, "epochs"), thresholds.epochs),
        (
            "latency p99",
            latency,
            get_integer_column(latency, "p99"),
            _find_latency_limits(latency, thresholds.latency_p99_ns),
        ),
        (
            "negative latency",
            latency,
            np.maximum(subtract_saturating(np.zeros(len(latency), np.int64), get_integer_column(latency, "min")), 0),
            thresholds.negative_latency_ns,
        ),
        ("dropout", endpoints, _find_longest_dropouts(endpoints, gold["dropouts"]), thresholds.dropout_ns),
    ]
    return pa.concat_tables(
        [
            CHECKS_SCHEMA.empty_table(),
            *(_make_check_rows(*check[:3], check[3]) for check in checks if check[3] is not None),
        ]
    )


def _find_latency_limits(latency: pa.Table, limit_ns: int | None) -> IntegerArray | None:
    """Return the limit of each endpoint by its kind, ns; None: no check."""
    if limit_ns is None:
        return None
    names = latency["endpoint"].to_pylist()
    limits = {name: limit_ns * find_recorded_kind(name).latency_limit_factor for name in set(names)}
    return np.array([limits[name] for name in names], np.int64)


def _find_longest_dropouts(endpoints: pa.Table, dropouts: pa.Table) -> IntegerArray:
    """Return the longest dropout of each endpoint, ns; 0: none."""
    rows = [table.select(["run", "endpoint"]) for table in (endpoints, dropouts)]
    every = pa.concat_tables(rows)
    groups = RowGroups(*(get_column(every, name) for name in ("run", "endpoint")))
    longest = groups.max_by_group(
        np.concatenate((np.zeros(len(endpoints), np.int64), get_integer_column(dropouts, "duration_ns")))
    )
    return longest[groups.compute_group_ids()[: len(endpoints)]]


def _make_check_rows(name: str, table: pa.Table, value: IntegerArray, threshold: int | IntegerArray) -> pa.Table:
    columns = {
        "check_name": pa.repeat(pa.scalar(name), len(table)),
        "passed": value <= threshold,
        "value": value,
        "threshold": np.broadcast_to(threshold, len(table)),
    }
    return build_typed_table(
        CHECKS_SCHEMA, take_column_rows(table, ["run", "endpoint"], np.arange(len(table))) | columns
    )
