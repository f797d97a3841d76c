"""Growing recordings as a stream.

A recording grows only at its end, and complete records never change. Therefore an offset between two records identifies
the messages that were read, and a repeated batch is equal.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
from mcap.opcode import Opcode
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from msgq.common.storage.url_path import RecordingPath, UrlPath
from msgq.common.storage.urls import is_url
from msgq.errors import MissingLibraryError, RecordingError, StorageError
from msgq.recording import LogReader
from msgq.recording.mcap_io.byte_reader import open_bytes
from msgq.recording.mcap_io.record_scanner import RECORD_BYTES_MAX
from msgq.recording.mcap_io.record_structs import MCAP_MAGIC
from msgq.recording.mcap_io.recording_files import MCAP_SUFFIX, MCAP_SUFFIXES
from msgq.spark.source.partitions import RecordingPartition, check_unread_files, plan_log_partitions, read_log_batches
from msgq.spark.source.position_files import PositionFiles, RecordingOffset, StreamPosition
from msgq.spark.source.source_options import SourceOptions

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
except ModuleNotFoundError as missing:
    raise MissingLibraryError(
        "streams of recordings need pyspark 4.2 or later: pip install 'pyspark>=4.2'"
    ) from missing

_RECORD_HEADER = struct.Struct("<BQ")
_CHUNK_SIZE_FIELD = struct.Struct("<16xQ")  # bytes of the content, after two times
_CLOSED_FILE_BYTES_MIN = 2 * len(MCAP_MAGIC) + _RECORD_HEADER.size + 20  # the least that a closed file has
_SEGMENT_NAME_PATTERN = re.compile(r"(\d{6,7})" + re.escape(MCAP_SUFFIX))
_END_POSITION = 2**62

_logger = logging.getLogger(__name__)


class ReadStep(NamedTuple):
    """A chunk, or a run of messages outside of chunks: its end offset, and its bytes before compression."""

    end_position: int
    size_bytes: int


class RecordingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new data of recordings in a directory, including new recordings. Each message is read once.

    Runs on the driver, except for `read`.
    """

    def __init__(self, options: SourceOptions, columns: pa.Schema) -> None:
        self._options = options
        self._columns = columns
        self._position_files = PositionFiles(options.checkpoint_location)
        self._final_positions: dict[str, StreamPosition] | None = None  # None: the stream has no end

    def initialOffset(self) -> RecordingOffset:
        """Return the beginning of all recordings."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit from the option `maxBytesPerTrigger`."""
        limit = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """End the stream after the data that exists now."""
        recordings = _find_recording_segments(self._options)
        self._final_positions = {name: _find_end_position(segments) for name, segments in recordings.items()}

    def latestOffset(self, start: RecordingOffset, limit: ReadLimit) -> RecordingOffset:
        """Return the end of the next batch.

        Raises:
            RecordingError: a segment was removed before it was read to its end, unless `failOnDataLoss` is false.
        """
        self._position_files.check_checkpoint()
        room = limit.max_bytes if isinstance(limit, ReadMaxBytes) else _END_POSITION
        positions, changes = self._position_files.read_positions(start), dict[str, StreamPosition | None]()
        recordings = _find_recording_segments(self._options)
        for name in sorted(recordings):
            scanner = _SegmentScanner(self, name, recordings[name], positions.get(name))
            until = None if self._final_positions is None else self._final_positions.get(name, scanner.stream_position)
            room = scanner.advance_position(room, until)
            if scanner.has_position_changed:
                changes[name] = scanner.stream_position
        missing = [name for name in positions if name not in recordings]
        for name in missing:
            if positions[name]["position"]:
                self.report_missing_segment(name, positions[name])
        if not changes:
            return start
        completed = [name for name in missing if not positions[name]["position"]]
        changes.update(dict.fromkeys(find_deleted_recordings(completed, recordings.values())))
        return self._position_files.make_offset(start, changes)

    def commit(self, end: RecordingOffset) -> None:
        """Remove the files with positions that no offset needs."""
        self._position_files.remove_unused_files(end)

    def report_missing_segment(self, name: str, place: StreamPosition) -> None:
        """Report a missing segment: as an error, or in the log if `failOnDataLoss` is false."""
        read = f"was read only to byte {place['position']}" if place["position"] else "was not read"
        text = f"segment {place['segment']} of recording '{name}' was deleted, and {read}"
        if self._options.fail_on_data_loss:
            raise RecordingError(
                f"{text}; restore the segment, or continue without it: option('failOnDataLoss', 'false')"
            )
        _logger.warning("%s", text)

    def partitions(self, start: RecordingOffset, end: RecordingOffset) -> list[InputPartition]:
        """Return the partitions between two offsets. Repeated calls return the same partitions."""
        if start == end:
            return []
        recordings = _find_recording_segments(self._options)
        positions = self._position_files.read_positions(start)
        logs: list[LogReader] = []
        for name, last in self._position_files.read_positions(end).items():
            first = positions.get(name, {"segment": last["first"], "position": 0})
            if (first["segment"], first["position"]) == (last["segment"], last["position"]):
                continue
            for index in range(first["segment"], last["segment"] + 1):
                begin = first["position"] if index == first["segment"] else 0
                until = last["position"] if index == last["segment"] else _END_POSITION
                path = recordings.get(name, {}).get(index)
                if begin < until and path is None:
                    self.report_missing_segment(name, {"segment": index, "position": begin})
                elif begin < until and path is not None:
                    logs += self._open_segment_log(path, (begin, until))
        return list(plan_log_partitions(self._options, logs))

    def _open_segment_log(self, path: RecordingPath, span: tuple[int, int]) -> list[LogReader]:
        try:
            return [self._options.open_log(path, span)]
        except RecordingError as error:
            if error.errno is not None:
                raise
            return []  # it is no recording, as a batch finds, too

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        if isinstance(partition, RecordingPartition):
            for log in partition.open_logs(self._options, []):
                yield from read_log_batches(log, self._options, self._columns)
                check_unread_files(self._options, log.problems)


