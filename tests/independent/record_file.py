"""The file of a vector or board, written from docs/internals/record-protocol.md alone: creating, opening, reading."""

from __future__ import annotations

import hashlib
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from tests.independent.shared_file import (
    SHM,
    WORD,
    CorruptFileError,
    EventCount,
    SharedFile,
    align,
    atomics,
    host_time_ns,
    padded,
    unpadded,
)

# "Constants" and "The header"
MAGIC, VERSION = 0x3130434552515347, 1 << 32
HEADER = struct.Struct("<12Q64s")
EVENTCOUNT, OWNER, ROWS, ROW_BYTES, ROW_COUNT = 192, 256, 4096, 128, 128
GENERATION, WRITTEN = 64, 72
SCHEMA, SCHEMA_DATA, SCHEMA_DATA_BYTES = 20480, 20784, 11984
HEADER_BYTES = SCHEMA_DATA + SCHEMA_DATA_BYTES
EXCLUSIVE, BOARD, LINE, KEY_BYTES, KEY_NAME_BYTES = 1, 2, 64, 128, 112
COUNT_SHIFT, ROW_SHIFT, COUNT_MASK, AHEAD_NS = 24, 16, (1 << 40) - 1, 1_000_000_000
SPINS, NAP_S, READ_TRIES, READ_S = 64, 50e-6, 100, 1.0


@dataclass(frozen=True)
class Schema:
    """What the values are (layout.md, "A schema of a channel, queue or record")."""

    name: str
    encoding: str
    data: bytes

    def packed_data(self) -> bytes:
        """Return `schema_data`: the version, the fingerprints and their lengths, then the schema's own data."""
        identity = hashlib.sha256(self.name.encode()).digest()
        layout = hashlib.sha256(self.encoding.encode() + b"\0" + self.data).digest()
        return struct.pack("<Q64s64sBB6x", 0, identity, layout, len(identity), len(layout)) + self.data


@dataclass(frozen=True)
class Cell:
    """Where the copies of an element are ("Cells")."""

    item_bytes: int
    copies: int

    @property
    def room(self) -> int:
        return WORD + align(self.item_bytes)

    @property
    def copy_stride(self) -> int:
        all_in_one_line = WORD + self.copies * self.room <= LINE
        return self.room if all_in_one_line or self.room > 56 else LINE

    @property
    def stride(self) -> int:
        return align(WORD + (self.copies - 1) * self.copy_stride + self.room, LINE)


def path_of(name: str) -> Path:
    return SHM / f"msgqrec_{name}"


def create_vector(name: str, length: int, cell: Cell, schema: Schema | None, flags: int = 0) -> None:
    """Create the file complete, then give it its name ("Creating and opening")."""
    total_bytes = HEADER_BYTES + KEY_BYTES * length * bool(flags & BOARD) + length * cell.stride
    file = SharedFile.create_unnamed(total_bytes)
    sizes = (length, cell.item_bytes, cell.copies, cell.stride, cell.copy_stride, flags)
    creator = padded(Path("/proc/self/comm").read_text().strip(), 64)
    fields = (VERSION, HEADER_BYTES, total_bytes, host_time_ns(), os.getpid(), *sizes, creator)
    file.write(0, HEADER.pack(0, *fields))
    if schema:
        data, texts = schema.packed_data(), padded(schema.name, 192) + padded(schema.encoding, 48)
        file.write(SCHEMA, struct.pack("<QQ48x", 2, len(data)) + texts)
        file.write(SCHEMA_DATA, data)
    file.store(0, MAGIC)
    file.link(path_of(name))
    file.close()


class RecordFile:
    """A vector or board that is open: what readers and writers share."""

    def __init__(self, name: str, is_board: bool = False) -> None:
        self.path = path_of(name)
        self.file = SharedFile.open(self.path)
        fields: tuple[int, ...] = HEADER.unpack(self.file.read(0, HEADER.size))[:12]
        magic, version, header, total, _, _, length, item, copies, stride, copy_stride, flags = fields
        if magic != MAGIC or version >> 32 != VERSION >> 32 or bool(flags & BOARD) != is_board:
            raise CorruptFileError(f"{self.path} is not a vector or board of version 1")
        self.length, self.cell, self.exclusive = length, Cell(item, copies), bool(flags & EXCLUSIVE)
        if copies not in (2, 4) or (stride, copy_stride) != (self.cell.stride, self.cell.copy_stride):
            raise CorruptFileError(f"{self.path} has other strides")
        self._elements = header + KEY_BYTES * length * is_board
        if total != self.file.size or self._elements + length * stride != total:
            raise CorruptFileError(f"{self.path} has {self.file.size} bytes")
        self.eventcount = EventCount(self.file, EVENTCOUNT)

    def read_schema(self) -> Schema:
        size, name, encoding = struct.unpack("<8xQ48x192s48s", self.file.read(SCHEMA, 304))
        return Schema(unpadded(name), unpadded(encoding), self.file.read(SCHEMA_DATA, size)[144:])

    def element(self, index: int) -> int:
        if not 0 <= index < self.length:
            raise IndexError(index)
        return self._elements + index * self.cell.stride

    def copy_of(self, element: int, count: int) -> int:
        """Return where the time and the value of a write are."""
        return element + WORD + count % self.cell.copies * self.cell.copy_stride

    def count(self, index: int) -> int:
        return self.file.load(self.element(index)) >> COUNT_SHIFT

    def read(self, index: int) -> tuple[bytes, int, int]:
        """Return the value of an element, its time and its count ("Reading")."""
        element = self.element(index)
        until = None
        while True:
            for _ in range(READ_TRIES):
                count = self.file.load(element) >> COUNT_SHIFT  # EDGE value
                copied = self.file.read(self.copy_of(element, count), WORD + self.cell.item_bytes)
                atomics().fence_acquire()  # EDGE cell
                now = self.file.load(element) >> COUNT_SHIFT
                if (now - count & COUNT_MASK) <= self.cell.copies - 2:
                    return copied[WORD:], int.from_bytes(copied[:WORD], "little"), count
            until = until or time.monotonic() + READ_S
            if time.monotonic() > until:
                raise TimeoutError("writers are faster than this reader")

    def close(self) -> None:
        self.file.close()
