"""The channel file and the pools, written from docs/internals/channel-protocol.md alone: creating, opening."""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from pathlib import Path

from tests.independent.shared_file import (
    SHM,
    CorruptFileError,
    EventCount,
    RowLock,
    SharedFile,
    align,
    atomics,
    file_lock,
    host_time_ns,
    padded,
    unpadded,
)

# "Constants" and "The channel file"
MAGIC, VERSION, TOTAL_BYTES = 0x314E414843515347, 1 << 32, 151552
HEADER = struct.Struct("<8Q64s")
CONFIG, TAIL, EVENTCOUNT, ENTRIES, SCHEMA, SCHEMA_DATA = 128, 256, 320, 36864, 102400, 102704
PUBLISHERS, PUBLISHER_BYTES, PUBLISHER_ROWS, PUBLISHER_BYTE = 4096, 256, 63, 0
VIEWERS, VIEWER_BYTES, VIEWER_ROWS, VIEWER_BYTE = 20480, 64, 64, 64
SUBSCRIBERS, SUBSCRIBER_BYTES, SUBSCRIBER_ROWS, SUBSCRIBER_BYTE = 24576, 192, 64, 128
OPEN_BYTE, ANY_SUBSCRIBERS, STAMPED, CAPACITY_MAX, DEFAULT_CAPACITY = 192, 255, 2, 8192, 64
POSITION_SHIFT, ROW_SHIFT, POSITION_MASK, RETRACTED = 20, 14, (1 << 44) - 1, 63
# "A publisher's row"
POOL_UID, SLOTS, SLOT_BYTES, POOL_BYTES, POOL_INODE, SUPERSEDED, NODE = 64, 72, 80, 88, 96, 104, 128
SENT, BYTES, REFUSED, EVICTED, NODE_BYTES = 192, 200, 208, 216, 48
# "The pool" and "A slot"
POOL_MAGIC, POOL_VERSION, POOL_HEAD = 0x314C4F4F50515347, 1, struct.Struct("<9Q48s")
SLOT_RELEASED, PINS, LINE = 128, 192, 64
LENGTH, PUBLISH_TIME, ORIGIN_TIME, SLOT_HEAD = 0, 8, 16, 64


def entry_of(position: int, row: int, slot: int) -> int:
    return (position & POSITION_MASK) << POSITION_SHIFT | row << ROW_SHIFT | slot


def row_of(entry: int) -> int:
    return entry >> ROW_SHIFT & 0x3F


def distance(entry: int, position: int) -> int:
    """Return how far the position of an entry is after another one; negative: before ("Wrap-around")."""
    difference = (entry >> POSITION_SHIFT) - position & POSITION_MASK
    return difference - (1 << 44) if difference >> 43 else difference


def page_align(size: int) -> int:
    return align(size, mmap.PAGESIZE)


