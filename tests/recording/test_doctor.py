"""The doctor: each rule of MCAP is broken once, and said with its place; whole files have no errors."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcap import records
from mcap.opcode import Opcode

import msgq
from msgq.errors import RecordingError
from msgq.recording import LogReader, Recorder
from msgq.recording.mcap_io.core import crc32
from msgq.recording.mcap_io.log_writer import Writer
from msgq.recording.mcap_io.record_structs import (
    FOOTER_BYTES,
    MCAP_MAGIC,
    RECORD_HEAD_STRUCT,
    RecordStream,
    encode_records,
)
from msgq.recording.repair.chunk_parser import parse_record
from msgq.recording.repair.doctor import FileExamination, Finding, examine
from tests.cases import each_case
from tests.recording.logs import FOREIGN, build_chunk_record, channel, message, write_foreign, write_unclosed_file
from tests.support import wait_until

MIB = 1 << 20


def records_of(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Give the opcode of each record of a file, and from where to where it is."""
    here = len(MCAP_MAGIC)
    while here < len(data) - len(MCAP_MAGIC):
        opcode, length = RECORD_HEAD_STRUCT.unpack_from(data, here)
        yield opcode, here, here + RECORD_HEAD_STRUCT.size + length
        here += RECORD_HEAD_STRUCT.size + length


def find_record(data: bytes, opcode: Opcode, number: int = 0) -> tuple[int, int]:
    return [(start, end) for found, start, end in records_of(data) if found == opcode][number]


def fix_summary_crc(data: bytes) -> bytes:
    """Return a file with the right CRC for its summary, whatever that says."""
    footer = len(data) - FOOTER_BYTES
    start = struct.unpack_from("<Q", data, footer + RECORD_HEAD_STRUCT.size)[0]
    covered = data[start : footer + RECORD_HEAD_STRUCT.size + 16]
    return data[: footer + RECORD_HEAD_STRUCT.size + 16] + struct.pack("<I", crc32(covered)) + MCAP_MAGIC


def change_record(data: bytes, opcode: Opcode, number: int = 0, **changes: Any) -> bytes:
    """Return a file with another value in a record, which is as long as before."""
    start, end = find_record(data, opcode, number)
    read = {Opcode.CHUNK: records.Chunk.read, Opcode.MESSAGE_INDEX: records.MessageIndex.read}.get(opcode)
    record = read(RecordStream(data[start + RECORD_HEAD_STRUCT.size : end])) if read else parse_record(data[start:end])
    other = encode_records(
        replace(record, **{name: change_field(record, name, value) for name, value in changes.items()})
    )
    assert len(other) == end - start
    return fix_summary_crc(data[:start] + other + data[end:])


def change_field(record: Any, name: str, value: Any) -> Any:
    return value(getattr(record, name)) if callable(value) else value


def remove_summary_record(data: bytes, opcode: Opcode, number: int = 0) -> bytes:
    """Return a file without a record of its summary, whose offsets are those of before."""
    start, end = find_record(data, opcode, number)
    return fix_summary_crc(data[:start] + data[end:])


def add_one(value: int) -> int:
    return value + 1


