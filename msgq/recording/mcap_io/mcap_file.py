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
from msgq.recording.mcap_io.channel_registry import METADATA_BYTES_MAX, Channel, ChannelRegistry
from msgq.recording.mcap_io.core import CODE_UNWANTED, SCAN_RECORD, SCAN_TRUNCATED, SCAN_ZERO, TIME_MAX, ScanColumns
from msgq.recording.mcap_io.crc import DataCrc
from msgq.recording.mcap_io.file_source import FileSource
from msgq.recording.mcap_io.message_compression import decompress_payloads, starts_with_compressed_payload
from msgq.recording.mcap_io.origins import Origins, is_origins
from msgq.recording.mcap_io.problem import Problem
from msgq.recording.mcap_io.record_scanner import (
    CHUNK_BYTES_MAX,
    DAMAGE_OPCODE,
    ChunkTooLargeError,
    RecordScanner,
    decompress_chunk,
)
from msgq.recording.mcap_io.record_structs import CHUNK_HEAD, MCAP_MAGIC, RECORD_HEAD
from msgq.recording.mcap_io.rosbag2 import not_mcap_error
from msgq.recording.mcap_io.summary import Summary, find_chunk_end, read_summary
from msgq.recording.mcap_io.unknown_records import is_foreign_record
from msgq.recording.mcap_io.wall_time import WallTimes

#: Schemas, channels and strange messages in a row: no chunk describes more, as ids are 16 bits.
NON_MESSAGES_MAX = 2 << 16
EXTRA_RECORDS_MAX = 1 << 20
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DataBlock:
    """A chunk, or messages outside of chunks that follow each other. Times and size are what the file says; the times
    are by the clock of the `McapFile`.
    """

    offset: int
    length: int
    size: int  # in bytes, before compression
    start: int
    end: int
    channels: set[int] | None  # ids; None: any
    is_chunk: bool
    origins: tuple[int, int] | None = None  # from where to where the record with its messages' origins is


class ExtraRecord(NamedTuple):
    """Location of an attachment, metadata, or a record that MCAP does not define."""

    opcode: int
    offset: int
    length: int
    in_summary: bool = False


