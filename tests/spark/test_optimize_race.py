"""An ingest in the middle of an optimize, without Spark: workers' work is done in place."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from msgq.lake.bronze.store import Bronze
from msgq.lake.bronze.writer import messages_table, write_bronze
from msgq.lake.directory import Directory
from msgq.lake.executor import TaskResult
from tests.lake.in_place import InPlaceExecutor
from tests.lake.rows import batch, message


def test_parts_that_come_while_others_are_put_together_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, executor = Directory(tmp_path), InPlaceExecutor()

    def add(number: int) -> None:
        one = Bronze(store, executor)
        one.complete_aggregates()
        one.add([], [], TaskResult(write_bronze([batch([message("a", number, number)])], store)))

    plain = Bronze.aggregates

    def view(bronze: Bronze) -> object:
        found = plain(bronze)
        add(3)
        return found

    add(1)
    add(2)
    monkeypatch.setattr(Bronze, "aggregates", view)
    Bronze(store, executor).optimize()
    snapshot = messages_table(store).snapshot()
    assert snapshot is not None
    assert sorted(snapshot.read(["sequence"]).column("sequence").to_pylist()) == [1, 2, 3]
    assert len(snapshot.files) == 2
