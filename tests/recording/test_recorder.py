"""What a recorder writes: read back by the `mcap` library, which knows nothing of ours."""

from __future__ import annotations

import itertools
import json
import os
import re
import resource
import signal
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from mcap.reader import make_reader
from mcap.records import Message
from mcap.stream_reader import StreamReader

import msgq
from msgq import errors, stats
from msgq.errors import MsgqWarning
from msgq.impl.base import clock
from msgq.impl.ring.core import unlink_topic
from msgq.recording import LogReader
from msgq.recording.mcap_io import metadata_keys, recording_files
from msgq.recording.mcap_io.core import ChunkBuffer
from msgq.recording.mcap_io.segment_writer import ChunkCompressor, encode_channel
from msgq.recording.recorder.chunk_queue import ChunkQueue
from msgq.recording.recorder.frame_receiver import FrameStream
from msgq.recording.recorder.recorder import Recorder
from msgq.recording.recorder.rolling_writer import RecordingLimits, RollingWriter
from msgq.recording.recorder.snapshot_buffer import SnapshotBuffer
from msgq.recording.recorder.wall_clock import WallClock
from tests import command
from tests.support import Child, run_child, wait_until
from visionipc import FrameFormat, VisionIpcServer

BEGIN = 1_700_000_000 * 1_000_000_000


@pytest.fixture
def start(prefix: str, tmp_path: Path) -> Iterator[Callable[..., Recorder]]:
    """A function that starts a recorder in a fresh directory; it is stopped at the end in any case."""
    made: list[Recorder] = []

    def started(*endpoints: Any, path: Path | None = None, **options: Any) -> Recorder:
        recorder = Recorder(path or tmp_path / "log", endpoints or None, **{"chunk_seconds": 0.02, **options})
        made.append(recorder)
        return recorder

    yield started
    for recorder in made:
        try:
            recorder.stop()
        except errors.RecordingError:
            continue


def read_recorded_messages(path: Path) -> list[tuple[str, bytes, Any, Any]]:
    """Return (endpoint, data, message, channel) of all segments, CRCs checked."""
    found = []
    for segment in sorted(path.glob("*.mcap")) if path.is_dir() else [path]:
        with segment.open("rb") as file:
            for _, channel, message in make_reader(file, validate_crcs=True).iter_messages():
                found.append((channel.topic, message.data, message, channel))
    return found


def wait_until_recorded(recorder: Recorder, count: int) -> None:
    wait_until(lambda: recorder.stats().messages >= count or not recorder.running)


def test_recorder_records_several_endpoints(start: Any, tmp_path: Path) -> None:
    pubs = [msgq.pub_sock(f"e{i}") for i in range(3)]
    recorder = start()
    before = time.time_ns()
    for number in range(100):
        for i, pub in enumerate(pubs):
            pub.send(b"%d-%d" % (i, number))
    stopped = recorder.stop()
    after = time.time_ns()
    found = read_recorded_messages(tmp_path / "log")
    for i in range(3):
        mine = [(data, message) for endpoint, data, message, _ in found if endpoint == f"e{i}"]
        assert [data for data, _ in mine] == [b"%d-%d" % (i, number) for number in range(100)]
        assert [message.sequence for _, message in mine] == list(range(100))
    times = [message.log_time for *_, message, _ in found]
    assert times == sorted(times)
    assert before - 10**7 <= times[0] <= times[-1] <= after + 10**7
    assert all(message.publish_time == message.log_time for *_, message, _ in found)
    assert (stopped.messages, stopped.lost, stopped.endpoints, stopped.segments) == (300, 0, 3, 1)
    assert {channel.metadata["sequence"] for *_, channel in found} == {"published"}


def test_recorder_is_not_counted_as_subscriber(start: Any) -> None:
    pub = msgq.pub_sock("quiet")
    recorder = start()
    pub.send(b"x")
    wait_until_recorded(recorder, 1)
    assert stats.topic("quiet").subscribers == ()
    with pytest.raises(errors.WaitTimeoutError, match="0 subscribers"):
        pub.wait_for_readers(timeout=0)


