"""Thresholds of anomalies: a loss, dropout or late message counts from its limit on, and not before."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyarrow")
from msgq.lake.report.anomalies import examine_recording
from msgq.lake.report.gold_reader import GoldReader
from tests.report.gold import BEGIN, SECOND, Tables, endpoint, histogram

MS = SECOND // 1000
DATE = datetime.fromtimestamp(BEGIN // SECOND, UTC).date().isoformat()


def latency_tables(late_windows: dict[int, int]) -> Tables:
    """Return gold of an endpoint with 100 messages/s and 0.2 ms, and so many late ones of 50 ms in some seconds."""
    windows = []
    for second in range(60):
        late = late_windows.get(second, 0)
        counts = histogram({282: 100 - late} | ({410: late} if late else {}))
        row = {"run": "r", "endpoint": "a", "window_start": BEGIN + second * SECOND, "window_ns": SECOND}
        p50 = 50_000_000 if late > 50 else 200_000
        windows.append(row | {"messages": 100, "p50": p50, "max": 50_000_000 if late else 200_000, "histogram": counts})
    summary = {"run": "r", "endpoint": "a", "messages": 6000, "min": 9, "p50": 200_000, "max": 50_000_000}
    summary["histogram"] = []
    rows = [endpoint("a", messages=6000, start_time=BEGIN, end_time=BEGIN + 60 * SECOND)]
    return Tables(endpoints=rows, latency=windows, latency_summary=[summary])


def test_examination_of_fast_endpoint_reads_windows_only() -> None:
    (anomaly,) = examine_recording(GoldReader(latency_tables({3: 2, 20: 100, 21: 100, 22: 50, 40: 60}))).anomalies
    assert anomaly.value == pytest.approx(50_000_000, rel=0.022)
    assert (anomaly.usual, anomaly.times) == (200_000, 2)
    assert ((anomaly.from_time - BEGIN) / SECOND, (anomaly.to_time - BEGIN) / SECOND) == (20, 23)
    assert anomaly.share == 310 / 6000


def test_examination_ignores_scattered_late_messages() -> None:
    assert examine_recording(GoldReader(latency_tables(dict.fromkeys(range(60), 30)))).anomalies == []


def test_fast_endpoint_with_half_of_its_messages_late_is_listed() -> None:
    late = {second: 45 + second % 10 for second in range(20, 35)}
    (anomaly,) = examine_recording(GoldReader(latency_tables(late))).anomalies
    assert ((anomaly.from_time - BEGIN) / SECOND, (anomaly.to_time - BEGIN) / SECOND) == (20, 35)


@pytest.mark.parametrize(("late", "count"), [({5: 30}, 0), ({5: 30, 6: 30}, 1), ({5: 51}, 1)], ids=str)
def test_short_pause_in_one_window_is_no_late_period(late: dict[int, int], count: int) -> None:
    assert len(examine_recording(GoldReader(latency_tables(late))).anomalies) == count


def late_messages(
    latency_ns: int = 2_000_000, usual_ns: int = 200_000, late: int = 5, span_ns: int = SECOND, known: int = 20
) -> Tables:
    """Return gold of a slow endpoint with late messages in sequence, at each threshold by default."""
    times = [BEGIN + 9 * SECOND, *(BEGIN + 10 * SECOND + span_ns * n // (late - 1) for n in range(late))]
    return slow_tables(times, [usual_ns] + [latency_ns] * late, usual_ns, known)


def test_more_late_messages_than_the_histogram_shows_are_a_late_period() -> None:
    """A bucket of a histogram is 4 % wide, so that it can hold late messages and others."""
    late = [100_100_000] * 40
    latencies = [10_000_000] * 60 + late
    tables = slow_tables([BEGIN + n * SECOND // 10 for n in range(100)], latencies, 10_000_000, 100)
    tables["latency"][0]["histogram"] = histogram({426: 6})
    (anomaly,) = examine_recording(GoldReader(tables)).anomalies
    assert (anomaly.kind, anomaly.value) == ("latency", 100_100_000)


def slow_tables(times: list[int], latencies: list[int], usual_ns: int, known: int) -> Tables:
    """Return gold of an endpoint with less than 64 messages/s, of which `known` have a latency in the whole run."""
    late = sum(latency != usual_ns for latency in latencies)
    row = {"run": "r", "endpoint": "a", "messages": known, "min": 9, "p50": usual_ns, "max": max(latencies)}
    messages = [
        {"run": "r", "endpoint": "a", "date": DATE, "log_time": time, "publish_time": time - latency}
        for time, latency in zip(times, latencies, strict=True)
    ]
    window = row | {"window_start": BEGIN, "window_ns": 60 * SECOND, "histogram": histogram({410: late})}
    rows = [endpoint("a", messages=known, start_time=BEGIN, end_time=BEGIN + 60 * SECOND)]
    return Tables(endpoints=rows, latency_summary=[row | {"histogram": []}], latency=[window], messages=messages)


def slow_endpoint_tables(share: float, seconds: range, seed: int) -> Tables:
    """Return gold of an endpoint with 10 messages/s in a minute, of which a share was late by 50 ms in some seconds."""
    chance = random.Random(seed)
    times = [BEGIN + n * SECOND // 10 for n in range(600)]
    is_late = [n // 10 in seconds and chance.random() < share for n in range(600)]
    return slow_tables(times, [50_000_000 if late else 30_000 for late in is_late], 30_000, 600)


@pytest.mark.parametrize("share", [0.5, 0.8, 1.0])
@pytest.mark.parametrize("seed", range(10))
def test_slow_endpoint_with_many_late_messages_is_listed(share: float, seed: int) -> None:
    (anomaly,) = examine_recording(GoldReader(slow_endpoint_tables(share, range(20, 35), seed))).anomalies
    assert (anomaly.kind, anomaly.value, anomaly.usual) == ("latency", 50_000_000, 30_000)
    assert (anomaly.from_time - BEGIN) / SECOND == pytest.approx(20, abs=3)
    assert (anomaly.to_time - BEGIN) / SECOND == pytest.approx(35, abs=3)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.2])
@pytest.mark.parametrize("seed", range(10))
def test_endpoint_with_the_same_share_of_late_messages_all_the_time_is_not_listed(share: float, seed: int) -> None:
    assert examine_recording(GoldReader(slow_endpoint_tables(share, range(60), seed))).anomalies == []


@pytest.mark.parametrize(
    ("at_threshold", "below"),
    [
        ({"latency_ns": 2_000_000}, {"latency_ns": 1_999_999}),  # ten times the usual latency
        ({"latency_ns": 1_010_000, "usual_ns": 10_000}, {"latency_ns": 1_009_999, "usual_ns": 10_000}),  # 1 ms more
        ({"late": 5}, {"late": 4}),
        ({"span_ns": SECOND}, {"span_ns": SECOND - 1}),
        ({"known": 20}, {"known": 19}),
    ],
    ids=str,
)
def test_latency_anomaly_begins_at_each_threshold(at_threshold: dict[str, int], below: dict[str, int]) -> None:
    (anomaly,) = examine_recording(GoldReader(late_messages(**at_threshold))).anomalies
    assert (anomaly.kind, anomaly.from_time) == ("latency", BEGIN + 10 * SECOND)
    assert examine_recording(GoldReader(late_messages(**below))).anomalies == []


def silent_at_the_end(quiet_ns: int, bucket: int) -> Tables:
    """Return gold of three endpoints, of which one sends its last message before the others."""
    ends = {"alive": 100 * SECOND, "also": 100 * SECOND, "dead": 100 * SECOND - quiet_ns}
    rows = [endpoint(name, messages=99, start_time=BEGIN, end_time=BEGIN + end) for name, end in ends.items()]
    hours = [{"run": "r", "endpoint": name, "histogram": histogram({bucket: 98})} for name in ends]
    return Tables(endpoints=rows, _intervals=hours)


@pytest.mark.parametrize(("bucket", "smallest_periods"), [(479, 20), (123, None)], ids=["periods", "1 s"])
def test_dropout_at_the_end_begins_at_each_threshold(bucket: int, smallest_periods: int | None) -> None:
    (typical,) = examine_recording(GoldReader(silent_at_the_end(99 * SECOND, bucket))).anomalies
    threshold = smallest_periods * typical.usual if smallest_periods else SECOND
    (anomaly,) = examine_recording(GoldReader(silent_at_the_end(threshold, bucket))).anomalies
    assert (anomaly.kind, anomaly.endpoint, anomaly.value) == ("dropout", "dead", threshold)
    assert examine_recording(GoldReader(silent_at_the_end(threshold - 1, bucket))).anomalies == []


@pytest.mark.parametrize(("duration_ns", "count"), [(2_000_000_000, 1), (1_999_999_999, 0)])
def test_dropout_inside_takes_twenty_usual_intervals(duration_ns: int, count: int) -> None:
    times = {"from_time": BEGIN + SECOND, "to_time": BEGIN + SECOND + duration_ns, "duration_ns": duration_ns}
    row = {"run": "r", "endpoint": "a", "period_ns": 100_000_000} | times
    rows = [endpoint("a", messages=99, start_time=BEGIN, end_time=BEGIN + 60 * SECOND)]
    assert len(examine_recording(GoldReader(Tables(endpoints=rows, dropouts=[row]))).anomalies) == count


@pytest.mark.parametrize(("min_ns", "count"), [(-1_000_000, 1), (-999_999, 0)])
def test_clock_anomaly_begins_at_one_millisecond(min_ns: int, count: int) -> None:
    row = {"run": "r", "endpoint": "a", "messages": 10, "p50": 200, "max": 300, "min": min_ns}
    row["histogram"] = histogram({-300: 4, 123: 6})
    window = row | {"window_start": BEGIN, "window_ns": SECOND}
    rows = [endpoint("a", messages=10, end_time=BEGIN + SECOND)]
    tables = Tables(endpoints=rows, latency_summary=[row], latency=[window])
    assert len(examine_recording(GoldReader(tables)).anomalies) == count


def fast_with_pause(
    duration_ns: int = 200 * MS, interval_ns: int = 10 * MS, rate: float = 64.0, sent: int = 57
) -> Tables:
    """Return gold of a fast endpoint with one pause, at each threshold by default."""
    before = [BEGIN + 3 * SECOND + interval_ns * n for n in range(100)]
    times = [*before, *(before[-1] + duration_ns + interval_ns * n for n in range(100))]
    messages = [{"run": "r", "endpoint": "a", "date": DATE, "log_time": time} for time in times]
    window = {"run": "r", "endpoint": "a", "window_start": BEGIN + 4 * SECOND, "window_ns": SECOND, "messages": sent}
    rows = [endpoint("a", messages=640, start_time=BEGIN, end_time=BEGIN + 10 * SECOND, rate=rate)]
    return Tables(endpoints=rows, throughput=[window], messages=messages)


@pytest.mark.parametrize(
    ("at_threshold", "below"),
    [
        ({}, {"duration_ns": 200 * MS - 1, "interval_ns": 9 * MS}),
        ({}, {"interval_ns": 10 * MS + 1}),  # 20 usual intervals
        ({"duration_ns": SECOND - 1}, {"duration_ns": SECOND}),  # the table of dropouts has longer ones
        ({}, {"rate": 63.9}),
        ({"rate": 100.0, "sent": 89}, {"rate": 100.0, "sent": 90}),
    ],
    ids=str,
)
def test_short_dropout_begins_at_each_threshold(at_threshold: dict[str, int], below: dict[str, int]) -> None:
    (anomaly,) = examine_recording(GoldReader(fast_with_pause(**at_threshold))).anomalies
    assert (anomaly.kind, anomaly.usual, anomaly.times) == ("dropout", 10 * MS, 1)
    assert examine_recording(GoldReader(fast_with_pause(**below))).anomalies == []
