"""Queries open the files that they need, and no others."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from msgq.errors import InvalidTypeError, InvalidValueError, MsgqWarning, SparkError
from msgq.lake.bronze import bronze_reader
from msgq.lake.bronze.bronze_store import BronzeStore
from msgq.lake.bronze.bronze_writer import write_bronze
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.lake_executor import TaskResult
from msgq.lake.message_columns import BRONZE_COLUMNS
from msgq.spark import tables
from msgq.spark.lake import Lake, file_selector
from tests.lake.in_place import InPlaceExecutor
from tests.lake.rows import batch, message
from tests.spark.scans import collect_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAMES = ["a0", "a1", "a), b", "it's", 'a",[b]', "ä\\/ü`", "a b\n", "A1"]
FILES = len(NAMES)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake whose file N has messages of NAMES[N] and of `m` at the times 10 N and 10 N + 1."""
    where = tmp_path_factory.mktemp("lake")
    store, result = BronzeStore(LakeDirectory(where), InPlaceExecutor()), TaskResult()
    for number, name in enumerate(NAMES):
        rows = [message(name, number, 10 * number), message("m", number, 10 * number + 1)]
        result.written_files.add_files(write_bronze([batch(rows)], LakeDirectory(where)))
    store.commit_task_result([], [], result)
    return where


