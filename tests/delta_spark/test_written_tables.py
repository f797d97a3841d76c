"""delta-spark reads each table that msgq writes, and merges rows of it into a table of its own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from msgq.lake.delta_table import LakeTable, list_table_paths
from msgq.lake.lake_directory import LakeDirectory
from tests.delta_spark.engine import DeltaSpark, name_table
from tests.lake.fleets import build_fleet
from tests.lake.local_lake import LocalLake
from tests.lake.rows import sorted_rows


def read_rows(directory: LakeDirectory, place: str, version: int | None = None) -> pa.Table:
    snapshot = LakeTable(directory, place).read_snapshot(version)
    assert snapshot is not None
    return snapshot.read_rows()


def check_same_rows(found: pa.Table, expected: pa.Table, name: str) -> None:
    assert set(found.column_names) == set(expected.column_names), name
    assert [found.schema.field(field.name).type for field in expected.schema] == expected.schema.types, name
    assert sorted_rows(found, *expected.column_names) == sorted_rows(expected), name


@pytest.mark.ci
def test_delta_spark_reads_messages_silver_and_gold(delta_spark: DeltaSpark, written_lake: LocalLake) -> None:
    [wide] = written_lake.path.glob("silver/struct-Wide*")
    for place in ("messages", f"silver/{wide.name}", "gold/latency_summary"):
        found = delta_spark.read(f"SELECT * FROM {name_table(written_lake.path / place)}")
        check_same_rows(found, read_rows(written_lake.directory, place), place)
    table = name_table(written_lake.path / "messages")
    [row] = delta_spark.sql(f"SELECT count(*) AS n, min(log_time) AS first, max(log_time) AS last FROM {table}")
    times = read_rows(written_lake.directory, "messages").column("log_time").to_pylist()
    assert row == {"n": len(times), "first": min(times), "last": max(times)}
    assert delta_spark.sql(f"SELECT count(*) AS n FROM {table} WHERE endpoint = 'gps/front é'") == [{"n": 82}]


@pytest.mark.nightly
def test_delta_spark_reads_all_tables(delta_spark: DeltaSpark, written_lake: LocalLake, tmp_path: Path) -> None:
    build_fleet(tmp_path / "fleet", written_lake.path)
    for directory in (written_lake.directory, LakeDirectory(tmp_path / "fleet")):
        for place in list_table_paths(directory):
            found = delta_spark.read(f"SELECT * FROM {name_table(Path(directory.root, place))}")
            check_same_rows(found, read_rows(directory, place), place)


@pytest.mark.nightly
def test_delta_spark_reads_old_versions_and_history(delta_spark: DeltaSpark, written_lake: LocalLake) -> None:
    for place in ("messages", "gold/endpoints"):
        table = name_table(written_lake.path / place)
        history = delta_spark.sql(f"DESCRIBE HISTORY {table}")
        newest = LakeTable(written_lake.directory, place).log.read_newest_version()
        assert [row["version"] for row in history] == list(range(newest, -1, -1))
        assert [row["operation"] for row in history] == ["WRITE"] * newest + ["CREATE TABLE"]
        assert all(row["engineInfo"].startswith("delta-rs") for row in history)
        for row in history:
            expected = read_rows(written_lake.directory, place, row["version"])
            found = delta_spark.read(f"SELECT * FROM {table} VERSION AS OF {row['version']}")
            check_same_rows(found, expected, place)
            [counted] = delta_spark.sql(f"SELECT count(*) AS n FROM {table} TIMESTAMP AS OF '{row['timestamp']}'")
            assert counted["n"] == expected.num_rows
        [detail] = delta_spark.sql(f"DESCRIBE DETAIL {table}")
        assert (detail["minReaderVersion"], detail["minWriterVersion"]) == (1, 2)


@pytest.mark.nightly
def test_delta_spark_merges_gold_into_table_of_user(
    delta_spark: DeltaSpark, written_lake: LocalLake, tmp_path: Path
) -> None:
    gold, own = name_table(written_lake.path / "gold/endpoints"), name_table(tmp_path / "own")
    delta_spark.sql(f"CREATE TABLE {own} USING delta AS SELECT run, endpoint, 0L AS messages FROM {gold} LIMIT 3")
    delta_spark.sql(
        f"MERGE INTO {own} AS own USING {gold} AS gold ON own.run = gold.run AND own.endpoint = gold.endpoint"
        " WHEN MATCHED THEN UPDATE SET own.messages = gold.messages"
        " WHEN NOT MATCHED THEN INSERT (run, endpoint, messages) VALUES (gold.run, gold.endpoint, gold.messages)"
    )
    expected = read_rows(written_lake.directory, "gold/endpoints").select(["run", "endpoint", "messages"])
    check_same_rows(delta_spark.read(f"SELECT * FROM {own}"), expected, "own")
    check_same_rows(read_rows(LakeDirectory(tmp_path), "own"), expected, "own")
