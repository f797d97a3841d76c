"""Tables of random input, against plain Python: many runs at a time, as each question to Spark takes a second."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
from msgq.common import timing
from msgq.spark import tables
from tests.spark.rows import sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

few = settings(max_examples=12, suppress_health_check=list(HealthCheck))
names = st.sampled_from(["a", "b", "c", f"{timing.TIMING_TOPIC_PREFIX}a"])
Row = tuple[Any, ...]


def percentile(values: list[int], share: float) -> int | None:
    """Return the smallest value that so large a share of them does not exceed."""
    return sorted(values)[max(0, -int(-share * len(values) // 1) - 1)] if values else None


# ---- hops ----

_TRACED = {"run": pa.string(), "endpoint": pa.string(), "publish_time": pa.int64(), "origin_time": pa.int64()}


def hops(rows: list[Row]) -> list[Row]:
    """Follow each chain from its begin, message by message."""
    known = [row for row in rows if row[3] and not row[1].startswith(timing.TIMING_TOPIC_PREFIX)]
    edges: dict[Row, list[tuple[int | None, int]]] = defaultdict(list)
    for (run, origin), chain in groupby(sorted(known, key=lambda row: (row[0], row[3])), lambda row: (row[0], row[3])):
        before: list[tuple[int, str]] = []
        for _, endpoint, time, _ in sorted(chain, key=lambda row: (row[2], row[1])):
            others = [one for one in before if one[1] != endpoint]
            at, parent = others[-1] if others else (None, None)
            edges[run, parent, endpoint].append((None if at is None else time - at, time - origin))
            before.append((time, endpoint))
    found = []
    for edge, members in edges.items():
        steps = [step for step, _ in members if step is not None]
        ages = [age for _, age in members]
        figures = (percentile(steps, 0.5), percentile(steps, 0.99), max(steps, default=None), percentile(ages, 0.5))
        found.append((*edge, len(members), *figures))
    return sorted(found, key=lambda row: [(value is not None, value) for value in row])


def chain_messages(spark: SparkSession, rows: list[Row]) -> Any:
    return spark.createDataFrame(
        pa.Table.from_pylist([dict(zip(_TRACED, row, strict=True)) for row in rows], pa.schema(_TRACED))
    )


@pytest.mark.parametrize(
    ("chain", "edges"),
    [
        ("ABBC", {(None, "A"): 1, ("A", "B"): 2, ("B", "C"): 1}),
        ("AAB", {(None, "A"): 2, ("A", "B"): 1}),
        ("ABAABB", {(None, "A"): 1, ("A", "B"): 3, ("B", "A"): 2}),
    ],
)
def test_consecutive_messages_of_endpoint_have_same_parent(spark: SparkSession, chain: str, edges: Any) -> None:
    rows = [("r", endpoint, 10 + at, 5) for at, endpoint in enumerate(chain)]
    found = tables.hops(chain_messages(spark, rows)).collect()
    assert {(row.parent, row.endpoint): row.messages for row in found} == edges


@pytest.mark.nightly
@few
@given(
    st.lists(
        st.tuples(st.sampled_from("rs"), names, st.integers(0, 30), st.sampled_from([None, 0, 1, 2, 3])), max_size=60
    )
)
def test_hops_table_equals_result_of_reference_loop(spark: SparkSession, rows: list[Row]) -> None:
    found = tables.hops(chain_messages(spark, rows))
    assert sorted_rows(found, *found.columns) == hops(rows)


# ---- checks ----

_GOLD = {
    "endpoints": {"run": pa.string(), "endpoint": pa.string(), "lost": pa.int64(), "epochs": pa.int64()},
    "latency_summary": {"run": pa.string(), "endpoint": pa.string(), "p99": pa.int64(), "min": pa.int64()},
    "dropouts": {"run": pa.string(), "endpoint": pa.string(), "duration_ns": pa.int64()},
}
few_keys = st.tuples(st.sampled_from("rs"), st.sampled_from("abc"))
counts = st.integers(0, 5)
thresholds = st.none() | st.integers(0, 4)


def checks(gold: dict[str, list[Row]], thresholds: tables.CheckThresholds) -> list[Row]:
    found: list[Row] = []
    dropouts: dict[Row, int] = defaultdict(int)
    for *key, duration in gold["dropouts"]:
        dropouts[tuple(key)] = max(dropouts[tuple(key)], duration)
    for run, endpoint, lost, epochs in gold["endpoints"]:
        found.append((run, endpoint, "lost", lost, thresholds.lost))
        found.append((run, endpoint, "epochs", epochs, thresholds.epochs))
        found.append((run, endpoint, "dropout", dropouts[run, endpoint], thresholds.dropout_ns))
    for run, endpoint, p99, least in gold["latency_summary"]:
        found.append((run, endpoint, "latency p99", p99, thresholds.latency_p99_ns))
        found.append((run, endpoint, "negative latency", max(0, -least), thresholds.negative_latency_ns))
    return sorted((*row[:3], row[3] <= row[4], *row[3:]) for row in found if row[4] is not None)


@pytest.mark.nightly
@few
@given(
    st.fixed_dictionaries(
        {
            "endpoints": st.dictionaries(few_keys, st.tuples(counts, counts)),
            "latency_summary": st.dictionaries(few_keys, st.tuples(counts, st.integers(-5, 5))),
            "dropouts": st.lists(st.tuples(few_keys, st.tuples(counts))),
        }
    ),
    st.builds(tables.CheckThresholds, thresholds, thresholds, thresholds, thresholds, thresholds),
)
def test_checks_table_equals_result_of_reference_loop(
    spark: SparkSession, made: dict[str, Any], thresholds: tables.CheckThresholds
) -> None:
    rows = {
        name: [(*key, *values) for key, values in (table.items() if isinstance(table, dict) else table)]
        for name, table in made.items()
    }
    gold = {
        name: spark.createDataFrame(
            pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows[name]], pa.schema(columns))
        )
        for name, columns in _GOLD.items()
    }
    found = tables.checks(gold, thresholds)
    assert sorted_rows(found, "run", "endpoint", "check_name", "passed", "value", "threshold") == checks(
        rows, thresholds
    )
