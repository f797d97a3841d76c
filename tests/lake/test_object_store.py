"""A lake in an S3 server: all steps, with credentials in the environment or in storage options, which nobody sees."""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("duckdb")
pytest.importorskip("moto")
pytest.importorskip("pyspark")
from msgq.common.storage.store_errors import describe_store_error, translate_store_errors
from msgq.errors import InvalidValueError, RecordingError
from msgq.lake.bronze.bronze_reader import BronzeReader
from msgq.lake.catalog import list_tables
from msgq.lake.delta_table import LakeTable
from msgq.lake.duckdb_engine import run_query
from msgq.lake.fleet.fleet_builder import FleetBuilder
from msgq.lake.fleet.fleet_tables import open_fleet_table
from msgq.lake.gold.increment_inputs import is_gold_current
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.log_export import EXPORT_COLUMNS, write_messages
from msgq.lake.message_filter import MessageFilter
from msgq.lake.report.gold_reader import open_lake_tables
from msgq.lake.report.report_page import write_report
from msgq.recording import LogReader
from tests.command import run
from tests.lake.store_lakes import ENDPOINTS, StoreLake, list_messages, write_recording
from tests.object_store import SECRET, ObjectStore, create_bucket

pytestmark = pytest.mark.xdist_group("object store")  # the lake is built once
_PLACE = "some lakes/host=a #1?"  # characters that URLs give a meaning


