"""Gold of a lake by Spark's workers: the same tables as the functions of data frames give."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from msgq.spark import tables
from msgq.spark.lake import Lake
from tests.lake.bronze_rows import pieces, some_rows, table
from tests.lake.rows import listed
from tests.support import LONGER


@pytest.mark.parametrize("seed", [4, 11][: int(LONGER)])
def test_a_lake_has_the_tables_that_the_functions_give(spark: Any, tmp_path: Path, seed: int) -> None:
    """Added in pieces, and made by hours; against all messages at once, in three partitions."""
    rng = random.Random(seed)
    rows = some_rows(rng)
    lake = Lake(spark, tmp_path / "lake")
    for piece in pieces(rng, rows, 2):
        lake.append(spark.createDataFrame(table(piece)))
        assert lake.refresh() >= 1
    known = tables.gold(spark.createDataFrame(table(rows)).repartition(3))
    assert set(known) == set(lake.names())
    for name, whole in known.items():
        assert listed(lake.table(name).select(*whole.columns).toArrow()) == listed(whole.toArrow()), name
