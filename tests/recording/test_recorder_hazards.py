"""A recorder among threads, forks, rings that vanish, and others who write nonsense: it goes on, and it counts."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import resource
import signal
import struct
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq import errors
from msgq.common import settings, shm_paths
from msgq.common.selection import SelectedEndpoints
from msgq.errors import MsgqWarning
from msgq.impl.ring.core import unlink_topic
from msgq.recording.log_reader import LogReader
from msgq.recording.mcap_io.core import ChunkBuffer
from msgq.recording.mcap_io.segment_writer import ChunkCompressor, SegmentWriter
from msgq.recording.recorder import frame_receiver
from msgq.recording.recorder.core import Capture
from msgq.recording.recorder.endpoints import RecordedEndpoints, find_publish_offset
from msgq.recording.recorder.frame_receiver import FrameRateLimiter, FrameReceiver, FrameStream
from msgq.recording.recorder.recorder import Recorder
from msgq.recording.recorder.rolling_writer import RecordingLimits
from tests.support import DEADLINE, Task, in_fork, run_child, wait_until
from visionipc import FrameFormat, VisionIpcServer

QUICK: dict[str, Any] = {"chunk_seconds": 0.02}


@pytest.mark.parametrize("data", [b'"(1,"', b"[" * 40_000, b'[["a",' * 4000])
def test_schema_with_invalid_dtype_has_no_publish_offset(data: Any) -> None:
    assert find_publish_offset(msgq.Schema("nonsense", "struct", data)) == -1


def test_schema_with_nested_fields_has_publish_offset() -> None:
    dtype = [["pose", [["x", "<f4"], ["y", "<f4"]]], ["publish_time", "<u8"]]
    assert find_publish_offset(msgq.Schema("nested", "struct", json.dumps(dtype).encode())) == 8


def has_written(recorder: Recorder, count: int) -> bool:
    """Return whether so many messages are in the file."""
    return recorder.stats().messages == count and not recorder.stats().waiting_bytes


def waiting(recorder: Recorder) -> bool:
    """Return whether a thread of the recorder waits for a change."""
    changed: Any = recorder._state_changed  # no stub has its list
    return bool(changed._waiters)


def test_recorder_stopped_after_resume_records_no_messages_of_pause(prefix: str, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e")
    recorder = Recorder(tmp_path / "log", start_paused=True, chunk_seconds=60)
    wait_until(lambda: waiting(recorder))  # it has seen that it is paused
    pub.send(b"unwanted")
    with recorder._state_changed:  # it cannot see that it is no more before it sees that it is to stop
        recorder.resume()
        recorder._is_stopping = True
    assert recorder.stop().messages == 0


def test_recorder_resume_does_not_wait_for_end_of_chunk(prefix: str, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e")

    def recorded() -> bool:
        pub.send(bytes(1000))
        return bool(recorder.stats().messages)

    with Recorder(tmp_path / "log", start_paused=True, chunk_bytes=1024, chunk_seconds=60) as recorder:
        wait_until(lambda: waiting(recorder))
        recorder.resume()
        wait_until(recorded)


def test_chunk_larger_than_queue_limit_is_accepted(prefix: str, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e")
    recorder = Recorder(tmp_path / "log", snapshot_bytes=1 << 30, cache_bytes=0, **QUICK)
    for count in range(1, 50):
        pub.send(b"x")
        wait_until(partial(lambda sent: recorder.stats().messages == sent, count))
    recorder.stop()


def test_forked_child_does_not_keep_file_lock(prefix: str, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e")
    recorder = Recorder(tmp_path / "log", **QUICK)
    pub.send(b"x")
    wait_until(lambda: recorder.stats().written_bytes)
    pid = os.fork()
    if pid == 0:
        signal.pause()
    try:
        recorder.stop()
        with (tmp_path / "log/000000.mcap").open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_forked_child_does_not_change_recording(prefix: str, tmp_path: Path) -> None:
    """Failure would mean: it hangs, for locks that the parent's threads held at the fork, or ends what it must not."""
    pub = msgq.pub_sock("e")
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        with recorder._state_changed:
            held.set()
            free.wait(10)

    def leave() -> None:
        for forbidden in (recorder.stop, recorder.pause, recorder.resume, recorder.snapshot, recorder.stats):
            with pytest.raises(errors.ForkedSocketError, match="belongs to the parent"):
                forbidden()
        recorder.__exit__(None, None, None)

    with Recorder(tmp_path / "log", **QUICK) as recorder:
        pub.send(b"1")
        wait_until(lambda: recorder.stats().messages == 1)
        task = Task(hold)
        held.wait(10)
        assert in_fork(leave) == 0
        free.set()
        task.result()
        pub.send(b"2")
    assert [message.data for message in LogReader(tmp_path / "log")] == [b"1", b"2"]


