"""Distributions of durations: count, minimum, maximum, and histogram. Distributions can be added.

A duration with the prefix `queue_time_` has these columns: queue_time_count: rows with the duration; queue_time_min and
queue_time_max: ns, NULL if the count is 0; queue_time_histogram: see `msgq.lake.metrics.histograms`. Percentiles are
computed from histograms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from msgq.lake.metrics import histograms
from msgq.lake.metrics.group_by import BooleanArray, IntegerArray, RowGroups, get_column, get_integer_column
from msgq.lake.metrics.saturating_time import MAX_TIME, MIN_TIME


def list_stats_columns(prefix: str = "", ranks: Iterable[str] = ()) -> list[tuple[str, pa.DataType]]:
    """Return the columns of a distribution. `ranks`: names of additional percentiles."""
    numbers = [(f"{prefix}{name}", pa.int64()) for name in ("count", "min", *ranks, "max")]
    return [*numbers, (f"{prefix}histogram", histograms.HISTOGRAM_TYPE)]


def compute_duration_stats(
    groups: RowGroups, durations: IntegerArray, is_valid: BooleanArray, prefix: str = ""
) -> dict[str, pa.Array]:
    """Return the distribution of each group of rows. `is_valid`: mask of rows with a duration."""
    chosen = groups.sort_by_group(is_valid)
    histogram = histograms.build_duration_histograms(
        groups.sorted_ids[chosen], groups.sort_by_group(durations)[chosen], groups.count
    )
    least, most = np.where(is_valid, durations, MAX_TIME), np.where(is_valid, durations, MIN_TIME)
    return _make_stats_columns(
        prefix, groups.sum_by_group(is_valid), groups.min_by_group(least), groups.max_by_group(most), histogram
    )


def merge_duration_stats(groups: RowGroups, table: pa.Table, prefix: str = "") -> dict[str, pa.Array]:
    """Return the combined distribution of each group of rows with distributions."""
    histogram = histograms.merge_histograms(groups, get_column(table, f"{prefix}histogram"))
    least, most = (
        get_integer_column(table, f"{prefix}min", MAX_TIME),
        get_integer_column(table, f"{prefix}max", MIN_TIME),
    )
    duration_counts = groups.sum_by_group(get_integer_column(table, f"{prefix}count"))
    return _make_stats_columns(
        prefix, duration_counts, groups.min_by_group(least), groups.max_by_group(most), histogram
    )


def compute_duration_percentiles(
    spreads: Mapping[str, pa.Array], ranks: Mapping[str, float], prefix: str = ""
) -> dict[str, pa.Array]:
    """Return percentiles of distributions, ns; NULL if the count is 0. `ranks`: ranks by column name."""
    least, most = (np.asarray(spreads[f"{prefix}{name}"].fill_null(0), np.int64) for name in ("min", "max"))
    histogram = spreads[f"{prefix}histogram"]
    return {
        f"{prefix}{name}": histograms.compute_histogram_percentile(histogram, rank, least, most)
        for name, rank in ranks.items()
    }


def _make_stats_columns(
    prefix: str, counts: IntegerArray, least: IntegerArray, most: IntegerArray, histogram: pa.Array
) -> dict[str, pa.Array]:
    none = counts == 0
    return {
        f"{prefix}count": pa.array(counts),
        f"{prefix}min": pa.array(least, mask=none),
        f"{prefix}max": pa.array(most, mask=none),
        f"{prefix}histogram": histogram,
    }
