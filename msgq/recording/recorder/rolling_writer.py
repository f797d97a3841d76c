"""Writing of chunks into segments or memory, within limits of the disk."""

from __future__ import annotations

import platform
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from msgq import __version__
from msgq.common.handler_errors import raise_handler_error
from msgq.errors import RecordingError
from msgq.impl.base import clock
from msgq.recording.mcap_io import metadata_keys, recording_files
from msgq.recording.mcap_io.core import ChunkBuffer
from msgq.recording.mcap_io.segment_writer import ChunkCompressor, EncodedChannel, SegmentWriter
from msgq.recording.recorder.wall_clock import WallClock

_TOTAL_SEGMENTS_MIN = 4  # segments of a recording that has reached `max_total_bytes`


@dataclass(frozen=True, slots=True)
class RecordingLimits:
    """Limits of segments and of the disk. None: no limit.

    Attributes:
        split_bytes: maximum bytes of a segment. The next chunk begins another segment.
        split_seconds: maximum seconds of a segment. The next chunk begins another segment.
        split_messages: maximum number of messages of a segment. The next chunk begins another segment.
        max_total_bytes: maximum bytes of the recording. The oldest segments are removed, and a segment ends at a
            quarter of this limit, so at least about three quarters of it stay.
        min_free_bytes: minimum free bytes of the file system. Below this limit, the recording ends with an error.
    """

    split_bytes: int | None = 256 << 20
    split_seconds: float | None = 60.0
    split_messages: int | None = None
    max_total_bytes: int | None = None
    min_free_bytes: int = 64 << 20


