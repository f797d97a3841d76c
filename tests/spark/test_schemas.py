"""Schemas that a user names reach Spark's source and lakes; the workers need neither their files nor pycapnp."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from msgq.decoding.schemas import Schemas
from msgq.errors import InvalidValueError
from msgq.spark.lake import Lake
from msgq.spark.source.source_options import SourceOptions
from tests.recording.logs import write_log
from tests.spark.rows import sorted_rows

TEXT = "string name\nfloat32[] ranges\n"
MESSAGES = [b"\0\1\0\0\2\0\0\0" + bytes([65 + i]) + b"\0\0\0\1\0\0\0\0\0\0\x3f" for i in range(3)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "a.mcap", *(("/scan", i, data) for i, data in enumerate(MESSAGES)))


@pytest.fixture
def text(tmp_path: Path) -> str:
    (tmp_path / "Scan.msg").write_text(TEXT)
    return f"/sc*=cdr:{tmp_path}/Scan.msg:pkg/msg/Scan"


def test_schema_option_is_read_once(log: Path, text: str, tmp_path: Path) -> None:
    options = pickle.loads(pickle.dumps(SourceOptions.parse_options({"path": str(log), "schemas": text})))
    (tmp_path / "Scan.msg").unlink()
    assert [value["name"] for _, value in options.open_log(log).decoded()] == ["A", "B", "C"]
    assert SourceOptions.parse_options({"path": str(log)}).schemas is None
    with pytest.raises(InvalidValueError, match="has the unknown encoding 'nonsense'"):
        SourceOptions.parse_options({"path": str(log), "schemas": "nonsense"})


def test_schema_import_paths_are_folders(log: Path, tmp_path: Path) -> None:
    (tmp_path / "Scan.msg").write_text("more_msgs/Name name\nfloat32[] ranges\n")
    (tmp_path / "more" / "more_msgs").mkdir(parents=True)
    (tmp_path / "more" / "more_msgs" / "Name.msg").write_text("string name\n")
    text = f"/sc*=cdr:{tmp_path}/Scan.msg:pkg/msg/Scan"
    options = SourceOptions.parse_options(
        {"path": str(log), "schemas": text, "importpaths": f'["{tmp_path / "more"}"]'}
    )
    assert [value["name"]["name"] for _, value in options.open_log(log).decoded()] == ["A", "B", "C"]
    with pytest.raises(InvalidValueError, match="is not a folder"):
        SourceOptions.parse_options({"path": str(log), "schemas": text, "importPaths": "nosuch"})


def test_spark_source_decodes_with_schema_option(spark: Any, log: Path, text: str) -> None:
    reader = spark.read.format("msgq").option("decode", "/scan").option("schemas", text)
    rows = reader.load(str(log)).orderBy("log_time").collect()
    assert [(row.value.name, list(row.value.ranges)) for row in rows] == [("A", [0.5]), ("B", [0.5]), ("C", [0.5])]


def test_lake_keeps_schema_option(spark: Any, log: Path, text: str, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    assert lake.ingest([log], Schemas.of_texts([text])).messages == 3
    lake.build_silver()
    assert sorted(sorted_rows(lake.silver("/scan"), "name", "ranges")) == [(name, [0.5]) for name in "ABC"]
