"""The histogram of latencies keeps each duration within three percent."""

import random

import pytest

from msgq.common.histogram import Histogram


def test_histogram_percentiles_are_within_three_percent(seed: int) -> None:
    generator = random.Random(seed)
    values = sorted(int(generator.lognormvariate(9, 2)) for _ in range(10_001))
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    median, high = histogram.percentiles_us(0.5, 0.99)
    assert median * 1000 == pytest.approx(values[5_000], rel=0.03, abs=60)
    assert high * 1000 == pytest.approx(values[9_900], rel=0.03, abs=60)


@pytest.mark.parametrize("value", [0, 1, 63, 64, 65, 1 << 32, (1 << 64) - 1])
def test_histogram_stores_each_duration_within_three_percent(value: int) -> None:
    histogram = Histogram()
    histogram.add(value)
    (found,) = histogram.percentiles_us(0.5)
    assert found * 1000 == pytest.approx(value, rel=0.03, abs=60)


def test_percentiles_of_empty_histogram_are_zero() -> None:
    assert Histogram().percentiles_us(0.5, 0.99) == (0.0, 0.0)


def test_percentiles_of_histogram_with_one_value_are_equal() -> None:
    histogram = Histogram()
    histogram.add(50_000)
    median, high = histogram.percentiles_us(0.5, 0.99)
    assert median == high > 0
