"""Recovery: other readers take the file, nothing that was readable is lost, a kill in the middle harms nothing."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from msgq.errors import RecordingError
from msgq.recording import LogReader
from msgq.recording.format import recover as module
from msgq.recording.format.recover import recover
from tests.recording.logs import FOREIGN, by_library, channel, chunk, message, write, write_foreign


def found(path: Path) -> list[tuple[str, bytes, int]]:
    return [(m.endpoint, m.data, m.log_time) for m in LogReader(path)]


def check_whole(path: Path, expected: list[tuple[str, bytes, int]]) -> None:
    log = LogReader(path)
    assert log.files[0].complete
    assert found(path) == expected
    assert by_library(path) == expected
    assert not recover(path).changed


@pytest.mark.parametrize("kind", ["zstd", "lz4", "uncompressed", "unchunked", "one chunk", "no summary"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.99])
def test_truncated_files_become_whole(tmp_path: Path, kind: str, share: float) -> None:
    path = write_foreign(tmp_path / "a.mcap", **FOREIGN[kind])
    os.truncate(path, int(path.stat().st_size * share))
    before = found(path)
    done = recover(path)
    assert done.messages == len(before)
    check_whole(path, before)


def test_truncated_within_the_index_or_the_end(tmp_path: Path) -> None:
    whole = write_foreign(tmp_path / "whole.mcap", count=60)
    data, path = whole.read_bytes(), tmp_path / "a.mcap"
    last = LogReader(whole).files[0].stretches[-1]
    for size in range(last.offset + last.length - 3, len(data), 7):
        path.write_bytes(data[:size])
        before = found(path)
        recover(path)
        check_whole(path, before)


def test_a_whole_file_stays_as_it_is(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    before = path.read_bytes()
    assert not recover(path).changed
    assert path.read_bytes() == before


@pytest.mark.parametrize("place", ["payload", "length", "opcode"])
def test_damage_in_the_middle_is_passed_over(tmp_path: Path, place: str) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    data = bytearray(path.read_bytes())
    damaged = LogReader(path).files[0].stretches[4]
    data[damaged.offset + {"payload": 80, "length": 7, "opcode": 0}[place]] ^= 0x40 if place != "opcode" else 6
    path.write_bytes(data)
    done = recover(path)
    assert done.damaged_bytes >= damaged.length
    check_whole(
        path, [m for m in found(write_foreign(tmp_path / "b.mcap")) if not damaged.start <= m[2] <= damaged.end]
    )


def test_a_copy_leaves_the_file_alone(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    os.truncate(path, path.stat().st_size // 2)
    before, messages = path.read_bytes(), found(path)
    recover(path, tmp_path / "b.mcap")
    assert path.read_bytes() == before
    check_whole(tmp_path / "b.mcap", messages)
    with pytest.raises(RecordingError, match="File exists"):
        recover(path, tmp_path / "b.mcap")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.9, 1.0])
def test_a_kill_in_the_middle_leaves_what_a_second_recovery_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    path = write(tmp_path / "a.mcap", *(chunk(channel(1, "a"), message(1, i, i)) for i in range(5)), b"\6tail")
    before = found(path)

    class Killed(Exception):
        pass

    def part_only(fd: int, data: bytes, at: int) -> None:
        os.pwrite(fd, data[: int(len(data) * share)], at)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, "_append", part_only)
        with pytest.raises(Killed):
            recover(path)
    assert found(path) == before
    recover(path)
    check_whole(path, before)


def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mcap", chunk(channel(1, "a"), message(1, 0, 0)))
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RecordingError, match="is being written"):
            recover(path)


def test_a_file_with_nothing_in_it_becomes_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mcap")
    assert recover(path).messages == 0
    check_whole(path, [])


def test_what_is_no_log_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("hello")
    with pytest.raises(RecordingError, match="no MCAP file"):
        recover(path)
    assert path.read_text() == "hello"
