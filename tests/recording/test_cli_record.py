"""`msgq record`, as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq import errors
from msgq.cli import record
from tests.recording.test_recorder import messages
from tests.support import ROOT, wait_until


def test_the_command(prefix: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "msgq", "record", "-o", str(tmp_path / "log"), "e", "--json", "-n", "10"]
    pub = msgq.pub_sock("e")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:

        def ended() -> bool:
            pub.send(b"x")
            return process.poll() is not None

        wait_until(ended)
        assert process.stdout is not None
        lines = [json.loads(line) for line in process.stdout]
    assert process.returncode == 0
    assert lines[-1]["final"] is True
    assert lines[-1]["messages"] == len(messages(tmp_path / "log")) >= 10
    assert lines[-1]["path"] == str(tmp_path / "log")
    assert (lines[-1]["at_risk_bytes"], lines[-1]["uncompressed_chunks"]) == (0, 0)


def test_the_command_ends_properly_when_told_to(prefix: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "msgq", "record", "-o", str(tmp_path / "log"), "--all"]
    pub = msgq.pub_sock("e")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:

        def begun() -> bool:
            pub.send(b"x")
            return any((tmp_path / "log").glob("*.mcap"))

        wait_until(begun)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        text = process.stdout.read()
    assert process.returncode == 0
    assert "messages of 1 endpoints" in text
    assert messages(tmp_path / "log")


def test_the_command_is_triggered(prefix: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "msgq",
        "record",
        "-o",
        str(tmp_path / "log"),
        "e",
        "--last-bytes",
        "1MB",
        "--trigger",
        "go",
    ]
    pub = msgq.pub_sock("e")
    trigger = msgq.pub_sock("go")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        trigger.wait_for_readers(timeout=30)

        def triggered() -> bool:
            pub.send(b"x")
            trigger.send(b"now")
            return any((tmp_path / "log").glob("*.mcap"))

        wait_until(triggered)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        text = process.stdout.read()
    assert process.returncode == 0, text
    assert messages(tmp_path / "log")


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["-o", "x"], 2, "--all"),
        (["e", "--all", "-o", "x"], 2, "names or --all, not both"),
        (["e", "-o", "x", "--trigger", "go"], 2, "it records from the start"),
        (["e", "-o", "x", "--queue-bytes", "-1"], 2, "no size"),
        (["-e", "(", "-o", "x"], 2, "regular expression"),
        (["e", "-o", "x", "--chunk-bytes", "1potato"], 2, "no size"),
        (["e", "-o", "/proc/nowhere/x"], 1, "directory"),
    ],
)
def test_wrong_commands(prefix: str, arguments: Any, code: Any, word: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "msgq", "record", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_command_says_which_names_are_not_there_yet(tmp_path: Path) -> None:
    wrong = f"typo{os.getpid()}"
    command = [sys.executable, "-m", "msgq", "record", "-o", str(tmp_path / "log"), wrong, "--seconds", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"no such endpoint yet, waiting: {wrong}" in ended.stderr


def test_a_recording_without_a_name_has_the_time_as_its_name(prefix: str, tmp_path: Path) -> None:
    """Both of the same second are there, each in a directory of its own."""
    command = [sys.executable, "-m", "msgq", "record", "--all", "--seconds", "0"]
    options: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "cwd": tmp_path}
    before = datetime.now().replace(microsecond=0)
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **options)
    after = datetime.now()
    (directory,) = tmp_path.iterdir()
    assert before <= datetime.strptime(directory.name, "%Y-%m-%d_%H-%M-%S") <= after  # local time, and sorted by it
    assert f"recording into {directory.name}" in done.stderr
    assert directory.name in done.stdout
    assert messages(directory) == []


def test_two_of_the_same_second_have_directories_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Clock:
            return cls(2026, 11, 23, 14, 5, 9)

    monkeypatch.setattr(record, "datetime", Clock)
    names = [record.named_by_time(tmp_path).name for _ in range(3)]
    assert names == ["2026-11-23_14-05-09", "2026-11-23_14-05-09_2", "2026-11-23_14-05-09_3"]
    with pytest.raises(errors.RecordingError, match="give another with -o"):
        record.named_by_time(tmp_path / "nowhere")
