"""The parts of the demo that need no processes: the histogram, the meter, and what the summary must notice."""

import random
import threading
from dataclasses import replace
from typing import Any

import pytest

from msgq.cli.demo import virtual
from msgq.cli.demo.meter import DemoMeter
from msgq.cli.demo.plan import (
    DEMO_SUBSCRIBERS,
    DEMO_TOPICS,
    FULL_PLAN,
    FlowRates,
    PublishedCounts,
    PublisherRestart,
    SubscriberReport,
    TopicReading,
)
from msgq.cli.demo.summary import RunSummary, summarize_run
from msgq.common.histogram import Histogram
from tests.command import run

FLOW = FlowRates(100.0, 6400.0, 10.0, 20.0)


def test_demo_histogram_percentiles_are_within_three_percent(seed: int) -> None:
    generator = random.Random(seed)
    values = sorted(int(generator.lognormvariate(9, 2)) for _ in range(10_001))
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    median, high = histogram.percentiles_us(0.5, 0.99)
    assert median * 1000 == pytest.approx(values[5_000], rel=0.03, abs=60)
    assert high * 1000 == pytest.approx(values[9_900], rel=0.03, abs=60)


@pytest.mark.parametrize("value", [0, 1, 63, 64, 65, 1 << 32, (1 << 64) - 1])
def test_demo_histogram_stores_each_duration_within_three_percent(value: int) -> None:
    histogram = Histogram()
    histogram.add(value)
    (found,) = histogram.percentiles_us(0.5)
    assert found * 1000 == pytest.approx(value, rel=0.03, abs=60)


def test_percentiles_of_empty_demo_histogram_are_zero() -> None:
    assert Histogram().percentiles_us(0.5, 0.99) == (0.0, 0.0)


def test_percentiles_of_demo_histogram_with_one_value_are_equal() -> None:
    histogram = Histogram()
    histogram.add(50_000)
    median, high = histogram.percentiles_us(0.5, 0.99)
    assert median == high > 0


def test_demo_meter_counts_missing_messages() -> None:
    meter = DemoMeter("busy")
    for sequence in (2, 3, 7):
        meter.count_message((sequence * 1_000, sequence, 1), size=64, now_ns=sequence * 1_000 + 500)
    reading = meter.make_reading(lost=5)
    assert (reading.received, reading.bytes, reading.missing_messages) == (3, 192, 5)
    assert reading.restarts == ()


def test_demo_meter_counts_duplicate_as_negative_gap() -> None:
    meter = DemoMeter("busy")
    for sequence in (0, 1, 1):
        meter.count_message((sequence, sequence, 1), size=64, now_ns=10)
    assert meter.make_reading(lost=0).missing_messages == -1


def test_demo_meter_reports_publisher_restart_with_losses() -> None:
    meter = DemoMeter("pulse")
    meter.count_message((1_000_000, 0, 11), size=64, now_ns=1_000_000)
    meter.count_message((5_000_000, 3, 12), size=64, now_ns=5_000_000)
    assert meter.make_reading(lost=2).restarts == (PublisherRestart(11, 12, lost=2, outage_ms=4.0),)


def test_demo_report_converted_to_json_and_back_is_equal() -> None:
    reading = TopicReading("pulse", 3, 192, None, 0, 1.5, FLOW, (PublisherRestart(1, 2, 0, 3.5),))
    report = SubscriberReport("survivor", 7, False, (reading,))
    assert SubscriberReport.from_json(report.to_json()) == report


def perfect_reports() -> dict[str, SubscriberReport]:
    """A run of 100 messages a topic, in which nothing was lost."""
    reports = {}
    for subscriber in DEMO_SUBSCRIBERS.values():
        readings = []
        for topic in subscriber.topics:
            restarts = (PublisherRestart(1, 2, 0, 200.0),) if topic == "pulse" else ()
            readings.append(TopicReading(topic, 100, 6400, 0, 0, 1.0, FLOW, restarts))
        reports[subscriber.name] = SubscriberReport(subscriber.name, 7, True, tuple(readings))
    return reports


