"""Each table against what a person would count by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")
from msgq.spark import tables
from tests.spark.rows import SECOND, listed, message, messages
from visionipc import FrameFormat, Geometry
from visionipc.recorded import IMAGE, Picture, image

TURN = 1 << 32


def test_a_message_counts_once_however_often_it_is_there(spark: Any) -> None:
    rows = [message("a", i, 10 * i) for i in range(5)]
    found = tables.deduplicated(messages(spark, rows + rows[1:3]))
    assert listed(found, "sequence") == [(i,) for i in range(5)]


def test_messages_that_are_known_are_not_new(spark: Any) -> None:
    known = [message("a", i, 10 * i) for i in range(3)]
    found = tables.deduplicated(
        messages(spark, [*known, message("a", 3, 30), message("a", 2, 20, run="other")]), messages(spark, known)
    )
    assert listed(found, "run", "sequence") == [("other", 2), ("r", 3)]


def test_a_sequence_that_comes_again_after_a_whole_turn_is_another_message(spark: Any) -> None:
    assert tables.deduplicated(messages(spark, [message("a", 7, 10), message("a", 7, 20)])).count() == 2


def test_files_that_number_nothing_keep_their_different_messages(spark: Any) -> None:
    rows = [message("a", 0, 10, epoch=0, data=data) for data in (b"1", b"2", b"2")]
    assert listed(tables.deduplicated(messages(spark, rows)), "data") == [(b"1",), (b"2",)]


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
def test_gaps(spark: Any, sequences: Any, expected: Any) -> None:
    found = tables.gaps(messages(spark, [message("a", number, 10 * i) for i, number in enumerate(sequences)]))
    assert listed(found, "before", "after", "lost", "from_time", "to_time") == expected


def test_gaps_do_not_depend_on_the_minutes_that_share_the_work(spark: Any) -> None:
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
    found = tables.gaps(messages(spark, random.permutation(np.array(rows, object)).tolist()))
    assert listed(found, "endpoint", "before", "after", "lost") == sorted(expected)


def test_a_new_epoch_is_no_gap(spark: Any) -> None:
    rows = [message("a", i, i) for i in range(3)] + [message("a", 10 + i, 100 + i, epoch=2) for i in range(3)]
    assert tables.gaps(messages(spark, rows)).count() == 0


def test_endpoints(spark: Any) -> None:
    rows = [message("a", i, i * SECOND, data=b"x" * (i + 1)) for i in (0, 1, 3)]
    rows += [message("b", 0, 5, encoding="json", schema="B")]
    found = messages(spark, rows)
    columns = (
        "endpoint",
        "encoding",
        "schema",
        "messages",
        "bytes",
        "bytes_max",
        "first_time",
        "last_time",
        "rate",
        "epochs",
        "lost",
        "gaps",
    )
    assert listed(tables.endpoints(tables.windows(found), tables.gaps(found)), *columns) == [
        ("a", "", None, 3, 7, 4, 0, 3 * SECOND, 2 / 3, 1, 1, 1),
        ("b", "json", "B", 1, 4, 4, 5, 5, None, 1, 0, 0),
    ]


def test_windows_tell_apart_what_concerns_one_endpoint(spark: Any) -> None:
    rows = [message("a", i, time, data=b"x" * i) for i, time in enumerate((7, SECOND - 1, SECOND))]
    rows += [message("a", 0, 8, publish_time=3, epoch=2), message("a", 1, 9, publish_time=10, epoch=2)]
    rows += [message("a", 2, 10, epoch=2, encoding="json", schema="A")]
    columns = (
        "epoch",
        "schema",
        "time",
        "messages",
        "bytes",
        "bytes_max",
        "first_time",
        "last_time",
        "known",
        "min",
        "max",
    )
    assert listed(tables.windows(messages(spark, rows)), *columns) == [
        (1, None, 0, 2, 1, 1, 7, SECOND - 1, 0, None, None),
        (1, None, SECOND, 1, 2, 2, SECOND, SECOND, 0, None, None),
        (2, None, 0, 2, 8, 4, 8, 9, 2, -1, 5),
        (2, "A", 0, 1, 4, 4, 10, 10, 0, None, None),
    ]


def test_gold_of_long_windows(spark: Any) -> None:
    """What has no windows is as with short ones."""
    rows = [message("a", i, i * SECOND + 5, publish_time=i * SECOND) for i in range(8)]
    rows += [message("a", 9, 70 * SECOND, epoch=2)]
    long = tables.gold(messages(spark, rows), 60 * SECOND)
    assert listed(long["silences"], "silence") == [*[(SECOND,)] * 7, (63 * SECOND - 5,)]
    assert listed(long["rates"], "time", "messages", "bytes", "rate") == [
        (0, 8, 32, 8 / 60),
        (60 * SECOND, 1, 4, 1 / 60),
    ]
    assert listed(long["latency"], "time", "messages", "min", "p50", "max") == [(0, 8, 5, 5, 5)]


def test_rates(spark: Any) -> None:
    rows = [message("a", i, time) for i, time in enumerate((0, 1, SECOND - 1, SECOND, 5 * SECOND))]
    found = tables.rates(tables.windows(messages(spark, rows), SECOND // 2), window_ns=SECOND)
    assert listed(found, "time", "messages", "bytes", "rate") == [
        (0, 3, 12, 3.0),
        (SECOND, 1, 4, 1.0),
        (5 * SECOND, 1, 4, 1.0),
    ]


def test_silences(spark: Any) -> None:
    base = 1_700_000_000 * SECOND + 123
    rows = [message("a", i, base + at) for i, at in enumerate((0, 10, SECOND + 10, SECOND + 20, 9 * SECOND))]
    rows += [message("b", 0, base)]
    found = tables.silences(tables.windows(messages(spark, rows)), silence_ns=SECOND)
    assert listed(found, "endpoint", "from_time", "to_time", "silence") == [
        ("a", base + 10, base + SECOND + 10, SECOND),
        ("a", base + SECOND + 20, base + 9 * SECOND, 8 * SECOND - 20),
    ]


def test_latency_counts_what_is_known_and_its_totals_come_from_its_windows(spark: Any) -> None:
    late = np.random.default_rng(1).integers(1, 10**6, 5000).tolist()
    rows = [message("a", i, i * 10**6 + 10**9, publish_time=i * 10**6 + 10**9 - ns) for i, ns in enumerate(late)]
    rows += [message("a", 9999, 10**9)]
    windows = tables.latency(tables.windows(messages(spark, rows), SECOND // 4), window_ns=SECOND)
    assert listed(windows, "time", "messages") == [(i * SECOND, 1000) for i in range(1, 6)]
    total = tables.latency_totals(windows).collect()[0]
    assert (total["messages"], total["min"], total["max"]) == (5000, min(late), max(late))
    for name, rank in (("p50", 0.5), ("p99", 0.99)):
        assert abs(np.mean(np.array(late) <= total[name]) - rank) < 0.02


def test_hops_follow_the_time_of_origin(spark: Any) -> None:
    from pyspark.sql import functions as F

    rows = []
    for i in range(10):
        origin = i * SECOND
        times = {"sensor": 5, "filter": 25, "planner": 65}
        rows += [message(endpoint, i, origin + after) for endpoint, after in times.items()]
    found = messages(spark, rows).withColumn("origin_time", F.expr(f"log_time - log_time % {SECOND} + 1"))
    found = found.unionByName(messages(spark, [message("other", 0, 7)]).withColumn("origin_time", F.lit(0)))
    assert listed(tables.hops(found), "parent", "endpoint", "messages", "p50", "max", "from_origin") == [
        (None, "sensor", 10, None, None, 4),
        ("filter", "planner", 10, 40, 40, 64),
        ("sensor", "filter", 10, 20, 20, 24),
    ]


def test_there_are_no_hops_without_a_time_of_origin(spark: Any) -> None:
    found = tables.hops(messages(spark, [message("a", 0, 1)]))
    assert found.count() == 0
    assert found.columns == ["run", "parent", "endpoint", "messages", "p50", "p99", "max", "from_origin"]


def test_checks_say_what_passed(spark: Any) -> None:
    rows = [message("a", i, i * SECOND, publish_time=i * SECOND - 10) for i in (0, 1, 3)]
    rows += [message("b", 0, 5, publish_time=7), message("b", 0, 6, epoch=2, publish_time=5)]
    limits = tables.Limits(lost=0, latency_p99_ns=5, silence_ns=3 * SECOND, epochs=1)
    found = tables.gold(messages(spark, rows), limits=limits)["checks"]
    assert listed(found, "endpoint", "check", "passed", "value", "limit") == [
        ("a", "early", True, 0, 0),
        ("a", "epochs", True, 1, 1),
        ("a", "latency p99", False, 10, 5),
        ("a", "lost", False, 1, 0),
        ("a", "silence", True, 2 * SECOND, 3 * SECOND),
        ("b", "early", False, 2, 0),
        ("b", "epochs", False, 2, 1),
        ("b", "latency p99", True, 1, 5),
        ("b", "lost", True, 0, 0),
        ("b", "silence", True, 0, 3 * SECOND),
    ]


def test_frames_are_found_and_made_small(spark: Any) -> None:
    cv2 = pytest.importorskip("cv2")
    picture = cv2.imencode(".png", np.zeros((240, 320, 3), np.uint8))[1].tobytes()
    rows = [message("camera", i, i, data=picture) for i in range(20)]
    rows += [message("camera", 20, 20, data=picture[:40]), message("a", 0, 0)]
    found = messages(spark, rows)
    pointers = tables.frames(found)
    kinds = pointers.groupBy("endpoint", "format").count()
    assert listed(kinds, "endpoint", "format", "count") == [("camera", "png", 21)]
    small = tables.thumbnails(found, pointers, count=4, width=80).collect()
    assert len(small) == 4
    assert {cv2.imdecode(np.frombuffer(row["picture"], np.uint8), 1).shape for row in small} == {(60, 80, 3)}


@pytest.mark.parametrize(
    ("kind", "shape", "color"),
    [("RGB24", (60, 300), (255, 0, 0)), ("NV12", (90, 128), None), ("GRAY8", (60, 80), (200, 200, 200))],
)
def test_raw_frames_as_a_recorder_writes_them_are_pictures(spark: Any, kind: Any, shape: Any, color: Any) -> None:
    cv2 = pytest.importorskip("cv2")
    pixels = np.full(shape, 200, np.uint8)
    if kind == "RGB24":
        pixels[:, :240] = np.tile([255, 0, 0], 80)  # behind it the line is padded
    layout = Geometry(FrameFormat[kind], 80, 60, shape[1], 60 * shape[1] if kind == "NV12" else 0, pixels.nbytes)
    data = image(Picture(layout, 123, 5, pixels))
    row = message("camera", 0, 10, data=data, schema=IMAGE.name)
    found = messages(spark, [row])
    pointers = tables.frames(found)
    assert listed(pointers, "format") == [("raw",)]
    small = tables.thumbnails(found, pointers).collect()[0]["picture"]
    picture = cv2.imdecode(np.frombuffer(small, np.uint8), 1)
    assert picture.shape == (60, 80, 3)
    assert color is None or np.abs(picture[30, 40, ::-1].astype(int) - color).max() < 5


def test_all_of_gold_is_made_of_no_messages(spark: Any) -> None:
    made = tables.gold(messages(spark, []))
    assert {name: table.count() for name, table in made.items()} == dict.fromkeys(made, 0)
