"""Messages from the bus that are not in a committed batch yet, as small recordings of a limited size."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import tempfile
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from msgq.recording.mcap_io import recording_files
from msgq.recording.mcap_io.core import ChunkBuffer
from msgq.recording.mcap_io.segment_writer import ChunkCompressor, SegmentWriter
from msgq.spark.source.bus_feed import BusFeed

_CHUNK_BYTES = 4 << 20
_LIVE_DIRECTORY_PREFIX = "msgq-live-"
_TAKE_INTERVAL_S = 0.02  # the thread receives messages for this time before it checks for waiting readers


class BufferedFile(NamedTuple):
    """A file. `end`: number of messages received up to its end."""

    path: Path
    end_message_count: int
    size_bytes: int


class LiveBuffer:
    """Receives messages in its own thread, from construction to `close`. One other thread may call the methods.

    If more than `room` bytes wait to be planned, the thread pauses. The ring then counts lost messages.

    Attributes:
        run: unique name of the buffer.
        lost: number of messages that were published and not received; None: unknown.
    """

    def __init__(self, feed: BusFeed, root: Path, room: int) -> None:
        """Start receiving. `root`: parent of the directory for the files."""
        self.run = uuid4().hex
        self._buffered_files: deque[BufferedFile] = deque()
        self._feed, self._room_bytes = feed, room
        self._directory, self._lock = _make_locked_directory(root)
        self._compressor = ChunkCompressor("none", None)
        self._written_messages = self._planned_messages = self._waiting_bytes = self._written_files = 0
        self._flush_requested = self._stopping = False
        self.lost = feed.count_lost_messages()
        self._error: Exception | None = None
        self._condition = threading.Condition()
        self._thread = threading.Thread(target=self._run_take_thread, name="msgq live", daemon=True)
        self._thread.start()

    def plan_messages(self, start: int, size: int | None) -> int:
        """Return the number of received messages. All messages up to this number are then planned.

        Args:
            start: number of messages that were planned before.
            size: maximum bytes from `start` on, but at least one file; None: all.

        Raises:
            Exception: the error that ended the thread, for example a full disk.
        """
        with self._condition:
            self._flush_requested = True
            self._condition.notify_all()
            self._condition.wait_for(
                lambda: not self._flush_requested or self._is_buffer_full or self._error is not None
            )
            if self._error is not None:
                raise self._error
            for file in self._buffered_files:
                if file.end_message_count > self._planned_messages and (
                    size is None or size > 0 or self._planned_messages == start
                ):
                    self._planned_messages = file.end_message_count
                    self._waiting_bytes -= file.size_bytes
                    size = None if size is None else size - file.size_bytes
            self._condition.notify_all()
            return self._planned_messages

    @property
    def _is_buffer_full(self) -> bool:
        return self._waiting_bytes >= self._room_bytes

    def list_files(self, start: int, end: int) -> list[BufferedFile]:
        """Return the files with the messages between two counts. Both counts are ends of files."""
        with self._condition:
            return [file for file in self._buffered_files if start < file.end_message_count <= end]

    def remove_committed_files(self, end: int) -> None:
        """Remove the files with committed messages, up to a count."""
        with self._condition:
            while self._buffered_files and self._buffered_files[0].end_message_count <= end:
                self._buffered_files.popleft().path.unlink(missing_ok=True)

    def close(self) -> None:
        """Stop the thread, and remove the files."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        self._thread.join()
        shutil.rmtree(self._directory, ignore_errors=True)
        os.close(self._lock)

    def _run_take_thread(self) -> None:
        try:
            self._take_messages()
        except Exception as error:  # the next plan of a batch raises it
            with self._condition:
                self._error = error
                self._condition.notify_all()
        finally:
            self._feed.close()

    def _take_messages(self) -> None:
        chunk = ChunkBuffer(_CHUNK_BYTES, self._feed.max_message_bytes)
        while not self._stopping:
            full = self._feed.take_messages(chunk, _TAKE_INTERVAL_S)
            asked = self._flush_requested
            if len(chunk) and (full or asked):
                self._write_chunk_file(chunk)
                chunk.clear_messages()
            if not len(chunk) and chunk.capacity_bytes < _CHUNK_BYTES + self._feed.max_message_bytes:
                chunk = ChunkBuffer(_CHUNK_BYTES, self._feed.max_message_bytes)
            with self._condition:
                self.lost = self._feed.count_lost_messages()
                self._flush_requested = self._flush_requested and not asked
                self._condition.notify_all()
                self._condition.wait_for(lambda: self._stopping or not self._is_buffer_full)

    def _write_chunk_file(self, chunk: ChunkBuffer) -> None:
        path = self._directory / f"{self._written_files:09}{recording_files.MCAP_SUFFIX}"
        self._written_files += 1
        metadata = {"run": self.run, "host": platform.node()}
        segment = SegmentWriter(path, self._compressor, metadata)
        try:
            segment.write_chunk(chunk, self._feed.channels)
        finally:
            segment.close({}, synced=False)
        with self._condition:
            self._written_messages += len(chunk)
            self._buffered_files.append(BufferedFile(path, self._written_messages, chunk.used_bytes))
            self._waiting_bytes += chunk.used_bytes


def _make_locked_directory(root: Path) -> tuple[Path, int]:
    """Create a directory that the returned descriptor locks. Remove directories of killed processes.

    Spark kills the process of a stopped query, so the process cannot remove its own directory.
    """
    root.mkdir(parents=True, exist_ok=True)
    whole = _lock_directory(root)  # no process removes a directory without a lock
    try:
        for former in root.glob(f"{_LIVE_DIRECTORY_PREFIX}*"):
            with suppress(BlockingIOError):
                os.close(_lock_directory(former, fcntl.LOCK_NB))
                shutil.rmtree(former, ignore_errors=True)
        directory = Path(tempfile.mkdtemp(prefix=_LIVE_DIRECTORY_PREFIX, dir=root))
        return directory, _lock_directory(directory)
    finally:
        os.close(whole)


def _lock_directory(directory: Path, flags: int = 0) -> int:
    """Return a descriptor that holds the directory's lock. The lock ends with the process."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | flags)
    except BlockingIOError:
        os.close(descriptor)
        raise
    return descriptor
