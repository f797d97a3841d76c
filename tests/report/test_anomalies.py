"""What stands out: known trouble among 300 endpoints, a healthy recording, and the page in a browser."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("plotly")
from msgq.lake.report.anomalies import Anomaly, Examination, examine_recording
from msgq.lake.report.gold_reader import GoldReader, open_lake_tables
from msgq.recording import LogReader
from tests.command import run
from tests.report.gold import SECOND, Tables, endpoint, histogram
from tests.report.recordings import BEGIN, TROUBLES, Trouble


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
    summary = {"run": "r", "endpoint": "a", "messages": 6000, "p50": 200_000, "max": 50_000_000}
    rows = [endpoint("a", messages=6000, start_time=BEGIN, end_time=BEGIN + 60 * SECOND)]
    return Tables(endpoints=rows, latency=windows, latency_summary=[summary])


def test_examination_of_fast_endpoint_reads_windows_only() -> None:
    (anomaly,) = examine_recording(GoldReader(latency_tables({3: 2, 20: 100, 21: 100, 22: 40, 40: 60}))).anomalies
    assert (anomaly.value, anomaly.usual, anomaly.times) == (50_000_000, 200_000, 2)
    assert ((anomaly.from_time - BEGIN) / SECOND, (anomaly.to_time - BEGIN) / SECOND) == (20, 22)
    assert anomaly.share == 260 / 6000


def test_examination_ignores_scattered_late_messages() -> None:
    assert examine_recording(GoldReader(latency_tables(dict.fromkeys(range(60), 30)))).anomalies == []


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
