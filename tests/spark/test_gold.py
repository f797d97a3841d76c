"""Gold of a lake by Spark's workers: the same tables as the functions of data frames give."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from msgq.lake.gold.gold_builder import GOLD_TABLE_NAMES
from msgq.spark import tables
from msgq.spark.lake import Lake
from tests.lake import golds
from tests.lake.bronze_rows import pieces, some_rows, table
from tests.lake.rows import sorted_rows

FEW = ("sequence_gaps", "checks", "hops", "queue_summary")  # most others are made for these


@pytest.mark.seeds(1, 1, 2)
@pytest.mark.parametrize(
    ("names", "count"),
    [pytest.param(FEW, 1, id="few"), pytest.param(GOLD_TABLE_NAMES, 2, id="all", marks=pytest.mark.nightly)],
)
def test_gold_tables_of_lake_equal_results_of_table_functions(
    spark: Any, tmp_path: Path, names: tuple[str, ...], count: int, seed: int
) -> None:
    """Added in pieces, and made by hours; against all messages at once, in three partitions."""
    rng = random.Random(seed)
    rows = some_rows(rng)
    lake = Lake(spark, tmp_path / "lake")
    for piece in pieces(rng, rows, count):
        lake.append(spark.createDataFrame(table(piece)))
        assert lake.build_gold() >= 1
    known = tables.gold(spark.createDataFrame(table(rows)).repartition(3))
    assert set(known) == set(lake.table_names()) == set(GOLD_TABLE_NAMES)
    for name in names:
        whole = known[name]
        found = golds.table(tmp_path / "lake", name).select(whole.columns)
        assert sorted_rows(found) == sorted_rows(whole.toArrow()), name
