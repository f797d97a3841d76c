"""Output of the demo: the summary, and commands to try next."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console

from msgq.cli.common.columns import LOST_RANK, NAME_RANK, OTHER_RANK, RATE_RANK, TableColumn, print_table
from msgq.cli.common.console import style_text
from msgq.cli.demo.endpoint_roles import WorkResults
from msgq.cli.demo.plan import COUNTS_ARE_EXACT, IS_VIRTUAL, FlowRates
from msgq.cli.demo.summary import RestartResults, RunSummary
from msgq.common.formatting import format_bytes, format_count, format_microseconds, format_rate
from msgq.common.texts import format_count_noun


@dataclass(frozen=True)
class ParticipantRow:
    """A publisher of a topic, or below it a subscriber. Unknown values are None."""

    name: str
    kind: str
    messages: int | None
    rate: float | None
    flow: FlowRates | None = None
    lost: int | None = None


_ParticipantColumn = TableColumn[ParticipantRow]
_PARTICIPANT_COLUMNS = (
    _ParticipantColumn("topic", lambda row: row.name, NAME_RANK, text_width=10),
    _ParticipantColumn("kind", lambda row: row.kind, text_width=10),
    _ParticipantColumn("messages", lambda row: format_count(row.messages), OTHER_RANK + 1),
    _ParticipantColumn("messages/s", lambda row: format_rate(row.rate), RATE_RANK),
    _ParticipantColumn("p50 us", lambda row: format_microseconds(row.flow.p50_us) if row.flow else ""),
    _ParticipantColumn("p99 us", lambda row: format_microseconds(row.flow.p99_us) if row.flow else ""),
    _ParticipantColumn("lost", lambda row: format_count(row.lost) if row.flow else "", LOST_RANK),
)


def print_summary(screen: Console, summary: RunSummary) -> None:
    """Print the results of the run."""
    print_table(_PARTICIPANT_COLUMNS, list(_make_rows(summary)))
    if COUNTS_ARE_EXACT:
        screen.print("Subscribers of topics count losses: received + lost = published.")
    for restart in summary.restarts:
        screen.print(_describe_restart(restart))
    if summary.work is not None:
        screen.print(_describe_work(summary.work))
    if summary.recording_path:
        messages, byte_count, lost = (
            sum(getattr(one, name) for one in summary.recording) for name in ("messages", "bytes", "lost")
        )
        counts = f"{format_count(messages)} messages, {format_bytes(byte_count)}, lost {format_count(lost)}"
        screen.print(f"recorded, and read back: {counts}")
    if summary.digest:
        screen.print(f"seed {summary.seed}: both runs sent messages with the digest {summary.digest}")
    for note in summary.notes:
        screen.print(note)
    for failure in summary.failures:
        screen.print(style_text("FAILED", "red"), failure)
    result = style_text("all checks passed", "green") if summary.ok else style_text("some checks failed", "red")
    length = f"{summary.duration_s:.1f} s" + (" of virtual time" if IS_VIRTUAL else "")
    screen.print(result, f"(backend {summary.backend}, {length}{', ended early' if summary.interrupted else ''})")


def print_next_commands(screen: Console, summary: RunSummary, endpoint: str) -> None:
    """Print commands to try next. `endpoint`: a recorded topic with texts."""
    if summary.recording_path is None:
        return
    path = shlex.quote(summary.recording_path)
    screen.print("Play the recording, and try the other commands in a second terminal:")
    screen.print(f"  msgq play --loop {path}", soft_wrap=True)
    screen.print("  msgq list")
    screen.print(f"  msgq echo {endpoint} --count 3", soft_wrap=True)
    screen.print("  msgq record --all -o drive --duration 3")


def _make_rows(summary: RunSummary) -> Iterator[ParticipantRow]:
    for topic in summary.topics:
        yield ParticipantRow(topic.topic, "publisher", topic.messages, topic.rate)
        for one in summary.subscribers:
            if one.topic == topic.topic:
                name, flow = f"  {one.subscriber}", one.overall
                yield ParticipantRow(name, one.kind, one.received, flow.rate, flow, one.lost)


def _describe_restart(restart: RestartResults) -> str:
    lost = "has an unknown loss" if restart.lost is None else f"lost {format_count_noun(restart.lost, 'message')}"
    replaced = f"{restart.pid} replaced {restart.killed_pid} after {restart.outage_ms:.0f} ms"
    return f"{restart.topic}: {replaced}, and {restart.subscriber} {lost}"


def _describe_work(work: WorkResults) -> str:
    killed = ", ".join(f"{worker.name} ({worker.pid})" for worker in work.killed_workers) or "nobody"
    done = f"{work.acknowledged_jobs:,} of {work.sent_jobs:,} finished"
    return f"{work.topic}: {done}; {killed} was killed during a job, and {work.returned_jobs:,} returned to others"
