"""Python workers read the files of a lake where Spark has no connector: the same rows, fewer files and columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from msgq.lake.bronze import bronze_reader
from msgq.spark.lake import Lake, python_scan, spark_directory
from msgq.spark.lake.file_source import FileScan, load_scan
from tests.spark.test_pruning import FILES, root

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["root"]
CONDITIONS = [
    ("endpoint = 'a1'", 1),
    ("endpoint IN ('a0', 'a1', NULL) AND NOT log_time < 5", 1),
    ("endpoint = 'a1' OR log_time >= 50", FILES - 4),
    ("endpoint = 'a1' OR sequence % 7 = 3", FILES),
    ("endpoint = 'ä\\\\/ü`' AND date = DATE '1970-01-01'", 1),
    ("log_time BETWEEN 21 AND 30 AND endpoint <> 'm'", 2),
    ("date > '1970-01-01' OR size_class = 'large' OR publisher IS NOT NULL AND date IS NULL", 0),
    ("startswith(endpoint, 'a') AND size_class IN ('small', 'large')", FILES),
]


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[FileScan]:
    """Let Python workers read lakes on the disk, and return the scans of the queries."""
    found: list[FileScan] = []

    def record_scan(spark: Any, scan: FileScan) -> DataFrame:
        found.append(scan)
        return load_scan(spark, scan)

    monkeypatch.setattr(spark_directory, "find_hadoop_location", lambda *_: None)
    monkeypatch.setattr(spark_directory, "warn_of_missing_connector", lambda *_: None)
    monkeypatch.setattr(python_scan, "load_scan", record_scan)
    monkeypatch.setattr(bronze_reader, "_UNCHECKED_FILES_MAX", 0)
    return found


@pytest.fixture
def lake(session: Any, root: Path, scans: list[FileScan]) -> Lake:
    return Lake(session, root)


def collect_scans(rows: DataFrame, scans: list[FileScan]) -> tuple[list[FileScan], list[str]]:
    """Return the scans of a query, and its rows as sorted texts."""
    scans.clear()
    found = sorted(map(str, rows.collect()))
    return list(scans), found


def test_conditions_select_files_and_no_other_rows(lake: Lake, session: Any, root: Path, scans: list[FileScan]) -> None:
    rows = lake.messages()
    local = session.createDataFrame(session.read.parquet(f"{root}/messages").toArrow()).cache()
    for condition, file_count in CONDITIONS:
        [scan], found = collect_scans(rows.where(condition).select("endpoint", "log_time", "date"), scans)
        assert found == sorted(map(str, local.where(condition).select("endpoint", "log_time", "date").collect()))
        assert len(scan.paths) == file_count, condition


def test_scans_of_one_query_do_not_share_conditions(lake: Lake, scans: list[FileScan]) -> None:
    query = """SELECT x.endpoint, y.sequence FROM messages x JOIN messages y USING (sequence)
        WHERE x.endpoint = 'a1' AND y.endpoint = 'm' AND y.log_time < 30"""
    made, found = collect_scans(lake.sql(query), scans)
    assert found == ["Row(endpoint='a1', sequence=1)"]
    assert sorted(len(scan.paths) for scan in made) == [1, 3]


def test_query_reads_only_its_columns(lake: Lake, scans: list[FileScan]) -> None:
    rows = lake.messages().where("log_time < 30")
    made, _ = collect_scans(rows.select("data"), scans)
    assert [scan.names for scan in made] == [("log_time", "data")]
    made, found = collect_scans(lake.messages().groupBy().count(), scans)
    assert ([scan.names for scan in made], found) == ([("epoch",)], [f"Row(count={2 * FILES})"])


def test_equal_versions_share_cache(lake: Lake, scans: list[FileScan]) -> None:
    cached = lake.messages().cache()
    try:
        assert cached.count() == 2 * FILES
        made, found = collect_scans(lake.messages().where("endpoint = 'a1'").select("sequence"), scans)
        assert found == ["Row(sequence=1)"]
        assert all(len(scan.paths) == FILES for scan in made), "no scan of the second query"
    finally:
        cached.unpersist()
