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
from msgq.recording.mcap_io.channel_registry import DESCRIBING_BYTES_MAX, Room
from msgq.recording.mcap_io.crc import crc_between
from msgq.recording.mcap_io.record_scanner import DAMAGE
from msgq.recording.mcap_io.record_structs import FOOTER_BYTES, HEAD, MAGIC, encoded
from msgq.recording.mcap_io.segment_writer import DataIndex
from msgq.recording.repair.chunk_parser import parsed
from msgq.recording.repair.data_section import Part, Parts
from msgq.recording.repair.declaration_check import Described, Key, is_same, key_of, schema_of

_ENCLOSED_BYTES = 4 << 20


class How(Enum):
    """What becomes of a step's bytes."""

    KEEP = "as they are"
    ENCLOSE = "messages, in a chunk if the file has any: readers by the index would miss them outside"
    PASS_OVER = "in a record that readers pass over"
    INDEX = "a chunk, as it is, with a new index"
    REWRITE = "a chunk, of its good records"


@dataclass(slots=True)
class Step:
    """Some bytes of the old file on their way into the new one.

    Attributes
    ----------
    how : what becomes of them.
    start, end : where they are.
    record : their index, with the places of the old file; None where they have none.
    is_closed : nothing is joined to it.
    """

    how: How
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
    described : its schemas and channels.
    chunks : where it says that chunks begin, and where one does that looks as it says; in order.
    unknown : its records that MCAP does not define; none if its CRC is wrong.
    """

    is_sound: bool = False
    described: dict[Key, bytes] = field(default_factory=dict)
    chunks: list[int] = field(default_factory=list)
    unknown: list[bytes] = field(default_factory=list)

    @classmethod
    def of(cls, fd: int, size: int) -> OldSummary:
        """Return that of a file, where its footer is whole."""
        footer = size - FOOTER_BYTES
        end = os.pread(fd, FOOTER_BYTES, max(footer, 0))
        if footer < len(MAGIC) or not end.endswith(MAGIC) or HEAD.unpack_from(end) != (Opcode.FOOTER, 20):
            return cls()
        start, _, crc = struct.unpack_from("<QQI", end, HEAD.size)
        if not len(MAGIC) <= start < footer:
            return cls()
        is_right = crc == crc_between(fd, start, footer + HEAD.size + 16)
        found = cls.between(fd, start, footer, crc != 0 and is_right)
        if crc and not is_right:
            found.unknown.clear()
        return found

    @classmethod
    def between(cls, fd: int, start: int, end: int, is_sound: bool = False) -> OldSummary:
        """Return what records from a place on say, as far as they make sense."""
        found, room = cls(is_sound), Room()
        while end - start >= HEAD.size:
            opcode, length = HEAD.unpack(os.pread(fd, HEAD.size, start))
            following = start + HEAD.size + length
            if following > end:
                break
            known = opcode in (Opcode.SCHEMA, Opcode.CHANNEL, Opcode.CHUNK_INDEX)
            if (known or opcode > Opcode.DATA_END) and length <= DESCRIBING_BYTES_MAX:
                found._take(os.pread(fd, HEAD.size + length, start), fd, room)
            start = following
        found.chunks.sort()
        return found

    def _take(self, data: bytes, fd: int, room: Room) -> None:
        if data[0] > Opcode.DATA_END:
            self.unknown.append(data)
            return
        try:
            record = parsed(data)
        except ValueError:
            return
        if isinstance(record, records.ChunkIndex):
            times = (record.message_start_time, record.message_end_time, record.uncompressed_size)
            wanted = HEAD.pack(Opcode.CHUNK, max(record.chunk_length - HEAD.size, 0)) + struct.pack("<QQQ", *times)
            at = record.chunk_start_offset
            if self.is_sound and at < 1 << 62 and os.pread(fd, len(wanted), at) == wanted:
                self.chunks.append(at)
        elif room.takes((data[0], data[HEAD.size : HEAD.size + 2]), len(data)):
            self.described[key_of(data)] = data


@dataclass(slots=True)
class Tally:
    """How often something was done, where first, and why there."""

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


class Survey:
    """Of one file.

    Attributes
    ----------
    steps : all that goes into the new file before its end.
    has_header : whether the first step is that.
    front : schemas and channels that have to stand before all others there.
    front_at : how many steps come before these.
    described : all schemas and channels that the new file has.
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
        self._fd, self._path, self._anew = fd, path, anew
        self.steps: list[Step] = []
        self.has_header = False
        self.front: dict[Key, bytes] = {}
        self.front_at = -1
        self.index = DataIndex()
        self.damaged, self.indexed, self.rewritten, self.strays, self.cut = (Tally() for _ in range(5))
        self.rescued = self.invented = 0
        self.has_chunks = False
        self.described: dict[Key, bytes] = {}
        self._known = Described()
        self._needed: dict[Key, None] = {}
        self._outside: dict[Key, list[tuple[Step, bytes]]] = {}  # schemas and channels that no CRC covers
        self._in_chunks: set[Key] = set()
        old = OldSummary.of(fd, size)
        for part in Parts(fd, size, most, old.chunks):
            if part.opcode == DAMAGE and part.end == size:
                self.cut.add(part.start, part.end, part.reason)
            elif part.opcode != Opcode.DATA_END:
                self._take(part)
                continue
            if not old.described:
                unknown, old = old.unknown, OldSummary.between(fd, part.start, size)
                old.unknown = unknown
            break
        if self.front_at < 0:
            self.front_at = len(self.steps)
        self._describe(old)
        self.index.unknown = old.unknown

    def _take(self, part: Part) -> None:
        opcode, start, end = part.opcode, part.start, part.end
        if part.reason and opcode in (Opcode.CHUNK, Opcode.MESSAGE):
            raise RecordingError(
                f"{self._path} at byte {start}: a {Opcode(opcode).name.lower()} cannot be judged: {part.reason}"
            )
        if opcode == Opcode.HEADER:
            self.has_header = True
            self.steps.append(Step(How.KEEP, start, end, is_closed=True))
            return
        if opcode != Opcode.METADATA and self.front_at < 0:
            self.front_at = len(self.steps)
        if opcode == DAMAGE:
            self._pass_over(start, end, part.reason)
            return
        if opcode == Opcode.MESSAGE_INDEX:  # of a chunk that is none any more, or of a wrong length
            self.strays.add(start, end, "it belongs to no chunk, or its length is wrong")
            return
        for key, _ in self._known.take(part):
            self._needed[key] = None
        if opcode == Opcode.CHUNK:
            self._take_chunk(part)
        elif opcode == Opcode.MESSAGE:
            self._take_messages(part)
        elif opcode == Opcode.METADATA and part.record is not None:
            index = records.MetadataIndex(offset=start, length=end - start, name=part.record.name)
            self._keep(start, end, index)
        elif part.data:
            self.steps.append(Step(How.KEEP, start, end, is_closed=True))
            self._outside.setdefault(key_of(part.data), []).append((self.steps[-1], part.data))
        else:
            self._keep(start, end, part.record)

    def _keep(self, start: int, end: int, record: Any = None) -> None:
        last = self.steps[-1] if self.steps else None
        if record is None and last is not None and last.how is How.KEEP and not last.is_closed and last.end == start:
            last.end = end
        else:
            self.steps.append(Step(How.KEEP, start, end, record, record is not None))

    def _pass_over(self, start: int, end: int, reason: str) -> None:
        self.damaged.add(start, end, reason)
        last = self.steps[-1] if self.steps else None
        if last is not None and last.how is How.PASS_OVER and last.end == start:
            last.end = end
        else:
            self.steps.append(Step(How.PASS_OVER, start, end))

    def _count(self, part: Part) -> None:
        for number, places in part.content.by_channel().items():
            self.index.count(number, len(places))
            self.index.widen(int(places[:, 0].min()), int(places[:, 0].max()))

    def _take_chunk(self, part: Part) -> None:
        inside, start, end = part.content, part.start, part.end
        self._count(part)
        self.has_chunks = True
        self._in_chunks.update(key_of(record) for _, record in inside.described)
        if part.flaws:
            self.rewritten.add(start, end, part.flaws[0])
            self.steps.append(Step(How.REWRITE, start, end, part.record))
        elif self._anew or part.faults or (len(inside.channel) and not part.has_index):
            if not self._anew:
                self.indexed.add(start, end, part.faults[0][1] if part.faults else "it had none")
            self.steps.append(Step(How.INDEX, start, end, part.record))
        else:
            self._keep(start, part.after, part.record)

    def _take_messages(self, part: Part) -> None:
        self._count(part)
        here = part.start
        for begin, end, reason in part.content.bad:
            if part.start + begin > here:
                self._enclose(here, part.start + begin)
            self._pass_over(part.start + begin, part.start + end, reason)
            here = part.start + end
        if part.end > here:
            self._enclose(here, part.end)

    def _enclose(self, start: int, end: int) -> None:
        """Take messages outside of chunks, a few MiB at a time."""
        last = self.steps[-1] if self.steps else None
        if last is not None and last.how is How.ENCLOSE and last.end == start and end - last.start <= _ENCLOSED_BYTES:
            last.end = end
        else:
            self.steps.append(Step(How.ENCLOSE, start, end))

    # What describes the messages

    def _describe(self, old: OldSummary) -> None:
        """Find out which schemas and channels have to be written into the data, and from where these are."""
        if old.is_sound:
            for key, found in self._outside.items():
                good = old.described.get(key)
                if good is not None and key not in self._in_chunks and all(data != good for _, data in found):
                    for step, data in found:
                        step.how = How.PASS_OVER
                        self.damaged.add(
                            step.start, step.end, f"the summary, whose CRC is right, has another one than {data[:60]!r}"
                        )
                    del self._known.newest[key]
                    self._known.ids.discard(key)
        self.described = self._known.newest
        for key, record in old.described.items():
            if key not in self._known.ids:
                self._put_in_front(key, record, old)
                self.rescued += 1
            elif len(record) > len(known := self.described.get(key, record)) and is_same(known, record):
                self.described[key] = record  # with fields that only the summary had
        for key in self._needed:
            if key not in self.front and (key in self.described or key not in self._known.ids):
                self._put_in_front(key, self.described.get(key), old)

    def _put_in_front(self, key: Key, record: bytes | None, old: OldSummary) -> None:
        if record is None:
            record = stand_in(key)
            self.invented += 1
        schema = schema_of(record) if key[0] == Opcode.CHANNEL else None
        if schema is not None and schema not in self.front:
            self._put_in_front(schema, self.described.get(schema, old.described.get(schema)), old)
        self.front[key] = self.described[key] = record


def stand_in(key: Key) -> bytes:
    """Return a description for a schema or a channel whose own is lost: messages can be read at least as bytes."""
    name = f"undescribed_{key[1]}"
    if key[0] == Opcode.SCHEMA:
        return encoded(records.Schema(id=key[1], name=name, encoding="", data=b""))
    return encoded(records.Channel(id=key[1], topic=name, message_encoding="", metadata={}, schema_id=0))
