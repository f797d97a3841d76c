"""Tables of delta-spark with features of Delta.

`python -m tests.delta_spark.feature_tables` writes them into tests/lake/delta_spark_tables.zip, for tests without
delta-spark.
"""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from tests.delta_spark.engine import DeltaSpark, name_table, start
from tests.support import ROOT

ARCHIVE = ROOT / "tests" / "lake" / "delta_spark_tables.zip"
_INSERT = "INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')"
_DELETE = "DELETE FROM {table} WHERE id = 2"
_DELETION_VECTORS = "'delta.enableDeletionVectors' = 'true'"
_MAPPING = "'delta.columnMapping.mode' = 'name'"


class FeatureTable(NamedTuple):
    """How a table is made. `rows`: rows of a table that msgq can read."""

    rows: list[tuple[object, ...]]
    properties: str = ""
    statements: tuple[str, ...] = (_INSERT,)
    columns: str = "id INT, v STRING"
    partitioned: str = ""


_ROWS: list[tuple[object, ...]] = [(1, "a"), (2, "b"), (3, "c")]
#: Tables that msgq refuses to read, by their features, separated by a comma and a dash.
UNREADABLE_TABLES = {
    "deletionVectors": FeatureTable([], _DELETION_VECTORS, (_INSERT, _DELETE)),
    "deletionVectors-unused": FeatureTable([], _DELETION_VECTORS),
    "columnMapping": FeatureTable([], _MAPPING, (_INSERT, "ALTER TABLE {table} RENAME COLUMN v TO w")),
    "columnMapping-id": FeatureTable([], "'delta.columnMapping.mode' = 'id'"),
    "columnMapping-old": FeatureTable(
        [], f"{_MAPPING}, 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
    ),
    "columnMapping-iceberg": FeatureTable([], f"{_MAPPING}, 'delta.enableIcebergCompatV2' = 'true'"),
    "typeWidening": FeatureTable(
        [], "'delta.enableTypeWidening' = 'true'", (_INSERT, "ALTER TABLE {table} ALTER COLUMN id TYPE BIGINT")
    ),
    "v2Checkpoint": FeatureTable(
        [], "'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '1'", (_INSERT, _INSERT)
    ),
    "variantType": FeatureTable(
        [], "", ("INSERT INTO {table} SELECT 1, parse_json('1')",), columns="id INT, v VARIANT"
    ),
    "vacuumProtocolCheck": FeatureTable([], "'delta.feature.vacuumProtocolCheck' = 'supported'"),
}
#: Tables that msgq reads, and refuses to write, by their features.
UNWRITABLE_TABLES = {
    "checkConstraints": FeatureTable(
        _ROWS, "", (_INSERT, "ALTER TABLE {table} ADD CONSTRAINT positive CHECK (id > 0)")
    ),
    "clustering": FeatureTable(_ROWS, partitioned="CLUSTER BY (id)"),
    "allowColumnDefaults": FeatureTable(
        [(1, "x")],
        "'delta.feature.allowColumnDefaults' = 'supported'",
        ("INSERT INTO {table} (id) VALUES (1)",),
        columns="id INT, v STRING DEFAULT 'x'",
    ),
    "inCommitTimestamp": FeatureTable(_ROWS, "'delta.enableInCommitTimestamps' = 'true'"),
    "rowTracking": FeatureTable(_ROWS, "'delta.enableRowTracking' = 'true'"),
    "generatedColumns": FeatureTable(
        [(1, 2)], "", ("INSERT INTO {table} (id) VALUES (1)",), columns="id INT, v INT GENERATED ALWAYS AS (id + 1)"
    ),
    "identityColumns": FeatureTable(
        [(1, "x")],
        "",
        ("INSERT INTO {table} (v) VALUES ('x')",),
        columns="id BIGINT GENERATED ALWAYS AS IDENTITY, v STRING",
    ),
    "materializePartitionColumns": FeatureTable(
        _ROWS, "'delta.feature.materializePartitionColumns' = 'supported'", partitioned="PARTITIONED BY (v)"
    ),
    "checkpointProtection": FeatureTable(
        [(1, "a"), (3, "c")],
        _DELETION_VECTORS,
        (
            _INSERT,
            _DELETE,
            "ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')",
            "ALTER TABLE {table} DROP FEATURE deletionVectors",
        ),
    ),
}
#: Tables that msgq reads and writes.
USABLE_TABLES = {
    "plain": FeatureTable(_ROWS),
    "changeDataFeed": FeatureTable(
        [(1, "z"), (2, "b"), (3, "c")],
        "'delta.enableChangeDataFeed' = 'true'",
        (_INSERT, "UPDATE {table} SET v = 'z' WHERE id = 1"),
    ),
    "timestampNtz": FeatureTable(
        [(1, "2026-05-01 12:00:00")],
        "",
        ("INSERT INTO {table} VALUES (1, TIMESTAMP_NTZ '2026-05-01 12:00:00')",),
        columns="id INT, v TIMESTAMP_NTZ",
    ),
    "notNull": FeatureTable(_ROWS, columns="id INT NOT NULL, v STRING"),
    "partitions": FeatureTable(_ROWS, partitioned="PARTITIONED BY (v)"),
}
FEATURE_TABLES = UNREADABLE_TABLES | UNWRITABLE_TABLES | USABLE_TABLES


def make_tables(delta_spark: DeltaSpark, directory: Path) -> None:
    """Let delta-spark make all tables in a directory."""
    for name, how in FEATURE_TABLES.items():
        table = name_table(directory / name)
        properties = f"TBLPROPERTIES ({how.properties})" if how.properties else ""
        delta_spark.sql(f"CREATE TABLE {table} ({how.columns}) USING delta {how.partitioned} {properties}")
        for statement in how.statements:
            delta_spark.sql(statement.format(table=table))


def main() -> None:
    """Write the archive, without the files that only repeat others."""
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        directory, work = Path(name, "tables"), Path(name, "work")
        work.mkdir()
        with start(work) as delta_spark:
            make_tables(delta_spark, directory)
        with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(directory.rglob("*")):
                if path.is_file() and path.suffix != ".crc":
                    archive.write(path, path.relative_to(directory))


if __name__ == "__main__":
    main()
