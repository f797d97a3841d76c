"""The live bus as a stream: what is taken is right, once at most, and what is not taken is counted."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import StructType

import msgq
from msgq.common.queue_events import EVENT_HEAD_BYTES, Event
from msgq.common.schema import Schema
from msgq.errors import InvalidValueError, RecordingError
from msgq.spark.source.data_source import RecordingSource
from msgq.spark.source.live_stream import LiveStreamReader
from msgq.spark.source.partitions import RecordingPartition
from tests.spark.children import publish
from tests.spark.deadline import DEADLINE
from tests.support import Child, wait_asleep, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ALL = ReadAllAvailable()
Make = Callable[..., LiveStreamReader]


@pytest.fixture
def reader(spark: SparkSession, prefix: str) -> Iterator[Make]:
    made: list[LiveStreamReader] = []

    def make(columns: str = "", **options: str) -> LiveStreamReader:
        source: Any = RecordingSource({"live": "true", "prefix": prefix, **options})
        made.append(source.streamReader(StructType.fromDDL(columns) if columns else source.schema()))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def rows(stream: LiveStreamReader, start: Any, end: Any) -> list[dict[str, Any]]:
    return [row for piece in stream.partitions(start, end) for batch in stream.read(piece) for row in batch.to_pylist()]


def numbers(stream: LiveStreamReader, start: Any, end: Any) -> list[int]:
    return [int(row["data"]) for row in rows(stream, start, end)]


def following(stream: LiveStreamReader, start: Any, limit: Any = ALL) -> Any:
    """Return the next offset, as it comes back from Spark."""
    return wait_until(lambda: (end := json.loads(json.dumps(stream.latestOffset(start, limit)))) != start and end)


def send(pub: msgq.PubSocket, *values: int) -> None:
    pub.send_many([b"%d" % value for value in values])


def test_live_frame_announcements_are_rows_of_kind_topic(reader: Make) -> None:
    with msgq.pub_sock("visionipc_front_0") as frames, msgq.pub_sock("a") as pub:
        stream = reader()
        start = stream.initialOffset()
        frames.send(b"frame")
        first = following(stream, start)
        send(pub, 1)
        found = rows(stream, start, first) + rows(stream, first, following(stream, first))
        said = [(row["endpoint"], row["kind"], row["publisher"], row["key"]) for row in found]
        assert said == [("visionipc_front_0", "topic", None, None), ("a", "topic", None, None)]


def test_live_messages_of_all_kinds_have_publisher_and_key(reader: Make) -> None:
    """A channel with two publishers, a vector, a board, and a queue that tells what becomes of its jobs, made later."""
    with ExitStack() as stack:
        channels = [stack.enter_context(msgq.Channel("scans", node=node)) for node in ("front", "rear")]
        front, rear = (channel.publisher() for channel in channels)
        me = stack.enter_context(msgq.Channel("scans")).node
        poses = stack.enter_context(msgq.SeqlockVector("poses", [("x", "<f8")], 4))
        board = stack.enter_context(msgq.Board("limits", 4, 64))
        poses[1] = (0.5,)
        stream = reader()
        at = stream.initialOffset()
        front.send(b"f0", origin_time=77)
        rear.send(b"r0")
        front.send(b"f1")
        poses[2] = (1.5,)
        for key in ("speed", "height"):
            board.declare(key).write(key.encode())
        jobs = stack.enter_context(msgq.MessageQueue("jobs", events="payload"))
        jobs.send(b"to do", priority=2)
        job = jobs.receive(timeout=0)
        assert job is not None
        found: list[dict[str, Any]] = []
        while len(found) < 9:
            end = following(stream, at)
            found += rows(stream, at, end)
            at = end
    whose = [(row["endpoint"], row["kind"], row["publisher"], row["key"]) for row in found]
    assert sorted(whose, key=str) == [
        ("channel/scans", "channel", "front", None),
        ("channel/scans", "channel", "front", None),
        ("channel/scans", "channel", "rear", None),
        ("queue/jobs", "queue", me, None),
        ("queue/jobs", "queue", me, None),
        ("records/limits", "records", None, "height"),
        ("records/limits", "records", None, "speed"),
        ("records/poses", "records", None, None),
        ("records/poses", "records", None, None),
    ]
    said = {name: [row for row in found if row["endpoint"] == name] for name in {row["endpoint"] for row in found}}
    scans = said["channel/scans"]
    assert [row["data"] for row in scans] == [b"f0", b"r0", b"f1"]
    assert [row["sequence"] - scans[0]["sequence"] for row in scans] == [0, 1, 2]
    assert [row["origin_time"] for row in scans] == [77, None, None]
    assert {row["key"]: row["data"] for row in said["records/limits"]} == {"speed": b"speed", "height": b"height"}
    changes = [struct.unpack("<IQqd", row["data"]) for row in said["records/poses"]]
    assert [(index, count, x) for index, count, _, x in changes] == [(1, 1, 0.5), (2, 1, 1.5)]
    assert [Event(row["data"][0]) for row in said["queue/jobs"]] == [Event.SENT, Event.RECEIVED]
    assert said["queue/jobs"][0]["data"][EVENT_HEAD_BYTES:] == b"to do"
    assert {row["encoding"] for row in said["queue/jobs"]} == {"queue-event"}
    assert (at["messages"], at["lost"]) == (9, 0)


def test_live_batch_is_repeatable_until_commit(reader: Make) -> None:
    with msgq.pub_sock("a") as pub:
        send(pub, 1)
        stream = reader()
        start = stream.initialOffset()
        assert stream.latestOffset(start, ALL) == start, "what was published before is not seen"
        send(pub, 2, 3)
        first = following(stream, start)
        send(pub, 4)
        second = following(stream, first)
        for _ in range(2):
            assert numbers(stream, start, first) == [2, 3]
            assert numbers(stream, first, second) == [4]
        stream.commit(first)
        assert numbers(stream, first, second) == [4]
        pieces = [piece for piece in stream.partitions(first, second) if isinstance(piece, RecordingPartition)]
        kept = [path for piece in pieces for path in piece.paths]
        assert list(Path(str(kept[0].parent)).iterdir()) == kept, "what was committed is gone"
        assert second == {**start, "messages": 3, "lost": 0}


def test_live_rows_equal_recorded_rows(reader: Make) -> None:
    schema = Schema("Point", "struct", b'[["publish_time", "<i8"], ["x", "<f8"]]')
    before: list[int] = []
    stream = reader(endpoints="po*", exclude="poor")
    start = stream.initialOffset()
    with msgq.PubSocket() as pub, msgq.pub_sock("poor") as poor, msgq.pub_sock("imu") as imu:
        pub.connect(msgq.Context(), "point", schema=schema)

        def first() -> bool:  # endpoints that appear later are looked for twice a second
            for each in (poor, imu, pub):
                each.send(struct.pack("<qd", 12345, len(before)))
            before.append(0)
            return bool(stream.latestOffset(start, ALL) != start)

        wait_until(first)
        end = following(stream, start)
    found = rows(stream, start, end)
    assert {row["endpoint"] for row in found} == {"point"}
    assert [struct.unpack("<qd", row["data"])[1] for row in found] == [row["sequence"] for row in found]
    assert {(row["epoch"], row["publish_time"], row["encoding"], row["schema"]) for row in found} == {
        (1, 12345, "struct", "Point")
    }
    assert len({row["run"] for row in found}) == 1
    times = [row["log_time"] for row in found]
    assert times == sorted(times)


def test_live_payloads_are_decoded(reader: Make, prefix: str) -> None:
    """By the columns that the user gives: nobody knows what will come."""
    options = {"live": "true", "prefix": prefix, "decode": "point"}
    with pytest.raises(InvalidValueError, match=r"give a schema: \.schema"):
        RecordingSource(options).schema()
    wanted = "sequence long, value struct<x: double, name: string>, reason string, data binary"
    stream = reader(wanted, decode="point")
    with msgq.PubSocket() as pub, msgq.pub_sock("other") as other:
        pub.connect(msgq.Context(), "point", schema=Schema("Point", "json"))
        start = stream.initialOffset()
        other.send(b'{"x": 9}')
        for text in (b'{"x": 1.5, "name": "a"}', b'{"x": "no number"}', b"{", b'{"x": 2, "y": 3}'):
            pub.send(text)
        end = wait_until(lambda: (end := stream.latestOffset(start, ALL))["messages"] == 4 and end)
    found = rows(stream, start, end)
    assert [(row["sequence"], row["value"], row["data"]) for row in found] == [
        (0, {"x": 1.5, "name": "a"}, None),
        (1, None, b'{"x": "no number"}'),
        (2, None, b"{"),
        (3, {"x": 2.0, "name": None}, None),
    ]
    assert [bool(row["reason"]) for row in found] == [False, True, True, False]


def test_live_overwritten_messages_are_counted(reader: Make) -> None:
    """While the buffer is full the ring is not read, and counts what it overwrites."""
    with msgq.pub_sock("a", 1 << 16) as pub:
        stream = reader(bufferBytes="1")
        at = start = stream.initialOffset()
        sent = 0
        while at["lost"] < 1000:
            pub.send_many([struct.pack("<q", number) for number in range(sent, sent + 5000)])
            sent += 5000
            at = following(stream, at)
        pub.send(struct.pack("<q", sent))
        last = wait_until(lambda: (end := stream.latestOffset(at, ALL))["messages"] + end["lost"] == sent + 1 and end)
        found = rows(stream, start, last)
    assert len(found) == last["messages"]
    got = [struct.unpack("<q", row["data"])[0] for row in found]
    assert got == sorted(set(got)) == [row["sequence"] for row in found]
    assert got[-1] == sent


def test_live_buffer_is_bounded(reader: Make) -> None:
    """A file of 4 MiB is more than it may hold; the rest stays in the ring until that is planned."""
    with msgq.pub_sock("a", 64 << 20) as pub:
        stream = reader(bufferBytes="1m")
        start = stream.initialOffset()
        pub.send_many([bytes(1 << 20)] * 12)
        wait_until(lambda: list(stream._live_buffer._directory.iterdir()))
        wait_asleep(os.getpid(), stream._live_buffer._thread.native_id)
        first = stream.latestOffset(start, ALL)
        assert first["messages"] < 6
        at = first
        while at["messages"] < 12:
            at = following(stream, at)
        assert at["lost"] == 0


def test_live_batch_has_at_most_requested_messages(reader: Make) -> None:
    with msgq.pub_sock("a", 16 << 20) as pub:
        stream = reader(maxBytesPerTrigger="1")
        assert stream.getDefaultReadLimit() == ReadMaxBytes(1)
        at = start = stream.initialOffset()
        pub.send_many([bytes(1 << 20)] * 12)  # three chunks
        sizes = []
        while at["messages"] < 12:
            end = following(stream, at, ReadMaxBytes(1))
            sizes.append(end["messages"] - at["messages"])
            assert len(rows(stream, at, end)) == sizes[-1]
            at = end
    assert len(sizes) >= 3
    assert len(rows(stream, start, at)) == 12


def test_live_batch_planned_before_restart_counts_as_lost(reader: Make) -> None:
    with msgq.pub_sock("a") as pub:
        former = reader()
        start = former.initialOffset()
        send(pub, 1, 2)
        first = following(former, start)
        send(pub, 3, 4, 5)
        second = following(former, first)
        former.stop()
        stream = reader()
        assert stream.partitions(first, second) == [], "planned, but perhaps not written: not a second time"
        told = stream.latestOffset(second, ALL)
        assert (told["messages"], told["lost"]) == (5, 3)
        assert stream.partitions(second, told) == []
        send(pub, 6, 7)
        third = following(stream, told)
        assert (third["messages"], third["lost"]) == (7, 3)
        assert numbers(stream, told, third) == [6, 7]
        send(pub, 8)
        last = following(stream, third)
        assert (last["messages"], last["lost"]) == (8, 3)
        assert numbers(stream, second, last) == [6, 7, 8]


def test_live_files_of_killed_processes_are_removed(reader: Make) -> None:
    with msgq.pub_sock("a") as pub:
        first, second = reader(), reader()
        offset = first.initialOffset()
        send(pub, 1)
        following(first, offset)
        directory = first._live_buffer._directory
        left = directory.parent / "msgq-live-left"
        left.mkdir()
        (left / "000000000.mcap").touch()
        second.initialOffset()
        assert not left.exists()
        assert list(directory.iterdir())
        first.stop()
        assert not directory.exists()


def test_live_source_on_other_machine_raises_recording_error(reader: Make, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="is not on this machine"):
        list(reader().read(RecordingPartition([], [tmp_path / "no.mcap"], [])))


def test_live_source_reads_zmq_without_loss_count(reader: Make, endpoint: str) -> None:
    stream = reader(backend="zmq", endpoints=endpoint)
    start = stream.initialOffset()
    with Child(publish, endpoint, env={"MSGQ_BACKEND": "zmq"}) as child:
        child.hear()
        at = start
        while not at["messages"]:  # a subscription takes its time to reach the publisher
            child.say(1)
            child.hear()
            at = stream.latestOffset(start, ALL)
        child.say(500)
        child.hear()
        end = wait_until(lambda: (end := stream.latestOffset(at, ALL))["messages"] >= at["messages"] + 500 and end)
        child.say(None)
        child.result()  # it takes its claim away as it ends
    found = rows(stream, start, end)
    got = [struct.unpack("<q", row["data"])[0] for row in found]
    assert got == list(range(got[0], got[0] + len(got)))
    assert [row["sequence"] for row in found] == list(range(len(found)))
    assert end["lost"] is None, "cannot list endpoints"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": "x"}, "'path' applies only to recordings"),
        ({"failOnDataLoss": "false"}, "'failOnDataLoss' applies only to recordings"),
        ({"live": "false", "path": "x"}, "'prefix' applies only to the live bus"),
        ({"backend": "zmq", "endpoints": "a*"}, "cannot list endpoints"),
        ({"backend": "zmq"}, "cannot list endpoints"),
        ({"backend": "fake"}, "a single process"),
    ],
)
def test_live_source_with_invalid_options_is_refused(reader: Make, options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidValueError, match=text):
        reader(**options).initialOffset()


# With Spark


def live(spark: SparkSession, prefix: str, **options: str) -> DataFrame:
    return spark.readStream.format("msgq").options(live="true", prefix=prefix, **options).load()


def wait_started(query: StreamingQuery) -> StreamingQuery:
    """Return the query when it has looked for messages, and so subscribes; progress would be told 10 s later."""

    def settled() -> bool:
        return query.status["message"] == "Waiting for data to arrive" or query.exception() is not None

    wait_until(settled, "a look at the bus", DEADLINE)
    assert query.exception() is None
    return query


def settled(query: StreamingQuery) -> dict[str, Any]:
    """Return the offset when all that was published is in it."""
    query.processAllAvailable()
    done: dict[str, Any] = json.loads(query.recentProgress[-1]["sources"][0]["endOffset"])
    return done


@pytest.mark.nightly
def test_live_query_with_restarts_writes_all_messages(spark: SparkSession, prefix: str, tmp_path: Path) -> None:
    """What: two publishers, of which one dies and comes back, and a query that is stopped between, into Parquet."""

    def start() -> StreamingQuery:
        table = live(spark, prefix, endpoints="a,b").writeStream.format("parquet")
        return wait_started(
            table.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "table"))
        )

    def send_messages(child: Child, count: int) -> None:
        child.say(count)
        child.hear()

    for name in ("a", "b"):
        msgq.sub_sock(name).close()  # the rings are there before the first query, which takes its time to start
    query = start()
    with Child(publish, "a") as a:
        a.hear()
        with Child(publish, "b") as b:
            b.hear()
            for child in (a, b):
                send_messages(child, 3000)
            b.kill()
        with Child(publish, "b") as b:
            b.hear()
            send_messages(b, 1000)
            assert settled(query)["messages"] == 7000
            query.stop()
            send_messages(b, 1000)
            query = start()
            send_messages(a, 2000)
            end = settled(query)
            query.stop()
    assert (end["messages"], end["lost"]) == (9000, 0), "what nobody asked for, between the queries, is not lost"
    table = spark.read.parquet(str(tmp_path / "table")).orderBy("log_time").toArrow().to_pylist()
    runs = list(dict.fromkeys(row["run"] for row in table))
    found = [
        (row["endpoint"], runs.index(row["run"]), row["epoch"], row["sequence"], struct.unpack("<q", row["data"])[0])
        for row in table
    ]
    assert sorted(found) == [
        *(("a", 0, 1, n, n) for n in range(3000)),
        *(("a", 1, 1, n, n) for n in range(3000, 5000)),
        *(("b", 0, 1, n, n) for n in range(3000)),
        *(("b", 0, 1, 3000 + n, n) for n in range(1000)),
    ]


def test_live_failed_batch_counts_as_lost(spark: SparkSession, prefix: str, tmp_path: Path) -> None:
    got: list[int] = []

    def take(frame: DataFrame, batch: int) -> None:
        values = [int(row.data) for row in frame.select("data").collect()]
        if 13 in values:
            raise ValueError("no 13")
        got.extend(values)

    def start() -> StreamingQuery:
        writer = live(spark, prefix).writeStream.foreachBatch(take)
        return wait_started(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start())

    with msgq.pub_sock("a") as pub:
        query = start()
        send(pub, 1, 2)
        settled(query)
        send(pub, 13)
        wait_until(query.exception, "the failure", DEADLINE)
        query = start()
        send(pub, 3)
        end = settled(query)
        query.stop()
    assert got == [1, 2, 3]
    assert (end["messages"], end["lost"]) == (4, 1)


def test_live_source_in_batch_read_is_refused(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match=r"spark\.readStream"):
        spark.read.format("msgq").option("live", "true").load().collect()
