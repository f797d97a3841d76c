"""Checks the end of a file (summary, summary offsets, footer) against the data section."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mcap import records
from mcap.opcode import Opcode

from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.crc import compute_range_crc
from msgq.recording.mcap_io.record_structs import (
    CHUNK_HEAD_STRUCT,
    FOOTER_BYTES,
    MCAP_MAGIC,
    MESSAGE_INDEX_HEAD_STRUCT,
    RECORD_HEAD_STRUCT,
)
from msgq.recording.repair.chunk_parser import get_record_name, parse_record
from msgq.recording.repair.data_section import SectionRecord
from msgq.recording.repair.declaration_check import (
    DeclarationChecker,
    find_schema_key,
    is_same_declaration,
    make_declaration_key,
)

RawFinding = tuple[str, int, str, str]  # severity, offset, rule, text
#: Maximum bytes of a record to examine. A statistics record of all channels has less than 1 MiB.
_SUMMARY_RECORD_BYTES_MAX = 32 << 20
_FOOTER_STRUCT = struct.Struct("<QQI")  # start of the summary, of its offsets, and their CRC
#: Opcodes of a summary, which indexes the records of the data by their opcodes.
_SUMMARY_GROUPS = (
    *(Opcode.SCHEMA, Opcode.CHANNEL, Opcode.CHUNK_INDEX),
    *(Opcode.ATTACHMENT_INDEX, Opcode.METADATA_INDEX, Opcode.STATISTICS),
)


def _new_counter() -> Counter[int]:
    return Counter()


@dataclass(slots=True)
class DataSectionStats:
    """Statistics of a data section.

    Attributes:
        declarations: schema and channel records.
        message_counts: messages by channel id.
        channels_in_chunks: ids of channels with messages in chunks.
        index_bytes_by_chunk: bytes of the message indexes after each chunk, by the chunk's byte offset.
        unindexed_chunk_count: number of chunks with messages and without message indexes.
        first_loose_message_offset: byte offset of the first message outside of chunks; 0: no such message.
        expected_attachment_indexes: correct index records of attachments, by byte offset.
        expected_metadata_indexes: correct index records of metadata, by byte offset.
        time_range: first and last log_time in ns; empty without messages.
        is_damaged: True if some bytes could not be checked.
    """

    declarations: DeclarationChecker = field(default_factory=DeclarationChecker)
    message_counts: Counter[int] = field(default_factory=_new_counter)
    channels_in_chunks: set[int] = field(default_factory=set)
    index_bytes_by_chunk: dict[int, int] = field(default_factory=dict)
    unindexed_chunk_count: int = 0
    first_loose_message_offset: int = 0
    expected_attachment_indexes: dict[int, records.AttachmentIndex] = field(default_factory=dict)
    expected_metadata_indexes: dict[int, records.MetadataIndex] = field(default_factory=dict)
    time_range: tuple[int, ...] = ()
    is_damaged: bool = False

    def extend_time_range(self, *times: int) -> None:
        """Extend the time range to these log_times."""
        self.time_range = min(*self.time_range, *times), max(*self.time_range, *times)

    def list_declared_ids(self, opcode: int) -> set[int]:
        """Return the ids of all schemas, or of all channels."""
        return {number for declared, number in self.declarations.declared_keys if declared == opcode}


@dataclass(slots=True)
class SummarySectionStats:
    """Statistics of a summary: the location and the records of each group."""

    record_groups: list[list[int]] = field(default_factory=list)  # opcode, start, end
    summary_offsets: list[tuple[int, records.SummaryOffset]] = field(default_factory=list)
    declared_keys: set[tuple[int, int]] = field(default_factory=set)
    indexed_chunks: set[int] = field(default_factory=set)
    indexed_attachments: set[int] = field(default_factory=set)
    indexed_metadata: set[int] = field(default_factory=set)
    statistics_record: records.Statistics | None = None


class SummaryChecker:
    """Checks the summary of one file. One thread at a time."""

    def __init__(self, source: ByteReader, size: int, data_stats: DataSectionStats) -> None:
        """Set the file: its descriptor and its number of bytes."""
        self._source, self._file_bytes, self._data_stats = source, size, data_stats
        self._summary_stats = SummarySectionStats()

    def iter_findings(self, data_end: SectionRecord | None) -> Iterator[RawFinding]:
        """Yield the findings. `data_end`: the DataEnd record; None: missing, and the file has no summary."""
        if data_end is None:
            yield "error", self._file_bytes, "data end", "the file ends without a DataEnd record"
            yield "error", self._file_bytes, "footer", "the file ends without a footer"
            return
        if data_end.start_offset == data_end.end_offset:
            yield "error", data_end.start_offset, "data end", "the file has no DataEnd record before the footer"
        else:
            yield from self._check_data_end(data_end)
        position, footer = data_end.end_offset, None
        while footer is None and position < self._file_bytes:
            head = self._source.pread(RECORD_HEAD_STRUCT.size, position)
            opcode, length = RECORD_HEAD_STRUCT.unpack(head) if len(head) == RECORD_HEAD_STRUCT.size else (0, 0)
            following = position + RECORD_HEAD_STRUCT.size + length
            if opcode == 0 or following > self._file_bytes:
                yield "error", position, "summary", "the file ends within a record, or with bytes that are not a record"
                return
            if opcode == Opcode.FOOTER:
                footer = position
            else:
                yield from self._check_summary_record(opcode, position, following)
            position = following
        if footer is None:
            yield "error", self._file_bytes, "footer", "the file ends without a footer"
            return
        yield from self._check_footer(data_end.end_offset, footer, position)
        yield from self._check_completeness(footer)

    def _check_data_end(self, part: SectionRecord) -> Iterator[RawFinding]:
        if part.end_offset - part.start_offset < RECORD_HEAD_STRUCT.size + 4:
            yield "error", part.start_offset, "data end", "the DataEnd record is too short"
            return
        crc = int.from_bytes(self._source.pread(4, part.start_offset + RECORD_HEAD_STRUCT.size), "little")
        if crc and (right := compute_range_crc(self._source, 0, part.start_offset)) != crc:
            yield (
                "error",
                part.start_offset,
                "data crc",
                f"the stated CRC of the data is {crc:#x}; the computed CRC is {right:#x}",
            )

    def _check_summary_record(self, opcode: int, start: int, end: int) -> Iterator[RawFinding]:
        """Check a record of the summary."""
        groups = self._summary_stats.record_groups
        if groups and groups[-1][0] == opcode:
            groups[-1][2] = end
        else:
            if any(group[0] == opcode for group in groups):
                yield "error", start, "groups", f"the {get_record_name(opcode)} records of the summary are not adjacent"
            elif groups and groups[-1][0] == Opcode.SUMMARY_OFFSET and opcode < 0x80:
                yield "error", start, "groups", f"a {get_record_name(opcode)} follows the summary offsets"
            groups.append([opcode, start, end])
        if opcode not in (*_SUMMARY_GROUPS, Opcode.SUMMARY_OFFSET):
            if opcode <= Opcode.DATA_END:
                yield (
                    "error",
                    start,
                    "summary",
                    f"a {get_record_name(opcode)} is in the summary, where it is not allowed",
                )
            return
        if end - start > _SUMMARY_RECORD_BYTES_MAX:
            yield (
                "error",
                start,
                "size",
                f"a {get_record_name(opcode)} of {end - start} bytes is too large to be checked",
            )
            return
        data = self._source.pread(end - start, start)
        try:
            record = parse_record(data)
        except ValueError as error:
            yield "error", start, "summary", f"a {get_record_name(opcode)}: {error}"
            return
        yield from self._check_record_content(record, data, start)

    def _check_record_content(self, record: Any, data: bytes, start: int) -> Iterator[RawFinding]:
        data_stats, summary = self._data_stats, self._summary_stats
        if isinstance(record, records.SummaryOffset):
            summary.summary_offsets.append((start, record))
        elif isinstance(record, records.ChunkIndex):
            yield from self._check_chunk_index(record, start)
        elif isinstance(record, records.AttachmentIndex):
            yield from _check_index_record(
                record, data_stats.expected_attachment_indexes, summary.indexed_attachments, start, "attachment"
            )
        elif isinstance(record, records.MetadataIndex):
            yield from _check_index_record(
                record, data_stats.expected_metadata_indexes, summary.indexed_metadata, start, "metadata"
            )
        elif isinstance(record, records.Statistics):
            if summary.statistics_record is not None:
                yield "error", start, "statistics", "the summary has a second statistics record"
            summary.statistics_record = record
            if not data_stats.is_damaged:  # the damage is reported already, and would change all numbers
                yield from self._check_statistics(record, start)
        else:
            key = make_declaration_key(data)
            summary.declared_keys.add(key)
            if key not in data_stats.declarations.declared_keys:
                text = f"the {get_record_name(key[0])} {key[1]} of the summary is not in the data section"
                yield "error", start, "summary description", text
            elif not is_same_declaration(data_stats.declarations.newest_declarations.get(key, data), data):
                text = f"the {get_record_name(key[0])} {key[1]} of the summary differs from the one in the data section"
                yield "error", start, "summary description", text

    def _check_chunk_index(self, index: records.ChunkIndex, start: int) -> Iterator[RawFinding]:
        at = index.chunk_start_offset
        if at in self._summary_stats.indexed_chunks:
            yield "error", start, "chunk index", f"the chunk at byte {at} has a second chunk index"
        self._summary_stats.indexed_chunks.add(at)
        if at not in self._data_stats.index_bytes_by_chunk:
            if not self._data_stats.is_damaged:
                yield "error", start, "chunk index", f"a chunk index refers to byte {at}, where no chunk begins"
            return
        right = self._build_expected_index(index)
        for name in records.ChunkIndex.__dataclass_fields__:
            if getattr(index, name) != getattr(right, name):
                stated_value, is_so = (str(getattr(candidate, name))[:200] for candidate in (index, right))
                yield (
                    "error",
                    start,
                    "chunk index",
                    f"{name} of the chunk at byte {at} is stated as {stated_value}; the actual value is {is_so}",
                )

    def _build_expected_index(self, index: records.ChunkIndex) -> records.ChunkIndex:
        """Return the correct chunk index for a valid chunk."""
        at = index.chunk_start_offset
        head = self._source.pread(RECORD_HEAD_STRUCT.size + CHUNK_HEAD_STRUCT.size, at)
        first, last, size, _, name_bytes = CHUNK_HEAD_STRUCT.unpack_from(head, RECORD_HEAD_STRUCT.size)
        name = self._source.pread(name_bytes + 8, at + len(head))
        length = RECORD_HEAD_STRUCT.size + RECORD_HEAD_STRUCT.unpack_from(head)[1]
        offsets: dict[int, int] = {}
        index_bytes = self._data_stats.index_bytes_by_chunk[at]
        position = at + length
        while position < at + length + index_bytes:
            _, record_bytes, channel, entry_bytes = MESSAGE_INDEX_HEAD_STRUCT.unpack(
                self._source.pread(MESSAGE_INDEX_HEAD_STRUCT.size, position)
            )
            if entry_bytes or channel in index.message_index_offsets:  # an index without messages may be missing
                offsets.setdefault(channel, position)
            position += RECORD_HEAD_STRUCT.size + record_bytes
        if not index.message_index_offsets and not index.message_index_length:
            index_bytes, offsets = 0, {}  # "no message indexing is available": it may be so
        return records.ChunkIndex(
            chunk_length=length,
            chunk_start_offset=at,
            compression=name[:-8].decode(),
            compressed_size=int.from_bytes(name[-8:], "little"),
            message_end_time=last,
            message_index_length=index_bytes,
            message_index_offsets=offsets,
            message_start_time=first,
            uncompressed_size=size,
        )

    def _check_statistics(self, statistics: records.Statistics, start: int) -> Iterator[RawFinding]:
        data_stats = self._data_stats
        first, last = data_stats.time_range or (0, 0)
        right = {
            "message_count": data_stats.message_counts.total(),
            "schema_count": len(data_stats.list_declared_ids(Opcode.SCHEMA)),
            "channel_count": len(data_stats.list_declared_ids(Opcode.CHANNEL)),
            "attachment_count": len(data_stats.expected_attachment_indexes),
            "metadata_count": len(data_stats.expected_metadata_indexes),
            "chunk_count": len(data_stats.index_bytes_by_chunk),
            **({"message_start_time": first, "message_end_time": last} if data_stats.time_range else {}),
        }
        for name, value in right.items():
            if getattr(statistics, name) != value:
                text = f"{name} is stated as {getattr(statistics, name)}; the actual value is {value}"
                yield "error", start, "statistics", text
        for number in (
            sorted(data_stats.message_counts.keys() | statistics.channel_message_counts)
            if statistics.channel_message_counts
            else ()
        ):
            count = statistics.channel_message_counts.get(number, 0)
            if count != data_stats.message_counts[number]:
                text = (
                    f"channel {number} has {data_stats.message_counts[number]} messages; the statistics state {count}"
                )
                yield "error", start, "statistics", text

    def _check_footer(self, begin: int, footer: int, end: int) -> Iterator[RawFinding]:
        """Check the footer against the summary, which starts at `begin`."""
        if end - footer != FOOTER_BYTES - len(MCAP_MAGIC):
            text = f"the footer has {end - footer - RECORD_HEAD_STRUCT.size} bytes instead of {_FOOTER_STRUCT.size}"
            yield "error", footer, "footer", text
        if self._source.pread(len(MCAP_MAGIC), end) != MCAP_MAGIC:
            yield "error", end, "magic", "the file does not end with MCAP's magic bytes"
        elif end + len(MCAP_MAGIC) < self._file_bytes:
            text = f"{self._file_bytes - end - len(MCAP_MAGIC)} bytes follow the end of the MCAP data"
            yield "error", end + len(MCAP_MAGIC), "magic", text
        data = self._source.pread(_FOOTER_STRUCT.size, footer + RECORD_HEAD_STRUCT.size)
        if len(data) < _FOOTER_STRUCT.size:
            return
        start, offsets, crc = _FOOTER_STRUCT.unpack(data)
        groups = self._summary_stats.record_groups
        first = next((group[1] for group in groups if group[0] == Opcode.SUMMARY_OFFSET), 0)
        if start not in ({begin} if begin < footer else {0, footer}):
            text = (
                f"the footer states that the summary begins at byte {start}; "
                f"it begins at {begin if begin < footer else 0}"
            )
            yield "error", footer, "footer", text
        elif crc and crc != (
            right := compute_range_crc(self._source, start or footer, footer + RECORD_HEAD_STRUCT.size + 16)
        ):
            yield (
                "error",
                footer,
                "summary crc",
                f"the stated CRC of the summary is {crc:#x}; the computed CRC is {right:#x}",
            )
        if offsets != first and (first or offsets != footer):
            yield (
                "error",
                footer,
                "footer",
                f"the footer states that the summary offsets begin at byte {offsets}; they begin at {first}",
            )
        if begin == footer:
            yield "warning", footer, "summary", "the file has no summary, so readers must scan the whole file"

    def _check_completeness(self, footer: int) -> Iterator[RawFinding]:
        """Check that the summary has all records, and that its offsets are correct."""
        data_stats, summary = self._data_stats, self._summary_stats
        groups = {group[0]: (group[1], group[2] - group[1]) for group in summary.record_groups}
        for start, offset in summary.summary_offsets:
            if offset.group_length and groups.get(offset.group_opcode) != (offset.group_start, offset.group_length):
                name = get_record_name(offset.group_opcode)
                place = f"at byte {offset.group_start} with {offset.group_length} bytes"
                text = f"the {name} records are not {place}, as a summary offset states"
                yield "error", start, "summary offset", text
        stated_groups = {offset.group_opcode for _, offset in summary.summary_offsets}
        if stated_groups and (
            unlisted := [
                get_record_name(opcode)
                for opcode in groups
                if opcode in _SUMMARY_GROUPS and opcode not in stated_groups
            ]
        ):
            yield "warning", footer, "summary offset", f"these records have no summary offset: {', '.join(unlisted)}"
        if not groups:
            return
        yield from self._find_records_without_index()
        used = summary.indexed_chunks and data_stats.channels_in_chunks
        for number in sorted(used or ()):
            channel = data_stats.declarations.newest_declarations.get((Opcode.CHANNEL, number))
            schema = find_schema_key(channel) if channel is not None else None
            for key in ((Opcode.CHANNEL, number), schema):
                if key is not None and key not in summary.declared_keys:
                    text = f"{get_record_name(key[0])} {key[1]} has messages in chunks, and is missing in the summary"
                    yield "warning", footer, "summary description", text
        if summary.statistics_record is None:
            yield "warning", footer, "statistics", "the summary has no statistics"
        if summary.indexed_chunks and data_stats.first_loose_message_offset:
            text = "messages are outside of chunks, so readers that use the index miss them; this is the first"
            yield "warning", data_stats.first_loose_message_offset, "outside", text

    def _find_records_without_index(self) -> Iterator[RawFinding]:
        data_stats, summary = self._data_stats, self._summary_stats
        for name, present, indexed in (
            ("chunk", data_stats.index_bytes_by_chunk, summary.indexed_chunks),
            ("attachment", data_stats.expected_attachment_indexes, summary.indexed_attachments),
            ("metadata", data_stats.expected_metadata_indexes, summary.indexed_metadata),
        ):
            unindexed = sorted(present.keys() - indexed)
            if unindexed:  # none at all is a choice of writers
                text = f"{len(unindexed)} of {len(present)} {name} records have no index; this is the first"
                yield "error" if indexed else "warning", unindexed[0], f"{name} index", text


def _check_index_record(
    record: Any, expected: dict[int, Any], indexed: set[int], start: int, name: str
) -> Iterator[RawFinding]:
    """Check the index of an attachment or of a metadata record."""
    if record.offset in indexed:
        yield "error", start, f"{name} index", f"the {name} at byte {record.offset} has a second index"
    indexed.add(record.offset)
    if expected.get(record.offset) != record:
        fault = "is wrong" if record.offset in expected else "refers to a place without such a record"
        yield "error", start, f"{name} index", f"the index of the {name} at byte {record.offset} {fault}"
