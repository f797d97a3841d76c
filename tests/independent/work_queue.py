"""A work queue's sender and receiver, written from docs/internals/queue-protocol.md alone.

A handle scans all words, and remembers no blocks. It yields to handoffs, and requests none. Queues with events are
refused.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tests.independent.queue_file import (
    ACKNOWLEDGED,
    BLOCK,
    COUNTS,
    COUNTS_BEFORE,
    DELAY_COUNT,
    DELAYED,
    DELIVERIES,
    EVENTCOUNTS,
    FILLING,
    FREE,
    GENERATION,
    HANDOFF,
    HEADER_BYTES,
    KEY,
    LAST_TICKET,
    LEASE,
    LENGTH,
    NOTIFY_DEBT,
    NOTIFY_REQUESTED,
    NOTIFY_SEQ,
    OLDEST_TICKET,
    ORDER_MASK,
    OWNER_MASK,
    PRIORITY_MAX,
    READY,
    READY_COUNT,
    RECEIVED,
    RECEIVER,
    REFUSED,
    RETURNED,
    ROW_BYTES,
    ROW_COUNT,
    ROWS,
    SENDER,
    SENT,
    SLEEPING_ROWS,
    TAKE_COUNT,
    TAKEN,
    TICK_NS,
    WATCHER,
    QueueFile,
)
from tests.independent.shared_file import (
    MASK_32,
    CorruptFileError,
    EventCount,
    atomics,
    file_lock,
    host_time_ns,
    is_byte_locked,
    lock_free_row,
    random_word,
    write_identity,
)

Result = TypeVar("Result")
POLL_S, YIELD_S, SCANS_MAX = 1.0, 0.01, 100_000


class QueueFullError(Exception):
    """There is no free slot."""


class LeaseOverError(Exception):
    """The message went back to the queue, because its lease was over."""


@dataclass
class Job:
    """A message that this handle has taken."""

    data: bytes
    priority: int
    deliveries: int
    slot: int
    word: int


class Handle(QueueFile):
    """An open queue, which sends and receives."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._next_slot = 0
        self._last_sweep = 0.0
        self._yielded_to = (0, 0.0)  # a handoff, and since when this handle yields to it
        with file_lock(self.file):
            self._take_row()
        self.sweep()

    def _take_row(self) -> None:
        """Take a row ("Joining"): a free or dead row, settled, of the next generation."""
        taken_row = lock_free_row(self.path, range(ROW_COUNT))
        if taken_row is None:
            raise BlockingIOError("all rows are taken")
        row, self._lock = taken_row
        self._index, self.row = row, ROWS + row * ROW_BYTES
        self._settle(row)
        self.file.write(self.row + COUNTS_BEFORE, self.file.read(self.row + COUNTS, 40))
        generation = self.file.load(self.row + GENERATION) + 1
        self.file.store(self.row + GENERATION, generation)
        self._owner = row << 48 | (generation & 0xFFFF) << 32
        write_identity(self.file, self.row, random_word())

    def _count(self, field: int) -> None:
        self.file.store(self.row + field, self.file.load(self.row + field) + 1)

    # --- Sending: the numbers are those of the steps ----------------------------------------------------------------

    def send(
        self,
        data: bytes,
        priority: int = 0,
        timeout: float | None = 0,
        origin_time: int = 0,
        delay: float | None = None,
    ) -> None:
        """Send a message. QueueFullError: there was no room in `timeout` seconds."""
        if len(data) > self.max_message_size or not 0 <= priority <= PRIORITY_MAX:
            raise ValueError("too large, or not a priority")
        slot = self._wait(SENDER, self._claim_free_slot, timeout)
        if slot is None:
            self._count(REFUSED)
            raise QueueFullError
        self.file.add(HEADER_BYTES + slot // BLOCK * 8, 1)  # 2, EDGE fill-count
        self.file.write(self.payload(slot), data)  # 3
        order = self.file.load(READY_COUNT) & ORDER_MASK
        key = READY | priority << 48 | ORDER_MASK - order
        fields = struct.pack("<6Q", key, len(data), 0, host_time_ns(), origin_time, 0)
        self.file.write(self.head(slot), fields)
        if delay is not None:
            self._make_delayed(slot, FILLING | self._owner, self._next_taken_word(), delay)
            self.file.add(READY_COUNT, 1)
            self._count(SENT)
            return
        self.file.store(self.row + NOTIFY_DEBT, 1)
        self.file.store(self.word(slot), key)  # 4, EDGE message
        self._announce_ready()  # 5
        self.file.store(self.row + NOTIFY_DEBT, 0)
        self._count(SENT)

    def _claim_free_slot(self, ticket: int) -> int | None:
        """1: one round over the words, from the slot after the last one."""
        if self._must_yield(SENDER, ticket):
            return None
        for step in range(self.max_messages):
            slot = (self._next_slot + step) % self.max_messages
            if self.file.load(self.word(slot)) == FREE and self.file.exchange(
                self.word(slot), FREE, FILLING | self._owner
            ):
                self._next_slot = (slot + 1) % self.max_messages
                return slot
        return None

    def _announce_ready(self) -> None:
        """5 to 7: count the message, notify, and wake watchers and one receiver."""
        self.file.add(READY_COUNT, 1)  # EDGE sent
        self.notify_empty_queue()
        self.wake(WATCHER)
        self.wake(RECEIVER)

    # --- Receiving: the numbers are those of the steps --------------------------------------------------------------

    def receive(self, timeout: float | None = 0) -> Job | None:
        """Receive the best message; None: there was none in `timeout` seconds."""
        while (job := self._wait(RECEIVER, self._take_best, timeout)) is not None:
            with contextlib.suppress(LeaseOverError):
                self.acknowledge(job)
                return job
        return None

    def take(self, timeout: float | None = 0, lease: float | None = None) -> Job | None:
        """Take the best message; it stays the queue's until `acknowledge`, for at most `lease` seconds."""
        job = self._wait(RECEIVER, self._take_best, timeout)
        if job and lease is not None:
            end = (host_time_ns() + int(lease * 1e9)) // TICK_NS + 1
            word = (end & MASK_32) << 32 | self._index << 24 | job.word & 0xFFFFFF
            self.file.store(self.head(job.slot) + LEASE, word)  # EDGE lease-end
        return job

    def acknowledge(self, job: Job) -> None:
        """6: the message leaves the queue."""
        if not self.file.exchange(self.word(job.slot), job.word, FREE):  # EDGE free
            raise LeaseOverError
        self._count(ACKNOWLEDGED)
        self.wake(SENDER)  # 7

    def give_back(self, job: Job) -> None:
        """The message returns to its position in the order."""
        if not self._bring_back(job.slot, job.word):
            raise LeaseOverError

    def _bring_back(self, slot: int, word: int) -> bool:
        key = self.file.load(self.head(slot) + KEY)
        self.file.add(self.row + NOTIFY_DEBT + 8, 1)
        is_back = self.file.exchange(self.word(slot), word, key | READY)
        if is_back:
            if word >> 61 == TAKEN >> 61:
                self._count(RETURNED)
            self._announce_ready()
        self.file.add(self.row + NOTIFY_DEBT + 8, -1)
        return is_back

    def _next_taken_word(self) -> int:
        take = self.file.load(self.row + TAKE_COUNT) + 1
        self.file.store(self.row + TAKE_COUNT, take)
        return TAKEN | self._owner | take & MASK_32

    def give_back_later(self, job: Job, delay: float) -> None:
        """The message returns to its position in the order after `delay` seconds ("Delays")."""
        renewed = self._next_taken_word()
        if not self.file.exchange(self.word(job.slot), job.word, renewed):
            raise LeaseOverError
        self._count(RETURNED)
        self._make_delayed(job.slot, renewed, renewed, delay)

    def _make_delayed(self, slot: int, owned: int, taken: int, delay: float) -> None:
        end = (host_time_ns() + int(delay * 1e9)) // TICK_NS + 1
        lease = (end & MASK_32) << 32 | (taken >> 48 & 0xFF) << 24 | taken & 0xFFFFFF
        self.file.store(self.head(slot) + LEASE, lease)
        if self.file.exchange(self.word(slot), owned, taken | DELAYED):
            self.file.add(DELAY_COUNT, 1)
            self.wake(WATCHER)
            self.wake(RECEIVER)

    def _take_best(self, ticket: int) -> Job | None:
        for _ in range(SCANS_MAX):
            slot, key = self.find_best()
            if not key or self._must_yield(RECEIVER, ticket):
                return None
            word = self._next_taken_word()
            if self.file.exchange(self.word(slot), key, word):  # 4, EDGE message
                return self._copy(slot, key, word)
        raise CorruptFileError("words change all the time")

    def _copy(self, slot: int, key: int, word: int) -> Job:
        """5: count the delivery, and copy the payload."""
        head = self.head(slot)
        deliveries = self.file.load(head + DELIVERIES) + 1
        self.file.store(head + DELIVERIES, deliveries)
        if (length := self.file.load(head + LENGTH)) > self.max_message_size:
            self.file.exchange(self.word(slot), word, FREE)
            raise CorruptFileError(f"a message of {length} bytes")
        self._count(RECEIVED)
        return Job(self.file.read(self.payload(slot), length), key >> 48 & PRIORITY_MAX, deliveries, slot, word)

    # --- Sleeping and waking ----------------------------------------------------------------------------------------

    def _wait(self, kind: int, attempt: Callable[[int], Result | None], timeout: float | None) -> Result | None:
        """Try until the attempt succeeds; sleep between two attempts. None: the time is over."""
        result = attempt(0)
        if result is None and self._sweep_if_due():
            result = attempt(0)
        if result is not None or timeout == 0:
            return result
        until = None if timeout is None else time.monotonic() + timeout
        ticket = self.file.add(LAST_TICKET, 1) + 1
        eventcount = EventCount(self.file, self.row + EVENTCOUNTS + 4 * kind)
        self.file.add(self.row + NOTIFY_DEBT + 8, 1)
        while result is None and (until is None or time.monotonic() < until):
            self.file.store(self.row + OLDEST_TICKET + 8 * kind, ticket)  # EDGE ticket
            with self.sleeping_bit(kind, eventcount) as announced:
                result = attempt(ticket)
                if result is None:
                    seconds = self._end_handoff_or_yield(kind, ticket)
                    eventcount.sleep(announced, min(seconds, until - time.monotonic() if until else seconds))
            result = attempt(ticket) if result is None else result
            if result is None:
                self._sweep_if_due()
        result = attempt(ticket) if result is None else result  # a wake may have been for this call
        if self.find_best()[1]:
            self.notify_empty_queue()
        self.file.add(self.row + NOTIFY_DEBT + 8, -1)
        return result

    @contextlib.contextmanager
    def sleeping_bit(self, kind: int, eventcount: EventCount) -> Iterator[int]:
        announced = eventcount.announce()
        word, bit = SLEEPING_ROWS + 16 * kind + self._index // 64 * 8, 1 << self._index % 64
        self.file.set_bits(word, bit)
        atomics().fence()  # EDGE sleeper-bit
        try:
            yield announced
        finally:
            self.file.clear_bits(word, bit)

    def _must_yield(self, kind: int, ticket: int) -> bool:
        """Whether a call with a smaller ticket has the handoff ("Order of waiting calls")."""
        handoff = self.file.load(HANDOFF + 8 * kind)
        return bool(handoff) and (not ticket or handoff < ticket)

    def _end_handoff_or_yield(self, kind: int, ticket: int) -> float:
        """Return how long to sleep; end a handoff to which this call has yielded for 10 ms."""
        handoff = self.file.load(HANDOFF + 8 * kind)
        if not self._must_yield(kind, ticket):
            self._yielded_to = (0, 0.0)
            return POLL_S
        if self._yielded_to[0] != handoff:
            self._yielded_to = (handoff, time.monotonic())
        elif time.monotonic() - self._yielded_to[1] >= YIELD_S:
            self.end_handoff(kind, handoff)
        return YIELD_S

    def wait_notification(self, timeout: float) -> bool:
        """Wait until a message comes to the empty queue ("Notification"). False: the time is over."""
        until = time.monotonic() + timeout
        word, bit = NOTIFY_REQUESTED + self._index // 64 * 8, 1 << self._index % 64
        before = self.file.load32(NOTIFY_SEQ)
        self.file.set_bits(word, bit)
        atomics().fence()
        while self.file.load32(NOTIFY_SEQ) == before and (seconds := until - time.monotonic()) > 0:
            self.file.futex_wait(NOTIFY_SEQ, before, min(seconds, POLL_S))
        self.file.clear_bits(word, bit)
        return self.file.load32(NOTIFY_SEQ) != before

    # --- Recovery -----------------------------------------------------------------------------------------------------

    def _sweep_if_due(self) -> bool:
        if time.monotonic() - self._last_sweep < YIELD_S:
            return False
        self.sweep()
        return True

    def sweep(self) -> None:
        """Free what the dead were filling, bring back what they or ended leases had taken, and settle dead rows."""
        self._last_sweep = time.monotonic()
        for slot in range(self.max_messages):
            word = self.file.load(self.word(slot))
            kind, row = word & ~(OWNER_MASK | MASK_32), word >> 48 & 0xFF
            if kind not in (FILLING, TAKEN, DELAYED) or row >= ROW_COUNT:
                continue
            if kind == FILLING and self._is_orphaned(word, row):
                if self.file.exchange(self.word(slot), word, FREE):
                    self.wake(SENDER)
            elif kind != FILLING and self._is_to_come_back(slot, word, row):
                self._bring_back(slot, word)
        with contextlib.suppress(BlockingIOError), file_lock(self.file, wait=False):
            for row in range(ROW_COUNT):
                if row != self._index and not self._is_settled(row) and not is_byte_locked(self.path, row):
                    self._settle(row)

    def _is_settled(self, row: int) -> bool:
        """Whether a row has no bit, owes no notification and has no handoff ("Terms")."""
        at, words = ROWS + row * ROW_BYTES, range(SLEEPING_ROWS + row // 64 * 8, NOTIFY_SEQ, 16)
        has_bits = any(self.file.load(word) >> row % 64 & 1 for word in words)
        has_handoff = any(self._handoff_of(row, kind) for kind in (RECEIVER, SENDER))
        return not has_bits and not has_handoff and not any(self.file.read(at + NOTIFY_DEBT, 16))

    def _handoff_of(self, row: int, kind: int) -> int:
        """Return the ticket with which a row has the handoff; 0: it has none."""
        ticket = self.file.load(ROWS + row * ROW_BYTES + OLDEST_TICKET + 8 * kind)
        return ticket if self.file.load(HANDOFF + 8 * kind) == ticket else 0

    def _is_orphaned(self, word: int, row: int) -> bool:
        generation = self.file.load(ROWS + row * ROW_BYTES + GENERATION)
        return generation & 0xFFFF != word >> 32 & 0xFFFF or not is_byte_locked(self.path, row)

    def _is_to_come_back(self, slot: int, word: int, row: int) -> bool:
        if word >> 61 == DELAYED >> 61:
            return not self._has_lease(slot, word) or self._is_lease_over(slot, word)
        return self._is_orphaned(word, row) or self._is_lease_over(slot, word)

    def _has_lease(self, slot: int, word: int) -> bool:
        lease = self.file.load(self.head(slot) + LEASE)
        return lease > 0 and lease >> 24 & 0xFF == word >> 48 & 0xFF and lease & 0xFFFFFF == word & 0xFFFFFF

    def _is_lease_over(self, slot: int, word: int) -> bool:
        lease = self.file.load(self.head(slot) + LEASE)
        return self._has_lease(slot, word) and 0 <= (host_time_ns() // TICK_NS - (lease >> 32)) & MASK_32 < 1 << 31

    def _settle(self, row: int) -> None:
        """Deliver the notification that a dead owner of a row still owed ("Debts"). The caller holds the lock."""
        at = ROWS + row * ROW_BYTES
        self.file.store(at + NOTIFY_DEBT, 1)
        for word in range(SLEEPING_ROWS + row // 64 * 8, NOTIFY_SEQ, 16):
            self.file.clear_bits(word, 1 << row % 64)
        for kind in (RECEIVER, SENDER):
            if ticket := self._handoff_of(row, kind):
                self.end_handoff(kind, ticket)
        atomics().fence()
        if self.find_best()[1]:
            self.notify_empty_queue()
        self.file.write(at + NOTIFY_DEBT, bytes(16))

    def close(self) -> None:
        """Leave ("Leaving"): give back its own words, settle the row, leave the row, release the lock."""
        for slot in range(self.max_messages):
            word = self.file.load(self.word(slot))
            if word & OWNER_MASK == self._owner and word >> 61 == TAKEN >> 61:
                self._bring_back(slot, word)
            elif word == FILLING | self._owner:
                self.file.exchange(self.word(slot), word, FREE)
        self.wake(RECEIVER)  # this handle may have used up a wake that was for another one
        self.wake(SENDER)
        self._settle(self._index)
        self.file.store(self.row, 0)
        self._lock.release()
        self.file.close()
