"""Output of the demo: the live table, and the summary."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from msgq.cli.common.render import style_text
from msgq.cli.demo.endpoint_roles import WorkResults
from msgq.cli.demo.plan import DEMO_SUBSCRIBERS, IS_VIRTUAL, FlowRates, PublishedCounts, SubscriberReport
from msgq.cli.demo.summary import RunSummary
from msgq.common.formatting import format_bytes, format_count

_REFRESH_PERIOD_S = 0.25

_MessageAndByteRate = tuple[float | None, float | None]  # messages and bytes a second; None: unknown


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
        table = _make_table(title)
        for name, topic in published.items():
            before = self._before.get(name, topic)
            _add_publisher_row(
                table, name, topic.pid, topic.messages, _compute_rates(before, topic, now_s - self._shown_s)
            )
            matching = ((report, r) for report in reports for r in report.readings if r.topic == name)
            for source, reading in matching:
                _add_subscriber_row(
                    table, source.subscriber, source.pid, reading.received, reading.recent, reading.lost
                )
        self._live.update(Group(table, *events), refresh=True)
        self._before, self._shown_s = published, now_s


def print_summary(screen: Console, summary: RunSummary) -> None:
    """Print the results of the run."""
    length = f"{summary.duration_s:.1f} s" + (" of virtual time" if IS_VIRTUAL else "")
    table = _make_table(f"msgq demo ({summary.backend}), {length}" + (" (ended early)" if summary.interrupted else ""))
    for topic in summary.topics:
        _add_publisher_row(table, topic.topic, topic.pid, topic.messages, (topic.rate, topic.byte_rate))
        for subscriber in summary.subscribers:
            if subscriber.topic == topic.topic:
                _add_subscriber_row(
                    table,
                    subscriber.subscriber,
                    subscriber.pid,
                    subscriber.received,
                    subscriber.overall,
                    subscriber.lost,
                )
    screen.print(table)
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
        screen.print(_make_recording_table(summary))
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


def _make_recording_table(summary: RunSummary) -> Table:
    table = Table("topic", title="recorded, and read back", title_justify="left")
    for column in ("messages", "bytes", "lost"):
        table.add_column(column, justify="right")
    for results in summary.recording:
        table.add_row(
            results.topic, format_count(results.messages), format_bytes(results.bytes), format_count(results.lost)
        )
    return table


def _make_table(title: str) -> Table:
    table = Table("topic", "who", "pid", "kind", title=title, title_justify="left")
    for column in ("messages", "messages/s", "bytes/s", "p50 us", "p99 us", "lost"):
        table.add_column(column, justify="right")
    return table


def _add_publisher_row(
    table: Table, name: str, pid: int | None, messages: int | None, rates: _MessageAndByteRate
) -> None:
    rate, byte_rate = format_count(rates[0]), format_bytes(rates[1])
    process_name = f"demo-{name}"
    table.add_row(
        style_text(name, "bold"), process_name, str(pid or "-"), "publisher", format_count(messages), rate, byte_rate
    )


def _add_subscriber_row(table: Table, name: str, pid: int, received: int, flow: FlowRates, lost: int | None) -> None:
    latencies = (f"{flow.p50_us:,.1f}", f"{flow.p99_us:,.1f}")
    rates = (format_count(flow.rate), format_bytes(flow.byte_rate))
    kind = DEMO_SUBSCRIBERS[name].kind
    table.add_row("", f"demo-{name}", str(pid), kind, format_count(received), *rates, *latencies, format_count(lost))


def _compute_rates(before: PublishedCounts, now: PublishedCounts, seconds: float) -> _MessageAndByteRate:
    """Return messages and bytes per second between two polls."""
    if now.messages is None:
        return None, None
    messages = (now.messages or 0) - (before.messages or 0)
    byte_count = (now.bytes or 0) - (before.bytes or 0)
    return messages / seconds, byte_count / seconds
