"""What of a damaged file can be kept, and what is written anew: the plan for a whole one of the same messages."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mcap import records
from mcap.opcode import Opcode

from msgq.errors import RecordingError
from msgq.recording.mcap_io.channel_registry import METADATA_BYTES_MAX, MetadataBudget
from msgq.recording.mcap_io.crc import compute_range_crc
from msgq.recording.mcap_io.record_scanner import DAMAGE_OPCODE
from msgq.recording.mcap_io.record_structs import FOOTER_BYTES, MCAP_MAGIC, RECORD_HEAD_STRUCT, encode_records
from msgq.recording.mcap_io.segment_writer import SummaryBuilder
from msgq.recording.repair.chunk_parser import parse_record
from msgq.recording.repair.data_section import DataSection, SectionRecord
from msgq.recording.repair.declaration_check import (
    DeclarationChecker,
    RecordKey,
    find_schema_key,
    is_same_declaration,
    make_record_key,
)

_ENCLOSED_BYTES = 4 << 20


class RepairAction(Enum):
    """What becomes of a step's bytes."""

    KEEP = "as they are"
    ENCLOSE = "messages, in a chunk if the file has any: readers by the index would miss them outside"
    PASS_OVER = "in a record that readers pass over"
    INDEX = "a chunk, as it is, with a new index"
    REWRITE = "a chunk, of its good records"


@dataclass(slots=True)
class RepairStep:
    """Some bytes of the old file on their way into the new one.

    Attributes
    ----------
    action : what becomes of them.
    start, end : where they are.
    record : their index, with the places of the old file; None where they have none.
    is_closed : nothing is joined to it.
    """

    action: RepairAction
    start: int
    end: int
    record: Any = None
    is_closed: bool = False


@dataclass(slots=True)
class OldSummary:
    """What is left of the summary of a file.

    Attributes
    ----------
    is_sound : its CRC says that it is what was written.
    declarations : its schemas and channels.
    chunks : where it says that chunks begin, and where one does that looks as it says; in order.
    unknown : its records that MCAP does not define; none if its CRC is wrong.
    """

    is_sound: bool = False
    declarations: dict[RecordKey, bytes] = field(default_factory=dict)
    chunks: list[int] = field(default_factory=list)
    unknown: list[bytes] = field(default_factory=list)

    @classmethod
    def read(cls, fd: int, size: int) -> OldSummary:
        """Return that of a file, where its footer is whole."""
        footer = size - FOOTER_BYTES
        end = os.pread(fd, FOOTER_BYTES, max(footer, 0))
        if (
            footer < len(MCAP_MAGIC)
            or not end.endswith(MCAP_MAGIC)
            or RECORD_HEAD_STRUCT.unpack_from(end) != (Opcode.FOOTER, 20)
        ):
            return cls()
        start, _, crc = struct.unpack_from("<QQI", end, RECORD_HEAD_STRUCT.size)
        if not len(MCAP_MAGIC) <= start < footer:
            return cls()
        is_right = crc == compute_range_crc(fd, start, footer + RECORD_HEAD_STRUCT.size + 16)
        summary = cls.scan(fd, start, footer, crc != 0 and is_right)
        if crc and not is_right:
            summary.unknown.clear()
        return summary

    @classmethod
    def scan(cls, fd: int, start: int, end: int, is_sound: bool = False) -> OldSummary:
        """Return what records from a place on say, as far as they make sense."""
        summary, budget = cls(is_sound), MetadataBudget()
        while end - start >= RECORD_HEAD_STRUCT.size:
            opcode, length = RECORD_HEAD_STRUCT.unpack(os.pread(fd, RECORD_HEAD_STRUCT.size, start))
            following = start + RECORD_HEAD_STRUCT.size + length
            if following > end:
                break
            known = opcode in (Opcode.SCHEMA, Opcode.CHANNEL, Opcode.CHUNK_INDEX)
            if (known or opcode > Opcode.DATA_END) and length <= METADATA_BYTES_MAX:
                summary._add_record(os.pread(fd, RECORD_HEAD_STRUCT.size + length, start), fd, budget)
            start = following
        summary.chunks.sort()
        return summary

    def _add_record(self, data: bytes, fd: int, room: MetadataBudget) -> None:
        if data[0] > Opcode.DATA_END:
            self.unknown.append(data)
            return
        try:
            record = parse_record(data)
        except ValueError:
            return
        if isinstance(record, records.ChunkIndex):
            times = (record.message_start_time, record.message_end_time, record.uncompressed_size)
            wanted = RECORD_HEAD_STRUCT.pack(
                Opcode.CHUNK, max(record.chunk_length - RECORD_HEAD_STRUCT.size, 0)
            ) + struct.pack("<QQQ", *times)
            at = record.chunk_start_offset
            if self.is_sound and at < 1 << 62 and os.pread(fd, len(wanted), at) == wanted:
                self.chunks.append(at)
        elif room.reserve_record((data[0], data[RECORD_HEAD_STRUCT.size : RECORD_HEAD_STRUCT.size + 2]), len(data)):
            self.declarations[make_record_key(data)] = data


