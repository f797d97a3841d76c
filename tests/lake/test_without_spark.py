"""Commands of `msgq lake` that read a lake, in a process without Spark and Java."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")
pytest.importorskip("deltalake")
pytest.importorskip("duckdb")
import pyarrow as pa

from msgq.errors import InvalidValueError
from msgq.lake import external_sort, log_export
from msgq.lake.aggregate_store import AggregateStore
from msgq.lake.bronze import bronze_reader
from msgq.lake.bronze.bronze_reader import BronzeReader
from msgq.lake.bronze.bronze_writer import open_messages_table, write_bronze
from msgq.lake.duckdb_engine import _make_value
from msgq.lake.gold.increment_inputs import is_gold_current
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.log_export import EXPORT_COLUMNS, write_messages
from msgq.lake.message_columns import BRONZE_COLUMNS
from msgq.lake.message_filter import MessageFilter
from msgq.recording import LogReader
from tests.command import run
from tests.lake.bronze_rows import HOUR, MIDNIGHT, SECOND, add
from tests.lake.golds import build_gold
from tests.lake.rows import batch, message
from tests.lake.without_spark import run_without_spark

MESSAGES = [
    message(name, number, MIDNIGHT + hour * HOUR + number * SECOND, data=b'{"n": %d}' % number)
    for hour in range(3)
    for name in ("imu", "camera/front", "gps")
    for number in range(4)
]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake of three files, one for each hour, with gold."""
    path = tmp_path / "lake"
    for first in range(0, len(MESSAGES), 12):
        add(LakeDirectory(path), MESSAGES[first : first + 12])
    build_gold(path)
    return path


def later_message() -> dict[str, Any]:
    return message("imu", 9, MIDNIGHT + 5 * HOUR)


def test_gold_is_current_until_new_messages_are_committed(lake: Path) -> None:
    directory = LakeDirectory(lake)
    assert is_gold_current(directory)
    add(directory, [later_message()])
    assert not is_gold_current(directory)
    build_gold(lake)
    assert is_gold_current(directory)


def test_gold_without_aggregates_of_new_messages_is_not_current(lake: Path) -> None:
    directory = LakeDirectory(lake)
    table, written = open_messages_table(directory), write_bronze([batch([later_message()])], directory)
    table.commit_files(table.read_snapshot(), BRONZE_COLUMNS, written.bronze_files)  # and then the process was killed
    assert not is_gold_current(directory)
    AggregateStore(directory).commit_files(written.aggregate_files, [file.path for file in written.bronze_files])
    assert not is_gold_current(directory)


def test_gold_that_was_never_built_is_not_current(tmp_path: Path) -> None:
    directory = LakeDirectory(tmp_path / "lake")
    assert not is_gold_current(directory)
    add(directory, [later_message()])
    assert not is_gold_current(directory)


