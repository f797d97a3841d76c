"""The source: what a table has is what the files have, whatever state they are in."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mcap import records

from msgq.errors import IpcError, RecordingError
from msgq.lake.batching import pack_by_size
from msgq.recording import LogReader
from msgq.spark import read
from msgq.spark.lake import Lake
from msgq.spark.source import partitions
from msgq.spark.source.data_source import RecordingSource
from msgq.spark.source.partitions import plan_file_partitions
from msgq.spark.source.source_options import SourceOptions
from tests.recording.logs import (
    FOREIGN,
    MCAP_MAGIC,
    build_chunk_record,
    channel,
    message,
    write_foreign,
    write_unclosed_file,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def found(table: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(
        (row.endpoint, row.log_time, row.publish_time, row.sequence, row.epoch, bytes(row.data))
        for row in table.select("endpoint", "log_time", "publish_time", "sequence", "epoch", "data").toLocalIterator()
    )


def expected(*paths: Path, **selected: Any) -> list[tuple[Any, ...]]:
    log = LogReader(*paths, **selected)
    return sorted((m.endpoint, m.log_time, m.publish_time, m.sequence, m.epoch, m.data) for m in log)


def wall_steps(number: int) -> tuple[Any, bytes]:
    """Return that the wall clock was set so many tens ahead, and two messages of that time."""
    said = {"run": "ab" * 16, "clock_offset_ns": "0", "wall_offset_ns": str(10 * number), "since_ns": str(100 * number)}
    times = 100 * number, 100 * number + 1
    return records.Metadata("msgq.clock", said), build_chunk_record(channel(1, "a"), *(message(1, t, t) for t in times))


def test_spark_source_reads_directory_with_all_file_types(spark: SparkSession, tmp_path: Path) -> None:
    good = [write_foreign(tmp_path / f"{kind.replace(' ', '-')}.mcap", **options) for kind, options in FOREIGN.items()]
    ours = build_chunk_record(channel(1, "a"), *(message(1, i, 100 + i) for i in range(10)))
    good.append(write_unclosed_file(tmp_path / "truncated.mcap", ours, ours[: len(ours) // 2]))
    (tmp_path / "deep" / "er").mkdir(parents=True)
    good.append(write_unclosed_file(tmp_path / "deep" / "er" / "nothing.mcap"))
    damaged = bytearray(ours)
    damaged[-3] ^= 1
    good.append(write_unclosed_file(tmp_path / "damaged.mcap", ours, bytes(damaged), ours))
    (tmp_path / "empty.mcap").touch()
    (tmp_path / "foreign.mcap").write_bytes(b"no recording at all")
    table = spark.read.format("msgq").load(str(tmp_path))
    assert found(table) == expected(*good)
    problems = {
        (Path(row.file).name, row.reason) for row in read(spark, str(tmp_path), readErrors=True).toLocalIterator()
    }
    assert {name for name, _ in problems} == {"truncated.mcap", "damaged.mcap", "empty.mcap", "foreign.mcap"}
    reasons = dict(problems)
    assert "magic" in reasons["empty.mcap"]
    assert "magic" in reasons["foreign.mcap"]
    assert "CRC" in reasons["damaged.mcap"] or "decompress" in reasons["damaged.mcap"]


def test_spark_source_has_bronze_columns(spark: SparkSession, tmp_path: Path) -> None:
    metadata = records.Metadata("msgq.recording", {"run": "ab" * 16, "host": "there"})
    part = build_chunk_record(channel(1, "a", epoch=3, encoding="json"), message(1, 7, 20, b"{}"))
    path = write_unclosed_file(tmp_path / "a.mcap", metadata, part)
    row = spark.read.format("msgq").load(str(path)).collect()[0].asDict()
    assert row == {
        "run": "ab" * 16,
        "host": "there",
        "endpoint": "a",
        "epoch": 3,
        "sequence": 7,
        "publish_time": 20,
        "log_time": 20,
        "origin_time": None,
        "encoding": "json",
        "schema": "a",
        "data": b"{}",
        "kind": "topic",
        "publisher": None,
        "key": None,
        "lost_before": None,
        "lost_after": None,
    }
    placed = read(spark, str(path), columns=["byte_offset", "file"]).collect()[0]
    assert placed.file == str(path)
    assert path.read_bytes()[placed.byte_offset] == 6, "a chunk"


def test_spark_source_options_select_endpoints_times_and_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    end = "1970-01-01T00:00:00.000002"
    table = read(spark, str(path), endpoints=["topic[12]"], exclude=["topic2"], start=1500, end=end)
    assert found(table) == expected(path, endpoints=["topic1"], start=1500, end=2000)
    until = datetime.fromisoformat(end)
    listed = read(spark, [path, str(path)], endpoints="topic1", start="1500", end=until, columns=["log_time"])
    assert listed.count() == len(expected(path, endpoints=["topic1"], start=1500, end=2000))
    assert read(spark, str(path), columns=["log_time"]).columns == ["log_time"]
    assert read(spark, str(path), columns=["log_time"]).agg({"log_time": "max"}).collect()[0][0] == 3990


def test_spark_source_gives_wall_times(spark: SparkSession, tmp_path: Path) -> None:
    """Also where a file is read in pieces: each knows what was noted before it."""
    path = write_unclosed_file(tmp_path / "a.mcap", *(message_at for i in range(3) for message_at in wall_steps(i)))
    table = read(spark, str(path), clock="wall", partitionBytes=1)
    assert found(table) == expected(path, clock="wall")
    assert [row[1] for row in found(table)] == [time + 10 * i for i in range(3) for time in (100 * i, 100 * i + 1)]


def test_sql_finds_spark_source(spark: SparkSession, tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    spark.sql(f"CREATE TEMPORARY VIEW prunes USING msgq OPTIONS (path '{path}', endpoints 'topic1')")
    assert spark.sql("SELECT count(*), count(DISTINCT endpoint) FROM prunes").collect()[0][:] == (100, 1)
    spark.catalog.dropTempView("prunes")


def test_spark_source_load_answers_several_queries(spark: SparkSession, tmp_path: Path) -> None:
    """With `pushFilters` the filter of the first one would act in the others: see docs/guides/spark.md."""
    table = spark.read.format("msgq").load(str(write_foreign(tmp_path / "a.mcap")))
    one = table.where("endpoint = 'topic1'")
    assert (one.count(), table.count(), one.union(table).count()) == (100, 300, 400)


@pytest.mark.nightly
def test_spark_applies_pushed_filter_of_one_query_to_later_queries(spark: SparkSession, tmp_path: Path) -> None:
    """Why there are none. When this fails, Spark has become right, and the source may prune by filters."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self) -> None:
            self.wanted: list[Any] = [0, 1, 2, 3]

        def pushFilters(self, filters: Any) -> Iterator[Any]:
            for condition in filters:
                if type(condition).__name__ == "EqualTo":
                    self.wanted = [condition.value]
                else:
                    yield condition

        def partitions(self) -> Any:
            return [InputPartition(None)]

        def read(self, partition: Any) -> Any:
            return iter([(number,) for number in self.wanted])

    class Filtering(DataSource):
        def schema(self) -> str:
            return "number int"

        def reader(self, schema: Any) -> Any:
            return Reader()

    spark.dataSource.register(Filtering)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        table = spark.read.format("Filtering").load()
        assert table.where("number = 1").count() == 1
        assert table.count() != 4
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_spark_source_partition_size_does_not_change_rows(spark: SparkSession, tmp_path: Path) -> None:
    paths = [write_foreign(tmp_path / f"{i}.mcap", count=100 * i) for i in range(1, 4)]
    table = read(spark, str(tmp_path), partitionBytes=3000)
    assert table.rdd.getNumPartitions() > 5
    assert found(table) == expected(*paths)
    assert read(spark, str(tmp_path)).rdd.getNumPartitions() == 1