class McapFile:
    """A file's map. Holds no descriptor. One thread at a time.

    Attributes
    ----------
    path : of the file.
    source : where its bytes are; offsets are into these.
    size : how many, when it was opened.
    complete : whether it was closed properly: there is a summary at its end.
    registry : schemas, channels and metadata, as far as they were read.
    statistics : what the summary counts; None: there is none, or this is not all of the file.
    blocks : in the order of the file.
    extra_records : attachments, metadata, and records that MCAP does not define, in the order of the file.
    on_unknown_record : gets each such record within a chunk that is read; None: nobody.
    on_read : is told how many bytes of blocks were read, for those who show how far they are; None: nobody.
    wall_times : what the wall clock showed; None: times are as they are in the file.
    """

    def __init__(
        self,
        path: Path,
        assign_code: Callable[[Channel], int],
        note: Callable[[Problem], None],
        span: tuple[int, int] | None = None,
        most: int = CHUNK_BYTES_MAX,
        use_wall_clock: bool = False,
    ) -> None:
        """Find the blocks.

        Parameters
        ----------
        path : of the file.
        assign_code : gives a channel its code (see core.pyi).
        note : is told of each problem.
        span : only what is between these two places, where records begin or end; in a recording of ours, nothing else
            is read.
        most : bytes of a chunk, before compression, of a message outside of chunks, and of the summary.
        use_wall_clock : all times are the wall clock's, where the file's recorder noted what that showed.

        Raises
        ------
        RecordingError : it cannot be opened, or is no MCAP file.
        """
        self.path, self.source = path, FileSource(path)
        self.blocks: list[DataBlock] = []
        self.extra_records: list[ExtraRecord] = []
        self.complete = False
        self.statistics: records.Statistics | None = None
        self.wall_times: WallTimes | None = None
        self.on_read: Callable[[int], object] | None = None
        self.on_unknown_record: Callable[[bytes], object] | None = None
        self._problem_handler, self._max_chunk_bytes = note, most
        self.registry = ChannelRegistry(assign_code, self._report_problem)
        self._full_map: McapFile | None = None  # the same, of which chunks are left where no description was looked for
        self._prologue = (0, b"")  # what a chunk began with, all of which is known, after so many changes
        self._crc: DataCrc | None = DataCrc()  # of the data, once there is a message outside of chunks; None: damaged
        self._origins = (0, 0)  # the last record of them, from where to where
        with self.source.open() as fd:
            self.size = os.fstat(fd).st_size
            if self.source.damage:
                self._report_problem(self.size, f"the compressed file is damaged, and ends here: {self.source.damage}")
            self._map_file(fd, span, use_wall_clock)
        if use_wall_clock:
            self._use_wall_clock()

    @property
    def header(self) -> records.Header:
        """What the file says first."""
        return self.registry.header

    @property
    def metadata(self) -> dict[str, dict[str, str]]:
        """The newest Metadata record of each name, as far as the file was read."""
        return self.registry.metadata

    @property
    def wall_offsets(self) -> tuple[int, ...]:
        """How far the wall clock was ahead of the host's, ns, each in turn; () where the file does not say it."""
        try:
            return WallTimes(self.registry.clock_notes).offsets
        except ValueError:
            return ()

    # What is where

    def _map_file(self, fd: int, span: tuple[int, int] | None, use_wall_clock: bool) -> None:
        if (begin := os.pread(fd, 16, 0))[: len(MCAP_MAGIC)] != MCAP_MAGIC:
            raise not_mcap_error(self.path, begin)
        position = self._read_header(fd)
        if span is not None and self.registry.header.profile == metadata_keys.PROFILE:  # each chunk has its channels
            if use_wall_clock:  # what was noted before
                self._map_records(fd, position, span[0])
                self.blocks.clear()
            self._map_records(fd, max(position, span[0]), min(span[1], self.size))
            return self._distrust_index()
        known = len(self.extra_records)
        summary = read_summary(fd, self.size, self._max_chunk_bytes, self._report_problem) or Summary(
            self.size, is_whole=False
        )
        if not self._map_by_summary(fd, position, summary):
            self.blocks.clear()
            del self.extra_records[known:]
            self.statistics, self._crc = None, DataCrc()
            self._map_records(fd, position, self.size)
        for opcode, start, end in summary.unknown:
            self._add_extra_record(opcode, start, end, in_summary=True)
        if not self.complete:
            self._distrust_index()
        if span is not None:
            self.statistics = None
            self.blocks = [clipped for block in self.blocks if (clipped := _clip_block(block, *span)) is not None]
        return None

    def _use_wall_clock(self) -> None:
        try:
            self.wall_times = wall = WallTimes(self.registry.clock_notes)
        except ValueError as error:
            self._report_problem(
                0, f"nobody can know what the wall clock showed, {error}; times are the host's clock's"
            )
            return
        for number, block in enumerate(self.blocks):
            if block.start <= block.end < TIME_MAX:
                start, end = wall.bounds(block.start, block.end)
                self.blocks[number] = replace(block, start=start, end=end)

    def _map_by_summary(self, fd: int, position: int, summary: Summary) -> bool:
        """Note the blocks as the summary says; return whether what is between its chunks makes sense."""
        self.complete = summary.is_whole
        for opcode, content, offset in summary.definitions:
            self.registry.learn_record(opcode, content, offset)
        self.statistics = summary.statistics
        good = True
        for index in summary.chunks:
            good &= self._map_records(fd, position, index.chunk_start_offset)
            place = (index.chunk_start_offset, index.chunk_length, index.uncompressed_size)
            times = (index.message_start_time, index.message_end_time)
            chunk = DataBlock(*place, *times, set(index.message_index_offsets) or None, True)
            self.blocks.append(self._attach_origins(chunk))
            position = find_chunk_end(index)
        good &= self._map_records(fd, position, summary.start)
        return good or not summary.chunks

    def _distrust_index(self) -> None:
        """Let the last chunk have messages of any channel: its index may be cut, or not be written yet."""
        if self.blocks:
            self.blocks[-1] = replace(self.blocks[-1], channels=None)

    def select_blocks(
        self, blocks: list[DataBlock], assign_code: Callable[[Channel], int], note: Callable[[Problem], None]
    ) -> McapFile:
        """Return a map of some of the blocks only, which can be pickled if the functions can."""
        piece = copy(self)
        piece.on_read = piece.on_unknown_record = None
        piece.blocks, piece.extra_records, piece.statistics, piece._problem_handler = blocks, [], None, note
        piece._full_map = None
        piece.registry = self.registry.copy(assign_code, piece._report_problem)
        return piece

    def _read_header(self, fd: int) -> int:
        """Read the header, and what a recorder of ours says behind it; return where that ends."""
        scanner = RecordScanner(fd, len(MCAP_MAGIC), self.size, self._max_chunk_bytes)
        for opcode, record in zip((Opcode.HEADER, Opcode.METADATA), scanner, strict=False):
            if record.opcode != opcode or record.end - record.start > _BLOCK_BYTES:
                return record.start
            content = os.pread(fd, record.end - record.start, record.start)[RECORD_HEAD.size :]
            self.registry.learn_record(opcode, content, record.start)
            if opcode == Opcode.METADATA:
                self._add_extra_record(opcode, record.start, record.end)
        return scanner.position

    def _map_records(self, fd: int, position: int, end: int) -> bool:
        """Note the blocks between two places, and learn from what is between them; return whether all made sense."""
        sound = True
        scanner = RecordScanner(fd, position, end, self._max_chunk_bytes)
        for opcode, start, following, head, reason in scanner:
            length = following - start - RECORD_HEAD.size
            if opcode == DAMAGE_OPCODE:
                self._report_problem(start, reason)
                self._distrust_index()
                self._crc, sound = None, False
            elif opcode == Opcode.MESSAGE:
                scanner.position = self._map_messages(fd, start, end)
            elif opcode == Opcode.CHUNK and length >= CHUNK_HEAD.size:
                first, last, size, *_ = CHUNK_HEAD.unpack_from(head, RECORD_HEAD.size)
                chunk = DataBlock(start, following - start, size, first, last, None, True)
                self.blocks.append(self._attach_origins(chunk))
            elif is_origins(head):
                self._origins = (start, following)
            elif opcode == Opcode.DATA_END:
                self._check_data_crc(fd, start, head)
            elif opcode == Opcode.MESSAGE_INDEX and length >= 2 and self.blocks:
                self._add_channel(struct.unpack_from("<H", head, RECORD_HEAD.size)[0])
            elif opcode in (Opcode.SCHEMA, Opcode.CHANNEL, Opcode.METADATA):
                length = min(length, METADATA_BYTES_MAX)  # of which nothing is taken
                self.registry.learn_record(opcode, os.pread(fd, length, start + RECORD_HEAD.size), start)
            elif opcode in (Opcode.CHUNK, Opcode.MESSAGE_INDEX):
                self._report_problem(
                    start, f"a record (opcode {opcode:#x}) of {length} bytes is too short, or has no chunk"
                )
            if opcode in (Opcode.ATTACHMENT, Opcode.METADATA) or is_foreign_record(head):
                self._add_extra_record(opcode, start, following)
        return sound

    def _add_extra_record(self, opcode: int, start: int, end: int, in_summary: bool = False) -> None:
        if len(self.extra_records) < EXTRA_RECORDS_MAX:
            self.extra_records.append(ExtraRecord(opcode, start, end - start, in_summary))
        else:
            self._report_problem(
                start, f"{EXTRA_RECORDS_MAX} records beside the messages are all that is kept; not this one"
            )

    def _attach_origins(self, chunk: DataBlock) -> DataBlock:
        """Return a chunk with the record of its origins, if that ends where the chunk begins."""
        return replace(chunk, origins=self._origins) if self._origins[1] == chunk.offset else chunk

    def _add_channel(self, number: int) -> None:
        """Note that the chunk before has messages of a channel."""
        last = self.blocks[-1]
        if last.channels is not None:
            last.channels.add(number)
        elif last.is_chunk:
            self.blocks[-1] = replace(last, channels={number})

    def _map_messages(self, fd: int, position: int, end: int) -> int:
        """Note a block of messages outside of chunks; return where it ends."""
        buffer = os.pread(fd, min(_BLOCK_BYTES, end - position), position)
        length = RECORD_HEAD.unpack_from(buffer)[1]
        if len(buffer) < RECORD_HEAD.size + length <= self._max_chunk_bytes:
            buffer = os.pread(fd, RECORD_HEAD.size + length, position)
        elif RECORD_HEAD.size + length > self._max_chunk_bytes:
            self._report_problem(
                position, f"a message was skipped: {ChunkTooLargeError(length, self._max_chunk_bytes)}"
            )
            return position + RECORD_HEAD.size + int(length)
        columns = ScanColumns(len(buffer) // (RECORD_HEAD.size + 22) + 1)
        size = columns.scan(buffer, 0, np.zeros(65536, np.int32), 0, TIME_MAX, strict=True)[1]
        if size == 0:
            self._report_problem(position, "a message that is too short or long, or has an impossible time")
            return position + RECORD_HEAD.size + int(length)
        if self._crc is not None:  # no other one covers such messages, and all of them are read here
            self._crc.add(fd, memoryview(buffer)[:size], position)
        times = columns.log_time[: columns.rows]
        channels = None  # their order is the file's, so that all of them may be in any block
        self.blocks.append(DataBlock(position, size, size, int(times.min()), int(times.max()), channels, False))
        return position + size

    def _check_data_crc(self, fd: int, end: int, head: bytes) -> None:
        """Compare the data section, if messages are in it outside of chunks, with the CRC that its end says."""
        opcode, length = RECORD_HEAD.unpack_from(head)
        said = int.from_bytes(head[RECORD_HEAD.size : RECORD_HEAD.size + 4], "little") if length >= 4 else 0
        if self._crc is None or not self._crc.position or opcode != Opcode.DATA_END or not said:
            return
        self._crc.advance(fd, end)
        if self._crc.value != said:
            text = "messages outside of chunks, descriptions or attachments are not as they were written"
            self._report_problem(end, f"the data section's CRC is wrong: {text}")

    def _report_problem(self, offset: int, reason: str, code: int | None = None) -> None:
        """Note what is wrong. code : the errno, where it is not the file."""
        self._problem_handler(Problem(str(self.path), offset, reason, code))

    # What is in it

    def may_have_messages(self, block: DataBlock, start: int, end: int) -> bool:
        """Return whether messages of the block may be of the time and of a wanted channel."""
        if block.end < start or end <= block.start < TIME_MAX:  # impossible times are said when the block is read
            return False
        if block.channels is None:
            return True
        return any(map(self.registry.may_be_wanted, block.channels))

    def read_block(self, block: DataBlock) -> bytes | None:
        """Return the block's records, or None (and note it) where they are damaged. Payloads that rosbag2 compressed
        one by one are as they were before.
        """
        content = self._read_bytes(block)
        is_ours = self.header.profile == metadata_keys.PROFILE
        if content is None or is_ours or not starts_with_compressed_payload(content):
            return content
        self._learn_channels(block, content)
        return decompress_payloads(
            content, self._is_compressed_channel, self._max_chunk_bytes, partial(self._report_problem, block.offset)
        )

    @cached_property
    def has_compressed_payloads(self) -> bool:
        """Whether payloads were compressed one by one, as far as the first chunk tells, which is read."""
        if self.header.profile == metadata_keys.PROFILE or not self.blocks:
            return False
        return starts_with_compressed_payload(self._read_bytes(self.blocks[0]) or b"")

    def _is_compressed_channel(self, number: int) -> bool:
        """Return whether payloads of a channel that begin as compressed ones are such, and somebody wants them."""
        known = self.registry.is_known(number) or self._find_channel(number)
        wanted = known and self.registry.may_be_wanted(number)
        return wanted and self.registry.channels[number].record.message_encoding == "cdr"

    def _read_bytes(self, block: DataBlock) -> bytes | None:
        if (
            block.length > self._max_chunk_bytes + _BLOCK_BYTES
        ):  # what cannot be compressed is a little more than it was
            self._report_problem(
                block.offset, f"a chunk was skipped: {ChunkTooLargeError(block.length, self._max_chunk_bytes)}"
            )
            return None
        try:
            with self.source.open() as fd:
                data = os.pread(fd, block.length, block.offset)
        except RecordingError as error:
            self._report_problem(block.offset, str(error), error.errno)
            return None
        if self.on_read is not None:
            self.on_read(block.length)
        if len(data) < block.length:
            reason = f"{block.length} bytes were to be read, {len(data)} could be"
            self._report_problem(block.offset, reason, errno.ESTALE)  # blocks lie within the file as it was
            return None
        if not block.is_chunk:
            return data
        first, last = (
            CHUNK_HEAD.unpack_from(data, RECORD_HEAD.size)[:2]
            if len(data) >= RECORD_HEAD.size + CHUNK_HEAD.size
            else (0, 0)
        )
        if self.wall_times is None and (first, last) != (block.start, block.end):
            said = f"{block.start} to {block.end} instead of {first} to {last}"
            self._report_problem(
                block.offset, f"the summary has other times of a chunk: {said}; selected times may miss it"
            )
        try:
            return decompress_chunk(data, self._max_chunk_bytes)
        except ValueError as error:
            self._report_problem(block.offset, f"a chunk was skipped: {error}")
            return None

    def scan(self, block: DataBlock, content: bytes, position: int, columns: ScanColumns, start: int, end: int) -> int:
        """Put messages into the columns until these are full, or the content ends; return the position there."""
        rows = columns.rows
        reach = (start, end) if self.wall_times is None else self.wall_times.host_range(start, end)
        position = self._scan_records(block, content, position, columns, *reach)
        new_rows = slice(rows, columns.rows)
        columns.origin_time[new_rows] = 0
        if block.origins is not None and columns.rows > rows:
            try:
                with self.source.open() as fd:
                    origins = Origins.read(fd, block.origins, self._max_chunk_bytes)
                columns.origin_time[new_rows] = origins.lookup(columns, new_rows)
            except (RecordingError, ValueError) as error:
                self._report_problem(block.origins[0], f"the origins of messages were skipped: {error}")
        if self.wall_times is not None:
            self.wall_times.convert(columns, rows, start, end)
        return position

    def _scan_records(
        self, block: DataBlock, content: bytes, position: int, columns: ScanColumns, start: int, end: int
    ) -> int:
        learning, non_messages = position == 0, 0
        changes, prologue = self._prologue
        if learning and prologue and changes == self.registry.changes and content.startswith(prologue):
            position = len(prologue)  # our chunks repeat their channels, mostly the same ones
        while True:
            before, strict = position, self.on_unknown_record is not None
            why, position = columns.scan(content, position, self.registry.codes, start, end, strict)
            unknown = why == SCAN_RECORD and content[position] > Opcode.DATA_END
            if learning and (why != SCAN_RECORD or position > before or unknown):
                self._prologue, learning = (self.registry.changes, content[:before]), False
            if why == SCAN_TRUNCATED:
                self._report_problem(
                    block.offset, f"a record within goes beyond the end (at {position} of {len(content)})"
                )
                return len(content)
            if why == SCAN_ZERO or non_messages > NON_MESSAGES_MAX:
                reason = (
                    "zeros instead of a record"
                    if why == SCAN_ZERO
                    else f"{non_messages} records that are no plain messages"
                )
                self._report_problem(
                    block.offset, f"a chunk was read in part: {reason} (at {position} of {len(content)})"
                )
                return len(content)
            if why != SCAN_RECORD:
                return position
            position, non_messages = self._handle_record(block, content, position), non_messages + (not unknown)

    def _handle_record(self, block: DataBlock, content: bytes, position: int) -> int:
        """Deal with a record that is no plain message; return the next position, or the same to look again."""
        opcode, length = RECORD_HEAD.unpack_from(content, position)
        following = position + RECORD_HEAD.size + int(length)
        if opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
            self.registry.learn_record(opcode, content[position + RECORD_HEAD.size : following], block.offset)
        elif opcode == Opcode.MESSAGE:
            number = struct.unpack_from("<H", content, position + RECORD_HEAD.size)[0] if length >= 22 else None
            if number is not None and not self.registry.is_known(number):
                if self._find_channel(number) or self.registry.drop_missing_schema(number, block.offset):
                    return position
                self._report_problem(block.offset, f"messages of channel {number}, which nothing describes")
                self.registry.set_code(number, CODE_UNWANTED)  # said once
            else:
                self._report_problem(
                    block.offset, f"a message that is too short, or has an impossible time (at {position})"
                )
        elif opcode > Opcode.DATA_END and self.on_unknown_record is not None:
            self.on_unknown_record(content[position:following])
        return following

    def _find_channel(self, number: int) -> bool:
        """Look for a channel in the whole file, from its beginning: not every chunk needs to repeat it."""
        if self._full_map is None:
            try:
                self._full_map = McapFile(
                    self.path, self.registry.assign_code, _ignore_problem, most=self._max_chunk_bytes
                )
            except RecordingError:
                return False
            self._full_map.blocks.reverse()
        whole = self._full_map
        while whole.blocks and not whole.registry.is_known(number):
            block = whole.blocks.pop()
            content = whole._read_bytes(block) if block.is_chunk else None
            if content is not None:
                whole._learn_channels(block, content)
        return self.registry.copy_channel(whole.registry, number)

    def _learn_channels(self, block: DataBlock, content: bytes) -> None:
        """Learn what describes messages from a chunk, and pass over these."""
        nobody, nothing, position = np.full(65536, CODE_UNWANTED, np.int32), ScanColumns(1), 0
        for _ in range(NON_MESSAGES_MAX):
            why, position = nothing.scan(content, position, nobody, 0, 0)
            if why != SCAN_RECORD:
                return
            opcode, length = RECORD_HEAD.unpack_from(content, position)
            if opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
                self.registry.learn_record(
                    opcode, content[position + RECORD_HEAD.size : position + RECORD_HEAD.size + length], block.offset
                )
            position += RECORD_HEAD.size + int(length)


def _ignore_problem(_: Problem) -> None:
    """Say nothing: who reads the file says it."""


def _clip_block(block: DataBlock, begin: int, end: int) -> DataBlock | None:
    """Return what of a block is between two places; a chunk is there if it begins there."""
    if block.is_chunk:
        return block if begin <= block.offset < end else None
    first, last = max(begin, block.offset), min(end, block.offset + block.length)
    return replace(block, offset=first, length=last - first, size=last - first) if first < last else None
