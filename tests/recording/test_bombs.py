"""Files of a few KB that say a lot: neither memory nor patience goes with what they say."""

from __future__ import annotations

import os
import re
import resource
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import lz4.frame
import pytest
import zstandard
from mcap import records

from msgq.errors import RecordingError
from msgq.recording import LogReader, compare
from msgq.recording.comparison import compare as comparing_module
from msgq.recording.mcap_io.compression import decompress_data
from msgq.recording.mcap_io.record_structs import build_summary_section as summary
from msgq.recording.mcap_io.record_structs import encode_records as record
from msgq.recording.repair.recover import recover
from tests.command import main
from tests.fork_server import ForkedProcess
from tests.recording.logs import (
    build_chunk_record,
    build_recording_head,
    channel,
    encode_parts,
    message,
    write_unclosed_file,
)
from tests.support import LONGER

MIB = 1 << 20
GOOD = build_chunk_record(channel(1, "a"), message(1, 0, 5, b"good"))
MEMORY = 512 * MIB  # bytes of address space, in addition to Python's and its libraries'


def raw_chunk(content: bytes, compression: str = "zstd", start: int = 0, end: int = 0) -> bytes:
    compress = {"zstd": zstandard.ZstdCompressor().compress, "lz4": lz4.frame.compress, "": bytes}[compression]
    return encode_parts(records.Chunk(compression, compress(content), end, start, zlib.crc32(content), len(content)))


def many_messages(count: int, first: int = 0) -> bytes:
    """Return messages of nothing, one after the other."""
    one = struct.pack("<BQHIQQ", 5, 22, 1, 0, first, first)
    return encode_parts(channel(1, "a")) + one * count


def write_sparse_record(path: Path, opcode: int, length: int) -> Path:
    """Write a record with a hole for its content, and a good chunk behind it."""
    with path.open("wb") as file:
        file.write(build_recording_head() + GOOD + struct.pack("<BQ", opcode, length))
        file.seek(length, os.SEEK_CUR)
        file.write(GOOD)
    return path


def with_summary(path: Path, *parts: bytes) -> Path:
    """Write a file that was closed, with a summary of these records."""
    data = build_recording_head() + GOOD + record(records.DataEnd(0))
    path.write_bytes(data + summary(len(data), [(3, b"".join(parts))]))  # any opcode will do
    return path


def million_channels() -> bytes:
    parts = []
    for number in range(1_000_000):
        topic = b"topic%d" % number
        content = struct.pack("<HHI", number % 65536, 0, len(topic)) + topic + bytes(8)
        parts.append(struct.pack("<BQ", 4, len(content)) + content)
    return b"".join(parts)


