"""`msgq record`, as a user runs it."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq import errors
from msgq.cli import record
from msgq.recording import Recorder
from tests.command import run, start
from tests.recording.logs import read_chunk_indexes
from tests.recording.test_recorder import read_recorded_messages
from tests.support import repeating, wait_until
from visionipc import VisionIpcServer


def test_record_command_writes_log_and_prints_statistics(prefix: str, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e")
    with start("record", "-o", tmp_path / "log", "e", "--json", "-n", "10") as process:

        def ended() -> bool:
            pub.send(b"x")
            return process.poll() is not None

        wait_until(ended)
        lines, _ = process.end()
    assert lines[-1]["final"] is True
    assert lines[-1]["messages"] == len(read_recorded_messages(tmp_path / "log")) >= 10
    assert lines[-1]["path"] == str(tmp_path / "log")
    assert (lines[-1]["at_risk_bytes"], lines[-1]["uncompressed_chunks"]) == (0, 0)


def test_record_command_after_signal_writes_complete_log(prefix: str, tmp_path: Path) -> None:
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
    assert "messages of 1 endpoint," in text
    assert read_recorded_messages(tmp_path / "log")


def test_record_command_after_trigger_writes_snapshot(prefix: str, tmp_path: Path) -> None:
    words = "record", "-o", tmp_path / "log", "e", "--snapshot-bytes", "1MB", "--trigger", "go"
    pub = msgq.pub_sock("e")
    trigger = msgq.pub_sock("go")
    with start(*words, stderr=subprocess.STDOUT) as process:
        trigger.wait_for_readers(timeout=30)

        def handle_recording_triggers() -> bool:
            pub.send(b"x")
            trigger.send(b"now")
            return any((tmp_path / "log").glob("*.mcap"))

        wait_until(handle_recording_triggers)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate()
    assert process.returncode == 0, text
    assert read_recorded_messages(tmp_path / "log")


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["-o", "x"], 2, "--all"),
        (["e", "--all", "-o", "x"], 2, "names or --all, not both"),
        (["e", "-o", "x", "--trigger", "go"], 2, "without them recording starts at once"),
        (["e", "-o", "x", "--cache-bytes", "-1"], 2, "is not a size"),
        (["-e", "(", "-o", "x"], 2, "regular expression"),
        (["e", "-o", "x", "--chunk-bytes", "1potato"], 2, "is not a size"),
        (["e", "-o", "/proc/nowhere/x"], 1, "directory"),
    ],
)
def test_record_with_wrong_options_is_usage_error(prefix: str, arguments: Any, code: Any, word: Any) -> None:
    assert word in run("record", *arguments, code=code).stderr


def test_record_command_reports_missing_endpoints(tmp_path: Path) -> None:
    wrong = f"typo{os.getpid()}"
    said = run("record", "-o", tmp_path / "log", wrong, "--duration", "0", code=1).stderr
    assert f"no endpoint matches {wrong} yet; waiting" in said
    assert said.splitlines()[-1] == f"Error: no endpoint matches {wrong}; run `msgq list`"


def test_record_without_name_uses_time_as_name(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = datetime.now().replace(microsecond=0)
    done = run("record", "--all", "--duration", "0")
    after = datetime.now()
    (directory,) = tmp_path.iterdir()
    assert before <= datetime.strptime(directory.name, "%Y-%m-%d_%H-%M-%S") <= after  # local time, and sorted by it
    assert f"recording into {directory.name}" in done.stderr
    assert directory.name in done.stdout
    assert read_recorded_messages(directory) == []


def test_recordings_of_same_second_have_separate_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Clock:
            return cls(2026, 11, 23, 14, 5, 9)

    monkeypatch.setattr(record, "datetime", Clock)
    names = [record.make_timestamped_directory(tmp_path).name for _ in range(3)]
    assert names == ["2026-11-23_14-05-09", "2026-11-23_14-05-09_2", "2026-11-23_14-05-09_3"]
    with pytest.raises(errors.RecordingError, match="give another with --output"):
        record.make_timestamped_directory(tmp_path / "nowhere")


# ---- options, in this process ----


@contextmanager
def publish_on_topics(*endpoints: str, data: bytes = b"x" * 1000) -> Iterator[None]:
    """Publish on topics until the block ends."""
    with ExitStack() as stack:
        publishers = [stack.enter_context(msgq.pub_sock(name)) for name in endpoints]

        def send() -> None:
            for publisher in publishers:
                publisher.send(data)

        with repeating(send, 0.0005):
            yield


def run_record(where: Path, *arguments: object) -> dict[str, Any]:
    """Run `msgq record` and return the object in its last line."""
    said: dict[str, Any] = json.loads(run("record", "-o", where, "--json", *arguments).stdout.splitlines()[-1])
    return said


def test_record_exclude_option_omits_matching_endpoints(prefix: str, tmp_path: Path) -> None:
    with publish_on_topics("wanted", "unwanted"):
        run_record(tmp_path / "a.mcap", "--all", "-x", "^un", "-n", 10)
    assert {endpoint for endpoint, *_ in read_recorded_messages(tmp_path / "a.mcap")} == {"wanted"}


def test_record_prefix_finds_endpoints_under_that_prefix(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with publish_on_topics("e"):
        monkeypatch.delenv("OPENPILOT_PREFIX")
        assert run_record(tmp_path / "a.mcap", "e", "--prefix", prefix, "-n", 10)["messages"] >= 10


def test_record_compression_applies_to_each_chunk(prefix: str, tmp_path: Path) -> None:
    with publish_on_topics("e"):
        for compression, said in (("lz4", "lz4"), ("none", "")):
            run_record(tmp_path / f"{compression}.mcap", "e", "--compression", compression, "-n", 10)
            assert {one.compression for one in read_chunk_indexes(tmp_path / f"{compression}.mcap")} == {said}


@pytest.mark.ci
def test_record_with_higher_level_writes_smaller_chunks(prefix: str, tmp_path: Path) -> None:
    words = random.Random(1).choices([b"road", b"lane", b"car", b"sign", b"light", b"speed"], k=3000)
    sizes = []
    with publish_on_topics("e", data=b" ".join(words)):
        for level in (1, 19):
            path = tmp_path / f"{level}.mcap"
            run_record(path, "e", "--level", level, "--chunk-bytes", 1024, "-n", 2)  # one message in each chunk
            sizes.append(len(read_chunk_indexes(path)[1].data))
    assert sizes[1] < sizes[0]


def test_record_chunk_seconds_ends_chunks_of_that_age(prefix: str, tmp_path: Path) -> None:
    with publish_on_topics("e"):
        run_record(tmp_path / "a.mcap", "e", "--chunk-seconds", 0.02, "-n", 200)
    assert len(read_chunk_indexes(tmp_path / "a.mcap")) > 1


@pytest.mark.parametrize(
    "options",
    [
        ("--split-messages", 10, "--chunk-bytes", 1024),
        ("--split-bytes", "10kB", "--chunk-bytes", 1024, "--compression", "none"),
        ("--split-seconds", 0.1, "--chunk-seconds", 0.01),
    ],
)
def test_record_split_options_end_segments_at_their_limit(
    prefix: str, tmp_path: Path, options: tuple[object, ...]
) -> None:
    with publish_on_topics("e"):
        said = run_record(tmp_path / "log", "e", *options, "-n", 400)
    assert said["segments"] == len(list((tmp_path / "log").glob("*.mcap"))) > 1
    assert len(read_recorded_messages(tmp_path / "log")) == said["messages"]


def test_record_max_total_bytes_removes_oldest_segments(prefix: str, tmp_path: Path) -> None:
    limits = ("--max-total-bytes", "30kB", "--split-bytes", "10kB", "--chunk-bytes", 1024, "--compression", "none")
    with publish_on_topics("e"):
        said = run_record(tmp_path / "log", "e", *limits, "-n", 100)
    assert said["removed_segments"] > 0
    assert sum(path.stat().st_size for path in (tmp_path / "log").iterdir()) < 60_000


def test_record_below_min_free_space_ends_with_error(prefix: str, tmp_path: Path) -> None:
    with publish_on_topics("e"):
        done = run("record", "-o", tmp_path / "log", "e", "--min-free-bytes", "1000000GB", "-n", 10, "--json", code=1)
    assert "free" in done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["final"], last["messages"], last["lost"] > 0) == (True, 0, True)


def test_record_to_file_at_size_limit_prints_losses(prefix: str, tmp_path: Path) -> None:
    with publish_on_topics("e"):
        done = run("record", "-o", tmp_path / "log.mcap", "e", "--max-total-bytes", "10kB", code=1)
    assert "limit" in done.stderr
    assert re.search(r"lost [1-9]", done.stdout)


@pytest.mark.parametrize(
    ("options", "seen"), [(("--start-paused", "--duration", 0.1), 0), (("--snapshot-seconds", 60, "-n", 9), 9)]
)
def test_record_before_trigger_writes_nothing(
    prefix: str, tmp_path: Path, options: tuple[object, ...], seen: int
) -> None:
    with publish_on_topics("e"):
        said = run_record(tmp_path / "log", "e", *options)
    assert said["written_bytes"] == 0
    assert (said["messages"] > 0) == (seen > 0)
    assert read_recorded_messages(tmp_path / "log") == []


def test_record_with_unusable_trigger_fails_before_first_file(prefix: str, tmp_path: Path) -> None:
    words = "record", "--all", "-o", tmp_path / "x.mcap", "--duration", 5, "--start-paused"
    done = run(*words, "--trigger", "channel/x", code=1)
    assert "'channel/x' is not a valid file name" in done.output
    assert list(tmp_path.iterdir()) == []


def test_record_after_error_of_trigger_ends_with_failure(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise errors.SegmentError("the trigger's ring is unusable")

    monkeypatch.setattr(record, "_wait_for_trigger", fail)
    words = "record", "--all", "-o", tmp_path / "x.mcap", "--duration", 5, "--start-paused"
    done = run(*words, "--trigger", "go", code=1)
    assert "the trigger's ring is unusable" in done.stderr


def test_record_after_signal_without_snapshots_handles_later_signals(prefix: str, tmp_path: Path) -> None:
    snapshots: list[int] = []

    class CountingRecorder(Recorder):
        def snapshot(self) -> None:
            snapshots.append(1)
            super().snapshot()

    failures: list[int] = []
    with (
        msgq.pub_sock("e"),
        CountingRecorder(tmp_path / "x.mcap", "e", prefix=prefix) as recorder,
        record.handle_recording_triggers(recorder, None, lambda: failures.append(1)),
    ):
        signal.raise_signal(signal.SIGUSR1)
        wait_until(lambda: len(snapshots) == 1)
        signal.raise_signal(signal.SIGUSR1)
        wait_until(lambda: len(snapshots) == 2)
    assert failures == []


@pytest.mark.parametrize(("form", "end"), [("raw", "image"), ("jpeg", "compressed")])
def test_record_frame_format_option_sets_picture_encoding(
    prefix: str, token: str, tmp_path: Path, form: str, end: str
) -> None:
    with VisionIpcServer(token) as server:
        server.create_buffers(0, 4, 64, 48)
        server.start_listener()
        with repeating(lambda: server.send(0, bytes(64 * 48 * 3 // 2)), 0.001):
            run_record(tmp_path / "a.mcap", "--frames", token, "--frame-format", form, "-n", 2)
    assert {endpoint for endpoint, *_ in read_recorded_messages(tmp_path / "a.mcap")} == {f"visionipc_{token}_0/{end}"}
