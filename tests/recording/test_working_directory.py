"""Changes of the working directory while a log is written or read: relative paths keep their meaning."""

from __future__ import annotations

import os
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.recording import LogReader, Recorder, Writer
from msgq.recording.recorder.rolling_writer import RecordingLimits
from tests.support import wait_until


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The working directory, and another directory."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(first)
    return first, second


def test_writer_after_change_of_directory_writes_to_first_directory(folders: tuple[Path, Path]) -> None:
    first, second = folders
    with Writer("a.mcap") as writer:
        writer.write(writer.channel("e"), b"x", 1)
        os.chdir(second)
    assert writer.path == first / "a.mcap"
    assert len(LogReader(first / "a.mcap")) == 1
    assert not list(second.iterdir())


def _has_segments(recorder: Recorder, count: int) -> bool:
    return recorder.stats().segments == count


def test_recorder_after_change_of_directory_writes_all_segments_to_first_directory(
    folders: tuple[Path, Path], prefix: str
) -> None:
    first, second = folders
    options: Any = {"chunk_seconds": 0.01, "limits": RecordingLimits(split_messages=1)}
    with msgq.pub_sock("moved") as pub, Recorder("log", ["moved"], **options) as recorder:
        for segments in (1, 2, 3):
            pub.send(b"x")
            wait_until(partial(_has_segments, recorder, segments))
            os.chdir(second)
    assert len(LogReader(first / "log")) == 3
    assert not list(second.iterdir())


def test_log_reader_after_change_of_directory_reads_same_files(folders: tuple[Path, Path]) -> None:
    _, second = folders
    schema = msgq.Schema("sample", "json")
    with Writer("a.mcap", chunk_bytes=1024) as writer:
        writer.attach("notes", b"text", log_time=1)
        for number in range(3):
            writer.write(writer.channel("e", schema), b" " * 1100 + b"1", number)
    log = LogReader("a.mcap")
    assert str(log.files[0].path) == "a.mcap"
    os.chdir(second)
    parts = [pickle.loads(pickle.dumps(part)) for part in log.split(1)]
    assert len(parts) == 3
    assert [len(list(reader)) for reader in (log, log.full_history("topic"), *parts)] == [3, 3, 1, 1, 1]
    assert [attachment.read() for attachment in log.attachments] == [b"text"]
