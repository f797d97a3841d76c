"""As-of joins and resampling, against a plain loop."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from pyspark.errors import PySparkException

from msgq.errors import InvalidValueError
from msgq.spark.tables import align
from tests.spark.rows import SECOND, sorted_rows

STRATEGIES = ("arrow", "window")
YEAR = 365 * 86_400 * SECOND


def series(spark: Any, keys: Any, times: Any, values: Any) -> Any:
    types = pa.schema({"key": pa.string(), "publish_time": pa.int64(), "value": pa.int64()})
    return spark.createDataFrame(pa.table([keys, times, values], schema=types))


def join_by_hand(left: Any, right: Any, tolerance: Any) -> Any:
    found = []
    for key, time, value in left:
        past = [(t, v) for k, t, v in right if k == key and t <= time and (tolerance is None or time - t <= tolerance)]
        before = max(past, default=(None, None))
        found.append((key, time, value, *before))
    return sorted(found, key=lambda row: [(value is not None, value) for value in row])


@pytest.mark.parametrize(
    "tolerance",
    [
        None,
        pytest.param(0, marks=pytest.mark.nightly),
        3 * SECOND,
        70 * SECOND,
        pytest.param(10**18, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_align_joins_each_row_with_last_earlier_row(spark: Any, strategy: Any, tolerance: Any) -> None:
    """Times over several spans of the window strategy, so that right rows are needed beyond the border of theirs."""
    random = np.random.default_rng(7)
    left = [(key, time, i) for key in "ab" for i, time in enumerate(random.integers(0, 300 * SECOND, 60).tolist())]
    times = np.unique(random.integers(0, 300 * SECOND, 40)).tolist()
    right = [(key, time, i) for key in "ac" for i, time in enumerate(times)]
    left += [("a", times[3], 99), ("a", 120 * SECOND, 98)]
    joined = align.asof_join(
        series(spark, *zip(*left, strict=True)),
        series(spark, *zip(*right, strict=True)),
        by=["key"],
        tolerance=tolerance,
        strategy=strategy,
    )
    columns = ("key", "publish_time", "value", "publish_time_right", "value_right")
    assert tuple(joined.columns) == columns
    assert sorted_rows(joined, *columns) == join_by_hand(left, right, tolerance)


def test_align_without_keys_treats_rows_as_one_series(spark: Any) -> None:
    left, right = series(spark, ["x", "y"], [10, 20], [1, 2]), series(spark, ["z"], [15], [3])
    joined = align.asof_join(left, right.drop("key"))
    assert sorted_rows(joined, "key", "value_right") == [("x", None), ("y", 3)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_align_does_not_match_null_keys(spark: Any, strategy: Any) -> None:
    left, right = series(spark, [None, "a"], [10, 10], [1, 2]), series(spark, [None, "a"], [5, 5], [3, 4])
    joined = align.asof_join(left, right, by=["key"], strategy=strategy)
    assert sorted_rows(joined, "value", "value_right") == [(1, None), (2, 4)]


def test_align_plan_has_no_join(spark: Any) -> None:
    one = series(spark, ["a"], [1], [1])
    plan = align.asof_join(one, one, by=["key"], strategy="window", tolerance=5)
    text = plan._jdf.queryExecution().executedPlan().toString()
    assert "Join" not in text


def test_align_error_names_impossible_argument(spark: Any) -> None:
    one = series(spark, ["a"], [1], [1])
    with pytest.raises(InvalidValueError, match="'quick'"):
        align.asof_join(one, one, strategy="quick")
    with pytest.raises(InvalidValueError, match="-1"):
        align.asof_join(one, one, tolerance=-1)
    with pytest.raises(InvalidValueError, match="0 ns"):
        align.resample(one, 0)


def test_align_takes_one_name_instead_of_list(spark: Any) -> None:
    left, right = series(spark, ["a"], [10], [1]), series(spark, ["a"], [5], [3]).withColumnRenamed("value", "y")
    for strategy in STRATEGIES:
        joined = align.asof_join(left, right, by="key", strategy=strategy)
        assert joined.columns == ["key", "publish_time", "value", "publish_time_right", "y"]
    assert align.forward_fill(left, "value", by="key").columns == left.columns
    assert align.resample(left, 10, by="key").columns == [*left.columns, "age"]


def test_forward_fill_repeats_last_value(spark: Any) -> None:
    rows = series(spark, list("aaabb"), [1, 2, 3, 1, 2], [None, 5, None, 7, None])
    found = align.forward_fill(rows, ["value"], by=["key"])
    assert sorted_rows(found, "key", "publish_time", "value") == [
        ("a", 1, None),
        ("a", 2, 5),
        ("a", 3, 5),
        ("b", 1, 7),
        ("b", 2, 7),
    ]


@pytest.mark.parametrize("tolerance", [None, 12])
def test_resample_gives_last_earlier_row_at_each_tick(spark: Any, tolerance: Any) -> None:
    times = [3, 8, 10, 11, 45, 46]
    found = align.resample(series(spark, ["a"] * 6, times, times), 10, by=["key"], tolerance=tolerance)
    ticks = {10: 10, 20: 11, 30: 11, 40: 11, 50: 46}
    wanted = [
        ("a", tick, time, tick - time) for tick, time in ticks.items() if tolerance is None or tick - time <= tolerance
    ]
    assert found.columns == ["key", "publish_time", "value", "age"]
    assert sorted_rows(found, *found.columns) == wanted


def test_resampled_series_have_ticks_at_multiples_of_the_interval(spark: Any) -> None:
    random = np.random.default_rng(3)
    times = np.sort(random.integers(10**9, 2 * 10**9, 200)).tolist()
    found = align.resample(series(spark, ["a", "b"] * 100, times, times), 10**7, by=["key"])
    rows = sorted_rows(found, "key", "publish_time", "value")
    for key in "ab":
        ticks = [time for name, time, _ in rows if name == key]
        assert all(after - before == 10**7 for before, after in pairwise(ticks))
        assert all(time % 10**7 == 0 for time in ticks)


@pytest.mark.parametrize("jump", [YEAR, -YEAR])
def test_resample_over_clock_jump_raises_or_uses_tolerance(spark: Any, jump: Any) -> None:
    """A year at 100 Hz is 3 billion ticks, which nobody wants; before and after the jump all is as always."""
    period = SECOND // 100
    times = [2 * YEAR, 2 * YEAR + 3 * period, 2 * YEAR + jump, 2 * YEAR + jump + 5 * period]
    rows = series(spark, ["a"] * 4, times, times)
    with pytest.raises(PySparkException, match=r"A clock may have jumped: use a tolerance"):
        align.resample(rows, period, by=["key"]).count()
    found = align.resample(rows, period, by=["key"], tolerance=3 * period)
    ordered = sorted(times)
    wanted = [
        (tick, time)
        for time, following in pairwise([*ordered, ordered[-1] + period])
        for tick in range(time, min(following, time + 3 * period + 1), period)
    ]
    assert sorted_rows(found, "publish_time", "value") == wanted


def choose_strategy(left: Any, right: Any) -> str:
    """Return the strategy that "auto" takes."""
    plan = align.asof_join(left, right, by=["key"])._jdf.queryExecution().analyzed().toString()
    return "arrow" if "CoGroupsInArrow" in plan else "window"


def test_align_chooses_strategy_by_input_and_output_bytes_per_key(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows with pictures do not fit in a worker, thousands of numbers do: of one that takes 1 MiB."""
    from pyspark.sql import functions as F

    def numbers(rows: int, keys: int = 1) -> Any:
        return spark.range(rows).selectExpr(f"id % {keys} AS key", "id AS publish_time")

    def pictures(rows: int, size: int, keys: int = 1) -> Any:
        return numbers(rows, keys).withColumn("data", F.expr(f"CAST(repeat('x', {size}) AS binary)"))

    monkeypatch.setattr(align, "_ARROW_BYTES_MAX", 1 << 20)
    assert choose_strategy(numbers(4000), numbers(4000)) == "arrow"
    assert choose_strategy(pictures(300, 1 << 12), numbers(1)) == "window"
    assert choose_strategy(pictures(300, 1 << 12, keys=3), numbers(3, keys=3)) == "arrow", "a key after the other"
    assert choose_strategy(numbers(300), pictures(1, 1 << 12)) == "window", "each row takes one"
    nested = pictures(300, 1 << 12).selectExpr("key", "publish_time", "map('a', array(struct(data))) AS value")
    assert choose_strategy(nested, numbers(1)) == "window"
    assert choose_strategy(numbers(0), numbers(0)) == "arrow"
