"""An ingest in the middle of an optimize, without Spark: workers' work is done in place."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from msgq.lake.bronze.bronze_store import BronzeStore
from msgq.lake.bronze.bronze_writer import open_messages_table, write_bronze
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.lake_executor import TaskResult
from tests.lake.in_place import InPlaceExecutor
from tests.lake.rows import batch, message


def test_parts_added_during_optimize_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, executor = LakeDirectory(tmp_path), InPlaceExecutor()

    def add(number: int) -> None:
        one = BronzeStore(store, executor)
        one.complete_aggregates()
        one.commit_task_result([], [], TaskResult(write_bronze([batch([message("a", number, number)])], store)))

    plain = BronzeStore.read_aggregates

    def view(bronze: BronzeStore) -> object:
        found = plain(bronze)
        add(3)
        return found

    add(1)
    add(2)
    monkeypatch.setattr(BronzeStore, "read_aggregates", view)
    BronzeStore(store, executor).optimize()
    snapshot = open_messages_table(store).read_snapshot()
    assert snapshot is not None
    assert sorted(snapshot.read_rows(["sequence"]).column("sequence").to_pylist()) == [1, 2, 3]
    assert len(snapshot.files_by_path) == 2