def test_recorder_writes_schema_and_publish_time(start: Any, tmp_path: Path) -> None:
    dtype = np.dtype([("value", "<f8"), ("publish_time", "<i8")])
    schema = msgq.Schema("sample", "struct", json.dumps(np.lib.format.dtype_to_descr(dtype)).encode())
    pub = msgq.PubSocket()
    pub.connect(msgq.context, "samples", schema=schema)
    recorder = start()
    pub.send(np.array([(1.5, 1234567890)], dtype))
    pub.send(b"short")
    recorder.stop()
    (_, first, one, channel), (_, _, two, _) = read_recorded_messages(tmp_path / "log")
    assert np.frombuffer(first, dtype)["value"] == 1.5
    assert one.publish_time == 1234567890 < one.log_time
    assert two.publish_time == two.log_time
    assert channel.message_encoding == "struct"
    with (tmp_path / "log/000000.mcap").open("rb") as file:
        summary = make_reader(file).get_summary()
    assert summary is not None
    (found,) = summary.schemas.values()
    assert (found.name, found.encoding, found.data) == (schema.name, "struct", schema.data)


def test_recorder_writes_mcap_encoding_names_for_json(start: Any, tmp_path: Path) -> None:
    pub = msgq.PubSocket()
    pub.connect(msgq.context, "j", schema=msgq.Schema("thing", "json", b'{"type": "object"}'))
    recorder = start()
    pub.send(b"{}")
    recorder.stop()
    with (tmp_path / "log/000000.mcap").open("rb") as file:
        ((schema, channel, _),) = make_reader(file).iter_messages()
    assert schema is not None
    assert (schema.encoding, channel.message_encoding) == ("jsonschema", "json")


def test_recorder_counts_sequence_gap_as_loss(start: Any, tmp_path: Path) -> None:
    pub = msgq.pub_sock("busy", segment_size=4096)
    recorder = start(chunk_bytes=1024)
    pub.send_many(np.zeros((20_000, 64), np.uint8))
    stopped = recorder.stop()
    sequences = [message.sequence for *_, message, _ in read_recorded_messages(tmp_path / "log")]
    assert stopped.lost > 0
    assert stopped.messages + stopped.lost == 20_000
    # Losses before the first and behind the last message leave no gap between two.
    gaps = sum(b - a - 1 for a, b in itertools.pairwise([-1, *sequences, 20_000]))
    assert gaps == stopped.lost
    with (tmp_path / "log/000000.mcap").open("rb") as file:
        metadata = {record.name: record.metadata for record in make_reader(file).iter_metadata()}
    assert metadata["msgq.losses"] == {"busy": str(stopped.lost)}


def test_recorder_continues_sequence_after_publisher_restart(start: Any, tmp_path: Path) -> None:
    recorder = start()
    for life in range(3):
        with msgq.pub_sock("e") as pub:
            if life == 0:
                wait_until(lambda: recorder.stats().endpoints == 1)
            pub.send(b"a")
            pub.send(b"b")
    recorder.stop()
    found = read_recorded_messages(tmp_path / "log")
    assert [message.sequence for *_, message, _ in found] == [0, 1, 2, 3, 4, 5]
    assert {channel.metadata["epoch"] for *_, channel in found} == {"1"}


def test_recreated_ring_begins_a_new_epoch(start: Any, tmp_path: Path) -> None:
    recorder = start()
    for life in (1, 2):
        with msgq.pub_sock("e") as pub:
            inode = os.stat(stats.topic("e").path).st_ino
            endpoints = recorder._recorded_endpoints.endpoints_by_source
            wait_until(lambda: [recorded.source.inode for recorded in endpoints.values()] == [inode])  # noqa: B023
            pub.send(b"%d" % life)
            wait_until_recorded(recorder, life)
        unlink_topic("e")
    recorder.stop()
    found = [
        (data, channel.metadata["epoch"], message.sequence)
        for _, data, message, channel in read_recorded_messages(tmp_path / "log")
    ]
    assert found == [(b"1", "1", 0), (b"2", "2", 0)]


