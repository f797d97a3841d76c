"""Plan for the repair of a file: the bytes to keep, and the records to write again."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mcap import records
from mcap.opcode import Opcode

from msgq.errors import RecordingError
from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.channel_registry import METADATA_BYTES_MAX, MetadataBudget
from msgq.recording.mcap_io.crc import compute_range_crc
from msgq.recording.mcap_io.record_scanner import DAMAGE_OPCODE
from msgq.recording.mcap_io.record_structs import FOOTER_BYTES, MCAP_MAGIC, RECORD_HEAD_STRUCT, encode_records
from msgq.recording.mcap_io.segment_writer import SummaryBuilder
from msgq.recording.repair.chunk_parser import parse_record
from msgq.recording.repair.data_section import DataSection, SectionRecord
from msgq.recording.repair.declaration_check import (
    DeclarationChecker,
    DeclarationKey,
    find_schema_key,
    is_same_declaration,
    make_declaration_key,
)

_ENCLOSING_CHUNK_BYTES = 4 << 20


class RepairAction(Enum):
    """Action of a repair step."""

    KEEP = "as they are"
    ENCLOSE = "messages, in a chunk if the file has any: readers by the index would miss them outside"
    PASS_OVER = "in a record that readers pass over"
    INDEX = "a chunk, as it is, with a new index"
    REWRITE = "a chunk, of its good records"


@dataclass(slots=True)
class RepairStep:
    """A range of bytes of the old file, and its action.

    Attributes:
        repair_action: action for these bytes.
        start_offset: byte offset of the begin in the old file.
        end_offset: byte offset of the end in the old file.
        parsed_record: index of the record, with the offsets of the old file; None: no index.
        is_closed: True: later bytes are not merged into this step.
    """

    repair_action: RepairAction
    start_offset: int
    end_offset: int
    parsed_record: Any = None
    is_closed: bool = False


@dataclass(slots=True)
class OldSummary:
    """Readable part of a file's summary.

    Attributes:
        is_crc_right: True if the CRC of the summary is correct.
        declarations: schema and channel records.
        chunk_offsets: sorted byte offsets of chunks. The head of each chunk matches its index.
        unknown_records: records of the summary that MCAP does not define; empty if the CRC is wrong.
    """

    is_crc_right: bool = False
    declarations: dict[DeclarationKey, bytes] = field(default_factory=dict)
    chunk_offsets: list[int] = field(default_factory=list)
    unknown_records: list[bytes] = field(default_factory=list)

    @classmethod
    def read_from_footer(cls, source: ByteReader, size: int) -> OldSummary:
        """Return the summary that a valid footer locates. Empty without a valid footer."""
        footer = size - FOOTER_BYTES
        end = source.pread(FOOTER_BYTES, max(footer, 0))
        if (
            footer < len(MCAP_MAGIC)
            or not end.endswith(MCAP_MAGIC)
            or RECORD_HEAD_STRUCT.unpack_from(end) != (Opcode.FOOTER, 20)
        ):
            return cls()
        start, _, crc = struct.unpack_from("<QQI", end, RECORD_HEAD_STRUCT.size)
        if not len(MCAP_MAGIC) <= start < footer:
            return cls()
        is_right = crc == compute_range_crc(source, start, footer + RECORD_HEAD_STRUCT.size + 16)
        summary = cls.scan_records(source, start, footer, crc != 0 and is_right)
        if crc and not is_right:
            summary.unknown_records.clear()
        return summary

    @classmethod
    def scan_records(cls, source: ByteReader, start: int, end: int, is_sound: bool = False) -> OldSummary:
        """Return the valid records between two byte offsets."""
        summary, budget = cls(is_sound), MetadataBudget()
        while end - start >= RECORD_HEAD_STRUCT.size:
            opcode, length = RECORD_HEAD_STRUCT.unpack(source.pread(RECORD_HEAD_STRUCT.size, start))
            following = start + RECORD_HEAD_STRUCT.size + length
            if following > end:
                break
            is_known = opcode in (Opcode.SCHEMA, Opcode.CHANNEL, Opcode.CHUNK_INDEX)
            if (is_known or opcode > Opcode.DATA_END) and length <= METADATA_BYTES_MAX:
                summary._add_record(source.pread(RECORD_HEAD_STRUCT.size + length, start), source, budget)
            start = following
        summary.chunk_offsets.sort()
        return summary

    def _add_record(self, data: bytes, source: ByteReader, room: MetadataBudget) -> None:
        if data[0] > Opcode.DATA_END:
            self.unknown_records.append(data)
            return
        try:
            record = parse_record(data)
        except ValueError:
            return
        if isinstance(record, records.ChunkIndex):
            times = (record.message_start_time, record.message_end_time, record.uncompressed_size)
            expected_head = RECORD_HEAD_STRUCT.pack(
                Opcode.CHUNK, max(record.chunk_length - RECORD_HEAD_STRUCT.size, 0)
            ) + struct.pack("<QQQ", *times)
            at = record.chunk_start_offset
            if self.is_crc_right and at < 1 << 62 and source.pread(len(expected_head), at) == expected_head:
                self.chunk_offsets.append(at)
        elif room.reserve_record((data[0], data[RECORD_HEAD_STRUCT.size : RECORD_HEAD_STRUCT.size + 2]), len(data)):
            self.declarations[make_declaration_key(data)] = data


@dataclass(slots=True)
class RepairCount:
    """Counts repairs of one kind, with the offset and the reason of the first one."""

    range_count: int = 0
    total_bytes: int = 0
    first_offset: int = 0
    first_reason: str = ""

    def count_range(self, start: int, end: int, reason: str) -> None:
        """Add a repaired range."""
        if not self.range_count:
            self.first_offset, self.first_reason = start, reason
        self.range_count, self.total_bytes = self.range_count + 1, self.total_bytes + end - start

    def __str__(self) -> str:
        return (
            f"the first at byte {self.first_offset}: {self.first_reason}" if self.range_count > 1 else self.first_reason
        )


class RepairPlan:
    """Repair plan of one file.

    Attributes:
        steps: steps for the data section of the new file.
        has_header: True if the first step is the header.
        leading_declarations: schemas and channels to write before all other declarations.
        leading_position: number of steps before the leading declarations.
        declarations: all schemas and channels of the new file.
        summary_builder: number and time range of messages. After writing, its offsets are those of the new file.
        damaged_ranges: counts skipped ranges.
        indexed_chunks: number of chunks with new message indexes.
        rewritten_chunks: number of rewritten chunks.
        stray_indexes: counts message indexes without a chunk.
        has_chunks: True if a chunk contains messages.
        rescued_declarations: number of schemas and channels taken from the old summary.
        invented_declarations: number of placeholders for lost schemas and channels.
        truncated_ranges: counts the bytes cut off at the end.

    Raises:
        RecordingError: a chunk exceeds the limit, and may be valid.
    """

    def __init__(
        self,
        source: ByteReader,
        path: str,
        size: int,
        most: int,
        rewrites_indexes: bool,
        report_progress: Callable[[float], object],
    ) -> None:
        """Read the file, and plan its repair.

        Args:
            source: descriptor of the file.
            path: path of the file.
            size: bytes of the file.
            most: maximum bytes of a chunk.
            rewrites_indexes: True to write all indexes again.
            report_progress: callable for the read part of the file, from 0 to 1, after each chunk.
        """
        self._source, self._path, self._rewrites_indexes = source, path, rewrites_indexes
        self.steps: list[RepairStep] = []
        self.has_header = False
        self.leading_declarations: dict[DeclarationKey, bytes] = {}
        self.leading_position = -1
        self.summary_builder = SummaryBuilder()
        self.damaged_ranges, self.indexed_chunks, self.rewritten_chunks, self.stray_indexes, self.truncated_ranges = (
            RepairCount() for _ in range(5)
        )
        self.rescued_declarations = self.invented_declarations = 0
        self.has_chunks = False
        self.declarations: dict[DeclarationKey, bytes] = {}
        self._declaration_checker = DeclarationChecker()
        self._needed_declarations: dict[DeclarationKey, None] = {}
        self._declarations_outside_chunks: dict[
            DeclarationKey, list[tuple[RepairStep, bytes]]
        ] = {}  # schemas and channels that no CRC covers
        self._declarations_in_chunks: set[DeclarationKey] = set()
        old = OldSummary.read_from_footer(source, size)
        for part in DataSection(source, size, most, old.chunk_offsets):
            report_progress(part.end_offset / size)
            if part.opcode == DAMAGE_OPCODE and part.end_offset == size:
                self.truncated_ranges.count_range(part.start_offset, part.end_offset, part.damage_reason)
            elif part.opcode != Opcode.DATA_END:
                self._add_record(part)
                continue
            if not old.declarations:
                unknown, old = old.unknown_records, OldSummary.scan_records(source, part.start_offset, size)
                old.unknown_records = unknown
            break
        if self.leading_position < 0:
            self.leading_position = len(self.steps)
        self._plan_declarations(old)
        self.summary_builder.unknown_records = old.unknown_records

    def _add_record(self, part: SectionRecord) -> None:
        opcode, start, end = part.opcode, part.start_offset, part.end_offset
        if part.damage_reason and opcode in (Opcode.CHUNK, Opcode.MESSAGE):
            raise RecordingError(
                f"{Opcode(opcode).name.lower()} at byte {start} of '{self._path}' cannot be checked: "
                f"{part.damage_reason}"
            )
        if opcode == Opcode.HEADER:
            self.has_header = True
            self.steps.append(RepairStep(RepairAction.KEEP, start, end, is_closed=True))
            return
        if opcode != Opcode.METADATA and self.leading_position < 0:
            self.leading_position = len(self.steps)
        if opcode == DAMAGE_OPCODE:
            self._skip_bytes(start, end, part.damage_reason)
            return
        if opcode == Opcode.MESSAGE_INDEX:  # its chunk does not exist any more, or its length is wrong
            self.stray_indexes.count_range(start, end, "it belongs to no chunk, or its length is wrong")
            return
        for key, _ in self._declaration_checker.check_section_record(part):
            self._needed_declarations[key] = None
        if opcode == Opcode.CHUNK:
            self._add_chunk(part)
        elif opcode == Opcode.MESSAGE:
            self._add_messages(part)
        elif opcode == Opcode.METADATA and part.parsed_record is not None:
            index = records.MetadataIndex(offset=start, length=end - start, name=part.parsed_record.name)
            self._keep_bytes(start, end, index)
        elif part.record_bytes:
            self.steps.append(RepairStep(RepairAction.KEEP, start, end, is_closed=True))
            self._declarations_outside_chunks.setdefault(make_declaration_key(part.record_bytes), []).append(
                (self.steps[-1], part.record_bytes)
            )
        else:
            self._keep_bytes(start, end, part.parsed_record)

    def _keep_bytes(self, start: int, end: int, record: Any = None) -> None:
        last = self.steps[-1] if self.steps else None
        if (
            record is None
            and last is not None
            and last.repair_action is RepairAction.KEEP
            and not last.is_closed
            and last.end_offset == start
        ):
            last.end_offset = end
        else:
            self.steps.append(RepairStep(RepairAction.KEEP, start, end, record, record is not None))

    def _skip_bytes(self, start: int, end: int, reason: str) -> None:
        self.damaged_ranges.count_range(start, end, reason)
        last = self.steps[-1] if self.steps else None
        if last is not None and last.repair_action is RepairAction.PASS_OVER and last.end_offset == start:
            last.end_offset = end
        else:
            self.steps.append(RepairStep(RepairAction.PASS_OVER, start, end))

    def _count_messages(self, part: SectionRecord) -> None:
        for number, places in part.required_contents.group_by_channel().items():
            self.summary_builder.count_messages(number, len(places))
            self.summary_builder.extend_time_range(int(places[:, 0].min()), int(places[:, 0].max()))

    def _add_chunk(self, part: SectionRecord) -> None:
        inside, start, end = part.required_contents, part.start_offset, part.end_offset
        self._count_messages(part)
        self.has_chunks = True
        self._declarations_in_chunks.update(make_declaration_key(record) for _, record in inside.declarations)
        if part.chunk_errors:
            self.rewritten_chunks.count_range(start, end, part.chunk_errors[0])
            self.steps.append(RepairStep(RepairAction.REWRITE, start, end, part.parsed_record))
        elif self._rewrites_indexes or part.index_errors or (len(inside.channel_ids) and not part.has_message_index):
            if not self._rewrites_indexes:
                self.indexed_chunks.count_range(
                    start, end, part.index_errors[0][1] if part.index_errors else "it had none"
                )
            self.steps.append(RepairStep(RepairAction.INDEX, start, end, part.parsed_record))
        else:
            self._keep_bytes(start, part.index_end_offset, part.parsed_record)

    def _add_messages(self, part: SectionRecord) -> None:
        self._count_messages(part)
        position = part.start_offset
        for begin, end, reason in part.required_contents.bad_ranges:
            if part.start_offset + begin > position:
                self._enclose_messages(position, part.start_offset + begin)
            self._skip_bytes(part.start_offset + begin, part.start_offset + end, reason)
            position = part.start_offset + end
        if part.end_offset > position:
            self._enclose_messages(position, part.end_offset)

    def _enclose_messages(self, start: int, end: int) -> None:
        """Add messages outside of chunks to a step, up to a few MiB per step."""
        last = self.steps[-1] if self.steps else None
        if (
            last is not None
            and last.repair_action is RepairAction.ENCLOSE
            and last.end_offset == start
            and end - last.start_offset <= _ENCLOSING_CHUNK_BYTES
        ):
            last.end_offset = end
        else:
            self.steps.append(RepairStep(RepairAction.ENCLOSE, start, end))

    # Descriptions of the messages

    def _plan_declarations(self, old: OldSummary) -> None:
        """Select the schemas and channels to add to the data section, and their sources."""
        if old.is_crc_right:
            for key, steps in self._declarations_outside_chunks.items():
                good = old.declarations.get(key)
                if (
                    good is not None
                    and key not in self._declarations_in_chunks
                    and all(data != good for _, data in steps)
                ):
                    for step, data in steps:
                        step.repair_action = RepairAction.PASS_OVER
                        self.damaged_ranges.count_range(
                            step.start_offset,
                            step.end_offset,
                            f"the summary, whose CRC is correct, has a different record than {data[:60]!r}",
                        )
                    del self._declaration_checker.newest_declarations[key]
                    self._declaration_checker.declared_keys.discard(key)
        self.declarations = self._declaration_checker.newest_declarations
        for key, record in old.declarations.items():
            if key not in self._declaration_checker.declared_keys:
                self._add_leading_declaration(key, record, old)
                self.rescued_declarations += 1
            elif len(record) > len(declaration := self.declarations.get(key, record)) and is_same_declaration(
                declaration, record
            ):
                self.declarations[key] = record  # with fields that only the summary had
        for key in self._needed_declarations:
            if key not in self.leading_declarations and (
                key in self.declarations or key not in self._declaration_checker.declared_keys
            ):
                self._add_leading_declaration(key, self.declarations.get(key), old)

    def _add_leading_declaration(self, key: DeclarationKey, record: bytes | None, old: OldSummary) -> None:
        if record is None:
            record = make_placeholder_declaration(key)
            self.invented_declarations += 1
        schema = find_schema_key(record) if key[0] == Opcode.CHANNEL else None
        if schema is not None and schema not in self.leading_declarations:
            self._add_leading_declaration(schema, self.declarations.get(schema, old.declarations.get(schema)), old)
        self.leading_declarations[key] = self.declarations[key] = record


def make_placeholder_declaration(key: DeclarationKey) -> bytes:
    """Return a placeholder for a lost schema or channel. Readers can then read the messages as bytes."""
    name = f"undescribed_{key[1]}"
    if key[0] == Opcode.SCHEMA:
        return encode_records(records.Schema(id=key[1], name=name, encoding="", data=b""))
    return encode_records(records.Channel(id=key[1], topic=name, message_encoding="", metadata={}, schema_id=0))
