"""Gaps and endpoints against a slow, obvious way to find them, on messages that come in every order."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from msgq.lake.metrics import islands
from msgq.spark import tables
from tests.spark.rows import SECOND, message, messages, sorted_rows

TURN, HALF = 1 << 32, 1 << 31
CASES = 40
STARTS = (0, 1, HALF - 3, HALF, TURN - 5, TURN - 1)
TIMES = (0, -5, 60 * SECOND - 10, -60 * SECOND - 3, 1_700_000_000 * SECOND)
STEPS = (0, 1, SECOND, 61 * SECOND)


def a_stream(rng: random.Random, endpoint: str, start: int) -> list[dict[str, Any]]:
    """Return the messages of an epoch: some lost, late, twice, after a jump of the clock, or without a number."""
    time, step = rng.choice(TIMES), rng.choice(STEPS)
    epoch, number, rows = rng.choice((0, 1, -1, None)), 0, []
    for _ in range(rng.choice((1, 2, 30))):
        number += rng.choice((1, 1, 1, 1, 1, 1, 2, 70_000))
        time += step if rng.random() < 0.95 else rng.choice((-1, 1)) * 3600 * SECOND
        for _ in range(1 + (rng.random() < 0.15)):
            at = time + rng.choice((0, 0, 5, step, -2 * step))
            more = {"epoch": epoch, "publish_time": rng.choice((0, -1, at))}
            rows.append(message(endpoint, (start + number) % TURN, at, **more))
    if rng.random() < 0.1:
        rows.append(message(endpoint, None, time, epoch=epoch))
    return rows


def some_messages() -> list[dict[str, Any]]:
    rng, rows = random.Random(1), []
    for case in range(CASES):
        start = rng.choice(STARTS)  # one for a case: numbers of an epoch are not half a turn apart
        mine = [{**row, "run": str(case)} for one in ("a", "b", "a") for row in a_stream(rng, one, start)]
        if case % 2:  # shuffled rows of recorders, else rows in the order of files of many hosts
            rng.shuffle(mine)
        rows += mine
    turns = [message("a", i * (HALF // 2 + 1) % TURN, 61 * i * SECOND, run="turns") for i in range(60)]
    return rows + rng.sample(turns, len(turns))  # an epoch of 15 turns, whose minutes do not come in their order


def expected_gaps(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Unroll each epoch's numbers in order of time, message by message, and look at each two that follow each other."""
    epochs = defaultdict(list)
    for row in rows:
        if row["sequence"] is not None:
            epochs[row["run"], row["endpoint"], row["epoch"]].append((row["log_time"], row["sequence"]))
    found = []
    for key, recorded in epochs.items():
        times, number, before = defaultdict(list), 0, min(recorded)[1]
        for time, sequence in sorted(recorded):
            step = (sequence - before) % TURN
            number += step if step < HALF else step - TURN
            before = sequence
            times[number].append(time)
        first, numbers = min(recorded)[1], sorted(times)
        found += [
            (
                *key,
                (first + one) % TURN,
                (first + next_one) % TURN,
                next_one - one - 1,
                max(times[one]),
                min(times[next_one]),
            )
            for one, next_one in itertools.pairwise(numbers)
            if next_one - one > 1
        ]
    return sorted(found, key=lambda row: [(value is not None, value) for value in row])


def test_consecutive_sequence_numbers_form_one_island() -> None:
    """However they come; it is islands that Spark sorts, not messages."""
    sent = [("r", "ab"[i % 2], 1, (TURN - 500 + i // 2) % TURN, i) for i in range(2000)]
    random.Random(1).shuffle(sent)
    names = ("run", "endpoint", "epoch", "sequence", "log_time")
    batch = pa.Table.from_pylist([dict(zip(names, one, strict=True)) for one in [*sent, *sent[:100]]])
    assert not islands.find_sequence_islands(batch.slice(0, 0), islands.EPOCH_KEY_COLUMNS).num_rows
    found = islands.find_sequence_islands(batch, islands.EPOCH_KEY_COLUMNS)
    rows = sorted(found.select(["endpoint", "base", "low", "high"]).to_pylist(), key=lambda row: row["endpoint"])
    assert [tuple(row.values()) for row in rows] == [("a", TURN - 500, 0, 999), ("b", TURN - 500, 0, 999)]


@pytest.mark.parametrize(("batch", "partitions"), [(50, 3), (10_000, 1)])
def test_gaps_do_not_depend_on_message_order_and_batches(spark: Any, batch: Any, partitions: Any) -> None:
    """Islands of batches touch each other, lie in one another, and are of many endpoints in one batch."""
    rows = some_messages()
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", batch)
    try:
        found = tables.sequence_gaps(messages(spark, rows).repartition(partitions))
        columns = ("run", "endpoint", "epoch", "previous_sequence", "next_sequence", "lost", "from_time", "to_time")
        assert sorted_rows(found, *columns) == expected_gaps(rows)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_endpoints_do_not_depend_on_message_order(spark: Any) -> None:
    rng, rows = random.Random(2), some_messages()
    for row in rows:
        row |= {"host": rng.choice("hi"), "schema": rng.choice((None, "S")), "data": bytes(rng.randrange(9))}
    mine = defaultdict(list)
    for row in rows:
        mine[row["run"], row["endpoint"]].append(row)
    lost = defaultdict(list)
    for run, endpoint, *_, missing, _, _ in expected_gaps(rows):
        lost[run, endpoint].append(missing)
    table = messages(spark, rows).repartition(3)
    found = tables.endpoints(tables.traffic_windows(table), tables.sequence_gaps(table)).collect()
    assert len(found) == len(mine)
    for one in found:
        key = one["run"], one["endpoint"]
        times = [row["log_time"] for row in mine[key]]
        sizes = [len(row["data"]) for row in mine[key]]
        assert (one["messages"], one["size_bytes"], one["max_size_bytes"]) == (len(sizes), sum(sizes), max(sizes))
        assert (one["start_time"], one["end_time"]) == (min(times), max(times))
        assert one["epochs"] == len({row["epoch"] for row in mine[key]} - {None})
        assert (one["lost"], one["sequence_gaps"]) == (sum(lost[key]), len(lost[key]))
        newest = [(row["host"], row["schema"]) for row in mine[key] if row["log_time"] == max(times)]
        assert (one["host"], one["schema"]) in newest
        span = (max(times) - min(times)) / 1e9
        assert one["rate"] == (pytest.approx((len(sizes) - 1) / span) if span else None)
