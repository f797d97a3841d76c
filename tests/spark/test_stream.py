"""Streams: each message once, from recordings that are being written, across ends and starts of everybody."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mcap.records import Metadata
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

import msgq
from msgq.errors import RecordingError
from msgq.recording import LogReader
from msgq.spark import read
from msgq.spark.source.file_stream import RecordingStreamReader
from tests.recording.logs import build_chunk_record, build_recording_head, channel, encode_parts, message, write_foreign
from tests.spark.children import record
from tests.spark.deadline import DEADLINE
from tests.spark.stream_query import make_reader as reader
from tests.spark.stream_query import read_times
from tests.support import Child, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CLOSED = b"\x0f" + struct.pack("<QI", 4, 0) + b"\x02" + struct.pack("<QQQI", 20, 0, 0, 0) + b"\x89MCAP0\r\n"


def part(first: int, count: int = 5) -> bytes:
    return build_chunk_record(channel(1, "a"), *(message(1, i, 1000 + i) for i in range(first, first + count)))


def times(found: RecordingStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return [time - 1000 for time in read_times(found, start, end)]


def append(path: Path, *data: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(data))


def test_stream_reads_complete_chunks_once(tmp_path: Path) -> None:
    """Byte by byte, as it may be seen of a file that is being written."""
    stream = reader(tmp_path)
    path = tmp_path / "000000.mcap"
    whole = build_recording_head() + part(0) + part(5) + CLOSED
    at, found = stream.initialOffset(), []
    path.touch()
    for size in range(0, len(whole) + 1, 3):
        path.write_bytes(whole[:size])
        following = json.loads(json.dumps(stream.latestOffset(at, ReadAllAvailable())))
        new = times(stream, at, following)
        assert len(new) in (0, 5)
        found += new
        at = following
    path.write_bytes(whole)
    end = stream.latestOffset(at, ReadAllAvailable())
    assert found + times(stream, at, end) == list(range(10))
    assert end[str(tmp_path)]["segment"] == 1, "the segment was closed: on to the next one"
    assert stream.latestOffset(end, ReadAllAvailable()) == end


def test_stream_batch_is_repeatable(tmp_path: Path) -> None:
    """After a crash of the driver Spark asks for the offsets that it had written down."""
    path = tmp_path / "000000.mcap"
    path.write_bytes(build_recording_head() + part(0))
    first = reader(tmp_path).latestOffset({}, ReadAllAvailable())
    append(path, part(5))
    second = reader(tmp_path).latestOffset(first, ReadAllAvailable())
    append(path, part(10), CLOSED)
    (tmp_path / "000001.mcap").write_bytes(build_recording_head() + part(15))
    assert times(reader(tmp_path), {}, first) == list(range(5))
    assert times(reader(tmp_path), first, second) == list(range(5, 10))
    last = reader(tmp_path).latestOffset(second, ReadAllAvailable())
    assert times(reader(tmp_path), second, last) == list(range(10, 20))


def test_stream_gives_wall_times(tmp_path: Path) -> None:
    """A batch knows what was noted in its segment before it."""
    said = {"run": "ab" * 16, "clock_offset_ns": "0", "wall_offset_ns": "70", "since_ns": "1"}
    path = tmp_path / "000000.mcap"
    path.write_bytes(build_recording_head() + encode_parts(Metadata("msgq.clock", said)) + part(0))
    first = reader(tmp_path, clock="wall").latestOffset({}, ReadAllAvailable())
    append(path, part(5), CLOSED)
    stream = reader(tmp_path, clock="wall")
    second = stream.latestOffset(first, ReadAllAvailable())
    assert times(stream, {}, first) == list(range(70, 75))
    assert times(stream, first, second) == list(range(75, 80))


def test_stream_continues_with_next_recorder_after_recorder_is_killed(tmp_path: Path) -> None:
    """The end that was cut off is passed over as soon as there is a later segment; other directories do not wait."""
    cut = part(5)[:-9]
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "000000.mcap").write_bytes(build_recording_head() + part(0) + cut)
    stream = reader(tmp_path)
    first = stream.latestOffset({}, ReadAllAvailable())
    assert times(stream, {}, first) == list(range(5))
    assert stream.latestOffset(first, ReadAllAvailable()) == first
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "000000.mcap").write_bytes(build_recording_head() + part(10))
    append(tmp_path / "1" / "000000.mcap", b"\x77" * 20, part(20))  # damage, and a chunk behind it
    second = stream.latestOffset(first, ReadAllAvailable())
    assert times(stream, first, second) == list(range(10, 15))
    (tmp_path / "1" / "000001.mcap").write_bytes(build_recording_head() + part(30))
    last = stream.latestOffset(second, ReadAllAvailable())
    assert times(stream, second, last) == [*range(20, 25), *range(30, 35)]


def test_stream_batch_has_at_most_requested_messages(tmp_path: Path) -> None:
    for index in range(3):
        (tmp_path / f"{index:06}.mcap").write_bytes(
            build_recording_head() + part(10 * index) + part(10 * index + 5) + CLOSED
        )
    stream = reader(tmp_path, maxBytesPerTrigger="1")
    assert stream.getDefaultReadLimit() == ReadMaxBytes(1)
    at, sizes, found = stream.initialOffset(), [], []
    while (following := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        new = times(stream, at, following)
        sizes.append(len(new))
        found += new
        at = following
    assert found == list(range(30))
    assert set(sizes) <= {0, 5}


def test_stream_with_available_now_ends(tmp_path: Path) -> None:
    path = tmp_path / "000000.mcap"
    path.write_bytes(build_recording_head() + part(0))
    stream = reader(tmp_path)
    stream.prepareForTriggerAvailableNow()
    append(path, part(5), CLOSED)
    (tmp_path / "000001.mcap").write_bytes(build_recording_head() + part(10))
    (tmp_path / "new.mcap").write_bytes(build_recording_head() + part(20))
    end = stream.latestOffset({}, ReadAllAvailable())
    assert times(stream, {}, end) == list(range(5))
    assert stream.latestOffset(end, ReadAllAvailable()) == end


def test_stream_with_removed_segment_raises_or_skips(tmp_path: Path) -> None:
    for index in range(3):
        (tmp_path / f"{index:06}.mcap").write_bytes(build_recording_head() + part(10 * index) + CLOSED)
    stream = reader(tmp_path)
    at = {str(tmp_path): {"first": 0, "segment": 1, "position": 0}}
    end = stream.latestOffset(at, ReadAllAvailable())
    (tmp_path / "000000.mcap").unlink()
    assert stream.latestOffset(at, ReadAllAvailable()) == end, "it was read"
    (tmp_path / "000001.mcap").unlink()
    for call in (lambda: stream.latestOffset(at, ReadAllAvailable()), lambda: stream.partitions(at, end)):
        with pytest.raises(RecordingError, match=r"segment 1 of recording '.*' was deleted, and was not read"):
            call()
    careless = reader(tmp_path, failOnDataLoss="false")
    assert times(careless, at, careless.latestOffset(at, ReadAllAvailable())) == list(range(20, 25))
    assert careless.latestOffset(at, ReadAllAvailable())[str(tmp_path)]["gone"] == 1
    read_in_part = {str(tmp_path): {"first": 0, "segment": 0, "position": 100}}
    end = careless.latestOffset(read_in_part, ReadAllAvailable())
    assert end[str(tmp_path)]["gone"] == 2
    (tmp_path / "000003.mcap").write_bytes(build_recording_head() + part(30))
    assert careless.latestOffset(end, ReadAllAvailable())[str(tmp_path)]["gone"] == 2, "it stays counted"


def test_stream_reads_foreign_files_on_arrival(tmp_path: Path) -> None:
    """Channels that are described once, at the beginning, are known later."""
    options = {"repeat_channels": False, "repeat_schemas": False}
    whole = write_foreign(tmp_path / "a.mcap", **options).read_bytes()
    expected = sorted(m.log_time for m in LogReader(tmp_path))
    stream = reader(tmp_path)
    at, found = stream.initialOffset(), []
    for size in (*range(1, len(whole), 700), len(whole)):
        (tmp_path / "a.mcap").write_bytes(whole[:size])
        following = stream.latestOffset(at, ReadAllAvailable())
        found += times(stream, at, following)
        at = following
    assert sorted(time + 1000 for time in found) == expected


# With Spark, and recorders


def start(spark: SparkSession, path: Path, out: Path) -> StreamingQuery:
    table = spark.readStream.format("msgq").load(str(path))
    writer = table.writeStream.format("parquet").option("checkpointLocation", str(out / "checkpoint"))
    return writer.trigger(processingTime="50 milliseconds").start(str(out / "table"))


def rows(table: DataFrame) -> list[tuple[Any, ...]]:
    names = [name for name in table.columns if name != "data"]
    texts = table.fillna("").toLocalIterator()
    return sorted((*(row[name] for name in names), bytes(row.data)) for row in texts)


def recorded(child: Child, messages: int) -> None:
    child.say(messages)
    child.hear()


@pytest.mark.nightly
def test_stream_query_stops_at_removed_segment_or_skips_it(spark: SparkSession, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    log.mkdir()

    def run(**options: str) -> StreamingQuery:
        table = spark.readStream.format("msgq").options(maxBytesPerTrigger="1", **options).load(str(log))
        writer = table.writeStream.format("parquet").option("checkpointLocation", str(out / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(out / "table"))
        wait_until(lambda: not query.isActive, "the end", DEADLINE)
        return query

    (log / "000000.mcap").write_bytes(build_recording_head() + part(0) + part(5) + CLOSED)
    assert run().exception() is None
    for index in (1, 2):
        (log / f"{index:06}.mcap").write_bytes(build_recording_head() + part(10 * index) + CLOSED)
    (log / "000001.mcap").unlink()
    assert "segment 1 of" in str(run().exception())
    query = run(failOnDataLoss="false")
    assert query.exception() is None
    assert json.loads(query.recentProgress[-1]["sources"][0]["endOffset"])[str(log)]["gone"] == 1
    found = spark.read.parquet(str(out / "table")).select("log_time").toArrow()["log_time"].to_pylist()
    assert sorted(time - 1000 for time in found) == [*range(10), *range(20, 25)]


def test_stream_with_restarts_reads_each_message_once(spark: SparkSession, prefix: str, tmp_path: Path) -> None:
    """What: a recorder is killed, another takes over, the stream is stopped between and goes on behind.

    Why: the two promise together that each message that is recorded is in the table once.
    """
    log, out = tmp_path / "log", tmp_path / "out"
    log.mkdir()
    (log / "another.mcap").write_bytes(build_recording_head() + part(0))
    pubs = [msgq.pub_sock(name) for name in ("a", "b")]
    numbers = iter(range(10**6))

    def publish(count: int) -> None:
        for _ in range(count):
            for pub in pubs:
                pub.send(b"%d" % next(numbers))

    query = start(spark, log, out)
    wait_until(lambda: query.lastProgress or query.exception(), "the first batch", DEADLINE)
    with Child(record, str(log / "1")) as first:
        first.hear()
        publish(2000)
        recorded(first, 4000)
        wait_until(lambda: len(list((log / "1").iterdir())) > 2, "segments")
        publish(1000)
        first.kill()
    query.stop()
    with Child(record, str(log / "2")) as second:
        second.hear()
        publish(1000)
        recorded(second, 2000)
        query = start(spark, log, out)
        publish(1000)
        recorded(second, 4000)
        second.say(None)
        second.result()
    query.processAllAvailable()
    assert query.exception() is None
    query.stop()
    batch, table = rows(read(spark, str(log))), rows(spark.read.parquet(str(out / "table")))
    assert len(batch) > 5 + 4000, "what the first recorder had written, and all of the second"
    assert table == batch


def test_stream_does_not_treat_times_in_names_as_segment_numbers(tmp_path: Path) -> None:
    """Between those of a recording all numbers are there; between times there is nothing to miss."""
    for i, name in enumerate(("20260501", "20260503", "1700000000000000000")):
        (tmp_path / f"{name}.mcap").write_bytes(build_recording_head() + part(5 * i) + CLOSED)
    stream = reader(tmp_path)
    end = stream.latestOffset({}, ReadAllAvailable())
    assert times(stream, {}, end) == list(range(15))
