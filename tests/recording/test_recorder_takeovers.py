"""Takeovers of topics in recordings: two living publishers, and publishers that end before the next one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import msgq
from msgq.recording import LogReader, Recorder
from msgq.recording.reader.message import Message
from tests.support import Child, hear, say, wait_until

COUNT = 20


def publish_on_request(name: str, first: int) -> None:
    """Child: connect, then publish the numbers from `first`, then close the topic or stay. Print each step."""
    publisher = msgq.pub_sock(name)
    say("connected")
    hear()
    for number in range(first, first + COUNT):
        publisher.send(b"%d" % number)
    say("sent")
    if hear() == "close":
        publisher.close()
        say("closed")
        hear()


@pytest.fixture
def recorder(prefix: str, tmp_path: Path) -> Iterator[Recorder]:
    recorder = Recorder(tmp_path / "log", chunk_seconds=0.1)
    yield recorder
    recorder.stop()


def publish(child: Child, recorder: Recorder, recorded: int) -> None:
    """Let a child publish, until `recorded` messages are recorded."""
    assert child.hear() == "connected"
    child.say("go")
    assert child.hear() == "sent"
    wait_until(lambda: recorder.stats().messages >= recorded)


def read_messages(recorder: Recorder, path: Path) -> list[Message]:
    """Return all messages, which have one numbering without a gap."""
    stats = recorder.stop()
    messages = list(LogReader(path))
    assert [int(message.data) for message in messages] == [message.sequence for message in messages]
    assert ({message.epoch for message in messages}, stats.lost) == ({1}, 0)
    assert LogReader(path).endpoints["speed"].lost == 0
    return messages


def test_messages_after_a_takeover_name_the_publisher(recorder: Recorder, tmp_path: Path) -> None:
    with Child(publish_on_request, "speed", 0) as first:
        publish(first, recorder, COUNT)
        with Child(publish_on_request, "speed", COUNT) as second:
            publish(second, recorder, 2 * COUNT)
            names = [message.publisher for message in read_messages(recorder, tmp_path / "log")]
            assert names[:COUNT] == [""] * COUNT
            assert names[-1].endswith(f" {second.pid}")
            assert len(set(names)) == 2


@pytest.mark.parametrize("end", ["close", "kill"])
def test_publisher_after_end_of_previous_publisher_is_no_takeover(recorder: Recorder, tmp_path: Path, end: str) -> None:
    with Child(publish_on_request, "speed", 0) as first:
        publish(first, recorder, COUNT)
        if end == "close":
            first.say("close")
            assert first.hear() == "closed"
        else:
            first.kill()
        with Child(publish_on_request, "speed", COUNT) as second:
            publish(second, recorder, 2 * COUNT)
            assert {message.publisher for message in read_messages(recorder, tmp_path / "log")} == {""}


def test_many_takeovers_use_few_channels_and_lose_nothing(recorder: Recorder, tmp_path: Path) -> None:
    """Processes that replace each other all the time, such as children of a fork that all send."""
    publisher = msgq.pub_sock("speed")
    for number in range(400):
        publisher.send(b"%d" % number)
        former, publisher = publisher, msgq.pub_sock("speed")
        former.close()
    publisher.close()
    assert len(read_messages(recorder, tmp_path / "log")) == 400
    assert len(LogReader(tmp_path / "log").channels) <= 201
