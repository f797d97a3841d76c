"""An ingest in the middle of an optimize, without Spark: workers' work is done in place."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from msgq.lake.bronze.writer import messages_table, write_parts
from msgq.spark.executor import Found
from msgq.spark.lake import bronze as module
from msgq.spark.lake.bronze import Bronze
from msgq.spark.lake.store import Store
from tests.lake.rows import batch, message
from tests.spark.mortal import in_place


def test_parts_that_come_while_others_are_put_together_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(None, f"file://{tmp_path}")  # type: ignore[arg-type]  # no session is needed
    monkeypatch.setattr(module, "done", in_place)

    def add(number: int) -> None:
        one = Bronze(store, None)
        one.heal()
        one._add([], [], Found(write_parts([batch([message("a", number, number)])], store)))

    plain = Bronze.view

    def view(bronze: Bronze) -> object:
        found = plain(bronze)
        add(3)
        return found

    add(1)
    add(2)
    monkeypatch.setattr(Bronze, "view", view)
    Bronze(store, None).optimize()
    snapshot = messages_table(store).snapshot()
    assert snapshot is not None
    assert sorted(snapshot.read(["sequence"]).column("sequence").to_pylist()) == [1, 2, 3]
    assert len(snapshot.files) == 2
