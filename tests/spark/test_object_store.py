"""Spark reads a lake in an object store, with a connector of Hadoop and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from pyspark.errors import PySparkException

from msgq.errors import MsgqWarning
from msgq.spark.lake import Lake
from msgq.spark.lake.hadoop_connectors import HadoopLocation, find_hadoop_location, make_hadoop_settings
from tests.object_store import SECRET, ObjectStore
from tests.recording import logs
from tests.support import run_child

ADVICE = r"no connector for s3://.* spark.jars.packages=org.apache.hadoop:hadoop-aws:3\.\d+\.\d+$"
#: A class of Hadoop that finds the files of a bucket on the disk, in place of S3A, which Spark does not contain.
STAND_IN = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"


@pytest.fixture(scope="module")
def local(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a complete lake on the disk, with two files of messages."""
    where = tmp_path_factory.mktemp("local")
    lake = Lake(spark, where / "lake")
    channels = [logs.channel(number, name, encoding="json") for number, name in enumerate("ab", 1)]
    for first in (0, 10):
        sent = [
            logs.message(number, index, 1000 + 1000 * index + number, b'{"x": %d}' % index)
            for index in range(first, first + 10)
            for number in (1, 2)
        ]
        logs.write_unclosed_file(where / f"{first}.mcap", logs.build_chunk_record(*channels, *sent))
        lake.ingest([where / f"{first}.mcap"])
    lake.build_silver()
    lake.build_gold()
    return where / "lake"


@pytest.fixture
def bucket(local: Path, object_store: ObjectStore) -> ObjectStore:
    """Return a bucket with a copy of the lake, by the same path."""
    client = object_store.connect()
    for path in local.rglob("*"):
        if path.is_file():
            client.put_object(Bucket=object_store.bucket, Key=str(path)[1:], Body=path.read_bytes())
    return object_store


def open_lake(session: Any, bucket: ObjectStore, local: Path) -> Lake:
    return Lake(session, f"{bucket.url}{local}", storage_options=bucket.options)


def collect_table(lake: Lake, name: str) -> list[str]:
    return sorted(map(str, lake.sql(f"SELECT * FROM {name}").collect()))


def test_all_tables_are_read_without_connector(session: Any, bucket: ObjectStore, local: Path) -> None:
    stored, plain = open_lake(session, bucket, local), Lake(session, local)
    with pytest.warns(MsgqWarning, match=ADVICE) as warned:
        names = stored.register("a")
    assert len(warned) == 1
    assert names == plain.register("a")
    for name in ("messages", "silver_a", "decode_errors", "endpoints"):
        assert collect_table(stored, name) == collect_table(plain, name), name
    open_lake(session, bucket, local).messages()  # the session warned already


@pytest.mark.filterwarnings("ignore:Spark has no connector")
def test_query_does_not_open_other_files(session: Any, bucket: ObjectStore, local: Path) -> None:
    rows = open_lake(session, bucket, local).messages()
    keys = [key for key in bucket.list_keys() if "/messages/date" in key]
    late = max(keys, key=lambda key: Path(f"/{key}").stat().st_mtime_ns)
    assert len(keys) == 2
    bucket.connect().delete_object(Bucket=bucket.bucket, Key=late)
    assert rows.where("log_time < 5000").count() == 8
    with pytest.raises(PySparkException, match=Path(late).name):
        rows.where("log_time > 12000").count()


