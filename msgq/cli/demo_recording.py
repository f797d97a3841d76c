"""The demo records itself: every topic and some of the pictures, by the recorder that everybody uses."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgq.cli import demo_plan as plan
from msgq.recording import FrameChoice, LogReader, Recorder

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
    return Recorder(path, endpoints, frames=pictures, level=3)


def recorded(run: str, path: Path) -> tuple[RecordedFigures, ...]:
    """Read the recording back."""
    names = {plan.endpoint(run, name): name for name in plan.TOPICS}
    log = LogReader(path)
    return tuple(
        RecordedFigures(names.get(info.endpoint, "load, pictures"), info.messages, info.bytes, info.lost or 0)
        for info in log.endpoints.values()
    )


def violations(figures: tuple[RecordedFigures, ...], published: Mapping[str, plan.Published]) -> Iterator[str]:
    """Say where the recording is not the run."""
    found = {one.topic: one for one in figures}
    for name, topic in published.items():
        if plan.TOPICS[name].frames or name == plan.BUSY.name:  # on a busy machine its ring is too small for anybody
            continue
        one = found.get(name)
        if one is None or one.messages != topic.messages:
            yield f"recorded {one.messages if one else 0} of the {topic.messages} messages of {name}"
        if one is not None and one.lost:
            yield f"the recording of {name} has gaps: {one.lost} messages"
