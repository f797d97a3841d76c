"""Gold of a lake, made in this process in place of Spark's workers; and a child who is killed while it makes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from msgq.common.units import NS_PER_S
from msgq.lake.bronze.bronze_store import BronzeStore
from msgq.lake.delta_table import LakeTable
from msgq.lake.gold.gold_builder import GOLD_TABLE_NAMES, GoldBuilder
from msgq.lake.gold.gold_increments import IncrementTask
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.metrics.checks import CheckThresholds
from tests.lake.bronze_rows import directory
from tests.lake.in_place import InPlaceExecutor
from tests.lake.kills import die_at, kill
from tests.lake.rows import sorted_rows

Rows = dict[str, list[tuple[Any, ...]]]


@contextmanager
def here() -> Iterator[list[int]]:
    """Give a list of how many rows each task reads."""
    read: list[int] = []

    def count_rows(task: IncrementTask, lake: Any) -> dict[str, pa.Table]:
        inputs = reading(task, lake)
        read.append(sum(rows.num_rows for rows in inputs.values()))
        return inputs

    reading = IncrementTask.read_inputs
    with patch.object(IncrementTask, "read_inputs", count_rows):
        yield read


def gold_of(lake: Path) -> GoldBuilder:
    directory, executor = LakeDirectory(lake), InPlaceExecutor()
    return GoldBuilder(directory, executor, BronzeStore(directory, executor).read_aggregates)


def build_gold(
    lake: Path, window_ns: int = NS_PER_S, limits: CheckThresholds | None = None, full_refresh: bool = False
) -> int:
    with here():
        return gold_of(lake).build_gold(window_ns, limits, full_refresh)


def table(lake: Path, name: str) -> pa.Table:
    snapshot = LakeTable(directory(lake), f"gold/{name}").read_snapshot()
    assert snapshot is not None
    return snapshot.read_rows()


def tables(lake: Path) -> Rows:
    """Return all rows of all tables, in an order."""
    return {name: sorted_rows(table(lake, name)) for name in GOLD_TABLE_NAMES}


def build_killed(lake: str, place: int, full_refresh: bool) -> None:
    """Build gold, and die at a commit."""
    with die_at(place, kill, (LakeTable, "commit_files")):
        if full_refresh:
            build_gold(Path(lake), 10 * NS_PER_S, CheckThresholds(lost=None, epochs=5), full_refresh=True)
        else:
            build_gold(Path(lake))
