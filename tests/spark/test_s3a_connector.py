"""Spark's own connector of S3 reads a lake: with hadoop-aws from Maven Central, 700 MB in build/s3a."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from msgq.spark import session as open_session
from msgq.spark.lake import Lake
from msgq.spark.lake.hadoop_connectors import get_hadoop_version
from tests.object_store import SECRET, ObjectStore
from tests.recording.logs import write_log
from tests.support import ROOT, run_child

pytestmark = [pytest.mark.nightly, pytest.mark.watchdog(1800)]
ENDPOINTS = "SELECT endpoint, messages FROM endpoints ORDER BY endpoint"


def query_lake(url: str, options: dict[str, str], package: str) -> dict[str, Any]:
    """In a process of its own: read a lake with the connector."""
    settings = {"spark.jars.packages": package, "spark.jars.ivy": str(ROOT / "build/s3a")}
    spark = open_session("local[2]", **settings)
    lake = Lake(spark, url, storage_options=options)
    rows = lake.messages(endpoints=["imu"])
    location = lake._directory.hadoop_location
    answer = {
        "location": location and location.uri,
        "endpoints": [list(row) for row in lake.sql(ENDPOINTS).collect()],
        "messages": [rows.count(), lake.messages().where("log_time < 1010").count()],
        "plan": rows._jdf.queryExecution().toString(),
    }
    spark.stop()
    return answer


def test_lake_is_read_by_spark_connector_of_s3(session: Any, object_store: ObjectStore, tmp_path: Path) -> None:
    messages = (("imu" if number % 2 else "gps", 1000 + number, b"x") for number in range(200))
    recording = write_log(tmp_path / "a.mcap", *messages)
    lake = Lake(session, f"{object_store.url}/lake", storage_options=object_store.options)
    lake.ingest([recording])
    lake.build_gold()
    package = f"org.apache.hadoop:hadoop-aws:{get_hadoop_version(session)}"
    answer = run_child(query_lake, lake.uri, object_store.options, package)
    assert answer["location"] == f"s3a://{object_store.bucket}/lake"
    assert answer["endpoints"] == [["gps", 100], ["imu", 100]]
    assert answer["messages"] == [100, 10]
    assert SECRET not in answer["plan"]
