"""Messages of all kinds of endpoints: whose they are, what was lost of them, and what was overwritten."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from msgq.common.message_source import TOPIC_SOURCE, MessageSource
from msgq.common.queue_events import Event
from msgq.errors import InvalidValueError
from msgq.lake.gold.gold_builder import GOLD_TABLE_NAMES
from msgq.recording import LogReader
from msgq.recording.mcap_io.segment_writer import encode_channel
from msgq.spark import read, tables
from msgq.spark.lake import Lake, follow
from msgq.spark.lake.export import write_log
from msgq.spark.source import live_stream
from msgq.spark.source.data_source import RecordingSource
from tests.spark.deadline import DEADLINE
from tests.spark.kind_logs import (
    BEGIN,
    OPTIONS,
    RUN,
    QueueEvent,
    RecordedMessage,
    of_board,
    of_queue,
    of_vector,
    on_channel,
    write_kinds,
)
from tests.spark.rows import SECOND, message, messages, sorted_rows
from tests.support import wait_until
from tests.unit.stage_children import timing_record

TURN = 1 << 32
TOLD = [
    QueueEvent(Event.SENT, 0, BEGIN + 10, 0, BEGIN + 10, publisher="boss", pid=7, priority=2),
    QueueEvent(Event.TAKEN, 0, BEGIN + 20, 1, BEGIN + 10, publisher="worker", pid=8, priority=2),
]


def one_of_each() -> list[RecordedMessage]:
    """Return messages of each kind, and topics, at different times; those of queues last."""
    said = [
        RecordedMessage("imu", 0, BEGIN, b"plain"),
        RecordedMessage("visionipc_camera_0/image", 0, BEGIN + 1, b"frame", MessageSource("frames")),
        on_channel("scans", "front", 0, BEGIN + 2, origin_time=BEGIN - 5),
        on_channel("scans", "rear", 1, BEGIN + 3),
        of_vector("poses", 0, BEGIN + 4, 2, 9),
        of_vector("poses", 1, BEGIN + 5, 3, 9),
        of_board("limits", "speed", 4, BEGIN + 6, 1),
        of_board("limits", "height", 4, BEGIN + 7, 2),
    ]
    return said + of_queue("jobs", TOLD, payload=b"to do")


WHOSE = [
    ("channel/scans", 0, "channel", "front", None),
    ("channel/scans", 1, "channel", "rear", None),
    ("imu", 0, "topic", None, None),
    ("queue/jobs", 0, "queue", "boss", None),
    ("queue/jobs", 1, "queue", "worker", None),
    ("records/limits", 4, "records", None, "height"),
    ("records/limits", 4, "records", None, "speed"),
    ("records/poses", 0, "records", None, None),
    ("records/poses", 1, "records", None, None),
    ("visionipc_camera_0/image", 0, "frames", None, None),
]
COLUMNS = ("endpoint", "sequence", "kind", "publisher", "key")


def test_spark_source_gives_publisher_and_key(spark: Any, tmp_path: Path) -> None:
    write_kinds(tmp_path / "000000.mcap", one_of_each())
    assert sorted_rows(read(spark, str(tmp_path)), *COLUMNS) == WHOSE
    asked = read(spark, str(tmp_path), endpoints=["records/*"], columns=["key", "options", "sequence"])
    assert sorted_rows(asked, "key", "options") == [
        *[(None, OPTIONS["vector"])] * 2,
        ("height", OPTIONS["board"]),
        ("speed", OPTIONS["board"]),
    ]
    decoded = read(spark, str(tmp_path), decode="queue/jobs")
    assert sorted_rows(decoded, "kind", "publisher", "value.event", "value.number", "value.payload") == [
        ("queue", "boss", "sent", 0, b"to do"),
        ("queue", "worker", "taken", 0, b"to do"),
    ]


@pytest.mark.nightly
def test_spark_stream_gives_publisher_and_key(spark: Any, tmp_path: Path) -> None:
    write_kinds(tmp_path / "000000.mcap", one_of_each())
    rows = spark.readStream.format("msgq").load(str(tmp_path))
    query = rows.writeStream.format("memory").queryName("kinds").trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE)
    assert sorted_rows(spark.table("kinds"), *COLUMNS) == WHOSE


def test_live_source_gives_publisher_and_key(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A feed's channels say it, as those of a recording do."""

    class Feed:
        """Gives one message of each of two publishers."""

        max_message_bytes = 100

        def __init__(self, _: Any) -> None:
            sources = [MessageSource("channel", "front"), MessageSource("records", key="speed")]
            names = ["channel/scans", "records/limits"]
            self.channels = {
                number: encode_channel(number, name, None, 1, "published", source=source)
                for number, (name, source) in enumerate(zip(names, sources, strict=True), 1)
            }
            self.left = [1, 2]

        def take_messages(self, chunk: Any, seconds: float) -> bool:
            while self.left:
                chunk.append_message(self.left.pop(), 0, BEGIN, BEGIN, b"data")
            return False

        def count_lost_messages(self) -> int:
            return 0

        def close(self) -> None:
            pass

    monkeypatch.setattr(live_stream, "open_bus_feed", Feed)
    source: Any = RecordingSource({"live": "true"})
    stream = source.streamReader(source.schema())
    try:
        start = {**stream.initialOffset(), "messages": 0}
        limit = stream.getDefaultReadLimit()
        end = wait_until(lambda: (found := stream.latestOffset(start, limit))["messages"] == 2 and found)
        batches = [batch for piece in stream.partitions(start, end) for batch in stream.read(piece)]
        rows = [tuple(row[name] for name in COLUMNS) for batch in batches for row in batch.to_pylist()]
    finally:
        stream.stop()
    assert sorted(rows) == [
        ("channel/scans", 0, "channel", "front", None),
        ("records/limits", 0, "records", None, "speed"),
    ]


