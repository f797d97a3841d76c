"""Results of a run of the demo, and failures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgq.cli.demo.endpoint_roles import WorkResults
from msgq.cli.demo.plan import (
    COUNTS_ARE_EXACT,
    DEMO_BACKEND,
    DEMO_SUBSCRIBERS,
    HAS_ALL_KINDS,
    IS_VIRTUAL,
    PULSE_TOPIC,
    DemoPlan,
    FlowRates,
    PublishedCounts,
    SubscriberReport,
    TopicReading,
)
from msgq.cli.demo.recording import RecordedResults
from msgq.common.texts import format_count_noun

_BACKEND_NOTES = (
    *(("without a frame stream: visionipc has no virtual time",) if IS_VIRTUAL else ()),
    *(() if HAS_ALL_KINDS else ("without channel, vector and queue: ZMQ has only topics",)),
)


@dataclass(frozen=True)
class TopicResults:
    """Results of a topic over the whole run, with rates per second. None: unknown."""

    topic: str
    pid: int | None
    messages: int | None
    bytes: int | None
    rate: float | None
    byte_rate: float | None


@dataclass(frozen=True)
class SubscriberResults:
    """Results of a subscriber for a topic over the whole run."""

    subscriber: str
    kind: str
    pid: int
    topic: str
    received: int
    lost: int | None
    bytes: int
    overall: FlowRates


@dataclass(frozen=True)
class RestartResults:
    """The killed publisher and its successor, as measured by one subscriber."""

    topic: str
    subscriber: str
    killed_pid: int
    pid: int
    lost: int | None
    outage_ms: float


@dataclass(frozen=True)
class RunSummary:
    """Results of the whole run. `failures` is empty if all checks passed.

    `recording`: results of the recorder; empty without a recording. `seed`, `digest`: for a run in virtual time, the
    seed of the event order, and a digest of all sent messages. `notes`: omitted parts. `recording_path`: directory of
    the recording.
    """

    backend: str
    ok: bool
    interrupted: bool
    duration_s: float
    topics: tuple[TopicResults, ...]
    subscribers: tuple[SubscriberResults, ...]
    restarts: tuple[RestartResults, ...]
    failures: tuple[str, ...]
    seed: int | None = None
    digest: str | None = None
    notes: tuple[str, ...] = ()
    recording: tuple[RecordedResults, ...] = ()
    work: WorkResults | None = None
    recording_path: str | None = None


def summarize_run(
    demo_plan: DemoPlan,
    published: Mapping[str, PublishedCounts],
    reports: Mapping[str, SubscriberReport],
    duration_s: float,
    interrupted: bool,
    failures: Sequence[str],
    recording: tuple[RecordedResults, ...] = (),
    work: WorkResults | None = None,
) -> RunSummary:
    """Combine the topics' counters and the subscribers' last reports.

    Parameters
    ----------
    demo_plan : topics and subscribers of the run.
    published : counters of each topic by name, read when its publisher was finished.
    reports : last report of each subscriber by name.
    interrupted : True: the run was ended early, perhaps before the first message or the restart.
    failures : failures found before.
    recording : results of the recorder.
    work : results of the jobs.
    """
    readings = [(report, reading) for report in reports.values() for reading in report.readings]
    failures = (
        *failures,
        *_check_reports(demo_plan, reports, interrupted),
        *_check_readings(published, readings, interrupted),
    )
    if work is not None and not interrupted:
        failures = (*failures, *_check_work(work))
    return RunSummary(
        DEMO_BACKEND,
        not failures,
        interrupted,
        round(duration_s, 3),
        tuple(_make_topic_results(name, topic, readings) for name, topic in published.items()),
        tuple(_make_subscriber_results(report, reading) for report, reading in readings),
        tuple(_make_restart_results(readings)),
        failures,
        notes=_BACKEND_NOTES,
        recording=recording,
        work=work,
    )


_ReportReadings = Sequence[tuple[SubscriberReport, TopicReading]]


def _check_reports(demo_plan: DemoPlan, reports: Mapping[str, SubscriberReport], interrupted: bool) -> Iterator[str]:
    for name, subscriber in demo_plan.subscribers.items():
        if subscriber.is_killed:
            continue
        # An interrupted run may end before all processes start. Each process with reports must send a final report.
        if not reports[name].final if name in reports else not interrupted:
            yield f"subscriber {name} sent no final report"


def _check_readings(
    published: Mapping[str, PublishedCounts], readings: _ReportReadings, interrupted: bool
) -> Iterator[str]:
    for report, reading in readings:
        where = f"subscriber {report.subscriber} of {reading.topic}"
        messages = (published[reading.topic].messages or 0) if reading.topic in published else 0
        if not interrupted and not reading.received:
            yield f"{where} received nothing"
        if reading.topic == PULSE_TOPIC.name and not interrupted and len(reading.restarts) != 1:
            yield f"{where} saw {len(reading.restarts)} restarts of its publisher instead of one"
        if not COUNTS_ARE_EXACT or DEMO_SUBSCRIBERS[report.subscriber].kind == "worker":  # each job is one worker's
            continue
        if reading.lost is None:
            yield f"{where} has an unknown loss"
            continue
        # Losses after the last received message leave no gap, so the numbers need not be equal.
        if not 0 <= reading.missing_messages <= reading.lost:
            yield f"{where} counted {reading.lost} lost, but {reading.missing_messages} sequence numbers are missing"
        if report.final and messages != reading.received + reading.lost:
            yield f"{where}: received {reading.received} + lost {reading.lost} differs from published {messages}"
        if DEMO_SUBSCRIBERS[report.subscriber].is_lossless and reading.lost:
            yield f"{where} lost {reading.lost}"


def _check_work(work: WorkResults) -> Iterator[str]:
    if work.acknowledged_jobs != work.sent_jobs or work.pending_jobs or work.unfinished_jobs:
        unfinished = f"{work.pending_jobs} waiting, {work.unfinished_jobs} taken"
        yield f"{work.acknowledged_jobs} of {format_count_noun(work.sent_jobs, 'job')} finished; {unfinished}"
    if work.returned_jobs < len(work.killed_workers):
        yield (
            f"{format_count_noun(work.returned_jobs, 'job')} returned by "
            f"{format_count_noun(len(work.killed_workers), 'killed worker')}"
        )


def _make_topic_results(name: str, topic: PublishedCounts, readings: _ReportReadings) -> TopicResults:
    messages, size = topic.messages, topic.bytes
    span_s = max((reading.span_s for _, reading in readings if reading.topic == name), default=0.0)
    return TopicResults(name, topic.pid, messages, size, _divide_rate(messages, span_s), _divide_rate(size, span_s))


def _make_subscriber_results(report: SubscriberReport, reading: TopicReading) -> SubscriberResults:
    return SubscriberResults(
        report.subscriber,
        DEMO_SUBSCRIBERS[report.subscriber].kind,
        report.pid,
        reading.topic,
        reading.received,
        reading.lost,
        reading.bytes,
        reading.overall,
    )


def _make_restart_results(readings: _ReportReadings) -> Iterator[RestartResults]:
    for report, reading in readings:
        for restart in reading.restarts:
            yield RestartResults(
                reading.topic, report.subscriber, restart.previous_pid, restart.pid, restart.lost, restart.outage_ms
            )


def _divide_rate(count: int | None, span_s: float) -> float | None:
    if count is None:
        return None
    return round(count / span_s, 1) if span_s else 0.0
