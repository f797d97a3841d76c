"""The public writer: what it writes, how fast ways agree with slow ones, and that files are whole or not there."""

from __future__ import annotations

import errno
import gc
import inspect
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from mcap import records
from mcap.reader import make_reader
from mcap.stream_reader import CRCValidationError, StreamReader

import msgq
from msgq.errors import ForkedSocketError, InvalidTypeError, InvalidValueError, RecordingError, StateError
from msgq.recording import LogReader, Recorder, Writer, examine
from msgq.recording.mcap_io import log_writer, metadata_keys, segment_file
from msgq.recording.merge.log_copy import write_merged_log
from tests.support import wait_until

COUNTED = {"epoch": "1", "sequence": "published"}
BEGIN = 1_700_000_000_000_000_000


def by_library(path: Path) -> list[tuple[Any, ...]]:
    """Return what the library finds by the index, with all CRCs checked."""
    with path.open("rb") as file:
        found = make_reader(file, validate_crcs=True).iter_messages()
        return [(one.topic, sent.sequence, sent.log_time, sent.publish_time, sent.data) for _, one, sent in found]


def all_records(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return list(StreamReader(file, validate_crcs=True).records)


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_messages_of_writer_are_read_back_unchanged(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "a.mcap"
    with Writer(path, compression=compression, chunk_bytes=1024) as writer:
        schema = msgq.Schema("Number", "json", b'{"type": "object"}')
        one, two = writer.channel("one", schema), writer.channel("two", metadata={"by": "test"})
        for i in range(100):
            writer.write(one, b'{"n": %d}' % i, BEGIN + i)
            writer.write(two, bytearray(i), BEGIN + i, BEGIN - i, 7 + i)
        assert writer.messages == 200
        assert not path.exists()
    wanted = [
        row
        for i in range(100)
        for row in (
            ("one", i, BEGIN + i, BEGIN + i, b'{"n": %d}' % i),
            ("two", 7 + i, BEGIN + i, BEGIN - i, bytes(i)),
        )
    ]
    assert by_library(path) == wanted
    assert any(one.data_section_crc for one in all_records(path) if isinstance(one, records.DataEnd))
    log = LogReader(path)
    assert [(m.endpoint, m.sequence, m.log_time, m.publish_time, m.data) for m in log] == wanted
    assert {m.schema for m in log if m.endpoint == "one"} == {schema}
    assert log.channels[1].channel_record.metadata == (("by", "test"),)
    assert len(log.files[0].blocks) > 5
    assert log.problems == []


def test_writer_sequence_continues_and_wraps(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.mcap") as writer:
        one, two = writer.channel("one"), writer.channel("two")
        for channel, sequence in ((one, None), (one, 2**32 - 1), (one, None), (two, None), (one, 2**40 + 5)):
            writer.write(channel, b"", BEGIN, sequence=sequence)
        writer.write_columns([two, one, two], [b""] * 3, BEGIN)
        writer.write_columns(two, [b""] * 2, BEGIN, sequence=[9, 2**33])
        writer.write(two, b"", BEGIN)
    found = [(m.endpoint, m.sequence) for m in LogReader(tmp_path / "a.mcap")]
    assert found[:5] == [("one", 0), ("one", 2**32 - 1), ("one", 0), ("two", 0), ("one", 5)]
    assert found[5:] == [("two", 1), ("one", 6), ("two", 2), ("two", 9), ("two", 0), ("two", 1)]


def test_writer_writes_origins(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.mcap") as writer:
        channel = writer.channel("a", metadata={"tracked": "1"})
        writer.write(channel, b"x", BEGIN, origin_time=BEGIN - 5)
    assert [m.origin_time for m in LogReader(tmp_path / "a.mcap")] == [BEGIN - 5]


def test_writer_writes_origins_of_messages_with_equal_sequence(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.mcap", chunk_bytes=1024) as writer:
        twins = [writer.channel("a"), writer.channel("a")]  # readers take these for one channel
        for i in range(100):
            writer.write(twins[i % 2], bytes(i), BEGIN + i, sequence=0, origin_time=i % 3)
    assert [m.origin_time for m in LogReader(tmp_path / "a.mcap")] == [i % 3 for i in range(100)]


def test_writer_accepts_any_time_order(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.mcap") as writer:
        channel = writer.channel("a")
        for time in (30, 10, 20):
            writer.write(channel, b"", time)
    assert [m.log_time for m in LogReader(tmp_path / "a.mcap")] == [10, 20, 30]
    assert [row[2] for row in by_library(tmp_path / "a.mcap")] == [10, 20, 30]


def test_writer_writes_message_larger_than_chunk(tmp_path: Path) -> None:
    sizes = [10, 5000, 20, 90_000, 30]
    with Writer(tmp_path / "a.mcap", chunk_bytes=1024) as writer:
        channel = writer.channel("a")
        for size in sizes:
            writer.write(channel, bytes(size), BEGIN)
        writer.write_columns(channel, [bytes(size) for size in sizes], BEGIN)
    assert [len(m.data) for m in LogReader(tmp_path / "a.mcap")] == sizes * 2


# Columns


def build_binary_array(payloads: list[bytes]) -> Any:
    return pa.array(payloads, pa.binary())


def build_sliced_array(payloads: list[bytes]) -> Any:
    """Two chunks that are parts of larger arrays."""
    whole = pa.array([b"before", *payloads, b"behind"], pa.large_binary())
    return pa.chunked_array([whole[1:4], whole[4 : 1 + len(payloads)]])


COLUMNS: dict[str, Callable[[list[bytes]], Any]] = {
    "list": list,
    "binary": build_binary_array,
    "sliced": build_sliced_array,
    "fixed": lambda payloads: pa.array([b"????", *payloads], pa.binary(4))[1:],
    "text": lambda payloads: pa.array([payload.decode() for payload in payloads]),
    "view": lambda payloads: pa.array(payloads, pa.binary_view()),
    "rows": lambda payloads: np.frombuffer(b"".join(payloads), np.uint8).reshape(-1, 4),
    "every second": lambda payloads: np.array([x for payload in payloads for x in (payload, b"????")], "S4")[::2],
    "structs": lambda payloads: np.frombuffer(b"".join(payloads), [("a", "<u2"), ("b", "u1", 2)]),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_writing_columns_gives_same_file_as_writing_messages(tmp_path: Path, column: str) -> None:
    payloads = [b"%04d" % i for i in range(3000)]
    times = BEGIN + np.arange(3000)
    for name in ("one", "many"):
        with Writer(tmp_path / f"{name}.mcap", chunk_bytes=4000) as writer:
            numbers = [writer.channel(endpoint, metadata=COUNTED) for endpoint in "abc"]
            of = np.array(numbers)[np.arange(3000) % 7 % 3]
            if name == "one":
                for number, payload, time in zip(of.tolist(), payloads, times.tolist(), strict=True):
                    writer.write(number, payload, time, time - 5)
            else:
                assert writer.write_columns(of, COLUMNS[column](payloads), times, times - 5) == 3000
    assert len(by_library(tmp_path / "one.mcap")) == 3000
    assert (tmp_path / "many.mcap").read_bytes() == (tmp_path / "one.mcap").read_bytes()


def test_writer_accepts_polars_and_time_columns(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    times = np.array(["2026-01-01T00:00:00.000000005", "2026-01-01T00:00:01"], "M8[ns]")
    with Writer(tmp_path / "a.mcap") as writer:
        channel = writer.channel("a")
        writer.write_columns(channel, polars.Series([b"1", b"22"]), times, publish_time=BEGIN, sequence=4)
        assert writer.write_columns(channel, polars.Series([], dtype=polars.Binary), []) == 0
        assert writer.write_columns(channel, [], []) == 0
    log_times = times.view(np.int64).tolist()
    wanted = [("a", 4, log_times[0], BEGIN, b"1"), ("a", 4, log_times[1], BEGIN, b"22")]
    assert by_library(tmp_path / "a.mcap") == wanted


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"channel": 9}, "channel 9 does not exist"),
        ({"channel": [1, 2, 1]}, "channel 2 does not exist"),
        ({"channel": -1}, "channel has values from -1"),
        ({"log_time": [1, 2]}, "shape (2,) for 3"),
        ({"log_time": [1, -2, 3]}, "from -2 to 3"),
        ({"log_time": [1, 2, 2**63 - 1]}, "use 0 to"),
        ({"log_time": [1.5, 2, 3]}, "float64"),
        ({"log_time": np.array(["1970", "NaT", "2600-01-01"], "M8[D]")}, "1970-01-01 to 2600-01-01; use times"),
        ({"log_time": np.array(["1970", "NaT", "1971"], "M8[D]")}, "use 0 to"),
        ({"publish_time": [[1, 2, 3]]}, "shape (1, 3)"),
        ({"sequence": -1}, "sequence has values from -1"),
        ({"data": pa.array([b"", None, b""])}, "1 nulls"),
        ({"data": pa.array([1, 2, 3])}, "another type than binary"),
        ({"data": ["1", "2", "3"]}, "use an Arrow column"),
        ({"data": [np.zeros(2).data, b"", b""]}, "elements that are not bytes"),
        ({"data": np.zeros(3, object)}, "dtype object"),
        ({"data": np.zeros(())}, "0 dimensions"),
        ({"data": 5}, "use an Arrow column"),
    ],
)
def test_writer_with_refused_columns_writes_nothing(tmp_path: Path, columns: dict[str, Any], text: str) -> None:
    with Writer(tmp_path / "a.mcap") as writer:
        good: dict[str, Any] = {"channel": writer.channel("a"), "data": [b"1", b"2", b"3"], "log_time": [1, 2, 3]}
        with pytest.raises(InvalidValueError) as raised:
            writer.write_columns(**(good | columns))
        assert text in str(raised.value)
        assert writer.messages == 0
        writer.write(1, b"", 5)
    assert [(m.log_time, m.sequence) for m in LogReader(tmp_path / "a.mcap")] == [(5, 0)]


# Beside the messages


def test_writer_writes_attachments_and_metadata(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.mcap", profile="ros2") as writer:
        channel = writer.channel("a")
        writer.attach("early.txt", b"early", "text/plain")
        writer.add_metadata("device", {"serial": "7"})
        writer.write(channel, b"", 50)
        writer.attach("late.bin", bytes(300_000), log_time=70, create_time=60)
        writer.write(channel, b"", 90)
        writer.attach("last", b"")
        writer.add_metadata("device", {"serial": "8"})
    log = LogReader(tmp_path / "a.mcap")
    fields = [(one.name, one.media_type, one.log_time, one.create_time, one.size) for one in log.attachments]
    assert fields == [
        ("early.txt", "text/plain", 0, 0, 5),
        ("late.bin", "application/octet-stream", 70, 60, 300_000),
        ("last", "application/octet-stream", 90, 0, 0),
    ]
    assert [one.read() for one in log.attachments] == [b"early", bytes(300_000), b""]
    assert [one.name for one in LogReader(tmp_path / "a.mcap", start=60, end=90).attachments] == ["late.bin"]
    assert [one for one in log.metadata if one.name == "device"] == [
        ("device", {"serial": "7"}),
        ("device", {"serial": "8"}),
    ]
    assert [header.profile for header in log.headers] == ["ros2"]
    with (tmp_path / "a.mcap").open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        assert [one.data for one in reader.iter_attachments()] == [b"early", bytes(300_000), b""]
        assert [one.metadata for one in reader.iter_metadata() if one.name == "device"] == [
            {"serial": "7"},
            {"serial": "8"},
        ]


def test_damaged_attachment_raises_error_at_read(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with Writer(path) as writer:
        writer.attach("a", b"what is in it")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"what is in it", b"what is in IT"))
    with pytest.raises(RecordingError, match=r"attachment 'a' at byte .* is damaged"):
        LogReader(path).attachments[0].read()


def test_writer_data_crc_covers_metadata(tmp_path: Path) -> None:
    """What nothing else covers, as the text of metadata, it does."""
    path = tmp_path / "a.mcap"
    with Writer(path) as writer:
        writer.add_metadata("note", {"text": "right"})
        writer.write(writer.channel("a"), b"x", 5)
    assert next(one for one in all_records(path) if isinstance(one, records.DataEnd)).data_section_crc
    path.write_bytes(path.read_bytes().replace(b"right", b"wrong"))
    with pytest.raises(CRCValidationError, match="DataEnd"):
        all_records(path)


def test_writer_writes_equal_schemas_once(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.mcap") as writer:
        for name, encoding in (("a", "ros2msg"), ("b", "ros2msg"), ("c", "ros2idl")):
            schema = msgq.Schema("pkg/msg/Type", "cdr", b"int32 x", schema_encoding=encoding)
            writer.write(writer.channel(name, schema), b"", 1)
    with (tmp_path / "a.mcap").open("rb") as file:
        summary = make_reader(file).get_summary()
    assert summary is not None
    assert {number: one.encoding for number, one in summary.schemas.items()} == {1: "ros2msg", 2: "ros2idl"}
    assert [one.schema_id for one in summary.channels.values()] == [1, 1, 2]


def read_statistics(path: Path) -> dict[str, dict[str, Any]]:
    found = LogReader(path).files[0].metadata[metadata_keys.STATISTICS_METADATA]
    return {number: json.loads(text) for number, text in found.items() if number != "at"}


def test_writer_writes_statistics(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with Writer(path, chunk_bytes=1024) as writer:
        counted = writer.channel("a", metadata=COUNTED)
        shared = writer.channel("a", metadata=COUNTED | {"publisher": "other"})
        plain = writer.channel("b")
        writer.channel("never")
        for i, number in enumerate((2**32 - 4, 2**32 - 3, 2**32 - 1, 0, 2, 3, 6)):
            writer.write((counted, shared)[i % 2], bytes(100 * i), 1000 - i, sequence=number)
        for i in (0, 50, 7):
            writer.write(plain, b"x", i, sequence=i)
    one, two, three = (read_statistics(path)[str(number)] for number in (counted, shared, plain))
    assert one == {
        "messages": 4,
        "first_time": 994,
        "last_time": 1000,
        "bytes": 1200,
        "largest": 600,
        "lost": 4,
        "sequences": [2**32 - 4, 6],
    }
    assert two == {"messages": 3, "first_time": 995, "last_time": 999, "bytes": 900, "largest": 500, "lost": 0}
    assert three == {"messages": 3, "first_time": 0, "last_time": 50, "bytes": 3, "largest": 1}
    assert len(read_statistics(path)) == 3
    info = LogReader(path).endpoints["a"]
    assert (info.messages, info.bytes, info.largest, info.lost) == (7, 2100, 600, one["lost"])


def test_recorder_writes_statistics(prefix: str, tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with msgq.pub_sock("figured") as pub, Recorder(path, ["figured"], chunk_bytes=2000) as recorder:
        for i in range(100):
            pub.send(bytes(i))
        wait_until(lambda: recorder.stats().messages == 100)
    info = LogReader(path).endpoints["figured"]
    (found,) = read_statistics(path).values()
    assert (info.messages, info.bytes, info.largest) == (100, 4950, 99)
    assert (found["messages"], found["bytes"], found["largest"], found["lost"]) == (100, 4950, 99, info.lost)
    assert (found["first_time"], found["last_time"]) == (info.first_time, info.last_time)
    assert all_records(path), "the CRC of the data is right"


# Whole, or not there


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ((2, b"", 1), "channel 2 does not exist"),
        ((-1, b"", 1), "channel -1 does not exist"),
        ((2**70, b"", 1), "too large"),
        ((1, b"", -1), "log_time -1 ns"),
        ((1, b"", 2**63 - 1), "use 0 to"),
        ((1, b"", 2**63), "too large"),
        ((1, b"", 1, -7), "-7"),
    ],
)
def test_writer_refuses_invalid_messages(tmp_path: Path, message: tuple[Any, ...], text: str) -> None:
    with Writer(tmp_path / "a.mcap") as writer:
        writer.channel("a")
        with pytest.raises(InvalidValueError) as raised:
            writer.write(*message)
        assert text in str(raised.value)
        with pytest.raises(TypeError):
            writer.write(1, "text", 1)
        assert writer.messages == 0
        writer.write(1, b"", 1)
    assert LogReader(tmp_path / "a.mcap").messages == 1


def test_failed_writer_leaves_no_file(tmp_path: Path) -> None:
    def written() -> None:
        with Writer(tmp_path / "a.mcap") as writer:
            writer.write(writer.channel("a"), b"", 1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        written()
    assert list(tmp_path.iterdir()) == []


def test_unreferenced_writer_leaves_no_file(tmp_path: Path) -> None:
    def is_open() -> bool:
        links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
        return any(str(tmp_path) in os.readlink(link) for link in links if link.is_symlink())

    writer = Writer(tmp_path / "a.mcap")
    assert is_open()
    assert len(list(tmp_path.iterdir())) == 1
    del writer
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    assert not is_open()


def test_writer_does_not_overwrite_file(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    writer = Writer(path)
    path.write_bytes(b"other")
    with pytest.raises(RecordingError, match="File exists"):
        writer.close()
    with pytest.raises(RecordingError, match="exists; use another name"):
        Writer(path)
    assert path.read_bytes() == b"other"
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(RecordingError, match="No such file"):
        Writer(tmp_path / "missing" / "a.mcap")


def test_second_writer_of_same_path_fails(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    writers = [Writer(path), Writer(path)]
    for number, writer in enumerate(writers):
        writer.write(writer.channel("a"), b"%d" % number, 1)
    writers[0].close()
    with pytest.raises(RecordingError, match="File exists"):
        writers[1].close()
    assert [message.data for message in LogReader(path)] == [b"0"]
    assert list(tmp_path.iterdir()) == [path]


def test_writer_on_full_disk_raises_error_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def written() -> None:
        with Writer(tmp_path / "a.mcap") as writer:
            channel = writer.channel("a")
            monkeypatch.setattr(segment_file, "write_and_commit", full)
            for _ in range(100):
                writer.write(channel, bytes(100_000), 1)

    with pytest.raises(RecordingError, match="No space left") as raised:
        written()
    assert raised.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


class StepError(Exception):
    """Raised between two lines of Python code, as an exception of a signal handler."""


def interrupt_at_step(call: Callable[[], object], step: int) -> bool:
    """Call a function, and raise an exception at so many steps of its Python code. Return True if it was raised."""
    remaining, before = step, sys.gettrace()

    def trace_step(frame: FrameType, _event: str, _argument: object) -> Any:
        nonlocal remaining
        if frame.f_code.co_flags & inspect.CO_GENERATOR:  # Python ignores an exception in the end of a generator
            return None
        remaining -= 1
        if remaining < 0:
            raise StepError
        return trace_step

    sys.settrace(trace_step)
    try:
        call()
    except StepError:
        return True
    finally:
        sys.settrace(before)
    return False


def test_writer_interrupted_at_any_step_writes_each_message_once(tmp_path: Path) -> None:
    path, number, step = tmp_path / "a.mcap", 0, 0
    kept: list[int] = []
    with Writer(path, compression="none", chunk_bytes=1024) as writer:
        channel = writer.channel("e")
        while True:
            number += 1
            calls: list[Callable[[], object]] = [
                partial(writer.write, channel, b"%d" % number + bytes(1100), number),
                partial(writer.add_metadata, "m", {"number": str(number)}),
                partial(writer.attach, "a", b"x"),
            ]
            interrupted = [interrupt_at_step(call, step) for call in calls]
            if not interrupted[0]:
                kept.append(number)
            if number > 2 and not any(interrupted):
                break
            step += number > 2  # the first write after the start writes no chunk
    log = LogReader(path)
    times = [message.log_time for message in log]
    assert len(times) == len(set(times)) == log.messages
    assert set(kept) <= set(times)
    assert not list(examine(path))
    assert step > 50


def test_closed_writer_refuses_calls(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "a.mcap")
    channel = writer.channel("a")
    writer.close()
    writer.close()
    writer.discard()
    for call in (
        lambda: writer.channel("b"),
        lambda: writer.write(channel, b"", 1),
        lambda: writer.write_columns(channel, [b""], 1),
        lambda: writer.attach("a", b""),
        lambda: writer.add_metadata("a", {}),
    ):
        with pytest.raises(StateError, match="closed"):
            call()
    assert [one.channel_record for one in LogReader(tmp_path / "a.mcap").files[0].registry.channels.values()]


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda writer: writer.write(1, b"x", 1.5), InvalidTypeError, "log_time is of type float"),
        (lambda writer: writer.write(1, b"x", 1, 2.5), InvalidTypeError, "publish_time is of type float"),
        (lambda writer: writer.write(1, b"x", 1, sequence=1.5), InvalidTypeError, "sequence is of type float"),
        (lambda writer: writer.write(1, b"x", 1, origin_time="1"), InvalidTypeError, "origin_time is of type str"),
        (lambda writer: writer.attach("a", 5), InvalidTypeError, "data of attachment is of type int"),
        (lambda writer: writer.attach("a", "text"), InvalidTypeError, "data of attachment is of type str"),
        (lambda writer: writer.attach(5, b""), InvalidTypeError, "text 5 of attachment is of type int"),
        (lambda writer: writer.attach("a", b"", log_time=-1), InvalidValueError, "log_time=-1 is out of range"),
        (lambda writer: writer.attach("a", b"", create_time=2**64), InvalidValueError, "create_time=1844"),
        (lambda writer: writer.attach("a", b"", log_time=1.0), InvalidTypeError, "log_time is of type float"),
        (lambda writer: writer.add_metadata("a", {"k": 1}), InvalidTypeError, "text 1 of metadata is of type int"),
        (lambda writer: writer.channel("a", metadata={"k": 1}), InvalidTypeError, "text 1 of metadata"),
        (lambda writer: writer.channel("a\udcff"), InvalidValueError, "of endpoint is not UTF-8"),
    ],
)
def test_writer_refuses_wrong_argument_and_writes_nothing(
    tmp_path: Path, call: Callable[[Any], None], kind: type[Exception], text: str
) -> None:
    written: Any = Writer(tmp_path / "a.mcap")  # the types allow only bytes and int
    with written as writer:
        writer.channel("e")
        with pytest.raises(kind, match=text):
            call(writer)
        writer.write(1, b"y", np.int64(7), np.int64(6), np.uint8(3), np.int64(5))
        writer.attach("file", bytearray(b"abc"))
    log = LogReader(tmp_path / "a.mcap")
    assert [(message.log_time, message.publish_time, bytes(message.data)) for message in log] == [(7, 6, b"y")]
    assert [(one.name, one.size) for one in log.attachments] == [("file", 3)]
    assert len(log.channels) == 1


def test_writer_refuses_impossible_values(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="zstd, lz4, none"):
        Writer(tmp_path / "a.mcap", compression="gzip")
    for chunk_bytes in (10, 999 * 10**9):
        with pytest.raises(InvalidValueError, match="1024 to 134217728 bytes"):
            Writer(tmp_path / "a.mcap", chunk_bytes=chunk_bytes)
    for compression, level in (("zstd", 100), ("zstd", -(10**9)), ("lz4", 17), ("lz4", 10**10)):
        with pytest.raises(InvalidValueError, match=f"level={level} .* for {compression}"):
            Writer(tmp_path / "a.mcap", compression=compression, level=level)
    assert list(tmp_path.iterdir()) == []


def test_writer_writes_more_channels_than_fit_in_one_system_call(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.mcap") as writer:
        for number in range(1500):
            writer.channel(f"e{number}")
    assert write_merged_log([LogReader(tmp_path / "a.mcap")], tmp_path / "b.mcap") == 0
    for name in "ab":
        found = [one for one in all_records(tmp_path / f"{name}.mcap") if isinstance(one, records.Channel)]
        assert {one.topic for one in found} == {f"e{number}" for number in range(1500)}


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_chunk_of_large_schemas_is_read_back_unchanged(tmp_path: Path, compression: str) -> None:
    path, text = tmp_path / "a.mcap", b" " * 40_000
    with Writer(path, compression=compression) as writer:
        channels = [writer.channel(f"e{i}", msgq.Schema(f"Number{i}", "json", b"{%d: 1}" % i + text)) for i in range(3)]
        for i in range(30):
            writer.write(channels[i // 10], b"%d" % i, BEGIN + i)
    assert by_library(path) == [(f"e{i // 10}", i % 10, BEGIN + i, BEGIN + i, b"%d" % i) for i in range(30)]
    assert {one.name: one.data for one in all_records(path) if isinstance(one, records.Schema)} == {
        f"Number{i}": b"{%d: 1}" % i + text for i in range(3)
    }


def test_writer_refuses_more_channels_than_mcap_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "CHANNEL_ID_COUNT", 10)  # limit of this test; MCAP's limit is 65536
    with Writer(tmp_path / "a.mcap") as writer:
        assert [writer.channel("a") for _ in range(9)] == list(range(1, 10))
        with pytest.raises(RecordingError, match="9 channels, the maximum"):
            writer.channel("a")


def test_forked_child_does_not_change_file_of_writer(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.mcap") as writer:
        channel = writer.channel("a")
        writer.write(channel, b"before", 1)
        child = os.fork()
        if not child:
            try:
                with pytest.raises(ForkedSocketError, match="belongs to the parent"):
                    writer.close()
                with pytest.raises(ForkedSocketError, match="parent"):
                    writer.write(channel, bytes(2 << 20), 3)
                writer.discard()
                del writer
                gc.collect()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        writer.write(channel, b"after", 2)
    assert [m.data for m in LogReader(tmp_path / "a.mcap")] == [b"before", b"after"]
