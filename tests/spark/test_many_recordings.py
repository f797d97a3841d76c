"""Streams of thousands of recordings on Spark: small offsets, and each message once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgq.spark.lake import Lake, follow
from msgq.spark.source.position_files import FILE_FIELD, LISTED_POSITIONS_MAX
from tests.spark import cluster
from tests.spark.deadline import DEADLINE
from tests.spark.jobs import hold_table_stream, start_table_stream
from tests.spark.test_position_files import HEAD, add_recordings, times_of
from tests.spark.test_stream import append, part
from tests.support import Child, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COUNT = 3000


def read_log_times(spark: SparkSession, path: Path) -> list[int]:
    rows = spark.read.parquet(str(path)).select("log_time").toArrow()
    return sorted(rows.column("log_time").to_pylist())


def read_offsets(checkpoint: Path) -> dict[int, str]:
    """Return the stored offsets by number of the batch."""
    paths = [path for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal()]
    return {int(path.name): path.read_text().splitlines()[-1] for path in paths}


def test_offsets_of_3000_recordings_are_small(spark: SparkSession, tmp_path: Path) -> None:
    """Both triggers, restarts, deletions, and a recording that grows after many batches."""
    recordings, out = tmp_path / "recordings", tmp_path / "out"
    recordings.mkdir()
    (recordings / "growing.mcap").write_bytes(HEAD + part(50_000))
    checkpoint = str(out / "checkpoint")

    def start(**trigger: Any) -> StreamingQuery:
        rows = spark.readStream.format("msgq").option("checkpointLocation", checkpoint).load(str(recordings))
        writer = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        query: StreamingQuery = writer.trigger(**trigger).start(str(out / "table"))
        return query

    add_recordings(recordings, range(COUNT))
    query = start(availableNow=True)
    assert query.awaitTermination(DEADLINE)
    for first in (COUNT, COUNT + 10):
        query = start(processingTime="50 milliseconds")
        add_recordings(recordings, range(first, first + 10))
        query.processAllAvailable()
        query.stop()
        for number in range(first - 3000, first - 2990):
            (recordings / f"r{number}.mcap").unlink()
    append(recordings / "growing.mcap", part(50_005))
    query = start(availableNow=True)
    assert query.awaitTermination(DEADLINE)
    assert query.exception() is None
    assert read_log_times(spark, out / "table") == times_of([*range(COUNT + 20), 10_000, 10_001])
    offsets = read_offsets(out / "checkpoint")
    assert max(map(len, offsets.values())) < 200 * LISTED_POSITIONS_MAX
    assert all(FILE_FIELD in offset for offset in offsets.values())
    [file] = (out / "checkpoint/recording_positions").iterdir()
    assert file.stat().st_size < 40 * COUNT


def test_stream_killed_between_plan_and_commit_reads_each_message_once(spark: SparkSession, tmp_path: Path) -> None:
    """A kill hits the driver and its Java while a batch with a stored offset waits for its write."""
    recordings, out = tmp_path / "recordings", tmp_path / "out"
    recordings.mkdir()
    count = LISTED_POSITIONS_MAX + 10
    add_recordings(recordings, range(count))
    with Child(hold_table_stream, str(recordings), str(out)) as driver:
        assert driver.hear() == 0
        driver.say()
        wait_until(lambda: (out / "checkpoint/commits/0").exists(), "the first commit", DEADLINE)
        (tmp_path / "new").mkdir()
        add_recordings(tmp_path / "new", range(count, 2 * count))
        (tmp_path / "new").rename(recordings / "new")  # all recordings are in the next batch
        assert driver.hear() == 1
        cluster.kill(driver.pid)
    planned = read_offsets(out / "checkpoint")
    names = [json.loads(planned[number])[FILE_FIELD] for number in (0, 1)]
    assert len(set(names)) == 2
    assert not (out / "checkpoint/commits/1").exists()
    add_recordings(recordings, range(2 * count, 3 * count))
    query = start_table_stream(spark, str(recordings), str(out), lambda _: None)
    query.processAllAvailable()
    query.stop()
    assert read_offsets(out / "checkpoint")[1] == planned[1]
    assert read_log_times(spark, out / "table") == times_of(range(3 * count))


def test_lake_stream_writes_files_with_positions(spark: SparkSession, tmp_path: Path) -> None:
    recordings = tmp_path / "recordings"
    recordings.mkdir()
    count = LISTED_POSITIONS_MAX + 10
    add_recordings(recordings, range(count))
    lake = Lake(spark, tmp_path / "lake")
    for _ in range(2):
        assert follow(lake, str(recordings), trigger_seconds=None).awaitTermination(DEADLINE)
        [checkpoint] = (tmp_path / "lake/_checkpoints").iterdir()
        assert all(list(json.loads(offset)) == [FILE_FIELD] for offset in read_offsets(checkpoint).values())
        found = lake.messages().select("log_time").toArrow().column("log_time").to_pylist()
        assert sorted(found) == times_of(range(count))
        add_recordings(recordings, range(count, count + LISTED_POSITIONS_MAX + 10))
        count += LISTED_POSITIONS_MAX + 10