@pytest.mark.filterwarnings("ignore:Spark has no connector")
def test_plans_do_not_contain_credentials(
    session: Any, bucket: ObjectStore, local: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = open_lake(session, bucket, local).messages(endpoints="a")
    rows.explain(True)
    rows.explain("formatted")
    text = capsys.readouterr().out
    assert "BatchScan" in text
    assert SECRET not in text


def test_connector_reads_files_natively_with_settings(session: Any, bucket: ObjectStore, local: Path) -> None:
    session.conf.set("fs.s3a.impl", STAND_IN)
    session.conf.set(f"fs.viewfs.mounttable.{bucket.bucket}.linkFallback", "file:///")
    try:
        lake = open_lake(session, bucket, local)
        location = lake._directory.hadoop_location
        assert location is not None
        assert location.uri == f"s3a://{bucket.bucket}{local}"
        assert SECRET not in repr(location)
        rows, silver = lake.messages(), lake.silver("a")
        assert rows.where("log_time < 5000").count() == 8
        assert silver.count() == 20
        for table in (rows, silver):
            plan: Any = table._jdf.queryExecution()
            assert "FileScan parquet" in plan.executedPlan().toString()
            assert SECRET not in plan.toString()
            assert all(path.startswith(f"s3a://{bucket.bucket}/") for path in table.inputFiles())
            settings = find_relation(plan.analyzed()).options()
            assert settings.apply("fs.s3a.secret.key") == SECRET
            assert settings.apply("fs.s3a.endpoint") == bucket.endpoint
    finally:
        session.conf.unset("fs.s3a.impl")


def find_relation(plan: Any) -> Any:
    """Return Spark's relation of files in a plan."""
    leaves = plan.collectLeaves()
    return leaves.apply(0).relation()


def test_schemes_of_connectors_are_asked_for_in_order(session: Any) -> None:
    assert find_hadoop_location(session, "file:///lake", None) == HadoopLocation("file:///lake")
    assert find_hadoop_location(session, "hdfs://host/lake", None) == HadoopLocation("hdfs://host/lake")
    for scheme in ("s3", "s3a", "gs", "gcs", "abfs", "abfss"):
        assert find_hadoop_location(session, f"{scheme}://c@a.dfs.core.windows.net/lake", {}) is None, scheme
    session.conf.set("fs.s3.impl", STAND_IN)  # setting of EMR
    try:
        assert find_hadoop_location(session, "s3a://bucket/lake", {}) == HadoopLocation("s3://bucket/lake")
    finally:
        session.conf.unset("fs.s3.impl")


def test_settings_of_hadoop_follow_storage_options() -> None:
    options = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
    assert make_hadoop_settings("s3", "s3://b", options) == {"fs.s3a.access.key": "id", "fs.s3a.secret.key": "key"}
    endpoint = {"AWS_ENDPOINT_URL": "http://host:9000", "AWS_REGION": "r", "AWS_SESSION_TOKEN": "t"}
    assert make_hadoop_settings("s3a", "s3a://b", endpoint) == {
        "fs.s3a.endpoint": "http://host:9000",
        "fs.s3a.endpoint.region": "r",
        "fs.s3a.session.token": "t",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
    }
    host = "account.dfs.core.windows.net"
    azure = make_hadoop_settings("abfss", f"abfss://c@{host}/lake", {"AZURE_STORAGE_ACCOUNT_KEY": "k"})
    assert azure == {f"fs.azure.account.key.{host}": "k"}
    login = {"AZURE_CLIENT_ID": "i", "AZURE_CLIENT_SECRET": "s", "AZURE_TENANT_ID": "t"}
    azure = make_hadoop_settings("abfs", f"abfs://c@{host}", login)
    assert azure[f"fs.azure.account.auth.type.{host}"] == "OAuth"
    assert (
        azure[f"fs.azure.account.oauth2.client.endpoint.{host}"] == "https://login.microsoftonline.com/t/oauth2/token"
    )
    assert make_hadoop_settings("gs", "gs://bucket/lake", {}) == {}


def test_client_of_spark_connect_reads_tables(connect_url: str, bucket: ObjectStore, local: Path) -> None:
    pytest.importorskip("grpc")
    url, options = f"{bucket.url}{local}", bucket.options
    found = run_child(read_stored_lake, connect_url, url, options, env={"JAVA_HOME": "/nowhere"})
    assert found == {"messages": 40, "late": 10, "silver": 20, "endpoints": 2, "warnings": 1}


def read_stored_lake(master: str, url: str, options: dict[str, str]) -> dict[str, int]:
    """As a client of Spark Connect, return the number of rows of tables, and of warnings."""
    import warnings

    from msgq.spark import session

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", MsgqWarning)
        lake = Lake(session(master), url, storage_options=options)
        return {
            "messages": lake.messages().count(),
            "late": lake.messages(start=16_000, where="sequence < 100").count(),
            "silver": lake.sql("SELECT * FROM silver_a").count(),
            "endpoints": lake.table("endpoints").count(),
            "warnings": len([warning for warning in warned if warning.category is MsgqWarning]),
        }


@pytest.mark.filterwarnings("ignore:Spark has no connector")
def test_recordings_of_a_store_are_ingested_into_its_lake(
    session: Any, object_store: ObjectStore, tmp_path: Path
) -> None:
    client = object_store.connect()
    for day in (1, 2):
        path = logs.write_log(tmp_path / "drive.mcap", *(("imu", 1000 * day + number, b"x") for number in range(10)))
        client.put_object(Bucket=object_store.bucket, Key=f"runs/day={day}/drive.mcap", Body=path.read_bytes())
    lake = Lake(session, f"{object_store.url}/lake", storage_options=object_store.options)
    assert lake.ingest([f"{object_store.url}/runs/day=1"], new_only=True).messages == 10
    assert lake.ingest([f"{object_store.url}/runs"], new_only=True).messages == 10
    assert lake.ingest([f"{object_store.url}/runs/day=*/*.mcap"]).messages == 0
    local = Lake(session, tmp_path / "lake")
    assert local.ingest([f"{object_store.url}/runs"], storage_options=object_store.options).messages == 20
    assert collect_table(lake, "messages") == collect_table(local, "messages")
