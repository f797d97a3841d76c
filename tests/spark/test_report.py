"""The report, looked at by a real browser."""

from __future__ import annotations

import html
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("plotly")
from msgq.common.queue_events import Event
from msgq.lake.report.gold_reader import open_lake_tables
from msgq.lake.report.report_page import write_report
from msgq.spark.lake import Lake
from msgq.spark.pipeline import run_pipeline
from tests.browser import BrowserPage, needs_browser
from tests.report.pages import open_report
from tests.spark.kind_logs import (
    QueueEvent,
    RecordedMessage,
    of_queue,
    of_vector,
    on_channel,
    random_history,
    write_kinds,
)
from tests.spark.pages import sections
from tests.spark.rows import SECOND, message, messages
from tests.unit.stage_children import timing_record

BEGIN = 1_700_000_000 * SECOND


def full(spark: Any, tmp_path: Path, endpoints: int = 3) -> Any:
    """A lake with losses, latency, and pictures."""
    cv2 = pytest.importorskip("cv2")
    numpy = pytest.importorskip("numpy")
    picture = cv2.imencode(".jpg", numpy.full((60, 80, 3), 128, numpy.uint8))[1].tobytes()
    rows = []
    for i in range(200):
        time = BEGIN + i * SECOND // 10
        late = {"publish_time": time - 1000 * (i + 1)}
        rows += [message(f"topic<{n}>", i, time, **late) for n in range(endpoints) if i % 50]
    rows += [message("camera", i, BEGIN + i * SECOND, data=picture) for i in range(5)]
    lake = Lake(spark, tmp_path / "lake")
    lake.append(messages(spark, rows))
    lake.build_gold()
    return lake


def look(browser: BrowserPage, page: Path, is_dark: bool = False) -> tuple[str, list[str]]:
    """Open a page without a network; return what it became, and what the browser said."""
    open_report(browser, page, 1280, 800, is_dark)
    assert browser.requests == []
    return browser.evaluate("document.documentElement.outerHTML"), browser.complaints


def backgrounds(text: Any) -> Any:
    return set(re.findall(r'class="bg"[^>]*style="[^"]*fill: (rgb\([^)]*\))', text)) | set(
        re.findall(r'class="main-svg"[^>]*style="background: (rgb\([^)]*\))', text)
    )


@needs_browser
def test_report_plots_are_drawn_without_network_and_errors(spark: Any, tmp_path: Path, browser: BrowserPage) -> None:
    lake = full(spark, tmp_path)
    page = tmp_path / "report.html"
    summary = write_report(open_lake_tables(lake.uri), page)
    assert (summary["endpoints"], summary["lost"], summary["failed"]) == (4, 9, 3)
    light, said = look(browser, page)
    assert not said
    plots = re.findall(r'<div class="plot"[^>]*?( data-drawn="yes")?>', light)
    assert plots
    assert all(plots)
    assert light.count('class="main-svg"') >= len(plots)
    assert light.count("<figure>") == 5
    assert html.escape("topic<1>") in light
    dark, said = look(browser, page, is_dark=True)
    assert not said
    assert backgrounds(light) == {"rgb(255, 255, 255)"}
    assert backgrounds(dark) == {"rgb(13, 17, 23)"}


@needs_browser
def test_report_has_section_for_each_kind(spark: Any, tmp_path: Path, browser: BrowserPage) -> None:
    """Two queues, of which one has hostile letters and the other one window only; publishers, state, a stage."""
    history = random_history(random.Random(3), 150)
    said = of_queue("jobs<b>", history.events) + of_queue("tiny", [QueueEvent(Event.SENT, 0, BEGIN, 0, BEGIN)])
    said += [on_channel("scans", f"p{i % 2}", i, BEGIN + i) for i in range(9) if i != 4]
    said += [of_vector("poses", i, BEGIN + i, 0, 3 * i) for i in range(5)]
    said += [RecordedMessage("timing:planner:orders", 0, BEGIN + 5, timing_record(BEGIN, BEGIN + 1, BEGIN + 3, BEGIN))]
    lake, page = Lake(spark, tmp_path / "lake"), tmp_path / "report.html"
    lake.ingest([write_kinds(tmp_path / "000000.mcap", said)])
    lake.build_gold()
    assert write_report(open_lake_tables(lake.uri), page)["lost"] == 1
    drawn, complaints = look(browser, page)
    assert not complaints
    found = sections(drawn)
    assert {"Stages", "Queues", "Publishers", "Endpoints"} <= set(found)
    assert re.findall(r'<div class="plot"[^>]*?( data-drawn="yes")?>', found["Queues"]) == [' data-drawn="yes"'] * 2
    cells = re.findall(r"<td>(.*?)</td>", found["Queues"])
    events = Counter(one.event for one in history.events)
    taken = events[Event.TAKEN] + events[Event.RECEIVED]
    acknowledged = events[Event.ACKNOWLEDGED] + events[Event.RECEIVED]
    again = sum(one.deliveries > 1 for one in history.events if one.event in (Event.TAKEN, Event.RECEIVED))
    counts = (events[Event.SENT], taken, acknowledged, events[Event.RETURNED], events[Event.REFUSED], again)
    assert cells[:8] == ["jobs&lt;b&gt;", *map(str, counts), str(history.waits[-1][1])]
    assert cells[14:22] == ["tiny", "1", "0", "0", "0", "0", "0", "1"]
    assert cells[22:] == ["-"] * 6
    assert "<td>p1</td>" in found["Publishers"]
    assert "<td>records/poses</td><td>records</td><td>5</td><td>0</td><td>8</td>" in found["Endpoints"]
    assert "<td>channel/scans</td><td>channel</td><td>8</td><td>1</td><td>0</td>" in found["Endpoints"]


def test_report_has_no_section_for_absent_kinds(spark: Any, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_report(open_lake_tables(full(spark, tmp_path, endpoints=1).uri), page)
    found = sections(page.read_text())
    assert "Endpoints" in found
    assert not {"Stages", "Queues", "Publishers"} & set(found)


def test_report_has_no_external_reference(spark: Any, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_report(open_lake_tables(full(spark, tmp_path, endpoints=1).uri), page)
    text = page.read_text()
    ours = re.sub(r"<script>/\*\*.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!data:)', ours)


def test_report_of_1000_endpoints_has_bounded_size(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    lake.append(messages(spark, [message(f"e{i}", n, BEGIN + n) for i in range(1000) for n in (0, 1)]))
    lake.build_gold()
    page = tmp_path / "report.html"
    assert write_report(open_lake_tables(lake.uri), page)["endpoints"] == 1000
    assert "(others)" in page.read_text()
    assert page.stat().st_size < 6_000_000


def test_report_page_is_written_for_empty_recording(spark: Any, tmp_path: Path) -> None:
    from tests.recording import logs

    recording = logs.write_unclosed_file(tmp_path / "empty.mcap")
    figures = run_pipeline(recording, tmp_path / "lake", tmp_path / "report.html", spark)
    assert (figures["messages"], figures["endpoints"]) == (0, 0)
    assert "There is nothing to show" in (tmp_path / "report.html").read_text()
