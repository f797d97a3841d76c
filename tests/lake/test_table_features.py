"""Tables that delta-spark made with features of Delta: msgq has their rows, or says why it refuses them.

The file delta_spark_tables.zip has the tables of tests/delta_spark/feature_tables.py.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")
pytest.importorskip("click")
from msgq.errors import RecordingError
from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from tests.command import run
from tests.delta_spark.feature_tables import ARCHIVE, FEATURE_TABLES, UNREADABLE_TABLES, UNWRITABLE_TABLES


def open_table(directory: Path, name: str) -> LakeTable:
    has_partitions = FEATURE_TABLES[name].partitioned.startswith("PARTITIONED")
    return LakeTable(LakeDirectory(directory), name, ["v"] if has_partitions else [])


def read_texts(table: LakeTable) -> list[tuple[object, ...]]:
    """Return the sorted rows. Times are texts."""
    snapshot = table.read_snapshot()
    assert snapshot is not None
    rows = [tuple(row.values()) for row in snapshot.read_rows().to_pylist()]
    return sorted(tuple(value if isinstance(value, int) else str(value) for value in row) for row in rows)


def add_row(table: LakeTable) -> None:
    """Add a row in a file of its own."""
    base = table.read_snapshot()
    assert base is not None
    columns = [field for field in base.columns if field.name not in table.partitions]
    row = pa.table({f.name: pa.array([9] if f.name == "id" else [None], f.type) for f in columns})
    folder = "".join(f"{name}=new/" for name in table.partitions)
    table.commit_files(base, base.columns, [table.write_file(f"{folder}new.parquet", row)])


def check_tables(directory: Path) -> None:
    """Check each table that is not refused, and each refusal."""
    for name, how in FEATURE_TABLES.items():
        table, feature = open_table(directory, name), name.partition("-")[0]
        if name in UNREADABLE_TABLES:
            with pytest.raises(
                RecordingError, match=rf"'{directory / name}' cannot be read: .*{feature}.*copy its rows"
            ):
                table.read_snapshot()
            continue
        assert read_texts(table) == how.rows, name
        if name in UNWRITABLE_TABLES:
            for change in (add_row, lambda table: table.vacuum(168)):
                with pytest.raises(RecordingError, match=rf"{name}' cannot be written: .*{feature}.*copy its rows"):
                    change(table)
        else:
            add_row(table)
            table.vacuum(100)
            assert {row[0] for row in read_texts(table)} == {9, *(row[0] for row in how.rows)}, name


@pytest.fixture
def stored_tables(tmp_path: Path) -> Path:
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(tmp_path / "tables")
    return tmp_path / "tables"


def test_tables_with_unknown_features_are_refused_and_others_are_right(stored_tables: Path) -> None:
    assert {path.name for path in stored_tables.iterdir()} == set(FEATURE_TABLES)
    check_tables(stored_tables)


def test_lake_command_names_feature_that_it_cannot_read(stored_tables: Path) -> None:
    (stored_tables / "plain").rename(stored_tables / "messages")
    error = run("lake", "tables", stored_tables, code=1).stderr
    assert "does not support: " in error
    assert "Traceback" not in error
