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
from msgq.recording.capture import RECORD_HEADER
from msgq.recording.container import CHUNK, HEAD, MAGIC, MESSAGE_INDEX, encoded, summary
from msgq.recording.files import TIME_MAX, LogFile
from msgq.recording.scan import CUT, RECORD, UNWANTED, Columns
from msgq.recording.walk import DAMAGE, RECORD_BYTES_MAX, Found, Walk, chunk_content

_RETIRED = 0xFF  # an opcode that is free for applications: readers pass over it
_IDS = np.arange(1 << 16, dtype=np.int32)
_DESCRIBING: dict[Opcode, Callable[[ReadDataStream, int], Any]] = {
    Opcode.SCHEMA: lambda stream, _: records.Schema.read(stream),
    Opcode.CHANNEL: lambda stream, _: records.Channel.read(stream),
    Opcode.MESSAGE: records.Message.read,
    Opcode.METADATA: lambda stream, _: records.Metadata.read(stream),
    Opcode.ATTACHMENT: lambda stream, _: records.Attachment.read(stream),
}


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


def recover(path: Path, output: Path | None = None) -> Recovery:
    """Make a file whole: cut off what is no whole record, and write a summary of all that is there.

    What is damaged within the file stays there, marked so that readers pass over it. A kill at any moment leaves a file
    that can be recovered; what `LogReader` finds in the file does not change by it.

    Parameters
    ----------
    path : the file.
    output : leave the file alone, and recover a copy with this name; None recovers in place.

    Raises
    ------
    RecordingError : it is no MCAP file, somebody is writing it, or it cannot be read or written.
    """
    try:
        LogFile(path, lambda _: UNWANTED, lambda _: None)  # says what is wrong with what is no MCAP file
        if output is not None:
            with output.open("xb") as copy, path.open("rb") as original:
                shutil.copyfileobj(original, copy, 1 << 20)
            path = output
        with path.open("r+b") as file:
            return _recover(file.fileno(), path)
    except OSError as error:
        text = f"cannot recover {error.filename or path}: {error.strerror}"
        raise RecordingError(text, errno=error.errno) from error


def _recover(fd: int, path: Path) -> Recovery:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RecordingError(f"{path} is being written; recover it when its recorder is gone") from None
    survey = _Survey(fd)
    size = os.fstat(fd).st_size
    changed = bool(survey.damaged) or not LogFile(path, lambda _: UNWANTED, lambda _: None).complete
    if changed:
        for start, end in survey.damaged:
            os.pwrite(fd, HEAD.pack(_RETIRED, end - start - HEAD.size), start)
        os.fdatasync(fd)
        os.ftruncate(fd, survey.end)
        tail = survey.missing_index() + encoded(records.DataEnd(data_section_crc=0))
        tail += summary(survey.end + len(tail), survey.groups())
        _append(fd, tail, survey.end)
        os.fsync(fd)
    damaged = sum(end - start for start, end in survey.damaged)
    cut = size - survey.end if changed else 0
    return Recovery(str(path), changed, sum(survey.counts.values()), len(survey.chunks), cut, damaged)


def _append(fd: int, data: bytes, at: int) -> None:
    while data:
        done = os.pwrite(fd, data, at)
        data, at = data[done:], at + done


