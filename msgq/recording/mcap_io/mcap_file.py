"""One MCAP file, ours or anybody's, whole or truncated: where its messages are, and what describes them.

The summary at the end says where the chunks are. Whatever it does not cover is walked record by record, which is all of
a file without one; so that a file that nobody closed opens as any other.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from mcap import records
from mcap.opcode import Opcode

from msgq.errors import RecordingError
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.channel_registry import DESCRIBING_BYTES_MAX, Channel, Descriptions
from msgq.recording.mcap_io.crc import DataCrc
from msgq.recording.mcap_io.file_source import FileBytes
from msgq.recording.mcap_io.message_compression import has_packed, unpacked
from msgq.recording.mcap_io.origins import Origins, is_origins
from msgq.recording.mcap_io.problem import Problem
from msgq.recording.mcap_io.record_scanner import CHUNK_BYTES_MAX, DAMAGE, TooLargeError, Walk, chunk_content
from msgq.recording.mcap_io.record_structs import CHUNK, HEAD, MAGIC
from msgq.recording.mcap_io.rosbag2 import foreign_error
from msgq.recording.mcap_io.scan import CUT, RECORD, TIME_MAX, UNWANTED, ZERO, Columns
from msgq.recording.mcap_io.summary import Summary, end_of, read_summary
from msgq.recording.mcap_io.unknown_records import is_unknown
from msgq.recording.mcap_io.wall_time import WallTimes

OTHERS_MAX = 2 << 16  # schemas, channels and strange messages in a row: no chunk describes more, as ids are 16 bits
EXTRAS_MAX = 1 << 20
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Stretch:
    """A chunk, or messages outside of chunks that follow each other. Times and size are what the file says; the times
    are by the clock of the `LogFile`.
    """

    offset: int
    length: int
    size: int  # in bytes, before compression
    start: int
    end: int
    channels: set[int] | None  # ids; None: any
    is_chunk: bool
    origins: tuple[int, int] | None = None  # from where to where the record with its messages' origins is


class Extra(NamedTuple):
    """Location of an attachment, metadata, or a record that MCAP does not define."""

    opcode: int
    offset: int
    length: int
    in_summary: bool = False


class LogFile:
    """A file's map. Holds no descriptor. One thread at a time.

    Attributes
    ----------
    path : of the file.
    bytes : where its bytes are; offsets are into these.
    size : how many, when it was opened.
    complete : whether it was closed properly: there is a summary at its end.
    described : what describes the messages, as far as it was read.
    statistics : what the summary counts; None: there is none, or this is not all of the file.
    stretches : in the order of the file.
    extras : attachments, metadata, and records of other programs that MCAP does not define, in the order of the file.
    on_unknown : gets each such record within a chunk that is read; None: nobody.
    on_read : is told how many bytes of stretches were read, for those who show how far they are; None: nobody.
    wall : what the wall clock showed; None: times are as they are in the file.
    """

    def __init__(
        self,
        path: Path,
        code_of: Callable[[Channel], int],
        note: Callable[[Problem], None],
        span: tuple[int, int] | None = None,
        most: int = CHUNK_BYTES_MAX,
        by_wall: bool = False,
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
        by_wall : all times are the wall clock's, where the file's recorder noted what that showed.

        Raises
        ------
        RecordingError : it cannot be opened, or is no MCAP file.
        """
        self.path, self.bytes = path, FileBytes(path)
        self.stretches: list[Stretch] = []
        self.extras: list[Extra] = []
        self.complete = False
        self.statistics: records.Statistics | None = None
        self.wall: WallTimes | None = None
        self.on_read: Callable[[int], object] | None = None
        self.on_unknown: Callable[[bytes], object] | None = None
        self._note, self._most = note, most
        self.described = Descriptions(code_of, self._problem)
        self._whole: LogFile | None = None  # the same, of which chunks are left where no description was looked for
        self._prologue = (0, b"")  # what a chunk began with, all of which is known, after so many changes
        self._crc: DataCrc | None = DataCrc()  # of the data, once there is a message outside of chunks; None: damaged
        self._origins = (0, 0)  # the last record of them, from where to where
        with self.bytes.opened() as fd:
            self.size = os.fstat(fd).st_size
            if self.bytes.damage:
                self._problem(self.size, f"the compressed file is damaged, and ends here: {self.bytes.damage}")
            self._map(fd, span, by_wall)
        if by_wall:
            self._go_by_wall()

    @property
    def header(self) -> records.Header:
        """What the file says first."""
        return self.described.header

    @property
    def metadata(self) -> dict[str, dict[str, str]]:
        """The newest Metadata record of each name, as far as the file was read."""
        return self.described.metadata

    @property
    def wall_offsets(self) -> tuple[int, ...]:
        """How far the wall clock was ahead of the host's, ns, each in turn; () where the file does not say it."""
        try:
            return WallTimes(self.described.clocks).offsets
        except ValueError:
            return ()

    # What is where

    def _map(self, fd: int, span: tuple[int, int] | None, by_wall: bool) -> None:
        if (begin := os.pread(fd, 16, 0))[: len(MAGIC)] != MAGIC:
            raise foreign_error(self.path, begin)
        here = self._begin(fd)
        if span is not None and self.described.header.profile == metadata_keys.PROFILE:  # each chunk has its channels
            if by_wall:  # what was noted before
                self._walk(fd, here, span[0])
                self.stretches.clear()
            self._walk(fd, max(here, span[0]), min(span[1], self.size))
            return self._distrust_index()
        known = len(self.extras)
        summary = read_summary(fd, self.size, self._most, self._problem) or Summary(self.size, is_whole=False)
        if not self._follow(fd, here, summary):
            self.stretches.clear()
            del self.extras[known:]
            self.statistics, self._crc = None, DataCrc()
            self._walk(fd, here, self.size)
        for opcode, start, end in summary.unknown:
            self._has_extra(opcode, start, end, in_summary=True)
        if not self.complete:
            self._distrust_index()
        if span is not None:
            self.statistics = None
            self.stretches = [clipped for stretch in self.stretches if (clipped := _clip(stretch, *span)) is not None]
        return None

    def _go_by_wall(self) -> None:
        try:
            self.wall = wall = WallTimes(self.described.clocks)
        except ValueError as error:
            self._problem(0, f"nobody can know what the wall clock showed, {error}; times are the host's clock's")
            return
        for number, stretch in enumerate(self.stretches):
            if stretch.start <= stretch.end < TIME_MAX:
                start, end = wall.bounds(stretch.start, stretch.end)
                self.stretches[number] = replace(stretch, start=start, end=end)

    def _follow(self, fd: int, here: int, summary: Summary) -> bool:
        """Note the stretches as the summary says; return whether what is between its chunks makes sense."""
        self.complete = summary.is_whole
        for opcode, content, offset in summary.describing:
            self.described.take(opcode, content, offset)
        self.statistics = summary.statistics
        good = True
        for index in summary.chunks:
            good &= self._walk(fd, here, index.chunk_start_offset)
            place = (index.chunk_start_offset, index.chunk_length, index.uncompressed_size)
            times = (index.message_start_time, index.message_end_time)
            chunk = Stretch(*place, *times, set(index.message_index_offsets) or None, True)
            self.stretches.append(self._with_origins(chunk))
            here = end_of(index)
        good &= self._walk(fd, here, summary.start)
        return good or not summary.chunks

    def _distrust_index(self) -> None:
        """Let the last chunk have messages of any channel: its index may be cut, or not be written yet."""
        if self.stretches:
            self.stretches[-1] = replace(self.stretches[-1], channels=None)

    def cut(
        self, stretches: list[Stretch], code_of: Callable[[Channel], int], note: Callable[[Problem], None]
    ) -> LogFile:
        """Return a map of some of the stretches only, which can be pickled if the functions can."""
        piece = copy(self)
        piece.on_read = piece.on_unknown = None
        piece.stretches, piece.extras, piece.statistics, piece._note = stretches, [], None, note
        piece._whole = None
        piece.described = self.described.copy(code_of, piece._problem)
        return piece

    def _begin(self, fd: int) -> int:
        """Read the header, and what a recorder of ours says behind it; return where that ends."""
        walk = Walk(fd, len(MAGIC), self.size, self._most)
        for opcode, found in zip((Opcode.HEADER, Opcode.METADATA), walk, strict=False):
            if found.opcode != opcode or found.end - found.start > _BLOCK_BYTES:
                return found.start
            content = os.pread(fd, found.end - found.start, found.start)[HEAD.size :]
            self.described.take(opcode, content, found.start)
            if opcode == Opcode.METADATA:
                self._has_extra(opcode, found.start, found.end)
        return walk.here

    def _walk(self, fd: int, here: int, end: int) -> bool:
        """Note the stretches between two places, and learn from what is between them; return whether all made sense."""
        sound = True
        walk = Walk(fd, here, end, self._most)
        for opcode, start, following, head, reason in walk:
            length = following - start - HEAD.size
            if opcode == DAMAGE:
                self._problem(start, reason)
                self._distrust_index()
                self._crc, sound = None, False
            elif opcode == Opcode.MESSAGE:
                walk.here = self._run(fd, start, end)
            elif opcode == Opcode.CHUNK and length >= CHUNK.size:
                first, last, size, *_ = CHUNK.unpack_from(head, HEAD.size)
                chunk = Stretch(start, following - start, size, first, last, None, True)
                self.stretches.append(self._with_origins(chunk))
            elif is_origins(head):
                self._origins = (start, following)
            elif opcode == Opcode.DATA_END:
                self._check_data(fd, start, head)
            elif opcode == Opcode.MESSAGE_INDEX and length >= 2 and self.stretches:
                self._has_channel(struct.unpack_from("<H", head, HEAD.size)[0])
            elif opcode in (Opcode.SCHEMA, Opcode.CHANNEL, Opcode.METADATA):
                length = min(length, DESCRIBING_BYTES_MAX)  # of which nothing is taken
                self.described.take(opcode, os.pread(fd, length, start + HEAD.size), start)
            elif opcode in (Opcode.CHUNK, Opcode.MESSAGE_INDEX):
                self._problem(start, f"a record (opcode {opcode:#x}) of {length} bytes is too short, or has no chunk")
            if opcode in (Opcode.ATTACHMENT, Opcode.METADATA) or is_unknown(head):
                self._has_extra(opcode, start, following)
        return sound

    def _has_extra(self, opcode: int, start: int, end: int, in_summary: bool = False) -> None:
        if len(self.extras) < EXTRAS_MAX:
            self.extras.append(Extra(opcode, start, end - start, in_summary))
        else:
            self._problem(start, f"{EXTRAS_MAX} records beside the messages are all that is kept; not this one")

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
        if self._crc is not None:  # no other one covers such messages, and all of them are read here
            self._crc.add(fd, memoryview(block)[:size], here)
        times = columns.log_time[: columns.rows]
        channels = None  # their order is the file's, so that all of them may be in any stretch
        self.stretches.append(Stretch(here, size, size, int(times.min()), int(times.max()), channels, False))
        return here + size

    def _check_data(self, fd: int, end: int, head: bytes) -> None:
        """Compare the data section, if messages are in it outside of chunks, with the CRC that its end says."""
        opcode, length = HEAD.unpack_from(head)
        said = int.from_bytes(head[HEAD.size : HEAD.size + 4], "little") if length >= 4 else 0
        if self._crc is None or not self._crc.here or opcode != Opcode.DATA_END or not said:
            return
        self._crc.reach(fd, end)
        if self._crc.value != said:
            text = "messages outside of chunks, descriptions or attachments are not as they were written"
            self._problem(end, f"the data section's CRC is wrong: {text}")

    def _problem(self, offset: int, reason: str, code: int | None = None) -> None:
        """Note what is wrong. code : the errno, where it is not the file."""
        self._note(Problem(str(self.path), offset, reason, code))

    # What is in it

    def wants(self, stretch: Stretch, start: int, end: int) -> bool:
        """Return whether messages of the stretch may be of the time and of a wanted channel."""
        if stretch.end < start or end <= stretch.start < TIME_MAX:  # impossible times are said when the stretch is read
            return False
        if stretch.channels is None:
            return True
        return any(map(self.described.may_be_wanted, stretch.channels))

    def content(self, stretch: Stretch) -> bytes | None:
        """Return the stretch's records, or None (and note it) where they are damaged. Payloads that rosbag2 compressed
        one by one are as they were before.
        """
        content = self._content(stretch)
        if content is None or self.header.profile == metadata_keys.PROFILE or not has_packed(content):
            return content
        self._learn(stretch, content)
        return unpacked(content, self._may_be_packed, self._most, partial(self._problem, stretch.offset))

    @cached_property
    def is_packed(self) -> bool:
        """Whether payloads were compressed one by one, as far as the first chunk tells, which is read."""
        if self.header.profile == metadata_keys.PROFILE or not self.stretches:
            return False
        return has_packed(self._content(self.stretches[0]) or b"")

    def _may_be_packed(self, number: int) -> bool:
        """Return whether payloads of a channel that begin as compressed ones are such, and somebody wants them."""
        known = self.described.knows(number) or self._find_channel(number)
        wanted = known and self.described.may_be_wanted(number)
        return wanted and self.described.channels[number].record.message_encoding == "cdr"

    def _content(self, stretch: Stretch) -> bytes | None:
        if stretch.length > self._most + _BLOCK_BYTES:  # what cannot be compressed is a little more than it was
            self._problem(stretch.offset, f"a chunk was skipped: {TooLargeError(stretch.length, self._most)}")
            return None
        try:
            with self.bytes.opened() as fd:
                data = os.pread(fd, stretch.length, stretch.offset)
        except RecordingError as error:
            self._problem(stretch.offset, str(error), error.errno)
            return None
        if self.on_read is not None:
            self.on_read(stretch.length)
        if len(data) < stretch.length:
            reason = f"{stretch.length} bytes were to be read, {len(data)} could be"
            self._problem(stretch.offset, reason, errno.ESTALE)  # stretches lie within the file as it was
            return None
        if not stretch.is_chunk:
            return data
        first, last = CHUNK.unpack_from(data, HEAD.size)[:2] if len(data) >= HEAD.size + CHUNK.size else (0, 0)
        if self.wall is None and (first, last) != (stretch.start, stretch.end):
            said = f"{stretch.start} to {stretch.end} instead of {first} to {last}"
            self._problem(stretch.offset, f"the summary has other times of a chunk: {said}; selected times may miss it")
        try:
            return chunk_content(data, self._most)
        except ValueError as error:
            self._problem(stretch.offset, f"a chunk was skipped: {error}")
            return None

    def scan(self, stretch: Stretch, content: bytes, position: int, columns: Columns, start: int, end: int) -> int:
        """Put messages into the columns until these are full, or the content ends; return the position there."""
        rows = columns.rows
        reach = (start, end) if self.wall is None else self.wall.reach(start, end)
        position = self._scan(stretch, content, position, columns, *reach)
        here = slice(rows, columns.rows)
        columns.origin_time[here] = 0
        if stretch.origins is not None and columns.rows > rows:
            try:
                with self.bytes.opened() as fd:
                    origins = Origins.read(fd, stretch.origins, self._most, self.described.codes)
                columns.origin_time[here] = origins.of(columns, here)
            except (RecordingError, ValueError) as error:
                self._problem(stretch.origins[0], f"the origins of messages were skipped: {error}")
        if self.wall is not None:
            self.wall.turn(columns, rows, start, end)
        return position

    def _scan(self, stretch: Stretch, content: bytes, position: int, columns: Columns, start: int, end: int) -> int:
        learning, others = position == 0, 0
        changes, prologue = self._prologue
        if learning and prologue and changes == self.described.changes and content.startswith(prologue):
            position = len(prologue)  # our chunks repeat their channels, mostly the same ones
        while True:
            before, strict = position, self.on_unknown is not None
            why, position = columns.scan(content, position, self.described.codes, start, end, strict)
            unknown = why == RECORD and content[position] > Opcode.DATA_END
            if learning and (why != RECORD or position > before or unknown):
                self._prologue, learning = (self.described.changes, content[:before]), False
            if why == CUT:
                self._problem(stretch.offset, f"a record within goes beyond the end (at {position} of {len(content)})")
                return len(content)
            if why == ZERO or others > OTHERS_MAX:
                reason = "zeros instead of a record" if why == ZERO else f"{others} records that are no plain messages"
                self._problem(stretch.offset, f"a chunk was read in part: {reason} (at {position} of {len(content)})")
                return len(content)
            if why != RECORD:
                return position
            position, others = self._other(stretch, content, position), others + (not unknown)

    def _other(self, stretch: Stretch, content: bytes, position: int) -> int:
        """Deal with a record that is no plain message; return the next position, or the same to look again."""
        opcode, length = HEAD.unpack_from(content, position)
        following = position + HEAD.size + int(length)
        if opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
            self.described.take(opcode, content[position + HEAD.size : following], stretch.offset)
        elif opcode == Opcode.MESSAGE:
            number = struct.unpack_from("<H", content, position + HEAD.size)[0] if length >= 22 else None
            if number is not None and not self.described.knows(number):
                if self._find_channel(number) or self.described.settle(number, stretch.offset):
                    return position
                self._problem(stretch.offset, f"messages of channel {number}, which nothing describes")
                self.described.set_code(number, UNWANTED)  # said once
            else:
                self._problem(stretch.offset, f"a message that is too short, or has an impossible time (at {position})")
        elif opcode > Opcode.DATA_END and self.on_unknown is not None:
            self.on_unknown(content[position:following])
        return following

    def _find_channel(self, number: int) -> bool:
        """Look for a channel in the whole file, from its beginning: not every chunk needs to repeat it."""
        if self._whole is None:
            try:
                self._whole = LogFile(self.path, self.described.code_of, _unsaid, most=self._most)
            except RecordingError:
                return False
            self._whole.stretches.reverse()
        whole = self._whole
        while whole.stretches and not whole.described.knows(number):
            stretch = whole.stretches.pop()
            content = whole._content(stretch) if stretch.is_chunk else None
            if content is not None:
                whole._learn(stretch, content)
        return self.described.adopt(whole.described, number)

    def _learn(self, stretch: Stretch, content: bytes) -> None:
        """Learn what describes messages from a chunk, and pass over these."""
        nobody, nothing, position = np.full(65536, UNWANTED, np.int32), Columns(1), 0
        for _ in range(OTHERS_MAX):
            why, position = nothing.scan(content, position, nobody, 0, 0)
            if why != RECORD:
                return
            opcode, length = HEAD.unpack_from(content, position)
            if opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
                self.described.take(
                    opcode, content[position + HEAD.size : position + HEAD.size + length], stretch.offset
                )
            position += HEAD.size + int(length)


def _unsaid(_: Problem) -> None:
    """Say nothing: who reads the file says it."""


def _clip(stretch: Stretch, begin: int, end: int) -> Stretch | None:
    """Return what of a stretch is between two places; a chunk is there if it begins there."""
    if stretch.is_chunk:
        return stretch if begin <= stretch.offset < end else None
    first, last = max(begin, stretch.offset), min(end, stretch.offset + stretch.length)
    return replace(stretch, offset=first, length=last - first, size=last - first) if first < last else None
