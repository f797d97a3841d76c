"""URLs of object stores: what is accepted, and that no secret is shown."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from msgq.common.storage.file_systems import open_file_system
from msgq.common.storage.store_errors import hide_secrets
from msgq.common.storage.url_path import UrlPath, make_path
from msgq.common.storage.urls import is_url
from msgq.errors import InvalidValueError
from tests.object_store import ObjectStore

SECRET = "hunter2secret"
OPTIONS = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": SECRET}


def test_text_with_scheme_is_a_url_and_others_are_local_paths() -> None:
    assert is_url("s3://bucket/drive")
    assert not is_url("drive/s3:/x")
    assert make_path("drive") == Path("drive")
    assert make_path("file:///tmp/drive") == Path("/tmp/drive")
    assert make_path("s3://bucket/drive/") == UrlPath("s3://bucket/drive")


def test_url_path_has_the_methods_of_a_path() -> None:
    path = make_path("s3a://bucket/runs/drive.mcap")
    assert (path.name, path.suffix, str(path.parent)) == ("drive.mcap", ".mcap", "s3a://bucket/runs")
    assert str(path.parent / "x.mcap") == "s3a://bucket/runs/x.mcap"
    assert len({path, make_path("s3a://bucket/runs/drive.mcap")}) == 1


def test_storage_options_are_pickled_but_not_shown() -> None:
    path = UrlPath("s3://bucket/x", OPTIONS)
    copy = pickle.loads(pickle.dumps(path))
    assert SECRET.encode() in pickle.dumps(copy.parent / "y")
    assert SECRET not in f"{path!r} {path}"
    assert SECRET not in hide_secrets(f"403: {SECRET} is wrong", OPTIONS)


def _open(url: str, options: dict[str, str] | None) -> None:
    path = make_path(url, options)
    assert isinstance(path, UrlPath)
    path.open_file_system()


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("ftp://host/x", None, "not supported"),
        (f"s3://me:{SECRET}@bucket/x", None, "s3://BUCKET/PATH"),
        ("s3:///x", None, "s3://BUCKET/PATH"),
        (f"abfss://c:{SECRET}@account.dfs.core.windows.net/x", None, "CONTAINER@ACCOUNT"),
        ("abfss://container/x", None, "CONTAINER@ACCOUNT"),
        ("s3://bucket/x", {"aws_secret": SECRET}, "'aws_secret' is not known"),
        ("gs://bucket/x", {"GOOGLE_KEY": SECRET}, "environment variables"),
        ("/tmp/x", OPTIONS, "local path"),
    ],
)
def test_invalid_url_or_option_is_refused_without_its_secret(url: str, options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidValueError, match=text) as caught:
        _open(url, options)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("s3://bucket/a b#1?%20", "bucket/a b#1?%20"),
        ("gs://bucket", "bucket"),
        ("abfss://box@account.dfs.core.windows.net/a/b", "box/a/b"),
        ("file:///tmp/a%20b", "/tmp/a%20b"),
    ],
)
def test_path_in_the_store_is_the_text_behind_the_host(url: str, path: str) -> None:
    assert open_file_system(url)[1] == path


@pytest.mark.ci
def test_environment_and_storage_options_open_the_same_file(s3_environment: ObjectStore, s3_endpoint: str) -> None:
    store = s3_environment
    store.connect().put_object(Bucket=store.bucket, Key="runs/drive.mcap", Body=b"x")
    for path in (make_path(f"{store.url}/runs"), make_path(f"s3a://{store.bucket}/runs", store.options)):
        assert isinstance(path, UrlPath)
        assert path.is_dir()
        assert (path / "drive.mcap").exists()
        assert not (path / "drive.mcap").is_dir()
        assert not (path / "other").exists()
