"""Checks of a file against every rule of MCAP, with byte offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike

import numpy as np
from mcap import records
from mcap.opcode import Opcode

from msgq.common.storage.url_path import UrlPath, make_path
from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.file_source import FileSource
from msgq.recording.mcap_io.problem import make_printable_path
from msgq.recording.mcap_io.record_scanner import CHUNK_BYTES_MAX, DAMAGE_OPCODE, FIRST_PRIVATE_OPCODE
from msgq.recording.mcap_io.record_structs import MCAP_MAGIC
from msgq.recording.repair.chunk_parser import get_record_name, parse_record
from msgq.recording.repair.data_section import DataSection, SectionRecord
from msgq.recording.repair.declaration_check import DeclarationKey
from msgq.recording.repair.summary_check import DataSectionStats, RawFinding, SummaryChecker

#: Rules that writers broke by what they wrote, which no recovery can mend.
_UNREPAIRABLE_RULES = {"order", "time", "library", "unknown", "descriptions", "schema"}


@dataclass(frozen=True, slots=True)
class Finding:
    """An error or warning of a check.

    Attributes:
        path: path of the file.
        offset: byte offset in the file.
        severity: "error", or "warning" for valid data that causes trouble for readers.
        rule: name of the broken rule: "chunk", "statistics", ...
        text: description of the problem.
    """

    path: str
    offset: int
    severity: str
    rule: str
    text: str

    @property
    def is_repairable(self) -> bool:
        """True if `recover` repairs the problem."""
        return self.rule not in _UNREPAIRABLE_RULES

    def __str__(self) -> str:
        return f"{self.path} at byte {self.offset}: {self.severity}: {self.text} [{self.rule}]"


class FileExamination:
    """Checks one file, and yields findings in the order of the file. Iterate once, in one thread at a time.

    Memory: one chunk, the schemas and channels, and a few bytes for each chunk, attachment and metadata record.

    Attributes:
        data_stats: contents of the file, available after the last finding.
    """

    def __init__(
        self,
        path: str | PathLike[str] | UrlPath,
        max_chunk_bytes: int = CHUNK_BYTES_MAX,
        report_progress: Callable[[float], object] | None = None,
    ) -> None:
        """Prepare the check.

        Args:
            path: the file.
            max_chunk_bytes: maximum bytes of a chunk before compression. A larger chunk is an error, and its content is
                not checked.
            report_progress: callable for the checked part of the file, from 0 to 1, after each chunk; None: no call.
        """
        self._path, self._max_chunk_bytes, self._report_progress = make_path(path), max_chunk_bytes, report_progress
        self.data_stats = DataSectionStats()
        self._declarations = self.data_stats.declarations
        self._newest_log_time = 0  # greatest log_time until now
        self._out_of_order_messages, self._first_out_of_order_offset, self._unreadable_messages = 0, 0, 0
        self._first_unindexed_chunk = 0
        self._reported_findings: set[tuple[DeclarationKey, int | None]] = set()  # reported missing descriptions

    def __iter__(self) -> Iterator[Finding]:
        """Yield the findings.

        Raises:
            RecordingError: the file cannot be read.
        """
        shown = make_printable_path(self._path)
        with FileSource(self._path).open_bytes() as source:
            for severity, offset, rule, text in self._check_data_and_summary(source, source.size_bytes):
                yield Finding(shown, offset, severity, rule, make_printable_path(text[:1000]))

    def _check_data_and_summary(self, source: ByteReader, size: int) -> Iterator[RawFinding]:
        if source.pread(len(MCAP_MAGIC), 0) != MCAP_MAGIC:
            yield "error", 0, "magic", "the file does not begin with MCAP's magic bytes"
            return
        last: SectionRecord | None = None
        for part in DataSection(source, size, self._max_chunk_bytes):
            if last is None and part.opcode != Opcode.HEADER:
                yield "error", part.start_offset, "header", "the file does not begin with a header"
            last = part
            yield from self._check_record(part)
            if self._report_progress is not None:
                self._report_progress(part.end_offset / size)
        yield from self._check_message_totals()
        end = last if last is not None and last.opcode == Opcode.DATA_END else None
        yield from SummaryChecker(source, size, self.data_stats).iter_findings(end)

    # Checks of the data

    def _check_record(self, part: SectionRecord) -> Iterator[RawFinding]:
        opcode, start = part.opcode, part.start_offset
        if opcode == DAMAGE_OPCODE:
            self.data_stats.is_damaged = True
            yield "error", start, "damage", part.damage_reason
        elif part.damage_reason:
            self.data_stats.is_damaged = True
            yield "error", start, "size", f"a {get_record_name(opcode)} cannot be checked: {part.damage_reason}"
        elif opcode == Opcode.HEADER and not part.parsed_record.library:
            yield "warning", start, "library", "the header does not name the library that wrote the file"
        elif opcode == Opcode.MESSAGE_INDEX:
            yield "error", start, "message index", "a message index has no chunk before it, or has a wrong length"
        elif opcode == Opcode.ATTACHMENT:
            self.data_stats.expected_attachment_indexes[start] = part.parsed_record
        elif opcode == Opcode.METADATA:
            self.data_stats.expected_metadata_indexes[start] = records.MetadataIndex(
                start, part.end_offset - start, part.parsed_record.name
            )
        elif Opcode.DATA_END < opcode < FIRST_PRIVATE_OPCODE:
            yield "warning", start, "unknown", f"a record has opcode {opcode:#x}, which MCAP does not define"
        yield from self._check_declarations(part)
        if part.chunk_contents is not None:
            yield from self._check_messages(part)

    def _check_declarations(self, part: SectionRecord) -> Iterator[RawFinding]:
        for key, user in self._declarations.check_section_record(part):
            if (key, user) in self._reported_findings:
                continue
            self._reported_findings.add((key, user))
            if user is not None:
                text = f"channel {user} has schema {key[1]}, which is not described before the channel"
            else:
                text = f"messages have channel {key[1]}, which is not described before them"
            yield "error", part.start_offset, "undescribed", text
        for opcode, number in self._declarations.redeclared_keys:
            text = f"{get_record_name(opcode)} {number} has two different descriptions; each ID needs exactly one"
            yield "error", part.start_offset, "descriptions", text
        for record in self._declarations.new_declarations:
            if record[0] == Opcode.SCHEMA:
                yield from _check_schema_record(parse_record(record), part.start_offset)

    def _check_messages(self, part: SectionRecord) -> Iterator[RawFinding]:
        """Check a chunk, or a run of messages outside of chunks."""
        contents, data_stats = part.required_contents, self.data_stats
        self._count_messages(part)
        if part.opcode != Opcode.CHUNK:
            data_stats.first_loose_message_offset = data_stats.first_loose_message_offset or part.start_offset
            for begin, _, reason in contents.bad_ranges[:1]:
                yield "error", part.start_offset + begin, "record", reason
            return
        for reason in part.chunk_errors:
            yield "error", part.start_offset, "chunk", f"a chunk: {reason}"
        data_stats.index_bytes_by_chunk[part.start_offset] = part.parsed_record.message_index_length
        if contents.skipped_bytes:
            text = f"a chunk has {contents.skipped_bytes} bytes of records other than messages, schemas and channels"
            yield "warning", part.start_offset, "unknown", text
        for place, text in part.index_errors[:3]:
            yield "error", place, "message index", text
        if len(part.index_errors) > 3:
            yield (
                "error",
                part.index_end_offset,
                "message index",
                f"the message indexes of this chunk have {len(part.index_errors) - 3} more errors",
            )
        if len(contents.channel_ids) and not part.has_message_index:
            self._first_unindexed_chunk = self._first_unindexed_chunk or part.start_offset
            data_stats.unindexed_chunk_count += 1

    def _count_messages(self, part: SectionRecord) -> None:
        times, data_stats = part.required_contents.log_times, self.data_stats
        if not len(times):
            return
        numbers, counts = np.unique(part.required_contents.channel_ids, return_counts=True)
        data_stats.message_counts.update(Counter(dict(zip(numbers.tolist(), counts.tolist(), strict=True))))
        if part.opcode == Opcode.CHUNK:
            data_stats.channels_in_chunks.update(numbers.tolist())
        data_stats.extend_time_range(int(times.min()), int(times.max()))
        before = np.maximum.accumulate(np.concatenate((np.array([self._newest_log_time], np.uint64), times)))
        back = int((times < before[:-1]).sum())
        self._first_out_of_order_offset = self._first_out_of_order_offset or (part.start_offset if back else 0)
        self._out_of_order_messages, self._newest_log_time = self._out_of_order_messages + back, int(before[-1])
        self._unreadable_messages += int((times >= np.uint64(2**63 - 1)).sum())

    def _check_message_totals(self) -> Iterator[RawFinding]:
        """Yield findings about all messages together."""
        if count := self._out_of_order_messages:
            text = f"{count} messages have an earlier log_time than a message before them; this is the first place"
            yield "warning", self._first_out_of_order_offset, "order", text
        if count := self._unreadable_messages:
            text = (
                f"{count} messages have a log_time of 2^63 or later, which many programs, including msgq, cannot read"
            )
            yield "warning", 0, "time", text
        if self.data_stats.unindexed_chunk_count:
            text = f"{self.data_stats.unindexed_chunk_count} chunks have no message index; this is the first"
            yield "warning", self._first_unindexed_chunk, "message index", text


def _check_schema_record(record: records.Schema, offset: int) -> Iterator[RawFinding]:
    if not record.encoding and record.data:
        yield "error", offset, "schema", f"schema {record.id} has data, but no encoding"
    elif not record.encoding:
        yield "warning", offset, "schema", f"schema {record.id} ({record.name[:100]!r}) has no encoding and no data"


def examine(path: str | PathLike[str], max_chunk_bytes: int = CHUNK_BYTES_MAX) -> Iterator[Finding]:
    """Yield the findings of a file in its order. No finding: the file is valid. See `FileExamination`."""
    return iter(FileExamination(path, max_chunk_bytes))
