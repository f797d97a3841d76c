"""Outputs on file systems without hard links: each file gets its name, and never replaces another one."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from msgq.common.schema import Schema
from msgq.common.storage import new_names
from msgq.errors import RecordingError
from msgq.recording import LogReader, Writer, recover


@pytest.fixture(params=["renameat2", "rename"])
def _without_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without hard links, which has the named operation."""

    def refuse(*_: object, **__: object) -> Any:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    if request.param == "rename":
        monkeypatch.setattr(new_names, "_rename_without_replacement", lambda *_: errno.EINVAL)


def write_sample(path: Path) -> Path:
    with Writer(path, chunk_bytes=1024) as writer:
        channel = writer.channel("e", Schema("sample", "json"))
        for number in range(20):
            writer.write(channel, b'{"x": 1}' + b" " * 200, number)
    return path


@pytest.mark.usefixtures("_without_links")
def test_writer_without_links_creates_file(tmp_path: Path) -> None:
    assert len(LogReader(write_sample(tmp_path / "a.mcap"))) == 20
    assert os.listdir(tmp_path) == ["a.mcap"]


@pytest.mark.usefixtures("_without_links")
def test_writer_without_links_never_replaces_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    writer = Writer(path)
    writer.write(writer.channel("e"), b"x", 1)
    path.write_bytes(b"other")
    with pytest.raises(RecordingError, match="File exists"):
        writer.close()
    assert path.read_bytes() == b"other"
    assert os.listdir(tmp_path) == ["a.mcap"]


@pytest.mark.usefixtures("_without_links")
@pytest.mark.parametrize("way", ["new", "in place"])
@pytest.mark.parametrize("has_nameless_files", [True, False])
def test_recover_without_links_creates_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, has_nameless_files: bool
) -> None:
    path = write_sample(tmp_path / "a.mcap")
    path.write_bytes(path.read_bytes()[:-100])
    path.chmod(0o640)
    if not has_nameless_files:
        monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # file systems that do not know the flag
    done = recover(path, in_place=way == "in place")
    assert len(LogReader(done.output)) == 20
    assert LogReader(done.output).files[0].is_complete
    assert sorted(os.listdir(tmp_path)) == (["a.mcap"] if way == "in place" else ["a.mcap", "a.recovered.mcap"])
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.usefixtures("_without_links")
def test_parquet_export_without_links_creates_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    LogReader(write_sample(tmp_path / "a.mcap")).to_parquet(tmp_path / "a.parquet")
    assert sorted(os.listdir(tmp_path)) == ["a.mcap", "a.parquet"]


def test_interrupted_rename_leaves_no_empty_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "a").write_bytes(b"x")
    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        new_names._reserve_and_rename(str(tmp_path / "a"), str(tmp_path / "b"))
    assert os.listdir(tmp_path) == ["a"]


def test_new_name_of_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        new_names.give_new_name(tmp_path / "a", tmp_path / "b")
    with pytest.raises(OSError, match=os.strerror(errno.ENOENT)):
        new_names._rename_to_new_name(str(tmp_path / "a"), str(tmp_path / "b"))
