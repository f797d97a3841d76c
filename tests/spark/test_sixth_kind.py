"""A kind that the library does not know, on Spark: `examples/plugin`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from msgq.spark import read
from msgq.spark.lake import Lake
from tests.blob_logs import MESSAGES, write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_messages_of_additional_kind_are_read_and_stored(spark: SparkSession, tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.mcap")
    rows = read(spark, str(path), columns=["kind", "endpoint", "data"]).orderBy("data").collect()
    assert [(row.kind, row.endpoint, bytes(row.data)) for row in rows] == [
        ("blob", "blob/notes", one) for one in MESSAGES
    ]
    lake = Lake(spark, str(tmp_path / "lake"))
    lake.ingest([path])
    lake.build_gold()
    assert [(row.endpoint, row.messages) for row in lake.table("endpoints").collect()] == [("blob/notes", 2)]
