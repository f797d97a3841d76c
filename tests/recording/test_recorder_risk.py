"""What a kill of a recorder costs: no more than it says, which is bounded; and what it does to keep that small."""

from __future__ import annotations

import mmap
import random
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.records import Chunk as ChunkRecord
from mcap.stream_reader import StreamReader

import msgq
from msgq import errors
from msgq.recording.log_reader import LogReader
from msgq.recording.mcap_io.core import MESSAGE_RECORD_HEADER_BYTES, ChunkBuffer
from msgq.recording.mcap_io.segment_writer import ChunkCompressor
from msgq.recording.recorder.chunk_queue import ChunkQueue
from msgq.recording.recorder.recorder import Recorder
from msgq.recording.recorder.snapshot_buffer import SnapshotBuffer
from tests.support import DEADLINE, LONGER, Child, Task, say, wait_until

CHUNK_BYTES = 16 << 10
QUEUE = 128 << 10
SIZE = 200
RECORD = MESSAGE_RECORD_HEADER_BYTES + SIZE


# ---- kills ----

_TOLD = struct.Struct("<QQ")  # messages that were taken, and of their bytes those that a kill would cost


def record_and_tell(path: str, board: str) -> None:
    """Child: record with a compressor that is too slow, and tell what would be lost, until killed."""
    with open(board, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 3 * _TOLD.size)
    options: dict[str, Any] = {"chunk_bytes": CHUNK_BYTES, "chunk_seconds": 0.05, "cache_bytes": QUEUE, "level": 19}
    recorder = Recorder(path, ["e"], **options)
    say()
    for turn in range(1, 1 << 40):
        stats = recorder.stats()
        _TOLD.pack_into(memory, (1 + turn % 2) * _TOLD.size, stats.messages, stats.at_risk_bytes)
        struct.pack_into("<Q", memory, 0, turn)  # one store: a kill leaves the other one whole
        time.sleep(0.0005)


def read_told_counts(board: Path) -> tuple[int, int]:
    words = board.read_bytes()
    (turn,) = struct.unpack_from("<Q", words)
    return _TOLD.unpack_from(words, (1 + turn % 2) * _TOLD.size)


def kill_under_load(directory: Path, seconds: float) -> int:
    """Kill a recorder at a moment; return what it said that this would cost, in bytes."""
    board = directory / "board"
    board.write_bytes(bytes(3 * _TOLD.size))
    rows = np.random.default_rng(1).integers(0, 50, (20, SIZE), np.uint8)
    with (
        msgq.pub_sock("e", segment_size=64 << 20) as pub,
        Child(record_and_tell, str(directory / "log"), str(board)) as it,
    ):
        it.hear()
        until = time.monotonic() + seconds
        while time.monotonic() < until or read_told_counts(board)[0] == 0:
            pub.send_many(rows)
            time.sleep(0.0005)
        it.kill()
    taken, at_risk = read_told_counts(board)
    log = LogReader(directory / "log")
    there = [message.sequence for message in log]
    assert there == list(range(len(there)))  # none in the middle
    assert (taken - len(there)) * RECORD <= at_risk
    assert at_risk <= QUEUE + CHUNK_BYTES + RECORD
    return at_risk


@pytest.mark.needs_shm(80 << 20)
@pytest.mark.parametrize(
    "round_", [0, *(pytest.param(number, marks=pytest.mark.ci) for number in range(1, 1 + int(10 * LONGER)))]
)
def test_killed_recorder_loses_at_most_the_reported_at_risk_bytes(prefix: str, tmp_path: Path, round_: int) -> None:
    """What: kill -9 at a random moment, of a recorder whose compressor cannot keep up.

    Why: what waits for the compressor is lost, too. Failure would mean: the file has less than the recorder's figures
    promised just before, or it lets more wait than it was told to.
    """
    kill_under_load(tmp_path, random.Random(round_).uniform(0.05, 0.8))


# ---- the bound ----


def chunk_of(size: int) -> ChunkBuffer:
    chunk = ChunkBuffer(1024, size)
    assert chunk.append_message(1, 0, 1, 1, bytes(size - MESSAGE_RECORD_HEADER_BYTES))
    return chunk


