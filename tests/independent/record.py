"""A vector's reader and writer, written from docs/internals/record-protocol.md and layout.md alone."""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from tests.independent.shared_file import (
    SHM,
    WORD,
    CorruptFileError,
    Deadline,
    EventCount,
    RowLock,
    SharedFile,
    align,
    atomics,
    file_lock,
    host_time_ns,
    is_byte_locked,
    padded,
    random_word,
    unpadded,
    write_identity,
)

# "Constants" and "The header"
MAGIC, VERSION = 0x3130434552515347, 1 << 32
HEADER = struct.Struct("<12Q64s")
EVENTCOUNT, OWNER, ROWS, ROW_BYTES, ROW_COUNT = 192, 256, 4096, 128, 128
GENERATION, WRITTEN = 64, 72
SCHEMA, SCHEMA_DATA, SCHEMA_DATA_BYTES = 20480, 20784, 11984
HEADER_BYTES = SCHEMA_DATA + SCHEMA_DATA_BYTES
EXCLUSIVE, BOARD, LINE = 1, 2, 64
COUNT_SHIFT, ROW_SHIFT, COUNT_MASK, AHEAD_NS = 24, 16, (1 << 40) - 1, 1_000_000_000
SPINS, NAP_S, READ_TRIES, READ_S = 64, 50e-6, 100, 1.0


class WritersError(Exception):
    """Another handle that lives owns all elements, or all rows are taken."""


@dataclass(frozen=True)
class Schema:
    """layout.md, "Schemas of channels, queues and records"."""

    name: str
    encoding: str
    data: bytes


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


def create_vector(name: str, length: int, cell: Cell, schema: Schema, exclusive: bool = False) -> None:
    """Create the file complete, then give it its name ("Coming and going")."""
    total_bytes = HEADER_BYTES + length * cell.stride
    file = SharedFile.create_unnamed(total_bytes)
    sizes = (length, cell.item_bytes, cell.copies, cell.stride, cell.copy_stride, EXCLUSIVE * exclusive)
    creator = padded(Path("/proc/self/comm").read_text().strip(), 64)
    fields = (VERSION, HEADER_BYTES, total_bytes, host_time_ns(), os.getpid(), *sizes, creator)
    file.write(0, HEADER.pack(0, *fields))
    own_data = bytes(8 + 64 + 64 + 8) + schema.data
    file.write(SCHEMA, struct.pack("<QQ48x", 2, len(own_data)) + padded(schema.name, 192) + padded(schema.encoding, 48))
    file.write(SCHEMA_DATA, own_data)
    file.store(0, MAGIC)
    file.link(path_of(name))
    file.close()


class Vector:
    """A vector that is open: what readers and writers share."""

    def __init__(self, name: str) -> None:
        self.path = path_of(name)
        self.file = SharedFile.open(self.path)
        fields: tuple[int, ...] = HEADER.unpack(self.file.read(0, HEADER.size))[:12]
        magic, version, header, total, _, _, length, item, copies, stride, copy_stride, flags = fields
        if magic != MAGIC or version >> 32 != VERSION >> 32 or flags & BOARD:
            raise CorruptFileError(f"{self.path} is not a vector of version 1")
        self.length, self.cell, self.exclusive = length, Cell(item, copies), bool(flags & EXCLUSIVE)
        if copies not in (2, 4) or (stride, copy_stride) != (self.cell.stride, self.cell.copy_stride):
            raise CorruptFileError(f"{self.path} has other strides")
        if total != self.file.size or header + length * stride != total:
            raise CorruptFileError(f"{self.path} has {self.file.size} bytes")
        self._elements = header
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

    def close(self) -> None:
        self.file.close()


