"""One MCAP file, ours or anybody's, whole or truncated: where its messages are, and what describes them.

The summary at the end says where the chunks are. Whatever it does not cover is walked record by record, which is all of
a file without one; so that a file that nobody closed opens as any other.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from mcap import records
from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode

from msgq.errors import RecordingError
from msgq.recording.format import conventions
from msgq.recording.format.container import CHUNK, FOOTER_BYTES, HEAD, MAGIC
from msgq.recording.format.definitions import CHANGES_MAX, DESCRIBING_BYTES_MAX, Room, schema_of
from msgq.recording.format.origins import OPCODE, Origins
from msgq.recording.format.problem import Problem
from msgq.recording.format.scan import CUT, RECORD, UNKNOWN, UNWANTED, ZERO, Columns, crc32
from msgq.recording.format.walk import CHUNK_BYTES_MAX, DAMAGE, PRIVATE, TooLargeError, Walk, chunk_content, opened
from msgq.schema import Schema
from msgq.source import TOPIC, Source, source_of

TIME_MAX = 2**63 - 1
OTHERS_MAX = 2 << 16  # schemas, channels and strange messages in a row: no chunk describes more, as ids are 16 bits
_BLOCK_BYTES = 1 << 20
#: What a summary consists of; opcodes that MCAP does not know yet may be among them.
_SUMMARY = {
    Opcode.SCHEMA,
    Opcode.CHANNEL,
    Opcode.CHUNK_INDEX,
    Opcode.ATTACHMENT_INDEX,
    Opcode.STATISTICS,
    Opcode.METADATA_INDEX,
    Opcode.SUMMARY_OFFSET,
}


@dataclass(frozen=True, slots=True)
class Channel:
    """What tells messages with one numbering from others: codes of messages stand for these."""

    endpoint: str
    run: str
    epoch: int
    counted: bool  # a gap in the sequence is a loss
    schema: Schema | None
    tracked: bool = False  # messages had stamps, which their origins are from
    source: Source = TOPIC


@dataclass(frozen=True, slots=True)
class Stretch:
    """A chunk, or messages outside of chunks that follow each other. Times and size are what the file says."""

    offset: int
    length: int
    size: int  # in bytes, before compression
    start: int
    end: int
    channels: set[int] | None  # ids; None: any
    is_chunk: bool
    origins: tuple[int, int] | None = None  # from where to where the record with its messages' origins is


class LogFile:
    """A file's map. Holds no descriptor. One thread at a time.

    Attributes
    ----------
    path : of the file.
    size : in bytes, when it was opened.
    complete : whether it was closed properly: there is a summary at its end.
    profile, library : what its header says.
    metadata : the newest Metadata record of each name.
    stretches : in the order of the file.
    channels : by id.
    """

    def __init__(
        self,
        path: Path,
        code_of: Callable[[Channel], int],
        note: Callable[[Problem], None],
        span: tuple[int, int] | None = None,
        most: int = CHUNK_BYTES_MAX,
    ) -> None:
        """Find the stretches.

        Parameters
        ----------
        path : of the file.
        code_of : gives a channel its code (see scan.pyi).
        note : is told of each problem.
        span : only what is between these two places, where records begin or end; in a recording of ours, nothing else
            is read.
        most : bytes of a chunk, before compression, of a message outside of chunks, and of the summary.

        Raises
        ------
        RecordingError : it cannot be opened, or is no MCAP file.
        """
        self.path = path
        self.metadata: dict[str, dict[str, str]] = {}
        self.stretches: list[Stretch] = []
        self.channels: dict[int, Channel] = {}
        self.complete = False
        self._code_of, self._note, self._most = code_of, note, most
        self._room, self._changes = Room(), 0
        self._codes = np.empty(0, np.int32)
        self._schemas: dict[int, records.Schema] = {}
        self._known: dict[tuple[int, bytes], bytes] = {}
        self._searched = False
        self._prologue = b""  # what a chunk began with, all of which is known
        self._origins = (0, 0)  # the last record of them, from where to where
        with opened(path) as fd:
            self.size = os.fstat(fd).st_size
            self._map(fd, span)

    # What is where

    def _map(self, fd: int, span: tuple[int, int] | None) -> None:
        if os.pread(fd, len(MAGIC), 0) != MAGIC:
            raise RecordingError(f"{self.path} is no MCAP file: it does not begin with MCAP's magic bytes")
        here = self._begin(fd)
        if span is not None and self.profile == conventions.PROFILE:  # each chunk has its channels
            self._walk(fd, max(here, span[0]), min(span[1], self.size))
            return self._distrust_index()
        if not self._follow(fd, here):
            self.stretches.clear()
            self._walk(fd, here, self.size)
        if not self.complete:
            self._distrust_index()
        if span is not None:
            self.stretches = [clipped for stretch in self.stretches if (clipped := _clip(stretch, *span)) is not None]
        return None

    def _follow(self, fd: int, here: int) -> bool:
        """Note the stretches as the summary says; return whether what is between its chunks makes sense."""
        chunks, end = self._summary(fd)
        good = True
        for chunk, following in chunks:
            good &= self._walk(fd, here, chunk.offset)
            self.stretches.append(self._with_origins(chunk))
            here = following
        good &= self._walk(fd, here, end)
        return good or not chunks

    def _distrust_index(self) -> None:
        """Let the last chunk have messages of any channel: its index may be cut, or not be written yet."""
        if self.stretches:
            self.stretches[-1] = replace(self.stretches[-1], channels=None)

    def cut(
        self, stretches: list[Stretch], code_of: Callable[[Channel], int], note: Callable[[Problem], None]
    ) -> LogFile:
        """Return a map of some of the stretches only, which can be pickled if the functions can."""
        piece = copy(self)
        piece.stretches, piece._code_of, piece._note = stretches, code_of, note
        piece.channels, piece._codes, piece._known = dict(self.channels), self._codes.copy(), {}
        piece._room = Room()
        return piece

    def _begin(self, fd: int) -> int:
        """Read the header, and what a recorder of ours says behind it; return where that ends."""
        self.profile = self.library = ""
        walk = Walk(fd, len(MAGIC), self.size, self._most)
        for opcode, found in zip((Opcode.HEADER, Opcode.METADATA), walk, strict=False):
            if found.opcode != opcode or found.end - found.start > _BLOCK_BYTES:
                return found.start
            self._take(opcode, os.pread(fd, found.end - found.start, found.start)[HEAD.size :], found.start)
        return walk.here

    def _summary(self, fd: int) -> tuple[list[tuple[Stretch, int]], int]:
        """Read the summary. Return its chunks with where their indexes end, and where the data end."""
        end = os.pread(fd, FOOTER_BYTES, max(0, self.size - FOOTER_BYTES))
        if len(end) < FOOTER_BYTES or not end.endswith(MAGIC) or HEAD.unpack_from(end) != (Opcode.FOOTER, 20):
            return [], self.size
        start, _, crc = struct.unpack_from("<QQI", end, HEAD.size)
        footer = self.size - FOOTER_BYTES
        if start == 0:
            self.complete = True
            return [], self.size
        if not len(MAGIC) <= start <= footer or footer - start > self._most:
            reason = f"the footer says that the summary is at {start}, {footer - start} bytes"
            self._problem(footer, f"{reason}; walking the file instead")
            return [], self.size
        data = os.pread(fd, footer - start, start)
        if crc and crc != crc32(end[: HEAD.size + 16], crc32(data)):
            self._problem(start, "the summary's CRC is wrong; walking the file instead")
            return [], self.size
        chunks = self._indexed(data, start)
        if chunks is None:
            return [], self.size
        self.complete = True
        return chunks, start

    def _indexed(self, summary: bytes, start: int) -> list[tuple[Stretch, int]] | None:
        """Return the chunks with where their indexes end; None (and note it) where this is no summary."""
        if not all(opcode in _SUMMARY or opcode > Opcode.DATA_END for opcode, _, _ in _records(summary)):
            self._problem(start, "no summary is where the footer says; walking the file instead")
            return None
        for wanted in (Opcode.SCHEMA, Opcode.CHANNEL):
            for opcode, here, end in _records(summary):
                if opcode == wanted:
                    self._take(opcode, summary[here:end], start + here)
        chunks, last = [], 0
        for opcode, here, end in _records(summary):
            if opcode == Opcode.CHUNK_INDEX:
                index = self._parsed(records.ChunkIndex.read, summary[here:end], start + here)
                if index is not None:
                    chunks.append(index)
        chunks.sort(key=lambda index: index.chunk_start_offset)
        stretches = []
        for index in chunks:
            following = index.chunk_start_offset + index.chunk_length + index.message_index_length
            if index.chunk_start_offset < last or following > start:
                self._problem(start, "the summary's chunks overlap each other or the summary; walking the file instead")
                return None
            last = following
            channels = set(index.message_index_offsets) or None
            times = (index.message_start_time, index.message_end_time)
            place = (index.chunk_start_offset, index.chunk_length, index.uncompressed_size)
            stretches.append((Stretch(*place, *times, channels, True), following))
        return stretches

    def _walk(self, fd: int, here: int, end: int) -> bool:
        """Note the stretches between two places, and learn from what is between them; return whether all made sense."""
        sound = True
        walk = Walk(fd, here, end, self._most)
        for opcode, start, following, head, reason in walk:
            length = following - start - HEAD.size
            if opcode == DAMAGE:
                self._problem(start, reason)
                self._distrust_index()
                sound = False
            elif opcode == Opcode.MESSAGE:
                walk.here = self._run(fd, start, end)
            elif opcode == Opcode.CHUNK and length >= CHUNK.size:
                first, last, size, *_ = CHUNK.unpack_from(head, HEAD.size)
                chunk = Stretch(start, following - start, size, first, last, None, True)
                self.stretches.append(self._with_origins(chunk))
            elif opcode == OPCODE:
                self._origins = (start, following)
            elif opcode == Opcode.MESSAGE_INDEX and length >= 2 and self.stretches:
                self._has_channel(struct.unpack_from("<H", head, HEAD.size)[0])
            elif opcode in (Opcode.SCHEMA, Opcode.CHANNEL, Opcode.METADATA):
                length = min(length, DESCRIBING_BYTES_MAX)  # of which nothing is taken
                self._take(opcode, os.pread(fd, length, start + HEAD.size), start)
            elif Opcode.DATA_END < opcode < PRIVATE or opcode in (Opcode.CHUNK, Opcode.MESSAGE_INDEX):
                self._problem(start, f"a record (opcode {opcode:#x}, {length} bytes) that MCAP does not know")
        return sound

    def _with_origins(self, chunk: Stretch) -> Stretch:
        """Return a chunk with the record of its origins, if that ends where the chunk begins."""
        return replace(chunk, origins=self._origins) if self._origins[1] == chunk.offset else chunk

    def _has_channel(self, number: int) -> None:
        """Note that the chunk before has messages of a channel."""
        last = self.stretches[-1]
        if last.channels is not None:
            last.channels.add(number)
        elif last.is_chunk:
            self.stretches[-1] = replace(last, channels={number})

    def _run(self, fd: int, here: int, end: int) -> int:
        """Note a stretch of messages outside of chunks; return where it ends."""
        block = os.pread(fd, min(_BLOCK_BYTES, end - here), here)
        length = HEAD.unpack_from(block)[1]
        if len(block) < HEAD.size + length <= self._most:
            block = os.pread(fd, HEAD.size + length, here)
        elif HEAD.size + length > self._most:
            self._problem(here, f"a message was skipped: {TooLargeError(length, self._most)}")
            return here + HEAD.size + int(length)
        columns = Columns(len(block) // (HEAD.size + 22) + 1)
        size = columns.scan(block, 0, np.zeros(65536, np.int32), 0, TIME_MAX, strict=True)[1]
        if size == 0:
            self._problem(here, "a message that is too short or long, or has an impossible time")
            return here + HEAD.size + int(length)
        times = columns.log_time[: columns.rows]
        channels = None  # their order is the file's, so that all of them may be in any stretch
        self.stretches.append(Stretch(here, size, size, int(times.min()), int(times.max()), channels, False))
        return here + size

    # What describes it

    def _problem(self, offset: int, reason: str, code: int | None = None) -> None:
        """Note what is wrong. code : the errno, where it is not the file."""
        self._note(Problem(str(self.path), offset, reason, code))

    def _parsed(self, read: Callable[[ReadDataStream], Any], content: bytes, offset: int) -> Any:
        """Return a record of the library's, or None when its bytes make no sense."""
        try:
            return read(ReadDataStream(BytesIO(content)))
        except (McapError, ValueError, struct.error, EOFError, MemoryError) as error:
            self._problem(offset, f"a record that makes no sense: {error or type(error).__name__}")
            return None

    def _take(self, opcode: int, content: bytes, offset: int) -> None:
        """Learn from a record; a repetition costs nothing."""
        key = (opcode, content[:2])
        if self._known.get(key) == content or (opcode == Opcode.CHANNEL and self._changes > CHANGES_MAX):
            return
        if not self._room.takes(_description(opcode, content), len(content)):
            text = f"{DESCRIBING_BYTES_MAX} bytes of schemas, channels and metadata are all that is kept; not this one"
            self._problem(offset, text)
            return
        if opcode != Opcode.METADATA:
            self._known[key] = content
        read = {
            Opcode.SCHEMA: records.Schema.read,
            Opcode.CHANNEL: records.Channel.read,
            Opcode.METADATA: records.Metadata.read,
            Opcode.HEADER: records.Header.read,
        }[Opcode(opcode)]
        record = self._parsed(read, content, offset)
        if isinstance(record, records.Header):
            self.profile, self.library = record.profile, record.library
        elif isinstance(record, records.Metadata):
            self.metadata[record.name] = record.metadata
        elif isinstance(record, records.Schema):
            self._schemas[record.id] = record
        elif isinstance(record, records.Channel):
            self._describe(record, offset)

    def _describe(self, record: records.Channel, offset: int) -> None:
        epoch = record.metadata.get(conventions.EPOCH, "")
        channel = Channel(
            record.topic,
            self.metadata.get(conventions.RECORDING, {}).get("run", ""),
            int(epoch) if epoch.isascii() and epoch.isdigit() and len(epoch) < 19 else 0,
            record.metadata.get(conventions.SEQUENCE) == conventions.PUBLISHED,
            self._schema(record, offset),
            record.metadata.get(conventions.TRACKED) == "1",
            source_of(record.metadata),
        )
        before = self.channels.get(record.id)
        if before is not None and before != channel:
            self._problem(offset, f"channel {record.id} was {before.endpoint!r} and is {channel.endpoint!r} from here")
            self._prologue = b""
            self._changes += 1
        self.channels[record.id] = channel
        self._set_code(record.id, self._code_of(channel))

    def _set_code(self, number: int, code: int) -> None:
        if number >= len(self._codes):
            self._codes = np.concatenate((self._codes, np.full(number + 1 - len(self._codes), UNKNOWN, np.int32)))
        self._codes[number] = code

    def _schema(self, channel: records.Channel, offset: int) -> Schema | None:
        record = self._schemas.get(channel.schema_id)
        if record is None:
            if channel.schema_id:
                self._problem(offset, f"channel {channel.id} has schema {channel.schema_id}, which is not there")
            return schema_of(channel.topic, channel.message_encoding, b"") if channel.message_encoding else None
        encoding = channel.message_encoding or conventions.message_encoding(record.encoding)
        return schema_of(record.name, encoding, record.data)

    # What is in it

    def wants(self, stretch: Stretch, start: int, end: int) -> bool:
        """Return whether messages of the stretch may be of the time and of a wanted channel."""
        if stretch.end < start or end <= stretch.start < TIME_MAX:  # impossible times are said when the stretch is read
            return False
        if stretch.channels is None:
            return True
        known = len(self._codes)
        return any(number >= known or self._codes[number] >= UNKNOWN for number in stretch.channels)

    def content(self, stretch: Stretch) -> bytes | None:
        """Return the stretch's records, or None (and note it) where they are damaged."""
        if stretch.length > self._most + _BLOCK_BYTES:  # what cannot be compressed is a little more than it was
            self._problem(stretch.offset, f"a chunk was skipped: {TooLargeError(stretch.length, self._most)}")
            return None
        try:
            with opened(self.path) as fd:
                data = os.pread(fd, stretch.length, stretch.offset)
        except RecordingError as error:
            self._problem(stretch.offset, str(error), error.errno)
            return None
        if len(data) < stretch.length:
            reason = f"{stretch.length} bytes were to be read, {len(data)} could be"
            self._problem(stretch.offset, reason, errno.ESTALE)  # stretches lie within the file as it was
            return None
        if not stretch.is_chunk:
            return data
        try:
            return chunk_content(data, self._most)
        except ValueError as error:
            self._problem(stretch.offset, f"a chunk was skipped: {error}")
            return None

    def scan(self, stretch: Stretch, content: bytes, position: int, columns: Columns, start: int, end: int) -> int:
        """Put messages into the columns until these are full, or the content ends; return the position there."""
        rows = columns.rows
        position = self._scan(stretch, content, position, columns, start, end)
        here = slice(rows, columns.rows)
        columns.origin_time[here] = 0
        if stretch.origins is not None and columns.rows > rows:
            try:
                origins = Origins.read(self.path, stretch.origins, self._most, self._codes)
                columns.origin_time[here] = origins.of(columns.code[here], columns.sequence[here])
            except (RecordingError, ValueError) as error:
                self._problem(stretch.origins[0], f"the origins of messages were skipped: {error}")
        return position

    def _scan(self, stretch: Stretch, content: bytes, position: int, columns: Columns, start: int, end: int) -> int:
        learning, others = position == 0, 0
        if learning and self._prologue and content.startswith(self._prologue):
            position = len(self._prologue)  # our chunks repeat their channels, mostly the same ones
        while True:
            before = position
            why, position = columns.scan(content, position, self._codes, start, end)
            if learning and (why != RECORD or position > before):
                self._prologue, learning = content[:before], False
            if why == CUT:
                self._problem(stretch.offset, f"a record within goes beyond the end (at {position} of {len(content)})")
                return len(content)
            if why == ZERO or others > OTHERS_MAX:
                reason = "zeros instead of a record" if why == ZERO else f"{others} records that are no plain messages"
                self._problem(stretch.offset, f"a chunk was read in part: {reason} (at {position} of {len(content)})")
                return len(content)
            if why != RECORD:
                return position
            position, others = self._other(stretch, content, position), others + 1

    def _other(self, stretch: Stretch, content: bytes, position: int) -> int:
        """Deal with a record that is no plain message; return the next position, or the same to look again."""
        opcode, length = HEAD.unpack_from(content, position)
        following = position + HEAD.size + int(length)
        if opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
            self._take(opcode, content[position + HEAD.size : following], stretch.offset)
        elif opcode == Opcode.MESSAGE:
            number = struct.unpack_from("<H", content, position + HEAD.size)[0] if length >= 22 else None
            if number is not None and number not in self.channels:
                if self._find_channel(number):
                    return position
                self._problem(stretch.offset, f"messages of channel {number}, which nothing describes")
                self._set_code(number, UNWANTED)  # said once
            else:
                self._problem(stretch.offset, f"a message that is too short, or has an impossible time (at {position})")
        return following

    def _find_channel(self, number: int) -> bool:
        """Look for a channel in the whole file, from its beginning: not every chunk needs to repeat it."""
        if self._searched:
            return False
        try:
            whole = LogFile(self.path, self._code_of, lambda _: None, most=self._most)
        except RecordingError:
            return False
        whole._searched = True
        nothing = Columns(1)
        for stretch in whole.stretches:
            content = whole.content(stretch) if stretch.is_chunk and number not in whole.channels else None
            position = 0
            while content is not None and position < len(content):
                position = whole.scan(stretch, content, position, nothing, 0, 0)
        for found in whole.channels.keys() - self.channels.keys():
            self.channels[found] = whole.channels[found]
            self._set_code(found, self._code_of(whole.channels[found]))
        self._searched = number not in self.channels  # once for nothing is enough
        return not self._searched


def _clip(stretch: Stretch, begin: int, end: int) -> Stretch | None:
    """Return what of a stretch is between two places; a chunk is there if it begins there."""
    if stretch.is_chunk:
        return stretch if begin <= stretch.offset < end else None
    first, last = max(begin, stretch.offset), min(end, stretch.offset + stretch.length)
    return replace(stretch, offset=first, length=last - first, size=last - first) if first < last else None


def _records(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Give the opcode of each record, and from where to where its content is; DAMAGE at what does not fit."""
    here = 0
    while here < len(data):
        opcode, length = HEAD.unpack_from(data, here) if here + HEAD.size <= len(data) else (DAMAGE, 0)
        end = here + HEAD.size + length
        if end > len(data) or opcode == DAMAGE:
            yield DAMAGE, here, len(data)
            return
        yield opcode, here + HEAD.size, end
        here = end


def _description(opcode: int, content: bytes) -> tuple[int, bytes]:
    """Return what a later description has in common with one that it replaces: the id, or the name of metadata."""
    if opcode != Opcode.METADATA:
        return opcode, content[:2]
    return opcode, content[: 4 + int.from_bytes(content[:4], "little")]
