"""The rows of a data frame, and the files that Spark opens for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def collect_rows(rows: DataFrame) -> tuple[int, list[Row]]:
    """Return how many files the scans opened, without those of subqueries, and the rows.

    The session must not use adaptive execution, which hides the scans.
    """
    fresh = rows.select("*")  # a plan has the number only of its first execution
    found = fresh.collect()
    leaves: Any = fresh._jdf.queryExecution().executedPlan().collectLeaves()
    metrics = [leaves.apply(index).metrics() for index in range(leaves.size())]
    return sum(metric.apply("numFiles").value() for metric in metrics if metric.contains("numFiles")), found