class RollingWriter:
    """Writes the files of a recording. One thread at a time.

    Any thread may call `sync_to_disk` and read the counters.
    """

    def __init__(
        self,
        path: Path,
        limits: RecordingLimits,
        compressor: ChunkCompressor,
        clock_offset_ns: int,
        wall_clock: WallClock,
        prefix: str,
    ) -> None:
        """Begin a recording.

        Args:
            path: a file with a name that ends in .mcap, or a directory, created if necessary.
            limits: limits of segments and of the disk.
            compressor: compressor of chunks.
            clock_offset_ns: nanoseconds from CLOCK_MONOTONIC to the host's clock.
            wall_clock: observed wall clock. The writer stores settings of the wall clock.
            prefix: prefix of the endpoints.

        Raises:
            RecordingError: the directory contains a recording, or cannot be created.
        """
        path = path.absolute()  # the program may change its working directory
        self.path = path
        self.written_bytes = self.removed_segments = self.uncompressed_chunks = 0
        self._limits = limits
        # The segment that is written cannot be removed, so it has to be a small part of the recording.
        total = limits.max_total_bytes
        sizes = limits.split_bytes, None if total is None else total // _TOTAL_SEGMENTS_MIN
        self._segment_bytes_max = min((size for size in sizes if size is not None), default=None)
        self._compressor = compressor
        self._wall_clock = wall_clock
        self._clock_written_ns = 0  # a segment has the changes of the wall clock until this time
        self._run_metadata = {
            "run": uuid4().hex,
            "host": platform.node(),
            "clock_offset_ns": str(clock_offset_ns),
            "prefix": prefix,
            "version": __version__,
        }
        self._is_single_file = path.suffix == recording_files.MCAP_SUFFIX
        self._segment_writer: SegmentWriter | None = None
        self._started_segments = 0
        self._finished_segments: deque[tuple[Path, int]] = deque()
        self._segment_start_s = time.monotonic()
        self._segment_lock = threading.Lock()
        try:
            (path.parent if self._is_single_file else path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise_handler_error(error)
            raise RecordingError(
                f"directory '{path}' cannot be created: {error.strerror}", errno=error.errno
            ) from error
        if recording_files.find_segment_files(path) if path.is_dir() else path.exists():
            raise RecordingError(f"directory '{path}' contains a recording already; use another name, or remove it")

    def write_chunk(
        self,
        chunk: ChunkBuffer,
        channels: Mapping[int, EncodedChannel],
        losses: Callable[[], dict[str, str]],
        compress: bool = True,
    ) -> None:
        """Append a chunk that is not empty.

        Args:
            chunk: the chunk.
            channels: channels of the chunk, by number.
            losses: callable that returns the losses when a segment ends.
            compress: False: write the chunk uncompressed, to save time.

        Raises:
            RecordingError: no space, or the disk failed. The recording does not contain the chunk.
        """
        self._check_free_space(chunk.used_bytes)
        if self._segment_writer is not None and self._is_segment_full(self._segment_writer):
            self._end_segment(losses())
        if self._segment_writer is None:  # frames are in a chunk after messages that were received later
            self._segment_writer = self._begin_segment(chunk.first_time)
        self._write_clock_records(self._segment_writer, chunk.last_time)
        before = self._segment_writer.size_bytes
        self._segment_writer.write_chunk(chunk, channels, compress)
        self.uncompressed_chunks += not compress and self._compressor.compression_name != ""
        self.written_bytes += self._segment_writer.size_bytes - before

    def sync_to_disk(self) -> None:
        """Sync the written data to the disk. Call it from another thread, so that the writing thread does not wait.

        Raises:
            OSError: the disk failed.
        """
        with self._segment_lock:
            if self._segment_writer is not None:
                self._segment_writer.sync_to_disk()

    def _is_segment_full(self, segment: SegmentWriter) -> bool:
        limits = self._limits
        age = time.monotonic() - self._segment_start_s
        return not self._is_single_file and (
            (self._segment_bytes_max is not None and segment.size_bytes >= self._segment_bytes_max)
            or (limits.split_seconds is not None and age >= limits.split_seconds)
            or (limits.split_messages is not None and segment.message_count >= limits.split_messages)
        )

    def _begin_segment(self, first_ns: int) -> SegmentWriter:
        """Begin a segment. `first_ns` is the log_time of its first message, possibly long ago."""
        path = (
            self.path if self._is_single_file else recording_files.make_segment_path(self.path, self._started_segments)
        )
        metadata = {
            **self._run_metadata,
            "segment": str(self._started_segments),
            "started_ns": str(clock.time_ns()),
            "since_ns": str(first_ns),
            "wall_offset_ns": str(self._wall_clock.find_reading(first_ns).offset_ns),
        }
        self._started_segments += 1
        self._clock_written_ns = first_ns  # waiting messages may be older than the last time in the former segment
        self._segment_start_s = time.monotonic()  # no clock that is set makes a segment longer or shorter
        return SegmentWriter(path, self._compressor, metadata)

    def _write_clock_records(self, segment: SegmentWriter, until_ns: int) -> None:
        """Store the settings of the wall clock up to a time."""
        for since_ns, offset_ns in self._wall_clock.list_readings(self._clock_written_ns, until_ns):
            noted = {
                "run": self._run_metadata["run"],
                "since_ns": str(since_ns),
                "clock_offset_ns": self._run_metadata["clock_offset_ns"],
                "wall_offset_ns": str(offset_ns),
            }
            segment.write_metadata(metadata_keys.CLOCK_METADATA, noted)
        self._clock_written_ns = max(self._clock_written_ns, until_ns)

    def _end_segment(self, losses: Mapping[str, str]) -> None:
        with self._segment_lock:
            segment, self._segment_writer = self._segment_writer, None
        if segment is not None:
            try:
                self._write_clock_records(segment, clock.time_ns())
            finally:
                segment.close(losses)
            self._finished_segments.append((segment.path, segment.size_bytes))

    def _check_free_space(self, new_bytes: int) -> None:
        limits = self._limits
        used = sum(size for _, size in self._finished_segments) + (
            self._segment_writer.size_bytes if self._segment_writer else 0
        )
        while (
            limits.max_total_bytes is not None and used + new_bytes > limits.max_total_bytes and self._finished_segments
        ):
            path, size = self._finished_segments.popleft()
            path.unlink(missing_ok=True)
            self.removed_segments += 1
            used -= size
        if limits.max_total_bytes is not None and used + new_bytes > limits.max_total_bytes and self._is_single_file:
            raise RecordingError(f"recording '{self.path}' has reached its limit of {limits.max_total_bytes} bytes")
        free = self.read_free_bytes()
        if free < limits.min_free_bytes + new_bytes:
            text = (
                f"disk of '{self.path}' has {free:,} bytes left. "
                f"The next chunk needs up to {new_bytes:,} in addition to the"
            )
            advice = "The recording has ended. Free space, or record to another disk"
            raise RecordingError(
                f"{text} reserve of {limits.min_free_bytes:,} (--min-free-bytes, min_free_bytes). {advice}"
            )

    def read_free_bytes(self) -> int:
        """Return the free bytes of the disk."""
        return shutil.disk_usage(self.path if self.path.exists() else self.path.parent).free

    @property
    def segment_count(self) -> int:
        """Number of segments."""
        return len(self._finished_segments) + (self._segment_writer is not None)

    def close(self, losses: Mapping[str, str], stating: Iterable[EncodedChannel] = ()) -> None:
        """End the last segment. A recording without messages has one segment, too.

        Args:
            losses: losses by endpoint.
            stating: channels without messages that store losses.

        Raises:
            RecordingError: the summary could not be written. The file stays readable.
        """
        if self._segment_writer is None and not self._finished_segments and not self._started_segments:
            self._segment_writer = self._begin_segment(clock.time_ns())
        try:
            if self._segment_writer is not None:
                self._segment_writer.write_channels(stating)
        finally:
            self._end_segment(losses)
