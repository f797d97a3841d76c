"""A channel's publisher and subscriber, written from docs/internals/channel-protocol.md alone.

A publisher has one pool and does not grow. A subscriber receives copies and views.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tests.independent.channel_files import (
    BYTES,
    EVICTED,
    LENGTH,
    NODE,
    NODE_BYTES,
    POOL_UID,
    PUBLISHER_BYTE,
    PUBLISHER_ROWS,
    REFUSED,
    RETRACTED,
    ROW_SHIFT,
    SENT,
    SLOT_HEAD,
    SLOTS,
    SUBSCRIBER_BYTE,
    SUBSCRIBER_BYTES,
    SUBSCRIBER_ROWS,
    SUBSCRIBERS,
    TAIL,
    VIEWER_BYTE,
    VIEWER_BYTES,
    VIEWER_ROWS,
    VIEWERS,
    ChannelFile,
    Pool,
    distance,
    entry_of,
    row_of,
)
from tests.independent.shared_file import (
    CorruptFileError,
    Deadline,
    RowLock,
    SharedFile,
    atomics,
    file_lock,
    host_time_ns,
    is_byte_locked,
    lock_free_row,
    padded,
    random_word,
    write_identity,
)

Result = TypeVar("Result")
Accept = Callable[[int, Pool, int, int], Result | None]  # of an entry, a pool, a slot and a length
SUBSCRIBER_FIELDS = ("viewer", "joined", "cursor", "received", "lost", "resets", "views_held")
HOLDER_POLL_S = 0.1  # "Publishing": a holder that dies wakes nobody, so a publisher that waits polls


class PoolExhaustedError(Exception):
    """Each slot is held by a subscriber that lives."""


@dataclass(frozen=True)
class Message:
    """A copy of a message."""

    data: bytes
    publish_time: int
    origin_time: int


class Publisher:
    """Publishes messages from a pool of its own."""

    def __init__(self, name: str, slots: int = 0, slot_bytes: int = 256, node: str = "independent") -> None:
        self.channel = ChannelFile(name, node)
        self._file = self.channel.file
        with self.channel.locked():
            self._join(slots, slot_bytes)
        self.channel.eventcount.notify()  # 6
        self._free = list(range(self.pool.slots))
        self._published: deque[tuple[int, int]] = deque()  # (entry with its position, slot) from the oldest
        self._limbo: list[int] = []

    def _join(self, slots: int, slot_bytes: int) -> None:
        """Take a row and create a pool ("Joining as a publisher"); the numbers are those of its steps."""
        self.channel.settle()  # 1
        self.channel.remove_unused_pools()  # 2
        for row in range(PUBLISHER_ROWS):  # 3
            at = self.channel.publisher_row(row)
            if not self._file.load(at + POOL_UID):
                self._lock = RowLock(self.channel.path, PUBLISHER_BYTE + row)
                break
        else:
            raise BlockingIOError("all rows of publishers are taken")
        self._index, self._row = row, at
        uid = random_word()
        self.pool = Pool.create(slots or self.channel.capacity + 2, slot_bytes, self.channel, uid)  # 4
        write_identity(self._file, at, uid)  # 5
        fields = (self.pool.slots, slot_bytes, self.pool.file.size, self.pool.file.inode, 0)
        self._file.write(at + SLOTS, struct.pack("<5Q", *fields))
        self._file.write(at + NODE, padded(self.channel.node, NODE_BYTES) + bytes(16 + 32))
        self._file.store(at + POOL_UID, uid)  # EDGE pool
        self.pool.file.link(self.channel.pool_path(uid))

    def send(self, data: bytes, origin_time: int = 0, timeout: float = 0) -> None:
        """Publish a message; the numbers are those of the steps of "Publishing"."""
        if len(data) > self.pool.slot_bytes:
            raise ValueError(f"a message of {len(data)} bytes is too large")
        slot = self._wait_for_slot(timeout)  # 1
        atomics().fence_release()  # 2, EDGE slot
        head = struct.pack("<QQQ", len(data), host_time_ns() if self.channel.has_stamps else 0, origin_time)
        self.pool.file.write(self.pool.slot(slot), head)  # 3
        self.pool.file.write(self.pool.slot(slot) + SLOT_HEAD, data)
        self._publish_entry(slot)
        for field, amount in ((SENT, 1), (BYTES, len(data))):  # 6
            self._file.store(self._row + field, self._file.load(self._row + field) + amount)
        if self.channel.eventcount.has_waiters():  # 7, EDGE sleep
            self.channel.eventcount.notify()

    def _publish_entry(self, slot: int) -> None:
        """4 and 5: two exchanges; help a publisher that stands between them."""
        while True:
            position = self.channel.tail
            offset, entry = self.channel.entry_offset(position), self.channel.entry(position)
            ahead = distance(entry, position)
            if ahead == 0:
                self._file.exchange(TAIL, position, position + 1)
            elif ahead == -self.channel.capacity:
                mine = entry_of(position, self._index, slot)
                if self._file.exchange(offset, entry, mine):  # EDGE order
                    self._file.exchange(TAIL, position, position + 1)
                    self._published.append((position, slot))
                    return

    def _wait_for_slot(self, timeout: float) -> int:
        until = time.monotonic() + timeout
        while (slot := self._take_slot()) is None:
            if time.monotonic() >= until:
                self._file.store(self._row + REFUSED, self._file.load(self._row + REFUSED) + 1)
                raise PoolExhaustedError
            announced = self.pool.slot_released.announce()
            if (slot := self._take_slot()) is not None:
                return slot
            self.pool.slot_released.sleep(announced, min(HOLDER_POLL_S, until - time.monotonic()))
        return slot

    def _take_slot(self) -> int | None:
        """1: a free slot; one whose message has left the order, without pins; one of limbo; else retract."""
        if self._free:
            return self._free.pop()
        while self._published and self._has_left(*self._published[0]):
            _, slot = self._published.popleft()
            if not self.pool.pins(slot):
                return slot
            self._limbo.append(slot)
        released = self._take_from_limbo()
        if released is None and self._limbo:
            self._clear_dead_pins()
            released = self._take_from_limbo()
        return self._retract_oldest() if released is None else released

    def _take_from_limbo(self) -> int | None:
        for slot in self._limbo:
            if not self.pool.pins(slot):
                self._limbo.remove(slot)
                return slot
        return None

    def _clear_dead_pins(self) -> None:
        """Clear the bits of dead viewers in limbo; a living one cannot have set them since."""
        for slot in self._limbo:
            for viewer in range(VIEWER_ROWS):
                if self.pool.pins(slot) >> viewer & 1 and not is_byte_locked(self.channel.path, VIEWER_BYTE + viewer):
                    self.pool.unpin(slot, viewer)

    def _has_left(self, position: int, slot: int) -> bool:
        has_left = self.channel.entry(position) != entry_of(position, self._index, slot)
        atomics().fence()  # EDGE pin
        return has_left

    def _retract_oldest(self) -> int | None:
        """Take the oldest message without a pin out of the order."""
        for position, slot in list(self._published):
            if self.pool.pins(slot):
                continue
            mine, gone = entry_of(position, self._index, slot), entry_of(position, RETRACTED, 0)
            self._file.exchange(self.channel.entry_offset(position), mine, gone)
            self._published.remove((position, slot))
            self._file.store(self._row + EVICTED, self._file.load(self._row + EVICTED) + 1)
            if not self.pool.pins(slot):
                return slot
            self._limbo.append(slot)
        return None

    def close(self) -> None:
        """Leave ("Leaving"): the identity, then the lock; unused pools, if the channel's lock is free."""
        self._file.store(self._row, 0)
        self._lock.release()
        with contextlib.suppress(BlockingIOError), file_lock(self._file, wait=False):
            self.channel.remove_unused_pools()
        self.pool.file.close()
        self.channel.close()