ZEROS = bytes(256 * MIB)
#: Write a file, and say what of it is to be read: the messages of the good chunks.
BOMBS: dict[str, Callable[[Path], Path]] = {
    "zeros, zstd": lambda path: write_unclosed_file(path, GOOD, raw_chunk(ZEROS), GOOD),
    "zeros, lz4": lambda path: write_unclosed_file(path, GOOD, raw_chunk(ZEROS, "lz4"), GOOD),
    "many zeros": lambda path: write_unclosed_file(path, GOOD, *[raw_chunk(ZEROS)] * 4, GOOD),
    "unknown records": lambda path: write_unclosed_file(
        path, GOOD, raw_chunk(struct.pack("<BQ", 0x90, 0) * (200 * MIB // 9)), GOOD
    ),
    "channels": lambda path: write_unclosed_file(
        path, GOOD, raw_chunk(struct.pack("<BQ", 4, 0) * (64 * MIB // 9)), GOOD
    ),
    "a large chunk": lambda path: write_unclosed_file(path, GOOD, build_chunk_record(bytes(9), size=300 * MIB), GOOD),
    "schemas": lambda path: write_unclosed_file(
        path,
        GOOD,
        *(
            raw_chunk(encode_parts(*(records.Schema(n, b"x" * 8 * MIB, "", "s") for n in range(i, i + 4))))
            for i in range(1, 100, 4)
        ),
        GOOD,
    ),
    "a hole in a schema": lambda path: write_sparse_record(path, 3, 2**31 - 2),
    "a hole in an attachment": lambda path: write_sparse_record(path, 9, 2**31 - 2),
    "a hole in a message": lambda path: write_sparse_record(path, 5, 2**31 - 2),
    "a hole in a chunk": lambda path: write_sparse_record(path, 6, 2**31 - 2),
    "a hole in metadata": lambda path: write_sparse_record(path, 12, 2**36),
    "an attachment of 2^60": lambda path: write_unclosed_file(path, GOOD, struct.pack("<BQ", 9, 2**60), GOOD),
    "a channel summary": lambda path: with_summary(path, million_channels()),
}


BIG = {"a channel summary", "channels", "many zeros", "schemas", "unknown records", "zeros, lz4", "zeros, zstd"}  # slow


class Done(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    stdout: str
    stderr: str


def run_bag_in_child(*words: str) -> None:
    """In the forked process: run `msgq bag` with little address space."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    main("bag", *words)


def in_little_memory(verb: str, *arguments: object) -> Done:
    words = [verb, *map(str, arguments)]
    pipe = subprocess.PIPE
    with ForkedProcess(
        __name__, "run_bag_in_child", words, [f"msgq.cli.bag.{verb}"], stdout=pipe, stderr=pipe
    ) as process:
        said, complaints = process.communicate()
        return Done(process.returncode, said, complaints)


@pytest.mark.watchdog(300)
@pytest.mark.parametrize("bomb", [pytest.param(name, marks=pytest.mark.ci if name in BIG else ()) for name in BOMBS])
def test_decompression_bomb_uses_little_memory_and_hides_no_valid_chunks(tmp_path: Path, bomb: str) -> None:
    path = BOMBS[bomb](tmp_path / "a.mcap")
    info = in_little_memory("info", path)
    assert info.code == 0, info.stderr
    good = 1 if bomb == "a channel summary" else 2
    assert re.search(rf"^messages +{good}$", info.stdout, re.MULTILINE), info.stderr
    assert ("skipped: " in info.stderr) == (bomb not in ("unknown records", "a hole in an attachment"))
    assert "MemoryError" not in info.stderr
    assert in_little_memory("diff", path, path).stdout.startswith(f"the same: {good} messages")
    if "a hole" in bomb:
        return  # a copy would have no hole
    if bomb == "a channel summary" and LONGER < 2:
        return  # a copy takes forty seconds
    done = in_little_memory("recover", path, "-o", tmp_path / "b.mcap")
    assert done.code == 0, done.stderr
    assert "Traceback" not in done.stderr


COUNT = """
import pathlib, re, sys
from msgq.recording import LogReader
count = sum(1 for _ in LogReader(sys.argv[1]))
print(count, re.search(r"VmHWM:\\s*(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""  # not ru_maxrss, which begins with what the parent had when it forked


@pytest.mark.ci
@pytest.mark.watchdog(300)
def test_chunk_of_many_small_messages_uses_little_memory(tmp_path: Path) -> None:
    """Of 31 bytes each, which compress to nothing: as objects of Python they would take fifteen times as much."""
    path = write_unclosed_file(tmp_path / "a.mcap", raw_chunk(many_messages(2 * MIB)))
    said = subprocess.run([sys.executable, "-c", COUNT, path], capture_output=True, text=True, check=True).stdout
    count, kib = map(int, said.split())
    assert count == 2 * MIB
    assert kib < 500 * 1024


def test_overlapping_chunks_use_bounded_memory(tmp_path: Path) -> None:
    parts = [raw_chunk(many_messages(8000, first), start=0, end=10**6) for first in range(40)]
    log = LogReader(write_unclosed_file(tmp_path / "a.mcap", *parts), max_chunk_bytes=MIB)
    times = [message.log_time for message in log]
    assert times == sorted(times)
    assert 0 < len(times) < 40 * 8000
    assert any("overlap in time" in str(problem) and "--max-chunk-bytes" in str(problem) for problem in log.problems)
    log = LogReader(tmp_path / "a.mcap", max_chunk_bytes=8 * MIB)
    assert len(list(log)) == 40 * 8000
    assert not log.problems


def test_larger_chunk_limit_allows_larger_chunk(tmp_path: Path) -> None:
    large = build_chunk_record(channel(1, "a"), message(1, 1, 6, b"x" * 2 * MIB))
    path = write_unclosed_file(tmp_path / "a.mcap", GOOD, large, encode_parts(message(1, 2, 7, bytes(3 * MIB))), GOOD)
    assert [len(m.data) for m in LogReader(path)] == [4, 4, 2 * MIB, 3 * MIB]
    log = LogReader(path, max_chunk_bytes=MIB)
    assert [len(m.data) for m in log] == [4, 4]
    assert len(log.problems) == 2
    assert all("max_chunk_bytes (--max-chunk-bytes)" in str(problem) for problem in log.problems)
    before = path.read_bytes()
    for output in (None, tmp_path / "b.mcap"):
        with pytest.raises(RecordingError, match="--max-chunk-bytes"):
            recover(path, output, max_chunk_bytes=MIB)
    assert path.read_bytes() == before
    assert not (tmp_path / "b.mcap").exists()
    assert recover(path, in_place=True).messages == 4


def test_zero_bytes_in_chunk_are_reported_as_damage(tmp_path: Path) -> None:
    bad = build_chunk_record(channel(1, "a"), message(1, 1, 6, b"before"), bytes(1000))
    path = write_unclosed_file(tmp_path / "a.mcap", GOOD, bad, GOOD)
    log = LogReader(path)
    assert len(list(log)) == 3
    assert "zeros instead of a record" in str(log.problems)
    assert recover(path, in_place=True).messages == 3


def test_private_records_in_and_outside_chunks_are_skipped(tmp_path: Path) -> None:
    private = struct.pack("<BQ3s", 0x90, 3, b"abc")
    loose = [encode_parts(message(1, 0, 5)), private, encode_parts(message(1, 1, 6))]
    path = write_unclosed_file(
        tmp_path / "a.mcap", build_chunk_record(channel(1, "a"), private, message(1, 0, 4), private), *loose
    )
    log = LogReader(path)
    assert [m.log_time for m in log] == [4, 5, 6]
    assert not log.problems


@pytest.mark.parametrize("kind", ["zstd", "zstd without size", "zstd in frames", "lz4", "lz4 in frames", "none"])
def test_decompression_stops_at_size_in_header(kind: str) -> None:
    content = bytes(64 * MIB)
    ways: dict[str, Callable[[], bytes]] = {
        "zstd": lambda: zstandard.ZstdCompressor().compress(content),
        "zstd without size": lambda: zstandard.ZstdCompressor(write_content_size=False).compress(content),
        "zstd in frames": lambda: zstandard.ZstdCompressor().compress(content[:1000]) * 1000,
        "lz4": lambda: lz4.frame.compress(content, store_size=False),
        "lz4 in frames": lambda: lz4.frame.compress(content[:1000]) * 1000,
        "none": lambda: content,
    }
    packed = ways[kind]()
    name = kind.split()[0].replace("none", "")
    for size in (0, 10, 999):
        with pytest.raises(ValueError, match=f"{size}"):
            decompress_data(name, memoryview(packed), size)
    whole = {"zstd in frames": 1_000_000, "lz4 in frames": 1000}.get(kind, len(content))
    assert decompress_data(name, memoryview(packed), whole) == bytes(whole)
    with pytest.raises(ValueError, match="instead of"):
        decompress_data(name, memoryview(packed), whole + 1)


def test_long_text_in_problem_is_shortened(tmp_path: Path) -> None:
    bad = build_chunk_record(channel(1, "b" * MIB), message(1, 0, 1))
    log = LogReader(write_unclosed_file(tmp_path / "a.mcap", GOOD, bad))
    assert len(list(log)) == 2
    assert all(len(str(problem)) < 10_000 for problem in log.problems)


def test_attachment_index_does_not_read_attachments(tmp_path: Path) -> None:
    attachment = records.Attachment(create_time=1, log_time=2, name="n", media_type="text/plain", data=b"x" * MIB)
    path = write_unclosed_file(tmp_path / "a.mcap", GOOD, attachment, GOOD)
    recover(path, in_place=True)
    from mcap.reader import make_reader

    with path.open("rb") as file:
        found = make_reader(file).get_summary()
        assert found is not None
        index = found.attachment_indexes[0]
        assert (index.name, index.media_type, index.data_size, index.log_time, index.create_time) == (
            "n",
            "text/plain",
            MIB,
            2,
            1,
        )
        assert [one.data for one in make_reader(file).iter_attachments()] == [attachment.data]


def test_comparison_keeps_bounded_number_of_unmatched_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing_module, "_UNMATCHED_BYTES_MAX", MIB)
    logs = []
    for name in ("a", "b"):
        parts = build_chunk_record(channel(1, name), *(message(1, i, i) for i in range(4000)))
        logs.append(write_unclosed_file(tmp_path / f"{name}.mcap", parts))
    with pytest.raises(RecordingError, match="compare fewer endpoints"):
        compare(logs[0], logs[1])
    assert compare(logs[0], logs[0])
