"""What was recorded of all kinds is played, and recorded again: message by message it is the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.common.record_changes import unpack_change
from msgq.common.schema import Schema
from msgq.impl.base import clock
from msgq.recording import FrameStream, LogReader, Message, Player, Recorder
from msgq.workqueue.playback import is_sent, payload
from tests.support import Task, wait_until
from visionipc import FrameFormat, VisionIpcServer

NS = 1_000_000_000
AGE_S = 5000
ROUNDS = 6
QUOTE = np.dtype([("bid", "<f8"), ("ask", "<f4")])
TEXT = Schema("text", "json")
STREAM = 2
ANNOUNCING = re.compile(r"visionipc_[^/]*")

Say = Callable[[int], None]


class Everything:
    """Endpoints of all kinds, which say something on each in turn."""

    def __init__(self, camera: str, stack: ExitStack) -> None:
        opened = stack.enter_context
        self._topics = opened(msgq.pub_sock("plain")), opened(msgq.pub_sock("tracked", tracked=True))
        self._nodes = [
            opened(opened(msgq.Channel("scans", capacity=64, schema=TEXT, node=name)).publisher(slot_bytes=100))
            for name in ("front", "rear")
        ]
        self._quotes = opened(msgq.SeqlockVector("quotes", QUOTE, 8))
        board = opened(msgq.Board("state", 4, 64, schema=TEXT))
        self._keys = [board.declare(key) for key in ("mode", "pose")]
        self._jobs = opened(msgq.MessageQueue("jobs", max_messages=32, max_message_size=128, events="payload"))
        self._camera = opened(VisionIpcServer(camera))
        self._camera.create_buffers(STREAM, 4, 4, 2, FrameFormat.RGB24)
        self._camera.start_listener()

    @property
    def watched(self) -> bool:
        """Whether somebody receives the stream."""
        return bool(self._camera.stats(STREAM).clients)

    def __iter__(self) -> Iterator[Say]:
        return iter((self._plain, self._tracked, self._scan, self._scan, self._quote, self._key, self._job, self._show))

    def _plain(self, number: int) -> None:
        self._topics[0].send(b"plain %d" % number)

    def _tracked(self, number: int) -> None:
        self._topics[1].send(b"tracked %d" % number, origin_time=make_old_time(number))

    def _scan(self, number: int) -> None:
        """Say it by the one, then by the other; not every message has an origin."""
        self._nodes.reverse()
        self._nodes[0].send(b"scan %d" % number, origin_time=make_old_time(number) if number % 2 else 0)

    def _quote(self, number: int) -> None:
        self._quotes[number % 4] = (number + 0.5, number)

    def _key(self, number: int) -> None:
        self._keys[number % 2].write(b"[%d]" % number)

    def _job(self, number: int) -> None:
        self._jobs.send(b"job %d" % number, priority=number % 3)
        job = self._jobs.take(0)
        assert job is not None
        with job:
            pass  # the block's end acknowledges the job

    def _show(self, number: int) -> None:
        with self._camera.frame(STREAM) as frame:
            frame.image[:] = number
            frame.frame_id, frame.timestamp_sof = 40 + number, 5 * NS + number


def is_played(message: Message) -> bool:
    """Return whether the player has a message: what says that a job was taken, or announces a picture, it has not."""
    return is_sent(message.data) if message.kind == "queue" else not ANNOUNCING.fullmatch(message.endpoint)


def make_old_time(number: int) -> int:
    """Return a time that is longer ago than any test takes."""
    return clock.time_ns() - (number + 1) * AGE_S * NS


def wait_until_recorded(recorder: Recorder, count: int) -> None:
    """Wait: a vector's element that is written again before the recorder looks is one message."""
    wait_until(lambda: recorder.stats().messages >= count or not recorder.running, f"{count} messages are recorded")


