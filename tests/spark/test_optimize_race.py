"""An ingest in the middle of an optimize, without Spark: workers' work is done in place."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from msgq.lake.bronze.writer import messages_table, write_bronze
from msgq.spark.executor import TaskResult
from msgq.spark.lake import bronze as module
from msgq.spark.lake.bronze import Bronze
from msgq.spark.lake.store import LakeStore
from tests.lake.rows import batch, message
from tests.spark.mortal import in_place


def test_parts_that_come_while_others_are_put_together_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LakeStore(None, f"file://{tmp_path}")  # type: ignore[arg-type]  # no session is needed
    monkeypatch.setattr(module, "run_tasks", in_place)

    def add(number: int) -> None:
        one = Bronze(store, None)
        one.complete_aggregates()
        one._add([], [], TaskResult(write_bronze([batch([message("a", number, number)])], store)))

    plain = Bronze.aggregates

    def view(bronze: Bronze) -> object:
        found = plain(bronze)
        add(3)
        return found

    add(1)
    add(2)
    monkeypatch.setattr(Bronze, "aggregates", view)
    Bronze(store, None).optimize()
    snapshot = messages_table(store).snapshot()
    assert snapshot is not None
    assert sorted(snapshot.read(["sequence"]).column("sequence").to_pylist()) == [1, 2, 3]
    assert len(snapshot.files) == 2
