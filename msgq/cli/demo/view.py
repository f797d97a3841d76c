"""Output of the demo: the live table, and the summary."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import Console, Group
from rich.live import Live

from msgq.cli.common.columns import LOST_RANK, NAME_RANK, OTHER_RANK, RATE_RANK, TableColumn, format_table, print_table
from msgq.cli.common.render import echo, join_display_lines, style_text
from msgq.cli.demo.endpoint_roles import WorkResults
from msgq.cli.demo.plan import DEMO_SUBSCRIBERS, IS_VIRTUAL, FlowRates, PublishedCounts, SubscriberReport
from msgq.cli.demo.recording import RecordedResults
from msgq.cli.demo.summary import RunSummary
from msgq.common.formatting import format_bytes, format_count

_REFRESH_PERIOD_S = 0.25

_MessageAndByteRate = tuple[float | None, float | None]  # messages and bytes a second; None: unknown


@dataclass(frozen=True)
class ParticipantRow:
    """A publisher or subscriber of the demo. Unknown values are None."""

    topic: str
    process_name: str
    pid: int | None
    kind: str
    messages: int | None
    rate: float | None
    byte_rate: float | None
    p50_us: float | None = None
    p99_us: float | None = None
    lost: int | None = None


_ParticipantColumn = TableColumn[ParticipantRow]
_PARTICIPANT_COLUMNS = (
    _ParticipantColumn("topic", lambda row: row.topic, NAME_RANK, text_width=10),
    _ParticipantColumn("process", lambda row: row.process_name, NAME_RANK, text_width=14),
    _ParticipantColumn("pid", lambda row: str(row.pid or "-"), OTHER_RANK + 1),
    _ParticipantColumn("kind", lambda row: row.kind, text_width=11),
    _ParticipantColumn("messages", lambda row: format_count(row.messages), OTHER_RANK + 1, 8),
    _ParticipantColumn("messages/s", lambda row: format_count(row.rate), RATE_RANK),
    _ParticipantColumn("bytes/s", lambda row: format_bytes(row.byte_rate), OTHER_RANK + 1, 8),
    _ParticipantColumn("p50 us", lambda row: _format_latency(row.p50_us), width=7),
    _ParticipantColumn("p99 us", lambda row: _format_latency(row.p99_us), OTHER_RANK + 1, 7),
    _ParticipantColumn("lost", lambda row: "" if row.kind == "publisher" else format_count(row.lost), LOST_RANK),
)
_RecordingColumn = TableColumn[RecordedResults]
_RECORDING_COLUMNS = (
    _RecordingColumn("topic", lambda row: row.topic, NAME_RANK, text_width=20),
    _RecordingColumn("messages", lambda row: format_count(row.messages), RATE_RANK),
    _RecordingColumn("bytes", lambda row: format_bytes(row.bytes)),
    _RecordingColumn("lost", lambda row: format_count(row.lost), LOST_RANK),
)


class LiveView:
    """A table that is updated while the demo runs. The summary replaces it."""

    def __init__(self, screen: Console) -> None:
        self._live = Live(console=screen, auto_refresh=False, transient=True)
        self._before: Mapping[str, PublishedCounts] = {}
        self._shown_s = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def is_refresh_due(self) -> bool:
        """Return True if the display should be updated."""
        return time.monotonic() - self._shown_s >= _REFRESH_PERIOD_S

    def show_progress(
        self,
        title: str,
        published: Mapping[str, PublishedCounts],
        reports: Collection[SubscriberReport],
        events: Sequence[str],
    ) -> None:
        """Show the counters of the topics, the last reports of the subscribers, and the events."""
        now_s = time.monotonic()
        rows = []
        for name, topic in published.items():
            rates = _compute_rates(self._before.get(name, topic), topic, now_s - self._shown_s)
            rows.append(_make_publisher_row(name, topic.pid, topic.messages, rates))
            rows += [
                _make_subscriber_row(report.subscriber, report.pid, reading.received, reading.recent, reading.lost)
                for report in reports
                for reading in report.readings
                if reading.topic == name
            ]
        text = join_display_lines([title, *format_table(_PARTICIPANT_COLUMNS, rows)])
        self._live.update(Group(text, *events), refresh=True)
        self._before, self._shown_s = published, now_s


def print_summary(screen: Console, summary: RunSummary) -> None:
    """Print the results of the run."""
    length = f"{summary.duration_s:.1f} s" + (" of virtual time" if IS_VIRTUAL else "")
    echo(f"msgq demo ({summary.backend}), {length}" + (" (ended early)" if summary.interrupted else ""))
    rows = []
    for topic in summary.topics:
        rows.append(_make_publisher_row(topic.topic, topic.pid, topic.messages, (topic.rate, topic.byte_rate)))
        rows += [
            _make_subscriber_row(one.subscriber, one.pid, one.received, one.overall, one.lost)
            for one in summary.subscribers
            if one.topic == topic.topic
        ]
    print_table(_PARTICIPANT_COLUMNS, rows)
    for restart in summary.restarts:
        how = "ended" if IS_VIRTUAL else "killed (SIGKILL)"
        lost = "has an unknown loss" if restart.lost is None else f"lost {restart.lost} messages"
        screen.print(
            f"{restart.topic}: publisher {restart.killed_pid} {how}, {restart.pid} took over after "
            f"{restart.outage_ms:.0f} ms; {restart.subscriber} {lost}",
        )
    if summary.work is not None:
        screen.print(_describe_work(summary.work))
    if summary.recording:
        echo("recorded, and read back")
        print_table(_RECORDING_COLUMNS, summary.recording)
    if summary.digest:
        text = f"seed {summary.seed}: both runs sent messages with the digest {summary.digest}"
        screen.print(text)
    for note in summary.notes:
        screen.print(note)
    for failure in summary.failures:
        screen.print(style_text("FAILED", "red"), failure)
    screen.print(style_text("all checks passed", "green") if summary.ok else style_text("some checks failed", "red"))


def _describe_work(work: WorkResults) -> str:
    killed = ", ".join(f"{worker.name} ({worker.pid})" for worker in work.killed_workers) or "nobody"
    done = f"{work.acknowledged_jobs:,} of {work.sent_jobs:,} finished"
    return f"{work.topic}: {done}; {killed} was killed during a job, and {work.returned_jobs:,} returned to others"


def _make_publisher_row(name: str, pid: int | None, messages: int | None, rates: _MessageAndByteRate) -> ParticipantRow:
    return ParticipantRow(name, f"demo-{name}", pid, "publisher", messages, *rates)


def _make_subscriber_row(name: str, pid: int, received: int, flow: FlowRates, lost: int | None) -> ParticipantRow:
    kind = DEMO_SUBSCRIBERS[name].kind
    return ParticipantRow(
        "", f"demo-{name}", pid, kind, received, flow.rate, flow.byte_rate, flow.p50_us, flow.p99_us, lost
    )


def _format_latency(latency_us: float | None) -> str:
    return "" if latency_us is None else f"{latency_us:,.1f}"


def _compute_rates(before: PublishedCounts, now: PublishedCounts, seconds: float) -> _MessageAndByteRate:
    """Return messages and bytes per second between two polls."""
    if now.messages is None:
        return None, None
    messages = (now.messages or 0) - (before.messages or 0)
    byte_count = (now.bytes or 0) - (before.bytes or 0)
    return messages / seconds, byte_count / seconds