class ChannelFile:
    """A channel that is open."""

    def __init__(self, name: str, node: str) -> None:
        self.name, self.node = name, node
        self.path = SHM / f"msgqchan_{name}"
        try:
            self.file = SharedFile.open(self.path)
        except FileNotFoundError:
            self._create()
            self.file = SharedFile.open(self.path)
        magic, version, header_bytes, total = struct.unpack("<4Q", self.file.read(0, 32))
        if (magic, version >> 32, header_bytes, total) != (MAGIC, VERSION >> 32, PUBLISHERS, self.file.size):
            raise CorruptFileError(f"{self.path} is not a channel of version 1")
        self._open_lock = RowLock(self.path, OPEN_BYTE, shared=True)
        self.eventcount = EventCount(self.file, EVENTCOUNT)

    def _create(self) -> None:
        file = SharedFile.create_unnamed(TOTAL_BYTES)
        fields = (VERSION, PUBLISHERS, TOTAL_BYTES, host_time_ns(), os.getpid(), 0, 0)
        file.write(0, HEADER.pack(0, *fields, padded(self.node, 64)))
        file.store(0, MAGIC)
        with contextlib.suppress(FileExistsError):  # another process was faster
            file.link(self.path)
        file.close()

    @property
    def capacity(self) -> int:
        """Return the number of entries; 0: no process has decided it."""
        return self.file.load(CONFIG) & 0xFFFF

    @property
    def has_stamps(self) -> bool:
        return self.file.load(CONFIG) >> 32 == STAMPED

    @property
    def tail(self) -> int:
        return self.file.load(TAIL)  # EDGE order-init

    def settle(self) -> None:
        """Give open settings their defaults, and begin the order ("Configuring"). The caller holds the lock."""
        config = self.file.load(CONFIG)
        fields = [config & 0xFFFF, config >> 16 & 0xFF, config >> 24 & 0xFF, config >> 32 & 0xFF]
        defaults = (DEFAULT_CAPACITY, PUBLISHER_ROWS, ANY_SUBSCRIBERS, STAMPED)
        capacity, publishers, subscribers, stamps = (
            field or default for field, default in zip(fields, defaults, strict=True)
        )
        self.file.store(CONFIG, capacity | publishers << 16 | subscribers << 24 | stamps << 32)
        if not self.tail:
            for position in range(capacity):
                self.file.store(ENTRIES + position * 8, entry_of(position, RETRACTED, 0))
            self.file.store(TAIL, capacity)

    def entry_offset(self, position: int) -> int:
        return ENTRIES + position % self.capacity * 8

    def entry(self, position: int) -> int:
        return self.file.load(self.entry_offset(position))  # EDGE order

    def publisher_row(self, index: int) -> int:
        return PUBLISHERS + index * PUBLISHER_BYTES

    def pool_path(self, uid: int) -> Path:
        return SHM / f"msgqpool_{self.name}:{uid:016x}"

    def remove_unused_pools(self) -> None:
        """Free the dead rows to which no entry refers. The caller holds the lock."""
        used = {row_of(self.file.load(ENTRIES + index * 8)) for index in range(self.capacity)}
        for row in set(range(PUBLISHER_ROWS)) - used:
            at = self.publisher_row(row)
            uid = self.file.load(at + POOL_UID)
            try:
                lock = RowLock(self.path, PUBLISHER_BYTE + row) if uid else None
            except BlockingIOError:
                continue
            if lock:
                self.pool_path(uid).unlink(missing_ok=True)
                self.file.store(at + POOL_UID, 0)
                lock.release()

    def read_schema(self) -> tuple[str, str, bytes] | None:
        """Return name, encoding and data of the schema, as those of a topic (EDGE schema); None: there is none."""
        while (turn := self.file.load(SCHEMA)) % 2 == 0:
            size, name, encoding = struct.unpack("<8xQ48x192s48s", self.file.read(SCHEMA, 304))
            data = self.file.read(SCHEMA_DATA, size)[144:]
            atomics().fence_acquire()
            if self.file.load(SCHEMA) == turn:
                return (unpadded(name), unpadded(encoding), data) if size else None
        raise NotImplementedError("the writer of the schema was killed")

    def locked(self) -> contextlib.AbstractContextManager[None]:
        return file_lock(self.file)

    def close(self) -> None:
        self._open_lock.release()
        self.file.close()


class Pool:
    """One publisher's slots, mapped by the publisher or a subscriber."""

    def __init__(self, file: SharedFile) -> None:
        self.file = file
        head: tuple[int, ...] = POOL_HEAD.unpack(file.read(0, POOL_HEAD.size))[:9]
        magic, version, total, self.slots, self.slot_bytes, self.data_offset, self.channel_inode, self.uid, _ = head
        self.stride = SLOT_HEAD + align(self.slot_bytes, LINE)
        is_valid = (magic, version, total) == (POOL_MAGIC, POOL_VERSION, file.size)
        if (
            not is_valid
            or self.data_offset + self.slots * self.stride > total
            or PINS + self.slots * LINE > self.data_offset
        ):
            raise CorruptFileError("not a pool of version 1")
        self.slot_released = EventCount(file, SLOT_RELEASED)

    @classmethod
    def create(cls, slots: int, slot_bytes: int, channel: ChannelFile, uid: int) -> Pool:
        """Create a complete pool without a name."""
        data_offset = page_align(PINS + slots * LINE)
        total = data_offset + slots * (SLOT_HEAD + align(slot_bytes, LINE))
        file = SharedFile.create_unnamed(total)
        fields = (POOL_VERSION, total, slots, slot_bytes, data_offset, channel.file.inode, uid, os.getpid())
        file.write(0, POOL_HEAD.pack(0, *fields, padded(channel.node, 48)))
        file.store(0, POOL_MAGIC)
        return cls(file)

    def slot(self, index: int) -> int:
        return self.data_offset + index * self.stride

    def pins(self, index: int) -> int:
        return self.file.load(PINS + index * LINE)  # EDGE unpin

    def pin(self, index: int, viewer: int) -> None:
        self.file.set_bits(PINS + index * LINE, 1 << viewer)  # EDGE pin

    def unpin(self, index: int, viewer: int) -> None:
        """Release a slot, and wake its owner if it waits for one."""
        self.file.clear_bits(PINS + index * LINE, 1 << viewer)
        self.slot_released.notify()
