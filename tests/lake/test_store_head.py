"""Writers that only add files to a table in an object store, and do not load the list of all files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("moto")
pytest.importorskip("obstore")
pytest.importorskip("pyspark")
from deltalake import DeltaTable
from pyarrow.fs import FileSystem

from msgq.common.storage.file_creation import open_object_creator
from msgq.common.storage.file_systems import open_file_system
from msgq.errors import StorageError
from msgq.lake.bronze.bronze_store import BronzeStore
from msgq.lake.bronze.bronze_writer import open_messages_table
from msgq.lake.bronze.ingest_log import IngestedFile, IngestLog
from msgq.lake.data_file import DataFile
from msgq.lake.delta_table import CommitConflictError, LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.table_head import TableHead
from tests.lake.store_lakes import StoreLake, list_messages, write_recording
from tests.object_store import SECRET, ObjectStore
from tests.store_proxy import EXPIRED, LOST_RESPONSE, StoreProxy

pytestmark = pytest.mark.xdist_group("object store")
NUMBERS = pa.schema([("number", pa.int64())])
PLACE = "some lakes/host=a #1?/50%"  # characters that URLs give a meaning


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[StoreProxy]:
    with StoreProxy(s3_endpoint) as proxy:
        yield proxy


def get_options(store: ObjectStore, proxy: StoreProxy) -> dict[str, str]:
    return store.options | {"AWS_ENDPOINT_URL": proxy.endpoint}


@pytest.fixture
def table(object_store: ObjectStore, proxy: StoreProxy) -> LakeTable:
    """A table with two versions, whose requests pass through the proxy."""
    directory = LakeDirectory(f"{object_store.url}/{PLACE}", get_options(object_store, proxy))
    table = LakeTable(directory, "numbers", has_statistics=True)
    for number in range(2):
        table.commit_files(table.read_snapshot(), NUMBERS, [write_number(table, number)])
    return table


def write_number(table: LakeTable, number: int) -> DataFile:
    return table.write_file(f"{number}.parquet", pa.table({"number": [number]}, NUMBERS))


def append(table: LakeTable, number: int, head: TableHead) -> None:
    table.commit_files(head, NUMBERS, [write_number(table, number)])


def get_head(table: LakeTable) -> TableHead:
    snapshot = LakeTable(table.lake, table.place).read_snapshot()
    assert snapshot is not None
    head = table.log.make_head(snapshot)
    assert head is not None
    return head


def read_numbers(table: LakeTable) -> list[int]:
    snapshot = LakeTable(table.lake, table.place).read_snapshot()
    assert snapshot is not None
    numbers: list[int] = sorted(snapshot.read_rows().column("number").to_pylist())
    return numbers


def is_entry(request: str, version: int) -> bool:
    return request.startswith("PUT ") and request.endswith(f"{version:020}.json")


def test_append_to_head_in_store_equals_append_by_delta(table: LakeTable, proxy: StoreProxy) -> None:
    head = get_head(table)
    append(table, 2, head)
    proxy.inject(lambda _: "")
    found = table.log.advance_head(head)
    assert found is not None
    assert found.added_paths == {"2.parquet"}
    assert not any("list-type" in request and "start-after" in request for request in proxy.requests)
    assert found.head == get_head(table)
    table.commit_files(table.read_snapshot(), NUMBERS, [write_number(table, 3)])
    assert read_numbers(table) == [0, 1, 2, 3]
    assert get_head(table).commit_number == get_head(table).version == 3


def test_writers_on_one_version_in_store_conflict(table: LakeTable) -> None:
    """Two writers with heads, and a writer with a head after a writer with a snapshot, and before one."""
    head, snapshot = get_head(table), table.read_snapshot()
    append(table, 2, head)
    file = write_number(table, 3)
    for late in (head, snapshot):
        with pytest.raises(CommitConflictError, match="by another process"):
            table.commit_files(late, NUMBERS, [file])
    head = get_head(table)
    table.commit_files(table.read_snapshot(), NUMBERS, [write_number(table, 4)])
    with pytest.raises(CommitConflictError, match="by another process"):
        table.commit_files(head, NUMBERS, [file])
    assert read_numbers(table) == [0, 1, 2, 4]


@pytest.mark.parametrize("faults", [[LOST_RESPONSE], [LOST_RESPONSE, EXPIRED]])
def test_commit_whose_response_is_lost_is_no_conflict(table: LakeTable, proxy: StoreProxy, faults: list[str]) -> None:
    """The repeated request finds the entry of the first one, or fails."""
    head, waiting = get_head(table), list(faults)
    file = write_number(table, 2)
    proxy.inject(lambda _: waiting.pop(0) if waiting and is_entry(proxy.requests[-1], 2) else "")
    table.commit_files(head, NUMBERS, [file])
    assert not waiting
    assert sum(is_entry(request, 2) for request in proxy.requests) == 2
    assert read_numbers(table) == [0, 1, 2]


def test_append_counts_although_the_checkpoint_cannot_be_found(table: LakeTable, proxy: StoreProxy) -> None:
    head = get_head(table)
    file = write_number(table, 2)
    proxy.inject(lambda _: EXPIRED if "_last_checkpoint" in proxy.requests[-1] else "")
    table.commit_files(head, NUMBERS, [file])
    proxy.inject(lambda _: "")
    assert read_numbers(table) == [0, 1, 2]


def test_refused_commit_is_an_error_of_storage_without_secrets(table: LakeTable, proxy: StoreProxy) -> None:
    head = get_head(table)
    file = write_number(table, 2)
    proxy.inject(lambda _: EXPIRED if is_entry(proxy.requests[-1], 2) else "")
    with pytest.raises(StorageError, match=r"2.json' cannot be written: the credentials have expired; get") as caught:
        table.commit_files(head, NUMBERS, [file])
    assert not isinstance(caught.value, CommitConflictError)
    said = str(caught.getrepr(style="long", showlocals=False))
    assert SECRET not in said
    assert "\n" not in str(caught.value)
    assert SECRET not in repr((table.lake._object_creator, table.lake))
    assert read_numbers(table) == [0, 1]


# ---- ingests ----


class _OvertakingProxy(StoreProxy):
    """Lets another writer commit before the entry of a version is passed on."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.overtakers: list[Callable[[], Any]] = []

    def pass_on(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[HTTPResponse, bytes]:
        if self.overtakers and method == "PUT" and "/messages/_delta_log/" in path:
            self.overtakers.pop()()
        return super().pass_on(method, path, body, headers)


def test_ingest_that_loses_race_in_store_compares_and_commits_again(object_store: ObjectStore, tmp_path: Path) -> None:
    """The other ingest commits at the same time, with some of the same messages."""
    url = f"{object_store.url}/lake"
    first = StoreLake(url, object_store.options)
    for number in range(2):
        first.ingest([write_recording(tmp_path / f"{number}.mcap", 10 * number)])
    other, both = (
        write_recording(tmp_path / f"{name}.mcap", 20, count) for name, count in (("other", 5), ("both", 10))
    )
    with _OvertakingProxy(object_store.endpoint) as proxy:
        late = StoreLake(url, get_options(object_store, proxy))
        proxy.overtakers.append(lambda: first.ingest([other]))
        assert late.ingest([both]) == 10
        assert not proxy.overtakers
    assert first.read_messages() == list_messages(0, 30)


def add_old_files(lake: StoreLake, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the metadata of many bronze files that do not exist, and of many ingested files."""
    messages = open_messages_table(lake.store)
    snapshot = messages.read_snapshot()
    assert snapshot is not None
    [file] = snapshot.describe_files()
    old = [
        DataFile(f"date=2020-01-01/size_class=small/{number}.parquet", 1, file.partition_values, 1)
        for number in range(count)
    ]
    messages.commit_files(snapshot, snapshot.columns, old)
    files = [IngestedFile(f"/recordings/old{number:06}.mcap", 1, -number - 1) for number in range(count)]
    IngestLog(lake.store).record_inputs(files, [])
    with monkeypatch.context() as patch:
        patch.setattr(BronzeStore, "_rebuild_aggregates", lambda *_: None)
        lake.bronze.complete_aggregates()


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_ingest_into_large_lake_in_store_reads_as_much_as_into_small_lake(
    object_store: ObjectStore,
    proxy: StoreProxy,
    tmp_path: Path,
    has_checkpoint: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts, sizes, options = [], [], get_options(object_store, proxy)
    for count in (10, 5000):
        lake = StoreLake(f"{object_store.url}/{count}", options)
        lake.ingest([write_recording(tmp_path / "0.mcap")])
        add_old_files(lake, count, monkeypatch)
        if has_checkpoint:
            DeltaTable(f"{lake.url}/messages", storage_options=options).create_checkpoint()
        for number in (1, 2, 3):  # the first one reads the entry with the old files
            again = StoreLake(lake.url, options)
            proxy.inject(lambda _: "")
            assert again.ingest([write_recording(tmp_path / f"{number}.mcap", 10 * number)]) == 20
        counts.append(len(proxy.requests))
        sizes.append(sum(proxy.response_bytes.values()))
    assert not any("/messages/_delta_log" in request and "checkpoint.parquet" in request for request in proxy.requests)
    assert counts[1] <= counts[0] + 5, counts
    assert sizes[1] < 1.2 * sizes[0], sizes


# ---- stores and credentials ----


def open_creator(url: str, options: dict[str, str] | None = None) -> Any:
    files: FileSystem = open_file_system(url, options)[0]
    return open_object_creator(url, options, files)


@pytest.fixture
def without_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory without profiles, which takes the place of the home directory."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_each_store_has_conditional_requests(without_credentials: Path) -> None:
    account = "c@a.dfs.core.windows.net"
    key = {"AZURE_STORAGE_ACCOUNT_KEY": "a2V5", "AZURE_STORAGE_ACCOUNT_NAME": "a"}
    names = {
        url: repr(open_creator(url, options)._store)
        for url, options in (
            ("s3://b/lake", None),
            ("s3a://b/lake", {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": SECRET}),
            ("gcs://b/lake", None),
            ("gs://b/lake", None),
            (f"abfss://{account}/lake", key),
        )
    }
    assert [name.partition("(")[0] for name in names.values()] == ["S3Store"] * 2 + ["GCSStore"] * 2 + ["AzureStore"]
    assert SECRET not in str(names)


def test_unreadable_credentials_are_an_error_of_storage(
    without_credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(without_credentials / "missing.json"))
    with pytest.raises(StorageError, match="'gs://b' cannot be used: ") as caught:
        open_creator("gs://b/lake")
    assert "\n" not in str(caught.value)


def test_profile_or_lock_of_delta_leaves_commits_to_delta(
    without_credentials: Path, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only delta-rs reads profiles, and takes its lock. A lake works in the same way, with the list of all files."""
    assert open_creator("s3://b/lake") is not None
    (without_credentials / ".aws").mkdir()
    secrets = f"aws_access_key_id = tests\naws_secret_access_key = {SECRET}\n"
    (without_credentials / ".aws/credentials").write_text(f"[default]\n{secrets}")
    assert open_creator("s3://b/lake") is None
    assert open_creator("s3://b/lake", {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}) is not None
    with monkeypatch.context() as patch:
        patch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/token")
        assert open_creator("s3://b/lake") is not None
        patch.setenv("AWS_S3_LOCKING_PROVIDER", "dynamodb")
        assert open_creator("s3://b/lake") is None
    options = {name: value for name, value in object_store.options.items() if "KEY" not in name}
    directory = LakeDirectory(f"{object_store.url}/lake", options | {"AWS_FORCE_CREDENTIAL_LOAD": "true"})
    table = LakeTable(directory, "numbers")
    for number in range(2):
        table.commit_files(table.read_snapshot(), NUMBERS, [write_number(table, number)])
    snapshot = table.read_snapshot()
    assert snapshot is not None
    assert table.log.make_head(snapshot) is None
    assert read_numbers(table) == [0, 1]


def test_stored_head_of_lake_in_store_is_used(object_store: ObjectStore, tmp_path: Path) -> None:
    lake = StoreLake(f"{object_store.url}/lake", object_store.options)
    lake.ingest([write_recording(tmp_path / "0.mcap")])
    key = next(key for key in object_store.list_keys() if key.endswith("_complete.json"))
    body = object_store.connect().get_object(Bucket=object_store.bucket, Key=key)["Body"].read()
    assert json.loads(body)["entry_digest"]
