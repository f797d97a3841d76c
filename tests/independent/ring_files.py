"""The two files of a topic, written from layout.md and topic-protocol.md in docs/internals alone: opening, reading."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tests.independent.shared_file import (
    MASK_32,
    SHM,
    CorruptFileError,
    SharedFile,
    align,
    as_signed,
    atomics,
    file_lock,
    host_time_ns,
    is_byte_locked,
    padded,
    random_word,
    unpadded,
)

# layout.md, "The ring's header" and "The data area"
NUM_READERS, WRITE_POINTER, WRITE_UID, READ_POINTERS, READ_VALIDS, READ_UIDS = 0, 8, 16, 24, 144, 264
READER_SLOTS, DATA, WRAP_MARK = 15, 384, -1
DEFAULT_DATA_BYTES = 1 << 20

# layout.md, "The side segment"
SIDE_MAGIC, SIDE_VERSION, SIDE_BYTES = 0x3145444953515347, 1, 65536
SIDE_HEADER = struct.Struct("<8Q")
EVENTCOUNT, WRITE_LIMIT, CHECKPOINT_EVEN, GRANT_SEQ, CHECKPOINT_ODD = 64, 128, 136, 160, 168
SCHEMA_SEQ, SCHEMA_BYTES, SCHEMA_SHADOW, RING_CANARY, TRACKED, UNCOUNTED = 192, 200, 208, 216, 224, 232
SCHEMA_BEGINS = 240
PUBLISHERS, SUBSCRIBERS, ROW_BYTES = 256, 2304, 128
PUBLISHER_ROWS, SUBSCRIBER_ROWS = 16, 128
SCHEMA_NAME, SCHEMA_DATA, SCHEMA_DATA_MAX = 18688, 18928, 46608
BEGUN, SENT, BYTES, BRIDGE_UID = 64, 72, 80, 88
CURSOR, RECEIVED, LOST, LOST_UNKNOWN, RESETS, BASE_SEQUENCE, BASE_TAG = 64, 72, 80, 88, 96, 104, 112
WAITERS, SLOTS, ONE_WAKE = 1, 2, 4


class Position(int):
    """A cycle in the high half, an offset in the low half (topic-protocol.md, "Terms")."""

    @classmethod
    def of(cls, cycle: int, offset: int) -> Position:
        return cls((cycle & MASK_32) << 32 | offset)

    @property
    def cycle(self) -> int:
        return self >> 32

    @property
    def offset(self) -> int:
        return self & MASK_32

    def next_lap(self, offset: int = 0) -> Position:
        return Position.of(self.cycle + 1, offset)

    def moved(self, size: int) -> Position:
        return Position.of(self.cycle, self.offset + size)


def is_intact(limit: Position, position: Position) -> bool:
    """topic-protocol.md, "Is a position still intact?"."""
    if limit.cycle == position.cycle:
        return limit.offset >= position.offset
    return limit.cycle == (position.cycle + 1) & MASK_32 and limit.offset <= position.offset


def need(size: int) -> int:
    """Return what a message of so many bytes takes (layout.md, "The data area")."""
    return align(size + 8)


def stock_limit(position: Position, data_bytes: int) -> Position:
    """Return how far a stock publisher may have written (topic-protocol.md, "Is a position still intact?")."""
    reach = position.offset + data_bytes // 3 + 8
    if reach >= data_bytes:
        return position.next_lap(data_bytes // 3 + 8 & ~7)
    return Position.of(position.cycle, align(reach))


@dataclass(frozen=True)
class Checkpoint:
    position: Position
    sequence: int | None  # None: unknown, because a stock publisher counts nothing
    era: int


class Topic:
    """The two files of a topic: opened or created, and checked."""

    def __init__(self, name: str, data_bytes: int = DEFAULT_DATA_BYTES) -> None:
        self.ring_path, self.side_path = SHM / f"msgq_{name}", SHM / f"msgqside_{name}"
        while (ring := self._open_ring(data_bytes)) is None:
            pass
        self.ring = ring

    def _open_ring(self, data_bytes: int) -> SharedFile | None:
        """topic-protocol.md, "Creating and opening". None: start over."""
        try:
            ring = SharedFile.open(self.ring_path)
            is_new = False
        except FileNotFoundError:
            ring = SharedFile.create_unnamed(DATA + data_bytes)
            is_new = True
        with file_lock(ring):
            try:
                if is_new:
                    ring.link(self.ring_path)
            except FileExistsError:
                pass  # another process was faster
            if ring.is_named(self.ring_path):
                self._open_side(ring)
                return ring
        ring.close()
        return None

    def _open_side(self, ring: SharedFile) -> None:
        self.data_bytes = ring.size - DATA
        self._tail = DATA + self.data_bytes - 8
        if self.data_bytes % 8 == 0 and ring.load(self._tail) == 0:
            ring.store(self._tail, random_word())
        self.canary = ring.load(self._tail) if self.data_bytes % 8 == 0 else 0
        try:
            self.side = SharedFile.open(self.side_path)
            if self._side_is_current(ring):
                return
            self.side.close()
            self.side_path.unlink()
        except FileNotFoundError:
            pass
        self._create_side(ring)

    def _side_is_current(self, ring: SharedFile) -> bool:
        if self.side.size < SIDE_BYTES:
            return False
        magic, version, _, _, _, inode, data_bytes, _ = SIDE_HEADER.unpack(self.side.read(0, SIDE_HEADER.size))
        if (magic, version) != (SIDE_MAGIC, SIDE_VERSION):
            raise CorruptFileError(f"{self.side_path} is not a side segment of version {SIDE_VERSION}")
        canary = self.side.load(RING_CANARY)
        if canary == 0:
            self.side.store(RING_CANARY, self.canary)
        return inode == ring.inode and data_bytes <= self.data_bytes and canary in (0, self.canary)

    def _create_side(self, ring: SharedFile) -> None:
        self.side = SharedFile.create_unnamed(SIDE_BYTES)
        fields = (
            SIDE_VERSION,
            SIDE_BYTES,
            PUBLISHER_ROWS,
            SUBSCRIBER_ROWS,
            ring.inode,
            self.data_bytes,
            host_time_ns(),
        )
        self.side.write(0, SIDE_HEADER.pack(0, *fields))
        self.side.store(RING_CANARY, self.canary)
        if newest := Position(ring.load(WRITE_POINTER)):
            self.side.store(CHECKPOINT_EVEN, newest)
            self.side.store(UNCOUNTED, 1)
            self.side.store(WRITE_LIMIT, stock_limit(newest, self.data_bytes))
        self.side.store(0, SIDE_MAGIC)
        self.side.link(self.side_path)

    def close(self) -> None:
        self.side.close()
        self.ring.close()

    # --- Rows: layout.md, "Who a participant is" ----------------------------------------------------------------------

    def publisher_row(self, index: int) -> int:
        return PUBLISHERS + index * ROW_BYTES

    def subscriber_row(self, index: int) -> int:
        return SUBSCRIBERS + index * ROW_BYTES

    def names_publisher(self, uid: int) -> bool:
        """Whether a `write_uid` is that of a publisher's row; 0 is a publisher of ours that left."""
        index = (uid >> 32 & 0xFF) - 1
        return uid == 0 or (0 <= index < PUBLISHER_ROWS and self.side.load(self.publisher_row(index)) == uid)

    def has_stock_publisher(self) -> bool:
        return not self.names_publisher(self.ring.load(WRITE_UID))

    def is_alive(self, byte: int) -> bool:
        return is_byte_locked(self.side_path, byte)

    # --- Reader slots: topic-protocol.md, "Reader slots" --------------------------------------------------------------

    def take_slot(self, uid: int, cursor: Position) -> int | None:
        """Take a slot for stock publishers to see; None: the living hold all."""
        for slot in range(READER_SLOTS):
            count = self.ring.load(NUM_READERS)
            if slot >= count and not self.ring.exchange(NUM_READERS, slot, slot + 1):
                continue
            if self.ring.exchange(READ_UIDS + slot * 8, 0, uid):
                self.move_slot(slot, cursor)
                self._set_flags(SLOTS)
                return slot
        return None

    def move_slot(self, slot: int, cursor: Position) -> None:
        self.ring.store(READ_POINTERS + slot * 8, cursor)
        self.ring.store(READ_VALIDS + slot * 8, 1)

    def release_slot(self, slot: int, uid: int) -> None:
        """Release a slot; the last one returns to stock subscribers, which know only the counter."""
        if not self.ring.exchange(READ_UIDS + slot * 8, uid, 0):
            return
        self.ring.store(READ_VALIDS + slot * 8, 0)
        if self.ring.exchange(NUM_READERS, slot + 1, slot) and self.ring.load(READ_UIDS + slot * 8):
            self.ring.exchange(NUM_READERS, slot, slot + 1)
        self._set_flags(SLOTS)

    def release_slots_of(self, former: int) -> None:
        """Release the reader slots that a dead owner of a subscriber's row left."""
        for slot in range(READER_SLOTS):
            uid = self.ring.load(READ_UIDS + slot * 8)
            if former and uid >> 32 == former >> 32:
                self.release_slot(slot, uid)

    # --- The ring: topic-protocol.md, "Is a position still intact?" ---------------------------------------------------

    @property
    def newest(self) -> Position:
        return Position(self.ring.load(WRITE_POINTER))  # EDGE commit

    def is_intact(self, position: Position) -> bool:
        """Whether what was copied from a position on was not overwritten before the copy ended."""
        atomics().fence_acquire()
        if self.canary and self.ring.load(self._tail) != self.canary:
            raise CorruptFileError("the ring was cut")
        if not self.has_stock_publisher():
            return is_intact(Position(self.side.load(WRITE_LIMIT)), position)  # EDGE grant
        return self._is_intact_after_stock(position)

    def _is_intact_after_stock(self, position: Position) -> bool:
        """A stock publisher announces nothing: it may be in the middle of the largest message."""
        newest, largest = self.newest, self.data_bytes // 3
        reach = newest.offset + largest + 8
        if newest.cycle == (position.cycle + 1) & MASK_32:
            return reach <= position.offset
        may_have_wrapped = reach >= self.data_bytes and position.offset < largest
        return newest.cycle == position.cycle and newest.offset >= position.offset and not may_have_wrapped

    def read_size(self, position: Position) -> int | None:
        """Return the size of the message at a position, WRAP_MARK, or None if no publisher can have written it."""
        if position.offset % 8 or position.offset > self.data_bytes - 9:
            return None
        size = as_signed(self.ring.load(DATA + position.offset))
        fits = size >= 0 and position.offset + need(size) + 8 < self.data_bytes and 3 * need(size) <= self.data_bytes
        return size if size == WRAP_MARK or fits else None

    def read_checkpoint(self) -> Checkpoint:
        """EDGE checkpoint: the copy of an even or odd turn, whole if no turn but the next began meanwhile."""
        while True:
            turn = self.side.load(GRANT_SEQ)
            offset = CHECKPOINT_ODD if turn % 2 else CHECKPOINT_EVEN
            position, sequence, era = struct.unpack("<3Q", self.side.read(offset, 24))
            atomics().fence_acquire()
            if self.side.load(GRANT_SEQ) == turn:
                return Checkpoint(Position(position), sequence, era)

    def locate_newest(self) -> Checkpoint:
        """Return the newest position, and how many messages are before it: the checkpoint, then a walk."""
        while True:
            start = self.read_checkpoint()
            newest, position, sequence = self.newest, start.position, start.sequence
            if sequence is None or self.has_stock_publisher():
                return Checkpoint(newest, None, start.era)
            while position != newest and (size := self.read_size(position)) is not None:
                position = position.next_lap() if size == WRAP_MARK else position.moved(need(size))
                sequence += size != WRAP_MARK
            if self.is_intact(start.position):
                if position != newest:
                    raise CorruptFileError(f"the messages from {start} on do not lead to {newest}")
                return Checkpoint(newest, sequence, start.era)

    # --- The eventcount of one publisher: topic-protocol.md, "Sleeping and waking" ------------------------------------

    def announce_sleeper(self) -> int:
        announced = self._set_flags(WAITERS)
        atomics().fence()  # EDGE sleep
        return announced

    def _set_flags(self, flags: int) -> int:
        while True:
            word = self.side.load32(EVENTCOUNT)
            if self.side.exchange32(EVENTCOUNT, word, word | flags):
                return word | flags

    def notify(self) -> None:
        while True:
            word = self.side.load32(EVENTCOUNT)
            if self.side.exchange32(EVENTCOUNT, word, (word & ~(WAITERS | SLOTS)) + ONE_WAKE & MASK_32):
                self.side.futex_wake(EVENTCOUNT)
                return

    # --- The schema: EDGE schema; layout.md, "A schema's shadow" ------------------------------------------------------

    def read_schema(self) -> tuple[str, str, bytes] | None:
        """Return name, encoding and data of the schema; None: there is none."""
        while True:
            sequence = self.side.load(SCHEMA_SEQ)
            if sequence % 2 == 0:
                schema = self._copy_schema(self.side.load(SCHEMA_BYTES), SCHEMA_NAME, SCHEMA_DATA)
            else:
                shadow = self.side.load(SCHEMA_SHADOW)
                spare = SCHEMA_DATA + (shadow & MASK_32)
                if shadow >> 32 != sequence & MASK_32:
                    continue
                schema = self._copy_schema(self.side.load(spare), spare + 8, spare + 248)
            atomics().fence_acquire()
            if self.side.load(SCHEMA_SEQ) == sequence:
                return schema if schema[0] else None

    def _copy_schema(self, size: int, name: int, data: int) -> tuple[str, str, bytes]:
        encoding = self.side.read(name + 192, 48)
        return unpadded(self.side.read(name, 192)), unpadded(encoding), self.side.read(data, size)

    def write_schema(self, name: str, encoding: str, data: bytes) -> None:
        """Write a schema, under the topic's lock; it is readable at any moment, in its place or in the shadow."""
        head = padded(name, 192) + padded(encoding, 48)
        sequence = self.side.load(SCHEMA_SEQ)
        writing = sequence + 1 + sequence % 2
        begin = SCHEMA_BEGINS + (writing + 1) // 2 % 2 * 8  # topic-protocol.md, "Which schema a message has"
        self.side.store(begin, self.ring.load(WRITE_POINTER))
        atomics().fence_release()
        spare = align(max(self.side.load(SCHEMA_BYTES), len(data)))
        if spare + 248 + len(data) <= SCHEMA_DATA_MAX:
            self.side.write(SCHEMA_DATA + spare, struct.pack("<Q", len(data)) + head + data)
            self.side.store(SCHEMA_SHADOW, (writing & MASK_32) << 32 | spare)
        self.side.store(SCHEMA_SEQ, writing)
        atomics().fence_release()
        self.side.store(SCHEMA_BYTES, len(data))
        self.side.write(SCHEMA_NAME, head + data)
        self.side.store(SCHEMA_SEQ, writing + 1)