def test_full_chunk_queue_blocks_producer() -> None:
    queue = ChunkQueue(10_000, 1024, None)
    for _ in range(3):
        queue.put_chunk(chunk_of(3000))
    putting = Task(queue.put_chunk, chunk_of(3000))
    putting.wait_asleep()
    assert (queue.waiting_bytes, queue.at_risk_bytes) == (12_000, 12_000)
    found = queue.get_next_chunk()
    assert found is not None
    putting.wait_asleep()  # it is not written yet
    queue.recycle_chunk(found[0])
    putting.result()
    assert queue.waiting_bytes == 9000


def test_chunk_queue_accepts_two_chunks_of_any_size() -> None:
    queue = ChunkQueue(0, 1024, None)
    queue.put_chunk(chunk_of(5000))
    queue.put_chunk(chunk_of(5000))
    putting = Task(queue.put_chunk, chunk_of(5000))
    putting.wait_asleep()
    queue.abandon_waits()
    putting.result()


def test_messages_in_open_chunk_count_as_at_risk_bytes() -> None:
    queue = ChunkQueue(10_000, 1024, None)
    chunk = queue.open_next_chunk(5000)
    assert queue.at_risk_bytes == 0
    chunk.append_message(1, 0, 1, 1, bytes(4000))
    assert (queue.waiting_bytes, queue.at_risk_bytes) == (0, 4000 + MESSAGE_RECORD_HEADER_BYTES)
    queue.put_chunk(chunk)
    assert (queue.waiting_bytes, queue.at_risk_bytes) == (4000 + MESSAGE_RECORD_HEADER_BYTES,) * 2


def test_snapshot_memory_counts_as_at_risk_bytes_and_never_blocks() -> None:
    queue = ChunkQueue(0, 1024, SnapshotBuffer(None, 4000))
    for _ in range(10):
        queue.put_chunk(chunk_of(2000))
    assert (queue.at_risk_bytes, queue.is_idle) == (4000, True)
    queue.release_snapshot()
    queue.put_chunk(chunk_of(2000))
    assert (queue.at_risk_bytes, queue.is_idle) == (6000, False)
    queue.end_input()
    assert queue.at_risk_bytes == 4000  # unrequested bytes are gone
    chunks = list(iter(queue.get_next_chunk, None))
    assert [behind for _, behind in chunks] == [False, False]  # there is no hurry


# ---- uncompressed ----


class HeldCompression:
    """Compression that waits until a call of this object.

    Attributes:
        begun: set when the compressor has a chunk.
    """

    def __init__(self) -> None:
        self.begun, self._free = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self._free.set()

    def hold(self) -> None:
        self.begun.set()
        assert self._free.wait(30)


@pytest.fixture
def compressing(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldCompression]:
    held = HeldCompression()
    real = ChunkCompressor.compress_chunk

    def compress(self: ChunkCompressor, content: memoryview[int]) -> bytes | memoryview[int]:
        if self.compression_name:
            held.hold()
        return real(self, content)

    monkeypatch.setattr(ChunkCompressor, "compress_chunk", compress)
    yield held
    held()


def read_compressions(path: Path) -> list[str]:
    found = []
    for segment in sorted(path.glob("*.mcap")):
        with segment.open("rb") as file:
            records = StreamReader(file, emit_chunks=True).records
            found += [record.compression for record in records if isinstance(record, ChunkRecord)]
    return found


def test_delayed_compressor_writes_uncompressed_chunks(prefix: str, tmp_path: Path, compressing: Any) -> None:
    pub = msgq.pub_sock("e")
    with Recorder(tmp_path / "log", chunk_bytes=1024, chunk_seconds=0.001, cache_bytes=10_000) as recorder:
        for number in range(7):  # one with the compressor, the others behind it
            pub.send(b"%1000d" % number)
            wait_until(lambda number=number: recorder.stats().messages > number)  # type: ignore[misc]
            assert number or compressing.begun.wait(DEADLINE)  # else the first chunk may be written without it
        assert recorder.stats().at_risk_bytes == 7 * (1000 + MESSAGE_RECORD_HEADER_BYTES)
        compressing()
        wait_until(lambda: not recorder.stats().waiting_bytes)
    # When the second chunk's turn comes, five wait behind it: more than half of 10,000 bytes.
    assert read_compressions(tmp_path / "log") == ["zstd", "", *["zstd"] * 5]
    assert recorder.stats().uncompressed_chunks == 1
    assert [int(message.data) for message in LogReader(tmp_path / "log")] == list(range(7))


