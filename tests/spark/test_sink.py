"""Results back on the bus: one publisher, the order of the rows, at least once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import msgq
from msgq.errors import InvalidValueError, MessageTooLargeError
from msgq.spark import BusSink, read
from tests.recording.logs import build_recording_head
from tests.spark.deadline import DEADLINE
from tests.spark.test_stream import CLOSED, part
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def got(sub: msgq.SubSocket) -> list[Any]:
    return [json.loads(data) for data in msgq.drain_sock_raw(sub)]


@pytest.mark.nightly
def test_sink_publishes_results(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    (tmp_path / "000000.mcap").write_bytes(build_recording_head() + part(0) + part(5) + CLOSED)
    sub = msgq.sub_sock(endpoint)
    table = spark.readStream.format("msgq").option("maxBytesPerTrigger", "1").load(str(tmp_path))
    counts = table.groupBy("endpoint").count()
    with BusSink(endpoint) as publisher:
        query = counts.writeStream.foreachBatch(publisher).outputMode("update").trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE)
    first, second = got(sub)
    assert [(row["endpoint"], row["count"]) for row in (first, second)] == [("a", 5), ("a", 10)]
    assert first["batch"] < second["batch"]


def test_sink_publishes_payload_column_unchanged(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    (tmp_path / "a.mcap").write_bytes(build_recording_head() + part(0))
    sub = msgq.sub_sock(endpoint)
    with BusSink(endpoint, column="data") as publisher:
        publisher(read(spark, str(tmp_path)), 0)
        assert msgq.drain_sock_raw(sub) == [b"data"] * 5
        with pytest.raises(InvalidValueError, match="column 'data' does not exist"):
            publisher(read(spark, str(tmp_path), columns=["log_time"]), 1)


def test_sink_repeats_failed_batch_with_same_number(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    """What: the second batch fails behind the publisher. Why: a subscriber can drop what it has seen."""
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "000000.mcap").write_bytes(build_recording_head() + part(0) + part(5) + CLOSED)
    sub = msgq.sub_sock(endpoint)
    table = spark.readStream.format("msgq").option("maxBytesPerTrigger", "1").load(str(tmp_path / "log"))
    failed: list[int] = []

    with BusSink(endpoint) as publisher:

        def take(frame: DataFrame, batch: int) -> None:
            publisher(frame.select("sequence"), batch)
            if batch == 1 and not failed:
                failed.append(batch)
                raise ValueError("behind it")

        for _ in range(2):
            writer = table.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = writer.trigger(availableNow=True).start()
            wait_until(lambda query=query: not query.isActive, "the end", DEADLINE)  # type: ignore[misc]
    assert query.exception() is None
    came = [(row["batch"], row["sequence"]) for row in got(sub)]
    second = [(1, number) for number in range(5, 10)]
    assert came == [(0, number) for number in range(5)] + 2 * second


def test_sink_publishes_batch_table(spark: SparkSession, endpoint: str) -> None:
    sub = msgq.sub_sock(endpoint, segment_size=16 << 20)
    with BusSink(endpoint, segment_size=16 << 20) as publisher:
        assert publisher.publish(spark.range(100_000, numPartitions=4)) == 100_000
        assert got(sub) == [{"id": number} for number in range(100_000)]
        assert publisher.publish(spark.range(0)) == 0


def test_sink_converts_values_without_json_type(spark: SparkSession, endpoint: str) -> None:
    query = """SELECT binary('ab') AS b, null AS n, double('nan') AS x, timestamp'2026-01-01 01:02:03' AS t,
    array(1, null) AS a, named_struct('y', null) AS s, 1.50 AS d, map(1, 2) AS m, 9007199254740993 AS l"""
    sub = msgq.sub_sock(endpoint)
    with BusSink(endpoint) as publisher:
        publisher.publish(spark.sql(query))
    assert got(sub) == [
        {
            "b": "YWI=",
            "n": None,
            "x": "NaN",
            "t": "2026-01-01T01:02:03.000Z",
            "a": [1, None],
            "s": {"y": None},
            "d": 1.5,
            "m": {"1": 2},
            "l": 9007199254740993,
        }
    ]


def test_sink_refuses_unpublishable_values(spark: SparkSession, endpoint: str) -> None:
    numbers = spark.range(1)
    with BusSink(endpoint, "id") as publisher, pytest.raises(InvalidValueError, match="column 'id' has type bigint"):
        publisher.publish(numbers)
    with BusSink(endpoint) as publisher:
        with pytest.raises(
            InvalidValueError, match="column 'batch' exists already, but is reserved for the batch number"
        ):
            publisher(numbers.withColumnRenamed("id", "batch"), 3)
        assert publisher.publish(numbers.withColumnRenamed("id", "batch")) == 1
        with pytest.raises(MessageTooLargeError):
            publisher.publish(spark.sql("SELECT repeat('x', 1000000) AS x"))
        assert publisher.publish(spark.sql("SELECT 1 AS x")) == 1, "the next one is sent"


def test_sink_publishes_texts_and_skips_nulls(spark: SparkSession, endpoint: str) -> None:
    sub = msgq.sub_sock(endpoint)
    with BusSink(endpoint, "x") as publisher:
        rows = spark.sql("SELECT * FROM VALUES ('one'), (NULL), ('\u00e9') AS t(x)")
        assert publisher.publish(rows) == 2
    assert msgq.drain_sock_raw(sub) == [b"one", "\u00e9".encode()]
