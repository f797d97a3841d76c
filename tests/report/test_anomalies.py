"""Anomalies: known trouble among 300 endpoints, a healthy recording, and the page in a browser."""

from __future__ import annotations

import json
import shlex
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