def some_channels(rng: random.Random) -> tuple[list[RecordedMessage], dict[str, list[int]]]:
    """Return what two or three publishers of some channels said in turn, some of it missing, late or twice; and of each
    channel the positions that came.
    """
    said, came = [], {}
    for name in ("a", "b", "c", "d"):
        first, time = rng.choice((0, TURN - 20)), BEGIN
        mine = []
        for position in range(first, first + rng.choice((1, 5, 60))):
            time += rng.choice((1, 1000, SECOND))
            publisher = rng.choice(("one", "two", "three")[: rng.choice((2, 3))])
            more = {"publish_time": time - rng.randrange(10_000)}
            if rng.random() < 0.8:
                mine.append(on_channel(name, publisher, position, time, bytes(rng.randrange(50)), **more))
        said += mine + rng.sample(mine, len(mine) // 4)
        came[f"channel/{name}"] = [one.sequence for one in mine]
    return said, came


@pytest.mark.nightly
def test_channel_losses_are_counted_per_publisher(spark: Any, tmp_path: Path) -> None:
    rng = random.Random(5)
    known: list[Any] = []
    each: dict[Any, list[RecordedMessage]] = defaultdict(list)
    for run in range(10):
        said, came = some_channels(rng)
        write_kinds(tmp_path / f"{run}.mcap", said, f"run{run}")
        for endpoint, positions in came.items():
            pairs = itertools.pairwise(positions)
            known += [
                (f"run{run}", endpoint, one % TURN, other % TURN, other - one - 1)
                for one, other in pairs
                if other - one > 1
            ]
        for one in said:
            each[f"run{run}", one.endpoint, one.source.publisher].append(one)
    table = read(spark, str(tmp_path))
    gaps = tables.sequence_gaps(table.repartition(3))
    assert known
    assert sorted_rows(gaps, "run", "endpoint", "previous_sequence", "next_sequence", "lost") == sorted(known)
    windows = tables.traffic_windows(table)
    found = tables.publishers(windows).collect()
    assert {(row["run"], row["endpoint"], row["publisher"]) for row in found} == set(each)
    for row in found:
        mine = each[row["run"], row["endpoint"], row["publisher"]]
        late = [one.log_time - (one.publish_time or 0) for one in mine if one.log_time != one.publish_time]
        times = [one.log_time for one in mine]
        assert (row["messages"], row["size_bytes"]) == (len(mine), sum(len(one.data) for one in mine))
        assert (row["start_time"], row["end_time"]) == (min(times), max(times))
        assert (row["count"], row["min"], row["max"]) == (len(late), min(late, default=None), max(late, default=None))
        assert row["p50"] is None or min(late) <= row["p50"] <= max(late)
    endpoints = tables.endpoints(windows, gaps).collect()
    assert len(endpoints) == len({key[:2] for key in each}), "an endpoint has one row, however many publish on it"
    for row in endpoints:
        names = {key[2] for key in each if key[:2] == (row["run"], row["endpoint"])}
        assert (row["kind"], row["publishers"]) == ("channel", len(names))


def test_record_changes_count_as_overwritten_and_not_lost(spark: Any, tmp_path: Path) -> None:
    """Of each index and key the values between the counts that came, however they come."""
    rng = random.Random(6)
    known: list[Any] = []
    for run, (epoch, start) in enumerate([(1, 0), (2, 5), (1, TURN - 30)]):
        mine, number = [], 0
        for cell in range(4):
            count, time, before = start, BEGIN, 0
            for turn in range(50):
                step, time = rng.choice((1, 1, 1, 2, 9)), time + rng.choice((1, SECOND))
                count += step
                if turn and step > 1:
                    about = (None, cell) if cell < 2 else (f"key{cell}", None)
                    name = "records/v" if cell < 2 else "records/b"
                    known.append((f"run{run}", name, *about, before % TURN, count % TURN, step - 1))
                before = count
                if cell < 2:
                    mine.append(of_vector("v", number, time, cell, count, epoch))
                else:
                    mine.append(of_board("b", f"key{cell}", count, time, 10 * epoch + cell))
                number += 1
        short = mine[0]._replace(sequence=900, data=b"short")
        write_kinds(tmp_path / f"{run}.mcap", [*mine, *rng.sample(mine, 50), short], f"run{run}")
    table = read(spark, str(tmp_path)).repartition(3)
    found = tables.overwrites(table)
    columns = ("run", "endpoint", "key", "index", "previous_sequence", "next_sequence", "overwritten")
    in_order = sorted(known, key=lambda row: [(value is not None, value) for value in row])
    assert sorted_rows(found, *columns) == in_order
    assert tables.sequence_gaps(table).count() == 0
    endpoints = tables.endpoints(tables.traffic_windows(table), tables.sequence_gaps(table), found)
    sums: dict[Any, int] = defaultdict(int)
    for run, name, *_, passed in known:
        sums[run, name] += passed
    assert sorted_rows(endpoints, "run", "endpoint", "kind", "lost", "overwritten") == [
        (*key, "records", 0, passed) for key, passed in sorted(sums.items())
    ]


def test_record_changes_have_no_latency(spark: Any, tmp_path: Path) -> None:
    """A recorder finds values that were written long before it looked."""
    old: dict[str, Any] = {"publish_time": BEGIN - 3600 * SECOND}
    said = [of_vector("v", 0, BEGIN, 0, 1)._replace(**old), of_board("b", "k", 1, BEGIN, 2)._replace(**old)]
    said += [on_channel("c", "p", 0, BEGIN, publish_time=BEGIN - 7)]
    windows = tables.traffic_windows(read(spark, str(write_kinds(tmp_path / "000000.mcap", said))))
    assert sorted_rows(windows, "endpoint", "messages", "count", "min", "max") == [
        ("channel/c", 1, 1, 7, 7),
        ("records/b", 1, 0, None, None),
        ("records/v", 1, 0, None, None),
    ]
    assert sorted_rows(tables.latency(windows), "endpoint", "messages") == [("channel/c", 1)]


OF_KINDS = {"overwrites", "publishers", "stages", "stage_summary", "queue_deliveries", "queue_windows", "queue_summary"}


@pytest.mark.nightly
def test_tables_of_absent_kinds_are_empty(spark: Any, tmp_path: Path) -> None:
    """They are there, with all their columns, and no file; new messages fill them, and only theirs."""
    lake = Lake(spark, tmp_path / "lake")

    def tables_with_rows() -> set[str]:
        return {name for name in OF_KINDS if list((tmp_path / "lake" / "gold" / name).rglob("*.parquet"))}

    other = "b" * 32
    lake.ingest([write_kinds(tmp_path / "0.mcap", of_queue("jobs", TOLD), other)])
    assert lake.build_gold() == 1
    assert tables_with_rows() == {"publishers", "queue_deliveries", "queue_windows", "queue_summary"}
    assert set(lake.table_names()) == set(GOLD_TABLE_NAMES)
    missing = OF_KINDS - tables_with_rows()
    assert {name: lake.table(name).count() for name in missing} == dict.fromkeys(missing, 0)
    columns = {name: lake.table(name).columns for name in missing}
    said = [of_vector("v", i, BEGIN + i, 0, 3 * i) for i in range(2)]
    said += [RecordedMessage("timing:planner:imu", 0, BEGIN + 5, timing_record(BEGIN, BEGIN + 1, BEGIN + 3, BEGIN))]
    lake.ingest([write_kinds(tmp_path / "1.mcap", said, RUN)])
    assert lake.build_gold() == 1
    assert tables_with_rows() == OF_KINDS
    assert {name: lake.table(name).columns for name in missing} == columns
    assert sorted_rows(lake.table("overwrites"), "run", "overwritten") == [(RUN, 2)]
    assert sorted_rows(lake.table("stages"), "run", "stage", "messages") == [(RUN, "planner", 1)]
    assert sorted_rows(lake.table("queue_deliveries"), "run", "queue") == [(other, "jobs")], (
        "no new messages: as before"
    )


@pytest.mark.nightly
def test_lake_stores_and_exports_each_message_of_each_kind_once(spark: Any, tmp_path: Path) -> None:
    """Two recordings that overlap, by the file and by a stream; what is exported is what was recorded."""
    said = one_of_each()
    (tmp_path / "log").mkdir()
    write_kinds(tmp_path / "log" / "000000.mcap", said)
    write_kinds(tmp_path / "some.mcap", said[::2])
    lake = Lake(spark, tmp_path / "lake")
    assert lake.ingest([tmp_path / "some.mcap"]).messages == len(said[::2])
    assert follow(lake, str(tmp_path / "log"), trigger_seconds=None).awaitTermination(DEADLINE)
    assert sorted_rows(lake.messages(), *COLUMNS) == WHOSE
    assert lake.ingest([tmp_path / "log"]).messages == 0
    assert write_log(lake.sql("SELECT * FROM messages"), tmp_path / "out.mcap", lake.uri) == len(said)
    exported = LogReader(tmp_path / "out.mcap")
    assert list(exported) == list(LogReader(tmp_path / "log"))
    for info in exported.endpoints.values():
        assert info.lost == LogReader(tmp_path / "log").endpoints[info.endpoint].lost == 0
    bare = "SELECT endpoint, log_time, data FROM messages"
    write_log(lake.sql(bare), tmp_path / "bare.mcap", lake.uri)
    kinds = {(one.endpoint, one.kind) for one in LogReader(tmp_path / "bare.mcap")}
    assert kinds == {(endpoint, kind) for endpoint, _, kind, *_ in WHOSE}, "the names tell"


def test_decoded_rows_have_kind_columns(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    bad = of_queue("jobs", TOLD)[0]._replace(sequence=7, data=b"no event")
    lake.ingest([write_kinds(tmp_path / "000000.mcap", [*one_of_each(), bad])])
    lake.build_silver()
    assert lake.endpoints() == ["queue/jobs", "records/limits", "records/poses"]
    asked = lake.sql("SELECT event, number, priority, pid, publisher, payload FROM `silver_queue/jobs` ORDER BY event")
    assert [tuple(row) for row in asked.collect()] == [
        ("sent", 0, 2, 7, "boss", b"to do"),
        ("taken", 0, 2, 8, "worker", b"to do"),
    ]
    poses = lake.sql("SELECT index, count, publish_time_, value.x FROM `silver_records/poses`")
    assert sorted_rows(poses, "index", "count", "x") == [(2, 9, 2.9), (3, 9, 3.9)]
    assert [row.publish_time_ for row in poses.collect()] == [BEGIN + 4, BEGIN + 5]
    limits = lake.sql("SELECT key, key_ FROM `silver_records/limits`")
    assert sorted_rows(limits, "key", "key_") == [("height", 5), ("speed", 5)]
    assert sorted_rows(lake.decode_errors(), "endpoint", "sequence", "reason", "data") == [
        ("queue/jobs", 7, "message is not a queue event", b"no event")
    ]
    with pytest.raises(InvalidValueError, match="has no decoded messages of 'channel/scans'"):
        lake.silver("channel/scans")


def test_appended_rows_may_omit_kind_columns(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    plain = messages(spark, [message("a", 0, 1), message("queue/b", 0, 2)])
    lake.append(plain)
    lake.append(messages(spark, [message("a", 1, 3)]).selectExpr("*", "'channel' AS kind", "'p' AS publisher"))
    lake.append(messages(spark, [message("a", 2, 4)]).selectExpr("*", "string(NULL) AS kind"))
    assert sorted_rows(lake.messages(), *COLUMNS) == [
        ("a", 0, TOPIC_SOURCE.kind, None, None),
        ("a", 1, "channel", "p", None),
        ("a", 2, TOPIC_SOURCE.kind, None, None),
        ("queue/b", 0, TOPIC_SOURCE.kind, None, None),
    ]
