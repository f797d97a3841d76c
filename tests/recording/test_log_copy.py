"""Copies of files of others: all that was in them is there, as it was."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcap import records
from mcap.opcode import Opcode
from mcap.reader import NonSeekingReader, make_reader
from mcap.stream_reader import StreamReader
from mcap.writer import CompressionType, Writer

from msgq.errors import InvalidValueError
from msgq.recording import LogReader, examine
from msgq.recording import Writer as OurWriter
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.record_structs import RECORD_HEAD_STRUCT
from msgq.recording.merge import merge
from msgq.recording.merge.log_copy import write_merged_log, write_time_slices
from msgq.recording.reader.totals import find_stored_statistics
from tests.recording.logs import (
    build_chunk_record,
    build_recording_head,
    channel,
    encode_parts,
    message,
    write_unclosed_file,
)

SECOND = 10**9
BEGIN = 1_700_000_000 * SECOND
COUNT = 400
COUNTED = {"epoch": "1", "sequence": "published"}
QOS = "- history: 1\n  depth: 10\n  reliability: 1\n  durability: 2\n"
STRING = b"string data\n"
IDL = b"module std_msgs { module msg { struct String { string data; }; }; };"


@dataclass(frozen=True)
class Style:
    """A kind of file that others write."""

    profile: str
    encoding: str
    schemas: tuple[tuple[str, str, bytes], ...]
    metadata: dict[str, str]
    payload: Callable[[int], bytes]


def cdr(number: int) -> bytes:
    text = b"%d\0" % number
    return b"\0\1\0\0" + struct.pack("<I", len(text)) + text


def ros1(number: int) -> bytes:
    text = b"%d" % number
    return struct.pack("<I", len(text)) + text


STYLES = {
    "ros1": Style(
        "ros1",
        "ros1",
        (("std_msgs/String", "ros1msg", STRING), ("std_msgs/Other", "ros1msg", STRING)),
        {"callerid": "/talker", "md5sum": "992ce8a1687cec8c8bd883ec73ca41d1", "latching": "1"},
        ros1,
    ),
    "ros2": Style(
        "ros2",
        "cdr",
        (("std_msgs/msg/String", "ros2msg", STRING), ("std_msgs/msg/String", "ros2idl", IDL)),
        {"offered_qos_profiles": QOS, "topic_type_hash": "RIHS01_ab"},
        cdr,
    ),
    "none": Style("", "", (("", "", b""), ("Any", "protobuf", b"\x0a\x03abc")), {}, lambda n: bytes([n % 256]) * n),
}


def write_style(path: Path, style: Style, begin: int = BEGIN, topics: str = "/a/{}", **options: Any) -> Path:
    """Write a file with messages a millisecond apart, of four channels; the last one has no schema."""
    chosen: dict[str, Any] = {"chunk_size": 2000, "compression": CompressionType.ZSTD} | options
    with path.open("wb") as file:
        writer = Writer(file, **chosen)
        writer.start(style.profile, "another")
        writer.add_metadata("device", {"serial": "7", "": ""})
        schemas = [writer.register_schema(*schema) for schema in style.schemas]
        writer.register_schema("unused", "jsonschema", b"{}")
        used = (schemas[0], schemas[1], schemas[0], 0)
        for i, schema in enumerate(used):
            metadata = style.metadata | ({"callerid": f"/node{i}"} if "callerid" in style.metadata else {})
            writer.register_channel(topics.format(i), style.encoding, schema, metadata)
        writer.add_attachment(begin, begin, "map.yaml", "text/yaml", b"a: 1\n" * 300)
        for i in range(COUNT):
            if i == COUNT // 2:
                writer.add_attachment(0, begin + i * 1_000_000, "map.yaml", "", b"")
                writer.add_metadata("device", {"serial": "8"})
            # Two of a topic follow each other, so that there are chunks with some of the topics.
            at = begin + i * 1_000_000
            writer.add_message(i // 60 % 4 + 1, at, style.payload(i), at - 500, i * 3)
        writer.finish()
    return path


@dataclass(frozen=True)
class Told:
    """What the library's readers, which check all CRCs, find in a file."""

    profile: str
    schemas: set[tuple[str, str, bytes]]
    channels: set[tuple[Any, ...]]
    messages: list[tuple[Any, ...]]
    attachments: list[tuple[Any, ...]]
    metadata: list[tuple[str, dict[str, str]]]


