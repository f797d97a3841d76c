"""Rows in order by way of runs in files."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
import pyarrow as pa

from msgq.lake import external_sort
from msgq.lake.external_sort import SORTED_RUN_SCHEMA, merge_sorted_runs, write_sorted_runs
from msgq.lake.lake_directory import LakeDirectory

ORDER = ("log_time", "endpoint", "sequence")
COLUMNS = pa.schema({"log_time": pa.int64(), "endpoint": pa.string(), "sequence": pa.int64(), "data": pa.binary()})


def test_external_sort_gives_ordered_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_sort, "_SORTED_RUN_ROWS", 40)
    monkeypatch.setattr(external_sort, "_RUN_BATCH_BYTES", 200)
    dice, lake = random.Random(3), LakeDirectory(tmp_path)
    rows = [
        {
            "log_time": dice.randrange(50) + at // 100 * 100,
            "endpoint": dice.choice("ab"),
            "sequence": at,
            "data": b"%d" % at,
        }
        for at in range(2000)
    ]
    for at in range(0, 2000, 9):
        rows[at]["sequence"] = None
    batches = [pa.RecordBatch.from_pylist(rows[at : at + 30], COLUMNS) for at in range(0, 2000, 30)]
    runs = pa.Table.from_batches(write_sorted_runs(batches, ORDER, lake, "runs"), SORTED_RUN_SCHEMA)
    assert len(runs) > 20
    assert {path.stem for path in (tmp_path / "runs").iterdir()} == {
        name.removesuffix(".arrow") for name in runs["name"].to_pylist()
    }
    opened: list[str] = []
    read = external_sort._read_sorted_run

    def opening(lake: LakeDirectory, path: str) -> Iterator[dict[str, Any]]:
        opened.append(path)
        return read(lake, path)

    monkeypatch.setattr(external_sort, "_read_sorted_run", opening)
    found = []
    for row in merge_sorted_runs(runs, ORDER, lake, "runs"):
        found.append(row)
        if len(found) == 100:
            assert len(opened) < 10, "those of later times wait"

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["log_time"], row["endpoint"], row["sequence"] is None, row["sequence"]

    assert [key(row) for row in found] == sorted(map(key, rows))
    assert Counter(row["data"] for row in found) == Counter(row["data"] for row in rows)


def test_external_sort_without_runs_gives_no_rows(tmp_path: Path) -> None:
    assert list(merge_sorted_runs(SORTED_RUN_SCHEMA.empty_table(), ORDER, LakeDirectory(tmp_path), "runs")) == []