class _SegmentScanner:
    """Scans the segments of a recording from a position."""

    def __init__(
        self, reader: RecordingStreamReader, name: str, segments: dict[int, RecordingPath], place: StreamPosition | None
    ) -> None:
        self._reader, self._name, self._segments = reader, name, segments
        first = min(segments)
        self._first_segment = first if place is None else place["first"]
        self._skipped_count = 0 if place is None else place.get("gone", 0)
        self._begin = self._current = (first, 0) if place is None else (place["segment"], place["position"])

    @property
    def stream_position(self) -> StreamPosition:
        place = {"first": self._first_segment, "segment": self._current[0], "position": self._current[1]}
        return {**place, "gone": self._skipped_count} if self._skipped_count else place

    @property
    def has_position_changed(self) -> bool:
        return self._current != self._begin

    def advance_position(self, room: int, until: StreamPosition | None) -> int:
        """Advance until `room` bytes are used or `until` is reached. Return the remaining room."""
        last = (_END_POSITION, 0) if until is None else (until["segment"], until["position"])
        while room > 0 and self._current < last:
            index, position = self._current
            if index not in self._segments and not self._skip_missing_segment():
                break
            if index not in self._segments:
                continue
            ended = index < max(self._segments) or is_recording_closed(self._segments[index])
            for step in read_recording_steps(self._segments[index], position, ended):
                if room <= 0 or (index, step.end_position) > last:
                    return room
                self._current = (index, step.end_position)
                room -= step.size_bytes
            if not ended:
                break
            self._current = (index + 1, 0)
        return room

    def _skip_missing_segment(self) -> bool:
        """Skip a missing segment. Return True if later segments exist."""
        index, position = self._current
        later = [number for number in self._segments if number > index]
        if later or position:
            self._reader.report_missing_segment(self._name, self.stream_position)
        if later:
            self._skipped_count += min(later) - index
            self._current = (min(later), 0)
        return bool(later)