def test_recorder_after_error_takes_no_messages(prefix: str, tmp_path: Path) -> None:
    """Nobody would write it: failure would mean that memory fills as fast as publishers go on."""

    def fail() -> None:
        raise errors.RecordingError("the disk is gone")

    pub = msgq.pub_sock("e")
    recorder = Recorder(tmp_path / "log", chunk_bytes=1024, chunk_seconds=60)
    with recorder._chunk_queue._state_changed:  # the recorder cannot submit the chunk that it fills
        for _ in range(800):
            pub.send(bytes(1000))
        recorder._run_thread(fail)
    with pytest.raises(errors.RecordingError, match="the disk is gone"):
        recorder.stop()
    assert recorder.stats().messages < 10


def test_wall_clock_change_does_not_end_segment(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pub = msgq.pub_sock("e")
    with Recorder(tmp_path / "log", limits=RecordingLimits(split_seconds=600.0), **QUICK) as recorder:
        for count in range(1, 4):
            pub.send(b"x")
            wait_until(partial(has_written, recorder, count))
            monkeypatch.setattr(time, "time_ns", lambda now=time.time_ns: now() + 3600 * 10**9)
        assert recorder.stats().segments == 1


def begin_on_a_full_disk(path: str) -> list[str]:
    """Child: begin a file that may have no byte."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = os.listdir("/proc/self/fd")
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with pytest.raises(errors.RecordingError, match="cannot be written"):
        SegmentWriter(Path(path), ChunkCompressor("none", None), {})
    assert os.listdir("/proc/self/fd") == before
    return os.listdir(Path(path).parent)


def test_file_without_space_for_header_is_removed(prefix: str, tmp_path: Path) -> None:
    assert run_child(begin_on_a_full_disk, str(tmp_path / "file.mcap")) == []


# ---- rings that are made anew ----


def test_unread_messages_of_removed_ring_are_recorded(prefix: str) -> None:
    capture, chunk = Capture(), ChunkBuffer(4096, 1024)
    sources = RecordedEndpoints(capture, SelectedEndpoints(), None)
    with msgq.pub_sock("e") as pub:
        sources.rescan_endpoints()
        pub.send_many([b"x"] * 10)
        unlink_topic("e")
        with msgq.pub_sock("e") as successor:
            successor.send(b"y")
            sources.rescan_endpoints()
            capture.capture_messages(chunk, 0)
            pub.send(b"x")  # it has not noticed
            sources.handle_changes()
            assert len(sources.endpoints_by_source) == 2
            capture.capture_messages(chunk, 0)
    sources.handle_changes()
    assert (len(chunk), sources.count_losses(), len(sources.endpoints_by_source)) == (12, {"e": 0}, 1)


def test_ring_recreated_during_pause_is_joined_once(prefix: str) -> None:
    capture, chunk = Capture(), ChunkBuffer(1024, 1024)
    sources = RecordedEndpoints(capture, SelectedEndpoints(), None)
    with msgq.pub_sock("e") as pub:
        sources.rescan_endpoints()
        pub.send(b"unwanted")
        unlink_topic("e")
    with msgq.pub_sock("e") as pub:
        sources.rejoin_at_present()
        pub.send(b"wanted")
        sources.rescan_endpoints()
        capture.capture_messages(chunk, 0)
        assert (len(chunk), sources.count_losses()) == (1, {"e": 0})


def test_message_larger_than_all_chunks_does_not_stop_endpoint(prefix: str, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e", segment_size=1 << 20)
    recorder = Recorder(tmp_path / "log", chunk_bytes=1024, **QUICK)
    pub.send(b"a" * 64)
    wait_until(lambda: recorder.stats().messages == 1)
    with open(shm_paths.ring_path("e", prefix), "r+b") as file, mmap.mmap(file.fileno(), 0) as ring:
        (position,) = struct.unpack_from("<Q", ring, 8)  # write_pointer
        struct.pack_into("<Q", ring, ring.find(b"a" * 64) + 64, 600_000)
        struct.pack_into("<Q", ring, 8, position + 8 + 600_000)
    wait_until(lambda: recorder.stats().corrupt == 1)
    assert recorder.stop().messages == 1


# ---- prefixes ----


def test_prefix_override_applies_to_its_thread_only(prefix: str) -> None:
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        with settings.overrides("theirs"):
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(10)
    with settings.overrides("mine"):
        assert settings.get_prefix() == "mine"
        with settings.overrides(""):
            assert settings.get_prefix() == ""
        done.set()
        thread.join()
        assert settings.get_prefix() == "mine"
    assert settings.get_prefix() == os.environ["OPENPILOT_PREFIX"] == prefix


def test_recorder_waiting_for_frames_does_not_change_prefix(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = threading.Event()

    def find_none(server: str) -> set[int]:
        waiting.set()
        return set()

    monkeypatch.setattr(frame_receiver, "list_streams", find_none)
    recorder = Recorder(tmp_path / "log", (), prefix=f"{prefix}-other", frames=[FrameStream("nobody", 0)], **QUICK)
    assert waiting.wait(DEADLINE)
    assert settings.get_prefix() == os.environ["OPENPILOT_PREFIX"] == prefix
    with pytest.warns(MsgqWarning, match="nothing was recorded of stream 0 of 'nobody'"):
        recorder.stop()


# ---- frames ----


@pytest.fixture
def camera(prefix: str, token: str) -> Iterator[Any]:
    with VisionIpcServer(token) as server:
        server.create_buffers(0, 4, 8, 4, FrameFormat.GRAY8)
        server.start_listener()
        yield server


def test_camera_with_impossible_times_does_not_end_recording(camera: Any, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "log", (), frames=[FrameStream(camera.name)], **QUICK)
    wait_until(lambda: camera.stats(0).clients)
    camera.send(0, bytes(32), timestamp_eof=2**64 - 1)
    wait_until(lambda: recorder.stats().messages or not recorder.running)
    recorder.stop()
    (found,) = LogReader(tmp_path / "log")
    assert abs(found.publish_time - found.log_time) < 60e9


def test_log_time_of_frame_is_receive_time(camera: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_fetch, fetch_frames = threading.Event(), FrameReceiver.fetch_frames
    # A recorder whose loop begins late fetches the frame before the test has seen that it waits.
    monkeypatch.setattr(FrameReceiver, "fetch_frames", lambda self: fetch_frames(self) if may_fetch.is_set() else [])
    recorder = Recorder(tmp_path / "log", (), frames=[FrameStream(camera.name)], chunk_seconds=60)
    wait_until(lambda: camera.stats(0).clients)
    camera.send(0, bytes(32))
    # The recorder lists a receiver after the camera counts its client.
    wait_until(lambda: any(receiver._waiting_frames for receiver in recorder._frame_sources.receivers))
    before_fetch = recorder._capture.read_host_clock_ns()
    may_fetch.set()
    recorder.stop()
    (recorded,) = LogReader(tmp_path / "log")
    assert recorded.publish_time <= recorded.log_time < before_fetch


def list_accepted_frames(period_s: float, *times_s: float) -> list[float]:
    limiter = FrameRateLimiter(period_s)
    return [time_s for time_s in times_s if limiter.accept_frame(time_s)]


def test_rate_limiter_accepts_one_frame_per_period() -> None:
    camera_times_s = [number / 20 for number in range(400)]
    accepted = list_accepted_frames(1 / 15, *camera_times_s)
    assert 299 <= len(accepted) <= 301
    assert list_accepted_frames(1 / 30, *camera_times_s) == camera_times_s
    assert list_accepted_frames(0.0, 1.0, 1.0, 1.0) == [1.0, 1.0, 1.0]


def test_rate_limiter_accepts_one_frame_after_gap() -> None:
    assert list_accepted_frames(1.0, 0.0, 0.1, 0.8, 1.7, 2.1, 9.5, 9.6, 10.2, 10.4) == [0.0, 0.8, 2.1, 9.5, 10.4]


def test_too_fast_frames_are_counted_as_lost(camera: Any, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    busy, go_on = threading.Event(), threading.Event()

    def slow(*_: object) -> bytes:
        busy.set()
        go_on.wait(10)
        return b""

    monkeypatch.setattr(frame_receiver, "encode_frame", slow)
    feed = FrameReceiver(FrameStream(camera.name, 0), prefix)
    wait_until(lambda: camera.stats(0).clients)
    camera.send(0, bytes(32))
    assert busy.wait(DEADLINE)
    for _ in range(20):  # more than there are buffers
        camera.send(0, bytes(32))
    go_on.set()
    fetched: list[object] = []

    def all_known() -> bool:
        fetched.extend(feed.fetch_frames())
        return len(fetched) + (feed.lost_frames or 0) == 21

    wait_until(all_known)
    feed.stop_receiving()
    assert feed.lost_frames


def test_incompressible_frame_is_reported(camera: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise TypeError("no such picture")

    monkeypatch.setattr(frame_receiver, "encode_frame", broken)
    choice = FrameStream(camera.name, 0)
    recorder = Recorder(tmp_path / "log", (), frames=[choice], **QUICK)
    wait_until(lambda: camera.stats(0).clients)
    camera.send(0, bytes(32))
    wait_until(lambda: recorder.stats().refused)
    assert recorder.stop().refused == {choice.endpoint: "no such picture"}
