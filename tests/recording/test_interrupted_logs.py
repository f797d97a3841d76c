"""Exceptions of signal handlers while logs are read, compared and copied: none is taken for an error of the data."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.cli.common import comparisons
from msgq.decoding import schema_column_types
from msgq.recording import LogReader, Tolerance, Writer
from msgq.recording.comparison import compare as comparison
from msgq.recording.mcap_io.byte_reader import LocalReader
from msgq.recording.merge import log_copy
from tests.recording.logs import write_log

BEGIN = 1_700_000_000_000_000_000
SCHEMA = msgq.Schema("sample", "json")


class DeadlineError(TimeoutError, ValueError):
    """Raised by the signal handler. It is an error that code expects from the system, and from damaged data."""


@pytest.fixture
def interrupt() -> Iterator[Callable[..., Any]]:
    """A function that takes any arguments, and is interrupted by a signal whose handler raises an exception."""

    def raise_deadline(*_: object) -> None:
        raise DeadlineError

    before = signal.signal(signal.SIGUSR1, raise_deadline)
    yield lambda *_: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def write_samples(path: Path, value: float) -> Path:
    samples = [("e", BEGIN + number, json.dumps({"x": value}).encode()) for number in range(3)]
    write_log(path, *samples, schemas={"e": SCHEMA})
    return path


def test_log_reader_interrupted_at_any_read_raises_exception_of_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[..., Any]
) -> None:
    path, read, calls = write_samples(tmp_path / "a.mcap", 1.0), LocalReader.pread, 0

    def read_log(interrupted_call: int) -> None:
        nonlocal calls
        calls = 0

        def count_and_read(self: LocalReader, size: int, offset: int) -> bytes:
            nonlocal calls
            calls += 1
            return interrupt() if calls == interrupted_call else read(self, size, offset)

        monkeypatch.setattr(LocalReader, "pread", count_and_read)
        list(LogReader(path))

    read_log(0)
    for number in range(1, calls + 1):
        with pytest.raises(DeadlineError):
            read_log(number)


@pytest.mark.parametrize("name", ["find_value_difference", "repr"])
def test_interrupted_comparison_raises_exception_of_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[..., Any], name: str
) -> None:
    paths = write_samples(tmp_path / "a.mcap", 1.0), write_samples(tmp_path / "b.mcap", 2.0)
    monkeypatch.setattr(comparison, name, interrupt, raising=False)
    with pytest.raises(DeadlineError):
        str(comparison.compare(*paths, {"e": Tolerance(0.1)}).first)


def test_interrupted_json_of_comparison_raises_exception_of_handler(
    monkeypatch: pytest.MonkeyPatch, interrupt: Callable[..., Any]
) -> None:
    monkeypatch.setattr(comparisons, "convert_to_json", interrupt)
    with pytest.raises(DeadlineError):
        comparisons._to_json_value(1)


def test_interrupted_copy_of_record_raises_exception_of_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[..., Any]
) -> None:
    path = tmp_path / "a.mcap"
    with Writer(path) as writer:
        writer.attach("a", b"x", log_time=BEGIN)
    log = LogReader(path)
    monkeypatch.setattr(log_copy, "read_attachment_index", interrupt)
    with pytest.raises(DeadlineError):
        log_copy.write_merged_log([log], tmp_path / "b.mcap")
    assert list(tmp_path.iterdir()) == [path]


def test_interrupted_file_creation_raises_exception_of_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[..., Any]
) -> None:
    monkeypatch.setattr("fcntl.flock", interrupt)
    with pytest.raises(DeadlineError):
        Writer(tmp_path / "a.mcap")


def test_interrupted_search_of_column_type_raises_exception_of_handler(
    monkeypatch: pytest.MonkeyPatch, interrupt: Callable[..., Any]
) -> None:
    monkeypatch.setitem(schema_column_types._COLUMN_TYPE_FINDERS, "struct", interrupt)
    with pytest.raises(DeadlineError):
        schema_column_types.find_column_type(msgq.Schema("sample", "struct", b"[]"))
