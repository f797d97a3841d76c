"""Messages of the first hour and of the last one that 64 bits have, through all of a lake."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyspark")
from msgq.common import timing
from msgq.common.queue_events import Event
from msgq.common.units import NS_PER_S
from msgq.lake.metrics.saturating_time import MAX_TIME, MIN_TIME, compute_window_start, subtract_saturating
from msgq.lake.report import report_data as data
from msgq.lake.report.anomalies import examine_recording
from msgq.lake.report.gold_reader import GoldReader, open_lake_tables
from msgq.lake.report.report_page import write_report
from tests.lake import golds
from tests.lake.bronze_rows import HOUR, MIDNIGHT, Row, add, directory, row
from tests.spark.kind_logs import QueueEvent, RecordedMessage, of_queue
from tests.unit.stage_children import timing_record

TIMES = (MIN_TIME, -1, 0, 1, MIDNIGHT, MAX_TIME)


def report(lake: Path) -> None:
    """Make all figures of the page that have to do with time."""
    gold = GoldReader(open_lake_tables(directory(lake).uri))
    summary = data.read_report_summary(gold)
    begin, end = summary["begin"], summary["end"]
    step = data.choose_page_window_ns(begin, end)
    names = data.choose_endpoints(gold)
    assert sum(one["rate"] for one in data.read_throughput(gold, names, step, begin, end)) > 0
    data.read_losses(gold, names, step)
    data.read_latency(gold, step, begin, end)
    data.read_queue_timelines(gold, ["jobs"], step)
    write_report(open_lake_tables(directory(lake).uri), lake / "report.html")


def at(number: int, log_time: int, publish_time: int | None, origin_time: int) -> Row:
    said = RecordedMessage("a", number, log_time, b"x", publish_time=publish_time)
    return row(said) | {"origin_time": origin_time}


def some() -> list[Row]:
    """Return messages of all these times, and what events of a queue and a stage say of them."""
    rows = [at(number, *times) for number, times in enumerate(product(TIMES, (None, *TIMES), TIMES))]
    topic = timing.make_timing_topic("plan", "x")
    for number, (log_time, said) in enumerate(product(TIMES, TIMES)):
        told = [QueueEvent(Event.SENT, number, said), QueueEvent(Event.TAKEN, number, MIDNIGHT, 1, sent_time=said)]
        told += [QueueEvent(Event.ACKNOWLEDGED, number, said, 1, sent_time=said, taken_time=MIDNIGHT)]
        rows += [row(one) for one in of_queue("jobs", told, [log_time - one.time for one in told])]
        rows.append(row(RecordedMessage(topic, number, log_time, timing_record(0, 1, said, 1))))
    for number, one in enumerate(rows):
        one["sequence"] = number
    return rows


def test_all_64_bit_times_are_accepted(tmp_path: Path) -> None:
    rows = some()
    for first in range(2):
        add(directory(tmp_path), rows[first::2])
    golds.build_gold(tmp_path)
    found = {one["endpoint"]: one for one in golds.table(tmp_path, "endpoints").to_pylist()}
    assert sum(one["messages"] for one in found.values()) == len(rows)
    assert all((one["start_time"], one["end_time"]) == (MIN_TIME, MAX_TIME) for one in found.values())
    windows = [one for one in golds.table(tmp_path, "traffic_windows").to_pylist() if one["endpoint"] == "a"]
    begun = {max(time // HOUR * HOUR, MIN_TIME) for time in TIMES}
    assert {one["window_start"] for one in windows} == begun
    late = [one["log_time"] - one["publish_time"] for one in rows if one["publish_time"] is not None]
    known = [min(max(one, MIN_TIME), MAX_TIME) for one in late if one]
    total = {one["endpoint"]: one for one in golds.table(tmp_path, "latency_summary").to_pylist()}["a"]
    mine = [one for one in rows if one["endpoint"] == "a" and one["publish_time"] not in (None, one["log_time"])]
    assert (total["messages"], total["min"], total["max"]) == (len(mine), min(known), max(known))
    hops = golds.table(tmp_path, "hops").to_pylist()
    assert [(one["endpoint"], one["messages"]) for one in hops] == [
        ("a", len(TIMES) ** 2 * sum(time > 0 for time in TIMES))
    ]
    early = [one for one in golds.table(tmp_path, "checks").to_pylist() if one["check_name"] == "negative latency"]
    assert {one["value"] for one in early} == {MAX_TIME}
    assert sum(one["messages"] for one in golds.table(tmp_path, "stages").to_pylist()) > 0
    report(tmp_path)


@pytest.mark.parametrize(
    ("begin", "first", "last"),
    [
        pytest.param(MIN_TIME, 130, 180, id="a second before its window is below the range"),
        pytest.param(MAX_TIME - 20 * NS_PER_S, 1830, 1880, id="a second after its window is above the range"),
        pytest.param(MAX_TIME - 20 * NS_PER_S, 1702, 1728, id="the last window is emptier, but not whole"),
    ],
)
def test_short_dropout_in_first_and_last_seconds_is_found(tmp_path: Path, begin: int, first: int, last: int) -> None:
    step = NS_PER_S // 100
    times = [begin + number * step for number in range(2001) if not first < number < last]
    add(directory(tmp_path), [at(number, time, None, 1) for number, time in enumerate(times)])
    golds.build_gold(tmp_path)
    (dropout,) = examine_recording(GoldReader(open_lake_tables(directory(tmp_path).uri))).anomalies
    assert (dropout.kind, dropout.from_time, dropout.to_time) == ("dropout", begin + first * step, begin + last * step)
    report(tmp_path)


@pytest.mark.parametrize(("name", "time"), [("log_time", MIN_TIME), ("log_time", MAX_TIME), ("origin_time", MAX_TIME)])
def test_message_with_extreme_time_is_found(tmp_path: Path, name: str, time: int) -> None:
    add(directory(tmp_path), [at(0, MIDNIGHT, None, 1), at(1, MIDNIGHT, MIDNIGHT, 1) | {name: time}])
    assert golds.build_gold(tmp_path) == 1
    assert golds.table(tmp_path, "endpoints").column("messages").to_pylist() == [2]
    report(tmp_path)


def test_window_starts_and_durations_saturate_at_64_bits() -> None:
    times = np.array([MIN_TIME, MIN_TIME + 1, -1, 0, 1, MAX_TIME])
    for width in (1, NS_PER_S, HOUR):
        assert compute_window_start(times, width).tolist() == [
            max(time // width * width, MIN_TIME) for time in times.tolist()
        ]
        assert (
            compute_window_start(compute_window_start(times, width), width).tolist()
            == compute_window_start(times, width).tolist()
        )
    pairs = [(one, other) for one in times.tolist() for other in times.tolist()]
    one, other = np.array(pairs).T
    assert subtract_saturating(one, other).tolist() == [min(max(a - b, MIN_TIME), MAX_TIME) for a, b in pairs]
    assert subtract_saturating(times[:0], times[:0]).tolist() == []
