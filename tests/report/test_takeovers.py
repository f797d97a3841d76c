"""A takeover in the report: two living publishers of a topic, a recorder, a lake, and the page."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("plotly")
from msgq.lake.report.anomalies import examine_recording
from msgq.lake.report.gold_reader import GoldReader, open_lake_tables
from msgq.lake.report.report_page import write_report
from msgq.recording import LogReader, Recorder
from tests.recording.test_recorder_takeovers import COUNT, publish, publish_on_request
from tests.report.recordings import ingest_recording
from tests.support import Child


def test_report_marks_the_takeover_of_a_topic(prefix: str, tmp_path: Path) -> None:
    with Recorder(tmp_path / "log") as recorder, Child(publish_on_request, "speed", 0) as first:
        publish(first, recorder, COUNT)
        with Child(publish_on_request, "speed", COUNT) as second:
            publish(second, recorder, 2 * COUNT)
            recorder.stop()
    tables = open_lake_tables(ingest_recording(tmp_path / "log", tmp_path / "lake"))
    (anomaly,) = examine_recording(GoldReader(tables)).anomalies
    times = [message.log_time for message in LogReader(tmp_path / "log") if message.publisher]
    assert (anomaly.kind, anomaly.endpoint, anomaly.value) == ("takeover", "speed", 1)
    assert (anomaly.from_time, anomaly.to_time) == (times[0], times[0])
    assert anomaly.share == len(times) / (2 * COUNT)
    write_report(tables, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "1 publisher replaced a living publisher, usually 0" in page
    assert '"kind":"takeover"' in page.replace('": "', '":"')
    assert f" {second.pid}" in page