@dataclass(slots=True)
class RepairCount:
    """RepairAction often something was done, where first, and why there."""

    count: int = 0
    size: int = 0
    offset: int = 0
    reason: str = ""

    def add(self, start: int, end: int, reason: str) -> None:
        """Count it."""
        if not self.count:
            self.offset, self.reason = start, reason
        self.count, self.size = self.count + 1, self.size + end - start

    def __str__(self) -> str:
        return f"the first at byte {self.offset}: {self.reason}" if self.count > 1 else self.reason


class RepairPlan:
    """Of one file.

    Attributes
    ----------
    steps : all that goes into the new file before its end.
    has_header : whether the first step is that.
    leading_declarations : schemas and channels that have to stand before all others there.
    leading_position : how many steps come before these.
    declarations : all schemas and channels that the new file has.
    index : how many messages there are, and when. Its places are those of the new file, once that is written.
    damaged, indexed, rewritten : what is passed over; chunks whose index, or which themselves are written anew.
    strays : message indexes that belong to no chunk.
    has_chunks : whether messages are in chunks.
    rescued, invented : how many schemas and channels are from the old summary, or stand in for lost ones.
    cut : what is left out at the end.

    Raises
    ------
    RecordingError : a chunk is too large to be judged, and may be a good one.
    """

    def __init__(self, fd: int, path: str, size: int, most: int, anew: bool) -> None:
        """Look through a file. most : bytes of a chunk. anew : all indexes are to be new."""
        self._fd, self._path, self._rewrites_all = fd, path, anew
        self.steps: list[RepairStep] = []
        self.has_header = False
        self.leading_declarations: dict[RecordKey, bytes] = {}
        self.leading_position = -1
        self.index = SummaryBuilder()
        self.damaged, self.indexed, self.rewritten, self.strays, self.cut = (RepairCount() for _ in range(5))
        self.rescued = self.invented = 0
        self.has_chunks = False
        self.declarations: dict[RecordKey, bytes] = {}
        self._known = DeclarationChecker()
        self._needed: dict[RecordKey, None] = {}
        self._outside: dict[RecordKey, list[tuple[RepairStep, bytes]]] = {}  # schemas and channels that no CRC covers
        self._in_chunks: set[RecordKey] = set()
        old = OldSummary.read(fd, size)
        for part in DataSection(fd, size, most, old.chunks):
            if part.opcode == DAMAGE_OPCODE and part.end == size:
                self.cut.add(part.start, part.end, part.reason)
            elif part.opcode != Opcode.DATA_END:
                self._add_record(part)
                continue
            if not old.declarations:
                unknown, old = old.unknown, OldSummary.scan(fd, part.start, size)
                old.unknown = unknown
            break
        if self.leading_position < 0:
            self.leading_position = len(self.steps)
        self._plan_declarations(old)
        self.index.unknown_records = old.unknown

    def _add_record(self, part: SectionRecord) -> None:
        opcode, start, end = part.opcode, part.start, part.end
        if part.reason and opcode in (Opcode.CHUNK, Opcode.MESSAGE):
            raise RecordingError(
                f"{self._path} at byte {start}: a {Opcode(opcode).name.lower()} cannot be judged: {part.reason}"
            )
        if opcode == Opcode.HEADER:
            self.has_header = True
            self.steps.append(RepairStep(RepairAction.KEEP, start, end, is_closed=True))
            return
        if opcode != Opcode.METADATA and self.leading_position < 0:
            self.leading_position = len(self.steps)
        if opcode == DAMAGE_OPCODE:
            self._skip_bytes(start, end, part.reason)
            return
        if opcode == Opcode.MESSAGE_INDEX:  # of a chunk that is none any more, or of a wrong length
            self.strays.add(start, end, "it belongs to no chunk, or its length is wrong")
            return
        for key, _ in self._known.check(part):
            self._needed[key] = None
        if opcode == Opcode.CHUNK:
            self._add_chunk(part)
        elif opcode == Opcode.MESSAGE:
            self._add_messages(part)
        elif opcode == Opcode.METADATA and part.record is not None:
            index = records.MetadataIndex(offset=start, length=end - start, name=part.record.name)
            self._keep_bytes(start, end, index)
        elif part.data:
            self.steps.append(RepairStep(RepairAction.KEEP, start, end, is_closed=True))
            self._outside.setdefault(make_record_key(part.data), []).append((self.steps[-1], part.data))
        else:
            self._keep_bytes(start, end, part.record)

    def _keep_bytes(self, start: int, end: int, record: Any = None) -> None:
        last = self.steps[-1] if self.steps else None
        if (
            record is None
            and last is not None
            and last.action is RepairAction.KEEP
            and not last.is_closed
            and last.end == start
        ):
            last.end = end
        else:
            self.steps.append(RepairStep(RepairAction.KEEP, start, end, record, record is not None))

    def _skip_bytes(self, start: int, end: int, reason: str) -> None:
        self.damaged.add(start, end, reason)
        last = self.steps[-1] if self.steps else None
        if last is not None and last.action is RepairAction.PASS_OVER and last.end == start:
            last.end = end
        else:
            self.steps.append(RepairStep(RepairAction.PASS_OVER, start, end))

    def _count_record(self, part: SectionRecord) -> None:
        for number, places in part.contents.by_channel().items():
            self.index.count_messages(number, len(places))
            self.index.extend_time_range(int(places[:, 0].min()), int(places[:, 0].max()))

    def _add_chunk(self, part: SectionRecord) -> None:
        inside, start, end = part.contents, part.start, part.end
        self._count_record(part)
        self.has_chunks = True
        self._in_chunks.update(make_record_key(record) for _, record in inside.declarations)
        if part.chunk_errors:
            self.rewritten.add(start, end, part.chunk_errors[0])
            self.steps.append(RepairStep(RepairAction.REWRITE, start, end, part.record))
        elif self._rewrites_all or part.index_errors or (len(inside.channel) and not part.has_index):
            if not self._rewrites_all:
                self.indexed.add(start, end, part.index_errors[0][1] if part.index_errors else "it had none")
            self.steps.append(RepairStep(RepairAction.INDEX, start, end, part.record))
        else:
            self._keep_bytes(start, part.after, part.record)

    def _add_messages(self, part: SectionRecord) -> None:
        self._count_record(part)
        position = part.start
        for begin, end, reason in part.contents.bad_ranges:
            if part.start + begin > position:
                self._enclose_messages(position, part.start + begin)
            self._skip_bytes(part.start + begin, part.start + end, reason)
            position = part.start + end
        if part.end > position:
            self._enclose_messages(position, part.end)

    def _enclose_messages(self, start: int, end: int) -> None:
        """Take messages outside of chunks, a few MiB at a time."""
        last = self.steps[-1] if self.steps else None
        if (
            last is not None
            and last.action is RepairAction.ENCLOSE
            and last.end == start
            and end - last.start <= _ENCLOSED_BYTES
        ):
            last.end = end
        else:
            self.steps.append(RepairStep(RepairAction.ENCLOSE, start, end))

    # What describes the messages

    def _plan_declarations(self, old: OldSummary) -> None:
        """Find out which schemas and channels have to be written into the data, and from where these are."""
        if old.is_sound:
            for key, steps in self._outside.items():
                good = old.declarations.get(key)
                if good is not None and key not in self._in_chunks and all(data != good for _, data in steps):
                    for step, data in steps:
                        step.action = RepairAction.PASS_OVER
                        self.damaged.add(
                            step.start, step.end, f"the summary, whose CRC is right, has another one than {data[:60]!r}"
                        )
                    del self._known.newest[key]
                    self._known.ids.discard(key)
        self.declarations = self._known.newest
        for key, record in old.declarations.items():
            if key not in self._known.ids:
                self._add_leading_declaration(key, record, old)
                self.rescued += 1
            elif len(record) > len(known := self.declarations.get(key, record)) and is_same_declaration(known, record):
                self.declarations[key] = record  # with fields that only the summary had
        for key in self._needed:
            if key not in self.leading_declarations and (key in self.declarations or key not in self._known.ids):
                self._add_leading_declaration(key, self.declarations.get(key), old)

    def _add_leading_declaration(self, key: RecordKey, record: bytes | None, old: OldSummary) -> None:
        if record is None:
            record = make_placeholder(key)
            self.invented += 1
        schema = find_schema_key(record) if key[0] == Opcode.CHANNEL else None
        if schema is not None and schema not in self.leading_declarations:
            self._add_leading_declaration(schema, self.declarations.get(schema, old.declarations.get(schema)), old)
        self.leading_declarations[key] = self.declarations[key] = record


def make_placeholder(key: RecordKey) -> bytes:
    """Return a description for a schema or a channel whose own is lost: messages can be read at least as bytes."""
    name = f"undescribed_{key[1]}"
    if key[0] == Opcode.SCHEMA:
        return encode_records(records.Schema(id=key[1], name=name, encoding="", data=b""))
    return encode_records(records.Channel(id=key[1], topic=name, message_encoding="", metadata={}, schema_id=0))
