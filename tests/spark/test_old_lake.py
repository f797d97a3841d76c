"""A lake that a release without kinds wrote: it is read, added to, and its tables are made anew."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
from msgq.spark import tables
from msgq.spark.lake import Lake
from msgq.spark.report.report import write_report
from tests.recording import logs
from tests.spark.kind_logs import RUN, Said, on_channel, write_kinds
from tests.spark.rows import listed

NEW_COLUMNS = {"kind", "publisher", "key", "options"}
NEW_TABLES = {"overwrites", "publishers", "work", "work_windows", "work_totals"}
NEW_FIGURES = {"kind", "publisher", "publishers", "overwritten"}


def as_before(lake: Path) -> None:
    """Take from a lake what the release before did not write."""
    for part in (lake / "messages").rglob("*.parquet"):
        table = pq.ParquetFile(part).read()
        pq.write_table(table.select([name for name in table.column_names if name not in NEW_COLUMNS]), part)
    state = json.loads((lake / "gold" / "_state.json").read_text())
    assert set(state["schemas"]) >= NEW_TABLES
    for name in NEW_TABLES:
        del state["schemas"][name]
        shutil.rmtree(lake / "gold" / name, ignore_errors=True)
    for schema in state["schemas"].values():
        schema["fields"] = [field for field in schema["fields"] if field["name"] not in NEW_FIGURES]
    (lake / "gold" / "_state.json").write_text(json.dumps(state))


@pytest.fixture
def old(spark: Any, tmp_path: Path) -> Lake:
    sent = [logs.message(1, i, 1000 + i, b'{"key": %d}' % i) for i in range(5)]
    lake = Lake(spark, tmp_path / "lake")
    lake.ingest([logs.write(tmp_path / "old.mcap", logs.chunk(logs.channel(1, "a", encoding="json"), *sent))])
    lake.refresh()
    as_before(tmp_path / "lake")
    return Lake(spark, tmp_path / "lake")


def test_it_is_read_and_shown_as_it_is(old: Lake, tmp_path: Path) -> None:
    columns = ("sequence", "kind", "publisher", "key", "options")
    assert listed(old.messages(), *columns) == [(i, "topic", None, None, None) for i in range(5)]
    assert "kind" not in old.table("endpoints").columns
    assert write_report(old, tmp_path / "report.html")["messages"] == 5
    assert old.decode() == 1
    assert listed(old.silver("a"), "sequence", "key") == [(i, i) for i in range(5)]


def test_it_is_added_to_and_its_tables_are_made_anew(old: Lake, tmp_path: Path) -> None:
    """Messages that overlap the old ones count once; runs without new messages get the new figures as well."""
    later = [Said("a", i, 1000 + i, b'{"key": %d}' % i) for i in range(3, 8)]
    write_kinds(tmp_path / "new.mcap", [*later, on_channel("c", "p", 0, 2000)], RUN)
    assert old.ingest([tmp_path / "new.mcap"]).messages == 4
    assert listed(old.messages(), "endpoint", "sequence", "kind", "publisher") == [
        *[("a", i, "topic", None) for i in range(8)],
        ("channel/c", 0, "channel", "p"),
    ]
    old.decode()
    assert listed(old.silver("a"), "sequence", "key") == [(i, i) for i in range(5)]
    write_kinds(tmp_path / "other.mcap", [on_channel("c", "q", 0, 2000)], "another run")
    old.ingest([tmp_path / "other.mcap"])
    assert old.refresh() == 2
    assert set(old.names()) == set(tables.GOLD)
    assert listed(old.table("endpoints"), "endpoint", "kind", "messages") == [
        ("a", "topic", 8),
        ("channel/c", "channel", 1),
        ("channel/c", "channel", 1),
    ]
    assert old.refresh() == 0


def test_its_tables_are_made_anew_without_a_new_message(old: Lake) -> None:
    assert old.refresh() == 1
    assert listed(old.table("endpoints"), "endpoint", "kind", "overwritten") == [("a", "topic", 0)]
    assert old.refresh() == 0