@pytest.fixture
def lake(session: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(bronze_reader, "_UNCHECKED_FILES_MAX", 0)
    return Lake(session, root)


@pytest.fixture(scope="module")
def unselected(session: Any, root: Path) -> DataFrame:
    """All messages, also as view `unselected`. Conditions do not select their files."""
    lake = Lake(session, root)
    paths = lake._bronze.list_paths()
    rows = lake._directory.read_files(lake._bronze.table, paths, BRONZE_COLUMNS)
    tables.with_timestamps(rows).createOrReplaceTempView("unselected")
    found: DataFrame = session.table("unselected")
    return found


def collect_sorted(rows: DataFrame) -> tuple[int, list[str]]:
    """Return the number of opened files, and the rows as sorted texts."""
    file_count, found = collect_rows(rows)
    return file_count, sorted(map(str, found))


@pytest.mark.parametrize(
    ("condition", "file_count"),
    [
        ("endpoint = 'a1'", 1),
        ("'a1' = endpoint AND log_time IS NOT NULL", 1),
        ("endpoint = 'A1'", 1),
        ("lower(endpoint) = 'a1'", FILES),
        ("endpoint IN ('a0', 'a1', NULL)", 2),
        (f"endpoint IN ('a1', {', '.join(repr(f'none{number}') for number in range(1000))})", 1),
        ("endpoint NOT IN ('a0', 'a1')", FILES),
        ("endpoint = 'a), b'", 1),
        ('endpoint = "it\'s"', 1),
        ("endpoint = 'it\\'s' OR endpoint = 'a\",[b]'", 2),
        ("endpoint = 'ä\\\\/ü`'", 1),
        ("endpoint = 'a b\\n'", 1),
        ("endpoint = ''", 0),
        ("endpoint = 'none'", 0),
        ("endpoint = NULL", 0),
        ("endpoint <=> 'a1'", 1),
        ("endpoint <=> NULL", FILES),
        ("endpoint IS NULL", FILES),
        ("endpoint LIKE 'a%'", FILES),
        ("endpoint LIKE 'a1'", 1),
        ("startswith(endpoint, 'a')", FILES),
        ("NOT endpoint = 'm'", FILES),
        ("NOT (endpoint <> 'a1')", 1),
        ("endpoint > 'a' AND endpoint < 'b'", FILES),
        ("log_time < 20", 2),
        ("log_time <= 20", 3),
        ("NOT log_time < 52", FILES - 6),
        ("log_time = 31", 1),
        ("log_time IN (1, 20)", 3),
        ("log_time < CAST('20' AS BIGINT)", 2),
        ("log_time < 15.5", 2),
        ("CAST(log_time AS STRING) = '20'", FILES),
        ("log_time + 1 < 20", FILES),
        ("log_time > 9223372036854775807", 0),
        ("log_time < -9223372036854775808", 0),
        ("log_time BETWEEN 21 AND 30 AND endpoint <> 'm'", 2),
        ("endpoint = 'm' AND log_time >= 40", FILES - 4),
        ("endpoint = 'a1' AND log_time >= 40", 0),
        ("endpoint = 'a1' OR log_time >= 50", FILES - 4),
        ("(endpoint = 'a1' OR endpoint = 'a0') AND (log_time < 5 OR log_time > 70)", 1),
        ("endpoint = 'a1' OR sequence = 3", FILES),
        ("sequence = 3 AND endpoint = 'm'", FILES),
        ("endpoint = concat('a', '1')", 1),
        ("endpoint = concat('a)', chr(44), ' b')", 1),
        ("endpoint = trim(' ')", 0),
        ("log_timestamp < TIMESTAMP '1970-01-01 00:00:01' AND endpoint = 'a1'", 1),
        ("date = DATE '1970-01-01' AND endpoint = 'a1'", 1),
        ("date = '1970-01-02'", 0),
        ("year(date) = 1970 AND size_class = 'small' AND log_time < 10", 1),
        ("size_class = 'large' OR date IS NULL", 0),
        ("concat(size_class, date) = 'small1970-01-01'", FILES),
        ("size_class IN ('large', 'small') AND NOT date > current_date()", FILES),
        ("size_class = 'large' OR endpoint = 'a1'", FILES),
        ("rand() >= 0 AND endpoint = 'a1'", 1),
        ("true", FILES),
        ("false", 0),
    ],
)
def test_condition_selects_files_and_no_other_rows(
    lake: Lake, unselected: DataFrame, condition: str, file_count: int
) -> None:
    expected = collect_sorted(unselected.where(condition))[1]
    for answer in (lake.messages().where(condition), lake.sql(f"SELECT * FROM messages WHERE {condition}")):
        assert collect_sorted(answer) == (file_count, expected)


@pytest.mark.parametrize(
    ("query", "file_count"),
    [
        (
            "SELECT x.endpoint, y.sequence FROM messages x JOIN messages y USING (sequence)"
            " WHERE x.endpoint = 'a1' AND y.endpoint = 'm' AND y.log_time < 30",
            4,
        ),
        ("SELECT x.sequence, y.log_time FROM messages x JOIN messages y USING (endpoint) WHERE endpoint = 'a0'", 2),
        (
            "SELECT x.sequence, y.endpoint FROM messages x LEFT JOIN messages y"
            " ON x.sequence = y.sequence AND y.endpoint = 'a1'",
            FILES + 1,
        ),
        ("SELECT * FROM messages WHERE endpoint = 'a0' UNION ALL SELECT * FROM messages WHERE log_time > 60", 3),
        ("SELECT * FROM (SELECT * FROM messages WHERE log_time < 30) WHERE endpoint IN ('a0', 'a1')", 2),
        ("WITH part AS (SELECT endpoint AS name FROM messages) SELECT * FROM part WHERE name = 'a1'", 1),
        ("SELECT endpoint, count(*) FROM messages GROUP BY endpoint HAVING endpoint = 'a1'", 1),
        ("SELECT * FROM messages WHERE endpoint = (SELECT min(endpoint) FROM messages WHERE sequence = 1)", FILES),
        ("SELECT * FROM messages WHERE log_time < 20 AND sequence IN (SELECT sequence FROM messages)", 2 + FILES),
        ("SELECT (SELECT count(*) FROM messages) FROM messages WHERE endpoint = 'a1'", 1),
    ],
)
def test_each_scan_of_query_opens_its_files(lake: Lake, unselected: DataFrame, query: str, file_count: int) -> None:
    answer, expected = lake.sql(query), lake.spark.sql(query.replace(" messages", " unselected"))
    assert collect_sorted(answer) == (file_count, collect_sorted(expected)[1])


def test_values_of_variables_select_files(lake: Lake) -> None:
    lake.spark.sql("DECLARE OR REPLACE VARIABLE wanted STRING DEFAULT 'a), b'")
    answer = lake.sql("SELECT sequence FROM messages WHERE endpoint = wanted")
    assert collect_rows(answer) == (1, [(2,)])
    answer = lake.spark.sql("SELECT sequence FROM messages WHERE endpoint = :name", {"name": "it's"})
    assert collect_rows(answer) == (1, [(3,)])


def test_views_of_register_select_files(lake: Lake) -> None:
    lake.register()
    lake.spark.sql("CREATE OR REPLACE TEMP VIEW early AS SELECT * FROM messages WHERE log_time < 30")
    answer = lake.spark.sql("SELECT sequence FROM early WHERE endpoint IN ('a1', 'A1')")
    assert collect_rows(answer) == (1, [(1,)])


def test_statement_that_writes_reads_selected_files(lake: Lake, tmp_path: Path) -> None:
    lake.sql(f"INSERT OVERWRITE DIRECTORY '{tmp_path}/out' USING parquet SELECT * FROM messages WHERE log_time >= 20")
    assert lake.spark.read.parquet(f"{tmp_path}/out").count() == 2 * FILES - 4


def test_invalid_query_is_reported(lake: Lake) -> None:
    with pytest.raises(SparkError, match="nowhere"):
        lake.sql("SELECT nowhere FROM messages")


def test_query_creates_only_views_that_it_names(lake: Lake) -> None:
    spark = lake.spark
    for view in ("messages", "read_errors", "decode_errors"):
        spark.catalog.dropTempView(view)
    lake.sql("SELECT * FROM Read_Errors").collect()
    assert [view for view in ("messages", "decode_errors", "read_errors") if spark.catalog.tableExists(view)] == [
        "read_errors"
    ]


def test_queries_keep_their_files_after_later_queries(lake: Lake) -> None:
    first, second = (lake.sql(f"SELECT * FROM messages WHERE endpoint = 'a{number}'") for number in (0, 1))
    assert (first.count(), second.count(), first.union(second).count()) == (1, 1, 2)


def test_query_leaves_frames_of_session_unchanged(lake: Lake) -> None:
    answer = lake.sql("SELECT * FROM messages WHERE endpoint = 'a1'")
    answer.createOrReplaceTempView("answer")
    lake.sql("SELECT * FROM messages WHERE endpoint = 'a0'").collect()
    assert lake.spark.table("answer").count() == 1
    assert lake.spark.table("messages").count() == 2 * FILES


def test_query_finds_views_of_session(lake: Lake) -> None:
    spark = lake.spark
    spark.sql("CREATE OR REPLACE TEMP VIEW wanted AS SELECT 'a1' AS endpoint")
    query = "SELECT messages.sequence FROM messages JOIN wanted USING (endpoint) WHERE log_time < 30"
    assert lake.sql(query).collect() == [(1,)]
    spark.catalog.dropTempView("wanted")


def test_arguments_of_messages_select_files_and_rows(lake: Lake) -> None:
    rows = lake.messages(start=10, end=31, endpoints=["m", "a1"])
    file_count, found = collect_rows(rows)
    assert (file_count, len(found)) == (2, 3)
    assert lake.messages(endpoints="a1").count() == lake.messages(endpoints=["a1"]).count() == 1
    with pytest.raises(InvalidValueError, match="endpoints is empty"):
        lake.messages(endpoints=[])
    assert lake.messages(end="1970-01-01T00:00").count() == 0
    assert lake.messages(datetime(1970, 1, 1, 1)).count() == 0
    with pytest.raises(InvalidValueError, match="'yesterday' is not a time"):
        lake.messages(start="yesterday")
    assert lake.messages(end=0).count() == 0
    with pytest.raises(InvalidValueError, match="64 bits"):
        lake.messages(start=1 << 63)
    assert lake.messages().count() == 2 * FILES


def test_condition_argument_of_messages_selects_files(lake: Lake) -> None:
    from pyspark.sql import functions as F

    assert collect_rows(lake.messages(where=(F.col("log_time") >= 20) & (F.col("endpoint") == "it's")))[0] == 1
    file_count, found = collect_rows(lake.messages(start=20, where="log_time < 31 AND sequence = 2"))
    assert (file_count, len(found)) == (2, 2)
    for wrong in (True, ["log_time > 0"], lambda row: row):
        with pytest.raises(InvalidTypeError, match="use a Column, such as"):
            lake.messages(where=wrong)  # type: ignore[arg-type]
    with pytest.raises(SparkError, match="nowhere"):
        lake.messages(where="nowhere > 1")


def test_query_of_all_files_names_faster_call(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_selector, "UNSELECTED_FILES_MAX", FILES)
    assert lake.messages().count() == 2 * FILES, "no warning yet"
    monkeypatch.setattr(file_selector, "UNSELECTED_FILES_MAX", FILES - 1)
    with pytest.warns(MsgqWarning, match=rf"more than {FILES - 1}; .*such as lake.messages\(where=") as warned:
        assert lake.messages().where("sequence % 2 = 0").count() == FILES
    assert len(warned) == 1
    for condition in ("log_time > 20", "date < '1970-01-01'"):
        lake.messages(where=condition).count()
