"""Commands of `msgq lake` that read a lake, in a process without Spark and Java."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")
pytest.importorskip("deltalake")
from msgq.lake.aggregate_store import AggregateStore
from msgq.lake.bronze.bronze_writer import open_messages_table, write_bronze
from msgq.lake.gold.increment_inputs import is_gold_current
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.message_columns import BRONZE_COLUMNS
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


def test_lake_tables_needs_no_spark(lake: Path) -> None:
    lines = run_without_spark("lake", "tables", lake, "--json").stdout.splitlines()
    assert [row["row_count"] for row in map(json.loads, lines) if row["name"] == "messages"] == [36]
