"""What the demo does with its recording: replays it in virtual time, twice, and takes it through Spark to a report."""

from collections.abc import Iterator
from pathlib import Path

import msgq
from msgq.cli import demo_plan as plan
from msgq.recording import LogReader, compare, replay


def replayed(run: str, recording: Path) -> Iterator[tuple[bool, str]]:
    """Play the CPU's telemetry into a program twice. Yields whether all held, and what is to be said."""
    endpoint = plan.endpoint(run, plan.TELEMETRY[0].name)
    log = LogReader(recording, endpoints=[endpoint])

    def totals() -> None:
        samples, sums = msgq.sub_sock(endpoint), msgq.pub_sock("totals")
        total = 0
        while True:
            total += len(samples.receive() or b"")
            sums.send(total.to_bytes(8, "little"))

    found = compare(replay(log, totals), replay(log, totals))
    yield bool(found), f"replayed twice in virtual time: {found}"


def reported(recording: Path, report: Path) -> Iterator[tuple[bool, str]]:
    """Ingest the recording into a lake beside the report, and write that. Yields as `replayed` does."""
    from msgq.spark.lake import run_pipeline

    lake = report.with_suffix(".lake")
    report.parent.mkdir(parents=True, exist_ok=True)
    figures = run_pipeline(recording, lake, report)
    messages = sum(info.messages for info in LogReader(recording).endpoints.values())
    yield figures["messages"] == messages, f"lake {lake}: {figures['messages']} of {messages} recorded messages are new"
    yield report.stat().st_size > 0, f"report: {report.resolve()}"
