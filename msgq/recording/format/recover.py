"""Making a damaged or truncated file whole, so that every MCAP reader takes it."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from mcap import records
from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode

from msgq.errors import RecordingError
from msgq.recording.format.chunk import RECORD_HEADER
from msgq.recording.format.container import CHUNK, HEAD, MAGIC, MESSAGE_INDEX, encoded
from msgq.recording.format.definitions import DESCRIBING_BYTES_MAX, Room
from msgq.recording.format.file import OTHERS_MAX, TIME_MAX, LogFile
from msgq.recording.format.scan import CUT, RECORD, UNWANTED, ZERO, Columns
from msgq.recording.format.walk import CHUNK_BYTES_MAX, DAMAGE, FoundRecord, TooLargeError, Walk, chunk_content
from msgq.recording.format.writer import DataIndex, message_indexes

_RETIRED = 0xFF  # an opcode that is free for applications: readers pass over it
_IDS = np.arange(1 << 16, dtype=np.int32)
_DESCRIBING: dict[Opcode, Callable[[ReadDataStream], Any]] = {
    Opcode.SCHEMA: records.Schema.read,
    Opcode.CHANNEL: records.Channel.read,
    Opcode.METADATA: records.Metadata.read,
}
_MESSAGE_TIME = struct.Struct("<H4xQ")  # channel, log_time: how a message begins
_ATTACHMENT_TIMES = struct.Struct("<QQ")  # log_time, create_time: how an attachment begins
_TEXTS_BYTES = 1 << 16  # of an attachment's name and media type, at most


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was done to a file.

    Attributes
    ----------
    path : the file.
    changed : whether anything had to be done.
    messages, chunks : that the file has now.
    cut_bytes : taken off its end.
    damaged_bytes : within it that readers are made to pass over.
    """

    path: str
    changed: bool
    messages: int
    chunks: int
    cut_bytes: int
    damaged_bytes: int


def recover(path: Path, output: Path | None = None, max_chunk_bytes: int = CHUNK_BYTES_MAX) -> Recovery:
    """Make a file whole: cut off what is no whole record, and write a summary of all that is there.

    What is damaged within the file stays there, marked so that readers pass over it. A kill at any moment leaves a file
    that can be recovered; what `LogReader` finds in the file does not change by it.

    Parameters
    ----------
    path : the file.
    output : leave the file alone, and recover a copy with this name; None recovers in place.
    max_chunk_bytes : of a chunk before compression. A larger one may be a good one, and is not judged: see below.

    Raises
    ------
    RecordingError : it is no MCAP file, somebody is writing it, a chunk is larger than `max_chunk_bytes`, or it cannot
        be read or written. Nothing is changed then.
    """
    try:
        _opened(path, max_chunk_bytes)  # says what is wrong with what is no MCAP file
        if output is None:
            with path.open("r+b") as file:
                return _recover(file.fileno(), path, max_chunk_bytes)
        with output.open("xb") as copy:
            try:
                with path.open("rb") as original:
                    shutil.copyfileobj(original, copy, 1 << 20)
                copy.flush()
                with output.open("r+b") as file:
                    return _recover(file.fileno(), output, max_chunk_bytes)
            except RecordingError:
                output.unlink()
                raise
    except OSError as error:
        text = f"cannot recover {error.filename or path}: {error.strerror}"
        raise RecordingError(text, errno=error.errno) from error


def _opened(path: Path, most: int) -> LogFile:
    return LogFile(path, lambda _: UNWANTED, lambda _: None, most=most)


def _recover(fd: int, path: Path, most: int) -> Recovery:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RecordingError(f"{path} is being written; recover it when its recorder is gone") from None
    survey = _Survey(fd, path, most)
    size = os.fstat(fd).st_size
    changed = bool(survey.damaged) or not _opened(path, most).complete
    if changed:
        for start, end in survey.damaged:
            os.pwrite(fd, HEAD.pack(_RETIRED, end - start - HEAD.size), start)
        os.fdatasync(fd)
        os.ftruncate(fd, survey.end)
        missing = survey.missing_index()
        _append(fd, missing + survey.ending(survey.end + len(missing)), survey.end)
        os.fsync(fd)
    damaged = sum(end - start for start, end in survey.damaged)
    cut = size - survey.end if changed else 0
    index = survey.index
    return Recovery(str(path), changed, sum(index.counts.values()), len(index.chunks), cut, damaged)