@pytest.fixture(scope="module")
def built(s3_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
    """A bucket with a lake of two recordings, one with storage options and one with the environment."""
    store, folder = create_bucket(s3_endpoint), tmp_path_factory.mktemp("recordings")
    url = f"{store.url}/{_PLACE}"
    StoreLake(url, store.options).build_all([write_recording(folder / "1.mcap")])
    with patch.dict(os.environ, store.options):
        StoreLake(url).build_all([write_recording(folder / "2.mcap", 10)])
    return store


@pytest.fixture(params=["environment", "options"])
def lake(request: pytest.FixtureRequest, built: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> StoreLake:
    """The lake, for tests that do not change it."""
    if request.param == "environment":
        for name, value in built.options.items():
            monkeypatch.setenv(name, value)
    return StoreLake(f"{built.url}/{_PLACE}", built.options if request.param == "options" else None)


def test_lake_in_store_has_all_tables_and_each_message_once(lake: StoreLake) -> None:
    assert lake.read_messages() == list_messages(0, 20)
    assert is_gold_current(lake.store)
    rows = {info.path: info.row_count for info in list_tables(LakeDirectory(lake.url, lake.options))}
    assert rows["messages"] == 40
    assert rows["gold/endpoints"] == 2
    answer = run_query(lake.store, 'SELECT count(*), sum(n) FROM messages JOIN "silver_imu" USING (sequence)', 9)
    assert answer[1] == [(40, 2 * sum(range(20)))]


def test_lake_in_store_gives_report_and_export(lake: StoreLake, tmp_path: Path) -> None:
    page, log, wanted = tmp_path / "report.html", tmp_path / "out.mcap", MessageFilter(frozenset({"imu"}))
    assert write_report(open_lake_tables(lake.url, lake.options), page)["messages"] == 40
    reader = BronzeReader(lake.store)
    batches = reader.read_batches(reader.select_files(wanted), wanted, EXPORT_COLUMNS)
    assert write_messages(batches, log, {}) == 20
    assert {message.endpoint for message in LogReader(log)} == {"imu"}
    assert SECRET not in page.read_text()


def test_optimize_in_store_merges_files_and_removes_old_ones(object_store: ObjectStore, tmp_path: Path) -> None:
    lake = StoreLake(f"{object_store.url}/lake", object_store.options)
    recordings = [write_recording(tmp_path / f"{number}.mcap", 10 * number) for number in range(2)]
    assert [lake.ingest([recording]) for recording in recordings] == [20, 20]
    assert lake.ingest(recordings) == 0, "the files are known"
    done = lake.bronze.optimize()
    assert (done.files_before, done.files_after) == (2, 1)
    LakeTable(lake.store, "messages").vacuum(0)
    assert lake.read_messages() == list_messages(0, 20)
    assert len([key for key in object_store.list_keys() if re.search("/messages/date.*parquet$", key)]) == 1


@pytest.mark.parametrize("lake", ["environment"], indirect=True)
def test_fleet_in_store_copies_lakes_that_match_a_pattern(lake: StoreLake, object_store: ObjectStore) -> None:
    fleet = f"{object_store.url}/fleet"
    builder = FleetBuilder(fleet, lake.executor)
    pattern = f"{lake.url.partition('/some')[0]}/*/host=*"
    assert builder.build_fleet(pattern).copied == 1
    assert builder.build_fleet([pattern]).unchanged == 1
    snapshot = open_fleet_table(LakeDirectory(fleet), "endpoints").read_snapshot()
    assert snapshot is not None
    rows = snapshot.read_rows(["lake", "host", "endpoint"]).to_pylist()
    assert sorted((row["lake"], row["host"], row["endpoint"]) for row in rows) == [
        (lake.url, "a #1?", name) for name in sorted(ENDPOINTS)
    ]


def test_small_files_are_single_objects_without_markers_of_folders(built: ObjectStore) -> None:
    assert not [key for key in built.list_keys() if key.endswith(("/", ".tmp"))]
    entries = built.connect().list_objects_v2(Bucket=built.bucket)["Contents"]
    assert not [entry["Key"] for entry in entries if "-" in entry["ETag"]], "no object came in parts"
    assert not built.connect().list_multipart_uploads(Bucket=built.bucket).get("Uploads")


@pytest.mark.parametrize("lake", ["environment"], indirect=True)
def test_commands_without_spark_take_a_url(lake: StoreLake, tmp_path: Path, prefix: str) -> None:
    page, log = tmp_path / "report.html", tmp_path / "out.mcap"
    tables = run("lake", "tables", lake.url, "--json").stdout
    assert "gold/endpoints" in [json.loads(line)["path"] for line in tables.splitlines()]
    assert json.loads(run("lake", "report", lake.url, "-o", page, "--json").stdout)["messages"] == 40
    assert "20 messages" in run("lake", "export", lake.url, "--endpoint", "gps", "-o", log).stdout
    played = run("lake", "replay", lake.url, "--rate", "inf", "--json", "--prefix", prefix, "--endpoint", "imu")
    assert json.loads(played.stdout)["messages"] == 20
    asked = run("lake", "sql", lake.url, "SELECT count(*) AS n FROM messages", "--engine", "duckdb", "--json")
    assert json.loads(asked.stdout) == {"n": 40}
    missing = run("lake", "tables", f"{lake.url}x", code=1).output
    assert f"lake {lake.url}x not found; to create it, run msgq lake ingest {lake.url}x RECORDINGS" in missing


# ---- errors ----


def test_missing_bucket_is_an_error_that_says_what_to_do(object_store: ObjectStore, tmp_path: Path) -> None:
    url = f"{object_store.url}-other/lake"
    with pytest.raises(RecordingError, match="bucket does not exist; create the bucket, or correct the URL"):
        StoreLake(url, object_store.options).ingest([write_recording(tmp_path / "1.mcap")])
    with pytest.raises(RecordingError, match=f"bucket '{object_store.bucket}-other' of '{url}' does not exist"):
        LakeDirectory(url, object_store.options).require_bucket()


def test_unreachable_host_is_an_error_that_says_what_to_do(object_store: ObjectStore) -> None:
    options = object_store.options | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    with pytest.raises(RecordingError, match="host cannot be reached; check the network and AWS_ENDPOINT_URL"):
        LakeDirectory(f"{object_store.url}/lake", options).has_entry("messages")


@pytest.mark.usefixtures("s3_environment")
def test_commands_report_store_errors_in_one_line(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    said = run("lake", "tables", f"{object_store.url}-other/lake", code=1).output
    assert f"bucket '{object_store.bucket}-other' of" in said
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    said = run("lake", "tables", f"{object_store.url}/lake", code=1).output
    assert "the host cannot be reached" in " ".join(said.split())
    assert run("lake", "tables", f"ftp://{object_store.bucket}/lake", code=1).output.count("not supported") == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("AWS Error ACCESS_DENIED during HeadObject operation: No response body.", "access is denied"),
        ("AWS Error UNKNOWN (HTTP status 403) during HeadObject operation", "access is denied"),
        ("Kernel error -> Generic S3 error\n 400 Bad Request\n <Code>ExpiredToken</Code>", "credentials have expired"),
        ("AWS Error SLOW_DOWN during PutObject operation: Reduce your request rate", "store is overloaded"),
        ("Generic S3 error\n 503 Service Unavailable", "store is overloaded"),
        ("Generic S3 error\n 404 Not Found\n <Code>NoSuchBucket</Code>", "bucket does not exist"),
        ("Generic S3 error\n performing PUT http://169.254.169.254/latest/api/token", "no credentials were found"),
        ("Generic S3 error\n HTTP error\n error sending request", "host cannot be reached"),
        ("Generic S3 error\n URL scheme is not allowed", "AWS_ALLOW_HTTP"),
        ("AWS Error QUOTA_REACHED during PutObject operation", "failed with QUOTA_REACHED"),
    ],
)
def test_errors_of_stores_have_reason_and_remedy(text: str, reason: str) -> None:
    described = describe_store_error(text)
    assert described is not None
    assert reason in described
    assert "; " in described


def test_other_errors_pass_through() -> None:
    assert describe_store_error("No space left on device") is None
    with pytest.raises(OSError, match="disk"), translate_store_errors():
        raise OSError("disk")
    with pytest.raises(InvalidValueError), translate_store_errors():
        raise InvalidValueError("AWS Error of a caller")


# ---- secrets ----


@pytest.mark.parametrize("lake", ["options"], indirect=True)
def test_secret_is_in_no_output(
    lake: StoreLake, object_store: ObjectStore, caplog: pytest.LogCaptureFixture, capfd: Any, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    other = StoreLake(f"{object_store.url}/lake", object_store.options)
    other.ingest([write_recording(tmp_path / "1.mcap")])
    said = [repr(lake.store), repr(lake.bronze.read_aggregates()), repr(LakeDirectory(lake.url, lake.options))]
    write_report(open_lake_tables(lake.url, lake.options), tmp_path / "page.html")
    unreachable = object_store.options | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    for url, options in ((f"{object_store.url}-x/l", lake.options), (lake.url, unreachable)):
        with pytest.raises(RecordingError) as caught:
            StoreLake(url, options).ingest([tmp_path / "1.mcap"])
        said.append(str(caught.getrepr(style="long", showlocals=False)))
    problems = FleetBuilder(tmp_path / "fleet", lake.executor, unreachable).build_fleet([other.url]).problems
    assert "cannot be reached" in problems[0].reason
    objects = b"".join(
        object_store.connect().get_object(Bucket=object_store.bucket, Key=key)["Body"].read()
        for key in object_store.list_keys()
    )
    said += [str(problems), caplog.text, *capfd.readouterr(), (tmp_path / "page.html").read_text()]
    assert SECRET not in "".join(said)
    assert SECRET.encode() not in objects


def test_directory_is_pickled_with_its_options_and_without_its_session(object_store: ObjectStore) -> None:
    lake = StoreLake(f"{object_store.url}/lake/", object_store.options)
    copy = pickle.loads(pickle.dumps(lake.store))
    assert type(copy) is LakeDirectory
    assert (copy.uri, copy.storage_options) == (f"{object_store.url}/lake", object_store.options)


def test_storage_options_of_a_local_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="local path"):
        LakeDirectory(tmp_path, {"AWS_SECRET_ACCESS_KEY": SECRET})