def summary_of(reports: dict[str, SubscriberReport], interrupted: bool = False, messages: int = 100) -> RunSummary:
    published = {name: PublishedCounts(5, messages, 6400) for name in DEMO_TOPICS}
    return summarize_run(FULL_PLAN, published, reports, 4.0, interrupted, ())


def change_report(reports: dict[str, SubscriberReport], name: str, **changes: Any) -> dict[str, SubscriberReport]:
    first, *others = reports[name].readings
    reports[name] = replace(reports[name], readings=(replace(first, **changes), *others))
    return reports


def test_demo_run_without_faults_succeeds() -> None:
    summary = summary_of(perfect_reports())
    assert summary.failures == ()
    assert summary.ok
    assert {restart.subscriber for restart in summary.restarts} == {"survivor", "observer"}


@pytest.mark.parametrize(
    ("name", "changes", "complaint"),
    [
        ("survivor", {"received": 99, "lost": 1, "missing_messages": 1}, "survivor of pulse lost 1"),
        ("fast", {"received": 99}, "differs from published 100"),
        ("fast", {"received": 99, "lost": 1, "missing_messages": 2}, "sequence numbers are missing"),
        ("fast", {"lost": None}, "has an unknown loss"),
        ("fast", {"received": 101, "missing_messages": -1}, "sequence numbers are missing"),
        ("dashboard", {"received": 0, "lost": 100, "missing_messages": 100}, "received nothing"),
        ("observer", {"restarts": ()}, "saw 0 restarts"),
    ],
)
def test_demo_fails_if_required_property_is_violated(name: str, changes: dict[str, object], complaint: str) -> None:
    summary = summary_of(change_report(perfect_reports(), name, **changes))
    assert not summary.ok
    assert any(complaint in failure for failure in summary.failures), summary.failures


def test_demo_allows_losses_of_the_slow_subscriber() -> None:
    assert summary_of(change_report(perfect_reports(), "slow", received=60, lost=40, missing_messages=40)).ok


def test_demo_accepts_losses_after_last_received_message() -> None:
    assert summary_of(change_report(perfect_reports(), "slow", received=60, lost=40, missing_messages=25)).ok


def test_demo_fails_without_final_report_of_subscriber() -> None:
    reports = perfect_reports()
    del reports["display"]
    reports["slow"] = replace(reports["slow"], final=False)
    assert [failure.split()[1] for failure in summary_of(reports).failures] == ["display", "slow"]


def test_interrupted_demo_without_messages_succeeds() -> None:
    reports = perfect_reports()
    for name, report in reports.items():
        readings = (replace(reading, received=0, restarts=()) for reading in report.readings)
        reports[name] = replace(report, readings=tuple(readings))
    assert summary_of(reports, interrupted=True, messages=0).ok
    assert not summary_of(reports, interrupted=False, messages=0).ok


def test_demo_fails_if_second_run_has_different_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = iter(("one", "other"))

    class Run:
        def __init__(self, *_: object) -> None: ...

        def run(self) -> RunSummary:
            return replace(summary_of(perfect_reports()), digest=next(digests))

    monkeypatch.setattr(virtual, "record_telemetry", lambda _: {})
    monkeypatch.setattr(virtual, "VirtualRun", Run)
    summary = virtual.run_twice(1.0, 7, threading.Event())
    assert (summary.ok, summary.digest) == (False, None)
    assert "two runs of the same input differ: digests one and other" in summary.failures[0]


def test_demo_without_recording_prints_failures_of_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = replace(summary_of(perfect_reports()), failures=("slow ended unexpectedly",), ok=False)
    monkeypatch.setattr("msgq.cli.demo.verb.DemoRun.run", lambda _: summary)
    result = run("demo", code=1)
    assert "FAILED slow ended unexpectedly" in result.output
    assert "cannot be read" not in result.output