def _find_recording_segments(options: SourceOptions) -> dict[str, dict[int, RecordingPath]]:
    """Return the segments of all recordings by the recording's path. A single file is a recording of one segment."""
    recordings: dict[str, dict[int, RecordingPath]] = {}
    for path in (path.absolute() for path in options.list_files([]) if path.is_file()):  # other paths are no recordings
        if not path.name.endswith(MCAP_SUFFIX) and path.name.endswith(MCAP_SUFFIXES):
            text = (
                f"recording '{path}' is compressed as a whole and cannot be streamed; "
                "read it with spark.read, or decompress it"
            )
            raise RecordingError(f"{text} first: zstd -d")
        number = _SEGMENT_NAME_PATTERN.fullmatch(path.name)
        if number:
            recordings.setdefault(str(path.parent), {})[int(number[1])] = path
        else:
            recordings[str(path)] = {0: path}
    return recordings


def _find_end_position(segments: dict[int, RecordingPath]) -> StreamPosition:
    """Return the position after all existing data of a recording."""
    last, size = max(segments), 0
    try:
        with open_bytes(segments[last]) as reader:
            size = reader.size_bytes
    except RecordingError as error:
        if error.errno != errno.ENOENT:  # otherwise the segment was deleted in this moment
            raise
    return {"first": min(segments), "segment": last, "position": size}


def find_deleted_recordings(names: Iterable[str], recordings: Iterable[dict[int, RecordingPath]]) -> list[str]:
    """Return the recordings that were deleted, of those that are missing.

    A recording was deleted if its path does not exist, and the nearest existing directory has other recordings. A
    directory without recordings can be a file system that is not mounted. Its recordings can return.

    `recordings`: segments of the existing recordings.
    """
    deleted, folders = [], set[str]()
    for segments in recordings:
        folder = os.path.dirname(str(next(iter(segments.values()))))
        while folder not in folders:
            folders.add(folder)
            folder = os.path.dirname(folder)
    for name in names:
        folder = name
        while folder and _is_absent(folder):
            folder = os.path.dirname(folder)
        if folder != name and folder in folders:
            deleted.append(name)
    return deleted


def _is_absent(path: str) -> bool:
    """Return True if a path certainly does not exist. False: it exists, or cannot be examined now."""
    try:
        if is_url(path):
            return not UrlPath(path).exists()
        os.lstat(path)
    except StorageError:
        return False
    except OSError as error:
        return isinstance(error, (FileNotFoundError, NotADirectoryError))
    return False


def is_recording_closed(path: RecordingPath) -> bool:
    """Return True if a file is complete, so that no data will follow."""
    with open_bytes(path) as reader:
        size = reader.size_bytes
        return size >= _CLOSED_FILE_BYTES_MIN and reader.pread(len(MCAP_MAGIC), size - len(MCAP_MAGIC)) == MCAP_MAGIC


def read_recording_steps(path: RecordingPath, position: int, ended: bool) -> Iterator[ReadStep]:
    """Yield the steps after a position of a file.

    `ended`: True: the file does not grow, and damaged data is skipped. False: invalid data may be incomplete, so the
        scan stops there.
    """
    if not ended:
        yield from _read_complete_steps(path, max(position, len(MCAP_MAGIC)))
        return
    try:
        blocks = LogReader(path).files[0].blocks
    except RecordingError as error:
        if error.errno is not None:
            raise
        return  # it is no recording, as a batch finds, too
    for block in blocks:
        if block.offset + block.stored_bytes > position:
            yield ReadStep(block.offset + block.stored_bytes, block.uncompressed_bytes)


def _read_complete_steps(path: RecordingPath, begin: int) -> Iterator[ReadStep]:
    """Yield the complete steps of a growing file."""
    with open_bytes(path) as reader:
        size = reader.size_bytes
        while size - begin >= _RECORD_HEADER.size:
            head = reader.pread(_RECORD_HEADER.size + _CHUNK_SIZE_FIELD.size, begin)
            opcode, length = _RECORD_HEADER.unpack_from(head)
            begin += _RECORD_HEADER.size + length
            if opcode in (0, Opcode.DATA_END) or length > RECORD_BYTES_MAX or begin > size:
                return
            if opcode == Opcode.CHUNK and length >= _CHUNK_SIZE_FIELD.size:
                yield ReadStep(begin, _CHUNK_SIZE_FIELD.unpack_from(head, _RECORD_HEADER.size)[0])
            elif opcode == Opcode.MESSAGE:
                yield ReadStep(begin, length)
