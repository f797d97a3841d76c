"""Channels and queues that appear while the recorder runs: what came before it noticed them is recorded, or counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.common.queue_events import Event
from msgq.recording import LogReader, Recorder
from msgq.recording.recorder import recorder as recording
from msgq.recording.recorder.endpoints import RecordedEndpoints
from tests.support import wait_until


@pytest.fixture
def scan_lock(prefix: str, monkeypatch: pytest.MonkeyPatch) -> threading.Lock:
    """A lock: whoever has it is between two looks for new endpoints, which are frequent otherwise."""
    lock = threading.Lock()
    look = RecordedEndpoints.rescan_endpoints

    def locked(endpoints: RecordedEndpoints) -> None:
        with lock:
            look(endpoints)

    monkeypatch.setattr(RecordedEndpoints, "rescan_endpoints", locked)
    monkeypatch.setattr(recording, "_RESCAN_INTERVAL_S", 0.0)
    return lock


@pytest.fixture
def recorder(scan_lock: threading.Lock, tmp_path: Path) -> Iterator[Recorder]:
    with Recorder(tmp_path / "log", chunk_seconds=0.01) as started:
        yield started


def publish_numbers(first: int, count: int, capacity: int = 1024) -> None:
    """Make the channel, publish numbers, and close it."""
    with msgq.Channel("c", capacity=capacity) as channel, channel.publisher(slots=2 * count) as publisher:
        for number in range(first, first + count):
            publisher.send(b"%d" % number)


def read_numbers(path: Path) -> list[int]:
    return [int(message.data) for message in LogReader(path)]


def wait_until_accounted(recorder: Recorder, count: int) -> None:
    """Wait until so many messages are recorded or lost."""
    wait_until(lambda: recorder.stats().messages + (recorder.stats().lost or 0) >= count, f"{count} messages are known")


def test_channel_created_and_removed_between_scans_is_recorded(
    recorder: Recorder, scan_lock: Any, tmp_path: Path
) -> None:
    with scan_lock:
        publish_numbers(0, 10)
    wait_until_accounted(recorder, 10)
    assert recorder.stop().lost == 0
    assert read_numbers(tmp_path / "log") == list(range(10))
    assert LogReader(tmp_path / "log").endpoints["channel/c"].lost == 0


def test_channel_recreated_between_scans_is_recorded_in_two_epochs(
    recorder: Recorder, scan_lock: Any, tmp_path: Path
) -> None:
    """Each life is whole: of the former one what was not taken when it was removed, of the new one its beginning."""
    publish_numbers(0, 5)
    wait_until_accounted(recorder, 5)
    with scan_lock:
        msgq.Channel("c", create=False, passive=True).unlink()
        publish_numbers(5, 10)
    wait_until_accounted(recorder, 15)
    assert recorder.stop().lost == 0
    assert read_numbers(tmp_path / "log") == list(range(15))
    assert {message.epoch for message in LogReader(tmp_path / "log")} == {1, 2}


def test_overwritten_messages_of_new_channel_are_lost(recorder: Recorder, scan_lock: Any, tmp_path: Path) -> None:
    with scan_lock:
        publish_numbers(0, 100, capacity=16)
    wait_until_accounted(recorder, 100)
    stats = recorder.stop()
    found = read_numbers(tmp_path / "log")
    assert stats.lost is not None
    assert (stats.messages, stats.messages + stats.lost) == (len(found), 100)
    assert found == list(range(stats.lost, 100))
    assert 0 < len(found) <= 16


def test_channel_created_after_last_scan_is_recorded_at_stop(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "_RESCAN_INTERVAL_S", float("inf"))
    with Recorder(tmp_path / "log", chunk_seconds=0.01) as recorder:
        publish_numbers(0, 10)
        stats = recorder.stop()
    assert (stats.messages, stats.lost) == (10, 0)
    assert read_numbers(tmp_path / "log") == list(range(10))


def test_earlier_messages_of_existing_channel_are_not_recorded(scan_lock: Any, tmp_path: Path) -> None:
    publish_numbers(0, 5)
    with Recorder(tmp_path / "log", chunk_seconds=0.01) as recorder:
        publish_numbers(5, 5)
        wait_until_accounted(recorder, 5)
        assert recorder.stop().lost == 0
    assert read_numbers(tmp_path / "log") == list(range(5, 10))


def test_messages_of_new_channel_during_pause_are_not_recorded(scan_lock: Any, tmp_path: Path) -> None:
    with Recorder(tmp_path / "log", chunk_seconds=0.01, start_paused=True) as recorder:
        publish_numbers(0, 5)
        recorder.resume()
        wait_until(lambda: recorder.stats().endpoints == 1)
        publish_numbers(5, 5)
        wait_until_accounted(recorder, 5)
        assert recorder.stop().lost == 0
    assert read_numbers(tmp_path / "log") == list(range(5, 10))


def test_events_of_queue_removed_between_scans_are_recorded(recorder: Recorder, scan_lock: Any, tmp_path: Path) -> None:
    with scan_lock, msgq.MessageQueue("jobs", max_messages=8, max_message_size=64, events="payload") as jobs:
        for number in range(5):
            jobs.send(b"%d" % number, priority=number)
        with jobs.take(0) or pytest.fail("no job"):
            pass
    wait_until_accounted(recorder, 7)
    assert recorder.stop().lost == 0
    log = LogReader(tmp_path / "log")
    assert log.endpoints.keys() == {"queue/jobs"}
    found = [(value["event"], value["payload"]) for _, value in log.decoded()]
    assert found[:5] == [("sent", b"%d" % number) for number in range(5)]
    assert [event for event, _ in found[5:]] == ["taken", "acknowledged"]
    assert {message.data[0] for message in log} == {Event.SENT, Event.TAKEN, Event.ACKNOWLEDGED}