def test_recorder_selects_endpoints(start: Any, tmp_path: Path) -> None:
    pubs = [msgq.pub_sock(name) for name in ("front", "back", "rear.left", "rear.right")]
    recorder = start("front", re.compile("^rear"), exclude=[re.compile("right$")])
    for pub in pubs:
        pub.send(pub.endpoint.encode())
    recorder.stop()
    assert sorted(data for _, data, _, _ in read_recorded_messages(tmp_path / "log")) == [b"front", b"rear.left"]


def test_wall_clock_change_gives_no_negative_latency(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorder stamps by the clock that publishers stamp by; each segment notes what the wall clock was then."""
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * 10**9)
    dtype = np.dtype([("publish_time", "<i8")])
    pub = msgq.PubSocket()
    schema = msgq.Schema("stamp", "struct", json.dumps(np.lib.format.dtype_to_descr(dtype)).encode())
    pub.connect(msgq.context, "stamps", schema=schema)
    recorder = start(limits=RecordingLimits(split_messages=1), chunk_seconds=0.001)
    for number in range(3):
        pub.send(struct.pack("<q", clock.time_ns()))
        wait_until_recorded(recorder, number + 1)
    recorder.stop()
    ages = [message.log_time - message.publish_time for *_, message, _ in read_recorded_messages(tmp_path / "log")]
    assert len(ages) == 3
    assert all(0 <= age < 60 * 10**9 for age in ages)
    for segment in (tmp_path / "log").glob("*.mcap"):
        with segment.open("rb") as file:
            noted = next(
                found.metadata for found in make_reader(file).iter_metadata() if found.name == "msgq.recording"
            )
        assert int(noted["clock_offset_ns"]) == clock.offset_ns()
        assert abs(int(noted["wall_offset_ns"]) - clock.wall_offset_ns()) < 10**9
        assert abs(int(noted["started_ns"]) - clock.time_ns()) < 60 * 10**9


def test_recorder_splits_by_message_count_into_self_contained_chunks(start: Any, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e")
    recorder = start(limits=RecordingLimits(split_messages=5), chunk_bytes=1024)
    for number in range(100):
        pub.send(b"%1000d" % number)
        wait_until_recorded(recorder, number + 1)
    stopped = recorder.stop()
    segments = sorted((tmp_path / "log").glob("*.mcap"))
    assert len(segments) == stopped.segments > 10
    assert [data for _, data, _, _ in read_recorded_messages(tmp_path / "log")] == [
        b"%1000d" % number for number in range(100)
    ]
    with segments[1].open("rb") as file:
        kinds = [type(record).__name__ for record in StreamReader(file, emit_chunks=False).records]
    assert kinds.index("Channel") < kinds.index("Message")


def test_recorder_writes_one_file(start: Any, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e")
    recorder = start(path=tmp_path / "one.mcap", limits=RecordingLimits(split_messages=1))
    for number in range(20):
        pub.send(b"%d" % number)
        wait_until_recorded(recorder, number + 1)
    recorder.stop()
    assert len(read_recorded_messages(tmp_path / "one.mcap")) == 20


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_recorder_writes_all_compressions(start: Any, tmp_path: Path, compression: Any) -> None:
    pub = msgq.pub_sock("e")
    recorder = start(compression=compression)
    pub.send_many([b"x" * 1000] * 50)
    recorder.stop()
    assert [data for _, data, _, _ in read_recorded_messages(tmp_path / "log")] == [b"x" * 1000] * 50


@pytest.mark.needs_shm(40 << 20)
def test_recorder_records_large_messages(start: Any, tmp_path: Path) -> None:
    pub = msgq.pub_sock("large", segment_size=32 << 20)
    recorder = start(chunk_bytes=1 << 16)
    payloads = [os.urandom(10 << 20), b"", os.urandom(5 << 20)]
    for number, payload in enumerate(payloads):
        pub.send(payload)
        wait_until_recorded(recorder, number + 1)
    recorder.stop()
    assert [data for _, data, _, _ in read_recorded_messages(tmp_path / "log")] == payloads


def test_recorder_pause_is_not_counted_as_loss(start: Any, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e", segment_size=4096)
    recorder = start(start_paused=True)
    pub.send_many([b"unwanted" * 8] * 1000)
    recorder.resume()
    wait_until(lambda: not recorder.paused)

    def recorded() -> bool:
        pub.send(b"wanted")
        return bool(recorder.stats().messages)

    wait_until(recorded)
    stopped = recorder.stop()
    assert {data for _, data, _, _ in read_recorded_messages(tmp_path / "log")} == {b"wanted"}
    assert stopped.lost == 0


def test_recorder_writes_snapshot(start: Any, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e", segment_size=8 << 20)
    recorder = start(snapshot_bytes=100_000, chunk_bytes=10_000)
    for number in range(1000):
        pub.send(b"%1000d" % number)
    wait_until_recorded(recorder, 1000)
    assert recorder.stats().written_bytes == 0
    recorder.snapshot()
    wait_until(lambda: recorder.stats().written_bytes)
    stopped = recorder.stop()
    found = [int(data) for _, data, _, _ in read_recorded_messages(tmp_path / "log")]
    assert found == list(range(found[0], 1000))
    assert 80 <= len(found) <= 110
    assert stopped.waiting_bytes == 0
    with pytest.raises(errors.StateError, match="snapshot_seconds"):
        start(path=tmp_path / "other").snapshot()


def test_snapshot_after_a_silence_has_no_old_message(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    queue = ChunkQueue(1 << 20, 1 << 10, SnapshotBuffer(0.5, None))
    for number in range(3):
        chunk = queue.open_next_chunk(0)
        assert chunk.append_message(1, number, BEGIN + number, BEGIN, b"x")
        queue.put_chunk(chunk)
        now += 0.3
    queue.release_snapshot()
    chunk, _ = queue.get_next_chunk() or pytest.fail("the snapshot is empty")
    assert chunk.first_time == BEGIN + 2
    chunk = queue.open_next_chunk(0)
    assert chunk.append_message(1, 3, BEGIN + 3, BEGIN, b"x")
    queue.put_chunk(chunk)
    now += 3
    queue.release_snapshot()
    queue.end_input()
    assert queue.get_next_chunk() is None


def test_max_total_bytes_removes_oldest_segments(start: Any, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e", segment_size=8 << 20)
    limits = RecordingLimits(split_bytes=50_000, max_total_bytes=200_000)
    recorder = start(compression="none", chunk_bytes=10_000, limits=limits)
    for number in range(1000):
        pub.send(b"%1000d" % number)
    wait_until_recorded(recorder, 1000)
    stopped = recorder.stop()
    found = [int(data) for _, data, _, _ in read_recorded_messages(tmp_path / "log")]
    assert found == list(range(found[0], 1000))
    assert stopped.removed_segments > 10
    assert sum(path.stat().st_size for path in (tmp_path / "log").iterdir()) < 300_000


def write_payload(output: RollingWriter, number: int) -> None:
    """Append a chunk with one message of 100 kB, uncompressed."""
    chunk = ChunkBuffer(1 << 10, 100_000)
    assert chunk.append_message(1, number, BEGIN + number, BEGIN + number, b"%100000d" % number)
    output.write_chunk(chunk, {1: encode_channel(1, "e", None, 1, metadata_keys.PUBLISHER_SEQUENCE)}, dict)


def test_max_total_bytes_removes_only_as_many_segments_as_needed(tmp_path: Path) -> None:
    limits = RecordingLimits(split_messages=1, max_total_bytes=450_000)
    output = RollingWriter(tmp_path / "log", limits, ChunkCompressor("none", None), 0, WallClock(), "")
    left = []
    for number in range(7):
        write_payload(output, number)
        left.append(
            [int(path.name.removesuffix(".mcap")) for path in recording_files.find_segment_files(tmp_path / "log")]
        )
    output.close({})
    assert left == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]]
    assert output.removed_segments == 3
    assert [int(data) for _, data, _, _ in read_recorded_messages(tmp_path / "log")] == [3, 4, 5, 6]


def test_max_total_bytes_limits_the_open_segment(tmp_path: Path) -> None:
    most = 1_000_000  # less than the default of split_bytes
    limits = RecordingLimits(max_total_bytes=most, min_free_bytes=0)
    output = RollingWriter(tmp_path / "log", limits, ChunkCompressor("none", None), 0, WallClock(), "")
    sizes = []
    for number in range(30):
        write_payload(output, number)
        sizes.append(sum(path.stat().st_size for path in (tmp_path / "log").iterdir()))
    output.close({})
    assert max(sizes) <= most
    assert min(sizes[10:]) > most // 2
    assert [int(data) for _, data, _, _ in read_recorded_messages(tmp_path / "log")][-1] == 29


def test_single_file_over_max_total_bytes_raises_and_keeps_messages(tmp_path: Path) -> None:
    path = tmp_path / "log.mcap"
    output = RollingWriter(
        path, RecordingLimits(max_total_bytes=250_000), ChunkCompressor("none", None), 0, WallClock(), ""
    )
    for number in range(2):
        write_payload(output, number)
    with pytest.raises(errors.RecordingError, match=r"log\.mcap' has reached its limit of 250000 bytes"):
        write_payload(output, 2)
    output.close({})
    assert [int(data) for _, data, _, _ in read_recorded_messages(path)] == [0, 1]


def test_recorder_without_free_space_raises_recording_error(start: Any, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e")
    recorder = start(limits=replace(RecordingLimits(), min_free_bytes=1 << 60))
    pub.send(b"x")
    wait_until(lambda: not recorder.running)
    with pytest.raises(errors.RecordingError, match="free"):
        recorder.stop()


def fill_the_disk(path: str) -> list[str]:
    """Child: record more than a file may have."""
    pub = msgq.pub_sock("e", segment_size=8 << 20)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    recorder = Recorder(path, chunk_bytes=10_000, chunk_seconds=0.02, compression="none")
    for number in range(1000):
        pub.send(b"%1000d" % number)
    wait_until(lambda: not recorder.running)
    try:
        recorder.stop()
    except errors.RecordingError as error:
        return [str(error), str(error.errno)]
    return []


def test_full_disk_keeps_written_messages(prefix: str, tmp_path: Path) -> None:
    text, number = run_child(fill_the_disk, str(tmp_path / "log"))
    assert "000000.mcap" in text
    assert int(number) == 27  # EFBIG
    with (tmp_path / "log/000000.mcap").open("rb") as file:
        found = []
        try:
            for record in StreamReader(file, emit_chunks=False).records:
                if isinstance(record, Message):
                    found.append(int(record.data))
        except Exception:  # the file has no end
            assert found
    assert found == list(range(len(found)))
    assert len(found) > 100


def test_recorder_refuses_existing_output(start: Any, tmp_path: Path) -> None:
    start().stop()
    with pytest.raises(errors.RecordingError, match="already"):
        start()
    (tmp_path / "file.mcap").write_bytes(b"")
    with pytest.raises(errors.RecordingError, match="already"):
        start(path=tmp_path / "file.mcap")


def test_recorder_without_messages_writes_complete_file(start: Any, tmp_path: Path) -> None:
    start().stop()
    assert read_recorded_messages(tmp_path / "log") == []


@pytest.mark.parametrize(
    "options",
    [{"chunk_bytes": 10}, {"chunk_bytes": 10**12}, {"chunk_seconds": 0}, {"level": 100}, {"compression": "zip"}],
)
def test_recorder_with_wrong_options_is_refused(start: Any, options: Any) -> None:
    with pytest.raises(errors.InvalidValueError):
        start(**options)


def record(path: str) -> None:
    """Child: record until killed."""
    recorder = Recorder(path, chunk_bytes=4096, chunk_seconds=0.01)
    print(json.dumps("recording"), flush=True)
    wait_until(lambda: not recorder.running, deadline=60)


def whole_records(path: Path) -> list[int]:
    """Return the messages of a file that may end anywhere."""
    found = []
    with path.open("rb") as file:
        try:
            for record in StreamReader(file, emit_chunks=False, validate_crcs=True).records:
                if isinstance(record, Message):
                    found.append(int(record.data))
        except Exception:  # whichever the library raises where the file ends
            return found
    return found


@pytest.mark.parametrize("round_", range(5))
def test_killed_recorder_loses_only_open_chunk(prefix: str, tmp_path: Path, round_: Any) -> None:
    pub = msgq.pub_sock("e", segment_size=8 << 20)
    with Child(record, str(tmp_path / "log")) as child:
        assert child.hear() == "recording"
        sent = 0
        path = tmp_path / "log/000000.mcap"
        while sent < 2000 + 700 * round_ or not path.exists() or path.stat().st_size < 2000:
            pub.send(b"%100d" % sent)
            sent += 1
        on_disk = whole_records(path)
        os.kill(child.pid, signal.SIGKILL)
    found = whole_records(path)
    assert found[: len(on_disk)] == on_disk
    assert found == list(range(len(found)))


# ---- frames ----


@pytest.fixture
def camera(prefix: str, token: str) -> Iterator[VisionIpcServer]:
    with VisionIpcServer(token) as server:
        server.create_buffers(0, 4, 64, 48)
        server.create_buffers(1, 4, 32, 24, FrameFormat.RGB24)
        server.start_listener()
        yield server


def test_recorder_writes_raw_frames(camera: Any, start: Any, tmp_path: Path) -> None:
    recorder = start(frames=[FrameStream(camera.name, 1)], exclude=f"visionipc_{camera.name}_1")
    wait_until(lambda: camera.stats(1).clients)
    with camera.frame(1) as frame:
        frame.image[:] = np.arange(24 * 32 * 3, dtype=np.uint8).reshape(24, 32, 3)
        frame.frame_id = 77
    wait_until_recorded(recorder, 1)
    stopped = recorder.stop()
    ((endpoint, data, message, channel),) = read_recorded_messages(tmp_path / "log")
    assert endpoint == f"visionipc_{camera.name}_1/image"
    assert (channel.message_encoding, stopped.lost) == ("cdr", 0)
    assert abs(message.log_time - message.publish_time) < 60e9
    # sec, nanosec, "77", height, width, "rgb8", big-endian, step, size
    assert data[:4] == b"\0\1\0\0"
    assert data[12:19] == b"\3\0\0\0" + b"77\0"
    assert struct.unpack("<II", data[20:28]) == (24, 32)
    assert data[28:37] == b"\5\0\0\0rgb8\0"
    assert struct.unpack("<II", data[40:48]) == (96, 24 * 32 * 3)
    assert data[48:] == np.arange(24 * 32 * 3, dtype=np.uint8).tobytes()


def test_recorder_writes_compressed_frames_at_rate(camera: Any, start: Any, tmp_path: Path) -> None:
    recorder = start(
        frames=[FrameStream(camera.name, 0, rate=20.0, format="jpeg")], exclude=f"visionipc_{camera.name}_0"
    )
    wait_until(lambda: camera.stats(0).clients)

    def shown() -> bool:
        with camera.frame(0) as frame:
            frame.array[:] = 128
        return bool(recorder.stats().messages >= 5)

    wait_until(shown)
    recorder.stop()
    found = read_recorded_messages(tmp_path / "log")
    assert {endpoint for endpoint, *_ in found} == {f"visionipc_{camera.name}_0/compressed"}
    periods = [(b.publish_time - a.publish_time) / 1e9 for (*_, a, _), (*_, b, _) in itertools.pairwise(found)]
    assert np.median(periods) > 0.03
    jpeg = found[0][1][found[0][1].index(b"\xff\xd8") :]
    picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    assert picture.shape == (48, 64, 3)


def test_record_command_writes_frames(camera: Any, tmp_path: Path) -> None:
    with command.start("record", "-o", tmp_path / "log", "--frames", f"{camera.name}:1@50", "-n", "3") as process:
        wait_until(lambda: camera.send(1, bytes(24 * 32 * 3)) and process.poll() is not None)
        assert process.returncode == 0
    assert len(read_recorded_messages(tmp_path / "log")) >= 3


@pytest.fixture
def second_camera(prefix: str, token: str) -> Iterator[VisionIpcServer]:
    """A server with stream 1, and without stream 0."""
    with VisionIpcServer(token) as server:
        server.create_buffers(1, 4, 32, 24, FrameFormat.GRAY8)
        server.start_listener()
        yield server


def send_until_recorded(recorder: Recorder, camera: VisionIpcServer, stream: int) -> None:
    wait_until(lambda: camera.stats(stream).clients)
    before = recorder.stats().messages
    camera.send(stream, bytes(32 * 24))
    wait_until_recorded(recorder, before + 1)


def test_recorder_records_all_streams_of_server(second_camera: Any, tmp_path: Path) -> None:
    name = second_camera.name
    with Recorder(tmp_path / "log", (), frames=[FrameStream(name)], chunk_seconds=0.02) as recorder:
        send_until_recorded(recorder, second_camera, 1)
        second_camera.create_buffers(7, 4, 32, 24, FrameFormat.GRAY8)
        send_until_recorded(recorder, second_camera, 7)
        assert recorder.missing_frames == []
    assert set(LogReader(tmp_path / "log").endpoints) == {f"visionipc_{name}_{stream}/image" for stream in (1, 7)}


def test_recorder_of_missing_stream_creates_no_endpoint_and_warns(second_camera: Any, tmp_path: Path) -> None:
    name = second_camera.name
    existing = set(stats.endpoint_inodes())
    recorder = Recorder(tmp_path / "log", (), frames=[FrameStream(name, 0), FrameStream(name, 1)])
    wait_until(lambda: recorder.missing_frames == [FrameStream(name, 0)])
    assert set(stats.endpoint_inodes()) == existing
    with pytest.warns(MsgqWarning, match=f"nothing was recorded of stream 0 of '{name}'"):
        recorder.stop()
    recorder.stop()  # warns once


def test_record_command_names_streams_of_server_without_stream(second_camera: Any, tmp_path: Path) -> None:
    choice = f"{second_camera.name}:0"
    done = command.run("record", "-o", tmp_path / "log", "--frames", choice, "--duration", 0.1, code=1)
    assert f"stream 0 of frame server '{second_camera.name}' (streams: 1) not found" in done.stderr


def test_too_large_frame_gets_separate_chunk(camera: Any, start: Any, tmp_path: Path) -> None:
    """The chunk before it goes out early; its channels must be known by then."""
    recorder = start(frames=[FrameStream(camera.name, 0)], chunk_bytes=1024, chunk_seconds=0.5)
    wait_until(lambda: camera.stats(0).clients)
    pub = msgq.pub_sock("e")
    while not any(endpoint == "e" for endpoint in recorder._recorded_endpoints._named_endpoints):
        pub.send(b"x")
        camera.send(0, bytes(64 * 48 * 3 // 2))
        time.sleep(0.001)
    for _ in range(10):
        pub.send(b"x" * 100)
        camera.send(0, bytes(64 * 48 * 3 // 2))
    stopped = recorder.stop()
    assert len(read_recorded_messages(tmp_path / "log")) == stopped.messages


def test_removed_output_directory_raises_recording_error(start: Any, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e")
    recorder = start(path=tmp_path / "gone" / "log")
    (tmp_path / "gone" / "log").rmdir()
    (tmp_path / "gone").rmdir()
    pub.send(b"x")
    wait_until(lambda: not recorder.running)
    with pytest.raises(errors.RecordingError, match="cannot"):
        recorder.stop()
