"""Reads of the participants of timing topics."""

from __future__ import annotations

import pytest

from msgq.common.thread_samples import ThreadParticipant
from msgq.monitor import stage_threads
from msgq.monitor.stage_threads import StageThreads

LIVING = ThreadParticipant("timing:a:b", "publisher", 1, 1, 0, "a")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Read no files. Return the names of the topics that were read; only one has a living publisher."""
    names: list[str] = []

    def read(name: str, _prefix: str) -> tuple[list[ThreadParticipant], str]:
        names.append(name)
        return ([LIVING], "") if name == LIVING.endpoint else ([], "Error: x" if name == "timing:broken:b" else "")

    monkeypatch.setattr(stage_threads, "read_participants", read)
    monkeypatch.setattr(stage_threads, "_PARTICIPANTS_PERIOD_S", 3600)
    return names


def test_topic_without_living_publisher_is_read_once_in_a_period(reads: list[str]) -> None:
    threads = StageThreads(10)
    topics = [LIVING.endpoint, "timing:dead:b"]
    for _ in range(3):
        threads.poll(topics)
    assert reads == topics
    threads.poll([*topics, "timing:new:b"])
    threads.poll(topics)
    assert reads == [*topics, *topics, "timing:new:b"]


def test_topic_without_thread_has_reason(reads: list[str]) -> None:
    threads = StageThreads(10)
    threads.poll(["timing:dead:b", "timing:broken:b"])
    assert threads.find_problem("timing:dead:b") == "the stage has no living publisher"
    assert threads.find_problem("timing:broken:b") == "Error: x"