class Reader(Vector):
    """Reads values, and waits for changes. It leaves no trace."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._seen = [0] * self.length

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

    def changes(self) -> dict[int, bytes]:
        """Return the elements that were written since the last call."""
        changed = {}
        for index in range(self.length):
            if self.count(index) != self._seen[index]:
                changed[index], _, self._seen[index] = self.read(index)
        return changed

    def wait(self, timeout: float | None) -> bool:
        """Wait until an element differs from what `changes` returned last ("Waiting")."""
        deadline = Deadline(timeout)
        while not self._has_changed():
            seconds = deadline.next_sleep()
            if not seconds:
                return False
            announced = self.eventcount.announce()  # EDGE sleep
            if not self._has_changed():
                self.eventcount.sleep(announced, seconds)
        return True

    def _has_changed(self) -> bool:
        return any(self.count(index) != seen for index, seen in enumerate(self._seen))

    def snapshot(self) -> list[bytes]:
        """Return all elements as they were at one instant ("Snapshots")."""
        taken = [self.read(index) for index in range(self.length)]
        while differing := [index for index in range(self.length) if self.count(index) != taken[index][2]]:
            for index in differing:
                taken[index] = self.read(index)
        return [value for value, _, _ in taken]


class Writer(Vector):
    """Writes values: one handle of up to 128, or the owner of an exclusive vector."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        with file_lock(self.file):
            self._take_row()
            if self.exclusive:
                self._claim()

    def _take_row(self) -> None:
        """ "Coming and going": a free or dead row; what a dead owner left is given back before."""
        for row in range(ROW_COUNT):
            try:
                self._lock = RowLock(self.path, row)
            except BlockingIOError:
                continue
            break
        else:
            raise WritersError("all rows are taken")
        self._row = ROWS + row * ROW_BYTES
        if self.file.load(self._row):
            self._give_back(row)
        generation = self.file.load(self._row + GENERATION) + 1
        self.file.store(self._row + GENERATION, generation)
        self._name = row + 1 << ROW_SHIFT | generation & 0xFFFF
        write_identity(self.file, self._row, random_word())

    def _give_back(self, row: int) -> None:
        for index in range(self.length):
            element = self.element(index)
            version = self.file.load(element)
            if (version >> ROW_SHIFT & 0xFF) == row + 1:
                self.file.exchange(element, version, version >> COUNT_SHIFT << COUNT_SHIFT)
        owner = self.file.load(OWNER)
        if owner >> ROW_SHIFT == row + 1:
            self.file.exchange(OWNER, owner, 0)

    def _claim(self) -> None:
        """ "Owners": under the lock, if the word names nobody or a dead one."""
        owner = self.file.load(OWNER)
        if owner and self._is_alive(owner):
            self._lock.release()
            raise WritersError("the vector has an owner")
        self.file.store(OWNER, self._name)

    def _is_alive(self, name: int) -> bool:
        """Whether the owner of a row and generation lives ("Who holds, and who is dead")."""
        row = (name >> ROW_SHIFT & 0xFF) - 1
        if not 0 <= row < ROW_COUNT:
            return False
        generation = self.file.load(ROWS + row * ROW_BYTES + GENERATION)
        return generation & 0xFFFF == name & 0xFFFF and is_byte_locked(self.path, row)

    def write(self, index: int, value: bytes, timeout: float = 1.0) -> None:
        """Write one element ("Writing"; the numbers are those of its steps)."""
        if len(value) != self.cell.item_bytes:
            raise ValueError(f"a value has {self.cell.item_bytes} bytes")
        element, now = self.element(index), host_time_ns()
        held = self.file.load(element) if self.exclusive else self._hold(element, timeout)  # 1
        count = held >> COUNT_SHIFT
        atomics().fence_release()  # 2, EDGE cell
        next_count = count + 1 if count < COUNT_MASK else self.cell.copies
        before = self.file.load(self.copy_of(element, count)) if count else 0
        written = before if now < before < now + AHEAD_NS else now
        self.file.write(self.copy_of(element, next_count), struct.pack("<Q", written) + value)  # 3
        if self.exclusive:
            self.file.store(element, next_count << COUNT_SHIFT)
            atomics().fence()
        elif not self.file.exchange(element, held, next_count << COUNT_SHIFT):  # 4, EDGE value
            raise CorruptFileError("another writer wrote into a held element")
        self.file.store(self._row + WRITTEN, self.file.load(self._row + WRITTEN) + 1)  # 5
        if self.eventcount.has_waiters():  # EDGE sleep
            self.eventcount.notify()

    def _hold(self, element: int, timeout: float) -> int:
        until = time.monotonic() + timeout
        while True:
            for _ in range(SPINS):
                version = self.file.load(element)
                held = version >> COUNT_SHIFT << COUNT_SHIFT | self._name
                if not version >> ROW_SHIFT & 0xFF and self.file.exchange(element, version, held):
                    return held
            if not self._is_alive(version) and self.file.exchange(element, version, held):
                return held
            if time.monotonic() > until:
                raise TimeoutError("another writer holds the element")
            time.sleep(NAP_S)

    def close(self) -> None:
        """Leave: the owner word, the identity, the lock ("Owners")."""
        if self.exclusive:
            self.file.exchange(OWNER, self._name, 0)
        self.file.store(self._row, 0)
        self._lock.release()
        super().close()
