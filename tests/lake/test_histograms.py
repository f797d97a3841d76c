"""Histograms: their percentiles are those of the durations, and those of parts add up to that of the whole."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("deltalake")
import pyarrow as pa

from msgq.lake.metrics import histograms
from msgq.lake.metrics.group_by import RowGroups

DURATIONS = st.integers(-(1 << 62), 1 << 62) | st.integers(-100, 100) | st.integers(0, 10**10)


def of(values: list[int]) -> pa.Array:
    return histograms.build_duration_histograms(np.zeros(len(values), np.int64), np.array(values, np.int64), 1)


@given(st.lists(DURATIONS, min_size=1, max_size=60), st.sampled_from((0.0, 0.5, 0.9, 0.99, 0.999, 1.0)))
def test_histogram_percentiles_equal_duration_percentiles(values: list[int], rank: float) -> None:
    least, most = np.array([min(values)]), np.array([max(values)])
    found = histograms.compute_histogram_percentile(of(values), rank, least, most).to_pylist()[0]
    known = sorted(values)[max(1, math.ceil(rank * len(values) - 1e-9)) - 1]
    assert abs(found - known) <= abs(known) * 0.03 + 0.5
    assert min(values) <= found <= max(values)


@pytest.mark.parametrize("seed", range(3))
def test_histogram_percentiles_are_close_to_exact_percentiles(seed: int) -> None:
    values = np.random.default_rng(seed).lognormal(14, 2, 100_000).astype(np.int64)
    for rank in (0.01, 0.5, 0.9, 0.99, 0.999):
        known = np.percentile(values, 100 * rank, method="inverted_cdf")
        found = histograms.compute_histogram_percentile(
            of(values.tolist()), rank, values[:1] * 0, values[:1] * 0 + values.max()
        )
        assert found.to_pylist()[0] == pytest.approx(known, rel=0.03)


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(DURATIONS, max_size=20)), max_size=12))
def test_histograms_of_parts_add_up(parts: list[tuple[int, list[int]]]) -> None:
    """Parts come in any order of their groups; some have nothing, and may be NULL."""
    groups = RowGroups(np.array([key for key, _ in parts], np.int64))
    each = [of(values).to_pylist()[0] or None for _, values in parts]
    found = histograms.merge_histograms(groups, pa.array(each, histograms.HISTOGRAM_TYPE)).to_pylist()
    for key, histogram in zip(sorted({key for key, _ in parts}), found, strict=True):
        every = [value for other, values in parts if other == key for value in values]
        assert histogram == of(every).to_pylist()[0]
        assert sum(bucket["count"] for bucket in histogram) == len(every)
        assert [bucket["bucket"] for bucket in histogram] == sorted({bucket["bucket"] for bucket in histogram})


def test_histogram_formula_equals_documentation() -> None:
    for value in (1, -1, 2, 3, 1000, -123456789, 1 << 40):
        bucket = (1 if value > 0 else -1) * (1 + math.floor(16 * math.log2(abs(value))))
        assert of([value]).to_pylist() == [[{"bucket": bucket, "count": 1}]]
    assert of([0]).to_pylist() == [[{"bucket": 0, "count": 1}]]
    assert of([]).to_pylist() == [[]]


def test_empty_histogram_has_no_percentiles() -> None:
    both = pa.concat_arrays([of([]), of([7])])
    assert histograms.compute_histogram_percentile(both, 0.5, np.array([0, 7]), np.array([0, 7])).to_pylist() == [
        None,
        7,
    ]
    assert histograms.compute_histogram_percentile(of([]), 0.5, np.array([0]), np.array([0])).to_pylist() == [None]


def test_typical_interval_covers_most_time_of_each_histogram() -> None:
    rows = [[], [0, 0, 0], [10**9], [10**6] * 50 + [10**9] * 50, [], [10**6] * 50 + [10**12] * 7, [0, 5]]
    ids = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    found = histograms.estimate_typical_intervals(
        histograms.build_duration_histograms(ids, np.concatenate(rows).astype(np.int64), len(rows))
    )
    expected = [0, 0, 10**9, 10**9, 0, 10**6, 0]
    assert found.tolist() == [pytest.approx(one, rel=0.03) for one in expected]
    assert histograms.estimate_typical_intervals(of([])[:0]).tolist() == []
    assert histograms.estimate_typical_intervals(of([])).tolist() == [0]
