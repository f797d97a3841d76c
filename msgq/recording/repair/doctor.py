"""Whether a file is what MCAP wants: every rule, with the place where it is broken."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
from mcap import records
from mcap.opcode import Opcode

from msgq.recording.mcap_io.file_source import FileSource
from msgq.recording.mcap_io.problem import make_printable_path
from msgq.recording.mcap_io.record_scanner import CHUNK_BYTES_MAX, DAMAGE_OPCODE, FIRST_PRIVATE_OPCODE
from msgq.recording.mcap_io.record_structs import MCAP_MAGIC
from msgq.recording.repair.chunk_parser import parse_record, record_name
from msgq.recording.repair.data_section import DataSection, SectionRecord
from msgq.recording.repair.declaration_check import RecordKey
from msgq.recording.repair.summary_check import DataStats, RawFinding, SummaryChecker

#: Rules that writers broke by what they wrote, which no recovery can mend.
_UNREPAIRABLE_RULES = {"order", "time", "library", "unknown", "descriptions", "schema"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a file.

    Attributes
    ----------
    path : the file.
    offset : where in it, in bytes.
    severity : "error", or "warning" for what MCAP allows but readers suffer from.
    rule : a word for what is broken: "chunk", "statistics", ...
    text : what is wrong.
    """

    path: str
    offset: int
    severity: str
    rule: str
    text: str

    @property
    def is_repairable(self) -> bool:
        """Whether a recovery makes it right."""
        return self.rule not in _UNREPAIRABLE_RULES

    def __str__(self) -> str:
        return f"{self.path} at byte {self.offset}: {self.severity}: {self.text} [{self.rule}]"