def read_with_library(path: Path, is_indexed: bool = True) -> Told:
    """Return all. `is_indexed`: its summary says enough for the library to find messages by it."""
    with path.open("rb") as file:
        read = list(StreamReader(file, validate_crcs=True).records)
    with path.open("rb") as file:
        messages = [_message(*found) for found in NonSeekingReader(file).iter_messages()]
    if is_indexed:
        with path.open("rb") as file:
            assert [_message(*found) for found in make_reader(file, validate_crcs=True).iter_messages()] == messages
    header = read[0]
    assert isinstance(header, records.Header)
    by_id = {one.id: one for one in read if isinstance(one, records.Schema)}
    schemas = {number: (one.name, one.encoding, one.data) for number, one in by_id.items()}
    ours = (metadata_keys.STATISTICS_METADATA,)
    return Told(
        header.profile,
        set(schemas.values()),
        {_channel(one, schemas.get(one.schema_id)) for one in read if isinstance(one, records.Channel)},
        messages,
        [
            (one.name, one.media_type, one.log_time, one.create_time, one.data)
            for one in read
            if isinstance(one, records.Attachment)
        ],
        [(one.name, one.metadata) for one in read if isinstance(one, records.Metadata) and one.name not in ours],
    )


def _channel(one: records.Channel, schema: tuple[str, str, bytes] | None) -> tuple[Any, ...]:
    return one.topic, one.message_encoding, tuple(sorted(one.metadata.items())), schema


def _message(schema: records.Schema | None, one: records.Channel, found: records.Message) -> tuple[Any, ...]:
    described = (schema.name, schema.encoding, schema.data) if schema else None
    fields = (found.log_time, found.publish_time, found.sequence, found.data)
    return (*fields, *_channel(one, described)[:3], described or ())


@pytest.fixture(params=STYLES)
def style(request: pytest.FixtureRequest) -> Style:
    return STYLES[request.param]


@pytest.fixture
def source(style: Style, tmp_path: Path) -> Path:
    return write_style(tmp_path / "source.mcap", style)


def chunks(path: Path) -> list[records.ChunkIndex]:
    with path.open("rb") as file:
        summary = make_reader(file).get_summary()
        assert summary is not None
        return summary.chunk_indexes


def chunk_bytes(path: Path) -> list[bytes]:
    data = path.read_bytes()
    return [data[one.chunk_start_offset :][: one.chunk_length] for one in chunks(path)]


@pytest.mark.parametrize("compression", [None, "zstd", "lz4", "none"])
def test_copy_has_all_records(source: Path, tmp_path: Path, compression: str | None) -> None:
    log = LogReader(source)
    assert write_merged_log([log], tmp_path / "copy.mcap", compression) == COUNT
    assert read_with_library(tmp_path / "copy.mcap") == read_with_library(source)
    assert log.problems == []
    assert LogReader(tmp_path / "copy.mcap").problems == []
    unchanged = compression in (None, "zstd")
    assert (chunk_bytes(tmp_path / "copy.mcap") == chunk_bytes(source)) is unchanged
    if not unchanged:
        assert {one.compression for one in chunks(tmp_path / "copy.mcap")} == {"" if compression == "none" else "lz4"}


def test_copy_of_selected_endpoints_has_all_messages_of_those_endpoints(source: Path, tmp_path: Path) -> None:
    wanted = ["/a/0", "/a/3"]
    assert write_merged_log([LogReader(source, endpoints=wanted)], tmp_path / "copy.mcap") == 180
    before, after = read_with_library(source), read_with_library(tmp_path / "copy.mcap")
    assert after.messages == [one for one in before.messages if one[4] in wanted]
    assert after.channels == {one for one in before.channels if one[0] in wanted}
    assert {name for name, *_ in after.schemas} >= {"unused"}, "no channel of the source has it"
    assert len(after.schemas) == len(before.schemas) - 1, "what /a/1 has, nobody has here"
    assert (after.attachments, after.metadata) == (before.attachments, before.metadata)