def test_report_of_current_lake_needs_no_spark(lake: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    told = json.loads(run_without_spark("lake", "report", lake, "-o", page, "--json").stdout)
    assert (told["messages"], told["endpoints"], told["path"]) == (36, 3, str(page))
    assert "camera/front" in page.read_text()


def test_report_of_lake_with_new_messages_needs_spark(lake: Path, tmp_path: Path) -> None:
    add(LakeDirectory(lake), [later_message()])
    done = run_without_spark("lake", "report", lake, "-o", tmp_path / "report.html", code=1)
    assert "pip install 'msgq-bus[spark]'" in done.stderr
    assert not (tmp_path / "report.html").exists()


def test_report_of_recording_names_all_missing_libraries(tmp_path: Path) -> None:
    recording = tmp_path / "000000.mcap"
    recording.touch()
    done = run_without_spark("lake", "report", recording, missing=("deltalake", "plotly"), code=1)
    assert "needs deltalake and plotly and pyspark, which are not installed" in done.stderr
    assert "pip install 'msgq-bus[spark-jdk]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def read_times(path: Path) -> list[tuple[str, int]]:
    """Return the endpoint and time of each message of a recording."""
    return [(read.endpoint, read.log_time) for read in LogReader(path)]


def select(*endpoints: str, start: float = 0, end: float = math.inf) -> list[tuple[str, int]]:
    """Return the endpoint and time of messages of some endpoints, between two times in seconds after the first one."""
    chosen = [row for row in MESSAGES if start * SECOND <= row["log_time"] - MIDNIGHT < end * SECOND]
    return sorted(
        ((row["endpoint"], row["log_time"]) for row in chosen if row["endpoint"] in endpoints),
        key=lambda found: (found[1], found[0]),
    )


def test_export_without_sql_writes_selected_messages(lake: Path, tmp_path: Path) -> None:
    part, rest, end = tmp_path / "range.mcap", tmp_path / "rest.mcap", "2023-11-15T02:00:02"
    times = ("--start", "3601.5", "--end", end)
    run("lake", "export", lake, *times, "--endpoint", "camera/*", "--regex", "^g", "-o", part)
    assert read_times(part) == select("camera/front", "gps", start=3601.5, end=7202)
    assert len(read_times(part)) == 8
    assert run("lake", "export", lake, "--exclude", "s$", "-o", rest).stdout == f"{rest}: 24 messages\n"
    assert read_times(rest) == select("camera/front", "imu")
    assert [read.data for read in LogReader(rest)][:2] == [b'{"n": 0}'] * 2


def test_export_without_selection_writes_all_messages_of_version(lake: Path, tmp_path: Path) -> None:
    run_without_spark("lake", "export", lake, "-o", tmp_path / "all.mcap")
    assert read_times(tmp_path / "all.mcap") == select("camera/front", "gps", "imu")
    run("lake", "export", lake, "--version", 1, "--to", "mcap", "-o", tmp_path / "old")
    assert read_times(tmp_path / "old") == select("camera/front", "gps", "imu", end=7e3)


def test_replay_without_sql_plays_selected_messages(lake: Path, prefix: str) -> None:
    options = ("--rate", "inf", "--json", "--prefix", prefix)
    played = run_without_spark("lake", "replay", lake, "--endpoint", "gps", "--end", "9", *options)
    assert json.loads(played.stdout)["messages"] == 4
    choice = ("--regex", "a", "--exclude", "imu", "--start", "7201", "--end", "9000")
    chosen = run("lake", "replay", lake, "--endpoint", "camera/front", *choice, *options)
    assert json.loads(chosen.stdout)["messages"] == 3


def test_replay_of_range_without_messages_reports_error(lake: Path) -> None:
    done = run("lake", "replay", lake, "--start", "100000", code=1)
    assert "selection has no messages; nothing to play" in done.output


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("SELECT * FROM messages", "--start", 0.0), 2, "exclude each other"),
        (("SELECT * FROM messages", "--endpoint", "imu"), 2, "exclude each other"),
        (("--endpoint", "nosuch", "-e", "^imu"), 1, "of the lake matches nosuch; endpoints: camera/front, "),
        (("--regex", "nosuch"), 1, "no endpoint of the lake matches nosuch"),
        (("--to", "csv"), 2, "the format csv needs SQL"),
        (("--start", "noon"), 2, "is not a time"),
        (("--start", 5, "--end", 1), 2, "--end is not after --start"),
        (("--start", "2023-11-15", "--end", "2023-11-15"), 2, "--end is not after --start"),
        (("--endpoint", "gpz"), 1, "; did you mean 'gps'?"),
        (("--version", 99), 1, "no such version"),
    ],
)
def test_export_with_wrong_selection_reports_error(
    lake: Path, tmp_path: Path, words: tuple[object, ...], code: int, text: str
) -> None:
    assert text in run("lake", "export", lake, *words, "-o", tmp_path / "out.mcap", code=code).output
    assert not (tmp_path / "out.mcap").exists()


def test_export_of_range_without_messages_tells_first_time(lake: Path, tmp_path: Path) -> None:
    done = run("lake", "export", lake, "--start", "100000", "-o", tmp_path / "out.mcap")
    assert "the lake begins at 2023-11-15T00:00:00.000+00:00" in done.stderr
    assert done.stdout.strip().endswith("out.mcap: 0 messages")


def test_reader_lists_endpoints_of_file_without_aggregates(lake: Path) -> None:
    directory = LakeDirectory(lake)
    table, written = open_messages_table(directory), write_bronze([batch([message("new", 0, 5)])], directory)
    table.commit_files(table.read_snapshot(), BRONZE_COLUMNS, written.bronze_files)  # and then the process was killed
    reader = BronzeReader(directory)
    assert reader.list_endpoints() == ["camera/front", "gps", "imu", "new"]
    assert reader.find_start_time() == 5
    assert BronzeReader(directory, version=2).list_endpoints() == ["camera/front", "gps", "imu"]


def test_reader_of_empty_lake_has_no_messages(tmp_path: Path) -> None:
    reader = BronzeReader(LakeDirectory(tmp_path / "lake"))
    assert (reader.list_endpoints(), reader.find_start_time()) == ([], None)
    assert reader.select_files(MessageFilter()) == []


def test_start_time_of_files_without_statistics_is_read_from_rows(tmp_path: Path) -> None:
    directory = LakeDirectory(tmp_path)
    long_text = "x" * 5000  # Parquet keeps no statistics of long texts, so the Delta log has no bounds of the file
    add(directory, [message("imu", number, MIDNIGHT + 9 - number, options=long_text) for number in range(10)])
    reader = BronzeReader(directory)
    snapshot = reader.read_snapshot()
    assert snapshot is not None
    assert not any(file.column_bounds for file in snapshot.files_by_path.values())
    assert reader.find_start_time() == MIDNIGHT