def record(path: Path, camera: str) -> LogReader:
    """Record something of each kind, and remove the endpoints."""
    with ExitStack() as stack:
        everything = Everything(camera, stack)
        recorder = stack.enter_context(Recorder(path, frames=[FrameStream(camera, STREAM)], chunk_seconds=0.01))
        wait_until(lambda: everything.watched)
        count = 0
        for number in range(ROUNDS):
            for say in everything:
                say(number)
                count += 3 if say == everything._job else 2 if say == everything._show else 1  # events; what announces
                wait_until_recorded(recorder, count)
    msgq.Channel("scans", create=False, passive=True).unlink()
    msgq.SeqlockVector.unlink_name("quotes")
    msgq.Board.unlink_name("state")
    msgq.MessageQueue.unlink_name("jobs")
    return LogReader(path)


def play(log: LogReader, path: Path, camera: str) -> LogReader:
    """Play a recording step by step into another recorder."""
    pictures = f"visionipc_{camera}_{STREAM}/image"
    with (
        Player(log, start_paused=True, wait_for_readers=[pictures]) as player,
        Recorder(path, frames=[FrameStream(camera, STREAM)], chunk_seconds=0.01) as recorder,
    ):
        assert list(player.skipped) == [pictures.removesuffix("/image")]  # the server that is played announces, too
        task = Task(player.run)
        count = 0
        for message in log:
            if is_played(message):
                player.step()
                count += 2 if message.kind == "frames" else 1  # it is announced
                wait_until_recorded(recorder, count)
        assert task.result().unplayed == {}
        assert recorder.stats().lost == 0
    return LogReader(path)


def list_said_values(log: LogReader) -> dict[tuple[str, str, str], list[Any]]:
    """Return what each publisher and key of each endpoint said, in their order, without the times."""
    found: dict[tuple[str, str, str], list[Any]] = {}
    for message in log:
        if is_played(message):
            key = message.endpoint, message.publisher, message.key
            found.setdefault(key, []).append((message.schema, strip_times(message)))
    return found


def strip_times(message: Message) -> Any:
    """Return what of a message has no time in it: events and changes say when they were."""
    if message.kind == "queue":
        return payload(message.data)
    if message.kind == "records" and not message.key:
        change, item = unpack_change(message.data)
        return change.index, change.count, item
    return message.data


def compute_ages(log: LogReader) -> dict[str, list[int | None]]:
    """Return how old what messages come from was, in units of AGE_S, by endpoint; None: they do not say."""
    found: dict[str, list[int | None]] = {}
    for message in log:
        age = (message.publish_time - message.origin_time) // (AGE_S * NS) if message.origin_time else None
        found.setdefault(message.endpoint, []).append(age)
    return found


@pytest.mark.usefixtures("prefix")
def test_recording_of_played_recording_has_same_messages(tmp_path: Path, token: str) -> None:
    first = record(tmp_path / "first", token)
    assert Counter(message.endpoint for message in first) == {
        "plain": ROUNDS,
        "tracked": ROUNDS,
        "channel/scans": 2 * ROUNDS,
        "records/quotes": ROUNDS,
        "records/state": ROUNDS,
        "queue/jobs": 3 * ROUNDS,
        f"visionipc_{token}_{STREAM}": ROUNDS,  # announces the pictures
        f"visionipc_{token}_{STREAM}/image": ROUNDS,
    }
    second = play(first, tmp_path / "second", token)
    assert list_said_values(second) == list_said_values(first)
    assert {name: (info.kind, info.tracked, info.options) for name, info in second.endpoints.items()} == {
        name: (info.kind, info.tracked, info.options) for name, info in first.endpoints.items()
    }
    assert {(name, publisher) for name, publisher, _ in list_said_values(second) if name == "channel/scans"} == {
        ("channel/scans", "front"),
        ("channel/scans", "rear"),
    }
    for name, expected in compute_ages(first).items():
        assert name == "queue/jobs" or compute_ages(second)[name] == expected
    assert compute_ages(second)["tracked"] == list(range(1, ROUNDS + 1))
    assert [age is None for age in compute_ages(second)["channel/scans"]] == [True, True, False, False] * (ROUNDS // 2)
