"""Where chunks go: into segments that are rolled, into memory until they are wanted, within limits of the disk."""

from __future__ import annotations

import platform
import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from msgq import __version__
from msgq.errors import RecordingError
from msgq.impl.ground import clock
from msgq.recording.format import conventions
from msgq.recording.format.chunk import Chunk
from msgq.recording.format.writer import ChannelRecords, Compressor, Segment

_SYNC_S = 0.25  # what a power cut may cost, beside the open chunk


@dataclass(frozen=True, slots=True)
class Limits:
    """When a segment ends, and what may not be exceeded. None: no limit.

    Attributes
    ----------
    split_bytes, split_seconds, split_messages : of a segment; the next chunk begins another.
    max_bytes : of the recording; its oldest segments are removed.
    min_free_bytes : of the file system; recording ends with an error.
    """

    split_bytes: int | None = 256 << 20
    split_seconds: float | None = 60.0
    split_messages: int | None = None
    max_bytes: int | None = None
    min_free_bytes: int = 64 << 20


class Output:
    """The files of a recording. For one thread at a time."""

    def __init__(self, path: Path, limits: Limits, compressor: Compressor, clock_offset_ns: int, prefix: str) -> None:
        """Begin a recording. path : a file if it ends in .mcap, else a directory, to be made if needed.

        Raises
        ------
        RecordingError : the directory holds a recording, or cannot be made.
        """
        self.path = path
        self.bytes = self.removed_segments = 0
        self._limits = limits
        self._compressor = compressor
        self._run = {
            "run": uuid4().hex,
            "host": platform.node(),
            "clock_offset_ns": str(clock_offset_ns),
            "prefix": prefix,
            "version": __version__,
        }
        self._single = path.suffix == conventions.SUFFIX
        self._segment: Segment | None = None
        self._count = 0
        self._written: deque[tuple[Path, int]] = deque()
        self._synced = self._began = time.monotonic()
        try:
            (path.parent if self._single else path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordingError(f"cannot make the directory {path}: {error.strerror}", errno=error.errno) from error
        if conventions.segments(path) if path.is_dir() else path.exists():
            raise RecordingError(f"{path} holds a recording already; give another name, or remove it")

    def write(self, chunk: Chunk, channels: Mapping[int, ChannelRecords], losses: Callable[[], dict[str, str]]) -> None:
        """Append a chunk that is not empty. losses : asked for when a segment ends.

        Raises
        ------
        RecordingError : no space, or the disk fails. The chunk is not in the recording.
        """
        self._check_space(chunk.used)
        if self._segment is not None and self._is_full(self._segment):
            self._end_segment(losses())
        if self._segment is None:
            self._segment = self._begin_segment()
        before = self._segment.size
        self._segment.write_chunk(chunk, channels)
        self.bytes += self._segment.size - before
        if time.monotonic() - self._synced >= _SYNC_S:
            self._segment.sync()
            self._synced = time.monotonic()

    def _is_full(self, segment: Segment) -> bool:
        limits = self._limits
        age = time.monotonic() - self._began
        return not self._single and (
            (limits.split_bytes is not None and segment.size >= limits.split_bytes)
            or (limits.split_seconds is not None and age >= limits.split_seconds)
            or (limits.split_messages is not None and segment.messages >= limits.split_messages)
        )

    def _begin_segment(self) -> Segment:
        path = self.path if self._single else conventions.segment_path(self.path, self._count)
        metadata = {
            **self._run,
            "segment": str(self._count),
            "started_ns": str(clock.time_ns()),
            "wall_offset_ns": str(clock.wall_offset_ns()),  # as it is now: somebody may have set the wall clock
        }
        self._count += 1
        self._began = time.monotonic()  # no clock that is set makes a segment longer or shorter
        return Segment(path, self._compressor, metadata)

    def _end_segment(self, losses: Mapping[str, str]) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.close(losses)
            self._written.append((segment.path, segment.size))

    def _check_space(self, wanted: int) -> None:
        limits = self._limits
        used = sum(size for _, size in self._written) + (self._segment.size if self._segment else 0)
        while limits.max_bytes is not None and used + wanted > limits.max_bytes and self._written:
            path, size = self._written.popleft()
            path.unlink(missing_ok=True)
            self.removed_segments += 1
            used -= size
        if limits.max_bytes is not None and used + wanted > limits.max_bytes and self._single:
            raise RecordingError(f"{self.path} has reached the limit of {limits.max_bytes} bytes")
        if self.free_bytes() < limits.min_free_bytes + wanted:
            text = f"only {self.free_bytes()} bytes are free on the disk of {self.path}, less than the reserve of"
            raise RecordingError(f"{text} {limits.min_free_bytes}; recording ends")

    def free_bytes(self) -> int:
        """Return what is left of the disk."""
        return shutil.disk_usage(self.path if self.path.exists() else self.path.parent).free

    @property
    def segments(self) -> int:
        """How many there are."""
        return len(self._written) + (self._segment is not None)

    def close(self, losses: Mapping[str, str]) -> None:
        """End the last segment; a recording without messages has one, too.

        Raises
        ------
        RecordingError : its summary could not be written; what it holds can be read.
        """
        if self._segment is None and not self._written and not self._count:
            self._segment = self._begin_segment()
        self._end_segment(losses)


class Memory:
    """The last chunks, for a recording that is written when somebody wants it."""

    def __init__(self, seconds: float | None, size: int | None) -> None:
        """Keep chunks of so many seconds and bytes; None: no limit."""
        self._seconds = seconds
        self._size = size
        self._chunks: deque[tuple[float, Chunk]] = deque()
        self.bytes = 0

    def keep(self, chunk: Chunk) -> list[Chunk]:
        """Keep a chunk; return those that are too old, or too many, now."""
        now = time.monotonic()
        self._chunks.append((now, chunk))
        self.bytes += chunk.used
        dropped = []
        while len(self._chunks) > 1 and (
            (self._seconds is not None and now - self._chunks[0][0] > self._seconds)
            or (self._size is not None and self.bytes > self._size)
        ):
            _, old = self._chunks.popleft()
            self.bytes -= old.used
            dropped.append(old)
        return dropped

    def take(self) -> list[Chunk]:
        """Return all, oldest first, and begin anew."""
        chunks = [chunk for _, chunk in self._chunks]
        self._chunks.clear()
        self.bytes = 0
        return chunks
