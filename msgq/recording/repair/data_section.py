"""The data section of a file, part by part, each of them judged: whether it is whole, and what is in it.

What `recover` mends and what `doctor` says are the same judgement.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from mcap import records
from mcap.opcode import Opcode

from msgq.errors import StateError
from msgq.recording.mcap_io.attachments import CRC_BYTES, attachment_index, crc_offset
from msgq.recording.mcap_io.channel_registry import DESCRIBING_BYTES_MAX
from msgq.recording.mcap_io.compression import flaw
from msgq.recording.mcap_io.crc import crc_between
from msgq.recording.mcap_io.record_scanner import DAMAGE, FoundRecord, TooLargeError, Walk, chunk_content
from msgq.recording.mcap_io.record_structs import CHUNK, HEAD, MAGIC, MESSAGE_INDEX
from msgq.recording.repair.chunk_parser import Inside, Looker, kind, parsed

_BLOCK_BYTES = 1 << 20
_INDEXES_MAX = 1 << 17  # of a chunk: ids are 16 bits, and a copy of each is more than enough
_MORE_BYTES = 1 << 16  # what cannot be compressed is a little more than it was
_IN_SUMMARY = (
    Opcode.CHUNK_INDEX,
    Opcode.ATTACHMENT_INDEX,
    Opcode.STATISTICS,
    Opcode.METADATA_INDEX,
    Opcode.SUMMARY_OFFSET,
)


@dataclass(slots=True)
class Part:
    """A record of a data section, or messages that follow each other, or what is damaged.

    Attributes
    ----------
    opcode : DAMAGE for what is damaged; of messages outside of chunks MESSAGE, for all of them together.
    start, end : where it is in the file.
    reason : of damage: what is wrong. Of a record that is too large to look into: that it is.
    record : what it says; of a chunk its ChunkIndex, as it should be. None of what nobody looks into.
    data : the record itself, of a header, a schema, a channel, and metadata.
    inside : of a chunk, and of messages.
    after : of a chunk, or of what was one: where the message indexes behind it end.
    flaws : of a chunk: how the record itself is wrong, though its messages can be read.
    faults : of a chunk: where its message indexes are wrong, and how.
    """

    opcode: int
    start: int
    end: int
    reason: str = ""
    record: Any = None
    data: bytes = b""
    inside: Inside | None = None
    after: int = 0
    flaws: list[str] = field(default_factory=list)
    faults: list[tuple[int, str]] = field(default_factory=list)

    @property
    def content(self) -> Inside:
        """What is inside of a chunk, or of messages.

        Raises
        ------
        StateError : it is neither.
        """
        if self.inside is None:
            raise StateError(f"what is at byte {self.start} has nothing inside")
        return self.inside

    @property
    def has_index(self) -> bool:
        """Whether any message index is behind the chunk."""
        return self.after > self.end


class Parts:
    """The parts, from the magic bytes to the end of the data, which is the last part, or to the end of the file.

    Holds one chunk at a time. For one thread at a time.
    """

    def __init__(self, fd: int, size: int, most: int, known: Sequence[int] = ()) -> None:
        """Begin.

        Parameters
        ----------
        fd, size : of the file.
        most : bytes of a chunk before compression, or of a message outside of chunks.
        known : where chunks begin for sure, in order.
        """
        self._fd, self._size, self._most, self._known = fd, size, most, known
        self._looker = Looker()

    def __iter__(self) -> Iterator[Part]:
        here = len(MAGIC)
        for bound in (*self._known, self._size):
            walk = Walk(self._fd, here, bound, self._most)
            for found in walk:
                part = self._part(walk, found, bound)
                walk.here = max(part.end, part.after)
                yield part
                if part.opcode == Opcode.DATA_END:
                    return
            here = max(walk.here, bound)

    def _read(self, start: int, end: int) -> bytes:
        return os.pread(self._fd, end - start, start)

    def _part(self, walk: Walk, found: FoundRecord, bound: int) -> Part:
        opcode, start, end, head, reason = found
        part = Part(opcode, start, end, reason)
        try:
            if opcode == Opcode.CHUNK:
                self._look_into(part, walk)
            elif opcode == Opcode.MESSAGE:
                self._take_messages(part, bound)
            elif opcode == Opcode.ATTACHMENT:
                part.record = self._attachment(start, end)
            elif opcode in (Opcode.HEADER, Opcode.SCHEMA, Opcode.CHANNEL, Opcode.METADATA):
                self._take_record(part)
            elif opcode == Opcode.DATA_END and bound < self._size:
                raise ValueError("the data are said to end, which they do not")
            elif opcode == Opcode.DATA_END and head[0] == Opcode.DATA_END:
                part.end = start + HEAD.size + HEAD.unpack_from(head)[1]
            elif opcode == Opcode.DATA_END:
                part.end = start  # there is no such record: what comes is the footer
            elif opcode in _IN_SUMMARY:
                raise ValueError(f"a {kind(opcode)} stands among the data")
        except TooLargeError as error:
            part.reason = str(error)
        except ValueError as error:
            part.opcode, part.reason = DAMAGE, str(error)
        return part

    def _take_record(self, part: Part) -> None:
        if part.opcode == Opcode.HEADER and part.start != len(MAGIC):
            raise ValueError("a second header")
        if part.end - part.start > DESCRIBING_BYTES_MAX:
            raise TooLargeError(part.end - part.start, DESCRIBING_BYTES_MAX)
        part.data = self._read(part.start, part.end)
        try:
            part.record = parsed(part.data)
        except ValueError as error:
            raise ValueError(f"a {kind(part.opcode)}: {error}") from None

    # Chunks

    def _look_into(self, part: Part, walk: Walk) -> None:
        indexes = list(islice(_indexes(walk), _INDEXES_MAX))
        part.after = indexes[-1][2] if indexes else part.end
        if part.end - part.start > self._most + _MORE_BYTES:
            raise TooLargeError(part.end - part.start, self._most)
        data = self._read(part.start, part.end)
        try:
            content = chunk_content(data, self._most)
        except TooLargeError:
            raise
        except ValueError as error:
            raise ValueError(f"a chunk is damaged: {error}") from None
        part.inside = self._looker.chunk(content)
        part.record = _chunk_index(part, data, indexes)
        part.flaws = list(_flaws(part, data))
        part.faults = self._index_faults(part.inside, indexes)

    def _index_faults(self, inside: Inside, indexes: Sequence[tuple[int, int, int]]) -> list[tuple[int, str]]:
        """Return where the message indexes of a chunk are wrong, and how."""
        faults, places, seen = [], inside.by_channel(), set()
        for channel, start, end in indexes:
            expected = places.get(channel, np.empty((0, 2), np.uint64))
            count = MESSAGE_INDEX.unpack(self._read(start, start + MESSAGE_INDEX.size))[3] / 16
            if channel in seen:
                faults.append((start, f"a second message index of channel {channel}"))
            elif count != len(expected):
                text = f"the message index of channel {channel} has {count:g} entries for {len(expected)} messages"
                faults.append((start, text))
            else:
                begin = start + MESSAGE_INDEX.size
                entries = np.frombuffer(self._read(begin, min(end, begin + len(expected) * 16)), "<u8").reshape(-1, 2)
                if not (np.array_equal(entries, expected) or np.array_equal(_in_order(entries), expected)):
                    faults.append(
                        (start, f"the message index of channel {channel} has entries that lead to none of it")
                    )
            seen.add(channel)
        if indexes:
            last = indexes[-1][2]
            faults += [(last, f"no message index of channel {channel}") for channel in places if channel not in seen]
        return faults

    # Outside of chunks

    def _take_messages(self, part: Part, bound: int) -> None:
        """Look at the messages from here on, as many as fit in a block."""
        length = part.end - part.start
        if length > self._most + HEAD.size:
            raise TooLargeError(length - HEAD.size, self._most)
        block = self._read(part.start, part.start + max(length, min(_BLOCK_BYTES, bound - part.start)))
        part.inside = self._looker.messages(block)
        part.end = part.start + part.inside.end

    def _attachment(self, start: int, end: int) -> records.AttachmentIndex:
        """Return where an attachment is, and what it is called.

        Raises
        ------
        ValueError : its lengths do not fit each other, or its CRC is wrong.
        """
        index = attachment_index(self._fd, start, end - start)
        at = crc_offset(index)
        crc = int.from_bytes(self._read(at, at + CRC_BYTES), "little")
        if crc and crc != crc_between(self._fd, start + HEAD.size, at):
            raise ValueError(f"the attachment {index.name[:100]!r}: its CRC is wrong")
        return index


def _indexes(walk: Walk) -> Iterator[tuple[int, int, int]]:
    """Give the channel of each message index that comes next, and from where to where it is."""
    following = walk.here
    for found in walk:
        head = found.head[: MESSAGE_INDEX.size]
        if found.opcode != Opcode.MESSAGE_INDEX or len(head) < MESSAGE_INDEX.size:
            break
        _, length, channel, size = MESSAGE_INDEX.unpack(head)
        if length < MESSAGE_INDEX.size - HEAD.size + size:
            break
        yield channel, found.start, found.end
        following = found.end
    walk.here = following


def _chunk_index(part: Part, data: bytes, indexes: Sequence[tuple[int, int, int]]) -> records.ChunkIndex:
    """Return what a summary should say of a chunk."""
    *_, size, _, name_bytes = CHUNK.unpack_from(data, HEAD.size)
    name_at = HEAD.size + CHUNK.size
    times = part.inside.log_time if part.inside is not None else np.empty(0, np.uint64)
    return records.ChunkIndex(
        chunk_length=len(data),
        chunk_start_offset=part.start,
        compression=data[name_at : name_at + name_bytes].decode(),
        compressed_size=struct.unpack_from("<Q", data, name_at + name_bytes)[0],
        message_end_time=int(times.max(initial=0)),
        message_index_length=part.after - part.end,
        message_index_offsets={channel: start for channel, start, _ in indexes},
        message_start_time=int(times.min()) if len(times) else 0,
        uncompressed_size=size,
    )


def _in_order(entries: Any) -> Any:
    return entries[np.argsort(entries[:, 1])]


def _flaws(part: Part, data: bytes) -> Iterator[str]:
    """Give what is wrong with a chunk that can be read."""
    index, bad = part.record, part.content.bad
    if bad:
        more = f"; and {len(bad) - 1} more" if len(bad) > 1 else ""
        yield f"{bad[0][0]} bytes on: {bad[0][2]}{more}"
    said = CHUNK.unpack_from(data, HEAD.size)[:2]
    times = (index.message_start_time, index.message_end_time)
    if said != times and len(part.content.channel):
        yield f"it says that its messages are from {said[0]} to {said[1]}; they are from {times[0]} to {times[1]}"
    begin = HEAD.size + CHUNK.size + len(index.compression) + 8
    why = flaw(index.compression, memoryview(data)[begin : begin + index.compressed_size], index.uncompressed_size)
    if why:
        yield why
