"""The data section of a file, part by part, each of them judged: whether it is whole, and what is in it.

What `recover` mends and what `doctor` says are the same judgement.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from mcap import records
from mcap.opcode import Opcode

from msgq.errors import StateError
from msgq.recording.mcap_io.attachments import ATTACHMENT_CRC_BYTES, find_attachment_crc_offset, read_attachment_index
from msgq.recording.mcap_io.channel_registry import METADATA_BYTES_MAX
from msgq.recording.mcap_io.compression import find_compatibility_error
from msgq.recording.mcap_io.crc import compute_range_crc
from msgq.recording.mcap_io.record_scanner import (
    DAMAGE_OPCODE,
    ChunkTooLargeError,
    RecordScanner,
    ScannedRecord,
    decompress_chunk,
)
from msgq.recording.mcap_io.record_structs import (
    CHUNK_HEAD_STRUCT,
    MCAP_MAGIC,
    MESSAGE_INDEX_HEAD_STRUCT,
    RECORD_HEAD_STRUCT,
)
from msgq.recording.repair.chunk_parser import ChunkContents, ChunkParser, get_record_name, parse_record

_BLOCK_BYTES = 1 << 20
_MESSAGE_INDEXES_MAX = 1 << 17  # of a chunk: ids are 16 bits, and a copy of each is more than enough
_NEXT_RECORDS_BYTES = 1 << 16  # what cannot be compressed is a little more than it was
_SUMMARY_OPCODES = (
    Opcode.CHUNK_INDEX,
    Opcode.ATTACHMENT_INDEX,
    Opcode.STATISTICS,
    Opcode.METADATA_INDEX,
    Opcode.SUMMARY_OFFSET,
)


@dataclass(slots=True)
class SectionRecord:
    """A record of a data section, or messages that follow each other, or what is damaged.

    Attributes
    ----------
    opcode : DAMAGE for what is damaged; of messages outside of chunks MESSAGE, for all of them together.
    start_offset, end_offset : where it is in the file.
    damage_reason : of damage: what is wrong. Of a record that is too large to look into: that it is.
    parsed_record : what it says; of a chunk its ChunkIndex, as it should be. None of what nobody looks into.
    record_bytes : the record itself, of a header, a schema, a channel, and metadata.
    chunk_contents : of a chunk, and of messages.
    index_end_offset : of a chunk, or of what was one: where the message indexes behind it end.
    chunk_errors : of a chunk: how the record itself is wrong, though its messages can be read.
    index_errors : of a chunk: where its message indexes are wrong, and how.
    """

    opcode: int
    start_offset: int
    end_offset: int
    damage_reason: str = ""
    parsed_record: Any = None
    record_bytes: bytes = b""
    chunk_contents: ChunkContents | None = None
    index_end_offset: int = 0
    chunk_errors: list[str] = field(default_factory=list)
    index_errors: list[tuple[int, str]] = field(default_factory=list)

    @property
    def required_contents(self) -> ChunkContents:
        """What is inside of a chunk, or of messages.

        Raises
        ------
        StateError : it is neither.
        """
        if self.chunk_contents is None:
            raise StateError(f"the record at byte {self.start_offset} contains no other records")
        return self.chunk_contents

    @property
    def has_message_index(self) -> bool:
        """Whether any message index is behind the chunk."""
        return self.index_end_offset > self.end_offset


class DataSection:
    """The parts, from the magic bytes to the end of the data, which is the last part, or to the end of the file.

    Holds one chunk at a time. For one thread at a time.
    """

    def __init__(self, fd: int, size: int, most: int, known: Sequence[int] = ()) -> None:
        """Begin.

        Parameters
        ----------
        fd, size : of the file.
        most : bytes of a chunk before compression, or of a message outside of chunks.
        known : where chunks begin for sure, in order.
        """
        self._fd, self._file_bytes, self._max_chunk_bytes, self._known_chunk_offsets = fd, size, most, known
        self._chunk_parser = ChunkParser()

    def __iter__(self) -> Iterator[SectionRecord]:
        position = len(MCAP_MAGIC)
        for bound in (*self._known_chunk_offsets, self._file_bytes):
            scanner = RecordScanner(self._fd, position, bound, self._max_chunk_bytes)
            for scanned in scanner:
                part = self._parse_record(scanner, scanned, bound)
                scanner.position = max(part.end_offset, part.index_end_offset)
                yield part
                if part.opcode == Opcode.DATA_END:
                    return
            position = max(scanner.position, bound)

    def _read_range(self, start: int, end: int) -> bytes:
        return os.pread(self._fd, end - start, start)

    def _parse_record(self, scanner: RecordScanner, scanned: ScannedRecord, bound: int) -> SectionRecord:
        opcode, start, end, head, reason = scanned
        part = SectionRecord(opcode, start, end, reason)
        try:
            if opcode == Opcode.CHUNK:
                self._parse_chunk(part, scanner)
            elif opcode == Opcode.MESSAGE:
                self._parse_messages(part, bound)
            elif opcode == Opcode.ATTACHMENT:
                part.parsed_record = self._check_attachment(start, end)
            elif opcode in (Opcode.HEADER, Opcode.SCHEMA, Opcode.CHANNEL, Opcode.METADATA):
                self._read_record(part)
            elif opcode == Opcode.DATA_END and bound < self._file_bytes:
                raise ValueError("a DataEnd record is not at the end of the data section")
            elif opcode == Opcode.DATA_END and head[0] == Opcode.DATA_END:
                part.end_offset = start + RECORD_HEAD_STRUCT.size + RECORD_HEAD_STRUCT.unpack_from(head)[1]
            elif opcode == Opcode.DATA_END:
                part.end_offset = start  # there is no such record: what comes is the footer
            elif opcode in _SUMMARY_OPCODES:
                raise ValueError(f"a {get_record_name(opcode)} is in the data section, where it is not allowed")
        except ChunkTooLargeError as error:
            part.damage_reason = str(error)
        except ValueError as error:
            part.opcode, part.damage_reason = DAMAGE_OPCODE, str(error)
        return part

    def _read_record(self, part: SectionRecord) -> None:
        if part.opcode == Opcode.HEADER and part.start_offset != len(MCAP_MAGIC):
            raise ValueError("the file has a second header")
        if part.end_offset - part.start_offset > METADATA_BYTES_MAX:
            raise ChunkTooLargeError(part.end_offset - part.start_offset, METADATA_BYTES_MAX)
        part.record_bytes = self._read_range(part.start_offset, part.end_offset)
        try:
            part.parsed_record = parse_record(part.record_bytes)
        except ValueError as error:
            raise ValueError(f"a {get_record_name(part.opcode)}: {error}") from None

    # Chunks

    def _parse_chunk(self, part: SectionRecord, scanner: RecordScanner) -> None:
        indexes = list(islice(_scan_message_indexes(scanner), _MESSAGE_INDEXES_MAX))
        part.index_end_offset = indexes[-1][2] if indexes else part.end_offset
        if part.end_offset - part.start_offset > self._max_chunk_bytes + _NEXT_RECORDS_BYTES:
            raise ChunkTooLargeError(part.end_offset - part.start_offset, self._max_chunk_bytes)
        data = self._read_range(part.start_offset, part.end_offset)
        try:
            content = decompress_chunk(data, self._max_chunk_bytes)
        except ChunkTooLargeError:
            raise
        except ValueError as error:
            raise ValueError(f"a chunk is damaged: {error}") from None
        part.chunk_contents = self._chunk_parser.parse_chunk(content)
        part.parsed_record = _build_chunk_index(part, data, indexes)
        part.chunk_errors = list(_find_chunk_errors(part, data))
        part.index_errors = self._find_index_errors(part.chunk_contents, indexes)

    def _find_index_errors(
        self, inside: ChunkContents, indexes: Sequence[tuple[int, int, int]]
    ) -> list[tuple[int, str]]:
        """Return where the message indexes of a chunk are wrong, and how."""
        errors, places, seen = [], inside.group_by_channel(), set()
        for channel, start, end in indexes:
            expected = places.get(channel, np.empty((0, 2), np.uint64))
            count = (
                MESSAGE_INDEX_HEAD_STRUCT.unpack(self._read_range(start, start + MESSAGE_INDEX_HEAD_STRUCT.size))[3]
                / 16
            )
            if channel in seen:
                errors.append((start, f"channel {channel} has a second message index"))
            elif count != len(expected):
                text = f"the message index of channel {channel} has {count:g} entries for {len(expected)} messages"
                errors.append((start, text))
            else:
                begin = start + MESSAGE_INDEX_HEAD_STRUCT.size
                entries = np.frombuffer(self._read_range(begin, min(end, begin + len(expected) * 16)), "<u8").reshape(
                    -1, 2
                )
                if not (
                    np.array_equal(entries, expected) or np.array_equal(_sort_entries_by_offset(entries), expected)
                ):
                    errors.append((start, f"the message index of channel {channel} has offsets without such a message"))
            seen.add(channel)
        if indexes:
            last = indexes[-1][2]
            errors += [(last, f"channel {channel} has no message index") for channel in places if channel not in seen]
        return errors

    # Outside of chunks

    def _parse_messages(self, part: SectionRecord, bound: int) -> None:
        """Look at the messages from here on, as many as fit in a block."""
        length = part.end_offset - part.start_offset
        if length > self._max_chunk_bytes + RECORD_HEAD_STRUCT.size:
            raise ChunkTooLargeError(length - RECORD_HEAD_STRUCT.size, self._max_chunk_bytes)
        block = self._read_range(
            part.start_offset, part.start_offset + max(length, min(_BLOCK_BYTES, bound - part.start_offset))
        )
        part.chunk_contents = self._chunk_parser.parse_messages(block)
        part.end_offset = part.start_offset + part.chunk_contents.end_offset

    def _check_attachment(self, start: int, end: int) -> records.AttachmentIndex:
        """Return where an attachment is, and what it is called.

        Raises
        ------
        ValueError : its lengths do not fit each other, or its CRC is wrong.
        """
        index = read_attachment_index(self._fd, start, end - start)
        at = find_attachment_crc_offset(index)
        crc = int.from_bytes(self._read_range(at, at + ATTACHMENT_CRC_BYTES), "little")
        if crc and crc != compute_range_crc(self._fd, start + RECORD_HEAD_STRUCT.size, at):
            raise ValueError(f"attachment {index.name[:100]!r} has a wrong CRC")
        return index


def _scan_message_indexes(scanner: RecordScanner) -> Iterator[tuple[int, int, int]]:
    """Give the channel of each message index that comes next, and from where to where it is."""
    following = scanner.position
    for record in scanner:
        head = record.head_bytes[: MESSAGE_INDEX_HEAD_STRUCT.size]
        if record.opcode != Opcode.MESSAGE_INDEX or len(head) < MESSAGE_INDEX_HEAD_STRUCT.size:
            break
        _, length, channel, size = MESSAGE_INDEX_HEAD_STRUCT.unpack(head)
        if length < MESSAGE_INDEX_HEAD_STRUCT.size - RECORD_HEAD_STRUCT.size + size:
            break
        yield channel, record.start_offset, record.end_offset
        following = record.end_offset
    scanner.position = following


def _build_chunk_index(part: SectionRecord, data: bytes, indexes: Sequence[tuple[int, int, int]]) -> records.ChunkIndex:
    """Return what a summary should say of a chunk."""
    *_, size, _, name_bytes = CHUNK_HEAD_STRUCT.unpack_from(data, RECORD_HEAD_STRUCT.size)
    name_at = RECORD_HEAD_STRUCT.size + CHUNK_HEAD_STRUCT.size
    times = part.chunk_contents.log_times if part.chunk_contents is not None else np.empty(0, np.uint64)
    return records.ChunkIndex(
        chunk_length=len(data),
        chunk_start_offset=part.start_offset,
        compression=data[name_at : name_at + name_bytes].decode(),
        compressed_size=struct.unpack_from("<Q", data, name_at + name_bytes)[0],
        message_end_time=int(times.max(initial=0)),
        message_index_length=part.index_end_offset - part.end_offset,
        message_index_offsets={channel: start for channel, start, _ in indexes},
        message_start_time=int(times.min()) if len(times) else 0,
        uncompressed_size=size,
    )


def _sort_entries_by_offset(entries: Any) -> Any:
    return entries[np.argsort(entries[:, 1])]


def _find_chunk_errors(part: SectionRecord, data: bytes) -> Iterator[str]:
    """Give what is wrong with a chunk that can be read."""
    index, bad = part.parsed_record, part.required_contents.bad_ranges
    if bad:
        suffix = f"; and {len(bad) - 1} more" if len(bad) > 1 else ""
        yield f"at byte {bad[0][0]} of the chunk: {bad[0][2]}{suffix}"
    said = CHUNK_HEAD_STRUCT.unpack_from(data, RECORD_HEAD_STRUCT.size)[:2]
    times = (index.message_start_time, index.message_end_time)
    if said != times and len(part.required_contents.channel_ids):
        yield f"the stated times are {said[0]} to {said[1]}; the messages are from {times[0]} to {times[1]}"
    begin = RECORD_HEAD_STRUCT.size + CHUNK_HEAD_STRUCT.size + len(index.compression) + 8
    why = find_compatibility_error(
        index.compression, memoryview(data)[begin : begin + index.compressed_size], index.uncompressed_size
    )
    if why:
        yield why
