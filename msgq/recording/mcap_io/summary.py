"""What the end of a file says of the rest: which is checked here, and believed by those who read the file."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mcap import records
from mcap.opcode import Opcode

from msgq.recording.mcap_io.channel_registry import parse_or_report
from msgq.recording.mcap_io.core import crc32
from msgq.recording.mcap_io.record_scanner import DAMAGE_OPCODE
from msgq.recording.mcap_io.record_structs import FOOTER_BYTES, MCAP_MAGIC, RECORD_HEAD, RecordStream

#: What a summary consists of; opcodes that MCAP does not know yet may be among them.
_SUMMARY_OPCODES = {
    Opcode.SCHEMA,
    Opcode.CHANNEL,
    Opcode.CHUNK_INDEX,
    Opcode.ATTACHMENT_INDEX,
    Opcode.STATISTICS,
    Opcode.METADATA_INDEX,
    Opcode.SUMMARY_OFFSET,
}


@dataclass(slots=True)
class Summary:
    """A summary that makes sense.

    Attributes
    ----------
    start : where it begins, and the data end; the end of the file where the footer says that there is none.
    definitions : its schemas, then its channels: opcode, content, place in the file.
    chunks : in the order of the file. They overlap neither each other nor the summary.
    statistics : what it counts; None: nothing.
    unknown : each record that MCAP does not define: opcode, from where to where in the file.
    is_whole : whether its chunks may be believed; else there are none, and it begins where the file ends.
    """

    start: int
    definitions: list[tuple[int, bytes, int]] = field(default_factory=list)
    chunks: list[records.ChunkIndex] = field(default_factory=list)
    statistics: records.Statistics | None = None
    unknown: list[tuple[int, int, int]] = field(default_factory=list)
    is_whole: bool = True


def read_summary(fd: int, size: int, most: int, problem: Callable[[int, str], None]) -> Summary | None:
    """Return the summary of a file of `size` bytes; None: it was not closed, or what is there makes no sense.

    Parameters
    ----------
    most : bytes that it may have.
    problem : is told what makes no sense, and where.
    """
    end = os.pread(fd, FOOTER_BYTES, max(0, size - FOOTER_BYTES))
    if len(end) < FOOTER_BYTES or not end.endswith(MCAP_MAGIC) or RECORD_HEAD.unpack_from(end) != (Opcode.FOOTER, 20):
        return None
    start, _, crc = struct.unpack_from("<QQI", end, RECORD_HEAD.size)
    footer = size - FOOTER_BYTES
    if start == 0:
        return Summary(size)
    if not len(MCAP_MAGIC) <= start <= footer or footer - start > most:
        reason = f"the footer says that the summary is at {start}, {footer - start} bytes"
        problem(footer, f"{reason}; walking the file instead")
        return None
    data = os.pread(fd, footer - start, start)
    if crc and crc != crc32(end[: RECORD_HEAD.size + 16], crc32(data)):
        problem(start, "the summary's CRC is wrong; walking the file instead")
        return None
    return _parse_summary(data, start, size, problem)


def _parse_summary(data: bytes, start: int, size: int, problem: Callable[[int, str], None]) -> Summary | None:
    if not all(opcode in _SUMMARY_OPCODES or opcode > Opcode.DATA_END for opcode, _, _ in _iter_records(data)):
        problem(start, "no summary is where the footer says; walking the file instead")
        return None
    summary = Summary(start)
    for opcode, begin, end in _iter_records(data):
        if opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
            summary.definitions.append((opcode, data[begin:end], start + begin))
        elif opcode == Opcode.CHUNK_INDEX:
            index = parse_or_report(records.ChunkIndex.read, RecordStream(data[begin:end]), start + begin, problem)
            if index is not None:
                summary.chunks.append(index)
        elif opcode == Opcode.STATISTICS:
            read = records.Statistics.read
            summary.statistics = parse_or_report(read, RecordStream(data[begin:end]), start + begin, lambda *_: None)
        elif opcode > Opcode.DATA_END:
            summary.unknown.append((opcode, start + begin - RECORD_HEAD.size, start + end))
    summary.definitions.sort(key=lambda description: description[0])
    summary.chunks.sort(key=lambda index: index.chunk_start_offset)
    last = 0
    for index in summary.chunks:
        if index.chunk_start_offset < last or find_chunk_end(index) > start:
            problem(start, "the summary's chunks overlap each other or the summary; walking the file instead")
            return Summary(size, summary.definitions, unknown=summary.unknown, is_whole=False)
        last = find_chunk_end(index)
    return summary


def find_chunk_end(index: records.ChunkIndex) -> int:
    """Return where a chunk and its message indexes end."""
    return int(index.chunk_start_offset + index.chunk_length + index.message_index_length)


def _iter_records(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Give the opcode of each record, and from where to where its content is; DAMAGE at what does not fit."""
    position = 0
    while position < len(data):
        opcode, length = (
            RECORD_HEAD.unpack_from(data, position) if position + RECORD_HEAD.size <= len(data) else (DAMAGE_OPCODE, 0)
        )
        end = position + RECORD_HEAD.size + length
        if end > len(data) or opcode == DAMAGE_OPCODE:
            yield DAMAGE_OPCODE, position, len(data)
            return
        yield opcode, position + RECORD_HEAD.size, end
        position = end