def test_copy_of_selected_endpoints_keeps_untouched_chunks(tmp_path: Path) -> None:
    with OurWriter(tmp_path / "a.mcap", chunk_bytes=1024) as writer:
        numbers = [writer.channel(name, metadata={"n": name}) for name in "ab"]
        for n in range(200):
            writer.write(numbers[n // 50 % 2], bytes(100), n)
    assert write_merged_log([LogReader(tmp_path / "a.mcap", endpoints=["b"])], tmp_path / "copy.mcap") == 100
    found = read_with_library(tmp_path / "copy.mcap")
    assert [one[0] for one in found.messages] == [*range(50, 100), *range(150, 200)]
    assert {name for name, *_ in found.channels} == {"b"}
    untouched = set(chunk_bytes(tmp_path / "a.mcap")) & set(chunk_bytes(tmp_path / "copy.mcap"))
    assert len(untouched) > 6


def test_copy_of_time_range_keeps_untouched_chunks(source: Path, tmp_path: Path) -> None:
    start, end = BEGIN + 101_000_000, BEGIN + 333_000_000
    assert write_merged_log([LogReader(source, start=start, end=end)], tmp_path / "copy.mcap") == 232
    before, after = read_with_library(source), read_with_library(tmp_path / "copy.mcap")
    assert after.messages == [one for one in before.messages if start <= one[0] < end]
    assert (after.channels, after.schemas, after.metadata) == (before.channels, before.schemas, before.metadata)
    assert after.attachments == before.attachments[1:], "the first one was before"
    untouched = set(chunk_bytes(source)) & set(chunk_bytes(tmp_path / "copy.mcap"))
    assert 0 < len(untouched) < len(chunks(source))


def write_scattered_declarations(path: Path, **options: Any) -> None:
    """Write a channel's schema, the channel and its messages into different chunks."""
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=4096, compression=CompressionType.NONE, **options)
        writer.start("", "another")
        first = writer.register_channel("/a", "json", writer.register_schema("a", "jsonschema", b"{}"))
        schema = writer.register_schema("b", "ros2msg", b"#" * 5000)  # fills the chunk
        writer.add_message(first, BEGIN, b"", BEGIN)
        second = writer.register_channel("/b", "cdr", schema)
        for number in range(1, 200):
            at = BEGIN + number
            writer.add_message(second if number > 100 else first, at, bytes(90), at)
        writer.register_channel("/unused", "json", 0)
        writer.add_message(second, BEGIN + 200, b"", BEGIN + 200)
        writer.finish()


def test_copy_of_time_range_has_declarations_of_rewritten_chunks(tmp_path: Path) -> None:
    path, output = tmp_path / "a.mcap", tmp_path / "copy.mcap"
    write_scattered_declarations(path)
    write_merged_log([LogReader(path, start=BEGIN + 1)], output)
    before, after = read_with_library(path), read_with_library(output)
    assert after.messages == before.messages[1:]
    assert (after.channels, after.schemas) == (before.channels, before.schemas)
    assert not list(examine(output))
    assert set(chunk_bytes(path)) & set(chunk_bytes(output))


@pytest.mark.parametrize("use_statistics", [False, True])
def test_copy_of_file_without_channels_in_summary_has_valid_statistics(tmp_path: Path, use_statistics: bool) -> None:
    path, output = tmp_path / "a.mcap", tmp_path / "copy.mcap"
    write_scattered_declarations(path, repeat_channels=False, use_statistics=use_statistics)
    write_merged_log([LogReader(path)], output)
    assert [one.log_time for one in LogReader(output)] == list(range(BEGIN, BEGIN + 201))
    assert not list(examine(output))


def test_copies_of_all_pieces_have_all_messages(source: Path, tmp_path: Path) -> None:
    pieces = [
        read_with_library(path) for path, _ in write_time_slices(LogReader(source), tmp_path / "pieces", 150_000_000)
    ]
    whole = read_with_library(source)
    assert [len(one.messages) for one in pieces] == [150, 150, 100]
    assert [message for one in pieces for message in one.messages] == whole.messages
    assert [attachment for one in pieces for attachment in one.attachments] == whole.attachments
    for one in pieces:
        assert (one.profile, one.channels, one.schemas) == (whole.profile, whole.channels, whole.schemas)
        assert one.metadata == whole.metadata


def test_merged_copy_has_messages_in_time_order(source: Path, style: Style, tmp_path: Path) -> None:
    """In time, one begins in the middle of the other; half of its topics have the names of the other's."""
    other = write_style(
        tmp_path / "other.mcap", style, BEGIN + 200_000_500, "/a/{0}" if not style.metadata else "/b/{0}"
    )
    assert write_merged_log([LogReader(source), LogReader(other)], tmp_path / "copy.mcap") == 2 * COUNT
    one, two, both = read_with_library(source), read_with_library(other), read_with_library(tmp_path / "copy.mcap")
    assert both.messages == sorted(one.messages + two.messages, key=lambda found: found[0])
    assert (both.profile, both.channels) == (one.profile, one.channels | two.channels)
    assert both.schemas == one.schemas | two.schemas
    assert both.attachments == one.attachments + two.attachments
    assert both.metadata == one.metadata + two.metadata
    untouched = set(chunk_bytes(source)) & set(chunk_bytes(tmp_path / "copy.mcap"))
    assert 0 < len(untouched) < len(chunks(source)), "those before the other begins"
    times = [found.log_time for found in LogReader(tmp_path / "copy.mcap")]
    assert times == sorted(times)
    ends = [one.message_end_time for one in chunks(tmp_path / "copy.mcap")]
    starts = [one.message_start_time for one in chunks(tmp_path / "copy.mcap")]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False)), "chunks follow each other"


