"""Each table against what a person would count by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")
from msgq.lake.metrics.images import COMPRESSED_IMAGE_SCHEMA, IMAGE_MAGICS, RAW_IMAGE_SCHEMA
from msgq.spark import tables
from tests.spark.rows import SECOND, message, messages, sorted_rows

TURN = 1 << 32


@pytest.mark.parametrize(
    ("sequences", "expected"),
    [
        ([0, 1, 2], []),
        ([5, 6, 9], [(6, 9, 2, 10, 20)]),
        ([0, 2, 1, 3], []),  # out of order
        ([0, 0, 1, 1, 3], [(1, 3, 1, 30, 40)]),  # duplicates
        ([TURN - 2, TURN - 1, 0, 1], []),
        ([TURN - 2, 1], [(TURN - 2, 1, 2, 0, 10)]),  # over the end of 32 bits
        ([0, 0, 0], []),
    ],
)
def test_sequence_gaps_are_found(spark: Any, sequences: Any, expected: Any) -> None:
    found = tables.sequence_gaps(messages(spark, [message("a", number, 10 * i) for i, number in enumerate(sequences)]))
    assert sorted_rows(found, "previous_sequence", "next_sequence", "lost", "from_time", "to_time") == expected


def test_gaps_do_not_depend_on_minute_partitions(spark: Any) -> None:
    """What is lost, late, or there twice lies about the borders of minutes, and the sequence turns over."""
    random = np.random.default_rng(1)
    rows, expected = [], []
    for endpoint in ("a", "b", "c"):
        lost = set(random.choice(np.arange(1, 599), 150, replace=False).tolist())
        kept = [number for number in range(600) if number not in lost]
        for number in kept:
            late = int(random.integers(0, 3)) * SECOND  # a message every second: some overtake others
            twice = 1 + (random.random() < 0.1)
            rows += [message(endpoint, (TURN - 300 + number) % TURN, number * SECOND + late)] * twice
        expected += [
            (endpoint, (TURN - 300 + before) % TURN, (TURN - 300 + after) % TURN, after - before - 1)
            for before, after in itertools.pairwise(kept)
            if after - before > 1
        ]
    found = tables.sequence_gaps(messages(spark, random.permutation(np.array(rows, object)).tolist()))
    assert sorted_rows(found, "endpoint", "previous_sequence", "next_sequence", "lost") == sorted(expected)


def test_new_epoch_is_not_a_gap(spark: Any) -> None:
    rows = [message("a", i, i) for i in range(3)] + [message("a", 10 + i, 100 + i, epoch=2) for i in range(3)]
    assert tables.sequence_gaps(messages(spark, rows)).count() == 0


def test_endpoints_table_has_totals(spark: Any) -> None:
    rows = [message("a", i, i * SECOND, data=b"x" * (i + 1)) for i in (0, 1, 3)]
    rows += [message("b", 0, 5, encoding="json", schema="B")]
    found = messages(spark, rows)
    columns = (
        "endpoint",
        "encoding",
        "schema",
        "messages",
        "size_bytes",
        "max_size_bytes",
        "start_time",
        "end_time",
        "rate",
        "epochs",
        "lost",
        "sequence_gaps",
    )
    assert sorted_rows(tables.endpoints(tables.traffic_windows(found), tables.sequence_gaps(found)), *columns) == [
        ("a", "", None, 3, 7, 4, 0, 3 * SECOND, 2 / 3, 1, 1, 1),
        ("b", "json", "B", 1, 4, 4, 5, 5, None, 1, 0, 0),
    ]


def test_traffic_windows_separate_endpoints(spark: Any) -> None:
    rows = [message("a", i, time, data=b"x" * i) for i, time in enumerate((7, SECOND - 1, SECOND))]
    rows += [message("a", 0, 8, publish_time=3, epoch=2), message("a", 1, 9, publish_time=10, epoch=2)]
    rows += [message("a", 2, 10, epoch=2, encoding="json", schema="A")]
    columns = (
        "epoch",
        "schema",
        "window_start",
        "messages",
        "size_bytes",
        "max_size_bytes",
        "start_time",
        "end_time",
        "count",
        "min",
        "max",
    )
    assert sorted_rows(tables.traffic_windows(messages(spark, rows)), *columns) == [
        (1, None, 0, 2, 1, 1, 7, SECOND - 1, 0, None, None),
        (1, None, SECOND, 1, 2, 2, SECOND, SECOND, 0, None, None),
        (2, None, 0, 2, 8, 4, 8, 9, 2, -1, 5),
        (2, "A", 0, 1, 4, 4, 10, 10, 0, None, None),
    ]


@pytest.mark.nightly
def test_traffic_window_width_depends_on_message_rate(spark: Any) -> None:
    """In each hour: 100 messages a second, 8, one in a minute; and one alone. What has no windows does not change."""
    hour = 3600 * SECOND
    rows = [message("fast", i, i * SECOND // 100 + 5, publish_time=i * SECOND // 100) for i in range(400)]
    rows += [message("slow", i, i * SECOND // 8) for i in range(800)]
    rows += [message("rare", i, 60 * i * SECOND) for i in range(60)]
    rows += [message("fast", 0, hour, epoch=2), message("fast", 2, 2 * hour - 1, epoch=2)]
    gold = tables.gold(messages(spark, rows))
    found = gold["traffic_windows"].groupBy("endpoint", "window_ns").count()
    widths = [("fast", 1, 4), ("fast", 3600, 1), ("rare", 3600, 1), ("slow", 10, 10)]
    assert sorted_rows(found, "endpoint", "window_ns", "count") == [(name, s * SECOND, n) for name, s, n in widths]
    rates = gold["throughput"].where("endpoint = 'fast'")
    assert sorted_rows(rates, "window_start", "window_ns", "messages", "size_bytes", "rate") == [
        *[(i * SECOND, SECOND, 100, 400, 100.0) for i in range(4)],
        (hour, hour, 2, 8, 2 / 3600),
    ]
    assert sorted_rows(gold["latency"], "window_start", "window_ns", "messages", "min", "p50", "max") == [
        (i * SECOND, SECOND, 100, 5, 5, 5) for i in range(4)
    ]
    assert sorted_rows(gold["sequence_gaps"], "endpoint", "lost") == [("fast", 1)]
    assert sorted_rows(gold["dropouts"], "endpoint", "from_time", "duration_ns") == [
        ("fast", 399 * SECOND // 100 + 5, hour - 399 * SECOND // 100 - 5),
        ("fast", hour, hour - 1),
    ]
    longer = tables.gold(messages(spark, rows), 60 * SECOND)
    assert sorted_rows(
        longer["traffic_windows"].where("endpoint = 'slow'"), "window_start", "window_ns", "messages"
    ) == [
        (0, 60 * SECOND, 480),
        (60 * SECOND, 60 * SECOND, 320),
    ]


def test_throughput_table_has_rates(spark: Any) -> None:
    rows = [message("a", i, time) for i, time in enumerate((0, 1, SECOND - 1, SECOND, 5 * SECOND))]
    found = tables.throughput(
        tables.traffic_windows(messages(spark, [*rows, message("a", 9, 2, epoch=2)]), SECOND // 2)
    )
    assert sorted_rows(found, "window_start", "window_ns", "messages", "size_bytes", "rate") == [
        (0, SECOND // 2, 3, 12, 6.0),
        (SECOND // 2, SECOND // 2, 1, 4, 2.0),
        (SECOND, SECOND // 2, 1, 4, 2.0),
        (5 * SECOND, SECOND // 2, 1, 4, 2.0),
    ]


def test_dropouts_are_found(spark: Any) -> None:
    base = 1_700_000_000 * SECOND + 123
    rows = [message("a", i, base + at) for i, at in enumerate((0, 10, SECOND + 10, SECOND + 20, 9 * SECOND))]
    rows += [message("b", 0, base)]
    found = tables.dropouts(tables.traffic_windows(messages(spark, rows)), dropout_ns=SECOND)
    assert sorted_rows(found, "endpoint", "from_time", "to_time", "duration_ns", "period_ns") == [
        ("a", base + 10, base + SECOND + 10, SECOND, 10),
        ("a", base + SECOND + 20, base + 9 * SECOND, 8 * SECOND - 20, 10),
    ]


def test_latency_summary_adds_known_latencies_of_all_windows(spark: Any) -> None:
    late = np.random.default_rng(1).integers(1, 10**6, 5000).tolist()
    rows = [message("a", i, i * 10**6 + 10**9, publish_time=i * 10**6 + 10**9 - ns) for i, ns in enumerate(late)]
    rows += [message("a", 9999, 10**9)]
    windows = tables.latency(tables.traffic_windows(messages(spark, rows)))
    assert sorted_rows(windows, "window_start", "messages") == [(i * SECOND, 1000) for i in range(1, 6)]
    total = tables.latency_summary(windows).collect()[0]
    assert (total["messages"], total["min"], total["max"]) == (5000, min(late), max(late))
    for name, rank in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
        assert total[name] == pytest.approx(np.percentile(late, 100 * rank, method="inverted_cdf"), rel=0.022)


def test_hops_table_follows_origin_time_of_messages(spark: Any) -> None:
    from pyspark.sql import functions as F

    rows = []
    for i in range(10):
        origin = i * SECOND
        times = {"sensor": 5, "filter": 25, "planner": 65}
        rows += [message(endpoint, i, origin + after) for endpoint, after in times.items()]
    found = messages(spark, rows).withColumn("origin_time", F.expr(f"log_time - log_time % {SECOND} + 1"))
    found = found.unionByName(messages(spark, [message("other", 0, 7)]).withColumn("origin_time", F.lit(0)))
    assert sorted_rows(tables.hops(found), "parent", "endpoint", "messages", "p50", "max", "e2e_p50") == [
        (None, "sensor", 10, None, None, 4),
        ("filter", "planner", 10, 40, 40, 64),
        ("sensor", "filter", 10, 20, 20, 24),
    ]


def test_messages_without_origin_time_have_no_hops(spark: Any) -> None:
    found = tables.hops(messages(spark, [message("a", 0, 1)]))
    assert found.count() == 0
    assert found.columns == ["run", "parent", "endpoint", "messages", "p50", "p99", "max", "e2e_p50"]


def test_checks_table_has_result_of_each_check(spark: Any) -> None:
    rows = [message("a", i, i * SECOND, publish_time=i * SECOND - 10) for i in (0, 1, 3)]
    rows += [message("b", 0, 5, publish_time=7), message("b", 0, 6, epoch=2, publish_time=5)]
    thresholds = tables.CheckThresholds(lost=0, latency_p99_ns=5, dropout_ns=3 * SECOND, epochs=1)
    found = tables.gold(messages(spark, rows), thresholds=thresholds)["checks"]
    assert sorted_rows(found, "endpoint", "check_name", "passed", "value", "threshold") == [
        ("a", "dropout", True, 0, 3 * SECOND),
        ("a", "epochs", True, 1, 1),
        ("a", "latency p99", False, 10, 5),
        ("a", "lost", False, 1, 0),
        ("a", "negative latency", True, 0, 0),
        ("b", "dropout", True, 0, 3 * SECOND),
        ("b", "epochs", False, 2, 1),
        ("b", "latency p99", True, 1, 5),
        ("b", "lost", True, 0, 0),
        ("b", "negative latency", False, 2, 0),
    ]


def test_frames_table_has_frame_endpoints(spark: Any) -> None:
    rows = [message("camera", i, i, data=IMAGE_MAGICS["png"]) for i in range(20)]
    rows += [
        message("raw", 0, 20, schema=RAW_IMAGE_SCHEMA),
        message("jpeg", 0, 0, schema=COMPRESSED_IMAGE_SCHEMA),
        message("a", 0, 0),
    ]
    found = tables.frames(messages(spark, rows)).groupBy("endpoint", "format").count()
    assert sorted_rows(found, "endpoint", "format", "count") == [
        ("camera", "png", 20),
        ("jpeg", "jpeg", 1),
        ("raw", "raw", 1),
    ]


def test_gold_of_no_messages_is_empty(spark: Any) -> None:
    made = tables.gold(messages(spark, []))
    assert {name: table.count() for name, table in made.items()} == dict.fromkeys(made, 0)