def test_export_reads_files_by_time_and_starts_few_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The merge has one batch of each started run in memory; runs of later times must wait."""
    directory, hours = LakeDirectory(tmp_path / "lake"), list(range(24))
    random.Random(7).shuffle(hours)
    for hour in hours:
        add(directory, [message("imu", number, MIDNIGHT + hour * HOUR + number) for number in range(10)])
    monkeypatch.setattr(external_sort, "_SORTED_RUN_ROWS", 15)
    started: list[str] = []
    read = external_sort._read_sorted_run

    def open_run(lake: LakeDirectory, path: str) -> Iterator[dict[str, Any]]:
        started.append(path)
        yield from read(lake, path)
        started.remove(path)

    monkeypatch.setattr(external_sort, "_read_sorted_run", open_run)
    most = 0

    def count_started(*_: object) -> None:
        nonlocal most
        most = max(most, len(started))

    monkeypatch.setattr(log_export, "_write_message", count_started)
    reader = BronzeReader(directory)
    batches = reader.read_batches(reader.select_files(MessageFilter()), MessageFilter(), EXPORT_COLUMNS)
    write_messages(batches, tmp_path / "out.mcap", {})
    assert 1 <= most <= 3
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_lake_tables_needs_no_spark(lake: Path) -> None:
    lines = run_without_spark("lake", "tables", lake, "--json").stdout.splitlines()
    assert [row["row_count"] for row in map(json.loads, lines) if row["name"] == "messages"] == [36]


def query(lake: Path, sql: str) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in run("lake", "sql", lake, sql, "--engine", "duckdb", "--json").stdout.splitlines()
    ]


def test_duckdb_query_needs_no_spark(lake: Path) -> None:
    sql = "SELECT endpoint, count(*) AS n, min(log_timestamp) AS first FROM messages GROUP BY ALL ORDER BY endpoint"
    lines = run_without_spark("lake", "sql", lake, sql, "--engine", "duckdb", "--json", "-n", 2).stdout.splitlines()
    first = "2023-11-15 00:00:00"
    assert list(map(json.loads, lines)) == [
        {"endpoint": name, "n": 12, "first": first} for name in ("camera/front", "gps")
    ]


def test_duckdb_query_reads_only_named_tables(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bronze_reader.BronzeReader, "open_dataset", lambda self: pytest.fail("messages were read"))
    assert query(lake, "SELECT count(*) AS n FROM endpoints JOIN endpoints AS e USING (run)") == [{"n": 9}]
    assert query(lake, "SELECT * FROM read_errors") == []
    assert query(lake, "SELECT * FROM decode_errors") == []


def test_duckdb_query_reads_version_of_messages(lake: Path) -> None:
    sql, version = "SELECT count(*) AS n FROM messages", "1"
    told = run("lake", "sql", lake, sql, "--engine", "duckdb", "--version", version, "--json").stdout
    assert json.loads(told) == {"n": 24}


def test_duckdb_error_lists_tables(lake: Path) -> None:
    done = run("lake", "sql", lake, "SELECT * FROM endpoint", "--engine", "duckdb", code=1)
    assert "Table with name endpoint does not exist" in done.output
    assert "; tables: messages, read_errors, " in done.output
    assert done.output.strip().endswith(", checks; did you mean 'endpoints'?")
    assert len(done.output.splitlines()) == 1
    done = run("lake", "sql", lake, "SELECT 1", "--engine", "duckdb", "--master", "local[1]", code=2)
    assert "--master needs --engine spark" in done.output


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT endpont FROM endpoints", 'Candidate bindings: "endpoint"'),
        ("SELEC", "syntax error"),
    ],
)
def test_duckdb_error_of_query_keeps_advice_without_tables(lake: Path, sql: str, text: str) -> None:
    done = run("lake", "sql", lake, sql, "--engine", "duckdb", code=1)
    assert text in done.output
    assert "tables: " not in done.output
    assert len(done.output.splitlines()) == 1


def test_duckdb_query_names_all_missing_libraries(lake: Path) -> None:
    done = run_without_spark(
        "lake", "sql", lake, "SELECT 1", "--engine", "duckdb", missing=["deltalake", "duckdb"], code=1
    )
    assert "needs deltalake and duckdb, which are not installed; run: pip install 'msgq-bus[duckdb]'" in done.stderr


def test_duckdb_query_of_field_with_other_stored_type_reports_error() -> None:
    assert _make_value(None, pa.field("a", pa.int64()), "e") == 'NULL AS "a"'
    assert _make_value(pa.field("B", pa.int64()), pa.field('b"', pa.int64()), "e") == '"B" AS "b"""'
    assert _make_value(pa.field("b", pa.float64()), pa.field("b", pa.int64()), "e") == 'CAST("b" AS BIGINT) AS "b"'
    decimal = pa.field("b", pa.decimal128(20, 0))
    assert _make_value(pa.field("b", pa.int64()), decimal, "e") == 'CAST("b" AS DECIMAL(20, 0)) AS "b"'
    with pytest.raises(InvalidValueError, match=r"is stored as string instead of int64.*use --engine spark"):
        _make_value(pa.field("b", pa.string()), pa.field("b", pa.int64()), "e")
