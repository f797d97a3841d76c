"""Reads and checks the summary at the end of a file. Readers trust a checked summary."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mcap import records
from mcap.opcode import Opcode

from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.channel_registry import parse_record_or_report
from msgq.recording.mcap_io.core import crc32
from msgq.recording.mcap_io.record_scanner import DAMAGE_OPCODE
from msgq.recording.mcap_io.record_structs import (
    FOOTER_BYTES,
    MCAP_MAGIC,
    RECORD_HEAD_STRUCT,
    RecordStream,
    read_chunk_index,
)

#: Records of a summary; opcodes that MCAP does not know yet may be among them.
SUMMARY_OPCODES = {
    Opcode.SCHEMA,
    Opcode.CHANNEL,
    Opcode.CHUNK_INDEX,
    Opcode.ATTACHMENT_INDEX,
    Opcode.STATISTICS,
    Opcode.METADATA_INDEX,
    Opcode.SUMMARY_OFFSET,
}


@dataclass(slots=True)
class SummarySection:
    """A valid summary.

    Attributes:
        start_offset: byte offset of the summary, and end of the data section. Without a summary: the end of the file.
        declarations: schemas, then channels: opcode, content and byte offset of each record.
        chunk_indexes: chunk indexes in the order of the file. No chunk overlaps another chunk or the summary.
        statistics: statistics record; None: missing.
        unknown_records: records that MCAP does not define: opcode, start and end offset in the file.
        is_complete: True if the chunk indexes are valid. If False, `chunk_indexes` is empty, and `start_offset` is the
            end of the file.
    """

    start_offset: int
    declarations: list[tuple[int, bytes, int]] = field(default_factory=list)
    chunk_indexes: list[records.ChunkIndex] = field(default_factory=list)
    statistics: records.Statistics | None = None
    unknown_records: list[tuple[int, int, int]] = field(default_factory=list)
    is_complete: bool = True


def read_summary(
    source: ByteReader, size: int, most: int, problem: Callable[[int, str], None]
) -> SummarySection | None:
    """Return the summary of a file of `size` bytes; None: the file was not closed, or its summary is invalid.

    Args:
        most: maximum bytes of the summary.
        problem: callable for the offset and the text of each problem.
    """
    end = source.pread(FOOTER_BYTES, max(0, size - FOOTER_BYTES))
    if (
        len(end) < FOOTER_BYTES
        or not end.endswith(MCAP_MAGIC)
        or RECORD_HEAD_STRUCT.unpack_from(end) != (Opcode.FOOTER, 20)
    ):
        return None
    start, _, crc = struct.unpack_from("<QQI", end, RECORD_HEAD_STRUCT.size)
    footer = size - FOOTER_BYTES
    if start == 0:
        return SummarySection(size)
    if not len(MCAP_MAGIC) <= start <= footer or footer - start > most:
        reason = f"the footer states an invalid place of the summary: byte {start}, {footer - start} bytes"
        problem(footer, f"{reason}; the whole file is scanned instead")
        return None
    data = source.pread(footer - start, start)
    if crc and crc != crc32(end[: RECORD_HEAD_STRUCT.size + 16], crc32(data)):
        problem(start, "the CRC of the summary is wrong; the whole file is scanned instead")
        return None
    return _parse_summary(data, start, size, problem)


def _parse_summary(data: bytes, start: int, size: int, problem: Callable[[int, str], None]) -> SummarySection | None:
    if not all(opcode in SUMMARY_OPCODES or opcode > Opcode.DATA_END for opcode, _, _ in _iter_summary_records(data)):
        problem(start, "the place that the footer states has no summary; the whole file is scanned instead")
        return None
    summary = SummarySection(start)
    for opcode, begin, end in _iter_summary_records(data):
        if opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
            summary.declarations.append((opcode, data[begin:end], start + begin))
        elif opcode == Opcode.CHUNK_INDEX:
            index = parse_record_or_report(read_chunk_index, RecordStream(data[begin:end]), start + begin, problem)
            if index is not None:
                summary.chunk_indexes.append(index)
        elif opcode == Opcode.STATISTICS:
            read = records.Statistics.read
            summary.statistics = parse_record_or_report(
                read, RecordStream(data[begin:end]), start + begin, lambda *_: None
            )
        elif opcode > Opcode.DATA_END:
            summary.unknown_records.append((opcode, start + begin - RECORD_HEAD_STRUCT.size, start + end))
    summary.declarations.sort(key=lambda description: description[0])
    summary.chunk_indexes.sort(key=lambda index: index.chunk_start_offset)
    last = 0
    for index in summary.chunk_indexes:
        if index.chunk_start_offset < last or find_chunk_end_offset(index) > start:
            problem(start, "chunks in the summary overlap each other or the summary; the whole file is scanned instead")
            return SummarySection(
                size, summary.declarations, unknown_records=summary.unknown_records, is_complete=False
            )
        last = find_chunk_end_offset(index)
    return summary


def find_chunk_end_offset(index: records.ChunkIndex) -> int:
    """Return the byte offset after a chunk and its message indexes."""
    return int(index.chunk_start_offset + index.chunk_length + index.message_index_length)


def _iter_summary_records(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the opcode, start and end offset of each record's content. The opcode is DAMAGE for invalid bytes."""
    position = 0
    while position < len(data):
        opcode, length = (
            RECORD_HEAD_STRUCT.unpack_from(data, position)
            if position + RECORD_HEAD_STRUCT.size <= len(data)
            else (DAMAGE_OPCODE, 0)
        )
        end = position + RECORD_HEAD_STRUCT.size + length
        if end > len(data) or opcode == DAMAGE_OPCODE:
            yield DAMAGE_OPCODE, position, len(data)
            return
        yield opcode, position + RECORD_HEAD_STRUCT.size, end
        position = end