@pytest.mark.parametrize("options", [{"use_chunking": False}, {"index_types": 0}, {"repeat_channels": False}])
def test_files_without_chunks_or_indexes_are_copied(style: Style, options: dict[str, Any], tmp_path: Path) -> None:
    from mcap.writer import IndexType

    if "index_types" in options:
        options = {"index_types": IndexType.NONE}
    source = write_style(tmp_path / "source.mcap", style, **options)
    assert write_merged_log([LogReader(source)], tmp_path / "copy.mcap") == COUNT
    assert write_merged_log([LogReader(source, endpoints=["/a/1"])], tmp_path / "some.mcap") == 120
    before = read_with_library(source, "repeat_channels" not in options)
    assert read_with_library(tmp_path / "copy.mcap") == before
    assert read_with_library(tmp_path / "some.mcap").messages == [one for one in before.messages if one[4] == "/a/1"]


def test_copy_of_different_profiles_has_no_profile(tmp_path: Path) -> None:
    logs = [LogReader(write_style(tmp_path / f"{name}.mcap", STYLES[name])) for name in ("ros1", "ros2")]
    write_merged_log(logs, tmp_path / "copy.mcap")
    assert read_with_library(tmp_path / "copy.mcap").profile == ""


# Meaning of ids


def test_conflicting_channel_ids_are_renumbered_in_copy(tmp_path: Path) -> None:
    """Chunks of the second file say what its ids mean, which would be wrong in the new file."""
    schema = [records.Schema(id=1, name=name, encoding="jsonschema", data=b"{}") for name in ("one", "two")]
    paths = [
        write_unclosed_file(
            tmp_path / f"{i}.mcap",
            build_chunk_record(
                schema[i], channel(1, "ab"[i], schema_id=1), channel(2, "cd"[i]), message(1, 0, 10 * i + 1)
            ),
            build_chunk_record(message(2, 0, 10 * i + 5)),
        )
        for i in range(2)
    ]
    assert write_merged_log([LogReader(*paths)], tmp_path / "copy.mcap") == 4
    both = read_with_library(tmp_path / "copy.mcap")
    assert [(one[0], one[4]) for one in both.messages] == [(1, "a"), (5, "c"), (11, "b"), (15, "d")]
    assert [one[7][0] if one[7] else None for one in both.messages] == ["one", None, "two", None]


def test_segments_with_same_ids_are_copied_unchanged(tmp_path: Path) -> None:
    paths = []
    for i in range(2):
        paths.append(tmp_path / f"{i}.mcap")
        with OurWriter(paths[-1], chunk_bytes=1024) as writer:
            number = writer.channel("a", metadata=COUNTED)
            for n in range(100 * i, 100 * i + 100):
                writer.write(number, b"x" * 100, n, sequence=n)
    write_merged_log([LogReader(*paths)], tmp_path / "copy.mcap")
    assert LogReader(tmp_path / "copy.mcap").endpoints["a"].lost == 0
    assert chunk_bytes(tmp_path / "copy.mcap") == chunk_bytes(paths[0]) + chunk_bytes(paths[1])


