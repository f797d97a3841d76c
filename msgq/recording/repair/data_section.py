"""The data section of a file, record by record, with a check of each record.

`recover` and `doctor` use the same checks.
"""

from __future__ import annotations

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
from msgq.recording.mcap_io.byte_reader import ByteReader
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
from msgq.recording.mcap_io.summary import SUMMARY_OPCODES
from msgq.recording.repair.chunk_parser import ChunkContents, ChunkParser, get_record_name, parse_record

_BLOCK_BYTES = 1 << 20
_MESSAGE_INDEXES_MAX = 1 << 17  # maximum indexes of a chunk: each of the 16-bit ids twice
_NEXT_RECORDS_BYTES = 1 << 16  # incompressible data grows a little when it is compressed


@dataclass(slots=True)
class SectionRecord:
    """A record of a data section, a run of messages outside of chunks, or a damaged range.

    Attributes:
        opcode: opcode of the record; MESSAGE for a run of messages; DAMAGE for a damaged range.
        start_offset: byte offset of the begin in the file.
        end_offset: byte offset of the end in the file.
        damage_reason: problem of a damaged range, or of a record that exceeds the memory limit.
        parsed_record: the parsed record; for a chunk, a correct ChunkIndex. None: the record was not parsed.
        record_bytes: bytes of a header, schema, channel or metadata record.
        chunk_contents: content of a chunk or of a run of messages.
        index_end_offset: for a chunk, valid or damaged: end of the message indexes after it.
        chunk_errors: errors of a chunk whose messages are readable.
        index_errors: offsets and descriptions of errors in the chunk's message indexes.
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
        """Content of a chunk or of a run of messages.

        Raises:
            StateError: the record is neither.
        """
        if self.chunk_contents is None:
            raise StateError(f"the record at byte {self.start_offset} contains no other records")
        return self.chunk_contents

    @property
    def has_message_index(self) -> bool:
        """True if a message index follows the chunk."""
        return self.index_end_offset > self.end_offset


class DataSection:
    """Iterates over the data section. The last record is DataEnd, or the section ends with the file.

    Keeps one chunk in memory at a time. One thread at a time.
    """

    def __init__(self, source: ByteReader, size: int, most: int, chunk_offsets: Sequence[int] = ()) -> None:
        """Set the file.

        Args:
            source: descriptor of the file.
            size: bytes of the file.
            most: maximum bytes of a chunk before compression, or of a message outside of chunks.
            chunk_offsets: byte offsets of known chunks, in order.
        """
        self._source, self._file_bytes, self._max_chunk_bytes, self._known_chunk_offsets = (
            source,
            size,
            most,
            chunk_offsets,
        )
        self._chunk_parser = ChunkParser()

    def __iter__(self) -> Iterator[SectionRecord]:
        position = len(MCAP_MAGIC)
        for bound in (*self._known_chunk_offsets, self._file_bytes):
            scanner = RecordScanner(self._source, position, bound, self._max_chunk_bytes)
            for scanned in scanner:
                part = self._parse_record(scanner, scanned, bound)
                scanner.position = max(part.end_offset, part.index_end_offset)
                yield part
                if part.opcode == Opcode.DATA_END:
                    return
            position = max(scanner.position, bound)

    def _read_range(self, start: int, end: int) -> bytes:
        return self._source.pread(end - start, start)

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
            elif opcode in SUMMARY_OPCODES:
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
        """Return offset and description of each error in the message indexes of a chunk."""
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
        """Parse messages outside of chunks, up to the size of a block."""
        length = part.end_offset - part.start_offset
        if length > self._max_chunk_bytes + RECORD_HEAD_STRUCT.size:
            raise ChunkTooLargeError(length - RECORD_HEAD_STRUCT.size, self._max_chunk_bytes)
        block = self._read_range(
            part.start_offset, part.start_offset + max(length, min(_BLOCK_BYTES, bound - part.start_offset))
        )
        part.chunk_contents = self._chunk_parser.parse_messages(block)
        part.end_offset = part.start_offset + part.chunk_contents.end_offset

    def _check_attachment(self, start: int, end: int) -> records.AttachmentIndex:
        """Check an attachment, and return its index.

        Raises:
            ValueError: the lengths contradict each other, or the CRC is wrong.
        """
        index = read_attachment_index(self._source, start, end - start)
        at = find_attachment_crc_offset(index)
        crc = int.from_bytes(self._read_range(at, at + ATTACHMENT_CRC_BYTES), "little")
        if crc and crc != compute_range_crc(self._source, start + RECORD_HEAD_STRUCT.size, at):
            raise ValueError(f"attachment {index.name[:100]!r} has a wrong CRC")
        return index


def _scan_message_indexes(scanner: RecordScanner) -> Iterator[tuple[int, int, int]]:
    """Yield channel id, start and end offset of each message index that follows."""
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
    """Return the correct chunk index for a summary."""
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
    """Yield the errors of a readable chunk."""
    index, bad = part.parsed_record, part.required_contents.bad_ranges
    if bad:
        suffix = f"; and {len(bad) - 1} more" if len(bad) > 1 else ""
        yield f"at byte {bad[0][0]} of the chunk: {bad[0][2]}{suffix}"
    stated = CHUNK_HEAD_STRUCT.unpack_from(data, RECORD_HEAD_STRUCT.size)[:2]
    times = (index.message_start_time, index.message_end_time)
    if stated != times and len(part.required_contents.channel_ids):
        yield f"the stated times are {stated[0]} to {stated[1]}; the messages are from {times[0]} to {times[1]}"
    begin = RECORD_HEAD_STRUCT.size + CHUNK_HEAD_STRUCT.size + len(index.compression) + 8
    reason = find_compatibility_error(
        index.compression, memoryview(data)[begin : begin + index.compressed_size], index.uncompressed_size
    )
    if reason:
        yield reason
