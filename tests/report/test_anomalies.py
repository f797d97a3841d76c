"""Anomalies: known trouble among 300 endpoints, a healthy recording, and the page in a browser."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("plotly")
from msgq.common.queue_events import Event
from msgq.lake.metrics.checks import CheckThresholds, compute_checks
from msgq.lake.report.anomalies import Anomaly, Examination, examine_recording
from msgq.lake.report.gold_reader import GoldReader, open_lake_tables
from msgq.recording import LogReader
from tests.command import run
from tests.report.gold import SECOND, Tables, endpoint, histogram
from tests.report.recordings import BEGIN, TROUBLES, Trouble, ingest_recording
from tests.spark.kind_logs import QueueEvent, RecordedMessage, of_queue, write_kinds


def examine(lake: Path) -> Examination:
    return examine_recording(GoldReader(open_lake_tables(lake)))


def is_same_trouble(anomaly: Anomaly, trouble: Trouble) -> bool:
    """Whether the times agree to the interval of the slowest endpoint."""
    times = anomaly.from_time - trouble.from_s * SECOND - BEGIN, anomaly.to_time - trouble.to_s * SECOND - BEGIN
    return all(abs(difference) <= 1.2 * SECOND for difference in times)


def test_examination_finds_exactly_the_troubled_endpoints(folder: Path) -> None:
    found = examine(folder / "trouble.lake")
    by_endpoint = {anomaly.endpoint: anomaly for anomaly in found.anomalies}
    assert len(found.anomalies) == len(by_endpoint) == len(TROUBLES) == 13
    for trouble in TROUBLES:
        anomaly = by_endpoint[trouble.endpoint]
        assert anomaly.kind == trouble.kind
        assert is_same_trouble(anomaly, trouble), (anomaly, trouble)
        assert anomaly.value >= 10 * anomaly.usual
    shares = [anomaly.share for anomaly in found.anomalies]
    assert shares == sorted(shares, reverse=True)


def test_examination_finds_nothing_in_healthy_recording(folder: Path) -> None:
    """Its latencies have a long tail, and every fourth endpoint sends at random times."""
    assert examine(folder / "healthy.lake") == Examination([], endpoints=300, latency=300, dropout=300, loss=300)


def test_examination_finds_dropout_until_the_end() -> None:
    ends = {"alive": 100, "also": 101, "dead": 60}
    rows = [endpoint(name, messages=99, start_time=BEGIN, end_time=BEGIN + end * SECOND) for name, end in ends.items()]
    hours = [{"run": "r", "endpoint": name, "histogram": histogram({479: 98})} for name in ends]  # 1 s
    (anomaly,) = examine_recording(GoldReader(Tables(endpoints=rows, _intervals=hours))).anomalies
    assert (anomaly.kind, anomaly.endpoint, anomaly.is_at_end) == ("dropout", "dead", True)
    assert (anomaly.from_time, anomaly.to_time) == (BEGIN + 60 * SECOND, BEGIN + 100 * SECOND)


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
    (anomaly,) = examine_recording(GoldReader(latency_tables({3: 2, 20: 100, 21: 100, 22: 40, 40: 60}))).anomalies
    assert (anomaly.value, anomaly.usual, anomaly.times) == (50_000_000, 200_000, 2)
    assert ((anomaly.from_time - BEGIN) / SECOND, (anomaly.to_time - BEGIN) / SECOND) == (20, 22)
    assert anomaly.share == 260 / 6000


def test_examination_ignores_scattered_late_messages() -> None:
    assert examine_recording(GoldReader(latency_tables(dict.fromkeys(range(60), 30)))).anomalies == []


def test_examination_finds_killed_publisher_killed_worker_and_restart(tmp_path: Path) -> None:
    """A fast publisher is away for 0.3 s, within a second; a worker dies with a job; a topic is created again."""
    ms = SECOND // 1000
    said = [RecordedMessage("pulse", n, BEGIN + n * 2 * ms + (n > 2000) * 300 * ms, b"") for n in range(4000)]
    said += [RecordedMessage("steady", n, BEGIN + n * 10 * ms, b"") for n in range(830)]
    said += [RecordedMessage("again", n, BEGIN + n * 50 * ms, b"", epoch=1 + (n > 99)) for n in range(166)]
    for number in range(20):
        sent = BEGIN + number * 400 * ms
        taken = QueueEvent(Event.TAKEN, number, sent + ms, 1, sent, sent + ms)
        job = [QueueEvent(Event.SENT, number, sent), taken]
        if number == 7:
            job.append(taken._replace(event=Event.RETURNED, time=sent + 9 * ms))
            taken = taken._replace(time=sent + 10 * ms, deliveries=2, taken_time=sent + 10 * ms)
            job.append(taken)
        said += of_queue("jobs", [*job, taken._replace(event=Event.ACKNOWLEDGED, time=sent + 20 * ms)])
    numbered = [one._replace(sequence=n) if one.source.kind == "queue" else one for n, one in enumerate(said)]
    lake = ingest_recording(write_kinds(tmp_path / "000000.mcap", numbered), tmp_path / "lake")
    found = {anomaly.endpoint: anomaly for anomaly in examine(lake).anomalies}
    assert {name: anomaly.kind for name, anomaly in found.items()} == {
        "pulse": "dropout",
        "queue/jobs": "requeue",
        "again": "restart",
    }
    pulse, jobs, again = found["pulse"], found["queue/jobs"], found["again"]
    assert (pulse.from_time - BEGIN, pulse.value, pulse.usual) == (4000 * ms, 302 * ms, 2 * ms)
    assert (jobs.from_time - BEGIN, jobs.to_time - BEGIN, jobs.value) == (2801 * ms, 2809 * ms, 1)
    assert (again.from_time - BEGIN, again.to_time - BEGIN) == (99 * 50 * ms, 100 * 50 * ms)


def test_examination_finds_messages_published_after_their_recording() -> None:
    row = {"run": "r", "endpoint": "a", "messages": 10, "p50": 200, "max": 300, "min": -5_000_000}
    row["histogram"] = histogram({-357: 4, 123: 6})
    windows = [row | {"window_start": BEGIN + n * SECOND, "window_ns": SECOND} for n in (3, 5)]
    windows.append(windows[0] | {"window_start": BEGIN + 9 * SECOND, "min": -999})
    rows = [endpoint("a", messages=10, end_time=BEGIN + 5 * SECOND + 7)]
    tables = Tables(endpoints=rows, latency_summary=[row], latency=windows)
    (anomaly,) = examine_recording(GoldReader(tables)).anomalies
    assert (anomaly.kind, anomaly.value, anomaly.share, anomaly.times) == ("clock", 5_000_000, 0.4, 2)
    assert (anomaly.from_time, anomaly.to_time) == (BEGIN + 3 * SECOND, BEGIN + 5 * SECOND + 7)


def late_messages(
    latency_ns: int = 2_000_000, usual_ns: int = 200_000, late: int = 5, span_ns: int = SECOND, known: int = 20
) -> Tables:
    """Return gold of a slow endpoint with late messages in sequence, at each threshold by default."""
    times = [BEGIN + 9 * SECOND, *(BEGIN + 10 * SECOND + span_ns * n // (late - 1) for n in range(late))]
    latencies = [usual_ns] + [latency_ns] * late
    row = {"run": "r", "endpoint": "a", "messages": known, "min": 9, "p50": usual_ns, "max": 50_000_000}
    date = datetime.fromtimestamp(BEGIN // SECOND, UTC).date().isoformat()
    messages = [
        {"run": "r", "endpoint": "a", "date": date, "log_time": time, "publish_time": time - latency}
        for time, latency in zip(times, latencies, strict=True)
    ]
    window = row | {"window_start": BEGIN, "window_ns": 60 * SECOND, "histogram": histogram({410: 9})}
    rows = [endpoint("a", messages=known, start_time=BEGIN, end_time=BEGIN + 60 * SECOND)]
    return Tables(endpoints=rows, latency_summary=[row | {"histogram": []}], latency=[window], messages=messages)


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


def test_latency_check_has_limit_of_each_kind() -> None:
    """Pictures of 3 MB take longer to record than messages."""
    keys = [{"run": "r", "endpoint": name, "p99": 200_000_000, "min": 1} for name in ("a", "visionipc_cam_0/image")]
    rows = pa.Table.from_pylist(keys)
    types = dict.fromkeys(("run", "endpoint"), pa.string()) | dict.fromkeys(
        ("lost", "epochs", "duration_ns"), pa.int64()
    )
    empty = pa.schema(types).empty_table()
    gold = {"latency_summary": rows, "endpoints": empty, "dropouts": empty}
    checks = compute_checks(gold, CheckThresholds()).filter(pc.field("check_name") == "latency p99").to_pylist()
    assert [(check["passed"], check["threshold"]) for check in checks] == [(False, 100_000_000), (True, 10**9)]


def read_replay_commands(page: Path) -> list[str]:
    text = page.read_text()
    return [part.partition("</code>")[0].partition(">")[2] for part in text.split("<code ")[1:]]


def test_replay_command_plays_the_moment(folder: Path, prefix: str) -> None:
    late = next(trouble for trouble in TROUBLES if trouble.kind == "latency")
    (command,) = [text for text in read_replay_commands(folder / "trouble.html") if late.endpoint in text]
    program, *words = shlex.split(command)
    assert program == "msgq"
    played = json.loads(run(*words, "--rate", "inf", "--json").stdout.splitlines()[-1])
    recorded = LogReader(folder / "trouble.mcap", endpoints=[late.endpoint])
    count = sum(message.log_time - message.publish_time > 40_000_000 for message in recorded)
    assert played["messages"] == count > 0