def index(number: int, time: int) -> bytes:
    """Return the index of a chunk with one message behind its channel."""
    offset = len(encode_parts(channel(number, "a")))
    return encode_parts(records.MessageIndex(channel_id=number, records=[(time, offset)]))


def test_channels_that_differ_only_in_id_stay_separate_in_copy(tmp_path: Path) -> None:
    source = write_unclosed_file(
        tmp_path / "a.mcap",
        build_chunk_record(
            channel(1, "a"), channel(2, "a"), channel(3, "b"), message(1, 5, 1), message(2, 9, 2), message(3, 0, 3)
        ),
    )
    write_merged_log([LogReader(source, endpoints=["a"])], tmp_path / "copy.mcap")
    with (tmp_path / "copy.mcap").open("rb") as file:
        found = [(one.id, sent.sequence) for _, one, sent in make_reader(file).iter_messages()]
    assert found == [(1, 5), (2, 9)]


def test_copy_keeps_epochs_of_runs_separate(tmp_path: Path) -> None:
    paths = []
    for i, run in enumerate(("aa", "bb")):
        path = tmp_path / f"{i}.mcap"
        path.write_bytes(
            build_recording_head(run)
            + build_chunk_record(channel(1, "a"), message(1, 10 * i, 2 * i), message(1, 10 * i + 2, 2 * i + 1))
        )
        paths.append(path)
    write_merged_log([LogReader(*paths)], tmp_path / "copy.mcap")
    info = LogReader(tmp_path / "copy.mcap").endpoints["a"]
    assert (info.lost, info.epochs) == (2, 2)
    found = read_with_library(tmp_path / "copy.mcap")
    assert found.metadata == [("msgq.merged", {"run": "aa"}), ("msgq.merged", {"run": "bb"})]


