"""Percentiles of durations over many rows with histograms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.lake.metrics import histograms
from msgq.lake.metrics.group_by import RowGroups, get_integer_column
from msgq.lake.metrics.saturating_time import MAX_TIME, MIN_TIME
from msgq.lake.metrics.time_windows import LATENCY_PERCENTILE_RANKS
from msgq.lake.report.gold_reader import GoldReader

#: p50, p90, p99 and p999 in ns, by the values of the keys. Keys without a duration are absent.
PercentilesByKey = dict[tuple[Any, ...], dict[str, int]]


def compute_key_percentiles(
    gold: GoldReader,
    name: str,
    columns: Sequence[str],
    keys: Sequence[str],
    histogram: str = "histogram",
    prepare: Callable[[pa.Table], pa.Table] = lambda piece: piece,
) -> PercentilesByKey:
    """Return percentiles of a table's rows by key.

    Args:
        columns: columns to read. `prepare` computes the keys from them, and keeps the histograms.
        histogram: column with histograms, as in `msgq.lake.metrics.histograms`.
    """
    return compute_count_percentiles(aggregate_bucket_counts(gold, name, columns, keys, histogram, prepare), keys)


def aggregate_bucket_counts(
    gold: GoldReader,
    name: str,
    columns: Sequence[str],
    keys: Sequence[str],
    histogram: str = "histogram",
    prepare: Callable[[pa.Table], pa.Table] = lambda piece: piece,
) -> pa.Table:
    """Return the sum of histograms: keys, bucket, count. The parameters are those of `compute_key_percentiles`."""
    return gold.aggregate_rows(
        name,
        [*columns, histogram],
        [*keys, "bucket"],
        {"count": "sum"},
        lambda piece: _explode_histogram_buckets(prepare(piece), keys, histogram),
    )


def compute_count_percentiles(counts_by_bucket: pa.Table, keys: Sequence[str]) -> PercentilesByKey:
    """Return percentiles by key of counts by bucket: keys, bucket, count."""
    groups = RowGroups(*(counts_by_bucket[key] for key in keys))
    buckets, counts = get_integer_column(counts_by_bucket, "bucket"), get_integer_column(counts_by_bucket, "count")
    every = histograms.build_bucket_histograms(groups.compute_group_ids(), buckets, groups.count, counts)
    least, most = np.full(groups.count, MIN_TIME), np.full(groups.count, MAX_TIME)
    ranks = {
        title: histograms.compute_histogram_percentile(every, rank, least, most).to_pylist()
        for title, rank in LATENCY_PERCENTILE_RANKS.items()
    }
    key_values = zip(
        *(counts_by_bucket[key].take(pa.array(groups.first_rows)).to_pylist() for key in keys), strict=True
    )
    return {
        key: dict(zip(ranks, values, strict=True)) for key, *values in zip(key_values, *ranks.values(), strict=True)
    }


def _explode_histogram_buckets(rows: pa.Table, keys: Sequence[str], histogram: str) -> pa.Table:
    """Return a row for each bucket of each row."""
    column = rows[histogram].combine_chunks()
    parents, flat = pc.list_parent_indices(column), pc.list_flatten(column)
    repeated = {key: rows[key].take(parents) for key in keys}
    return pa.table(repeated | {name: pc.struct_field(flat, name) for name in ("bucket", "count")})