class FileExamination:
    """Of one file: gives what is wrong with it, in the order of the file. Once; for one thread at a time.

    It holds one chunk, the schemas and channels, and a few bytes of each chunk, attachment and metadata record.

    Attributes
    ----------
    data_stats : what is in the file, when all was given.
    """

    def __init__(self, path: str | PathLike[str], max_chunk_bytes: int = CHUNK_BYTES_MAX) -> None:
        """Begin.

        Parameters
        ----------
        path : the file.
        max_chunk_bytes : of a chunk before compression. Larger ones are not looked into, which is an error.
        """
        self._path, self._max_chunk_bytes = Path(path), max_chunk_bytes
        self.data_stats = DataStats()
        self._declarations = self.data_stats.declarations
        self._newest = 0  # log_time so far
        self._back, self._first_back, self._unread = 0, 0, 0
        self._first_bare = 0
        self._reported_findings: set[tuple[RecordKey, int | None]] = set()  # what nothing describes

    def __iter__(self) -> Iterator[Finding]:
        """Give the findings.

        Raises
        ------
        RecordingError : the file cannot be read.
        """
        shown = make_printable_path(self._path)
        with FileSource(self._path).open_descriptor() as fd:
            for severity, offset, rule, text in self._check_file(fd, os.fstat(fd).st_size):
                yield Finding(shown, offset, severity, rule, make_printable_path(text[:1000]))

    def _check_file(self, fd: int, size: int) -> Iterator[RawFinding]:
        if os.pread(fd, len(MCAP_MAGIC), 0) != MCAP_MAGIC:
            yield "error", 0, "magic", "the file does not begin with MCAP's magic bytes"
            return
        last: SectionRecord | None = None
        for part in DataSection(fd, size, self._max_chunk_bytes):
            if last is None and part.opcode != Opcode.HEADER:
                yield "error", part.start, "header", "the file does not begin with a header"
            last = part
            yield from self._check_record(part)
        yield from self._check_totals()
        end = last if last is not None and last.opcode == Opcode.DATA_END else None
        yield from SummaryChecker(fd, size, self.data_stats).check(end)

    # Of the data

    def _check_record(self, part: SectionRecord) -> Iterator[RawFinding]:
        opcode, start = part.opcode, part.start
        if opcode == DAMAGE_OPCODE:
            self.data_stats.damaged = True
            yield "error", start, "damage", part.reason
        elif part.reason:
            self.data_stats.damaged = True
            yield "error", start, "size", f"a {record_name(opcode)} cannot be judged: {part.reason}"
        elif opcode == Opcode.HEADER and not part.record.library:
            yield "warning", start, "library", "the header does not say which library wrote the file"
        elif opcode == Opcode.MESSAGE_INDEX:
            yield "error", start, "message index", "a message index without a chunk before it, or of a wrong length"
        elif opcode == Opcode.ATTACHMENT:
            self.data_stats.attachments[start] = part.record
        elif opcode == Opcode.METADATA:
            self.data_stats.metadata[start] = records.MetadataIndex(start, part.end - start, part.record.name)
        elif Opcode.DATA_END < opcode < FIRST_PRIVATE_OPCODE:
            yield "warning", start, "unknown", f"a record of opcode {opcode:#x}, which MCAP does not have"
        yield from self._check_declarations(part)
        if part.chunk_contents is not None:
            yield from self._check_contents(part)

    def _check_declarations(self, part: SectionRecord) -> Iterator[RawFinding]:
        for key, user in self._declarations.check(part):
            if (key, user) in self._reported_findings:
                continue
            self._reported_findings.add((key, user))
            if user is not None:
                text = f"channel {user} has schema {key[1]}, which nothing before it describes"
            else:
                text = f"messages of channel {key[1]}, which nothing before them describes"
            yield "error", part.start, "undescribed", text
        for opcode, number in self._declarations.redeclared:
            text = f"{record_name(opcode)} {number} is another one than before: one id has one description in a file"
            yield "error", part.start, "descriptions", text
        for record in self._declarations.new:
            if record[0] == Opcode.SCHEMA:
                yield from _check_schema(parse_record(record), part.start)

    def _check_contents(self, part: SectionRecord) -> Iterator[RawFinding]:
        """Judge a chunk, or messages outside of chunks."""
        contents, data_stats = part.contents, self.data_stats
        self._count_record(part)
        if part.opcode != Opcode.CHUNK:
            data_stats.outside = data_stats.outside or part.start
            for begin, _, why in contents.bad_ranges[:1]:
                yield "error", part.start + begin, "record", why
            return
        for why in part.chunk_errors:
            yield "error", part.start, "chunk", f"a chunk: {why}"
        data_stats.chunks[part.start] = part.record.message_index_length
        if contents.skipped_bytes:
            text = f"{contents.skipped_bytes} bytes of a chunk are neither messages nor schemas nor channels"
            yield "warning", part.start, "unknown", text
        for place, text in part.index_errors[:3]:
            yield "error", place, "message index", text
        if len(part.index_errors) > 3:
            yield "error", part.after, "message index", f"{len(part.index_errors) - 3} more of this chunk are wrong"
        if len(contents.channel) and not part.has_index:
            self._first_bare = self._first_bare or part.start
            data_stats.bare += 1

    def _count_record(self, part: SectionRecord) -> None:
        times, data_stats = part.contents.log_time, self.data_stats
        if not len(times):
            return
        numbers, counts = np.unique(part.contents.channel, return_counts=True)
        data_stats.counts.update(Counter(dict(zip(numbers.tolist(), counts.tolist(), strict=True))))
        if part.opcode == Opcode.CHUNK:
            data_stats.in_chunks.update(numbers.tolist())
        data_stats.extend_time_range(int(times.min()), int(times.max()))
        before = np.maximum.accumulate(np.concatenate((np.array([self._newest], np.uint64), times)))
        back = int((times < before[:-1]).sum())
        self._first_back = self._first_back or (part.start if back else 0)
        self._back, self._newest = self._back + back, int(before[-1])
        self._unread += int((times >= np.uint64(2**63 - 1)).sum())

    def _check_totals(self) -> Iterator[RawFinding]:
        """Give what is said of all messages together."""
        if self._back:
            text = f"{self._back} messages have an earlier log_time than one before them; here are the first"
            yield "warning", self._first_back, "order", text
        if self._unread:
            text = (
                f"{self._unread} messages have a log_time of 2^63 or later, which many programs, as msgq, do not read"
            )
            yield "warning", 0, "time", text
        if self.data_stats.bare:
            text = f"{self.data_stats.bare} chunks have no message index; here is the first"
            yield "warning", self._first_bare, "message index", text


def _check_schema(record: records.Schema, offset: int) -> Iterator[RawFinding]:
    if not record.encoding and record.data:
        yield "error", offset, "schema", f"schema {record.id} has data, but no encoding"
    elif not record.encoding:
        yield "warning", offset, "schema", f"schema {record.id} ({record.name[:100]!r}) says nothing"


def examine(path: str | PathLike[str], max_chunk_bytes: int = CHUNK_BYTES_MAX) -> Iterator[Finding]:
    """Give what is wrong with a file, in its order; nothing: it is whole. See `FileExamination`."""
    return iter(FileExamination(path, max_chunk_bytes))