def test_copy_keeps_channel_statistics_of_sources(tmp_path: Path) -> None:
    """Though nothing of it was read. Failure would mean that `bag info` reads all of a copy."""
    paths = []
    for i, first in enumerate((0, 510)):  # ten are missing between them
        paths.append(tmp_path / f"{i}.mcap")
        with OurWriter(paths[-1], chunk_bytes=1024) as writer:
            numbers = [writer.channel("a", metadata=COUNTED | {"publisher": name}) for name in "xy"]
            numbers.append(writer.channel("b"))
            for n in range(first, first + 500):
                if n % 100 != 50:
                    writer.write(numbers[n // 20 % 2], bytes(n % 30), n, sequence=n)
            writer.write(numbers[2], b"b", first + 499)
    for wanted in (None, ["a"]):
        source = LogReader(*paths, endpoints=wanted)
        write_merged_log([source], tmp_path / f"{wanted}.mcap")
        assert set(chunk_bytes(paths[1])) & set(chunk_bytes(tmp_path / f"{wanted}.mcap"))
        copy = LogReader(tmp_path / f"{wanted}.mcap")
        assert find_stored_statistics(copy.log_view, copy.files[0]) is not None
        assert copy.endpoints == source.endpoints
        assert copy.endpoints["a"].lost == 20


def test_copy_of_time_range_has_exact_statistics(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with OurWriter(path, chunk_bytes=1024) as writer:
        number = writer.channel("a", metadata=COUNTED)
        for n in range(500):
            writer.write(number, bytes(10), n)
    write_merged_log([LogReader(path, start=5)], tmp_path / "copy.mcap")
    text = LogReader(tmp_path / "copy.mcap").files[0].metadata[metadata_keys.STATISTICS_METADATA]["1"]
    assert json.loads(text) == {"messages": 495, "first_time": 5, "last_time": 499}
    assert LogReader(tmp_path / "copy.mcap").endpoints["a"].lost == 0


def test_copy_keeps_recording_metadata(tmp_path: Path) -> None:
    path = write_unclosed_file(tmp_path / "a.mcap", build_chunk_record(channel(1, "a"), message(1, 0, 5)))
    write_merged_log([LogReader(path)], tmp_path / "copy.mcap")
    assert LogReader(tmp_path / "copy.mcap").files[0].metadata["msgq.recording"] == {"run": "ab" * 16}
    assert LogReader(tmp_path / "copy.mcap").channels[0].run_id == "ab" * 16


def test_copy_has_same_wall_clock_times_as_source(tmp_path: Path) -> None:
    """Failure would mean that times were turned twice, or not at all."""
    path = tmp_path / "a.mcap"
    with OurWriter(path, chunk_bytes=1024) as writer:
        clock = {"run": "aa", "clock_offset_ns": "0"}
        writer.add_metadata(metadata_keys.RECORDING_METADATA, clock | {"since_ns": "0", "wall_offset_ns": "1000"})
        writer.add_metadata(metadata_keys.CLOCK_METADATA, clock | {"since_ns": "300", "wall_offset_ns": "5000"})
        number = writer.channel("a", metadata=COUNTED)
        for n in range(500):
            writer.write(number, bytes(10), n)
    write_merged_log([LogReader(path, start=17)], tmp_path / "copy.mcap")
    source, copy = (LogReader(one, clock="wall") for one in (path, tmp_path / "copy.mcap"))
    assert [sent.log_time for sent in copy] == [sent.log_time for sent in source][17:]
    assert (copy.start_time, copy.end_time) == (1017, 5499)
    with pytest.raises(InvalidValueError, match="clock='host'"):
        write_merged_log([source], tmp_path / "wall.mcap")


# Faults of a file


def test_copy_with_empty_selection_has_no_messages(tmp_path: Path) -> None:
    path = write_unclosed_file(tmp_path / "a.mcap", build_chunk_record(channel(1, "a"), message(1, 0, 10)))
    with OurWriter(tmp_path / "none.mcap"):
        pass
    chosen = [LogReader(path, endpoints=["b"]), LogReader(path, start=11), LogReader(tmp_path / "none.mcap")]
    for number, log in enumerate(chosen):
        assert write_merged_log([log], tmp_path / f"{number}.mcap") == 0
        assert list(LogReader(tmp_path / f"{number}.mcap")) == []
        assert sum(count for _, count in write_time_slices(log, tmp_path / f"pieces{number}", 5)) == 0
    assert chosen[0].missing_endpoints == ["b"]


def test_copy_of_several_logs_keeps_origins_separate(tmp_path: Path) -> None:
    for number, name in enumerate("ab"):
        with OurWriter(tmp_path / f"{name}.mcap") as writer:
            one = writer.channel("t", metadata={"tracked": "1"})
            for i in range(4):
                writer.write(one, b"x", 10 * i + number, sequence=i, origin_time=500 + 1000 * number)
    write_merged_log([LogReader(tmp_path / "a.mcap"), LogReader(tmp_path / "b.mcap")], tmp_path / "copy.mcap")
    assert [found.origin_time for found in LogReader(tmp_path / "copy.mcap")] == [500, 1500] * 4


def test_copy_skips_and_reports_damaged_chunk(tmp_path: Path) -> None:
    wrong = build_chunk_record(channel(1, "a"), message(1, 1, 20), crc=1)
    path = write_unclosed_file(
        tmp_path / "a.mcap",
        build_chunk_record(channel(1, "a"), message(1, 0, 10)),
        wrong,
        build_chunk_record(message(1, 2, 30)),
    )
    for log in (LogReader(path), LogReader(path)):
        if (tmp_path / "copy.mcap").exists():
            written = list(write_time_slices(log, tmp_path / "pieces", 5))
        else:
            written = [(tmp_path / "copy.mcap", write_merged_log([log], tmp_path / "copy.mcap"))]
        assert sum(count for _, count in written) == 2
        assert [sent.log_time for file, _ in written for sent in LogReader(file)] == [10, 30]
        assert ["CRC" in problem.reason for problem in log.problems] == [True]


@pytest.mark.parametrize("wrong", ["time", "count", "channel", "offset", "none"])
def test_copy_reads_chunk_with_contradicting_index(tmp_path: Path, wrong: str) -> None:
    offset = len(encode_parts(channel(1, "a")))
    entries = {
        "time": [(11, offset)],
        "count": [(10, offset)] * 9,
        "channel": [(10, offset)],
        "offset": [(10, 10**6)],
        "none": [],
    }[wrong]
    of = 2 if wrong == "channel" else 1
    bad = encode_parts(records.MessageIndex(channel_id=of, records=entries))
    one, two = (
        build_chunk_record(channel(1, "a"), message(1, 0, 10)),
        build_chunk_record(channel(1, "a"), message(1, 1, 20)),
    )
    path = write_unclosed_file(tmp_path / "a.mcap", one + bad, two + index(1, 20))
    assert write_merged_log([LogReader(path)], tmp_path / "copy.mcap") == 2
    assert [sent.log_time for sent in LogReader(tmp_path / "copy.mcap")] == [10, 20]
    with (tmp_path / "copy.mcap").open("rb") as file:
        found = make_reader(file).get_summary()
    assert found is not None
    assert found.statistics is not None
    assert found.statistics.channel_message_counts == {1: 2}


def test_copy_skips_and_reports_attachment_with_contradicting_lengths(tmp_path: Path) -> None:
    good = encode_parts(records.Attachment(create_time=0, log_time=1, name="n", media_type="m", data=b"abc"))
    bad = (
        RECORD_HEAD_STRUCT.pack(Opcode.ATTACHMENT, len(good) - RECORD_HEAD_STRUCT.size - 1)
        + good[RECORD_HEAD_STRUCT.size : -1]
    )
    path = write_unclosed_file(tmp_path / "a.mcap", bad, good, build_chunk_record(channel(1, "a"), message(1, 0, 10)))
    log = LogReader(path)
    write_merged_log([log], tmp_path / "copy.mcap")
    assert read_with_library(tmp_path / "copy.mcap").attachments == [("n", "m", 1, 0, b"abc")]
    assert ["does not fit into its record" in problem.reason for problem in log.problems] == [True]


def test_chunks_with_excessive_time_overlap_are_copied_out_of_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read skips it, as it must give an order; a copy must not lose it."""
    monkeypatch.setattr(merge, "_PENDING_BLOCKS_MAX", 3)
    parts = [build_chunk_record(channel(1, "a"), message(1, i, i), message(1, 100 + i, 1000 + i)) for i in range(20)]
    log = LogReader(write_unclosed_file(tmp_path / "a.mcap", *parts))
    assert write_merged_log([log], tmp_path / "copy.mcap") == 40
    assert sorted(sent.sequence for sent in LogReader(tmp_path / "copy.mcap")) == [*range(20), *range(100, 120)]
    assert log.problems == []


def test_failed_copy_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_style(tmp_path / "a.mcap", STYLES["ros2"])

    def fails(_self: Any) -> Iterator[Any]:
        yield from ()
        raise KeyboardInterrupt

    monkeypatch.setattr(merge.LogMerger, "__iter__", fails)
    with pytest.raises(KeyboardInterrupt):
        write_merged_log([LogReader(path)], tmp_path / "copy.mcap")
    assert [file.name for file in tmp_path.iterdir()] == ["a.mcap"]


# Others read it


ROS_READERS = """
import sys
from mcap.reader import make_reader
from mcap_ros1.decoder import DecoderFactory as Ros1
from mcap_ros2.decoder import DecoderFactory as Ros2
for path, factory in zip(sys.argv[1:], (Ros1(), Ros2())):
    with open(path, "rb") as file:
        found = make_reader(file, decoder_factories=[factory]).iter_decoded_messages()
        print(*(one.decoded_message.data for one in found))
"""


@pytest.mark.ci
def test_copies_are_read_by_ros_readers(tmp_path: Path) -> None:
    """In a process of their own, as they leave files behind until it ends."""
    copies = []
    for name in ("ros1", "ros2"):
        source = write_style(tmp_path / f"{name}.mcap", STYLES[name])
        copies.append(tmp_path / f"{name}-copy.mcap")
        write_merged_log([LogReader(source, endpoints=["/a/0", "/a/2"])], copies[-1], "lz4")
    ran = subprocess.run(
        [sys.executable, "-c", ROS_READERS, *map(str, copies)], capture_output=True, text=True, timeout=60, check=True
    )
    wanted = [str(i) for i in range(COUNT) if i // 60 % 4 in (0, 2)]
    assert [line.split() for line in ran.stdout.splitlines()] == [wanted, wanted]