def test_recorder_without_compression_counts_no_uncompressed_chunks(prefix: str, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e")
    with Recorder(tmp_path / "log", chunk_bytes=1024, cache_bytes=0, compression="none") as recorder:
        pub.send_many([bytes(1000)] * 50)
    assert recorder.stats().messages == 50
    assert recorder.stats().uncompressed_chunks == 0


def test_impossible_chunk_queue_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidValueError, match="cache_bytes=-1"):
        Recorder(tmp_path / "log", cache_bytes=-1)


# ---- snapshots ----


def read_payloads(path: Path) -> list[bytes]:
    sizes = [file.stat().st_size for file in path.glob("*.mcap")]
    return [message.data for message in LogReader(path)] if sizes and all(sizes) else []


def test_snapshot_has_last_message_before_trigger(prefix: str, tmp_path: Path) -> None:
    """The open chunk is the moment before the trigger. It ends long after this test, if nobody ends it."""
    pub = msgq.pub_sock("e")
    with Recorder(tmp_path / "log", snapshot_bytes=1 << 20, chunk_seconds=60) as recorder:
        for number in range(50):
            pub.send(b"%d" % number)
            recorder.snapshot()
            wait_until(lambda number=number: b"%d" % number in read_payloads(tmp_path / "log"))  # type: ignore[misc]
        assert read_payloads(tmp_path / "log") == [b"%d" % number for number in range(50)]


def test_snapshot_has_all_messages_of_burst_before_trigger(prefix: str, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e", segment_size=8 << 20)
    with Recorder(tmp_path / "log", snapshot_bytes=1 << 30, chunk_seconds=60) as recorder:
        pub.send_many(np.zeros((100_000, 64), np.uint8))  # messages of many chunks, and many turns
        recorder.snapshot()
        wait_until(lambda: LogReader(tmp_path / "log").messages == 100_000 if recorder.stats().segments else False)


def test_snapshot_has_last_vector_change(prefix: str, tmp_path: Path) -> None:
    with (
        msgq.SeqlockVector("v", "<i8", 4) as vector,
        Recorder(tmp_path / "log", snapshot_bytes=1 << 20, chunk_seconds=60) as recorder,
    ):
        for number in range(1, 10):
            vector[2] = number
            recorder.snapshot()
            value = struct.pack("<q", number)
            wait_until(lambda value=value: any(data.endswith(value) for data in read_payloads(tmp_path / "log")))  # type: ignore[misc]


def test_stop_after_snapshot_writes_snapshot(prefix: str, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e")
    recorder = Recorder(tmp_path / "log", snapshot_bytes=1 << 20)
    pub.send(b"last")
    recorder.snapshot()
    recorder.stop()
    assert read_payloads(tmp_path / "log") == [b"last"]


def test_snapshot_of_paused_recorder_is_written(prefix: str, tmp_path: Path) -> None:
    pub = msgq.pub_sock("e")
    with Recorder(tmp_path / "log", snapshot_bytes=1 << 20, chunk_seconds=0.01) as recorder:
        pub.send(b"wanted")
        wait_until(lambda: recorder.stats().messages)
        recorder.pause()
        wait_until(lambda: recorder._is_capture_paused)
        pub.send(b"unwanted")
        recorder.snapshot()
        wait_until(lambda: recorder.stats().written_bytes)
    assert read_payloads(tmp_path / "log") == [b"wanted"]


def test_messages_during_snapshot_write_are_kept_for_next_snapshot(
    prefix: str, tmp_path: Path, compressing: Any
) -> None:
    """Nothing waits for the disk then: the ring would not have room for all of it."""
    pub = msgq.pub_sock("e", segment_size=1 << 20)
    with Recorder(tmp_path / "log", snapshot_bytes=8 << 20, chunk_seconds=0.01, cache_bytes=0) as recorder:
        pub.send(b"first")
        recorder.snapshot()
        wait_until(lambda: not recorder._chunk_queue.is_idle)
        for number in range(100):
            pub.send(b"%50000d" % number)
            wait_until(lambda number=number: recorder.stats().messages > number + 1)  # type: ignore[misc]
        recorder.snapshot()
        assert recorder.stats().written_bytes < 1000
        compressing()
        wait_until(lambda: len(read_payloads(tmp_path / "log")) == 101)
    assert recorder.stats().lost == 0
