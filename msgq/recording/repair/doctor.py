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

from msgq.recording.mcap_io.file_source import FileBytes
from msgq.recording.mcap_io.problem import valid_text
from msgq.recording.mcap_io.record_scanner import CHUNK_BYTES_MAX, DAMAGE, PRIVATE
from msgq.recording.mcap_io.record_structs import MAGIC
from msgq.recording.repair.chunk_parser import kind, parsed
from msgq.recording.repair.data_section import Part, Parts
from msgq.recording.repair.declaration_check import Key
from msgq.recording.repair.summary_check import Ending, Facts, Said

#: Rules that writers broke by what they wrote, which no recovery can mend.
_OF_CONTENTS = {"order", "time", "library", "unknown", "descriptions", "schema"}


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
        return self.rule not in _OF_CONTENTS

    def __str__(self) -> str:
        return f"{self.path} at byte {self.offset}: {self.severity}: {self.text} [{self.rule}]"


class Examination:
    """Of one file: gives what is wrong with it, in the order of the file. Once; for one thread at a time.

    It holds one chunk, the schemas and channels, and a few bytes of each chunk, attachment and metadata record.

    Attributes
    ----------
    facts : what is in the file, when all was given.
    """

    def __init__(self, path: str | PathLike[str], max_chunk_bytes: int = CHUNK_BYTES_MAX) -> None:
        """Begin.

        Parameters
        ----------
        path : the file.
        max_chunk_bytes : of a chunk before compression. Larger ones are not looked into, which is an error.
        """
        self._path, self._most = Path(path), max_chunk_bytes
        self.facts = Facts()
        self._described = self.facts.described
        self._newest = 0  # log_time so far
        self._back, self._first_back, self._unread = 0, 0, 0
        self._first_bare = 0
        self._said: set[tuple[Key, int | None]] = set()  # what nothing describes

    def __iter__(self) -> Iterator[Finding]:
        """Give the findings.

        Raises
        ------
        RecordingError : the file cannot be read.
        """
        shown = valid_text(self._path)
        with FileBytes(self._path).opened() as fd:
            for severity, offset, rule, text in self._all(fd, os.fstat(fd).st_size):
                yield Finding(shown, offset, severity, rule, valid_text(text[:1000]))

    def _all(self, fd: int, size: int) -> Iterator[Said]:
        if os.pread(fd, len(MAGIC), 0) != MAGIC:
            yield "error", 0, "magic", "the file does not begin with MCAP's magic bytes"
            return
        last: Part | None = None
        for part in Parts(fd, size, self._most):
            if last is None and part.opcode != Opcode.HEADER:
                yield "error", part.start, "header", "the file does not begin with a header"
            last = part
            yield from self._part(part)
        yield from self._in_all()
        end = last if last is not None and last.opcode == Opcode.DATA_END else None
        yield from Ending(fd, size, self.facts).check(end)

    # Of the data

    def _part(self, part: Part) -> Iterator[Said]:
        opcode, start = part.opcode, part.start
        if opcode == DAMAGE:
            self.facts.damaged = True
            yield "error", start, "damage", part.reason
        elif part.reason:
            self.facts.damaged = True
            yield "error", start, "size", f"a {kind(opcode)} cannot be judged: {part.reason}"
        elif opcode == Opcode.HEADER and not part.record.library:
            yield "warning", start, "library", "the header does not say which library wrote the file"
        elif opcode == Opcode.MESSAGE_INDEX:
            yield "error", start, "message index", "a message index without a chunk before it, or of a wrong length"
        elif opcode == Opcode.ATTACHMENT:
            self.facts.attachments[start] = part.record
        elif opcode == Opcode.METADATA:
            self.facts.metadata[start] = records.MetadataIndex(start, part.end - start, part.record.name)
        elif Opcode.DATA_END < opcode < PRIVATE:
            yield "warning", start, "unknown", f"a record of opcode {opcode:#x}, which MCAP does not have"
        yield from self._descriptions(part)
        if part.inside is not None:
            yield from self._inside(part)

    def _descriptions(self, part: Part) -> Iterator[Said]:
        for key, user in self._described.take(part):
            if (key, user) in self._said:
                continue
            self._said.add((key, user))
            if user is not None:
                text = f"channel {user} has schema {key[1]}, which nothing before it describes"
            else:
                text = f"messages of channel {key[1]}, which nothing before them describes"
            yield "error", part.start, "undescribed", text
        for opcode, number in self._described.changed:
            text = f"{kind(opcode)} {number} is another one than before: one id has one description in a file"
            yield "error", part.start, "descriptions", text
        for record in self._described.fresh:
            if record[0] == Opcode.SCHEMA:
                yield from _schema(parsed(record), part.start)

    def _inside(self, part: Part) -> Iterator[Said]:
        """Judge a chunk, or messages outside of chunks."""
        inside, facts = part.content, self.facts
        self._count(part)
        if part.opcode != Opcode.CHUNK:
            facts.outside = facts.outside or part.start
            for begin, _, why in inside.bad[:1]:
                yield "error", part.start + begin, "record", why
            return
        for why in part.flaws:
            yield "error", part.start, "chunk", f"a chunk: {why}"
        facts.chunks[part.start] = part.record.message_index_length
        if inside.others:
            text = f"{inside.others} bytes of a chunk are neither messages nor schemas nor channels"
            yield "warning", part.start, "unknown", text
        for place, text in part.faults[:3]:
            yield "error", place, "message index", text
        if len(part.faults) > 3:
            yield "error", part.after, "message index", f"{len(part.faults) - 3} more of this chunk are wrong"
        if len(inside.channel) and not part.has_index:
            self._first_bare = self._first_bare or part.start
            facts.bare += 1

    def _count(self, part: Part) -> None:
        times, facts = part.content.log_time, self.facts
        if not len(times):
            return
        numbers, counts = np.unique(part.content.channel, return_counts=True)
        facts.counts.update(Counter(dict(zip(numbers.tolist(), counts.tolist(), strict=True))))
        if part.opcode == Opcode.CHUNK:
            facts.in_chunks.update(numbers.tolist())
        facts.widen(int(times.min()), int(times.max()))
        before = np.maximum.accumulate(np.concatenate((np.array([self._newest], np.uint64), times)))
        back = int((times < before[:-1]).sum())
        self._first_back = self._first_back or (part.start if back else 0)
        self._back, self._newest = self._back + back, int(before[-1])
        self._unread += int((times >= np.uint64(2**63 - 1)).sum())

    def _in_all(self) -> Iterator[Said]:
        """Give what is said of all messages together."""
        if self._back:
            text = f"{self._back} messages have an earlier log_time than one before them; here are the first"
            yield "warning", self._first_back, "order", text
        if self._unread:
            text = (
                f"{self._unread} messages have a log_time of 2^63 or later, which many programs, as msgq, do not read"
            )
            yield "warning", 0, "time", text
        if self.facts.bare:
            text = f"{self.facts.bare} chunks have no message index; here is the first"
            yield "warning", self._first_bare, "message index", text


def _schema(record: records.Schema, offset: int) -> Iterator[Said]:
    if not record.encoding and record.data:
        yield "error", offset, "schema", f"schema {record.id} has data, but no encoding"
    elif not record.encoding:
        yield "warning", offset, "schema", f"schema {record.id} ({record.name[:100]!r}) says nothing"


def examine(path: str | PathLike[str], max_chunk_bytes: int = CHUNK_BYTES_MAX) -> Iterator[Finding]:
    """Give what is wrong with a file, in its order; nothing: it is whole. See `Examination`."""
    return iter(Examination(path, max_chunk_bytes))
