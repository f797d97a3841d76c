"""Which tables a lake has, as its commits say; without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("click")
import pyarrow as pa

from msgq.lake.catalog import find_unquoted_name, is_lake_directory, list_sql_names, list_tables
from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from tests.command import run


def create_table(lake: Path, place: str, rows: pa.Table, files: int = 1) -> None:
    """Commit a table in some files, and leave one that no commit names."""
    delta = LakeTable(LakeDirectory(lake), place)
    found = [delta.write_file(f"{number}.parquet", rows) for number in range(files + 1)]
    delta.commit_files(None, rows.schema, found[:-1])


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    rows = pa.table({"run": ["r", "r"], "n": [1, 2]})
    for place in ("aggregates/3/ranges", "gold/_increments", "ingested_files", "gold/endpoints", "messages"):
        create_table(tmp_path, place, rows, files=3 if place == "messages" else 1)
    create_table(tmp_path, "silver/Imu-1a2b", rows)
    endpoints = ["b", "a", "c", "d[/]", "a", None]
    parts = {"bronze_file": ["p"] * 6, "table_name": ["Imu-1a2b"] * 6, "endpoint": endpoints, "row_count": [1] * 6}
    create_table(tmp_path, "silver_manifest", pa.table(parts))
    (tmp_path / "gold" / "half").mkdir()  # folder of a writer that was killed before its commit
    return tmp_path


def test_catalog_lists_tables_at_last_commit(lake: Path) -> None:
    found = {info.path: info for info in list_tables(LakeDirectory(lake))}
    assert list(found)[:3] == ["messages", "silver/Imu-1a2b", "gold/endpoints"]
    assert set(list(found)[3:]) == {"ingested_files", "silver_manifest", "gold/_increments", "aggregates/3/ranges"}
    messages = found["messages"]
    assert (messages.name, messages.row_count, messages.file_count, messages.version) == ("messages", 6, 3, 0)
    assert messages.size_bytes == sum((lake / "messages" / f"{n}.parquet").stat().st_size for n in range(3))
    assert (found["gold/endpoints"].name, found["gold/endpoints"].description) == ("endpoints", "an endpoint of a run")
    assert found["gold/_increments"].name == found["aggregates/3/ranges"].name == found["ingested_files"].name == ""
    silver = found["silver/Imu-1a2b"]
    assert (silver.name, silver.description) == ("silver_a", "a value of a message of a, b, c and 1 more")


def test_lake_tables_command_lists_names_and_row_counts(lake: Path) -> None:
    told: list[dict[str, Any]] = [
        json.loads(line) for line in run("lake", "tables", lake, "--json").stdout.splitlines()
    ]
    assert [(one["name"], one["row_count"]) for one in told][:3] == [("messages", 6), ("silver_a", 2), ("endpoints", 2)]
    shown = run("lake", "tables", lake).stdout
    assert "an endpoint of a run" in shown
    assert "gold/endpoints" in shown


def test_lake_command_without_lake_raises_error(tmp_path: Path) -> None:
    assert not is_lake_directory(LakeDirectory(tmp_path))
    for verb in ("tables", "optimize"):
        assert "not found; to create it" in run("lake", verb, tmp_path / "no", code=1).output


def test_names_in_errors_are_quoted_for_sql_and_limited() -> None:
    names = ["silver_camera.front", "silver_gps", *(f"silver_{number:02}" for number in range(40))]
    text = list_sql_names("silver_gpz", names)
    assert text.startswith("tables: `silver_camera.front`, silver_gps, silver_00, ")
    assert text.endswith(" and 12 more; did you mean 'silver_gps'?")
    assert list_sql_names("x", ["imu"]) == "tables: imu"


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("SELECT * FROM silver_/imu", "silver_/imu"),
        ("SELECT * FROM Silver_/IMU/data", "silver_/imu/data"),
        ("SELECT * FROM `silver_/imu`", None),
        ("SELECT * FROM silver_gps WHERE", None),
    ],
)
def test_unquoted_name_of_rejected_query_is_found(query: str, name: str | None) -> None:
    assert find_unquoted_name(query, ["silver_/imu", "silver_/imu/data", "silver_gps", "messages"]) == name
