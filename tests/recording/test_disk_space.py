"""Disk space of recordings: a full disk, and space that is allocated before writes."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgq.errors import ForkedSocketError, RecordingError
from msgq.recording import Writer
from msgq.recording.mcap_io import metadata_keys, segment_file, segment_writer
from msgq.recording.mcap_io.core import ChunkBuffer, preallocate_space, write_and_commit
from tests.recording.test_writer import BEGIN, by_library


def raise_disk_full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("columns", [False, True])
def test_writer_on_full_disk_writes_no_message_of_failed_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: bool
) -> None:
    with Writer(tmp_path / "a.mcap", compression="none", chunk_bytes=1024) as writer:
        channel, written = writer.channel("e"), 0

        def write_next() -> None:
            if columns:
                writer.write_columns([channel], [bytes(100)], [written])
            else:
                writer.write(channel, bytes(100), written, sequence=written)

        def write_all() -> None:
            nonlocal written
            while True:
                write_next()
                written += 1

        with monkeypatch.context() as patch:
            patch.setattr(segment_file, "write_and_commit", raise_disk_full)
            with pytest.raises(RecordingError, match="No space left"):
                write_all()
            with pytest.raises(RecordingError, match="No space left"):
                write_next()
        assert writer.messages == written > 0
        write_next()
    assert [time for _, _, time, _, _ in by_library(tmp_path / "a.mcap")] == list(range(written + 1))


def test_failed_write_columns_counts_its_first_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = write_and_commit, iter(range(1000))

    def fail_third(*arguments: Any) -> None:
        if next(calls) == 2:
            raise_disk_full()
        real(*arguments)

    with Writer(tmp_path / "a.mcap", compression="none", chunk_bytes=1024) as writer:
        channel = writer.channel("e")
        monkeypatch.setattr(segment_file, "write_and_commit", fail_third)
        with pytest.raises(RecordingError, match="No space left"):
            writer.write_columns(channel, [bytes(100)] * 100, np.arange(100))
        counted = writer.messages
    assert [time for _, _, time, _, _ in by_library(tmp_path / "a.mcap")] == list(range(counted))
    assert 0 < counted < 100


class MegabyteSegment:
    """A file to which each call appends a chunk with a message of 1 MiB. Files of this size get space in advance."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer = segment_writer.SegmentWriter(path, segment_writer.ChunkCompressor("none", None))
        self._channels = {1: segment_writer.encode_channel(1, "a", None, 1, metadata_keys.PUBLISHER_SEQUENCE)}

    def write_messages(self, *numbers: int) -> None:
        """Write messages whose bytes are their numbers."""
        for number in numbers:
            chunk = ChunkBuffer(1 << 20, 1 << 20)
            assert chunk.append_message(1, number, BEGIN + number, BEGIN, bytes([number]) * (1 << 20))
            self.writer.write_chunk(chunk, self._channels)

    def read_numbers(self) -> list[int]:
        """Close the file, and return the numbers that the library of MCAP reads."""
        self.writer.close()
        return [data[0] for *_, data in by_library(self.path)]


def test_child_of_fork_does_not_remove_what_parent_wrote_since(tmp_path: Path) -> None:
    segment = MegabyteSegment(tmp_path / "a.mcap")
    segment.write_messages(0, 1, 2)
    may_close, parent_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.read(may_close, 1)
            with pytest.raises(ForkedSocketError):
                segment.writer.close()
            os._exit(0)
        finally:
            os._exit(1)
    segment.write_messages(3, 4)
    os.write(parent_end, b"1")
    assert os.waitpid(child, 0)[1] == 0
    os.close(may_close)
    os.close(parent_end)
    assert segment.read_numbers() == [0, 1, 2, 3, 4]


def test_space_in_advance_does_not_change_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(_fd: int, _offset: int, size: int) -> bool:
        asked.append(size)
        return False

    def write_file(name: str) -> Path:
        segment = MegabyteSegment(tmp_path / name)
        segment.write_messages(0, 1, 2, 3)
        assert segment.read_numbers() == [0, 1, 2, 3]
        return segment.path

    with_space = write_file("a.mcap")
    monkeypatch.setattr(segment_file, "preallocate_space", refuse)
    without_space = write_file("b.mcap")
    assert len(asked) == 1  # a file system that refused once is not asked again
    assert with_space.read_bytes() == without_space.read_bytes()
    on_disk = with_space.stat().st_blocks * 512
    assert on_disk <= without_space.stat().st_blocks * 512 + asked[0] // 8  # the unused space is returned


def test_refused_space_in_advance_takes_no_disk_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failure would mean: a file on a nearly full disk takes all of its rest, also after the end of the recording."""

    def allocate_part(fd: int, offset: int, size: int) -> bool:
        preallocate_space(fd, offset, size // 2)  # same result as ext4 on a full disk
        return False

    monkeypatch.setattr(segment_file, "preallocate_space", allocate_part)
    segment = MegabyteSegment(tmp_path / "a.mcap")
    segment.write_messages(0, 1, 2)
    status = segment.path.stat()
    assert status.st_blocks * 512 < status.st_size + (1 << 20)
    assert segment.read_numbers() == [0, 1, 2]


def test_failed_write_after_space_in_advance_keeps_earlier_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = MegabyteSegment(tmp_path / "a.mcap")

    def write_part(fd: int, offset: int, parts: Sequence[bytes], *_: Any) -> None:
        os.pwrite(fd, b"".join(parts)[:5000], offset)
        raise_disk_full()

    segment.write_messages(0, 1, 2)
    with monkeypatch.context() as full:
        full.setattr(segment_file, "write_and_commit", write_part)
        with pytest.raises(RecordingError, match="No space left"):
            segment.write_messages(3)
    segment.write_messages(4)
    assert segment.read_numbers() == [0, 1, 2, 4]
