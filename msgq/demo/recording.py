"""The demo records itself by the recorder that everybody uses; its recording is read back, replayed, and reported."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgq
from msgq.demo import plan
from msgq.recording import FrameChoice, LogReader, Recorder, compare, replay

PICTURES_A_SECOND = 2.0


@dataclass(frozen=True)
class RecordedFigures:
    """An endpoint of the recording. `lost`: published and not recorded, by the gaps in the numbers."""

    topic: str
    messages: int
    bytes: int
    lost: int


def recorder(run: str, path: Path) -> Recorder:
    """Start recording a run, from its first message on."""
    endpoints = [plan.endpoint(run, name) for name, topic in plan.TOPICS.items() if not topic.frames]
    pictures = [FrameChoice(plan.server_name(run, topic.name), plan.STREAM, PICTURES_A_SECOND) for topic in plan.FRAMES]
    endpoints += plan.timing_topics(run)
    return Recorder(path, endpoints, frames=pictures, level=3)


def recorded(run: str, path: Path) -> tuple[RecordedFigures, ...]:
    """Read the recording back."""
    names = {plan.endpoint(run, name): name for name in plan.TOPICS} | plan.timing_topics(run)
    log = LogReader(path)
    return tuple(
        RecordedFigures(names.get(info.endpoint, "load, pictures"), info.messages, info.bytes, info.lost or 0)
        for info in log.endpoints.values()
    )


def violations(figures: tuple[RecordedFigures, ...], published: Mapping[str, plan.Published]) -> Iterator[str]:
    """Say where the recording is not the run."""
    by_topic = {one.topic: one for one in figures}
    for name, topic in published.items():
        if plan.TOPICS[name].frames or name == plan.BUSY.name:  # on a busy machine its ring is too small for anybody
            continue
        one = by_topic.get(name)
        if one is None or one.messages != topic.messages:
            yield f"recorded {one.messages if one else 0} of the {topic.messages} messages of {name}"
        if one is not None and one.lost:
            yield f"the recording of {name} has gaps: {one.lost} messages"


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

    comparison = compare(replay(log, totals), replay(log, totals))
    yield bool(comparison), f"replayed twice in virtual time: {comparison}"


def reported(recording: Path, report: Path) -> Iterator[tuple[bool, str]]:
    """Ingest the recording into a lake beside the report, and write that. Yields as `replayed` does."""
    from msgq.spark.pipeline import run_pipeline  # Spark, which only a report needs

    lake = report.with_suffix(".lake")
    report.parent.mkdir(parents=True, exist_ok=True)
    figures = run_pipeline(recording, lake, report)
    messages = sum(info.messages for info in LogReader(recording).endpoints.values())
    yield figures["messages"] == messages, f"lake {lake}: {figures['messages']} of {messages} recorded messages are new"
    yield report.stat().st_size > 0, f"report: {report.resolve()}"
