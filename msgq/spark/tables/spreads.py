"""Spreads of durations: how many there are of each, their percentiles and the longest, such that they can be merged.

Of a duration `wait` these are wait_known: how many rows have it; wait_p50, wait_p99, wait_max: ns, NULL where none has;
wait_sketch: a KLL sketch of bigint. Ranks are right to about 1 %.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

RANKS = {"p50": 0.5, "p99": 0.99}


def spreads(durations: Iterable[str]) -> list[Column]:
    """Return the aggregates that make spreads of columns with these names, ns, without the percentiles."""
    return [column for name in durations for column in _spread(name)]


def merged(durations: Iterable[str]) -> list[Column]:
    """Return the aggregates that make one spread of several, without the percentiles."""
    return [column for name in durations for column in _merged(name)]


def _spread(name: str) -> tuple[Column, ...]:
    return (
        F.count(name).alias(f"{name}_known"),
        F.max(name).alias(f"{name}_max"),
        F.kll_sketch_agg_bigint(name).alias(f"{name}_sketch"),
    )


def _merged(name: str) -> tuple[Column, ...]:
    return (
        F.sum(f"{name}_known").alias(f"{name}_known"),
        F.max(f"{name}_max").alias(f"{name}_max"),
        F.kll_merge_agg_bigint(f"{name}_sketch").alias(f"{name}_sketch"),
    )


def with_percentiles(durations: Iterable[str]) -> list[Column]:
    """Return the columns of spreads, the percentiles among them, of what the aggregates made."""
    columns: list[Column] = []
    for name in durations:
        known, sketch = F.col(f"{name}_known"), F.col(f"{name}_sketch")
        columns.append(known)
        for title, rank in RANKS.items():
            quantile = F.kll_sketch_get_quantile_bigint(sketch, F.lit(rank))
            columns.append(F.when(known > 0, quantile).alias(f"{name}_{title}"))
        columns += [F.col(f"{name}_max"), sketch]
    return columns