@pytest.mark.parametrize("size", [100, 511, 513, 700, 1500, 5000])
def test_spark_source_plan_leaves_no_core_idle_in_last_round(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    chunks = [(number, 1 << 20) for number in range(size)]
    room = SourceOptions(("x",)).choose_partition_bytes(size << 20)
    tasks = len(list(pack_by_size(chunks, room)))
    assert tasks % 2 == 0
    assert room <= 257 << 20


def test_spark_source_plan_has_tasks_for_all_session_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    rooms = [SourceOptions(("x",), core_count=cores).choose_partition_bytes(1 << 30) for cores in (None, 8)]
    assert [-(-(1 << 30) // room) for room in rooms] == [4, 8]
    assert SourceOptions.parse_options({"path": "x", "cores": "8"}).core_count == 8
    with pytest.raises(IpcError, match="'cores' is 'all'"):
        SourceOptions.parse_options({"path": "x", "cores": "all"})


def test_spark_source_tasks_of_many_files_have_uncompressed_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All of them are opened where there are few: then nobody has to guess."""
    sent = [message(1, number, number, bytes(5000)) for number in range(200)]
    first = write_unclosed_file(tmp_path / "000.mcap", build_chunk_record(channel(1, "e"), *sent, compression="zstd"))
    for number in range(1, 40):
        (tmp_path / f"{number:03}.mcap").hardlink_to(first)
    assert first.stat().st_size < 50_000
    options, paths = SourceOptions((str(tmp_path),), partition_bytes=10_100_000), sorted(tmp_path.iterdir())
    few = [partition for partition in plan_file_partitions(options, paths, []) if partition.logs]
    monkeypatch.setattr(partitions, "_OPENED_FILES_MAX", 39)
    many = list(plan_file_partitions(options, paths, []))
    assert len(few) == len(many) == 4
    assert [len(partition.paths) for partition in many] == [10] * 4


def test_spark_source_of_directory_without_messages_gives_read_error(spark: SparkSession, tmp_path: Path) -> None:
    assert read(spark, str(tmp_path)).collect() == []
    (row,) = read(spark, str(tmp_path), readErrors=True).collect()
    assert (row.file, row.reason) == (str(tmp_path), "the directory has no .mcap file")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"endpoint": "a"}, "option 'endpoint' does not exist"),
        ({"start": "yesterday"}, "option 'start' is 'yesterday'"),
        ({"partitionBytes": "much"}, "option 'partitionBytes' is 'much'"),
        ({"columns": ["topic"]}, "column 'topic' does not exist"),
        ({"readErrors": "perhaps"}, "use true or false"),
        ({"clock": "sun"}, "option 'clock' is 'sun'; use host or wall"),
    ],
)
def test_spark_source_user_error_is_raised_without_java(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(IpcError, match=text):
        read(None, str(write_foreign(tmp_path / "a.mcap")), **options)  # type: ignore[arg-type]


def test_spark_source_of_missing_path_raises_recording_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="does not exist; use a file"):
        read(None, str(tmp_path / "b*"))  # type: ignore[arg-type]


def test_spark_source_with_flipped_bits_gives_readable_messages(spark: SparkSession, tmp_path: Path) -> None:
    """What of each file is readable is in the table, as in LogReader; nothing fails."""
    dice = random.Random(6)
    whole = write_foreign(tmp_path / "whole.mcap").read_bytes()
    for number in range(60):
        flipped = bytearray(whole)
        flipped[dice.randrange(len(MCAP_MAGIC), len(whole))] ^= 1 << dice.randrange(8)
        (tmp_path / f"{number:02}.mcap").write_bytes(flipped)
    assert found(read(spark, str(tmp_path))) == expected(tmp_path)


@pytest.mark.nightly
def test_spark_source_of_many_files_opens_files_in_workers(spark: SparkSession, tmp_path: Path) -> None:
    first = write_unclosed_file(
        tmp_path / "first.mcap", build_chunk_record(channel(1, "a"), *(message(1, i, 100 + i) for i in range(10)))
    )
    for number in range(299):
        (tmp_path / f"{number}.mcap").hardlink_to(first)
    foreign = tmp_path / "foreign.mcap"
    foreign.write_bytes(b"no recording at all")
    assert read(spark, str(tmp_path), columns=["sequence"]).count() == 3000
    (tmp_path / "dangling.mcap").symlink_to("nowhere")
    skipped = read(spark, str(tmp_path), readErrors=True)
    assert {row.file for row in skipped.collect()} == {str(foreign), str(tmp_path / "dangling.mcap")}
    (tmp_path / "dangling.mcap").unlink()
    done = Lake(spark, tmp_path / "lake").ingest([tmp_path])
    assert (done.messages, done.files) == (10, 301)
    assert [problem.path for problem in done.read_errors] == [str(foreign)]


def test_spark_source_file_missing_in_worker_stops_query(tmp_path: Path) -> None:
    """Also of so many files that the workers open them; where problems are wanted, it is one."""
    first = write_unclosed_file(tmp_path / "first.mcap", build_chunk_record(channel(1, "a"), message(1, 0, 100)))
    for number in range(256):
        (tmp_path / f"{number}.mcap").hardlink_to(first)
    (tmp_path / "foreign.mcap").write_bytes(b"no recording at all")

    def planned(**options: str) -> Callable[[], list[dict[str, Any]]]:
        source = RecordingSource({"path": str(tmp_path), **options})
        reader = source.reader(source.schema())
        pieces = reader.partitions()
        return lambda: [row for piece in pieces for batch in reader.read(piece) for row in batch.to_pylist()]

    strict, careless, skipped = planned(), planned(failOnDataLoss="false"), planned(readErrors="true")
    assert len(strict()) == 257
    gone = tmp_path / "100.mcap"
    gone.unlink()
    with pytest.raises(RecordingError, match=rf"{gone}.* store recordings where all workers"):
        strict()
    assert len(careless()) == 256
    assert {Path(row["file"]) for row in skipped()} == {tmp_path / "foreign.mcap", gone}


def test_spark_source_file_truncated_after_planning_stops_query(tmp_path: Path) -> None:
    """A worker may see an old state of a shared disk; its rows were missing without a word."""
    path = write_unclosed_file(
        tmp_path / "a.mcap", *(build_chunk_record(channel(1, "a"), message(1, i, i)) for i in range(3))
    )
    whole = path.read_bytes()
    for options, rows in (({}, None), ({"failOnDataLoss": "false"}, 2), ({"readErrors": "true"}, 1)):
        path.write_bytes(whole)
        source = RecordingSource({"path": str(path), **options})
        reader = source.reader(source.schema())
        pieces = reader.partitions()
        os.truncate(path, LogReader(path).files[0].blocks[2].offset + 1)
        outcome = pytest.raises(RecordingError, match=rf"{path} at byte .* could be") if rows is None else nullcontext()
        with outcome:
            assert sum(batch.num_rows for piece in pieces for batch in reader.read(piece)) == rows
