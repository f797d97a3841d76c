"""A lake continues after delta-spark has changed its tables."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from msgq.errors import RecordingError
from tests.delta_spark.engine import DeltaSpark, name_table
from tests.delta_spark.feature_tables import make_tables
from tests.lake.local_lake import LocalLake, check_lake_continues, make_rows, read_tables
from tests.lake.test_table_features import check_tables

pytestmark = pytest.mark.nightly
#: Tables that delta-spark changes, and all silver tables. An OPTIMIZE and a VACUUM take 7 s of processor time.
CHANGED_TABLES = {
    *("messages", "ingested_files", "silver_manifest", "decode_errors", "ranges", "islands", "hours", "stages"),
    *("_increments", "_hours", "endpoints", "latency"),
}


def test_lake_continues_after_optimize_and_vacuum(
    delta_spark: DeltaSpark, written_lake: LocalLake, tmp_path: Path
) -> None:
    def optimize(table: Path) -> None:
        if table.name in CHANGED_TABLES or table.parent.name == "silver":
            delta_spark.sql(f"OPTIMIZE {name_table(table)}")
            delta_spark.sql(f"VACUUM {name_table(table)} RETAIN 0 HOURS")

    check_lake_continues(written_lake, tmp_path, optimize)


def test_lake_continues_with_copy_of_table_with_unknown_feature(
    delta_spark: DeltaSpark, written_lake: LocalLake, tmp_path: Path
) -> None:
    lake, copy = LocalLake(tmp_path / "lake", 2), tmp_path / "copy"
    shutil.copytree(written_lake.path, lake.path)
    messages = name_table(lake.path / "messages")
    delta_spark.sql(f"ALTER TABLE {messages} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    delta_spark.sql(f"DELETE FROM {messages} WHERE endpoint = 'wide' AND sequence % 2 = 0")
    with pytest.raises(RecordingError, match=r"messages' cannot be read: .*deletionVectors"):
        lake.ingest(*make_rows(3, 2))
    delta_spark.sql(
        f"CREATE TABLE {name_table(copy)} USING delta PARTITIONED BY (date, size_class) AS SELECT * FROM {messages}"
    )
    shutil.rmtree(lake.path / "messages")
    copy.rename(lake.path / "messages")
    lake.ingest(*make_rows(3, 2))
    lake.build()
    rows = read_tables(lake)
    [silver] = (rows[place] for place in rows if place.startswith("silver/struct-Wide"))
    assert len(silver) == 20 + 20 + 40
    assert len(rows["messages"]) == len(read_tables(written_lake)["messages"]) - 40 + len(make_rows(3, 2)[0])


def test_new_tables_with_features_are_refused_or_right(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    make_tables(delta_spark, tmp_path)
    check_tables(tmp_path)