def flip_byte(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def found(tmp_path: Path, data: bytes) -> list[Finding]:
    path = tmp_path / "broken.mcap"
    path.write_bytes(data)
    return list(examine(path))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of the library with messages in chunks, metadata and an attachment."""
    path = tmp_path_factory.mktemp("good") / "a.mcap"
    with path.open("wb") as file:
        from mcap.writer import Writer as Foreign

        writer = Foreign(file, chunk_size=512, enable_data_crcs=True)
        writer.start("", "another")
        schema = writer.register_schema("Number", "jsonschema", b"{}")
        topics = [writer.register_channel(f"topic{i}", "json", schema) for i in range(2)]
        for i in range(60):
            writer.add_message(topics[i % 2], 1000 + i, b"{}", 1000 + i, i)
        writer.add_attachment(5, 6, "name", "text/plain", b"attached")
        writer.add_metadata("note", {"by": "test"})
        writer.finish()
    assert not list(examine(path))
    return path.read_bytes()


CHANGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "no magic at end": ("magic", lambda d: d[:-1] + b"x"),
    "bytes after end": ("damage", lambda d: d + b"more"),
    "wrong summary offset in footer": (
        "footer",
        lambda d: d[:-FOOTER_BYTES] + struct.pack("<BQQQI", 2, 20, 77, 0, 0) + MCAP_MAGIC,
    ),
    "wrong offset of summary offsets": (
        "footer",
        lambda d: change_record(d, Opcode.FOOTER, summary_offset_start=add_one),
    ),
    "wrong CRC of summary": ("summary crc", lambda d: flip_byte(d, len(d) - len(MCAP_MAGIC) - 1)),
    "wrong CRC of data": ("data crc", lambda d: flip_byte(d, find_record(d, Opcode.DATA_END)[1] - 1)),
    "flipped bit outside chunks": ("data crc", lambda d: flip_byte(d, find_record(d, Opcode.METADATA)[1] - 1)),
    "flipped bit in chunk": ("damage", lambda d: flip_byte(d, find_record(d, Opcode.CHUNK, 1)[1] - 9)),
    "flipped bit in attachment": ("damage", lambda d: flip_byte(d, find_record(d, Opcode.ATTACHMENT)[1] - 9)),
    "wrong times of chunk": ("chunk", lambda d: change_record(d, Opcode.CHUNK, 1, message_start_time=add_one)),
    "wrong entry of index": ("message index", lambda d: flip_byte(d, find_record(d, Opcode.MESSAGE_INDEX, 1)[1] - 1)),
    "wrong channel of index": ("message index", lambda d: change_record(d, Opcode.MESSAGE_INDEX, channel_id=7)),
    "second index of channel": ("message index", lambda d: change_record(d, Opcode.MESSAGE_INDEX, channel_id=2)),
    "wrong offset of chunk": (
        "chunk index",
        lambda d: change_record(d, Opcode.CHUNK_INDEX, 1, chunk_start_offset=add_one),
    ),
    "wrong length of chunk": ("chunk index", lambda d: change_record(d, Opcode.CHUNK_INDEX, 1, chunk_length=add_one)),
    "wrong time of chunk": ("chunk index", lambda d: change_record(d, Opcode.CHUNK_INDEX, 1, message_end_time=add_one)),
    "wrong size of chunk": (
        "chunk index",
        lambda d: change_record(d, Opcode.CHUNK_INDEX, 1, uncompressed_size=add_one),
    ),
    "wrong compressed size": (
        "chunk index",
        lambda d: change_record(d, Opcode.CHUNK_INDEX, 1, compressed_size=add_one),
    ),
    "wrong compression": ("chunk index", lambda d: change_record(d, Opcode.CHUNK_INDEX, 1, compression="lz4x")),
    "wrong length of indexes": (
        "chunk index",
        lambda d: change_record(d, Opcode.CHUNK_INDEX, 1, message_index_length=add_one),
    ),
    "wrong offset of index": (
        "chunk index",
        lambda d: change_record(
            d, Opcode.CHUNK_INDEX, message_index_offsets=lambda o: {n: at + 1 for n, at in o.items()}
        ),
    ),
    "no index of chunk": ("chunk index", lambda d: remove_summary_record(d, Opcode.CHUNK_INDEX, 1)),
    "two indexes of chunk": (
        "chunk index",
        lambda d: change_record(d, Opcode.CHUNK_INDEX, 1, chunk_start_offset=find_record(d, Opcode.CHUNK)[0]),
    ),
    "wrong offset of attachment": (
        "attachment index",
        lambda d: change_record(d, Opcode.ATTACHMENT_INDEX, offset=add_one),
    ),
    "wrong name of attachment": ("attachment index", lambda d: change_record(d, Opcode.ATTACHMENT_INDEX, name="game")),
    "no index of attachment": ("attachment index", lambda d: remove_summary_record(d, Opcode.ATTACHMENT_INDEX)),
    "wrong name of metadata": ("metadata index", lambda d: change_record(d, Opcode.METADATA_INDEX, name="vote")),
    "wrong number of messages": ("statistics", lambda d: change_record(d, Opcode.STATISTICS, message_count=add_one)),
    "wrong number of chunks": ("statistics", lambda d: change_record(d, Opcode.STATISTICS, chunk_count=add_one)),
    "wrong number of schemas": ("statistics", lambda d: change_record(d, Opcode.STATISTICS, schema_count=add_one)),
    "wrong number of channels": ("statistics", lambda d: change_record(d, Opcode.STATISTICS, channel_count=add_one)),
    "wrong number of attachments": (
        "statistics",
        lambda d: change_record(d, Opcode.STATISTICS, attachment_count=add_one),
    ),
    "wrong number of metadata": ("statistics", lambda d: change_record(d, Opcode.STATISTICS, metadata_count=add_one)),
    "wrong first time": ("statistics", lambda d: change_record(d, Opcode.STATISTICS, message_start_time=add_one)),
    "wrong last time": ("statistics", lambda d: change_record(d, Opcode.STATISTICS, message_end_time=add_one)),
    "wrong count of channel": (
        "statistics",
        lambda d: change_record(d, Opcode.STATISTICS, channel_message_counts=lambda c: c | {1: c[1] + 1}),
    ),
    "different schema in summary": (
        "summary description",
        lambda d: change_record(d, Opcode.SCHEMA, -1, name="Lumber"),
    ),
    "different channel in summary": (
        "summary description",
        lambda d: change_record(d, Opcode.CHANNEL, -1, topic="Topic1"),
    ),
    "channel only in summary": ("summary description", lambda d: change_record(d, Opcode.CHANNEL, -1, id=9)),
    "no channel in summary": ("summary description", lambda d: remove_summary_record(d, Opcode.CHANNEL, -1)),
    "wrong summary offset": (
        "summary offset",
        lambda d: change_record(d, Opcode.SUMMARY_OFFSET, 1, group_length=add_one),
    ),
    "no summary offset": ("summary offset", lambda d: remove_summary_record(d, Opcode.SUMMARY_OFFSET, 1)),
    "mixed groups": ("groups", lambda d: swap_group_records(d)),
    "message in summary": ("damage", lambda d: before_footer(d, encode_records(message(1, 0, 5)))),
    "footer without DataEnd": ("data end", lambda d: d[: find_record(d, Opcode.DATA_END)[0]] + d[-FOOTER_BYTES:]),
    "no end": ("data end", lambda d: d[: find_record(d, Opcode.DATA_END)[0]]),
    "statistics record in data": (
        "damage",
        lambda d: insert_before(d, Opcode.CHUNK, encode_records(statistics())),
    ),
    "second header": ("damage", lambda d: insert_before(d, Opcode.CHUNK, encode_records(records.Header("", "x")))),
    "stray message index": (
        "message index",
        lambda d: insert_before(
            d, Opcode.ATTACHMENT, encode_records(records.Metadata("x", {}), records.MessageIndex(1, [(1, 2)]))
        ),
    ),
    "unknown record": ("unknown", lambda d: insert_before(d, Opcode.CHUNK, struct.pack("<BQ", 0x44, 0))),
    "record of zeros": ("damage", lambda d: insert_before(d, Opcode.CHUNK, bytes(50))),
    "no header": ("header", lambda d: MCAP_MAGIC + d[find_record(d, Opcode.HEADER)[1] :]),
}


def statistics() -> records.Statistics:
    return records.Statistics(0, 0, {}, 0, 0, 0, 0, 0, 0)


def insert_before(data: bytes, opcode: Opcode, record: bytes) -> bytes:
    start = find_record(data, opcode)[0]
    return data[:start] + record + data[start:]


def before_footer(data: bytes, record: bytes) -> bytes:
    return data[:-FOOTER_BYTES] + record + data[-FOOTER_BYTES:]


def swap_group_records(data: bytes) -> bytes:
    """Exchange two records of the summary that are of different groups."""
    (first, middle), (_, last) = find_record(data, Opcode.CHANNEL, -1), find_record(data, Opcode.STATISTICS)
    begin = find_record(data, Opcode.CHANNEL, -2)[0]
    return fix_summary_crc(data[:begin] + data[first:middle] + data[middle:last] + data[begin:first] + data[last:])


@each_case("name", CHANGES)
def test_doctor_reports_each_broken_rule(tmp_path: Path, good: bytes, name: str) -> None:
    rule, change = CHANGES[name]
    broken = change(good)
    assert broken != good
    findings = found(tmp_path, broken)
    assert rule in {one.rule for one in findings}, findings
    assert all(0 <= one.offset <= len(broken) for one in findings)
    only_warned = {"unknown", "no summary offset", "no index of attachment", "no channel in summary"}
    named = [one for one in findings if one.rule == rule]
    assert rule == "unknown" or name in only_warned or any(one.severity == "error" for one in named)


@pytest.mark.parametrize("name", ["wrong number of messages", "wrong length of chunk", "wrong entry of index"])
def test_doctor_reports_offset_of_broken_record(tmp_path: Path, good: bytes, name: str) -> None:
    opcode, number = {
        "wrong number of messages": (Opcode.STATISTICS, 0),
        "wrong length of chunk": (Opcode.CHUNK_INDEX, 1),
        "wrong entry of index": (Opcode.MESSAGE_INDEX, 1),
    }[name]
    rule, change = CHANGES[name]
    (one,) = [one for one in found(tmp_path, change(good)) if one.rule == rule]
    assert one.offset == find_record(good, opcode, number)[0]
    assert str(one).endswith(f"[{rule}]")


SCHEMA = records.Schema(1, b"{}", "jsonschema", "s")
OTHER = records.Schema(1, b"[]", "jsonschema", "s")
DATA: dict[str, tuple[str, list[Any]]] = {
    "channel after messages": ("undescribed", [build_chunk_record(message(1, 0, 5), channel(1, "a"))]),
    "no channel": ("undescribed", [build_chunk_record(message(1, 0, 5))]),
    "no channel outside chunks": ("undescribed", [message(1, 0, 5)]),
    "no schema": ("undescribed", [build_chunk_record(channel(1, "a", schema_id=3), message(1, 0, 5))]),
    "two schemas": ("descriptions", [SCHEMA, OTHER]),
    "two channels": ("descriptions", [build_chunk_record(channel(1, "a")), build_chunk_record(channel(1, "b"))]),
    "schema 0": ("damage", [records.Schema(0, b"", "", "s")]),
    "schema 0 in chunk": ("chunk", [build_chunk_record(records.Schema(0, b"", "", "s"))]),
    "data without an encoding": ("schema", [build_chunk_record(records.Schema(1, b"x", "", "s"))]),
    "empty schema": ("schema", [records.Schema(1, b"", "", "s")]),
    "decreasing time": ("order", [build_chunk_record(channel(1, "a"), message(1, 0, 5), message(1, 1, 4))]),
    "decreasing time outside chunks": ("order", [channel(1, "a"), message(1, 0, 5), message(1, 1, 4)]),
    "time above int64": ("time", [channel(1, "a"), message(1, 0, 2**63)]),
    "short message": ("chunk", [build_chunk_record(channel(1, "a"), struct.pack("<BQ", 5, 4) + bytes(4))]),
    "short message outside chunks": (
        "record",
        [channel(1, "a"), message(1, 0, 5), struct.pack("<BQ", 5, 4) + bytes(4)],
    ),
    "cut record in chunk": ("chunk", [build_chunk_record(channel(1, "a"), message(1, 0, 5), b"\5\xff")]),
    "metadata in chunk": ("unknown", [build_chunk_record(records.Metadata("a", {}))]),
    "wrong CRC": ("damage", [build_chunk_record(channel(1, "a"), message(1, 0, 5), crc=77)]),
    "wrong size": ("damage", [build_chunk_record(channel(1, "a"), message(1, 0, 5), size=77)]),
    "field beyond record": ("damage", [struct.pack("<BQHI", 3, 8, 1, 100) + b"ab"]),
    "no message index": ("message index", [build_chunk_record(channel(1, "a"), message(1, 0, 5))]),
}


@each_case("name", DATA)
def test_doctor_reports_each_broken_data_rule(tmp_path: Path, name: str) -> None:
    rule, parts = DATA[name]
    findings = list(examine(write_unclosed_file(tmp_path / "a.mcap", *parts)))
    assert rule in {one.rule for one in findings}, findings


def test_doctor_reports_chunk_above_limit(tmp_path: Path) -> None:
    path = write_unclosed_file(
        tmp_path / "a.mcap", build_chunk_record(channel(1, "a"), message(1, 0, 5, bytes(2 * MIB)))
    )
    assert "size" not in {one.rule for one in examine(path)}
    assert "--max-chunk-bytes" in str([one for one in examine(path, MIB) if one.rule == "size"])


def test_doctor_of_other_file_type_raises_recording_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    assert [one.rule for one in examine(tmp_path / "text")] == ["magic"]
    with pytest.raises(RecordingError):
        list(examine(tmp_path / "nothing"))


_WARNED = ("no index", "no summary", "backwards", "schemas in chunks only")


@pytest.mark.parametrize("kind", FOREIGN)
def test_doctor_finds_no_error_in_files_of_mcap_library(tmp_path: Path, kind: str) -> None:
    findings = list(examine(write_foreign(tmp_path / "a.mcap", **FOREIGN[kind])))
    assert not [one for one in findings if one.severity == "error"]
    assert bool(findings) == (kind in _WARNED)


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_doctor_finds_no_fault_in_msgq_files(tmp_path: Path, compression: str, prefix: str) -> None:
    pub = msgq.PubSocket()
    pub.connect(msgq.context, "number", schema=msgq.Schema("Number", "json", b"{}"))
    with Recorder(tmp_path / "a.mcap", ["number"], compression=compression, chunk_bytes=2000) as recorder:
        for i in range(200):
            pub.send(b'{"n": %d}' % i)
            wait_until(lambda least=i - 50: recorder.stats().messages >= least)  # type: ignore[misc]
    pub.close()
    assert not list(examine(tmp_path / "a.mcap"))
    with Writer(tmp_path / "b.mcap", compression=compression, chunk_bytes=1024) as writer:
        numbers = [writer.channel(name, msgq.Schema("s", "json", b"{}")) for name in "abc"]
        for i in range(300):
            writer.write(numbers[i % 3], b"{}", 1000 + i, origin_time=i % 2)
        writer.attach("name", b"attached")
        writer.add_metadata("note", {"by": "test"})
    assert not list(examine(tmp_path / "b.mcap"))


def test_doctor_counts_records(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    examination = FileExamination(path)
    assert not list(examination)
    assert (examination.data_stats.message_counts.total(), len(examination.data_stats.index_bytes_by_chunk)) == (
        300,
        len(LogReader(path).files[0].blocks),
    )
