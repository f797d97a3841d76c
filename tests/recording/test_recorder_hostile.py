"""A recorder beside endpoints whose bytes, or number, would cost it more than there is: the others are recorded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.common import shm_paths
from msgq.impl.channel.pool_files import list_pools
from msgq.kinds.opening import open_source
from msgq.recording import LogReader
from msgq.recording.mcap_io.core import ChunkBuffer
from msgq.recording.recorder import endpoints
from msgq.recording.recorder.core import Capture
from msgq.recording.recorder.recorder import Recorder
from tests.recording.test_recorder_kinds import overwrite_bytes
from tests.support import wait_until

KEYS, KEY_AT, LINE = 60_000, 32768, 64


@pytest.fixture
def start(prefix: str, tmp_path: Path) -> Iterator[Callable[[], Recorder]]:
    """A function that starts a recorder; it is stopped at the end in any case."""
    made: list[Recorder] = []

    def started() -> Recorder:
        made.append(Recorder(tmp_path / "log", chunk_seconds=0.02))
        return made[-1]

    yield started
    for recorder in made:
        recorder.stop()


def hears_a_topic(recorder: Recorder) -> None:
    """Check that what a sane publisher sends is recorded all the same."""
    before = recorder.stats().messages
    with msgq.pub_sock("sane") as pub:
        wait_until(lambda: not recorder.running or "sane" in recorder._recorded_endpoints._named_endpoints)
        pub.send(b"x")
        wait_until(lambda: not recorder.running or recorder.stats().messages > before)
    assert recorder.running


def fill_board(name: str, prefix: str) -> None:
    """Give all keys of a board a name and a value."""
    msgq.Board(name, KEYS, 8).close()
    path = Path(shm_paths.records_path(name, prefix))
    data = bytearray(path.read_bytes())
    for key in range(KEYS):
        at, value = KEY_AT + 128 * key, KEY_AT + 128 * KEYS + LINE * key
        data[at + 8 : at + 16] = (1).to_bytes(8, "little")
        data[at + 16 : at + 24] = b"k%-7d" % key
        data[value : value + 8] = (1 << 24).to_bytes(8, "little")
    path.write_bytes(data)


@pytest.mark.ci
@pytest.mark.needs_shm(28 << 20)
def test_recorder_with_more_keys_than_mcap_channels_continues(start: Any, prefix: str, tmp_path: Path) -> None:
    """Failure would mean: whoever declares keys enough, or publishes under names enough, ends a recording of all."""
    with msgq.pub_sock("first") as pub:
        recorder = start()
        pub.send(b"x")
        wait_until(lambda: recorder.stats().messages == 1)
        for name in ("one", "two"):
            fill_board(name, prefix)
        wait_until(lambda: not recorder.running or recorder.stats().lost == 2 * KEYS - (65_535 - 1))
        assert recorder.running
        wait_until(lambda: recorder.stats().refused)
        pub.send(b"y")
        wait_until(lambda: recorder.stats().messages == 65_535 + 1)
    refused = recorder.stop().refused
    assert set(refused) <= {"records/one", "records/two"}
    assert all("start another recording" in why for why in refused.values())
    assert [m.data for m in LogReader(tmp_path / "log") if m.endpoint == "first"] == [b"x", b"y"]


def huge_slots(prefix: str) -> Any:
    """Return the publisher of a channel whose pool says that it has slots of 1 TiB, in a sparse file of that size."""
    publisher = msgq.Channel("c").publisher(slots=4, slot_bytes=4096)
    [(_, uid)] = list_pools(prefix)
    path = shm_paths.pool_path("c", prefix, uid)
    os.truncate(path, 4 * ((1 << 40) + 4096))
    overwrite_bytes(path, 32, (1 << 40).to_bytes(8, "little"))
    return publisher


def test_recorder_with_too_large_pool_continues(start: Any, prefix: str) -> None:
    """Failure would mean: a header of a few bytes ends a recording of all endpoints."""
    publisher = huge_slots(prefix)
    recorder = start()
    publisher.send(b"x")
    wait_until(lambda: not recorder.running or recorder.stats().messages == 1)
    hears_a_topic(recorder)


def test_recorder_skips_message_of_impossible_length(prefix: str) -> None:
    """Failure would mean: one length in shared memory has the recorder ask for room that nobody has."""
    publisher = huge_slots(prefix)
    publisher.send(b"large")
    path = shm_paths.pool_path("c", prefix, list_pools(prefix)[0][1])
    with open(path, "rb") as file:
        at = file.read(1 << 16).index((5).to_bytes(8, "little"), 4096)
    overwrite_bytes(path, at, (1 << 39).to_bytes(8, "little"))
    capture, chunk = Capture(), ChunkBuffer(1 << 16, 0)
    capture.add_source(open_source("channel/c", prefix, whole=True))
    assert not capture.capture_messages(chunk, 0)
    assert (capture.count_skipped_messages(0), capture.needed_bytes, len(chunk)) == (1, 0, 0)
    publisher.send(b"x")
    capture.capture_messages(chunk, 0)
    assert (capture.count_skipped_messages(0), len(chunk)) == (1, 1)


def test_recorder_with_unlistable_directory_continues(start: Any, prefix: str) -> None:
    """Failure would mean: whoever makes a kind's directory first ends, or prevents, every recording of its prefix."""
    directory, _ = shm_paths.locate_records_files(prefix)
    os.symlink(directory, directory)
    try:
        recorder = start()
        assert set(recorder.stats().refused) == {directory}
        hears_a_topic(recorder)
    finally:
        os.unlink(directory)
    msgq.Board("b", 4, 64).declare("k").write(b"1")
    wait_until(lambda: recorder.stats().messages == 2)
    assert recorder.stats().refused == {}


def test_recorder_with_too_large_endpoint_continues(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_source

    def without_memory(endpoint: str, *arguments: Any, **options: Any) -> Any:
        if endpoint == "records/v":
            raise MemoryError("no memory for the counts")
        return opened(endpoint, *arguments, **options)

    monkeypatch.setattr(endpoints, "open_source", without_memory)
    vector = msgq.SeqlockVector("v", "<i8", 4)
    recorder = start()
    assert set(recorder.stats().refused) == {"records/v"}
    hears_a_topic(recorder)
    vector.close()