def _append(fd: int, data: bytes, at: int) -> None:
    while data:
        done = os.pwrite(fd, data, at)
        data, at = data[done:], at + done


class _Survey:
    """What is in the data section of a file, up to its last whole record.

    Attributes
    ----------
    end : of the last good record, or of the file's beginning.
    index : of what is good.
    damaged : what readers are to pass over, from where to where.

    Raises
    ------
    RecordingError : a chunk has more than `most` bytes, and may be a good one.
    """

    def __init__(self, fd: int, path: Path, most: int) -> None:
        self._fd, self._path, self._most = fd, path, most
        self._room = Room()
        self.end = len(MAGIC)
        self.index = DataIndex()
        self.damaged: list[tuple[int, int]] = []
        self._described: dict[tuple[int, bytes], bytes] = {}
        self._last_content: bytes | None = None  # of the chunk whose index is being read
        self._columns = Columns(16384)
        size = os.fstat(fd).st_size
        for found in Walk(fd, self.end, size, most):
            if found.opcode == Opcode.DATA_END or (found.opcode == DAMAGE and found.end == size):
                break
            self._add(found)
            self.end = found.end
        if self.damaged and self.damaged[-1][1] >= self.end:  # nothing good is behind it: it is cut off
            self.end = self.damaged.pop()[0]

    def _add(self, found: FoundRecord) -> None:
        opcode, start, end, *_ = found
        if opcode == Opcode.MESSAGE_INDEX and end - start >= MESSAGE_INDEX.size:
            self._add_index(start, end)
            return
        self._last_content = None
        if opcode == DAMAGE:
            self._add_damage(start, end)
        elif opcode == Opcode.CHUNK:
            try:
                self._add_chunk(start, end, self._content(start, end))
            except TooLargeError as error:
                raise RecordingError(f"{self._path} at byte {start}: a chunk cannot be judged: {error}") from None
            except ValueError:
                self._add_damage(start, end)
        elif opcode == Opcode.MESSAGE and end - start >= RECORD_HEADER:
            self._add_message(start)
        elif opcode == Opcode.ATTACHMENT:
            self._add_attachment(start, end)
        elif opcode in _DESCRIBING and end - start <= DESCRIBING_BYTES_MAX:
            self._add_describing(opcode, os.pread(self._fd, end - start, start), start)

    def _add_damage(self, start: int, end: int) -> None:
        if self.damaged and self.damaged[-1][1] == start:
            start = self.damaged.pop()[0]
        self.damaged.append((start, end))

    def _add_index(self, start: int, end: int) -> None:
        """Note where the index of a channel is; that of a damaged chunk is damage, too."""
        _, _, channel, size = MESSAGE_INDEX.unpack(os.pread(self._fd, MESSAGE_INDEX.size, start))
        if self.damaged and self.damaged[-1][1] == start:
            self._add_damage(start, end)
        elif self._last_content is not None and size == end - start - MESSAGE_INDEX.size:
            self.index.chunks[-1].message_index_offsets[channel] = start
            self.index.chunks[-1].message_index_length += end - start

    def _content(self, start: int, end: int) -> bytes:
        if end - start > self._most + _TEXTS_BYTES:
            raise TooLargeError(end - start, self._most)
        return chunk_content(os.pread(self._fd, end - start, start), self._most)

    def _add_chunk(self, start: int, end: int, content: bytes) -> None:
        times: list[int] = []
        counts = np.zeros(1 << 16, np.int64)
        described: list[bytes] = []
        for columns, other in self._scans(content):
            if columns.rows:
                log_time = columns.log_time[: columns.rows]
                times += [int(log_time.min()), int(log_time.max())]
                counts += np.bincount(columns.code[: columns.rows], minlength=1 << 16)
            if other[:1] in (bytes([Opcode.SCHEMA]), bytes([Opcode.CHANNEL])):
                described.append(other)
        for other in described:
            self._describe(other)
        self.index.widen(*times)
        for channel in counts.nonzero()[0].tolist():
            self.index.count(channel, int(counts[channel]))
        name_at = start + HEAD.size + CHUNK.size
        name_bytes = CHUNK.unpack(os.pread(self._fd, CHUNK.size, start + HEAD.size))[4]
        name = os.pread(self._fd, name_bytes, name_at).decode()
        self._last_content = content
        index = records.ChunkIndex(
            chunk_length=end - start,
            chunk_start_offset=start,
            compression=name,
            compressed_size=end - name_at - name_bytes - 8,
            message_end_time=max(times, default=0),
            message_index_length=0,
            message_index_offsets={},
            message_start_time=min(times, default=0),
            uncompressed_size=len(content),
        )
        self.index.chunks.append(index)

    def _scans(self, content: bytes) -> Iterator[tuple[Columns, bytes]]:
        """Give the messages of a chunk, with ids as codes, and the record that follows them, or b"".

        Raises
        ------
        ValueError : its records make no sense.
        """
        position = others = 0
        while position < len(content):
            self._columns.clear()
            why, position = self._columns.scan(content, position, _IDS, 0, TIME_MAX)
            if why in (CUT, ZERO) or others > OTHERS_MAX:
                raise ValueError("a record within goes beyond the end, is none, or is one too many that is no message")
            other = b""
            if why == RECORD:
                others += 1
                length = HEAD.unpack_from(content, position)[1]
                other = content[position : position + HEAD.size + length]
                position += len(other)
            yield self._columns, other

    def _add_message(self, start: int) -> None:
        """Note a message that is not in a chunk."""
        head = os.pread(self._fd, _MESSAGE_TIME.size, start + HEAD.size)
        channel, log_time = _MESSAGE_TIME.unpack(head)
        self.index.count(channel, 1)
        self.index.widen(log_time)

    def _add_attachment(self, start: int, end: int) -> None:
        """Note an attachment, of any size, if its lengths fit each other."""
        data = os.pread(self._fd, min(end - start - HEAD.size, _TEXTS_BYTES), start + HEAD.size)
        try:
            stream = ReadDataStream(BytesIO(data[_ATTACHMENT_TIMES.size :]))
            log_time, create_time = _ATTACHMENT_TIMES.unpack_from(data)
            name, media_type = stream.read_prefixed_string(), stream.read_prefixed_string()
            size = stream.read8()
        except (McapError, ValueError, struct.error):
            return
        if _ATTACHMENT_TIMES.size + stream.count + size + 4 == end - start - HEAD.size:
            index = records.AttachmentIndex(
                offset=start,
                length=end - start,
                log_time=log_time,
                create_time=create_time,
                data_size=size,
                name=name,
                media_type=media_type,
            )
            self.index.attachments.append(index)

    def _add_describing(self, opcode: int, data: bytes, start: int) -> None:
        """Note a schema, a channel or metadata outside of chunks, if it is what it seems to be."""
        try:
            record = _DESCRIBING[Opcode(opcode)](ReadDataStream(BytesIO(data[HEAD.size :])))
            if encoded(record) != data:
                return
        except (McapError, ValueError, struct.error, MemoryError):
            return
        if isinstance(record, records.Metadata):
            self.index.metadata.append(records.MetadataIndex(offset=start, length=len(data), name=record.name))
        else:
            self._describe(data)

    def _describe(self, data: bytes) -> None:
        """Note a schema or channel for the summary; without room for it, it is where it is only."""
        key = (data[0], data[HEAD.size : HEAD.size + 2])
        if self._described.get(key) != data and self._room.takes(key, len(data)):
            self._described[key] = data

    def missing_index(self) -> bytes:
        """Return what the last chunk lacks of its index, and note it as being there: the file ended within it."""
        if self._last_content is None:
            return b""
        channels, places = [np.empty(0, np.int32)], [np.empty((0, 2), np.int64)]
        for columns, _ in self._scans(self._last_content):
            rows = slice(columns.rows)
            channels.append(columns.code[rows].copy())
            places.append(np.column_stack((columns.log_time[rows], columns.offset[rows] - RECORD_HEADER)))
        chunk, pieces, here = self.index.chunks[-1], [], self.end
        for channel, record in message_indexes(np.concatenate(channels), np.concatenate(places)):
            if channel not in chunk.message_index_offsets:
                chunk.message_index_offsets[channel] = here
                pieces.append(record)
                here += len(record)
        chunk.message_index_length += here - self.end
        return b"".join(pieces)

    def ending(self, at: int) -> bytes:
        """Return all that comes behind the data, which end at a place."""
        schemas = [data for (opcode, _), data in self._described.items() if opcode == Opcode.SCHEMA]
        channels = [data for (opcode, _), data in self._described.items() if opcode == Opcode.CHANNEL]
        return self.index.ending(at, schemas, channels)
