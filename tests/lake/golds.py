"""Gold of a lake, made in this process in place of Spark's workers; and a child who is killed while it makes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from msgq.common.units import NS_PER_S
from msgq.lake.delta_table import Table
from msgq.lake.gold.increments import Task
from msgq.lake.metrics.checks import Limits
from msgq.spark.lake.bronze import Bronze
from msgq.spark.lake.gold import NAMES, Gold
from msgq.spark.lake.store import Store
from tests.lake.bronze_rows import directory
from tests.lake.kills import die_at, kill
from tests.lake.rows import listed
from tests.spark.mortal import in_place

Rows = dict[str, list[tuple[Any, ...]]]


@contextmanager
def here() -> Iterator[list[int]]:
    """Let this process do what workers do; give how many rows each task has read, and groups there were in a share."""
    read: list[int] = []

    def counted(task: Task, lake: Any) -> dict[str, pa.Table]:
        found = reading(task, lake)
        read.append(sum(rows.num_rows for rows in found.values()))
        return found

    reading = Task.read
    with patch("msgq.spark.lake.gold.done", in_place), patch.object(Task, "read", counted):
        yield read


def gold_of(lake: Path) -> Gold:
    store = Store(None, lake)  # type: ignore[arg-type]
    return Gold(store, Bronze(store))


def refreshed(lake: Path, window_ns: int = NS_PER_S, limits: Limits | None = None, every: bool = False) -> int:
    with here():
        return gold_of(lake).refresh(window_ns, limits, every)


def table(lake: Path, name: str) -> pa.Table:
    snapshot = Table(directory(lake), f"gold/{name}").snapshot()
    assert snapshot is not None
    return snapshot.read()


def tables(lake: Path) -> Rows:
    """Return all rows of all tables, in an order."""
    return {name: listed(table(lake, name)) for name in NAMES}


def main(lake: str, place: str, every: str) -> None:
    with die_at(int(place), kill, (Table, "commit")):
        if every:
            refreshed(Path(lake), 10 * NS_PER_S, Limits(lost=None, epochs=5), every=True)
        else:
            refreshed(Path(lake))


if __name__ == "__main__":
    main(*sys.argv[1:])
