"""Recordings that are being written, as a stream.

A recording only grows at its end, and whole records never change: a place between two records says once and for all
what was read, so that a batch that is done again is the same one.
"""

from __future__ import annotations

import logging
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from mcap.opcode import Opcode
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from msgq.errors import MissingLibraryError, RecordingError
from msgq.recording import LogReader
from msgq.recording.mcap_io.record_scanner import RECORD_BYTES_MAX, open_readonly
from msgq.recording.mcap_io.record_structs import MAGIC
from msgq.recording.mcap_io.recording_files import SUFFIX, SUFFIXES
from msgq.spark.source.options import Options
from msgq.spark.source.partitions import Partition, log_partitions, log_rows, refuse_unread

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
except ModuleNotFoundError as missing:
    raise MissingLibraryError("streams of recordings need pyspark 4.2 or later") from missing

#: Where a stream is in each recording, by its path: the segment, the position in it, and the first segment there was;
#: "gone", if there are any: segments that were not read to their end and are not there any more.
Place = dict[str, int]
Offset = dict[str, Place]

_RECORD = struct.Struct("<BQ")
_CHUNK_SIZE = struct.Struct("<16xQ")  # of its content, behind two times
_CLOSED_BYTES = len(MAGIC) + _RECORD.size + 20 + len(MAGIC)  # the least that a closed file has
_SEGMENT = re.compile(r"(\d{6,7})" + re.escape(SUFFIX))
_END = 2**62

_log = logging.getLogger(__name__)


class Step(NamedTuple):
    """A chunk, or messages outside of chunks: where it ends, and its bytes before compression."""

    end: int
    size: int


class RecordingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is added to recordings in a directory, and new recordings there: each message once.

    Lives on the driver, apart from `read`.
    """

    def __init__(self, options: Options, columns: pa.Schema) -> None:
        self._options = options
        self._columns = columns
        self._last: Offset | None = None  # where a stream ends that reads only what there is

    def initialOffset(self) -> Offset:
        """Return the beginning of all recordings."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what `maxBytesPerTrigger` says."""
        limit = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the stream end with what there is now."""
        self._last = {name: _latest(segments) for name, segments in _recordings(self._options).items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return how far the next batch goes.

        Raises
        ------
        RecordingError : a segment that was not read to its end is gone (unless `failOnDataLoss` is false).
        """
        room = limit.max_bytes if isinstance(limit, ReadMaxBytes) else _END
        offset = dict(start)
        recordings = _recordings(self._options)
        for name in sorted(recordings):
            walk = _RecordScanner(self, name, recordings[name], start.get(name))
            until = None if self._last is None else self._last.get(name, walk.place)
            room = walk.go(room, until)
            if walk.moved:
                offset[name] = walk.place
        for name in set(start) - set(recordings):
            if start[name]["position"]:
                self.report_missing(name, start[name])
        return offset

    def report_missing(self, name: str, place: Place) -> None:
        """Say that a segment is missing: where that is allowed, in the log."""
        read = f"was read only to byte {place['position']}" if place["position"] else "was not read"
        text = f"segment {place['segment']} of {name} is gone, and {read}"
        if self._options.fail_on_data_loss:
            raise RecordingError(f"{text}; bring it back, or go on without it: option('failOnDataLoss', 'false')")
        _log.warning("%s", text)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the pieces between two offsets: the same ones, whenever this is asked."""
        recordings = _recordings(self._options)
        logs: list[LogReader] = []
        for name, last in end.items():
            first = start.get(name, {"segment": last["first"], "position": 0})
            if (first["segment"], first["position"]) == (last["segment"], last["position"]):
                continue
            for index in range(first["segment"], last["segment"] + 1):
                begin = first["position"] if index == first["segment"] else 0
                until = last["position"] if index == last["segment"] else _END
                path = recordings.get(name, {}).get(index)
                if begin < until and path is None:
                    self.report_missing(name, {"segment": index, "position": begin})
                elif begin < until and path is not None:
                    logs += self._log(path, (begin, until))
        return list(log_partitions(self._options, logs))

    def _log(self, path: Path, span: tuple[int, int]) -> list[LogReader]:
        try:
            return [self._options.log(path, span)]
        except RecordingError as error:
            if error.errno is not None:
                raise
            return []  # it is no recording, as a batch finds, too

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of a partition."""
        if isinstance(partition, Partition):
            for log in partition.open_logs(self._options, []):
                yield from log_rows(log, self._options, self._columns)
                refuse_unread(self._options, log.problems)


