"""Files whose bytes make no sense: what is good in them is read, the rest is listed, nothing crashes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap import records
from mcap.opcode import Opcode

from msgq.errors import RecordingError
from msgq.recording import LogReader
from msgq.recording.mcap_io.record_structs import build_summary_section as summary
from tests.recording.logs import (
    FOREIGN,
    MCAP_MAGIC,
    build_chunk_record,
    build_recording_head,
    channel,
    encode_parts,
    message,
    write_foreign,
    write_unclosed_file,
)

GOOD = build_chunk_record(channel(1, "a"), message(1, 0, 5, b"good"))
BAD: dict[str, tuple[bytes, str]] = {
    "wrong CRC": (build_chunk_record(channel(2, "b"), message(2, 0, 1), crc=1), "CRC of the chunk is wrong"),
    "claims too much": (build_chunk_record(channel(2, "b"), message(2, 0, 1), size=2**60), "the stated size of"),
    "claims more than it has": (
        build_chunk_record(channel(2, "b"), message(2, 0, 1), size=2**30),
        "instead of 1073741824",
    ),
    "lz4 claims less": (
        build_chunk_record(channel(2, "b"), message(2, 0, 1), compression="lz4", size=20),
        "instead of 20",
    ),
    "unknown compression": (build_chunk_record(channel(2, "b"), message(2, 0, 1)).replace(b"zstd", b"zst?"), "zst?"),
    "cut within": (
        build_chunk_record(channel(2, "b"), encode_parts(message(2, 0, 1))[:-1]),
        "ends after the end of its chunk",
    ),
    "huge within": (
        build_chunk_record(channel(2, "b"), struct.pack("<BQ", 5, 2**63)),
        "ends after the end of its chunk",
    ),
    "unknown channel": (build_chunk_record(message(7, 0, 1)), "channel 7 is not described"),
    "impossible time": (build_chunk_record(channel(2, "b"), message(2, 0, 2**63)), "invalid time"),
    "short message": (build_chunk_record(channel(2, "b"), struct.pack("<BQ3s", 5, 3, b"abc")), "too short"),
    "short channel": (build_chunk_record(struct.pack("<BQ3s", 4, 3, b"abc")), "is invalid: "),
    "no UTF-8": (build_chunk_record(encode_parts(channel(2, "bbbb")).replace(b"bbbb", b"\xff" * 4)), "is invalid: "),
    "missing schema": (
        build_chunk_record(channel(2, "b", schema_id=9), message(2, 0, 1)),
        "schema 9, which is missing",
    ),
    "other channel, same id": (build_chunk_record(channel(1, "b"), message(1, 0, 1)), "changes from 'a' to 'b' here"),
    "short chunk": (struct.pack("<BQ3s", 6, 3, b"abc"), "too short"),
    "huge record": (struct.pack("<BQ3s", 6, 2**63, b"abc"), "does not fit"),
    "zeros": (bytes(100), "zeros"),
}


@pytest.mark.parametrize("kind", BAD)
def test_hostile_file_gives_valid_messages_and_problems(tmp_path: Path, kind: str) -> None:
    bad, reason = BAD[kind]
    log = LogReader(write_unclosed_file(tmp_path / "a.mcap", GOOD, bad, GOOD))
    found = list(log)
    assert [m.data for m in found if m.endpoint == "a"] == [b"good", b"good"]
    assert [batch.num_rows for batch in log.batches()] == [len(found)]
    assert any(reason in str(problem) for problem in log.problems), log.problems


def test_wrong_summary_is_ignored(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    data = path.read_bytes()
    for change, reason in ((-40, "CRC of the summary is wrong"), (-24, "")):
        flipped = bytearray(data)
        flipped[change] ^= 0x55
        path.write_bytes(flipped)
        log = LogReader(path)
        assert len(list(log)) == 300
        assert reason in str(log.problems)


def test_index_that_contradicts_chunk_is_reported(tmp_path: Path) -> None:
    """Whoever selects a time by it may miss messages."""
    path = tmp_path / "a.mcap"
    part = build_chunk_record(channel(1, "a"), message(1, 0, 5), message(1, 1, 10))
    start = len(build_recording_head())
    index = records.ChunkIndex(len(part), start, "zstd", 50, 7, 0, {}, 5, 90)
    parts: list[tuple[int, bytes]] = [(Opcode.CHUNK_INDEX, encode_parts(index))]
    data = build_recording_head() + part + encode_parts(records.DataEnd(0))
    path.write_bytes(data + summary(len(data), parts))
    log = LogReader(path)
    assert log.files[0].is_complete
    assert not log.problems
    assert [m.log_time for m in log] == [5, 10]
    assert ["5 to 7 instead of 5 to 10" in problem.reason for problem in log.problems] == [True]


@pytest.mark.parametrize(
    "kind", ["unchunked", *(pytest.param(kind, marks=pytest.mark.ci) for kind in ("uncompressed", "zstd"))]
)
def test_each_flipped_bit_is_reported(tmp_path: Path, kind: str) -> None:
    """Chunks have CRCs of their own; messages outside of them are covered by that of the data section."""
    path = write_foreign(tmp_path / "a.mcap", count=10, **FOREIGN[kind], enable_data_crcs=True)
    good, data = list(LogReader(path)), path.read_bytes()
    assert not LogReader(path).problems
    for place in range(len(MCAP_MAGIC), len(data) - len(MCAP_MAGIC), 3):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        log = LogReader(path)
        assert list(log) == good or log.problems, place


def read_all(path: Path) -> None:
    log = LogReader(path)
    messages = list(log.decoded())
    rows = sum(batch.num_rows for batch in log.batches(rows=50))
    assert rows == log.messages
    assert len(messages) == rows or log.problems
    assert (log.start_time is None) == (rows == 0)
    assert isinstance(log.end_time, int | None)


@pytest.mark.parametrize(
    "kind",
    ["zstd", *(pytest.param(kind, marks=pytest.mark.ci) for kind in ("unchunked", "uncompressed", "no summary"))],
)
@settings(max_examples=150)
@given(changes=st.lists(st.tuples(st.integers(0), st.integers(1, 255)), min_size=1, max_size=6))
def test_flipped_bytes_do_not_crash_reader(tmp_path: Path, kind: str, changes: list[tuple[int, int]]) -> None:
    original = tmp_path / "original.mcap"
    if not original.exists():
        write_foreign(original, count=40, **FOREIGN[kind])
    data = bytearray(original.read_bytes())
    for place, change in changes:
        data[len(MCAP_MAGIC) + place % (len(data) - len(MCAP_MAGIC))] ^= change
    path = tmp_path / "a.mcap"
    path.write_bytes(data)
    read_all(path)


@settings(max_examples=200)
@given(data=st.binary(max_size=300))
def test_random_bytes_do_not_crash_reader(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.mcap"
    path.write_bytes(MCAP_MAGIC + data)
    read_all(path)
    path.write_bytes(data)
    if not data.startswith(MCAP_MAGIC):
        with pytest.raises(RecordingError):
            LogReader(path)