class View:
    """A message in its slot, which does not change until `release`."""

    def __init__(self, subscriber: Subscriber, pool: Pool, slot: int, viewer: int) -> None:
        self._subscriber, self._pool, self._slot, self._viewer = subscriber, pool, slot, viewer

    @property
    def data(self) -> bytes:
        at = self._pool.slot(self._slot)
        return self._pool.file.read(at + SLOT_HEAD, self._pool.file.load(at + LENGTH))

    def release(self) -> None:
        self._pool.unpin(self._slot, self._viewer)
        self._subscriber.views_held -= 1


class Subscriber:
    """Receives each message of all publishers, in one order, and counts what it lost."""

    def __init__(self, name: str, history: int = 0, node: str = "independent") -> None:
        self.channel = ChannelFile(name, node)
        self._file = self.channel.file
        self._pools: dict[int, Pool] = {}
        self.viewer = self.received = self.lost = self.resets = self.views_held = 0
        self._received_before, self._margin = 0, 0  # at the last lap
        with self.channel.locked():
            taken = lock_free_row(self.channel.path, range(SUBSCRIBER_ROWS), SUBSCRIBER_BYTE)
            self._lock = taken[1] if taken else None
            self._row = SUBSCRIBERS + taken[0] * SUBSCRIBER_BYTES if taken else 0
            tail, capacity = self.channel.tail, self.channel.capacity
            self.cursor = max(tail - min(history, capacity), capacity) if tail else 0
            self.joined = tail or self.channel.capacity
            if self._row:
                self._file.store(self._row, 0)
                self._file.write(self._row + 64, padded(node, NODE_BYTES))
                self._store_figures()
                write_identity(self._file, self._row, random_word())

    def _store_figures(self) -> None:
        if self._row:
            self._file.write(
                self._row + 112, struct.pack("<7Q", *(getattr(self, field) for field in SUBSCRIBER_FIELDS))
            )

    def receive(self, timeout: float | None = 0) -> Message | None:
        """Return a copy of the next message; None: there was none in `timeout` seconds."""
        return self._wait(self._copy, timeout)

    def receive_view(self, timeout: float | None = 0) -> View | None:
        """Return the next message where it is."""
        if not self.viewer:
            self._become_viewer()
        return self._wait(self._view, timeout)

    def _wait(self, accept: Accept[Result], timeout: float | None) -> Result | None:
        deadline = Deadline(timeout)
        while (message := self._next(accept)) is None and (seconds := deadline.next_sleep()):
            announced = self.channel.eventcount.announce()
            if not self._has_next():
                self.channel.eventcount.sleep(announced, seconds)
        self._store_figures()
        return message

    def _has_next(self) -> bool:
        if not self.cursor:
            self.cursor = self.channel.capacity if self.channel.tail else 0
        return bool(self.cursor) and distance(self.channel.entry(self.cursor), self.cursor) >= 0

    def _next(self, accept: Accept[Result]) -> Result | None:
        """Find the message at the cursor, and accept it ("Receiving"); the numbers are those of its steps."""
        while self._has_next():
            entry = self.channel.entry(self.cursor)  # 1, EDGE order
            if (ahead := distance(entry, self.cursor)) > 0:
                self._skip_lapped(self.cursor + ahead)
                continue
            if row_of(entry) == RETRACTED:
                self._lose(1)
                continue
            pool = self._map_pool(row_of(entry))  # 2
            if pool is None:
                if self.channel.entry(self.cursor) == entry:
                    self._lose(1)
                continue
            message = self._check(entry, pool, accept)
            if message is not None:
                self.cursor += 1
                self.received += 1
                return message
        return None

    def _check(self, entry: int, pool: Pool, accept: Accept[Result]) -> Result | None:
        slot = entry & (1 << ROW_SHIFT) - 1
        length = pool.file.load(pool.slot(slot) + LENGTH) if slot < pool.slots else -1
        if not 0 <= length <= pool.slot_bytes:  # 3
            if self.channel.entry(self.cursor) != entry:
                return None
            self.cursor += 1
            raise CorruptFileError(f"no message of {length} bytes in slot {slot}")
        return accept(entry, pool, slot, length)

    def _copy(self, entry: int, pool: Pool, slot: int, length: int) -> Message | None:
        """4: copy, then look at the entry again."""
        head = struct.unpack("<QQQ", pool.file.read(pool.slot(slot), 24))
        data = pool.file.read(pool.slot(slot) + SLOT_HEAD, length)
        atomics().fence_acquire()  # EDGE slot
        return Message(data, head[1], head[2]) if self.channel.entry(self.cursor) == entry else None

    def _view(self, entry: int, pool: Pool, slot: int, _length: int) -> View | None:
        """4: pin, then look at the entry again."""
        pool.pin(slot, self.viewer - 1)
        if self.channel.entry(self.cursor) != entry:  # EDGE pin
            pool.unpin(slot, self.viewer - 1)
            return None
        self.views_held += 1
        return View(self, pool, slot, self.viewer - 1)

    def _lose(self, positions: int) -> None:
        """Pass over positions; they are lost, but for those before this subscriber joined."""
        self.cursor += positions
        self.lost += max(0, min(positions, self.cursor - self.joined))

    def _skip_lapped(self, seen: int) -> None:
        """1: go on at the oldest message, or after it if laps follow each other fast."""
        capacity = self.channel.capacity
        least = max(capacity // 16, 1)
        is_slow = self.resets and self.received - self._received_before < least
        self._margin = min(2 * self._margin or least, capacity // 2) if is_slow else 0
        newest = max(self.channel.tail, seen + 1)
        self._lose(newest - capacity + self._margin - self.cursor)
        self.resets += 1
        self._received_before = self.received

    def _map_pool(self, row: int) -> Pool | None:
        """2: the pool that the row names now; None: its file is not there."""
        uid = self._file.load(self.channel.publisher_row(row) + POOL_UID)  # EDGE pool
        if row not in self._pools or self._pools[row].uid != uid:
            try:
                pool = Pool(SharedFile.open(self.channel.pool_path(uid)))
            except FileNotFoundError:
                return None
            if pool.uid != uid or pool.channel_inode != self._file.inode:
                return None
            self._pools[row] = pool
        return self._pools[row]

    def _become_viewer(self) -> None:
        """Become a viewer ("Joining as a subscriber"): a row of viewers, whose bit no pool contains."""
        with self.channel.locked():
            taken = lock_free_row(self.channel.path, range(VIEWER_ROWS), VIEWER_BYTE)
            if taken is None:
                raise BlockingIOError("all rows of viewers are taken")
            row, self._viewer_lock = taken
            if self._file.load(VIEWERS + row * VIEWER_BYTES):
                for publisher in range(PUBLISHER_ROWS):
                    if self._file.load(self.channel.publisher_row(publisher) + POOL_UID) and (
                        pool := self._map_pool(publisher)
                    ):
                        for slot in range(pool.slots):
                            pool.unpin(slot, row)
            write_identity(self._file, VIEWERS + row * VIEWER_BYTES, random_word())
            self.viewer = row + 1

    def close(self) -> None:
        """Leave: the identities, then the locks. Release views first."""
        if self.viewer:
            self._file.store(VIEWERS + (self.viewer - 1) * VIEWER_BYTES, 0)
            self._viewer_lock.release()
        if self._lock:
            self._file.store(self._row, 0)
            self._lock.release()
        for pool in self._pools.values():
            pool.file.close()
        self.channel.close()
