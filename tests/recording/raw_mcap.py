"""MCAP files byte by byte, without any library. Records may have unknown fields, sections may have unknown records.

Format: https://mcap.dev/spec.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

MCAP_MAGIC = b"\x89MCAP0\r\n"
HEADER, FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, MESSAGE_INDEX, CHUNK_INDEX = range(1, 9)
ATTACHMENT, ATTACHMENT_INDEX, STATISTICS, METADATA, METADATA_INDEX, SUMMARY_OFFSET, DATA_END = range(9, 16)
RESERVED = 0x7F  # opcodes that a later MCAP may define
FIRST_PRIVATE_OPCODE = 0x8A  # first opcode for applications; msgq uses the same number
STEP = 2_000_000  # ns from one chunk to the next one


def record(opcode: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack("<BQ", opcode, len(body)) + body


def pack_text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(data)) + data


def pack_texts(values: dict[str, str]) -> bytes:
    return pack_text(b"".join(pack_text(part) for pair in values.items() for part in pair))


def message(channel: int, sequence: int, time: int, data: bytes) -> bytes:
    return record(MESSAGE, struct.pack("<HIQQ", channel, sequence, time, time), data)


@dataclass
class RawFile:
    """A file with the channels "a" and "b", whose chunks have a message of each.

    Attributes:
        tails: unknown bytes at the end of records, by opcode.
        beside: records of the data section, behind the first chunk.
        inside: records of the first chunk, behind its messages.
        behind: records of the summary section.
        is_bare: whether schemas and channels in chunks have no unknown bytes, though those of the summary have.
        begin: messages are 1 and 5 ns later, then one step later, and so on; the attachment is half a step later.
    """

    tails: dict[int, bytes] = field(default_factory=dict)
    beside: tuple[bytes, ...] = ()
    inside: tuple[bytes, ...] = ()
    behind: tuple[bytes, ...] = ()
    is_bare: bool = False
    begin: int = STEP
    _data: bytearray = field(default_factory=lambda: bytearray(MCAP_MAGIC))
    _groups: dict[int, list[bytes]] = field(default_factory=dict)

    def _record(self, opcode: int, *parts: bytes) -> bytes:
        return record(opcode, *parts, self.tails.get(opcode, b""))

    def _index(self, opcode: int, *parts: bytes) -> None:
        self._groups.setdefault(opcode, []).append(self._record(opcode, *parts))

    def _descriptions(self, is_bare: bool = False) -> list[bytes]:
        made = record if is_bare else self._record
        schema = made(SCHEMA, struct.pack("<H", 1), pack_text("S"), pack_text("jsonschema"), pack_text(b"{}"))
        metadata = [pack_text("json"), pack_texts({"k": "v"})]
        channels = [made(CHANNEL, struct.pack("<HH", i + 1, 1), pack_text("ab"[i]), *metadata) for i in range(2)]
        return [schema, *channels]

    def _add_chunk(self, first: int, *contents: bytes) -> None:
        content = b"".join(self._descriptions(self.is_bare))
        entries = []
        for channel in (1, 2):
            time = self.begin + first * STEP + (1, 5)[channel - 1]
            entries.append((channel, time, len(content)))
            content += message(channel, first, time, b'{"n": %d}' % first)
        content += b"".join(contents)
        times = struct.pack("<QQ", entries[0][1], entries[1][1])
        at, size = len(self._data), struct.pack("<Q", len(content))
        crc = struct.pack("<I", zlib.crc32(content))
        self._data += self._record(CHUNK, times, size, crc, pack_text(""), size, content)
        length, offsets, begin = len(self._data) - at, b"", len(self._data)
        for channel, time, offset in entries:
            offsets += struct.pack("<HQ", channel, len(self._data))
            entry = struct.pack("<QQ", time, offset)
            self._data += self._record(MESSAGE_INDEX, struct.pack("<H", channel), pack_text(entry))
        place = struct.pack("<QQ", at, length)
        index_length = struct.pack("<Q", len(self._data) - begin)
        self._index(CHUNK_INDEX, times, place, pack_text(offsets), index_length, pack_text(""), size, size)

    def _add_extras(self) -> None:
        times, names = struct.pack("<QQ", self.begin + STEP // 2, 0), pack_text("map") + pack_text("text/plain")
        data = struct.pack("<Q", 4) + b"data"
        crc = struct.pack("<I", zlib.crc32(times + names + data))
        attachment = self._record(ATTACHMENT, times, names, data, crc)
        place = struct.pack("<QQ", len(self._data), len(attachment))
        self._index(ATTACHMENT_INDEX, place, times, struct.pack("<Q", 4), names)
        self._data += attachment
        metadata = self._record(METADATA, pack_text("device"), pack_texts({"serial": "7"}))
        self._index(METADATA_INDEX, struct.pack("<QQ", len(self._data), len(metadata)), pack_text("device"))
        self._data += metadata

    def bytes(self, chunks: int = 3) -> bytes:
        """Return the file."""
        self._data += self._record(HEADER, pack_text(""), pack_text("raw"))
        self._add_extras()
        for number in range(chunks):
            self._add_chunk(number, *(self.inside if number == 0 else ()))
            self._data += b"".join(self.beside if number == 0 else ())
        self._data += record(DATA_END, struct.pack("<I", zlib.crc32(self._data)))
        self._groups |= {SCHEMA: self._descriptions()[:1], CHANNEL: self._descriptions()[1:]}
        times = struct.pack("<QQ", self.begin + 1, self.begin + STEP * (chunks - 1) + 5)
        counts = pack_text(struct.pack("<HQHQ", 1, chunks, 2, chunks))
        numbers = struct.pack("<QHIIII", 2 * chunks, 1, 2, 1, 1, chunks)
        self._index(STATISTICS, numbers, times, counts)
        for part in self.behind:
            self._groups.setdefault(part[0], []).append(part)
        start, offsets = len(self._data), b""
        for opcode, group in self._groups.items():
            data = b"".join(group)
            place = struct.pack("<BQQ", opcode, len(self._data), len(data))
            offsets += self._record(SUMMARY_OFFSET, place)
            self._data += data
        place = struct.pack("<QQ", start, len(self._data))
        self._data += offsets
        covered = bytes(self._data[start:]) + struct.pack("<BQ", FOOTER, 20) + place
        return bytes(self._data) + record(FOOTER, place, struct.pack("<I", zlib.crc32(covered))) + MCAP_MAGIC


class Found(NamedTuple):
    """A record of a file."""

    section: str  # "data", "chunk" or "summary"
    opcode: int
    body: bytes


def records(path: Path) -> list[Found]:
    """Return all records of a file, with those within chunks, which are not compressed."""
    data = path.read_bytes()
    assert data.startswith(MCAP_MAGIC)
    assert data.endswith(MCAP_MAGIC)
    return _records(data[len(MCAP_MAGIC) : -len(MCAP_MAGIC)], "data")


def _records(data: bytes, section: str) -> list[Found]:
    records_found, position = [], 0
    while position < len(data):
        opcode, length = struct.unpack_from("<BQ", data, position)
        body = data[position + 9 : position + 9 + length]
        records_found.append(Found(section, opcode, body))
        if opcode == CHUNK:
            assert body[28:32] == bytes(4), "a chunk is compressed"
            records_found += _records(body[40 : 40 + struct.unpack_from("<Q", body, 32)[0]], "chunk")
        position += 9 + length
        section = "summary" if opcode == DATA_END else section
    return records_found