class _Survey:
    """What is in the data section of a file, up to its last whole record.

    Attributes
    ----------
    end : of the last good record, or of the file's beginning.
    chunks : the good ones.
    damaged : what readers are to pass over, from where to where.
    counts : messages by channel id.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.end = len(MAGIC)
        self.chunks: list[records.ChunkIndex] = []
        self.damaged: list[tuple[int, int]] = []
        self.counts: dict[int, int] = {}
        self._times: list[int] = []
        self._described: dict[tuple[int, bytes], bytes] = {}
        self._metadata: list[records.MetadataIndex] = []
        self._attachments: list[records.AttachmentIndex] = []
        self._last_content: bytes | None = None  # of the chunk whose index is being read
        self._columns = Columns(16384)
        size = os.fstat(fd).st_size
        for found in Walk(fd, self.end, size):
            if found.opcode == Opcode.DATA_END or (found.opcode == DAMAGE and found.end == size):
                break
            self._add(found)
            self.end = found.end
        if self.damaged and self.damaged[-1][1] >= self.end:  # nothing good is behind it: it is cut off
            self.end = self.damaged.pop()[0]

    def _add(self, found: Found) -> None:
        opcode, start, end, *_ = found
        if opcode == Opcode.MESSAGE_INDEX and end - start >= MESSAGE_INDEX.size:
            self._add_index(start, end)
            return
        self._last_content = None
        if opcode == DAMAGE:
            self._add_damage(start, end)
        elif end - start > RECORD_BYTES_MAX:
            return
        elif opcode == Opcode.CHUNK:
            try:
                self._add_chunk(start, end, chunk_content(os.pread(self._fd, end - start, start)))
            except ValueError:
                self._add_damage(start, end)
        elif opcode in _DESCRIBING:
            self._add_other(opcode, os.pread(self._fd, end - start, start), start)

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
            self.chunks[-1].message_index_offsets[channel] = start
            self.chunks[-1].message_index_length += end - start

    def _add_chunk(self, start: int, end: int, content: bytes) -> None:
        times: list[int] = []
        counts = np.zeros(1 << 16, np.int64)
        described = {}
        for columns, other in self._scans(content):
            if columns.rows:
                log_time = columns.log_time[: columns.rows]
                times += [int(log_time.min()), int(log_time.max())]
                counts += np.bincount(columns.code[: columns.rows], minlength=1 << 16)
            if other[:1] in (bytes([Opcode.SCHEMA]), bytes([Opcode.CHANNEL])):
                described[(other[0], other[HEAD.size : HEAD.size + 2])] = other
        self._described |= described
        self._times += times
        for channel in counts.nonzero()[0].tolist():
            self.counts[channel] = self.counts.get(channel, 0) + int(counts[channel])
        name_at = start + HEAD.size + CHUNK.size
        name_bytes = CHUNK.unpack(os.pread(self._fd, CHUNK.size, start + HEAD.size))[4]
        name = os.pread(self._fd, name_bytes, name_at).decode()
        self._last_content = content
        index = records.ChunkIndex(
            chunk_length=end - start, chunk_start_offset=start, compression=name,
            compressed_size=end - name_at - name_bytes - 8, message_end_time=max(times, default=0),
            message_index_length=0, message_index_offsets={}, message_start_time=min(times, default=0),
            uncompressed_size=len(content),
        )  # fmt: skip
        self.chunks.append(index)

    def _scans(self, content: bytes) -> Iterator[tuple[Columns, bytes]]:
        """Give the messages of a chunk, with ids as codes, and the record that follows them, or b"".

        Raises
        ------
        ValueError : its records go beyond its end.
        """
        position = 0
        while position < len(content):
            self._columns.clear()
            why, position = self._columns.scan(content, position, _IDS, 0, TIME_MAX)
            if why == CUT:
                raise ValueError("a record within goes beyond the end")
            other = b""
            if why == RECORD:
                length = HEAD.unpack_from(content, position)[1]
                other = content[position : position + HEAD.size + length]
                position += len(other)
            yield self._columns, other

    def _add_other(self, opcode: int, data: bytes, start: int) -> None:
        """Note a record that is not in a chunk, if it is what it seems to be."""
        try:
            content = data[HEAD.size :]
            record = _DESCRIBING[Opcode(opcode)](ReadDataStream(BytesIO(content)), len(content))
            if opcode != Opcode.ATTACHMENT and encoded(record) != data:
                return
        except (McapError, ValueError, struct.error, MemoryError):
            return
        if isinstance(record, records.Message):
            self.counts[record.channel_id] = self.counts.get(record.channel_id, 0) + 1
            times = (*self._times, record.log_time)
            self._times = [min(times), max(times)]
        elif isinstance(record, records.Metadata):
            self._metadata.append(records.MetadataIndex(offset=start, length=len(data), name=record.name))
        elif isinstance(record, records.Attachment):
            index = records.AttachmentIndex(
                offset=start, length=len(data), log_time=record.log_time, create_time=record.create_time,
                data_size=len(record.data), name=record.name, media_type=record.media_type,
            )  # fmt: skip
            self._attachments.append(index)
        else:
            self._described[(opcode, data[HEAD.size : HEAD.size + 2])] = data

    def missing_index(self) -> bytes:
        """Return what the last chunk lacks of its index, and note it as being there: the file ended within it."""
        if self._last_content is None:
            return b""
        entries: dict[int, list[tuple[int, int]]] = {}
        for columns, _ in self._scans(self._last_content):
            rows = slice(columns.rows)
            at = (columns.offset[rows] - RECORD_HEADER).tolist()
            for channel, *entry in zip(columns.code[rows].tolist(), columns.log_time[rows].tolist(), at, strict=True):
                entries.setdefault(channel, []).append((entry[0], entry[1]))
        chunk, data = self.chunks[-1], b""
        for channel, places in entries.items():
            if channel not in chunk.message_index_offsets:
                chunk.message_index_offsets[channel] = self.end + len(data)
                data += encoded(records.MessageIndex(channel, places))
        chunk.message_index_length += len(data)
        return data

    def groups(self) -> list[tuple[Opcode, bytes]]:
        """Return the records of the summary."""
        schemas = [data for (opcode, _), data in self._described.items() if opcode == Opcode.SCHEMA]
        channels = [data for (opcode, _), data in self._described.items() if opcode == Opcode.CHANNEL]
        statistics = records.Statistics(
            attachment_count=len(self._attachments), channel_count=len(channels), channel_message_counts=self.counts,
            chunk_count=len(self.chunks), message_count=sum(self.counts.values()), metadata_count=len(self._metadata),
            message_start_time=min(self._times, default=0), message_end_time=max(self._times, default=0),
            schema_count=len(schemas),
        )  # fmt: skip
        return [
            (Opcode.SCHEMA, b"".join(schemas)),
            (Opcode.CHANNEL, b"".join(channels)),
            (Opcode.STATISTICS, encoded(statistics)),
            (Opcode.CHUNK_INDEX, encoded(*self.chunks)),
            (Opcode.ATTACHMENT_INDEX, encoded(*self._attachments)),
            (Opcode.METADATA_INDEX, encoded(*self._metadata)),
        ]