class _RecordScanner:
    """Goes through the segments of a recording, from a place on."""

    def __init__(
        self, reader: RecordingStreamReader, name: str, segments: dict[int, Path], place: Place | None
    ) -> None:
        self._reader, self._name, self._segments = reader, name, segments
        first = min(segments)
        self._first = first if place is None else place["first"]
        self._gone = 0 if place is None else place.get("gone", 0)
        self._begin = self._at = (first, 0) if place is None else (place["segment"], place["position"])

    @property
    def place(self) -> Place:
        place = {"first": self._first, "segment": self._at[0], "position": self._at[1]}
        return {**place, "gone": self._gone} if self._gone else place

    @property
    def moved(self) -> bool:
        return self._at != self._begin

    def go(self, room: int, until: Place | None) -> int:
        """Go on until `room` bytes are used, or that place is reached; return the room that is left."""
        last = (_END, 0) if until is None else (until["segment"], until["position"])
        while room > 0 and self._at < last:
            index, position = self._at
            if index not in self._segments and not self._skip():
                break
            if index not in self._segments:
                continue
            ended = index < max(self._segments) or is_closed(self._segments[index])
            for step in steps(self._segments[index], position, ended):
                if room <= 0 or (index, step.end) > last:
                    return room
                self._at = (index, step.end)
                room -= step.size
            if not ended:
                break
            self._at = (index + 1, 0)
        return room

    def _skip(self) -> bool:
        """Leave a segment that is not there; return whether there are later ones."""
        index, position = self._at
        later = [number for number in self._segments if number > index]
        if later or position:
            self._reader.report_missing(self._name, self.place)
        if later:
            self._gone += min(later) - index
            self._at = (min(later), 0)
        return bool(later)


def _recordings(options: Options) -> dict[str, dict[int, Path]]:
    """Return the segments of all recordings by the recording's path; a file that is no segment is one of its own."""
    recordings: dict[str, dict[int, Path]] = {}
    for path in filter(Path.is_file, map(Path.absolute, options.files([]))):  # what is none has no messages, ever
        if not path.name.endswith(SUFFIX) and path.name.endswith(SUFFIXES):
            text = f"{path} is compressed as a whole, and no stream; read it with spark.read, or decompress it"
            raise RecordingError(f"{text} first: zstd -d")
        number = _SEGMENT.fullmatch(path.name)
        if number:
            recordings.setdefault(str(path.parent), {})[int(number[1])] = path
        else:
            recordings[str(path)] = {0: path}
    return recordings


def _latest(segments: dict[int, Path]) -> Place:
    index = max(segments)
    if is_closed(segments[index]):
        return {"first": min(segments), "segment": index + 1, "position": 0}
    position = max((step.end for step in steps(segments[index], 0, False)), default=0)
    return {"first": min(segments), "segment": index, "position": position}


def is_closed(path: Path) -> bool:
    """Return whether a file has an end, behind which nothing comes any more."""
    with open_readonly(path) as fd:
        size = os.fstat(fd).st_size
        return size >= _CLOSED_BYTES and os.pread(fd, len(MAGIC), size - len(MAGIC)) == MAGIC


def steps(path: Path, position: int, ended: bool) -> Iterator[Step]:
    """Give what is behind a position of a file.

    ended : nothing is added any more, so that what is damaged is passed over; else it may just be incomplete yet.
    """
    if not ended:
        yield from _whole(path, max(position, len(MAGIC)))
        return
    try:
        blocks = LogReader(path).files[0].blocks
    except RecordingError as error:
        if error.errno is not None:
            raise
        return  # it is no recording, as a batch finds, too
    for block in blocks:
        if block.offset + block.length > position:
            yield Step(block.offset + block.length, block.size)


def _whole(path: Path, begin: int) -> Iterator[Step]:
    """Give what is complete, of a file that is being written."""
    with open_readonly(path) as fd:
        size = os.fstat(fd).st_size
        while size - begin >= _RECORD.size:
            head = os.pread(fd, _RECORD.size + _CHUNK_SIZE.size, begin)
            opcode, length = _RECORD.unpack_from(head)
            begin += _RECORD.size + length
            if opcode in (0, Opcode.DATA_END) or length > RECORD_BYTES_MAX or begin > size:
                return
            if opcode == Opcode.CHUNK and length >= _CHUNK_SIZE.size:
                yield Step(begin, _CHUNK_SIZE.unpack_from(head, _RECORD.size)[0])
            elif opcode == Opcode.MESSAGE:
                yield Step(begin, length)
