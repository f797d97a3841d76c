"""A topic's subscriber and publisher, written from topic-protocol.md and layout.md in docs/internals alone.

A stock publisher is recognised when a subscriber receives, but its topic is not taken over, and stock subscribers are
not signalled.
"""

from __future__ import annotations

import secrets
import struct
import threading
import time
from dataclasses import dataclass

from tests.independent.ring_files import (
    BASE_SEQUENCE,
    BASE_TAG,
    BEGUN,
    BRIDGE_UID,
    BYTES,
    CHECKPOINT_EVEN,
    CHECKPOINT_ODD,
    CURSOR,
    DATA,
    DEFAULT_DATA_BYTES,
    EVENTCOUNT,
    GRANT_SEQ,
    LOST,
    LOST_UNKNOWN,
    PUBLISHER_ROWS,
    READ_POINTERS,
    READ_UIDS,
    READ_VALIDS,
    READER_SLOTS,
    RECEIVED,
    RESETS,
    SENT,
    SLOTS,
    SUBSCRIBER_ROWS,
    TRACKED,
    WAITERS,
    WRAP_MARK,
    WRITE_LIMIT,
    WRITE_POINTER,
    WRITE_UID,
    Position,
    Topic,
    is_intact,
    need,
)
from tests.independent.shared_file import (
    MASK_32,
    CorruptFileError,
    Deadline,
    atomics,
    file_lock,
    host_time_ns,
    lock_free_row,
    write_identity,
)

STAMPS = struct.Struct("<qq")  # layout.md, "Stamps": publish_time, origin_time


class TakenOverError(Exception):
    """Another publisher has taken the topic over."""


@dataclass(frozen=True)
class Message:
    """A payload, and its two times if the topic is tracked."""

    data: bytes
    publish_time: int | None = None
    origin_time: int | None = None


class Subscriber:
    """Receives what is published after it joined, and counts what it lost."""

    def __init__(self, name: str, data_bytes: int = DEFAULT_DATA_BYTES) -> None:
        self.topic = Topic(name, data_bytes)
        self._side = self.topic.side
        self.received = self.lost = self.resets = 0
        self.lost_unknown = False
        self._slot: int | None = None
        with file_lock(self.topic.ring):
            self._join()

    def _join(self) -> None:
        """Take a free or dead row (common-protocol.md, "Life"; topic-protocol.md, "Joining")."""
        taken_row = lock_free_row(self.topic.side_path, range(SUBSCRIBER_ROWS), PUBLISHER_ROWS)
        if taken_row is None:
            raise BlockingIOError("all rows are taken")
        index, self._lock = taken_row
        self._row = self.topic.subscriber_row(index)
        start = self.topic.locate_newest()
        self.cursor, self._base, self._era = start.position, start.sequence, start.era  # None: an unknown sequence
        former = self._side.load(self._row)
        self._uid = (secrets.randbits(24) << 8 | index + 1) << 32  # the low half is 0: nobody signals this subscriber
        self._side.store(self._row, 0)
        self.topic.release_slots_of(former)
        self._publish_base()
        self._publish_counts()
        write_identity(self._side, self._row, self._uid)
        self._slot = self.topic.take_slot(self._uid, self.cursor)

    def _publish_base(self) -> None:
        """Show observers at which sequence the counts begin, if it is known."""
        self._side.store(self._row + BASE_TAG, 0)
        if self._base is not None:
            self._side.store(self._row + BASE_SEQUENCE, self._base)
            self._side.store(self._row + BASE_TAG, self._uid | self._era & MASK_32)

    def _publish_counts(self) -> None:
        """EDGE stats: the counts, then the cursor."""
        counts = {RECEIVED: self.received, LOST: self.lost, LOST_UNKNOWN: self.lost_unknown, RESETS: self.resets}
        for field, value in counts.items():
            self._side.store(self._row + field, value)
        self._side.store(self._row + CURSOR, self.cursor)
        if self._slot is not None and self.topic.ring.load(READ_UIDS + self._slot * 8) == self._uid:
            self.topic.move_slot(self._slot, self.cursor)

    def receive(self, timeout: float | None = 0) -> Message | None:
        """Return the next message; None: there was none in `timeout` seconds."""
        deadline = Deadline(timeout)
        while (message := self._take()) is None and (seconds := deadline.next_sleep()):
            announced = self.topic.announce_sleeper()
            if self.topic.newest == self.cursor:
                self._side.futex_wait(EVENTCOUNT, announced, seconds)
        return message

    def _take(self) -> Message | None:
        """topic-protocol.md, "Receiving"."""
        while self.topic.newest != self.cursor:
            size = self.topic.read_size(self.cursor)
            payload = self.topic.ring.read(DATA + self.cursor.offset + 8, max(size or 0, 0))
            if not self.topic.is_intact(self.cursor):
                self._skip_to_newest()
            elif size is None:
                raise CorruptFileError(f"no message at {self.cursor}")
            elif size == WRAP_MARK:
                self.cursor = self.cursor.next_lap()
            else:
                self.cursor = self.cursor.moved(need(size))
                self.received += 1
                self._publish_counts()
                return self._without_stamps(payload)
        return None

    def _without_stamps(self, payload: bytes) -> Message:
        if self._side.load(TRACKED) != 1:
            return Message(payload)
        if len(payload) < STAMPS.size:
            raise CorruptFileError("a message is shorter than its stamps")
        return Message(payload[STAMPS.size :], *STAMPS.unpack_from(payload))

    def _skip_to_newest(self) -> None:
        """Go on at the newest position; what is skipped is lost."""
        newest = self.topic.locate_newest()
        if newest.sequence is None or self._base is None or newest.era != self._era:
            self.lost_unknown = True
            self._base = None if newest.sequence is None else newest.sequence - self.received - self.lost
            self._era = newest.era
        else:
            self.lost = newest.sequence - self._base - self.received
        self.cursor = newest.position
        self.resets += 1
        self._publish_base()
        self._publish_counts()

    def close(self) -> None:
        """Leave: the slot, the identity, then the lock."""
        if self._slot is not None:
            self.topic.release_slot(self._slot, self._uid)
        self._side.store(self._row, 0)
        self._lock.release()
        self.topic.close()


