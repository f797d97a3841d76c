"""Queries read the files that they need, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from msgq.errors import InvalidValueError, SparkError
from msgq.lake.bronze import bronze_reader
from msgq.lake.bronze.bronze_store import BronzeStore
from msgq.lake.bronze.bronze_writer import write_bronze
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.lake_executor import TaskResult
from msgq.spark.lake import Lake
from msgq.spark.lake import lake as lake_module
from tests.lake.in_place import InPlaceExecutor
from tests.lake.rows import batch, message

FILES = 6


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake whose file N has messages of `aN` and of `m` at the times 10 N and 10 N + 1."""
    where = tmp_path_factory.mktemp("lake")
    store, result = BronzeStore(LakeDirectory(where), InPlaceExecutor()), TaskResult()
    for number in range(FILES):
        rows = [message(f"a{number}", number, 10 * number), message("m", number, 10 * number + 1)]
        result.written_files.add_files(write_bronze([batch(rows)], LakeDirectory(where)))
    store.commit_task_result([], [], result)
    return where


@pytest.fixture
def lake(spark: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(lake_module, "_UNPRUNED_FILES_MAX", 1)
    monkeypatch.setattr(bronze_reader, "_UNCHECKED_FILES_MAX", 1)
    return Lake(spark, root)


@pytest.mark.parametrize(
    ("condition", "file_count", "row_count"),
    [
        ("endpoint = 'a3'", 1, 1),
        ("endpoint IN ('a1', 'a4')", 2, 2),
        ("log_time < 20", 2, 4),
        ("log_time BETWEEN 21 AND 30 AND endpoint <> 'm'", 2, 1),
        ("endpoint = 'm' AND log_time >= 40", 2, 2),
        ("endpoint = 'a1' OR log_time >= 50", FILES, 3),
        ("endpoint = 'a), b'", FILES, 0),
        ("endpoint = 'none'", 0, 0),
        ("true", FILES, 2 * FILES),
        ("endpoint = concat('a', '3')", FILES, 1),
        ("endpoint = concat('a3', chr(44), 'a4')", FILES, 0),
        ("endpoint = trim(' ')", FILES, 0),
        ("log_time > 9223372036854775807", 0, 0),
        ("log_time < -9223372036854775808", 0, 0),
    ],
)
def test_conditions_of_sql_select_files(lake: Lake, condition: str, file_count: int, row_count: int) -> None:
    answer = lake.sql(f"SELECT endpoint, sequence FROM messages WHERE {condition}")
    assert (len(answer.inputFiles()), answer.count()) == (file_count, row_count)


def test_join_reads_files_of_both_scans(lake: Lake) -> None:
    answer = lake.sql(
        "SELECT x.sequence, y.sequence FROM messages x JOIN messages y ON x.epoch = y.epoch "
        "WHERE x.endpoint = 'a1' AND y.endpoint = 'a4' AND y.log_time < (SELECT max(log_time) FROM messages)"
    )
    assert answer.collect() == [(1, 4)]


def test_subquery_without_condition_reads_all_files(lake: Lake) -> None:
    query = "SELECT (SELECT count(*) FROM messages) FROM messages WHERE endpoint = 'a2'"
    assert lake.sql(query).collect() == [(2 * FILES,)]


def test_statement_that_writes_runs_once_on_all_files(lake: Lake, spark: Any, tmp_path: Path) -> None:
    lake.sql(f"INSERT OVERWRITE DIRECTORY '{tmp_path}/out' USING parquet SELECT * FROM messages WHERE log_time >= 0")
    assert spark.read.parquet(f"{tmp_path}/out").count() == 2 * FILES


def test_invalid_query_is_reported(lake: Lake) -> None:
    with pytest.raises(SparkError, match="nowhere"):
        lake.sql("SELECT nowhere FROM messages")


def test_query_creates_only_views_that_it_names(lake: Lake, spark: Any) -> None:
    for view in ("messages", "read_errors", "decode_errors"):
        spark.catalog.dropTempView(view)
    lake.sql("SELECT * FROM Read_Errors").collect()
    assert [view for view in ("messages", "decode_errors", "read_errors") if spark.catalog.tableExists(view)] == [
        "read_errors"
    ]


def test_queries_keep_their_files_after_later_queries(lake: Lake) -> None:
    first, second = (lake.sql(f"SELECT * FROM messages WHERE endpoint = 'a{number}'") for number in (1, 2))
    assert (first.count(), second.count(), first.union(second).count()) == (1, 1, 2)


def test_query_leaves_views_and_frames_of_session_unchanged(lake: Lake, spark: Any) -> None:
    spark.catalog.dropTempView("messages")
    answer = lake.sql("SELECT * FROM messages WHERE endpoint = 'a1'")
    assert not spark.catalog.tableExists("messages")
    answer.createOrReplaceTempView("answer")
    assert spark.table("answer").count() == 1
    spark.catalog.dropTempView("answer")
    lake.register()
    lake.sql("SELECT * FROM messages WHERE endpoint = 'a1'")
    assert spark.table("messages").count() == 2 * FILES


def test_query_finds_views_and_settings_of_session(lake: Lake, spark: Any) -> None:
    spark.sql("CREATE OR REPLACE TEMP VIEW wanted AS SELECT 'a1' AS endpoint")
    query = "SELECT messages.sequence FROM messages JOIN wanted USING (endpoint) WHERE log_time < 30"
    assert lake.sql(query).collect() == [(1,)]
    spark.catalog.dropTempView("wanted")


def test_arguments_of_messages_select_files_and_rows(lake: Lake) -> None:
    rows = lake.messages(start=10, end=31, endpoints=["m", "a1"])
    assert (len(rows.inputFiles()), rows.count()) == (2, 3)
    assert lake.messages(endpoints=[]).count() == 0
    assert lake.messages(end=0).count() == 0
    with pytest.raises(InvalidValueError, match="64 bits"):
        lake.messages(start=1 << 63)
    assert lake.messages().count() == 2 * FILES


def test_settings_of_session_are_restored(lake: Lake, spark: Any) -> None:
    names = ("spark.sql.sources.parallelPartitionDiscovery.threshold", "spark.sql.maxMetadataStringLength")
    before = [spark.conf.get(name) for name in names]
    lake.sql("SELECT * FROM messages WHERE endpoint = 'a1'").collect()
    assert [spark.conf.get(name) for name in names] == before