class Publisher:
    """Publishes on a topic; takes it over from another publisher of msgq."""

    def __init__(
        self,
        name: str,
        data_bytes: int = DEFAULT_DATA_BYTES,
        tracked: bool = False,
        schema: tuple[str, str, bytes] | None = None,
    ) -> None:
        self.topic = Topic(name, data_bytes)
        self._ring, self._side = self.topic.ring, self.topic.side
        self._data_bytes = self.topic.data_bytes
        self._chunk = min(self._data_bytes // 16, 65536) & ~7
        self._lap_end = (self._data_bytes - 9) & ~7
        with file_lock(self._ring):
            self._start(tracked)
            if schema:
                self.topic.write_schema(*schema)
            self.topic.notify()

    def _start(self, tracked: bool) -> None:
        """topic-protocol.md, "Starting a publisher"; the numbers are those of its steps."""
        index = self._take_row()  # 1
        while not self._replace_former():  # 2
            pass
        atomics().membarrier_global()
        self._wait_for_sends(index)  # 3
        if not self._ring.load(WRITE_POINTER):  # 4
            self._side.store(TRACKED, int(tracked))
        if (self._side.load(TRACKED) == 1) != tracked:
            raise ValueError("the topic has messages, and is tracked or not")
        self._tracked = tracked
        newest = self.topic.locate_newest()
        self._position, self._sequence, self._era = newest.position, newest.sequence or 0, newest.era
        self._granted = self._position  # the first message extends the grant
        self._side.store(self._row + BEGUN, self._sequence)
        self._side.store(self._row + SENT, self._sequence)
        for other in range(PUBLISHER_ROWS):  # 5
            if other != index and not self.topic.is_alive(other):
                self._side.store(self.topic.publisher_row(other), 0)

    def _replace_former(self) -> bool:
        """Put the uid of this publisher into `write_uid`. False: somebody else changed it at the same moment."""
        former = self._ring.load(WRITE_UID)
        if not self.topic.names_publisher(former) and self._ring.load(WRITE_UID) == former:
            raise NotImplementedError("a stock publisher")
        write_identity(self._side, self._row, self._uid)
        return self._ring.exchange(WRITE_UID, former, self._uid)

    def _take_row(self) -> int:
        former = self._ring.load(WRITE_UID)
        rows = sorted(
            range(PUBLISHER_ROWS), key=lambda index: self._side.load(self.topic.publisher_row(index)) == former
        )
        taken_row = lock_free_row(self.topic.side_path, rows)
        if taken_row is None:
            raise BlockingIOError("all publishers' rows are taken")
        index, self._lock = taken_row
        self._row = self.topic.publisher_row(index)
        self._uid = (secrets.randbits(24) << 8 | index + 1) << 32 | threading.get_native_id()
        others = [self.topic.publisher_row(row) for row in range(PUBLISHER_ROWS)]
        sent, self._bytes = (max(self._side.load(row + total) for row in others) for total in (SENT, BYTES))
        self._side.store(self._row, 0)
        self._side.store(self._row + BEGUN, sent)
        self._side.store(self._row + SENT, sent)
        self._side.store(self._row + BYTES, self._bytes)
        self._side.store(self._row + BRIDGE_UID, ~self._uid)
        return index

    def _wait_for_sends(self, mine: int) -> None:
        until = time.monotonic() + 1
        for index in range(PUBLISHER_ROWS):
            row = self.topic.publisher_row(index)
            while (
                index != mine and self._side.load(row) and self._side.load(row + BEGUN) != self._side.load(row + SENT)
            ):
                if not self.topic.is_alive(index):
                    break
                if time.monotonic() > until:
                    raise TimeoutError("a publisher is stopped in the middle of a send")

    def send(self, data: bytes, origin_time: int | None = None) -> None:
        """topic-protocol.md, "Sending"; the numbers are those of its steps."""
        if self._tracked:
            now = host_time_ns()
            data = STAMPS.pack(now, origin_time if origin_time is not None else now) + data
        room = need(len(data))
        if 3 * room > self._data_bytes:
            raise ValueError(f"a message of {len(data)} bytes is too large")
        self._check_uid()  # 1
        self._side.store(self._row + BEGUN, self._sequence + 1)
        atomics().fence()  # EDGE takeover
        self._check_uid()  # 2
        if self._position.offset + room > self._lap_end:  # 3
            self._extend(self._position.next_lap(min(max(room, self._chunk), self._lap_end)))
            self._ring.store(DATA + self._position.offset, WRAP_MARK)
            self._position = self._position.next_lap()
            self._ring.store(WRITE_POINTER, self._position)
        elif self._position.moved(room) > self._granted:
            self._extend(self._position.moved(min(max(room, self._chunk), self._lap_end - self._position.offset)))
        at = DATA + self._position.offset  # 4
        self._ring.store(at, len(data))
        self._ring.write(at + 8, data)
        self._check_uid()  # 5
        self._position = self._position.moved(room)
        self._ring.store(WRITE_POINTER, self._position)  # 6, EDGE commit
        self._sequence += 1
        self._bytes += len(data)
        self._side.store(self._row + BYTES, self._bytes)
        self._side.store(self._row + SENT, self._sequence)  # 7, EDGE send-done
        atomics().fence()  # 8, EDGE sleep
        if self._side.load32(EVENTCOUNT) & (WAITERS | SLOTS):
            self.topic.notify()

    def _check_uid(self) -> None:
        if self._ring.load(WRITE_UID) != self._uid:
            self._side.store(self._row + BEGUN, self._sequence)
            raise TakenOverError

    def _extend(self, limit: Position) -> None:
        """Announce how far this publisher will write, and a checkpoint (EDGE grant, EDGE checkpoint)."""
        for slot in range(READER_SLOTS):
            position = Position(self._ring.load(READ_POINTERS + slot * 8))
            if not is_intact(limit, position) or (limit.offset == position.offset and limit.cycle != position.cycle):
                self._ring.store(READ_VALIDS + slot * 8, 0)
        self._granted = limit
        self._side.store(WRITE_LIMIT, max(limit, self._side.load(WRITE_LIMIT)))
        turn = self._side.load(GRANT_SEQ) + 1
        fields = struct.pack("<3Q", self._position, self._sequence, self._era)
        self._side.write(CHECKPOINT_ODD if turn % 2 else CHECKPOINT_EVEN, fields)
        self._side.store(GRANT_SEQ, turn)
        atomics().fence_release()

    def close(self) -> None:
        """Leave: `write_uid`, the sleepers, the identity, the lock."""
        self._ring.exchange(WRITE_UID, self._uid, 0)
        self.topic.notify()
        self._side.store(self._row, 0)
        self._lock.release()
        self.topic.close()
